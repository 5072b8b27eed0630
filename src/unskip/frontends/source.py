"""What every frontend yields: a model as a list of blocks that are loaded when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from unskip.blocks import ResidualBlock
from unskip.errors import ModelError, UnskipError


@dataclass(frozen=True)
class BlockSource:
    """One residual block of a model: its name, and how to read it."""

    name: str
    read: Callable[[], ResidualBlock]
    #: How many layers of the model share these weights.
    places: int = 1

    def load(self) -> ResidualBlock:
        """Read the block; an error names it."""
        try:
            return self.read()
        except UnskipError as error:
            if f"{self.name}:" in error.message or f"{self.name}." in error.message:
                raise
            raise ModelError(f"block {self.name}: {error.message}", hint=error.hint) from None


@dataclass(frozen=True)
class Model:
    """A model: where it came from, what it says it is, and its blocks in order."""

    path: str
    kind: str
    blocks: tuple[BlockSource, ...]
    description: Mapping[str, Any] = field(default_factory=dict)

    def select(self, pattern: str) -> tuple[BlockSource, ...]:
        """The blocks whose names match a glob; raises :class:`ModelError` when none does."""
        chosen = tuple(b for b in self.blocks if fnmatchcase(b.name, pattern))
        if not chosen:
            known = ", ".join(b.name for b in self.blocks[:4])
            raise ModelError(f"no block matches {pattern!r}", hint=f"there are: {known}, …")
        return chosen


def paired(
    a: Sequence[BlockSource], b: Sequence[BlockSource]
) -> list[tuple[str, BlockSource, BlockSource]]:
    """Blocks of two models by name, or, where the names differ, by order.

    Raises :class:`ModelError` where neither fits.
    """
    by_name = {source.name: source for source in b}
    if {source.name for source in a} == by_name.keys():
        return [(source.name, source, by_name[source.name]) for source in a]
    if len(a) != len(b):
        raise ModelError(
            f"{len(a)} blocks against {len(b)}, of different names", hint="select with --blocks"
        )
    return [(f"{x.name} and {y.name}", x, y) for x, y in zip(a, b, strict=True)]
