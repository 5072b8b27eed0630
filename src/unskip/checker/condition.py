"""The subset condition Π(A + Σ_S κ_j d_j u_jᵀ) = 0, and the groups of neurons that coincide."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any

import flint
import numpy as np
import numpy.typing as npt

from unskip.activations import Independence
from unskip.blocks import ResidualBlock
from unskip.certificates import Certificate
from unskip.checker.arithmetic import EPS, SUM, Array, Exact, integers, proportional
from unskip.checker.requirements import norm_is_injective, refuse


class Condition:
    """The matrices of the condition, homogenised where the output bias is missing."""

    def __init__(self, c: Certificate, block: ResidualBlock, kappa: tuple[Fraction, ...]) -> None:
        self.kappa = kappa
        self.k = np.array([float(x) for x in kappa])
        self.centred = c.assumptions.modulo == "mean"
        self.a = block.skip_matrix
        self.up = block.w_up.astype(np.float64)
        self.down = block.w_down.astype(np.float64)
        if not c.assumptions.output_bias:
            b, offset = block.bias("b_up"), block.bias("b_down")
            if b.any() or offset.any():
                self.up = np.hstack([self.up, b[:, None]])
                self.a = np.hstack([self.a, offset[:, None]])
        self.rows, self.columns = self.a.shape

    def skip_norm(self) -> tuple[float, float]:
        """Outward bounds of ‖ΠA‖_F."""
        norm = float(np.linalg.norm(self.centre(self.a)))
        slip = norm * SUM + (self.rows * EPS * float(np.linalg.norm(self.a)) if self.centred else 0)
        return norm - slip, norm + slip

    def centre(self, matrix: Array) -> Array:
        """Π, in floating point."""
        return matrix - matrix.mean(axis=0, keepdims=True) if self.centred else matrix

    @property
    def moderate(self) -> bool:
        """Whether entries are of a size for which the error bounds hold (no over- or underflow)."""
        largest = max(float(np.abs(x).max()) for x in (self.a, self.down, self.up, self.k))
        return largest < 2.0**100 and float(np.abs(self.centre(self.a)).max()) > 2.0**-200

    def reached(self, subset: npt.NDArray[Any]) -> float:
        """An upper bound of ‖Π(A + Σ_S R_j)‖_F; infinite where rounding is not under control."""
        if not self.moderate:
            return math.inf
        down, up = self.down[:, subset] * self.k[subset], self.up[subset]
        norm = float(np.linalg.norm(self.centre(self.a + down @ up)))
        mass = float(np.linalg.norm(self.a))
        mass += float((np.linalg.norm(down, axis=0) * np.linalg.norm(up, axis=1)).sum())
        rounding = (len(subset) + self.rows + 4) * EPS / 2 * 1.01 * mass + 2.0**-250
        return norm * (1 + SUM) + rounding


def parity(block: ResidualBlock) -> tuple[Fraction, ...]:
    """κ_j of an ungated block to which the subset condition applies; refuses others."""
    kappa = None if block.gated else block.activation.parity_constants(block.m)
    if kappa is None or not any(kappa) or block.norm.in_front:
        refuse("the subset condition does not apply to this block")
    return kappa


def remainder(condition: Condition, subset: npt.NDArray[Any]) -> Exact:
    """A positive multiple of A + Σ_S R_j in integers; centred: of its differences to row 0."""
    down, down_scale = integers(condition.down[:, subset])
    up, up_scale = integers(condition.up[subset])
    a, a_scale = integers(condition.a)
    kappa = [condition.kappa[j] for j in subset.tolist()]
    k_scale = math.lcm(*(k.denominator for k in kappa))
    weighted = [[x * int(k * k_scale) for x, k in zip(row, kappa, strict=True)] for row in down]
    total = flint.fmpz_mat(a) * (down_scale * up_scale * k_scale)
    if kappa:
        total += flint.fmpz_mat(weighted) * flint.fmpz_mat(up) * a_scale
    rows: Exact = [[int(x) for x in row] for row in total.tolist()]
    if condition.centred:
        rows = [[x - y for x, y in zip(row, rows[0], strict=True)] for row in rows]
    return rows


def leaves_something(condition: Condition, subset: npt.NDArray[Any]) -> bool:
    """Whether Π(A + Σ_S R_j) ≠ 0."""
    return any(any(row) for row in remainder(condition, subset))


class Groups:
    """The groups of neurons that coincide, by the activation's uniqueness theorem (§6).

    ``sets`` has every group, ``visible`` those that do not cancel, H; ``sign`` is ±1 by whether
    a neuron points as the first of its group.  ``unique``: the theorem applies, so that each
    visible group is in every residual-free block that equals this one.
    """

    #: Whether members are terms of one neuron, which no set of neurons tears apart.
    inseparable = False

    def __init__(self, c: Certificate, block: ResidualBlock, condition: Condition) -> None:
        self.kind = block.activation.facts.independence
        up = block.w_up.astype(np.float64)
        bias = block.bias("b_up")
        self.rows = np.hstack([up, bias[:, None]])
        self.down = condition.down
        self.centred = condition.centred
        self.sign = np.ones(block.m, dtype=np.int64)
        living: list[int] = np.flatnonzero(up.any(axis=1)).tolist()
        self.sets = [[j] for j in living]
        if self.kind is not Independence.UNKNOWN:
            self.sets = self._coincident(self.rows, living, self.kind is Independence.HYPERPLANE)
        self.visible = [members for members in self.sets if self._is_visible(members)]
        zero_at_zero = block.activation.facts.value_at_zero == 0
        dead = ~up.any(axis=1) & condition.down.any(axis=0)
        #: Constants that an output bias would take, and that need a neuron without one.
        self.constants = not c.assumptions.output_bias and bool(
            (dead & ((bias != 0) | (not zero_at_zero))).any()
        )
        apart = self.kind is not Independence.DIRECTION or all(
            self._same_neuron(self.rows[m[0]], self.rows[j])
            for m in self._coincident(up, living, True, record=False)
            for j in m
        )
        known = self.kind is not Independence.UNKNOWN
        self.theorem = known and apart and norm_is_injective(block)
        #: Neurons with u = 0 whose constants are part of A', which every set then includes.
        self.fixed = np.zeros(0, dtype=np.int64)

    @property
    def unique(self) -> bool:
        """Whether the uniqueness theorem applies."""
        return self.theorem and not self.constants

    @property
    def n(self) -> int:
        """|H|."""
        return len(self.visible)

    def turned(self) -> npt.NDArray[np.int64]:
        """The neurons that point against the first of their group."""
        return np.flatnonzero(self.sign < 0)

    def total(self, values: Array) -> Array:
        """Σ sign_j values_j over each visible group."""
        return self.whole(self.sign * values)

    def whole(self, values: Array) -> Array:
        """Σ values_j over each visible group."""
        members, group = self.labels
        return np.bincount(group, values[members], self.n).astype(np.float64)

    @cached_property
    def labels(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The members of visible groups in a row, and the group of each."""
        members = np.array([j for group in self.visible for j in group], dtype=np.int64)
        return members, np.repeat(np.arange(self.n), [len(group) for group in self.visible])

    def flips(self, subset: npt.NDArray[Any]) -> bool:
        """Whether a set of neurons orients each group as a whole."""
        inside = self.sign < 0
        inside[subset] = ~inside[subset]
        several = (members for members in self.sets if len(members) > 1)
        return bool(np.isin(self.fixed, subset).all()) and all(
            len(set(inside[members].tolist())) == 1 for members in several
        )

    def _coincident(
        self, rows: Array, living: list[int], parallel: bool, *, record: bool = True
    ) -> list[list[int]]:
        """Equal rows up to sign (or, ``parallel``, up to any factor), exactly.

        Each row is brought to a normal form, divided by the entry of largest magnitude or by
        its sign; equal forms after a rounded division are compared as fractions.
        """
        leads = np.abs(rows).argmax(axis=1)
        entries = np.take_along_axis(rows, leads[:, None], axis=1)
        normal = (
            rows[living] / entries[living] if parallel else rows[living] * np.sign(entries[living])
        )
        normal = np.ascontiguousarray(normal + 0.0)  # −0 and 0 are equal
        forms: dict[bytes, list[list[int]]] = {}
        for j, form in zip(living, normal, strict=True):
            lead = int(leads[j])
            for members in forms.setdefault(form.tobytes(), []):
                first = rows[members[0]]
                if not parallel or proportional(first, rows[j], lead):
                    members.append(j)
                    if record and np.sign(first[lead]) != np.sign(rows[j, lead]):
                        self.sign[j] = -1
                    break
            else:
                forms[form.tobytes()].append([j])
        return sorted(members for alike in forms.values() for members in alike)

    @cached_property
    def seen(self) -> npt.NDArray[np.bool_]:
        """Which output columns are not zero (centred: not constant)."""
        seen: npt.NDArray[np.bool_] = (self.down != (self.down[:1] if self.centred else 0.0)).any(0)
        return seen

    @staticmethod
    def _same_neuron(a: Array, b: Array) -> bool:
        return np.array_equal(a, b) or np.array_equal(a, -b)

    def _is_visible(self, members: list[int]) -> bool:
        """Whether the output columns of a group, scaled to one row, do not cancel."""
        if len(members) == 1:
            return bool(self.seen[members[0]])
        lead = int(np.abs(self.rows[members[0]]).argmax())
        scales = [abs(Fraction(self.rows[j, lead])) for j in members]
        entries = [
            sum((t * Fraction(x) for t, x in zip(scales, row, strict=True)), Fraction(0))
            for row in self.down[:, members].tolist()
        ]
        return any(x != (entries[0] if self.centred else 0) for x in entries)
