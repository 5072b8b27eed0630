"""Classes of activations beyond the subset condition, each against an independent oracle."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Oracle, fractions, rank

from unskip import Interval, InvalidCertificate, PlainBlock, ResidualBlock, check, decide
from unskip.reduction import hyper_connection


def refuses(block: ResidualBlock, verdict: object, **changes: object) -> None:
    """The checker refuses the verdict's certificate once it is changed."""
    certificate = dataclasses.replace(verdict.certificate, **changes)  # type: ignore[attr-defined]
    with pytest.raises(InvalidCertificate):
        check(certificate, block)


def integers(rng: np.random.Generator, *shape: int, size: int = 3) -> np.ndarray:
    return rng.integers(-size, size + 1, shape).astype(np.float64)


@pytest.mark.parametrize("activation", ["tanh", "mish", "square", "cube", "abs"])
@pytest.mark.parametrize("gated", [False, True])
def test_a_skip_that_does_not_show_is_left_out(activation: str, gated: bool) -> None:
    rng = np.random.default_rng(3)
    mean = np.ones((3, 1)) * [2.0, -1.0, 0.5]
    for change in ({"skip": 0.0}, {"skip": mean, "norm": "post-layernorm"}):
        block = ResidualBlock(
            w_up=rng.normal(size=(4, 3)),
            w_gate=rng.normal(size=(4, 3)) if gated else None,
            w_down=rng.normal(size=(3, 4)),
            b_up=rng.normal(size=4),
            b_down=rng.normal(size=3),
            activation=activation,
            **change,
        )
        verdict = decide(block)
        assert (verdict.answer, verdict.rule) == ("absorbable", "invisible-skip")
        assert verdict.width.upper == 4
        check(verdict.certificate, block)
        x = rng.normal(size=(20, 3))
        bare = dataclasses.replace(block, skip=0.0)
        assert np.allclose(block(x), bare(x), rtol=1e-9, atol=1e-12)
        for forged in ({"skip": np.eye(3) * 2.0**-60}, {"skip": mean + np.eye(3)}):
            with pytest.raises(InvalidCertificate):
                check(verdict.certificate, dataclasses.replace(block, **forged))
        strict = decide(block, output_bias=False)
        assert strict.answer == "unknown"
        assert "biases" in strict.reason
        check(strict.certificate, block)


# --------------------------------------------------------------------------------------
# Bounded rank


@pytest.mark.parametrize("activation", ["relu", "gelu", "leaky_relu(-1/2)"])
@pytest.mark.parametrize("dead", [0, 5])
def test_static_hyper_connections_are_never_absorbed(activation: str, dead: int) -> None:
    """Two streams or more: the branch reads d of nd directions, and each other costs two."""
    rng = np.random.default_rng(dead)
    n, d, m = 3, 4, 10
    down = rng.normal(size=(d, m)).astype(np.float32)
    down[:, :dead] = 0
    inner = ResidualBlock(
        w_up=rng.normal(size=(m, d)).astype(np.float32),
        w_down=down,
        b_up=rng.normal(size=m).astype(np.float32),
        b_down=np.zeros(d),
        activation=activation,
    )
    mixing = rng.normal(size=(n, n))
    reduced = hyper_connection(inner, mixing, np.float32(rng.normal(size=n)), [1.0, -0.5, 2.0])
    assert reduced.exact
    block = reduced.block
    verdict = decide(block)
    assert (verdict.answer, verdict.rule) == ("not absorbable", "bounded-rank")
    assert verdict.width.lower >= m - dead + 2 * (n - 1) * d
    assert verdict.width.upper == m - dead + d + 2 * (n - 1) * d
    check(verdict.certificate, block)
    left = verdict.certificate.data["left"]
    assert left == (n - 1) * d
    refuses(block, verdict, data={**verdict.certificate.data, "left": left + 1})
    refuses(block, verdict, width=Interval(verdict.width.lower + 1, verdict.width.upper))
    refuses(block, verdict, rule=type(verdict.rule)("subset-condition"))
    up = np.array(block.w_up)
    up[dead, 0] *= 1 + 2.0**-20  # one more direction is read
    with pytest.raises(InvalidCertificate):
        check(verdict.certificate, dataclasses.replace(block, w_up=up))


def test_a_bottleneck_leaves_what_it_does_not_read() -> None:
    rng = np.random.default_rng(5)
    block = ResidualBlock(
        w_up=rng.normal(size=(6, 40)), w_down=rng.normal(size=(40, 6)), activation="gelu"
    )
    for norm, unread in (("none", 34), ("post-layernorm", 33)):
        verdict = decide(dataclasses.replace(block, norm=norm))
        assert verdict.rule == "bounded-rank"
        assert verdict.width.lower == 6 + 2 * unread
        check(verdict.certificate, dataclasses.replace(block, norm=norm))


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_low_rank_branches_agree_with_the_minimal_width(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, m = int(rng.integers(2, 4)), int(rng.integers(1, 6))
    r = int(rng.integers(1, d))
    block = ResidualBlock(
        w_up=integers(rng, m, r, size=1) @ integers(rng, r, d, size=1),
        w_down=integers(rng, d, m, size=1),
        b_up=integers(rng, m, size=1),
        b_down=np.zeros(d),
        activation="relu",
        skip=None if rng.random() < 0.5 else integers(rng, d, d, size=1),
        norm=["none", "post-layernorm"][int(rng.integers(2))],
    )
    oracle = Oracle(block, [Fraction(1)] * m, output_bias=True)
    least = oracle.minimal_width(hyperplanes=True)
    verdict = decide(block)
    check(verdict.certificate, block)
    assert tuple(verdict.width) == (least, least)
    if "left" in verdict.certificate.data:
        read = [row for row, column in zip(oracle.up, oracle.columns, strict=True) if any(column)]
        unread = rank([*oracle.skip, *read]) - rank(read)
        assert verdict.certificate.data["left"] <= unread


# --------------------------------------------------------------------------------------
# Squared ReLU with biases, and gates that coincide or are dead


def subsets(m: int) -> Iterator[tuple[int, ...]]:
    for size in range(m + 1):
        yield from combinations(range(m), size)


def squares_left(block: ResidualBlock, subset: tuple[int, ...]) -> bool:
    """Whether A x + Σ_S d_j (u_j·x + b_j)² is constant (or 0, without an output bias)."""
    rows = fractions(np.column_stack([block.w_up, block.bias("b_up")]))
    down, skip, d = fractions(block.w_down), fractions(block.skip_matrix), block.d
    for i in range(d):
        for a in range(d + 1):
            for b in range(a, d + 1):
                total = sum((down[i][j] * rows[j][a] * rows[j][b] for j in subset), Fraction(0))
                if b == d and a < d:
                    total += skip[i][a] / 2
                if total and not (a == d and block.b_down is not None):
                    return False
    return True


def flipped_squares(block: ResidualBlock, subset: tuple[int, ...]) -> PlainBlock:
    sign = np.ones(block.m)
    sign[list(subset)] = -1
    chosen = list(subset)
    constant = block.w_down[:, chosen] @ block.bias("b_up")[chosen] ** 2
    return PlainBlock(
        w_up=block.w_up * sign[:, None],
        b_up=block.bias("b_up") * sign,
        w_down=block.w_down * sign,
        b_down=block.bias("b_down") + constant,
        activation=block.activation,
    )


def test_squared_relu_with_biases_absorbs() -> None:
    """x + ½r(x)² − ½r(x+1)² = −½r(−x)² + ½r(−x−1)² − ½."""
    block = ResidualBlock(
        w_up=[[1.0], [1.0]], b_up=[0.0, 1.0], w_down=[[0.5, -0.5]], b_down=[0.0],
        activation="relu_squared",
    )  # fmt: skip
    verdict = decide(block)
    assert (verdict.answer, verdict.rule) == ("absorbable", "squared-condition")
    assert verdict.subset == (0, 1)
    assert tuple(verdict.width) == (2, 2)
    check(verdict.certificate, block)
    plain = flipped_squares(block, (0, 1))
    assert plain.b_down.tolist() == [-0.5]
    x = np.linspace(-5, 5, 101)[:, None]
    assert np.allclose(block(x), plain(x), rtol=0, atol=1e-12)
    near = dataclasses.replace(block, b_up=[0.0, np.nextafter(1.0, 2.0)])
    verdict = decide(near)
    assert verdict.answer == "not absorbable"
    assert tuple(verdict.width) == (3, 6)
    check(verdict.certificate, near)
    refuses(near, verdict, width=Interval(4, 6))
    refuses(near, verdict, width=Interval(3, 5))


@settings(max_examples=400)
@given(st.integers(0, 2**32))
def test_squares_agree_with_every_subset(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, m = int(rng.integers(1, 3)), int(rng.integers(1, 6))
    up, bias, down = integers(rng, m, d), integers(rng, m), integers(rng, d, m)
    skip = integers(rng, d, d)
    if m > 1 and rng.random() < 0.6:  # plant: two parallel neurons whose squares cancel
        up[1], down[:, 1] = up[0], -down[:, 0]
        skip = -2 * (bias[0] - bias[1]) * np.outer(down[:, 0], up[0])
    block = ResidualBlock(
        w_up=up, b_up=bias, w_down=down, skip=skip, activation="relu_squared",
        b_down=integers(rng, d) if rng.random() < 0.7 else None,
    )  # fmt: skip
    verdict = decide(block)
    check(verdict.certificate, block)
    exists = [s for s in subsets(m) if squares_left(block, s)]
    if verdict.answer == "not absorbable":
        assert not exists
    if verdict.rule == "squared-condition" and verdict.answer == "absorbable":
        assert verdict.subset in exists
        x = rng.normal(size=(20, d)) * 3
        plain = flipped_squares(block, verdict.subset or ())
        assert np.allclose(block(x), plain(x), rtol=1e-9, atol=1e-9)
    rows = fractions(np.column_stack([up, bias]))
    apart = all(rank([rows[i], rows[j]]) == 2 for i, j in combinations(range(m), 2))
    if apart and up.any(axis=1).all() and down.any(axis=0).all() and block.b_down is not None:
        assert (verdict.answer == "absorbable") == bool(exists)


@pytest.mark.parametrize("kind", ["swiglu", "glu", "relu_squared"])
def test_dead_units_and_shared_gates_leave_a_no(kind: str) -> None:
    rng = np.random.default_rng(2)
    d, m = 24, 96
    gated = kind != "relu_squared"
    arrays = {
        "w_up": rng.normal(size=(m, d)) / 16,
        "b_up": rng.normal(size=m) / 4,
        "w_down": rng.normal(size=(d, m)) / 8,
        "b_down": np.zeros(d),
        "activation": kind,
    }
    if gated:
        arrays |= {"w_gate": rng.normal(size=(m, d)) / 16, "b_gate": rng.normal(size=m) / 4}
    rows, bias = ("w_gate", "b_gate") if gated else ("w_up", "b_up")
    arrays["w_down"][:, 3] = 0  # dead
    arrays[rows][7], arrays[bias][7] = -arrays[rows][9], -arrays[bias][9]  # one gate
    block = ResidualBlock(**arrays)
    verdict = decide(block)
    assert verdict.answer == "not absorbable"
    assert verdict.width.lower > m
    check(verdict.certificate, block)
    claimed = verdict.certificate.data["rank"]
    assert verdict.width.lower == m - 3 + claimed
    refuses(block, verdict, data={**verdict.certificate.data, "rank": claimed + 1})
    refuses(block, verdict, width=Interval(verdict.width.lower + 1, verdict.width.upper))
    refuses(block, verdict, defect=Interval(1e-3, 1.0))


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_a_no_is_never_said_where_shared_gates_absorb(seed: int) -> None:
    """Absorbable by construction, with other units than the flipped ones on a shared gate.

    G has the units D⁺ ⊗ V⁺ on the gate z and D⁻ ⊗ V⁻ on −z; with sigmoid(−z) = 1 − sigmoid(z) it
    is D⁺V⁺ − … = (D⁺V⁺ + D⁻V⁻)-like on z alone plus a linear map, and any factorisation of the sum
    into as many units serves as F.
    """
    rng = np.random.default_rng(seed)
    d, shared, alone = 3, int(rng.integers(1, 4)), int(rng.integers(0, 4))
    w = integers(rng, 1 + alone, d)
    gates = np.vstack([np.repeat(w[:1], shared, axis=0), w[1:]])
    signs = rng.choice([-1.0, 1.0], shared + alone)
    value, down = integers(rng, shared + alone, d), integers(rng, d, shared + alone)
    # G = Σ_j s_j d_j sigmoid(s_j z_j) v_j·x,  so F = Σ_j d_j sigmoid(z_j) v_j·x + A x
    skip = down[:, signs < 0] @ value[signs < 0]
    plain = PlainBlock(
        w_gate=gates * signs[:, None], w_up=value, w_down=down * signs, activation="glu"
    )
    mix = np.eye(shared)
    for _ in range(3 if shared > 1 else 0):  # unimodular, so the inverse is exact
        i, j = rng.choice(shared, 2, replace=False)
        mix[i] += rng.integers(-1, 2) * mix[j]
    inverse = np.round(np.linalg.inv(mix))
    mixed = value.copy()
    mixed[:shared] = inverse @ value[:shared]
    columns = down.copy()
    columns[:, :shared] = down[:, :shared] @ mix
    block = ResidualBlock(w_gate=gates, w_up=mixed, w_down=columns, activation="glu", skip=-skip)
    x = rng.normal(size=(30, d)) * 2
    assert np.allclose(block(x), plain(x), rtol=1e-9, atol=1e-9)
    verdict = decide(block)
    check(verdict.certificate, block)
    assert verdict.answer != "not absorbable"
    assert verdict.width.lower <= plain.m


# --------------------------------------------------------------------------------------
# Constants, where there is no output bias


@settings(max_examples=500)
@given(st.integers(0, 2**32))
def test_constant_neurons_without_an_output_bias(seed: int) -> None:
    """Neurons with u = 0.  Degree 1: their rational constants are an output bias of the oracle."""
    rng = np.random.default_rng(seed)
    d, m, name = int(rng.integers(1, 3)), int(rng.integers(2, 5)), rng.choice(CONSTANT)
    kappa = Fraction(1, 2) if name == "leaky_relu(-1/2)" else Fraction(1)
    up, bias, down = integers(rng, m, d, size=2), integers(rng, m, size=2), integers(rng, d, m)
    up[rng.choice(m, int(rng.integers(1, 3)), replace=False)] = 0
    block = ResidualBlock(
        w_up=up,
        b_up=bias,
        w_down=down,
        activation=str(name),
        skip=integers(rng, d, d) if rng.random() < 0.5 else None,
        norm=["none", "post-layernorm"][int(rng.integers(2))],
    )
    verdict = decide(block)
    check(verdict.certificate, block)
    alive = up.any(axis=1)
    if block.activation.facts.homogeneity == 1:
        bare = dataclasses.replace(
            block,
            b_up=np.where(alive, bias, 0),
            w_down=np.where(alive, down, 0),
            b_down=down[:, ~alive] @ block.activation(bias[~alive]),
        )
        oracle = Oracle(bare, [kappa] * m, output_bias=False)
        least = oracle.minimal_width(hyperplanes=True, constant=True)
        assert tuple(verdict.width) == (least, least)
        assert (verdict.answer == "absorbable") == (least <= m)
    else:
        oracle = Oracle(block, [kappa] * m, output_bias=True)
        least = oracle.minimal_width(hyperplanes=False)
        lower, upper = verdict.width
        assert lower <= least + 1
        assert upper >= least
        if least != m:
            assert (verdict.answer == "absorbable") == (least < m)
    if verdict.subset is not None:
        literal = Oracle(block, [kappa] * m, output_bias=False)
        assert verdict.subset in literal.satisfying()


CONSTANT = ("relu", "leaky_relu(-1/2)", "gelu", "softplus")


def test_what_constants_do_not_prove() -> None:
    """G10: two neurons, and one for the constant (9, 9)."""
    block = ResidualBlock(
        w_up=[[1, 0], [0, 1], [0, 0], [1, 1]], b_up=[0, 0, 1, 0],
        w_down=[[-1, 0, 9, 0], [0, -1, 9, 0]], activation="relu",
    )  # fmt: skip
    verdict = decide(block)
    assert (verdict.answer, verdict.subset) == ("absorbable", (0, 1))
    assert tuple(verdict.width) == (3, 3)
    check(verdict.certificate, block)
    refuses(block, verdict, width=Interval(2, 2))
    refuses(block, verdict, width=Interval(4, 4))
    data = dict(verdict.certificate.data)
    del data["constants"]
    refuses(block, verdict, data=data)
    gone = dataclasses.replace(block, b_up=[0.0, 0.0, -1.0, 0.0])  # relu(−1) = 0: no constant
    with pytest.raises(InvalidCertificate):
        check(verdict.certificate, gone)
    assert tuple(decide(gone).width) == (2, 2)
