"""Charts as inline SVG: coloured by the page's style sheet, each with its figures in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unskip.alignment import Alignments
from unskip.certificates import Interval
from unskip.reports.markup import Markup, join, tag

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

WIDTH, HEIGHT = 640, 200
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 24


def histogram(found: Alignments) -> Markup:
    """How many neurons have which alignment; those below zero stand out."""
    return bars(found.edges, found.counts, "neurons")


def bars(edges: Array, counts: Counts, noun: str) -> Markup:
    """A histogram of ``counts`` (n,) between ``edges`` (n + 1,); bars below zero stand out."""
    low, high, most = float(edges[0]), float(edges[-1]), max(1, int(counts.max()))
    x = _Scale(low, high, LEFT, WIDTH - RIGHT)
    y = _Scale(0, most, HEIGHT - BOTTOM, TOP)
    shapes = []
    for start, end, count in zip(edges[:-1], edges[1:], counts, strict=True):
        if not count:
            continue
        left, right = x(float(start)), x(float(end))
        gap = min(1.0, (right - left) / 4)
        shape = tag(
            "rect",
            tag("title", f"{count} {noun} between {start:.3g} and {end:.3g}"),
            class_="bar helps" if end <= 0 else "bar",
            x=left + gap / 2,
            y=y(int(count)),
            width=right - left - gap,
            height=y(0) - y(int(count)),
        )
        shapes.append(shape)
    ticks = [_x_tick(x(v), f"{v:.4g}".replace("-", "−")) for v in nice_ticks(low, high, 7)]
    rows = [_y_tick(y(v), f"{v:.0f}") for v in nice_ticks(0, most, 3) if v == int(v)]
    below = int(counts[edges[1:] <= 0].sum())
    said = f"Histogram of {int(counts.sum())} {noun}, {below} of them below zero"
    return _svg(said, HEIGHT, *rows, *shapes, *ticks)


def reach(found: Alignments) -> Markup:
    """How far all negative alignments together reach, against how far they would have to."""
    height, bar = 46, 14
    longest = max(found.reach, found.needed) * 1.02 or 1.0
    x = _Scale(0, longest, LEFT, WIDTH - RIGHT)
    mark = x(found.needed)
    side = "end" if mark > WIDTH / 2 else "start"
    return _svg(
        f"The negative alignments add up to {found.reach:.4g}; {found.needed:.4g} is needed",
        height,
        tag("rect", class_="track", x=LEFT, y=6, width=x(longest) - LEFT, height=bar, rx=3),
        tag("rect", class_="bar helps", x=LEFT, y=6, width=x(found.reach) - LEFT, height=bar, rx=3),
        tag("line", class_="mark", x1=mark, x2=mark, y1=1, y2=bar + 11),
        _text(mark + (-4 if side == "end" else 4), height - 8, f"needed {found.needed:.4g}", side),
    )


@dataclass(frozen=True)
class Point:
    """A block on the chart by depth: where a click leads, and what it is called."""

    label: str
    target: str
    defect: Interval


def by_depth(points: Sequence[Point | None]) -> Markup:
    """The interval of each block's defect, in the order of the model; gaps where there is none."""
    height = 240
    x = _Scale(-0.5, len(points) - 0.5, LEFT, WIDTH - RIGHT)
    y = _Scale(0, 1, height - BOTTOM, TOP)
    width = min(18.0, 0.6 * (x(1) - x(0)))
    marks = []
    for index, point in enumerate(points):
        if point is None:
            continue
        low, high = y(point.defect.lower), y(point.defect.upper)
        span = tag(
            "rect",
            class_="bar span",
            x=x(index) - width / 2,
            y=high,
            width=width,
            height=max(2.0, low - high),
            rx=min(3.0, width / 3),
        )
        label = f"{point.label}: {point.defect.lower:.3g} … {point.defect.upper:.3g}"
        marks.append(tag("a", tag("title", label), span, href=f"#{point.target}"))
    every = max(1, math.ceil(len(points) / 12))
    ticks = [_x_tick(x(i), str(i), height) for i in range(0, len(points), every)]
    rows = [_y_tick(y(v), f"{v:.4g}") for v in nice_ticks(0, 1, 5)]
    said = f"Bounds of the relative defect of {sum(p is not None for p in points)} blocks"
    return _svg(said, height, *rows, *marks, *ticks, role="group")


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """At most about ``most`` round numbers between the two.

    >>> nice_ticks(-3.2, 4.5, 7)
    [-2.0, 0.0, 2.0, 4.0]
    """
    if not high > low:
        return [low]
    rough = (high - low) / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * f for f in (1, 2, 5, 10) if size * f >= rough)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


@dataclass(frozen=True)
class _Scale:
    """An affine map of [low, high] to [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def _svg(said: str, height: float, *content: str, role: str = "img") -> Markup:
    box = f"0 0 {WIDTH} {height:g}"
    return tag("svg", *content, viewBox=box, role=role, aria_label=said)


def _x_tick(x: float, text: str, height: float = HEIGHT) -> Markup:
    foot = height - BOTTOM
    line = tag("line", class_="tick", x1=x, x2=x, y1=foot, y2=foot + 4)
    return join(line, _text(x, foot + 16, text, "middle"))


def _y_tick(y: float, text: str) -> Markup:
    line = tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)
    return join(line, _text(LEFT - 6, y + 4, text, "end"))


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return tag("text", text, x=x, y=y, text_anchor=anchor)
