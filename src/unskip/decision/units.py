"""Units that a flip turns into themselves plus a polynomial, and which of them are one (§9).

A unit is d_j g(w_j·x + b_j)(v_j·x + e_j), its value affine.  What a flip leaves depends on g:

- g(z) − g(−z) = κz (SiLU, GELU, ReLU): flipping (w_j, b_j) leaves κ d_j (w_j·x + b_j)(v_j·x + e_j);
- g(z) + g(−z) = κ₀ (sigmoid): flipping w_j, b_j and d_j leaves κ₀ d_j (v_j·x + e_j).

An ungated neuron with σ(z) + σ(−z) = κ₂ z² (squared ReLU) is the first kind: flipping u_j, b_j
and d_j leaves κ₂ d_j (u_j·x + b_j)², so w = v = u and e = b.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import inf

import numpy as np
import numpy.typing as npt

from unskip.activations import Independence
from unskip.certificates import Rule
from unskip.decision.neurons import Members, coincident, seen
from unskip.decision.question import Question

Array = npt.NDArray[np.float64]

#: Neurons for one linear term v·x = ((v·x + 1)² − (v·x − 1)²)/4, with z² = r(z)² + r(−z)².
SQUARES_OF_A_TERM = 4


@dataclass(frozen=True)
class Units:
    """The units of a block: ``gate`` and ``value`` (m, d), ``bias`` (m,), ``offset`` e_j."""

    gate: Array
    bias: Array
    value: Array
    offset: tuple[Fraction, ...]
    kappa: Fraction
    quadratic: bool  #: a flip leaves a quadratic part, which must cancel
    kind: Independence
    name: str
    rule: Rule
    linear_cost: float  #: units that suffice for a linear term of rank one

    @classmethod
    def of(cls, question: Question) -> Units | None:
        """The units of a block, or ``None`` where no flip is known."""
        block, facts = question.block, question.block.activation.facts
        up, b_up = block.w_up.astype(np.float64), block.bias("b_up")
        kind, name = facts.independence, block.activation.name
        biased = question.assumptions.hidden_bias
        if block.w_gate is None:
            if not facts.square:
                return None
            offset = tuple(map(Fraction, b_up.tolist()))
            cost, rule = SQUARES_OF_A_TERM if biased else inf, Rule.SQUARED_CONDITION
            label = f"{name} neurons"
            return cls(up, b_up, up, offset, facts.square, True, kind, label, rule, cost)
        value = block.up_activation
        if value is None or value.facts.slope != 1:
            return None
        offset = tuple(Fraction(e) + value.facts.offset for e in b_up.tolist())
        quadratic = isinstance(facts.parity, Fraction) and facts.parity != 0
        kappa = facts.parity if quadratic else facts.reflection
        if not isinstance(kappa, Fraction) or not kappa:
            return None
        gate, b_gate = block.w_gate.astype(np.float64), block.bias("b_gate")
        # a gate that is a constant other than 0, and a value without a shift that cannot be undone
        undone = question.assumptions.output_bias or not (
            value.facts.offset or block.bias("b_down").any()
        )
        constant = biased or (facts.value_at_zero != 0 and undone)
        cost, rule = (1 if constant else inf), Rule.GATED_CONDITION
        return cls(gate, b_gate, up, offset, kappa, quadratic, kind, f"{name} gates", rule, cost)


@dataclass(frozen=True)
class Classes:
    """Units by their gates; those that compute nothing are in no field."""

    alone: Members  #: visible, with a gate of their own
    turned: Members  #: of those that share a gate, the ones that point against the first
    computing: Members  #: all units that compute something
    linear: int  #: of these, the ones with a constant gate that may have a linear part
    obstacle: str | None  #: why no uniqueness theorem applies, if so

    @classmethod
    def of(cls, question: Question, units: Units) -> Classes:
        """Exactly; O(md)."""
        m = len(units.gate)
        value = units.value.any(axis=1) | np.array([e != 0 for e in units.offset])
        down = question.block.w_down.astype(np.float64)
        used = value & seen(down, centred=question.centred)
        gated = units.gate.any(axis=1)
        alive = np.flatnonzero(used & gated)
        flat = used & ~gated
        matters = units.value.any(axis=1) if units.quadratic else flat
        counts = np.flatnonzero(used), int(np.count_nonzero(flat & matters))
        if units.kind is Independence.UNKNOWN:
            unknown = f"no uniqueness theorem is known for {units.name}"
            return cls(np.arange(m), alive[:0], *counts, unknown)
        several, orientation = coincident(units.gate, units.bias, units.kind, alive)
        sharing = np.zeros(m, dtype=bool)
        for members in several:
            sharing[members] = True
        turned = np.flatnonzero(sharing & (orientation < 0))
        alone = alive[~sharing[alive]]
        obstacle = question.norm_obstacle
        return cls(alone, turned, *counts, obstacle)
