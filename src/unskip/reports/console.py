"""The table of an audit: rich on a terminal, plain text in a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from unskip.audit import Audit, BlockReport
from unskip.certificates import Answer
from unskip.reports.words import defect_text, width_text
from unskip.surgery import Rewrite
from unskip.verdict import Verdict

_COLOUR = {Answer.ABSORBABLE: "green", Answer.NOT_ABSORBABLE: "red", Answer.UNKNOWN: "yellow"}


def one_line(text: str) -> str:
    """The text on one line, with escapes in place of what a terminal might obey."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def print_audit(audit: Audit, console: Console) -> None:
    """One row a block with the reason in words, what the rows rest on, then the count.

    A terminal is narrow: there, what all rows share stands above the table, and reasons are
    numbered and stand below it.
    """
    rows = [_row(report) for report in audit]
    reasons = list(dict.fromkeys(row["why"] for row in rows))
    if console.is_terminal:
        rows = [row | {"why": f"({reasons.index(row['why']) + 1})"} for row in rows]
        shared = {k: rows[0][k] for k in _SHARED if len({row[k] for row in rows}) == 1}
        if shared:
            console.print(escape(", ".join(shared.values())), style="bold")
        rows = [{k: v for k, v in row.items() if k not in shared} for row in rows]
    table = Table(box=box.SIMPLE if console.is_terminal else None, pad_edge=False)
    for heading in rows[0]:
        table.add_column(heading, no_wrap=heading != "block" or not console.is_terminal)
    for row, report in zip(rows, audit, strict=True):
        colour = _COLOUR[report.verdict.answer]
        cells = {k: escape(v) for k, v in row.items()}
        table.add_row(*(cells | {"answer": f"[{colour}]{cells['answer']}[/]"}).values())
    console.print(table)
    if console.is_terminal:
        for number, reason in enumerate(reasons, 1):
            console.print(escape(f"({number}) {reason}"))
    for assumptions in dict.fromkeys(str(report.verdict.assumptions) for report in audit):
        console.print(escape(f"Assuming that {assumptions}."))
    count = audit.summary
    console.print(
        f"{count['blocks']} blocks: {count['absorbable']} absorbable, "
        f"{count['not_absorbable']} not absorbable, {count['unknown']} unknown."
    )


def print_plan(steps: Sequence[Rewrite], console: Console) -> None:
    """One row a block: width and cost before and after, and the measured errors."""
    table = Table(box=box.SIMPLE if console.is_terminal else None, pad_edge=False)
    for step in steps:
        precision = step.precision
        row = {
            "block": one_line(step.name),
            "d": str(step.block.d),
            "width": f"{step.block.m} → {step.plain.m}",
            "parameters": "{:,} → {:,}".format(*step.parameters),
            "MACs": "{:,} → {:,}".format(*step.macs),
            "error (the block's own)": f"{precision.plain:.1e} ({precision.own:.1e})",
            "type": precision.dtype,
            "growth": f"{precision.growth:.3g}",
        }
        if not table.columns:
            for heading in row:
                table.add_column(heading, no_wrap=heading != "block" or not console.is_terminal)
        table.add_row(*map(escape, row.values()))
    console.print(table)
    total = [sum(step.parameters[i] for step in steps) for i in (0, 1)]
    console.print(f"{len(steps)} blocks without skip; parameters {total[0]:,} → {total[1]:,}.")


#: Columns that often say the same in every row.
_SHARED = ("d × m", "activation", "norm")


def _row(report: BlockReport) -> dict[str, str]:
    verdict, statement = report.verdict, report.verdict.certificate
    places = f" (×{report.places})" if report.places > 1 else ""
    return {
        "block": one_line(report.name) + places,
        "d × m": f"{statement.d} × {statement.m}",
        "activation": ("gated " if statement.gated else "") + statement.activation,
        "norm": statement.norm,
        "answer": _answer(verdict),
        "defect": defect_text(verdict.defect),
        "width": width_text(verdict.width),
        "why": f"{verdict.rule}: {verdict.reason} [{verdict.reference}]",
        "s": f"{report.seconds:.2f}",
    }


def _answer(verdict: Verdict) -> str:
    beyond = verdict.answer is Answer.NOT_ABSORBABLE
    return f"{verdict.answer}, {verdict.scope}" if beyond else str(verdict.answer)
