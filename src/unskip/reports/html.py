"""The HTML page of an audit: one file, which opens offline and asks nothing of the network.

A summary in words, the defect by depth, and a table whose rows open to what each verdict means.
The page states a content security policy under which only its own style and script run.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from importlib import resources
from pathlib import Path
from string import Template

from unskip import __version__
from unskip.alignment import Alignments
from unskip.audit import Audit, BlockReport
from unskip.certificates import Answer, Interval
from unskip.reports import charts, words
from unskip.reports.markup import Markup, join, tag

_KIND = {Answer.ABSORBABLE: "yes", Answer.NOT_ABSORBABLE: "no", Answer.UNKNOWN: "open"}
#: A listing of neurons longer than this is cut.
LONGEST_SUBSET = 4096


def audit_page(
    audit: Audit, certificates: Mapping[str, str] | None = None, *, made: date | None = None
) -> str:
    """The whole page; ``certificates`` maps block names to the files written for them."""
    reports = list(audit)
    title = f"Skip connections of {'/'.join(Path(audit.model.path).parts[-2:])}"
    parts = [
        tag("h1", title),
        *_summary(reports),
        _depth(reports),
        tag("h2", "Blocks"),
        _filter(reports),
        _table(reports, certificates or {}),
        _about(audit),
        _footer(made or date.today()),
    ]
    return page(title, join(*parts))


def page(title: str, body: Markup) -> str:
    """The template with its style and script inlined."""
    folder = resources.files("unskip.reports") / "page"
    read = {name: (folder / name).read_text("utf-8") for name in ("style.css", "table.js")}
    return Template((folder / "page.html").read_text("utf-8")).substitute(
        title=join(title),
        body=body,
        style=read["style.css"],
        style_hash=_hash(read["style.css"]),
        script=read["table.js"],
        script_hash=_hash(read["table.js"]),
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _summary(reports: Sequence[BlockReport]) -> list[Markup]:
    """The answer in one line, then what it costs and what it rests on."""
    lines = [tag("p", _headline(reports), class_="lead")]
    left = [r for r in reports if r.verdict.answer is not Answer.ABSORBABLE]
    bounded = [r for r in left if r.verdict.defect is not None]
    if bounded:
        nearest = min(bounded, key=lambda r: _defect(r).upper)
        said = words.defect_in_words(_defect(nearest))
        if len(bounded) > 1:
            link = tag("a", nearest.name, href=f"#{_id(reports, nearest)}")
            lines.append(tag("p", "The nearest to being absorbed is ", link, f". {said}"))
        else:
            lines.append(tag("p", said))
    cost = _cost(reports)
    if cost:
        lines.append(tag("p", cost))
    return [*lines, *(tag("p", said, class_="soft") for said in _assumed(reports))]


def _assumed(reports: Sequence[BlockReport]) -> list[str]:
    """What the verdicts assume; for how many blocks, where that differs."""
    found = Counter(str(r.verdict.assumptions) for r in reports)
    if len(found) == 1:
        return [f"Assuming that {text}." for text in found]
    return [f"For {words.count(n, 'block')}, assuming that {text}." for text, n in found.items()]


def _headline(reports: Sequence[BlockReport]) -> str:
    answers = [r.verdict.answer for r in reports]
    total, yes = len(answers), answers.count(Answer.ABSORBABLE)
    no, unknown = answers.count(Answer.NOT_ABSORBABLE), answers.count(Answer.UNKNOWN)
    if total == 1:
        return words.outcome(reports[0].verdict)
    if no == total:
        return f"None of the {total} skip connections can be absorbed: proved for each."
    if yes == total:
        return f"All {total} skip connections can be absorbed: proved for each."
    counted = [
        f"{yes} can be absorbed" if yes else "",
        f"{no} cannot" if yes and no else f"{no} cannot be absorbed" if no else "",
        f"{unknown} {'is' if unknown == 1 else 'are'} undecided" if unknown else "",
    ]
    said = ", ".join(filter(None, counted))
    return f"Of {total} skip connections, {said}."


def _cost(reports: Sequence[BlockReport]) -> str:
    """What residual-free replacements take, where they are larger than the blocks."""
    wider = [r for r in reports if r.verdict.width.upper > r.verdict.certificate.m]
    possible = [r for r in wider if math.isfinite(r.verdict.width.upper)]
    never = sum(math.isinf(r.verdict.width.lower) for r in wider)
    said = ""
    if possible:
        now = sum(r.verdict.certificate.m for r in possible)
        upper = sum(int(r.verdict.width.upper) for r in possible)
        lower = sum(max(int(r.verdict.width.lower), 0) for r in possible)
        which = "it" if len(reports) == 1 else f"the {words.count(len(possible), 'block')}"
        if len(possible) < len(reports) and len(reports) > 1:
            which = f"{words.count(len(possible), 'block')} that need more width"
        said = (
            f"Without the skip, {which} can be written exactly with {upper} neurons in place of "
            f"{now}; fewer than {lower} cannot suffice."
        )
    if never and len(reports) > 1:
        said += f" For {words.count(never, 'block')} no width suffices."
    return said.strip()


def _depth(reports: Sequence[BlockReport]) -> Markup:
    points = [_point(i, r) for i, r in enumerate(reports)]
    if sum(p is not None for p in points) < 2:
        return Markup()
    caption = (
        "The part of the skip that is left over by the best set of flips, relative to the skip, "
        "for the blocks in the model's order. Each bar reaches from a proved lower bound to what a "
        "known set attains. At 0 the skip is absorbed; 1 is what flipping nothing leaves."
    )
    chart = tag("figure", charts.by_depth(points), tag("figcaption", caption))
    return join(tag("h2", "Defect by depth"), chart)


def _point(index: int, report: BlockReport) -> charts.Point | None:
    defect = report.verdict.defect
    if defect is None:
        return None
    return charts.Point(report.name, f"block-{index}", words.rounded(defect))


#: Heading, and whether a narrow screen does without the column.
_COLUMNS = (
    ("block", False),
    ("d × m", True),
    ("activation", True),
    ("norm", True),
    ("answer", False),
    ("defect", False),
    ("width", False),
)


def _filter(reports: Sequence[BlockReport]) -> Markup:
    """The controls above the table; the script shows them."""
    answers = dict.fromkeys(r.verdict.answer for r in reports)
    options = [tag("option", "all", value="")]
    options += [tag("option", str(a), value=a.value) for a in answers]
    return tag(
        "form",
        tag("label", "Find ", tag("input", type="search", placeholder="name, rule, activation")),
        tag("label", "Answer ", tag("select", *options)),
        tag("span", role="status", class_="soft"),
        class_="filter",
        hidden=True,
    )


def _table(reports: Sequence[BlockReport], certificates: Mapping[str, str]) -> Markup:
    headings = [
        tag(
            "th",
            tag("button", heading, type="button"),
            scope="col",
            aria_sort="none",
            class_="minor" if minor else None,
        )
        for heading, minor in _COLUMNS
    ]
    bodies = [_block(i, r, certificates.get(r.name)) for i, r in enumerate(reports)]
    return tag("table", tag("thead", tag("tr", *headings)), *bodies, class_="blocks")


def _block(index: int, report: BlockReport, certificate: str | None) -> Markup:
    """Two rows: the figures, and what they mean."""
    verdict, statement = report.verdict, report.verdict.certificate
    activation = ("gated " if statement.gated else "") + statement.activation
    name = f"block-{index}"
    places = tag("span", f" ×{report.places}", class_="soft") if report.places > 1 else ""
    opener = tag(
        "button", report.name, type="button", class_="open-block", aria_controls=f"{name}-detail"
    )
    answer = tag("span", _answer(report), class_=f"answer {_KIND[verdict.answer]}")
    cells = (
        tag("td", f"{statement.d} × {statement.m}", data_value=statement.m, class_="minor"),
        tag("td", activation, class_="minor"),
        tag("td", statement.norm, class_="minor"),
        tag("td", answer),
        tag("td", words.defect_text(verdict.defect), data_value=_defect_order(verdict.defect)),
        tag("td", words.width_text(verdict.width), data_value=_width_order(verdict.width)),
    )
    row = tag("tr", tag("th", opener, places, scope="row", data_value=index), *cells)
    detail = tag("td", *_detail(report, certificate), colspan=len(_COLUMNS))
    return tag(
        "tbody",
        row,
        tag("tr", detail, class_="detail", id=f"{name}-detail"),
        id=name,
        data_answer=verdict.answer.value,
        data_search=" ".join((report.name, verdict.rule, activation, statement.norm)),
    )


def _detail(report: BlockReport, certificate: str | None) -> list[Markup]:
    verdict, statement = report.verdict, report.verdict.certificate
    said = words.sentence(verdict.reason)
    parts = [
        tag("p", tag("strong", words.outcome(verdict)), f" {said}"),
        tag("h3", "What the certificate means"),
        tag("p", words.meaning(statement)),
    ]
    if verdict.defect is not None:
        parts += [tag("h3", "What is left over"), tag("p", words.defect_in_words(verdict.defect))]
    parts += [tag("h3", "Width"), tag("p", words.width_in_words(verdict.width, statement.m))]
    if report.alignments is not None:
        parts += _alignments(report.alignments)
    if verdict.subset:
        listed = ", ".join(map(str, verdict.subset[:LONGEST_SUBSET]))
        more = ", …" if len(verdict.subset) > LONGEST_SUBSET else ""
        size = words.count(len(verdict.subset), "neuron")
        summary = tag("summary", f"The {size} to flip")
        parts.append(tag("details", summary, tag("p", listed + more), class_="subset"))
    facts = {
        "d × m": f"{statement.d} × {statement.m}",
        "activation": ("gated " if statement.gated else "") + statement.activation,
        "norm": statement.norm,
        "biases": ", ".join(report.biases) or "none",
        "rule": f"{verdict.rule} ({verdict.reference})",
        "decided in": f"{report.seconds:.2g} s",
    }
    if certificate is not None:
        facts["certificate"] = certificate
    return [*parts, _facts(facts)]


def _alignments(found: Alignments) -> list[Markup]:
    enough = "which is enough, so the trace alone excludes nothing"
    short = "which is not enough: no set of flips can absorb the skip"
    verdict = enough if found.reach >= found.needed else short
    caption = (
        f"Flipping a neuron moves the trace of what is left of the skip by its alignment κ u·d (in "
        f"blue: the {found.negative} that help). Together they reach {found.reach:.4g} of the "
        f"{found.needed:.4g} that the skip needs, {verdict}."
    )
    drawn = (charts.histogram(found), charts.reach(found))
    return [
        tag("h3", "Alignments of the neurons"),
        tag("figure", *drawn, tag("figcaption", caption)),
    ]


def _about(audit: Audit) -> Markup:
    """Where the model came from, as it says itself."""
    said = {"file": audit.model.path, "kind": audit.model.kind}
    for key, value in audit.model.description.items():
        listed = value if isinstance(value, list | tuple) else [value]
        said[key.replace("_", " ")] = ", ".join(map(str, listed))
    if audit.inner:
        said["question"] = "z + MLP(z), behind the norm of each pre-norm block"
    return join(tag("h2", "Model"), _facts(said))


def _facts(pairs: Mapping[str, str]) -> Markup:
    return tag(
        "dl", *(tag("div", tag("dt", k), tag("dd", v)) for k, v in pairs.items()), class_="facts"
    )


def _footer(made: date) -> Markup:
    return tag(
        "footer",
        f"Made by unskip {__version__} on ",
        tag("time", f"{made:%Y-%m-%d}"),
        ". Bounds are rounded outwards. Alignments are floating-point figures to look at; what is "
        "proved stands in the certificates, which ",
        tag("code", "unskip audit --certificates"),
        " writes and ",
        tag("code", "unskip check"),
        " validates.",
    )


def _answer(report: BlockReport) -> str:
    verdict = report.verdict
    beyond = verdict.answer is Answer.NOT_ABSORBABLE
    return f"{verdict.answer}, {verdict.scope}" if beyond else str(verdict.answer)


def _defect(report: BlockReport) -> Interval:
    assert report.verdict.defect is not None
    return report.verdict.defect


def _defect_order(defect: Interval | None) -> float:
    """For sorting: by what is attained, blocks without a defect last."""
    return 1e9 if defect is None else defect.upper


def _width_order(width: Interval) -> float:
    """For sorting: by what suffices, then unknown, then impossible."""
    if math.isinf(width.lower):
        return 1e300
    return 1e299 if math.isinf(width.upper) else width.upper


def _id(reports: Sequence[BlockReport], report: BlockReport) -> str:
    return f"block-{next(i for i, r in enumerate(reports) if r is report)}"
