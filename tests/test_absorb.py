"""absorb(): the plain block is the same function, at the width that theory says."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_decide import GOLDEN, golden_block, planted

from unskip import NotAbsorbable, PlainBlock, ResidualBlock, absorb, decide, remedies
from unskip.activations import prelu
from unskip.errors import BlockError, UnskipError

ACTIVATIONS = ["relu", "leaky_relu(-0.5)", "leaky_relu(0.25)", "prelu(0.25)", "identity"]
SMOOTH = ["gelu", "gelu_tanh", "silu", "quick_gelu", "softplus", "squareplus", "log_sigmoid"]
GATES = ["glu", "swiglu", "geglu", "reglu", "bilinear", "shifted_swiglu"]
SQUARED = ["relu_squared"]


def piecewise(activation: str, z: Fraction) -> Fraction:
    name, _, parameter = activation.partition("(")
    slope = {"relu": Fraction(0), "identity": Fraction(1)}.get(name)
    if slope is None:
        slope = Fraction(float(parameter.rstrip(")")))
    return z if z > 0 else slope * z


def exact_value(
    block: ResidualBlock | PlainBlock, activation: str, x: list[Fraction]
) -> list[Fraction]:
    """A x + w_down σ(w_up x + b_up) + b_down in fractions, for a piecewise linear σ."""

    def vector(name: str, size: int) -> list[Fraction]:
        values = getattr(block, name)
        return [Fraction(0)] * size if values is None else [Fraction(float(v)) for v in values]

    hidden = []
    for row, b in zip(block.w_up.tolist(), vector("b_up", block.m), strict=True):
        z = sum((Fraction(u) * v for u, v in zip(row, x, strict=True)), b)
        hidden.append(piecewise(activation, z))
    result = vector("b_down", block.d)
    for i, row in enumerate(block.w_down.tolist()):
        result[i] += sum(Fraction(w) * h for w, h in zip(row, hidden, strict=True))
    if isinstance(block, ResidualBlock):
        for i, row in enumerate(block.skip_matrix.tolist()):
            result[i] += sum(Fraction(a) * v for a, v in zip(row, x, strict=True))
    return result


def centred(values: np.ndarray) -> np.ndarray:
    return values - values.mean(axis=-1, keepdims=True)


def deviation(block: ResidualBlock, plain: PlainBlock, *, modulo: str = "nothing") -> float:
    """The largest deviation on random inputs, relative to the terms that are added up."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(80, block.d)) * rng.choice([0.1, 1.0, 10.0], (80, 1))
    f, g = block.inner()(x), plain(x)
    if modulo == "mean":
        f, g = centred(f), centred(g)
    size = sum(np.abs(t).max(initial=0.0) for t in (f, plain.w_down, block.w_down)) + 1.0
    return float(np.abs(f - g).max() / size)


def entries(*values: float) -> st.SearchStrategy[float]:
    return st.sampled_from(values)


@st.composite
def blocks(draw: st.DrawFn, activations: list[str], *, gated: bool = False) -> ResidualBlock:
    """Small integers, so that dead, equal, opposite and collinear neurons are common."""
    d, m = draw(st.integers(1, 3)), draw(st.integers(1, 6))

    def array(*shape: int) -> np.ndarray:
        size = int(np.prod(shape))
        values = st.lists(entries(-2.0, -1.0, 0.0, 0.5, 1.0, 2.0), min_size=size, max_size=size)
        return np.array(draw(values)).reshape(shape)

    k: dict[str, Any] = {"w_up": array(m, d), "w_down": array(d, m)}
    k["activation"] = draw(st.sampled_from(activations))
    if gated:
        k["w_gate"] = array(m, d)
        k |= {"b_gate": array(m)} if draw(st.booleans()) else {}
    k |= {"b_up": array(m)} if draw(st.booleans()) else {}
    k |= {"b_down": array(d)} if draw(st.booleans()) else {}
    skip = draw(st.sampled_from(["none", "none", "scalar", "diagonal", "matrix"]))
    k |= {
        "none": {},
        "scalar": {"skip": draw(entries(0.0, -1.0, 0.5))},
        "diagonal": {"skip": array(d)},
        "matrix": {"skip": array(d, d)},
    }[skip]
    k["norm"] = draw(st.sampled_from(["none", "none", "post-layernorm", "post-rmsnorm"]))
    return ResidualBlock(**k)


@given(blocks(ACTIVATIONS))
@settings(max_examples=300, deadline=None)
def test_small_piecewise_linear_blocks_are_equal_in_fractions(block: ResidualBlock) -> None:
    """Weights are dyadic and small, so nothing is rounded but thirds and the like."""
    verdict = decide(block)
    if verdict.width.upper == inf:
        with pytest.raises(NotAbsorbable):
            absorb(block, width="minimal")
        return
    plain = absorb(block, width="minimal")
    assert plain.m == verdict.width.upper
    assert (plain.b_up is not None) <= (block.b_up is not None)
    assert (plain.b_down is not None) <= (block.b_down is not None)
    rng = np.random.default_rng(1)
    for x in rng.integers(-9, 10, (12, block.d)).tolist():
        point = [Fraction(v, 2) for v in x]
        f = exact_value(block, block.activation.name, point)
        g = exact_value(plain, block.activation.name, point)
        if verdict.assumptions.modulo == "mean":
            f, g = ([v - sum(values) / len(values) for v in values] for values in (f, g))
        assert max(abs(a - b) for a, b in zip(f, g, strict=True)) <= Fraction(1, 1 << 40)


@given(blocks(SMOOTH), st.booleans(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_smooth_blocks_are_equal(block: ResidualBlock, hidden: bool, output: bool) -> None:
    verdict = decide(block, hidden_bias=hidden, output_bias=output)
    if verdict.width.upper == inf:
        return
    plain = absorb(block, width="minimal", hidden_bias=hidden, output_bias=output)
    assert plain.m == verdict.width.upper
    assert hidden or plain.b_up is None or not plain.b_up.any()
    assert output or plain.b_down is None
    assert deviation(block, plain, modulo=verdict.assumptions.modulo) < 1e-12
    if verdict.answer == "absorbable":
        same = absorb(block, verdict=verdict)
        assert same.m == block.m
        assert deviation(block, same, modulo=verdict.assumptions.modulo) < 1e-12


@given(blocks(GATES, gated=True), st.booleans(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_gated_blocks_are_equal(block: ResidualBlock, hidden: bool, output: bool) -> None:
    verdict = decide(block, hidden_bias=hidden, output_bias=output)
    if verdict.width.upper == inf:
        return
    plain = absorb(block, width="minimal", verdict=verdict)
    assert plain.m == verdict.width.upper
    assert hidden or plain.b_gate is None or not plain.b_gate.any()
    assert output or plain.b_down is None
    assert deviation(block, plain, modulo=verdict.assumptions.modulo) < 1e-12


@given(blocks(SQUARED), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_squared_blocks_are_equal(block: ResidualBlock, hidden: bool, output: bool) -> None:
    verdict = decide(block, hidden_bias=hidden, output_bias=output)
    if verdict.width.upper == inf:
        return
    plain = absorb(block, width="minimal", verdict=verdict)
    assert plain.m == verdict.width.upper
    assert deviation(block, plain, modulo=verdict.assumptions.modulo) < 1e-11
    if verdict.answer == "absorbable":
        same = absorb(block, verdict=verdict)
        assert deviation(block, same, modulo=verdict.assumptions.modulo) < 1e-11


@pytest.mark.parametrize("output_bias", [True, False])
@pytest.mark.parametrize("case", [c for c in GOLDEN if c["kind"] == "plain"], ids=lambda c: c["id"])
def test_golden_cases(case: dict, output_bias: bool) -> None:
    block = golden_block(case, output_bias=output_bias)
    expected = case["expected"].get(f"min_width_{'with' if output_bias else 'no'}_output_bias")
    verdict = decide(block)
    if verdict.width.upper == inf:
        return
    plain = absorb(block, width="minimal")
    if expected is not None:
        assert plain.m == expected
    assert deviation(block, plain, modulo=verdict.assumptions.modulo) < 1e-12


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_planted_flips_change_signs_only(activation: str) -> None:
    planted_block, subset = planted(6, 20, 3)
    block = dataclasses.replace(planted_block, activation=activation)
    plain = absorb(block)
    assert np.array_equal(np.abs(plain.w_up), np.abs(block.w_up))
    assert np.array_equal(plain.w_down, block.w_down)
    flipped = (plain.w_up != block.w_up).any(axis=1)
    assert flipped.nonzero()[0].tolist() == list(subset)
    assert deviation(block, plain) < 1e-13


def generic(d: int, m: int, activation: str, **more: Any) -> ResidualBlock:
    rng = np.random.default_rng(5)
    up, down = rng.normal(size=(m, d)) / d**0.5, rng.normal(size=(d, m)) / m**0.5
    biases = {"b_up": rng.normal(size=m), "b_down": rng.normal(size=d)}
    return ResidualBlock(w_up=up, w_down=down, activation=activation, **(biases | more))


@pytest.mark.parametrize(("d", "m"), [(16, 64), (40, 160), (30, 12), (1, 5)])
@pytest.mark.parametrize("norm", ["none", "post-layernorm"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_generic_blocks_take_m_plus_d_neurons(d: int, m: int, norm: str, activation: str) -> None:
    """max(m + d, 2d) (theory page, §7), in exact and in floating-point algebra, no coefficient
    grown."""
    if d == 1 and norm != "none":
        return  # a LayerNorm of one dimension discards everything
    block = generic(d, m, activation, norm=norm)
    plain = absorb(block, width="minimal")
    if m >= d:
        assert plain.m == m + d if d > 1 else m + 1
    modulo = "mean" if norm == "post-layernorm" else "nothing"
    assert deviation(block, plain, modulo=modulo) < 1e-13
    assert np.abs(plain.w_down).max() < 100


def test_gated_blocks_carry_the_skip_through_constant_gates() -> None:
    rng = np.random.default_rng(2)
    block = ResidualBlock(
        w_up=rng.normal(size=(12, 4)),
        w_gate=rng.normal(size=(12, 4)),
        b_gate=rng.normal(size=12),
        w_down=rng.normal(size=(4, 12)),
        activation="swiglu",
    )
    plain = absorb(block, width="minimal")
    assert plain.m == 16
    assert not plain.w_gate[12:].any()
    assert deviation(block, plain) < 1e-13


def test_a_hidden_bias_is_what_a_bias_free_gated_block_lacks() -> None:
    rng = np.random.default_rng(2)
    tensors = {name: rng.normal(size=(8, 3)) for name in ("w_up", "w_gate")}
    block = ResidualBlock(w_down=rng.normal(size=(3, 8)), activation="swiglu", **tensors)
    with pytest.raises(NotAbsorbable) as caught:
        absorb(block, width="minimal")
    assert caught.value.verdict.rule == "vanishing-linearisation"
    plain = absorb(block, width="minimal", hidden_bias=True)
    assert plain.m == 11
    assert deviation(block, plain) < 1e-13


def test_one_dimension() -> None:
    # x + 3 relu(x) = 4 relu(x) − relu(−x), by hand
    block = ResidualBlock(w_up=[[1.0]], w_down=[[3.0]], activation="relu")
    plain = absorb(block, width="minimal")
    assert plain.w_up.tolist() == [[1.0], [-1.0]]
    assert plain.w_down.tolist() == [[4.0, -1.0]]


def test_fewer_neurons_than_before_where_some_are_redundant() -> None:
    # x + relu(x) − relu(−x) + relu(x) − relu(−x) = 3x = 3 relu(x) − 3 relu(−x)
    block = ResidualBlock(
        w_up=[[1.0], [-1.0], [1.0], [-1.0]], w_down=[[1.0, -1.0, 1.0, -1.0]], activation="relu"
    )
    plain = absorb(block, width="minimal")
    assert plain.m == 2
    assert plain(np.array([[2.0], [-5.0]])).tolist() == [[6.0], [-15.0]]


def test_a_block_that_is_constant_needs_no_neuron() -> None:
    # x − x + 3
    block = ResidualBlock(
        w_up=[[1.0], [-1.0]], w_down=[[-1.0, 1.0]], activation="relu", b_down=[3.0]
    )
    plain = absorb(block, width="minimal")
    assert plain.m == 0
    assert plain(np.array([[2.0], [-5.0]])).tolist() == [[3.0], [3.0]]


def test_a_wider_block_is_filled_up_with_idle_neurons() -> None:
    block = generic(3, 7, "gelu")
    plain = absorb(block, width=15)
    assert plain.m == 15
    assert not plain.w_down[:, 10:].any()
    assert deviation(block, plain) < 1e-13


def test_prelu_keeps_one_slope_or_one_a_neuron() -> None:
    same = ResidualBlock(
        w_up=[[1.0, 2.0], [0.5, -1.0]],
        w_down=[[1.0, 2.0], [3.0, 1.0]],
        activation=prelu([0.25] * 2),
    )
    assert deviation(same, absorb(same, width="minimal")) < 1e-14
    assert deviation(same, absorb(same, width=9)) < 1e-14
    # x + 2 prelu_½(x) − ... : a slope of −1 has no parity, and flipping does nothing
    mixed = ResidualBlock(
        w_up=[[1.0], [1.0]], w_down=[[-2 / 3, 5.0]], activation=prelu([0.5, -1.0])
    )
    with pytest.raises(NotAbsorbable):
        absorb(mixed)


def test_refusals_say_why_and_what_would_do() -> None:
    block = generic(4, 9, "gelu")
    with pytest.raises(NotAbsorbable) as caught:
        absorb(block)
    assert caught.value.verdict.answer == "not absorbable"
    assert caught.value.width == 9
    assert "13 neurons suffice" in str(caught.value)
    with pytest.raises(NotAbsorbable):
        absorb(block, width=12)
    with pytest.raises(NotAbsorbable, match="no width suffices"):
        absorb(ResidualBlock(w_up=[[1.0]], w_down=[[1.0]], activation="tanh"), width="minimal")
    for width in ("least", -1, 2.5):
        with pytest.raises(BlockError, match="width is"):
            absorb(block, width=width)


def test_weights_that_float64_cannot_hold_are_refused() -> None:
    block = ResidualBlock(w_up=[[5e-324]], w_down=[[1.0]], activation="relu")
    with pytest.raises(UnskipError, match="float64"):
        absorb(block, width="minimal")


def test_rows_that_are_nearly_dependent_are_not_chosen() -> None:
    """Ten copies of one row, a little apart, and d good ones: the good ones carry the skip."""
    rng = np.random.default_rng(0)
    row = rng.normal(size=8)
    near = row + 1e-9 * rng.normal(size=(10, 8))
    block = ResidualBlock(
        w_up=np.vstack([near, np.eye(8)]), w_down=rng.normal(size=(8, 18)), activation="gelu"
    )
    plain = absorb(block, width="minimal")
    assert plain.m == 26
    assert np.abs(plain.w_down).max() < 50
    assert deviation(block, plain) < 1e-13


def test_a_skip_that_does_not_show_is_left_out() -> None:
    # every output gets the same x₁, which the LayerNorm's mean discards
    rng = np.random.default_rng(0)
    block = ResidualBlock(
        w_up=rng.normal(size=(5, 3)),
        w_down=rng.normal(size=(3, 5)),
        activation="tanh",
        skip=[[1.0, 0.0, 0.0]] * 3,
        norm="post-layernorm",
    )
    plain = absorb(block)
    assert np.array_equal(plain.w_up, block.w_up)
    assert deviation(block, plain, modulo="mean") < 1e-14


def swiglu(**more: Any) -> ResidualBlock:
    rng = np.random.default_rng(2)
    tensors = {name: rng.normal(size=(8, 3)) for name in ("w_up", "w_gate")}
    return ResidualBlock(w_down=rng.normal(size=(3, 8)), activation="swiglu", **tensors, **more)


def test_remedies_work() -> None:
    """A gate bias for SwiGLU, d units (§9); width for GELU, d neurons (§7)."""
    (remedy,) = remedies(swiglu())
    assert (remedy.change, remedy.extra) == ("allow hidden biases", 3)
    assert deviation(swiglu(), remedy.absorb()) < 1e-13
    (remedy,) = remedies(generic(4, 9, "gelu"))
    assert (remedy.change, remedy.extra) == ("allow a greater width", 4)
    assert deviation(generic(4, 9, "gelu"), remedy.absorb()) < 1e-13


def test_an_output_bias_is_a_remedy_where_flips_leave_a_constant() -> None:
    # x − relu(x + 1) = −relu(−x − 1) − 1
    block = ResidualBlock(w_up=[[1.0]], b_up=[1.0], w_down=[[-1.0]], activation="relu")
    found = {remedy.change: remedy.width for remedy in remedies(block)}
    assert found["allow an output bias"] == 1
    assert all(width > 1 for change, width in found.items() if "output" not in change)


def test_no_remedy_where_none_is_known_or_needed() -> None:
    assert remedies(ResidualBlock(w_up=[[1.0]], w_down=[[1.0]], activation="tanh")) == ()
    assert remedies(ResidualBlock(w_up=[[1.0]], w_down=[[-1.0]], activation="relu")) == ()
