"""Right answers from elsewhere: exact fractions, every subset, every orientation.

Nothing here is clever, nothing is shared with the library, and everything is exponential.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, product

from unskip import ResidualBlock

Matrix = list[list[Fraction]]


def fractions(array: object) -> Matrix:
    return [[Fraction(float(x)) for x in row] for row in array]  # type: ignore[attr-defined]


def centre(matrix: Matrix) -> Matrix:
    rows = len(matrix)
    means = [sum(column) / rows for column in zip(*matrix, strict=True)]
    return [[x - mean for x, mean in zip(row, means, strict=True)] for row in matrix]


def squared_norm(matrix: Matrix) -> Fraction:
    return sum((x * x for row in matrix for x in row), Fraction(0))


def rank(rows: Sequence[Sequence[Fraction]]) -> int:
    """Gaussian elimination in fractions."""
    work = [list(row) for row in rows]
    found = 0
    for column in range(len(work[0]) if work else 0):
        pivot = next((i for i in range(found, len(work)) if work[i][column] != 0), None)
        if pivot is None:
            continue
        work[found], work[pivot] = work[pivot], work[found]
        for i in range(found + 1, len(work)):
            factor = work[i][column] / work[found][column]
            if factor:
                work[i] = [x - factor * y for x, y in zip(work[i], work[found], strict=True)]
        found += 1
    return found


class Oracle:
    """The subset condition of one ungated parity-linear block, in fractions."""

    def __init__(
        self, block: ResidualBlock, kappa: Sequence[Fraction], *, output_bias: bool
    ) -> None:
        self.m, self.d = block.m, block.d
        self.kappa = list(kappa)
        a, up, down = (fractions(x) for x in (block.skip_matrix, block.w_up, block.w_down))
        bias = [Fraction(0)] * self.m if block.b_up is None else fractions([block.b_up])[0]
        offset = [Fraction(0)] * self.d if block.b_down is None else fractions([block.b_down])[0]
        self.up, self.bias, self.down = up, bias, down
        if not output_bias:
            up = [[*row, b] for row, b in zip(up, bias, strict=True)]
            a = [[*row, c] for row, c in zip(a, offset, strict=True)]
        self.rows = up
        self.centred = block.norm.value == "post-layernorm"
        self.skip = self._keep(a)
        columns = list(zip(*down, strict=True))
        self.columns = [
            [entry for (entry,) in self._keep([[x] for x in column])] for column in columns
        ]

    def _keep(self, matrix: Matrix) -> Matrix:
        return centre(matrix) if self.centred else matrix

    def term(self, j: int) -> Matrix:
        return [[self.kappa[j] * x * y for y in self.rows[j]] for x in self.columns[j]]

    def total(self, subset: Sequence[int]) -> Matrix:
        total = [list(row) for row in self.skip]
        for j in subset:
            total = [
                [x + y for x, y in zip(r, s, strict=True)]
                for r, s in zip(total, self.term(j), strict=True)
            ]
        return total

    def subsets(self) -> Iterator[tuple[int, ...]]:
        for size in range(self.m + 1):
            yield from combinations(range(self.m), size)

    def satisfying(self) -> list[tuple[int, ...]]:
        return [s for s in self.subsets() if squared_norm(self.total(s)) == 0]

    def least_defect(self) -> float:
        """min over S of the relative defect (one rounding of a square root)."""
        least = min(squared_norm(self.total(s)) for s in self.subsets())
        return float(least / squared_norm(self.skip)) ** 0.5

    def independent(self) -> bool:
        """Whether the rank-one terms are linearly independent."""
        flat = [[x for row in self.term(j) for x in row] for j in range(self.m)]
        return rank(flat) == self.m

    def groups(self, *, hyperplanes: bool) -> list[list[int]]:
        """Neurons that are one neuron, without those of zero input weights."""
        full = [[*row, b] for row, b in zip(self.up, self.bias, strict=True)]
        sets: list[list[int]] = []
        for j in range(self.m):
            if not any(self.up[j]):
                continue
            for members in sets:
                other = full[members[0]]
                same = full[j] == other or full[j] == [-x for x in other]
                if same or (hyperplanes and rank([full[j], other]) < 2):
                    members.append(j)
                    break
            else:
                sets.append([j])
        return sets

    def distinct(self, *, hyperplanes: bool) -> bool:
        """Nondegenerate: no zero rows or columns, no two neurons that coincide."""
        sets = self.groups(hyperplanes=hyperplanes)
        return len(sets) == self.m and all(any(column) for column in self.columns)

    def minimal_width(self, *, hyperplanes: bool, constant: bool = False) -> int:
        """w* of theory §6, from the canonical form: every T, every orientation.

        ``constant``: a constant neuron is of use (no output bias, hidden biases allowed).
        """
        full = [[*row, b] for row, b in zip(self.up, self.bias, strict=True)]
        kinks: list[tuple[list[Fraction], list[Fraction]]] = []
        for members in self.groups(hyperplanes=hyperplanes):
            first = full[members[0]]
            lead = next(i for i, x in enumerate(first) if x)
            scale = {j: abs(full[j][lead] / first[lead]) for j in members}
            column = [
                sum(self.kappa[j] * scale[j] * self.columns[j][i] for j in members)
                for i in range(self.d)
            ]
            if any(column):
                kinks.append((column, self.rows[members[0]]))
        half = [
            [x + sum(self.term(j)[i][k] for j in range(self.m)) / 2 for k, x in enumerate(row)]
            for i, row in enumerate(self.skip)
        ]
        columns = len(self.skip[0])
        last = [Fraction(int(k == columns - 1)) for k in range(columns)]
        best = 2 * self.d
        for signs in product((-1, 1, 0), repeat=len(kinks)):
            linear = [list(row) for row in half]
            for sign, (column, row) in zip(signs, kinks, strict=True):
                for i in range(self.d):
                    for k in range(columns):
                        linear[i][k] -= sign * column[i] * row[k] / 2
            twins = [row for sign, (_, row) in zip(signs, kinks, strict=True) if sign == 0]
            for bought in (twins, [*twins, last]) if constant else (twins,):
                modulo = rank([*linear, *bought]) - rank(bought)
                best = min(best, len(bought) + 2 * modulo)
        return len(kinks) + best
