"""decide(): impossibility rules, then the subset condition, then what follows from both.

question.py       what is asked, and the subset condition that follows
impossibility.py  the unconditional rules, and affine blocks
subset.py         the cascade: cheap duals, the Gram system, exact arithmetic
dual.py           certificates of "no subset", with outward error bounds
gram.py           the m² algebra
modular.py        the exact verdict modulo a prime
nondegeneracy.py  when "no subset" means "not absorbable"
width.py          bounds of the width
"""

from __future__ import annotations

import numpy as np

from unskip.blocks import ResidualBlock
from unskip.certificates import Answer, Certificate, Interval, Rule, Scope
from unskip.decision import nondegeneracy, width
from unskip.decision.impossibility import Finding, affine, unconditional
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
    return _by_subset_condition(question, quick=quick)


def _by_subset_condition(question: Question, *, quick: bool) -> Verdict:
    block = question.block
    kappa = None if block.gated else block.activation.parity_constants(block.m)
    pre = block.norm.placement in ("pre", "sandwich")
    if kappa is None or not any(kappa) or pre:
        return _verdict(question, _open(_why_not_covered(question)))
    degenerate = nondegeneracy.obstacle(question)
    if question.lacks_biases:
        return _verdict(question, _without_hidden_biases(question, degenerate))
    condition = SubsetCondition.of(question, kappa)
    outcome = search(condition, quick=quick)
    rows, columns = width.independent_rows(condition.up)
    widest = width.upper(condition, rows.size)
    finding = _conclude(question, outcome, degenerate, widest)
    arrays = {"achieved": outcome.achieved.astype(np.int32)}
    if finding.width.upper > block.m and rows.size:
        arrays |= {"basis_rows": rows, "basis_columns": columns}
    if outcome.matrix is not None:
        arrays["dual"] = outcome.matrix
    return _verdict(question, finding, outcome, arrays)


def _conclude(question: Question, outcome: Outcome, degenerate: str | None, widest: int) -> Finding:
    """From what is known of the subsets to what is known of absorption."""
    m = question.block.m
    known = {**outcome.data, "nondegenerate": degenerate is None}
    if outcome.subset is not None:
        return Finding(
            Answer.ABSORBABLE,
            Scope.THIS_WIDTH,
            Rule.SUBSET_CONDITION,
            f"flipping {outcome.subset.size} of {m} neurons reproduces the skip exactly",
            Interval(m if degenerate is None else 0, m),
            known,
        )
    obstacle = degenerate or question.norm_obstacle
    if outcome.refuted and obstacle is None:
        return Finding(
            Answer.NOT_ABSORBABLE,
            Scope.THIS_WIDTH,
            Rule.SUBSET_CONDITION,
            "no set of neurons, flipped, adds up to the skip "
            f"({_EVIDENCE[str(known['evidence'])]}), and the neurons are pairwise distinct, "
            "so nothing else could",
            Interval(m + 1, widest),
            known,
        )
    if outcome.refuted:
        reason = f"no subset of flips absorbs the skip (proved), but {obstacle}"
    else:
        reason = "the rank-one terms are linearly dependent, and no certificate was found"
        reason += "" if obstacle is None else f"; also, {obstacle}"
    lower = m if degenerate is None and question.norm_obstacle is None else 0
    return _open(reason, Interval(lower, widest), known)


_EVIDENCE = {
    "trace": "trace certificate",
    "coordinate": "coordinate certificate",
    "matrix": "dual certificate",
    "modular": "certificate modulo a prime",
}


def _open(
    reason: str, bounds: Interval | None = None, data: dict[str, int | str | bool] | None = None
) -> Finding:
    """Undecided, with the bounds that stand."""
    bounds = bounds or Interval(0, float("inf"))
    return Finding(Answer.UNKNOWN, Scope.THIS_WIDTH, Rule.UNDECIDED, reason, bounds, data or {})


def _without_hidden_biases(question: Question, degenerate: str | None) -> Finding:
    """The block has hidden biases and its replacement may not: the neurons must stay."""
    obstacle = degenerate or question.norm_obstacle
    if obstacle is not None:
        return _open(f"a replacement without hidden biases is asked for, and {obstacle}")
    assert question.block.b_up is not None
    neuron = int(np.argmax(question.block.b_up != 0))
    never = Interval(float("inf"), float("inf"))
    return Finding(
        Answer.NOT_ABSORBABLE,
        Scope.ANY_WIDTH,
        Rule.HIDDEN_BIAS,
        f"neuron {neuron} has a hidden bias, and no sum of neurons without one replaces it",
        never,
        {"neuron": neuron, "nondegenerate": True},
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
        reason=finding.reason,
        assumptions=question.assumptions,
        subset=None if subset is None else tuple(subset.tolist()),
        defect=defect,
        width=finding.width,
        certificate=certificate,
    )
