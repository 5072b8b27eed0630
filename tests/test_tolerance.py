"""Flips that meet the condition nearly: bounds against exact arithmetic, answers untouched."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from oracle import Oracle, fractions
from typer.testing import CliRunner

from unskip import ResidualBlock, check, decide
from unskip.cli import app
from unskip.errors import UnskipError


def normal(d: int, m: int, *, seed: int = 0, activation: str = "gelu", **more: object):
    rng = np.random.default_rng(seed)
    arrays = {"w_up": rng.normal(size=(m, d)), "w_down": rng.normal(size=(d, m))}
    return ResidualBlock(**arrays, activation=activation, **more)


@pytest.mark.parametrize(
    ("d", "m", "epsilon"), [(1, 60, 1e-6), (2, 60, 0.05), (2, 70, 0.03), (3, 60, 0.6)]
)
def test_sets_within_are_found_where_neurons_abound(d: int, m: int, epsilon: float) -> None:
    block = normal(d, m)
    exact, verdict = decide(block), decide(block, tolerance=epsilon)
    assert verdict.within is not None
    oracle = Oracle(block, [Fraction(1)] * m, output_bias=False)
    left = np.array(oracle.total(verdict.within.subset), dtype=np.float64)
    norm = np.linalg.norm(left, 2)  # of exact entries, each rounded once
    assert norm * (1 - 1e-12) <= verdict.within.bound <= epsilon
    assert verdict.within.bound <= norm * (1 + 2**-22) + 1e-12  # the slack of outward rounding
    assert (verdict.answer, verdict.rule) == (exact.answer, exact.rule)
    assert verdict.subset is None
    assert verdict.defect is not None
    assert check(verdict.certificate, block).certificate is verdict.certificate


def relu(value: Fraction) -> Fraction:
    return max(value, Fraction(0))


def apply(block: ResidualBlock, x: list[Fraction], flipped: set[int]) -> list[Fraction]:
    """The branch of a ReLU block with some neurons flipped, in fractions."""
    up, down = fractions(block.w_up), fractions(block.w_down)
    hidden = fractions([block.bias("b_up")])[0]
    acts = [
        relu((-1 if j in flipped else 1) * (sum(u * t for u, t in zip(row, x, strict=True)) + b))
        for j, (row, b) in enumerate(zip(up, hidden, strict=True))
    ]
    offset = fractions([block.bias("b_down")])[0]
    return [
        sum(w * a for w, a in zip(row, acts, strict=True)) + c
        for row, c in zip(down, offset, strict=True)
    ]


@pytest.mark.parametrize("output_bias", [True, False])
def test_the_error_on_a_ball_is_bounded(output_bias: bool) -> None:
    rng = np.random.default_rng(5)
    block = normal(2, 60, activation="relu", b_up=rng.normal(size=60), b_down=rng.normal(size=2))
    found = decide(block, tolerance=0.2, output_bias=output_bias).within
    assert found is not None
    flipped = set(found.subset)
    assert (found.offset == 0) == output_bias
    shift = [Fraction(0)] * 2
    if output_bias:  # c' = c + Σ κ b_j d_j
        b, down = fractions([block.b_up])[0], fractions(block.w_down)
        shift = [sum(b[j] * row[j] for j in flipped) for row in down]
    for _ in range(50):
        x = [Fraction(float(t)) for t in rng.normal(size=2) * 10]
        plain = [s + t for s, t in zip(apply(block, x, flipped), shift, strict=True)]
        if not output_bias:
            # flipping with c' = 0 keeps b_down out of the replacement
            plain = [s - Fraction(c) for s, c in zip(plain, block.bias("b_down"), strict=True)]
        whole = [t + s for t, s in zip(x, apply(block, x, set()), strict=True)]
        squared = sum((s - t) ** 2 for s, t in zip(plain, whole, strict=True))
        radius = float(np.linalg.norm([float(t) for t in x])) * (1 + 1e-12)
        assert squared <= Fraction(found.error(radius)) ** 2


def test_none_within_is_said_only_where_it_is_so() -> None:
    said = 0
    for seed in range(30):
        block = normal(2, 5, seed=seed)
        oracle = Oracle(block, [Fraction(1)] * 5, output_bias=False)
        least = min(
            np.linalg.norm(np.array(oracle.total(s), dtype=np.float64), 2)
            for size in range(6)
            for s in combinations(range(5), size)
        )
        for epsilon in (least * 0.1, least * 0.5, least * 1.001):
            verdict = decide(block, tolerance=epsilon)
            proved = f"within {epsilon:g} (proved)" in verdict.reason
            said += proved
            assert not (proved and least <= epsilon)
            assert verdict.within is None or least <= verdict.within.bound <= epsilon
    assert said > 20


def test_an_exact_set_is_within_every_tolerance() -> None:
    block = ResidualBlock(w_up=np.eye(2), w_down=-np.eye(2), activation="relu")
    verdict = decide(block, tolerance=1e-300)
    assert verdict.within is not None
    assert (verdict.within.subset, verdict.within.bound, verdict.within.error(7)) == ((0, 1), 0, 0)


@pytest.mark.parametrize("tolerance", [0.0, -1.0, np.inf, np.nan])
def test_a_tolerance_is_positive(tolerance: float) -> None:
    with pytest.raises(UnskipError, match="positive"):
        decide(normal(2, 5), tolerance=tolerance)


def test_a_radius_is_not_negative() -> None:
    found = decide(normal(1, 40), tolerance=0.1).within
    assert found is not None
    with pytest.raises(ValueError, match="radius"):
        found.error(-1)


def test_gated_blocks_have_no_affine_error() -> None:
    rng = np.random.default_rng(0)
    arrays = {k: rng.normal(size=(5, 2)) for k in ("w_up", "w_gate")}
    block = ResidualBlock(
        **arrays, w_down=rng.normal(size=(2, 5)), activation="swiglu", b_gate=rng.normal(size=5)
    )
    assert decide(block, tolerance=100).within is None


def test_on_the_command_line(tmp_path: Path) -> None:
    block = normal(1, 40, seed=3)
    np.savez(tmp_path / "b.npz", w_up=block.w_up, w_down=block.w_down, activation="gelu")
    shown = CliRunner().invoke(
        app, ["audit", str(tmp_path / "b.npz"), "--tolerance", "1e-3", "--json", "-"]
    )
    document = json.loads(shown.stdout)
    found = document["blocks"][0]["within"]
    assert document["tolerance"] == 1e-3
    assert found["bound"] <= 1e-3
    assert set(found) == {"subset", "bound", "offset"}
