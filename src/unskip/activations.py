"""Scalar activations and the facts about them on which every verdict rests.

Rules read facts, never names.  A fact is either proved once (theory §2) and stated in
the table below, or declared by a user through :func:`register`, which refuses a fact
that the function contradicts at some point.

    >>> relu = resolve("relu")
    >>> relu.facts.parity                  # σ(z) − σ(−z) = 1·z
    Fraction(1, 1)
    >>> resolve("gelu_pytorch_tanh") is resolve("gelu_new")
    True
    >>> float(resolve("leaky_relu(0.5)")(-2.0))
    -1.0
"""

from __future__ import annotations

import difflib
import functools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from unskip.errors import ActivationError, FactContradicted

__all__ = [
    "Activation",
    "Facts",
    "Growth",
    "Independence",
    "Smoothness",
    "contradiction",
    "known_names",
    "prelu",
    "register",
    "resolve",
    "resolve_gated",
]

Array = npt.NDArray[np.float64]
ScalarFunction = Callable[[Array], Array]


class Growth(StrEnum):
    """How fast |σ(z)| grows as |z| → ∞.  All four imply that σ is locally bounded."""

    BOUNDED = "bounded"
    SUBLINEAR = "o(|z|)"
    LINEAR = "linear"
    SUPERLINEAR = "faster than linear"


class Smoothness(StrEnum):
    """The regularity class."""

    PIECEWISE_LINEAR = "piecewise linear"
    SPLINE = "spline"
    ANALYTIC = "analytic"
    OTHER = "other"


class Independence(StrEnum):
    """Which neurons are linearly independent, modulo affine functions and signs (§6).

    As gates, with affine factors, they are then independent modulo polynomials (§9), and so are
    squared ReLU neurons without such factors.

    The uniqueness theorem behind a "no" holds for neurons that are pairwise distinct in
    this sense; two neurons that are not distinct can be merged or can trade linear parts.
    """

    HYPERPLANE = "distinct hyperplanes {u·x + b = 0}"
    SIGN = "distinct (u, b) up to sign"
    DIRECTION = "pairwise non-parallel rows u"
    UNKNOWN = "no theorem known"


@dataclass(frozen=True)
class Facts:
    """What is known of a scalar function σ.

    Every field is a claim; the default of a field claims nothing.
    """

    growth: Growth
    value_at_zero: float
    #: κ with σ(z) − σ(−z) = κ z for all z: one constant, or one a neuron; ``None``: no such κ.
    parity: Fraction | tuple[Fraction, ...] | None = None
    #: κ₀ with σ(z) + σ(−z) = κ₀ for all z.
    reflection: Fraction | None = None
    #: κ₂ with σ(z) + σ(−z) = κ₂ z² for all z.
    square: Fraction | None = None
    #: k ≥ 0 with σ(tz) = t^k σ(z) for all t > 0.
    homogeneity: Fraction | None = None
    #: σ(z) = a z + offset.
    slope: Fraction | None = None
    offset: Fraction = Fraction(0)
    even: bool = False
    odd: bool = False
    continuous_at_zero: bool = False
    #: σ'(0), where it exists.
    derivative_at_zero: float | None = None
    #: c with σ(z)/|z| → c as z → ±∞, the same c on both sides.
    even_recession: Fraction | None = None
    #: {1, x, σ(αx + β)} is independent for distinct (α, β), both signs of α included.
    one_sided: bool = False
    smoothness: Smoothness = Smoothness.OTHER
    independence: Independence = Independence.UNKNOWN

    def __post_init__(self) -> None:
        for name in (
            *("parity", "reflection", "square", "homogeneity", "slope", "offset"),
            "even_recession",
        ):
            value = getattr(self, name)
            if isinstance(value, int | float):
                object.__setattr__(self, name, Fraction(value))


@dataclass(frozen=True, eq=False)
class Activation:
    """A named scalar function, applied elementwise in float64, with its :class:`Facts`.

    ``slopes`` is set for PReLU, whose slopes are parameters: one for all, or one a neuron (the
    last axis of the input must then have that length).  Two activations are equal when they
    have the same name and the same slopes.
    """

    name: str
    function: ScalarFunction
    facts: Facts
    slopes: tuple[float, ...] | None = None
    #: Whether the facts are a user's word (:func:`register`).
    declared: bool = False

    def __call__(self, z: npt.ArrayLike) -> Array:
        """σ(z), elementwise, in float64 and of the same shape."""
        with np.errstate(over="ignore"):  # in an intermediate, infinity gives the right limit
            return self.function(np.asarray(z, dtype=np.float64))

    @property
    def any_width(self) -> Activation:
        """The same for any number of neurons: equal slopes, one a neuron, become one for all."""
        if self.slopes is None or len(set(self.slopes)) > 1:
            return self
        return replace(self, slopes=self.slopes[:1])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Activation):
            return NotImplemented
        return self.name == other.name and self.slopes == other.slopes

    def __hash__(self) -> int:
        return hash((self.name, self.slopes))

    def __repr__(self) -> str:
        return f"Activation({self.name!r})"

    def parity_constants(self, m: int) -> tuple[Fraction, ...] | None:
        """κ_j of the m neurons of a block, or ``None`` where σ is not parity-linear."""
        parity = self.facts.parity
        return (parity,) * m if isinstance(parity, Fraction) else parity


# --------------------------------------------------------------------------------------
# The table.  ONE, ZERO and the shorthands below only shorten it.

ZERO, ONE = Fraction(0), Fraction(1)
_GATED_IDENTITY = {  # z·g(z) with g(z) + g(−z) = 1: κ = 1; uniqueness needs its own theorem
    "growth": Growth.LINEAR,
    "value_at_zero": 0.0,
    "parity": ONE,
    "continuous_at_zero": True,
    "derivative_at_zero": 0.5,
}
_ANALYTIC_UNIQUE = {  # and the even parts of distinct neurons are independent (§6)
    **_GATED_IDENTITY,
    "smoothness": Smoothness.ANALYTIC,
    "independence": Independence.SIGN,
}
_SIGMOIDAL = {
    "growth": Growth.BOUNDED,
    "value_at_zero": 0.0,
    "reflection": ZERO,
    "odd": True,
    "continuous_at_zero": True,
    "derivative_at_zero": 1.0,
}


def _facts(base: dict[str, Any], **changes: Any) -> Facts:
    return Facts(**{**base, **changes})


def _leaky_facts(a: float) -> Facts:
    """Facts of z ↦ max(z, 0) + a·min(z, 0); a = 1 is linear, a = −1 is |z|."""
    slope = Fraction(a)
    kinked = abs(slope) != 1
    return Facts(
        growth=Growth.LINEAR,
        value_at_zero=0.0,
        parity=1 + slope,
        homogeneity=ONE,
        slope=ONE if slope == 1 else None,
        reflection=ZERO if slope == 1 else None,
        even=slope == -1,
        odd=slope == 1,
        continuous_at_zero=True,
        derivative_at_zero=1.0 if slope == 1 else None,
        even_recession=ONE if slope == -1 else None,
        smoothness=Smoothness.PIECEWISE_LINEAR,
        independence=Independence.HYPERPLANE if kinked else Independence.UNKNOWN,
    )


def _relu() -> Activation:
    return Activation("relu", lambda z: np.maximum(z, 0.0), _leaky_facts(0.0))


def _leaky_relu(a: float = 0.01) -> Activation:
    return Activation(
        f"leaky_relu({a!r})", lambda z: np.where(z > 0, z, a * z), _leaky_facts(float(a))
    )


def prelu(slopes: npt.ArrayLike) -> Activation:
    """PReLU with one slope a neuron: ``slopes`` of shape (m,), or (1,) for all.

    Raises :class:`ActivationError` on slopes that are not finite.
    """
    values = np.atleast_1d(np.array(slopes, dtype=np.float64))  # a copy
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise ActivationError("PReLU slopes must be one finite number, or one a neuron")
    frozen = tuple(float(a) for a in values)
    if np.all(values == values[0]):
        name = f"prelu({frozen[0]!r})"
        return replace(_leaky_relu(frozen[0]), name=name, slopes=frozen)
    facts = Facts(
        growth=Growth.LINEAR,
        value_at_zero=0.0,
        parity=tuple(1 + Fraction(float(a)) for a in values),
        homogeneity=ONE,
        continuous_at_zero=True,
        smoothness=Smoothness.PIECEWISE_LINEAR,
    )
    return Activation("prelu", lambda z: np.where(z > 0, z, values * z), facts, slopes=frozen)


def _gelu() -> Activation:
    return Activation("gelu", lambda z: z * special.ndtr(z), _facts(_ANALYTIC_UNIQUE))


def _gelu_tanh() -> Activation:
    root = math.sqrt(2 / math.pi)
    return Activation(
        "gelu_tanh",
        lambda z: 0.5 * z * (1 + np.tanh(root * (z + 0.044715 * z**3))),
        _facts(_ANALYTIC_UNIQUE),
    )


def _swish(beta: float = 1.0) -> Activation:
    if beta == 0:
        raise ActivationError("swish(0) is linear", hint="use identity and halve w_down")
    name = "silu" if beta == 1 else f"swish({beta!r})"
    return Activation(name, lambda z: z * special.expit(beta * z), _facts(_ANALYTIC_UNIQUE))


def _quick_gelu() -> Activation:
    return replace(_swish(1.702), name="quick_gelu")


def _hard_sigmoid(z: Array) -> Array:
    return np.clip(z + 3, 0, 6) / 6


def _hard_swish() -> Activation:
    facts = _facts(
        _GATED_IDENTITY, smoothness=Smoothness.SPLINE, independence=Independence.DIRECTION
    )
    return Activation("hard_swish", lambda z: z * _hard_sigmoid(z), facts)


def _softplus(beta: float = 1.0) -> Activation:
    if beta <= 0:
        raise ActivationError(f"softplus needs β > 0, not {beta!r}")
    name = "softplus" if beta == 1 else f"softplus({beta!r})"
    facts = _facts(_ANALYTIC_UNIQUE, value_at_zero=math.log(2) / beta)

    def function(z: Array) -> Array:
        return np.maximum(z, 0) + np.log1p(np.exp(-np.abs(beta * z))) / beta

    return Activation(name, function, facts)


def _squareplus(b: float = 4.0) -> Activation:
    if b <= 0:
        raise ActivationError(f"squareplus needs b > 0, not {b!r}", hint="b = 0 is relu")
    name = "squareplus" if b == 4 else f"squareplus({b!r})"
    facts = _facts(_ANALYTIC_UNIQUE, value_at_zero=math.sqrt(b) / 2)
    root = math.sqrt(b)

    def function(z: Array) -> Array:
        far = np.hypot(z / 2, root / 2) + np.abs(z / 2)
        return np.where(z > 0, far, b / far / 4)  # the other half, without cancellation

    return Activation(name, function, facts)


def _log_sigmoid() -> Activation:
    facts = _facts(_ANALYTIC_UNIQUE, value_at_zero=-math.log(2))
    return Activation("log_sigmoid", lambda z: np.asarray(special.log_expit(z)), facts)


_ONE_SIDED = {
    "growth": Growth.LINEAR,
    "value_at_zero": 0.0,
    "continuous_at_zero": True,
    "one_sided": True,
}


def _mish() -> Activation:
    facts = _facts(_ONE_SIDED, derivative_at_zero=0.6, smoothness=Smoothness.ANALYTIC)
    return Activation("mish", lambda z: z * np.tanh(np.logaddexp(0, z)), facts)


def _elu_like(name: str, scale: float, alpha: float, rate: float) -> Activation:
    """scale·z for z > 0, scale·alpha·(e^{z/rate} − 1) otherwise."""
    left, right = scale * alpha / rate, scale
    facts = _facts(_ONE_SIDED, derivative_at_zero=right if left == right else None)

    def function(z: Array) -> Array:
        return np.where(z > 0, scale * z, scale * alpha * np.expm1(np.minimum(z, 0) / rate))

    return Activation(name, function, facts)


def _elu(alpha: float = 1.0) -> Activation:
    if alpha == 0:
        raise ActivationError("elu(0) is relu", hint="use relu")
    return _elu_like("elu" if alpha == 1 else f"elu({alpha!r})", 1.0, alpha, 1.0)


def _celu(alpha: float = 1.0) -> Activation:
    if alpha <= 0:
        raise ActivationError(f"celu needs α > 0, not {alpha!r}")
    return _elu_like("celu" if alpha == 1 else f"celu({alpha!r})", 1.0, alpha, alpha)


def _selu() -> Activation:
    return _elu_like(
        "selu", 1.0507009873554804934193349852946, 1.6732632423543772848170429916717, 1
    )


def _bounded(name: str, function: ScalarFunction, **changes: Any) -> Activation:
    return Activation(name, function, _facts(_SIGMOIDAL, **changes))


def _power(name: str, k: int, function: ScalarFunction, **changes: Any) -> Activation:
    facts = Facts(
        growth=Growth.SUPERLINEAR,
        value_at_zero=0.0,
        homogeneity=Fraction(k),
        continuous_at_zero=True,
        derivative_at_zero=0.0,
        smoothness=changes.pop("smoothness", Smoothness.ANALYTIC),
        **changes,
    )
    return Activation(name, function, facts)


def _gaussian(sigma: float = 1.0) -> Activation:
    """exp(−z²/(2σ²))."""
    if sigma == 0:
        raise ActivationError("gaussian needs σ ≠ 0")
    name = "gaussian" if sigma == 1 else f"gaussian({sigma!r})"
    facts = Facts(
        growth=Growth.BOUNDED,
        value_at_zero=1.0,
        parity=ZERO,
        even=True,
        continuous_at_zero=True,
        derivative_at_zero=0.0,
        smoothness=Smoothness.ANALYTIC,
    )
    return Activation(name, lambda z: np.exp(-(z * z) / (2 * sigma * sigma)), facts)


def _identity(a: float = 1.0) -> Activation:
    name = "identity" if a == 1 else f"identity({a!r})"
    slope = Fraction(a)
    facts = replace(_leaky_facts(1.0), slope=slope, parity=2 * slope, derivative_at_zero=float(a))
    return Activation(name, lambda z: a * z, facts)


def _shift(c: float = 1.0) -> Activation:
    """z + c, the value half of a gated ``(u + 1)·…`` block."""
    facts = Facts(
        growth=Growth.LINEAR,
        value_at_zero=float(c),
        parity=Fraction(2),
        slope=Fraction(1),
        offset=Fraction(c),
        reflection=2 * Fraction(c),
        continuous_at_zero=True,
        derivative_at_zero=1.0,
        smoothness=Smoothness.ANALYTIC,
    )
    return Activation(f"shift({c!r})", lambda z: z + c, facts)


def _clamped_swish(beta: float = 1.702, limit: float = 7.0) -> Activation:
    """z·sigmoid(βz) at min(z, limit): the gate half of the clamped gated block."""
    if beta <= 0 or limit <= 0:
        raise ActivationError(f"clamped_swish needs β > 0, limit > 0, not {beta!r}, {limit!r}")
    facts = Facts(
        growth=Growth.BOUNDED, value_at_zero=0.0, continuous_at_zero=True, derivative_at_zero=0.5
    )

    def function(z: Array) -> Array:
        clamped = np.minimum(z, limit)
        return clamped * special.expit(beta * clamped)

    return Activation(f"clamped_swish({beta!r},{limit!r})", function, facts)


def _clamped_shift(limit: float = 7.0, c: float = 1.0) -> Activation:
    """clip(z, −limit, limit) + c: the value half of the clamped gated block."""
    if limit <= 0:
        raise ActivationError(f"clamped_shift needs limit > 0, not {limit!r}")
    facts = Facts(
        growth=Growth.BOUNDED,
        value_at_zero=float(c),
        reflection=2 * Fraction(c),
        continuous_at_zero=True,
        derivative_at_zero=1.0,
        smoothness=Smoothness.PIECEWISE_LINEAR,
    )
    return Activation(
        f"clamped_shift({limit!r},{c!r})", lambda z: np.clip(z, -limit, limit) + c, facts
    )


def _hardtanh(low: float = -1.0, high: float = 1.0) -> Activation:
    if not low < high:
        raise ActivationError(f"hardtanh needs low < high, not {low!r}, {high!r}")
    odd = low == -high
    name = "hardtanh" if (low, high) == (-1, 1) else f"hardtanh({low!r},{high!r})"
    return Activation(
        name,
        lambda z: np.clip(z, low, high),
        Facts(
            growth=Growth.BOUNDED,
            value_at_zero=float(np.clip(0.0, low, high)),
            reflection=ZERO if odd else None,
            odd=odd,
            continuous_at_zero=True,
            derivative_at_zero=1.0 if low < 0 < high else None,
            smoothness=Smoothness.PIECEWISE_LINEAR,
        ),
    )


def _clipped_gelu(low: float = -10.0, high: float = 10.0) -> Activation:
    gelu = _gelu()
    facts = Facts(growth=Growth.BOUNDED, value_at_zero=float(np.clip(0.0, low, high)))
    return Activation(
        f"clipped_gelu({low!r},{high!r})", lambda z: np.clip(gelu(z), low, high), facts
    )


_TABLE: dict[str, Callable[..., Activation]] = {
    "relu": _relu,
    "leaky_relu": _leaky_relu,
    "prelu": lambda a=0.25: prelu([a]),
    "relu6": lambda: _bounded(
        "relu6",
        lambda z: np.clip(z, 0, 6),
        reflection=None,
        odd=False,
        derivative_at_zero=None,
        smoothness=Smoothness.PIECEWISE_LINEAR,
    ),
    "relu_squared": lambda: _power(
        "relu_squared",
        2,
        lambda z: np.maximum(z, 0) ** 2,
        square=ONE,
        smoothness=Smoothness.SPLINE,
        independence=Independence.HYPERPLANE,
    ),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "quick_gelu": _quick_gelu,
    "silu": _swish,
    "swish": _swish,
    "hard_swish": _hard_swish,
    "softplus": _softplus,
    "squareplus": _squareplus,
    "log_sigmoid": _log_sigmoid,
    "mish": _mish,
    "elu": _elu,
    "celu": _celu,
    "selu": _selu,
    "tanh": lambda: _bounded("tanh", np.tanh, smoothness=Smoothness.ANALYTIC),
    "sigmoid": lambda: _bounded(
        "sigmoid",
        special.expit,
        value_at_zero=0.5,
        reflection=ONE,
        odd=False,
        derivative_at_zero=0.25,
        smoothness=Smoothness.ANALYTIC,
        independence=Independence.SIGN,
    ),
    "erf": lambda: _bounded(
        "erf",
        special.erf,
        derivative_at_zero=2 / math.sqrt(math.pi),
        smoothness=Smoothness.ANALYTIC,
    ),
    "hardtanh": _hardtanh,
    "hard_sigmoid": lambda: _bounded(
        "hard_sigmoid",
        _hard_sigmoid,
        value_at_zero=0.5,
        reflection=ONE,
        odd=False,
        derivative_at_zero=1 / 6,
        smoothness=Smoothness.PIECEWISE_LINEAR,
        independence=Independence.DIRECTION,
    ),
    "softsign": lambda: _bounded("softsign", lambda z: z / (1 + np.abs(z))),
    "abs": lambda: replace(_leaky_relu(-1.0), name="abs"),
    "square": lambda: _power("square", 2, np.square, even=True, parity=ZERO),
    "cube": lambda: _power("cube", 3, lambda z: z**3, odd=True, reflection=ZERO),
    "identity": _identity,
    "sine": lambda: _bounded("sine", np.sin, smoothness=Smoothness.ANALYTIC),
    "gaussian": _gaussian,
    "shift": _shift,
    "clamped_swish": _clamped_swish,
    "clamped_shift": _clamped_shift,
    "clipped_gelu": _clipped_gelu,
}

#: Spellings of model configurations, compared after dropping case, '_' and '-'.
_ALIASES = {
    "leakyrelu": "leaky_relu",
    "lrelu": "leaky_relu",
    "relu2": "relu_squared",
    "squaredrelu": "relu_squared",
    "sqrrelu": "relu_squared",
    "gelunew": "gelu_tanh",
    "gelufast": "gelu_tanh",
    "gelupytorchtanh": "gelu_tanh",
    "gelupython": "gelu",
    "gelupythontanh": "gelu_tanh",
    "geluaccurate": "gelu_tanh",
    "geluerf": "gelu",
    "gelu10": "clipped_gelu",
    "gatedgelu": "gelu_tanh",
    "gatedsilu": "silu",
    "gatedrelu": "relu",
    "hardswish": "hard_swish",
    "hswish": "hard_swish",
    "hardsigmoid": "hard_sigmoid",
    "hsigmoid": "hard_sigmoid",
    "logsigmoid": "log_sigmoid",
    "absolute": "abs",
    "linear": "identity",
    "none": "identity",
    "sin": "sine",
    "gauss": "gaussian",
    "logistic": "sigmoid",
}

#: Gated kinds by their usual names: (gate activation, value activation).
_GATED = {
    "swiglu": ("silu", "identity"),
    "geglu": ("gelu", "identity"),
    "reglu": ("relu", "identity"),
    "glu": ("sigmoid", "identity"),
    "bilinear": ("identity", "identity"),
    "clampedswiglu": ("clamped_swish(1.702,7)", "clamped_shift(7,1)"),
    "shiftedswiglu": ("swish(1.702)", "shift(1)"),
}

_CALL = re.compile(r"\s*([A-Za-z0-9_\-]+)\s*(?:\(\s*([^()]*?)\s*\))?\s*")
_registered: dict[str, Activation] = {}
_interned: dict[str, Activation] = {}  # one object a function, however it was spelled


def _squash(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


_CANONICAL = {_squash(name): name for name in _TABLE}


def known_names() -> tuple[str, ...]:
    """Every canonical name, the registered ones last."""
    return (*_TABLE, *_registered)


def resolve(activation: str | Activation) -> Activation:
    """The activation of that name, in any spelling that model configurations use.

    Parameters stand in parentheses: ``"leaky_relu(0.1)"``, ``"softplus(2)"``; a fraction
    such as ``-1/2`` is read as the nearest float64.  Raises :class:`ActivationError`,
    listing the near matches, for an unknown name.
    """
    return activation if isinstance(activation, Activation) else _resolve_name(activation)


@functools.lru_cache(maxsize=256)
def _resolve_name(text: str) -> Activation:
    if text in _registered:
        return _registered[text]
    call = _CALL.fullmatch(text)
    if call is None:
        raise ActivationError(
            f"cannot read the activation {text!r}", hint="write name or name(a, b)"
        )
    squashed = _squash(call[1])
    name = _CANONICAL.get(squashed) or _ALIASES.get(squashed)
    if name is None:
        raise ActivationError(f"unknown activation {text!r}", hint=_suggestion(call[1]))
    parameters = _parameters(call[2], text)
    try:
        activation = _TABLE[name](*parameters)
    except TypeError:
        raise ActivationError(f"{name} does not take {len(parameters)} parameters") from None
    return _interned.setdefault(activation.name, activation)


def _parameters(text: str | None, whole: str) -> tuple[float, ...]:
    try:
        values = tuple(_number(part) + 0.0 for part in text.split(",")) if text else ()  # no −0
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ActivationError(f"the parameters of {whole!r} are not numbers") from None
    if not all(map(math.isfinite, values)):
        raise ActivationError(f"the parameters of {whole!r} are not finite")
    return values


def _number(text: str) -> float:
    """A decimal, or a fraction of two whole numbers."""
    numerator, slash, denominator = text.partition("/")
    return int(numerator) / int(denominator) if slash else float(text)


def _suggestion(name: str) -> str:
    spellings = {**_CANONICAL, **_ALIASES, **{_squash(n): n for n in _registered}}
    close = difflib.get_close_matches(_squash(name), spellings, n=5, cutoff=0.5)
    near = list(dict.fromkeys(spellings[c] for c in close))
    known = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(known_names())}"
    return f"{known} (unskip.activations.register adds your own)"


def resolve_gated(activation: str | Activation) -> tuple[Activation, Activation]:
    """(gate, value) activations of a gated block: ``"swiglu"``, ``"glu"`` …, or any gate name."""
    if isinstance(activation, str) and _squash(activation) in _GATED:
        gate, value = _GATED[_squash(activation)]
        return resolve(gate), resolve(value)
    return resolve(activation), resolve("identity")


def register(name: str, function: ScalarFunction, facts: Facts) -> Activation:
    """Make an activation of one's own known by ``name``.

    ``function`` maps a float64 array to one of the same shape.  The declared facts become
    hypotheses of proofs; they are tried on a grid of points, and one that the function
    contradicts raises :class:`FactContradicted` with the point.  Passing the trial is no
    proof: the facts are the user's word, and verdicts that rest on them say so.

    Raises :class:`ActivationError` where the name is taken, or where the function is not an
    elementwise one of finite real values.
    """
    call = _CALL.fullmatch(name)
    word = _squash(call[1] if call else name)
    if name in _registered or any(word in names for names in (_CANONICAL, _ALIASES, _GATED)):
        raise ActivationError(f"the name {name!r} is taken", hint="choose another one")
    if isinstance(facts.parity, tuple):
        raise ActivationError(f"{name}: declare one parity constant", hint="prelu has one a neuron")
    activation = Activation(name, function, facts, declared=True)
    _try_function(activation)
    refuted = contradiction(activation)
    if refuted is not None:
        fact, point = refuted
        raise FactContradicted(f"{name}: {fact} is false at z = {point!r}", point=point)
    _registered[name] = activation
    _resolve_name.cache_clear()
    return activation


# --------------------------------------------------------------------------------------
# Trying facts.  The tolerance covers float64 rounding of a well-behaved implementation.

_GRID = np.unique(
    np.concatenate(
        [np.linspace(-12, 12, 4801), np.geomspace(1e-6, 1e4, 200), -np.geomspace(1e-6, 1e4, 200)]
    )
)
_RTOL = 1e-9
#: An activation that grows fast may overflow float64 beyond this.
_FINITE_UP_TO = 100.0


def _try_function(activation: Activation) -> None:
    """Refuse what is no elementwise function: other shapes, NaN, infinities, mixed entries."""
    name = activation.name
    several = _GRID[: _GRID.size // 3 * 3].reshape(-1, 3)
    with np.errstate(all="ignore"):
        for z in (_GRID, several, np.zeros(()), np.zeros((0, 3))):
            try:
                value = np.asarray(activation(z))
            except Exception as error:
                raise ActivationError(
                    f"{name}: the function fails on an array of shape {z.shape}: "
                    f"{type(error).__name__}: {error}",
                    hint="it is given a float64 array of any shape",
                ) from error
            if value.shape != z.shape or value.dtype.kind not in "fiub":
                raise ActivationError(
                    f"{name}: on an array of shape {z.shape} the function returns "
                    f"{value.dtype} of shape {value.shape}",
                    hint="it must return real numbers, one for each entry",
                )
        value = np.asarray(activation(_GRID), dtype=np.float64)
        bad = np.isnan(value) | (np.isinf(value) & (np.abs(_GRID) <= _FINITE_UP_TO))
        if bad.any():
            i = int(np.argmax(bad))
            raise ActivationError(
                f"{name}: the function is {float(value[i])!r} at z = {float(_GRID[i])!r}",
                hint="an activation is finite everywhere",
            )
        few = np.asarray(activation(_GRID[-2::-3]), dtype=np.float64)
    if not np.allclose(few, value[-2::-3], rtol=_RTOL, atol=_RTOL, equal_nan=True):
        raise ActivationError(
            f"{name}: a value depends on the other entries of the array",
            hint="an activation acts on each entry by itself",
        )


def contradiction(activation: Activation) -> tuple[str, float] | None:
    """The first declared fact that σ contradicts, with a point; ``None`` when all survive.

    Parity, homogeneity, evenness and the like are tried on a grid of several thousand
    points; growth on points up to 1e300; derivatives by differences around 0.
    """
    facts, sigma = activation.facts, activation
    if activation.slopes is not None:
        return None  # built by prelu(), whose facts are read off the slopes
    z = _GRID
    with np.errstate(all="ignore"):
        plus, minus = sigma(z), sigma(-z)
        scale = np.abs(plus) + np.abs(minus) + np.abs(z) * _RTOL + _RTOL
        equations: list[tuple[str, Array, Array]] = []
        if isinstance(facts.parity, Fraction):
            equations.append(
                (
                    f"parity σ(z) − σ(−z) = {facts.parity} z",
                    plus - minus - float(facts.parity) * z,
                    scale + np.abs(z),
                )
            )
        if facts.reflection is not None:
            equations.append(
                (
                    f"reflection σ(z) + σ(−z) = {facts.reflection}",
                    plus + minus - float(facts.reflection),
                    scale,
                )
            )
        if facts.square is not None:
            equations.append(
                (
                    f"σ(z) + σ(−z) = {facts.square} z²",
                    plus + minus - float(facts.square) * z * z,
                    scale + z * z,
                )
            )
        if facts.even:
            equations.append(("evenness", plus - minus, scale))
        if facts.odd:
            equations.append(("oddness", plus + minus, scale))
        if facts.slope is not None:
            line = float(facts.slope) * z + float(facts.offset)
            equations.append((f"σ(z) = {facts.slope} z + {facts.offset}", plus - line, scale))
        if facts.homogeneity is not None:
            k = float(facts.homogeneity)
            for t in (0.3, 2.0, 17.0):
                scaled = sigma(t * z)
                equations.append(
                    (
                        f"homogeneity of degree {facts.homogeneity}",
                        scaled - t**k * plus,
                        np.abs(scaled) + t**k * scale,
                    )
                )
        for fact, error, size in equations:
            wrong = ~(np.abs(error) <= _RTOL * size)
            if wrong.any():
                return fact, float(z[np.argmax(wrong)])
        return _contradiction_at_zero(sigma, facts) or _contradiction_at_infinity(sigma, facts)


def _contradiction_at_zero(sigma: Activation, facts: Facts) -> tuple[str, float] | None:
    value = float(sigma(0.0))
    if not math.isclose(value, facts.value_at_zero, rel_tol=1e-12, abs_tol=1e-300):
        return f"σ(0) = {facts.value_at_zero!r}", 0.0
    for h in (1e-7, -1e-7):
        near = float(sigma(h))
        if facts.continuous_at_zero and not abs(near - value) <= 1e-3:
            return "continuity at 0", h
        if facts.derivative_at_zero is not None and not (
            abs((near - value) / h - facts.derivative_at_zero) <= 1e-4
        ):
            return f"σ'(0) = {facts.derivative_at_zero!r}", h
    return None


def _contradiction_at_infinity(sigma: Activation, facts: Facts) -> tuple[str, float] | None:
    for sign in (1.0, -1.0):
        at = {x: float(sigma(sign * x)) for x in (1e3, 1e6, 1e300)}
        size = {x: abs(y) for x, y in at.items()}
        if facts.growth is Growth.BOUNDED and not size[1e300] <= 2 * size[1e6] + 1e3:
            return "boundedness", sign * 1e300
        if facts.growth is Growth.SUBLINEAR and not size[1e300] / 1e300 <= 0.5 * size[1e3] / 1e3:
            return "growth o(|z|)", sign * 1e300
        if facts.growth is Growth.LINEAR and not size[1e300] / 1e300 <= 2 * size[1e6] / 1e6 + 1e3:
            return "linear growth", sign * 1e300
        if facts.even_recession is not None:
            limit = float(facts.even_recession)
            if not abs(at[1e300] / 1e300 - limit) <= 1e-6:
                return f"σ(z)/|z| → {facts.even_recession}", sign * 1e300
    return None


def names_of(activations: Sequence[Activation]) -> str:
    """Their names, joined by ' × ' (gate and value of a gated block)."""
    return " × ".join(a.name for a in activations)
