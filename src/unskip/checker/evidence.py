"""Evidence against every set of groups, and what it shows of the defect."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np
import numpy.typing as npt

from unskip.certificates import Certificate
from unskip.checker.arithmetic import EPS, MODULUS, SUM, Array, integers, residues
from unskip.checker.condition import Condition, Groups
from unskip.checker.requirements import index_below, refuse


@dataclass(frozen=True)
class Shown:
    """What evidence shows: a lower bound of the relative defect and, for a matrix Y, one of
    ⟨Y, A + Σ_S R_j⟩ over every S that orients groups as a whole."""

    defect: float = 0.0
    value: float = 0.0
    y: Array | None = None


def _by_value(condition: Condition, groups: Groups, y: npt.NDArray[Any]) -> Shown:
    """What Y shows; refuses one that leaves some set of groups possible.

    ⟨Y, A'⟩ − Σ_h max(0, −⟨Y, R'_h⟩) bounds ⟨Y, A + Σ_S R_j⟩ from below for every S that orients
    groups as a whole, where A' = A + Σ_{turned} R_j and R'_h = Σ_{j∈h} ±R_j; the same over single
    neurons does for every S, and over ‖Y‖ ‖ΠA‖ bounds the defect.  ⟨Y, R_j⟩ = κ_j d_jᵀ Y u_j, and
    a computed inner product of n terms errs by at most γ_n Σ|terms|.
    """
    if y.shape != condition.a.shape:
        refuse(f"its matrix has shape {y.shape}")
    if condition.centred and np.any(y.sum(axis=0, dtype=np.int64)):
        refuse("the columns of its matrix do not sum to zero")
    real = y.astype(np.float64)
    p, q = real.shape
    norm = float(np.linalg.norm(real)) * (1 + SUM)
    if not condition.moderate:
        refuse("the weights are too large, or the skip too small, for floating-point bounds")
    gamma = (p + q + len(condition.k) + 4) * EPS / 2 * 1.01
    products = np.einsum("jk,jk->j", condition.down.T @ real, condition.up) * condition.k
    # 2⁻³⁰⁰ covers what underflows in a norm or a product of entries below 2¹⁰⁰
    sizes = (np.linalg.norm(condition.down, axis=0) + 2.0**-300) * np.abs(condition.k)
    sizes *= np.linalg.norm(condition.up, axis=1) + 2.0**-300
    errors = gamma * norm * (1 + SUM) * sizes
    with_skip = float((real * condition.a).sum())
    with_skip -= p * q * EPS * norm * float(np.linalg.norm(condition.a))
    by_group = np.maximum(0.0, groups.whole(errors) - groups.total(products))
    turned = float((products - errors)[groups.turned()].sum())
    value = with_skip + turned - float(by_group.sum()) * (1 + SUM)
    if not value > 0:
        refuse("its matrix does not refute every set of groups")
    by_neuron = by_group if groups.inseparable else np.maximum(0.0, errors - products)
    over_all = max(0.0, with_skip - float(by_neuron.sum()) * (1 + SUM))
    return Shown(over_all / norm / condition.skip_norm()[1] * (1 - SUM), value, real)


def _unit(condition: Condition, y: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Centred: p·Y minus its column sums, so that columns sum to zero."""
    return condition.rows * y - y.sum(axis=0) if condition.centred else y


def _by_trace(c: Certificate, condition: Condition, groups: Groups) -> Shown:
    y = np.eye(condition.rows, condition.columns, dtype=np.int64)
    return _by_value(condition, groups, _unit(condition, y))


def _by_coordinate(c: Certificate, condition: Condition, groups: Groups) -> Shown:
    y = np.zeros((condition.rows, condition.columns), dtype=np.int64)
    if c.data["sign"] not in (1, -1) or type(c.data["sign"]) is not int:
        refuse("sign is not ±1")
    row, column = index_below(c, "row", condition.rows), index_below(c, "column", condition.columns)
    y[row, column] = c.data["sign"]
    return _by_value(condition, groups, _unit(condition, y))


def _by_matrix(c: Certificate, condition: Condition, groups: Groups) -> Shown:
    return _by_value(condition, groups, c.arrays["dual"])


def _by_residues(c: Certificate, condition: Condition, groups: Groups) -> Shown:
    """An identity modulo a prime that no subset survives; it bounds no distance.

    2 is invertible modulo the (odd) modulus, so dyadic weights have images in Z/p, and
    A + Σ_S R_j = 0 (centred: = 1aᵀ) implies ⟨Y, A⟩ + Σ_S ⟨Y, R_j⟩ ≡ 0.
    """
    y = c.arrays["dual"]
    if y.shape != condition.a.shape or y.min() < 0 or y.max() >= MODULUS:
        refuse("its matrix is not one of residues, or of the wrong shape")
    if condition.centred and np.any(y.sum(axis=0, dtype=np.int64) % MODULUS):
        refuse("the columns of its matrix do not sum to zero")
    p, q = y.shape
    m = len(condition.kappa)
    dual = flint.nmod_mat(p, q, y.ravel().tolist(), MODULUS)
    down = flint.nmod_mat(p, m, residues(condition.down), MODULUS)
    paired = [int(x) for x in (down.transpose() * dual).entries()]
    up, skip, flat = residues(condition.up), residues(condition.a), y.ravel().tolist()
    with_skip = sum(a * b for a, b in zip(flat, skip, strict=True)) % MODULUS
    inner = []
    for j, kappa in enumerate(condition.kappa):
        product = sum(paired[j * q + k] * up[j * q + k] for k in range(q))
        inner.append(product * kappa.numerator * pow(kappa.denominator, -1, MODULUS) % MODULUS)
    with_skip += sum(inner[j] for j in groups.turned().tolist())
    neuron = c.data["neuron"]
    if neuron != -1:
        neuron = index_below(c, "neuron", m)
    for members in groups.visible:
        expected = int(members[0] == neuron)
        if sum(int(groups.sign[j]) * inner[j] for j in members) % MODULUS != expected:
            refuse(f"its matrix is not orthogonal to neuron {members[0]} modulo the prime")
    if (-with_skip) % MODULUS in ((0,) if neuron == -1 else (0, 1)):
        refuse("its matrix does not refute every subset")
    return Shown()


def _by_all_sums(c: Certificate, condition: Condition, groups: Groups) -> Shown:
    """No set of groups has the sum that the skip asks for, modulo p = 2⁶¹ − 1.

    The weights are ⟨Y, R'_h⟩ for Y_ik = y_i z_k, the powers of two bases; centred, the y_i are
    made to sum to zero.  All sums of either half of the groups are listed and matched.
    """
    modulus = 2**61 - 1
    alpha, beta = (index_below(c, key, modulus) for key in ("alpha", "beta"))
    p, q = condition.a.shape
    if groups.n > 44:
        refuse("there are too many groups to list all sums")
    y = [pow(alpha, i, modulus) for i in range(p)]
    z = [pow(beta, k, modulus) for k in range(q)]
    if condition.centred:
        y[0] = modulus - sum(y[1:]) % modulus

    def image(x: float) -> int:
        numerator, denominator = x.as_integer_ratio()
        return numerator * pow(denominator, -1, modulus)

    def pair(weights: list[int], values: list[float]) -> int:
        return sum(w * image(x) for w, x in zip(weights, values, strict=True)) % modulus

    target = -sum(w * pair(z, row) for w, row in zip(y, condition.a.tolist(), strict=True))
    single = []
    for column, row, kappa in zip(
        condition.down.T.tolist(), condition.up.tolist(), condition.kappa, strict=True
    ):
        scale = kappa.numerator * pow(kappa.denominator, -1, modulus)
        single.append(pair(y, column) * pair(z, row) * scale % modulus)
    target -= sum(single[j] for j in groups.turned().tolist())
    weights = [sum(int(groups.sign[j]) * single[j] for j in m) % modulus for m in groups.visible]
    halves = []
    for part in (weights[::2], weights[1::2]):
        sums = np.zeros(1, dtype=np.int64)
        for weight in part:
            sums = np.concatenate([sums, (sums + weight) % modulus])
        halves.append(sums)
    wanted = (target % modulus - halves[0]) % modulus
    if np.isin(wanted, halves[1]).any():
        refuse("a set of groups has the sum that the skip asks for")
    return Shown()


@dataclass(frozen=True)
class _Pairing:
    """⟨Y, 2^scale R'_h⟩ of the visible groups and ⟨Y, 2^scale A'⟩, modulo ``modulus`` unless 0."""

    weights: list[int]
    skip: int
    modulus: int

    def refutes(self, decided: dict[int, bool]) -> bool:
        """Whether 0 (modulo: no multiple) lies between the extremes of what groups sum to."""
        low = high = self.skip
        for h, w in enumerate(self.weights):
            if h not in decided:
                low, high = low + min(0, w), high + max(0, w)
            elif decided[h]:
                low, high = low + w, high + w
        if not self.modulus:
            return low > 0 or high < 0
        return high // self.modulus * self.modulus < low


class _Scaled:
    """The weights of the condition as integers, 2^scale times each term of it being one."""

    def __init__(self, c: Certificate, condition: Condition, groups: Groups) -> None:
        self.condition, self.groups = condition, groups
        scale = c.data["scale"]
        if type(scale) is not int or not 0 <= scale <= 5000:
            refuse("its scale is no small integer")
        self.down, down_scale = integers(condition.down)
        self.up, up_scale = integers(condition.up)
        self.a, a_scale = integers(condition.a)
        kappa_scale = math.lcm(*(k.denominator for k in condition.kappa))
        unit = down_scale * up_scale * kappa_scale
        if 2**scale % unit or 2**scale % a_scale:
            refuse("its scale does not make every term an integer")
        self.kappa = [int(k * kappa_scale) * (2**scale // unit) for k in condition.kappa]
        self.skip_factor = 2**scale // a_scale

    def paired(self, y: npt.NDArray[Any], modulus: int) -> _Pairing:
        """The integers of one Y, those of groups reduced to least size."""
        if y.shape != self.condition.a.shape:
            refuse(f"its matrix has shape {y.shape}")
        if modulus < 0 or modulus == 1:
            refuse("its modulus is none")
        sums = y.sum(axis=0, dtype=np.int64)
        if self.condition.centred and np.any(sums % modulus if modulus else sums):
            refuse("the columns of its matrix do not sum to zero")
        rows = y.tolist()
        products = (flint.fmpz_mat(self.down).transpose() * flint.fmpz_mat(rows)).tolist()
        inner = [
            kappa * sum(int(x) * u for x, u in zip(product, row, strict=True))
            for product, row, kappa in zip(products, self.up, self.kappa, strict=True)
        ]
        skip = self.skip_factor * sum(
            x * a
            for row, side in zip(rows, self.a, strict=True)
            for x, a in zip(row, side, strict=True)
        )
        skip += sum(inner[j] for j in self.groups.turned().tolist())
        sign = self.groups.sign.tolist()
        weights = [sum(sign[j] * inner[j] for j in members) for members in self.groups.visible]
        if modulus:
            weights = [w % modulus for w in weights]
            weights = [w - modulus if 2 * w > modulus else w for w in weights]
        return _Pairing(weights, skip, modulus)


def _by_congruence(c: Certificate, condition: Condition, groups: Groups) -> Shown:
    """A + Σ_S R_j = 0 gives ⟨Y, 2^scale A'⟩ + Σ ⟨Y, 2^scale R'_h⟩ ≡ 0, which no set reaches."""
    modulus = index_below(c, "modulus", 2**45)
    if not _Scaled(c, condition, groups).paired(c.arrays["dual"], modulus).refutes({}):
        refuse("its congruence does not refute every set")
    return Shown()


def _by_tree(c: Certificate, condition: Condition, groups: Groups) -> Shown:
    """Every way to decide some groups ends at a leaf whose Y refutes what is left."""
    tree, duals, moduli = (c.arrays[key] for key in ("tree", "duals", "moduli"))
    if tree.ndim != 1 or duals.ndim != 3 or moduli.shape != duals.shape[:1]:
        refuse("its tree is of the wrong shape")
    scaled = _Scaled(c, condition, groups)
    pairings = [scaled.paired(y, q) for y, q in zip(duals, moduli.tolist(), strict=True)]
    place = {members[0]: h for h, members in enumerate(groups.visible)}
    open_: list[dict[int, bool]] = [{}]  # the decisions above the nodes still to come
    for node in tree.tolist():
        if not open_:
            refuse("its tree goes on after its last leaf")
        decided = open_.pop()
        if node >= 0:
            if node not in place or place[node] in decided:
                refuse("its tree decides what is no group, or one twice")
            h = place[node]
            open_ += [{**decided, h: True}, {**decided, h: False}]
        elif -1 - node >= len(pairings) or not pairings[-1 - node].refutes(decided):
            refuse("a leaf of its tree is not refuted")
    if open_:
        refuse("its tree is not complete")
    return Shown()


EVIDENCE: dict[str, Callable[[Certificate, Condition, Groups], Shown]] = {
    "trace": _by_trace,
    "coordinate": _by_coordinate,
    "matrix": _by_matrix,
    "modular": _by_residues,
    "sumset": _by_all_sums,
    "congruence": _by_congruence,
    "tree": _by_tree,
}
#: What each kind of evidence stores in ``data``.
DETAILS: dict[str, tuple[str, ...]] = {
    "coordinate": ("row", "column", "sign"),
    "modular": ("neuron",),
    "sumset": ("alpha", "beta"),
    "congruence": ("modulus", "scale"),
    "tree": ("scale",),
}
#: The arrays that each kind of evidence stores.
STORED: dict[str, tuple[str, ...]] = {
    "matrix": ("dual",),
    "modular": ("dual",),
    "congruence": ("dual",),
    "tree": ("tree", "duals", "moduli"),
}


def check_defect(
    c: Certificate, condition: Condition, bound: float, achieved: npt.NDArray[Any]
) -> None:
    """Refuse a defect that the proved bound and the achieved set do not support."""
    assert c.defect is not None
    if c.defect.lower > bound:
        refuse(f"its lower bound of the defect is not proved (proved: {bound:.9g})")
    # Flipping nothing leaves exactly the skip, whose relative defect is 1.
    reached = 1.0
    if achieved.size:
        lowest = condition.skip_norm()[0]
        reached = condition.reached(achieved) / lowest if lowest > 0 else math.inf
    if not c.defect.upper >= reached:
        refuse("its upper bound of the defect is not reached by its subset")
