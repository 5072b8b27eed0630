"""A linear map as a sum of rank-one terms, on rows that are there and as few new ones.

Exact for small maps (fractions, rounded once by who asks), in float64 with checked residual
for large ones.  Both kinds are NumPy arrays, of fractions or of floats, so that the algebra
around them is written once.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import flint
import numpy as np
import numpy.typing as npt
import scipy.linalg

from unskip.errors import UnskipError

__all__ = ["Split", "exactly", "split"]

#: Float64, or objects that are fractions.
Numbers = npt.NDArray[Any]

#: A map is split in float64 only if its terms add up to it this well.
LARGEST_RESIDUAL = 1e-9
#: Terms this much larger than what they add up to would lose as much of float64's precision.
LARGEST_GROWTH = 1 << 20


class Split(NamedTuple):
    """matrix = columns @ rows + new_columns @ new_rows."""

    columns: Numbers  #: (p, t)
    new_columns: Numbers  #: (p, r)
    new_rows: Numbers  #: (r, q): rows of the matrix, times powers of two


def split(matrix: Numbers, rows: Numbers, rank: int, *, scale: Any) -> Split:
    """Write ``matrix`` (p, q) on independent ``rows`` (t, q) and ``rank`` of its own rows.

    ``rank`` must be at least the rank of the matrix modulo the span of ``rows``.  In float64 the
    terms add up to the matrix within ``LARGEST_RESIDUAL`` of ``scale``, the size of what it was
    computed from.  O(pq(t + rank)).  Raises :class:`UnskipError` where the rows are too ill
    conditioned for that.
    """
    if matrix.dtype == object:
        terms, basis = _exact_terms(matrix, rows, rank)
    else:
        terms, basis = _terms(matrix, rows, rank, scale)
    if (np.abs(terms) @ np.abs(basis)).max(initial=0) > LARGEST_GROWTH * scale:
        raise UnskipError("the neurons' rows are too ill conditioned to carry the skip in float64")
    return _balanced(terms[:, : len(rows)], terms[:, len(rows) :], basis[len(rows) :])


def _terms(matrix: Numbers, rows: Numbers, rank: int, scale: float) -> tuple[Numbers, Numbers]:
    own = _leading(matrix - _projected(matrix, rows), rank)
    basis = np.vstack([rows, matrix[own]])
    terms = np.linalg.lstsq(basis.T, matrix.T, rcond=None)[0].T if len(basis) else matrix[:, :0]
    residual = float(np.abs(matrix - terms @ basis).max(initial=0.0))
    if not residual <= LARGEST_RESIDUAL * scale:
        raise UnskipError(
            f"the neurons' rows are too ill conditioned to carry the skip in float64 "
            f"(residual {residual:.1e})"
        )
    return terms, basis


def _balanced(columns: Numbers, new_columns: Numbers, new_rows: Numbers) -> Split:
    """With new rows whose largest entry lies in [½, 1): exact, since by powers of two."""
    sizes = np.abs(new_rows).max(axis=1, initial=0).astype(np.float64)
    powers = np.ldexp(1.0, np.frexp(sizes)[1])
    if new_rows.dtype == object:
        powers = exactly(powers)
    return Split(columns, new_columns * powers, new_rows / powers[:, None])


def _projected(matrix: Numbers, rows: Numbers) -> Numbers:
    """The part of each row that lies in the span of ``rows``."""
    if not len(rows):
        return np.zeros_like(matrix)
    basis = np.linalg.qr(rows.T)[0]
    return (matrix @ basis) @ basis.T


def _leading(matrix: Numbers, rank: int) -> npt.NDArray[np.intp]:
    """Up to ``rank`` rows that span the others as well as rows can (pivoted QR)."""
    if not rank or not matrix.any():
        return np.zeros(0, dtype=np.intp)
    order = scipy.linalg.qr(matrix.T, mode="r", pivoting=True)[1]
    return np.asarray(order[:rank])


def exactly(values: npt.NDArray[np.float64]) -> Numbers:
    """The same numbers as fractions."""
    result = np.empty(values.shape, dtype=object)
    result.ravel()[:] = [Fraction(x) for x in values.ravel().tolist()]
    return result


def _exact_terms(matrix: Numbers, rows: Numbers, rank: int) -> tuple[Numbers, Numbers]:
    chosen: list[int] = []
    basis = _rational(rows, matrix.shape[1])
    have = basis.rank()
    for index in range(len(matrix)):
        if len(chosen) == rank:
            break
        longer = _rational(np.vstack([rows, matrix[[*chosen, index]]]), matrix.shape[1])
        if longer.rank() > have:
            chosen, basis, have = [*chosen, index], longer, have + 1
    echelon, size = basis.rref()
    pivots = [next(j for j in range(matrix.shape[1]) if echelon[i, j]) for i in range(size)]
    target = _rational(matrix, matrix.shape[1])
    if size < basis.nrows():
        raise UnskipError("the rows to write a linear map on are linearly dependent")
    terms = _columns(target, pivots)
    if size:
        terms *= _columns(basis, pivots).inv()
    if terms * basis != target:
        raise UnskipError("a linear map needs more terms than were planned")
    return _fractions(terms), np.vstack([rows, matrix[chosen]])


def _rational(values: Numbers, columns: int) -> flint.fmpq_mat:
    entries = [flint.fmpq(x.numerator, x.denominator) for x in values.ravel().tolist()]
    return flint.fmpq_mat(len(values), columns, entries)


def _columns(matrix: flint.fmpq_mat, chosen: list[int]) -> flint.fmpq_mat:
    entries = [matrix[i, j] for i in range(matrix.nrows()) for j in chosen]
    return flint.fmpq_mat(matrix.nrows(), len(chosen), entries)


def _fractions(matrix: flint.fmpq_mat) -> Numbers:
    result = np.empty((matrix.nrows(), matrix.ncols()), dtype=object)
    entries = [Fraction(int(x.p), int(x.q)) for x in matrix.entries()]
    result.ravel()[:] = entries
    return result
