"""The statements of the paper and of our theory page, one experiment each.

experiment.py   what an experiment is
blocks.py       random and planted blocks
impossible.py   the unconditional rules (§3)
conditional.py  linear skips, the subset condition, norms, gates (§1, §4, §5, §8, §9)
widths.py       canonical form and minimal width (§6, §7), against exhaustive search
report.py       what was reproduced, as JSON and as a page

Draws are seeded by the experiments' names, so every machine sees the same blocks.  Verdicts are
proofs and agree; measured figures may differ in their last digits with the linear algebra library.
"""

from __future__ import annotations

from unskip.reproduce import conditional, impossible, widths
from unskip.reproduce.experiment import Experiment, Outcome, Result

__all__ = ["EXPERIMENTS", "Experiment", "Outcome", "Result"]

#: In the order of the report.
EXPERIMENTS = (*impossible.EXPERIMENTS, *conditional.EXPERIMENTS, *widths.EXPERIMENTS)
