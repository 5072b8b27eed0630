"""Integer blocks with dependent rank-ones against all subsets, and the proofs against the checker.

The right answer comes from all 2^m sums in int64, of entries far below overflow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskip import ResidualBlock, check, decide
from unskip.certificates import Certificate
from unskip.decision import box, congruence, lattice, sumset, tree
from unskip.decision.merging import Merged
from unskip.decision.neurons import group
from unskip.decision.question import Question, SubsetCondition
from unskip.decision.subset import search as cascade
from unskip.errors import InvalidCertificate

Integers = npt.NDArray[np.int64]
MANY = settings(max_examples=10_000)
SOME = settings(max_examples=250)


@st.composite
def blocks(draw: st.DrawFn, most: int = 14) -> ResidualBlock:
    """Small integers, repeated and opposite rows, sometimes a planted set."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d, m = draw(st.integers(1, 3)), draw(st.integers(1, most))
    size = draw(st.sampled_from([1, 2, 5]))
    up, down = rng.integers(-size, size + 1, (m, d)), rng.integers(-size, size + 1, (d, m))
    for j in range(m):
        if rng.random() < draw(st.sampled_from([0.0, 0.3])):
            up[j] = up[rng.integers(m)] * rng.choice([1, -1, 2])
    skip = np.eye(d, dtype=np.int64) * int(rng.choice([1, 1, 2, 3]))
    match draw(st.sampled_from(["identity", "planted", "near", "any"])):
        case "planted" | "near" as kind:
            chosen = rng.random(m) < 0.5
            skip = -down[:, chosen] @ up[chosen]
            skip[0, 0] += kind == "near"
        case "any":
            skip = rng.integers(-3, 4, (d, d))
    norm = draw(st.sampled_from(["none", "none", "post-layernorm"])) if d > 1 else "none"
    bias: dict[str, Any] = {}
    if draw(st.booleans()):
        # a neuron that no input reaches is no group; its constant is another question
        bias = {"b_up": rng.integers(-2, 3, m).astype(float) * up.any(axis=1)}
    name = draw(st.sampled_from(["relu", "gelu", "leaky_relu(0.5)"]))
    return ResidualBlock(
        w_up=up.astype(float),
        w_down=down.astype(float),
        activation=name,
        skip=skip.astype(float),
        norm=norm,
        **bias,
    )


def condition_of(block: ResidualBlock) -> Merged:
    question = Question.of(block)
    kappa = block.activation.parity_constants(block.m)
    assert kappa is not None
    return Merged(SubsetCondition.of(question, kappa), group(question))


def all_sums(condition: SubsetCondition) -> Integers:
    """2Π(A + Σ_S R_j) for every S, up to the factor p of Π; bit j of the row is whether j ∈ S."""
    p = len(condition.a)
    keep = p * np.eye(p) - 1 if condition.centred else np.eye(p)
    twice = np.array([int(2 * k) for k in condition.kappa])
    terms = np.einsum("ij,jk->jik", keep @ condition.down * twice, condition.up)
    sums = (2 * keep @ condition.a).astype(np.int64).reshape(1, -1)
    for term in terms.astype(np.int64).reshape(len(terms), -1):
        sums = np.concatenate([sums, sums + term])
    return sums


def satisfying(merged: Merged, *, whole: bool) -> bool:
    """Whether some set does, of all or only of those that orient groups as a whole."""
    zero = np.flatnonzero(~all_sums(merged.original).any(axis=1)).tolist()
    subsets = (np.flatnonzero([code >> j & 1 for j in range(merged.original.m)]) for code in zero)
    return any(not whole or merged.consistent(subset) for subset in subsets)


def agrees(block: ResidualBlock) -> None:
    merged = condition_of(block)
    outcome = cascade(merged, quick=False)
    verdict = decide(block)
    if satisfying(merged, whole=True):
        assert outcome.subset is not None
    else:
        assert outcome.refuted or outcome.subset is not None
    if satisfying(merged, whole=False):
        assert verdict.answer == "absorbable"
    else:
        assert outcome.subset is None
        assert verdict.subset is None
        if merged.neurons.obstacle is None and merged.n == block.m:
            assert verdict.answer == "not absorbable"
    check(verdict.certificate, block)


@SOME
@given(blocks())
def test_the_answer_is_that_of_all_subsets(block: ResidualBlock) -> None:
    agrees(block)


@pytest.mark.slow
@MANY
@given(blocks())
def test_the_answer_is_that_of_all_subsets_ten_thousand_times(block: ResidualBlock) -> None:
    agrees(block)


def tree_agrees(block: ResidualBlock) -> None:
    """Over groups, and with nothing but pairings, relaxations and decisions."""
    merged = condition_of(block)
    equations = congruence.Equations.of(merged)
    if equations is None:  # no groups, or a centred condition of one row
        return
    possible = satisfying(merged, whole=True)
    pool = list(congruence.pairings(equations))
    assert not (possible and any(pairing.alone for pairing in pool))
    grown = tree.search(merged, equations, pool)
    assert isinstance(grown, tree.Found if possible else tree.Tree)


@SOME
@given(blocks(10))
def test_trees_agree_with_all_subsets(block: ResidualBlock) -> None:
    tree_agrees(block)


@pytest.mark.slow
@MANY
@given(blocks())
def test_trees_agree_with_all_subsets_ten_thousand_times(block: ResidualBlock) -> None:
    tree_agrees(block)


@pytest.fixture
def only_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the methods that come before."""
    monkeypatch.setattr(sumset, "LARGEST", 0)
    monkeypatch.setattr(sumset, "INSTANT", 0)
    monkeypatch.setattr(box, "LARGEST", 0)
    monkeypatch.setattr(lattice, "LARGEST", 0)


@pytest.mark.usefixtures("only_trees")
def test_the_checker_accepts_what_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, int] = {}

    @SOME
    @given(blocks())
    def run(block: ResidualBlock) -> None:
        verdict = decide(block)
        kind = str(verdict.certificate.data.get("evidence"))
        seen[kind] = seen.get(kind, 0) + 1
        assert check(verdict.certificate, block).certificate is verdict.certificate

    run()
    monkeypatch.setattr(congruence, "pairings", lambda equations: iter(()))
    run()
    assert seen["congruence"] > 5
    assert seen["tree"] > 5
    assert "none" not in seen


def normal(d: int, m: int, bits: int = 20, seed: int = 0) -> ResidualBlock:
    rng = np.random.default_rng(seed)
    up = np.rint(rng.normal(size=(m, d)) * 2.0**bits) / 2.0**bits
    down = np.rint(rng.normal(size=(d, m)) * 2.0**bits) / 2.0**bits
    return ResidualBlock(w_up=up, w_down=down, activation="gelu")


@pytest.mark.parametrize(("d", "m", "bits"), [(2, 45, 20), (3, 50, 10), (4, 60, 4)])
def test_dependent_terms_are_refuted_beyond_all_sums(d: int, m: int, bits: int) -> None:
    block = normal(d, m, bits)
    verdict = decide(block)
    assert verdict.answer == "not absorbable"
    assert verdict.certificate.data["evidence"] == "congruence"
    check(verdict.certificate, block)


def proved(block: ResidualBlock) -> Certificate:
    certificate = decide(block).certificate
    check(certificate, block)
    return certificate


def forged(certificate: Certificate, *, data: Any = None, **arrays: Any) -> Certificate:
    changed = {k: v.copy() for k, v in certificate.arrays.items()} | arrays
    fields = {k: getattr(certificate, k) for k in certificate.__dataclass_fields__}
    return Certificate(
        **(fields | {"arrays": changed, "data": {**certificate.data, **(data or {})}})
    )


def test_forged_congruences_are_refused() -> None:
    block = normal(2, 45)
    certificate = proved(block)
    y = certificate.arrays["dual"].copy()
    y[0, 0] += 1
    for fake in (
        forged(certificate, dual=y),
        forged(certificate, dual=y[:1]),
        forged(certificate, data={"modulus": 1}),
        forged(certificate, data={"modulus": -5}),
        forged(certificate, data={"modulus": True}),
        forged(certificate, data={"modulus": int(certificate.data["modulus"]) + 2}),
        forged(certificate, data={"scale": int(certificate.data["scale"]) - 1}),
        forged(certificate, data={"scale": -1}),
        forged(certificate, data={"scale": 10**9}),
    ):
        with pytest.raises(InvalidCertificate):
            check(fake, block)


@pytest.mark.usefixtures("only_trees")
def test_forged_trees_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(congruence, "pairings", lambda equations: iter(()))
    up = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, -1.0], [3.0, 1.0], [1.0, 3.0], [2.0, 5.0]])
    down = np.array([[2.0, -2, 4, -2, 2, 6], [-2, 2, 2, -4, 2, 2.0]])
    block = ResidualBlock(w_up=up, w_down=down, activation="gelu")
    certificate = proved(block)
    assert certificate.data["evidence"] == "tree"
    nodes, duals = certificate.arrays["tree"], certificate.arrays["duals"]
    moduli = certificate.arrays["moduli"]
    assert nodes.size > 1
    missing = np.zeros(0, dtype=np.int32)
    twice = np.concatenate([nodes[:1], nodes])
    for fake in (
        forged(certificate, tree=nodes[:-1]),
        forged(certificate, tree=nodes[1:]),
        forged(certificate, tree=np.append(nodes, nodes[-1])),
        forged(certificate, tree=nodes[-1:]),
        forged(certificate, tree=missing),
        forged(certificate, tree=twice),
        forged(certificate, tree=np.where(nodes < 0, -1 - len(duals), nodes)),
        forged(certificate, tree=np.where(nodes >= 0, 99, nodes)),
        forged(certificate, duals=np.zeros_like(duals)),
        forged(certificate, duals=duals[0]),
        forged(certificate, moduli=moduli + 1),
        forged(certificate, moduli=moduli - 3),
        forged(certificate, moduli=moduli[:-1]),
    ):
        with pytest.raises(InvalidCertificate):
            check(fake, block)


@settings(max_examples=60)
@given(blocks(8), st.integers(0, 2**32 - 1))
def test_the_verdict_survives_what_leaves_the_question_alone(
    block: ResidualBlock, seed: int
) -> None:
    """Permuted neurons, positive rescaling, a change of basis, dead neurons."""
    rng = np.random.default_rng(seed)
    verdict = decide(block)
    up, down, b = block.w_up, block.w_down, block.bias("b_up")
    given_bias = {} if block.b_up is None else {"b_up": block.b_up}
    more = {"activation": block.activation_name, "skip": block.skip_matrix}
    more |= {"norm": block.norm.value}

    order = rng.permutation(block.m)
    permuted = ResidualBlock(
        w_up=up[order],
        w_down=down[:, order],
        **more,
        **{k: v[order] for k, v in given_bias.items()},
    )
    assert same(decide(permuted), verdict)

    if "relu" in block.activation_name:  # positively homogeneous: exact powers of two
        scale = 2.0 ** rng.integers(-3, 4, block.m)
        rescaled = ResidualBlock(
            w_up=up * scale[:, None],
            w_down=down / scale,
            **more,
            **{k: v * scale for k, v in given_bias.items()},
        )
        assert same(decide(rescaled), verdict)

    if block.norm.value == "none":  # x = P y, outputs P⁻¹: unimodular, so that all is exact
        d = block.d
        basis = np.eye(d) + np.triu(rng.integers(-2, 3, (d, d)), 1)
        inverse = np.rint(np.linalg.inv(basis))
        assert np.array_equal(basis @ inverse, np.eye(d))
        changed = ResidualBlock(
            w_up=up @ basis,
            w_down=inverse @ down,
            activation=block.activation_name,
            skip=inverse @ block.skip_matrix @ basis,
            **given_bias,
        )
        assert same(decide(changed), verdict)

    dead = ResidualBlock(
        w_up=np.vstack([up, rng.integers(-2, 3, (1, block.d))]),
        w_down=np.column_stack([down, np.zeros(block.d)]),
        **more,
        **({} if block.b_up is None else {"b_up": np.append(b, 1.0)}),
    )
    wider = decide(dead)
    if verdict.answer == "absorbable":
        assert wider.answer == "absorbable"
    elif verdict.answer == "not absorbable" and verdict.width.lower > block.m + 1:
        assert wider.answer in ("not absorbable", "unknown")
    if "unknown" not in (verdict.answer, wider.answer):  # a dead neuron is of no use
        assert wider.width.lower <= verdict.width.upper
        assert verdict.width.lower <= wider.width.upper


def same(one: Any, other: Any) -> bool:
    """Equal answers, scopes, and widths that do not contradict each other."""
    overlap = one.width.lower <= other.width.upper and other.width.lower <= one.width.upper
    return bool((one.answer, one.scope) == (other.answer, other.scope) and overlap)
