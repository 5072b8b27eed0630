"""The cascade that decides the subset condition (§5), cheapest certificate first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from unskip.certificates import Interval
from unskip.decision import dual, modular
from unskip.decision.exact import satisfies
from unskip.decision.gram import Gram
from unskip.decision.question import SubsetCondition

#: From this width on, single precision pays for the m² algebra.
SINGLE_PRECISION_WIDTH = 512
#: Below this relative defect an exact solution may hide behind rounding.
NEARLY_ZERO = 1e-5


@dataclass(frozen=True)
class Outcome:
    """What is known of the subsets: one that satisfies, a refutation, or neither.

    ``defect`` encloses min_S ‖Π(A + Σ_S R_j)‖_F / ‖ΠA‖_F; ``achieved`` is a set that attains
    its upper end.
    """

    subset: npt.NDArray[np.int64] | None
    refuted: bool
    defect: Interval
    achieved: npt.NDArray[np.int64]
    data: Mapping[str, int | str | bool] = field(default_factory=lambda: {"evidence": "none"})
    matrix: npt.NDArray[np.signedinteger[Any]] | None = None


def search(condition: SubsetCondition, *, quick: bool) -> Outcome:
    """Decide the condition where the R_j are independent; bound the defect in any case.

    ``quick`` stops at the first certificate and leaves the bounds loose.  Cost: O(md) for the
    cheap certificates; O(m²d + m³/3) for the Gram system; the same again over Z/p only where
    an exact solution is in sight.
    """
    if condition.trivial:
        return _satisfied(np.zeros(0, dtype=np.int64))
    sizes = dual.Magnitudes(condition)
    achieved = np.zeros(condition.m, dtype=bool)
    if not sizes.trusted:
        return _exactly(condition, achieved)
    trials = [dual.judge(condition, trial, sizes) for trial in dual.cheap(condition)]
    evidence = max(filter(None, trials), key=lambda found: found.bound, default=None)
    if evidence is None or not quick:
        achieved, found = _by_gram(condition, sizes)
        if found is not None and (evidence is None or found.bound > evidence.bound):
            evidence = found
    if evidence is not None:
        return _refuted(condition, evidence, achieved)
    return _exactly(condition, achieved)


def _by_gram(
    condition: SubsetCondition, sizes: dual.Magnitudes
) -> tuple[npt.NDArray[np.bool_], dual.Evidence | None]:
    """A good subset, and the evidence of the Gram residual if it is any.

    Single precision first where that pays; double precision when its evidence is weak.
    """
    single = condition.m >= SINGLE_PRECISION_WIDTH
    best = np.zeros(condition.m, dtype=bool)
    evidence: dual.Evidence | None = None
    for dtype in (np.float32, np.float64) if single else (np.float64,):
        with np.errstate(over="ignore", invalid="ignore"):
            gram = Gram.of(condition, dtype)
            s = gram.solve()
        if s is None:
            continue
        for start in (s > 0.5, np.zeros_like(best)):
            best = min(best, gram.descend(start), key=lambda x: _defect(condition, x))
        residual = gram.residual(s)
        promise = float(np.linalg.norm(residual)) / sizes.skip
        if promise < NEARLY_ZERO and _defect(condition, best) < NEARLY_ZERO:
            break  # an exact solution is in sight: settle it in exact arithmetic
        evidence = dual.rounded(condition, residual, sizes)
        if evidence is not None and evidence.bound >= 0.99 * promise:
            break
    return best, evidence


def _refuted(
    condition: SubsetCondition, evidence: dual.Evidence, achieved: npt.NDArray[np.bool_]
) -> Outcome:
    upper = max(_defect(condition, achieved), evidence.bound)
    return Outcome(
        subset=None,
        refuted=True,
        defect=Interval(evidence.bound, upper),
        achieved=np.flatnonzero(achieved),
        data=evidence.data,
        matrix=evidence.matrix,
    )


def _exactly(condition: SubsetCondition, achieved: npt.NDArray[np.bool_]) -> Outcome:
    """No certificate in floating point: verify the candidate, or solve modulo a prime."""
    candidate = np.flatnonzero(achieved)
    upper = _defect(condition, achieved)
    if upper < NEARLY_ZERO and satisfies(condition, candidate):
        return _satisfied(candidate)
    exact = modular.solve(condition)
    if isinstance(exact, modular.Candidate) and satisfies(condition, exact.subset):
        return _satisfied(exact.subset)
    if isinstance(exact, modular.Refutation):
        data: dict[str, int | str | bool] = {"evidence": "modular", "neuron": exact.neuron}
        matrix = exact.matrix.astype(np.int32)
        return Outcome(None, True, Interval(0.0, upper), candidate, data, matrix)
    return Outcome(None, False, Interval(0.0, upper), candidate)


def _satisfied(subset: npt.NDArray[np.int64]) -> Outcome:
    return Outcome(subset, False, Interval(0.0, 0.0), subset, {"evidence": "flip"})


def _defect(condition: SubsetCondition, inside: npt.NDArray[np.bool_]) -> float:
    """An upper bound of the relative defect of one subset.  One p×|S|×q product."""
    chosen = np.flatnonzero(inside)
    if chosen.size == 0:
        return 1.0  # exactly: the skip itself is left
    kappa = condition.kappa_float[chosen]
    with np.errstate(over="ignore", invalid="ignore"):
        total = condition.a + (condition.down[:, chosen] * kappa) @ condition.up[chosen]
        norm = float(np.linalg.norm(condition.project(total)))
        size = float(np.linalg.norm(condition.a)) + float(
            np.sum(
                np.abs(kappa)
                * np.linalg.norm(condition.down[:, chosen], axis=0)
                * np.linalg.norm(condition.up[chosen], axis=1)
            )
        )
        terms = chosen.size + condition.a.shape[0] + 6
        rounding = dual.CAUTION * terms * dual.UNIT * size
        lowest = dual.skip_norm(condition)[0]
        upper = (norm * (1 + dual.SLACK) + rounding) / lowest if lowest > 0 else np.inf
    return float(upper) * (1 + dual.SLACK) if np.isfinite(upper) else float("inf")
