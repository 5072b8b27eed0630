"""The exact minimal width of small blocks, by trying everything (§6).

    w* = |H| + min over T ⊆ H, e, ε of ( |T| + e + 2·rank(M_ε modulo span{n_h : h ∈ T}, e) )

T are the groups that get a twin; e = 1 adds the constant neuron that a missing output bias may
call for.  Costs are tried in ascending order, so everything cheaper has been excluded by then.
Ranks are taken modulo a prime, which can only lower them: what is excluded modulo the prime is
excluded; what is found is verified over the integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import flint
import numpy as np
import numpy.typing as npt

from unskip.decision.exact import PRIME, Residues, assemble, integers
from unskip.decision.merging import Merged
from unskip.decision.modular import centre, reduced_residues

#: The most groups whose orientations are all tried.
MOST_GROUPS = 20
#: The most that is tried: matrix entries times columns, a fraction of a second.
LARGEST = 50_000_000
#: Orientations whose ranks are computed at once.
CHUNK = 1 << 14


@dataclass(frozen=True)
class Minimum:
    """The least extra width, and a choice that attains it."""

    extra: int
    twins: tuple[int, ...]  #: groups
    constant: bool
    chosen: npt.NDArray[np.bool_]  #: groups to flip


def search(merged: Merged, most: int, *, constant: bool) -> Minimum | None:
    """The least extra width below ``most``; ``None`` where arithmetic modulo a prime fails.

    A result with ``extra == most`` says that nothing cheaper exists.  ``constant``: whether a
    constant neuron is allowed (and of use: the rows are homogenised).  See :func:`affordable`.
    """
    n = merged.n
    try:
        problem = _Problem.of(merged, constant=constant)
    except ValueError:
        return None
    for cost in range(most):
        for twins, e, rank in _ways(n, cost, constant=constant):
            complement = problem.complement(twins, e)
            if complement is None:
                if problem.independent(twins, e):
                    return None  # independent, but not modulo the prime
                continue
            for chosen in problem.orientations(complement, twins, rank):
                if problem.verified(twins, e, chosen, rank):
                    return Minimum(cost, twins, e, chosen)
    return Minimum(most, (), False, np.zeros(n, dtype=bool))


def affordable(merged: Merged, below: int, *, constant: bool) -> bool:
    """Whether all costs less than ``below`` can be tried."""
    if merged.n > MOST_GROUPS:
        return False
    p, q = merged.original.a.shape
    sizes = (
        math.comb(merged.n, cost - e - 2 * rank) * (p + cost - e - 2 * rank)
        for cost in range(below)
        for e in ((0, 1) if constant else (0,))
        for rank in range((cost - e) // 2 + 1)
    )
    return sum(sizes) * q * q << merged.n <= LARGEST


def _ways(n: int, cost: int, *, constant: bool) -> Iterator[tuple[tuple[int, ...], bool, int]]:
    """All (T, e, rank) with |T| + e + 2·rank = cost."""
    for e in (False, True) if constant else (False,):
        for rank in range((cost - e) // 2 + 1):
            for twins in combinations(range(n), cost - e - 2 * rank):
                yield twins, e, rank


@dataclass(frozen=True)
class _Problem:
    merged: Merged
    down: Residues
    up: Residues
    skip: Residues

    @classmethod
    def of(cls, merged: Merged, *, constant: bool) -> _Problem:
        down, up, skip = reduced_residues(merged)
        if merged.original.centred:
            down, skip = centre(down, len(skip)), centre(skip, len(skip))
        return cls(merged, down, up, skip)

    def _bought(self, twins: tuple[int, ...], e: bool) -> Residues:
        rows = self.up[list(twins)]
        if e:
            last = np.zeros((1, self.up.shape[1]), dtype=np.int64)
            last[0, -1] = 1
            rows = np.vstack([rows, last])
        return rows

    def complement(self, twins: tuple[int, ...], e: bool) -> Residues | None:
        """A basis (q, q − t) of {v : n_h·v = 0 for h ∈ T} modulo p, if the rows are independent."""
        rows = self._bought(twins, e)
        q = self.up.shape[1]
        if not len(rows):
            return np.eye(q, dtype=np.int64)
        matrix = flint.nmod_mat(len(rows), q, rows.ravel().tolist(), PRIME)
        basis, nullity = matrix.nullspace()
        if nullity != q - len(rows):
            return None
        entries = np.array([int(x) for x in basis.entries()], dtype=np.int64)
        return entries.reshape(q, -1)[:, :nullity]

    def independent(self, twins: tuple[int, ...], e: bool) -> bool:
        rows = self._exact_rows(twins, e)
        return bool(rows.rank() == rows.nrows())

    def orientations(
        self, complement: Residues, twins: tuple[int, ...], rank: int
    ) -> Iterator[npt.NDArray[np.bool_]]:
        """The orientations with rank(M modulo T) ≤ rank, modulo the prime."""
        free = [h for h in range(self.merged.n) if h not in twins]
        skip = _multiply(self.skip, complement)
        up = _multiply(self.up, complement)
        terms = self.down.T[:, :, None] * up[:, None, :] % PRIME  # (n, p, q − t)
        total = 1 << len(free)
        for start in range(0, total, CHUNK):
            codes = np.arange(start, min(start + CHUNK, total))
            matrices = np.broadcast_to(skip, (len(codes), *skip.shape)).copy()
            for bit, h in enumerate(free):
                matrices[(codes >> bit & 1).astype(bool)] += terms[h]
            matrices %= PRIME
            for code in codes[_rank_at_most(matrices, rank)].tolist():
                chosen = np.zeros(self.merged.n, dtype=bool)
                chosen[[h for bit, h in enumerate(free) if code >> bit & 1]] = True
                yield chosen

    def verified(
        self, twins: tuple[int, ...], e: bool, chosen: npt.NDArray[np.bool_], rank: int
    ) -> bool:
        """The same over the integers."""
        total = assemble(self.merged.original, self.merged.lift(chosen))
        rows = self._exact_rows(twins, e)
        stacked = flint.fmpz_mat(total.tolist() + rows.tolist())
        return bool(stacked.rank() - rows.rank() <= rank)

    def _exact_rows(self, twins: tuple[int, ...], e: bool) -> flint.fmpz_mat:
        original = self.merged.original.up
        first = self.merged.neurons.representatives[list(twins)]
        rows = original[first]
        if e:
            rows = np.vstack([rows, np.eye(original.shape[1])[-1:]])
        return flint.fmpz_mat(len(rows), original.shape[1], integers(rows)[0])


def _multiply(a: Residues, b: Residues) -> Residues:
    """a @ b modulo p for small shapes."""
    return (a[:, :, None] * b[None, :, :] % PRIME).sum(axis=1) % PRIME


def _rank_at_most(matrices: Residues, rank: int) -> npt.NDArray[np.bool_]:
    """Which of a batch (N, p, r) have rank ≤ ``rank`` modulo p: elimination on all at once."""
    work = matrices.copy()
    batch, rows, columns = work.shape
    found = np.zeros(batch, dtype=np.int64)
    index = np.arange(batch)
    for column in range(columns):
        if not work[:, :, column:].any():
            break
        candidates = (work[:, :, column] != 0) & (np.arange(rows) >= found[:, None])
        has = candidates.any(axis=1)
        pivot = np.where(has, candidates.argmax(axis=1), np.minimum(found, rows - 1))
        top = np.minimum(found, rows - 1)
        swapped = work[index, pivot].copy()
        work[index, pivot] = work[index, top]
        work[index, top] = swapped
        inverse = _inverse(work[index, top, column])
        factors = work[:, :, column] * inverse[:, None] % PRIME
        factors[(np.arange(rows) <= top[:, None]) | ~has[:, None]] = 0
        work = (work - factors[:, :, None] * work[index, top][:, None, :]) % PRIME
        found += has
        if (found > rank).all():
            break
    return found <= rank


def _inverse(values: Residues) -> Residues:
    """Inverses modulo p by Fermat's little theorem; 0 ↦ 0."""
    result = np.ones_like(values)
    power, exponent = values.copy(), PRIME - 2
    while exponent:
        if exponent & 1:
            result = result * power % PRIME
        power = power * power % PRIME
        exponent >>= 1
    return result
