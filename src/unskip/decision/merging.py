"""The subset condition over groups of neurons in place of neurons (§6).

A group takes one orientation as a whole.  Turning its members to point as the first one adds
Σ_{o_j = −1} R_j to A, and flipping the group then adds R'_h = Σ_{j∈h} o_j R_j, which is
κ k_h n_hᵀ.  So "is there a group-wise S" is the same condition with A' and the R'_h, and every
inner product with them is a signed sum of those with the R_j: no division, nothing inexact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from unskip.decision.neurons import Members, Neurons
from unskip.decision.question import SubsetCondition

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Merged:
    """A condition with its neurons' groups."""

    original: SubsetCondition
    neurons: Neurons
    #: Where groups are the two terms of one neuron (gated.py): one term a neuron, rounded.
    paired: SubsetCondition | None = None

    @property
    def n(self) -> int:
        """The number of groups, |H|."""
        return self.neurons.count

    @cached_property
    def turned(self) -> Members:
        """The neurons that point against the first of their group."""
        return np.flatnonzero(self.neurons.orientation < 0)

    @cached_property
    def _order(self) -> tuple[Members, Members]:
        """Members of the groups in a row, and where each group begins."""
        if not self.n:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        sizes = [g.size for g in self.neurons.groups]
        return np.concatenate(self.neurons.groups), np.cumsum([0, *sizes[:-1]])

    @property
    def members(self) -> Members:
        """The members of all groups, in the order of the groups."""
        return self._order[0]

    def fold(self, values: Array) -> Array:
        """Σ_{j∈h} o_j values_j for each group."""
        members, starts = self._order
        signed = values[members] * self.neurons.orientation[members]
        return np.add.reduceat(signed, starts) if self.n else signed

    def gather(self, sizes: Array) -> Array:
        """Σ_{j∈h} sizes_j for each group."""
        members, starts = self._order
        return np.add.reduceat(sizes[members], starts) if self.n else sizes[members]

    def lift(self, chosen: npt.NDArray[np.bool_]) -> Members:
        """The neurons to flip when the chosen groups are flipped (and all are turned first)."""
        inside = self.neurons.orientation < 0
        for h, members in enumerate(self.neurons.groups):
            if chosen[h]:
                inside[members] = ~inside[members]
        return np.flatnonzero(inside)

    def consistent(self, subset: Members) -> bool:
        """Whether flipping these neurons orients every group as a whole."""
        inside = self.neurons.orientation < 0
        inside[subset] = ~inside[subset]
        return all(len(set(inside[g].tolist())) == 1 for g in self.neurons.several)

    @cached_property
    def reduced(self) -> SubsetCondition:
        """The condition with A' and one column k_h, row n_h a group, rounded where merged.

        For searching only; what it suggests is judged on the original weights.
        """
        c = self.original
        if self.paired is not None:
            return self.paired
        if self.neurons.distinct:
            return c
        with np.errstate(all="ignore"):
            return self._rounded()

    def _rounded(self) -> SubsetCondition:
        c, turned = self.original, self.turned
        a = c.a + (c.down[:, turned] * c.kappa_float[turned]) @ c.up[turned]
        first = self.neurons.representatives
        down = c.down[:, first]
        for h, members in enumerate(self.neurons.groups):
            if members.size > 1:
                lead = int(np.argmax(np.abs(c.up[members[0]])))
                factors = np.abs(c.up[members, lead] / c.up[members[0], lead])
                down[:, h] = c.down[:, members] @ factors
        kappa = tuple(c.kappa[j] for j in first)
        finite = (np.nan_to_num(a), np.nan_to_num(down), c.up[first])
        return SubsetCondition(*finite, kappa, c.centred)
