"""Residual-free blocks that equal a parity-linear block: flipped, merged, with twins (§4–§7).

Every group h of neurons keeps one neuron, k_h σ(±z_h).  What flipping leaves over is an affine
map M x + const; a twin −z_h carries any term C z_h of it, two neurons v·x, −v·x carry a term
in a new direction v, and the constant goes to the output bias or to a neuron of its own:

    k σ(z) + C z = (k + C/κ) σ(z) − (C/κ) σ(−z).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from unskip.activations import Activation
from unskip.blocks import PlainBlock, ResidualBlock
from unskip.decision.merging import Merged
from unskip.decision.neurons import group
from unskip.decision.question import Question, SubsetCondition
from unskip.rewriting.linear import Numbers, exactly, split
from unskip.verdict import Verdict

__all__ = ["flipped", "widened"]

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Number = Callable[[Array], Numbers]

#: Up to this many products the affine part is computed, and written on rows, in fractions.
EXACT = 20_000


def flipped(question: Question, subset: Indices) -> PlainBlock:
    """The block with the neurons of ``subset`` flipped and without its skip (Theorem 11).

    Only signs of ``w_up`` and ``b_up`` change, and the output bias, which is rounded once.
    """
    block = question.block
    kappa = block.activation.parity_constants(block.m)
    assert kappa is not None
    w_up, b_up = block.w_up.copy(), None if block.b_up is None else block.b_up.copy()
    w_up[subset] = -w_up[subset]
    b_down = block.b_down if question.assumptions.output_bias else None
    if b_up is not None:
        b_up[subset] = -b_up[subset]
        if question.assumptions.output_bias:
            b_down = _shifted(block.bias("b_down"), block.w_down, block.bias("b_up"), kappa, subset)
    return PlainBlock(
        w_up=w_up, w_down=block.w_down, activation=block.activation, b_up=b_up, b_down=b_down
    )


def _shifted(
    b_down: Array,
    w_down: npt.NDArray[Any],
    b_up: Array,
    kappa: tuple[Fraction, ...],
    subset: Indices,
) -> Array:
    """c + Σ_S κ_j b_j d_j, rounded once.  O(d|S|) fractions."""
    chosen = [j for j in subset.tolist() if b_up[j]]
    weights = [kappa[j] * Fraction(float(b_up[j])) for j in chosen]
    rows = w_down[:, chosen].astype(np.float64).tolist()
    sums = [
        sum(map(_product, weights, row), Fraction(c))
        for c, row in zip(b_down.tolist(), rows, strict=True)
    ]
    return np.array([float(total) for total in sums])


def _product(weight: Fraction, entry: float) -> Fraction:
    return weight * Fraction(entry)


@dataclass(frozen=True)
class _Plan:
    """Which groups are flipped, which get a twin, and what else is added."""

    flips: Indices  #: neurons
    twins: Indices  #: groups
    rank: int  #: new directions, of two neurons each
    constant: bool  #: one neuron with u = 0, for dead neurons' outputs
    free: bool  #: that neuron (if need be a new one) also carries part of what is left over


def widened(question: Question, verdict: Verdict) -> PlainBlock:
    """The residual-free block of ``verdict.width.upper`` neurons (Theorems 20 and 21).

    O(md²) time for the choice of twins and the solve.  Twins are chosen for conditioning, by
    pivoted QR of the normalised rows, so that coefficients stay of the size of the weights.
    """
    block = question.block
    if "constants" in verdict.certificate.data and block.activation.facts.homogeneity != 1:
        # planned as if there were an output bias, with one more neuron in its place (Theorem 33)
        assumed = replace(question.assumptions, output_bias=True)
        biased = _planned(replace(question, assumptions=assumed), verdict, beyond=1)
        return _bias_as_neuron(biased)
    return _planned(question, verdict, beyond=0)


def _planned(question: Question, verdict: Verdict, *, beyond: int) -> PlainBlock:
    block = question.block
    kappa = block.activation.parity_constants(block.m)
    assert kappa is not None
    merged = Merged(SubsetCondition.of(question, kappa), group(question))
    return _build(question, merged, _plan(block, merged, verdict, beyond))


def _bias_as_neuron(plain: PlainBlock) -> PlainBlock:
    """A neuron with u = 0 in place of the output bias."""
    assert plain.b_down is not None
    assert plain.b_up is not None
    bias, value = _open_bias(plain.activation)
    return replace(
        plain,
        w_up=np.vstack([plain.w_up, np.zeros((1, plain.d))]),
        b_up=np.append(plain.b_up, bias),
        w_down=np.column_stack([plain.w_down, plain.b_down / value]),
        b_down=None,
    )


def _plan(block: ResidualBlock, merged: Merged, verdict: Verdict, beyond: int) -> _Plan:
    """What the certificate says of twins, or else the best conditioned ones."""
    arrays, data, n = verdict.certificate.arrays, verdict.certificate.data, merged.n
    first = merged.neurons.representatives
    # with these in the data, the constants are part of what twins and flips make up for
    constants = merged.neurons.constants and "constants" not in data
    upper = int(verdict.width.upper) - beyond
    if upper == n + constants and verdict.subset is not None and "constants" not in data:
        subset = np.array(verdict.subset, np.int64)
        if merged.consistent(subset):
            return _Plan(subset, first[:0], 0, constants, False)
    chosen = np.isin(first, arrays.get("flipped", arrays["achieved"]))
    flips = merged.lift(chosen)
    spare = upper - n - constants
    if "basis_rows" in arrays:
        size = arrays["basis_rows"].size
        p, q = merged.original.a.shape
        if 2 * p <= size + 2 * min(p, q - size):
            return _Plan(flips, first[:0], p, constants, False)
        rows, biases = merged.original.up[first], block.bias("b_up")[first]
        twins = _well_conditioned(rows, biases, size)
        return _Plan(flips, twins, (spare - size) // 2, constants, False)
    twins = np.flatnonzero(np.isin(first, arrays.get("twins", first[:0])))
    free = bool(data.get("constant", False))
    return _Plan(flips, twins, (spare - twins.size - free) // 2, free or constants, free)


def _well_conditioned(rows: Array, biases: Array, size: int) -> Indices:
    """``size`` rows whose directions are as independent as pivoted QR finds.

    Each is taken at the size that its pre-activation has on inputs of size 1, bias included: a
    twin with a large bias would pass a small signal beside a large constant.
    """
    full = np.column_stack([rows, biases])
    full /= np.abs(full).max(axis=1, keepdims=True)
    rows = full[:, :-1] / np.linalg.norm(full, axis=1, keepdims=True)
    order = scipy.linalg.qr(rows.T, mode="r", pivoting=True)[1]
    return np.sort(order[:size]).astype(np.int64)


def _build(question: Question, merged: Merged, plan: _Plan) -> PlainBlock:
    block, assumptions = question.block, question.assumptions
    d, first, twins = block.d, merged.neurons.representatives, plan.twins
    full = np.column_stack([block.w_up.astype(np.float64), block.bias("b_up")])
    small = full.size * d <= EXACT
    number = exactly if small else np.asarray
    kappa = block.activation.facts.parity
    assert isinstance(kappa, Fraction)
    divisor = kappa if small else float(kappa)

    left = _left_over(question, merged, full, plan.flips, number)
    dead = _dead_output(question, full, number)
    if not plan.constant:  # they are part of what is left over
        left[:, -1] += dead
        dead = dead - dead
    signs = np.where(np.isin(first, plan.flips), -1.0, 1.0)
    kept = number(full[first] * signs[:, None])
    columns = _outputs(merged, full, number)
    # the constant is left to the output bias, or is one more column to be matched
    matched = d + (not assumptions.output_bias)
    rows = kept[twins]
    if plan.free:
        rows = np.vstack([rows, number(np.eye(d + 1)[-1:])])
    terms = split(left[:, :matched], rows[:, :matched], plan.rank, scale=_scale(merged, number))
    share, new = terms.columns[:, : twins.size] / divisor, terms.new_columns / divisor
    columns[:, twins] += share
    directions = np.zeros((len(new.T), d + 1), dtype=kept.dtype)
    directions[:, :matched] = terms.new_rows
    hidden = [kept, -kept[twins], directions, -directions]
    down = [columns, -share, new, -new]
    if plan.constant:
        row, value = _constant_neuron(question)
        hidden.append(row)
        carried = dead + terms.columns[:, -1] if plan.free else dead
        down.append((carried / value)[:, None])
    w_up = np.vstack(hidden).astype(np.float64)
    b_down = None
    if assumptions.output_bias:
        b_down = (left[:, -1] + dead - terms.columns @ rows[:, -1]).astype(np.float64)
    return PlainBlock(
        w_up=w_up[:, :-1],
        w_down=np.hstack(down).astype(np.float64),
        activation=block.activation.any_width,
        b_up=w_up[:, -1] if assumptions.hidden_bias else None,
        b_down=b_down,
    )


def _left_over(
    question: Question, merged: Merged, full: Array, flips: Indices, number: Number
) -> Numbers:
    """[A | c] + Σ κ_j d_j [u_j | b_j] over the flipped neurons; centred where outputs are."""
    block = question.block
    start = number(np.column_stack([block.skip_matrix, block.bias("b_down")]))
    kappa = np.array([merged.original.kappa[j] for j in flips.tolist()], dtype=object)
    weights = number(block.w_down[:, flips].astype(np.float64))
    left = start + (weights * kappa.astype(weights.dtype)) @ number(full[flips])
    return left - left.sum(axis=0) / len(left) if question.centred else left


def _outputs(merged: Merged, full: Array, number: Number) -> Numbers:
    """k_h = Σ |t_j| d_j, where (u_j, b_j) = t_j times the row of the first of its group."""
    down = merged.original.down
    columns = number(down[:, merged.neurons.representatives])
    for h, members in enumerate(merged.neurons.groups):
        if members.size > 1:
            pivot = int(np.argmax(np.abs(full[members[0]])))
            sizes = exactly(np.abs(full[members, pivot])) / Fraction(abs(full[members[0], pivot]))
            columns[:, h] = (exactly(down[:, members]) @ sizes).astype(columns.dtype)
    return columns


def _dead_output(question: Question, full: Array, number: Number) -> Numbers:
    """Σ σ(b_j) d_j over the neurons with u_j = 0, centred where outputs are."""
    block = question.block
    dead = np.flatnonzero(~full[:, :-1].any(axis=1))
    values = number(block.activation(full[dead, -1]))
    total = number(np.zeros(block.d)) + number(block.w_down[:, dead].astype(np.float64)) @ values
    return total - total.sum() / len(total) if question.centred else total


def _constant_neuron(question: Question) -> tuple[Array, float]:
    """A row with u = 0, and the value of its neuron, which is not 0 as κ is not."""
    row = np.zeros((1, question.block.d + 1))
    if question.assumptions.hidden_bias:
        row[0, -1], value = _open_bias(question.block.activation)
        return row, value
    return row, float(question.block.activation(row[0, -1:])[0])


def _open_bias(activation: Activation) -> tuple[float, float]:
    """A bias at which σ is not 0, and its value there."""
    values = activation(np.array([1.0, -1.0]))
    best = int(np.argmax(np.abs(values)))
    return (1.0, -1.0)[best], float(values[best])


def _scale(merged: Merged, number: Number) -> Any:
    """The size of the skip and of what flips add to it."""
    condition = merged.original
    down, up = number(np.abs(condition.down).max(axis=0)), number(np.abs(condition.up).max(axis=1))
    return max(number(np.abs(condition.a)).max(), down @ up)
