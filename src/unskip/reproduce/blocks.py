"""Blocks for experiments: random ones, and ones with a planted answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from unskip.blocks import PlainBlock, ResidualBlock

Array = npt.NDArray[np.float64]
Generator = np.random.Generator


def random_block(
    rng: Generator, d: int, m: int, activation: str, *, biases: bool = True, **more: Any
) -> ResidualBlock:
    """Gaussian weights of the usual size; ``biases`` inside and behind."""
    arrays = {"w_up": rng.normal(size=(m, d)) / d**0.5, "w_down": rng.normal(size=(d, m)) / m**0.5}
    if biases:
        arrays |= {"b_up": rng.normal(size=m) / d**0.5, "b_down": rng.normal(size=d)}
    return ResidualBlock(activation=activation, **(arrays | more))


def random_gated(rng: Generator, d: int, m: int, gate: str, **more: Any) -> ResidualBlock:
    """Gaussian weights without biases, unless they are given."""
    w_gate = rng.normal(size=(m, d)) / d**0.5
    return random_block(rng, d, m, gate, biases=False, w_gate=w_gate, **more)


def planted_block(
    rng: Generator, d: int, m: int, activation: str, **more: Any
) -> tuple[ResidualBlock, npt.NDArray[np.bool_]]:
    """Integer weights with a skip that flipping a random set absorbs: A = −Σ_S d_j u_jᵀ."""
    up = rng.integers(-9, 10, size=(m, d)).astype(np.float64)
    down = rng.integers(-9, 10, size=(d, m)).astype(np.float64)
    chosen = np.zeros(m, dtype=bool)
    chosen[rng.permutation(m)[: rng.integers(d, m + 1)]] = True
    arrays = {
        "b_up": rng.integers(-9, 10, size=m).astype(np.float64),
        "b_down": rng.integers(-9, 10, size=d).astype(np.float64),
    }
    skip = -down[:, chosen] @ up[chosen]
    block = ResidualBlock(w_up=up, w_down=down, activation=activation, skip=skip, **(arrays | more))
    return block, chosen


def flipped(block: ResidualBlock, chosen: npt.NDArray[np.bool_]) -> PlainBlock:
    """The residual-free block of §4 for κ = 1: signs turned in S, c' = c + Σ_S b_j d_j."""
    sign = np.where(chosen, -1.0, 1.0)
    down, b_up = block.w_down.astype(np.float64), block.bias("b_up")
    return PlainBlock(
        w_up=sign[:, None] * block.w_up,
        w_down=down,
        activation=block.activation,
        b_up=sign * b_up,
        b_down=block.bias("b_down") + down[:, chosen] @ b_up[chosen],
    )
