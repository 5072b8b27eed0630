"""The subset condition (§4, §5), linear skips (§1), norms (§8) and gates (§9)."""

from __future__ import annotations

from importlib import resources

import numpy as np

from unskip import reduction
from unskip.audit import audit
from unskip.blocks import PlainBlock, ResidualBlock
from unskip.certificates import Answer
from unskip.checker import check
from unskip.decision import decide
from unskip.equivalence import compare
from unskip.reports import charts
from unskip.reproduce.blocks import (
    Generator,
    flipped,
    planted_block,
    random_block,
    random_gated,
)
from unskip.reproduce.experiment import Number, Result, experiment

TRIALS = 10_000


@experiment("Theorems 8 and 10; theory §4")
def planted(rng: Generator) -> Result:
    """If A + Σ_S κ_j d_j u_jᵀ = 0, flipping the neurons of S absorbs the skip exactly.

    Tried: 100 integer blocks with a planted set, d = 6, m = 30, ReLU, GELU and SiLU: the
    verdict, its certificate, and a proof that the flipped block is the same function.
    """
    found = equal = 0
    for i in range(100):
        block, chosen = planted_block(rng, 6, 30, ("relu", "gelu", "silu")[i % 3])
        verdict = decide(block)
        check(verdict.certificate, block)
        found += verdict.subset is not None
        equal += bool(compare(block, flipped(block, chosen)).proved)
    numbers = {"blocks": 100, "absorbable": found, "equal to the flipped block, proved": equal}
    return Result(found == equal == 100, numbers)


@experiment("Corollary 11; theory §4")
def random_weights(rng: Generator) -> Result:
    """For almost all weights no set of neurons satisfies the condition (d ≥ 2): the skip
    cannot be absorbed at the block's own width.

    Tried: 10,000 blocks of Gaussian weights, d = 4, m = 12, GELU and ReLU in turn: the
    verdicts, and the proved lower bounds of their defects; every hundredth certificate is
    checked.
    """
    refused, bounds = 0, []
    for i in range(TRIALS):
        block = random_block(rng, 4, 12, ("gelu", "relu")[i % 2])
        verdict = decide(block, quick=True)
        if i % 100 == 0:
            check(verdict.certificate, block)
        refused += verdict.answer is Answer.NOT_ABSORBABLE
        bounds.append(verdict.defect.lower if verdict.defect else np.nan)
    low, middle, high = np.quantile(bounds, [0.01, 0.5, 0.99])
    counts, edges = np.histogram(bounds, 50, (0.0, 1.0))
    numbers = {
        "blocks": TRIALS,
        "not absorbable": refused,
        "defect, 1 %": float(low),
        "defect, median": float(middle),
        "defect, 99 %": float(high),
    }
    return Result(refused == TRIALS, numbers, charts.bars(edges, counts, "blocks"))


@experiment("Corollary 11; theory §5")
def trained_weights(rng: Generator) -> Result:
    """Nor does it hold for trained weights.

    Tried: The three blocks of the network that ships with the package, trained on handwritten
    digits: verdicts, certificates and bounds of the defect.
    """
    with resources.as_file(resources.files("unskip") / "data" / "digits.safetensors") as path:
        reports = list(audit(path))
        for report in reports:
            check(report.verdict.certificate, report.block)
    numbers: dict[str, Number] = {"blocks": len(reports)}
    for report in reports:
        defect = report.verdict.defect
        assert defect is not None
        numbers[report.name] = f"{defect.lower:.4f} … {defect.upper:.4f}"
    return Result(all(r.verdict.answer is Answer.NOT_ABSORBABLE for r in reports), numbers)


@experiment("Lemma 4; theory §1")
def linear_skips(rng: Generator) -> Result:
    """For an invertible skip A, A x + M(x) is absorbable exactly if x + A⁻¹M(x) is.

    Tried: 100 pairs, d = 4, m = 10, half of them planted: A is a product of elementary integer
    matrices, so that A⁻¹M has integer weights too and both verdicts are about exact weights.
    """
    agree = absorbable = 0
    for i in range(100):
        a, inverse = _unimodular(rng, 4)
        up = rng.integers(-3, 4, size=(10, 4)).astype(np.float64)
        down = rng.integers(-3, 4, size=(4, 10)).astype(np.float64)
        if i % 2:  # the last four neurons are set so that they and the rest of S give −I
            up[6:] = np.eye(4)
            down[:, 6:] = -np.eye(4) - down[:, :2] @ up[:2]
        identity = ResidualBlock(w_up=up, w_down=down, activation="gelu")
        general = ResidualBlock(w_up=up, w_down=a @ down, activation="gelu", skip=a)
        assert np.array_equal(inverse @ (a @ down), down)
        answers = [decide(block).answer for block in (identity, general)]
        agree += answers[0] == answers[1]
        absorbable += answers[0] is Answer.ABSORBABLE
    numbers = {"pairs": 100, "same answer": agree, "absorbable": absorbable}
    return Result(agree == 100 and absorbable >= 50, numbers)


def _unimodular(
    rng: Generator, d: int
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.float64]], ...]:
    """An integer matrix of determinant 1 and its inverse."""
    a, inverse = np.eye(d), np.eye(d)
    for _ in range(6):
        i, j = rng.permutation(d)[:2]
        factor = float(rng.integers(-1, 2))
        a[i] += factor * a[j]
        inverse[:, j] -= factor * inverse[:, i]
    return a, inverse


@experiment("theory §1")
def hyper_connections(rng: Generator) -> Result:
    """Static Hyper-Connections of n ≥ 2 streams never satisfy the condition: the linear parts
    of the flipped neurons have rank at most d < nd.

    Tried: 50 blocks of Gaussian weights, d = 3, m = 12, n = 2 and 3, with invertible mixing:
    the verdicts and their certificates.
    """
    refused = 0
    for i in range(50):
        n = 2 + i % 2
        block = random_block(rng, 3, 12, "gelu")
        mixing = rng.normal(size=(n, n))
        wide = reduction.hyper_connection(block, mixing, rng.normal(size=n), rng.normal(size=n))
        verdict = decide(wide.block)
        check(verdict.certificate, wide.block)
        refused += verdict.answer is Answer.NOT_ABSORBABLE
    return Result(refused == 50, {"blocks": 50, "not absorbable": refused})


@experiment("theory §8")
def following_norms(rng: Generator) -> Result:
    """Before a LayerNorm the condition is weaker, Z(A + Σ_S R_j) = 0, as the mean is
    discarded; before an RMSNorm it is the same as without.

    Tried: 50 integer blocks whose planted set leaves 1aᵀ, d = 4, m = 12: the verdicts without
    a norm, before an RMSNorm and before a LayerNorm.
    """
    absorbed = {"none": 0, "post-rmsnorm": 0, "post-layernorm": 0}
    for _ in range(50):
        base, _ = planted_block(rng, 4, 12, "gelu")
        left = rng.integers(1, 5, size=4).astype(np.float64)
        for norm in absorbed:
            block = ResidualBlock(
                w_up=base.w_up,
                w_down=base.w_down,
                b_up=base.b_up,
                b_down=base.b_down,
                activation="gelu",
                skip=base.skip_matrix + left,
                norm=norm,
            )
            absorbed[norm] += decide(block).answer is Answer.ABSORBABLE
    numbers = {f"absorbable, {norm}": count for norm, count in absorbed.items()}
    held = absorbed["post-layernorm"] == 50 and absorbed["none"] == absorbed["post-rmsnorm"] == 0
    return Result(held, {"blocks": 50, **numbers})


@experiment("theory §9")
def sigmoid_gates(rng: Generator) -> Result:
    """A gate with g(z) + g(−z) = κ₀ (sigmoid) is flipped with its output; the condition is
    then about the value matrix, κ₀ Σ_S d_j v_jᵀ = −A, and needs no biases.

    Tried: 50 planted integer blocks and 50 Gaussian ones, d = 4, m = 10, without biases: the
    verdicts and their certificates.
    """
    absorbed = refused = 0
    for _ in range(50):
        up = rng.integers(-9, 10, size=(10, 4)).astype(np.float64)
        down = rng.integers(-9, 10, size=(4, 10)).astype(np.float64)
        gate = rng.integers(-9, 10, size=(10, 4)).astype(np.float64)
        skip = -down[:, :6] @ up[:6]
        block = ResidualBlock(w_up=up, w_down=down, w_gate=gate, activation="sigmoid", skip=skip)
        other = random_gated(rng, 4, 10, "sigmoid")
        for asked in (block, other):
            verdict = decide(asked)
            check(verdict.certificate, asked)
            absorbed += asked is block and verdict.answer is Answer.ABSORBABLE
            refused += asked is other and verdict.answer is Answer.NOT_ABSORBABLE
    numbers = {"planted": 50, "absorbable": absorbed, "Gaussian": 50, "not absorbable": refused}
    return Result(absorbed == refused == 50, numbers)


@experiment("theory §9")
def gate_bias_remedy(rng: Generator) -> Result:
    """A bias-free SwiGLU can be written without its skip if the gate may have a bias: d more
    units with w = 0 carry the skip.

    Tried: 20 Gaussian blocks, d = 6, m = 16: the block against m + d units, at 100 points.
    """
    worst = 0.0
    for _ in range(20):
        block = random_gated(rng, 6, 16, "silu")
        assert block.w_gate is not None
        constant = float(block.activation(1.0))
        plain = PlainBlock(
            w_gate=np.vstack([block.w_gate, np.zeros((6, 6))]),
            b_gate=np.concatenate([np.zeros(16), np.ones(6)]),
            w_up=np.vstack([block.w_up, np.eye(6)]),
            w_down=np.hstack([block.w_down, np.eye(6) / constant]),
            activation="silu",
        )
        x = rng.normal(size=(100, 6))
        worst = max(worst, float(np.abs(plain(x) - block(x)).max() / np.abs(block(x)).max()))
    return Result(worst < 1e-14, {"blocks": 20, "largest relative difference": worst})


EXPERIMENTS = (
    linear_skips,
    hyper_connections,
    planted,
    random_weights,
    trained_weights,
    following_norms,
    sigmoid_gates,
    gate_bias_remedy,
)
