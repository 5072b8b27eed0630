"""How the neurons of a block stand to its skip: the alignments κ_j u_j·d_j, as a histogram.

Flipping neuron j adds R_j = κ_j d_j u_jᵀ to the linear part, and the skip is absorbed by flips
only if these cancel it: Σ_S R_j = −A (§4), hence Σ_S r_j = −‖ΠA‖²_F for the alignments
r_j = ⟨ΠA, R_j⟩.  For the identity skip r_j = κ_j u_j·d_j, and they have to add up to −d; behind a
LayerNorm, which discards the mean, to −(d − 1).  Only negative ones help: where all of them
together do not reach that far, no set does (the trace certificate).  These are floating-point
figures to look at; what is proved stands in the certificate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unskip.blocks import NormKind, ResidualBlock

__all__ = ["Alignments", "alignments"]

Array = npt.NDArray[np.float64]

#: Bins at most; fewer for few neurons, about 2√m.
BINS = 60
#: Neurons that are widened to float64 at a time.
CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Alignments:
    """The distribution of the r_j.

    ``counts`` (n,) neurons lie between consecutive ``edges`` (n + 1,); zero is an edge.
    ``negative`` neurons have r_j < 0; ``reach`` is Σ_j max(0, −r_j), and ``needed`` ‖ΠA‖²_F.
    """

    edges: Array
    counts: npt.NDArray[np.int64]
    negative: int
    reach: float
    needed: float


def alignments(block: ResidualBlock) -> Alignments | None:
    """The alignments of a block's neurons; ``None`` where flips do not decide.

    That is, for an activation without a parity constant (a gate with neither constant), and
    for a norm in front of the MLP.  Cost: O(md) (O(md²) for a full skip matrix); 2¹⁰ neurons
    are in float64 at a time.

        >>> block = ResidualBlock(w_up=[[1.0]], w_down=[[-1.0]], activation="relu")
        >>> found = alignments(block)
        >>> found.reach, found.needed                # Σ max(0, −r_j) has to reach d = 1
        (1.0, 1.0)
    """
    if block.norm.in_front:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        rows = _flipped_rows(block)
        if rows is None:
            return None
        r = np.concatenate([_against_skip(block, start, u) for start, u in rows])
        needed = _skip_size(block)
        if not (np.isfinite(r).all() and np.isfinite(needed)):
            return None  # weights too large for float64 products
        edges = _edges(r)
        counts = np.histogram(r, edges)[0].astype(np.int64)
        reach = float(np.maximum(0, -r).sum())
    return Alignments(edges, counts, int((r < 0).sum()), reach, needed)


def _flipped_rows(block: ResidualBlock) -> Iterator[tuple[int, Array]] | None:
    """κ_j u_j, a chunk of neurons at a time; for gates what a flip leaves with d_j (§9)."""
    gate = block.activation.facts
    if block.w_gate is None:
        kappa = block.activation.parity_constants(block.m)
        return None if kappa is None else _scaled(block.w_up, np.array(kappa, dtype=np.float64))
    value = block.up_activation
    if value is None or value.facts.slope != 1:
        return None
    if gate.parity and not isinstance(gate.parity, tuple):
        b, e = block.bias("b_gate"), block.bias("b_up") + float(value.facts.offset)
        kappa_b, kappa_e = float(gate.parity) * b, float(gate.parity) * e
        both = zip(_scaled(block.w_up, kappa_b), _scaled(block.w_gate, kappa_e), strict=True)
        return ((start, v + w) for (start, v), (_, w) in both)
    if gate.reflection:
        return _scaled(block.w_up, np.full(block.m, float(gate.reflection)))
    return None


def _scaled(w: npt.NDArray[np.generic], factors: Array) -> Iterator[tuple[int, Array]]:
    for start in range(0, len(factors), CHUNK):
        chosen = slice(start, start + CHUNK)
        yield start, w[chosen].astype(np.float64) * factors[chosen, None]


def _against_skip(block: ResidualBlock, start: int, rows: Array) -> Array:
    """⟨ΠA, d_j u_jᵀ⟩ = (Πd_j)·(A u_j) for the neurons from ``start`` on."""
    down = block.w_down[:, start : start + len(rows)].astype(np.float64)
    if block.norm is NormKind.POST_LAYERNORM:
        down -= down.mean(axis=0)
    if block.skip is not None:
        skip = block.skip.astype(np.float64)
        rows = rows @ skip.T if skip.ndim == 2 else rows * skip
    return np.einsum("jd,dj->j", rows, down)


def _skip_size(block: ResidualBlock) -> float:
    """‖ΠA‖²_F."""
    centred = block.norm is NormKind.POST_LAYERNORM
    if block.skip is not None and block.skip.ndim == 2:
        a = block.skip_matrix
        return float(np.square(a - a.mean(axis=0) if centred else a).sum())
    diagonal = np.broadcast_to(1.0 if block.skip is None else block.skip, (block.d,))
    size = float(np.square(diagonal.astype(np.float64)).sum())
    return size * (block.d - 1) / block.d if centred else size


def _edges(r: Array) -> Array:
    """Bins of one width over the range of r, with zero as an edge."""
    lowest, highest = min(0.0, float(r.min())), max(0.0, float(r.max()))
    bins = min(BINS, 4 + math.ceil(2 * math.sqrt(r.size)))
    width = (highest - lowest) / bins or 1.0
    below, above = np.ceil(-lowest / width), np.ceil(highest / width)
    return np.arange(-below, max(above, 1 - below) + 1) * width
