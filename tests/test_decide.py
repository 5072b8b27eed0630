"""decide() against every subset, planted answers, near misses and metamorphic laws."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Oracle

import unskip
from unskip import ResidualBlock, check, decide

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden.json").read_text())["cases"]
KAPPA = {
    "relu": Fraction(1),
    "gelu": Fraction(1),
    "silu": Fraction(1),
    "leaky_relu(-1/2)": Fraction(1, 2),
    "leaky_relu(0.25)": Fraction(5, 4),
}


def golden_block(case: dict, *, output_bias: bool = True) -> ResidualBlock:
    name = case["activation"].replace("relu2", "relu_squared")
    if ":" in name:
        name = f"leaky_relu({name.partition(':')[2]})"
    skip = case.get("skip", "identity")
    return ResidualBlock(
        w_up=case["U"],
        w_down=case["D"],
        b_up=case["b_up"],
        b_down=case["b_out"] if output_bias else None,
        activation=name,
        skip=None if skip == "identity" else skip,
        norm="post-layernorm" if case.get("output_projection") else None,
    )


@pytest.mark.parametrize("output_bias", [True, False])
@pytest.mark.parametrize("case", [c for c in GOLDEN if c["kind"] == "plain"], ids=lambda c: c["id"])
def test_golden_cases(case: dict, output_bias: bool) -> None:
    block = golden_block(case, output_bias=output_bias)
    verdict = decide(block)
    check(verdict.certificate, block)
    expected = case["expected"]
    kind = "with" if output_bias else "no"
    same = expected.get(f"absorbable_same_width_{kind}_output_bias")
    width = expected.get(f"min_width_{kind}_output_bias")
    if same is not None:
        assert (verdict.answer == "absorbable") == same
    if width is not None:
        assert verdict.width.lower <= width <= verdict.width.upper
        assert verdict.width == unskip.Interval(width, width)
    if expected.get("absorbable_same_width") is False and "abs" not in case["activation"]:
        assert verdict.answer != "absorbable"
    if verdict.subset is not None and expected.get("flip_sets_S"):
        assert list(verdict.subset) in expected["flip_sets_S"]


@st.composite
def integer_blocks(draw: st.DrawFn) -> tuple[ResidualBlock, Fraction]:
    d, m = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    small = st.integers(-2, 2)

    def matrix(rows: int, columns: int) -> np.ndarray:
        entries = draw(st.lists(small, min_size=rows * columns, max_size=rows * columns))
        return np.array(entries, dtype=np.float64).reshape(rows, columns)

    name = draw(st.sampled_from(sorted(KAPPA)))
    w_up, w_down = matrix(m, d), matrix(d, m)
    if draw(st.booleans()) and m >= d:  # plant: the first d neurons reproduce the skip
        w_up[:d] = np.eye(d)
        w_down[:, :d] = (
            -np.eye(d) / float(KAPPA[name]) if name != "leaky_relu(0.25)" else -np.eye(d)
        )
    block = ResidualBlock(
        w_up=w_up,
        w_down=w_down,
        b_up=matrix(1, m)[0] if draw(st.booleans()) else None,
        b_down=matrix(1, d)[0] if draw(st.booleans()) else None,
        activation=name,
        skip=matrix(d, d) if draw(st.booleans()) else None,
        norm=draw(st.sampled_from(["none", "post-layernorm", "post-rmsnorm"])),
    )
    return block, KAPPA[name]


def is_piecewise_linear(block: ResidualBlock) -> bool:
    return block.activation.name.startswith(("relu", "leaky"))


@settings(max_examples=1500)
@given(integer_blocks())
def test_agrees_with_every_subset(drawn: tuple[ResidualBlock, Fraction]) -> None:
    block, kappa = drawn
    oracle = Oracle(block, [kappa] * block.m, output_bias=block.b_down is not None)
    verdict = decide(block)
    check(verdict.certificate, block)
    satisfying = oracle.satisfying()
    if verdict.subset is not None:
        assert verdict.subset in satisfying
        return
    assert verdict.defect is not None
    least = oracle.least_defect()
    assert least * (1 + 1e-15) <= verdict.defect.upper * (1 + 2e-15)
    if oracle.distinct(hyperplanes=is_piecewise_linear(block)):
        assert not satisfying
        assert verdict.defect.lower <= least * (1 + 1e-15)


@settings(max_examples=600)
@given(integer_blocks())
def test_the_answer_is_that_of_the_minimal_width_theorem(
    drawn: tuple[ResidualBlock, Fraction],
) -> None:
    block, kappa = drawn
    output_bias = block.b_down is not None
    if block.m > 5 or (not output_bias and (~block.w_up.any(axis=1)).any()):
        return  # constant neurons without an output bias are bounded, not decided
    oracle = Oracle(block, [kappa] * block.m, output_bias=output_bias)
    constant = not output_bias and block.b_up is not None
    minimum = oracle.minimal_width(hyperplanes=is_piecewise_linear(block), constant=constant)
    verdict = decide(block)
    assert (verdict.answer == "absorbable") == (minimum <= block.m)
    assert verdict.answer != "unknown"
    assert tuple(verdict.width) == (minimum, minimum)


def planted(
    d: int, m: int, seed: int, *, size: int | None = None, dtype: type = np.float64
) -> tuple[ResidualBlock, list[int]]:
    """Small dyadic weights in which the chosen neurons add up to −A, exactly.

    A is not inverted: it is *defined* as minus the sum over the subset.
    """
    rng = np.random.default_rng(seed)
    up = rng.integers(-64, 64, (m, d)) / 64
    down = rng.integers(-64, 64, (d, m)) / 64
    subset = np.sort(rng.choice(m, size or m // 2, replace=False))
    skip = -(down[:, subset] @ up[subset])
    block = ResidualBlock(
        w_up=up.astype(dtype),
        w_down=down.astype(dtype),
        b_up=rng.integers(-64, 64, m) / 64,
        b_down=np.zeros(d),
        activation="gelu",
        skip=skip,
    )
    return block, subset.tolist()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("d", "m"), [(2, 3), (5, 20), (16, 100), (32, 600), (64, 1024)])
def test_planted_subset_is_found(d: int, m: int, dtype: type) -> None:
    block, subset = planted(d, m, seed=d, dtype=dtype)
    verdict = decide(block)
    assert verdict.answer == "absorbable"
    assert list(verdict.subset or ()) == subset
    assert verdict.width == unskip.Interval(m, m)
    check(verdict.certificate, block)


@pytest.mark.parametrize("norm", ["none", "post-layernorm"])
@pytest.mark.parametrize(("d", "m"), [(3, 5), (8, 40), (24, 200)])
def test_one_unit_in_the_last_place_makes_it_a_no(d: int, m: int, norm: str) -> None:
    block, subset = planted(d, m, seed=7)
    up = np.array(block.w_up)
    up[subset[0], 0] = np.nextafter(up[subset[0], 0], 9.0)
    near = dataclasses.replace(block, w_up=up, norm=norm)
    verdict = decide(near)
    assert verdict.answer == "not absorbable"
    assert verdict.defect is not None
    assert verdict.defect.upper < 1e-12
    check(verdict.certificate, near)


def test_what_a_layernorm_discards_may_be_anything() -> None:
    block, subset = planted(6, 20, seed=3)
    rng = np.random.default_rng(0)
    shifted = block.skip_matrix + np.ones((6, 1)) * rng.integers(-8, 8, 6)
    verdict = decide(dataclasses.replace(block, skip=shifted, norm="post-layernorm"))
    assert verdict.answer == "absorbable"
    assert list(verdict.subset or ()) == subset
    assert decide(dataclasses.replace(block, skip=shifted)).answer == "not absorbable"


@pytest.mark.parametrize(
    "change", [{"norm_eps": 0.0}, {"norm_gain": np.array([1.0, 0.0, 2.0])}], ids=str
)
def test_a_norm_that_discards_more_leaves_it_open(change: dict) -> None:
    rng = np.random.default_rng(1)
    block = ResidualBlock(
        w_up=rng.normal(size=(5, 3)),
        w_down=rng.normal(size=(3, 5)),
        activation="relu",
        norm="post-layernorm",
    )
    assert decide(block).answer == "not absorbable"
    verdict = decide(dataclasses.replace(block, **change))
    assert verdict.answer == "unknown"
    check(verdict.certificate, dataclasses.replace(block, **change))


def test_a_replacement_without_hidden_biases_cannot_use_them() -> None:
    block, _ = planted(4, 10, seed=2)
    verdict = decide(block, hidden_bias=False)
    assert (verdict.answer, verdict.scope) == ("not absorbable", "any width")
    assert verdict.rule == "hidden-bias"
    check(verdict.certificate, block)
    twice = dataclasses.replace(
        block,
        w_up=np.vstack([block.w_up] * 2),
        w_down=np.hstack([block.w_down, -block.w_down]),
        b_up=np.hstack([block.b_up] * 2),
    )  # every neuron cancels: nothing is left of the branch, and nothing is claimed
    assert decide(twice, hidden_bias=False).answer == "unknown"


def random_block(seed: int, activation: str = "relu", d: int = 5, m: int = 12) -> ResidualBlock:
    rng = np.random.default_rng(seed)
    return ResidualBlock(
        w_up=rng.normal(size=(m, d)),
        w_down=rng.normal(size=(d, m)),
        b_up=rng.normal(size=m),
        b_down=rng.normal(size=d),
        activation=activation,
    )


def test_almost_every_block_is_not_absorbable_and_needs_m_plus_d() -> None:
    for seed in range(200):
        block = random_block(seed, activation=sorted(KAPPA)[seed % 5])
        verdict = decide(block)
        assert verdict.answer == "not absorbable"
        assert verdict.width.upper == block.m + block.d
        assert verdict.rule == "subset-condition"
        check(verdict.certificate, block)


@pytest.mark.parametrize("norm", ["none", "post-layernorm"])
@pytest.mark.parametrize("spare", [1, 2])
def test_pruned_blocks_are_decided(spare: int, norm: str) -> None:
    """Dead and repeated neurons leave width to spare, less than the rank that is left over."""
    rng = np.random.default_rng(spare)
    d, m = 24, 96
    up, down = rng.normal(size=(m, d)) / np.sqrt(d), rng.normal(size=(d, m)) / np.sqrt(m)
    bias = rng.normal(size=m)
    down[:, 7] = 0.0
    if spare == 2:
        up[3], bias[3] = -2 * up[50], -2 * bias[50]  # one hyperplane
    block = ResidualBlock(
        w_up=up, w_down=down, b_up=bias, b_down=np.zeros(d), activation="relu", norm=norm
    )
    verdict = decide(block)
    assert verdict.answer == "not absorbable"
    assert verdict.rule == "minimal-width"
    assert m < verdict.width.lower < verdict.width.upper == m - spare + d
    check(verdict.certificate, block)
    claimed = verdict.certificate.data["rank"]
    for rank in (claimed + 1, claimed + 20):
        data = {**verdict.certificate.data, "rank": rank}
        width = unskip.Interval(m - spare + rank, verdict.width.upper)
        with pytest.raises(unskip.InvalidCertificate):
            check(dataclasses.replace(verdict.certificate, data=data, width=width), block)
    for _ in range(50):
        chosen = np.flatnonzero(rng.random(m) < rng.random())
        left = np.eye(d) + down[:, chosen] @ up[chosen]
        left = left - left.mean(axis=0) if norm == "post-layernorm" else left
        assert np.linalg.matrix_rank(left) >= claimed


@pytest.mark.parametrize("seed", range(8))
def test_permuting_neurons_permutes_the_subset(seed: int) -> None:
    block, subset = planted(5, 14, seed)
    order = np.random.default_rng(seed).permutation(14)
    permuted = dataclasses.replace(
        block, w_up=block.w_up[order], w_down=block.w_down[:, order], b_up=block.b_up[order]
    )
    assert sorted(order[list(decide(permuted).subset or ())].tolist()) == subset


@pytest.mark.parametrize("seed", range(8))
def test_rescaling_relu_neurons_changes_nothing(seed: int) -> None:
    for block in (random_block(seed), planted(5, 14, seed)[0]):
        block = dataclasses.replace(block, activation="relu")
        scale = 2.0 ** np.random.default_rng(seed).integers(-5, 6, block.m)
        rescaled = dataclasses.replace(
            block,
            w_up=block.w_up * scale[:, None],
            b_up=block.b_up * scale,
            w_down=block.w_down / scale,
        )
        before, after = decide(block), decide(rescaled)
        assert (before.answer, before.subset, before.width) == (
            after.answer,
            after.subset,
            after.width,
        )


@pytest.mark.parametrize("seed", range(8))
def test_a_change_of_basis_changes_nothing(seed: int) -> None:
    block, subset = planted(4, 11, seed)
    rng = np.random.default_rng(seed)
    lower = np.tril(rng.integers(-2, 3, (4, 4)), -1) + np.eye(4)  # unimodular: exact inverse
    inverse = np.round(np.linalg.inv(lower))
    assert np.array_equal(lower @ inverse, np.eye(4))
    changed = dataclasses.replace(
        block,
        w_up=block.w_up @ lower,
        w_down=inverse @ block.w_down,
        skip=inverse @ block.skip_matrix @ lower,
        b_down=None,
    )
    verdict = decide(changed, output_bias=True)
    assert list(verdict.subset or ()) == subset


def test_an_absorbable_block_needs_no_more_than_its_width() -> None:
    block = ResidualBlock(
        w_up=np.eye(3), w_down=-np.eye(3), activation="relu", b_down=np.ones(3),
        norm="post-layernorm", norm_eps=0.0,
    )  # fmt: skip
    verdict = decide(block, output_bias=False)
    check(verdict.certificate, block)
    assert (verdict.answer, verdict.width.upper) == ("absorbable", 3)


def test_only_residual_blocks_are_asked_about() -> None:
    plain = unskip.PlainBlock(w_up=[[1.0]], w_down=[[1.0]], activation="relu")
    with pytest.raises(unskip.UnskipError, match="ResidualBlock"):
        decide(plain)


def test_quick_agrees_and_is_looser() -> None:
    for seed in range(20):
        block = random_block(seed, "gelu", d=8, m=32)
        tight, quick = decide(block), decide(block, quick=True)
        assert tight.answer == quick.answer == "not absorbable"
        assert quick.defect.lower <= tight.defect.lower
        check(quick.certificate, block)


def test_verdicts_read_as_text() -> None:
    verdict = decide(random_block(0))
    assert "not absorbable at this width" in str(verdict)
    assert "Mijoski & Karbevski 2026" in verdict.reference
    assert "may have hidden biases" in str(verdict.assumptions)
    lower, upper = verdict.width
    assert (lower, upper) == (13, 17)
