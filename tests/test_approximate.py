"""approximate(): exact where theory says so, never worse than plain least squares."""

from __future__ import annotations

import numpy as np
import pytest

from unskip import ResidualBlock, approximate, decide
from unskip.errors import BlockError, UnskipError

D, M, N = 6, 24, 1500


def block(activation: str = "gelu", **more: object) -> ResidualBlock:
    rng = np.random.default_rng(1)
    tensors = {
        "w_up": rng.normal(size=(M, D)) / D**0.5,
        "w_down": rng.normal(size=(D, M)) / M**0.5,
        "b_up": rng.normal(size=M) / 2,
        "b_down": rng.normal(size=D),
    }
    return ResidualBlock(activation=activation, **{**tensors, **more})  # type: ignore[arg-type]


def inputs(rows: int = N) -> np.ndarray:
    return np.random.default_rng(2).normal(size=(rows, D))


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_at_m_plus_d_neurons_it_is_exact(activation: str) -> None:
    """§7: twins on d independent rows carry any linear map."""
    found = approximate(block(activation), inputs=inputs(), width=M + D)
    assert found.m == M + D
    assert found.error < 1e-12


def test_a_skip_that_flips_absorb_is_absorbed_by_regression_without_flips() -> None:
    """Its function lies in the span of the flipped features; here, one neuron a direction:
    x − relu(x) = −relu(−x), and each orientation of one neuron is tried among 40."""
    planted = ResidualBlock(w_up=np.eye(2), w_down=-np.eye(2), activation="relu")
    x = np.random.default_rng(0).normal(size=(400, 2))
    found = approximate(planted, inputs=x, tries=40)
    assert decide(planted).subset == (0, 1)
    assert found.error < 1e-20
    assert np.array_equal(found.w_up, -planted.w_up)


@pytest.mark.parametrize("norm", [None, "post-layernorm", "pre-layernorm", "post-rmsnorm"])
def test_no_worse_than_least_squares_without_flips(norm: str | None) -> None:
    """On the rows that choose, a baseline by numpy.linalg.lstsq; here on all rows, with room for
    the difference between rows."""
    b, x = block(norm=norm), inputs()
    z, y, weight = b.read_by_mlp(x), b.before_norm(x), np.ones((N, 1))
    if norm == "post-layernorm":
        y = y - y.mean(axis=1, keepdims=True)
    if norm is not None and norm.startswith("post"):
        weight = 1 / np.sqrt(np.mean(y**2, axis=1, keepdims=True) + 1e-5)
    features = np.column_stack([b.hidden(z), np.ones(N)])
    solution = np.linalg.lstsq(features * weight, y * weight, rcond=None)[0]
    spread = np.sum(((y * weight) - (y * weight).mean(axis=0)) ** 2)
    baseline = np.sum(((features @ solution - y) * weight) ** 2) / spread
    assert approximate(b, inputs=x).error < 1.2 * baseline


def test_the_error_is_that_of_fresh_inputs() -> None:
    b = block()
    found = approximate(b, inputs=inputs(4000))
    x = np.random.default_rng(99).normal(size=(4000, D))
    y = b(x)
    fresh = np.sum((found(x) - y) ** 2) / np.sum((y - y.mean(axis=0)) ** 2)
    assert 0.7 < found.error / fresh < 1.4


def test_wider_is_nearer_and_narrower_is_possible() -> None:
    errors = [approximate(block(), inputs=inputs(), width=w).error for w in (8, M, M + 3, M + D)]
    assert errors == sorted(errors, reverse=True)


def test_the_same_arguments_give_the_same_block() -> None:
    first, second = (approximate(block(), inputs=inputs(), seed=5) for _ in range(2))
    assert np.array_equal(first.w_down, second.w_down)
    assert np.array_equal(first.w_up, second.w_up)


@pytest.mark.parametrize("activation", ["swiglu", "glu", "bilinear"])
def test_gated_blocks(activation: str) -> None:
    gate = np.random.default_rng(3).normal(size=(M, D))
    b = block(activation, w_gate=gate, b_gate=np.linspace(-1, 1, M))
    found = approximate(b, inputs=inputs())
    assert found.gated
    assert found.m == M
    assert 0 <= found.error < 1


def test_bad_arguments() -> None:
    with pytest.raises(BlockError, match="inputs of shape"):
        approximate(block(), inputs=np.zeros((100, D + 1)))
    with pytest.raises(BlockError, match="finite rows"):
        approximate(block(), inputs=np.full((100, D), np.nan))
    with pytest.raises(BlockError, match="width"):
        approximate(block(), inputs=inputs(), width=0)
    with pytest.raises(BlockError, match="held_out"):
        approximate(block(), inputs=inputs(), held_out=0.5)
    with pytest.raises(UnskipError, match="too few"):
        approximate(block(), inputs=inputs(10))
