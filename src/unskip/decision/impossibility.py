"""The unconditional rules: blocks whose skip no width can absorb (§3), and affine blocks.

Each rule reads facts of the activation and the assumptions of the question.  All of them
need a skip that the output shows, A ≠ 0 (centred: A is no 1aᵀ); an entry of A is the
witness.  A claim about every depth needs more: an invertible A (so that the product of the
skips does not vanish), no norm in between, and no output bias where one would act as a
hidden bias of the next block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from unskip.activations import Facts, Growth
from unskip.blocks import NormKind, ResidualBlock
from unskip.certificates import Answer, Interval, Rule, Scope
from unskip.decision.exact import assemble
from unskip.decision.finding import Finding
from unskip.decision.question import Question, SubsetCondition
from unskip.decision.width import nonsingular


@dataclass(frozen=True)
class BranchFacts:
    """Facts of the branch x ↦ D σ(Ux) without biases, from those of its one or two factors."""

    homogeneity: Fraction | None
    vanishes: bool  #: branch(x) = o(‖x‖) at 0
    bounded: bool
    sublinear: bool  #: o(‖x‖) at infinity, biases included
    even: bool
    smooth_zero: bool  #: value 0 and differentiable at 0

    @classmethod
    def of(cls, block: ResidualBlock) -> BranchFacts:
        """Ungated blocks have one factor, gated ones a gate and a value."""
        first = block.activation.facts
        if block.up_activation is None:
            return cls(
                homogeneity=first.homogeneity,
                vanishes=first.derivative_at_zero == 0 and first.value_at_zero == 0,
                bounded=first.growth is Growth.BOUNDED,
                sublinear=first.growth in (Growth.BOUNDED, Growth.SUBLINEAR),
                even=first.even,
                smooth_zero=first.value_at_zero == 0 and first.derivative_at_zero is not None,
            )
        second = block.up_activation.facts
        degrees = (first.homogeneity, second.homogeneity)
        growths = {first.growth, second.growth}
        vanishes = _product_vanishes(first, second) or _product_vanishes(second, first)
        return cls(
            homogeneity=None if None in degrees else sum(filter(None, degrees), Fraction(0)),
            vanishes=vanishes,
            bounded=growths == {Growth.BOUNDED},
            sublinear=growths <= {Growth.BOUNDED, Growth.SUBLINEAR} and Growth.BOUNDED in growths,
            even=(first.even and second.even) or (first.odd and second.odd),
            smooth_zero=vanishes,
        )


def _product_vanishes(small: Facts, linear: Facts) -> bool:
    """σ₁ → 0 and σ₂ = O(z) at 0, hence σ₁(w·x) σ₂(v·x) = o(‖x‖)."""
    tends_to_zero = small.value_at_zero == 0 and small.continuous_at_zero
    return tends_to_zero and linear.value_at_zero == 0 and linear.derivative_at_zero is not None


def unconditional(question: Question) -> Finding | None:
    """The finding of the first rule that applies, if one does."""
    block = question.block
    if question.norm_obstacle is not None:
        return None
    witness = question.visible_skip_entry()
    if witness is None:
        return None
    if block.norm.in_front:
        return _never(Rule.PRE_NORM, Scope.ANY_WIDTH, _PRE_NORM, witness)
    facts = BranchFacts.of(block)
    for rule in _RULES:
        found = rule(question, facts)
        if found is not None:
            name, scope, reason = found
            return _never(name, scope, reason, witness)
    return None


def _never(rule: Rule, scope: Scope, reason: str, witness: tuple[int, int]) -> Finding:
    row, column = witness
    never = Interval(float("inf"), float("inf"))
    return Finding(
        Answer.NOT_ABSORBABLE, scope, rule, reason, never, {"row": row, "column": column}
    )


_PRE_NORM = (
    "the norm has a bounded image, so what the replacement computes from it is bounded, "
    "while the skip carries the input itself"
)
Outcome = tuple[Rule, Scope, str] | None


def _depth(question: Question, *, bias_matters: bool) -> Scope:
    """Every depth where the stack's skip is seen to survive, else every width."""
    block = question.block
    biased = block.b_down is not None or question.assumptions.output_bias
    free = block.norm is NormKind.NONE and not (bias_matters and biased)
    return Scope.ANY_DEPTH if free and invertible_skip(block) else Scope.ANY_WIDTH


def invertible_skip(block: ResidualBlock) -> bool:
    """Whether A is proved to be invertible."""
    if block.skip is None:
        return True
    if block.skip.ndim < 2:
        return bool(np.all(block.skip != 0))
    return nonsingular(block.skip_matrix)


def _sublinear_growth(question: Question, facts: BranchFacts) -> Outcome:
    if not facts.sublinear:
        return None
    size = "bounded" if facts.bounded else "o(‖x‖)"
    reason = f"the branch is {size}, so a residual-free block is, but the skip grows linearly"
    return Rule.SUBLINEAR_GROWTH, _depth(question, bias_matters=False), reason


def _homogeneous_degree(question: Question, facts: BranchFacts) -> Outcome:
    degree = facts.homogeneity
    if degree is None or degree == 1 or not _bias_free(question):
        return None
    scope = _depth(question, bias_matters=True) if degree > 1 else Scope.ANY_WIDTH
    reason = (
        f"without hidden biases the branch is homogeneous of degree {degree}, and so is "
        "every replacement, while the skip is homogeneous of degree 1"
    )
    return Rule.HOMOGENEOUS_DEGREE, scope, reason


def _vanishing_linearisation(question: Question, facts: BranchFacts) -> Outcome:
    if not facts.vanishes or not _bias_free(question):
        return None
    reason = (
        "without hidden biases the branch is o(‖x‖) at 0, and so is every replacement, "
        "while the skip is not"
    )
    return Rule.VANISHING_LINEARISATION, _depth(question, bias_matters=True), reason


def _even_activation(question: Question, facts: BranchFacts) -> Outcome:
    if not facts.even or not _bias_free(question):
        return None
    scope = _depth(question, bias_matters=True) if facts.smooth_zero else Scope.ANY_WIDTH
    reason = (
        "without hidden biases the branch is an even function, and so is every replacement, "
        "while the skip is odd"
    )
    return Rule.EVEN_ACTIVATION, scope, reason


def _even_recession(question: Question, facts: BranchFacts) -> Outcome:
    block = question.block
    if block.gated or block.activation.facts.even_recession is None:
        return None
    reason = (
        "the recession function lim F(tx)/t of every residual-free block is even, biases "
        "included, while that of the block has the odd part Ax"
    )
    return Rule.EVEN_RECESSION, Scope.ANY_WIDTH, reason


def _one_sided_independence(question: Question, facts: BranchFacts) -> Outcome:
    block = question.block
    if block.gated or not block.activation.facts.one_sided:
        return None
    reason = (
        f"{block.activation.name} neurons of distinct weights, both signs included, are "
        "linearly independent of each other and of the linear functions"
    )
    return Rule.ONE_SIDED_INDEPENDENCE, Scope.ANY_WIDTH, reason


def _bias_free(question: Question) -> bool:
    """No hidden biases in the block, nor allowed in the replacement."""
    return not question.block.hidden_biases and not question.assumptions.hidden_bias


_RULES: tuple[Callable[[Question, BranchFacts], Outcome], ...] = (
    _sublinear_growth,
    _homogeneous_degree,
    _vanishing_linearisation,
    _even_activation,
    _even_recession,
    _one_sided_independence,
)


def affine(question: Question) -> Finding | None:
    """σ(z) = a z: the block is affine, and its minimal width is the rank of its linear part.

    Without an output bias the constant is one more column; the rank is exact (integers).
    """
    block = question.block
    slope = block.activation.facts.slope
    if block.gated or not slope or block.activation.facts.offset or block.norm.in_front:
        return None
    if question.norm_obstacle is not None:
        return None
    condition = SubsetCondition.of(question, (slope,) * block.m)
    constant_matters = condition.a.shape[1] > block.d
    total = assemble(condition, np.arange(block.m))
    if constant_matters and not question.assumptions.hidden_bias:
        return None  # the replacement is linear and the block perhaps not: not asked here
    rank = int(total.rank())
    fits = rank <= block.m
    return Finding(
        Answer.ABSORBABLE if fits else Answer.NOT_ABSORBABLE,
        Scope.THIS_WIDTH,
        Rule.LINEAR_RANK,
        f"the block is affine of rank {rank}, {'within' if fits else 'above'} its width {block.m}",
        Interval(rank, rank),
    )
