"""MkDocs hook: Sphinx roles of docstrings, :class:`Name`, become plain code."""

import re
from typing import Any


def on_page_content(html: str, **_: Any) -> str:
    """Called by MkDocs with each rendered page."""
    return re.sub(r":(?:class|func|meth|data|mod):(?=<code>|<a )", "", html)
