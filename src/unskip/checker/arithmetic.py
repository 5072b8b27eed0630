"""Arithmetic that proves: integers, residues, and floating point rounded outwards."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Exact = list[list[int]]
MODULUS = 2**31 - 1
EPS = 2.0**-52
#: Relative error, at most, of a floating-point sum of up to 2²⁴ non-negative terms.
SUM = 2.0**-28


def integers(matrix: Array) -> tuple[Exact, int]:
    """Integers N and a scale with matrix = N / scale."""
    ratios = [[x.as_integer_ratio() for x in row] for row in matrix.tolist()]
    scale = max((den for row in ratios for _, den in row), default=1)
    return [[num * (scale // den) for num, den in row] for row in ratios], scale


def residues(matrix: Array) -> list[int]:
    """The images of dyadic weights modulo the prime, row by row."""
    inverse: dict[int, int] = {}
    images = []
    for x in matrix.ravel().tolist():
        numerator, denominator = x.as_integer_ratio()
        if denominator not in inverse:
            inverse[denominator] = pow(denominator, -1, MODULUS)
        images.append(numerator * inverse[denominator] % MODULUS)
    return images


def proportional(a: Array, b: Array, lead: int) -> bool:
    """Whether two rows with a nonzero entry at ``lead`` are multiples of each other, exactly."""
    x, y = Fraction(float(a[lead])), Fraction(float(b[lead]))
    return all(
        Fraction(s) * y == Fraction(t) * x for s, t in zip(a.tolist(), b.tolist(), strict=True)
    )


def proved_nonsingular(matrix: Array) -> bool:
    """‖I − XB‖_∞ < 1 for X ≈ B⁻¹, with the rounding of the product bounded outwards."""
    if float(np.abs(matrix).max()) > 2.0**100:
        return False
    try:
        x = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return False
    n = len(matrix)
    residual = x @ matrix
    residual[np.diag_indices(n)] -= 1.0
    size = np.abs(x) @ np.abs(matrix).sum(axis=1)
    bound = np.abs(residual).sum(axis=1) + (n + 4) * EPS * (size + 2.0)
    return bool((bound < 1).all())


def spectral_norm(matrix: Array) -> float:
    """An upper bound of the spectral norm: some t with tI − XXᵀ positive semidefinite.

    Proved by a Cholesky factorisation that succeeds on the matrix less its own rounding errors
    (Demmel; Rump); infinite where it does not.
    """
    if not matrix.size:
        return 0.0
    x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    gram = x @ x.T
    n = len(gram)
    slack = 2.0 * (n + x.shape[1] + 8) * EPS * (float(np.linalg.norm(x)) ** 2)
    top = float(np.linalg.eigvalsh(gram)[-1]) * (1 + 1e-9)
    t = top + slack + 2.0 * n * (n + 4) * EPS * (top + slack)
    shifted = -gram
    shifted[np.diag_indices(n)] += t - slack - n * (n + 4) * EPS * t
    try:
        np.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        return math.inf
    return math.sqrt(t) * (1 + SUM)


def ranks(matrices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The ranks of a batch of matrices modulo the prime; the true ones are no smaller.

    Elimination without division, in lockstep: row_i ← pivot·row_i − entry·pivot_row.
    """
    work = matrices.copy()
    count, rows, columns = work.shape
    done = np.zeros(count, dtype=np.int64)
    every = np.arange(count)
    for column in range(columns):
        free = (np.arange(rows) >= done[:, None]) & (work[:, :, column] != 0)
        pivot = free.argmax(axis=1)
        found = free[every, pivot]
        place = np.minimum(done, rows - 1)
        pivot = np.where(found, pivot, place)
        top = work[every, pivot].copy()
        work[every, pivot] = work[every, place]
        work[every, place] = top
        below = (np.arange(rows) > place[:, None]) & found[:, None]
        reduced = work * top[:, None, column, None] - work[:, :, column, None] * top[:, None, :]
        work = np.where(below[:, :, None], reduced % MODULUS, work)
        done += found
    return done
