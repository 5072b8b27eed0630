"""Whatever decide certifies, the checker accepts: weights of every scale and degeneracy.

Warnings are errors here, so that no overflow or division by zero goes unnoticed either.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unskip import ResidualBlock, check, decide
from unskip.activations import prelu

PLAIN = [
    "relu",
    "gelu",
    "silu",
    "gelu_tanh",
    "leaky_relu(0.1)",
    "leaky_relu(-2)",
    "leaky_relu(1e300)",
    "leaky_relu(1)",
    "abs",
    "hard_swish",
    "softplus",
    "squareplus",
    "log_sigmoid",
    "identity",
    "identity(0.5)",
    "mish",
    "elu",
    "tanh",
    "relu_squared",
    "square",
    "gaussian",
    "cube",
    "quick_gelu",
    "prelu",
]
GATED = ["swiglu", "geglu", "reglu", "glu", "bilinear", "clamped_swiglu", "shifted_swiglu", "tanh"]
NORMS = [
    "none",
    "none",
    "none",
    "pre-layernorm",
    "post-layernorm",
    "post-layernorm",
    "post-rmsnorm",
    "sandwich-rmsnorm",
]
KINDS = [
    "integer",
    "integer",
    "integer",
    "normal",
    "half",
    "repeated",
    "half-precision",
    "single",
    "big",
    "tiny",
    "mixed",
]


def array(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    x = rng.normal(size=shape)
    match rng.choice([*KINDS, "subnormal", "zero"]):
        case "integer":
            return rng.integers(-2, 3, shape).astype(float)
        case "half":
            return rng.integers(-2, 3, shape) / 2
        case "repeated" if len(shape) == 2:
            factor = rng.choice([1, -1, 2, -0.5, 3])
            x[rng.integers(shape[0])] = x[rng.integers(shape[0])] * factor
            return x
        case "half-precision":
            return (rng.integers(-3, 4, shape) * 2.0**-24).astype(np.float16)
        case "single":
            return (x * 10.0 ** rng.integers(-40, 37)).astype(np.float32)
        case "big":
            return x * 10.0 ** rng.integers(100, 300)
        case "tiny":
            return x * 10.0 ** -float(rng.integers(100, 324))
        case "mixed":
            return x * 10.0 ** rng.integers(-300, 301, shape).astype(float)
        case "subnormal":
            return rng.integers(-3, 4, shape) * 5e-324
        case "zero":
            return np.zeros(shape)
    return x


def draw(seed: int) -> tuple[ResidualBlock, dict[str, Any]]:
    rng = np.random.default_rng(seed)
    d, m = int(rng.choice([1, 1, 2, 2, 3, 4, 6])), int(rng.choice([1, 2, 3, 4, 5, 6, 8, 12, 30]))
    k: dict[str, Any] = {"w_up": array(rng, (m, d)), "w_down": array(rng, (d, m))}
    if rng.random() < 0.3:
        k |= {"activation": str(rng.choice(GATED)), "w_gate": array(rng, (m, d))}
        k |= {"b_gate": array(rng, (m,))} if rng.random() < 0.6 else {}
    else:
        name = str(rng.choice(PLAIN))
        slopes = rng.choice([0, 0.5, -1, 1, 0.25, 2], m)
        k["activation"] = prelu(slopes) if name == "prelu" else name
    k |= {"b_up": array(rng, (m,))} if rng.random() < 0.4 else {}
    k |= {"b_down": array(rng, (d,))} if rng.random() < 0.4 else {}
    k["norm"] = str(rng.choice(NORMS))
    if k["norm"].startswith("post") and rng.random() < 0.3:
        k |= {"norm_gain": rng.integers(-1, 2, d).astype(float)}
        k |= {"norm_eps": float(rng.choice([0, 5e-324, 1e-5]))}
    if rng.random() < 0.4:
        k["skip"] = array(rng, [(), (d,), (d, d)][rng.integers(3)])
    options = {name: bool(rng.random() < 0.5) for name in ("hidden_bias", "output_bias", "quick")}
    return ResidualBlock(**k), options if rng.random() < 0.5 else {}


@pytest.mark.parametrize("start", range(0, 1200, 100))
def test_decide_certifies_what_the_checker_accepts(start: int) -> None:
    for seed in range(start, start + 100):
        block, options = draw(seed)
        verdict = decide(block, **options)
        assert check(verdict.certificate, block).certificate is verdict.certificate, seed
