"""Units that leave a polynomial when flipped: gates with biases, squared ReLU (§9)."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import flint
import numpy as np
import numpy.typing as npt

from unskip.activations import Independence
from unskip.blocks import ResidualBlock
from unskip.certificates import Answer, Assumptions, Certificate, Rule, Scope
from unskip.checker.arithmetic import Array, integers
from unskip.checker.bounded import require_left_over
from unskip.checker.condition import Condition, Groups, leaves_something
from unskip.checker.evidence import DETAILS, EVIDENCE, STORED, Shown, check_defect
from unskip.checker.requirements import (
    expect,
    index_set,
    lacks_biases,
    norm_is_injective,
    proved_answer,
    refuse,
    require_bounds,
)
from unskip.checker.width import least_rank

_WITH_OUTPUT_BIAS = Assumptions(hidden_bias=True, output_bias=True)


class _FlipCondition(Condition):
    """The linear part of what flipped units leave (§9), as one or two rank-one terms a unit.

    A unit is d_j g(w_j·x + b_j)(v_j·x + e_j).  If g(z) − g(−z) = κz, flipping its gate leaves
    κ d_j (w_j·x + b_j)(v_j·x + e_j), with the linear part κ b_j d_j v_jᵀ + κ e_j d_j w_jᵀ; if
    g(z) + g(−z) = κ₀, flipping gate and output leaves κ₀ d_j (v_j·x + e_j).  Ungated, with
    σ(z) + σ(−z) = κ z², flipping neuron and output leaves κ d_j (u_j·x + b_j)²: w = v = u, e = b.
    """

    gate: Array
    b_gate: Array
    offsets: list[Fraction]
    quadratic: bool

    def __init__(self, c: Certificate, block: ResidualBlock) -> None:
        constant = self._read(block)
        m = block.m
        kappa = (constant,) * m
        up = block.w_up.astype(np.float64)
        super().__init__(dataclasses.replace(c, assumptions=_WITH_OUTPUT_BIAS), block, kappa)
        self.centred = c.assumptions.modulo == "mean"
        if self.quadratic:
            self.kappa = (
                *(constant * Fraction(b) for b in self.b_gate.tolist()),
                *(constant * e for e in self.offsets),
            )
            self.up = np.vstack([up, self.gate])
            self.down = np.hstack([self.down, self.down])
            self.k = np.array([float(x) for x in self.kappa])
        elif not c.assumptions.output_bias:
            ends = np.array([float(e) for e in self.offsets])
            if [Fraction(x) for x in ends.tolist()] != self.offsets:
                refuse("a bias of it is no float64")
            offset = block.bias("b_down")
            if ends.any() or offset.any():
                self.up = np.hstack([self.up, ends[:, None]])
                self.a = np.hstack([self.a, offset[:, None]])
                self.columns += 1

    def _read(self, block: ResidualBlock) -> Fraction:
        """Gates, values and the constant of the flip; refuses a block without one."""
        facts, value = block.activation.facts, block.up_activation
        constant: Fraction | tuple[Fraction, ...] | None
        shift = Fraction(0)
        if block.w_gate is None:
            self.gate, self.b_gate = block.w_up.astype(np.float64), block.bias("b_up")
            self.quadratic, constant = True, facts.square
        else:
            self.gate, self.b_gate = block.w_gate.astype(np.float64), block.bias("b_gate")
            self.quadratic = isinstance(facts.parity, Fraction) and facts.parity != 0
            constant = facts.parity if self.quadratic else facts.reflection
            if value is None or value.facts.slope != 1:
                refuse("its units cannot be flipped")
            shift = value.facts.offset
        if not isinstance(constant, Fraction) or not constant or block.norm.in_front:
            refuse("its units cannot be flipped")
        self.offsets = [Fraction(x) + shift for x in block.bias("b_up").tolist()]
        return constant

    def terms(self, units: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The rank-one terms of some units."""
        return np.concatenate([units, units + len(self.offsets)]) if self.quadratic else units


class _Units(Groups):
    """The units by their gates.  Each visible one that shares its gate with no other is a group;
    without a uniqueness theorem, each one at all.

    ``linear`` and ``used`` count the units of constant gate that may have a linear part, and all
    that compute something.  ``unique``: the theorem applies, so groups stay, flipped or not.
    """

    inseparable = True

    def __init__(self, c: Certificate, block: ResidualBlock, condition: _FlipCondition) -> None:
        self.kind = block.activation.facts.independence
        gate = condition.gate
        parallel = self.kind in (Independence.HYPERPLANE, Independence.DIRECTION)
        full = np.hstack([gate, condition.b_gate[:, None]])
        self.rows = gate if self.kind is Independence.DIRECTION else full
        self.centred, self.constants = condition.centred, False
        self.fixed = np.zeros(0, dtype=np.int64)
        m = block.m
        self.sign = np.ones(m, dtype=np.int64)
        self.down = block.w_down.astype(np.float64)
        values: npt.NDArray[np.bool_] = np.asarray(block.w_up.astype(np.float64).any(axis=1))
        some = values | np.array([e != 0 for e in condition.offsets])
        used: list[int] = np.flatnonzero(some & self.seen).tolist()
        turning = [j for j in used if gate[j].any()]
        flat = [j for j in used if not gate[j].any()]
        self.theorem = self.kind is not Independence.UNKNOWN and norm_is_injective(block)
        alone = list(range(m))
        if self.unique:
            sets = self._coincident(self.rows, turning, parallel)
            alone = [members[0] for members in sets if len(members) == 1]
        self.visible = [[j, m + j] if condition.quadratic else [j] for j in alone]
        self.sets = self.visible
        if condition.quadratic:
            self.sign = np.concatenate([self.sign, self.sign])
        self.linear = sum(bool(values[j]) or not condition.quadratic for j in flat)
        self.used = len(used)
        self.distinct = len(alone) == m


def by_gates(c: Certificate, block: ResidualBlock) -> str:
    """Everything that rests on flipped units; the answer must follow from the proved bounds."""
    if c.scope != Scope.THIS_WIDTH or c.defect is None:
        refuse("flipped units decide this width, with a defect")
    if lacks_biases(c, block):
        refuse("the condition is not about replacements without hidden biases")
    condition = _FlipCondition(c, block)
    units = _Units(c, block, condition)
    evidence = str(c.data.get("evidence"))
    if evidence not in (*EVIDENCE, "none", "flip", "affine"):
        refuse("its evidence is of no known kind")
    beyond = [key for key in ("rank", "left") if key in c.data]
    expect(
        c,
        ("evidence", *DETAILS.get(evidence, ()), *beyond),
        ("achieved", *STORED.get(evidence, ())),
    )
    achieved = index_set(c, "achieved", block.m)
    lower = units.n if units.unique else 0
    if evidence == "flip":
        _require_flips(c, block, condition, achieved)
        upper: float = block.m
    else:
        shown = Shown()
        if evidence in EVIDENCE:
            shown = EVIDENCE[evidence](c, condition, units)
        elif evidence == "affine" and (units.n or not leaves_something(condition, units.turned())):
            refuse("units are left to flip, or nothing is left of the skip")
        check_defect(
            c, condition, shown.defect if units.distinct else 0.0, condition.terms(achieved)
        )
        if units.unique:
            left = _least_left(c, block, condition, units, shown, refuted=evidence != "none")
            lower += max(0, left - units.linear)
        upper = units.used + _linear_cost(c, block) * block.d
    require_bounds(c, lower, upper)
    proved = proved_answer(block.m, lower, upper)
    named = Rule.UNDECIDED
    if c.answer != Answer.UNKNOWN:
        named = Rule.GATED_CONDITION if block.gated else Rule.SQUARED_CONDITION
        named = Rule.BOUNDED_RANK if "left" in c.data else named
    if c.answer not in (proved, Answer.UNKNOWN) or c.rule != named:
        refuse(f"it is proved to be {proved}, which is not what it states")
    what = "gates" if block.gated else "neurons"
    if c.answer == Answer.ABSORBABLE:
        return f"flipping {achieved.size} of its {block.m} {what} absorbs the skip, exactly"
    span = f"the relative defect lies in [{c.defect.lower:.3g}, {c.defect.upper:.3g}]"
    if c.answer == Answer.NOT_ABSORBABLE:
        return (
            f"no residual-free block of its width equals it, as that takes {lower} or more; {span}"
        )
    return f"undecided; {span}"


def _least_left(
    c: Certificate,
    block: ResidualBlock,
    condition: _FlipCondition,
    units: _Units,
    shown: Shown,
    *,
    refuted: bool,
) -> int:
    """A lower bound of the rank of Π(A' + Σ_S L_j) over all sets of groups."""
    least = int(refuted)
    if "rank" in c.data:
        claimed = c.data["rank"]
        if type(claimed) is not int or claimed > least_rank(condition, units, shown):
            refuse("its lower bound of the rank is not proved")
        least = max(least, claimed)
    if "left" in c.data:
        seen = np.concatenate([units.seen] * (2 if condition.quadratic else 1))
        rows = condition.up[seen, : block.d]
        least = max(least, require_left_over(c, block, rows))
    return least


def _linear_cost(c: Certificate, block: ResidualBlock) -> float:
    """Units that suffice for a linear term of rank one.

    A gated unit with a constant gate is linear.  Squared ReLU: (v·x + 1)² − (v·x − 1)² = 4v·x, and
    each square is r(z)² + r(−z)².
    """
    if not block.gated:
        return 4 if c.assumptions.hidden_bias else math.inf
    if c.assumptions.hidden_bias:
        return 1
    assert block.up_activation is not None
    constants = bool(block.up_activation.facts.offset) or bool(block.bias("b_down").any())
    undone = c.assumptions.output_bias or not constants
    return 1 if undone and block.activation.facts.value_at_zero != 0 else math.inf


def _require_flips(
    c: Certificate, block: ResidualBlock, condition: _FlipCondition, units: npt.NDArray[np.int64]
) -> None:
    assert c.defect is not None
    linear = not leaves_something(condition, condition.terms(units))
    if not linear or not _quadratic_cancels(c, block, condition, units):
        refuse("the flipped units do not reproduce the skip exactly")
    if not c.defect.lower <= 0 <= c.defect.upper:
        refuse("its defect contradicts its flips")


def _quadratic_cancels(
    c: Certificate, block: ResidualBlock, condition: _FlipCondition, units: npt.NDArray[np.int64]
) -> bool:
    """Whether Σ_S d_j (w_j·x + b_j)(v_j·x + e_j) is affine (centred: the same for all outputs)."""
    if not condition.quadratic:
        return True
    if not c.assumptions.output_bias and block.b_down is not None and block.b_down.any():
        return False
    gate = np.hstack([condition.gate, condition.b_gate[:, None]])[units]
    left, _ = integers(gate)
    value = block.w_up.astype(np.float64)
    right = [
        [*(Fraction(x) for x in value[j].tolist()), condition.offsets[j]] for j in units.tolist()
    ]
    down, _ = integers(block.w_down.astype(np.float64)[:, units])
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
