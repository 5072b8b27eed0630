"""Folding linear layers into a block: same function, honest exactness, same verdict."""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskip import ResidualBlock, check, decide
from unskip.activations import prelu
from unskip.errors import BlockError, NotReducible
from unskip.reduction import Reduction, batch_norm, hyper_connection

EPS = sys.float_info.epsilon
Array = np.ndarray


@st.composite
def blocks(draw: st.DrawFn, *, skip: str = "any", norm: str = "none") -> ResidualBlock:
    """Gated and ungated, with every combination of biases and kind of skip."""
    d, m = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["none", "number", "vector", "matrix"])) if skip == "any" else skip
    gated = draw(st.booleans())
    present = draw(st.tuples(*[st.booleans()] * 3))
    return ResidualBlock(
        w_up=rng.normal(size=(m, d)),
        w_down=rng.normal(size=(d, m)),
        w_gate=rng.normal(size=(m, d)) if gated else None,
        b_up=rng.normal(size=m) if present[0] else None,
        b_gate=rng.normal(size=m) if present[1] and gated else None,
        b_down=rng.normal(size=d) if present[2] else None,
        activation=draw(st.sampled_from(["relu", "gelu", "tanh"])),
        skip={
            "none": None,
            "number": rng.normal(),
            "vector": rng.normal(size=d),
            "matrix": rng.normal(size=(d, d)),
        }[kind],
        norm=norm,
    )


seeds = st.integers(0, 2**32)


def draw_inputs(d: int, seed: int) -> Array:
    return np.random.default_rng(seed).normal(size=(16, d)) * 2


def magnitude(block: ResidualBlock, x: Array) -> Array:
    """Both parts of the block in absolute values: what its rounding errors are relative to.

    All three activations have |σ(z)| ≤ |z| and slopes below 1.2; a gated factor counts as
    its pre-activation plus one.
    """

    def layer(rows: Array, w: Array, b: Array | None) -> Array:
        return rows @ np.abs(w).T + (0.0 if b is None else np.abs(b))

    hidden = 1.2 * layer(np.abs(x), block.w_up, block.b_up) + 1
    if block.w_gate is not None:
        hidden *= 1.2 * layer(np.abs(x), block.w_gate, block.b_gate) + 1
    return layer(hidden, block.w_down, block.b_down) + np.abs(x) @ np.abs(block.skip_matrix).T


#: Ulps of the magnitude: sums of at most 10 and of at most 10 terms, nested, products and
#: functions of an ulp or two, in both evaluations, and a rounding of every folded weight.
STEPS = 64


def assert_same(got: Array, expected: Array, size: Array) -> None:
    assert got.shape == expected.shape
    assert (np.abs(got - expected) <= STEPS * EPS * size).all()


def vectors(d: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed + 1)
    return rng.normal(size=d), rng.normal(size=d)


# --------------------------------------------------------------------------------------
# Each fold is the function composed by hand.


@given(blocks(), seeds, st.booleans())
def test_scale_branch(block: ResidualBlock, seed: int, scalar: bool) -> None:
    x = draw_inputs(block.d, seed)
    s = vectors(block.d, seed)[0]
    scale = s[0] if scalar else s
    reduced = Reduction(block).scale_branch(scale)
    expected = x @ block.skip_matrix.T + block.branch(x) * scale
    assert_same(reduced.block(x), expected, magnitude(block, x) * (1 + np.abs(scale)))
    assert (reduced.block.b_down is None) == (block.b_down is None)


@given(blocks(), seeds)
def test_affine_branch_output(block: ResidualBlock, seed: int) -> None:
    x = draw_inputs(block.d, seed)
    s, t = vectors(block.d, seed)
    reduced = Reduction(block).affine_branch_output(s, t)
    expected = x @ block.skip_matrix.T + block.branch(x) * s + t
    size = magnitude(block, x) * (1 + np.abs(s)) + np.abs(t)
    assert_same(reduced.block(x), expected, size)


@given(blocks(), seeds)
def test_affine_branch_input(block: ResidualBlock, seed: int) -> None:
    x = draw_inputs(block.d, seed)
    s, t = vectors(block.d, seed)
    reduced = Reduction(block).affine_branch_input(s, t)
    expected = x @ block.skip_matrix.T + block.branch(x * s + t)
    inside = np.abs(x) * (1 + np.abs(s)) + np.abs(t)
    assert_same(reduced.block(x), expected, magnitude(block, inside))


@given(blocks(), seeds)
def test_affine_input(block: ResidualBlock, seed: int) -> None:
    x = draw_inputs(block.d, seed)
    s, t = vectors(block.d, seed)
    reduced = Reduction(block).affine_input(s, t)
    inside = np.abs(x) * np.abs(s) + np.abs(t)
    assert_same(reduced.block(x), block(x * s + t), magnitude(block, inside))


@given(blocks(), seeds)
def test_affine_output(block: ResidualBlock, seed: int) -> None:
    x = draw_inputs(block.d, seed)
    s, t = vectors(block.d, seed)
    reduced = Reduction(block).affine_output(s, t)
    size = magnitude(block, x) * np.abs(s) + np.abs(t)
    assert_same(reduced.block(x), block(x) * s + t, size)


@given(blocks(), seeds)
def test_identity_skip(block: ResidualBlock, seed: int) -> None:
    x = draw_inputs(block.d, seed)
    a = block.skip_matrix
    reduced = Reduction(block).identity_skip()
    assert reduced.block.skip is None
    inverse = np.linalg.inv(a)
    expected = x + block.branch(x) @ inverse.T
    # solving with A loses its condition number; the entries of A⁻¹ bound the sizes
    size = (magnitude(block, x) + np.abs(x)).max(axis=1, keepdims=True)
    size = size * (1 + np.abs(inverse).sum()) * np.linalg.cond(a)
    assert_same(reduced.block(x), expected, size)
    assert (reduced.block.b_down is None) == (block.b_down is None)


@given(blocks(), seeds, st.sampled_from([1e-5, 1e-3]))
def test_batch_norm(block: ResidualBlock, seed: int, eps: float) -> None:
    rng = np.random.default_rng(seed)
    mean, gain, bias = rng.normal(size=(3, block.d))
    variance = rng.uniform(0.1, 2, size=block.d)
    x = draw_inputs(block.d, seed)
    normed = (x - mean) / np.sqrt(variance + eps) * gain + bias
    scale, shift = batch_norm(mean, variance, gain, bias, eps)
    reduced = Reduction(block).affine_branch_input(scale, shift)
    expected = x @ block.skip_matrix.T + block.branch(normed)
    inside = (np.abs(x) + np.abs(mean)) * (1 + np.abs(scale)) + np.abs(bias)
    assert_same(reduced.block(x), expected, magnitude(block, inside))
    plain_scale, plain_shift = batch_norm(mean, variance, eps=eps)
    assert_same(x * plain_scale + plain_shift, (x - mean) / np.sqrt(variance + eps), inside * 4)


@given(blocks(skip="none"), seeds, st.integers(1, 3))
def test_hyper_connection(block: ResidualBlock, seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    mixing, (read, write) = rng.normal(size=(n, n)), rng.normal(size=(2, n))
    streams = rng.normal(size=(16, n, block.d))
    wide = hyper_connection(block, mixing, read, write).block
    assert (wide.d, wide.m) == (n * block.d, block.m)
    branch = block.branch(np.einsum("i,bid->bd", read, streams))
    expected = np.einsum("ij,bjd->bid", mixing, streams) + write[:, None] * branch[:, None, :]
    inside = np.einsum("i,bid->bd", np.abs(read), np.abs(streams))
    size = np.einsum("ij,bjd->bid", np.abs(mixing), np.abs(streams))
    size = size + np.abs(write)[:, None] * magnitude(block, inside)[:, None, :]
    flat = streams.reshape(16, -1)
    assert_same(wide(flat), expected.reshape(16, -1), size.reshape(16, -1))


@given(blocks(), seeds)
def test_folds_compose(block: ResidualBlock, seed: int) -> None:
    x = draw_inputs(block.d, seed)
    s, t = vectors(block.d, seed)
    start = Reduction(block)
    end = start.affine_branch_output(t, s).affine_input(s, t).affine_output(t, s)
    assert end.steps == ("branch output", "input", "output")
    assert start.steps == ()
    assert start.block is block
    z = x * s + t
    expected = (z @ block.skip_matrix.T + block.branch(z) * t + s) * t + s
    inside = np.abs(x) * np.abs(s) + np.abs(t)
    size = (magnitude(block, inside) * (1 + np.abs(t)) + np.abs(s)) * (1 + np.abs(t)) + np.abs(s)
    assert_same(end.block(x), expected, size)


@pytest.mark.parametrize("norm", ["pre-layernorm", "pre-rmsnorm"])
@given(seed=seeds, data=st.data())
def test_folds_beside_a_pre_norm(norm: str, seed: int, data: st.DataObject) -> None:
    """What stands between the norm and the MLP folds, and what stands behind the block."""
    block = data.draw(blocks(norm=norm))
    d = block.d
    if d == 1 and norm == "pre-layernorm":
        return  # one centred channel is 0
    x = draw_inputs(d, seed)
    s, t = vectors(d, seed)
    z = x - x.mean(axis=1, keepdims=True) if "layer" in norm else x
    z = z / np.sqrt((z * z).mean(axis=1, keepdims=True) + block.norm_eps)
    skipped = x @ block.skip_matrix.T
    inside = np.abs(z) * (1 + np.abs(s)) + np.abs(t) + d  # the norm errs relative to √d
    size = magnitude(block, inside) + np.abs(skipped)
    reduced = Reduction(block).affine_branch_input(s, t).block
    assert_same(reduced(x), skipped + block.branch(z * s + t), size * 8)
    reduced = Reduction(block).affine_output(s, t).block
    size = size * (1 + np.abs(s)) + np.abs(t) + np.abs(x) @ np.abs(reduced.skip_matrix).T
    assert_same(reduced(x), (skipped + block.branch(z)) * s + t, size * 8)


def test_where_a_norm_is_in_the_way() -> None:
    w = {"w_up": np.eye(3), "w_down": np.eye(3), "activation": "relu"}
    for norm, fold in (
        ("sandwich-rmsnorm", lambda r: r.scale_branch(2.0)),
        ("sandwich-rmsnorm", lambda r: r.affine_output(2.0, 0.0)),
        ("sandwich-layernorm", lambda r: r.affine_input(2.0, 0.0)),
        ("pre-layernorm", lambda r: r.affine_input(2.0, 0.0)),
        ("post-layernorm", lambda r: r.affine_output(2.0, 0.0)),
        ("pre-rmsnorm", lambda r: r.identity_skip()),
        ("post-rmsnorm", lambda r: r.identity_skip()),
    ):
        with pytest.raises(BlockError):
            fold(Reduction(ResidualBlock(**w, norm=norm, skip=2.0)))


@pytest.mark.parametrize("bad", [np.ones(2), np.ones((3, 1)), [1.0, np.nan, 1.0], np.inf])
def test_bad_scales(bad: Any) -> None:
    reduction = Reduction(ResidualBlock(w_up=np.eye(3), w_down=np.eye(3), activation="relu"))
    for name in ("affine_branch_output", "affine_branch_input", "affine_input", "affine_output"):
        with pytest.raises(BlockError, match="scale"):
            getattr(reduction, name)(bad, 0.0)
        with pytest.raises(BlockError, match="shift"):
            getattr(reduction, name)(1.0, bad)


def test_bad_hyper_connections() -> None:
    w = {"w_up": np.eye(2), "w_down": np.eye(2), "activation": "relu"}
    block = ResidualBlock(**w)
    for mixing, read, write in (
        (np.eye(3), np.ones(2), np.ones(2)),
        (np.eye(2), np.ones(2), np.ones(3)),
        (np.ones(2), np.ones(2), np.ones(2)),
        (1.0, 1.0, 1.0),
    ):
        with pytest.raises(BlockError):
            hyper_connection(block, mixing, read, write)
    for other in (ResidualBlock(**w, skip=1.0), ResidualBlock(**w, norm="pre-rmsnorm")):
        with pytest.raises(BlockError):
            hyper_connection(other, np.eye(2), np.ones(2), np.ones(2))


# --------------------------------------------------------------------------------------
# Exactness, against fractions.


def fractions(array: Any) -> Array:
    return np.vectorize(lambda x: Fraction(float(x)), otypes=[object])(np.asarray(array))


def equal(stored: Array | None, exact: Array) -> bool:
    """Whether the stored weights are exactly these rationals (an absent bias is zero)."""
    if stored is None:
        return not exact.any()
    return bool((fractions(stored) == exact).all())


def bias(block: ResidualBlock, name: str) -> Array:
    value = getattr(block, name)
    size = block.d if name == "b_down" else block.m
    return fractions(np.zeros(size) if value is None else value)


NUMBERS = {
    "integers": lambda rng, *shape: rng.integers(-9, 10, shape).astype(np.float64),
    "float16": lambda rng, *shape: rng.normal(size=shape).astype(np.float16),
    "float32": lambda rng, *shape: rng.normal(size=shape).astype(np.float32),
    "float64": lambda rng, *shape: rng.normal(size=shape),
}
SCALES = {
    "ones": lambda rng, d: np.ones(d),
    "powers of two": lambda rng, d: 2.0 ** rng.integers(-20, 20, d),
    "small integers": lambda rng, d: rng.choice([-3.0, 3.0, 5.0], d),
    "float32": lambda rng, d: rng.normal(size=d).astype(np.float32).astype(np.float64),
    "float64": lambda rng, d: rng.normal(size=d),
}


@st.composite
def numbered(draw: st.DrawFn, skip: str = "none") -> tuple[ResidualBlock, Array, Array]:
    """A block of one kind of numbers, a scale and a shift: exact and inexact folds both occur."""
    rng = np.random.default_rng(draw(seeds))
    d, m = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    number = NUMBERS[draw(st.sampled_from(sorted(NUMBERS)))]
    scale = SCALES[draw(st.sampled_from(sorted(SCALES)))](rng, d)
    shift = rng.integers(-4, 5, d) * draw(st.sampled_from([0.0, 1.0, 0.1]))
    block = ResidualBlock(
        w_up=number(rng, m, d),
        w_down=number(rng, d, m),
        w_gate=number(rng, m, d) if draw(st.booleans()) else None,
        b_up=number(rng, m) if draw(st.booleans()) else None,
        b_down=number(rng, d) if draw(st.booleans()) else None,
        activation="gelu",
        skip={"none": None, "vector": scale, "matrix": rng.integers(-3, 4, (d, d))}[skip],
    )
    return block, scale, shift


def gates(block: ResidualBlock) -> tuple[str, ...]:
    return ("w_up",) if block.w_gate is None else ("w_up", "w_gate")


@settings(max_examples=300)
@given(numbered())
def test_exactness_of_output_folds(drawn: tuple[ResidualBlock, Array, Array]) -> None:
    block, s, t = drawn
    reduced = Reduction(block).affine_branch_output(s, t)
    truth = equal(reduced.block.w_down, fractions(block.w_down) * fractions(s)[:, None])
    truth &= equal(reduced.block.b_down, bias(block, "b_down") * fractions(s) + fractions(t))
    assert reduced.exact == truth


@settings(max_examples=300)
@given(numbered(skip="matrix"))
def test_exactness_of_affine_output(drawn: tuple[ResidualBlock, Array, Array]) -> None:
    block, s, t = drawn
    reduced = Reduction(block).affine_output(s, t)
    column = fractions(s)[:, None]
    truth = equal(reduced.block.w_down, fractions(block.w_down) * column)
    truth &= equal(reduced.block.b_down, bias(block, "b_down") * fractions(s) + fractions(t))
    truth &= equal(reduced.block.skip, fractions(block.skip_matrix) * column)
    assert reduced.exact == truth


@settings(max_examples=300)
@given(numbered(skip="matrix"), st.booleans())
def test_exactness_of_input_folds(drawn: tuple[ResidualBlock, Array, Array], whole: bool) -> None:
    """Without a shift it is exact iff every product is; a shift may only err on the safe side."""
    block, s, t = drawn
    start = Reduction(block)
    reduced = start.affine_input(s, t) if whole else start.affine_branch_input(s, t)
    truth = all(
        equal(getattr(reduced.block, name), fractions(getattr(block, name)) * fractions(s))
        for name in gates(block)
    )
    for weight, name in (("w_up", "b_up"), ("w_gate", "b_gate"))[: len(gates(block))]:
        moved = fractions(getattr(block, weight)) @ fractions(t)
        truth &= equal(getattr(reduced.block, name), bias(block, name) + moved)
    if whole:
        skip = fractions(block.skip_matrix)
        truth &= equal(reduced.block.skip, skip * fractions(s))
        truth &= equal(reduced.block.b_down, bias(block, "b_down") + skip @ fractions(t))
    assert truth or not reduced.exact
    if not t.any():
        assert reduced.exact == truth


@settings(max_examples=300)
@given(numbered(skip="vector"), st.booleans())
def test_exactness_of_division(drawn: tuple[ResidualBlock, Array, Array], scalar: bool) -> None:
    block, a, _ = drawn
    if scalar:
        a = np.full(block.d, a[0])
        block = ResidualBlock(**{**block.tensors, "skip": a[0]}, activation="gelu")
    reduced = Reduction(block).identity_skip(worst_condition=np.inf)
    truth = equal(reduced.block.w_down, fractions(block.w_down) / fractions(a)[:, None])
    truth &= equal(reduced.block.b_down, bias(block, "b_down") / fractions(a))
    assert reduced.exact == truth


@settings(max_examples=100)
@given(numbered(), seeds, st.booleans())
def test_exactness_of_hyper_connections(
    drawn: tuple[ResidualBlock, Array, Array], seed: int, integers: bool
) -> None:
    block, _, _ = drawn
    rng = np.random.default_rng(seed)
    read, write = rng.integers(1, 6, (2, 2)) / (1.0 if integers else 7.0)
    reduced = hyper_connection(block, rng.normal(size=(2, 2)), read, write)
    alpha, beta = np.repeat(fractions(read), block.d), np.repeat(fractions(write), block.d)
    truth = equal(reduced.block.w_down, np.tile(fractions(block.w_down), (2, 1)) * beta[:, None])
    truth &= equal(reduced.block.b_down, np.tile(bias(block, "b_down"), 2) * beta)
    for name in gates(block):
        tiled = np.tile(fractions(getattr(block, name)), (1, 2)) * alpha
        truth &= equal(getattr(reduced.block, name), tiled)
    assert reduced.exact == truth


@settings(max_examples=200)
@given(blocks(skip="matrix"))
def test_division_by_a_matrix_never_claims_what_is_false(block: ResidualBlock) -> None:
    reduced = Reduction(block).identity_skip()
    product = fractions(block.skip_matrix) @ fractions(reduced.block.w_down)
    assert (product == fractions(block.w_down)).all() or not reduced.exact


def one(w_down: float, **changes: Any) -> Reduction:
    return Reduction(
        ResidualBlock(
            **{"w_up": [[1.0]], "w_down": np.array([[w_down]]), "activation": "relu", **changes}
        )
    )


THIRD = 1 / 3


@pytest.mark.parametrize(
    ("reduction", "exact"),
    [
        (one(np.float32(THIRD)).scale_branch(float(np.float32(0.7))), True),
        (one(THIRD).scale_branch(2.0**-7), True),
        (one(THIRD).scale_branch(3.0), False),
        (one(THIRD).scale_branch(0.0), True),
        (one(6.0, skip=3.0).identity_skip(), True),
        (one(1.0, skip=3.0).identity_skip(), False),
        (one(THIRD, skip=[0.25]).identity_skip(), True),
        (one(THIRD).identity_skip(), True),
        (one(1.0, b_down=[1.0]).affine_branch_output(1.0, 2.0**-52), True),
        (one(1.0, b_down=[1.0]).affine_branch_output(1.0, 2.0**-53), False),
        (one(1.0, b_down=[2.0**1000]).affine_branch_output(1.0, 1.0), False),
        (one(1.0).affine_input(2.0, 0.0), True),
        (one(5e-324).scale_branch(0.5), False),  # the product underflows
        (one(5e-324, skip=2.0).identity_skip(), False),
        (one(THIRD).scale_branch(3.0).scale_branch(1.0), False),  # once lost, lost
        (one(THIRD).affine_output(3.0, 0.0).affine_output(1.0, 0.0), False),
        (one(THIRD).affine_input(1 + 2.0**-52, 0.0).identity_skip(), False),
    ],
)
def test_exactness_by_hand(reduction: Reduction, exact: bool) -> None:
    assert reduction.exact is exact


@settings(max_examples=300)
@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(-1e18, 1e18))
def test_extreme_weights_are_never_called_exact_wrongly(w: float, s: float) -> None:
    if abs(Fraction(w) * Fraction(s)) > sys.float_info.max:
        return
    reduced = one(w).scale_branch(s)
    exact = Fraction(float(reduced.block.w_down[0, 0])) == Fraction(w) * Fraction(s)
    assert exact or not reduced.exact
    if abs(w * s) > 2.0**-900 and abs(w) < 2.0**990:
        assert reduced.exact == exact


# --------------------------------------------------------------------------------------
# Skips that cannot be divided out.


@pytest.mark.parametrize(
    "skip",
    [
        0.0,
        [1.0, 0.0, 2.0],
        np.zeros((3, 3)),
        np.ones((3, 3)),
        np.diag([1.0, 0.0, 1.0]),
        [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]],
        [1.0, 1e-9, 1.0],
        np.diag([1.0, 1e9, 1.0]),
        np.vander([1.0, 1.0 + 1e-6, 1.0 - 1e-6]),
    ],
    ids=str,
)
def test_singular_and_ill_conditioned_skips(skip: Any) -> None:
    rng = np.random.default_rng(0)
    block = ResidualBlock(
        w_up=rng.normal(size=(4, 3)), w_down=rng.normal(size=(3, 4)), activation="gelu", skip=skip
    )
    with pytest.raises(NotReducible) as caught:
        Reduction(block).identity_skip()
    assert "decide()" in caught.value.hint
    check(decide(block).certificate, block)  # as the hint says


def test_the_worst_condition_is_a_choice() -> None:
    w = {"w_up": [[1.0, 0.0]], "w_down": [[1.0], [1.0]], "activation": "relu"}
    block = ResidualBlock(**w, skip=[1.0, 1e-9])
    with pytest.raises(NotReducible, match="condition number"):
        Reduction(block).identity_skip()
    reduced = Reduction(block).identity_skip(worst_condition=1e10)
    assert reduced.block.w_down.tolist() == [[1.0], [1 / 1e-9]]


# --------------------------------------------------------------------------------------
# The verdict does not change.


def unimodular(d: int, rng: np.random.Generator) -> Array:
    """P·L·Pᵀ with L unit triangular of entries −1, 0, 1: inverted without rounding."""
    order = rng.permutation(d)
    return (np.tril(rng.integers(-1, 2, (d, d)), -1) + np.eye(d))[order][:, order]


def dyadic(seed: int, d: int, m: int, skip: Any = None) -> ResidualBlock:
    rng = np.random.default_rng(seed)
    return ResidualBlock(
        w_up=rng.integers(-16, 17, (m, d)) / 8,
        w_down=rng.integers(-16, 17, (d, m)) / 8,
        b_up=rng.integers(-16, 17, m) / 8,
        b_down=rng.integers(-16, 17, d) / 8,
        activation=["gelu", "silu", "softplus"][seed % 3],
        skip=skip,
    )


def skips(kind: str, d: int, rng: np.random.Generator) -> Any:
    return {
        "number": 2.0 ** rng.integers(-3, 4),
        "vector": rng.choice([-4.0, -1.0, 0.5, 1.0, 2.0], d),
        "matrix": unimodular(d, rng),
    }[kind]


def with_subset(block: ResidualBlock, size: int, a: Array) -> tuple[ResidualBlock, list[int]]:
    """Change the first d columns of w_down so that the first ``size`` neurons add up to −A."""
    d = block.d
    up, down = block.w_up.copy(), block.w_down.copy()
    up[:d] = unimodular(d, np.random.default_rng(d))
    rest = a + down[:, d:size] @ up[d:size]
    inverse = np.round(np.linalg.inv(up[:d]))
    assert np.array_equal(inverse @ up[:d], np.eye(d))
    down[:, :d] = -rest @ inverse
    changed = ResidualBlock(
        **{**block.tensors, "w_up": up, "w_down": down}, activation=block.activation
    )
    return changed, list(range(size))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["number", "vector", "matrix"])
def test_dividing_by_the_skip_keeps_the_subset(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, m = int(rng.integers(3, 6)), 9  # m ≤ d²: one candidate
    skip = skips(kind, d, rng)
    block = dyadic(seed, d, m, skip)
    block, subset = with_subset(block, d + 3, block.skip_matrix)
    reduced = Reduction(block).identity_skip()
    a, w = fractions(block.skip_matrix), fractions(reduced.block.w_down)
    assert (a @ w == fractions(block.w_down)).all()  # A was chosen so that nothing is rounded
    for same in (block, reduced.block):
        verdict = decide(same)
        assert verdict.answer == "absorbable"
        assert list(verdict.subset or ()) == subset
        check(verdict.certificate, same)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["number", "vector", "matrix"])
def test_dividing_by_the_skip_keeps_a_no(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, m = int(rng.integers(2, 6)), 6  # few neurons: the exact width is exponential
    block = dyadic(seed + 100, d, m, skips(kind, d, rng))
    for same in (block, Reduction(block).identity_skip().block):
        verdict = decide(same)
        assert verdict.answer == "not absorbable"
        check(verdict.certificate, same)


@pytest.mark.parametrize("seed", range(6))
def test_folding_keeps_the_subset(seed: int) -> None:
    """Powers of two in front, behind and on the branch; the planted skip follows them."""
    rng = np.random.default_rng(seed)
    d = 4
    block, subset = with_subset(dyadic(seed, d, 10), d + 2, np.eye(d))
    s, t = 2.0 ** rng.integers(-3, 4, (2, d))
    reduced = Reduction(block).affine_input(s, 0.0).affine_output(t, 1.0)
    assert reduced.exact
    assert list(decide(reduced.block).subset or ()) == subset
    broken = reduced.scale_branch(2.0)
    assert decide(broken.block).answer == "not absorbable"


@pytest.mark.parametrize("activation", ["relu", "gelu", "leaky_relu(-0.5)", "tanh"])
@pytest.mark.parametrize(("d", "m"), [(1, 4), (2, 3), (3, 12)])
@pytest.mark.parametrize("seed", range(3))
def test_two_streams_are_never_absorbable(activation: str, d: int, m: int, seed: int) -> None:
    """D_S U_S has rank at most d for every S, and the skip B ⊗ I has rank 2d."""
    rng = np.random.default_rng(seed)
    block = ResidualBlock(
        w_up=rng.normal(size=(m, d)),
        w_down=rng.normal(size=(d, m)),
        b_up=rng.normal(size=m),
        b_down=rng.normal(size=d),
        activation=activation,
    )
    mixing = rng.normal(size=(2, 2))
    assert np.linalg.matrix_rank(mixing) == 2
    wide = hyper_connection(block, mixing, rng.normal(size=2), rng.normal(size=2)).block
    verdict = decide(wide)
    assert verdict.answer == "not absorbable"
    check(verdict.certificate, wide)


def test_two_streams_of_an_absorbable_block_are_not_absorbable() -> None:
    """Even where one stream is: x − relu(x) = −relu(−x)."""
    block = ResidualBlock(w_up=np.eye(2), w_down=-np.eye(2), activation="relu")
    assert decide(block).answer == "absorbable"
    wide = hyper_connection(block, np.eye(2), [0.5, 0.5], [1.0, 1.0]).block
    assert decide(wide).answer == "not absorbable"
    one_stream = hyper_connection(block, [[1.0]], [1.0], [1.0]).block
    assert decide(one_stream).answer == "absorbable"


def test_slopes_of_prelu_survive_a_fold() -> None:
    block = ResidualBlock(w_up=np.eye(2), w_down=np.eye(2), activation=prelu([0.5, 0.25]), skip=2.0)
    reduced = Reduction(block).scale_branch(4.0).identity_skip().block
    assert reduced.activation is block.activation
    assert reduced([[-1.0, -1.0]]).tolist() == [[-2.0, -1.5]]
