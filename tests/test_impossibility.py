"""The unconditional rules: when they apply, how far they reach, and where they must be silent."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import centre, fractions, rank

from unskip import PlainBlock, ResidualBlock, Verdict, check, decide
from unskip.activations import Activation, Facts, Growth, prelu, resolve

D, M = 3, 5
X = np.arange(-200, 201)[:, None] / 16  # dyadic, so that many identities are exact
SHAPES = {"up": ("b_up", M), "gate": ("b_gate", M), "down": ("b_down", D)}


def mlp(activation: str | Activation, biases: str = "", **changes: Any) -> ResidualBlock:
    """A block of random weights; ``biases``: a subset of "up gate down", "=0" for zeros."""
    rng = np.random.default_rng(0)
    arrays = {"w_up": rng.normal(size=(M, D)), "w_down": rng.normal(size=(D, M))}
    if changes.pop("gated", False):
        arrays["w_gate"] = rng.normal(size=(M, D))
    for word in biases.split():
        kind, _, zero = word.partition("=")
        name, size = SHAPES[kind]
        arrays[name] = np.zeros(size) if zero else rng.normal(size=size)
    return ResidualBlock(**{**arrays, "activation": activation, **changes})


def decided(block: ResidualBlock, **options: Any) -> Verdict:
    verdict = decide(block, **options)
    check(verdict.certificate, block)
    return verdict


def impossible(verdict: Verdict) -> bool:
    """Whether it is said that no width suffices."""
    return verdict.answer == "not absorbable" and verdict.scope != "this width"


def assert_never(verdict: Verdict, rule: str, scope: str) -> None:
    assert (verdict.answer, verdict.rule, verdict.scope) == ("not absorbable", rule, scope)
    assert tuple(verdict.width) == (np.inf, np.inf)
    assert verdict.subset is None
    assert verdict.defect is None


DEPTH, WIDTH = "any width, any depth", "any width"
OPTIONS: list[dict[str, bool]] = [
    {},
    {"hidden_bias": True},
    {"output_bias": True},
    {"hidden_bias": True, "output_bias": True},
]

# --------------------------------------------------------------------------------------
# Activations of one's own, to reach what the table does not.


def own(name: str, function: Any, **facts: Any) -> Activation:
    return Activation(name, function, Facts(**facts))


ROOT = own(
    "root",
    lambda z: np.sqrt(np.abs(z)),
    growth=Growth.SUBLINEAR,
    value_at_zero=0.0,
    even=True,
    parity=0,
    homogeneity=Fraction(1, 2),
    continuous_at_zero=True,
)
SIGNED_ROOT = own(
    "signed_root",
    lambda z: np.sign(z) * np.sqrt(np.abs(z)),
    growth=Growth.SUBLINEAR,
    value_at_zero=0.0,
    odd=True,
    reflection=0,
    homogeneity=Fraction(1, 2),
    continuous_at_zero=True,
)
HYPOT = own(
    "hypot",
    lambda z: np.hypot(z, 1),
    growth=Growth.LINEAR,
    value_at_zero=1.0,
    even=True,
    parity=0,
    continuous_at_zero=True,
    derivative_at_zero=0.0,
)
LOG_COSH = own(
    "log_cosh",
    lambda z: np.logaddexp(z, -z) - np.log(2),
    growth=Growth.LINEAR,
    value_at_zero=0.0,
    even=True,
    parity=0,
    continuous_at_zero=True,
    derivative_at_zero=0.0,
)
STEP = own("step", np.sign, growth=Growth.BOUNDED, value_at_zero=0.0, odd=True, homogeneity=0)
#: sign(z)√(1 + z²): 0 at 0 and not continuous there.
JUMP = own(
    "jump",
    lambda z: np.sign(z) * np.hypot(z, 1),
    growth=Growth.LINEAR,
    value_at_zero=0.0,
    odd=True,
    reflection=0,
)

#: z + 1 for z > 0, else 0.
RAMP = own("ramp", lambda z: np.where(z > 0, z + 1, 0.0), growth=Growth.LINEAR, value_at_zero=0.0)

# --------------------------------------------------------------------------------------
# The table: (activation or kind, biases present, rule, scope).

ALL = "up down"
ALL_GATED = "up gate down"
BOUNDED = ["tanh", "sigmoid", "erf", "softsign", "sine", "relu6", "hardtanh", "hard_sigmoid"]
BOUNDED += ["gaussian", "clipped_gelu", "hardtanh(-2,3)", "clamped_swish", STEP, ROOT]
SUPERLINEAR = ["relu_squared", "square", "cube"]
ONE_SIDED = ["mish", "elu", "elu(-2)", "celu(2)", "selu"]
VANISHING = ["swiglu", "geglu", "gelu_tanh", "tanh", "erf", "softsign", "sine", "mish", "elu"]
VANISHING += ["hard_swish", "hardtanh", "relu6"]  # continuous at 0 is enough
HOMOGENEOUS = ["bilinear", "reglu", "abs", "square", "leaky_relu"]
NOT_VANISHING = ["glu", "sigmoid", "hard_sigmoid", "gaussian", "softplus", "shifted_swiglu"]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("biases", ["", "up", "down", ALL, "up=0 down=0"])
@pytest.mark.parametrize("activation", BOUNDED, ids=str)
def test_slow_growth_decides_with_any_biases(
    activation: Any, biases: str, options: dict[str, bool]
) -> None:
    assert_never(decided(mlp(activation, biases), **options), "sublinear-growth", DEPTH)


SLOW_PAIRS = [
    ("clamped_swiglu", None),
    ("sigmoid", "tanh"),
    ("tanh", ROOT),
    (ROOT, "hardtanh"),
    (STEP, STEP),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("biases", ["", "gate", "up", "down", ALL_GATED])
@pytest.mark.parametrize(("gate", "value"), SLOW_PAIRS, ids=str)
def test_slow_products_decide_with_any_biases(
    gate: Any, value: Any, biases: str, options: dict[str, bool]
) -> None:
    block = mlp(gate, biases, gated=True, up_activation=value)
    assert_never(decided(block, **options), "sublinear-growth", DEPTH)


@pytest.mark.parametrize("activation", SUPERLINEAR)
def test_a_degree_other_than_one(activation: str) -> None:
    assert_never(decided(mlp(activation)), "homogeneous-degree", DEPTH)


@pytest.mark.parametrize("kind", HOMOGENEOUS)
def test_products_of_another_degree(kind: str) -> None:
    assert_never(decided(mlp(kind, gated=True)), "homogeneous-degree", DEPTH)


@pytest.mark.parametrize("kind", VANISHING)
def test_gates_that_vanish_at_zero(kind: str) -> None:
    assert_never(decided(mlp(kind, gated=True)), "vanishing-linearisation", DEPTH)


def test_a_function_flat_at_zero() -> None:
    assert_never(decided(mlp(LOG_COSH)), "vanishing-linearisation", DEPTH)


def test_a_value_half_that_vanishes_where_the_gate_is_smooth() -> None:
    block = mlp("identity", gated=True, up_activation="silu")
    assert_never(decided(block), "vanishing-linearisation", DEPTH)


@pytest.mark.parametrize("activation", ["abs", "leaky_relu(-1)", prelu([-1.0] * M), HYPOT], ids=str)
def test_even_functions_reach_one_block_only(activation: Any) -> None:
    assert_never(decided(mlp(activation)), "even-activation", WIDTH)
    assert_never(decided(mlp(activation, "down")), "even-activation", WIDTH)


def test_products_of_even_and_of_odd_functions() -> None:
    even = mlp(HYPOT, gated=True, up_activation=HYPOT)
    assert_never(decided(even), "even-activation", WIDTH)
    odd = mlp(JUMP, gated=True, up_activation=JUMP)
    assert_never(decided(odd), "even-activation", WIDTH)
    mixed = mlp(JUMP, gated=True, up_activation=HYPOT)
    assert not impossible(decided(mixed))


@pytest.mark.parametrize("activation", ["abs", "leaky_relu(-1)"])
def test_abs_needs_no_hypothesis_on_biases(activation: str) -> None:
    for biases in ("up", ALL, "up=0"):
        assert_never(decided(mlp(activation, biases)), "even-recession", WIDTH)
    assert_never(decided(mlp(activation), hidden_bias=True), "even-recession", WIDTH)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("biases", ["", "up", ALL])
@pytest.mark.parametrize("activation", ONE_SIDED)
def test_one_sided_functions(activation: str, biases: str, options: dict[str, bool]) -> None:
    assert_never(decided(mlp(activation, biases), **options), "one-sided-independence", WIDTH)


# --------------------------------------------------------------------------------------
# Honesty about biases.

BIAS_FREE_RULES = [
    *[(a, False) for a in (*SUPERLINEAR, LOG_COSH, HYPOT)],
    *[(k, True) for k in (*HOMOGENEOUS, *VANISHING)],
]
bias_free = pytest.mark.parametrize(("kind", "gated"), BIAS_FREE_RULES, ids=str)


@bias_free
@pytest.mark.parametrize("biases", ["up", "gate", "up gate", "up=0", "gate=0", ALL_GATED])
def test_hidden_biases_silence_the_bias_free_rules(kind: Any, gated: bool, biases: str) -> None:
    """Present is present, even when all are zero: the replacement's may be anything."""
    if not gated:
        biases = "up=0" if "=0" in biases else "up"
    assert not impossible(decided(mlp(kind, biases, gated=gated)))


@bias_free
def test_a_replacement_with_hidden_biases_silences_them_too(kind: Any, gated: bool) -> None:
    block = mlp(kind, gated=gated)
    assert impossible(decided(block))
    assert not impossible(decided(block, hidden_bias=True))
    assert not impossible(decided(block, hidden_bias=True, output_bias=True))


@bias_free
def test_an_output_bias_takes_the_depth(kind: Any, gated: bool) -> None:
    """c of one block acts as hidden biases of the next."""
    if kind is HYPOT:
        return  # no depth to take
    bare, biased = mlp(kind, gated=gated), mlp(kind, "down", gated=gated)
    deep = decided(bare)
    for verdict in (
        decided(biased),
        decided(bare, output_bias=True),
        decided(mlp(kind, "down=0", gated=gated)),
    ):
        assert_never(verdict, deep.rule, WIDTH)
    assert deep.scope == DEPTH


def test_a_block_with_hidden_biases_may_equal_one_without() -> None:
    """x − ((x+1)² − (x−1)²)/4 ≡ 0, which needs no bias at all."""
    block = ResidualBlock(
        w_up=[[1.0], [1.0]], b_up=[1.0, -1.0], w_down=[[-0.25, 0.25]], activation="square"
    )
    assert not block(X).any()
    assert decided(block, hidden_bias=False).answer != "not absorbable"


@pytest.mark.parametrize("kind", NOT_VANISHING)
@pytest.mark.parametrize("biases", ["", ALL_GATED])
def test_gates_that_do_not_vanish_decide_nothing(kind: str, biases: str) -> None:
    assert not impossible(decided(mlp(kind, biases, gated=True)))


def test_a_gate_that_jumps_at_zero_decides_nothing() -> None:
    assert not impossible(decided(mlp(RAMP, gated=True)))


@pytest.mark.parametrize("kind", [*ONE_SIDED, "abs"])
def test_rules_for_one_factor_say_nothing_of_two(kind: str) -> None:
    assert not impossible(decided(mlp(kind, ALL_GATED, gated=True)))


@pytest.mark.parametrize(
    "activation", ["relu", "gelu", "silu", "softplus", "hard_swish", "leaky_relu(-0.5)"]
)
@pytest.mark.parametrize("biases", ["", "up", "down", ALL])
def test_parity_linear_blocks_are_never_impossible(activation: str, biases: str) -> None:
    """m + d neurons suffice (a replacement without hidden biases aside)."""
    assert not impossible(decided(mlp(activation, biases)))


# --------------------------------------------------------------------------------------
# Skips.


@pytest.mark.parametrize("skip", [0.0, np.zeros(D), np.zeros((D, D))], ids=["()", "(d,)", "(d,d)"])
@pytest.mark.parametrize("norm", ["none", "pre-layernorm", "post-layernorm", "sandwich-rmsnorm"])
@pytest.mark.parametrize(
    ("kind", "biases", "gated"),
    [
        ("tanh", ALL, False),
        ("relu_squared", "", False),
        ("abs", "up", False),
        ("selu", ALL, False),
        ("swiglu", "", True),
        ("bilinear", "", True),
        ("clamped_swiglu", ALL_GATED, True),
        ("identity", "", False),
        ("relu", ALL, False),
    ],
)
def test_without_a_skip_there_is_nothing_to_absorb(
    skip: Any, norm: str, kind: str, biases: str, gated: bool
) -> None:
    verdict = decided(mlp(kind, biases, gated=gated, skip=skip, norm=norm))
    assert verdict.answer != "not absorbable"


DEEP = [
    ("tanh", ALL, False),
    ("relu_squared", "", False),
    ("swiglu", "", True),
    ("bilinear", "", True),
]
SINGULAR = [
    np.array([1.0, 0.0, 2.0]),
    np.diag([1.0, 0.0, 1.0]),
    np.outer([1.0, 2.0, 3.0], [1.0, -1.0, 2.0]),
    np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]),  # its powers vanish
    np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]),
]
REGULAR = [
    -0.5,
    1e-200,
    np.array([1.0, -1e-9, 1e9]),
    np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    np.random.default_rng(1).normal(size=(D, D)),
]


@pytest.mark.parametrize(("kind", "biases", "gated"), DEEP)
def test_depth_needs_a_skip_that_survives_it(kind: str, biases: str, gated: bool) -> None:
    for skip in SINGULAR:
        verdict = decided(mlp(kind, biases, gated=gated, skip=skip))
        assert (verdict.answer, verdict.scope) == ("not absorbable", WIDTH)
    for skip in REGULAR:
        verdict = decided(mlp(kind, biases, gated=gated, skip=skip))
        assert (verdict.answer, verdict.scope) == ("not absorbable", DEPTH)


def test_a_nilpotent_skip_can_vanish_in_depth() -> None:
    """x ↦ Ax + 0 twice is 0 for A² = 0: the zero block, so depth must not be claimed."""
    zero = np.zeros((2, 2))
    block = ResidualBlock(w_up=zero, w_down=zero, activation="tanh", skip=[[0.0, 1.0], [0.0, 0.0]])
    x = np.random.default_rng(0).normal(size=(9, 2))
    assert not block(block(x)).any()
    assert_never(decided(block), "sublinear-growth", WIDTH)


# --------------------------------------------------------------------------------------
# Norms.


@pytest.mark.parametrize("norm", ["pre-layernorm", "pre-rmsnorm"])
@pytest.mark.parametrize(
    ("kind", "biases", "gated"),
    [
        ("relu", "", False),
        ("gelu", ALL, False),
        ("identity", ALL, False),
        ("swiglu", ALL_GATED, True),
        ("glu", "", True),
        ("square", ALL, False),
    ],
)
def test_pre_norms_are_bounded(norm: str, kind: str, biases: str, gated: bool) -> None:
    for placed in (norm, norm.replace("pre", "sandwich")):
        for skip in (None, 2.0, SINGULAR[0]):
            block = mlp(kind, biases, gated=gated, norm=placed, skip=skip)
            assert_never(decided(block), "pre-norm", WIDTH)


@pytest.mark.parametrize("norm", ["post-layernorm", "post-rmsnorm"])
@pytest.mark.parametrize(
    ("kind", "biases", "gated", "rule"),
    [
        ("tanh", ALL, False, "sublinear-growth"),
        ("relu_squared", "", False, "homogeneous-degree"),
        ("swiglu", "", True, "vanishing-linearisation"),
        ("abs", "", False, "even-activation"),
        ("abs", ALL, False, "even-recession"),
        ("mish", ALL, False, "one-sided-independence"),
    ],
)
def test_post_norms(norm: str, kind: str, biases: str, gated: bool, rule: str) -> None:
    """An injective norm keeps the "no" at every width; the depth is gone."""
    gain = np.array([1.0, -2.0, 0.5])
    assert_never(decided(mlp(kind, biases, gated=gated, norm=norm)), rule, WIDTH)
    block = mlp(kind, biases, gated=gated, norm=norm, norm_gain=gain, norm_eps=1e-12)
    assert_never(decided(block), rule, WIDTH)
    for lossy in ({"norm_eps": 0.0}, {"norm_gain": gain * [1, 0, 1]}):
        verdict = decided(mlp(kind, biases, gated=gated, norm=norm, **lossy))
        assert verdict.answer == "unknown"


@pytest.mark.parametrize(("kind", "biases", "gated"), DEEP)
def test_a_layernorm_hides_a_skip_of_equal_rows(kind: str, biases: str, gated: bool) -> None:
    hidden = np.ones((D, 1)) * [1.0, 2.0, -3.0]
    layer = mlp(kind, biases, gated=gated, skip=hidden, norm="post-layernorm")
    assert decided(layer).answer != "not absorbable"
    rms = mlp(kind, biases, gated=gated, skip=hidden, norm="post-rmsnorm")
    assert impossible(decided(rms))
    one = {"w_up": [[1.0]], "w_down": [[1.0]], "activation": "tanh"}
    assert decided(ResidualBlock(**one, norm="post-layernorm")).answer != "not absorbable"
    assert impossible(decided(ResidualBlock(**one, norm="post-rmsnorm")))


# --------------------------------------------------------------------------------------
# Affine blocks.


@st.composite
def affine_blocks(draw: st.DrawFn) -> ResidualBlock:
    d, m = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))

    def small(*shape: int) -> np.ndarray:
        return rng.integers(-1, 2, shape).astype(np.float64)

    w_up, w_down = small(m, d), small(d, m)
    if draw(st.booleans()):  # cut the rank down
        w_up = np.vstack([np.eye(min(m, d), d), np.zeros((max(m - d, 0), d))])
        w_down = -w_up.T
    return ResidualBlock(
        w_up=w_up,
        w_down=w_down,
        b_up=small(m) if draw(st.booleans()) else None,
        b_down=small(d) if draw(st.booleans()) else None,
        activation=draw(st.sampled_from(["identity", "leaky_relu(1)", "identity(-3/4)"])),
        skip=small(d, d) if draw(st.booleans()) else None,
        norm=draw(st.sampled_from(["none", "post-layernorm", "post-rmsnorm"])),
    )


@settings(max_examples=500)
@given(affine_blocks())
def test_affine_blocks_are_decided_by_their_rank(block: ResidualBlock) -> None:
    """Of the linear part, with the constant as one more column where no output bias takes it."""
    slope = Fraction(block.activation(1.0).item())
    down, up = fractions(block.w_down), fractions(block.w_up)
    if block.b_down is None and block.b_up is not None:
        up = [[*row, Fraction(float(b))] for row, b in zip(up, block.b_up, strict=True)]
    total = [
        [*row, *[Fraction(0)] * (len(up[0]) - block.d)] for row in fractions(block.skip_matrix)
    ]
    for i, row in enumerate(total):
        for k in range(len(row)):
            row[k] += slope * sum(down[i][j] * up[j][k] for j in range(block.m))
    if block.norm == "post-layernorm":
        total = centre(total)
    least = rank(total)
    verdict = decided(block)
    assert verdict.rule == "linear-rank"
    assert verdict.answer == ("absorbable" if least <= block.m else "not absorbable")
    assert verdict.scope == "this width"
    assert tuple(verdict.width) == (least, least)


NO_OUTPUT_BIAS = {"hidden_bias": True, "output_bias": False}


def affine(m: int, d: int = 3, **changes: Any) -> ResidualBlock:
    """x + DUx with D = −(first columns), U = (first rows) of the identity: rank d − m."""
    eye = np.eye(d)
    arguments = {"w_up": eye[:m], "w_down": -eye[:, :m], "activation": "identity"}
    return ResidualBlock(**(arguments | changes))


@pytest.mark.parametrize(
    ("block", "options", "answer", "width"),
    [
        (affine(1, w_down=np.eye(3)[:, :1]), {}, "not absorbable", 3),
        (affine(1), {}, "not absorbable", 2),
        (affine(2), {}, "absorbable", 1),
        (affine(3), {}, "absorbable", 0),
        (affine(3, w_down=np.eye(3)), {}, "absorbable", 3),
        (affine(1, 2, w_down=[[1.0], [0.0]]), {}, "not absorbable", 2),
        (affine(1, 2, w_down=[[1.0], [0.0]], norm="post-layernorm"), {}, "absorbable", 1),
        (affine(1, 2, w_down=[[1.0], [0.0]], norm="post-rmsnorm"), {}, "not absorbable", 2),
        # diag(0, 1) x + (−1, 0): the constant leaves the range of the linear part
        (affine(1, 2, b_up=[1.0]), {}, "not absorbable", 2),
        (affine(1, 2, b_up=[1.0]), {"output_bias": True}, "absorbable", 1),
        (affine(1, 2, b_up=[1.0], b_down=[0.0, 5.0]), {}, "absorbable", 1),
        (affine(1, 2, b_down=[1.0, 0.0]), NO_OUTPUT_BIAS, "not absorbable", 2),
        (affine(1, 2, b_down=[0.0, 1.0]), NO_OUTPUT_BIAS, "absorbable", 1),
        (affine(2, skip=0.0), {}, "absorbable", 2),
        (affine(1, skip=np.diag([1.0, 0.0, 0.0])), {}, "absorbable", 0),
    ],
)
def test_affine_blocks_by_hand(
    block: ResidualBlock, options: dict[str, bool], answer: str, width: int
) -> None:
    verdict = decided(block, **options)
    assert (verdict.answer, verdict.rule) == (answer, "linear-rank")
    assert tuple(verdict.width) == (width, width)


def test_a_constant_cannot_be_absorbed_without_any_bias() -> None:
    block = affine(2, 2, b_up=[1.0, 0.0])  # F(x) = (−1, 0)
    assert decided(block, hidden_bias=False).answer != "absorbable"
    assert decided(block, hidden_bias=False, output_bias=True).answer == "absorbable"


def test_affine_blocks_behind_a_lossy_norm_are_left_open() -> None:
    for lossy in ({"norm_eps": 0.0}, {"norm_gain": [1.0, 0.0, 1.0]}):
        assert decided(affine(1, norm="post-layernorm", **lossy)).answer == "unknown"


# --------------------------------------------------------------------------------------
# Witnesses: what a careless "no" would contradict.


def same(left: Any, right: Any, *, ulps: float = 0) -> None:
    """Equal on the points, up to ulps of the largest term (0: exactly)."""
    y, z = left(X), right(X)
    assert np.abs(y - z).max() <= ulps * np.finfo(float).eps * max(1.0, np.abs(y).max())


def column(*entries: float) -> np.ndarray:
    return np.array(entries, dtype=np.float64)[:, None]


def test_relu_squared_with_biases_can_absorb() -> None:
    """x + ½r(x)² − ½r(x+1)² = −½r(−x)² + ½r(−x−1)² − ½."""
    block = ResidualBlock(
        w_up=column(1, 1),
        b_up=[0.0, 1.0],
        w_down=[[0.5, -0.5]],
        b_down=[0.0],
        activation="relu_squared",
    )
    plain = PlainBlock(
        w_up=column(-1, -1),
        b_up=[0.0, -1.0],
        w_down=[[-0.5, 0.5]],
        b_down=[-0.5],
        activation="relu_squared",
    )
    same(block, plain)
    assert decided(block).answer != "not absorbable"


def test_swiglu_with_biases_can_absorb() -> None:
    """x + silu(x)(x+1) − silu(x+2)x = silu(−x)(x+1) − silu(−x−2)x."""
    common = {"w_up": column(1, 1), "b_up": [1.0, 0.0], "w_down": [[1.0, -1.0]]}
    block = ResidualBlock(**common, w_gate=column(1, 1), b_gate=[0.0, 2.0], activation="swiglu")
    plain = PlainBlock(**common, w_gate=column(-1, -1), b_gate=[0.0, -2.0], activation="swiglu")
    same(block, plain, ulps=16)  # a handful of products and exponentials
    assert decided(block).answer != "not absorbable"


def grown() -> Iterator[tuple[str, ResidualBlock, PlainBlock, dict[str, bool]]]:
    """x + M(x) at larger width, by a representation of x; M is one neuron."""
    yield (
        "SwiGLU with a gate bias",
        ResidualBlock(w_up=[[3.0]], w_gate=[[2.0]], w_down=[[1.0]], activation="swiglu"),
        PlainBlock(
            w_up=column(3, 1 / resolve("silu")(1.0).item()),
            w_gate=column(2, 0),
            b_gate=[0.0, 1.0],
            w_down=[[1.0, 1.0]],
            activation="swiglu",
        ),
        {"hidden_bias": True},
    )
    yield (
        "ReLU² with hidden biases",
        ResidualBlock(w_up=[[3.0]], w_down=[[1.0]], activation="relu_squared"),
        PlainBlock(
            w_up=column(3, -1, -1, 1, 1, 0),
            b_up=[0.0, 0.0, -1.0, 0.0, 1.0, 1.0],
            w_down=[[1.0, -0.5, 0.5, -0.5, 0.5, -0.5]],
            activation="relu_squared",
        ),
        {"hidden_bias": True},
    )
    yield (
        "squares with hidden biases",
        ResidualBlock(w_up=[[3.0]], w_down=[[1.0]], activation="square"),
        PlainBlock(
            w_up=column(3, 1, 1),
            b_up=[0.0, 1.0, -1.0],
            w_down=[[1.0, 0.25, -0.25]],
            activation="square",
        ),
        {"hidden_bias": True},
    )
    yield (
        "cubes with hidden biases: (x+1)³ + (x−1)³ − 2x³ = 6x",
        ResidualBlock(w_up=[[3.0]], w_down=[[6.0]], activation="cube", skip=6.0),
        PlainBlock(
            w_up=column(3, 1, 1, 1),
            b_up=[0.0, 1.0, -1.0, 0.0],
            w_down=[[6.0, 1.0, 1.0, -2.0]],
            activation="cube",
        ),
        {"hidden_bias": True},
    )
    yield (
        "GLU: its gate is ½ at 0",
        ResidualBlock(w_up=[[3.0]], w_gate=[[2.0]], w_down=[[1.0]], activation="glu"),
        PlainBlock(w_up=column(3, 2), w_gate=column(2, 0), w_down=[[1.0, 1.0]], activation="glu"),
        {},
    )
    yield (
        "(u + 1) silu(1.702 z): its value half is 1 at 0",
        ResidualBlock(w_up=[[3.0]], w_gate=[[2.0]], w_down=[[1.0]], activation="shifted_swiglu"),
        PlainBlock(
            w_up=column(3, 0, 0),
            w_gate=column(2, 1, -1),
            w_down=[[1.0, 1.0, -1.0]],
            activation="shifted_swiglu",
        ),
        {},
    )
    yield (
        "a gate that jumps: g(x)x − g(2x)x/2 = r(x)/2",
        ResidualBlock(w_up=[[3.0]], w_gate=[[2.0]], w_down=[[1.0]], activation=RAMP),
        PlainBlock(
            w_up=column(3, 1, 1, 1, 1),
            w_gate=column(2, 1, 2, -1, -2),
            w_down=[[1.0, 2.0, -1.0, 2.0, -1.0]],
            activation=RAMP,
        ),
        {},
    )
    yield (
        "two roots make a line",
        ResidualBlock(
            w_up=[[3.0]],
            w_gate=[[3.0]],
            w_down=[[1.0]],
            activation=SIGNED_ROOT,
            up_activation=ROOT,
        ),
        PlainBlock(
            w_up=[[4.0]],
            w_gate=[[4.0]],
            w_down=[[1.0]],
            activation=SIGNED_ROOT,
            up_activation=ROOT,
        ),
        {},
    )


@pytest.mark.parametrize(
    ("what", "block", "plain", "options"), [*grown()], ids=lambda v: str(v)[:20]
)
def test_what_a_larger_width_can_do(
    what: str, block: ResidualBlock, plain: PlainBlock, options: dict[str, bool]
) -> None:
    same(block, plain, ulps=32)  # sums of at most six terms, each no larger than ten outputs
    verdict = decided(block, **options)
    assert not impossible(verdict), what
    if plain.m <= block.m:
        assert verdict.answer != "not absorbable"


def test_two_blocks_of_absolute_values_can_absorb() -> None:
    """h = x + 2|x|, then h − |h| ≡ 0: a "no" at every depth would be false."""
    first = ResidualBlock(w_up=[[1.0]], w_down=[[2.0]], activation="abs")
    second = ResidualBlock(w_up=[[1.0]], w_down=[[-1.0]], activation="abs")
    same(lambda x: second(first(x)), np.zeros_like)
    for block in (first, second):
        assert decided(block).scope == WIDTH
        assert decided(block, hidden_bias=True).scope == WIDTH


def hardtanh_gated(down: float, bias: float) -> ResidualBlock:
    return ResidualBlock(
        w_up=[[1.0]], w_gate=[[1.0]], w_down=[[down]], b_down=[bias], activation="hardtanh"
    )


def test_two_gated_blocks_with_output_biases_can_absorb() -> None:
    """h = x − x·hardtanh(x) − 2 ≤ −7/4, where h·hardtanh(h) = −h: the stack is 0."""
    first, second = hardtanh_gated(-1.0, -2.0), hardtanh_gated(1.0, 0.0)
    same(lambda x: second(first(x)), np.zeros_like)
    for block in (first, second):
        assert_never(decided(block), "vanishing-linearisation", WIDTH)


def test_an_output_bias_of_the_block_takes_the_depth_whatever_the_replacement_has() -> None:
    """The replacement of the stack above, 0, needs no output bias."""
    verdict = decided(hardtanh_gated(-1.0, -2.0), output_bias=False)
    assert_never(verdict, "vanishing-linearisation", WIDTH)
