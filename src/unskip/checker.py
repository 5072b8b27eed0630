"""Validates certificates against a block's own weights, without trusting who made them.

Shares no code with the decision procedure: it knows the definitions (activations and their
facts, blocks, the certificate format) and proves each statement anew from the data in the
certificate, in exact integers or in floating point with outward error bounds.  A statement
may be weaker than what the data prove (a looser bound), never stronger.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any, NoReturn

import flint
import numpy as np
import numpy.typing as npt

from unskip.activations import Activation, Growth, Independence
from unskip.blocks import NormKind, ResidualBlock
from unskip.certificates import Answer, Assumptions, Certificate, Interval, Rule, Scope
from unskip.errors import InvalidCertificate

__all__ = ["Proof", "check"]

Array = npt.NDArray[np.float64]
Exact = list[list[int]]

MODULUS = 2**31 - 1
EPS = 2.0**-52
LARGEST = 2**45
_WITH_OUTPUT_BIAS = Assumptions(hidden_bias=True, output_bias=True)
#: Relative error, at most, of a floating-point sum of up to 2²⁴ non-negative terms.
SUM = 2.0**-28


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
    with np.errstate(all="ignore"):  # every comparison below fails on NaN
        return _check(certificate, block)


def _check(c: Certificate, block: ResidualBlock) -> Proof:
    _require_types(c)
    for what, stated, actual in (
        ("activation", c.activation, block.activation_name),
        ("gated", c.gated, block.gated),
        ("norm", c.norm, block.norm.value),
        ("d", c.d, block.d),
        ("m", c.m, block.m),
        ("modulo", c.assumptions.modulo, _discarded(block)),
        ("slopes_kept", c.assumptions.slopes_kept, block.activation.slopes is not None),
    ):
        if stated != actual:
            _refuse(f"it is about a block with {what} = {stated}, and this one has {actual}")
    if not c.width.lower <= c.width.upper or (c.defect and not c.defect.lower <= c.defect.upper):
        _refuse("an interval of it is empty")
    for array in c.arrays.values():  # so that they are exact in float64, and sums in int64
        if array.size and not -LARGEST <= int(array.min()) <= int(array.max()) <= LARGEST:
            _refuse("an integer in it exceeds 2**45")
        if array.size >= 2**36:
            _refuse("an array in it is larger than any block's")
    conclusion = _CHECKS[c.rule](c, block)
    where = f" ({c.assumptions}{_declared(block)})"
    return Proof(c, f"{c.block or 'the block'}: {conclusion}{where}")


def _declared(block: ResidualBlock) -> str:
    return "".join(f"; the facts of {name} are as declared" for name in block.declared)


def _require_types(c: Certificate) -> None:
    """A certificate that was not read from a file may hold anything."""
    flags = (c.assumptions.hidden_bias, c.assumptions.output_bias, c.assumptions.slopes_kept)
    typed = (
        isinstance(c.answer, Answer)
        and isinstance(c.scope, Scope)
        and isinstance(c.rule, Rule)
        and isinstance(c.width, Interval)
        and isinstance(c.defect, Interval | None)
        and all(type(flag) is bool for flag in flags)
        and all(type(x) is np.ndarray and x.dtype.kind == "i" for x in c.arrays.values())
    )
    if not typed:
        _refuse("it is not made of the format's types")


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
        if c.answer != Answer.NOT_ABSORBABLE or c.defect is not None:
            _refuse("an unconditional rule proves 'not absorbable' and no defect")
        if not (math.isinf(c.width.lower) and c.width.lower > 0 and math.isinf(c.width.upper)):
            _refuse("it states a finite width where none suffices")
        _require_injective_norm(block)
        if c.rule != Rule.PRE_NORM and block.norm.placement in ("pre", "sandwich"):
            _refuse("its rule is not about blocks behind a norm")
        a = block.skip_matrix
        row, column = _index(c, "row", block.d), _index(c, "column", block.d)
        reference = a[0, column] if c.assumptions.modulo == "mean" else 0.0
        if a[row, column] == reference:
            _refuse("its witness does not show the skip")
        proved = hypothesis(c, block)
        if proved is None:
            _refuse(f"the hypotheses of {c.rule} do not hold")
        if c.scope == Scope.THIS_WIDTH or (c.scope == Scope.ANY_DEPTH and proved != c.scope):
            _refuse(f"{c.rule} does not prove its scope, {c.scope}")
        return f"no residual-free block equals it, at {c.scope} [{c.rule.reference}]"

    return verify


def _factors(block: ResidualBlock) -> tuple[Activation, ...]:
    if block.up_activation is None:
        return (block.activation,)
    return (block.activation, block.up_activation)


def _without_hidden_biases(c: Certificate, block: ResidualBlock) -> bool:
    return block.b_up is None and block.b_gate is None and not c.assumptions.hidden_bias


def _without_output_biases(c: Certificate, block: ResidualBlock) -> bool:
    """In a stack, the output bias of one block is a hidden bias of the next."""
    return block.b_down is None and not c.assumptions.output_bias


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
    deep = degree > 1 and _without_output_biases(c, block) and _survives_depth(block)
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
    deep = _without_output_biases(c, block) and _survives_depth(block)
    return Scope.ANY_DEPTH if deep else Scope.ANY_WIDTH


def _even(c: Certificate, block: ResidualBlock) -> Scope | None:
    facts = [f.facts for f in _factors(block)]
    odd = sum(f.odd and not f.even for f in facts)
    if not all(f.even or f.odd for f in facts) or odd % 2 or not _without_hidden_biases(c, block):
        return None
    differentiable = _flat_at_zero(block) if block.gated else _order_at_zero(block.activation) >= 2
    deep = differentiable and _without_output_biases(c, block) and _survives_depth(block)
    return Scope.ANY_DEPTH if deep else Scope.ANY_WIDTH


def _recession(c: Certificate, block: ResidualBlock) -> Scope | None:
    known = not block.gated and block.activation.facts.even_recession is not None
    return Scope.ANY_WIDTH if known else None


def _one_sided(c: Certificate, block: ResidualBlock) -> Scope | None:
    return Scope.ANY_WIDTH if not block.gated and block.activation.facts.one_sided else None


def _pre_norm(c: Certificate, block: ResidualBlock) -> Scope | None:
    return Scope.ANY_WIDTH if block.norm.placement in ("pre", "sandwich") else None


def _hidden_bias(c: Certificate, block: ResidualBlock) -> str:
    """Visible groups are unique (§6), so one with a hidden bias is in every replacement."""
    _expect(c, ("neuron",))
    condition = _Condition(c, block, _parity(block))
    neuron = _index(c, "neuron", block.m)
    if not _lacks_biases(c, block) or block.b_up is None or block.b_up[neuron] == 0:
        _refuse("its neuron has no hidden bias, or the replacement may have one")
    groups = _Groups(c, block, condition)
    if not groups.unique or not any(neuron in members for members in groups.visible):
        _refuse("its neuron is not seen to be indispensable")
    if c.answer != Answer.NOT_ABSORBABLE or c.defect is not None:
        _refuse("the rule proves 'not absorbable' and no defect")
    if c.scope != Scope.ANY_WIDTH or (c.width.lower, c.width.upper) != (math.inf, math.inf):
        _refuse("the rule speaks of every width")
    return f"neuron {neuron} needs its hidden bias, at any width [{c.rule.reference}]"


# --------------------------------------------------------------------------------------
# Affine blocks.


def _linear_rank(c: Certificate, block: ResidualBlock) -> str:
    _expect(c, ())
    slope = block.activation.facts.slope
    if (
        block.gated
        or not slope
        or block.activation.facts.offset
        or block.norm.placement in ("pre", "sandwich")
    ):
        _refuse("the block is not affine")
    _require_injective_norm(block)
    everything = np.arange(block.m)
    total = _total(_Condition(c, block, (slope,) * block.m), everything)
    if len(total[0]) > block.d and not c.assumptions.hidden_bias:
        _refuse("the replacement may have no bias at all")
    rank = int(flint.fmpz_mat(total).rank())
    answer = Answer.ABSORBABLE if rank <= block.m else Answer.NOT_ABSORBABLE
    if c.answer != answer or c.scope != Scope.THIS_WIDTH or c.defect is not None:
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


def _parity(block: ResidualBlock) -> tuple[Fraction, ...]:
    kappa = None if block.gated else block.activation.parity_constants(block.m)
    if kappa is None or not any(kappa) or block.norm.placement in ("pre", "sandwich"):
        _refuse("the subset condition does not apply to this block")
    return kappa


class _Groups:
    """The groups of neurons that coincide, by the activation's uniqueness theorem (§6).

    ``sets`` has every group, ``visible`` those that do not cancel, H; ``sign`` is ±1 by whether
    a neuron points as the first of its group.  ``unique``: the theorem applies, so that each
    visible group is in every residual-free block that equals this one.
    """

    #: Whether members are terms of one neuron, which no set of neurons tears apart.
    inseparable = False

    def __init__(self, c: Certificate, block: ResidualBlock, condition: _Condition) -> None:
        self.kind = block.activation.facts.independence
        up = block.w_up.astype(np.float64)
        bias = np.zeros(block.m) if block.b_up is None else block.b_up.astype(np.float64)
        self.rows = np.hstack([up, bias[:, None]])
        self.down = condition.down
        self.centred = condition.centred
        self.sign = np.ones(block.m, dtype=np.int64)
        living = [j for j in range(block.m) if up[j].any()]
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
        self.unique = known and apart and not self.constants and _norm_is_injective(block)

    @property
    def n(self) -> int:
        """|H|."""
        return len(self.visible)

    def turned(self) -> npt.NDArray[np.int64]:
        return np.flatnonzero(self.sign < 0)

    def total(self, values: Array) -> Array:
        """Σ sign_j values_j over each visible group."""
        return np.array([(self.sign[m] * values[m]).sum() for m in self.visible])

    def whole(self, values: Array) -> Array:
        """Σ values_j over each visible group."""
        return np.array([values[m].sum() for m in self.visible])

    def flips(self, subset: npt.NDArray[Any]) -> bool:
        """Whether a set of neurons orients each group as a whole."""
        inside = self.sign < 0
        inside[subset] = ~inside[subset]
        return all(len(set(inside[m].tolist())) == 1 for m in self.sets)

    def _coincident(
        self, rows: Array, living: list[int], parallel: bool, *, record: bool = True
    ) -> list[list[int]]:
        """Equal rows up to sign (or, ``parallel``, up to any factor), exactly.

        Each row is brought to a normal form, divided by the entry of largest magnitude or by
        its sign; equal forms after a rounded division are compared as fractions.
        """
        forms: dict[bytes, list[list[int]]] = {}
        for j in living:
            row = rows[j]
            lead = int(np.abs(row).argmax())
            form = ((row / row[lead] if parallel else row * np.sign(row[lead])) + 0.0).tobytes()
            for members in forms.setdefault(form, []):
                first = rows[members[0]]
                if not parallel or _proportional(first, row, lead):
                    members.append(j)
                    if record and np.sign(first[lead]) != np.sign(row[lead]):
                        self.sign[j] = -1
                    break
            else:
                forms[form].append([j])
        return sorted(members for alike in forms.values() for members in alike)

    @staticmethod
    def _same_neuron(a: Array, b: Array) -> bool:
        return np.array_equal(a, b) or np.array_equal(a, -b)

    def _is_visible(self, members: list[int]) -> bool:
        """Whether the output columns of a group, scaled to one row, do not cancel."""
        if len(members) == 1:
            column = self.down[:, members[0]]
            return bool((column != (column[0] if self.centred else 0.0)).any())
        lead = int(np.abs(self.rows[members[0]]).argmax())
        scales = [abs(Fraction(self.rows[j, lead])) for j in members]
        entries = [
            sum((t * Fraction(x) for t, x in zip(scales, row, strict=True)), Fraction(0))
            for row in self.down[:, members].tolist()
        ]
        return any(x != (entries[0] if self.centred else 0) for x in entries)


def _by_subsets(c: Certificate, block: ResidualBlock) -> str:
    """Everything that rests on the condition A + Σ_S R_j = 0 and the minimal width theorem.

    The bounds of the width are proved first; the answer must then follow from them.
    """
    condition = _Condition(c, block, _parity(block))
    if c.scope != Scope.THIS_WIDTH or c.defect is None:
        if c.rule == Rule.UNDECIDED and c.defect is None:
            return _nothing(c)
        _refuse("the subset condition speaks of this width, with a defect")
    if _lacks_biases(c, block):
        _refuse("the subset condition is not about replacements without hidden biases")
    groups = _Groups(c, block, condition)
    lower, upper = _width_bounds(c, block, condition, groups)
    _require_bounds(c, lower, upper)
    proved = _answer(block.m, lower, upper)
    if c.answer not in (proved, Answer.UNKNOWN) or (c.answer == Answer.UNKNOWN) != (
        c.rule == Rule.UNDECIDED
    ):
        _refuse(f"it is proved to be {proved}, which is not what it states")
    flips = c.data.get("evidence") == "flip"
    if c.answer == Answer.ABSORBABLE:
        if flips != (c.rule == Rule.SUBSET_CONDITION):
            _refuse("its rule is not the one that absorbs")
        how = f"flipping {c.arrays['achieved'].size} of its {block.m} neurons absorbs the skip"
        if not flips:
            how = f"{groups.n} neurons and {upper - groups.n:.0f} twins equal it without a skip"
        return f"{how}, exactly [{c.rule.reference}]"
    span = f"the relative defect lies in [{c.defect.lower:.3g}, {c.defect.upper:.3g}]"
    if c.answer == Answer.NOT_ABSORBABLE:
        return (
            f"no residual-free block of its width equals it, as that takes {lower:.0f} neurons or "
            f"more; {span} [{c.rule.reference}]"
        )
    return f"undecided; {span}, and the minimal width in [{lower:.0f}, {upper:.0f}]"


class _GatedCondition(_Condition):
    """The linear part of what flipped gates leave (§9), as two rank-one terms a unit.

    A unit is d_j g(w_j·x + b_j)(v_j·x + e_j).  If g(z) − g(−z) = κz, flipping its gate leaves
    κ d_j (w_j·x + b_j)(v_j·x + e_j), with the linear part κ b_j d_j v_jᵀ + κ e_j d_j w_jᵀ; if
    g(z) + g(−z) = κ₀, flipping gate and output leaves κ₀ d_j (v_j·x + e_j).
    """

    def __init__(self, c: Certificate, block: ResidualBlock) -> None:
        gate, value = block.activation.facts, block.up_activation
        self.quadratic = isinstance(gate.parity, Fraction) and gate.parity != 0
        constant = gate.parity if self.quadratic else gate.reflection
        behind = block.norm.placement in ("pre", "sandwich")
        if value is None or value.facts.slope != 1 or not isinstance(constant, Fraction) or behind:
            _refuse("its gates cannot be flipped")
        if not constant or block.w_gate is None:
            _refuse("its gates cannot be flipped")
        m = block.m
        bias = [0.0] * m if block.b_up is None else block.b_up.astype(np.float64).tolist()
        self.offsets = [Fraction(x) + value.facts.offset for x in bias]
        self.b_gate = np.zeros(m) if block.b_gate is None else block.b_gate.astype(np.float64)
        kappa = (constant,) * m
        up = block.w_up.astype(np.float64)
        super().__init__(dataclasses.replace(c, assumptions=_WITH_OUTPUT_BIAS), block, kappa)
        self.centred = c.assumptions.modulo == "mean"
        if self.quadratic:
            self.kappa = (
                *(constant * Fraction(b) for b in self.b_gate.tolist()),
                *(constant * e for e in self.offsets),
            )
            self.up = np.vstack([up, block.w_gate.astype(np.float64)])
            self.down = np.hstack([self.down, self.down])
            self.k = np.array([float(x) for x in self.kappa])
        elif not c.assumptions.output_bias:
            ends = np.array([float(e) for e in self.offsets])
            if [Fraction(x) for x in ends.tolist()] != self.offsets:
                _refuse("a bias of it is no float64")
            offset = np.zeros(block.d) if block.b_down is None else block.b_down.astype(np.float64)
            if ends.any() or offset.any():
                self.up = np.hstack([self.up, ends[:, None]])
                self.a = np.hstack([self.a, offset[:, None]])
                self.columns += 1

    def terms(self, units: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The rank-one terms of some units."""
        return np.concatenate([units, units + len(self.offsets)]) if self.quadratic else units


class _Gates(_Groups):
    """Each unit is a group; ``unique`` when the gates are pairwise distinct and nothing is zero."""

    def __init__(self, c: Certificate, block: ResidualBlock, condition: _GatedCondition) -> None:
        assert block.w_gate is not None
        self.kind = block.activation.facts.independence
        gate = block.w_gate.astype(np.float64)
        self.rows = np.hstack([gate, condition.b_gate[:, None]])
        self.centred, self.constants = condition.centred, False
        self.inseparable = True
        m = block.m
        self.sign = np.ones(len(condition.kappa), dtype=np.int64)
        self.down = block.w_down.astype(np.float64)
        self.visible = [[j, m + j] if condition.quadratic else [j] for j in range(m)]
        self.sets = self.visible
        living = list(range(m))
        parallel = self.kind in (Independence.HYPERPLANE, Independence.DIRECTION)
        looked_at = gate if self.kind is Independence.DIRECTION else self.rows
        values = block.w_up.astype(np.float64).any(axis=1) | np.array(
            [e != 0 for e in condition.offsets]
        )
        self.unique = (
            self.kind is not Independence.UNKNOWN
            and bool((gate.any(axis=1) & values).all())
            and all(self._is_visible([j]) for j in living)
            and len(self._coincident(looked_at, living, parallel, record=False)) == m
            and _norm_is_injective(block)
        )


def _by_gates(c: Certificate, block: ResidualBlock) -> str:
    """Everything that rests on flipped gates; the answer must follow from the proved bounds."""
    if c.scope != Scope.THIS_WIDTH or c.defect is None or not block.gated:
        _refuse("flipped gates decide this width of a gated block, with a defect")
    if _lacks_biases(c, block):
        _refuse("the condition is not about replacements without hidden biases")
    condition = _GatedCondition(c, block)
    gates = _Gates(c, block, condition)
    evidence = str(c.data.get("evidence"))
    if evidence not in (*_EVIDENCE, "none", "flip"):
        _refuse("its evidence is of no known kind")
    dual = {"dual"} if evidence in ("matrix", "modular") else set()
    _expect(c, ("evidence", *_DETAILS.get(evidence, ())), {"achieved", *dual})
    units = _indices(c, "achieved", block.m)
    terms = condition.terms(units)
    refuted = evidence not in ("none", "flip")
    if evidence == "flip":
        linear = not _leaves_something(condition, terms)
        if not linear or not _quadratic_cancels(c, block, condition, units):
            _refuse("the flipped gates do not reproduce the skip exactly")
        if not c.defect.lower <= 0 <= c.defect.upper:
            _refuse("its defect contradicts its gates")
    else:
        shown = _EVIDENCE[evidence](c, condition, gates) if evidence in _EVIDENCE else _Shown()
        _check_defect(c, condition, shown.defect, terms)
    lower = block.m + refuted if gates.unique else 0
    constant = block.b_gate is not None or block.activation.facts.value_at_zero != 0
    upper = block.m if evidence == "flip" else block.m + block.d if constant else math.inf
    _require_bounds(c, lower, upper)
    proved = _answer(block.m, lower, upper)
    named = Rule.UNDECIDED if c.answer == Answer.UNKNOWN else Rule.GATED_CONDITION
    if c.answer not in (proved, Answer.UNKNOWN) or c.rule != named:
        _refuse(f"it is proved to be {proved}, which is not what it states")
    if c.answer == Answer.ABSORBABLE:
        return f"flipping {units.size} of its {block.m} gates absorbs the skip, exactly"
    span = f"the relative defect lies in [{c.defect.lower:.3g}, {c.defect.upper:.3g}]"
    if c.answer == Answer.NOT_ABSORBABLE:
        return f"no set of flipped gates absorbs the skip, nor anything else of its width; {span}"
    return f"undecided; {span}"


def _quadratic_cancels(
    c: Certificate, block: ResidualBlock, condition: _GatedCondition, units: npt.NDArray[np.int64]
) -> bool:
    """Whether Σ_S d_j (w_j·x + b_j)(v_j·x + e_j) is affine (centred: the same for all outputs)."""
    if not condition.quadratic:
        return True
    if not c.assumptions.output_bias and block.b_down is not None and block.b_down.any():
        return False
    assert block.w_gate is not None
    gate = np.hstack([block.w_gate.astype(np.float64), condition.b_gate[:, None]])[units]
    left, _ = _integers(gate)
    value = block.w_up.astype(np.float64)
    right = [
        [*(Fraction(x) for x in value[j].tolist()), condition.offsets[j]] for j in units.tolist()
    ]
    down, _ = _integers(block.w_down.astype(np.float64)[:, units])
    if condition.centred:
        down = [[x - y for x, y in zip(row, down[0], strict=True)] for row in down[1:]]
    scale = math.lcm(*(x.denominator for row in right for x in row))
    whole = [[int(x * scale) for x in row] for row in right]
    for column in down if units.size else []:
        weighted = [[f * x for x in row] for f, row in zip(column, whole, strict=True)]
        form = (flint.fmpz_mat(left).transpose() * flint.fmpz_mat(weighted)).tolist()
        n = len(form) - 1
        if any(form[i][k] + form[k][i] != 0 for i in range(n) for k in range(i, n)):
            return False
        if not c.assumptions.output_bias and form[n][n] != 0:
            return False
    return True


def _nothing(c: Certificate) -> str:
    _expect(c, ())
    if c.answer != Answer.UNKNOWN or c.scope != Scope.THIS_WIDTH:
        _refuse("undecided means unknown, at this width")
    if c.defect is not None or c.width.lower > 0 or not math.isinf(c.width.upper):
        _refuse("its bounds are not proved")
    return "nothing is claimed"


def _undecided(c: Certificate, block: ResidualBlock) -> str:
    if c.defect is None:
        return _nothing(c)
    return _by_gates(c, block) if block.gated else _by_subsets(c, block)


def _require_bounds(c: Certificate, lower: float, upper: float) -> None:
    if c.width.lower > lower or c.width.upper < upper:
        _refuse(f"its width bounds are not proved (proved: {lower} to {upper})")


def _answer(m: int, lower: float, upper: float) -> Answer:
    """What bounds of the minimal width prove about the width m."""
    if upper <= m:
        return Answer.ABSORBABLE
    return Answer.NOT_ABSORBABLE if lower > m else Answer.UNKNOWN


def _width_bounds(
    c: Certificate, block: ResidualBlock, condition: _Condition, groups: _Groups
) -> tuple[float, float]:
    """What the certificate proves of the minimal width; refuses an unproved defect.

    Lower: |H|, one more where every set of groups is refuted, or what an exhaustive search
    excludes.  Upper: |H| when flips of whole groups absorb, else a choice of twins.
    """
    assert c.defect is not None
    evidence = c.data.get("evidence")
    if evidence not in (*_EVIDENCE, "none", "flip", "affine"):
        _refuse("its evidence is of no known kind")
    exhaustive = "exhaustive" in c.data
    extra = _DETAILS.get(str(evidence), ())
    basis = {"basis_rows", "basis_columns"} & set(c.arrays)
    _expect(
        c,
        (
            "evidence",
            *extra,
            *(("exhaustive", "constant") if exhaustive else ()),
            *(("rank",) if "rank" in c.data else ()),
        ),
        {
            "achieved",
            *basis,
            *({"dual"} if evidence in ("matrix", "modular") else ()),
            *({"twins", "flipped"} if exhaustive else ()),
        },
    )
    achieved = _indices(c, "achieved", block.m)
    beyond = int(groups.constants)
    refuted = evidence not in ("none", "flip")
    if evidence == "affine":
        refuted = not groups.n and _leaves_something(condition, groups.turned())
        if not refuted:
            _refuse("neurons are left to flip, or nothing is left of the skip")
    shown = _EVIDENCE[str(evidence)](c, condition, groups) if evidence in _EVIDENCE else _Shown()
    if evidence != "flip":
        _check_defect(c, condition, shown.defect, achieved)
    elif c.defect.lower > 0 or c.defect.upper < 0 or _leaves_something(condition, achieved):
        _refuse("the subset does not reproduce the skip exactly")
    p, q = condition.rows, condition.columns
    rank = _proved_rank(c, condition, groups)
    upper = float(groups.n + min(2 * p, rank + 2 * min(p, q - rank)) + beyond)
    homogenised = q > block.d
    if homogenised and not c.assumptions.hidden_bias:
        upper = math.inf  # twins and constants would need hidden biases
    if len(set(condition.kappa)) > 1:
        upper = math.inf  # slopes that are kept, one a neuron, leave none for a twin
    if evidence == "flip":  # at this width in any case; groups flipped as a whole can merge
        whole = groups.unique and groups.flips(achieved)
        upper = min(upper, groups.n + beyond if whole else block.m, block.m)
    lower = float(groups.n + refuted if groups.unique else 0)
    if "rank" in c.data:
        claimed = c.data["rank"]
        if type(claimed) is not int or claimed > _least_rank(condition, groups, shown):
            _refuse("its lower bound of the rank is not proved")
        lower = float(groups.n + claimed if groups.unique else 0)
    if exhaustive:
        if c.data["exhaustive"] is not True or not groups.unique or math.isinf(upper):
            _refuse("the minimal width theorem does not apply")
        may_be_constant = homogenised and c.assumptions.hidden_bias
        search = _Exhaustive(condition, groups, constant=may_be_constant)
        upper = min(upper, groups.n + search.attained(c))
        below = c.width.lower - groups.n
        if below > refuted and search.excludes(below):
            lower = c.width.lower
    return lower, upper


def _check_defect(
    c: Certificate, condition: _Condition, bound: float, achieved: npt.NDArray[Any]
) -> None:
    assert c.defect is not None
    if c.defect.lower > bound:
        _refuse(f"its lower bound of the defect is not proved (proved: {bound:.9g})")
    # Flipping nothing leaves exactly the skip, whose relative defect is 1.
    reached = 1.0
    if achieved.size:
        lowest = condition.skip_norm()[0]
        reached = condition.reached(achieved) / lowest if lowest > 0 else math.inf
    if not c.defect.upper >= reached:
        _refuse("its upper bound of the defect is not reached by its subset")


class _Exhaustive:
    """w* = |H| + min over T, e, ε of |T| + e + 2·rank(M_ε modulo the rows of T, e), by trial.

    All orientations of the visible groups, modulo a prime: that can only lower ranks, so what
    it excludes is excluded.
    """

    def __init__(self, condition: _Condition, groups: _Groups, *, constant: bool) -> None:
        self.condition, self.groups, self.constant = condition, groups, constant

    def attained(self, c: Certificate) -> int:
        """The extra width of the choice in the certificate, over the integers."""
        flipped = _indices(c, "flipped", self.condition.up.shape[0])
        twins, e = c.arrays["twins"], c.data["constant"]
        firsts = {members[0] for members in self.groups.visible}
        if twins.ndim != 1 or not set(twins.tolist()) <= firsts or type(e) is not bool:
            _refuse("its twins are not groups")
        if not self.groups.flips(flipped) or (e and not self.constant):
            _refuse("its choice tears a group apart, or needs a constant that is not allowed")
        bought = _integers(self._rows(twins.tolist(), e))[0]
        total = _total(self.condition, flipped)
        rank = int(flint.fmpz_mat(total + bought).rank())
        rank -= int(flint.fmpz_mat(bought).rank()) if bought else 0
        return len(set(twins.tolist())) + e + 2 * rank

    def excludes(self, below: float) -> bool:
        """Whether no choice has an extra width less than ``below``."""
        n = self.groups.n
        if not below <= 2 * self.condition.rows:
            _refuse("its lower bound of the width exceeds what always suffices")
        p, q = self.condition.rows, self.condition.columns
        sets = sum(
            math.comb(n, t) * (p + t)
            for cost in range(math.ceil(below))
            for e in ((0, 1) if self.constant else (0,))
            for t in range(cost - e, -1, -2)
        )
        if n > 20 or sets * q * q << n > 10**8:
            _refuse("its exhaustive search is too large to repeat")
        skip, terms = self._residues()
        # codes of all orientations, bit by bit: (2^n, p, q)
        matrices = skip[None]
        for term in terms:
            matrices = np.concatenate([matrices, (matrices + term) % MODULUS])
        firsts = [members[0] for members in self.groups.visible]
        for cost in range(math.ceil(below)):
            for e in (False, True) if self.constant else (False,):
                for rank in range((cost - e) // 2 + 1):
                    for twins in combinations(firsts, cost - e - 2 * rank):
                        if not self._rank_exceeds(matrices, list(twins), e, rank):
                            return False
        return True

    def _rank_exceeds(
        self, matrices: npt.NDArray[np.int64], twins: list[int], e: bool, rank: int
    ) -> bool:
        """Whether rank(M modulo T, e) > rank for every orientation; T dependent is redundant."""
        rows = self._rows(twins, e)
        size = len(rows)
        if size and int(flint.fmpz_mat(_integers(rows)[0]).rank()) < size:
            return True  # a smaller T spans the same, and was tried at a lower cost
        q = matrices.shape[2]
        bought = np.array(_residues(rows), dtype=np.int64).reshape(size, q)
        stacked = np.broadcast_to(bought, (len(matrices), size, q))
        return bool(_ranks_exceed(np.concatenate([stacked, matrices], axis=1), size + rank))

    def _rows(self, twins: list[int], e: bool) -> Array:
        rows = self.condition.up[twins]
        return np.vstack([rows, np.eye(self.condition.columns)[-1:]]) if e else rows

    def _residues(self) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int64]]]:
        """Π A' and the Π R'_h modulo the prime (Π up to the factor p)."""
        condition, m = self.condition, self.condition.up.shape[0]
        down = np.array(_residues(condition.down), dtype=np.int64).reshape(-1, m)
        up = np.array(_residues(condition.up), dtype=np.int64).reshape(m, -1)
        skip = np.array(_residues(condition.a), dtype=np.int64).reshape(condition.a.shape)
        kappa = [k.numerator * pow(k.denominator, -1, MODULUS) % MODULUS for k in condition.kappa]
        for j in self.groups.turned().tolist():
            skip = (skip + self._term(down, up, kappa, j)) % MODULUS
        terms = [
            sum(int(self.groups.sign[j]) * self._term(down, up, kappa, j) for j in members)
            % MODULUS
            for members in self.groups.visible
        ]
        return self._centre(skip), [self._centre(np.asarray(t)) for t in terms]

    @staticmethod
    def _term(
        down: npt.NDArray[np.int64], up: npt.NDArray[np.int64], kappa: list[int], j: int
    ) -> npt.NDArray[np.int64]:
        column = down[:, j] * kappa[j] % MODULUS
        return np.asarray(np.outer(column, up[j]) % MODULUS)

    def _centre(self, matrix: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if not self.condition.centred:
            return matrix
        return (self.condition.rows * matrix - matrix.sum(axis=0)) % MODULUS


def _ranks_exceed(matrices: npt.NDArray[np.int64], rank: int) -> bool:
    """Whether every matrix of a batch has rank > ``rank`` modulo the prime.

    Elimination without division, in lockstep: row_i ← pivot·row_i − entry·pivot_row.
    """
    work = matrices.copy()
    count, rows, columns = work.shape
    done = np.zeros(count, dtype=np.int64)
    every = np.arange(count)
    for column in range(columns):
        free = (np.arange(rows) >= done[:, None]) & (work[:, :, column] != 0)
        pivot = free.argmax(axis=1)
        found = free[every, pivot]
        place = np.minimum(done, rows - 1)
        pivot = np.where(found, pivot, place)
        top = work[every, pivot].copy()
        work[every, pivot] = work[every, place]
        work[every, place] = top
        below = (np.arange(rows) > place[:, None]) & found[:, None]
        reduced = work * top[:, None, column, None] - work[:, :, column, None] * top[:, None, :]
        work = np.where(below[:, :, None], reduced % MODULUS, work)
        done += found
    return bool((done > rank).all())


@dataclass(frozen=True)
class _Shown:
    """What evidence shows: a lower bound of the relative defect and, for a matrix Y, one of
    ⟨Y, A + Σ_S R_j⟩ over every S that orients groups as a whole."""

    defect: float = 0.0
    value: float = 0.0
    y: Array | None = None


def _by_value(condition: _Condition, groups: _Groups, y: npt.NDArray[Any]) -> _Shown:
    """What Y shows; refuses one that leaves some set of groups possible.

    ⟨Y, A'⟩ − Σ_h max(0, −⟨Y, R'_h⟩) bounds ⟨Y, A + Σ_S R_j⟩ from below for every S that orients
    groups as a whole, where A' = A + Σ_{turned} R_j and R'_h = Σ_{j∈h} ±R_j; the same over single
    neurons does for every S, and over ‖Y‖ ‖ΠA‖ bounds the defect.  ⟨Y, R_j⟩ = κ_j d_jᵀ Y u_j, and
    a computed inner product of n terms errs by at most γ_n Σ|terms|.
    """
    if y.shape != condition.a.shape:
        _refuse(f"its matrix has shape {y.shape}")
    if condition.centred and np.any(y.sum(axis=0, dtype=np.int64)):
        _refuse("the columns of its matrix do not sum to zero")
    real = y.astype(np.float64)
    p, q = real.shape
    norm = float(np.linalg.norm(real)) * (1 + SUM)
    if not condition.moderate:
        _refuse("the weights are too large, or the skip too small, for floating-point bounds")
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
        _refuse("its matrix does not refute every set of groups")
    by_neuron = by_group if groups.inseparable else np.maximum(0.0, errors - products)
    over_all = max(0.0, with_skip - float(by_neuron.sum()) * (1 + SUM))
    return _Shown(over_all / norm / condition.skip_norm()[1] * (1 - SUM), value, real)


def _least_rank(condition: _Condition, groups: _Groups, shown: _Shown) -> int:
    """A lower bound of rank Π(A + Σ_S R_j) over every S that orients groups as a whole.

    rank M ≥ ⟨Y, M⟩ / (‖Y‖ ‖M‖) in spectral norms, and every such M is C + ½ Σ ±κ_j d_j u_jᵀ over
    the members of visible groups, with C = A + Σ_j c_j R_j, c_j = ½ for them and, for the others,
    1 if turned and 0 if not.
    """
    if shown.y is None or not groups.visible:
        _refuse("its evidence is no matrix, and bounds no rank")
    members = np.array([j for group in groups.visible for j in group])
    share = (groups.sign < 0).astype(np.float64)
    share[members] = 0.5
    weighted = condition.down * condition.k
    centre = condition.centre(condition.a + (weighted * share) @ condition.up)
    left, right = condition.centre(weighted[:, members]), condition.up[members]
    ratio = np.linalg.norm(right, axis=1) / np.linalg.norm(left, axis=0)
    scale = 2.0 ** np.round(np.log2(ratio) / 2)  # any positive numbers; powers of 2 are exact
    spread = _spectral_norm(left * scale) * _spectral_norm(right / scale[:, None])
    mass = float(np.linalg.norm(condition.a))
    mass += float((np.linalg.norm(weighted, axis=0) * np.linalg.norm(condition.up, axis=1)).sum())
    size = _spectral_norm(centre) + spread / 2 + (len(share) + len(centre) + 8) * EPS * mass
    bound = shown.value / (_spectral_norm(shown.y) * size) * (1 - SUM)
    return math.ceil(bound) if math.isfinite(bound) else 0


def _spectral_norm(matrix: Array) -> float:
    """An upper bound of the spectral norm: some t with tI − XXᵀ positive semidefinite.

    Proved by a Cholesky factorisation that succeeds on the matrix less its own rounding errors
    (Demmel; Rump); infinite where it does not.
    """
    x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    gram = x @ x.T
    n = len(gram)
    slack = 2.0 * (n + x.shape[1] + 8) * EPS * (float(np.linalg.norm(x)) ** 2)
    top = float(np.linalg.eigvalsh(gram)[-1]) * (1 + 1e-9)
    t = top + slack + 2.0 * n * (n + 4) * EPS * (top + slack)
    shifted = -gram
    shifted[np.diag_indices(n)] += t - slack - n * (n + 4) * EPS * t
    try:
        np.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        return math.inf
    return math.sqrt(t) * (1 + SUM)


def _unit(condition: _Condition, y: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Centred: p·Y minus its column sums, so that columns sum to zero."""
    return condition.rows * y - y.sum(axis=0) if condition.centred else y


def _by_trace(c: Certificate, condition: _Condition, groups: _Groups) -> _Shown:
    y = np.eye(condition.rows, condition.columns, dtype=np.int64)
    return _by_value(condition, groups, _unit(condition, y))


def _by_coordinate(c: Certificate, condition: _Condition, groups: _Groups) -> _Shown:
    y = np.zeros((condition.rows, condition.columns), dtype=np.int64)
    if c.data["sign"] not in (1, -1) or type(c.data["sign"]) is not int:
        _refuse("sign is not ±1")
    row, column = _index(c, "row", condition.rows), _index(c, "column", condition.columns)
    y[row, column] = c.data["sign"]
    return _by_value(condition, groups, _unit(condition, y))


def _by_matrix(c: Certificate, condition: _Condition, groups: _Groups) -> _Shown:
    return _by_value(condition, groups, c.arrays["dual"])


def _by_residues(c: Certificate, condition: _Condition, groups: _Groups) -> _Shown:
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
    inner = []
    for j, kappa in enumerate(condition.kappa):
        product = sum(paired[j * q + k] * up[j * q + k] for k in range(q))
        inner.append(product * kappa.numerator * pow(kappa.denominator, -1, MODULUS) % MODULUS)
    with_skip += sum(inner[j] for j in groups.turned().tolist())
    neuron = c.data["neuron"]
    if neuron != -1:
        neuron = _index(c, "neuron", m)
    for members in groups.visible:
        expected = int(members[0] == neuron)
        if sum(int(groups.sign[j]) * inner[j] for j in members) % MODULUS != expected:
            _refuse(f"its matrix is not orthogonal to neuron {members[0]} modulo the prime")
    if (-with_skip) % MODULUS in ((0,) if neuron == -1 else (0, 1)):
        _refuse("its matrix does not refute every subset")
    return _Shown()


def _by_all_sums(c: Certificate, condition: _Condition, groups: _Groups) -> _Shown:
    """No set of groups has the sum that the skip asks for, modulo p = 2⁶¹ − 1.

    The weights are ⟨Y, R'_h⟩ for Y_ik = y_i z_k, the powers of two bases; centred, the y_i are
    made to sum to zero.  All sums of either half of the groups are listed and matched.
    """
    modulus = 2**61 - 1
    alpha, beta = (_index(c, key, modulus) for key in ("alpha", "beta"))
    p, q = condition.a.shape
    if groups.n > 44:
        _refuse("there are too many groups to list all sums")
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
        _refuse("a set of groups has the sum that the skip asks for")
    return _Shown()


_EVIDENCE: dict[str, Callable[[Certificate, _Condition, _Groups], _Shown]] = {
    "trace": _by_trace,
    "coordinate": _by_coordinate,
    "matrix": _by_matrix,
    "modular": _by_residues,
    "sumset": _by_all_sums,
}


#: What each kind of evidence stores in ``data``.
_DETAILS: dict[str, tuple[str, ...]] = {
    "coordinate": ("row", "column", "sign"),
    "modular": ("neuron",),
    "sumset": ("alpha", "beta"),
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
    array = c.arrays[key].astype(np.int64)
    if array.ndim != 1 or (array.size and not 0 <= array.min() <= array.max() < size):
        _refuse(f"{key} is not a list of indices below {size}")
    if not (array[1:] > array[:-1]).all():
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


def _leaves_something(condition: _Condition, subset: npt.NDArray[Any]) -> bool:
    """Whether Π(A + Σ_S R_j) ≠ 0."""
    return any(any(row) for row in _total(condition, subset))


def _integers(matrix: Array) -> tuple[Exact, int]:
    """Integers N and a scale with matrix = N / scale."""
    ratios = [[x.as_integer_ratio() for x in row] for row in matrix.tolist()]
    scale = max((den for row in ratios for _, den in row), default=1)
    return [[num * (scale // den) for num, den in row] for row in ratios], scale


# --------------------------------------------------------------------------------------
# Ranks.


def _proportional(a: Array, b: Array, lead: int) -> bool:
    x, y = Fraction(float(a[lead])), Fraction(float(b[lead]))
    return all(
        Fraction(s) * y == Fraction(t) * x for s, t in zip(a.tolist(), b.tolist(), strict=True)
    )


def _proved_rank(c: Certificate, condition: _Condition, groups: _Groups) -> int:
    """The size of a square submatrix of the visible groups' rows, proved to be nonsingular."""
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
    if rows.size != columns.size or not set(rows.tolist()) <= {m[0] for m in groups.visible}:
        _refuse("its basis is not square, or not made of visible groups")
    if any(condition.kappa[j] == 0 for j in rows.tolist()):
        _refuse("a neuron of κ = 0 in its basis makes no linear term")
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
    Rule.SUBSET_CONDITION: _by_subsets,
    Rule.MINIMAL_WIDTH: _by_subsets,
    Rule.GATED_CONDITION: _by_gates,
    Rule.UNDECIDED: _undecided,
}
