"""A set among linearly dependent R'_h, by lattice reduction.

With more groups than equations the R'_h are dependent, integer solutions abound, and the 0/1
one among them must be told apart.  In z = 2s − 1 the condition reads

    Σ z_h R'_h + z_0 (2A' + Σ R'_h) = 0,   z_0 = 1,

so a satisfying set is an integer vector in the kernel of the equations with all entries ±1, and
those with all entries of one parity form a lattice.  A generic lattice of dimension v and
determinant D has no vector shorter than about √v·D^{1/v}/4, and LLL finds one that is shorter by
the factor 1.022^v.  Every equation multiplies D by the size of its coefficients, so weights of b
bits give about 2b·pq / (n − pq) bits a dimension, where log2 1.022^v ≈ v/32 are needed.  That is
why it works: for float32 weights and d = 8 there are bits enough beyond n = 320.

Three things make it cheap.

- Modulo a prime the equations are *solved*: all but n + 1 − rank of the z_h are functions of the
  others and leave the lattice.  A few stay, each of which is one condition modulo the prime.
- Conditions modulo word-sized primes are imposed a few at a time, on a basis that is reduced in
  between: entries stay small, floating point suffices for the geometry, integers remain exact.
  It ends as soon as the vector shows.
- Reduction works by blocks: one QR factorisation, LLL (FLINT) of diagonal blocks, and again with
  blocks shifted by one half.

Measured on one core: 0.1 s for 128 groups and 64 equations, 3 s for 256, 16 s for 320; a search
in vain takes three to five times as long.  (Several BLAS threads on busy cores wait for one
another and can make it five times as long again.)  Memory is a few (n + 1)² matrices.  It cannot
prove "no": that nothing is found means nothing.  What is found satisfies the condition modulo a
prime, and the caller verifies it exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import flint
import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.optimize

from unskip.decision.exact import mantissas
from unskip.decision.merging import Merged

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: Seconds to tens of seconds; the cost grows steeply, and so do the bits that weights must have.
LARGEST = 320
#: Up to this many groups to an equation, linear programming has a chance.
THIN = 2.25
#: Primes below this leave room in float64 for exact inner products of centred residues.
WORD = 2**21
#: Dimensions to a condition: conditions imposed at once disturb the basis in separate places.
SPACING = 16
#: A basis of v vectors takes about v / 32 bits a dimension; v / NEEDED + 2 and it is in vain.
NEEDED = 24
#: Rows that are reduced together, exactly.
BLOCK = 32
#: LLL's parameter, and the slack with which floating point judges the outcome.
DELTA, SLACK = 0.99, 0.02
#: Beyond this the lattice is that of all integer solutions, and more conditions add nothing.
HUGE = 2**22
#: Multiples beyond this blur the triangular factor; it is computed anew, as every FRESH sweeps.
LARGE, FRESH = 2.0**16, 16
#: Sweeps over the blocks before a basis is taken as it is; tens are usual.
PATIENCE = 400
#: Equations beyond the number of groups, where there are more of them than unknowns.
SPARE = 16


def search(merged: Merged) -> npt.NDArray[np.bool_] | None:
    """Groups whose flips satisfy the condition modulo a prime; ``None`` if none are found.

    A candidate, not a verdict.  Worth its seconds where the R'_h are dependent and
    n ≤ ``LARGEST``; there is no answer for larger n.
    """
    if not 0 < merged.n <= LARGEST:
        return None
    systems = _systems(merged)
    system = next(systems)
    if not system.pivots or merged.n in system.pivots:  # the latter: no solution at all
        return None
    if merged.n <= THIN * len(system.pivots):
        corner = _corner(merged)
        if corner is not None and system.admits(corner):
            return corner
    columns = system.columns
    basis = _one_parity(columns.size)
    bits, enough = 0.0, columns.size * (columns.size / NEEDED + 2)
    while bits < enough:
        constrained = _constrain(basis, system.conditions, system.prime)
        if constrained is None:
            return None
        basis = _reduce(constrained)
        for row in basis[_all_ones(basis)]:
            chosen = system.complete(row)
            if chosen is not None:
                return chosen
        if np.abs(basis).max() > HUGE:
            return None
        bits += system.kept * np.log2(system.prime)
        alike = (x for x in islice(systems, 8) if x.pivots == system.pivots)  # all but always
        following = next(alike, None)
        if following is None:
            return None
        system = following
    return None


@dataclass(frozen=True)
class System:
    """The equations modulo a prime in reduced row echelon form, for (z_1, …, z_n, z_0)."""

    prime: int
    rows: Integers
    pivots: list[int]

    @property
    def free(self) -> Integers:
        """The variables that determine the others; z_0, the last one, is among them."""
        return np.setdiff1d(np.arange(self.rows.shape[1]), self.pivots)

    @property
    def kept(self) -> int:
        """How many of the determined variables stay in the lattice."""
        return max(1, min(len(self.pivots), self.free.size // SPACING))

    @property
    def columns(self) -> Integers:
        """The variables of the lattice, z_0 last."""
        return np.concatenate([self.pivots[: self.kept], self.free]).astype(np.int64)

    @property
    def conditions(self) -> Integers:
        """What vanishes modulo the prime, one row for each determined variable that stays."""
        return self.rows[: self.kept, self.columns]

    def admits(self, chosen: npt.NDArray[np.bool_]) -> bool:
        """Whether a set satisfies the equations modulo the prime."""
        z = np.append(2 * chosen.astype(np.int64) - 1, 1)
        return not (self.rows @ z % self.prime).any()

    def complete(self, vector: Integers) -> npt.NDArray[np.bool_] | None:
        """The set of a ±1 vector, if the variables that left the lattice are ±1 too."""
        free = self.free
        z = np.zeros(self.rows.shape[1], dtype=np.int64)
        z[free] = vector[self.kept :] * vector[-1]
        z[self.pivots] = _centred(-self.rows[:, free] @ z[free], self.prime)
        return z[:-1] > 0 if (np.abs(z) == 1).all() else None


def _corner(merged: Merged) -> npt.NDArray[np.bool_] | None:
    """A vertex of {s ∈ [0, 1]^n : Π(A' + Σ s_h R'_h) = 0} in floating point, rounded.

    Half as many equations as groups make the set, if there is one, the only point as often as
    not; then this is a tenth of the work.
    """
    c = merged.reduced
    with np.errstate(over="ignore", invalid="ignore"):
        down, skip = c.project(c.down) * c.kappa_float, c.project(c.a)
        matrix = (down[:, None, :] * c.up.T).reshape(-1, c.m)
        sizes = np.abs(matrix).max(axis=1)
        kept = sizes > 0
        matrix, right = matrix[kept] / sizes[kept, None], -skip.ravel()[kept] / sizes[kept]
    if len(matrix) > merged.n + SPARE or not (
        np.isfinite(matrix).all() and np.isfinite(right).all()
    ):
        return None
    objective = np.random.default_rng(0).normal(size=merged.n)
    result = scipy.optimize.linprog(
        objective, A_eq=matrix, b_eq=right, bounds=(0, 1), method="highs-ds"
    )
    return None if result.x is None else np.asarray(result.x > 0.5)


def _systems(merged: Merged) -> Iterator[System]:
    """The equations modulo one prime after another."""
    prime = WORD
    while True:
        prime -= 1
        if flint.fmpz(prime).is_prime():
            rows, pivots = _echelon(_equations(merged, prime), prime)
            yield System(prime, rows, pivots)


def _equations(merged: Merged, prime: int) -> Integers:
    """[R'_1 … R'_n | 2A' + Σ R'_h] modulo a prime, an equation a row.

    Centred: differences of rows, which vanish exactly where Π does.  Of more than n + SPARE
    equations, as many random combinations yᵀ(·)z, which have the same rank but for bad luck.
    """
    c = merged.original
    kappa = np.array([k.numerator * pow(k.denominator, -1, prime) % prime for k in c.kappa])
    down, up, skip = _residues(c.down, prime), _residues(c.up, prime), _residues(c.a, prime)
    if c.centred:
        down, skip = (down[1:] - down[:1]) % prime, (skip[1:] - skip[:1]) % prime
    count = merged.n + SPARE
    if skip.size <= count:
        terms = (down[:, None, :] * up.T % prime).reshape(skip.size, c.m)
        constants = skip.ravel()
    else:
        rng = np.random.default_rng(0)
        left = rng.integers(prime, size=(count, skip.shape[0]))
        right = rng.integers(prime, size=(count, skip.shape[1]))
        terms = _product(left, down, prime) * _product(right, up.T, prime) % prime
        constants = (_product(left, skip, prime) * right % prime).sum(axis=1)
    terms = terms * kappa % prime
    constants = constants + terms[:, merged.turned].sum(axis=1)
    if not merged.neurons.distinct:
        signed = terms * merged.neurons.orientation
        terms = np.stack([signed[:, g].sum(axis=1) for g in merged.neurons.groups], axis=1)
    return np.column_stack([terms, 2 * constants + terms.sum(axis=1)]) % prime


def _residues(weights: Array, prime: int) -> Integers:
    """Dyadic weights modulo an odd prime."""
    n, exponents = mantissas(weights)
    distinct, where = np.unique(exponents, return_inverse=True)
    powers = np.array([pow(2, e, prime) for e in distinct.tolist()], dtype=np.int64)
    return n % prime * powers[where].reshape(weights.shape) % prime


def _centred(values: Integers, prime: int) -> Integers:
    """The residues of least magnitude."""
    return (values + prime // 2) % prime - prime // 2


def _product(a: Integers, b: Integers, prime: int) -> Integers:
    """a @ b modulo a prime below WORD; float64 is exact up to an inner size of 2¹³."""
    total = np.zeros((a.shape[0], b.shape[1]), dtype=np.int64)
    for start in range(0, a.shape[1], 2**13):
        part = slice(start, start + 2**13)
        x, y = _centred(a[:, part], prime), _centred(b[part], prime)
        total += (x.astype(np.float64) @ y.astype(np.float64)).astype(np.int64) % prime
    return total % prime


def _echelon(matrix: Integers, prime: int) -> tuple[Integers, list[int]]:
    """The nonzero rows of the reduced row echelon form modulo a prime, and the pivots."""
    height, width = matrix.shape
    form, rank = flint.nmod_mat(height, width, matrix.ravel().tolist(), prime).rref()
    rows = np.array([int(x) for x in form.entries()], dtype=np.int64).reshape(matrix.shape)[:rank]
    return rows, np.argmax(rows != 0, axis=1).tolist() if rank else []


def _one_parity(size: int) -> Integers:
    """A basis of the integer vectors whose entries are all even or all odd."""
    basis = 2 * np.eye(size, dtype=np.int64)[::-1]
    basis[0] = 1
    return basis


def _all_ones(basis: Integers) -> npt.NDArray[np.bool_]:
    """Which rows have entries ±1 only."""
    return np.asarray((np.abs(basis) == 1).all(axis=1))


def _constrain(basis: Integers, conditions: Integers, prime: int) -> Integers | None:
    """A basis of the sublattice where the conditions vanish; ``None`` where all of it does.

    Rows i with the values y_i = Σ_P c_ip y_p become b_i − Σ c_ip b_p, and the rows P themselves
    are multiplied by the prime.  P is spread over the basis, as far as independence permits.
    """
    size, count = basis.shape[0], conditions.shape[0]
    values = _product(conditions, basis.T, prime)
    spread = np.arange(count) * size // count
    order = np.concatenate([spread, np.setdiff1d(np.arange(size), spread)])
    coefficients, pivots = _echelon(values[:, order], prime)
    if not pivots:
        return None
    chosen = order[pivots]
    removed = np.zeros((size, len(pivots)), dtype=np.int64)
    removed[order] = _centred(coefficients.T, prime)
    result = basis - removed @ basis[chosen]
    result[chosen] = prime * basis[chosen]
    return result


def _reduce(basis: Integers) -> Integers:
    """An LLL-reduced basis, or one that already has a ±1 row.

    Each sweep: v / BLOCK blocks in which FLINT does the swaps, and O(v³) for the size reduction.
    The triangular factor follows the basis; it is computed anew after large multiples, which
    blur it, and from time to time.
    """
    size = basis.shape[0]
    basis, r = _factorised(basis)
    for sweep in range(PATIENCE):
        diagonal, beside = np.abs(r.diagonal()), r.diagonal(1)
        swaps = diagonal[1:] ** 2 + beside**2 < (DELTA - SLACK) * diagonal[:-1] ** 2
        if not swaps.any() or _all_ones(basis).any():
            break
        largest = 0.0
        for start in range(-(sweep % 2) * (BLOCK // 2), size, BLOCK):
            block = slice(max(start, 0), min(start + BLOCK, size))
            if swaps[block.start : block.stop - 1].any():
                largest = max(largest, _reduce_block(basis, r, block))
        basis, multiple = _size_reduced(basis, r)
        if max(largest, multiple) > LARGE or sweep % FRESH == FRESH - 1:
            basis, r = _factorised(basis)
    return basis


def _reduce_block(basis: Integers, r: Array, block: slice) -> float:
    """LLL of some adjacent rows, in place; the largest entry of the transformation."""
    transform = _lll(r[block, block])
    basis[block] = transform @ basis[block]
    r[: block.stop, block] = r[: block.stop, block] @ transform.T
    q, r[block, block] = np.linalg.qr(r[block, block])
    r[block, block.stop :] = q.T @ r[block, block.stop :]
    return float(np.abs(transform).max())


def _lll(r: Array) -> Integers:
    """The unimodular transformation that LLL-reduces the columns of a triangular block."""
    size, least = r.shape[0], np.abs(r.diagonal()).min()
    if not least > 2.0**-40:  # a basis that floating point takes for dependent
        return np.eye(size, dtype=np.int64)
    scaled = np.rint(r.T * (2.0**20 / least)).ravel().tolist()
    matrix = flint.fmpz_mat(size, size, [int(x) for x in scaled])
    _, transform = matrix.lll(True, DELTA)
    entries = [int(x) for x in transform.entries()]
    return np.array(entries, dtype=np.int64).reshape(size, size)


def _factorised(basis: Integers) -> tuple[Integers, Array]:
    """The basis, size-reduced, and its triangular factor by QR."""
    for _ in range(8):
        r = scipy.linalg.qr(basis.T.astype(np.float64), mode="r", check_finite=False)[0]
        basis, largest = _size_reduced(basis, r)
        if largest <= LARGE:
            break
    return basis, r


def _size_reduced(basis: Integers, r: Array) -> tuple[Integers, float]:
    """The basis with |r_ij| ≤ |r_ii| / 2, and the largest multiple taken; ``r`` in place."""
    multiples = _nearest(r)
    largest = float(np.abs(multiples).max())
    if largest * np.abs(basis).max() * len(basis) < 2.0**53:  # exact, and much faster
        return basis - (multiples.T @ basis.astype(np.float64)).astype(np.int64), largest
    return basis - multiples.T.astype(np.int64) @ basis, largest


def _nearest(r: Array, width: int = 32) -> Array:
    """How many of row i to take from row j > i, by nearest planes; ``r`` becomes what is left.

    By blocks from the last one up, so that most of the work is a matrix product.
    """
    size, source = r.shape[0], r.copy()
    multiples = np.zeros_like(r)
    for high in range(size, 0, -width):
        low = max(0, high - width)
        for i in range(high - 1, low - 1, -1):
            multiple = np.rint(r[i, i + 1 :] / (r[i, i] or 1.0))
            if multiple.any():
                multiples[i, i + 1 :] = multiple
                r[low : i + 1, i + 1 :] -= source[low : i + 1, i, None] * multiple
        r[:low, low:] -= source[:low, low:high] @ multiples[low:high, low:]
    return multiples
