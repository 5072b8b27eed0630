"""Linear layers around and inside a block, folded into it; any invertible skip divided out (§1).

``decide`` needs none of the divisions: the subset condition is stated against A itself.  They
are for those who want the identity-skip block.  A fold multiplies weights in float64, which
is exact for weights of float32 or narrower; ``exact`` says whether every operation was, that
is, whether a verdict about the folded block is one about the original function.

    >>> block = ResidualBlock(w_up=[[1.0]], w_down=[[2.0]], activation="relu", skip=4.0)
    >>> reduced = Reduction(block).scale_branch(-2.0).identity_skip()
    >>> reduced.block.w_down.tolist(), reduced.block.skip, reduced.exact
    ([[-1.0]], None, True)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from unskip.blocks import ResidualBlock
from unskip.errors import BlockError, NotReducible

__all__ = ["Reduction", "batch_norm", "hyper_connection"]

Array = npt.NDArray[np.float64]

#: Beyond this condition number the quotient A⁻¹·w_down keeps fewer than half of its digits.
WORST_CONDITION = 1e8


@dataclass(frozen=True)
class Reduction:
    """A block with the steps that led to it; every method returns a new one."""

    block: ResidualBlock
    exact: bool = True
    steps: tuple[str, ...] = ()

    def scale_branch(self, scale: npt.ArrayLike) -> Self:
        """A x + scale ∘ MLP(x): LayerScale (d,), ReZero's α or Fixup's multiplier ()."""
        return self.affine_branch_output(scale, 0.0)

    def affine_branch_output(self, scale: npt.ArrayLike, shift: npt.ArrayLike) -> Self:
        """A x + scale ∘ MLP(x) + shift, each () or (d,)."""
        block = self.block
        if block.norm.placement == "sandwich":
            raise BlockError("a norm stands between the MLP and this scale")
        s, t = _channels("scale", scale, block.d), _channels("shift", shift, block.d)
        w_down, exact_w = _times(_wide(block.w_down), s[:, None])
        b_down, exact_b = _scaled_bias(block.b_down, s, t)
        return self._step("branch output", exact_w and exact_b, w_down=w_down, b_down=b_down)

    def affine_branch_input(self, scale: npt.ArrayLike, shift: npt.ArrayLike) -> Self:
        """A x + MLP(scale ∘ z + shift) where z is what the MLP reads (x, or the norm of x)."""
        changes, exact = self._folded_input(scale, shift)
        return self._step("branch input", exact, **changes)

    def affine_input(self, scale: npt.ArrayLike, shift: npt.ArrayLike) -> Self:
        """F(scale ∘ x + shift): composes with the skip too."""
        block = self.block
        if block.norm.in_front:
            raise BlockError("an affine map in front of a pre-norm block does not fold into it")
        s, t = _channels("scale", scale, block.d), _channels("shift", shift, block.d)
        changes, exact = self._folded_input(scale, shift)
        skip, exact_skip = _times(block.skip_matrix, s)
        carried = block.skip_matrix @ t
        b_down, exact_b = _scaled_bias(block.b_down, np.ones(block.d), carried)
        exact = exact and exact_skip and exact_b and not t.any()
        return self._step("input", exact, **changes, skip=skip, b_down=b_down)

    def affine_output(self, scale: npt.ArrayLike, shift: npt.ArrayLike) -> Self:
        """scale ∘ F(x) + shift: composes with the skip too."""
        if self.block.norm.placement == "post":
            raise BlockError("an affine map behind a post-norm belongs to the norm's parameters")
        branch = self.affine_branch_output(scale, shift)
        s = _channels("scale", scale, self.block.d)
        skip, exact = _times(self.block.skip_matrix, s[:, None])
        block = replace(branch.block, skip=skip)
        return replace(
            self, block=block, exact=branch.exact and exact, steps=(*self.steps, "output")
        )

    def identity_skip(self, worst_condition: float = WORST_CONDITION) -> Self:
        """x + A⁻¹ MLP(x): absorbable iff the block is (Lemma 4 of the paper).

        Raises :class:`NotReducible` where A is singular, or where its condition number exceeds
        ``worst_condition``; such a skip is decided as it is, never inverted.
        """
        block = self.block
        if block.skip is None:
            return self
        if block.norm.placement != "none":
            raise BlockError("a norm does not commute with dividing by the skip")
        if block.skip.ndim == 2:
            return self._divide_by_matrix(worst_condition)
        a = np.broadcast_to(_wide(block.skip), (block.d,))
        smallest, largest = float(np.abs(a).min()), float(np.abs(a).max())
        _require_invertible(largest / smallest if smallest else np.inf, worst_condition)
        w_down, exact_w = _divided(_wide(block.w_down), a[:, None])
        b_down, exact_b = None, True
        if block.b_down is not None:
            b_down, exact_b = _divided(_wide(block.b_down), a)
        return self._step(
            "divided by the skip", exact_w and exact_b, w_down=w_down, b_down=b_down, skip=None
        )

    def _divide_by_matrix(self, worst_condition: float) -> Self:
        block = self.block
        a = block.skip_matrix
        _require_invertible(float(np.linalg.cond(a)), worst_condition)
        w_down: Array = np.linalg.solve(a, _wide(block.w_down)).astype(np.float64)
        b_down: Array | None = None
        if block.b_down is not None:
            b_down = np.linalg.solve(a, _wide(block.b_down)).astype(np.float64)
        return self._step("divided by the skip", False, w_down=w_down, b_down=b_down, skip=None)

    def _folded_input(
        self, scale: npt.ArrayLike, shift: npt.ArrayLike
    ) -> tuple[dict[str, Array | None], bool]:
        block = self.block
        s, t = _channels("scale", scale, block.d), _channels("shift", shift, block.d)
        changes: dict[str, Array | None] = {}
        exact = True
        for weight, bias in (("w_up", "b_up"), ("w_gate", "b_gate")):
            w, b = getattr(block, weight), getattr(block, bias)
            if w is None:
                continue
            changes[weight], exact_w = _times(_wide(w), s)
            changes[bias], exact_b = _scaled_bias(b, np.ones(block.m), _wide(w) @ t)
            exact = exact and exact_w and exact_b and not t.any()
        return changes, exact

    def _step(self, name: str, exact: bool, **changes: Array | None) -> Self:
        block = replace(self.block, **changes)  # type: ignore[arg-type]
        return replace(self, block=block, exact=self.exact and exact, steps=(*self.steps, name))


def batch_norm(
    mean: npt.ArrayLike,
    variance: npt.ArrayLike,
    gain: npt.ArrayLike = 1.0,
    bias: npt.ArrayLike = 0.0,
    eps: float = 1e-5,
) -> tuple[Array, Array]:
    """(scale, shift) of an inference-mode BatchNorm, to hand to a fold."""
    spread = np.sqrt(np.asarray(variance, dtype=np.float64) + eps)
    scale = np.asarray(gain, dtype=np.float64) / spread
    return scale, np.asarray(bias, dtype=np.float64) - scale * np.asarray(mean, dtype=np.float64)


def hyper_connection(
    block: ResidualBlock, mixing: npt.ArrayLike, read: npt.ArrayLike, write: npt.ArrayLike
) -> Reduction:
    """Static Hyper-Connections of n streams as one block on R^{nd}.

    The streams X (n, d), stacked, become B X + write ⊗ MLP(Σ_i read_i X_i), where ``mixing`` is
    B (n, n) and ``read``, ``write`` have shape (n,).  The block's own skip is not used: give a
    block without one.  Raises :class:`BlockError` on other shapes, or where there is a norm.
    """
    b = np.asarray(mixing, dtype=np.float64)
    alpha, beta = (np.asarray(v, dtype=np.float64) for v in (read, write))
    n = alpha.size
    if b.shape != (n, n) or alpha.shape != (n,) or beta.shape != (n,):
        raise BlockError("mixing must be (n, n), read and write (n,)")
    if block.norm.placement != "none" or block.skip is not None:
        raise BlockError("hyper_connection needs a block without norm and of default skip")
    changes: dict[str, Array | None] = {}
    exact = True
    for name in ("w_up", "w_gate"):
        w = getattr(block, name)
        if w is not None:
            # Σ_i read_i X_i, then w: the columns of w once a stream, scaled
            changes[name], exact_w = _times(np.tile(_wide(w), (1, n)), np.repeat(alpha, block.d))
            exact = exact and exact_w
    scales = np.repeat(beta, block.d)
    changes["w_down"], exact_down = _times(np.tile(_wide(block.w_down), (n, 1)), scales[:, None])
    if block.b_down is not None:
        changes["b_down"], exact_b = _times(np.tile(_wide(block.b_down), n), scales)
        exact = exact and exact_b
    changes["skip"] = np.kron(b, np.eye(block.d)).astype(np.float64)
    wide = replace(block, **changes)  # type: ignore[arg-type]
    return Reduction(wide, exact and exact_down, (f"hyper-connection of {n} streams",))


def _wide(weights: npt.NDArray[np.generic]) -> Array:
    return weights.astype(np.float64)


def _channels(name: str, values: npt.ArrayLike, size: int) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.shape not in ((), (size,)) or not np.isfinite(array).all():
        raise BlockError(f"{name} must be finite, a number or of shape ({size},)")
    return np.broadcast_to(array, (size,))


def _scaled_bias(bias: Array | None, scale: Array, shift: Array) -> tuple[Array | None, bool]:
    """scale∘bias + shift; an absent bias stays absent where nothing is added to it."""
    if bias is None:
        return (shift.copy(), True) if shift.any() else (None, True)
    product, exact = _times(_wide(bias), scale)
    total = product + shift
    # TwoSum (Knuth): the rounding error of the addition, exactly
    part = total - product
    return total, exact and not ((product - (total - part)) + (shift - part)).any()


def _times(a: Array, b: Array) -> tuple[Array, bool]:
    """a∘b, and whether it was exact, by Dekker's product on Veltkamp halves."""
    product = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(np.broadcast_to(b, a.shape))
    error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    small = (np.abs(product) < 2.0**-900) & (a != 0) & (b != 0)  # where halves may underflow
    return product, not (error.any() or small.any()) and bool(np.isfinite(error).all())


def _halves(x: Array) -> tuple[Array, Array]:
    with np.errstate(over="ignore", invalid="ignore"):
        big = x * (2.0**27 + 1)
        high = big - (big - x)
    return high, x - high


def _divided(a: Array, b: Array) -> tuple[Array, bool]:
    """a/b, and whether it was exact: whether multiplying back is, and gives a."""
    quotient = a / b
    back, exact = _times(quotient, np.broadcast_to(b, a.shape))
    return quotient, exact and bool(np.array_equal(back, a))


def _require_invertible(condition: float, worst: float) -> None:
    if not np.isfinite(condition):
        raise NotReducible("the skip is singular", hint="decide() treats it as it is")
    if condition > worst:
        raise NotReducible(
            f"the skip has condition number {condition:.1e}, above {worst:.0e}",
            hint="decide() treats it as it is, without dividing",
        )
