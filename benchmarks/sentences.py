"""Distinct English sentences from what is installed: docstrings of the standard library and of
the scientific packages, which need no download.  The same installation gives the same
sentences in the same order; calibration and held-out sets are disjoint.

    python benchmarks/sentences.py 10
"""

from __future__ import annotations

import ast
import importlib.util
import random
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

#: Packages whose docstrings are prose; those that are not installed are skipped.
PACKAGES = ("numpy", "scipy", "sklearn", "networkx", "transformers")

_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_WORD = re.compile(r"[A-Za-z][a-z'-]*[,;]?")


def sentences() -> list[str]:
    """All of them, in a fixed random order."""
    found = {s for file in sorted(_files()) for s in _sentences_of(file)}
    ordered = sorted(found)
    random.Random(0).shuffle(ordered)
    return ordered


def split(calibration: int, held_out: int) -> tuple[list[str], list[str]]:
    """Two disjoint sets; the held-out one is the same whatever the size of the other."""
    every = sentences()
    if len(every) < calibration + held_out:
        raise SystemExit(f"only {len(every)} sentences are installed")
    return every[held_out : held_out + calibration], every[:held_out]


def _files() -> Iterator[Path]:
    standard = Path(sysconfig.get_path("stdlib"))
    for file in standard.rglob("*.py"):
        if not {"site-packages", "test", "tests"} & set(file.relative_to(standard).parts):
            yield file
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            yield from (f for f in Path(folder).rglob("*.py") if "tests" not in f.parts)


def _sentences_of(file: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for paragraph in re.split(r"\n\s*\n", ast.get_docstring(node) or ""):
                for sentence in _END.split(" ".join(paragraph.split())):
                    if _is_english(sentence):
                        yield sentence


def _is_english(sentence: str) -> bool:
    words = sentence.split()
    if not (6 <= len(words) <= 40 and sentence[0].isupper() and sentence[-1] in ".!?"):
        return False
    return all(_WORD.fullmatch(word) for word in words[:-1])


if __name__ == "__main__":
    chosen = sentences()
    print(len(chosen), "sentences", file=sys.stderr)
    print("\n".join(chosen[: int(sys.argv[1]) if len(sys.argv) > 1 else 10]))
