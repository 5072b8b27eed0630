"""Box-constrained least squares: the best dual certificate there is (§5).

At the minimiser s* of ‖Π(A + Σ s_j R_j)‖² over [0, 1]^n the residual Y satisfies ⟨Y, R_j⟩ ≥ 0
where s*_j = 0, ≤ 0 where s*_j = 1 and = 0 in between (KKT), hence value(Y) = ‖Y‖²: positive
exactly when the box relaxation is infeasible.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.optimize

from unskip.decision.gram import Gram
from unskip.decision.question import SubsetCondition

Array = npt.NDArray[np.float64]

#: The active-set method is cubic a step.
LARGEST = 400


def solve(condition: SubsetCondition) -> tuple[Array, npt.NDArray[np.bool_]]:
    """The residual Y (p, q), and the nearest corner of the box."""
    residual, s = relax(condition)
    return residual, s > 0.5


def relax(condition: SubsetCondition) -> tuple[Array, Array]:
    """The residual Y (p, q), and the minimiser in the box.

    On the square root of the Gram matrix (n×n, of rank at most pq), never on the pq×n matrix.
    """
    gram = Gram.of(condition, np.float64)
    matrix, right = gram.matrix.astype(np.float64), gram.right.astype(np.float64)
    values, vectors = np.linalg.eigh(matrix)
    kept = values > values[-1] * 1e-13 if values[-1] > 0 else np.zeros_like(values, dtype=bool)
    root = np.sqrt(values[kept])
    design = root[:, None] * vectors[:, kept].T
    target = (vectors[:, kept].T @ right) / root
    if not kept.any():
        return gram.residual(np.zeros(condition.m)), np.zeros(condition.m)
    solution = scipy.optimize.lsq_linear(design, target, bounds=(0, 1), method="bvls", tol=1e-14)
    s = np.asarray(solution.x, dtype=np.float64)
    return gram.residual(s), s
