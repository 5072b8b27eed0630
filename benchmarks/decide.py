"""The price of a verdict: decide() and check() against the algebra that cannot be avoided.

Baseline, in the same run: two Gram products, one Cholesky factorisation and solve, in float64
and (since decide may choose it) in float32.  Times are the least of three; memory is the peak
that NumPy allocates beyond the block, over m² doubles.

    python benchmarks/decide.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.linalg

from unskip import ResidualBlock, check, decide

SIZES = ((256, 1024), (768, 3072), (1024, 4096))


def random_block(d: int, m: int) -> ResidualBlock:
    rng = np.random.default_rng(0)
    return ResidualBlock(
        w_up=rng.normal(size=(m, d)) / np.sqrt(d),
        w_down=rng.normal(size=(d, m)) / np.sqrt(m),
        b_up=rng.normal(size=m),
        b_down=rng.normal(size=d),
        activation="gelu",
    )


def bare_algebra(block: ResidualBlock, dtype: type) -> None:
    up, down = block.w_up.astype(dtype), block.w_down.astype(dtype)
    gram = down.T @ down
    gram *= up @ up.T
    factor = scipy.linalg.cho_factor(gram.T, lower=True, overwrite_a=True, check_finite=False)
    scipy.linalg.cho_solve(factor, np.ones(block.m, dtype), check_finite=False)


def least_seconds(function: Callable[[], object], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


def peak_bytes(function: Callable[[], object]) -> int:
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures here")
    rows = []
    options = parser.parse_args()
    for d, m in SIZES:
        block = random_block(d, m)
        verdict = decide(block)
        double = least_seconds(lambda b=block: bare_algebra(b, np.float64))
        single = least_seconds(lambda b=block: bare_algebra(b, np.float32))
        decided = least_seconds(lambda b=block: decide(b))
        checked = least_seconds(lambda b=block, c=verdict.certificate: check(c, b))
        rows.append(
            {
                "d": d,
                "m": m,
                "answer": verdict.answer,
                "bare_float64_s": double,
                "bare_float32_s": single,
                "decide_s": decided,
                "check_s": checked,
                "decide_over_bare_float64": decided / double,
                "decide_over_bare_float32": decided / single,
                "check_over_decide": checked / decided,
                "peak_over_m2_doubles": peak_bytes(lambda b=block: decide(b)) / (8 * m * m),
            }
        )
        print(
            " ".join(
                f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in rows[-1].items()
            )
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
