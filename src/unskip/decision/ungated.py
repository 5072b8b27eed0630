"""Ungated blocks: the subset condition over groups, and the minimal width theorem (§4–§7)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np
import numpy.typing as npt

from unskip.certificates import Answer, Interval, Rule, Scope
from unskip.decision import bounded, minimal, rank, width
from unskip.decision.exact import satisfies
from unskip.decision.finding import EVIDENCE, Finding, undecided
from unskip.decision.merging import Merged
from unskip.decision.neurons import Neurons, group, seen, with_constants
from unskip.decision.question import Question, SubsetCondition
from unskip.decision.subset import Outcome, search
from unskip.decision.subset import defect as defect_of


def by_subsets(question: Question, *, quick: bool) -> Finding | None:
    """The finding for a parity-linear block; ``None`` where σ is not parity-linear."""
    kappa = question.block.activation.parity_constants(question.block.m)
    if kappa is None or not any(kappa):
        return None
    neurons = group(question)
    if question.lacks_biases:
        return _without_hidden_biases(question, neurons)
    condition = SubsetCondition.of(question, kappa)
    merged = Merged(condition, neurons)
    outcome = search(merged, quick=quick)
    one_slope = not isinstance(question.block.activation.facts.parity, tuple)
    if neurons.constants and question.assumptions.hidden_bias and one_slope:
        finding = _beside_constants(question, merged, outcome, quick=quick)
        if finding.answer is not Answer.UNKNOWN or outcome.subset is None:
            return finding
    rows, columns = width.independent_rows(condition.up, neurons.representatives)
    known = _width_bounds(question, merged, outcome, rows.size, quick=quick)
    known = _with_unread(question, merged, outcome, known)
    return _finding(question, neurons, outcome, known, (rows, columns))


def _beside_constants(
    question: Question, merged: Merged, flips: Outcome, *, quick: bool
) -> Finding:
    """Neurons with u = 0 are constants that no output bias can take (Theorem 33).

    Where the constants are rational they are one more part of A'.  Otherwise the width is that
    with an output bias, or one more, for a neuron that makes up for it.
    """
    neurons = replace(merged.neurons, obstacle=merged.neurons.obstacle_without_constants)
    neurons = replace(neurons, constants=False)
    beyond = 0
    if question.block.activation.facts.homogeneity == 1:
        condition, neurons = with_constants(question, merged.original, neurons)
    else:
        assumed = replace(question.assumptions, output_bias=True)
        condition = SubsetCondition.of(
            replace(question, assumptions=assumed), merged.original.kappa
        )
        beyond = 1
    beside = Merged(condition, neurons)
    fixed = np.flatnonzero((neurons.orientation < 0) & ~question.block.w_up.any(axis=1))

    def verify(subset: npt.NDArray[np.int64]) -> bool:
        return bool(np.isin(fixed, subset).all()) and satisfies(condition, subset)

    outcome = search(beside, quick=quick, verify=verify)
    basis = width.independent_rows(condition.up, neurons.representatives)
    if outcome.subset is not None and beside.consistent(outcome.subset) and not neurons.obstacle:
        none = np.zeros(0, np.int64)
        data: dict[str, int | str | bool]
        data = {"evidence": "none", "exhaustive": True, "constant": False}
        known = _Known(Interval(beside.n, beside.n), data, outcome.subset, none)
        outcome = Outcome(None, False, flips.defect, flips.achieved)
    elif outcome.subset is not None:
        known = _Known(Interval(0, inf), {"evidence": "none"})
        outcome = Outcome(None, False, flips.defect, flips.achieved)
    else:
        known = _width_bounds(question, beside, outcome, basis[0].size, quick=quick)
        known = _with_unread(question, beside, outcome, known)
    lower, upper = known.width
    known = replace(
        known, width=Interval(lower, upper + beyond), data={**known.data, "constants": True}
    )
    reached = flips.defect.upper or defect_of(merged.original, flips.achieved)  # with rounding
    defect = Interval(0.0, reached)
    outcome = replace(outcome, defect=defect, achieved=flips.achieved)
    finding = _finding(question, neurons, outcome, known, basis)
    if flips.subset is not None:
        finding = replace(finding, subset=tuple(flips.subset.tolist()))
    return finding


def _finding(
    question: Question,
    neurons: Neurons,
    outcome: Outcome,
    known: _Known,
    basis: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]],
) -> Finding:
    rows, columns = basis
    arrays = dict(outcome.arrays)
    if known.twins is not None and known.flipped is not None:
        arrays |= {"twins": known.twins.astype(np.int32), "flipped": known.flipped.astype(np.int32)}
    if known.by_basis and rows.size:
        arrays |= {"basis_rows": rows, "basis_columns": columns}
    answer, rule, reason = _conclude(question, neurons, outcome, known)
    return Finding(
        answer,
        Scope.THIS_WIDTH,
        rule,
        reason,
        known.width,
        known.data,
        outcome.defect,
        None if outcome.subset is None else tuple(outcome.subset.tolist()),
        arrays,
    )


@dataclass(frozen=True)
class _Known:
    """Bounds of the minimal width, and what they rest on."""

    width: Interval
    data: dict[str, int | str | bool]
    flipped: npt.NDArray[np.int64] | None = None
    twins: npt.NDArray[np.int64] | None = None
    by_basis: bool = False


def _width_bounds(
    question: Question, merged: Merged, outcome: Outcome, basis: int, *, quick: bool
) -> _Known:
    """|H| when a set of groups satisfies; else exactly for small blocks, or from the basis."""
    m, n = question.block.m, merged.n
    theorem = merged.neurons.obstacle is None and question.norm_obstacle is None
    widest = inf if outcome.subset is None else m
    data = {**outcome.data}
    if isinstance(question.block.activation.facts.parity, tuple):
        # slopes that are kept, one a neuron, leave none for a twin
        return _Known(Interval(0, widest), data)
    if outcome.subset is not None and theorem and merged.consistent(outcome.subset):
        return _Known(Interval(n, min(n + merged.neurons.constants, m)), data)
    lower = n + outcome.refuted if theorem else 0
    homogenised = merged.original.a.shape[1] > question.block.d
    if homogenised and not question.assumptions.hidden_bias:
        return _Known(Interval(lower, widest), data)
    most = width.extra(merged.original, basis)
    if theorem and not quick:
        exact = _exactly(merged, most, m - n, data, constant=homogenised)
        if exact is not None:
            return exact
        if m > n and outcome.evidence is not None:
            left = rank.least(merged, outcome.evidence)
            if left > 1:
                data |= {"rank": left}
                lower = n + left
    upper = n + most + merged.neurons.constants
    return _Known(Interval(lower, min(upper, widest)), data, by_basis=True)


def _with_unread(question: Question, merged: Merged, outcome: Outcome, known: _Known) -> _Known:
    """Twice for every direction of the skip that no neuron reads (Theorem 30)."""
    theorem = merged.neurons.obstacle is None and question.norm_obstacle is None
    kappa = question.block.activation.facts.parity
    if outcome.subset is not None or not theorem or isinstance(kappa, tuple):
        return known
    block = question.block
    visible = seen(block.w_down.astype(np.float64), centred=question.centred)
    left = bounded.left_over(question, block.w_up[visible].astype(np.float64))
    lower = merged.n + 2 * left
    if not left or lower < min(known.width.lower, block.m + 1):
        return known
    width = Interval(max(lower, known.width.lower), known.width.upper)
    return replace(known, width=width, data={**known.data, "left": left})


def _exactly(
    merged: Merged, most: int, spare: int, data: dict[str, int | str | bool], *, constant: bool
) -> _Known | None:
    """By trying all costs if that is little work, else those that decide the answer."""
    for below in dict.fromkeys((most, min(most, spare + 1))):
        if not minimal.affordable(merged, below, constant=constant):
            continue
        exact = minimal.search(merged, below, constant=constant)
        if exact is None:
            return None
        nothing_cheaper = exact.extra == below
        return _Known(
            Interval(merged.n + exact.extra, merged.n + (most if nothing_cheaper else exact.extra)),
            {**data, "exhaustive": True, "constant": exact.constant},
            merged.lift(exact.chosen),
            merged.neurons.representatives[list(exact.twins)],
            by_basis=nothing_cheaper,
        )
    return None


def _conclude(
    question: Question, neurons: Neurons, outcome: Outcome, known: _Known
) -> tuple[Answer, Rule, str]:
    """From what is known of subsets and widths to what is known of absorption."""
    m, n = question.block.m, neurons.count
    lower, upper = known.width
    shape = "" if neurons.distinct else f"its {m} neurons amount to {n}; "
    left = int(known.data.get("left", 0))
    if n + 2 * left > m:
        reason = f"the skip carries {left} directions that no neuron reads, and each takes two more"
        return Answer.NOT_ABSORBABLE, Rule.BOUNDED_RANK, shape + reason
    if outcome.subset is not None:
        reason = f"flipping {outcome.subset.size} of {m} neurons reproduces the skip exactly"
        return Answer.ABSORBABLE, Rule.SUBSET_CONDITION, shape + reason
    if upper <= m:
        reason = f"{n} neurons and {int(upper) - n} more compute the block without skip"
        return Answer.ABSORBABLE, Rule.MINIMAL_WIDTH, shape + reason
    if lower > m and not (outcome.refuted and n == m):
        reason = f"no residual-free block of fewer than {int(lower)} neurons equals it"
        return Answer.NOT_ABSORBABLE, Rule.MINIMAL_WIDTH, shape + reason
    if lower > m:
        evidence = EVIDENCE[str(outcome.data["evidence"])]
        reason = f"no set of neurons, flipped, adds up to the skip ({evidence}), and the neurons "
        reason += "are pairwise distinct, so nothing else could"
        return Answer.NOT_ABSORBABLE, Rule.SUBSET_CONDITION, shape + reason
    obstacle = neurons.obstacle or question.norm_obstacle
    if outcome.refuted:
        reason = "no set of flips absorbs the skip (proved), but "
        reason += obstacle or f"{m - n} neurons are to spare, and other constructions may use them"
    else:
        reason = "the rank-one terms are linearly dependent, and no certificate was found"
        reason += "" if obstacle is None else f"; also, {obstacle}"
    return Answer.UNKNOWN, Rule.UNDECIDED, shape + reason


def _without_hidden_biases(question: Question, neurons: Neurons) -> Finding:
    """The block has hidden biases and its replacement may not: visible neurons must stay."""
    obstacle = neurons.obstacle or question.norm_obstacle
    assert question.block.b_up is not None
    biased = np.flatnonzero(question.block.b_up[neurons.representatives])
    if obstacle is not None or not biased.size:
        obstacle = obstacle or "those that have one cancel"
        return undecided(f"a replacement without hidden biases is asked for, and {obstacle}")
    neuron = int(neurons.representatives[biased[0]])
    never = Interval(inf, inf)
    return Finding(
        Answer.NOT_ABSORBABLE,
        Scope.ANY_WIDTH,
        Rule.HIDDEN_BIAS,
        f"neuron {neuron} has a hidden bias, and no sum of neurons without one replaces it",
        never,
        {"neuron": neuron},
    )
