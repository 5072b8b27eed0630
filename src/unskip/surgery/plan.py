"""What taking out the skips changes, block by block, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from unskip.blocks import PlainBlock, ResidualBlock
from unskip.decision import decide
from unskip.errors import NotAbsorbable, UnskipError
from unskip.frontends import BlockSource
from unskip.rewriting import absorb
from unskip.rewriting.precision import DTYPES, Precision, measure
from unskip.rewriting.remedies import remedies
from unskip.verdict import Verdict

__all__ = ["Rewrite", "Width", "rewrites"]


@dataclass(frozen=True)
class Width:
    """A width as one asks for it: ``same``, ``minimal`` or ``+K``, K neurons beyond m."""

    text: str
    extra: int | None = None  #: K

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read it; raises :class:`UnskipError`."""
        if text in ("same", "minimal"):
            return cls(text)
        if text.startswith("+") and text[1:].isdecimal() and text.isascii():
            return cls(text, int(text[1:]))
        raise UnskipError(f"--width is {text!r}", hint="give same, minimal or +K")

    def absorbed(self, block: ResidualBlock, verdict: Verdict) -> PlainBlock:
        """The plain block of that width; raises :class:`NotAbsorbable`."""
        if self.extra is not None:
            return absorb(block, width=block.m + self.extra, verdict=verdict)
        return absorb(block, width="same" if self.text == "same" else "minimal", verdict=verdict)


@dataclass(frozen=True, eq=False)
class Rewrite:
    """One block, before and after."""

    name: str
    block: ResidualBlock
    verdict: Verdict
    plain: PlainBlock
    precision: Precision

    @property
    def parameters(self) -> tuple[int, int]:
        """Weights and biases of the MLP, before and after."""
        return _parameters(self.block), _parameters(self.plain)

    @property
    def macs(self) -> tuple[int, int]:
        """Multiply-accumulate operations an input of the MLP, before and after."""
        matrices = 3 if self.block.gated else 2
        return matrices * self.block.d * self.block.m, matrices * self.block.d * self.plain.m


def rewrites(
    sources: Iterable[BlockSource],
    width: Width,
    *,
    dtype: str | None = None,
    hidden_bias: bool | None = None,
    output_bias: bool | None = None,
) -> Iterator[Rewrite]:
    """Decide and absorb one block after the other.

    ``dtype`` is the type that the plain weights are to be stored in: by default the block's own.
    ``hidden_bias`` and ``output_bias`` are those of :func:`unskip.decide`.
    Raises :class:`NotAbsorbable`, naming the block, at the first that has no such width.
    """
    for source in sources:
        block = source.load()
        verdict = decide(block, hidden_bias=hidden_bias, output_bias=output_bias, label=source.name)
        try:
            plain = width.absorbed(block, verdict)
            precision = measure(block, plain, dtype or _own_dtype(block))
        except UnskipError as error:
            error.message = f"block {source.name}: {error.message}"
            if isinstance(error, NotAbsorbable):
                error.hint = "; ".join(map(str, remedies(block, verdict))) or error.hint
            raise
        yield Rewrite(source.name, block, verdict, plain, precision)


def _own_dtype(block: ResidualBlock) -> str:
    name = block.w_down.dtype.name
    return name if name in DTYPES else "float64"


def _parameters(block: ResidualBlock | PlainBlock) -> int:
    names = ("w_up", "w_gate", "w_down", "b_up", "b_gate", "b_down")
    return sum(getattr(block, n).size for n in names if getattr(block, n) is not None)
