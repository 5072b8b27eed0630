"""Exact arithmetic on weights: they are dyadic rationals n·2^e.

Two tools.  :func:`assemble` forms A + Σ_S R_j over the integers.  :func:`residues`
maps weights into Z/p for p = 2³¹ − 1, where 2 is invertible; the map Z[½] → Z/p is a ring
homomorphism, so an equation that fails modulo p fails exactly.  Powers of two modulo this
p are rotations: 2³¹ ≡ 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import flint
import numpy as np
import numpy.typing as npt

from unskip.decision.question import SubsetCondition

PRIME = 2**31 - 1

Array = npt.NDArray[np.float64]
Residues = npt.NDArray[np.int64]


def mantissas(weights: Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Integers n of at most 53 bits and exponents e with weights = n·2^e."""
    fraction, exponent = np.frexp(weights)
    return np.ldexp(fraction, 53).astype(np.int64), exponent.astype(np.int64) - 53


def integers(weights: Array) -> tuple[list[int], int]:
    """Python integers N (row-major) and a common e with weights = N·2^e."""
    n, e = mantissas(weights)
    used = n != 0
    low = int(e[used].min()) if used.any() else 0
    shifts = np.where(used, e - low, 0)
    pairs = zip(n.ravel().tolist(), shifts.ravel().tolist(), strict=True)
    return [value << shift for value, shift in pairs], low


def assemble(condition: SubsetCondition, subset: npt.NDArray[np.int64]) -> flint.fmpz_mat:
    """A positive multiple of A + Σ_S R_j over the integers; centred: of its row differences.

    Rows minus the first row vanish exactly where Π does and have the rank of its image.
    One p×|S|×q product of big integers.
    """
    p, q = condition.a.shape
    down, down_exponent = integers(condition.down[:, subset])
    up, up_exponent = integers(condition.up[subset])
    a, a_exponent = integers(condition.a)
    kappa = [condition.kappa[j] for j in subset.tolist()]
    denominator = max((k.denominator for k in kappa), default=1)  # powers of two
    numerators = [int(k * denominator) for k in kappa]
    size = len(kappa)
    if any(n != 1 for n in numerators):
        down = [value * numerators[i % size] for i, value in enumerate(down)]
    # down·up·2^(ed+eu) / denominator + a·2^ea, brought to one exponent
    exponent = down_exponent + up_exponent
    low = min(exponent, a_exponent)
    total = flint.fmpz_mat(p, q, a) * ((1 << (a_exponent - low)) * denominator)
    if size:
        product = flint.fmpz_mat(p, size, down) * flint.fmpz_mat(size, q, up)
        total += product * (1 << (exponent - low))
    if condition.centred:
        rows = total.tolist()
        first = rows[0]
        total = flint.fmpz_mat([[x - y for x, y in zip(r, first, strict=True)] for r in rows])
    return total


def satisfies(condition: SubsetCondition, subset: npt.NDArray[np.int64]) -> bool:
    """Whether Π(A + Σ_S R_j) = 0 holds exactly."""
    return bool(assemble(condition, subset) == flint.fmpz_mat(*condition.a.shape))


def residues(weights: Array) -> Residues:
    """The image of dyadic weights in Z/p."""
    n, e = mantissas(weights)
    powers = np.array([1 << k for k in range(31)], dtype=np.int64)
    return (n % PRIME) * powers[e % 31] % PRIME


def fraction_residues(values: Sequence[Fraction]) -> Residues:
    """The image in Z/p of rationals whose denominators are prime to p."""
    return np.array([v.numerator * pow(v.denominator, -1, PRIME) % PRIME for v in values])


def matmul_mod(a: Residues, b: Residues) -> Residues:
    """a @ b modulo p by four float64 products of 16-bit halves (inner size below 2²¹)."""
    low_a, high_a = (a & 0xFFFF).astype(np.float64), (a >> 16).astype(np.float64)
    low_b, high_b = (b & 0xFFFF).astype(np.float64), (b >> 16).astype(np.float64)

    def product(x: Array, y: Array) -> Residues:
        return (x @ y).astype(np.int64) % PRIME

    middle = (product(low_a, high_b) + product(high_a, low_b)) % PRIME
    high = product(high_a, high_b)
    return (product(low_a, low_b) + (middle << 16) % PRIME + ((high << 16) % PRIME << 16)) % PRIME


def solve_mod(matrix: Residues, right: Residues) -> Residues | None:
    """The solution of a square system modulo p, or ``None`` where it is singular.  O(m³)."""
    m = matrix.shape[0]
    lhs = flint.nmod_mat(m, m, matrix.ravel().tolist(), PRIME)
    rhs = flint.nmod_mat(m, 1, right.tolist(), PRIME)
    try:
        solution = lhs.solve(rhs)
    except ZeroDivisionError:
        return None
    return np.array([int(x) for x in solution.entries()], dtype=np.int64)
