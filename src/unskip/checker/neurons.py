"""Ungated blocks: the subset condition, the minimal width theorem, affine blocks."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import flint
import numpy as np

from unskip.blocks import ResidualBlock
from unskip.certificates import Answer, Certificate, Rule, Scope
from unskip.checker.bounded import require_left_over
from unskip.checker.condition import Condition, Groups, leaves_something, parity, remainder
from unskip.checker.evidence import DETAILS, EVIDENCE, STORED, Shown, check_defect
from unskip.checker.requirements import (
    claims_nothing,
    expect,
    index_below,
    index_set,
    lacks_biases,
    proved_answer,
    refuse,
    require_bounds,
    require_injective_norm,
)
from unskip.checker.width import Exhaustive, least_rank, proved_rank


def by_subsets(c: Certificate, block: ResidualBlock) -> str:
    """Everything that rests on the condition A + Σ_S R_j = 0 and the minimal width theorem.

    The bounds of the width are proved first; the answer must then follow from them.
    """
    condition = Condition(c, block, parity(block))
    if c.scope != Scope.THIS_WIDTH or c.defect is None:
        if c.rule == Rule.UNDECIDED and c.defect is None:
            return claims_nothing(c)
        refuse("the subset condition speaks of this width, with a defect")
    if lacks_biases(c, block):
        refuse("the subset condition is not about replacements without hidden biases")
    groups, beyond, plain = Groups(c, block, condition), 0, condition
    if "constants" in c.data:
        condition, groups, beyond = _beside_constants(c, block)
    lower, upper = _width_bounds(c, block, condition, groups, plain)
    upper += beyond
    require_bounds(c, lower, upper)
    proved = proved_answer(block.m, lower, upper)
    if c.answer not in (proved, Answer.UNKNOWN) or (c.answer == Answer.UNKNOWN) != (
        c.rule == Rule.UNDECIDED
    ):
        refuse(f"it is proved to be {proved}, which is not what it states")
    flips = c.data.get("evidence") == "flip"
    if (c.rule == Rule.BOUNDED_RANK) != ("left" in c.data and c.answer == Answer.NOT_ABSORBABLE):
        refuse("its rule is not the one that its data are for")
    if c.answer == Answer.ABSORBABLE:
        if flips != (c.rule == Rule.SUBSET_CONDITION):
            refuse("its rule is not the one that absorbs")
        how = f"flipping {c.arrays['achieved'].size} of its {block.m} neurons absorbs the skip"
        if not flips:
            how = f"{groups.n} neurons and {upper - groups.n:.0f} more equal it without a skip"
        return f"{how}, exactly [{c.rule.reference}]"
    span = f"the relative defect lies in [{c.defect.lower:.3g}, {c.defect.upper:.3g}]"
    if c.answer == Answer.NOT_ABSORBABLE:
        return (
            f"no residual-free block of its width equals it, as that takes {lower:.0f} neurons or "
            f"more; {span} [{c.rule.reference}]"
        )
    return f"undecided; {span}, and the minimal width in [{lower:.0f}, {upper:.0f}]"


def _beside_constants(c: Certificate, block: ResidualBlock) -> tuple[Condition, Groups, int]:
    """The condition, the groups and the extra width where neurons with u = 0 are constants.

    σ of degree 1: a constant d_j σ(b_j) is the homogenised term of its neuron for κ_j = σ(b_j)/b_j,
    and belongs to A'.  Otherwise everything is judged as if there were an output bias, which one
    more neuron can make up for.
    """
    if isinstance(block.activation.facts.parity, tuple):
        refuse("the slopes of its neurons differ")
    if c.data["constants"] is not True or c.assumptions.output_bias:
        refuse("its constants are none, or an output bias takes them")
    if not c.assumptions.hidden_bias:
        refuse("constant neurons would need hidden biases")
    kappa = parity(block)
    if block.activation.facts.homogeneity != 1:
        with_bias = dataclasses.replace(c.assumptions, output_bias=True)
        assumed = dataclasses.replace(c, assumptions=with_bias)
        condition = Condition(assumed, block, kappa)
        return condition, Groups(assumed, block, condition), 1
    condition = Condition(c, block, kappa)
    groups = Groups(c, block, condition)
    groups.fixed = np.flatnonzero(~block.w_up.any(axis=1))
    values, constants = block.bias("b_up"), list(kappa)
    for j in groups.fixed.tolist():
        side = 1 if values[j] > 0 else -1
        constants[j] = side * Fraction(float(block.activation(float(side))))
    condition.kappa = tuple(constants)
    condition.k = np.array([float(x) for x in constants])
    groups.sign[groups.fixed] = -1
    groups.constants = False
    return condition, groups, 0


def _width_bounds(
    c: Certificate, block: ResidualBlock, condition: Condition, groups: Groups, plain: Condition
) -> tuple[float, float]:
    """What the certificate proves of the minimal width; refuses an unproved defect.

    Lower: |H|, one more where every set of groups is refuted, or what an exhaustive search
    excludes.  Upper: |H| when flips of whole groups absorb, else a choice of twins.  The defect is
    that of ``plain``, the condition of the block's flips.
    """
    assert c.defect is not None
    evidence = c.data.get("evidence")
    if evidence not in (*EVIDENCE, "none", "flip", "affine"):
        refuse("its evidence is of no known kind")
    exhaustive = "exhaustive" in c.data
    extra = DETAILS.get(str(evidence), ())
    basis = {"basis_rows", "basis_columns"} & set(c.arrays)
    expect(
        c,
        (
            "evidence",
            *extra,
            *(("exhaustive", "constant") if exhaustive else ()),
            *(key for key in ("rank", "left", "constants") if key in c.data),
        ),
        {
            "achieved",
            *basis,
            *STORED.get(str(evidence), ()),
            *({"twins", "flipped"} if exhaustive else ()),
        },
    )
    achieved = index_set(c, "achieved", block.m)
    beyond = int(groups.constants)
    refuted = evidence not in ("none", "flip")
    if evidence == "affine":
        refuted = not groups.n and leaves_something(condition, groups.turned())
        if not refuted:
            refuse("neurons are left to flip, or nothing is left of the skip")
    shown = EVIDENCE[str(evidence)](c, condition, groups) if evidence in EVIDENCE else Shown()
    if evidence != "flip":
        check_defect(c, plain, shown.defect if plain is condition else 0.0, achieved)
    elif plain is not condition:
        refuse("its flips are those of another condition")
    elif c.defect.lower > 0 or c.defect.upper < 0 or leaves_something(condition, achieved):
        refuse("the subset does not reproduce the skip exactly")
    p, q = condition.rows, condition.columns
    rank = proved_rank(c, condition, groups)
    upper = float(groups.n + min(2 * p, rank + 2 * min(p, q - rank)) + beyond)
    homogenised = q > block.d
    if homogenised and not c.assumptions.hidden_bias:
        upper = math.inf  # twins and constants would need hidden biases
    if isinstance(block.activation.facts.parity, tuple):
        upper = math.inf  # slopes that are kept, one a neuron, leave none for a twin
    if evidence == "flip":  # at this width in any case; groups flipped as a whole can merge
        whole = groups.unique and groups.flips(achieved)
        upper = min(upper, groups.n + beyond if whole else block.m, block.m)
    lower = float(groups.n + refuted if groups.unique else 0)
    if "rank" in c.data:
        claimed = c.data["rank"]
        if type(claimed) is not int or claimed > least_rank(condition, groups, shown):
            refuse("its lower bound of the rank is not proved")
        lower = float(groups.n + claimed if groups.unique else 0)
    if "left" in c.data:
        rows = block.w_up[groups.seen].astype(np.float64)
        if not groups.unique or isinstance(block.activation.facts.parity, tuple):
            refuse("the bounded rank says nothing here")
        lower = max(lower, groups.n + 2.0 * require_left_over(c, block, rows))
    if exhaustive:
        if c.data["exhaustive"] is not True or not groups.unique or math.isinf(upper):
            refuse("the minimal width theorem does not apply")
        may_be_constant = homogenised and c.assumptions.hidden_bias
        search = Exhaustive(condition, groups, constant=may_be_constant)
        upper = min(upper, groups.n + search.attained(c))
        below = c.width.lower - groups.n
        if below > max(refuted, lower - groups.n) and search.excludes(below):
            lower = c.width.lower
    return lower, upper


def hidden_bias(c: Certificate, block: ResidualBlock) -> str:
    """Visible groups are unique (§6), so one with a hidden bias is in every replacement."""
    expect(c, ("neuron",))
    condition = Condition(c, block, parity(block))
    neuron = index_below(c, "neuron", block.m)
    if not lacks_biases(c, block) or block.b_up is None or block.b_up[neuron] == 0:
        refuse("its neuron has no hidden bias, or the replacement may have one")
    groups = Groups(c, block, condition)
    if not groups.unique or not any(neuron in members for members in groups.visible):
        refuse("its neuron is not seen to be indispensable")
    if c.answer != Answer.NOT_ABSORBABLE or c.defect is not None:
        refuse("the rule proves 'not absorbable' and no defect")
    if c.scope != Scope.ANY_WIDTH or (c.width.lower, c.width.upper) != (math.inf, math.inf):
        refuse("the rule speaks of every width")
    return f"neuron {neuron} needs its hidden bias, at any width [{c.rule.reference}]"


def linear_rank(c: Certificate, block: ResidualBlock) -> str:
    """An affine block needs as many neurons as its linear part has rank."""
    expect(c, ())
    slope = block.activation.facts.slope
    if block.gated or not slope or block.activation.facts.offset or block.norm.in_front:
        refuse("the block is not affine")
    require_injective_norm(block)
    everything = np.arange(block.m)
    total = remainder(Condition(c, block, (slope,) * block.m), everything)
    if len(total[0]) > block.d and not c.assumptions.hidden_bias:
        refuse("the replacement may have no bias at all")
    rank = int(flint.fmpz_mat(total).rank())
    answer = Answer.ABSORBABLE if rank <= block.m else Answer.NOT_ABSORBABLE
    if c.answer != answer or c.scope != Scope.THIS_WIDTH or c.defect is not None:
        refuse(f"the block is affine of rank {rank}, and its width is {block.m}")
    if not c.width.lower <= rank <= c.width.upper:
        refuse(f"the minimal width is the rank, {rank}")
    return f"it is affine of rank {rank}, hence {answer} at width {block.m} [{c.rule.reference}]"
