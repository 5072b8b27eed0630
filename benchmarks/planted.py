"""Planted sets among linearly dependent neurons: lattice reduction against a MILP solver.

d × d matrices of n neurons, n > d², of which a random half adds up to minus the skip, exactly.
The exact answer is unskip.decision.lattice.search with its verification in integers, which is
what decide() runs on such a block once nothing cheaper decides.  The baseline is
scipy.optimize.milp (HiGHS) on the same equations, as a feasibility problem in floating point,
and what it returns is not exact until rounded and verified.  Times are the least of three for
the exact answer and of one for the solver.  OPENBLAS_NUM_THREADS=1 is best on a busy machine.

    python benchmarks/planted.py [--quick] [--seeds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import scipy.optimize

from unskip import ResidualBlock
from unskip.decision import lattice
from unskip.decision.exact import satisfies
from unskip.decision.merging import Merged
from unskip.decision.neurons import group
from unskip.decision.question import Question, SubsetCondition

#: d, n, fractional bits of the weights (20: as many significant bits as float32 has).
QUICK = ((4, 40, 12), (8, 96, 12), (8, 128, 12))
ALL = (*QUICK, (8, 128, 20), (8, 160, 12), (8, 192, 12), (8, 256, 12), (8, 256, 20), (8, 320, 20))


def planted(d: int, n: int, bits: int, seed: int) -> Merged:
    rng = np.random.default_rng(seed)
    up = np.rint(rng.normal(size=(n, d)) * 2.0**bits) / 2.0**bits
    down = np.rint(rng.normal(size=(d, n)) * 2.0**bits) / 2.0**bits
    flipped = rng.permutation(n)[: n // 2]
    block = ResidualBlock(
        w_up=up, w_down=down, activation="gelu", skip=-down[:, flipped] @ up[flipped]
    )
    question = Question.of(block)
    kappa = block.activation.parity_constants(n)
    assert kappa is not None
    return Merged(SubsetCondition.of(question, kappa), group(question))


def exactly(merged: Merged) -> bool:
    chosen = lattice.search(merged)
    return chosen is not None and satisfies(merged.original, merged.lift(chosen))


def by_milp(merged: Merged, limit: float) -> bool:
    c = merged.original
    matrix = (c.down[:, None, :] * c.up.T[None] * c.kappa_float).reshape(-1, c.m)
    result = scipy.optimize.milp(
        np.zeros(c.m),
        constraints=scipy.optimize.LinearConstraint(matrix, -c.a.ravel(), -c.a.ravel()),
        integrality=np.ones(c.m),
        bounds=scipy.optimize.Bounds(0, 1),
        options={"time_limit": limit},
    )
    return result.x is not None and satisfies(c, np.flatnonzero(result.x > 0.5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the small instances only")
    parser.add_argument("--seeds", type=int, default=1, help="instances of each size")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for the solver")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    rows = []
    for d, n, bits in QUICK if options.quick else ALL:
        for seed in range(options.seeds):
            merged = planted(d, n, bits, seed)
            ours = []
            for _ in range(3):
                began = time.perf_counter()
                found = exactly(merged)
                ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            solved = by_milp(merged, options.limit)
            theirs = time.perf_counter() - began
            row = {"d": d, "n": n, "bits": bits, "seed": seed}
            row |= {"found": found, "exact_s": min(ours), "milp_solved": solved, "milp_s": theirs}
            row["milp_over_exact"] = theirs / min(ours)
            rows.append(row)
            shown = (f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items())
            print(" ".join(shown), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
