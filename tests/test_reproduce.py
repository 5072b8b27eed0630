"""The reproduction: what fails is reported as failed, and every statement holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from test_html import Page
from test_malformed import Unskip

import unskip.reproduce as reproduce
from unskip.blocks import ResidualBlock
from unskip.reproduce.experiment import Result, experiment
from unskip.reproduce.widths import least_width


@experiment("none")
def false_claim(rng: np.random.Generator) -> Result:
    """One is two.

    Tried: comparing.
    """
    return Result(1 == 2, {"drawn": float(rng.random())})


def test_an_experiment_is_seeded_and_reads_its_docstring() -> None:
    assert (false_claim.name, false_claim.statement) == ("false-claim", "One is two.")
    assert false_claim.tried == "comparing."
    assert dict(false_claim().result.numbers) == dict(false_claim().result.numbers)


def test_a_failure_exits_with_one_and_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "EXPERIMENTS", (false_claim,))
    call = Unskip(capsys, monkeypatch)
    outcome = call("reproduce", "--out", tmp_path)
    assert outcome.code == 1
    assert outcome.out.startswith("FAILED  false-claim")
    written = json.loads((tmp_path / "reproduction.json").read_text())
    assert written["summary"] == {"experiments": 1, "passed": 0}
    page = Page((tmp_path / "reproduction.html").read_text())
    assert page.text["p"][0] == "0 of 1 statements held; 1 did not."
    assert call("reproduce", "--out", tmp_path).code == 2  # not without --force


def test_the_exhaustive_width_by_hand() -> None:
    # x + relu(x) = 2 relu(x) - relu(-x): a twin; x - relu(x) = -relu(-x): one neuron
    for down, least in ((1.0, 2), (-1.0, 1), (0.0, 2)):
        block = ResidualBlock(w_up=[[1.0]], w_down=[[down]], activation="relu")
        assert least_width(block) == least


@pytest.mark.slow
@pytest.mark.parametrize("tried", reproduce.EXPERIMENTS, ids=lambda e: e.name)
def test_every_statement_holds(tried: reproduce.Experiment) -> None:
    outcome = tried()
    assert outcome.result.passed, dict(outcome.result.numbers)
