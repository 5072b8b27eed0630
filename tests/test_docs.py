"""The examples in docstrings and in the documentation run, and show what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_malformed import BERT, CONFIG, LLAMA, LLAMA_LAYER, Unskip, write_directory

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


#: Pages that are read from top to bottom: each block of code runs, and shows what follows it.
PAGES = ("README.md", "docs/index.md", "docs/tour.md", "docs/audit.md")


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the pages run: a directory with the models that they speak of."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "path" / "to").mkdir(parents=True)
    config = {**CONFIG, "num_hidden_layers": 2}
    write_directory(tmp_path / "path" / "to" / "model", config, BERT)
    tensors = {name: np.random.default_rng(0).normal(size=s) for name, s in LLAMA_LAYER.items()}
    write_directory(tmp_path / "path" / "to" / "llama", LLAMA, tensors)


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("page", PAGES)
def test_pages_run_and_show_what_happens(
    page: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, object] = {}
    printed = None
    fenced = r"^```(\w*)\n(.*?)^```"
    for language, text in re.findall(fenced, (ROOT / page).read_text(), re.S | re.M):
        if language == "text":
            assert printed, f"nothing is printed where the page shows {text!r}"
            assert_shows(text, printed)
            printed = None
            continue
        assert not printed, f"the page does not show what is printed: {printed}"
        if language == "python":
            exec(text, names)
            printed = capsys.readouterr().out
        elif language == "console":
            for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.M):
                program, *arguments = shlex.split(command, comments=True)
                assert program == "unskip"
                outcome = Unskip(capsys, monkeypatch)(*arguments)
                assert (outcome.code, outcome.err) == (0, ""), command
                if shown:
                    assert_shows(shown, outcome.out)
    assert not printed, f"the page does not show what is printed: {printed}"


def assert_shows(page: str, output: str) -> None:
    """They agree up to white space; … stands for anything."""
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in page.split("…"))
    squeezed = " ".join(output.split())
    assert re.fullmatch(pattern, squeezed), f"{page}\n  is not\n{output}"


def test_what_a_page_shows_is_compared() -> None:
    assert_shows("a … b\n", "a 1 2\nb")
    with pytest.raises(AssertionError):
        assert_shows("a … b", "a 1 c")


@pytest.mark.slow
def test_the_site_builds(tmp_path: Path) -> None:
    """Every link of the navigation and every name of the reference is there (strict)."""
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    reference = (tmp_path / "reference.html").read_text()
    for name in ("decide", "ResidualBlock", "check", "compare", "audit"):
        assert f'id="unskip.{name}"' in reference


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_indices_are_no_emphasis(page: Path) -> None:
    """An underscore behind a sign, as in R'_h … Σ_{j}, would make the text between italic."""
    markdown = pytest.importorskip("markdown")
    text = re.sub(r"(?<!\\)\*", "∗", page.read_text())
    rendered = markdown.markdown(text, extensions=["tables", "pymdownx.superfences"])
    assert re.findall(r"<em>.*?</em>", rendered, re.S) == []
