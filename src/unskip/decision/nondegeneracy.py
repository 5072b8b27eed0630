"""Are the neurons pairwise distinct, so that "no S exists" means "not absorbable"?  (§4, §6)

Distinct in the sense of the activation's uniqueness theorem.  Exact, in O(md) plus a sort:
two rows are parallel iff they agree after division by their entry of largest magnitude,
and IEEE division is correctly rounded, hence equal rationals give equal floats.  Rows whose
quotients differ are therefore not parallel; equal quotients are compared as fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import combinations

import numpy as np
import numpy.typing as npt

from unskip.activations import Independence
from unskip.decision.question import Question

Array = npt.NDArray[np.float64]


def obstacle(question: Question) -> str | None:
    """Why the neurons of an ungated block are degenerate, or ``None`` when they are not."""
    block = question.block
    up, down = block.w_up.astype(np.float64), block.w_down.astype(np.float64)
    dead = ~up.any(axis=1)
    if dead.any():
        return f"neuron {int(np.argmax(dead))} has zero input weights"
    mute = np.all(down == down[:1], axis=0) if question.centred else ~down.any(axis=0)
    if mute.any():
        visible = "constant" if question.centred else "zero"
        return f"neuron {int(np.argmax(mute))} has a {visible} output column"
    bias = np.zeros(block.m) if block.b_up is None else block.b_up.astype(np.float64)
    pair = coincident(up, bias, block.activation.facts.independence)
    if pair is not None:
        return f"neurons {pair[0]} and {pair[1]} coincide ({block.activation.facts.independence})"
    if block.activation.facts.independence is Independence.UNKNOWN:
        return f"no uniqueness theorem is known for {block.activation.name} neurons"
    return None


def coincident(up: Array, bias: Array, independence: Independence) -> tuple[int, int] | None:
    """Two neurons that are not distinct in the given sense, or ``None``."""
    rows = np.column_stack([up, bias])
    match independence:
        case Independence.SIGN:
            signs = np.sign(rows[np.arange(rows.shape[0]), np.argmax(rows != 0, axis=1)])
            return next(_equal_rows(rows * signs[:, None]), None)
        case Independence.HYPERPLANE:
            return _parallel(rows)
        case Independence.DIRECTION:
            return _parallel(up)
        case Independence.UNKNOWN:
            return None


def _parallel(rows: Array) -> tuple[int, int] | None:
    pivots = np.argmax(np.abs(rows), axis=1)
    quotients = rows / rows[np.arange(rows.shape[0]), pivots][:, None]
    for i, j in _equal_rows(quotients):
        a, b = rows[i], rows[j]
        x, y = Fraction(float(a[pivots[i]])), Fraction(float(b[pivots[i]]))
        if all(Fraction(float(s)) * y == Fraction(float(t)) * x for s, t in zip(a, b, strict=True)):
            return i, j
    return None


def _equal_rows(rows: Array) -> Iterator[tuple[int, int]]:
    """All pairs of equal rows (−0 and 0 are equal): by their first entries, then in full."""
    plain = np.ascontiguousarray(rows + 0.0)
    for alike in _groups(np.ascontiguousarray(plain[:, :4]), range(len(plain))):
        for equal in _groups(plain, alike):
            yield from combinations(equal, 2)


def _groups(rows: Array, indices: Iterable[int]) -> Iterator[list[int]]:
    """The groups of two or more equal rows."""
    groups: dict[bytes, list[int]] = {}
    for index in indices:
        groups.setdefault(rows[index].tobytes(), []).append(index)
    return (group for group in groups.values() if len(group) > 1)
