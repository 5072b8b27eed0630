"""Every subset at once, by meeting in the middle.

Pair the matrices with a Y over Z/p, p = 2⁶¹ − 1: a subset that satisfies the condition has
Σ_{h∈S} ⟨Y, R'_h⟩ ≡ −⟨Y, A'⟩.  All 2^{n/2} sums of either half of the groups are listed, one list
sorted and the other looked up in it.  No match refutes every subset, whatever linear relations
the R'_h have; a match is a candidate, to be verified exactly.  For Y = y zᵀ with y, z the powers
of two residues, a false match has probability about 2^{n − 61}.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unskip.decision.exact import mantissas
from unskip.decision.merging import Merged

PRIME = 2**61 - 1
#: 2²⁰ sums a half: tens of megabytes, tenths of a second.
LARGEST = 40
#: Here it beats every other exact method.
INSTANT = 24

Sums = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pairing:
    """⟨Y, R'_h⟩ and ⟨Y, A'⟩ modulo p for the Y of two bases."""

    alpha: int
    beta: int
    weights: list[int]
    target: int

    @classmethod
    def of(cls, merged: Merged, alpha: int, beta: int) -> Pairing:
        """Exact, in Python integers.  O(m(p + q) + pq)."""
        c = merged.original
        p, q = c.a.shape
        y = [pow(alpha, i, PRIME) for i in range(p)]
        if c.centred:  # entries that sum to zero, so that 1aᵀ pairs to zero
            y[0] = -sum(y[1:]) % PRIME
        z = [pow(beta, k, PRIME) for k in range(q)]
        skip = _dot(y, [_dot(row, z) for row in _residues(c.a)])
        left = [_dot(y, column) for column in _residues(c.down.T)]
        right = [_dot(row, z) for row in _residues(c.up)]
        single = [
            a * b % PRIME * k.numerator * pow(k.denominator, -1, PRIME) % PRIME
            for a, b, k in zip(left, right, c.kappa, strict=True)
        ]
        orientation = merged.neurons.orientation.tolist()
        weights = [
            sum(orientation[j] * single[j] for j in members.tolist()) % PRIME
            for members in merged.neurons.groups
        ]
        turned = sum(single[j] for j in merged.turned.tolist())
        return cls(alpha, beta, weights, -(skip + turned) % PRIME)

    def matches(self) -> Iterator[npt.NDArray[np.bool_]]:
        """All sets of groups whose weights sum to the target modulo p."""
        n = len(self.weights)
        half = n // 2
        low, high = _sums(self.weights[:half]), _sums(self.weights[half:])
        order = np.argsort(low, kind="stable")
        wanted = (self.target - high) % PRIME
        start = np.searchsorted(low[order], wanted, side="left")
        stop = np.searchsorted(low[order], wanted, side="right")
        for index in np.flatnonzero(stop > start).tolist():
            for found in order[start[index] : stop[index]].tolist():
                bits = found | index << half
                yield np.array([bits >> h & 1 for h in range(n)], dtype=bool)


def _sums(weights: list[int]) -> Sums:
    """All subset sums modulo p; entry i is the subset of the bits of i."""
    sums = np.zeros(1, dtype=np.int64)
    for weight in weights:
        sums = np.concatenate([sums, (sums + weight) % PRIME])
    return sums


def _dot(a: list[int], b: list[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True)) % PRIME


def _residues(matrix: npt.NDArray[np.float64]) -> list[list[int]]:
    """Dyadic weights in Z/p, where 2⁶¹ ≡ 1."""
    integers, exponents = mantissas(matrix)
    return [
        [(n << e) % PRIME for n, e in zip(row, shifts, strict=True)]
        for row, shifts in zip(integers.tolist(), (exponents % 61).tolist(), strict=True)
    ]
