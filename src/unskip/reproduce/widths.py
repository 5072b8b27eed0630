"""The canonical form, the minimal width and its price (§6, §7), against exhaustive search."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import flint
import numpy as np

from unskip.blocks import ResidualBlock
from unskip.checker import check
from unskip.decision import decide
from unskip.reproduce.blocks import Array, Generator, random_block
from unskip.reproduce.experiment import Number, Result, experiment


@experiment("theory §6")
def degenerate_weights(rng: Generator) -> Result:
    """The least width of a residual-free ReLU block is |H| + min(|T| + 2·rank(M_ε modulo the
    rows of T)), over sets T of hyperplanes and orientations ε of the others.

    Tried: 200 integer blocks, d = 2 and 3, with repeated, opposite and dead neurons: the
    verdict against the formula, by trying every T and ε with exact ranks; certificates are
    checked.
    """
    right = absorbable = smaller = 0
    for i in range(200):
        d, m = 2 + i % 2, 6
        rows = rng.integers(-1, 2, size=(4, d + 1))
        rows = rows[rng.integers(0, 4, size=m)] * rng.choice([-2, -1, 1, 2], size=(m, 1))
        down = rng.integers(-2, 3, size=(d, m)).astype(np.float64)
        block = ResidualBlock(
            w_up=rows[:, :d],
            b_up=rows[:, d],
            w_down=down,
            b_down=np.zeros(d),
            activation="relu",
        )
        verdict = decide(block)
        check(verdict.certificate, block)
        least = least_width(block)
        right += verdict.width.lower <= least <= verdict.width.upper
        right += (verdict.answer == "absorbable") == (least <= m)
        absorbable += least <= m
        smaller += least < m
    numbers: dict[str, Number] = {
        "blocks": 200,
        "bounds and answers right": f"{right} of 400",
        "absorbable": absorbable,
        "with fewer neurons than the block": smaller,
    }
    return Result(right == 400 and 0 < absorbable < 200, numbers)


@experiment("theory §7")
def price_in_width(rng: Generator) -> Result:
    """For generic weights the least width is max(m + d, 2d): the price of the skip is d
    neurons where m ≥ d.

    Tried: Gaussian ReLU blocks with biases for six sizes: the verdict's bounds of the width,
    and the formula of §6 by exhaustive search.
    """
    held = True
    numbers: dict[str, Number] = {}
    for d, m in ((2, 2), (2, 4), (2, 5), (3, 2), (3, 3), (3, 5)):
        block = random_block(rng, d, m, "relu")
        verdict = decide(block)
        check(verdict.certificate, block)
        least = least_width(block)
        expected = max(m + d, 2 * d)
        held &= least == expected and verdict.width.lower <= expected <= verdict.width.upper
        numbers[f"d = {d}, m = {m}"] = f"{least} (formula {expected})"
    return Result(held, numbers)


@experiment("theory §6")
def hard_swish_relation(rng: Generator) -> Result:
    """HardSwish is different: six distinct neurons with parallel rows can add up to zero.

    Tried: hs(6z−3) − 8hs(3z−3) + 9hs(2z−3) + 3hs(6z−9) − 8hs(3z−6) + hs(6z−15) on 2,001
    fractions, exactly.
    """

    def hs(z: Fraction) -> Fraction:
        return z * min(max(z + 3, Fraction(0)), Fraction(6)) / 6

    terms = ((1, 6, -3), (-8, 3, -3), (9, 2, -3), (3, 6, -9), (-8, 3, -6), (1, 6, -15))
    points = [Fraction(i, 89) for i in range(-1000, 1001)]
    sums = [sum((c * hs(a * z + b) for c, a, b in terms), Fraction(0)) for z in points]
    largest = max(map(abs, sums))
    return Result(largest == 0, {"points": len(points), "largest sum": str(largest)})


def least_width(block: ResidualBlock) -> int:
    """The formula of §6 for a ReLU block with both kinds of bias, by exhaustive search.

    Nothing is shared with ``decide``: exact fractions, every T, every ε.
    """
    d = block.d
    rows, down = _exact(np.column_stack([block.w_up, block.bias("b_up")])), _exact(block.w_down)
    linear = _exact(block.skip_matrix)
    groups: dict[tuple[Fraction, ...], list[Fraction]] = {}
    for j, row in enumerate(rows):
        pivot = next((x for x in row[:d] if x), None)
        if pivot is None:
            continue
        normal, size = tuple(x / pivot for x in row), abs(pivot)
        column = groups.setdefault(normal, [Fraction(0)] * d)
        for i in range(d):
            column[i] += size * down[i][j]
            for k in range(d):
                linear[i][k] += down[i][j] * row[k] / 2
    visible = [(normal[:d], column) for normal, column in groups.items() if any(column)]
    best = 2 * d
    for many in range(len(visible) + 1):
        for twins in combinations(range(len(visible)), many):
            others = [h for h in range(len(visible)) if h not in twins]
            basis = [list(visible[h][0]) for h in twins]
            for signs in product((1, -1), repeat=len(others)):
                left = [list(row) for row in linear]
                for sign, h in zip(signs, others, strict=True):
                    normal, column = visible[h]
                    for i in range(d):
                        for k in range(d):
                            left[i][k] -= Fraction(sign, 2) * column[i] * normal[k]
                best = min(best, many + 2 * (_rank(left + basis) - _rank(basis)))
    return len(visible) + best


def _exact(array: Array) -> list[list[Fraction]]:
    return [[Fraction(float(x)) for x in row] for row in array]


def _rank(rows: list[list[Fraction]]) -> int:
    if not rows:
        return 0
    entries = [[flint.fmpq(x.numerator, x.denominator) for x in row] for row in rows]
    return int(flint.fmpq_mat(entries).rank())


EXPERIMENTS = (degenerate_weights, price_in_width, hard_swish_relation)
