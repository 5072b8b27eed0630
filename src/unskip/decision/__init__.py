"""decide(): impossibility rules, then the subset condition, then what follows from both.

- ``question.py``: what is asked, and the subset condition that follows
- ``impossibility.py``: the unconditional rules, and affine blocks
- ``invisible.py``: skips that the output does not show
- ``neurons.py``, ``merging.py``: which neurons are one, and the condition over such groups
- ``ungated.py``: what follows for parity-linear blocks without gates; ``gated.py`` for gates and
  squares, whose flips ``units.py`` describes
- ``subset.py``: the cascade that decides the condition, by
  ``dual.py`` (certificates of "no subset", with outward error bounds),
  ``gram.py`` (the quadratic algebra), ``box.py`` (the best dual), ``exact.py`` and
  ``modular.py`` (integers and residues), ``sumset.py`` (every subset of few groups),
  ``lattice.py`` (a set among dependent terms), ``congruence.py`` and ``tree.py`` (proofs that
  there is none)
- ``width.py``, ``rank.py``, ``bounded.py``: bounds of the width; ``minimal.py``: its value for
  small blocks
- ``nearest.py``: sets that meet the condition to within a tolerance
- ``finding.py``: what each part concludes
"""

from __future__ import annotations

from math import inf

from unskip.blocks import ResidualBlock
from unskip.certificates import Answer, Certificate
from unskip.decision.finding import Finding, undecided
from unskip.decision.gated import by_gates
from unskip.decision.impossibility import affine, unconditional
from unskip.decision.invisible import invisible
from unskip.decision.nearest import within
from unskip.decision.question import Question
from unskip.decision.ungated import by_subsets
from unskip.errors import BlockError, UnskipError
from unskip.verdict import Verdict, Within

__all__ = ["decide"]


def decide(
    block: ResidualBlock,
    *,
    hidden_bias: bool | None = None,
    output_bias: bool | None = None,
    quick: bool = False,
    tolerance: float | None = None,
    label: str = "",
) -> Verdict:
    """Is the block equal to a residual-free one of the same kind and width?

    ``hidden_bias`` and ``output_bias`` say what the replacement may have; by default it has
    the kinds of bias that the block has.  ``quick`` stops at the first certificate instead
    of computing the best bound of the defect.  With a ``tolerance`` ε > 0, flips with
    ‖A + Σ_S R_j‖₂ ≤ ε are searched where none are exact; the answer stays the exact one, and
    what is found is the verdict's ``within``.  ``label`` names the block in the certificate.

    The answer is proved, or it is ``unknown``.  Cost: O(md) where a fact of the activation
    decides; O(m²d + m³/3) time and 2m² numbers of memory for the subset condition.

        >>> import numpy as np
        >>> block = ResidualBlock(w_up=np.eye(2), w_down=-np.eye(2), activation="relu")
        >>> verdict = decide(block)                  # x − relu(x) = −relu(−x)
        >>> verdict.answer, verdict.subset
        (<Answer.ABSORBABLE: 'absorbable'>, (0, 1))
    """
    if not isinstance(block, ResidualBlock):
        raise BlockError(f"decide() asks about a ResidualBlock, not a {type(block).__name__}")
    question = Question.of(block, hidden_bias=hidden_bias, output_bias=output_bias, label=label)
    if tolerance is not None and not 0 < tolerance < inf:
        raise UnskipError(f"a tolerance is a positive number, not {tolerance}")
    finding, found = _find(question, quick=quick), None
    if tolerance is not None:
        finding, found = within(question, finding, tolerance)
    return _verdict(question, finding, found)


def _find(question: Question, *, quick: bool) -> Finding:
    """The first part of the procedure that has something to say."""
    finding = unconditional(question) or affine(question)
    if finding is None and not question.block.norm.in_front:
        if not question.block.gated:
            finding = by_subsets(question, quick=quick)
        finding = finding or by_gates(question, quick=quick)
    if finding is None or finding.answer is Answer.UNKNOWN:
        finding = invisible(question) or finding
    return finding or undecided(_why_not_covered(question))


def _why_not_covered(question: Question) -> str:
    block = question.block
    if question.norm_obstacle is not None:
        return question.norm_obstacle
    if question.visible_skip_entry() is None:
        return "the output shows nothing of the skip, but the biases have to change"
    if block.gated:
        return "gated blocks with such a gate, or with such biases, are not decided yet"
    return f"{block.activation.name} with such biases is not decided yet"


def _verdict(question: Question, finding: Finding, found: Within | None) -> Verdict:
    block = question.block
    certificate = Certificate(
        block=question.label,
        answer=finding.answer,
        scope=finding.scope,
        rule=finding.rule,
        assumptions=question.assumptions,
        activation=block.activation_name,
        gated=block.gated,
        norm=block.norm.value,
        d=block.d,
        m=block.m,
        defect=finding.defect,
        width=finding.width,
        data=finding.data,
        arrays=finding.arrays,
    )
    declared = "".join(f"; the facts of {name} are as declared" for name in block.declared)
    return Verdict(
        answer=finding.answer,
        scope=finding.scope,
        rule=finding.rule,
        reason=finding.reason + declared,
        assumptions=question.assumptions,
        subset=finding.subset,
        defect=finding.defect,
        width=finding.width,
        certificate=certificate,
        within=found,
    )
