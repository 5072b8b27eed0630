"""A skip that the output does not show: it may simply be left out (§3, Theorem 29)."""

from __future__ import annotations

from unskip.certificates import Answer, Interval, Rule, Scope
from unskip.decision.finding import Finding
from unskip.decision.question import Question


def invisible(question: Question) -> Finding | None:
    """ΠA = 0: the branch alone is the replacement, if it may have the block's biases.  O(d²)."""
    block = question.block
    if question.visible_skip_entry() is not None or question.lacks_biases:
        return None
    offset = block.bias("b_down")
    shown = (offset != offset[0]) if question.centred else offset != 0
    if shown.any() and not question.assumptions.output_bias:
        return None
    return Finding(
        Answer.ABSORBABLE,
        Scope.THIS_WIDTH,
        Rule.INVISIBLE_SKIP,
        "the output shows nothing of the skip, so it can be left out",
        Interval(0, block.m),
        subset=(),
    )
