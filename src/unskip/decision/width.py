"""Bounds of the width that a residual-free replacement needs (§6, §7)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy.linalg

from unskip.decision.dual import UNIT
from unskip.decision.question import SubsetCondition

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int32]


def upper(condition: SubsetCondition, rank: int) -> int:
    """m + min(2p, r + 2·min(p, q − r)), r a lower bound of the rank of ``up``.

    Keep every neuron; twins on r neurons with independent rows buy all linear terms in
    their span for one unit each, and a new direction costs two.
    """
    p, q = condition.a.shape
    return condition.m + min(2 * p, rank + 2 * min(p, q - rank))


def independent_rows(up: Array) -> tuple[Indices, Indices]:
    """Rows and columns of a square submatrix of ``up`` proved to be nonsingular.

    As large as possible when the leading rows already span; otherwise pivoted QR chooses.
    Empty where nothing is proved.  O(d³), or O(md²) with pivoting.
    """
    m, q = up.shape
    if not float(np.abs(up).max()) < 2.0**100:
        return _none()
    size = min(m, q)
    leading = np.arange(size, dtype=np.int32)
    if nonsingular(up[:size, :size]):
        return leading, leading
    triangle, rows = scipy.linalg.qr(up.T, mode="r", pivoting=True)
    pivots = np.abs(np.diagonal(triangle))
    rank = int(np.count_nonzero(pivots > 1e-10 * pivots.max(initial=0.0)))
    chosen = rows[:rank]
    _, columns = scipy.linalg.qr(up[chosen], mode="r", pivoting=True)
    columns = columns[:rank]
    if rank and nonsingular(up[np.ix_(chosen, columns)]):
        return chosen.astype(np.int32), columns.astype(np.int32)
    return _none()


def _none() -> tuple[Indices, Indices]:
    return np.zeros(0, np.int32), np.zeros(0, np.int32)


def nonsingular(matrix: Array) -> bool:
    """Proved: some X has ‖I − X·matrix‖_∞ < 1, rounding included."""
    n = matrix.shape[0]
    try:
        inverse = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        defect = float(np.abs(np.eye(n) - inverse @ matrix).sum(axis=1).max())
        rounding = np.abs(inverse) @ np.abs(matrix).sum(axis=1)
        total = defect + 1.1 * (n + 4) * UNIT * (float(rounding.max()) + 1.0)
    return math.isfinite(total) and total < 0.5
