"""The unconstrained solution of Σ s_j ΠR_j ≈ −ΠA by its Gram system (§5).

G = (κDᵀΠDκ) ∘ (UUᵀ) has entries ⟨ΠR_i, ΠR_j⟩, r_j = −⟨ΠA, ΠR_j⟩.  With s = G⁻¹r the residual
Y = ΠA + Σ s_j ΠR_j is orthogonal to every R_j and ⟨Y, A⟩ = ‖Y‖²: the best Y for which no
inequality is needed.  Two Gram products, a Cholesky factorisation and a solve: O(m²d + m³/3)
operations and 2m² numbers; the d²×m matrix of the R_j is never formed.

The precision is a choice of speed, not of rigour: whatever comes out is judged afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from unskip.decision.question import SubsetCondition

Array = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Gram:
    """The Gram matrix and right-hand side, in the precision they were computed in."""

    matrix: Floats
    right: Floats
    down: Floats
    up: Floats
    projected_skip: Array

    @classmethod
    def of(cls, condition: SubsetCondition, dtype: type[np.floating[Any]]) -> Gram:
        """Two products of m×p×m and m×q×m operations; m×p×q more for a full skip matrix."""
        down = condition.project(condition.down * condition.kappa_float).astype(dtype)
        up = condition.up.astype(dtype)
        a = condition.a
        matrix = down.T @ down
        matrix *= up @ up.T
        n = min(a.shape)
        diagonal = np.diagonal(a)[:n].astype(dtype)
        if np.count_nonzero(a) == np.count_nonzero(diagonal):  # ⟨A, ΠR_j⟩ by elements
            right = -np.einsum("ij,ji->j", down[:n], up[:, :n] * diagonal)
        else:
            right = -np.einsum("jk,jk->j", down.T @ a.astype(dtype), up)
        return cls(matrix, right, down, up, condition.project(a))

    def solve(self) -> Floats | None:
        """s = G⁻¹ r; with the slightest ridge where G is numerically singular."""
        size = float(self.matrix.diagonal().max(initial=0.0))
        for ridge in (0.0, 64 * self.matrix.shape[0] * float(np.finfo(self.matrix.dtype).eps)):
            shifted = self.matrix.copy()
            shifted.flat[:: shifted.shape[0] + 1] += ridge * size
            try:
                # G is symmetric: its transpose is the Fortran-ordered view LAPACK works in.
                factor = scipy.linalg.cho_factor(
                    shifted.T, lower=True, overwrite_a=True, check_finite=False
                )
                s: Floats = scipy.linalg.cho_solve(factor, self.right, check_finite=False)
            except (scipy.linalg.LinAlgError, ValueError):
                continue
            if np.isfinite(s).all():
                return s
        return None

    def residual(self, s: Floats) -> Array:
        """Y = ΠA + Σ s_j ΠR_j, of shape (p, q)."""
        return self.projected_skip + ((self.down * s) @ self.up).astype(np.float64)

    def descend(self, start: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Flip single neurons while that brings ‖Π(A + Σ_S R_j)‖ down.  O(m) a flip.

        At most 4m flips; each removes the most that a single one can.
        """
        inside = start.astype(self.matrix.dtype)
        gradient = 2 * (self.matrix @ inside - self.right)
        diagonal = self.matrix.diagonal()
        floor = -1e-6 * float(diagonal.max(initial=0.0))
        for _ in range(4 * inside.size):
            change = (1 - 2 * inside) * gradient + diagonal
            j = int(np.argmin(change))
            if not change[j] < floor:
                break
            step = 1 - 2 * inside[j]
            inside[j] += step
            gradient += 2 * step * self.matrix[j]
        return inside > 0.5
