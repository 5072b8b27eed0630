"""A model → its blocks with their verdicts, one block in memory at a time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from unskip.alignment import Alignments, alignments
from unskip.blocks import ResidualBlock
from unskip.certificates import Answer, Certificate
from unskip.decision import decide
from unskip.errors import ModelError
from unskip.frontends import BlockSource, Model, open_model
from unskip.verdict import Verdict

__all__ = ["Audit", "BlockReport", "audit"]

#: Ends the label of a certificate about the inner map of a pre-norm block.
INNER = "/inner"


@dataclass(frozen=True, eq=False)
class BlockReport:
    """One block's verdict.  ``block`` reads the weights again: a report holds none."""

    name: str
    verdict: Verdict
    seconds: float
    places: int
    source: BlockSource
    inner: bool
    biases: tuple[str, ...]
    alignments: Alignments | None

    @property
    def block(self) -> ResidualBlock:
        """The block that was decided."""
        return read_block(self.source, inner=self.inner)


@dataclass
class Audit:
    """The blocks of a model with their verdicts, decided as one iterates, once each."""

    model: Model
    sources: tuple[BlockSource, ...]
    inner: bool
    quick: bool
    tolerance: float | None = None
    _done: list[BlockReport] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sources)

    def __iter__(self) -> Iterator[BlockReport]:
        for index, source in enumerate(self.sources):
            if index == len(self._done):
                self._done.append(self._report(source))
            yield self._done[index]

    def _report(self, source: BlockSource) -> BlockReport:
        began = time.perf_counter()
        block = read_block(source, inner=self.inner)
        label = source.name + (INNER if self.inner else "")
        verdict = decide(block, quick=self.quick, tolerance=self.tolerance, label=label)
        names = ("b_up", "b_gate", "b_down")
        biases = tuple(name for name in names if getattr(block, name) is not None)
        seconds = time.perf_counter() - began
        return BlockReport(
            label, verdict, seconds, source.places, source, self.inner, biases, alignments(block)
        )

    @property
    def summary(self) -> dict[str, int]:
        """How many blocks there are of each answer."""
        count = Counter(report.verdict.answer for report in self)
        return {
            "blocks": len(self),
            "absorbable": count[Answer.ABSORBABLE],
            "not_absorbable": count[Answer.NOT_ABSORBABLE],
            "unknown": count[Answer.UNKNOWN],
        }


def audit(
    path: str | Path,
    *,
    blocks: str = "*",
    inner: bool = False,
    quick: bool = False,
    tolerance: float | None = None,
) -> Audit:
    """Open a model and decide its blocks as the result is iterated.

    ``blocks`` selects by a glob on names; ``inner`` studies z ↦ z + MLP(z) in place of
    x ↦ x + MLP(N(x)) for pre-norm blocks; ``quick`` stops at the first certificate;
    ``tolerance`` is that of :func:`decide`.
    Raises :class:`ModelError` on files that cannot be read as a model.
    """
    model = open_model(path)
    return Audit(model, model.select(blocks), inner, quick, tolerance)


def read_block(source: BlockSource, *, inner: bool) -> ResidualBlock:
    """The block, or its inner map."""
    block = source.load()
    if not inner:
        return block
    if block.norm.placement != "pre":
        raise ModelError(
            f"block {source.name} is not pre-norm ({block.norm}), so it has no inner map"
        )
    return block.inner()


def find_source(model: Model, certificate: Certificate) -> tuple[BlockSource, bool] | None:
    """The block that a certificate is labelled with, and whether it is about its inner map."""
    by_name = {source.name: source for source in model.blocks}
    name = certificate.block
    if name in by_name:
        return by_name[name], False
    outer = by_name.get(name.removesuffix(INNER)) if name.endswith(INNER) else None
    return None if outer is None else (outer, True)
