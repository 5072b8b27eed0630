"""The one family of errors.  Each says what is wrong, where, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unskip.verdict import Verdict

__all__ = [
    "ActivationError",
    "BlockError",
    "FactContradicted",
    "InvalidCertificate",
    "ModelError",
    "NotAbsorbable",
    "NotReducible",
    "UnskipError",
]


class UnskipError(Exception):
    """Base of every error that Unskip raises on purpose.

    ``code`` is a short stable identifier, ``hint`` the next step (may be empty).
    """

    code = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class ActivationError(UnskipError):
    """An activation's name or parameters are not understood."""

    code = "activation"


class FactContradicted(ActivationError):
    """A declared fact about an activation is false at ``point``."""

    code = "fact-contradicted"

    def __init__(self, message: str, *, point: float, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.point = point


class BlockError(UnskipError):
    """Arrays do not make up a block: a shape, a type or a value is wrong."""

    code = "block"


class NotReducible(UnskipError):
    """A skip is singular or too ill conditioned to be divided out."""

    code = "not-reducible"


class NotAbsorbable(UnskipError):
    """No residual-free block of ``width`` neurons is known to equal the block: ``verdict``."""

    code = "not-absorbable"

    def __init__(self, verdict: Verdict, width: float) -> None:
        lower, upper = verdict.width
        known = "no width suffices" if lower == float("inf") else f"{upper:.0f} neurons suffice"
        if lower < upper == float("inf"):
            known = "no width is known to suffice"
        at = f" at width {width:.0f}" if width < float("inf") else ""
        super().__init__(f"not absorbed{at}: {verdict.reason}", hint=known)
        self.verdict = verdict
        self.width = width


class ModelError(UnskipError):
    """A model file or directory cannot be read as one."""

    code = "model"


class InvalidCertificate(UnskipError):
    """A certificate does not prove what it states about the block at hand."""

    code = "invalid-certificate"
