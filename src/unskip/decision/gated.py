"""Blocks whose units leave a polynomial when flipped: gates with biases, squared ReLU (§9).

With the units of ``units.py``, S absorbs iff

    Σ_S κ d_j ⊗ sym(w_j v_jᵀ) = 0  and  A + Σ_S L_j = 0,   L_j = κ d_j (b_j v_j + e_j w_j)ᵀ,

or, for gates of the sigmoid kind, iff A + Σ_S L_j = 0 with L_j = κ₀ d_j v_jᵀ.  The linear part is
a subset condition (with two rank-one terms a unit in the first case); it is searched, and the
quadratic part of what is found is verified.

"No S" means "not absorbable" when all units are visible and no two share a gate.  Otherwise the
n units that have a gate of their own stay, flipped or not, and every other unit, of this block or
of a replacement, changes the linear part by a matrix of rank one at most: with z constant gates,
a replacement has at least n + rank − z units, the least rank of Π(A' + Σ_S L_j) over sets of the n.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import flint
import numpy as np
import numpy.typing as npt

from unskip.certificates import Answer, Interval, Rule, Scope
from unskip.decision import bounded, rank
from unskip.decision.exact import satisfies
from unskip.decision.finding import EVIDENCE, Finding
from unskip.decision.merging import Merged
from unskip.decision.neurons import Neurons, seen
from unskip.decision.question import Question, SubsetCondition
from unskip.decision.subset import Outcome, search
from unskip.decision.units import Classes, Units

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def by_gates(question: Question, *, quick: bool) -> Finding | None:
    """The finding for a block of such units; ``None`` where its units are not."""
    units = Units.of(question)
    if units is None or question.lacks_biases:
        return None
    condition = FlipCondition.of(question, units)
    if condition is None:
        return None
    classes = Classes.of(question, units)
    everything = condition.merged(np.arange(question.block.m), classes.turned[:0])
    outcome = search(everything, quick=quick, verify=condition.satisfied)
    counted, bounding = outcome, everything
    if (
        outcome.subset is None
        and classes.alone.size < question.block.m
        and classes.obstacle is None
    ):
        bounding = condition.merged(classes.alone, classes.turned)
        counted = search(bounding, quick=quick, verify=condition.satisfied)
    if counted.subset is not None:
        return _absorbed(question, units, classes, condition.units(counted.subset))
    return _bounded(question, units, classes, condition, outcome, counted, bounding)


def _absorbed(question: Question, units: Units, classes: Classes, flipped: Indices) -> Finding:
    m = question.block.m
    least = classes.alone.size if classes.obstacle is None else 0
    return Finding(
        Answer.ABSORBABLE,
        Scope.THIS_WIDTH,
        units.rule,
        f"flipping {flipped.size} of {m} {_WHAT[units.rule]} reproduces the skip exactly",
        Interval(least, m),
        {"evidence": "flip"},
        Interval(0.0, 0.0),
        tuple(flipped.tolist()),
        {"achieved": flipped.astype(np.int32)},
    )


_WHAT = {Rule.GATED_CONDITION: "gates", Rule.SQUARED_CONDITION: "neurons"}


def _bounded(
    question: Question,
    units: Units,
    classes: Classes,
    condition: FlipCondition,
    outcome: Outcome,
    counted: Outcome,
    bounding: Merged,
) -> Finding:
    """No S was found: what is known of the width."""
    m, d = question.block.m, question.block.d
    data = {**counted.data}
    n, lower = classes.alone.size, 0
    obstacle = classes.obstacle
    rule = units.rule
    if obstacle is None:
        beyond = int(counted.refuted)
        visible = seen(question.block.w_down.astype(np.float64), centred=question.centred)
        unread = bounded.left_over(question, condition.reads[np.tile(visible, condition.terms)])
        if counted.evidence is not None and beyond < m + 1 - n + classes.linear:
            left = rank.least(bounding, counted.evidence)
            if left > max(beyond, unread):
                data["rank"] = beyond = left
        if unread > beyond:
            data["left"] = beyond = unread
            rule = Rule.BOUNDED_RANK
        lower = n + max(0, beyond - classes.linear)
    upper = classes.computing.size + units.linear_cost * d
    refused = lower > m
    what = _WHAT[units.rule]
    if rule is Rule.BOUNDED_RANK and refused:
        reason = f"the skip carries {data['left']} directions that the {what} do not read"
    elif refused and n == m:
        reason = f"no set of {what}, flipped, adds up to the skip "
        reason += f"({EVIDENCE[str(counted.data['evidence'])]}), and they are pairwise distinct, "
        reason += "so nothing else could"
    elif refused:
        reason = f"{n} of {m} {what} cannot be replaced, and what is left of the skip takes "
        reason += f"{lower - n} more"
    elif counted.refuted:
        spare = f"{m - n} units are to spare, or share a gate, and others may use them"
        reason = f"no set of flipped {what} absorbs the skip (proved), but {obstacle or spare}"
    else:
        reason = f"neither a set of {what} that absorbs the skip nor a certificate was found"
        reason += "" if obstacle is None else f"; also, {obstacle}"
    defect = outcome.defect
    if counted is not outcome:  # its evidence is not about all sets of units
        defect = Interval(0.0, outcome.defect.upper)
    return Finding(
        Answer.NOT_ABSORBABLE if refused else Answer.UNKNOWN,
        Scope.THIS_WIDTH,
        rule if refused else Rule.UNDECIDED,
        reason,
        Interval(lower, upper),
        data,
        defect,
        None,
        {**counted.arrays, "achieved": condition.units(outcome.achieved).astype(np.int32)},
    )


@dataclass(frozen=True)
class FlipCondition:
    """The condition to search, and what a set found must satisfy beyond it."""

    question: Question
    units_: Units
    linear: SubsetCondition  #: with the terms of unit j at j and, if quadratic, m + j
    rows: Array  #: b_j v_j + e_j w_j, rounded, for searching only

    @classmethod
    def of(cls, question: Question, units: Units) -> FlipCondition | None:
        """``None`` where a bias of the sum is no float64."""
        block, kappa, m = question.block, units.kappa, question.block.m
        down, a, up = block.w_down.astype(np.float64), block.skip_matrix, units.value
        if units.quadratic:
            constants = (
                *(kappa * Fraction(b) for b in units.bias.tolist()),
                *(kappa * e for e in units.offset),
            )
            both = np.hstack([down, down]), np.vstack([up, units.gate])
            linear = SubsetCondition(a, *both, constants, question.centred)
            ends = np.array([float(e) for e in units.offset])
            with np.errstate(over="ignore", invalid="ignore"):
                rows = up * units.bias[:, None] + units.gate * ends[:, None]
            return cls(question, units, linear, np.nan_to_num(rows))
        b_down = block.bias("b_down")
        if not question.assumptions.output_bias and (any(units.offset) or b_down.any()):
            ends = np.array([float(e) for e in units.offset])
            if tuple(map(Fraction, ends.tolist())) != units.offset:
                return None
            up, a = np.column_stack([up, ends]), np.column_stack([a, b_down])
        linear = SubsetCondition(a, down, up, (kappa,) * m, question.centred)
        return cls(question, units, linear, up)

    @property
    def terms(self) -> int:
        """Rank-one terms a unit."""
        return 2 if self.units_.quadratic else 1

    @property
    def reads(self) -> Array:
        """The rows of all terms, without the column of a missing output bias."""
        return self.linear.up[:, : self.question.block.d]

    def merged(self, free: Indices, turned: Indices) -> Merged:
        """The condition over sets of the ``free`` units, once the ``turned`` ones are flipped."""
        m, c = self.question.block.m, self.linear
        orientation = np.ones(self.terms * m, np.int64)
        for term in range(self.terms):
            orientation[turned + term * m] = -1
        groups = tuple(np.array([j + t * m for t in range(self.terms)]) for j in free.tolist())
        neurons = Neurons(self.terms * m, groups, (), orientation, None, False)
        if not self.units_.quadratic:
            return Merged(c, neurons)
        down = c.down[:, :m]
        with np.errstate(all="ignore"):
            kappa = float(self.units_.kappa)
            a = c.a + (down[:, turned] * kappa) @ self.rows[turned]
        rounded = SubsetCondition(
            np.nan_to_num(a),
            down[:, free],
            self.rows[free],
            (self.units_.kappa,) * free.size,
            c.centred,
        )
        return Merged(c, neurons, paired=rounded)

    def satisfied(self, terms: Indices) -> bool:
        """Whether flipping these absorbs exactly, quadratic part and constant included."""
        if not satisfies(self.linear, terms):
            return False
        return not self.units_.quadratic or self._quadratic_cancels(self.units(terms))

    def units(self, terms: Indices) -> Indices:
        """The units of a set of rank-one terms."""
        return terms[terms < self.question.block.m]

    def _quadratic_cancels(self, subset: Indices) -> bool:
        """Σ_S d_j ⊗ sym(w̃_j ṽ_jᵀ) has only its linear part (and a constant, where allowed)."""
        block, assumptions, units = self.question.block, self.question.assumptions, self.units_
        if not assumptions.output_bias and block.b_down is not None and block.b_down.any():
            return False  # the constant would have to cancel b_down; not searched for
        gate = np.column_stack([units.gate, units.bias])
        left = _whole([[Fraction(x) for x in row] for row in gate[subset].tolist()])
        right = [
            [*map(Fraction, row), units.offset[j]]
            for row, j in zip(units.value[subset].tolist(), subset, strict=True)
        ]
        columns = block.w_down[:, subset].astype(np.float64).tolist()
        outputs = [[Fraction(x) for x in row] for row in columns]
        if self.question.centred:  # what is left must be the same for all outputs
            first = outputs[0]
            outputs = [[x - y for x, y in zip(row, first, strict=True)] for row in outputs[1:]]
        for factors in outputs:
            scaled = _whole([[f * x for x in row] for f, row in zip(factors, right, strict=True)])
            if not subset.size:
                continue
            form = flint.fmpz_mat(left).transpose() * flint.fmpz_mat(scaled)
            entries = (form + form.transpose()).tolist()
            if any(x for row in entries[:-1] for x in row[:-1]):
                return False
            if not assumptions.output_bias and entries[-1][-1]:
                return False
        return True


def _whole(rows: list[list[Fraction]]) -> list[list[int]]:
    """A positive multiple with integer entries."""
    scale = lcm(*(x.denominator for row in rows for x in row))
    return [[int(x * scale) for x in row] for row in rows]
