"""The exact verdict for generic, linearly independent R'_h, in word-sized arithmetic.

It needs a Gram matrix that is nonsingular modulo the prime, which independence makes likely
but not certain; without it nothing is concluded.

Floating point cannot see a defect of one unit in the last place.  Modulo a prime the Gram
system is solved exactly, and its residual decides (theory §5, Proposition 17):

- Y ≢ 0: ⟨Y, R'_h⟩ ≡ 0 for all h but ⟨Y, A'⟩ ≢ 0, so no set of *integers* s_h solves the
  equation, let alone a 0/1 one;
- Y ≡ 0: every integer solution is ≡ s; an s_h outside {0, 1} is refuted by Y_h with
  ⟨Y_h, R'_g⟩ ≡ δ_hg; otherwise {h : s_h ≡ 1} is the only candidate, to be verified exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unskip.decision.exact import (
    PRIME,
    Residues,
    fraction_residues,
    matmul_mod,
    residues,
    solve_mod,
)
from unskip.decision.merging import Merged


@dataclass(frozen=True)
class Candidate:
    """The only set of groups that can satisfy the condition."""

    chosen: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Refutation:
    """A matrix over Z/p that refutes every set; ``group`` ≥ 0 is the h of Y_h."""

    matrix: Residues
    group: int


def solve(merged: Merged) -> Candidate | Refutation | None:
    """The exact outcome; ``None`` where the R'_h are dependent (modulo p).

    Cost: the Gram system over Z/p, O(n²d + n³), and n² integers of memory a product.
    """
    try:
        down, up, skip = reduced_residues(merged)
    except ValueError:  # an entry to divide by vanishes modulo the prime
        return None
    if merged.original.centred:
        rows = skip.shape[0]
        down, skip = centre(down, rows), centre(skip, rows)
    gram = matmul_mod(down.T, down) * matmul_mod(up, up.T) % PRIME
    right = -(matmul_mod(down.T, skip) * up % PRIME).sum(axis=1) % PRIME
    s = solve_mod(gram, right)
    if s is None:
        return None
    y = (skip + matmul_mod(down * s % PRIME, up)) % PRIME
    if y.any():
        visible = (y * skip % PRIME).sum() % PRIME != 0
        return Refutation(y, -1) if visible else None
    other = np.flatnonzero(s > 1)
    if other.size == 0:
        return Candidate(s == 1)
    h = int(other[0])
    unit = np.zeros(merged.n, dtype=np.int64)
    unit[h] = 1
    weights = solve_mod(gram, unit)
    assert weights is not None  # the same nonsingular matrix
    return Refutation(matmul_mod(down * weights % PRIME, up), h)


def reduced_residues(merged: Merged) -> tuple[Residues, Residues, Residues]:
    """κ k_h (p, n), n_h (n, q) and A' (p, q) modulo the prime."""
    c = merged.original
    down = residues(c.down) * fraction_residues(c.kappa) % PRIME
    up, skip = residues(c.up), residues(c.a)
    if merged.neurons.distinct:
        return down, up, skip
    turned = merged.turned
    if turned.size:
        skip = (skip + matmul_mod(down[:, turned], up[turned])) % PRIME
    if merged.paired is not None:
        first = merged.neurons.representatives
        second = first + c.m // 2
        kappa = fraction_residues(c.kappa)[:, None]
        rows = (kappa[first] * up[first] + kappa[second] * up[second]) % PRIME
        return residues(c.down[:, first]), rows, skip
    columns = []
    for members in merged.neurons.groups:
        first = members[0]
        lead = int(np.argmax(np.abs(c.up[first])))
        inverse = pow(int(up[first, lead]), -1, PRIME)
        signs = merged.neurons.orientation[members]
        factors = signs * up[members, lead] % PRIME * inverse % PRIME  # |t_j|
        columns.append((down[:, members] * factors % PRIME).sum(axis=1) % PRIME)
    if not columns:
        return np.zeros((len(skip), 0), np.int64), up[:0], skip
    return np.stack(columns, axis=1), up[merged.neurons.representatives], skip


def centre(columns: Residues, p: int) -> Residues:
    """Π = I − 11ᵀ/p modulo the prime."""
    mean = columns.sum(axis=0) % PRIME * pow(p, -1, PRIME) % PRIME
    return (columns - mean) % PRIME
