"""Validates certificates against a block's own weights, without trusting who made them.

Shares no code with the decision procedure: it knows the definitions (activations and their
facts, blocks, the certificate format) and proves each statement anew from the data in the
certificate, in exact integers or in floating point with outward error bounds.  A statement
may be weaker than what the data prove (a looser bound), never stronger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

import flint
import numpy as np
import numpy.typing as npt

from unskip.activations import Activation, Growth, Independence
from unskip.blocks import NormKind, ResidualBlock
from unskip.certificates import Answer, Certificate, Rule, Scope
from unskip.errors import InvalidCertificate

__all__ = ["Proof", "check"]

Array = npt.NDArray[np.float64]
Exact = list[list[int]]

MODULUS = 2**31 - 1
EPS = 2.0**-52
#: Relative error, at most, of a floating-point sum of up to a million non-negative terms.
SUM = 2.0**-31


@dataclass(frozen=True)
class Proof:
    """A certificate that holds; ``sentence`` says what has been proved."""

    certificate: Certificate
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def check(certificate: Certificate, block: ResidualBlock) -> Proof:
    """Prove the certificate's statement about ``block``.

    Raises :class:`InvalidCertificate` with the first thing that does not hold.  Cost: one or
    two products of m×d×d for a dual certificate; O(md) for the unconditional rules.
    """
    c = certificate
    for what, stated, actual in (
        ("activation", c.activation, block.activation_name),
        ("gated", c.gated, block.gated),
        ("norm", c.norm, block.norm.value),
        ("d", c.d, block.d),
        ("m", c.m, block.m),
        ("modulo", c.assumptions.modulo, _discarded(block)),
    ):
        if stated != actual:
            _refuse(f"it is about a block with {what} = {stated}, and this one has {actual}")
    if not c.width.lower <= c.width.upper or (c.defect and not c.defect.lower <= c.defect.upper):
        _refuse("an interval of it is empty")
    for array in c.arrays.values():
        if array.size and array.dtype.itemsize == 8 and np.abs(array).max() >= 2**53:
            _refuse("an integer in it exceeds 2**53")
    conclusion = _CHECKS[c.rule](c, block)
    where = f" ({c.assumptions})"
    return Proof(c, f"{c.block or 'the block'}: {conclusion}{where}")


def _refuse(why: str) -> NoReturn:
    raise InvalidCertificate(f"certificate refused: {why}")


def _discarded(block: ResidualBlock) -> str:
    return "mean" if block.norm is NormKind.POST_LAYERNORM else "nothing"


def _expect(c: Certificate, data: Iterable[str], arrays: Iterable[str] = ()) -> None:
    """Nothing in a certificate may go unchecked, so its parts must be exactly the known ones."""
    if set(c.data) != set(data) or set(c.arrays) != set(arrays):
        _refuse("it has parts that its rule does not know, or lacks some")


def _index(c: Certificate, key: str, size: int) -> int:
    value = c.data[key]
    if type(value) is not int or not 0 <= value < size:
        _refuse(f"{key} is not an index below {size}")
    return value


def _norm_is_injective(block: ResidualBlock) -> bool:
    """With ε > 0 and no zero gain, equal normed outputs have equal (centred) inputs."""
    if block.norm.placement != "post":
        return True
    gain_lost = block.norm_gain is not None and bool((block.norm_gain == 0).any())
    return block.norm_eps > 0 and not gain_lost


def _require_injective_norm(block: ResidualBlock) -> None:
    if not _norm_is_injective(block):
        _refuse("the following norm discards more than the statement says")


def _lacks_biases(c: Certificate, block: ResidualBlock) -> bool:
    """The block uses hidden biases, and the replacement may have none."""
    return not c.assumptions.hidden_bias and any(b.any() for b in block.hidden_biases)


# --------------------------------------------------------------------------------------
# Unconditional rules: hypotheses on facts and biases, and an entry of A as the witness.


def _unconditional(
    hypothesis: Callable[[Certificate, ResidualBlock], Scope | None],
) -> Callable[[Certificate, ResidualBlock], str]:
    def verify(c: Certificate, block: ResidualBlock) -> str:
        _expect(c, ("row", "column"))
        if c.answer is not Answer.NOT_ABSORBABLE or c.defect is not None:
            _refuse("an unconditional rule proves 'not absorbable' and no defect")
        if not (math.isinf(c.width.lower) and c.width.lower > 0 and math.isinf(c.width.upper)):
            _refuse("it states a finite width where none suffices")
        _require_injective_norm(block)
        a = block.skip_matrix
        row, column = _index(c, "row", block.d), _index(c, "column", block.d)
        reference = a[0, column] if c.assumptions.modulo == "mean" else 0.0
        if a[row, column] == reference:
            _refuse("its witness does not show the skip")
        proved = hypothesis(c, block)
        if proved is None:
            _refuse(f"the hypotheses of {c.rule} do not hold")
        if c.scope is Scope.THIS_WIDTH or (c.scope is Scope.ANY_DEPTH and proved is not c.scope):
            _refuse(f"{c.rule} does not prove its scope, {c.scope}")
        return f"no residual-free block equals it, at {c.scope} [{c.rule.reference}]"

    return verify


def _factors(block: ResidualBlock) -> tuple[Activation, ...]:
    if block.up_activation is None:
        return (block.activation,)
    return (block.activation, block.up_activation)


def _without_hidden_biases(c: Certificate, block: ResidualBlock) -> bool:
    return block.b_up is None and block.b_gate is None and not c.assumptions.hidden_bias


def _survives_depth(block: ResidualBlock) -> bool:
    """The skips of a stack multiply to something nonzero, and nothing stands in between."""
    if block.norm is not NormKind.NONE:
        return False
    if block.skip is None:
        return True
    if block.skip.ndim < 2:
        return bool((block.skip != 0).all())
    return _proved_nonsingular(block.skip_matrix)


def _sublinear(c: Certificate, block: ResidualBlock) -> Scope | None:
    growths = [f.facts.growth for f in _factors(block)]
    slow = (Growth.BOUNDED, Growth.SUBLINEAR)
    # A product of two o(|z|) factors may be linear; at most one may be unbounded.
    unbounded = sum(g is not Growth.BOUNDED for g in growths)
    if not all(g in slow for g in growths) or unbounded > 1:
        return None
    return Scope.ANY_DEPTH if _survives_depth(block) else Scope.ANY_WIDTH


def _homogeneous(c: Certificate, block: ResidualBlock) -> Scope | None:
    degree = Fraction(0)
    for factor in _factors(block):
        if factor.facts.homogeneity is None:
            return None
        degree += factor.facts.homogeneity
    if degree == 1 or not _without_hidden_biases(c, block):
        return None
    deep = degree > 1 and not c.assumptions.output_bias and _survives_depth(block)
    return Scope.ANY_DEPTH if deep else Scope.ANY_WIDTH


def _order_at_zero(activation: Activation) -> int:
    """A lower bound of the order of vanishing at 0: 0 nothing known, 1 → 0, 2 O(z), 3 o(z)."""
    facts = activation.facts
    if facts.value_at_zero != 0:
        return 0
    if facts.derivative_at_zero is not None:
        return 3 if facts.derivative_at_zero == 0 else 2
    return 1 if facts.continuous_at_zero else 0


def _flat_at_zero(block: ResidualBlock) -> bool:
    """branch(x) = o(‖x‖) at 0, without biases."""
    orders = sorted(_order_at_zero(f) for f in _factors(block))
    return orders[0] >= 3 if len(orders) == 1 else orders[0] >= 1 and orders[1] >= 2


def _vanishing(c: Certificate, block: ResidualBlock) -> Scope | None:
    if not _flat_at_zero(block) or not _without_hidden_biases(c, block):
        return None
    deep = not c.assumptions.output_bias and _survives_depth(block)
    return Scope.ANY_DEPTH if deep else Scope.ANY_WIDTH


def _even(c: Certificate, block: ResidualBlock) -> Scope | None:
    facts = [f.facts for f in _factors(block)]
    odd = sum(f.odd and not f.even for f in facts)
    if not all(f.even or f.odd for f in facts) or odd % 2 or not _without_hidden_biases(c, block):
        return None
    differentiable = _flat_at_zero(block) if block.gated else _order_at_zero(block.activation) >= 2
    deep = differentiable and not c.assumptions.output_bias and _survives_depth(block)
    return Scope.ANY_DEPTH if deep else Scope.ANY_WIDTH


def _recession(c: Certificate, block: ResidualBlock) -> Scope | None:
    known = not block.gated and block.activation.facts.even_recession is not None
    return Scope.ANY_WIDTH if known else None


def _one_sided(c: Certificate, block: ResidualBlock) -> Scope | None:
    return Scope.ANY_WIDTH if not block.gated and block.activation.facts.one_sided else None


def _pre_norm(c: Certificate, block: ResidualBlock) -> Scope | None:
    return Scope.ANY_WIDTH if block.norm.placement in ("pre", "sandwich") else None


def _hidden_bias(c: Certificate, block: ResidualBlock) -> str:
    """Distinct neurons are unique (§6), so one with a hidden bias is in every replacement."""
    _expect(c, ("neuron", "nondegenerate"))
    _parity(block)
    _require_injective_norm(block)
    neuron = _index(c, "neuron", block.m)
    if c.assumptions.hidden_bias or block.b_up is None or block.b_up[neuron] == 0:
        _refuse("its neuron has no hidden bias, or the replacement may have one")
    if not _nondegenerate(c, block):
        _refuse("without distinct neurons, a hidden bias may cancel")
    if c.answer is not Answer.NOT_ABSORBABLE or c.defect is not None:
        _refuse("the rule proves 'not absorbable' and no defect")
    if c.scope is not Scope.ANY_WIDTH or (c.width.lower, c.width.upper) != (math.inf, math.inf):
        _refuse("the rule speaks of every width")
    return f"neuron {neuron} needs its hidden bias, at any width [{c.rule.reference}]"


# --------------------------------------------------------------------------------------
# Affine blocks.


def _linear_rank(c: Certificate, block: ResidualBlock) -> str:
    _expect(c, ())
    slope = block.activation.facts.slope
    if block.gated or not slope or block.norm.placement in ("pre", "sandwich"):
        _refuse("the block is not affine")
    _require_injective_norm(block)
    everything = np.arange(block.m)
    total = _total(_Condition(c, block, (slope,) * block.m), everything)
    if len(total[0]) > block.d and not c.assumptions.hidden_bias:
        _refuse("the replacement may have no bias at all")
    rank = int(flint.fmpz_mat(total).rank())
    answer = Answer.ABSORBABLE if rank <= block.m else Answer.NOT_ABSORBABLE
    if c.answer is not answer or c.scope is not Scope.THIS_WIDTH or c.defect is not None:
        _refuse(f"the block is affine of rank {rank}, and its width is {block.m}")
    if not c.width.lower <= rank <= c.width.upper:
        _refuse(f"the minimal width is the rank, {rank}")
    return f"it is affine of rank {rank}, hence {answer} at width {block.m} [{c.rule.reference}]"


# --------------------------------------------------------------------------------------
# The subset condition Π(A + Σ_S κ_j d_j u_jᵀ) = 0.


class _Condition:
    """The matrices of the condition, homogenised where the output bias is missing."""

    def __init__(self, c: Certificate, block: ResidualBlock, kappa: tuple[Fraction, ...]) -> None:
        self.kappa = kappa
        self.k = np.array([float(x) for x in kappa])
        self.centred = c.assumptions.modulo == "mean"
        self.a = block.skip_matrix
        self.up = block.w_up.astype(np.float64)
        self.down = block.w_down.astype(np.float64)
        if not c.assumptions.output_bias:
            b = np.zeros(block.m) if block.b_up is None else block.b_up.astype(np.float64)
            offset = np.zeros(block.d) if block.b_down is None else block.b_down.astype(np.float64)
            if b.any() or offset.any():
                self.up = np.hstack([self.up, b[:, None]])
                self.a = np.hstack([self.a, offset[:, None]])
        self.rows, self.columns = self.a.shape

    def skip_norm(self) -> tuple[float, float]:
        """Outward bounds of ‖ΠA‖_F."""
        norm = float(np.linalg.norm(self._centre(self.a)))
        slip = norm * SUM + (self.rows * EPS * float(np.linalg.norm(self.a)) if self.centred else 0)
        return norm - slip, norm + slip

    def _centre(self, matrix: Array) -> Array:
        return matrix - matrix.mean(axis=0, keepdims=True) if self.centred else matrix

    def reached(self, subset: npt.NDArray[Any]) -> float:
        """An upper bound of ‖Π(A + Σ_S R_j)‖_F."""
        down, up = self.down[:, subset] * self.k[subset], self.up[subset]
        norm = float(np.linalg.norm(self._centre(self.a + down @ up)))
        mass = float(np.linalg.norm(self.a))
        mass += float((np.linalg.norm(down, axis=0) * np.linalg.norm(up, axis=1)).sum())
        return norm * (1 + SUM) + (len(subset) + self.rows + 4) * EPS / 2 * 1.01 * mass


def _parity(block: ResidualBlock) -> tuple[Fraction, ...]:
    kappa = None if block.gated else block.activation.parity_constants(block.m)
    if kappa is None or not any(kappa) or block.norm.placement in ("pre", "sandwich"):
        _refuse("the subset condition does not apply to this block")
    return kappa


def _subset_condition(c: Certificate, block: ResidualBlock) -> str:
    condition = _Condition(c, block, _parity(block))
    if c.scope is not Scope.THIS_WIDTH or c.defect is None:
        _refuse("the subset condition speaks of this width, with a defect")
    if c.answer is Answer.ABSORBABLE:
        return _flip(c, block, condition)
    if c.answer is not Answer.NOT_ABSORBABLE:
        _refuse("its answer is not one that the subset condition proves")
    if c.data.get("nondegenerate") is not True:
        _refuse("without distinct neurons, the lack of a subset does not decide")
    if c.data.get("evidence") not in _EVIDENCE:
        _refuse("its evidence is none")
    _require_injective_norm(block)
    if _lacks_biases(c, block):
        _refuse("a replacement without hidden biases is outside the theorem")
    _bounds(c, block, condition, lower_width=block.m + 1)
    return (
        f"no set of its {block.m} neurons, flipped, absorbs the skip; the relative defect is at "
        f"least {c.defect.lower:.3g}; the neurons are pairwise distinct, so no residual-free "
        f"block of this width equals it [{c.rule.reference}]"
    )


def _flip(c: Certificate, block: ResidualBlock, condition: _Condition) -> str:
    _expect(c, ("evidence", "nondegenerate"), ("achieved",))
    if c.data["evidence"] != "flip":
        _refuse("a subset is certified by itself")
    if _lacks_biases(c, block):
        _refuse("the flipped block has hidden biases")
    subset = _indices(c, "achieved", block.m)
    if any(any(row) for row in _total(condition, subset)):
        _refuse("the subset does not reproduce the skip exactly")
    assert c.defect is not None
    if c.defect.lower > 0 or c.width.upper < block.m:
        _refuse("its bounds contradict the subset")
    if c.width.lower > (block.m if _nondegenerate(c, block) else 0):
        _refuse("its lower bound of the width is not proved")
    return f"flipping {len(subset)} of its {block.m} neurons absorbs the skip exactly"


def _undecided(c: Certificate, block: ResidualBlock) -> str:
    if c.answer is not Answer.UNKNOWN or c.scope is not Scope.THIS_WIDTH:
        _refuse("undecided means unknown, at this width")
    if c.defect is not None and _lacks_biases(c, block):
        _refuse("the subset condition is not about replacements without hidden biases")
    if c.defect is None:
        _expect(c, ())
        if c.width.lower > 0 or not math.isinf(c.width.upper):
            _refuse("its bounds of the width are not proved")
        return "nothing is claimed"
    condition = _Condition(c, block, _parity(block))
    forced = c.data.get("nondegenerate") is True and _norm_is_injective(block)
    _bounds(c, block, condition, lower_width=block.m if forced else 0)
    return f"undecided; the relative defect lies in [{c.defect.lower:.3g}, {c.defect.upper:.3g}]"


def _bounds(c: Certificate, block: ResidualBlock, condition: _Condition, lower_width: int) -> None:
    """The defect and width intervals, from the dual evidence and the achieved subset."""
    assert c.defect is not None
    evidence = c.data.get("evidence")
    optional = {"basis_rows", "basis_columns"} & set(c.arrays)
    dual = {"dual"} if evidence in ("matrix", "modular") else set()
    if evidence == "flip":
        _refuse("a subset that absorbs leaves nothing undecided")
    extra = {"coordinate": ("row", "column", "sign"), "modular": ("neuron",)}.get(str(evidence), ())
    _expect(c, ("evidence", "nondegenerate", *extra), {"achieved", *dual, *optional})
    _nondegenerate(c, block)
    proved = 0.0 if evidence == "none" else _EVIDENCE[str(evidence)](c, condition)
    if c.defect.lower > proved:
        _refuse(f"its lower bound of the defect is not proved (proved: {proved:.9g})")
    achieved = _indices(c, "achieved", block.m)
    lowest = condition.skip_norm()[0]
    if not lowest > 0:
        _refuse("the skip is too small to divide by")
    # Flipping nothing leaves exactly the skip, whose relative defect is 1.
    if c.defect.upper < (condition.reached(achieved) / lowest if achieved.size else 1.0):
        _refuse("its upper bound of the defect is not reached by its subset")
    rank = _proved_rank(c, condition)
    p, q = condition.rows, condition.columns
    widest = block.m + min(2 * p, rank + 2 * min(p, q - rank))
    if c.width.lower > lower_width or c.width.upper < widest:
        _refuse(f"its width bounds are not proved (proved: {lower_width} to {widest})")


def _dual_bound(condition: _Condition, y: npt.NDArray[Any]) -> float:
    """value(Y) / (‖Y‖ ‖ΠA‖), rounded down; refuses a Y that proves nothing.

    value(Y) = ⟨Y, A⟩ − Σ_j max(0, −κ_j d_jᵀ Y u_j) bounds ⟨Y, A + Σ_S R_j⟩ from below for
    every S.  A computed inner product of n terms errs by at most γ_n Σ|terms|.
    """
    if y.shape != condition.a.shape:
        _refuse(f"its matrix has shape {y.shape}")
    if condition.centred and np.any(y.sum(axis=0, dtype=np.int64)):
        _refuse("the columns of its matrix do not sum to zero")
    real = y.astype(np.float64)
    p, q = real.shape
    norm = float(np.linalg.norm(real)) * (1 + SUM)
    if max(float(np.abs(x).max()) for x in (condition.a, condition.down, condition.up)) > 2.0**100:
        _refuse("its weights are too large for floating-point error bounds")
    gamma = (p + q + 4) * EPS / 2 * 1.01
    products = np.einsum("jk,jk->j", condition.down.T @ real, condition.up) * condition.k
    # 2⁻³⁰⁰ covers what underflows in a norm or a product of entries below 2¹⁰⁰
    sizes = (np.linalg.norm(condition.down, axis=0) + 2.0**-300) * np.abs(condition.k)
    sizes *= np.linalg.norm(condition.up, axis=1) + 2.0**-300
    worst = np.maximum(0.0, gamma * norm * (1 + SUM) * sizes - products)
    value = float((real * condition.a).sum()) - p * q * EPS * norm * float(
        np.linalg.norm(condition.a)
    )
    value -= float(worst.sum()) * (1 + SUM)
    if not value > 0:
        _refuse("its matrix does not refute every subset")
    return value / norm / condition.skip_norm()[1] * (1 - SUM)


def _unit(condition: _Condition, y: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Centred: p·Y minus its column sums, so that columns sum to zero."""
    return condition.rows * y - y.sum(axis=0) if condition.centred else y


def _by_trace(c: Certificate, condition: _Condition) -> float:
    y = np.eye(condition.rows, condition.columns, dtype=np.int64)
    return _dual_bound(condition, _unit(condition, y))


def _by_coordinate(c: Certificate, condition: _Condition) -> float:
    y = np.zeros((condition.rows, condition.columns), dtype=np.int64)
    if c.data["sign"] not in (1, -1) or type(c.data["sign"]) is not int:
        _refuse("sign is not ±1")
    row, column = _index(c, "row", condition.rows), _index(c, "column", condition.columns)
    y[row, column] = c.data["sign"]
    return _dual_bound(condition, _unit(condition, y))


def _by_matrix(c: Certificate, condition: _Condition) -> float:
    return _dual_bound(condition, c.arrays["dual"])


def _by_residues(c: Certificate, condition: _Condition) -> float:
    """An identity modulo a prime that no subset survives; it bounds no distance.

    2 is invertible modulo the (odd) modulus, so dyadic weights have images in Z/p, and
    A + Σ_S R_j = 0 (centred: = 1aᵀ) implies ⟨Y, A⟩ + Σ_S ⟨Y, R_j⟩ ≡ 0.
    """
    y = c.arrays["dual"]
    if y.shape != condition.a.shape or y.min() < 0 or y.max() >= MODULUS:
        _refuse("its matrix is not one of residues, or of the wrong shape")
    if condition.centred and np.any(y.sum(axis=0, dtype=np.int64) % MODULUS):
        _refuse("the columns of its matrix do not sum to zero")
    p, q = y.shape
    m = len(condition.kappa)
    dual = flint.nmod_mat(p, q, y.ravel().tolist(), MODULUS)
    down = flint.nmod_mat(p, m, _residues(condition.down), MODULUS)
    paired = [int(x) for x in (down.transpose() * dual).entries()]
    up, skip, flat = _residues(condition.up), _residues(condition.a), y.ravel().tolist()
    with_skip = sum(a * b for a, b in zip(flat, skip, strict=True)) % MODULUS
    neuron = c.data["neuron"]
    if neuron != -1:
        neuron = _index(c, "neuron", m)
    for j, kappa in enumerate(condition.kappa):
        inner = sum(paired[j * q + k] * up[j * q + k] for k in range(q))
        inner = inner * kappa.numerator * pow(kappa.denominator, -1, MODULUS) % MODULUS
        if inner != (j == neuron):
            _refuse(f"its matrix is not orthogonal to neuron {j} modulo the prime")
    if (-with_skip) % MODULUS in ((0,) if neuron == -1 else (0, 1)):
        _refuse("its matrix does not refute every subset")
    return 0.0


_EVIDENCE: dict[str, Callable[[Certificate, _Condition], float]] = {
    "trace": _by_trace,
    "coordinate": _by_coordinate,
    "matrix": _by_matrix,
    "modular": _by_residues,
}


def _residues(matrix: Array) -> list[int]:
    inverse: dict[int, int] = {}
    residues = []
    for x in matrix.ravel().tolist():
        numerator, denominator = x.as_integer_ratio()
        if denominator not in inverse:
            inverse[denominator] = pow(denominator, -1, MODULUS)
        residues.append(numerator * inverse[denominator] % MODULUS)
    return residues


def _indices(c: Certificate, key: str, size: int) -> npt.NDArray[Any]:
    """A one-dimensional, strictly increasing array of indices below ``size``."""
    array = c.arrays[key]
    if array.ndim != 1 or (array.size and (array[0] < 0 or array[-1] >= size)):
        _refuse(f"{key} is not a list of indices below {size}")
    if array.size > 1 and not (np.diff(array) > 0).all():
        _refuse(f"{key} is not strictly increasing")
    return array


def _total(condition: _Condition, subset: npt.NDArray[Any]) -> Exact:
    """A positive multiple of A + Σ_S R_j in integers; centred: of its differences to row 0."""
    down, down_scale = _integers(condition.down[:, subset])
    up, up_scale = _integers(condition.up[subset])
    a, a_scale = _integers(condition.a)
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


def _integers(matrix: Array) -> tuple[Exact, int]:
    """Integers N and a scale with matrix = N / scale."""
    ratios = [[x.as_integer_ratio() for x in row] for row in matrix.tolist()]
    scale = max((den for row in ratios for _, den in row), default=1)
    return [[num * (scale // den) for num, den in row] for row in ratios], scale


# --------------------------------------------------------------------------------------
# Distinct neurons, ranks.


def _nondegenerate(c: Certificate, block: ResidualBlock) -> bool:
    """Whether the certificate claims distinct neurons, having verified the claim."""
    claimed = c.data["nondegenerate"]
    if type(claimed) is not bool:
        _refuse("nondegenerate is neither true nor false")
    if not claimed:
        return False
    up, down = block.w_up.astype(np.float64), block.w_down.astype(np.float64)
    flat = down.max(axis=0) == down.min(axis=0)  # constant columns
    silent = flat if c.assumptions.modulo == "mean" else flat & (down[0] == 0)
    if silent.any() or not up.any(axis=1).all():
        _refuse("a neuron has zero weights")
    bias = np.zeros(block.m) if block.b_up is None else block.b_up.astype(np.float64)
    full = np.hstack([up, bias[:, None]])
    kind = block.activation.facts.independence
    if kind is Independence.SIGN:
        distinct = _rows_differ(full, parallel=False)
    elif kind is Independence.HYPERPLANE:
        distinct = _rows_differ(full, parallel=True)
    else:
        distinct = kind is Independence.DIRECTION and _rows_differ(up, parallel=True)
    if not distinct:
        _refuse(f"the neurons are not distinct in the sense of {block.activation.name}")
    return True


def _rows_differ(rows: Array, *, parallel: bool) -> bool:
    """No two rows are equal up to sign (or, ``parallel``, up to any factor).

    Every row is brought to a normal form: made positive, or divided by, the entry at its
    place of largest magnitude.  Equal forms after a (rounded) division are then compared
    exactly.
    """
    magnitudes = np.abs(rows)
    places = magnitudes.argmax(axis=1)
    leads = np.take_along_axis(rows, places[:, None], axis=1)
    normal = rows / leads if parallel else rows * np.sign(leads)
    seen: dict[bytes, list[int]] = {}
    for i in range(len(rows)):
        seen.setdefault((normal[i] + 0.0).tobytes(), []).append(i)
    for group in seen.values():
        for position, i in enumerate(group):
            for j in group[:position]:
                if not parallel or _proportional(rows[i], rows[j], int(places[i])):
                    return False
    return True


def _proportional(a: Array, b: Array, lead: int) -> bool:
    x, y = Fraction(float(a[lead])), Fraction(float(b[lead]))
    return all(
        Fraction(s) * y == Fraction(t) * x for s, t in zip(a.tolist(), b.tolist(), strict=True)
    )


def _proved_rank(c: Certificate, condition: _Condition) -> int:
    """The size of a square submatrix of ``up`` that is proved to be nonsingular."""
    if "basis_rows" not in c.arrays and "basis_columns" not in c.arrays:
        return 0
    if "basis_rows" not in c.arrays or "basis_columns" not in c.arrays:
        _refuse("its basis lacks rows or columns")
    rows, columns = c.arrays["basis_rows"], c.arrays["basis_columns"]
    m, q = condition.up.shape
    for indices, size in ((rows, m), (columns, q)):
        valid = indices.ndim == 1 and indices.size and 0 <= indices.min() <= indices.max() < size
        if not valid or len(set(indices.tolist())) != indices.size:
            _refuse("its basis is not made of distinct indices")
    if rows.size != columns.size:
        _refuse("its basis is not square")
    if not _proved_nonsingular(condition.up[np.ix_(rows, columns)]):
        _refuse("its basis rows are not proved independent")
    return int(rows.size)


def _proved_nonsingular(matrix: Array) -> bool:
    """‖I − XB‖_∞ < 1 for X ≈ B⁻¹, with the rounding of the product bounded outwards."""
    if float(np.abs(matrix).max()) > 2.0**100:
        return False
    try:
        x = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return False
    n = len(matrix)
    residual = x @ matrix
    residual[np.diag_indices(n)] -= 1.0
    size = np.abs(x) @ np.abs(matrix).sum(axis=1)
    bound = np.abs(residual).sum(axis=1) + (n + 4) * EPS * (size + 2.0)
    return bool((bound < 1).all())


_CHECKS: dict[Rule, Callable[[Certificate, ResidualBlock], str]] = {
    Rule.HOMOGENEOUS_DEGREE: _unconditional(_homogeneous),
    Rule.VANISHING_LINEARISATION: _unconditional(_vanishing),
    Rule.SUBLINEAR_GROWTH: _unconditional(_sublinear),
    Rule.EVEN_ACTIVATION: _unconditional(_even),
    Rule.EVEN_RECESSION: _unconditional(_recession),
    Rule.ONE_SIDED_INDEPENDENCE: _unconditional(_one_sided),
    Rule.PRE_NORM: _unconditional(_pre_norm),
    Rule.HIDDEN_BIAS: _hidden_bias,
    Rule.LINEAR_RANK: _linear_rank,
    Rule.SUBSET_CONDITION: _subset_condition,
    Rule.UNDECIDED: _undecided,
}
