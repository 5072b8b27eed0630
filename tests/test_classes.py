"""Classes of activations beyond the subset condition, each against an independent oracle."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from unskip import InvalidCertificate, ResidualBlock, check, decide


@pytest.mark.parametrize("activation", ["tanh", "mish", "square", "cube", "abs", "relu_squared"])
@pytest.mark.parametrize("gated", [False, True])
def test_a_skip_that_does_not_show_is_left_out(activation: str, gated: bool) -> None:
    rng = np.random.default_rng(3)
    mean = np.ones((3, 1)) * [2.0, -1.0, 0.5]
    for change in ({"skip": 0.0}, {"skip": mean, "norm": "post-layernorm"}):
        block = ResidualBlock(
            w_up=rng.normal(size=(4, 3)),
            w_gate=rng.normal(size=(4, 3)) if gated else None,
            w_down=rng.normal(size=(3, 4)),
            b_up=rng.normal(size=4),
            b_down=rng.normal(size=3),
            activation=activation,
            **change,
        )
        verdict = decide(block)
        assert (verdict.answer, verdict.rule) == ("absorbable", "invisible-skip")
        assert verdict.width.upper == 4
        check(verdict.certificate, block)
        x = rng.normal(size=(20, 3))
        bare = dataclasses.replace(block, skip=0.0)
        assert np.allclose(block(x), bare(x), rtol=1e-9, atol=1e-12)
        for forged in ({"skip": np.eye(3) * 2.0**-60}, {"skip": mean + np.eye(3)}):
            with pytest.raises(InvalidCertificate):
                check(verdict.certificate, dataclasses.replace(block, **forged))
        strict = decide(block, output_bias=False)
        assert strict.answer == "unknown"
        assert "biases" in strict.reason
        check(strict.certificate, block)
