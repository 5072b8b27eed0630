"""Forged certificates that once were, or could have been, accepted.  Each states a falsehood."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unskip import Certificate, Interval, InvalidCertificate, ResidualBlock, check, decide
from unskip.activations import prelu
from unskip.certificates import Answer, Assumptions, Rule, Scope


def forge(block: ResidualBlock, **statement: Any) -> Certificate:
    honest: dict[str, Any] = {
        "block": "x",
        "answer": Answer.NOT_ABSORBABLE,
        "scope": Scope.THIS_WIDTH,
        "rule": Rule.SUBSET_CONDITION,
        "assumptions": Assumptions(
            bool(block.hidden_biases),
            block.b_down is not None,
            "mean" if block.norm == "post-layernorm" else "nothing",
            block.activation.slopes is not None,
        ),
        "activation": block.activation_name,
        "gated": block.gated,
        "norm": block.norm.value,
        "d": block.d,
        "m": block.m,
        "defect": Interval(0.0, 1.0),
        "width": Interval(0, math.inf),
        "data": {"evidence": "none"},
        "arrays": {"achieved": np.zeros(0, np.int32)},
    }
    return Certificate(**(honest | statement))


UNDECIDED = {"answer": Answer.UNKNOWN, "rule": Rule.UNDECIDED}
FLIP = {"answer": Answer.ABSORBABLE, "defect": Interval(0, 0), "data": {"evidence": "flip"}}


def refused(certificate: Certificate, block: ResidualBlock, directory: Path) -> None:
    """Refused in memory and, where it can be written, from files."""
    with pytest.raises(InvalidCertificate):
        check(certificate, block)
    if all(a.dtype.kind == "i" for a in certificate.arrays.values()):
        path = certificate.save(directory, "forged")
        with pytest.raises(InvalidCertificate):
            check(Certificate.load(path), block)


def test_differences_of_narrow_integers_wrap(tmp_path: Path) -> None:
    """int8: 100 → −60 looks like an increase of 96, so that neurons would count twice."""
    rng = np.random.default_rng(0)
    up = rng.integers(-(2**20), 2**20, (128, 2)).astype(float)
    down = rng.integers(-(2**20), 2**20, (2, 128)).astype(float)
    up[3], up[4] = [1, 0], [0, 1]
    listed = np.array([3, 4, 100, -60, 3, 4], np.int8)
    down[:, [3, 4]] = -(np.eye(2) + down[:, [100, 68]] @ up[[100, 68]]) / 2
    assert not (np.eye(2) + down[:, listed] @ up[listed]).any()
    block = ResidualBlock(w_up=up, w_down=down, activation="relu")
    refused(forge(block, **FLIP, arrays={"achieved": listed}), block, tmp_path)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_least_integer_has_no_magnitude(dtype: type, tmp_path: Path) -> None:
    """np.abs(−2⁶³) is negative, and two of them sum to zero modulo 2⁶⁴."""
    block = ResidualBlock(
        w_up=[[1.0, -1.0]],
        w_down=[[1.0], [0.0]],
        skip=-1.0,
        activation="relu",
        b_down=[0.0, 0.0],
        norm="post-layernorm",
    )
    assert decide(block).answer == "absorbable"
    dual = np.zeros((2, 2), dtype)
    dual[:, 1] = np.iinfo(dtype).min
    arrays = {"achieved": np.zeros(0, np.int32), "dual": dual}
    forged = forge(block, data={"evidence": "matrix"}, arrays=arrays, width=Interval(2, 5))
    refused(forged, block, tmp_path)


def test_column_sums_that_overflow(tmp_path: Path) -> None:
    """Entries below 2⁵³, of which 2,050 sum to exactly 2⁶⁴."""
    d = 2050
    index = np.arange(1, d)
    up, down = np.zeros((d - 1, d)), np.zeros((d, d - 1))
    up[index - 1, index], up[:, 0], down[index, index - 1] = 1, -1, -1
    block = ResidualBlock(
        w_up=up, w_down=down, activation="relu", b_down=np.zeros(d), norm="post-layernorm"
    )
    total = np.eye(d) + down @ up
    assert (total == total[:1]).all()  # flipping every neuron absorbs
    each, rest = divmod(2**64, d)
    dual = np.zeros((d, d), np.int64)
    dual[:, 0] = each
    dual[:rest, 0] += 1
    arrays = {"achieved": np.zeros(0, np.int32), "dual": dual}
    refused(forge(block, data={"evidence": "matrix"}, arrays=arrays), block, tmp_path)


def test_bounds_that_are_not_numbers_to_compare_with(tmp_path: Path) -> None:
    """∞ − ∞ when centring: a comparison with NaN must not let a bound through."""
    block = ResidualBlock(
        w_up=np.eye(2) * 1e200,
        w_down=[[1e200, 1e200], [0, 0]],
        activation="gelu",
        norm="post-layernorm",
    )
    for upper in (0.0, 1e-9):
        arrays = {"achieved": np.array([0, 1], np.int32)}
        forged = forge(block, **UNDECIDED, defect=Interval(0, upper), arrays=arrays)
        refused(forged, block, tmp_path)


@pytest.mark.parametrize("skip", [1.6e-162, 1.2 * 2.0**-537, 1e-190, 5e-324])
def test_norms_that_underflow(skip: float, tmp_path: Path) -> None:
    block = ResidualBlock(
        w_up=np.eye(2) * 1e-163, w_down=-2 * np.eye(2), skip=skip, activation="relu"
    )
    arrays = {"achieved": np.array([0, 1], np.int32)}
    for bounds in (Interval(0, 1e-12), Interval(1.05, 2.0)):
        refused(forge(block, **UNDECIDED, defect=bounds, arrays=arrays), block, tmp_path)
        refused(forge(block, data={"evidence": "trace"}, defect=bounds), block, tmp_path)
    check(decide(block).certificate, block)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e-100, 1.0, 1e100, 1e200, 1e300])
def test_weights_of_every_scale_are_decided_soundly(scale: float) -> None:
    rng = np.random.default_rng(3)
    up, down = rng.integers(-8, 9, (2, 6, 3)) / 8.0
    down = down.T
    skip = -(down[:, [0, 2, 5]] @ up[[0, 2, 5]])
    scale = 2.0 ** round(math.log2(scale))
    block = ResidualBlock(w_up=up, w_down=down * scale, skip=skip * scale, activation="gelu")
    verdict = decide(block)
    check(verdict.certificate, block)
    assert verdict.answer == "absorbable"
    wrong = dataclasses.replace(block, skip=skip * scale * (1 + 2**-20))
    verdict = decide(wrong)
    check(verdict.certificate, wrong)
    assert verdict.answer == "not absorbable"


def test_a_zero_neuron_may_be_a_constant() -> None:
    """softplus(0) = log 2: x + 2 softplus(x) + 3 log 2 needs more than two bias-free neurons."""
    for column in (-1.0, 2.0):
        block = ResidualBlock(w_up=[[1.0], [0.0]], w_down=[[column, 3.0]], activation="softplus")
        verdict = decide(block)
        check(verdict.certificate, block)
        assert verdict.width.upper >= 2
    assert verdict.answer != "absorbable"


def test_slopes_that_are_kept_leave_no_others() -> None:
    """One ReLU and five |z|: the odd part at infinity of any replacement has rank at most 1."""
    rng = np.random.default_rng(0)
    up = rng.integers(-9, 10, (6, 2)) + np.eye(6, 2) / 4
    down = np.zeros((2, 6))
    down[:, 0] = 1
    block = ResidualBlock(w_up=up, w_down=down, activation=prelu([0.0, -1, -1, -1, -1, -1]))
    assert np.linalg.matrix_rank(np.eye(2) + np.outer(down[:, 0], up[0]) / 2) == 2
    verdict = decide(block)
    assert verdict.answer != "absorbable"
    check(verdict.certificate, block)


def test_groups_of_different_slopes_do_not_merge(tmp_path: Path) -> None:
    kinks = 6
    block = ResidualBlock(
        w_up=np.ones((2 * kinks, 1)),
        b_up=np.repeat(np.arange(kinks) * 1.0, 2),
        w_down=np.tile([[1.0, -1.0]], kinks),
        b_down=[0.0],
        activation=prelu(np.tile([0.0, 0.5], kinks)),
    )
    slopes = np.diff(block(np.linspace(-7.5, 2.5, 11)[:, None])[:, 0])
    assert len(np.unique(np.round(slopes, 9))) >= kinks  # as many pieces as two neurons can't make
    forged = forge(block, answer=Answer.ABSORBABLE, rule=Rule.MINIMAL_WIDTH, width=Interval(0, 2))
    refused(forged, block, tmp_path)


def test_an_output_bias_is_a_hidden_bias_of_the_next_block() -> None:
    first = ResidualBlock(
        w_up=[[1.0], [-1.0]], w_down=[[0.0, 0.0]], b_down=[1.0], activation="relu_squared"
    )
    second = ResidualBlock(
        w_up=[[1.0], [-1.0]], w_down=[[-0.5, -0.5]], b_down=[-0.5], activation="relu_squared"
    )
    x = np.linspace(-3, 3, 101)[:, None]
    assert np.allclose(second(first(x)), -(x**2) / 2, atol=1e-12)  # = −½r(x)² − ½r(−x)²
    for block in (first, second):
        certificate = decide(block, output_bias=False).certificate
        assert certificate.scope == "any width"
        with pytest.raises(InvalidCertificate):
            check(dataclasses.replace(certificate, scope=Scope.ANY_DEPTH), block)


def test_certificates_made_of_other_types() -> None:
    block = ResidualBlock(
        w_up=[[1.0, -1.0]],
        w_down=[[1.0], [0.0]],
        skip=-1.0,
        activation="relu",
        norm="post-layernorm",
    )
    fractional = np.array([[0.0, 0.4], [0.0, 0.4]])  # whose integer sums are zero
    for arrays in (
        {"dual": fractional},
        {"dual": fractional.astype(object)},
        {"achieved": np.array(["a"])},
        {"achieved": np.array([0.0])},
        {"achieved": [0]},
    ):
        whole = {"achieved": np.zeros(0, np.int32), "dual": np.eye(2, dtype=np.int16)} | arrays
        with pytest.raises(InvalidCertificate):
            check(forge(block, data={"evidence": "matrix"}, arrays=whole), block)
    honest = decide(block).certificate
    for change in (
        {"scope": "any width, depth, norm and activation"},
        {"answer": "absorbable"},
        {"width": (0, 9)},
        {"assumptions": dataclasses.replace(honest.assumptions, hidden_bias=1)},
    ):
        with pytest.raises(InvalidCertificate):
            check(dataclasses.replace(honest, **change), block)


def test_a_flip_leaves_a_defect_of_zero() -> None:
    block = ResidualBlock(w_up=np.eye(2), w_down=-np.eye(2), activation="relu")
    honest = decide(block).certificate
    for bounds in (Interval(-2.0, -1.0), Interval(1e-300, 1.0)):
        with pytest.raises(InvalidCertificate):
            check(dataclasses.replace(honest, defect=bounds), block)


@pytest.mark.parametrize("text", ["1e999", "1" + "0" * 400, "-1e999"])
def test_bounds_beyond_float64(text: str, tmp_path: Path) -> None:
    block = ResidualBlock(w_up=np.eye(2), w_down=np.eye(2), activation="gelu")
    path = decide(block).certificate.save(tmp_path, "c")
    honest = path.read_text()
    path.write_text(honest.replace('"defect": [', f'"defect": [{text}, '))
    with pytest.raises(InvalidCertificate):
        Certificate.load(path)
    path.write_text(honest.replace('"answer"', '"answer": "absorbable", "answer"'))
    with pytest.raises(InvalidCertificate, match="twice"):
        Certificate.load(path)
