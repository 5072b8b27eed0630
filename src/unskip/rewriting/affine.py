"""Residual-free blocks that equal an affine block: as many neurons as its rank (Theorem 10)."""

from __future__ import annotations

import numpy as np

from unskip.blocks import PlainBlock
from unskip.decision.question import Question
from unskip.rewriting.linear import exactly, split

__all__ = ["factorised"]

#: Up to this many products the map is computed and factorised in fractions.
EXACT = 20_000


def factorised(question: Question, rank: int) -> PlainBlock:
    """σ(z) = a z: F(x) = M x + const, and M of that rank is a product w_down a w_up."""
    block, assumptions = question.block, question.assumptions
    slope = block.activation.facts.slope
    assert slope
    small = block.m * block.d * (block.d + 1) <= EXACT
    number = exactly if small else np.asarray
    a = slope if small else float(slope)
    rows = number(np.column_stack([block.w_up.astype(np.float64), block.bias("b_up")]))
    total = number(np.column_stack([block.skip_matrix, block.bias("b_down")]))
    total = total + number(block.w_down.astype(np.float64)) @ rows * np.array(a)
    if question.centred:
        total = total - total.sum(axis=0) / len(total)
    matched = block.d + (not assumptions.output_bias)
    scale = np.abs(total).max()
    terms = split(total[:, :matched], total[:0, :matched], rank, scale=scale)
    w_up = np.zeros((len(terms.new_rows), block.d + 1))
    w_up[:, :matched] = terms.new_rows.astype(np.float64)
    return PlainBlock(
        w_up=w_up[:, :-1],
        w_down=(terms.new_columns / a).astype(np.float64),
        activation=block.activation.any_width,
        b_up=w_up[:, -1] if assumptions.hidden_bias else None,
        b_down=total[:, -1].astype(np.float64) if assumptions.output_bias else None,
    )
