"""Planted sets among linearly dependent rank-ones, found again and verified in fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from oracle import centre, fractions

from unskip import ResidualBlock
from unskip.decision import lattice
from unskip.decision.merging import Merged
from unskip.decision.neurons import group
from unskip.decision.question import Question, SubsetCondition


def planted(
    d: int, n: int, *, bits: int = 12, norm: str | None = None, seed: int = 0
) -> ResidualBlock:
    """A GELU block that is absorbed by flipping a random half of its neurons; exact in float64."""
    rng = np.random.default_rng(seed)
    up = np.rint(rng.normal(size=(n, d)) * 2.0**bits) / 2.0**bits
    down = np.rint(rng.normal(size=(d, n)) * 2.0**bits) / 2.0**bits
    flipped = rng.permutation(n)[: n // 2]
    skip = -down[:, flipped] @ up[flipped]
    if norm is not None:  # only what the norm sees must vanish
        skip += np.rint(rng.normal(size=d) * 16)
    return ResidualBlock(w_up=up, w_down=down, activation="gelu", skip=skip, norm=norm)


def condition_of(block: ResidualBlock) -> Merged:
    question = Question.of(block)
    kappa = block.activation.parity_constants(block.m)
    assert kappa is not None
    return Merged(SubsetCondition.of(question, kappa), group(question))


def left_over(merged: Merged, subset: np.ndarray) -> list[list[Fraction]]:
    """Π(A + Σ_S R_j), by the definition."""
    c = merged.original
    down, up, total = fractions(c.down), fractions(c.up), fractions(c.a)
    for j in subset.tolist():
        for i, row in enumerate(total):
            factor = c.kappa[j] * down[i][j]
            total[i] = [x + factor * u for x, u in zip(row, up[j], strict=True)]
    return centre(total) if c.centred else total


def assert_found(block: ResidualBlock) -> None:
    merged = condition_of(block)
    chosen = lattice.search(merged)
    assert chosen is not None
    assert not any(x for row in left_over(merged, merged.lift(chosen)) for x in row)


@pytest.mark.parametrize("norm", [None, "post-layernorm"])
@pytest.mark.parametrize(("d", "n"), [(3, 30), (4, 40), (6, 80)])
@pytest.mark.parametrize("seed", [0, 1])
def test_planted_sets_are_found(d: int, n: int, norm: str | None, seed: int) -> None:
    assert_found(planted(d, n, norm=norm, seed=seed))


@pytest.mark.parametrize("bits", [8, 20])
def test_coarse_and_fine_weights(bits: int) -> None:
    assert_found(planted(4, 40, bits=bits))


def test_exponents_far_apart() -> None:
    block = planted(4, 40)
    scales = 2.0 ** np.array([-300, -20, 0, 280])
    assert_found(
        ResidualBlock(
            w_up=block.w_up * scales,
            w_down=block.w_down,
            activation="gelu",
            skip=block.skip_matrix * scales,
        )
    )


def test_merged_neurons() -> None:
    """Neurons of which each has a negative, and one that no input reaches."""
    block = planted(3, 26, seed=4)
    up = np.vstack([block.w_up, -block.w_up[:4], np.zeros((1, 3))])
    down = np.column_stack([block.w_down, block.w_down[:, 5:9], block.w_down[:, 0]])
    signed = down[:, [0, 1, 2, 3]] + down[:, 26:30]
    chosen = np.arange(0, 26, 2)
    turned = down[:, 26:30] @ up[26:30]
    columns = down[:, :26].copy()
    columns[:, :4] = signed
    skip = -(turned + columns[:, chosen] @ up[chosen])
    merged = ResidualBlock(w_up=up, w_down=down, activation="gelu", skip=skip)
    assert condition_of(merged).n == 26
    assert_found(merged)


def test_more_equations_than_groups() -> None:
    """A wide block whose rank-ones are dependent all the same: rows and columns of rank 3."""
    small = planted(3, 30, seed=2)
    rng = np.random.default_rng(3)
    left, right = rng.integers(-4, 5, size=(12, 3)), rng.integers(-4, 5, size=(3, 12))
    block = ResidualBlock(
        w_up=small.w_up @ right,
        w_down=left @ small.w_down,
        activation="gelu",
        skip=left @ small.skip_matrix @ right,
    )
    assert_found(block)


def test_nothing_is_found_where_nothing_is() -> None:
    block = planted(3, 30)
    skip = block.skip_matrix.copy()
    skip[0, 0] += 2.0**-20
    other = ResidualBlock(w_up=block.w_up, w_down=block.w_down, activation="gelu", skip=skip)
    merged = condition_of(other)
    chosen = lattice.search(merged)
    assert chosen is None


def test_few_bits_end_in_nothing_or_in_a_set() -> None:
    """Entries 0 and ±1/4: the solutions are many and short, and it still ends."""
    block = planted(4, 60, bits=2)
    merged = condition_of(block)
    chosen = lattice.search(merged)
    if chosen is not None:
        assert not any(x for row in left_over(merged, merged.lift(chosen)) for x in row)


def test_too_many_groups_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lattice, "LARGEST", 29)
    assert lattice.search(condition_of(planted(3, 30))) is None
