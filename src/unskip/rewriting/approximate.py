"""The residual-free block of a given width that is nearest to a block on data (§10).

Without its skip a block cannot pass the identity, but with neurons oriented both ways the even
parts of many neurons nearly cancel on real inputs, and what is left over carries it.  So several
orientations of the neurons are tried, each with output weights by ridge regression in closed
form; rows set aside choose between them, and other rows measure the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg

from unskip.activations import Activation, prelu
from unskip.blocks import PlainBlock, ResidualBlock
from unskip.errors import BlockError, UnskipError

__all__ = ["Approximation", "approximate"]

Array = npt.NDArray[np.float64]

#: Ridges to choose from, as parts of the mean square of a feature.
RIDGES = (1e-14, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)


@dataclass(frozen=True, eq=False, kw_only=True)
class Approximation(PlainBlock):
    """A plain block that is near a residual one on data.

    ``error`` is Σ‖y − ŷ‖² / Σ‖y − ȳ‖² over the held-out rows: 0 for the same outputs, 1 for their
    mean.  Outputs count as a following norm sees them.  It is measured, and bounds nothing.
    """

    error: float


def approximate(
    block: ResidualBlock,
    *,
    inputs: npt.ArrayLike,
    width: int | None = None,
    tries: int = 4,
    held_out: float = 0.1,
    seed: int = 0,
) -> Approximation:
    """The residual-free block of ``width`` neurons (default: m) nearest to ``block`` on data.

    ``inputs`` (n, d) are what the block reads.  A share ``held_out`` of them, drawn with
    ``seed``, only measures ``error``; as many choose between ``tries`` random orientations, the
    block's own, and the strengths of the ridge.  Wider than m, neurons get a second one that
    points the other way, and at m + d the result is as exact as regression is.  Narrower, those
    with the smallest share in the outputs are left out.  The replacement of a pre-norm block
    reads the normed input.  The same arguments give the same block.

    O(tries · width² (n + width)) time, O(n · width) memory.  Raises :class:`BlockError` on inputs
    of another shape or not finite, and :class:`UnskipError` on too few rows.
    """
    data = _Data.of(block, inputs, held_out, seed)
    wanted = block.m if width is None else width
    if wanted < 1:
        raise BlockError(f"width is {width!r}", hint="give a number of neurons, at least 1")
    best: tuple[float, PlainBlock] | None = None
    for hidden in _candidates(block, data, wanted, tries, seed):
        for down, bias in _regressions(hidden, block.b_down is not None, data):
            plain = hidden.block(down, bias)
            error = data.error(plain, data.choosing)
            if best is None or error < best[0]:
                best = error, plain
    assert best is not None
    plain = best[1]
    return Approximation(
        **{name: getattr(plain, name) for name in PlainBlock.__dataclass_fields__},
        error=data.error(plain, data.measuring),
    )


class _Data(NamedTuple):
    """What the MLP reads, what it is to give, and how much each row counts."""

    z: Array  #: (n, d)
    target: Array  #: (n, d), centred before a LayerNorm
    weight: Array  #: (n,), one over the scale that a following norm divides by
    centred: bool
    fitting: npt.NDArray[np.int64]
    choosing: npt.NDArray[np.int64]
    measuring: npt.NDArray[np.int64]

    @classmethod
    def of(cls, block: ResidualBlock, inputs: npt.ArrayLike, held_out: float, seed: int) -> _Data:
        x = np.asarray(inputs, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != block.d or not np.isfinite(x).all():
            raise BlockError(f"inputs of shape {x.shape}", hint=f"give finite rows (n, {block.d})")
        if not 0 < held_out < 0.5:
            raise BlockError(f"held_out is {held_out!r}", hint="give a share between 0 and ½")
        size = int(len(x) * held_out)
        if size < 2:
            raise UnskipError(f"{len(x)} rows are too few", hint="give hundreds, of real inputs")
        z = block.read_by_mlp(x)
        target = block.before_norm(x)
        weight = np.ones(len(x))
        centred = block.norm.placement == "post" and block.norm.centres
        if centred:
            target = target - target.mean(axis=1, keepdims=True)
        if block.norm.placement == "post":
            weight = 1.0 / np.sqrt(np.mean(target**2, axis=1) + max(block.norm_eps, 1e-300))
        order = np.random.default_rng(seed).permutation(len(x))
        parts = order[2 * size :], order[size : 2 * size], order[:size]
        return cls(z, target, weight, centred, *parts)

    def error(self, plain: PlainBlock, rows: npt.NDArray[np.int64]) -> float:
        """Σ‖y − ŷ‖² / Σ‖y − ȳ‖² there."""
        found = plain(self.z[rows])
        if self.centred:
            found = found - found.mean(axis=1, keepdims=True)
        weight = self.weight[rows, None]
        right = self.target[rows] * weight
        spread = float(np.sum((right - right.mean(axis=0)) ** 2))
        return float(np.sum((found * weight - right) ** 2)) / (spread or 1.0)


@dataclass(frozen=True)
class _Hidden:
    """Everything inside the nonlinearity."""

    activation: Activation
    up_activation: Activation | None
    tensors: dict[str, Array]

    def block(self, down: Array, bias: Array | None) -> PlainBlock:
        return PlainBlock(
            activation=self.activation,
            up_activation=self.up_activation,
            w_down=down,
            b_down=bias,
            **self.tensors,
        )

    def features(self, z: Array) -> Array:
        """(n, width)."""
        size = len(self.tensors["w_up"])
        return self.block(np.zeros((z.shape[1], size)), None).hidden(z)

    def take(self, neurons: npt.NDArray[np.int64]) -> _Hidden:
        activation, slopes = self.activation, self.activation.slopes
        if slopes is not None and len(slopes) > 1:
            activation = prelu(np.array(slopes)[neurons])
        return _Hidden(
            activation, self.up_activation, {k: t[neurons] for k, t in self.tensors.items()}
        )

    def turned(self, signs: Array) -> _Hidden:
        """Neurons, or their gates, with ``signs`` −1 point the other way."""
        where = ("w_gate", "b_gate") if self.up_activation is not None else ("w_up", "b_up")
        turned = {
            k: t * (signs[:, None] if t.ndim > 1 else signs) if k in where else t
            for k, t in self.tensors.items()
        }
        return _Hidden(self.activation, self.up_activation, turned)


def _candidates(
    block: ResidualBlock, data: _Data, wanted: int, tries: int, seed: int
) -> Iterator[_Hidden]:
    names = ("w_up", "b_up", "w_gate", "b_gate")
    tensors = {n: block.tensors[n].astype(np.float64) for n in names if n in block.tensors}
    own = _Hidden(block.activation, block.up_activation, tensors)
    if wanted < block.m:
        share = own.features(data.z[data.fitting]).std(axis=0)
        share *= np.linalg.norm(block.w_down.astype(np.float64), axis=0)
        own = own.take(np.sort(np.argsort(-share, kind="stable")[:wanted]))
    rng = np.random.default_rng(seed)
    size = min(wanted, block.m)
    again = np.zeros(0, dtype=np.int64)
    if wanted > size:
        again = _twins(own, wanted - size)
        own = own.take(np.concatenate([np.arange(size), again]))
    for index in range(tries + 1):
        signs = np.ones(size) if index == 0 else rng.choice([-1.0, 1.0], size)
        yield own.turned(np.concatenate([signs, -signs[again]]))


def _twins(hidden: _Hidden, count: int) -> npt.NDArray[np.int64]:
    """Neurons whose rows are as independent as pivoted QR finds; repeated beyond their number."""
    rows = hidden.tensors["w_up"]
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    order = scipy.linalg.qr((rows / np.where(size > 0, size, 1.0)).T, mode="r", pivoting=True)[1]
    return np.resize(order, count).astype(np.int64)


def _regressions(
    hidden: _Hidden, shifted: bool, data: _Data
) -> Iterator[tuple[Array, Array | None]]:
    """Output weights and bias for each strength of the ridge.  One Gram matrix for all."""
    rows = data.fitting
    weight = data.weight[rows, None]
    features = hidden.features(data.z[rows])
    middle = features.mean(axis=0) if shifted else np.zeros(features.shape[1])
    a = np.column_stack([features - middle, np.ones(len(rows))] if shifted else [features])
    a *= weight
    right = data.target[rows] * weight
    gram, moment = a.T @ a, a.T @ right
    scale = float(np.trace(gram)) / len(gram) or 1.0
    for ridge in RIDGES:
        penalty = np.full(len(gram), ridge * scale)
        if shifted:
            penalty[-1] = 0.0
        try:
            solution = scipy.linalg.solve(gram + np.diag(penalty), moment, assume_a="pos")
        except (np.linalg.LinAlgError, scipy.linalg.LinAlgWarning):
            continue
        down: Any = solution[: len(middle)]
        yield down.T.copy(), solution[-1] - middle @ down if shifted else None
