"""Gated blocks with biases: the subset condition of flipped gates (§9).

A unit is d_j g(w_j·x + b_j)(v_j·x + e_j), its value affine.  Two kinds of gate can be flipped:

- g(z) − g(−z) = κz (SiLU, GELU, ReLU): flipping (w_j, b_j) leaves κ d_j (w_j·x + b_j)(v_j·x + e_j),
  so S absorbs iff Σ_S κ d_j ⊗ sym(w_j v_jᵀ) = 0 and Σ_S κ d_j (b_j v_j + e_j w_j)ᵀ = −A.  The
  second is a subset condition in which each neuron is a pair of rank-one terms, with the rows v_j
  and w_j and the constants κ b_j and κ e_j; it is searched.  The first is verified.
- g(z) + g(−z) = κ₀ (sigmoid): flipping w_j, b_j and d_j leaves κ₀ d_j (v_j·x + e_j), a subset
  condition with the value matrix.

"No S" means "not absorbable" when the gates are pairwise distinct in the sense of the gate's
uniqueness theorem and w_j, d_j, (v_j, e_j) are nonzero.  More width: a unit with a constant gate
is linear, so rank ΠA ≤ d units more suffice where the gate can be a nonzero constant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, lcm

import flint
import numpy as np
import numpy.typing as npt

from unskip.activations import Independence
from unskip.certificates import Answer, Interval, Rule, Scope
from unskip.decision.exact import satisfies
from unskip.decision.finding import EVIDENCE, Finding
from unskip.decision.merging import Merged
from unskip.decision.neurons import Neurons, coincident, seen
from unskip.decision.question import Question, SubsetCondition
from unskip.decision.subset import search

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def by_gates(question: Question, *, quick: bool) -> Finding | None:
    """The finding for a gated block; ``None`` where its gates cannot be flipped."""
    condition = _condition(question)
    if condition is None or question.lacks_biases:
        return None
    outcome = search(condition.merged, quick=quick, verify=condition.satisfied)
    outcome = replace(outcome, achieved=condition.neurons(outcome.achieved))
    m = question.block.m
    bounds = condition.bounds(refuted=outcome.refuted)
    obstacle = condition.merged.neurons.obstacle or question.norm_obstacle
    subset: tuple[int, ...] | None = None
    answer, rule = Answer.UNKNOWN, Rule.UNDECIDED
    if outcome.subset is not None:
        answer, rule = Answer.ABSORBABLE, Rule.GATED_CONDITION
        subset = tuple(condition.neurons(outcome.subset).tolist())
        bounds = Interval(bounds.lower, m)
        reason = f"flipping {len(subset)} of {m} gates reproduces the skip exactly"
    elif outcome.refuted and obstacle is None:
        answer, rule = Answer.NOT_ABSORBABLE, Rule.GATED_CONDITION
        evidence = EVIDENCE[str(outcome.data["evidence"])]
        reason = f"no set of gates, flipped, adds up to the skip ({evidence}), and the gates are "
        reason += "pairwise distinct, so nothing else could"
    elif outcome.refuted:
        reason = f"no set of flipped gates absorbs the skip (proved), but {obstacle}"
    else:
        reason = "neither a set of gates that absorbs the skip nor a certificate was found"
        reason += "" if obstacle is None else f"; also, {obstacle}"
    return Finding(
        answer,
        Scope.THIS_WIDTH,
        rule,
        reason,
        bounds,
        outcome.data,
        outcome.defect,
        subset,
        outcome.arrays,
    )


@dataclass(frozen=True)
class GatedCondition:
    """The condition to search, and what a set found must satisfy beyond it."""

    question: Question
    merged: Merged
    quadratic: bool  #: a quadratic part must cancel
    offset: tuple[Fraction, ...]  #: e_j, the biases of the values

    def satisfied(self, terms: Indices) -> bool:
        """Whether flipping these absorbs exactly, quadratic part and constant included."""
        if not satisfies(self.merged.original, terms):
            return False
        return not self.quadratic or self._quadratic_cancels(self.neurons(terms))

    def neurons(self, terms: Indices) -> Indices:
        """The neurons of a set of rank-one terms."""
        return terms[terms < self.question.block.m]

    def _quadratic_cancels(self, subset: Indices) -> bool:
        """Σ_S d_j ⊗ sym(w̃_j ṽ_jᵀ) has only its linear part (and a constant, where allowed)."""
        block, assumptions = self.question.block, self.question.assumptions
        assert block.w_gate is not None
        if not assumptions.output_bias and block.b_down is not None and block.b_down.any():
            return False  # the constant would have to cancel b_down; not searched for
        gate = np.column_stack([block.w_gate.astype(np.float64), block.bias("b_gate")])
        left = _whole([[Fraction(x) for x in row] for row in gate[subset].tolist()])
        value = block.w_up[subset].astype(np.float64).tolist()
        right = [
            [*map(Fraction, row), self.offset[j]] for row, j in zip(value, subset, strict=True)
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

    def bounds(self, *, refuted: bool) -> Interval:
        """Of the minimal width, when no S is known."""
        block = self.question.block
        theorem = self.merged.neurons.obstacle is None and self.question.norm_obstacle is None
        constant = block.b_gate is not None or block.activation.facts.value_at_zero != 0
        widest = block.m + block.d if constant else inf
        return Interval(block.m + refuted if theorem else 0, widest)


def _condition(question: Question) -> GatedCondition | None:
    """The condition of a gated block, or ``None`` where its gate cannot be flipped."""
    block = question.block
    value = block.up_activation
    if value is None or value.facts.slope != 1:
        return None
    shift = value.facts.offset
    offset = tuple(Fraction(e) + shift for e in block.bias("b_up").tolist())
    gate = block.activation.facts
    if isinstance(gate.parity, Fraction) and gate.parity != 0:
        return _by_parity(question, gate.parity, offset)
    if gate.reflection:
        return _by_reflection(question, gate.reflection, offset)
    return None


def _by_parity(question: Question, kappa: Fraction, offset: tuple[Fraction, ...]) -> GatedCondition:
    block, m = question.block, question.block.m
    assert block.w_gate is not None
    up, gate = block.w_up.astype(np.float64), block.w_gate.astype(np.float64)
    down, a = block.w_down.astype(np.float64), block.skip_matrix
    b_gate = block.bias("b_gate")
    constants = (*(kappa * Fraction(b) for b in b_gate.tolist()), *(kappa * e for e in offset))
    terms = SubsetCondition(
        a, np.hstack([down, down]), np.vstack([up, gate]), constants, question.centred
    )
    with np.errstate(over="ignore", invalid="ignore"):  # only for searching
        rows = up * b_gate[:, None] + gate * np.array([float(e) for e in offset])[:, None]
    rows = np.nan_to_num(rows)
    rounded = SubsetCondition(a, down, rows, (kappa,) * m, question.centred)
    pairs = tuple(np.array([j, m + j]) for j in range(m))
    forwards = np.ones(2 * m, np.int64)
    neurons = Neurons(2 * m, pairs, pairs, forwards, _obstacle(question, offset), False)
    return GatedCondition(question, Merged(terms, neurons, paired=rounded), True, offset)


def _by_reflection(
    question: Question, kappa: Fraction, offset: tuple[Fraction, ...]
) -> GatedCondition | None:
    block, m = question.block, question.block.m
    up, a = block.w_up.astype(np.float64), block.skip_matrix
    b_down = block.bias("b_down")
    if not question.assumptions.output_bias and (any(offset) or b_down.any()):
        constants = np.array([float(e) for e in offset])
        if tuple(map(Fraction, constants.tolist())) != offset:
            return None  # e_j is no float64
        up, a = np.column_stack([up, constants]), np.column_stack([a, b_down])
    down = block.w_down.astype(np.float64)
    terms = SubsetCondition(a, down, up, (kappa,) * m, question.centred)
    each = tuple(np.array([j]) for j in range(m))
    forwards = np.ones(m, np.int64)
    neurons = Neurons(m, each, (), forwards, _obstacle(question, offset), False)
    return GatedCondition(question, Merged(terms, neurons), False, offset)


def _obstacle(question: Question, offset: tuple[Fraction, ...]) -> str | None:
    """Why "no S" would not mean "not absorbable", if so."""
    block = question.block
    assert block.w_gate is not None
    gate, down = block.w_gate.astype(np.float64), block.w_down.astype(np.float64)
    value = block.w_up.astype(np.float64).any(axis=1) | np.array([e != 0 for e in offset])
    kind = block.activation.facts.independence
    visible = seen(down, centred=question.centred)
    if kind is Independence.UNKNOWN:
        return f"no uniqueness theorem is known for {block.activation.name} gates"
    if not (gate.any(axis=1) & value & visible).all():
        return "a unit has zero gate, value or output weights"
    pair = coincident(gate, block.bias("b_gate"), kind)
    return None if pair is None else f"the gates of units {pair[0]} and {pair[1]} coincide"


def _whole(rows: list[list[Fraction]]) -> list[list[int]]:
    """A positive multiple with integer entries."""
    scale = lcm(*(x.denominator for row in rows for x in row))
    return [[int(x * scale) for x in row] for row in rows]
