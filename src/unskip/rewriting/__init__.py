"""From a verdict to the residual-free block it promises.

- ``ungated.py``, ``units.py``, ``affine.py``: the exact constructions, one kind of block each
- ``linear.py``: a linear map as few rank-one terms, which all of them need
- ``approximate.py``: the nearest one on data, at any width
- ``remedies.py``: which change of the question would make a "no" a "yes"
- ``precision.py``: how accurate the result is in the type it is stored in, measured
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from unskip.activations import prelu
from unskip.blocks import PlainBlock, ResidualBlock
from unskip.certificates import Rule
from unskip.decision import decide
from unskip.decision.question import Question
from unskip.errors import BlockError, NotAbsorbable, UnskipError
from unskip.rewriting import affine, ungated, units
from unskip.verdict import Verdict

__all__ = ["absorb"]


def absorb(
    block: ResidualBlock,
    *,
    width: Literal["same", "minimal"] | int = "same",
    hidden_bias: bool | None = None,
    output_bias: bool | None = None,
    verdict: Verdict | None = None,
) -> PlainBlock:
    """A residual-free block of the same kind that computes the same function.

    ``width``: ``"same"`` is the block's own m; ``"minimal"`` is ``verdict.width.upper``, the
    least that is known to suffice; a number is that many, neurons without output filling it
    up.  ``hidden_bias`` and ``output_bias`` are those of :func:`unskip.decide`; ``verdict`` is its
    answer for this block, if you have it.  The norm is not part of the result: behind a
    LayerNorm, the outputs agree up to their mean, which it discards.

    In exact arithmetic the function is the same.  Where neurons are only flipped, their
    weights are exact and the output bias is rounded once; merged neurons and twins have new
    output weights, rounded to float64.  O(md² + m²d) beyond the verdict.

    Raises :class:`NotAbsorbable`, with the verdict, where that width is not known to suffice,
    and :class:`UnskipError` where float64 cannot hold the result.

        >>> block = ResidualBlock(w_up=[[1.0]], w_down=[[3.0]], activation="relu")
        >>> absorb(block, width="minimal").w_down.tolist()     # x + 3 relu(x)
        [[4.0, -1.0]]
    """
    if verdict is None:
        verdict = decide(block, hidden_bias=hidden_bias, output_bias=output_bias)
    assumptions = verdict.assumptions
    question = Question.of(
        block, hidden_bias=assumptions.hidden_bias, output_bias=assumptions.output_bias
    )
    wanted = _wanted(block, width, verdict)
    if not math.isfinite(verdict.width.upper) or verdict.width.upper > wanted:
        raise NotAbsorbable(verdict, wanted)
    try:
        with np.errstate(all="ignore"):  # what is not finite is refused by the plain block
            plain = _construct(question, verdict, wanted)
    except (OverflowError, np.linalg.LinAlgError, BlockError) as error:
        raise UnskipError(f"the plain block does not fit in float64: {error}") from None
    return _padded(plain, wanted)


def _construct(question: Question, verdict: Verdict, wanted: float) -> PlainBlock:
    block, least = question.block, int(verdict.width.upper)
    flips = np.array(verdict.subset or (), dtype=np.int64)
    by_flips = verdict.subset is not None and wanted >= block.m
    if by_flips and not flips.size:
        return _without_skip(question)
    if verdict.rule is Rule.LINEAR_RANK:
        return affine.factorised(question, least)
    if block.gated or block.activation.facts.square:
        return units.flipped(question, flips) if by_flips else units.bypassed(question)
    return ungated.flipped(question, flips) if by_flips else ungated.widened(question, verdict)


def _without_skip(question: Question) -> PlainBlock:
    """All but the skip, where it is zero or does not show."""
    block, allowed = question.block, question.assumptions
    return PlainBlock(
        w_up=block.w_up,
        w_down=block.w_down,
        activation=block.activation,
        b_up=block.b_up if allowed.hidden_bias else None,
        b_down=block.b_down if allowed.output_bias else None,
        w_gate=block.w_gate,
        b_gate=block.b_gate if allowed.hidden_bias else None,
        up_activation=block.up_activation,
    )


def _wanted(block: ResidualBlock, width: str | int, verdict: Verdict) -> float:
    match width:
        case "same":
            return block.m
        case "minimal":
            return verdict.width.upper
        case int() if width >= 0:
            return width
    raise BlockError(f"width is {width!r}", hint='it must be "same", "minimal" or a number ≥ 0')


def _padded(plain: PlainBlock, width: float) -> PlainBlock:
    """With neurons that have no output, up to ``width`` of them."""
    spare = int(width) - plain.m
    if not spare:
        return plain
    changes: dict[str, Any] = {}
    for name, tensor in plain.tensors.items():
        if name != "b_down":
            along = [(0, 0)] * tensor.ndim
            along[1 if name == "w_down" else 0] = (0, spare)
            changes[name] = np.pad(tensor, along)
    slopes = plain.activation.slopes
    if slopes is not None and len(slopes) > 1:
        changes["activation"] = prelu([*slopes, *slopes[:1] * spare])
    return replace(plain, **changes)
