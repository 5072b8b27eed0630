"""Gated blocks with biases: flipped gates against every subset, in exact polynomials."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskip import InvalidCertificate, PlainBlock, ResidualBlock, check, decide

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden.json").read_text())["cases"]
Form = dict[tuple[int, int], Fraction]
PARITY = ("swiglu", "geglu", "reglu", "shifted_swiglu")


def flipped(block: ResidualBlock, subset: tuple[int, ...], *, reflection: bool) -> PlainBlock:
    """The residual-free block of theory §9: gates (and, for sigmoid, outputs) negated."""
    w_gate, w_down = np.array(block.w_gate), np.array(block.w_down)
    b_gate = np.zeros(block.m) if block.b_gate is None else np.array(block.b_gate)
    b_up = np.zeros(block.m) if block.b_up is None else np.array(block.b_up)
    b_down = np.zeros(block.d) if block.b_down is None else np.array(block.b_down)
    chosen = list(subset)
    offset = b_up + float(block.up_activation.facts.offset)
    constant = offset if reflection else b_gate * offset
    b_down = b_down + w_down[:, chosen] @ constant[chosen]
    w_gate[chosen] *= -1
    b_gate[chosen] *= -1
    if reflection:
        w_down[:, chosen] *= -1
    return PlainBlock(
        w_gate=w_gate,
        b_gate=b_gate,
        w_up=block.w_up,
        b_up=b_up,
        w_down=w_down,
        b_down=b_down,
        activation=block.activation,
        up_activation=block.up_activation,
    )


def polynomial(
    block: ResidualBlock, subset: tuple[int, ...]
) -> list[dict[tuple[int, int], Fraction]]:
    """A x + Σ_S d_j (w_j·x + b_j)(v_j·x + e_j) as coefficients of x_a x_b, x_d = 1, per output."""
    d, m = block.d, block.m
    gate = np.column_stack([block.w_gate, np.zeros(m) if block.b_gate is None else block.b_gate])
    b_up = np.zeros(m) if block.b_up is None else block.b_up
    value = np.column_stack([block.w_up, b_up + float(block.up_activation.facts.offset)])
    skip = block.skip_matrix
    result = []
    for i in range(d):
        form: Form = {}
        for a in range(d):
            form[(a, d)] = Fraction(float(skip[i, a]))
        for j in subset:
            for a in range(d + 1):
                for b in range(d + 1):
                    key = (min(a, b), max(a, b))
                    term = Fraction(float(block.w_down[i, j])) * Fraction(float(gate[j, a]))
                    form[key] = form.get(key, Fraction(0)) + term * Fraction(float(value[j, b]))
        result.append(form)
    return result


def absorbs(block: ResidualBlock, subset: tuple[int, ...]) -> bool:
    forms = polynomial(block, subset)
    if block.norm == "post-layernorm":
        forms = [{k: f.get(k, 0) - forms[0].get(k, 0) for k in {*f, *forms[0]}} for f in forms[1:]]
    d = block.d
    for form in forms:
        for key, coefficient in form.items():
            constant = key == (d, d)
            if coefficient != 0 and not (constant and block.b_down is not None):
                return False
    return True


def subsets(m: int) -> Iterator[tuple[int, ...]]:
    for size in range(m + 1):
        yield from combinations(range(m), size)


@st.composite
def blocks(draw: st.DrawFn) -> ResidualBlock:
    d, m = draw(st.integers(1, 2)), draw(st.integers(1, 6))
    small = st.integers(-2, 2)

    def array(*shape: int) -> np.ndarray:
        size = int(np.prod(shape))
        return np.array(draw(st.lists(small, min_size=size, max_size=size)), float).reshape(shape)

    kind = draw(st.sampled_from(PARITY))
    w_gate, b_gate, w_up, w_down = array(m, d), array(m), array(m, d), array(d, m)
    b_up = None if kind == "shifted_swiglu" else array(m)
    skip = array(d, d)
    if m >= 2 and draw(st.booleans()):  # plant: two units whose quadratic parts cancel
        w_gate[1], w_up[1], w_down[:, 1] = w_gate[0], w_up[0], -w_down[:, 0]
        plain = ResidualBlock(
            w_gate=w_gate, b_gate=b_gate, w_up=w_up, b_up=b_up, w_down=w_down,
            activation=kind, skip=np.zeros((d, d)),
        )  # fmt: skip
        forms = polynomial(plain, (0, 1))
        skip = np.array([[-float(f.get((a, d), 0)) for a in range(d)] for f in forms])
    return ResidualBlock(
        w_gate=w_gate,
        b_gate=b_gate,
        w_up=w_up,
        b_up=b_up,
        w_down=w_down,
        b_down=array(d) if draw(st.booleans()) else None,
        activation=kind,
        skip=skip,
        norm=draw(st.sampled_from(["none", "post-layernorm"])),
    )


@settings(max_examples=600)
@given(blocks())
def test_agrees_with_every_subset(block: ResidualBlock) -> None:
    verdict = decide(block)
    check(verdict.certificate, block)
    exists = [s for s in subsets(block.m) if absorbs(block, s)]
    if block.skip_matrix.any() and verdict.subset is not None:
        assert verdict.subset in exists
        if block.norm == "none":
            x = np.random.default_rng(0).normal(size=(20, block.d)) * 3
            plain = flipped(block, verdict.subset, reflection=False)
            assert np.allclose(block(x), plain(x), rtol=1e-11, atol=1e-10)
    if verdict.answer == "not absorbable":
        assert not exists


def test_golden_swiglu_with_biases() -> None:
    case = next(c for c in GOLDEN if c["id"] == "G30")
    for b_down in (None, case["b_out"]):
        block = ResidualBlock(
            w_gate=case["W_gate"],
            b_gate=case["b_gate"],
            w_up=case["V_up"],
            b_up=case["c_up"],
            w_down=case["D"],
            b_down=b_down,
            activation="swiglu",
        )
        verdict = decide(block)
        assert verdict.answer == "absorbable"
        assert list(verdict.subset or ()) == case["expected"]["flip_set_S"]
        check(verdict.certificate, block)
        witness = case["witness"]
        x = np.linspace(-9, 9, 101)[:, None]
        silu = lambda z: z / (1 + np.exp(-z))  # noqa: E731
        gate = silu(x @ np.array(witness["W_gate"]).T + witness["b_gate"])
        value = x @ np.array(witness["V_up"]).T + witness["c_up"]
        assert np.allclose(block(x)[:, 0], (gate * value) @ witness["D"][0], atol=1e-12)


def random_block(
    kind: str, seed: int, dtype: type = np.float64, **changes: object
) -> ResidualBlock:
    rng = np.random.default_rng(seed)
    arguments = {
        "w_gate": rng.normal(size=(14, 4)).astype(dtype),
        "b_gate": rng.normal(size=14).astype(dtype),
        "w_up": rng.normal(size=(14, 4)).astype(dtype),
        "b_up": rng.normal(size=14).astype(dtype),
        "w_down": rng.normal(size=(4, 14)).astype(dtype),
        "b_down": np.zeros(4),
        "activation": kind,
    }
    return ResidualBlock(**(arguments | changes))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("kind", [*PARITY, "glu"])
def test_random_gated_blocks_are_not_absorbable(kind: str, dtype: type) -> None:
    for seed in range(5):
        block = random_block(kind, seed, dtype)
        verdict = decide(block)
        assert (verdict.answer, verdict.scope) == ("not absorbable", "this width")
        assert verdict.rule == "gated-condition"
        assert tuple(verdict.width) == (15, 18)
        check(verdict.certificate, block)


@pytest.mark.parametrize("seed", range(4))
def test_sigmoid_gates_absorb_with_the_value_matrix(seed: int) -> None:
    """Possible without any bias: κ₀ Σ_S d_j v_jᵀ = −A."""
    rng = np.random.default_rng(seed)
    w_up, w_down = rng.integers(-3, 4, (9, 3)) * 1.0, rng.integers(-3, 4, (3, 9)) * 1.0
    skip = -(w_down[:, [1, 4, 5, 7]] @ w_up[[1, 4, 5, 7]])
    block = ResidualBlock(
        w_gate=rng.normal(size=(9, 3)), w_up=w_up, w_down=w_down, activation="glu", skip=skip
    )
    verdict = decide(block)
    assert verdict.answer == "absorbable"
    check(verdict.certificate, block)
    x = rng.normal(size=(40, 3)) * 4
    plain = flipped(block, verdict.subset or (), reflection=True)
    assert np.allclose(block(x), plain(x), rtol=1e-12, atol=1e-11)
    nudged = dataclasses.replace(block, skip=np.nextafter(skip, 99.0))
    assert decide(nudged).answer == "not absorbable"
    check(decide(nudged).certificate, nudged)


def test_units_that_coincide_are_no_longer_alone() -> None:
    block = random_block("swiglu", 0)
    gate, bias = np.array(block.w_gate), np.array(block.b_gate)
    gate[3], bias[3] = -gate[5], -bias[5]
    repeated = dataclasses.replace(block, w_gate=gate, b_gate=bias)
    verdict = decide(repeated)
    assert verdict.answer == "unknown"  # two to spare, and no rank above two is proved
    assert "share a gate" in verdict.reason
    assert verdict.width.lower >= 12
    check(verdict.certificate, repeated)


def test_certificates_do_not_pass_for_other_gates() -> None:
    block = random_block("swiglu", 1)
    certificate = decide(block).certificate
    check(certificate, block)
    coincide = np.array(block.w_gate)
    coincide[0] = coincide[1]
    bias = np.array(block.b_gate)
    bias[0] = bias[1]
    changes = [
        {"w_gate": coincide, "b_gate": bias},
        {"activation": "geglu"},
        {"b_gate": np.zeros(14), "b_up": np.zeros(14), "skip": 0.0},
        {"norm": "pre-rmsnorm"},
        {"norm": "post-rmsnorm", "norm_eps": 0.0},
        {"w_down": np.zeros((4, 14))},
    ]
    for change in changes:
        with pytest.raises(InvalidCertificate):
            check(certificate, dataclasses.replace(block, **change))
    for statement in ({"width": (16.0, 18.0)}, {"width": (15.0, 17.0)}, {"defect": (1.0, 1.0)}):
        bounds = {k: type(certificate.width)(*v) for k, v in statement.items()}
        with pytest.raises(InvalidCertificate):
            check(dataclasses.replace(certificate, **bounds), block)
