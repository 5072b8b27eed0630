"""The table of an audit: rich on a terminal, plain text in a pipe."""

from __future__ import annotations

import math

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from unskip.audit import Audit
from unskip.certificates import Answer, Interval
from unskip.verdict import Verdict

_COLOUR = {Answer.ABSORBABLE: "green", Answer.NOT_ABSORBABLE: "red", Answer.UNKNOWN: "yellow"}


def one_line(text: str) -> str:
    """The text on one line, with escapes in place of what a terminal might obey."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def print_audit(audit: Audit, console: Console) -> None:
    """One row a block, then what the rows rest on, then the count."""
    table = Table(box=box.SIMPLE if console.is_terminal else None, pad_edge=False)
    for heading in ("block", "d × m", "activation", "norm", "answer", "defect", "width"):
        table.add_column(heading, no_wrap=True)
    table.add_column("why")
    table.add_column("s", justify="right", no_wrap=True)
    for report in audit:
        verdict, statement = report.verdict, report.verdict.certificate
        shared = f" (×{report.places})" if report.places > 1 else ""
        table.add_row(
            escape(one_line(report.name) + shared),
            f"{statement.d} × {statement.m}",
            escape(("gated " if statement.gated else "") + statement.activation),
            statement.norm,
            f"[{_COLOUR[verdict.answer]}]{_answer(verdict)}[/]",
            _defect(verdict.defect),
            _width(verdict.width),
            escape(f"{verdict.reason} [{verdict.reference}]"),
            f"{report.seconds:.2f}",
        )
    console.print(table)
    for assumptions in dict.fromkeys(str(report.verdict.assumptions) for report in audit):
        console.print(escape(f"Assuming that {assumptions}."))
    count = audit.summary
    console.print(
        f"{count['blocks']} blocks: {count['absorbable']} absorbable, "
        f"{count['not_absorbable']} not absorbable, {count['unknown']} unknown."
    )


def _answer(verdict: Verdict) -> str:
    beyond = verdict.answer is Answer.NOT_ABSORBABLE
    return f"{verdict.answer}, {verdict.scope}" if beyond else str(verdict.answer)


def _defect(defect: Interval | None) -> str:
    if defect is None:
        return "–"
    return "0" if defect.upper == 0 else f"{defect.lower:.4g} … {defect.upper:.4g}"


def _width(width: Interval) -> str:
    if math.isinf(width.lower):
        return "none"
    upper = "?" if math.isinf(width.upper) else f"{width.upper:.0f}"
    return upper if width.lower == width.upper else f"{width.lower:.0f} … {upper}"
