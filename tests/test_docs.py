"""The examples in docstrings and in the documentation run, and show what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import unskip

ROOT = Path(__file__).parent.parent
MODULES = sorted(m.name for m in pkgutil.walk_packages(unskip.__path__, "unskip."))


@pytest.mark.parametrize("name", ["unskip", *MODULES])
def test_docstrings(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("page", ["docs/certificates.md"])
def test_python_in_pages_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / page).read_text()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", text, flags=re.S):
        exec(code, names)
    printed = " ".join(capsys.readouterr().out.split())
    assert printed
    assert printed in " ".join(text.split())  # the page shows what its code prints


def test_the_readme_shows_what_happens(tmp_path: Path) -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)[0]
    names: dict[str, object] = {}
    exec(code.split("for report in")[0], names)
    verdict = names["verdict"]
    assert (verdict.answer, verdict.subset) == ("absorbable", (0, 1))
