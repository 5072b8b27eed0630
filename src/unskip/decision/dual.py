"""Dual certificates: an integer matrix Y that proves that no subset S exists (§5).

For every s ∈ [0, 1]^m,  ⟨Y, A + Σ s_j R_j⟩ ≥ value(Y) = ⟨Y, A⟩ − Σ_j max(0, −⟨Y, R_j⟩),
so value(Y) > 0 refutes every S and ‖A + Σ s_j R_j‖_F ≥ value(Y) / ‖Y‖_F.  Under a centred
condition the columns of Y must sum to zero, so that ⟨Y, 1aᵀ⟩ = 0 whatever the norm discards.

*Any* Y may be tried, so it is found in fast arithmetic, rounded to small integers, and
only then judged, with outward error bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unskip.decision.merging import Merged
from unskip.decision.question import SubsetCondition

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

UNIT = 2.0**-53
#: A computed sum of at most 2²⁴ non-negative terms, roundings of the terms included, is
#: within 2⁻²⁸ relatively of the true one.  Claims are made with eight times that, and with
#: CAUTION times the proved error bounds, so that a checker with its own bounds agrees.
SLACK = 2.0**-25
CAUTION = 4.0
#: Below this size a product may have lost bits to underflow; above 2¹⁰⁰ it may overflow.
TINY, HUGE = 2.0**-300, 2.0**100
#: A skip below this is left to exact arithmetic.
SMALLEST = 2.0**-190


@dataclass(frozen=True)
class Evidence:
    """A refutation of every group-wise S: how it is stored, and what it proves.

    ``bound``: a lower bound of the relative defect over *all* sets of neurons; ``strength``:
    that over group-wise sets, which is what the refutation rests on.
    """

    data: Mapping[str, int | str | bool]
    matrix: npt.NDArray[np.signedinteger[Any]] | None
    bound: float
    strength: float
    value: float  #: a lower bound of ⟨Y, A + Σ_S R_j⟩ over group-wise S


class Magnitudes:
    """Norms of the columns of ``down`` and rows of ``up``: what error bounds are made of."""

    def __init__(self, condition: SubsetCondition) -> None:
        self.trusted = (
            max(
                float(np.abs(condition.a).max()),
                float(np.abs(condition.down).max()),
                float(np.abs(condition.up).max()),
                float(np.abs(condition.kappa_float).max()),
            )
            < HUGE
            and float(np.abs(condition.project(condition.a)).max()) > SMALLEST
        )
        with np.errstate(all="ignore"):
            down = np.sqrt(np.einsum("ij,ij->j", condition.down, condition.down))
            up = np.sqrt(np.einsum("ij,ij->i", condition.up, condition.up))
            kappa = np.abs(condition.kappa_float)
            self.products = (kappa * (down + TINY) * (up + TINY)) * (1 + SLACK)
            self.skip = skip_norm(condition)[1]


def skip_norm(condition: SubsetCondition) -> tuple[float, float]:
    """A lower and an upper bound of ‖ΠA‖_F."""
    norm = float(np.linalg.norm(condition.project(condition.a)))
    rounding = 4 * condition.a.shape[0] * UNIT * float(np.linalg.norm(condition.a))
    error = norm * SLACK + condition.centred * rounding + TINY
    return norm - error, norm + error


@dataclass(frozen=True)
class Trial:
    """A matrix Y by what a judgement needs: ⟨Y, R_j⟩/κ_j, ⟨Y, A⟩ and norms.

    ``mass`` bounds ‖|Y|‖_F from above, taken over the terms that the inner products were
    computed from, so that rounding errors are at most γ·mass·‖R_j‖_F (Cauchy–Schwarz).
    """

    inner: Array
    with_skip: float
    norm: float
    mass: float
    data: Mapping[str, int | str | bool]
    matrix: npt.NDArray[np.signedinteger[Any]] | None = None


def judge(merged: Merged, trial: Trial, sizes: Magnitudes) -> Evidence | None:
    """The evidence that Y makes, if it makes any.

    For groups, ⟨Y, A'⟩ and ⟨Y, R'_h⟩ are signed sums of the inner products with the R_j, and
    so are their error bounds.
    """
    condition = merged.original
    p, q = condition.a.shape
    gamma = CAUTION * (p + q + condition.m + 4) * UNIT
    error = gamma * trial.mass * sizes.products
    inner = condition.kappa_float * trial.inner
    with_skip = trial.with_skip - gamma * p * trial.mass * float(np.linalg.norm(condition.a))
    turned = float((inner - error)[merged.turned].sum())
    by_group = np.maximum(0.0, merged.gather(error) - merged.fold(inner))
    strength = with_skip + turned - float(by_group.sum()) * (1 + SLACK)
    if not strength > 0:
        return None
    # a pair of rows is one neuron; otherwise sets may tear groups apart
    by_neuron = by_group if merged.paired is not None else np.maximum(0.0, error - inner)
    bound = max(0.0, with_skip - float(by_neuron.sum()) * (1 + SLACK))
    scale = (1 - SLACK) / trial.norm / sizes.skip
    return Evidence(trial.data, trial.matrix, bound * scale, strength * scale, strength)


def cheap(condition: SubsetCondition) -> Iterator[Trial]:
    """The trace and the best diagonal coordinate; O(md) altogether, nothing to store.

    Under a centred condition Y = I becomes pI − 11ᵀ, and ±e_i e_iᵀ becomes ±(p e_i − 1)e_iᵀ.
    """
    p, q = condition.a.shape
    n = min(p, q)
    down, up, a = condition.down, condition.up[:, :n], condition.a
    sums, skip_sums = down.sum(axis=0), a.sum(axis=0)
    traces = np.einsum("ij,ji->j", down[:n], up)
    trace, mass = float(np.trace(a)), math.sqrt(n)
    norm = mass
    if condition.centred:
        traces = p * traces - sums * up.sum(axis=1)
        trace = p * trace - float(skip_sums[:n].sum())
        norm, mass = math.sqrt(n * p * (p - 1)), p * math.sqrt(n) + math.sqrt(p * n)
    if norm > 0:
        yield Trial(traces, trace, norm * (1 + SLACK), mass * (1 + SLACK), {"evidence": "trace"})

    # Σ_j max(0, −t) = (Σ|t| − Σt) / 2 for the terms t = ±⟨e_i e_iᵀ, ΠR_j⟩ of every i at once
    projected = condition.project(a)
    diagonal = np.diagonal(projected)[:n]
    weighted = condition.project(down * condition.kappa_float)[:n]
    totals = np.einsum("ij,ji->i", weighted, up)
    absolute = np.einsum("ij,ji->i", np.abs(weighted), np.abs(up))
    signs = np.where(diagonal < 0, -1.0, 1.0)
    i = int(np.argmax(np.abs(diagonal) - (absolute - signs * totals) / 2))
    sign = int(signs[i])
    data: dict[str, int | str | bool]
    data = {"evidence": "coordinate", "row": i, "column": i, "sign": sign}
    inner, with_skip, norm, mass = down[i] * up[:, i], float(a[i, i]), 1.0, 1.0
    if condition.centred:
        inner = p * inner - sums * up[:, i]
        with_skip = p * with_skip - float(skip_sums[i])
        norm, mass = math.sqrt(p * (p - 1)), p + math.sqrt(p)
    if norm > 0:
        yield Trial(sign * inner, sign * with_skip, norm * (1 + SLACK), mass * (1 + SLACK), data)


def dense(condition: SubsetCondition, y: Integers, dtype: type[np.signedinteger[Any]]) -> Trial:
    """An integer matrix, by one m×p×q product."""
    real = y.astype(np.float64)
    inner = np.einsum("jk,jk->j", condition.down.T @ real, condition.up)
    with_skip = float(np.sum(real * condition.a))
    norm = float(np.linalg.norm(real)) * (1 + SLACK)
    return Trial(inner, with_skip, norm, norm, {"evidence": "matrix"}, y.astype(dtype))


def rounded(merged: Merged, real: Array, sizes: Magnitudes) -> Evidence | None:
    """The evidence that a real Y makes once rounded to the smallest sufficient integers.

    Half precision (int16) is enough unless the value is tiny against Y; then int32 or int64
    is used.  "Sufficient" means that rounding costs at most a thousandth of the bound.
    """
    condition = merged.original
    size = float(np.abs(real).max(initial=0.0))
    if not (np.isfinite(size) and size > 0):
        return None
    promise = float(np.linalg.norm(condition.project(real))) / sizes.skip
    best: Evidence | None = None
    for dtype, bits in ((np.int16, 15), (np.int32, 31), (np.int64, 45)):
        y = whole(real / size * (2.0**bits - 1), centred=condition.centred)
        limit = 2**bits - 1
        if np.abs(y).max() > limit:
            np.clip(y, -limit, limit, out=y)
            if condition.centred and y.sum(axis=0).any():
                continue
        found = judge(merged, dense(condition, y, dtype), sizes)
        if found is not None and (best is None or found.strength > 1.001 * best.strength):
            best = found
        if best is not None and best.strength >= 0.999 * promise:
            break
    return best


def whole(real: Array, *, centred: bool) -> Integers:
    """Rounding to integers; centred: with columns that sum to exactly zero.

    The columns of ``real`` then sum to about zero, and the few units by which the rounded
    ones do not are given back to the entries that were rounded the furthest.
    """
    y = np.rint(real)
    if not centred:
        return y.astype(np.int64)
    whole = y.astype(np.int64)
    excess = whole.sum(axis=0)
    rows = real.shape[0]
    order = np.argsort(y - real, axis=0)  # most rounded-down first
    for column in np.flatnonzero(excess):
        units = int(excess[column])
        each, rest = divmod(abs(units), rows)
        sign = 1 if units > 0 else -1
        whole[:, column] -= sign * each
        chosen = order[rows - rest :, column] if units > 0 else order[:rest, column]
        whole[chosen, column] -= sign
    return whole


def trace_matrix(condition: SubsetCondition) -> Integers:
    """The Y of the trace: ones on the diagonal, brought to column sums of zero if centred."""
    return _columns_to_zero(condition, np.eye(*condition.a.shape, dtype=np.int64))


def coordinate_matrix(condition: SubsetCondition, row: int, column: int, sign: int) -> Integers:
    """The Y of a coordinate."""
    y = np.zeros(condition.a.shape, dtype=np.int64)
    y[row, column] = sign
    return _columns_to_zero(condition, y)


def _columns_to_zero(condition: SubsetCondition, y: Integers) -> Integers:
    return len(y) * y - y.sum(axis=0) if condition.centred else y
