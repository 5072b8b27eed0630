"""Congruences with slack: proofs of "no subset" for dependent R'_h (theory §5, Theorem 43).

Scale the equations Σ s_h R'_h = −A' to integers and pair them with an integer Y.  Modulo q each
⟨Y, R'_h⟩ has a representative w_h of least size, and every 0/1 solution has

    Σ s_h w_h ≡ −⟨Y, A'⟩ (mod q)   with   Σ min(0, w_h) ≤ Σ s_h w_h ≤ Σ max(0, w_h).

If no number of that class lies in that range, no S exists.  Integers with all w_h = 0 are the
classical congruence (parity, a common divisor); in general the w_h only have to be small together
against q.  They are short vectors of the lattice spanned by the equations modulo q: n dimensions,
determinant q^{n − r} for r equations, so that LLL makes Σ|w_h| about n·q^{1 − r/n}, and weights of
many bits leave one side to a target that is as good as random.  Every vector of the reduced basis
is a try of its own.

Measured on one core: 0.1 s for 64 groups and 16 equations, 3 s for 128 and 64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import flint
import numpy as np
import numpy.typing as npt

from unskip.decision.exact import integers
from unskip.decision.merging import Merged

Integers = npt.NDArray[np.int64]
Rows = list[list[int]]

#: Groups up to which a lattice of their number of dimensions is reduced in seconds.
LARGEST = 128
#: The moduli: entries of a certificate stay below 2⁴⁵.
LEAST_BITS, MOST_BITS = 21, 44
#: Primes that are tried on the equations divided by their contents.
SMALL = (2, 3, 5, 7)
#: Powers of two beyond this in a scale make integers that are too long to be quick.
LONGEST = 1500


@dataclass(frozen=True)
class Equations:
    """Σ_h s_h·terms[:, h] = right, in integers: 2^scale times the condition, entry by entry.

    Centred: its rows less the first one.  ``shape`` is that of Y.
    """

    terms: flint.fmpz_mat
    right: tuple[int, ...]
    scale: int
    shape: tuple[int, int]
    centred: bool

    @classmethod
    def of(cls, merged: Merged) -> Equations | None:
        """O(m·pq) products of integers; ``None`` where exponents are too far apart."""
        c = merged.original
        p, q = c.a.shape
        down, low_down = integers(c.down)
        up, low_up = integers(c.up)
        skip, low_skip = integers(c.a)
        denominator = max(k.denominator for k in c.kappa)  # a power of two
        low = low_down + low_up - (denominator.bit_length() - 1)
        scale = max(0, -low, -low_skip)
        longest = max(map(int.bit_length, (*down, *up, *skip)), default=0)
        if max(longest, scale, scale + low, scale + low_skip) > LONGEST:
            return None
        kappa = [int(k * denominator) << (scale + low) for k in c.kappa]
        m = c.m
        sides = [[down[i * m + j] * kappa[j] for j in range(m)] for i in range(p)]
        rest = [[x << (scale + low_skip) for x in skip[i * q : (i + 1) * q]] for i in range(p)]
        if c.centred:
            sides = [[x - y for x, y in zip(row, sides[0], strict=True)] for row in sides[1:]]
            rest = [[x - y for x, y in zip(row, rest[0], strict=True)] for row in rest[1:]]
        signs = merged.neurons.orientation.tolist()
        groups = [g.tolist() for g in merged.neurons.groups]
        turned = merged.turned.tolist()
        terms, right = [], []
        for side, constants in zip(sides, rest, strict=True):
            for k in range(q):
                single = [x * up[j * q + k] for j, x in enumerate(side)]
                terms.append([sum(signs[j] * single[j] for j in g) for g in groups])
                right.append(-constants[k] - sum(single[j] for j in turned))
        if not terms or not groups:
            return None
        return cls(flint.fmpz_mat(terms), tuple(right), scale, (p, q), c.centred)

    def matrix(self, y: list[int], modulus: int) -> Integers:
        """The Y of some multipliers of the equations; centred: with column sums of zero."""
        whole = np.array(y, dtype=np.int64).reshape(-1, self.shape[1])
        if not self.centred:
            return whole
        first = -whole.sum(axis=0)
        return np.vstack([first % modulus if modulus else first, whole])


@dataclass(frozen=True)
class Pairing:
    """Multipliers y of the equations, with w_h ≡ ⟨Y, R'_h⟩ and v ≡ ⟨Y, A'⟩; modulus 0: equal."""

    y: tuple[int, ...]
    weights: tuple[int, ...]
    skip: int
    modulus: int

    @classmethod
    def of(cls, equations: Equations, y: list[int], modulus: int) -> Pairing:
        """Exact; the weights are the residues of least size."""
        product = (flint.fmpz_mat([y]) * equations.terms).entries()
        weights = [int(x) for x in product]
        skip = -sum(a * b for a, b in zip(y, equations.right, strict=True))
        if modulus:
            half = (modulus - 1) // 2
            weights = [(w + half) % modulus - half for w in weights]
            skip %= modulus
        return cls(tuple(y), tuple(weights), skip, modulus)

    def refutes(self, inside: npt.NDArray[np.bool_], free: npt.NDArray[np.bool_]) -> bool:
        """Whether no choice of the free groups, with those inside, satisfies the equations."""
        low = high = self.skip
        for w, chosen, open_ in zip(self.weights, inside.tolist(), free.tolist(), strict=True):
            if open_:
                low, high = low + min(0, w), high + max(0, w)
            elif chosen:
                low, high = low + w, high + w
        if self.modulus == 0:
            return low > 0 or high < 0
        return high // self.modulus * self.modulus < low

    @property
    def alone(self) -> bool:
        """Whether it refutes every set."""
        n = len(self.weights)
        return self.refutes(np.zeros(n, dtype=bool), np.ones(n, dtype=bool))


def pairings(equations: Equations) -> Iterator[Pairing]:
    """Pairings with small weights: those that are zero modulo small primes, then short ones.

    Cost: echelon forms of r×(n + r), and an LLL reduction in n dimensions.
    """
    yield from _by_contents(equations)
    r, n = equations.terms.nrows(), equations.terms.ncols()
    needed = (math.log2(n / 4 + 1) + 0.03 * n) * n / min(r, n)
    prime = 2 ** int(min(max(needed, LEAST_BITS), MOST_BITS)) - 1
    while not flint.fmpz(prime).is_prime():
        prime -= 2
    form, multipliers, pivots = _echelon(_rows(equations), prime)
    for y in multipliers[len(pivots) :]:
        yield Pairing.of(equations, y, prime)
    if not pivots:  # no equation has a term
        return
    free = [h for h in range(n) if h not in set(pivots)]
    basis = [[prime * (h == k) for k in range(n)] for h in free] + form[: len(pivots)]
    for short in flint.fmpz_mat(basis).lll().tolist():
        left = [int(short[h]) for h in pivots]
        columns = zip(*multipliers[: len(pivots)], strict=True)
        y = [sum(a * b for a, b in zip(left, column, strict=True)) % prime for column in columns]
        yield Pairing.of(equations, y, prime)


def _by_contents(equations: Equations) -> Iterator[Pairing]:
    """Each equation modulo its content, and what vanishes modulo a small prime beyond these."""
    rows = _rows(equations)
    contents = [math.gcd(*row) or 1 for row in rows]
    for i, content in enumerate(contents):
        if content.bit_length() <= MOST_BITS and equations.right[i] % content:
            yield Pairing.of(equations, [int(i == k) for k in range(len(rows))], content)
    common = math.lcm(*contents)
    primitive = [[x // c for x in row] for row, c in zip(rows, contents, strict=True)]
    for prime in SMALL:
        if (prime * common).bit_length() <= MOST_BITS:
            _, multipliers, pivots = _echelon(primitive, prime)
            for y in multipliers[len(pivots) :]:
                scaled = [x * (common // c) for x, c in zip(y, contents, strict=True)]
                yield Pairing.of(equations, scaled, prime * common)


def _rows(equations: Equations) -> Rows:
    return [[int(x) for x in row] for row in equations.terms.tolist()]


def _echelon(
    rows: list[list[int]], prime: int
) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """The reduced echelon form modulo a prime, the multipliers that make it, and the pivots."""
    r, n = len(rows), len(rows[0])
    stacked = [
        [x % prime for x in row] + [int(i == k) for k in range(r)] for i, row in enumerate(rows)
    ]
    form = flint.nmod_mat(r, n + r, [x for row in stacked for x in row], prime).rref()[0]
    table = [[int(x) for x in row] for row in form.tolist()]
    leads = [next((k for k, x in enumerate(row) if x), n) for row in table]
    pivots = [k for k in leads if k < n]
    return [row[:n] for row in table], [row[n:] for row in table], pivots
