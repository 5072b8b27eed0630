"""decide(): impossibility rules, then the subset condition, then what follows from both.

- ``question.py``: what is asked, and the subset condition that follows
- ``impossibility.py``: the unconditional rules, and affine blocks
- ``neurons.py``, ``merging.py``: which neurons are one, and the condition over such groups
- ``subset.py``: the cascade that decides the condition, by
  ``dual.py`` (certificates of "no subset", with outward error bounds),
  ``gram.py`` (the quadratic algebra), ``box.py`` (the best dual), ``exact.py`` and
  ``modular.py`` (integers and residues), ``sumset.py`` (every subset of few groups),
  ``lattice.py`` (a set among dependent terms)
- ``width.py``, ``rank.py``: bounds of the width; ``minimal.py``: its value for small blocks
- ``gated.py``: gated blocks with biases
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np
import numpy.typing as npt

from unskip.blocks import ResidualBlock
from unskip.certificates import Answer, Certificate, Interval, Rule, Scope
from unskip.decision import gated, minimal, rank, width
from unskip.decision.impossibility import Finding, affine, unconditional
from unskip.decision.merging import Merged
from unskip.decision.neurons import Neurons, group
from unskip.decision.question import Question, SubsetCondition
from unskip.decision.subset import Outcome, search
from unskip.decision.width import Indices
from unskip.verdict import Verdict

__all__ = ["decide"]


def decide(
    block: ResidualBlock,
    *,
    hidden_bias: bool | None = None,
    output_bias: bool | None = None,
    quick: bool = False,
    label: str = "",
) -> Verdict:
    """Is the block equal to a residual-free one of the same kind and width?

    ``hidden_bias`` and ``output_bias`` say what the replacement may have; by default it has
    the kinds of bias that the block has.  ``quick`` stops at the first certificate instead
    of computing the best bound of the defect.  ``label`` names the block in the certificate.

    The answer is proved, or it is ``unknown``.  Cost: O(md) where a fact of the activation
    decides; O(m²d + m³/3) time and 2m² numbers of memory for the subset condition.

        >>> import numpy as np
        >>> block = ResidualBlock(w_up=np.eye(2), w_down=-np.eye(2), activation="relu")
        >>> verdict = decide(block)                  # x − relu(x) = −relu(−x)
        >>> verdict.answer, verdict.subset
        (<Answer.ABSORBABLE: 'absorbable'>, (0, 1))
    """
    question = Question.of(block, hidden_bias=hidden_bias, output_bias=output_bias, label=label)
    finding = unconditional(question) or affine(question)
    if finding is not None:
        return _verdict(question, finding)
    if block.gated and block.norm.placement not in ("pre", "sandwich"):
        return _by_gated_condition(question, quick=quick)
    return _by_subset_condition(question, quick=quick)


def _by_gated_condition(question: Question, *, quick: bool) -> Verdict:
    condition = gated.condition(question)
    if condition is None or question.lacks_biases:
        return _verdict(question, _open(_why_not_covered(question)))
    outcome = search(condition.merged, quick=quick, verify=condition.satisfied)
    m = question.block.m
    data = {**outcome.data}
    neurons = condition.merged.neurons
    obstacle = neurons.obstacle or question.norm_obstacle
    bounds = condition.bounds(refuted=outcome.refuted)
    if outcome.subset is not None:
        chosen = condition.neurons(outcome.subset)
        outcome = replace(outcome, subset=chosen, achieved=chosen)
        reason = f"flipping {chosen.size} of {m} gates reproduces the skip exactly"
        known = _Known(Interval(bounds.lower, m), data)
        finding = _finding(Answer.ABSORBABLE, Rule.GATED_CONDITION, reason, known)
    elif outcome.refuted and obstacle is None:
        evidence = _EVIDENCE[str(data["evidence"])]
        reason = f"no set of gates, flipped, adds up to the skip ({evidence}), and the gates are "
        reason += "pairwise distinct, so nothing else could"
        finding = _finding(
            Answer.NOT_ABSORBABLE, Rule.GATED_CONDITION, reason, _Known(bounds, data)
        )
    else:
        reason = "no set of flipped gates absorbs the skip (proved), but "
        if not outcome.refuted:
            reason = "neither a set of gates that absorbs the skip nor a certificate was found"
            reason += "" if obstacle is None else "; also, "
        finding = _finding(
            Answer.UNKNOWN, Rule.UNDECIDED, reason + (obstacle or ""), _Known(bounds, data)
        )
    arrays = {"achieved": condition.neurons(outcome.achieved).astype(np.int32)}
    if outcome.matrix is not None:
        arrays["dual"] = outcome.matrix
    return _verdict(question, finding, outcome, arrays)


def _by_subset_condition(question: Question, *, quick: bool) -> Verdict:
    block = question.block
    kappa = None if block.gated else block.activation.parity_constants(block.m)
    pre = block.norm.placement in ("pre", "sandwich")
    if kappa is None or not any(kappa) or pre:
        return _verdict(question, _open(_why_not_covered(question)))
    neurons = group(question)
    if question.lacks_biases:
        return _verdict(question, _without_hidden_biases(question, neurons))
    condition = SubsetCondition.of(question, kappa)
    merged = Merged(condition, neurons)
    outcome = search(merged, quick=quick)
    rows, columns = width.independent_rows(condition.up, neurons.representatives)
    known = _width_bounds(question, merged, outcome, rows.size, quick=quick)
    finding = _conclude(question, neurons, outcome, known)
    arrays = {"achieved": outcome.achieved.astype(np.int32)}
    if known.twins is not None and known.flipped is not None:
        arrays |= {"twins": known.twins.astype(np.int32), "flipped": known.flipped.astype(np.int32)}
    if known.by_basis and rows.size:
        arrays |= {"basis_rows": rows, "basis_columns": columns}
    if outcome.matrix is not None:
        arrays["dual"] = outcome.matrix
    return _verdict(question, finding, outcome, arrays)


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
    """|H| when a set of groups satisfies; else from the basis, or exactly for small blocks."""
    n = merged.n
    theorem = merged.neurons.obstacle is None and question.norm_obstacle is None
    data = {**outcome.data}
    if len(set(merged.original.kappa)) > 1:
        # slopes that are kept, one a neuron, leave none for a twin
        return _Known(Interval(0, question.block.m if outcome.subset is not None else inf), data)
    if outcome.subset is not None and theorem and merged.consistent(outcome.subset):
        most = min(n + merged.neurons.constants, question.block.m)
        return _Known(Interval(n if theorem else 0, most), data)
    homogenised = merged.original.a.shape[1] > question.block.d
    may_be_constant = homogenised and question.assumptions.hidden_bias
    if homogenised and not question.assumptions.hidden_bias:
        bounds = Interval(n + outcome.refuted if theorem else 0, inf)
        return _Known(bounds, data)
    most = width.extra(merged.original, basis)
    if theorem and not quick:
        # all costs if that is little work, else those that decide the answer at this width
        spare = question.block.m - n
        for below in (most, min(most, spare + 1)):
            if merged.n > 20 or (
                minimal.work(merged, below, constant=may_be_constant) > minimal.LARGEST
            ):
                continue
            exact = minimal.search(merged, below, constant=may_be_constant)
            if exact is None:
                break
            nothing_cheaper = exact.extra == below
            data |= {"exhaustive": True, "constant": exact.constant}
            return _Known(
                Interval(n + exact.extra, n + (most if nothing_cheaper else exact.extra)),
                data,
                merged.lift(exact.chosen),
                merged.neurons.representatives[list(exact.twins)],
                by_basis=nothing_cheaper,
            )
    lower = n + outcome.refuted if theorem else 0
    spare = question.block.m - n
    if theorem and spare and outcome.evidence is not None and not quick:
        left = rank.least(merged, outcome.evidence)
        if left > 1:
            data |= {"rank": left}
            lower = n + left
    upper = n + most + merged.neurons.constants
    if outcome.subset is not None:
        upper = min(upper, question.block.m)
    return _Known(Interval(lower, upper), data, by_basis=True)


def _conclude(question: Question, neurons: Neurons, outcome: Outcome, known: _Known) -> Finding:
    """From what is known of subsets and widths to what is known of absorption."""
    m, n = question.block.m, neurons.count
    lower, upper = known.width
    shape = "" if neurons.distinct else f"its {m} neurons amount to {n}; "
    if outcome.subset is not None:
        reason = f"flipping {outcome.subset.size} of {m} neurons reproduces the skip exactly"
        return _finding(Answer.ABSORBABLE, Rule.SUBSET_CONDITION, shape + reason, known)
    if upper <= m:
        reason = f"{n} neurons and {int(upper) - n} twins of them compute the block without skip"
        return _finding(Answer.ABSORBABLE, Rule.MINIMAL_WIDTH, shape + reason, known)
    if lower > m and not (outcome.refuted and n == m):
        reason = f"no residual-free block of fewer than {int(lower)} neurons equals it"
        return _finding(Answer.NOT_ABSORBABLE, Rule.MINIMAL_WIDTH, shape + reason, known)
    if lower > m:
        evidence = _EVIDENCE[str(outcome.data["evidence"])]
        reason = f"no set of neurons, flipped, adds up to the skip ({evidence}), and the neurons "
        reason += "are pairwise distinct, so nothing else could"
        return _finding(Answer.NOT_ABSORBABLE, Rule.SUBSET_CONDITION, shape + reason, known)
    obstacle = neurons.obstacle or question.norm_obstacle
    if outcome.refuted:
        reason = "no set of flips absorbs the skip (proved), but "
        reason += obstacle or f"{m - n} neurons are to spare, and other constructions may use them"
    else:
        reason = "the rank-one terms are linearly dependent, and no certificate was found"
        reason += "" if obstacle is None else f"; also, {obstacle}"
    return _finding(Answer.UNKNOWN, Rule.UNDECIDED, shape + reason, known)


def _finding(answer: Answer, rule: Rule, reason: str, known: _Known) -> Finding:
    return Finding(answer, Scope.THIS_WIDTH, rule, reason, known.width, known.data)


_EVIDENCE = {
    "trace": "trace certificate",
    "coordinate": "coordinate certificate",
    "matrix": "dual certificate",
    "modular": "certificate modulo a prime",
    "sumset": "all subset sums",
    "affine": "there are none",
}


def _open(
    reason: str, bounds: Interval | None = None, data: dict[str, int | str | bool] | None = None
) -> Finding:
    """Undecided, with the bounds that stand."""
    bounds = bounds or Interval(0, inf)
    return Finding(Answer.UNKNOWN, Scope.THIS_WIDTH, Rule.UNDECIDED, reason, bounds, data or {})


def _without_hidden_biases(question: Question, neurons: Neurons) -> Finding:
    """The block has hidden biases and its replacement may not: visible neurons must stay."""
    obstacle = neurons.obstacle or question.norm_obstacle
    assert question.block.b_up is not None
    biased = np.flatnonzero(question.block.b_up[neurons.representatives])
    if obstacle is not None or not biased.size:
        obstacle = obstacle or "those that have one cancel"
        return _open(f"a replacement without hidden biases is asked for, and {obstacle}")
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


def _why_not_covered(question: Question) -> str:
    block = question.block
    if question.norm_obstacle is not None:
        return question.norm_obstacle
    if question.visible_skip_entry() is None:
        return "the output shows nothing of the skip"
    if block.gated:
        return "gated blocks with biases, or with such a gate, are not decided yet"
    return f"{block.activation.name} with such biases is not decided yet"


def _verdict(
    question: Question,
    finding: Finding,
    outcome: Outcome | None = None,
    arrays: dict[str, Indices] | None = None,
) -> Verdict:
    block = question.block
    defect = None if outcome is None else outcome.defect
    subset = None if outcome is None or outcome.subset is None else outcome.subset
    certificate = Certificate(
        block=question.label,
        answer=finding.answer,
        scope=finding.scope,
        rule=finding.rule,
        assumptions=question.assumptions,
        activation=block.activation_name,
        gated=block.gated,
        norm=block.norm.value,
        d=block.d,
        m=block.m,
        defect=defect,
        width=finding.width,
        data=finding.data,
        arrays=arrays or {},
    )
    return Verdict(
        answer=finding.answer,
        scope=finding.scope,
        rule=finding.rule,
        reason=finding.reason
        + "".join(f"; the facts of {name} are as declared" for name in block.declared),
        assumptions=question.assumptions,
        subset=None if subset is None else tuple(subset.tolist()),
        defect=defect,
        width=finding.width,
        certificate=certificate,
    )
