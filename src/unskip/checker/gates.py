"""Gated blocks with biases: the condition of flipped gates (§9)."""

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
from unskip.checker.arithmetic import integers
from unskip.checker.condition import Condition, Groups, leaves_something
from unskip.checker.evidence import DETAILS, EVIDENCE, Shown, check_defect
from unskip.checker.requirements import (
    expect,
    index_set,
    lacks_biases,
    norm_is_injective,
    proved_answer,
    refuse,
    require_bounds,
)

_WITH_OUTPUT_BIAS = Assumptions(hidden_bias=True, output_bias=True)


class _GatedCondition(Condition):
    """The linear part of what flipped gates leave (§9), as two rank-one terms a unit.

    A unit is d_j g(w_j·x + b_j)(v_j·x + e_j).  If g(z) − g(−z) = κz, flipping its gate leaves
    κ d_j (w_j·x + b_j)(v_j·x + e_j), with the linear part κ b_j d_j v_jᵀ + κ e_j d_j w_jᵀ; if
    g(z) + g(−z) = κ₀, flipping gate and output leaves κ₀ d_j (v_j·x + e_j).
    """

    def __init__(self, c: Certificate, block: ResidualBlock) -> None:
        gate, value = block.activation.facts, block.up_activation
        self.quadratic = isinstance(gate.parity, Fraction) and gate.parity != 0
        constant = gate.parity if self.quadratic else gate.reflection
        behind = block.norm.in_front
        if value is None or value.facts.slope != 1 or not isinstance(constant, Fraction) or behind:
            refuse("its gates cannot be flipped")
        if not constant or block.w_gate is None:
            refuse("its gates cannot be flipped")
        m = block.m
        self.offsets = [Fraction(x) + value.facts.offset for x in block.bias("b_up").tolist()]
        self.b_gate = block.bias("b_gate")
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
                refuse("a bias of it is no float64")
            offset = block.bias("b_down")
            if ends.any() or offset.any():
                self.up = np.hstack([self.up, ends[:, None]])
                self.a = np.hstack([self.a, offset[:, None]])
                self.columns += 1

    def terms(self, units: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The rank-one terms of some units."""
        return np.concatenate([units, units + len(self.offsets)]) if self.quadratic else units


class _Gates(Groups):
    """Each unit is a group; ``unique`` when the gates are pairwise distinct and nothing is zero."""

    inseparable = True

    def __init__(self, c: Certificate, block: ResidualBlock, condition: _GatedCondition) -> None:
        assert block.w_gate is not None
        self.kind = block.activation.facts.independence
        gate = block.w_gate.astype(np.float64)
        self.rows = np.hstack([gate, condition.b_gate[:, None]])
        self.centred, self.constants = condition.centred, False
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
            and norm_is_injective(block)
        )


def by_gates(c: Certificate, block: ResidualBlock) -> str:
    """Everything that rests on flipped gates; the answer must follow from the proved bounds."""
    if c.scope != Scope.THIS_WIDTH or c.defect is None or not block.gated:
        refuse("flipped gates decide this width of a gated block, with a defect")
    if lacks_biases(c, block):
        refuse("the condition is not about replacements without hidden biases")
    condition = _GatedCondition(c, block)
    gates = _Gates(c, block, condition)
    evidence = str(c.data.get("evidence"))
    if evidence not in (*EVIDENCE, "none", "flip"):
        refuse("its evidence is of no known kind")
    dual = {"dual"} if evidence in ("matrix", "modular") else set()
    expect(c, ("evidence", *DETAILS.get(evidence, ())), {"achieved", *dual})
    units = index_set(c, "achieved", block.m)
    terms = condition.terms(units)
    refuted = evidence not in ("none", "flip")
    if evidence == "flip":
        linear = not leaves_something(condition, terms)
        if not linear or not _quadratic_cancels(c, block, condition, units):
            refuse("the flipped gates do not reproduce the skip exactly")
        if not c.defect.lower <= 0 <= c.defect.upper:
            refuse("its defect contradicts its gates")
    else:
        shown = EVIDENCE[evidence](c, condition, gates) if evidence in EVIDENCE else Shown()
        check_defect(c, condition, shown.defect, terms)
    lower = block.m + refuted if gates.unique else 0
    constant = block.b_gate is not None or block.activation.facts.value_at_zero != 0
    upper = block.m if evidence == "flip" else block.m + block.d if constant else math.inf
    require_bounds(c, lower, upper)
    proved = proved_answer(block.m, lower, upper)
    named = Rule.UNDECIDED if c.answer == Answer.UNKNOWN else Rule.GATED_CONDITION
    if c.answer not in (proved, Answer.UNKNOWN) or c.rule != named:
        refuse(f"it is proved to be {proved}, which is not what it states")
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
