"""Which neurons are one neuron?  The groups H of the canonical form (§6), exactly.

Two neurons coincide in the sense of the activation's uniqueness theorem: equal (u, b) up to
sign, or, for piecewise linear activations, one hyperplane.  A group acts as one neuron with
the output column k_h = Σ |t_j| d_j, where (u_j, b_j) = t_j (n_h, β_h); those with u = 0 are
constants, and a group with k_h = 0 is affine.

Exact, in O(md) plus fractions for the groups of several: two rows are parallel iff they agree
after division by their entry of largest magnitude, and IEEE division is correctly rounded,
hence equal rationals give equal floats.  Rows whose quotients differ are therefore not
parallel; equal quotients are compared as fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from unskip.activations import Independence
from unskip.decision.question import Question, SubsetCondition

Array = npt.NDArray[np.float64]
Members = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Neurons:
    """The visible groups H and what stands in the way of "no subset means no"."""

    m: int
    #: Members of each group with k_h ≠ 0, ascending; the first one represents it.
    groups: tuple[Members, ...]
    #: Groups of several neurons, visible or not.
    several: tuple[Members, ...]
    #: ±1: whether a neuron points as the first of its group.
    orientation: npt.NDArray[np.int64]
    #: Why no uniqueness theorem applies, if none does.
    obstacle: str | None
    #: Whether constant neurons (u = 0) supply what a missing output bias cannot.
    constants: bool
    #: The obstacle that is left where that is taken care of.
    obstacle_without_constants: str | None = None

    @property
    def count(self) -> int:
        """|H|."""
        return len(self.groups)

    @cached_property
    def distinct(self) -> bool:
        """Nondegenerate: every neuron is a visible group of its own."""
        return self.count == self.m and all(g.size == 1 for g in self.groups)

    @property
    def representatives(self) -> Members:
        """The first member of each group."""
        return np.array([g[0] for g in self.groups], dtype=np.int64)


def group(question: Question) -> Neurons:
    """The groups of an ungated block."""
    block = question.block
    up, down = block.w_up.astype(np.float64), block.w_down.astype(np.float64)
    bias = block.bias("b_up")
    kind = block.activation.facts.independence
    rows = np.column_stack([up, bias])
    alive = np.flatnonzero(up.any(axis=1))
    orientation = np.ones(block.m, dtype=np.int64)
    obstacle: str | None = None
    several: list[Members] = []
    if kind is Independence.UNKNOWN:
        obstacle = f"no uniqueness theorem is known for {block.activation.name} neurons"
    elif kind is Independence.HYPERPLANE:
        several = list(_parallel(rows, alive))
    else:
        several = list(_equal_up_to_sign(rows, alive))
        if kind is Independence.DIRECTION:
            obstacle = _parallel_obstacle(up, rows, alive)
    for members in several:
        _orient(orientation, rows, members)
    grouped = np.zeros(block.m, dtype=bool)
    for members in several:
        grouped[members] = True
    visible = seen(down, centred=question.centred)
    groups = [np.array([j]) for j in alive.tolist() if not grouped[j] and visible[j]]
    groups += [g for g in several if _adds_up(g, rows, down, centred=question.centred)]
    groups.sort(key=lambda g: int(g[0]))
    dead = ~up.any(axis=1) & down.any(axis=0)
    if block.activation.facts.value_at_zero == 0:
        dead &= bias != 0
    constants = bool(dead.any()) and not question.assumptions.output_bias
    otherwise = obstacle
    if constants:
        obstacle = f"neuron {int(np.argmax(dead))} is a constant that no output bias can take"
    sets = tuple(groups), tuple(several)
    return Neurons(block.m, *sets, orientation, obstacle, constants, otherwise)


def with_constants(
    question: Question, condition: SubsetCondition, neurons: Neurons
) -> tuple[SubsetCondition, Neurons]:
    """The homogenised condition whose A' has the constants d_j σ(b_j) too, σ of degree 1.

    σ(b) = (σ(b)/b) b, so the term of a neuron with u = 0 is this constant once its κ is σ(b)/b;
    and A' has it once the neuron counts as turned.
    """
    block = question.block
    slopes = {s: Fraction(float(block.activation(float(s)))) * s for s in (1, -1)}
    kappa, orientation = list(condition.kappa), neurons.orientation.copy()
    bias = block.bias("b_up")
    for j in np.flatnonzero(~block.w_up.any(axis=1)).tolist():
        kappa[j] = slopes[1 if bias[j] > 0 else -1]
        orientation[j] = -1
    return replace(condition, kappa=tuple(kappa)), replace(neurons, orientation=orientation)


def coincident(
    rows: Array, bias: Array, kind: Independence, among: Members
) -> tuple[list[Members], npt.NDArray[np.int64]]:
    """The sets of several rows, none zero, that coincide in the given sense; and ±1 for every
    row, by whether it points as the first of its set."""
    full = np.column_stack([rows, bias])
    compared = rows if kind is Independence.DIRECTION else full
    find = _equal_up_to_sign if kind is Independence.SIGN else _parallel
    several = list(find(compared, among))
    orientation = np.ones(len(rows), dtype=np.int64)
    for members in several:
        _orient(orientation, compared, members)
    return several, orientation


def parallel_classes(rows: Array) -> int:
    """How many of these rows, none zero, are left if multiples of each other count once."""
    several = _parallel(rows, np.arange(len(rows)))
    return len(rows) - sum(members.size - 1 for members in several)


def _orient(orientation: npt.NDArray[np.int64], rows: Array, members: Members) -> None:
    first = rows[members[0]]
    pivot = int(np.argmax(np.abs(first)))
    orientation[members] = np.sign(rows[members, pivot] * np.sign(first[pivot]))


def seen(down: Array, *, centred: bool) -> npt.NDArray[np.bool_]:
    """Which output columns are not zero (centred: not constant)."""
    columns: npt.NDArray[np.bool_] = (down != (down[:1] if centred else 0.0)).any(axis=0)
    return columns


def _adds_up(members: Members, rows: Array, down: Array, *, centred: bool) -> bool:
    """Whether k_h = Σ |t_j| d_j is not zero (centred: not constant)."""
    pivot = int(np.argmax(np.abs(rows[members[0]])))
    sizes = [abs(Fraction(float(rows[j, pivot]))) for j in members]
    column = [
        sum(t * Fraction(float(x)) for t, x in zip(sizes, entries, strict=True))
        for entries in down[:, members]
    ]
    return any(x != (column[0] if centred else 0) for x in column)


def _parallel_obstacle(up: Array, rows: Array, alive: Members) -> str | None:
    """For activations whose theorem needs non-parallel rows (HardSwish)."""
    for members in _parallel(up, alive):
        first = rows[members[0]]
        for j in members[1:].tolist():
            if not (np.array_equal(rows[j], first) or np.array_equal(rows[j], -first)):
                return f"neurons {members[0]} and {j} have parallel rows and differ"
    return None


def _equal_up_to_sign(rows: Array, alive: Members) -> Iterator[Members]:
    leads = rows[np.arange(len(rows)), np.argmax(rows != 0, axis=1)]
    return _equal_rows(rows * np.sign(leads)[:, None], alive)


def _parallel(rows: Array, alive: Members) -> Iterator[Members]:
    pivots = np.argmax(np.abs(rows), axis=1)
    leads = rows[np.arange(len(rows)), pivots]
    quotients = rows / np.where(leads == 0, 1.0, leads)[:, None]
    for alike in _equal_rows(quotients, alive):
        rest = alike.tolist()
        while len(rest) > 1:
            first = rest[0]
            lead = int(pivots[first])
            same = [j for j in rest if j == first or _proportional(rows[first], rows[j], lead)]
            if len(same) > 1:
                yield np.array(same)
            rest = [j for j in rest if j not in same]


def _proportional(a: Array, b: Array, pivot: int) -> bool:
    x, y = Fraction(float(a[pivot])), Fraction(float(b[pivot]))
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    return all(Fraction(s) * y == Fraction(t) * x for s, t in pairs)


def _equal_rows(rows: Array, indices: Members) -> Iterator[Members]:
    """Groups of equal rows (−0 and 0 are equal): by their first entries, then in full."""
    plain = np.ascontiguousarray(rows + 0.0)
    for alike in _alike(np.ascontiguousarray(plain[:, :4]), indices.tolist()):
        for equal in _alike(plain, alike):
            yield np.array(equal)


def _alike(rows: Array, indices: Iterable[int]) -> Iterator[list[int]]:
    groups: dict[bytes, list[int]] = {}
    for index in indices:
        groups.setdefault(rows[index].tobytes(), []).append(index)
    return (members for members in groups.values() if len(members) > 1)
