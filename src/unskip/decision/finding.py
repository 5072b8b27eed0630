"""What a part of the procedure concludes: all that a verdict and its certificate need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from unskip.certificates import Answer, Interval, Rule, Scope

Arrays = Mapping[str, npt.NDArray[np.signedinteger[Any]]]

#: How each kind of evidence is called in a reason.
EVIDENCE = {
    "trace": "trace certificate",
    "coordinate": "coordinate certificate",
    "matrix": "dual certificate",
    "modular": "certificate modulo a prime",
    "sumset": "all subset sums",
    "congruence": "a congruence",
    "tree": "branch and bound over the flips",
    "affine": "there are none",
}


@dataclass(frozen=True)
class Finding:
    """An answer with its reason in words, its bounds, and the data that prove it."""

    answer: Answer
    scope: Scope
    rule: Rule
    reason: str
    width: Interval
    data: Mapping[str, int | str | bool] = field(default_factory=dict)
    defect: Interval | None = None
    subset: tuple[int, ...] | None = None
    arrays: Arrays = field(default_factory=dict)


def undecided(reason: str) -> Finding:
    """Nothing is claimed."""
    return Finding(Answer.UNKNOWN, Scope.THIS_WIDTH, Rule.UNDECIDED, reason, Interval(0, inf))
