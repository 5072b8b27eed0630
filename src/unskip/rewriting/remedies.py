"""What change would make a "no" a "yes", and at what cost: each with its construction."""

from __future__ import annotations

import math
from dataclasses import dataclass

from unskip.blocks import PlainBlock, ResidualBlock
from unskip.certificates import Answer
from unskip.decision import decide
from unskip.rewriting import absorb
from unskip.verdict import Verdict

__all__ = ["Remedy", "remedies"]


@dataclass(frozen=True, eq=False)
class Remedy:
    """A change to the question under which the block is absorbed, by ``absorb()``."""

    change: str  #: in words
    block: ResidualBlock
    verdict: Verdict  #: of the changed question

    @property
    def width(self) -> int:
        """Neurons of the residual-free block."""
        return int(self.verdict.width.upper)

    @property
    def extra(self) -> int:
        """Neurons beyond the block's own; negative where it had some to spare."""
        return self.width - self.block.m

    def absorb(self) -> PlainBlock:
        """The residual-free block of that width, which equals the block."""
        return absorb(self.block, width="minimal", verdict=self.verdict)

    def __str__(self) -> str:
        if self.extra <= 0:
            return f"{self.change}: no more neurons than now"
        return f"{self.change}: {self.extra} more neurons"


def remedies(block: ResidualBlock, verdict: Verdict | None = None) -> tuple[Remedy, ...]:
    """The changes that are known to help, cheapest in neurons first; none for an absorbable block.

    More width where that suffices (Theorem 21); hidden biases, an output bias or both for the
    replacement where it had none (a gate bias carries the skip of a bias-free SwiGLU, §9).  A
    change that asks for more is listed only if it saves neurons.  Three more decisions.
    """
    verdict = decide(block) if verdict is None else verdict
    if verdict.answer is Answer.ABSORBABLE:
        return ()
    hidden, output = verdict.assumptions.hidden_bias, verdict.assumptions.output_bias
    allowed = ((hidden, output), (True, output), (hidden, True), (True, True))
    found: list[Remedy] = []
    for more_hidden, more_output in dict.fromkeys(allowed):
        changes = ["hidden biases"] * (more_hidden > hidden)
        changes += ["an output bias"] * (more_output > output)
        asked = verdict
        if changes:
            asked = decide(block, hidden_bias=more_hidden, output_bias=more_output)
        if not math.isfinite(asked.width.upper):
            continue
        change = f"allow {' and '.join(changes)}" if changes else "allow a greater width"
        if all(asked.width.upper < remedy.verdict.width.upper for remedy in found):
            found.append(Remedy(change, block, asked))
    return tuple(sorted(found, key=lambda remedy: remedy.width))
