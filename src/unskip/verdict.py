"""The answer for a block, as a value that explains itself."""

from __future__ import annotations

from dataclasses import dataclass

from unskip.certificates import Answer, Assumptions, Certificate, Interval, Rule, Scope

__all__ = ["Verdict"]


@dataclass(frozen=True, eq=False)
class Verdict:
    """Can the skip be absorbed?  Read together with ``assumptions``.

    ``subset``: the neurons S to flip when flips absorb the skip, else ``None``.
    ``defect``: encloses min over S of ‖Π(A + κ D_S U_S)‖_F / ‖ΠA‖_F, where Π is what the
    following norm keeps; ``None`` where the subset condition is not what decides.
    ``width``: encloses the neurons of the smallest residual-free MLP equal to the block;
    ``inf`` when no width suffices.  ``reason`` says why, in a sentence.
    """

    answer: Answer
    scope: Scope
    rule: Rule
    reason: str
    assumptions: Assumptions
    subset: tuple[int, ...] | None
    defect: Interval | None
    width: Interval
    certificate: Certificate

    @property
    def reference(self) -> str:
        """The theorem behind the rule."""
        return self.rule.reference

    def __str__(self) -> str:
        where = f" at {self.scope}" if self.answer is Answer.NOT_ABSORBABLE else ""
        return f"{self.answer}{where}: {self.reason} [{self.reference}; {self.assumptions}]"
