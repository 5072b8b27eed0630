"""Sets that meet the subset condition to within ε though not exactly (theory §5, Theorem 41).

With few dimensions and many neurons (m well above d²·log2(1/ε)) such sets abound.  The search
takes what the exact one left, then descends from random sets and matches lists: the terms of a
dozen neurons have 2^k partial sums; two lists are joined by pairing each sum with a
nearest opposite in the other, and joined lists are joined again (Wagner's generalised birthday).
With L lists of 2^k sums the last join leaves about 2^{−k(1 + log2 L)/pq} of the size of a term.

What is found is judged afterwards with outward error bounds; the search proves nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.spatial import KDTree

from unskip.decision import dual
from unskip.decision.finding import Finding
from unskip.decision.gram import Gram
from unskip.decision.merging import Merged
from unskip.decision.neurons import group
from unskip.decision.question import Question, SubsetCondition
from unskip.decision.rank import norm_upper
from unskip.decision.subset import defect
from unskip.verdict import Within

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Chosen = npt.NDArray[np.bool_]

#: Entries of a term up to which nearest neighbours in a tree are quick to find.
DIMENSIONS = 9
#: Neurons to a list of sums: 2¹² of them, hundredths of a second a join.
LISTED = 12
#: Random starts that are tried before the search is given up.
ROUNDS = 12


def within(question: Question, finding: Finding, tolerance: float) -> tuple[Finding, Within | None]:
    """The finding, with what can be said of ``tolerance`` in its reason, and a set if one is found.

    The answer is kept; the defect's upper end becomes that of the set where that is smaller.
    Only ungated blocks whose flips leave an affine error are searched.
    Cost: O(md²) to judge a set; some seconds where no set is found at once.
    """
    condition = _condition(question)
    if condition is None or finding.defect is None or "achieved" not in finding.arrays:
        return finding, None
    if finding.subset is not None:
        return finding, Within(finding.subset, 0.0, 0.0)
    sizes = dual.Magnitudes(condition)
    if not sizes.trusted:
        return finding, None
    columns = question.block.d
    terms = min(condition.a.shape[0], columns) + (condition.a.shape[1] > columns)
    least = finding.defect.lower * dual.skip_norm(condition)[0] * (1 - dual.SLACK)
    if least > tolerance * math.sqrt(terms) * (1 + dual.SLACK):
        proved = f"; no set of flips meets the condition within {tolerance:g} (proved)"
        return replace(finding, reason=finding.reason + proved), None
    merged = Merged(condition, group(question))
    best = finding.arrays["achieved"].astype(np.int64)
    found = judge(condition, best, columns)
    if max(found.bound, found.offset) > tolerance:
        best, found = _search(merged, best, columns, tolerance)
    upper = max(defect(condition, best), finding.defect.lower)
    if upper < finding.defect.upper:
        arrays = {**finding.arrays, "achieved": best.astype(np.int32)}
        bounds = replace(finding.defect, upper=upper)
        finding = replace(finding, defect=bounds, arrays=arrays)
    if max(found.bound, found.offset) > tolerance:
        open_ = f"; no set of flips within {tolerance:g} was found"
        return replace(finding, reason=finding.reason + open_), None
    met = f"; flipping {best.size} neurons meets the condition within {found.bound:.3g}"
    return replace(finding, reason=finding.reason + met), found


def _condition(question: Question) -> SubsetCondition | None:
    block = question.block
    kappa = None if block.gated else block.activation.parity_constants(block.m)
    if kappa is None or not any(kappa) or block.norm.in_front or question.lacks_biases:
        return None
    return SubsetCondition.of(question, kappa)


def judge(condition: SubsetCondition, subset: Indices, columns: int) -> Within:
    """Upper bounds of ‖Π(A + Σ_S R_j)‖₂, and of the norm of its constant column if it has one.

    Rounding: the entries of the sum err together by at most γ_{|S|+p+4}(‖A‖ + Σ|κ|‖d_j‖‖u_j‖).
    """
    kappa = condition.kappa_float[subset]
    down, up = condition.down[:, subset] * kappa, condition.up[subset]
    total = condition.project(condition.a + down @ up)
    mass = float(np.linalg.norm(condition.a)) + float(
        (np.linalg.norm(down, axis=0) * np.linalg.norm(up, axis=1)).sum()
    )
    terms = subset.size + condition.a.shape[0] + 6
    slip = dual.CAUTION * terms * dual.UNIT * mass * (1 + dual.SLACK) + 2.0**-240
    constant = total[:, columns:]
    offset = 0.0 if not constant.size else float(np.linalg.norm(constant)) * (1 + dual.SLACK) + slip
    linear = norm_upper(total[:, :columns]) + slip
    return Within(tuple(subset.tolist()), linear * (1 + dual.SLACK), offset)


def _search(
    merged: Merged, best: Indices, columns: int, tolerance: float
) -> tuple[Indices, Within]:
    """Join lists of partial sums, for one random partition of the groups after another."""
    condition, reduced = merged.original, merged.reduced
    found = judge(condition, best, columns)
    reach = max(found.bound, found.offset)
    down = reduced.project(reduced.down) * reduced.kappa_float
    p, q = reduced.a.shape
    if merged.n == 0 or p * q > DIMENSIONS:
        return best, found
    terms = (down[:, None, :] * reduced.up.T).reshape(p * q, merged.n).T
    start = reduced.project(reduced.a).ravel()
    rng = np.random.default_rng(0)
    gram = Gram.of(reduced, np.float64)
    lists = max((2**k for k in range(1, 7)), key=lambda count: _bits(merged.n, count))
    for _ in range(ROUNDS):
        chosen = gram.descend(rng.random(merged.n) < 0.5)
        parts = np.array_split(rng.permutation(merged.n), lists)
        joined = _join(terms, start, chosen, [part[:LISTED] for part in parts])
        subset = merged.lift(joined)
        other = judge(condition, subset, columns)
        if max(other.bound, other.offset) < reach:
            best, found = subset, other
            reach = max(found.bound, found.offset)
        if reach <= tolerance:
            break
    return best, found


def _bits(n: int, lists: int) -> int:
    """Bits of cancellation in all, k(1 + log2 L), when n neurons make L lists."""
    return min(LISTED, n // lists) * lists.bit_length()


def _join(terms: Array, start: Array, chosen: Chosen, parts: list[Indices]) -> Chosen:
    """Toggle neurons of each part such that what is left of the condition is small.

    A list holds, for each entry, its vector and which entry of each part it came from.
    """
    left = start + terms[chosen].sum(axis=0)
    lists: list[tuple[Array, npt.NDArray[np.int64]]] = []
    for part in parts:
        sums = np.zeros((1, start.size))
        for h in part.tolist():
            sums = np.concatenate([sums, sums + (-terms[h] if chosen[h] else terms[h])])
        lists.append((sums, np.arange(len(sums))[:, None]))
    lists[0] = (lists[0][0] + left, lists[0][1])
    while len(lists) > 1:
        lists = [_matched(*pair) for pair in zip(lists[::2], lists[1::2], strict=True)]
    vectors, origins = lists[0]
    origin = origins[int(np.argmin((vectors**2).sum(axis=1)))]
    result = chosen.copy()
    for part, code in zip(parts, origin.tolist(), strict=True):
        toggled = part[[code >> bit & 1 == 1 for bit in range(part.size)]]
        result[toggled] = ~result[toggled]
    return result


def _matched(
    first: tuple[Array, npt.NDArray[np.int64]], second: tuple[Array, npt.NDArray[np.int64]]
) -> tuple[Array, npt.NDArray[np.int64]]:
    """Each entry of the first list with one of the second that nearly cancels it best."""
    (x, x_from), (y, y_from) = first, second
    _, nearest = KDTree(y).query(-x, eps=1.0)
    return x + y[nearest], np.concatenate([x_from, y_from[nearest]], axis=1)
