"""The checker accepts what decide proves, and refuses every statement that is not true."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import Oracle

import unskip
from unskip import Certificate, Interval, InvalidCertificate, ResidualBlock, check, decide
from unskip.certificates import Answer, Rule, Scope
from unskip.decision import modular
from unskip.decision.merging import Merged
from unskip.decision.neurons import group
from unskip.decision.question import Question, SubsetCondition

Mutation = tuple[Certificate, ResidualBlock]


def block(seed: int, d: int = 2, m: int = 4, *, top: int = 4, **changes: Any) -> ResidualBlock:
    rng = np.random.default_rng(seed)
    arguments = {
        "w_up": rng.integers(-top, top + 1, (m, d)) / 2,
        "w_down": rng.integers(-top, top + 1, (d, m)) / 2,
        "b_up": rng.integers(-top, top + 1, m) / 2,
        "b_down": rng.integers(-top, top + 1, d) / 2,
        "activation": "gelu",
    }
    return ResidualBlock(**(arguments | changes))


def absorbable(seed: int, **changes: Any) -> ResidualBlock:
    plain = block(seed, **changes)
    return dataclasses.replace(plain, skip=-(plain.w_down[:, :2] @ plain.w_up[:2]))


def nearly(seed: int, **changes: Any) -> ResidualBlock:
    """One unit in the last place away from absorbable: only exact arithmetic sees it."""
    exact = absorbable(seed, **changes)
    up = exact.w_up.copy()
    up[0, 0] = np.nextafter(up[0, 0], 100.0)
    return dataclasses.replace(exact, w_up=up)


POOL: dict[str, ResidualBlock] = {
    "matrix": block(2),
    "matrix centred": block(0, d=3, norm="post-layernorm", activation="silu"),
    "matrix no output bias": block(4, b_down=None, activation="softplus"),
    "trace": block(3, m=3, top=1, d=3),
    "flip": absorbable(3),
    "flip centred": absorbable(2, d=3, norm="post-layernorm"),
    "modular": nearly(0),
    "modular neuron": block(0),
    "sumset": nearly(0),
    "quick": block(3, m=3, top=1, d=3),
    "quick matrix": block(2),
    "twins": block(5, d=1, b_up=None, activation="relu"),
    "one dead neuron": block(2, w_down=[[1, 2, 0, 3], [0, 1, 0, -1]], activation="silu"),
    "coordinate": block(4),
    "leaky": block(9, activation="leaky_relu(0.5)"),
}


@cache
def certified(name: str) -> tuple[Certificate, ResidualBlock]:
    plain = POOL[name]
    certificate = decide(plain, label=name, quick=name.startswith("quick")).certificate
    if name.startswith("modular"):  # which decide keeps for more neurons than brute force can do
        certificate = by_residues(certificate, plain)
    return certificate, plain


def by_residues(certificate: Certificate, plain: ResidualBlock) -> Certificate:
    question = Question.of(plain)
    condition = SubsetCondition.of(question, plain.activation.parity_constants(plain.m))
    found = modular.solve(Merged(condition, group(question)))
    assert isinstance(found, modular.Refutation)
    data = {k: v for k, v in certificate.data.items() if k in ("exhaustive", "constant")}
    data |= {"evidence": "modular", "neuron": found.group}
    arrays = {**certificate.arrays, "dual": found.matrix.astype(np.int32)}
    zero = Interval(0.0, certificate.defect.upper)
    return dataclasses.replace(certificate, data=data, arrays=arrays, defect=zero)


@pytest.mark.parametrize("name", POOL)
def test_what_decide_proves_is_accepted(name: str) -> None:
    certificate, plain = certified(name)
    assert certificate.answer != "unknown"
    assert name in check(certificate, plain).sentence


def test_every_kind_of_evidence_is_in_the_pool() -> None:
    kinds = {certified(name)[0].data["evidence"] for name in POOL}
    assert kinds >= {"flip", "matrix", "modular", "sumset", "trace", "coordinate"}
    rules = {certified(name)[0].rule for name in POOL}
    assert rules == {Rule.SUBSET_CONDITION, Rule.MINIMAL_WIDTH, Rule.BOUNDED_RANK}
    assert {"twins", "basis_rows", "dual"} <= {a for n in POOL for a in certified(n)[0].arrays}


class Truth:
    """Whether a statement about a block is true, by brute force."""

    def __init__(self, plain: ResidualBlock, *, output_bias: bool) -> None:
        kappa = plain.activation.facts.parity
        assert isinstance(kappa, Fraction)
        self.block = plain
        oracle = Oracle(plain, [kappa] * plain.m, output_bias=output_bias)
        hyperplanes = plain.activation.name.startswith(("leaky", "relu"))
        self.least = oracle.least_defect() if any(any(r) for r in oracle.skip) else None
        self.width = oracle.minimal_width(
            hyperplanes=hyperplanes, constant=not output_bias and plain.b_up is not None
        )

    def holds(self, c: Certificate) -> bool:
        b = self.block
        described = (c.activation, c.gated, c.norm, c.d, c.m)
        if described != (b.activation_name, b.gated, b.norm.value, b.d, b.m):
            return False
        absorbs = self.width <= b.m
        rules = (Rule.SUBSET_CONDITION, Rule.MINIMAL_WIDTH, Rule.BOUNDED_RANK)
        if c.rule not in rules or self.least is None:
            return False
        if c.scope != Scope.THIS_WIDTH:
            return False
        if c.answer == Answer.UNKNOWN or (c.answer == Answer.ABSORBABLE) != absorbs:
            return False
        if c.defect is None or c.defect.lower > self.least * (1 + 1e-14):
            return False
        if c.defect.upper < self.least * (1 - 1e-14):
            return False
        return c.width.lower <= self.width <= c.width.upper


_truths: dict[tuple[int, bool], tuple[ResidualBlock, Truth]] = {}


def truth(plain: ResidualBlock, *, output_bias: bool) -> Truth:
    key = (id(plain), output_bias)
    if key not in _truths:
        _truths[key] = (plain, Truth(plain, output_bias=output_bias))
    return _truths[key][1]


def _mutate_statement(c: Certificate, b: ResidualBlock, rng: np.random.Generator) -> Mutation:
    def shifted(interval: Interval, by: float) -> Interval:
        lower, upper = interval
        return Interval(lower + by, upper) if rng.random() < 0.5 else Interval(lower, upper - by)

    options: list[Callable[[], dict[str, Any]]] = [
        lambda: {"answer": rng.choice([a for a in Answer if a is not c.answer])},
        lambda: {"scope": rng.choice([s for s in Scope if s is not c.scope])},
        lambda: {"rule": list(Rule)[rng.integers(len(Rule))]},
        lambda: {"activation": str(rng.choice(["relu", "silu", "gelu", "tanh", "", "abs"]))},
        lambda: {"norm": str(rng.choice(["none", "pre-rmsnorm", "post-layernorm", "x"]))},
        lambda: {"gated": not c.gated},
        lambda: {"d": c.d + int(rng.integers(-1, 3))},
        lambda: {"m": c.m + int(rng.integers(-1, 3))},
        lambda: {"defect": shifted(c.defect, 10.0 ** -rng.integers(0, 4)) if c.defect else None},
        lambda: {"defect": None},
        lambda: {"width": shifted(c.width, float(rng.integers(1, 4)))},
        lambda: {"width": Interval(math.inf, math.inf)},
        lambda: {"assumptions": dataclasses.replace(c.assumptions, modulo="mean")},
        lambda: {
            "assumptions": dataclasses.replace(
                c.assumptions, output_bias=not c.assumptions.output_bias
            )
        },
        lambda: {"data": {**c.data, "constant": True}},
        lambda: {"data": {**c.data, "rank": int(rng.integers(-1, 4))}},
        lambda: {
            "data": {**c.data, "rank": 2},
            "width": Interval(c.width.lower + 1, c.width.upper + 1),
        },
        lambda: {"data": {**c.data, "evidence": str(rng.choice(["flip", "none", "trace"]))}},
        lambda: {"data": {**c.data, "more": 1}},
    ]
    changes = options[rng.integers(len(options))]()
    return dataclasses.replace(c, **changes), b


def _mutate_array(c: Certificate, b: ResidualBlock, rng: np.random.Generator) -> Mutation:
    name = str(rng.choice(sorted(c.arrays)))
    array = np.array(c.arrays[name])
    kind = rng.integers(5)
    if kind == 0 or array.size == 0:
        array = np.append(array.ravel(), rng.integers(-3, 9)).astype(array.dtype)
    elif kind == 1:
        array = array[..., :-1]
    elif kind == 2:
        array = -array
    else:
        flat = array.ravel()
        flat[rng.integers(flat.size)] = rng.integers(-9, 9) if kind == 3 else flat[0]
    return dataclasses.replace(c, arrays={**c.arrays, name: array}), b


def _mutate_weights(c: Certificate, b: ResidualBlock, rng: np.random.Generator) -> Mutation:
    name = str(rng.choice([n for n in ("w_up", "w_down", "skip") if getattr(b, n) is not None]))
    weights = np.array(getattr(b, name))
    where = tuple(int(rng.integers(n)) for n in weights.shape)
    if rng.random() < 0.3:
        weights[where] = 0.0 if rng.random() < 0.5 else np.nextafter(weights[where], 9.0)
    elif rng.random() < 0.3 and name == "w_up":
        weights[where[0]] = weights[where[0] - 1]  # two neurons of one direction
    else:
        weights[where] = rng.integers(-6, 7) / 2
    return c, dataclasses.replace(b, **{name: weights})


def test_no_mutation_makes_the_checker_accept_a_falsehood() -> None:
    """Thousands of random changes to statements, arrays and weights; brute force judges."""
    rng = np.random.default_rng(0)
    falsehoods = accepted = 0
    mutations = (*[_mutate_statement, _mutate_array] * 4, _mutate_weights)
    for step in range(2800):
        certificate, original = certified(sorted(POOL)[step % len(POOL)])
        mutated, plain = mutations[rng.integers(9)](certificate, original, rng)
        if rng.random() < 0.3:
            mutated, plain = mutations[rng.integers(2)](mutated, plain, rng)
        true = truth(plain, output_bias=mutated.assumptions.output_bias).holds(mutated)
        try:
            check(mutated, plain)
        except InvalidCertificate:
            falsehoods += not true
            continue
        accepted += 1
        assert true, (mutated, mutated.arrays, plain)
    assert falsehoods >= 1000
    assert accepted >= 50  # some mutations leave the statement true and its proof whole


UNCONDITIONAL = {
    "homogeneous-degree": block(1, activation="relu2", b_up=None, b_down=None),
    "vanishing-linearisation": block(
        1, activation="swiglu", w_gate=np.ones((4, 2)), b_up=None, b_down=None
    ),
    "sublinear-growth": block(1, activation="tanh"),
    "even-activation": block(1, activation="abs", b_up=None, b_down=None),
    "even-recession": block(1, activation="abs"),
    "one-sided-independence": block(1, activation="mish"),
    "pre-norm": block(1, norm="pre-layernorm"),
}


#: Other rules whose hypotheses these blocks meet as well.
ALSO_TRUE = {
    "homogeneous-degree": {"vanishing-linearisation"},
    "even-activation": {"even-recession"},
}


@pytest.mark.parametrize("rule", UNCONDITIONAL)
def test_unconditional_certificates_say_no_more_than_is_proved(rule: str) -> None:
    plain = UNCONDITIONAL[rule]
    verdict = decide(plain)
    c = verdict.certificate
    assert verdict.rule == rule
    assert check(c, plain).certificate is c
    diagonal = {"row": 0, "column": 0}
    forged = [
        dataclasses.replace(c, answer=Answer.ABSORBABLE),
        dataclasses.replace(c, answer=Answer.UNKNOWN),
        dataclasses.replace(c, scope=Scope.THIS_WIDTH),
        dataclasses.replace(c, width=Interval(5, math.inf)),
        dataclasses.replace(c, width=Interval(5, 6)),
        dataclasses.replace(c, defect=Interval(0.5, 1.0)),
        dataclasses.replace(c, data={"row": 0, "column": 1}),
        dataclasses.replace(c, data={"row": 0, "column": 9}),
        dataclasses.replace(c, data={"row": 0, "column": -2}),
        dataclasses.replace(c, data={"row": False, "column": 0}),
        dataclasses.replace(c, data={**diagonal, "extra": 0}),
        dataclasses.replace(c, data={}),
        dataclasses.replace(c, arrays={"dual": np.eye(2, dtype=np.int16)}),
    ]
    others = set(Rule) - {c.rule} - ALSO_TRUE.get(rule, set())
    forged += [dataclasses.replace(c, rule=other) for other in others]
    if c.scope is Scope.ANY_WIDTH:
        forged.append(dataclasses.replace(c, scope=Scope.ANY_DEPTH))
    for forgery in forged:
        with pytest.raises(InvalidCertificate):
            check(forgery, plain)
    with pytest.raises(InvalidCertificate):
        check(c, dataclasses.replace(plain, skip=0.0))


@pytest.mark.parametrize(
    "rule", ["homogeneous-degree", "vanishing-linearisation", "even-activation"]
)
def test_bias_free_rules_are_refused_where_biases_appear(rule: str) -> None:
    plain = UNCONDITIONAL[rule]
    c = decide(plain).certificate
    allowed = dataclasses.replace(c.assumptions, hidden_bias=True)
    with pytest.raises(InvalidCertificate):
        check(dataclasses.replace(c, assumptions=allowed), plain)
    with pytest.raises(InvalidCertificate):
        check(c, dataclasses.replace(plain, b_up=np.zeros(4)))
    deep = dataclasses.replace(c.assumptions, output_bias=True)
    with pytest.raises(InvalidCertificate):  # a stack could use it as a hidden bias
        check(dataclasses.replace(c, assumptions=deep, scope=Scope.ANY_DEPTH), plain)


def test_linear_rank_and_hidden_bias_certificates() -> None:
    rng = np.random.default_rng(0)
    linear = block(3, d=4, m=2, activation="identity")
    verdict = decide(linear)
    assert verdict.rule == "linear-rank"
    truth_of_it = np.linalg.matrix_rank(np.eye(4) + linear.w_down @ linear.w_up)
    assert tuple(verdict.width) == (truth_of_it, truth_of_it)
    check(verdict.certificate, linear)
    for changes in (
        {"width": Interval(0, 1)},
        {"answer": Answer.ABSORBABLE},
        {"scope": Scope.ANY_WIDTH},
    ):
        with pytest.raises(InvalidCertificate):
            check(dataclasses.replace(verdict.certificate, **changes), linear)

    biased = block(2)
    needs = decide(biased, hidden_bias=False)
    assert needs.rule == "hidden-bias"
    check(needs.certificate, biased)
    bias_free = dataclasses.replace(biased, b_up=np.zeros(4))
    for other in (bias_free, dataclasses.replace(biased, w_down=rng.normal(size=(2, 4)) * 0)):
        with pytest.raises(InvalidCertificate):
            check(needs.certificate, other)


FORGERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "repeated neuron": ("flip", {"achieved": np.array([0, 0, 1], np.int32)}),
    "unsorted subset": ("flip", {"achieved": np.array([1, 0], np.int32)}),
    "negative index": ("flip", {"achieved": np.array([-4, 1], np.int32)}),
    "index beyond m": ("flip", {"achieved": np.array([0, 1, 9], np.int32)}),
    "matrix of subsets": ("flip", {"achieved": np.array([[0, 1]], np.int32)}),
    "empty subset": ("flip", {"achieved": np.zeros(0, np.int32)}),
    "all zero dual": ("matrix", {"dual": np.zeros((2, 2), np.int16)}),
    "dual of another shape": ("matrix", {"dual": np.ones((3, 2), np.int16)}),
    "dual beyond 2^53": ("matrix", {"dual": np.full((2, 2), 2**60, np.int64)}),
    "columns that do not cancel": ("matrix centred", {"dual": np.eye(3, dtype=np.int16)}),
    "residues beyond p": ("modular", {"dual": np.full((2, 2), 2**31 - 1, np.int64)}),
    "negative residues": ("modular", {"dual": np.full((2, 2), -1, np.int64)}),
    "zero residues": ("modular", {"dual": np.zeros((2, 2), np.int64)}),
    "repeated basis rows": (
        "matrix",
        {"basis_rows": np.array([0, 0], np.int32), "basis_columns": np.array([0, 1], np.int32)},
    ),
    "basis beyond m": ("matrix", {"basis_rows": np.array([0, 4], np.int32)}),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_arrays_are_refused(name: str) -> None:
    of, arrays = FORGERIES[name]
    certificate, plain = certified(of)
    forged = dataclasses.replace(certificate, arrays={**certificate.arrays, **arrays})
    with pytest.raises(InvalidCertificate):
        check(forged, plain)


def test_files_round_trip(tmp_path: Path) -> None:
    for name in POOL:
        certificate, plain = certified(name)
        path = certificate.save(tmp_path)
        again = Certificate.load(path)
        assert again.to_json() == certificate.to_json()
        assert {k: (v.dtype, v.tolist()) for k, v in again.arrays.items()} == {
            k: (v.dtype, v.tolist()) for k, v in certificate.arrays.items()
        }
        check(again, plain)
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"format": "unskip-certificate"}',
        "[" * 100_000,
        "\x00\x01",
    ],
)
def test_files_that_are_no_certificates(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(InvalidCertificate, match=r"c\.json"):
        Certificate.load(path)


def _json_mutations() -> list[tuple[str, Any]]:
    values = [None, -1, 0, 1.5, True, "x", [], {}, "NaN", float("inf"), 2**70, [1], [2, 1, 0]]
    keys = certified("matrix")[0].to_json()
    return [(key, value) for key in keys if key != "block" for value in values]


@pytest.mark.parametrize(("key", "value"), _json_mutations())
def test_no_json_value_of_the_wrong_kind_gets_through(key: str, value: Any, tmp_path: Path) -> None:
    certificate, plain = certified("matrix")
    path = certificate.save(tmp_path, "c")
    document = json.loads(path.read_text())
    if document[key] == value and type(document[key]) is type(value):
        pytest.skip("the same value")
    document[key] = value
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidCertificate):
        check(Certificate.load(path), plain)


@pytest.mark.parametrize("change", ["missing", "unknown", "truncated arrays", "no arrays"])
def test_a_file_with_more_or_less_is_refused(change: str, tmp_path: Path) -> None:
    certificate, plain = certified("matrix")
    path = certificate.save(tmp_path, "c")
    document = json.loads(path.read_text())
    arrays = tmp_path / "c.safetensors"
    match change:
        case "missing":
            del document["width"]
        case "unknown":
            document["note"] = "trust me"
        case "truncated arrays":
            arrays.write_bytes(arrays.read_bytes()[:-3])
        case "no arrays":
            arrays.unlink()
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidCertificate):
        check(Certificate.load(path), plain)


def test_the_checker_imports_nothing_of_the_procedure() -> None:
    files = sorted(Path(unskip.checker.__file__).parent.glob("*.py"))
    assert len(files) > 5
    imported = set()
    for node in (n for f in files for n in ast.walk(ast.parse(f.read_text()))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("unskip"):
            imported.add(node.module.split(".")[1])
        if isinstance(node, ast.Import):
            imported |= {a.name.split(".")[1] for a in node.names if "unskip." in a.name}
    assert imported == {"activations", "blocks", "certificates", "errors", "checker"}
