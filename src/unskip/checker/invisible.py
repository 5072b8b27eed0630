"""A skip that the output does not show (§3, Theorem 29)."""

from __future__ import annotations

from unskip.blocks import ResidualBlock
from unskip.certificates import Answer, Certificate, Scope
from unskip.checker.requirements import expect, lacks_biases, refuse, require_bounds


def invisible_skip(c: Certificate, block: ResidualBlock) -> str:
    """ΠA = 0, entry by entry, and the replacement may have the biases of the block."""
    expect(c, ())
    centred = c.assumptions.modulo == "mean"
    rows = range(block.d)
    for row in rows:
        for column in rows:
            reference = block.skip_entry(0, column) if centred else 0.0
            if block.skip_entry(row, column) != reference:
                refuse("the output shows its skip")
    offset = block.bias("b_down").tolist()
    discarded = offset[0] if centred else 0.0
    if any(x != discarded for x in offset) and not c.assumptions.output_bias:
        refuse("the output bias has no place in the replacement")
    if lacks_biases(c, block):
        refuse("the hidden biases have no place in the replacement")
    if c.answer != Answer.ABSORBABLE or c.scope != Scope.THIS_WIDTH or c.defect is not None:
        refuse("a skip that does not show is absorbable at this width")
    require_bounds(c, 0, block.m)
    return f"its output shows nothing of the skip, which can be left out [{c.rule.reference}]"
