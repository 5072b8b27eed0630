"""Activations against independent formulas, and every fact in the table against mpmath."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

import mpmath as mp
import numpy as np
import pytest
import sympy
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import unskip
from unskip import ResidualBlock, activations, check, decide
from unskip.activations import (
    Activation,
    Facts,
    Growth,
    Independence,
    contradiction,
    known_names,
    prelu,
    register,
    resolve,
    resolve_gated,
)
from unskip.errors import ActivationError, FactContradicted

EPS = sys.float_info.epsilon
TINY = math.ulp(0.0)
DIGITS = 60  # of mpmath: leaves forty after the cancellation of any difference below

# --------------------------------------------------------------------------------------
# The formulas once more, by hand, at any precision.


def half(x: mp.mpf) -> mp.mpf:
    return x / 2


def sigmoid(z: mp.mpf) -> mp.mpf:
    return 1 / (1 + mp.exp(-z))


def softplus(z: mp.mpf) -> mp.mpf:
    return z + mp.log1p(mp.exp(-z)) if z > 0 else mp.log1p(mp.exp(z))


def phi(z: mp.mpf) -> mp.mpf:
    # 10^(−2·10⁷) at −10⁴ is nothing, and mpmath does not go on for ever
    return half(mp.erfc(-z / mp.sqrt(2))) if z > -(10**4) else mp.mpf(0)


def hard_sigmoid(z: mp.mpf) -> mp.mpf:
    return clip(z / 6 + mp.mpf(1) / 2, 0, 1)


def clip(z: mp.mpf, low: float, high: float) -> mp.mpf:
    return min(max(z, mp.mpf(low)), mp.mpf(high))


def leaky(a: float) -> Callable[[mp.mpf], mp.mpf]:
    return lambda z: z if z > 0 else mp.mpf(a) * z


def elu(scale: float, alpha: float, rate: float) -> Callable[[mp.mpf], mp.mpf]:
    s, a, r = mp.mpf(scale), mp.mpf(alpha), mp.mpf(rate)
    return lambda z: s * z if z > 0 else s * a * mp.expm1(z / r)


def tanh_gelu(z: mp.mpf) -> mp.mpf:
    inner = mp.sqrt(2 / mp.pi) * (z + mp.mpf(0.044715) * z**3)
    return z * sigmoid(2 * inner)  # (1 + tanh t)/2 = sigmoid(2t), without cancellation


class Row(NamedTuple):
    """What theory §2 says of one activation."""

    formula: Callable[[mp.mpf], mp.mpf]
    parity: Fraction | int | None
    growth: str
    #: the least bound of |σ|, where there is one
    supremum: float | None = None
    even: bool = False
    odd: bool = False
    homogeneity: int | None = None
    independence: Independence = Independence.UNKNOWN


HYPERPLANE, SIGN, DIRECTION = (
    Independence.HYPERPLANE,
    Independence.SIGN,
    Independence.DIRECTION,
)
GELU_LIKE = {"parity": 1, "growth": "linear", "independence": SIGN}
RELU_LIKE = {"growth": "linear", "homogeneity": 1, "independence": HYPERPLANE}
ELU_LIKE = {"parity": None, "growth": "linear"}
BOUNDED = {"parity": None, "growth": "bounded"}
LINEAR = {"growth": "linear", "odd": True, "homogeneity": 1}
SELU_SCALE, SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717

TABLE = {
    "relu": Row(leaky(0), 1, **RELU_LIKE),
    "leaky_relu": Row(leaky(0.01), 1 + Fraction(0.01), **RELU_LIKE),
    "leaky_relu(-1/2)": Row(leaky(-0.5), Fraction(1, 2), **RELU_LIKE),
    "leaky_relu(3)": Row(leaky(3), 4, **RELU_LIKE),
    "leaky_relu(-1)": Row(leaky(-1), 0, "linear", even=True, homogeneity=1),
    "leaky_relu(1)": Row(leaky(1), 2, **LINEAR),
    "prelu": Row(leaky(0.25), Fraction(5, 4), **RELU_LIKE),
    "abs": Row(abs, 0, "linear", even=True, homogeneity=1),
    "identity": Row(lambda z: z, 2, **LINEAR),
    "identity(-3/4)": Row(lambda z: -3 * z / 4, Fraction(-3, 2), **LINEAR),
    "shift": Row(lambda z: z + 1, 2, "linear"),
    "shift(-2)": Row(lambda z: z - 2, 2, "linear"),
    "gelu": Row(lambda z: z * phi(z), **GELU_LIKE),
    "gelu_tanh": Row(tanh_gelu, **GELU_LIKE),
    "silu": Row(lambda z: z * sigmoid(z), **GELU_LIKE),
    "swish": Row(lambda z: z * sigmoid(z), **GELU_LIKE),
    "swish(-2)": Row(lambda z: z * sigmoid(-2 * z), **GELU_LIKE),
    "quick_gelu": Row(lambda z: z * sigmoid(mp.mpf(1.702) * z), **GELU_LIKE),
    "softplus": Row(softplus, **GELU_LIKE),
    "softplus(2)": Row(lambda z: softplus(2 * z) / 2, **GELU_LIKE),
    "squareplus": Row(lambda z: half(z + mp.sqrt(z * z + 4)), **GELU_LIKE),
    "squareplus(1/2)": Row(lambda z: half(z + mp.sqrt(z * z + half(1))), **GELU_LIKE),
    "log_sigmoid": Row(lambda z: -softplus(-z), **GELU_LIKE),
    "hard_swish": Row(lambda z: z * hard_sigmoid(z), 1, "linear", independence=DIRECTION),
    "mish": Row(lambda z: z * mp.tanh(softplus(z)), **ELU_LIKE),
    "elu": Row(elu(1, 1, 1), **ELU_LIKE),
    "elu(1/2)": Row(elu(1, 0.5, 1), **ELU_LIKE),
    "elu(-2)": Row(elu(1, -2, 1), **ELU_LIKE),
    "celu": Row(elu(1, 1, 1), **ELU_LIKE),
    "celu(2)": Row(elu(1, 2, 2), **ELU_LIKE),
    "selu": Row(elu(SELU_SCALE, SELU_ALPHA, 1), **ELU_LIKE),
    "tanh": Row(mp.tanh, **BOUNDED, supremum=1, odd=True),
    "sigmoid": Row(sigmoid, **BOUNDED, supremum=1, independence=SIGN),
    "erf": Row(mp.erf, **BOUNDED, supremum=1, odd=True),
    "softsign": Row(lambda z: z / (1 + abs(z)), **BOUNDED, supremum=1, odd=True),
    "sine": Row(mp.sin, **BOUNDED, supremum=1, odd=True),
    "relu6": Row(lambda z: clip(z, 0, 6), **BOUNDED, supremum=6),
    "hardtanh": Row(lambda z: clip(z, -1, 1), **BOUNDED, supremum=1, odd=True),
    "hardtanh(-2,3)": Row(lambda z: clip(z, -2, 3), **BOUNDED, supremum=3),
    "hardtanh(0,6)": Row(lambda z: clip(z, 0, 6), **BOUNDED, supremum=6),
    "hardtanh(1,2)": Row(lambda z: clip(z, 1, 2), **BOUNDED, supremum=2),
    "hard_sigmoid": Row(hard_sigmoid, **BOUNDED, supremum=1, independence=DIRECTION),
    "clamped_swish": Row(
        lambda z: min(z, 7) * sigmoid(mp.mpf(1.702) * min(z, 7)), **BOUNDED, supremum=7
    ),
    "clamped_shift": Row(lambda z: clip(z, -7, 7) + 1, **BOUNDED, supremum=8),
    "clipped_gelu": Row(lambda z: clip(z * phi(z), -10, 10), **BOUNDED, supremum=10),
    "gaussian": Row(lambda z: mp.exp(half(-z * z)), 0, "bounded", supremum=1, even=True),
    "gaussian(1/2)": Row(lambda z: mp.exp(-2 * z * z), 0, "bounded", supremum=1, even=True),
    "square": Row(lambda z: z * z, 0, "faster than linear", even=True, homogeneity=2),
    "cube": Row(lambda z: z**3, None, "faster than linear", odd=True, homogeneity=3),
    "relu_squared": Row(
        lambda z: max(z, 0) ** 2,
        None,
        "faster than linear",
        homogeneity=2,
        independence=HYPERPLANE,
    ),
}
#: Their facts at 0 are left unclaimed, which is allowed.
SILENT_AT_ZERO = {"clipped_gelu", "hardtanh(1,2)"}
each = pytest.mark.parametrize("name", TABLE)


def exact(name: str, z: float | mp.mpf) -> mp.mpf:
    return +TABLE[name].formula(mp.mpf(z))


def test_the_table_covers_every_name() -> None:
    assert {name.partition("(")[0] for name in TABLE} == set(known_names())


# --------------------------------------------------------------------------------------
# Values.

NEAR = np.unique(np.concatenate([np.linspace(-30, 30, 241), [-1e-3, 1e-3, -1e-9, 1e-9]]))
FAR = np.array([-(10.0**k) for k in range(2, 301, 6)] + [10.0**k for k in range(2, 301, 6)])
SMALL = np.array([0.0, -0.0, TINY, -TINY, 1e-300, -1e-300, 1e-30, -1e-30])


def rounding(z: float, value: mp.mpf) -> float:
    """A few ulps of the argument and of the value: what any implementation may lose."""
    return 8 * EPS * (abs(z) + float(abs(value))) + 4 * TINY


@each
def test_values(name: str) -> None:
    sigma = resolve(name)
    with mp.workdps(DIGITS):
        for z in np.concatenate([NEAR, FAR, SMALL]).tolist():
            value = exact(name, z)
            if abs(value) < sys.float_info.max:
                assert abs(mp.mpf(float(sigma(z))) - value) <= rounding(z, value), z
            else:
                assert abs(float(sigma(z))) == math.inf


#: p, where the relative condition number |zσ'/σ| grows as |z|^p for z → −∞.
TAILS = {
    "gelu": 2,
    "silu": 1,
    "quick_gelu": 1,
    "softplus": 1,
    "softplus(2)": 1,
    "log_sigmoid": 0,
    "sigmoid": 1,
    "squareplus": 0,
    "mish": 1,
    "gaussian": 2,
}


@pytest.mark.parametrize("name", TAILS)
def test_left_tails_keep_their_relative_accuracy(name: str) -> None:
    """1 + tanh and the like would have none left; a factor 8 is a few ulps of each step."""
    with mp.workdps(DIGITS):
        for z in np.linspace(-30, 0, 121).tolist():
            value = exact(name, z)
            allowed = 8 * EPS * (1 + abs(z) ** TAILS[name]) * abs(value)
            assert abs(mp.mpf(float(resolve(name)(z))) - value) <= allowed, z


TORCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "leaky_relu(-1/2)": lambda z: F.leaky_relu(z, -0.5),
    "prelu": lambda z: F.prelu(z, torch.tensor([0.25], dtype=torch.float64)),
    "relu6": F.relu6,
    "gelu": F.gelu,
    "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
    "silu": F.silu,
    "hard_swish": F.hardswish,
    "softplus": lambda z: F.softplus(z, threshold=40),  # at 20, torch drops 2e-9
    "softplus(2)": lambda z: F.softplus(z, beta=2, threshold=40),
    "log_sigmoid": F.logsigmoid,
    "mish": F.mish,
    "elu": F.elu,
    "elu(1/2)": lambda z: F.elu(z, alpha=0.5),
    "celu(2)": lambda z: F.celu(z, alpha=2.0),
    "selu": F.selu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "hardtanh": F.hardtanh,
    "hardtanh(-2,3)": lambda z: F.hardtanh(z, -2.0, 3.0),
    "hard_sigmoid": F.hardsigmoid,
    "softsign": F.softsign,
    "abs": torch.abs,
    "square": torch.square,
    "relu_squared": lambda z: F.relu(z) ** 2,
}


def assert_as_torch(
    activation: str, function: Callable[[torch.Tensor], torch.Tensor], slack: float = 0.0
) -> None:
    z = np.concatenate([NEAR, FAR[np.abs(FAR) <= 1e60], SMALL])
    theirs = function(torch.from_numpy(z)).detach().numpy()
    ours = resolve(activation)(z)
    assert (np.abs(ours - theirs) <= (16 * EPS + slack) * (np.abs(z) + np.abs(theirs))).all()


@pytest.mark.parametrize("name", TORCH)
def test_values_are_those_of_torch(name: str) -> None:
    assert_as_torch(name, TORCH[name])


@each
def test_shape_and_type(name: str) -> None:
    sigma = resolve(name)
    for z in (0.5, [1, 2, 3], np.ones((2, 3, 4), np.float32), np.zeros((0, 3))):
        value = sigma(z)
        assert np.shape(value) == np.shape(z)
        assert np.asarray(value).dtype == np.float64


# --------------------------------------------------------------------------------------
# Facts.  They are verified on the formulas above, which test_values ties to the functions.

POINTS = [Fraction(n, 16) for n in (1, 3, 8, 16, 21, 32, 47, 80, 119, 320, 1600)]


def points() -> Iterator[mp.mpf]:
    for point in POINTS:
        yield mp.mpf(point.numerator) / point.denominator
    yield mp.mpf(10) ** 9


def vanishes(error: mp.mpf, *sizes: mp.mpf) -> bool:
    return abs(error) <= mp.mpf(10) ** (15 - DIGITS) * (1 + sum(map(abs, sizes)))


@each
def test_parity_constant(name: str) -> None:
    """σ(z) − σ(−z) = κz, with the κ of the theory; where there is none, none will do."""
    expected = TABLE[name].parity
    assert resolve(name).facts.parity == expected
    with mp.workdps(DIGITS):
        differences = [(z, exact(name, z) - exact(name, -z)) for z in points()]
        if expected is None:
            ratios = [difference / z for z, difference in differences]
            assert max(ratios) - min(ratios) > 1e-3
        else:
            kappa = mp.mpf(Fraction(expected).numerator) / Fraction(expected).denominator
            assert all(vanishes(diff - kappa * z, z) for z, diff in differences)


@each
def test_even_odd_and_reflection(name: str) -> None:
    row, facts = TABLE[name], resolve(name).facts
    assert (facts.even, facts.odd) == (row.even, row.odd)
    with mp.workdps(DIGITS):
        pairs = [(exact(name, z), exact(name, -z)) for z in points()]
        assert all(vanishes(p - q, p) for p, q in pairs) == row.even
        sums = [p + q for p, q in pairs]
        assert all(vanishes(s, *p) for s, p in zip(sums, pairs, strict=True)) == row.odd
        constant = all(vanishes(s - sums[0], *p) for s, p in zip(sums, pairs, strict=True))
        assert constant == (facts.reflection is not None)
        if facts.reflection is not None:
            assert vanishes(sums[0] - float(facts.reflection), sums[0])


@each
def test_homogeneity_and_linearity(name: str) -> None:
    row, facts = TABLE[name], resolve(name).facts
    assert facts.homogeneity == row.homogeneity
    with mp.workdps(DIGITS):
        base = exact(name, 1), exact(name, -1)

        def scales(degree: int) -> bool:
            return all(
                vanishes(exact(name, sign * z) - z**degree * value, exact(name, sign * z))
                for z in points()
                for sign, value in zip((1, -1), base, strict=True)
            )

        assert [k for k in range(6) if scales(k)] == (
            [] if row.homogeneity is None else [row.homogeneity]
        )
        offset = exact(name, 0)
        slope = base[0] - offset
        affine = all(
            vanishes(exact(name, s * z) - offset - s * z * slope, exact(name, s * z))
            for z in points()
            for s in (1, -1)
        )
        assert (facts.slope is not None) == affine
        if facts.slope is not None:
            assert (slope, offset) == (float(facts.slope), float(facts.offset))


@each
def test_facts_at_zero(name: str) -> None:
    facts = resolve(name).facts
    with mp.workdps(DIGITS):
        value, h = exact(name, 0), mp.mpf(10) ** -25
        assert abs(value - facts.value_at_zero) <= EPS * abs(value)
        right, left = (exact(name, h) - value) / h, (value - exact(name, -h)) / h
        if name not in SILENT_AT_ZERO:
            assert facts.continuous_at_zero
            differentiable = abs(right - left) < 1e-20
            assert (facts.derivative_at_zero is not None) == differentiable
        if facts.derivative_at_zero is not None:
            # the declared float64 is rounded once, the quotient errs by σ''(0)·h
            assert abs(right - facts.derivative_at_zero) <= EPS * abs(right) + mp.mpf(10) ** -20


@each
def test_growth(name: str) -> None:
    row, facts = TABLE[name], resolve(name).facts
    assert facts.growth == row.growth
    assert (row.supremum is not None) == (row.growth == "bounded")
    with mp.workdps(DIGITS):
        at = {k: max(abs(exact(name, s * mp.mpf(10) ** k)) for s in (1, -1)) for k in range(301)}
        if row.supremum is not None:
            assert max(at.values()) <= row.supremum
            assert all(abs(exact(name, s * z)) <= row.supremum for z in points() for s in (1, -1))
            return
        slope = {k: at[k] / mp.mpf(10) ** k for k in at}
        if row.growth == "linear":
            assert slope[300] > 0
            assert abs(slope[300] / slope[100] - 1) < 1e-15
        else:
            assert slope[300] > 1e100 * slope[100]


@each
def test_even_recession(name: str) -> None:
    """σ(z)/|z| has the same limit on both sides, other than 0 (which growth would tell)."""
    facts = resolve(name).facts
    with mp.workdps(DIGITS):
        far = mp.mpf(10) ** 300
        right, left = exact(name, far) / far, exact(name, -far) / far
        if facts.growth == "linear":
            assert (facts.even_recession is not None) == (abs(right - left) < 1e-15)
        if facts.even_recession is not None:
            assert right == left == float(facts.even_recession)


SYMBOLIC = {
    "silu": lambda z: z / (1 + sympy.exp(-z)),
    "quick_gelu": lambda z: z / (1 + sympy.exp(-sympy.Rational(1702, 1000) * z)),
    "gelu": lambda z: z * (1 + sympy.erf(z / sympy.sqrt(2))) / 2,
    "gelu_tanh": lambda z: (
        (z * (1 + sympy.tanh(sympy.sqrt(2 / sympy.pi) * (z + sympy.Rational(44715, 10**6) * z**3))))
        / 2
    ),
    "softplus": lambda z: sympy.log(1 + sympy.exp(z)),
    "log_sigmoid": lambda z: -sympy.log(1 + sympy.exp(-z)),
    "squareplus": lambda z: (z + sympy.sqrt(z**2 + 4)) / 2,
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_parity_symbolically(name: str) -> None:
    """The difference vanishes at 0, and so does its derivative everywhere."""
    z = sympy.Symbol("z", real=True)
    sigma = SYMBOLIC[name]
    assert resolve(name).facts.parity == 1
    error = sigma(z) - sigma(-z) - z
    assert sympy.simplify(sympy.diff(error, z)) == 0
    assert sympy.simplify(error.subs(z, 0)) == 0


# --------------------------------------------------------------------------------------
# Independence.  A nonzero collocation determinant proves independence; a vanishing one, at
# points in general position, shows a relation.

NEURONS = [(1, 0), (1, 1), (-1, 0), (-1, -1), (2, 1), (-2, -1), (Fraction(1, 2), -1)]


def collocation(name: str, neurons: list[tuple[Fraction | int, int]]) -> mp.mpf:
    size = len(neurons) + 2
    xs = [mp.mpf(7 * i - 3 * size) / 5 + mp.mpf(1) / 7 for i in range(size)]
    rows = [
        [mp.mpf(1), x, *(exact(name, mp.mpf(float(a)) * x + b) for a, b in neurons)] for x in xs
    ]
    return mp.det(mp.matrix(rows))


@each
def test_one_sided_independence(name: str) -> None:
    """One-sided means: a neuron and its mirror image are independent modulo affine functions."""
    facts = resolve(name).facts
    assert facts.one_sided == (name.partition("(")[0] in ("mish", "elu", "celu", "selu"))
    if facts.one_sided:
        with mp.workdps(DIGITS):
            assert abs(collocation(name, NEURONS)) > 1e-25
    elif facts.parity is not None:
        with mp.workdps(DIGITS):
            assert abs(collocation(name, NEURONS[:4])) < 1e-40


@each
def test_independence_classes(name: str) -> None:
    """Neurons that the declared class calls distinct are independent."""
    kind = resolve(name).facts.independence
    assert kind == TABLE[name].independence
    if kind is SIGN:
        distinct = [(1, 0), (1, 1), (2, 1), (2, 2), (Fraction(1, 2), -1)]
    elif kind is HYPERPLANE:
        distinct = [(1, 3), (2, 3), (1, 0), (-2, 1), (1, -2)]  # kinks between the points
    else:
        return
    with mp.workdps(DIGITS):
        assert abs(collocation(name, distinct)) > 1e-25


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "leaky_relu(-1/2)", "prelu"])
def test_positive_multiples_are_one_kinked_neuron(name: str) -> None:
    """Why HYPERPLANE and not SIGN: distinct pairs on one hyperplane are dependent."""
    with mp.workdps(DIGITS):
        assert abs(collocation(name, [(1, 1), (2, 2)])) < 1e-40


def test_squares_of_opposite_relus_add_up_to_a_square() -> None:
    facts = resolve("relu_squared").facts
    for n in range(-50, 51):
        z = Fraction(n, 7)
        assert max(z, 0) ** 2 + max(-z, 0) ** 2 == facts.square * z * z
    assert all(resolve(n).facts.square is None for n in known_names() if n != "relu_squared")


def test_parallel_hard_swish_neurons_can_cancel() -> None:
    """Why DIRECTION and not SIGN: six distinct parallel neurons sum to zero."""

    def hard_swish(z: Fraction) -> Fraction:
        return z * min(max(z + 3, Fraction(0)), Fraction(6)) / 6

    terms = [(1, 6, -3), (-8, 3, -3), (9, 2, -3), (3, 6, -9), (-8, 3, -6), (1, 6, -15)]
    for n in range(-200, 300):
        x = Fraction(n, 24)
        assert sum(k * hard_swish(a * x + b) for k, a, b in terms) == 0
    assert resolve("hard_swish").facts.independence is DIRECTION


@pytest.mark.parametrize("name", ["hard_swish", "hard_sigmoid"])
def test_neurons_of_different_directions_are_independent(name: str) -> None:
    rows = [(1, 0, 0), (0, 1, 1), (1, 1, -2), (1, -1, 0), (2, 1, 3), (-1, 2, 1)]
    size = len(rows) + 3
    plane = [(mp.mpf(5 * i % 13 - 6), mp.mpf(7 * i % 11 - 5)) for i in range(size)]
    with mp.workdps(DIGITS):
        matrix = [
            [mp.mpf(1), x, y, *(exact(name, a * x + b * y + c) for a, b, c in rows)]
            for x, y in plane
        ]
        assert abs(mp.det(mp.matrix(matrix))) > 1e-25


# --------------------------------------------------------------------------------------
# Parity of the floating-point functions.

PARITY_LINEAR = [name for name, row in TABLE.items() if row.parity is not None]


@settings(max_examples=1000)
@given(st.sampled_from(PARITY_LINEAR), st.floats(allow_nan=False, allow_infinity=False))
def test_parity_for_all_finite_numbers(name: str, z: float) -> None:
    sigma = resolve(name)
    plus, minus = float(sigma(z)), float(sigma(-z))
    if TABLE[name].even:
        assert plus == minus
        return
    kappa = resolve(name).facts.parity
    assume(math.isfinite(plus) and math.isfinite(minus))
    error = Fraction(plus) - Fraction(minus) - kappa * Fraction(z)
    assert abs(error) <= 8 * Fraction(EPS) * (abs(Fraction(z)) + abs(Fraction(plus))) + 8 * TINY


@pytest.mark.parametrize("name", [n for n in TABLE if TABLE[n].growth != "faster than linear"])
def test_nothing_overflows_before_its_value_does(name: str) -> None:
    largest = sys.float_info.max / 4
    values = resolve(name)([largest, -largest])
    assert np.isfinite(values).all()


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6), st.floats(-1e3, 1e3))
def test_prelu_of_one_slope_a_neuron(slopes: list[float], z: float) -> None:
    sigma = prelu(slopes)
    row = np.full((2, len(slopes)), z)
    expected = [z if z > 0 else a * z for a in slopes]
    assert sigma(row).tolist() == [expected, expected]
    kappa = sigma.parity_constants(len(slopes))
    assert kappa == tuple(1 + Fraction(a) for a in slopes)
    difference = sigma(row)[0] - sigma(-row)[0]
    for got, k in zip(difference.tolist(), kappa, strict=True):
        # two roundings: of a·z and of the difference
        assert abs(Fraction(got) - k * Fraction(z)) <= EPS * abs(k * Fraction(z)) + EPS * abs(
            Fraction(z)
        ) + 2 * Fraction(TINY)


def test_prelu_with_one_slope_has_the_facts_of_leaky_relu() -> None:
    for slopes in ([0.25], 0.25, [0.25, 0.25]):
        sigma = prelu(slopes)
        assert sigma.slopes == tuple(np.atleast_1d(slopes))
        assert sigma.facts == resolve("leaky_relu(1/4)").facts
        assert np.array_equal(sigma([[3.0, -2.0]]), [[3.0, -0.5]])
    assert prelu([1.0]).facts.slope == 1
    assert prelu([-1.0]).facts.even


def test_prelu_keeps_its_own_slopes() -> None:
    slopes = np.array([0.5, 0.25])
    sigma = prelu(slopes)
    slopes[:] = 9.0
    assert sigma([[-4.0, -4.0]]).tolist() == [[-2.0, -1.0]]
    assert sigma.slopes == (0.5, 0.25)
    assert sigma == prelu([0.5, 0.25]) != prelu([0.5, 0.5])
    assert hash(sigma) == hash(prelu([0.5, 0.25]))


@pytest.mark.parametrize("slopes", [[], [[0.1, 0.2]], [math.nan], [0.1, math.inf]], ids=str)
def test_prelu_refuses_bad_slopes(slopes: list) -> None:
    with pytest.raises(ActivationError, match="slopes"):
        prelu(slopes)


# --------------------------------------------------------------------------------------
# Names.

UNSUPPORTED = {"laplace", "sqrtsoftplus", "xielu"}


def test_every_spelling_of_transformers() -> None:
    """Each resolves to the function that transformers means, or is listed as unsupported."""
    theirs = pytest.importorskip("transformers.activations")
    assert set(theirs.ACT2CLS) >= UNSUPPORTED
    for name in set(theirs.ACT2CLS) - UNSUPPORTED:
        # gelu_fast rounds √(2/π) to ten digits, a relative 4e-12
        assert_as_torch(name, theirs.ACT2FN[name].double(), 4e-12 if name == "gelu_fast" else 0.0)
    for name in UNSUPPORTED:
        with pytest.raises(ActivationError, match="unknown activation"):
            resolve(name)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("ReLU", "relu"),
        (" gelu ", "gelu"),
        ("relu()", "relu"),
        ("LeakyReLU", "leaky_relu"),
        ("LeakyReLU(0.5)", "leaky_relu(1/2)"),
        ("leaky_relu(0)", "leaky_relu(-0.0)"),
        ("lrelu", "leaky_relu"),
        ("relu2", "relu_squared"),
        ("squared_relu", "relu_squared"),
        ("sqr_relu", "relu_squared"),
        ("ReLUSquared", "relu_squared"),
        ("gelu_new", "gelu_tanh"),
        ("gelu_fast", "gelu_tanh"),
        ("gelu_pytorch_tanh", "gelu_tanh"),
        ("gelu_python_tanh", "gelu_tanh"),
        ("gelu_accurate", "gelu_tanh"),
        ("gelu_python", "gelu"),
        ("gelu_erf", "gelu"),
        ("gelu_10", "clipped_gelu"),
        ("gated-gelu", "gelu_tanh"),
        ("gated-silu", "silu"),
        ("gated-relu", "relu"),
        ("swish", "silu"),
        ("swish(1)", "silu"),
        ("hardswish", "hard_swish"),
        ("h_swish", "hard_swish"),
        ("HardSigmoid", "hard_sigmoid"),
        ("h-sigmoid", "hard_sigmoid"),
        ("LogSigmoid", "log_sigmoid"),
        ("absolute", "abs"),
        ("linear", "identity"),
        ("none", "identity"),
        ("sin", "sine"),
        ("gauss", "gaussian"),
        ("logistic", "sigmoid"),
        ("softplus( 2 )", "softplus(2.0)"),
        ("hardtanh(-1, 1)", "hardtanh"),
    ],
)
def test_spellings(spelling: str, name: str) -> None:
    assert resolve(spelling) == resolve(name)
    assert np.array_equal(resolve(spelling)(NEAR), resolve(name)(NEAR))


def test_equal_parameters_are_one_activation() -> None:
    assert resolve("leaky_relu(-1/2)") is resolve("LeakyReLU(-0.5)")
    assert resolve("leaky_relu(0.5)") != resolve("leaky_relu(0.25)")
    assert len({resolve("silu"), resolve("swish"), resolve("gelu")}) == 2
    assert resolve("relu") != "relu"
    sigma = resolve("relu")
    assert resolve(sigma) is sigma
    assert repr(sigma) == "Activation('relu')"


@pytest.mark.parametrize(
    ("text", "gate", "value"),
    [
        ("swiglu", "silu", "identity"),
        ("SwiGLU", "silu", "identity"),
        ("geglu", "gelu", "identity"),
        ("ReGLU", "relu", "identity"),
        ("glu", "sigmoid", "identity"),
        ("bilinear", "identity", "identity"),
        ("clamped_swiglu", "clamped_swish(1.702,7)", "clamped_shift(7,1)"),
        ("shifted-swiglu", "swish(1.702)", "shift(1)"),
        ("gelu_new", "gelu_tanh", "identity"),
        ("tanh", "tanh", "identity"),
    ],
)
def test_gated_kinds(text: str, gate: str, value: str) -> None:
    assert resolve_gated(text) == (resolve(gate), resolve(value))


@pytest.mark.parametrize(
    ("typo", "near"),
    [("gelu_nwe", "gelu_tanh"), ("rellu", "relu"), ("hardswsh", "hard_swish"), ("tahn", "tanh")],
)
def test_unknown_names_list_near_matches(typo: str, near: str) -> None:
    with pytest.raises(ActivationError, match="unknown activation") as caught:
        resolve(typo)
    assert near in caught.value.hint
    assert "register" in caught.value.hint


def test_a_name_like_no_other_lists_them_all() -> None:
    with pytest.raises(ActivationError) as caught:
        resolve("qqqqqq")
    assert all(name in caught.value.hint for name in known_names())


@pytest.mark.parametrize(
    "text", ["", "gelu(", "relu)", "max(z,0)", "leaky relu", "a.b", "relu((1))"]
)
def test_unreadable_names(text: str) -> None:
    with pytest.raises(ActivationError):
        resolve(text)


@pytest.mark.parametrize(
    "text",
    [
        "relu(3)",
        "leaky_relu(1,2)",
        "hardtanh(1,2,3)",
        "leaky_relu(x)",
        "leaky_relu(1/0)",
        "leaky_relu(1e400)",
        "leaky_relu(nan)",
        "leaky_relu(inf)",
        "leaky_relu(1,)",
        "softplus(0)",
        "softplus(-1)",
        "squareplus(0)",
        "squareplus(-4)",
        "swish(0)",
        "elu(0)",
        "celu(0)",
        "celu(-1)",
        "hardtanh(1,1)",
        "hardtanh(2,-2)",
        "gaussian(0)",
        "clamped_swish(-1)",
        "clamped_swish(1,0)",
        "clamped_swish(1,-2)",
        "clamped_shift(0)",
        "clamped_shift(-7)",
    ],
)
def test_bad_parameters(text: str) -> None:
    with pytest.raises(ActivationError):
        resolve(text)


@given(st.fractions(min_value=-100, max_value=100, max_denominator=1000))
def test_fractions_are_read_as_the_nearest_float(a: Fraction) -> None:
    sigma = resolve(f"leaky_relu({a})")
    assert sigma.facts.parity == 1 + Fraction(float(a))
    assert sigma(-1.0) == -float(a)


@each
def test_the_table_survives_its_own_trial(name: str) -> None:
    assert contradiction(resolve(name)) is None


# --------------------------------------------------------------------------------------
# Activations of one's own.


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(activations, "_registered", {})
    yield
    activations._resolve_name.cache_clear()


def softshrink(z: np.ndarray) -> np.ndarray:
    return z - np.clip(z, -1, 1)


OWN = {
    "cosine": (
        np.cos,
        Facts(growth=Growth.BOUNDED, value_at_zero=1.0, parity=Fraction(0), even=True),
    ),
    "softshrink": (
        softshrink,
        Facts(
            growth=Growth.LINEAR,
            value_at_zero=0.0,
            odd=True,
            reflection=Fraction(0),
            continuous_at_zero=True,
            derivative_at_zero=0.0,
        ),
    ),
    "root": (
        lambda z: np.sqrt(np.abs(z)),
        Facts(
            growth=Growth.SUBLINEAR,
            value_at_zero=0.0,
            parity=Fraction(0),
            homogeneity=Fraction(1, 2),
            even=True,
            continuous_at_zero=True,
        ),
    ),
    "hypot": (
        lambda z: np.hypot(z, 1),
        Facts(
            growth=Growth.LINEAR,
            value_at_zero=1.0,
            even=True,
            derivative_at_zero=0.0,
            even_recession=Fraction(1),
        ),
    ),
    "half": (
        lambda z: z / 2,
        Facts(growth=Growth.LINEAR, value_at_zero=0.0, parity=Fraction(1), slope=Fraction(1, 2)),
    ),
    "my_silu": (
        lambda z: z / (1 + np.exp(-z)),
        Facts(
            growth=Growth.LINEAR,
            value_at_zero=0.0,
            parity=Fraction(1),
            independence=Independence.SIGN,
        ),
    ),
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("repetition", [1, 2])
@pytest.mark.usefixtures("registry")
def test_an_activation_of_ones_own(name: str, repetition: int) -> None:
    """Twice: what was registered the first time has not leaked."""
    function, facts = OWN[name]
    with pytest.raises(ActivationError, match="unknown"):
        resolve(name)
    sigma = register(name, function, facts)
    assert resolve(name) is sigma
    assert known_names()[-1] == name
    assert np.array_equal(sigma(NEAR), function(NEAR))
    with pytest.raises(ActivationError, match=f"did you mean.*{name}"):
        resolve(name + "x")
    block = ResidualBlock(w_up=[[1.0]], w_down=[[2.0]], activation=name)
    assert block([[0.5]])[0, 0] == 0.5 + 2 * float(function(np.float64(0.5)))


NO_CLAIM = {"growth": Growth.SUPERLINEAR, "value_at_zero": 0.0}


def difference_quotient(function: Callable[[float], float], z: float) -> float:
    return (function(z) - function(0.0)) / z


WRONG: dict[str, tuple[Callable, dict, Callable[[Callable, float], bool]]] = {
    "parity": (np.tanh, {"parity": Fraction(1)}, lambda f, z: abs(f(z) - f(-z) - z) > 1e-6),
    "parity as an integer": (np.tanh, {"parity": 1}, lambda f, z: abs(f(z) - f(-z) - z) > 1e-6),
    "reflection": (np.arctan, {"reflection": Fraction(1)}, lambda f, z: f(z) + f(-z) != 1),
    "even": (np.tanh, {"even": True}, lambda f, z: f(z) != f(-z)),
    "odd": (np.abs, {"odd": True}, lambda f, z: f(z) != -f(-z)),
    "slope": (lambda z: np.maximum(z, 0.0), {"slope": Fraction(1)}, lambda f, z: f(z) != z),
    "offset": (
        np.positive,
        {"slope": Fraction(1), "offset": Fraction(1)},
        lambda f, z: f(z) != z + 1,
    ),
    "homogeneity": (
        lambda z: z * np.abs(z),
        {"homogeneity": Fraction(1)},
        lambda f, z: f(2 * z) != 2 * f(z),
    ),
    "value at zero": (np.cos, {}, lambda f, z: z == 0 and f(z) != 0),
    "continuity at zero": (
        np.sign,
        {"continuous_at_zero": True},
        lambda f, z: abs(z) < 1e-5 and abs(f(z) - f(0.0)) == 1,
    ),
    "derivative at zero": (
        np.tanh,
        {"derivative_at_zero": 0.5},
        lambda f, z: abs(z) < 1e-5 and abs(difference_quotient(f, z) - 1) < 1e-6,
    ),
    "derivative at a kink": (
        lambda z: np.maximum(z, 0.0),
        {"derivative_at_zero": 1.0},
        lambda f, z: -1e-5 < z < 0 and difference_quotient(f, z) == 0,
    ),
    "boundedness": (
        lambda z: np.maximum(z, 0.0),
        {"growth": Growth.BOUNDED},
        lambda f, z: abs(f(z)) > 1e200,
    ),
    "boundedness on the left": (
        lambda z: np.minimum(z, 0.0),
        {"growth": Growth.BOUNDED},
        lambda f, z: z < 0 and abs(f(z)) > 1e200,
    ),
    "sublinear growth": (
        np.abs,
        {"growth": Growth.SUBLINEAR},
        lambda f, z: abs(f(z)) >= abs(z) > 1e200,
    ),
    "linear growth": (
        lambda z: z * np.sqrt(np.abs(z)),
        {"growth": Growth.LINEAR},
        lambda f, z: abs(f(z)) / abs(z) > 1e100,
    ),
    "growth of a function with NaN": (
        lambda z: np.where(np.abs(z) > 1e200, np.nan, np.tanh(z)),
        {"growth": Growth.BOUNDED},
        lambda f, z: math.isnan(f(z)),
    ),
    "even recession": (
        lambda z: np.maximum(z, 0.0),
        {"even_recession": Fraction(1)},
        lambda f, z: z < -1e200 and f(z) == 0,
    ),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.usefixtures("registry")
def test_a_contradicted_fact_is_refused_with_a_point(what: str) -> None:
    function, claims, contradicts = WRONG[what]
    with pytest.raises(FactContradicted, match="false at z = ") as caught:
        register("own", function, Facts(**{**NO_CLAIM, **claims}))
    with np.errstate(over="ignore"):
        assert contradicts(lambda z: float(function(np.float64(z))), caught.value.point)
    with pytest.raises(ActivationError, match="unknown"):
        resolve("own")


@pytest.mark.parametrize("what", [w for w in WRONG if w != "value at zero"])
@pytest.mark.usefixtures("registry")
def test_without_the_claim_it_is_accepted(what: str) -> None:
    function, _, _ = WRONG[what]
    register("own", function, Facts(**NO_CLAIM))


@pytest.mark.usefixtures("registry")
def test_one_constant_a_neuron_cannot_be_declared() -> None:
    facts = Facts(**NO_CLAIM, parity=(Fraction(1), Fraction(2)))
    with pytest.raises(ActivationError, match="one parity constant"):
        register("own", np.tanh, facts)


def test_integers_are_read_as_fractions() -> None:
    facts = Facts(**NO_CLAIM, parity=1, homogeneity=1, slope=0.5)
    assert [type(x) for x in (facts.parity, facts.homogeneity, facts.slope)] == [Fraction] * 3
    assert Activation("own", np.positive, facts).parity_constants(2) == (1, 1)


@pytest.mark.parametrize(
    "name",
    ["relu", "ReLU", "re_lu", "gelu-new", "SwiGLU", "leaky_relu(0.5)", " relu", "none", "silu()"],
)
@pytest.mark.usefixtures("registry")
def test_names_that_are_taken(name: str) -> None:
    function, facts = OWN["cosine"]
    with pytest.raises(ActivationError, match="taken"):
        register(name, function, facts)


@pytest.mark.usefixtures("registry")
def test_a_registered_name_is_taken_too() -> None:
    register("own", *OWN["cosine"])
    with pytest.raises(ActivationError, match="taken"):
        register("own", *OWN["softshrink"])
    assert resolve("own")(0.0) == 1.0


@pytest.mark.usefixtures("registry")
def test_verdicts_say_that_they_rest_on_declared_facts() -> None:
    register("own", lambda z: np.maximum(z, 0.0), Facts(**{**NO_CLAIM, "parity": 1}))
    block = ResidualBlock(w_up=np.eye(2), w_down=-np.eye(2), activation="own")
    verdict = decide(block)
    assert verdict.answer == "absorbable"
    assert "the facts of own are as declared" in verdict.reason
    assert "the facts of own are as declared" in check(verdict.certificate, block).sentence


NOT_ELEMENTWISE = {
    "a number": (lambda z: 0.0, "shape"),
    "one axis lost": (lambda z: z.sum(axis=-1) if z.ndim else z, "shape"),
    "flattened": (np.ravel, "shape"),
    "complex": (lambda z: z + 1j, "complex128"),
    "text": (lambda z: np.full(z.shape, "x"), "returns"),
    "nothing": (lambda z: None, "returns"),
    "NaN below 0": (np.sqrt, "nan at z = -"),
    "a pole": (lambda z: np.where(z == 0, np.inf, 1 / np.where(z == 0, 1, z)), "inf at z = 0.0"),
    "softmax": (
        lambda z: np.exp(z - z.max(initial=0)) / np.exp(z - z.max(initial=0)).sum(),
        "other entries",
    ),
    "its own error": (lambda z: z.nothing, "AttributeError"),
    "order": (lambda z: np.cumsum(z).reshape(z.shape), "other entries"),
}


@pytest.mark.parametrize("what", NOT_ELEMENTWISE)
@pytest.mark.usefixtures("registry")
def test_what_is_no_elementwise_function_is_refused(what: str) -> None:
    function, message = NOT_ELEMENTWISE[what]
    with pytest.raises(ActivationError, match=message) as caught:
        register("own", function, Facts(**NO_CLAIM))
    assert caught.type is ActivationError
    assert str(caught.value).startswith("own: ")
    with pytest.raises(ActivationError, match="unknown"):
        resolve("own")


@pytest.mark.usefixtures("registry")
def test_a_function_may_overflow_float64() -> None:
    register("own", np.sinh, Facts(**{**NO_CLAIM, "growth": Growth.SUPERLINEAR}))


def test_what_the_package_exports() -> None:
    assert unskip.Answer.UNKNOWN == "unknown"
    assert unskip.Rule.PRE_NORM == "pre-norm"
    assert unskip.Scope.ANY_WIDTH == "any width"
    assert unskip.NormKind.NONE == "none"
    assert unskip.reduction.Reduction.__module__ == "unskip.reduction"
