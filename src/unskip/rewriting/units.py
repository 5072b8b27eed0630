"""Residual-free blocks that equal a block of flippable units: gated, or squared ReLU (§9).

Flipped units at the same width; or all units that compute something, and the skip on more of
them: a unit of constant gate is linear, and so is a difference of two squares.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from unskip.blocks import PlainBlock, ResidualBlock
from unskip.decision.question import Question
from unskip.decision.units import Classes, Units
from unskip.rewriting.linear import Split, split

__all__ = ["bypassed", "flipped"]

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def flipped(question: Question, subset: Indices) -> PlainBlock:
    """The block with the units of ``subset`` flipped and without its skip (Theorems 23, 31).

    Only signs change, and the output bias, which is rounded once.
    """
    block, units = question.block, _units(question)
    tensors = {**_branch(block), "b_down": None}
    in_gate = {"w_gate", "b_gate"} if block.gated else {"w_up", "b_up"}
    turned = in_gate if block.gated and units.quadratic else {*in_gate, "w_down"}
    for name in turned & tensors.keys():
        tensor = tensors[name].copy()
        where = (slice(None), subset) if name == "w_down" else subset
        tensor[where] = -tensor[where]
        tensors[name] = tensor
    if question.assumptions.output_bias:
        tensors["b_down"] = _shifted(block, units, subset)
    return _plain(block, tensors)


def bypassed(question: Question) -> PlainBlock:
    """The block's units, without those that compute nothing, and more that carry the skip."""
    block, allowed = question.block, question.assumptions
    total = np.column_stack([block.skip_matrix, block.bias("b_down")])
    if question.centred:
        total = total - total.mean(axis=0)
    # the constant is left to the output bias, or is one more column to be matched
    matched = block.d + (not allowed.output_bias)
    scale = float(np.abs(total).max())
    terms = split(total[:, :matched], total[:0, :matched], block.d, scale=scale)
    rows = np.zeros((len(terms.new_rows), block.d + 1))
    rows[:, :matched] = terms.new_rows
    carriers = _constant_gates if block.gated else _differences_of_squares
    more = carriers(question, terms, rows)
    kept = Classes.of(question, _units(question)).computing
    tensors: dict[str, Any] = {"b_down": None}
    for name, tensor in more.items():
        own = block.bias(name) if name.startswith("b_") else getattr(block, name)
        own = np.asarray(own, dtype=np.float64)
        along = 1 if name == "w_down" else 0
        tensors[name] = np.concatenate([own.take(kept, axis=along), tensor], axis=along)
    if allowed.output_bias:
        tensors["b_down"] = block.bias("b_down")
        if block.gated and not allowed.hidden_bias:  # a shift of the values has no bias to undo it
            assert block.up_activation is not None
            shift = float(block.up_activation.facts.offset) * _open_gate(question)[1]
            tensors["b_down"] = tensors["b_down"] - more["w_down"].sum(axis=1) * shift
    return _plain(block, tensors)


def _constant_gates(question: Question, terms: Split, rows: Array) -> dict[str, Array]:
    """One unit a term: g(b)(v·x + t), where w_gate = 0 and g(b) ≠ 0."""
    block = question.block
    assert block.up_activation is not None
    slope, shift = block.up_activation.facts.slope, block.up_activation.facts.offset
    assert slope
    bias, value = _open_gate(question)
    more = {
        "w_up": rows[:, :-1],
        "w_gate": np.zeros((len(rows), block.d)),
        "w_down": terms.new_columns / (value * float(slope)),
    }
    if question.assumptions.hidden_bias:
        more["b_up"] = rows[:, -1] - float(shift / slope)
        more["b_gate"] = np.full(len(rows), bias)
    return more


def _differences_of_squares(question: Question, terms: Split, rows: Array) -> dict[str, Array]:
    """Four neurons a term: 4z = (z + 1)² − (z − 1)², and κ₂ z² = σ(z) + σ(−z)."""
    square = question.block.activation.facts.square
    assert square
    one = np.zeros_like(rows)
    one[:, -1] = 1.0
    up = np.vstack([rows + one, -rows - one, rows - one, one - rows])
    columns = terms.new_columns / (4.0 * float(square))
    return {
        "w_up": up[:, :-1],
        "b_up": up[:, -1],
        "w_down": np.hstack([columns, columns, -columns, -columns]),
    }


def _units(question: Question) -> Units:
    units = Units.of(question)
    assert units is not None
    return units


def _branch(block: ResidualBlock) -> dict[str, Any]:
    names = ("w_up", "b_up", "w_gate", "b_gate", "w_down", "b_down")
    return {name: block.tensors[name] for name in names if name in block.tensors}


def _plain(block: ResidualBlock, tensors: dict[str, Any]) -> PlainBlock:
    return PlainBlock(activation=block.activation, up_activation=block.up_activation, **tensors)


def _shifted(block: ResidualBlock, units: Units, subset: Indices) -> Array:
    """The output bias, and the constants that the flips leave: rounded once.  O(d|S|) fractions."""
    chosen = subset.tolist()
    weights = [units.kappa * units.offset[j] for j in chosen]
    if units.quadratic:
        biases = map(Fraction, units.bias[subset].tolist())
        weights = [w * b for w, b in zip(weights, biases, strict=True)]
    outputs = block.w_down[:, subset].astype(np.float64).tolist()
    start = block.bias("b_down").tolist()
    sums = [
        sum((w * Fraction(x) for w, x in zip(weights, row, strict=True)), Fraction(c))
        for c, row in zip(start, outputs, strict=True)
    ]
    return np.array([float(total) for total in sums])


def _open_gate(question: Question) -> tuple[float, float]:
    """A bias at which the gate is not 0, as far as biases are allowed, and its value there."""
    biases = np.array([0.0, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0])
    if not question.assumptions.hidden_bias:
        biases = biases[:1]
    values = question.block.activation(biases)
    best = int(np.argmax(np.abs(values)))
    return float(biases[best]), float(values[best])
