"""What was reproduced: as JSON, and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from unskip import __version__
from unskip.reports.html import page
from unskip.reports.markup import Markup, join, tag
from unskip.reproduce.experiment import Number, Outcome

SCHEMA_VERSION = 1


def document(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """All statements with what was tried and the numbers."""
    return {
        "schema": SCHEMA_VERSION,
        "unskip": __version__,
        "experiments": [
            {
                "name": outcome.experiment.name,
                "reference": outcome.experiment.reference,
                "statement": outcome.experiment.statement,
                "tried": outcome.experiment.tried,
                "numbers": dict(outcome.result.numbers),
                "passed": outcome.result.passed,
                "seconds": round(outcome.seconds, 3),
            }
            for outcome in outcomes
        ],
        "summary": {
            "experiments": len(outcomes),
            "passed": sum(outcome.result.passed for outcome in outcomes),
        },
    }


def report_page(outcomes: Sequence[Outcome], *, made: date | None = None) -> str:
    """One file, like the page of an audit."""
    passed = sum(outcome.result.passed for outcome in outcomes)
    if passed == len(outcomes):
        headline = f"All {passed} statements held in everything that was tried."
    else:
        headline = f"{passed} of {len(outcomes)} statements held; {len(outcomes) - passed} did not."
    explained = (
        "One experiment for each statement of the paper (Mijoski & Karbevski, arXiv 2604.23705) "
        "and of the theory page. An experiment cannot prove a statement about all weights; it "
        "could have refuted it. Draws are seeded: every machine sees the same blocks. Verdicts are "
        "proofs; measured figures may differ in their last digits."
    )
    body = join(
        tag("h1", "Reproduction"),
        tag("p", headline, class_="lead"),
        tag("p", explained, class_="soft"),
        *map(_section, outcomes),
        tag(
            "footer",
            f"Made by unskip {__version__} on ",
            tag("time", f"{made or date.today():%Y-%m-%d}"),
            f", in {sum(outcome.seconds for outcome in outcomes):.0f} s.",
        ),
    )
    return page("Unskip: reproduction", body)


def _section(outcome: Outcome) -> Markup:
    experiment, result = outcome.experiment, outcome.result
    kind, word = ("yes", "held") if result.passed else ("no", "did not hold")
    numbers = {name: in_words(value) for name, value in result.numbers.items()}
    facts = (tag("div", tag("dt", name), tag("dd", value)) for name, value in numbers.items())
    return tag(
        "section",
        tag("h2", experiment.name),
        tag(
            "p", experiment.statement, " ", tag("span", f"[{experiment.reference}]", class_="soft")
        ),
        tag("p", tag("strong", "Tried: "), experiment.tried),
        tag("p", tag("span", word, class_=f"answer {kind}")),
        tag("dl", *facts, class_="facts"),
        tag("figure", result.chart) if result.chart else Markup(),
    )


def in_words(value: Number) -> str:
    """A figure at a length that one reads."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
