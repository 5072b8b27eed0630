"""What is asked of a block: the assumptions, and the subset condition that follows."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from unskip.blocks import NormKind, ResidualBlock
from unskip.certificates import Assumptions

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Question:
    """A block, with what its replacement may have."""

    block: ResidualBlock
    assumptions: Assumptions
    label: str = ""

    @classmethod
    def of(
        cls,
        block: ResidualBlock,
        *,
        hidden_bias: bool | None = None,
        output_bias: bool | None = None,
        label: str = "",
    ) -> Self:
        """The default lets the replacement have exactly the kinds of bias the block has."""
        if hidden_bias is None:
            hidden_bias = bool(block.hidden_biases)
        if output_bias is None:
            output_bias = block.b_down is not None
        modulo = "mean" if block.norm is NormKind.POST_LAYERNORM else "nothing"
        slopes_kept = block.activation.slopes is not None
        return cls(block, Assumptions(hidden_bias, output_bias, modulo, slopes_kept), label)

    @property
    def centred(self) -> bool:
        """Whether outputs count only up to their mean (post-LayerNorm, §8)."""
        return self.assumptions.modulo == "mean"

    @property
    def lacks_biases(self) -> bool:
        """The block uses hidden biases, and its replacement may have none."""
        used = any(b.any() for b in self.block.hidden_biases)
        return used and not self.assumptions.hidden_bias

    @property
    def norm_obstacle(self) -> str | None:
        """Why the following norm does not reduce to comparing (centred) outputs, if so.

        A norm with ε > 0 and no zero gain is injective on (centred) outputs, hence
        N∘F = N∘G ⟺ F = G up to what it discards.  Without that, no "no" is drawn here.
        """
        block = self.block
        if block.norm.placement != "post":
            return None
        if block.norm_eps == 0:
            return "the following norm has ε = 0, so outputs count only up to a scale"
        if block.norm_gain is not None and not np.all(block.norm_gain != 0):
            return "the following norm has a gain of zero, so it discards an output"
        return None

    def visible_skip_entry(self) -> tuple[int, int] | None:
        """An entry that shows the skip A ≠ 0 (centred: A is no 1aᵀ), or ``None``."""
        block = self.block
        if block.skip is None or block.skip.ndim < 2:  # diagonal: no matrix is needed
            entries = np.broadcast_to(1.0 if block.skip is None else block.skip, (block.d,))
            if not entries.any() or (self.centred and block.d == 1):
                return None
            first = int(np.argmax(entries != 0))
            return max(first, int(self.centred)), first
        a = block.skip_matrix
        seen = a != a[:1] if self.centred else a != 0
        if not seen.any():
            return None
        row, column = np.unravel_index(int(np.argmax(seen)), a.shape)
        return int(row), int(column)


@dataclass(frozen=True)
class SubsetCondition:
    """Is there S with Π(A + Σ_{j∈S} R_j) = 0, where R_j = κ_j d_j u_jᵀ?  (§4, §8)

    ``a`` (p, q), ``down`` (p, m), ``up`` (m, q), ``kappa`` m exact constants; Π = I − 11ᵀ/p
    when ``centred`` and the identity otherwise.  Where the replacement has no output bias,
    the rows are homogenised: ``up`` = [w_up | b_up] and ``a`` = [A | b_down], q = d + 1.
    """

    a: Array
    down: Array
    up: Array
    kappa: tuple[Fraction, ...]
    centred: bool

    @classmethod
    def of(cls, question: Question, kappa: tuple[Fraction, ...]) -> SubsetCondition:
        """The condition of an ungated block with the given κ."""
        block = question.block
        a, up = block.skip_matrix, block.w_up.astype(np.float64)
        if not question.assumptions.output_bias:
            b_up, b_down = block.bias("b_up"), block.bias("b_down")
            if b_up.any() or b_down.any():
                up, a = np.column_stack([up, b_up]), np.column_stack([a, b_down])
        return cls(a, block.w_down.astype(np.float64), up, kappa, question.centred)

    @property
    def m(self) -> int:
        """The number of neurons."""
        return self.up.shape[0]

    @property
    def trivial(self) -> bool:
        """Whether S = ∅ satisfies it: ΠA = 0."""
        a = self.a - self.a[:1] if self.centred else self.a
        return not a.any()

    @cached_property
    def kappa_float(self) -> Array:
        """κ rounded to float64 (relative error at most 2⁻⁵³)."""
        return np.array([float(k) for k in self.kappa])

    def project(self, matrix: Array) -> Array:
        """Π applied to columns, in floating point."""
        return matrix - matrix.mean(axis=0) if self.centred else matrix
