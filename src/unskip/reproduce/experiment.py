"""What an experiment is: a statement, what was run for it, the numbers, and whether it held."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from unskip.reports.markup import Markup

Number = bool | int | float | str
Run = Callable[[np.random.Generator], "Result"]


@dataclass(frozen=True)
class Result:
    """Whether the statement held in all that was tried, and the numbers that say so."""

    passed: bool
    numbers: Mapping[str, Number]
    chart: Markup = field(default_factory=Markup)


@dataclass(frozen=True)
class Experiment:
    """A statement with its place in the paper and the theory, and a way to try it."""

    name: str
    reference: str
    statement: str
    tried: str
    run: Run

    def __call__(self) -> Outcome:
        """Run with a generator seeded by the name: the same draws everywhere."""
        began = time.perf_counter()
        result = self.run(np.random.default_rng(list(self.name.encode())))
        return Outcome(self, result, time.perf_counter() - began)


@dataclass(frozen=True)
class Outcome:
    """An experiment that was run."""

    experiment: Experiment
    result: Result
    seconds: float


def experiment(reference: str) -> Callable[[Run], Experiment]:
    """Make a function an experiment, named after it.

    Its docstring is the statement and, behind "Tried:", what it does.
    """

    def made(run: Run) -> Experiment:
        statement, _, tried = " ".join((run.__doc__ or "").split()).partition(" Tried: ")
        name = getattr(run, "__name__", "").replace("_", "-")
        return Experiment(name, reference, statement, tried, run)

    return made
