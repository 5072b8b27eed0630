"""The unconditional rules: hypotheses on facts and biases, and an entry of A as the witness."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from unskip.activations import Activation, Growth
from unskip.blocks import NormKind, ResidualBlock
from unskip.certificates import Answer, Certificate, Rule, Scope
from unskip.checker.arithmetic import proved_nonsingular
from unskip.checker.requirements import expect, index_below, refuse, require_injective_norm


def unconditional(
    hypothesis: Callable[[Certificate, ResidualBlock], Scope | None],
) -> Callable[[Certificate, ResidualBlock], str]:
    """The verifier of a rule, from the scope that its hypotheses prove (none: they fail)."""

    def verify(c: Certificate, block: ResidualBlock) -> str:
        expect(c, ("row", "column"))
        if c.answer != Answer.NOT_ABSORBABLE or c.defect is not None:
            refuse("an unconditional rule proves 'not absorbable' and no defect")
        if not (math.isinf(c.width.lower) and c.width.lower > 0 and math.isinf(c.width.upper)):
            refuse("it states a finite width where none suffices")
        require_injective_norm(block)
        if c.rule != Rule.PRE_NORM and block.norm.in_front:
            refuse("its rule is not about blocks behind a norm")
        row, column = index_below(c, "row", block.d), index_below(c, "column", block.d)
        reference = block.skip_entry(0, column) if c.assumptions.modulo == "mean" else 0.0
        if block.skip_entry(row, column) == reference:
            refuse("its witness does not show the skip")
        proved = hypothesis(c, block)
        if proved is None:
            refuse(f"the hypotheses of {c.rule} do not hold")
        if c.scope == Scope.THIS_WIDTH or (c.scope == Scope.ANY_DEPTH and proved != c.scope):
            refuse(f"{c.rule} does not prove its scope, {c.scope}")
        return f"no residual-free block equals it, at {c.scope} [{c.rule.reference}]"

    return verify


def _factors(block: ResidualBlock) -> tuple[Activation, ...]:
    if block.up_activation is None:
        return (block.activation,)
    return (block.activation, block.up_activation)


def _without_hidden_biases(c: Certificate, block: ResidualBlock) -> bool:
    return block.b_up is None and block.b_gate is None and not c.assumptions.hidden_bias


def _without_output_biases(c: Certificate, block: ResidualBlock) -> bool:
    """In a stack, the output bias of one block is a hidden bias of the next."""
    return block.b_down is None and not c.assumptions.output_bias


def _survives_depth(block: ResidualBlock) -> bool:
    """The skips of a stack multiply to something nonzero, and nothing stands in between."""
    if block.norm is not NormKind.NONE:
        return False
    if block.skip is None:
        return True
    if block.skip.ndim < 2:
        return bool((block.skip != 0).all())
    return proved_nonsingular(block.skip_matrix)


def sublinear(c: Certificate, block: ResidualBlock) -> Scope | None:
    """Theorem 2: the branch is o(‖x‖)."""
    growths = [f.facts.growth for f in _factors(block)]
    slow = (Growth.BOUNDED, Growth.SUBLINEAR)
    # A product of two o(|z|) factors may be linear; at most one may be unbounded.
    unbounded = sum(g is not Growth.BOUNDED for g in growths)
    if not all(g in slow for g in growths) or unbounded > 1:
        return None
    return Scope.ANY_DEPTH if _survives_depth(block) else Scope.ANY_WIDTH


def homogeneous(c: Certificate, block: ResidualBlock) -> Scope | None:
    """Theorem 3: the branch is homogeneous of a degree other than 1."""
    degree = Fraction(0)
    for factor in _factors(block):
        if factor.facts.homogeneity is None:
            return None
        degree += factor.facts.homogeneity
    if degree == 1 or not _without_hidden_biases(c, block):
        return None
    deep = degree > 1 and _without_output_biases(c, block) and _survives_depth(block)
    return Scope.ANY_DEPTH if deep else Scope.ANY_WIDTH


def _order_at_zero(activation: Activation) -> int:
    """A lower bound of the order of vanishing at 0: 0 nothing known, 1 → 0, 2 O(z), 3 o(z)."""
    facts = activation.facts
    if facts.value_at_zero != 0:
        return 0
    if facts.derivative_at_zero is not None:
        return 3 if facts.derivative_at_zero == 0 else 2
    return 1 if facts.continuous_at_zero else 0


def _flat_at_zero(block: ResidualBlock) -> bool:
    """branch(x) = o(‖x‖) at 0, without biases."""
    orders = sorted(_order_at_zero(f) for f in _factors(block))
    return orders[0] >= 3 if len(orders) == 1 else orders[0] >= 1 and orders[1] >= 2


def vanishing(c: Certificate, block: ResidualBlock) -> Scope | None:
    """Theorem 4: the branch is o(‖x‖) at 0."""
    if not _flat_at_zero(block) or not _without_hidden_biases(c, block):
        return None
    deep = _without_output_biases(c, block) and _survives_depth(block)
    return Scope.ANY_DEPTH if deep else Scope.ANY_WIDTH


def even(c: Certificate, block: ResidualBlock) -> Scope | None:
    """Theorem 5: the branch is even."""
    facts = [f.facts for f in _factors(block)]
    odd = sum(f.odd and not f.even for f in facts)
    if not all(f.even or f.odd for f in facts) or odd % 2 or not _without_hidden_biases(c, block):
        return None
    differentiable = _flat_at_zero(block) if block.gated else _order_at_zero(block.activation) >= 2
    deep = differentiable and _without_output_biases(c, block) and _survives_depth(block)
    return Scope.ANY_DEPTH if deep else Scope.ANY_WIDTH


def recession(c: Certificate, block: ResidualBlock) -> Scope | None:
    """Theorem 6: recession functions of residual-free blocks are even."""
    known = not block.gated and block.activation.facts.even_recession is not None
    return Scope.ANY_WIDTH if known else None


def one_sided(c: Certificate, block: ResidualBlock) -> Scope | None:
    """Theorem 7: neurons are independent of linear functions."""
    return Scope.ANY_WIDTH if not block.gated and block.activation.facts.one_sided else None


def pre_norm(c: Certificate, block: ResidualBlock) -> Scope | None:
    """Theorem 9: the replacement sees a bounded input."""
    return Scope.ANY_WIDTH if block.norm.in_front else None
