"""The unconditional rules (§3), each with what makes it true, measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

import numpy as np

from unskip.activations import resolve
from unskip.blocks import ResidualBlock
from unskip.certificates import Rule, Scope
from unskip.checker import check
from unskip.decision import decide
from unskip.reproduce.blocks import Array, Generator, random_block, random_gated
from unskip.reproduce.experiment import Result, experiment

D, M, TIMES = 5, 12, 20


def _all_refused(blocks: Iterable[ResidualBlock], rule: Rule, scopes: Sequence[Scope]) -> bool:
    """Whether each is refused by that rule and that far, with a certificate that holds."""
    for block in blocks:
        verdict = decide(block)
        check(verdict.certificate, block)
        if verdict.rule is not rule or verdict.scope not in scopes:
            return False
    return True


def _draw(make: Callable[[str], ResidualBlock], names: Sequence[str]) -> list[ResidualBlock]:
    return [make(name) for name in names for _ in range(TIMES)]


def _size(x: Array) -> float:
    return float(np.linalg.norm(x))


@experiment("Proposition 5, Corollary 7; theory §3")
def homogeneous_degree(rng: Generator) -> Result:
    """If the branch is homogeneous of degree k ≠ 1 and there are no hidden biases, the skip
    cannot be absorbed at any width, for k > 1 at any depth.

    Tried: ReLU² and cube blocks of Gaussian weights: the verdict, its certificate, and ‖M(2x)
    − 2ᵏM(x)‖ / ‖M(2x)‖.
    """
    blocks = _draw(
        lambda name: random_block(rng, D, M, name, biases=False), ("relu_squared", "cube")
    )
    worst = 0.0
    for block in blocks:
        x = rng.normal(size=(1, D))
        degree = float(block.activation.facts.homogeneity or 0)
        doubled = block.branch(2 * x)
        worst = max(worst, _size(doubled - 2**degree * block.branch(x)) / _size(doubled))
    held = _all_refused(blocks, Rule.HOMOGENEOUS_DEGREE, (Scope.ANY_DEPTH,))
    return Result(held and worst < 1e-12, {"blocks": len(blocks), "largest deviation": worst})


@experiment("Proposition 6, Corollary 7; theory §3")
def vanishing_linearisation(rng: Generator) -> Result:
    """If a gated branch without hidden biases has g(0) = 0, the skip cannot be absorbed at any
    width or depth.

    Tried: SwiGLU, GEGLU and ReGLU blocks of Gaussian weights: the verdict, its certificate,
    and ‖M(x)‖ / ‖x‖ at ‖x‖ = 10⁻⁶, where the skip has 1.
    """
    blocks = _draw(lambda gate: random_gated(rng, D, M, gate), ("silu", "gelu", "relu"))
    ratio = 0.0
    for block in blocks:
        x = rng.normal(size=(1, D))
        x *= 1e-6 / _size(x)
        ratio = max(ratio, _size(block.branch(x)) / 1e-6)
    refused = (Rule.VANISHING_LINEARISATION, Rule.HOMOGENEOUS_DEGREE)
    held = all(any(_all_refused([b], rule, (Scope.ANY_DEPTH,)) for rule in refused) for b in blocks)
    return Result(held and ratio < 1e-4, {"blocks": len(blocks), "largest ‖M(x)‖/‖x‖": ratio})


@experiment("theory §3")
def sublinear_growth(rng: Generator) -> Result:
    """If the activation is bounded, the skip cannot be absorbed at any width or depth,
    whatever the biases.

    Tried: tanh, sigmoid, erf, ReLU6 and Gaussian blocks with biases: the verdict, its
    certificate, and ‖M(x)‖ / ‖x‖ at ‖x‖ = 10⁶.
    """
    names = ("tanh", "sigmoid", "erf", "relu6", "gaussian")
    blocks = _draw(lambda name: random_block(rng, D, M, name), names)
    ratio = 0.0
    for block in blocks:
        x = rng.normal(size=(1, D))
        x *= 1e6 / _size(x)
        ratio = max(ratio, _size(block.branch(x)) / 1e6)
    held = _all_refused(blocks, Rule.SUBLINEAR_GROWTH, (Scope.ANY_WIDTH, Scope.ANY_DEPTH))
    return Result(held and ratio < 1e-4, {"blocks": len(blocks), "largest ‖M(x)‖/‖x‖": ratio})


@experiment("theory §3")
def even_activation(rng: Generator) -> Result:
    """If the activation is even and there are no hidden biases, the skip cannot be absorbed at
    any width by one block; two blocks can: h = x + 2|x| has h − |h| = 0.

    Tried: |z| blocks of Gaussian weights: the verdict and its certificate; h − |h| on 1,001
    fractions, exactly.
    """
    blocks = _draw(lambda name: random_block(rng, D, M, name, biases=False), ("abs",))
    held = _all_refused(blocks, Rule.EVEN_ACTIVATION, (Scope.ANY_WIDTH,))
    points = [Fraction(i, 7) for i in range(-500, 501)]
    left = max(abs(h - abs(h)) for h in (x + 2 * abs(x) for x in points))
    return Result(held and left == 0, {"blocks": len(blocks), "largest h − |h|": str(left)})


@experiment("theory §3")
def even_recession(rng: Generator) -> Result:
    """Blocks of |z| neurons cannot absorb their skip at any width, even with biases: far out
    they are even.

    Tried: |z| blocks with biases: the verdict, its certificate, and ‖M(x) − M(−x)‖ / ‖x‖ at
    ‖x‖ = 10⁶, where the skip has 2.
    """
    blocks = _draw(lambda name: random_block(rng, D, M, name), ("abs",))
    ratio = 0.0
    for block in blocks:
        x = rng.normal(size=(1, D))
        x *= 1e6 / _size(x)
        ratio = max(ratio, _size(block.branch(x) - block.branch(-x)) / 1e6)
    held = _all_refused(blocks, Rule.EVEN_RECESSION, (Scope.ANY_WIDTH,))
    return Result(held and ratio < 1e-4, {"blocks": len(blocks), "largest ratio": ratio})


@experiment("theory §3")
def one_sided_independence(rng: Generator) -> Result:
    """Mish, ELU, CELU and SELU neurons are linearly independent of each other and of affine
    functions, so the skip cannot be absorbed at any width.

    Tried: Blocks with biases: the verdict and its certificate; and, for six neurons on a line,
    the least singular value of {1, x, σ(αx + β)} on 400 points, columns of norm 1.
    """
    names = ("mish", "elu", "celu", "selu")
    blocks = _draw(lambda name: random_block(rng, D, M, name), names)
    x = np.linspace(-12, 12, 400)
    slopes, shifts = np.array([-2.0, -1.3, -0.6, 0.7, 1.4, 2.1]), np.array([1, -1, 2, 0, -2, 1.5])
    least = np.inf
    for name in names:
        neurons = resolve(name)(np.outer(x, slopes) + shifts)
        features = np.column_stack([np.ones_like(x), x, neurons])
        features /= np.linalg.norm(features, axis=0)
        least = min(least, float(np.linalg.svd(features, compute_uv=False)[-1]))
    held = _all_refused(blocks, Rule.ONE_SIDED_INDEPENDENCE, (Scope.ANY_WIDTH,))
    return Result(held and least > 1e-8, {"blocks": len(blocks), "least singular value": least})


@experiment("theory §3")
def pre_norm(rng: Generator) -> Result:
    """The skip around a pre-norm branch, x + M(N(x)), cannot be absorbed into G(N(x)): N is
    bounded.

    Tried: Pre-LayerNorm and pre-RMSNorm GELU and SwiGLU blocks: the verdict, its certificate,
    and ‖M(N(x))‖ / ‖x‖ at ‖x‖ = 10⁶.
    """
    norms = ("pre-layernorm", "pre-rmsnorm")
    blocks = _draw(lambda norm: random_block(rng, D, M, "gelu", norm=norm), norms)
    blocks += _draw(lambda norm: random_gated(rng, D, M, "silu", norm=norm), norms)
    ratio = 0.0
    for block in blocks:
        x = rng.normal(size=(1, D))
        x *= 1e6 / _size(x)
        ratio = max(ratio, _size(block(x) - x) / 1e6)
    held = _all_refused(blocks, Rule.PRE_NORM, (Scope.ANY_WIDTH,))
    return Result(held and ratio < 1e-4, {"blocks": len(blocks), "largest ‖M(N(x))‖/‖x‖": ratio})


@experiment("theory §3")
def linear_rank(rng: Generator) -> Result:
    """If the activation is linear, the block is absorbable exactly if the rank of A + a·DU is
    at most m.

    Tried: Integer blocks with d = 6, m = 3, of which half are made with rank A + DU ≤ 3: the
    verdict against the rank of the integer matrix.
    """
    right = absorbable = 0
    for i in range(2 * TIMES):
        up, down = rng.integers(-4, 5, size=(3, 6)), rng.integers(-4, 5, size=(6, 3))
        if i % 2:
            skip = rng.integers(-4, 5, size=(6, 3)) @ rng.integers(-4, 5, size=(3, 6)) - down @ up
        else:
            skip = np.eye(6)
        block = ResidualBlock(
            w_up=up, w_down=down, activation="identity", skip=skip.astype(np.float64)
        )
        fits = int(np.linalg.matrix_rank(skip + down @ up)) <= 3
        verdict = decide(block)
        check(verdict.certificate, block)
        right += (verdict.answer == "absorbable") == fits
        absorbable += fits
    numbers = {"blocks": 2 * TIMES, "absorbable": absorbable, "verdicts as the rank says": right}
    return Result(right == 2 * TIMES and 0 < absorbable < 2 * TIMES, numbers)


@experiment("theory §9")
def biases_matter(rng: Generator) -> Result:
    """The bias assumption is needed: with hidden biases ReLU² and SwiGLU can absorb on a null
    set of weights.

    Tried: x + ½r(x)² − ½r(x+1)² = −½r(−x)² + ½r(−x−1)² − ½ on 1,001 fractions, exactly; x +
    silu(x)(x+1) − silu(x+2)x: the verdict and its certificate.
    """

    def r(z: Fraction) -> Fraction:
        return max(z, Fraction(0)) ** 2

    points = [Fraction(i, 7) for i in range(-500, 501)]
    half = Fraction(1, 2)
    gap = max(abs(x + half * (r(x) - r(x + 1)) - half * (r(-x - 1) - r(-x)) + half) for x in points)
    block = ResidualBlock(
        w_gate=[[1.0], [1.0]],
        b_gate=[0.0, 2.0],
        w_up=[[1.0], [1.0]],
        b_up=[1.0, 0.0],
        w_down=[[1.0, -1.0]],
        activation="silu",
    )
    verdict = decide(block)
    check(verdict.certificate, block)
    numbers = {"ReLU²: largest difference": str(gap), "SwiGLU": verdict.answer.value}
    return Result(gap == 0 and verdict.answer == "absorbable", numbers)


EXPERIMENTS = (
    homogeneous_degree,
    vanishing_linearisation,
    sublinear_growth,
    even_activation,
    even_recession,
    one_sided_independence,
    pre_norm,
    linear_rank,
    biases_matter,
)
