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


def extra(condition: SubsetCondition, rank: int) -> int:
    """min(2p, r + 2·min(p, q − r)), r a lower bound of the rank of the groups' rows.

    Keep every group; twins on r groups with independent rows buy all linear terms in their
    span for one unit each, and a new direction costs two.
    """
    p, q = condition.a.shape
    return min(2 * p, rank + 2 * min(p, q - rank))


def independent_rows(up: Array, groups: npt.NDArray[np.int64]) -> tuple[Indices, Indices]:
    """Rows among ``groups``, and columns, of a square submatrix proved to be nonsingular.

    As large as possible when the leading rows already span; otherwise pivoted QR chooses.
    Empty where nothing is proved.  O(d³), or O(md²) with pivoting.
    """
    if not groups.size:
        return _none()
    size = min(groups.size, up.shape[1])
    columns = np.arange(size, dtype=np.int32)
    if nonsingular(up[groups[:size], :size]):
        return groups[:size].astype(np.int32), columns
    candidates = up[groups]
    triangle, order = scipy.linalg.qr(candidates.T, mode="r", pivoting=True)
    pivots = np.abs(np.diagonal(triangle))
    rank = int(np.count_nonzero(pivots > 1e-10 * pivots.max(initial=0.0)))
    chosen = order[:rank]
    _, order = scipy.linalg.qr(candidates[chosen], mode="r", pivoting=True)
    columns = order[:rank].astype(np.int32)
    if rank and nonsingular(candidates[np.ix_(chosen, columns)]):
        return groups[chosen].astype(np.int32), columns
    return _none()


def _none() -> tuple[Indices, Indices]:
    return np.zeros(0, np.int32), np.zeros(0, np.int32)


def nonsingular(matrix: Array) -> bool:
    """Proved: some X has ‖I − X·matrix‖_∞ < 1, rounding included."""
    n = matrix.shape[0]
    if not float(np.abs(matrix).max()) < 2.0**99:
        return False  # products might overflow
    try:
        inverse = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        defect = float(np.abs(np.eye(n) - inverse @ matrix).sum(axis=1).max())
        rounding = np.abs(inverse) @ np.abs(matrix).sum(axis=1)
        total = defect + 1.1 * (n + 4) * UNIT * (float(rounding.max()) + 1.0)
    return math.isfinite(total) and total < 0.5
