"""HTML and SVG from nested calls: text is escaped unless it was made here.

>>> print(tag("p", "d < m, ", tag("b", "& no skip"), class_="note"))
<p class="note">d &lt; m, <b>&amp; no skip</b></p>
"""

from __future__ import annotations

from html import escape

VOID = frozenset({"br", "hr", "input", "link", "meta"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *content: str, **attributes: str | float | bool | None) -> Markup:
    """An element.  ``class_`` is class, ``aria_sort`` aria-sort; false and absent are left out."""
    written = "".join(
        f" {key.strip('_').replace('_', '-')}" + ("" if v is True else f'="{escape(_text(v))}"')
        for key, v in attributes.items()
        if v is not None and v is not False
    )
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(*content)}</{name}>")


def join(*content: str) -> Markup:
    """Several pieces in a row."""
    return Markup("".join(c if isinstance(c, Markup) else escape(printable(c)) for c in content))


def printable(text: str) -> str:
    """The text with escapes in place of characters that are not seen, or turn the direction."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def _text(value: str | float) -> str:
    return printable(value) if isinstance(value, str) else f"{value:.6g}"
