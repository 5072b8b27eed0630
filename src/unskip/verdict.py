"""The answer for a block, as a value that explains itself."""

from __future__ import annotations

from dataclasses import dataclass

from unskip.certificates import Answer, Assumptions, Certificate, Interval, Rule, Scope

__all__ = ["Verdict", "Within"]


@dataclass(frozen=True)
class Within:
    """Flips that meet the subset condition nearly, with proved bounds (theory §5, Theorem 41).

    ``subset``: the neurons S to flip.  ``bound``: an upper bound of ‖Π(A + Σ_S R_j)‖₂.
    ``offset``: one of the constant error, 0 where the replacement may have an output bias.
    Never an exact answer: that is the verdict's ``answer``.
    """

    subset: tuple[int, ...]
    bound: float
    offset: float

    def error(self, radius: float) -> float:
        """‖F(x) − G(x)‖ is at most this for ‖x‖ ≤ ``radius``, G being F with S flipped.

        F and G are compared before a following norm, and up to their mean if it is a LayerNorm.
        """
        if not radius >= 0:
            raise ValueError(f"a ball has a radius of at least 0, not {radius}")
        return (self.bound * radius + self.offset) * (1 + 2.0**-50)


@dataclass(frozen=True, eq=False)
class Verdict:
    """Can the skip be absorbed?  Read together with ``assumptions``.

    ``subset``: the neurons S to flip when flips absorb the skip, else ``None``.
    ``defect``: encloses min over S of ‖Π(A + κ D_S U_S)‖_F / ‖ΠA‖_F, where Π is what the
    following norm keeps; ``None`` where the subset condition is not what decides.
    ``width``: encloses the neurons of the smallest residual-free MLP equal to the block;
    ``inf`` when no width suffices.  ``reason`` says why, in a sentence.
    ``within``: flips that come within the tolerance asked for, if some were found.
    """

    answer: Answer
    scope: Scope
    rule: Rule
    reason: str
    assumptions: Assumptions
    subset: tuple[int, ...] | None
    defect: Interval | None
    width: Interval
    certificate: Certificate
    within: Within | None = None

    @property
    def reference(self) -> str:
        """The theorem behind the rule."""
        return self.rule.reference

    def __str__(self) -> str:
        where = f" at {self.scope}" if self.answer is Answer.NOT_ABSORBABLE else ""
        return f"{self.answer}{where}: {self.reason} [{self.reference}; {self.assumptions}]"
