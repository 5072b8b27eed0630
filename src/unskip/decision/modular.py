"""The exact verdict for linearly independent R_j, in word-sized arithmetic.

Floating point cannot see a defect of one unit in the last place.  Modulo a prime the Gram
system is solved exactly, and its residual decides (theory §5, "unique candidate"):

- Y ≢ 0: ⟨Y, R_j⟩ ≡ 0 for all j but ⟨Y, A⟩ ≢ 0, so no set of *integers* s_j solves the
  equation, let alone a 0/1 one;
- Y ≡ 0: every integer solution is ≡ s; an s_j outside {0, 1} is refuted by Y_j with
  ⟨Y_j, R_i⟩ ≡ δ_ij; otherwise S = {j : s_j ≡ 1} is the only candidate, to be verified exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskip.decision.exact import (
    PRIME,
    Residues,
    fraction_residues,
    matmul_mod,
    residues,
    solve_mod,
)
from unskip.decision.question import SubsetCondition


@dataclass(frozen=True)
class Candidate:
    """The only subset that can satisfy the condition."""

    subset: Residues


@dataclass(frozen=True)
class Refutation:
    """A matrix over Z/p that refutes every subset; ``neuron`` ≥ 0 is the j of Y_j."""

    matrix: Residues
    neuron: int


def solve(condition: SubsetCondition) -> Candidate | Refutation | None:
    """The exact outcome; ``None`` where the R_j are dependent (modulo p).

    Cost: the Gram system over Z/p, O(m²d + m³), and m² integers of memory a product.
    """
    p = condition.a.shape[0]
    down = residues(condition.down) * fraction_residues(condition.kappa) % PRIME
    up = residues(condition.up)
    skip = residues(condition.a)
    if condition.centred:
        down, skip = _centre(down, p), _centre(skip, p)
    gram = matmul_mod(down.T, down) * matmul_mod(up, up.T) % PRIME
    right = -(matmul_mod(down.T, skip) * up % PRIME).sum(axis=1) % PRIME
    s = solve_mod(gram, right)
    if s is None:
        return None
    y = (skip + matmul_mod(down * s % PRIME, up)) % PRIME
    if y.any():
        orthogonal = (y * skip % PRIME).sum() % PRIME != 0
        return Refutation(y, -1) if orthogonal else None
    other = np.flatnonzero(s > 1)
    if other.size == 0:
        return Candidate(np.flatnonzero(s == 1))
    j = int(other[0])
    unit = np.zeros(condition.m, dtype=np.int64)
    unit[j] = 1
    weights = solve_mod(gram, unit)
    assert weights is not None  # the same nonsingular matrix
    return Refutation(matmul_mod(down * weights % PRIME, up), j)


def _centre(columns: Residues, p: int) -> Residues:
    """Π = I − 11ᵀ/p modulo the prime."""
    mean = columns.sum(axis=0) % PRIME * pow(p, -1, PRIME) % PRIME
    return (columns - mean) % PRIME
