"""A lower bound of the rank that is left over, whatever is flipped (§6, §7).

By the minimal width theorem a replacement takes at least |H| + min_S rank M_S neurons, where
M_S = Π(A' + Σ_{h∈S} R'_h): a twin lowers the rank by one at most, and costs one.  For any Y,

    rank M ≥ ‖M‖_* / ‖M‖_op ≥ ⟨Y, M⟩ / (‖Y‖_op ‖M‖_op),

a dual certificate bounds ⟨Y, M_S⟩ from below for every S, and with Λ any positive diagonal

    ‖M_S‖_op ≤ ‖Π(A' + ½ Σ_h R'_h)‖_op + ½ ‖Π D κ Λ‖_op ‖Λ⁻¹ U‖_op.

This decides blocks with a few neurons to spare (pruned, dead or repeated ones), for which
"no S" alone does not mean "not absorbable".
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from unskip.decision.dual import CAUTION, SLACK, UNIT, Evidence, coordinate_matrix, trace_matrix
from unskip.decision.merging import Merged

Array = npt.NDArray[np.float64]


def least(merged: Merged, evidence: Evidence) -> int:
    """A lower bound of rank M_S over all group-wise S.  O(md² + d³)."""
    condition = merged.original
    y = _matrix(merged, evidence)
    members = merged.members
    half = np.where(merged.neurons.orientation < 0, 1.0, 0.0)
    half[members] = 0.5
    kappa = condition.kappa_float
    down = condition.down * kappa
    middle = condition.project(condition.a + (down * half) @ condition.up)
    present = down[:, members].any(axis=0) & condition.up[members].any(axis=1)
    members = members[present]  # other terms are zero
    moved, rows = condition.project(down[:, members]), condition.up[members]
    widths, heights = np.linalg.norm(rows, axis=1), np.linalg.norm(moved, axis=0)
    if not (widths.all() and heights.all()):
        return 0  # norms underflow
    sizes = widths / heights
    balance = np.exp2(np.round(np.log2(sizes) / 2))  # powers of two: exact
    spread = norm_upper(moved * balance) * norm_upper((rows / balance[:, None]).T)
    rounding = (condition.m + len(y) + 8) * CAUTION * UNIT
    mass = np.linalg.norm(condition.a) + float(
        (np.linalg.norm(down, axis=0) * np.linalg.norm(condition.up, axis=1)).sum()
    )
    size = norm_upper(middle) + 0.5 * spread + rounding * float(mass)
    bound = evidence.value / (norm_upper(y.astype(np.float64)) * size * (1 + SLACK))
    return math.ceil(bound * (1 - 2.0**-20)) if math.isfinite(bound) else 0


def _matrix(merged: Merged, evidence: Evidence) -> npt.NDArray[np.int64]:
    data, condition = evidence.data, merged.original
    if evidence.matrix is not None:
        return evidence.matrix.astype(np.int64)
    if data["evidence"] == "trace":
        return trace_matrix(condition)
    row, column, sign = (int(data[key]) for key in ("row", "column", "sign"))
    return coordinate_matrix(condition, row, column, sign)


def norm_upper(matrix: Array) -> float:
    """An upper bound of the spectral norm, by an eigendecomposition checked afterwards.

    For G = XXᵀ ≈ QΛQᵀ:  λ_max(G) ≤ max|Λ|·‖QᵀQ‖ + ‖G − QΛQᵀ‖_F, rounding included.
    """
    if not matrix.size:
        return 0.0
    x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    gram = x @ x.T
    values, vectors = np.linalg.eigh(gram)
    n, terms = len(gram), sum(x.shape) + 8
    largest = float(np.abs(values).max())
    skew = float(np.linalg.norm(vectors.T @ vectors - np.eye(n))) + CAUTION * terms * UNIT * n
    rest = float(np.linalg.norm(gram - (vectors * values) @ vectors.T))
    rounding = CAUTION * terms * UNIT * (float(np.linalg.norm(x)) ** 2 + 2 * n * largest)
    return math.sqrt((largest * (1 + skew) + rest + rounding) * (1 + SLACK))
