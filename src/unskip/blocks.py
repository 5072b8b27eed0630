"""Residual and plain MLP blocks: immutable weights, checked shapes, evaluation.

    ungated:  A x + w_down σ(w_up x + b_up) + b_down
    gated:    A x + w_down [g(w_gate x + b_gate) ∘ h(w_up x + b_up)] + b_down

A residual block has the skip A (the identity unless given); a plain block has none.
Weights keep the floating-point type they came in: each one is an exact dyadic rational,
and converting it to float64 loses nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from unskip.activations import Activation, names_of, resolve, resolve_gated
from unskip.errors import BlockError

__all__ = ["NormKind", "PlainBlock", "ResidualBlock"]

Array = npt.NDArray[np.float64]
Weights = npt.NDArray[Any]
#: NumPy arrays, nested sequences or torch tensors (which numpy's own ArrayLike leaves out).
Arrayish = Any


class NormKind(StrEnum):
    """The norm of a block and where it stands.

    pre: ``A x + MLP(N(x))``; post: ``N(A x + MLP(x))``; sandwich: ``A x + N'(MLP(N(x)))``.
    """

    NONE = "none"
    PRE_LAYERNORM = "pre-layernorm"
    PRE_RMSNORM = "pre-rmsnorm"
    POST_LAYERNORM = "post-layernorm"
    POST_RMSNORM = "post-rmsnorm"
    SANDWICH_LAYERNORM = "sandwich-layernorm"
    SANDWICH_RMSNORM = "sandwich-rmsnorm"

    @property
    def placement(self) -> str:
        """``"none"``, ``"pre"``, ``"post"`` or ``"sandwich"``."""
        return self.value.partition("-")[0]

    @property
    def in_front(self) -> bool:
        """Whether the MLP reads a normed input: pre and sandwich."""
        return self.placement in ("pre", "sandwich")

    @property
    def centres(self) -> bool:
        """Whether the norm subtracts the mean (LayerNorm does, RMSNorm does not)."""
        return self.value.endswith("layernorm")


_MATRICES: Final = {"w_up": "md", "w_gate": "md", "w_down": "dm"}
_VECTORS: Final = {
    "b_up": "m",
    "b_gate": "m",
    "b_down": "d",
    "norm_gain": "d",
    "norm_bias": "d",
    "out_norm_gain": "d",
    "out_norm_bias": "d",
}


def _as_weights(name: str, value: Any) -> Weights:
    """A read-only array of the same float type, without loss; integers become float64."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = _from_torch(name, value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise BlockError(f"{name} is not an array of numbers: {error}") from None
    if array.dtype.kind in "iub":
        if array.size and (array.max() > 2**53 or array.min() < -(2**53)):
            raise BlockError(f"{name}: integers beyond 2**53 may have no exact float64")
        array = array.astype(np.float64)
    try:
        lossless = np.can_cast(array.dtype, np.float64) or array.dtype == ml_dtypes.bfloat16
    except TypeError:
        lossless = False
    if not lossless:
        raise BlockError(
            f"{name} has dtype {array.dtype}", hint="give float64, float32, float16 or bfloat16"
        )
    with np.errstate(invalid="ignore"):  # signalling NaNs
        finite = np.isfinite(array)
    if not finite.all():
        where = np.argwhere(~finite)[0].tolist()
        raise BlockError(
            f"{name} has a NaN or infinite entry at {where}", hint="repair the weights"
        )
    if _may_change(array):
        array = array.copy()
        array.flags.writeable = False
    return array


def _may_change(array: Weights) -> bool:
    """Whether the array, or one that it is a view of, is writeable."""
    if array.flags.writeable:
        return True
    base: object = array.base
    return isinstance(base, np.ndarray) and _may_change(base)


def _from_torch(name: str, tensor: Any) -> Weights:
    import torch

    if tensor.is_meta:
        raise BlockError(
            f"{name} is on the meta device and has no values", hint="read the weights from files"
        )
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        bits: Weights = tensor.contiguous().view(torch.uint16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    try:
        array: Weights = tensor.numpy()
    except TypeError:
        raise BlockError(
            f"{name} has dtype {tensor.dtype}", hint="give float64, float32, float16 or bfloat16"
        ) from None
    return array


@dataclass(frozen=True, eq=False, kw_only=True)
class _Block:
    """What residual and plain blocks share.

    Shapes: ``w_up`` and ``w_gate`` (m, d), ``w_down`` (d, m), ``b_up`` and ``b_gate`` (m,),
    ``b_down`` (d,).  NumPy arrays or torch tensors of any float type.  A bias that is
    ``None`` is absent; one that is all zeros is present, and so may the replacement's be.
    ``activation`` is σ, or the gate g when ``w_gate`` is given; ``up_activation`` is h.
    Raises :class:`BlockError` on shapes that do not fit, other types, NaN or infinity.
    """

    w_up: Weights
    w_down: Weights
    activation: Activation
    b_up: Weights | None = None
    b_down: Weights | None = None
    w_gate: Weights | None = None
    b_gate: Weights | None = None
    up_activation: Activation | None = None

    def __post_init__(self) -> None:
        self._set_activations()
        for name in (*_MATRICES, *_VECTORS):
            value = getattr(self, name, None)
            if value is not None:
                object.__setattr__(self, name, _as_weights(name, value))
        least = 0 if isinstance(self, PlainBlock) else 1  # a constant is a plain block
        if self.w_up.ndim != 2 or self.w_up.shape[0] < least or not self.w_up.shape[1]:
            raise BlockError(
                f"w_up has shape {self.w_up.shape}", hint=f"it must be (m, d), m ≥ {least}, d ≥ 1"
            )
        self._check_shapes()
        if self.b_gate is not None and self.w_gate is None:
            raise BlockError("b_gate is given without w_gate")
        for activation in (self.activation, self.up_activation):
            slopes = None if activation is None else activation.slopes
            if slopes is not None and len(slopes) not in (1, self.m):
                raise BlockError(f"PReLU has {len(slopes)} slopes for m = {self.m} neurons")

    def _set_activations(self) -> None:
        if self.w_gate is None:
            if self.up_activation is not None:
                raise BlockError("up_activation is given without w_gate")
            object.__setattr__(self, "activation", resolve(self.activation))
        else:
            gate, value = resolve_gated(self.activation)
            if self.up_activation is not None:
                value = resolve(self.up_activation)
            object.__setattr__(self, "activation", gate)
            object.__setattr__(self, "up_activation", value)

    def _check_shapes(self) -> None:
        size = {"m": self.m, "d": self.d}
        for name, axes in {**_MATRICES, **_VECTORS}.items():
            value = getattr(self, name, None)
            expected = tuple(size[a] for a in axes)
            if value is not None and value.shape != expected:
                raise BlockError(
                    f"{name} has shape {value.shape}, not {expected}",
                    hint=f"w_up of shape {self.w_up.shape} makes m = {self.m}, d = {self.d}",
                )

    @property
    def d(self) -> int:
        """The model dimension."""
        return int(self.w_up.shape[1])

    @property
    def m(self) -> int:
        """The width: the number of hidden neurons."""
        return int(self.w_up.shape[0])

    @property
    def gated(self) -> bool:
        """Whether a gate multiplies the value."""
        return self.w_gate is not None

    @property
    def hidden_biases(self) -> tuple[Weights, ...]:
        """The biases present inside the nonlinearity: ``b_up`` and ``b_gate``."""
        return tuple(b for b in (self.b_up, self.b_gate) if b is not None)

    def bias(self, name: str) -> Array:
        """``b_up``, ``b_gate`` or ``b_down`` in float64; zeros where it is absent."""
        values: Weights | None = getattr(self, name)
        if values is None:
            return np.zeros(self.d if name == "b_down" else self.m)
        return values.astype(np.float64)

    @property
    def activation_name(self) -> str:
        """σ, or ``gate × value`` when the value half is not the identity."""
        if self.up_activation is None or self.up_activation.name == "identity":
            return self.activation.name
        return names_of((self.activation, self.up_activation))

    @property
    def declared(self) -> tuple[str, ...]:
        """The names of activations whose facts are a user's word."""
        factors = (self.activation, self.up_activation)
        return tuple(a.name for a in factors if a is not None and a.declared)

    @property
    def tensors(self) -> Mapping[str, Weights]:
        """The arrays that are present, by name."""
        present = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: v for name, v in present.items() if isinstance(v, np.ndarray)}

    def branch(self, x: Array) -> Array:
        """The MLP alone, without norm and skip, on rows ``x`` of shape (n, d)."""
        return _affine(self.hidden(x), self.w_down, self.b_down)

    def hidden(self, x: Array) -> Array:
        """What the neurons give, (n, m), where the MLP reads ``x`` of shape (n, d)."""
        values = _affine(x, self.w_up, self.b_up)
        if self.w_gate is None:
            return self.activation(values)
        assert self.up_activation is not None
        gate = self.activation(_affine(x, self.w_gate, self.b_gate))
        return gate * self.up_activation(values)


def _affine(x: Array, w: Weights, b: Weights | None) -> Array:
    y = x @ w.astype(np.float64, copy=False).T
    return y if b is None else y + b.astype(np.float64)


def _rows(inputs: npt.ArrayLike, d: int) -> Array:
    x = np.asarray(inputs, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] != d:
        raise BlockError(f"inputs have shape {x.shape}", hint=f"they must be (n, {d})")
    return x


@dataclass(frozen=True, eq=False, kw_only=True)
class PlainBlock(_Block):
    """A residual-free block: ``w_down σ(w_up x + b_up) + b_down``, gated or not."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            w_up: Arrayish,
            w_down: Arrayish,
            activation: str | Activation,
            b_up: Arrayish | None = None,
            b_down: Arrayish | None = None,
            w_gate: Arrayish | None = None,
            b_gate: Arrayish | None = None,
            up_activation: str | Activation | None = None,
        ) -> None: ...

    def __call__(self, inputs: npt.ArrayLike) -> Array:
        """Evaluate in float64 on ``inputs`` of shape (n, d)."""
        return self.branch(_rows(inputs, self.d))


@dataclass(frozen=True, eq=False, kw_only=True)
class ResidualBlock(_Block):
    """``A x + MLP(x)``, with an optional norm before or after.

    ``skip`` is A: ``None`` for the identity, a number, d numbers (one a channel) or a
    (d, d) matrix.  ``norm`` is a :class:`NormKind` or its text; ``norm_gain``, ``norm_bias``
    of shape (d,) and ``norm_eps`` are its parameters, with ``out_norm_gain`` and
    ``out_norm_bias`` for the outer norm of a sandwich.

        >>> block = ResidualBlock(w_up=[[1.0]], w_down=[[-1.0]], activation="relu")
        >>> block([[2.0], [-3.0]]).tolist()          # x − relu(x)
        [[0.0], [-3.0]]
    """

    skip: Weights | None = None
    norm: NormKind = NormKind.NONE
    norm_gain: Weights | None = None
    norm_bias: Weights | None = None
    norm_eps: float = 1e-5
    out_norm_gain: Weights | None = None
    out_norm_bias: Weights | None = None

    if TYPE_CHECKING:  # what may be passed is wider than what is stored

        def __init__(
            self,
            *,
            w_up: Arrayish,
            w_down: Arrayish,
            activation: str | Activation,
            b_up: Arrayish | None = None,
            b_down: Arrayish | None = None,
            w_gate: Arrayish | None = None,
            b_gate: Arrayish | None = None,
            up_activation: str | Activation | None = None,
            skip: Arrayish | None = None,
            norm: str | NormKind | None = None,
            norm_gain: Arrayish | None = None,
            norm_bias: Arrayish | None = None,
            norm_eps: float = 1e-5,
            out_norm_gain: Arrayish | None = None,
            out_norm_bias: Arrayish | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "norm", NormKind(self.norm or "none"))
        except ValueError:
            known = ", ".join(NormKind)
            raise BlockError(f"unknown norm {self.norm!r}", hint=f"known: {known}") from None
        super().__post_init__()
        if self.skip is not None:
            skip = _as_weights("skip", self.skip)
            if skip.shape not in ((), (self.d,), (self.d, self.d)):
                raise BlockError(
                    f"skip has shape {skip.shape}",
                    hint=f"give a number, ({self.d},) or ({self.d}, {self.d})",
                )
            object.__setattr__(self, "skip", skip)
        eps = float(self.norm_eps)
        if not (np.isfinite(eps) and eps >= 0):
            raise BlockError(f"norm_eps is {self.norm_eps!r}", hint="it must be finite and ≥ 0")
        object.__setattr__(self, "norm_eps", eps)
        self._check_norm_parameters()

    def _check_norm_parameters(self) -> None:
        outer = self.out_norm_gain is not None or self.out_norm_bias is not None
        inner = self.norm_gain is not None or self.norm_bias is not None
        if outer and self.norm.placement != "sandwich":
            raise BlockError("out_norm_gain and out_norm_bias belong to a sandwich norm")
        if inner and self.norm is NormKind.NONE:
            raise BlockError("norm_gain or norm_bias is given without a norm")

    @property
    def skip_matrix(self) -> Array:
        """A as a (d, d) float64 matrix."""
        if self.skip is None:
            return np.eye(self.d)
        if self.skip.ndim == 2:
            return self.skip.astype(np.float64)
        return np.diag(np.broadcast_to(self.skip.astype(np.float64), (self.d,)))

    def skip_entry(self, row: int, column: int) -> float:
        """A[row, column], without the matrix where A is diagonal."""
        if self.skip is not None and self.skip.ndim == 2:
            return float(self.skip[row, column])
        if row != column:
            return 0.0
        if self.skip is None:
            return 1.0
        return float(self.skip if self.skip.ndim == 0 else self.skip[row])

    def __call__(self, inputs: npt.ArrayLike) -> Array:
        """Evaluate in float64 on ``inputs`` of shape (n, d)."""
        y = self.before_norm(inputs)
        return self._normalise(y) if self.norm.placement == "post" else y

    def before_norm(self, inputs: npt.ArrayLike) -> Array:
        """The output before the norm that may follow, on ``inputs`` of shape (n, d)."""
        x = _rows(inputs, self.d)
        y = self.branch(self.read_by_mlp(x))
        if self.norm.placement == "sandwich":
            y = self._normalise(y, outer=True)
        return y + self._skipped(x)

    def read_by_mlp(self, inputs: npt.ArrayLike) -> Array:
        """What the MLP reads: ``inputs`` of shape (n, d), normed where a norm is in front."""
        x = _rows(inputs, self.d)
        return self._normalise(x) if self.norm.in_front else x

    def _skipped(self, x: Array) -> Array:
        if self.skip is None:
            return x
        skip = self.skip.astype(np.float64)
        return x @ skip.T if skip.ndim == 2 else x * skip

    def _normalise(self, x: Array, *, outer: bool = False) -> Array:
        gain, bias = self.norm_gain, self.norm_bias
        if outer:
            gain, bias = self.out_norm_gain, self.out_norm_bias
        if self.norm.centres:
            x = x - x.mean(axis=1, keepdims=True)
        y = x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + self.norm_eps)
        y = y if gain is None else y * gain.astype(np.float64)
        return y if bias is None else y + bias.astype(np.float64)

    def inner(self) -> ResidualBlock:
        """z ↦ A z + MLP(z), the block without its norms: of a pre-norm block, its inner map."""
        return replace(
            self,
            norm=NormKind.NONE,
            norm_gain=None,
            norm_bias=None,
            out_norm_gain=None,
            out_norm_bias=None,
        )
