"""Branch and bound over the flips: a refutation at each leaf (theory §5, Theorem 44).

Where neither the box relaxation nor one congruence refutes every set, groups are decided one by
one.  A leaf holds a Y that refutes all sets with the decisions above it: a dual matrix (the
residual of the box relaxation of what is left, rounded to integers) or a congruence.  One Y may
serve many leaves, so every Y found so far is tried before another relaxation is solved.  All of
it is judged in integers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import flint
import numpy as np
import numpy.typing as npt

from unskip.decision import box, dual
from unskip.decision.congruence import Equations, Pairing
from unskip.decision.merging import Merged
from unskip.decision.question import SubsetCondition

Chosen = npt.NDArray[np.bool_]

#: Groups beyond which trees grow too large.
LARGEST = 96
#: Leaves, and relaxations, after which the search is given up.
LEAVES, RELAXATIONS = 4096, 512
#: Entries of a dual matrix.
SIZE = 2.0**31 - 1


@dataclass(frozen=True)
class Tree:
    """In preorder: h ≥ 0 decides a group (first "left as it is", then "flipped"); −1 − i is a
    leaf that the i-th pairing refutes."""

    nodes: list[int]
    pairings: list[Pairing]


@dataclass(frozen=True)
class Found:
    """A set of groups that satisfies the equations."""

    chosen: Chosen


class _GivenUpError(Exception):
    pass


class _SatisfiedError(Exception):
    pass


def search(merged: Merged, equations: Equations, pairings: list[Pairing]) -> Tree | Found | None:
    """A tree that refutes every set, a set, or ``None`` where the tree would be too large."""
    growing = _Growing(merged, equations, list(pairings))
    n = merged.n
    try:
        growing.grow(np.zeros(n, dtype=bool), np.ones(n, dtype=bool))
    except _GivenUpError:
        return None
    except _SatisfiedError as satisfied:
        return Found(satisfied.args[0])
    used = sorted({-1 - node for node in growing.nodes if node < 0})
    place = {old: new for new, old in enumerate(used)}
    nodes = [node if node >= 0 else -1 - place[-1 - node] for node in growing.nodes]
    return Tree(nodes, [growing.pairings[i] for i in used])


@dataclass
class _Growing:
    merged: Merged
    equations: Equations
    pairings: list[Pairing]
    nodes: list[int] = field(default_factory=list)
    leaves: int = 0
    relaxations: int = 0

    def __post_init__(self) -> None:
        self.weights = np.zeros((0, self.merged.n))
        self.constants, self.moduli = np.zeros(0), np.zeros(0)
        for pairing in self.pairings:
            self._list(pairing)

    def grow(self, inside: Chosen, free: Chosen) -> None:
        """The subtree of what is left free, appended to the nodes."""
        leaf = self._refuted_by(inside, free)
        branch = -1
        if leaf is None:
            leaf, branch = self._relaxed(inside, free)
        if leaf is not None:
            self.nodes.append(-1 - leaf)
            self.leaves += 1
            return
        if self.leaves >= LEAVES:
            raise _GivenUpError
        self.nodes.append(branch)
        rest = free.copy()
        rest[branch] = False
        self.grow(inside, rest)
        flipped = inside.copy()
        flipped[branch] = True
        self.grow(flipped, rest)

    def _refuted_by(self, inside: Chosen, free: Chosen) -> int | None:
        """A pairing that refutes; floating point proposes, integers decide."""
        base = self.constants + self.weights[:, inside].sum(axis=1)
        left = self.weights[:, free]
        low = base + np.minimum(left, 0).sum(axis=1)
        high = base + np.maximum(left, 0).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            between = np.floor(high / self.moduli) * self.moduli < low
        likely = np.where(self.moduli == 0, (low > 0) | (high < 0), between)
        for i in np.flatnonzero(likely)[:4].tolist():
            if self.pairings[i].refutes(inside, free):
                return int(i)
        return None

    def _relaxed(self, inside: Chosen, free: Chosen) -> tuple[int | None, int]:
        """The residual of the relaxation if it refutes, else the group to decide next."""
        self.relaxations += 1
        if self.relaxations > RELAXATIONS:
            raise _GivenUpError
        if not free.any():
            return self._by_entry(inside), -1
        c = self.merged.reduced
        a = c.a + (c.down[:, inside] * c.kappa_float[inside]) @ c.up[inside]
        kappa = tuple(k for k, open_ in zip(c.kappa, free.tolist(), strict=True) if open_)
        part = SubsetCondition(a, c.down[:, free], c.up[free], kappa, c.centred)
        residual, s = box.relax(part)
        candidate = inside.copy()
        candidate[np.flatnonzero(free)[s > 0.5]] = True
        if not any(self._left_over(candidate)):
            raise _SatisfiedError(candidate)
        size = float(np.abs(residual).max(initial=0.0))
        if np.isfinite(size) and size > 0:
            y = dual.whole(residual / size * SIZE, centred=c.centred)
            self._add(y[int(c.centred) :].ravel().tolist())
            if self.pairings[-1].refutes(inside, free):
                return len(self.pairings) - 1, -1
        where = np.flatnonzero(free)
        return None, int(where[np.argmin(np.abs(s - 0.5))])

    def _left_over(self, chosen: Chosen) -> list[int]:
        column = flint.fmpz_mat([[int(x)] for x in chosen])
        total = (self.equations.terms * column).entries()
        return [int(x) - b for x, b in zip(total, self.equations.right, strict=True)]

    def _by_entry(self, inside: Chosen) -> int:
        """Everything is decided: one entry that is not zero."""
        left = self._left_over(inside)
        entry = next((i for i, x in enumerate(left) if x), None)
        if entry is None:
            raise _SatisfiedError(inside)
        self._add([int(i == entry) for i in range(len(left))])
        return len(self.pairings) - 1

    def _add(self, y: list[int]) -> None:
        self.pairings.append(Pairing.of(self.equations, y, 0))
        self._list(self.pairings[-1])

    def _list(self, pairing: Pairing) -> None:
        unit = pairing.modulus or max(1, max(map(abs, (*pairing.weights, pairing.skip))))
        row = np.array([w / unit for w in pairing.weights])  # quotients of integers of any size
        self.weights = np.vstack([self.weights, row])
        self.constants = np.append(self.constants, pairing.skip / unit)
        self.moduli = np.append(self.moduli, 1.0 if pairing.modulus else 0.0)
