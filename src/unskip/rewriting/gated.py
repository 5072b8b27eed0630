"""Residual-free blocks that equal a gated block with biases (§9).

Flipped gates at the same width; or all units, and the skip on units whose gate is a constant:
g(b) ≠ 0 with w_gate = 0 makes a unit linear, and rank A of them carry A x.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from unskip.blocks import PlainBlock
from unskip.decision.question import Question
from unskip.rewriting.linear import split

__all__ = ["bypassed", "flipped"]

Indices = npt.NDArray[np.int64]


def flipped(question: Question, subset: Indices) -> PlainBlock:
    """The block with the gates of ``subset`` flipped and without its skip (Theorem 23).

    g(z) − g(−z) = κz leaves κ d_j (w_j·x + b_j)(v_j·x + e_j), of which only κ b_j e_j d_j is not
    cancelled; g(z) + g(−z) = κ₀ leaves κ₀ d_j (v_j·x + e_j), and flips d_j too.
    """
    block = question.block
    assert block.w_gate is not None and block.up_activation is not None
    gate, shift = block.activation.facts, block.up_activation.facts.offset
    b_gate = [Fraction(b) for b in block.bias("b_gate")[subset].tolist()]
    offset = [Fraction(e) + shift for e in block.bias("b_up")[subset].tolist()]
    down = [[Fraction(x) for x in row] for row in block.w_down[:, subset].astype(float).tolist()]
    w_gate, w_down = block.w_gate.copy(), block.w_down.copy()
    w_gate[subset] = -w_gate[subset]
    if isinstance(gate.parity, Fraction) and gate.parity:
        kappa = gate.parity
        weights = [kappa * b * e for b, e in zip(b_gate, offset, strict=True)]
    else:
        assert gate.reflection is not None
        weights = [gate.reflection * e for e in offset]
        w_down[:, subset] = -w_down[:, subset]
    b_new = None
    if block.b_gate is not None:
        b_new = block.b_gate.copy()
        b_new[subset] = -b_new[subset]
    b_down = block.b_down
    if question.assumptions.output_bias:
        sums = [
            Fraction(c) + sum(w * x for w, x in zip(weights, row, strict=True))
            for c, row in zip(block.bias("b_down").tolist(), down, strict=True)
        ]
        b_down = np.array([float(x) for x in sums])
    return PlainBlock(
        w_up=block.w_up,
        w_down=w_down,
        activation=block.activation,
        b_up=block.b_up,
        b_down=b_down,
        w_gate=w_gate,
        b_gate=b_new,
        up_activation=block.up_activation,
    )


def bypassed(question: Question, rank: int) -> PlainBlock:
    """The block with ``rank`` more units, of constant gate, that carry the skip."""
    block = question.block
    assert block.w_gate is not None and block.up_activation is not None
    a = block.skip_matrix
    if question.centred:
        a = a - a.mean(axis=0)
    terms = split(a, a[:0], rank, scale=float(np.abs(a).max()))
    slope, shift = block.up_activation.facts.slope, block.up_activation.facts.offset
    assert slope
    bias, value = _open_gate(question)
    extra, hidden = len(terms.new_rows), question.assumptions.hidden_bias
    columns = terms.new_columns / (value * float(slope))
    b_up, b_gate, b_down = block.b_up, block.b_gate, block.b_down
    if hidden:
        b_up = np.concatenate([block.bias("b_up"), np.full(extra, -float(shift / slope))])
        b_gate = np.concatenate([block.bias("b_gate"), np.full(extra, bias)])
    elif shift:
        b_down = block.bias("b_down") - columns.sum(axis=1) * (value * float(shift))
    return PlainBlock(
        w_up=np.vstack([block.w_up.astype(np.float64), terms.new_rows]),
        w_down=np.hstack([block.w_down.astype(np.float64), columns]),
        activation=block.activation,
        b_up=b_up,
        b_down=b_down,
        w_gate=np.vstack([block.w_gate.astype(np.float64), np.zeros((extra, block.d))]),
        b_gate=b_gate,
        up_activation=block.up_activation,
    )


def _open_gate(question: Question) -> tuple[float, float]:
    """A bias at which the gate is not 0, as far as biases are allowed, and its value there."""
    candidates = (1.0, -1.0, 0.0, 2.0, -2.0) if question.assumptions.hidden_bias else (0.0,)
    values = question.block.activation(np.array(candidates))
    best = int(np.argmax(np.abs(values)))
    return candidates[best], float(values[best])
