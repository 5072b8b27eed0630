"""The cascade that decides the subset condition (§5), cheapest certificate first.

It asks for a set of *groups* (merging.py); where the neurons are distinct these are neurons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from unskip.certificates import Interval
from unskip.decision import box, congruence, dual, lattice, modular, sumset, tree
from unskip.decision.exact import satisfies
from unskip.decision.gram import Gram
from unskip.decision.merging import Merged
from unskip.decision.question import SubsetCondition

Chosen = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]
Verify = Callable[[Indices], bool]

#: From this many groups on, single precision pays for the quadratic algebra.
SINGLE_PRECISION_WIDTH = 512
#: Below this relative defect an exact solution may hide behind rounding.
NEARLY_ZERO = 1e-5
#: False matches modulo 2⁶¹ − 1 that are verified before another Y is tried.
PATIENCE = 64
#: Bases of the Y that are tried, in this order; a certificate names the one that served.
BASES = ((3, 5), (7, 11), (13, 17), (19, 23))


@dataclass(frozen=True)
class Outcome:
    """What is known of the sets of groups: one that satisfies, a refutation, or neither.

    ``defect`` encloses min_S ‖Π(A + Σ_S R_j)‖_F / ‖ΠA‖_F over all sets of neurons; ``achieved``
    is one that attains its upper end.
    """

    subset: Indices | None
    refuted: bool
    defect: Interval
    achieved: Indices
    data: Mapping[str, int | str | bool] = field(default_factory=lambda: {"evidence": "none"})
    matrix: npt.NDArray[np.signedinteger[Any]] | None = None
    evidence: dual.Evidence | None = None
    grown: Mapping[str, npt.NDArray[np.signedinteger[Any]]] = field(default_factory=dict)

    @property
    def arrays(self) -> dict[str, npt.NDArray[np.signedinteger[Any]]]:
        """What a certificate stores of it."""
        stored = {"achieved": self.achieved.astype(np.int32), **self.grown}
        return stored if self.matrix is None else {**stored, "dual": self.matrix}


def search(merged: Merged, *, quick: bool, verify: Verify | None = None) -> Outcome:
    """Decide the condition, or bound the defect where it stays open.

    ``quick`` stops at the first certificate and leaves the bounds loose.  ``verify`` says
    exactly whether a set of neurons absorbs, where that takes more than the condition.

    Cost: O(md) for the cheap certificates; O(n²d + n³/3) for the Gram system of n groups.  Only
    where that leaves it open: box-constrained least squares, the same again over Z/p, 2^{n/2}
    sums for n ≤ 40, lattice reduction for dependent groups, and a tree over the flips.
    """
    condition = merged.original
    verify = verify or partial(satisfies, condition)
    if condition.trivial:
        as_a_whole = merged.lift(np.zeros(merged.n, dtype=bool))
        for chosen in (as_a_whole, np.zeros(0, dtype=np.int64)):
            if verify(chosen):
                return _satisfied(chosen)
    if merged.n == 0:
        return _nothing_to_choose(merged, verify)
    sizes = dual.Magnitudes(condition)
    achieved = np.zeros(merged.n, dtype=bool)
    if not sizes.trusted:  # too large or too small for error bounds: exact arithmetic only
        return _arithmetic_only(merged, verify)
    trials = [dual.judge(merged, trial, sizes) for trial in dual.cheap(condition)]
    evidence = max(filter(None, trials), key=lambda found: found.strength, default=None)
    if evidence is None or not quick:
        achieved, found = _by_gram(merged, sizes)
        if found is not None and (evidence is None or found.strength > evidence.strength):
            evidence = found
    if evidence is not None:
        return _refuted(merged, evidence, achieved)
    return _exactly(merged, achieved, sizes, verify)


def _nothing_to_choose(merged: Merged, verify: Verify) -> Outcome:
    """No visible neurons: A' is what is left of the skip."""
    left = merged.lift(np.zeros(0, dtype=bool))
    if verify(left):
        return _satisfied(left)
    nothing = np.zeros(0, dtype=np.int64)  # whose defect is exactly 1
    if satisfies(merged.original, left):
        return Outcome(None, False, Interval(0.0, 1.0), nothing)
    return Outcome(None, True, Interval(0.0, 1.0), nothing, {"evidence": "affine"})


def _by_gram(merged: Merged, sizes: dual.Magnitudes) -> tuple[Chosen, dual.Evidence | None]:
    """A good set of groups, and the evidence of the Gram residual if it is any.

    Single precision first where that pays; double precision when its evidence is weak.
    """
    reduced = merged.reduced
    best, least = np.zeros(merged.n, dtype=bool), np.inf
    evidence: dual.Evidence | None = None
    single = merged.n >= SINGLE_PRECISION_WIDTH
    for dtype in (np.float32, np.float64) if single else (np.float64,):
        with np.errstate(over="ignore", invalid="ignore"):
            gram = Gram.of(reduced, dtype)
            s = gram.solve()
        if s is None:
            continue
        for start in (s > 0.5, np.zeros_like(best)):
            end = gram.descend(start)
            reached = defect(merged.original, merged.lift(end))
            if reached < least:
                best, least = end, reached
        residual = gram.residual(s)
        promise = float(np.linalg.norm(residual)) / sizes.skip
        if promise < NEARLY_ZERO and least < NEARLY_ZERO:
            break  # an exact solution is in sight: settle it in exact arithmetic
        evidence = dual.rounded(merged, residual, sizes)
        if evidence is not None and evidence.strength >= 0.99 * promise:
            break
    return best, evidence


def _refuted(merged: Merged, evidence: dual.Evidence, achieved: Chosen) -> Outcome:
    subset = merged.lift(achieved)
    upper = max(defect(merged.original, subset), evidence.bound)
    bounds = Interval(evidence.bound, upper)
    return Outcome(None, True, bounds, subset, evidence.data, evidence.matrix, evidence)


def _exactly(merged: Merged, achieved: Chosen, sizes: dual.Magnitudes, verify: Verify) -> Outcome:
    """No certificate of the Gram system: candidates, the box, then exact arithmetic."""
    condition = merged.original
    candidate = merged.lift(achieved)
    upper = defect(condition, candidate)
    if upper < NEARLY_ZERO and verify(candidate):
        return _satisfied(candidate)
    boxed: dual.Evidence | None = None
    if merged.n <= box.LARGEST:
        residual, corner = box.solve(merged.reduced)
        nearest = merged.lift(corner)
        if defect(condition, nearest) < NEARLY_ZERO and verify(nearest):
            return _satisfied(nearest)
        boxed = dual.rounded(merged, residual, sizes)
    if boxed is not None:
        return _refuted(merged, boxed, achieved)
    open_ = Outcome(None, False, Interval(0.0, upper), candidate)
    return next(_arithmetic(merged, candidate, upper, verify), open_)


def _arithmetic_only(merged: Merged, verify: Verify) -> Outcome:
    nothing = np.zeros(0, dtype=np.int64)  # whose defect is exactly 1
    open_ = Outcome(None, False, Interval(0.0, 1.0), nothing)
    return next(_arithmetic(merged, nothing, 1.0, verify), open_)


def _arithmetic(
    merged: Merged, candidate: Indices, upper: float, verify: Verify
) -> Iterator[Outcome]:
    """What exact arithmetic decides: all subsets of few groups, or independent R'_h."""
    bounds = Interval(0.0, upper)
    if merged.n <= sumset.INSTANT:
        yield from _by_all_sums(merged, candidate, bounds, verify)
    exact = modular.solve(merged)
    if isinstance(exact, modular.Candidate):
        subset = merged.lift(exact.chosen)
        if verify(subset):
            yield _satisfied(subset)
    elif exact is not None:
        neuron = int(merged.neurons.representatives[exact.group]) if exact.group >= 0 else -1
        data: dict[str, int | str | bool] = {"evidence": "modular", "neuron": neuron}
        yield Outcome(None, True, bounds, candidate, data, exact.matrix.astype(np.int32))
    else:  # dependent: a set may exist among very many solutions
        chosen = lattice.search(merged)
        if chosen is not None and verify(merged.lift(chosen)):
            yield _satisfied(merged.lift(chosen))
    if merged.n <= sumset.LARGEST:
        yield from _by_all_sums(merged, candidate, bounds, verify)
    yield from _by_congruences(merged, candidate, bounds, verify)


def _by_congruences(
    merged: Merged, candidate: Indices, bounds: Interval, verify: Verify
) -> Iterator[Outcome]:
    """One congruence against every set, or a tree of them and of dual matrices."""
    equations = congruence.Equations.of(merged) if merged.n <= congruence.LARGEST else None
    if equations is None:
        return
    data: dict[str, int | str | bool] = {"evidence": "congruence", "scale": equations.scale}
    pool = []
    for pairing in congruence.pairings(equations):
        if pairing.alone:
            matrix = equations.matrix(list(pairing.y), pairing.modulus)
            data["modulus"] = pairing.modulus
            yield Outcome(None, True, bounds, candidate, data, matrix)
        pool.append(pairing)
    grown = tree.search(merged, equations, pool) if merged.n <= tree.LARGEST else None
    if isinstance(grown, tree.Found):
        subset = merged.lift(grown.chosen)
        if verify(subset):
            yield _satisfied(subset)
    elif grown is not None:
        firsts = merged.neurons.representatives.tolist()
        nodes = [node if node < 0 else firsts[node] for node in grown.nodes]
        stored: dict[str, npt.NDArray[np.signedinteger[Any]]] = {
            "tree": np.array(nodes, dtype=np.int32),
            "duals": np.stack([equations.matrix(list(x.y), x.modulus) for x in grown.pairings]),
            "moduli": np.array([x.modulus for x in grown.pairings], dtype=np.int64),
        }
        data |= {"evidence": "tree"}
        yield Outcome(None, True, bounds, candidate, data, grown=stored)


def _by_all_sums(
    merged: Merged, candidate: Indices, bounds: Interval, verify: Verify
) -> Iterator[Outcome]:
    for alpha, beta in BASES:
        pairing = sumset.Pairing.of(merged, alpha, beta)
        matches = list(islice(pairing.matches(), PATIENCE + 1))
        for chosen in matches[:PATIENCE]:
            if verify(merged.lift(chosen)):
                yield _satisfied(merged.lift(chosen))
        if not matches:
            data: dict[str, int | str | bool] = {"evidence": "sumset"}
            yield Outcome(None, True, bounds, candidate, {**data, "alpha": alpha, "beta": beta})


def _satisfied(subset: Indices) -> Outcome:
    return Outcome(subset, False, Interval(0.0, 0.0), subset, {"evidence": "flip"})


def defect(condition: SubsetCondition, chosen: Indices) -> float:
    """An upper bound of the relative defect of one set of neurons.  One p×|S|×q product."""
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
        rounding = dual.CAUTION * terms * dual.UNIT * size + 2.0**-240
        lowest = dual.skip_norm(condition)[0]
        upper = (norm * (1 + dual.SLACK) + rounding) / lowest if lowest > 0 else np.inf
    return float(upper) * (1 + dual.SLACK) if np.isfinite(upper) else float("inf")
