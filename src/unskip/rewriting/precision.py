"""How accurate a block is in the type its weights are stored in, measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from unskip.blocks import NormKind, PlainBlock, ResidualBlock
from unskip.errors import UnskipError

__all__ = ["DTYPES", "Precision", "measure", "stored"]

Array = npt.NDArray[Any]

DTYPES: dict[str, np.dtype[Any]] = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
}


@dataclass(frozen=True)
class Precision:
    """Errors on random inputs, as parts of the largest output of the block in float64.

    Weights are stored in ``dtype`` and the sums are taken in float32 (float64 for float64).
    """

    dtype: str
    plain: float  #: of the plain block
    own: float  #: of the residual block itself
    growth: float  #: largest output weight of the plain block over that of the block


def measure(
    block: ResidualBlock, plain: PlainBlock, dtype: str, *, samples: int = 256
) -> Precision:
    """Errors of both on normal inputs with unit variance (a fixed seed).

    Behind a LayerNorm, outputs count up to their mean.  O(samples · (m + m') d).
    """
    x = np.random.default_rng(0).normal(size=(samples, block.d))
    bare = block.inner()
    centred = block.norm is NormKind.POST_LAYERNORM
    right = _shown(bare(x), centred=centred)
    size = float(np.abs(right).max()) or 1.0

    def error(b: ResidualBlock | PlainBlock) -> float:
        found = _shown(_evaluate(b, x, dtype), centred=centred)
        return float(np.abs(found - right).max()) / size

    before = float(np.abs(block.w_down.astype(np.float64)).max())
    after = float(np.abs(plain.w_down).max(initial=0.0))
    return Precision(dtype, error(plain), error(bare), after / before if before else 1.0)


def stored(tensor: Array, dtype: str) -> Array:
    """The tensor in that type, rounded once; raises :class:`UnskipError` beyond its range."""
    with np.errstate(over="ignore"):
        rounded = np.ascontiguousarray(tensor).astype(DTYPES[dtype])
    if not np.isfinite(rounded.astype(np.float64)).all():
        largest = float(np.abs(tensor).max())
        raise UnskipError(f"a weight of {largest:.3g} is beyond {dtype}", hint="use a wider type")
    return rounded


def _shown(values: Array, *, centred: bool) -> Array:
    return values - values.mean(axis=1, keepdims=True) if centred else values


def _evaluate(block: ResidualBlock | PlainBlock, x: Array, dtype: str) -> Array:
    work = np.float64 if dtype == "float64" else np.float32
    x = x.astype(work)

    def weights(name: str) -> Array:
        return stored(getattr(block, name), dtype).astype(work)

    def affine(w: str, b: str) -> Array:
        z: Array = x @ weights(w).T
        return z if getattr(block, b) is None else z + weights(b)

    hidden = affine("w_up", "b_up")
    if block.up_activation is None:
        hidden = block.activation(hidden).astype(work)
    else:
        gate = block.activation(affine("w_gate", "b_gate")).astype(work)
        hidden = gate * block.up_activation(hidden).astype(work)
    y: Array = hidden @ weights("w_down").T
    if block.b_down is not None:
        y = y + weights("b_down")
    if isinstance(block, ResidualBlock):
        y = y + (x if block.skip is None else x @ block.skip_matrix.T.astype(work))
    return y.astype(np.float64)
