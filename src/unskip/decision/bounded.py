"""What the branch does not read, the skip must carry alone (§6, §9: bounded rank).

If U v = 0 for all neurons, no flip and no twin changes A v.  So a skip of rank ρ beside a branch
that reads r directions leaves rank ρ − r for neurons that the block has not: a bottleneck, a
low-rank branch, or static Hyper-Connections of several streams.
"""

from __future__ import annotations

import flint
import numpy as np
import numpy.typing as npt

from unskip.decision.exact import PRIME, integers, residues
from unskip.decision.modular import centre
from unskip.decision.neurons import parallel_classes
from unskip.decision.question import Question

Array = npt.NDArray[np.float64]

#: Entries times the smaller side of matrices whose rank is computed over the integers.
SMALL = 1 << 20
#: Sides of skips whose rank is computed modulo a prime.
LARGEST_SKIP = 1024


def left_over(question: Question, rows: Array) -> int:
    """A lower bound of rank(ΠA on {v : rows·v = 0}).  O(md) and little beyond."""
    d = question.block.d
    reads = rank_at_most(rows)
    return max(0, skip_rank(question) - reads) if reads < d else 0


def rank_at_most(rows: Array) -> int:
    """An upper bound of the rank: rows, or columns, that are multiples of each other count once."""
    kept = rows[rows.any(axis=1)][:, rows.any(axis=0)]
    if not kept.size:
        return 0
    bound = min(parallel_classes(kept), parallel_classes(np.ascontiguousarray(kept.T)))
    if kept.size * min(kept.shape) <= SMALL:
        bound = min(bound, int(flint.fmpz_mat(len(kept), kept.shape[1], integers(kept)[0]).rank()))
    return bound


def skip_rank(question: Question) -> int:
    """A lower bound of rank ΠA; 0 where it would take long to know."""
    block, d = question.block, question.block.d
    if block.skip is None or block.skip.ndim < 2:
        entries = np.broadcast_to(1.0 if block.skip is None else block.skip, (d,))
        nonzero = int(np.count_nonzero(entries))
        return nonzero - (question.centred and nonzero == d)
    if d > LARGEST_SKIP:
        return 0
    image = residues(block.skip_matrix)
    if question.centred:
        image = centre(image, d)
    return int(flint.nmod_mat(d, d, image.ravel().tolist(), PRIME).rank())
