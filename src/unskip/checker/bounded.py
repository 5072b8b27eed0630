"""Bounded rank: what the branch does not read of the skip (Theorem 30)."""

from __future__ import annotations

import flint
import numpy as np

from unskip.blocks import ResidualBlock
from unskip.certificates import Certificate
from unskip.checker.arithmetic import MODULUS, Array, integers, proportional, residues
from unskip.checker.requirements import refuse

#: Entries times the smaller side of matrices whose rank is taken over the integers.
SMALL = 1 << 21


def require_left_over(c: Certificate, block: ResidualBlock, rows: Array) -> int:
    """The claimed rank of ΠA on the kernel of ``rows`` (n, d); refuses one that is not proved.

    It is at least rank ΠA − rank(rows).  The first is bounded from below modulo a prime, the
    second from above by the rows, or columns, that are no multiples of earlier ones.
    """
    claimed = c.data["left"]
    if type(claimed) is not int or claimed < 0:
        refuse("its count of directions is no number")
    if claimed > _skip_rank(block, centred=c.assumptions.modulo == "mean") - _rank(rows):
        refuse("the branch may read more of the skip than it says")
    return claimed


def _rank(rows: Array) -> int:
    """At least the rank."""
    if rows.size and rows.size * min(rows.shape) <= SMALL:
        exact = flint.fmpz_mat(integers(rows)[0])
        return int(exact.rank())
    return min(_distinct(rows), _distinct(rows.T))


def _distinct(rows: Array) -> int:
    forms: dict[bytes, list[Array]] = {}
    for row in rows:
        lead = int(np.abs(row).argmax()) if row.size else 0
        if not row.size or row[lead] == 0:
            continue
        alike = forms.setdefault((row / row[lead] + 0.0).tobytes(), [])
        if not any(proportional(first, row, lead) for first in alike):
            alike.append(row)
    return sum(len(alike) for alike in forms.values())


def _skip_rank(block: ResidualBlock, *, centred: bool) -> int:
    """At most rank ΠA."""
    if block.skip is None or block.skip.ndim < 2:
        present = sum(block.skip_entry(i, i) != 0 for i in range(block.d))
        return present - int(centred and present == block.d)  # the kernel of Π is span{1}
    matrix = flint.nmod_mat(block.d, block.d, residues(block.skip_matrix), MODULUS)
    if centred:  # differences to row 0 have the rank of Π A
        rows = [[int(x) for x in row] for row in matrix.tolist()]
        flat = [(x - y) % MODULUS for row in rows for x, y in zip(row, rows[0], strict=True)]
        matrix = flint.nmod_mat(block.d, block.d, flat, MODULUS)
    return int(matrix.rank())
