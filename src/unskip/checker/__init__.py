"""Validates certificates against a block's own weights, without trusting who made them.

Shares no code with the decision procedure: it knows the definitions (activations and their
facts, blocks, the certificate format) and proves each statement anew from the data in the
certificate, in exact integers or in floating point with outward error bounds.  A statement
may be weaker than what the data prove (a looser bound), never stronger.

- ``unconditional.py``: the unconditional rules; ``invisible.py``: skips that do not show
- ``neurons.py``: ungated blocks; ``gates.py``: gated ones with biases
- ``condition.py``: the subset condition and groups of neurons, which both rest on
- ``evidence.py``: what refutes every set; ``width.py``: what bounds the width
- ``requirements.py``, ``arithmetic.py``: what they share
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unskip.blocks import NormKind, ResidualBlock
from unskip.certificates import Answer, Certificate, Interval, Rule, Scope
from unskip.checker.gates import by_gates
from unskip.checker.invisible import invisible_skip
from unskip.checker.neurons import by_subsets, hidden_bias, linear_rank
from unskip.checker.requirements import claims_nothing, refuse
from unskip.checker.unconditional import (
    even,
    homogeneous,
    one_sided,
    pre_norm,
    recession,
    sublinear,
    unconditional,
    vanishing,
)

__all__ = ["Proof", "check"]

#: Integers up to this are exact in float64, and sums of 2¹⁷ of them in int64.
LARGEST = 2**45


@dataclass(frozen=True)
class Proof:
    """A certificate that holds; ``sentence`` says what has been proved."""

    certificate: Certificate
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def check(certificate: Certificate, block: ResidualBlock) -> Proof:
    """Prove the certificate's statement about ``block``.

    Raises :class:`InvalidCertificate` with the first thing that does not hold.  Cost: one or
    two products of m×d×d for a dual certificate; O(md) for the unconditional rules.
    """
    with np.errstate(all="ignore"):  # every comparison below fails on NaN
        return _check(certificate, block)


def _check(c: Certificate, block: ResidualBlock) -> Proof:
    _require_types(c)
    for what, stated, actual in (
        ("activation", c.activation, block.activation_name),
        ("gated", c.gated, block.gated),
        ("norm", c.norm, block.norm.value),
        ("d", c.d, block.d),
        ("m", c.m, block.m),
        ("modulo", c.assumptions.modulo, _discarded(block)),
        ("slopes_kept", c.assumptions.slopes_kept, block.activation.slopes is not None),
    ):
        if stated != actual:
            refuse(f"it is about a block with {what} = {stated}, and this one has {actual}")
    if not c.width.lower <= c.width.upper or (c.defect and not c.defect.lower <= c.defect.upper):
        refuse("an interval of it is empty")
    for array in c.arrays.values():  # so that they are exact in float64, and sums in int64
        if array.size and not -LARGEST <= int(array.min()) <= int(array.max()) <= LARGEST:
            refuse("an integer in it exceeds 2**45")
        if array.size >= 2**36:
            refuse("an array in it is larger than any block's")
    conclusion = _CHECKS[c.rule](c, block)
    where = f" ({c.assumptions}{_declared(block)})"
    return Proof(c, f"{c.block or 'the block'}: {c.rule}: {conclusion}{where}")


def _declared(block: ResidualBlock) -> str:
    return "".join(f"; the facts of {name} are as declared" for name in block.declared)


def _require_types(c: Certificate) -> None:
    """A certificate that was not read from a file may hold anything."""
    flags = (c.assumptions.hidden_bias, c.assumptions.output_bias, c.assumptions.slopes_kept)
    typed = (
        isinstance(c.answer, Answer)
        and isinstance(c.scope, Scope)
        and isinstance(c.rule, Rule)
        and isinstance(c.width, Interval)
        and isinstance(c.defect, Interval | None)
        and all(type(flag) is bool for flag in flags)
        and all(type(x) is np.ndarray and x.dtype.kind == "i" for x in c.arrays.values())
    )
    if not typed:
        refuse("it is not made of the format's types")


def _discarded(block: ResidualBlock) -> str:
    return "mean" if block.norm is NormKind.POST_LAYERNORM else "nothing"


def _undecided(c: Certificate, block: ResidualBlock) -> str:
    if c.defect is None:
        return claims_nothing(c)
    return by_flips(c, block)


def by_flips(c: Certificate, block: ResidualBlock) -> str:
    """Neurons of constant parity, or units that leave more than a linear part when flipped."""
    parity = None if block.gated else block.activation.parity_constants(block.m)
    return by_subsets(c, block) if parity is not None and any(parity) else by_gates(c, block)


_CHECKS: dict[Rule, Callable[[Certificate, ResidualBlock], str]] = {
    Rule.HOMOGENEOUS_DEGREE: unconditional(homogeneous),
    Rule.VANISHING_LINEARISATION: unconditional(vanishing),
    Rule.SUBLINEAR_GROWTH: unconditional(sublinear),
    Rule.EVEN_ACTIVATION: unconditional(even),
    Rule.EVEN_RECESSION: unconditional(recession),
    Rule.ONE_SIDED_INDEPENDENCE: unconditional(one_sided),
    Rule.PRE_NORM: unconditional(pre_norm),
    Rule.HIDDEN_BIAS: hidden_bias,
    Rule.LINEAR_RANK: linear_rank,
    Rule.INVISIBLE_SKIP: invisible_skip,
    Rule.SUBSET_CONDITION: by_subsets,
    Rule.MINIMAL_WIDTH: by_subsets,
    Rule.GATED_CONDITION: by_gates,
    Rule.SQUARED_CONDITION: by_gates,
    Rule.BOUNDED_RANK: by_flips,
    Rule.UNDECIDED: _undecided,
}
