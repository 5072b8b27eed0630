"""compare(): proofs where a theorem reaches, honest measurements elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_canonical import exact_value

from unskip import PlainBlock, ResidualBlock, canonical_form, compare
from unskip.activations import prelu
from unskip.equivalence import Equivalence
from unskip.errors import BlockError

F = Fraction
Block = ResidualBlock | PlainBlock
GOLDEN = json.loads((Path(__file__).parent / "data" / "golden.json").read_text())["cases"]
PLAIN = [c for c in GOLDEN if c["kind"] == "plain" and "witness" in c and "domain" not in c]


def proved_equal(found: Equivalence) -> bool:
    assert (found.max_error, found.relative_error, found.where) == (0.0, 0.0, None) or (
        not found.equal
    )
    return found.proved and found.equal is True


def proved_different(a: Block, b: Block) -> bool:
    """Proved, and shown at a point where the definitions of ReLU-like blocks differ."""
    found = compare(a, b, samples=512)
    if not (found.proved and found.equal is False):
        return False
    assert str(found).startswith("different, proved: ")
    if found.exact:
        assert found.where is not None
        x = [F(v) for v in found.where.tolist()]
        values = zip(exact_value(a, x), exact_value(b, x), strict=True)
        largest = max(abs(p - q) for p, q in values)
        assert largest > 0
        assert found.max_error == max(float(largest), 5e-324)
    return True


def undecided(found: Equivalence) -> bool:
    assert "measurement" in str(found)
    assert not str(found).startswith("equal")
    return not found.proved and found.equal is None


# --------------------------------------------------------------------------------------
# Golden facts.


def activation_of(case: dict) -> str:
    name = case["activation"]
    return f"leaky_relu({name.partition(':')[2]})" if ":" in name else name


def golden_residual(case: dict, norm: str | None = None) -> ResidualBlock:
    skip = case.get("skip", "identity")
    return ResidualBlock(
        w_up=case["U"],
        w_down=case["D"],
        b_up=case["b_up"],
        b_down=case["b_out"],
        activation=activation_of(case),
        skip=None if skip == "identity" else skip,
        norm=norm,
    )


def golden_witness(case: dict) -> PlainBlock:
    """The witness without the rounding errors of the least squares it came from."""
    witness, d = case["witness"], case["d"]

    def snap(entries: object) -> np.ndarray:
        exact = np.asarray(entries, dtype=np.float64)
        return np.round(exact * 64) / 64

    down = snap(witness["D"])
    if case["id"] == "G29":  # of −0.999999 and 1 the sum is exact, and not 1e-6
        down = np.asarray(witness["D"]) + 0.0
        down[0, 1] = 1 + case["D"][0][0]
    up, bias = snap(witness["U"]), snap(witness["b_up"])
    if not witness["U"]:  # width 0: one dead neuron
        up, bias, down = np.ones((1, d)), np.zeros(1), np.zeros((d, 1))
    return PlainBlock(
        w_up=up,
        b_up=bias,
        w_down=down,
        b_down=snap(witness["b_out"]),
        activation=activation_of(case),
    )


@pytest.mark.parametrize(
    "case", [c for c in PLAIN if not c.get("output_projection")], ids=lambda c: c["id"]
)
def test_golden_witnesses(case: dict) -> None:
    block, witness = golden_residual(case), golden_witness(case)
    found = compare(block, witness)
    assert proved_equal(found)
    assert str(found).startswith("equal, proved: they have the same canonical form")
    down = witness.w_down.copy()
    down[0, 0] = np.nextafter(down[0, 0], 9)
    off = PlainBlock(
        w_up=witness.w_up,
        b_up=witness.b_up,
        w_down=down,
        b_down=witness.b_down,
        activation=witness.activation,
    )
    assert proved_different(block, off)


def test_golden_rounded_witness_is_not_called_equal() -> None:
    case = next(c for c in PLAIN if c["id"] == "G02")  # its output bias is 8e-18, not 0
    witness = case["witness"]
    rounded = PlainBlock(
        w_up=witness["U"],
        b_up=witness["b_up"],
        w_down=witness["D"],
        b_down=witness["b_out"],
        activation="relu",
    )
    found = compare(golden_residual(case), rounded)
    assert (found.proved, found.equal, found.exact) == (True, False, True)
    assert found.max_error == max(map(abs, witness["b_out"]))
    assert "differ in the constant" in str(found)


def layernorm_pair() -> tuple[ResidualBlock, ResidualBlock]:
    """G27: absorbed only up to the mean that a LayerNorm discards."""
    case = next(c for c in PLAIN if c["id"] == "G27")
    block = golden_residual(case, "post-layernorm")
    flipped = ResidualBlock(
        w_up=-block.w_up,
        w_down=block.w_down,
        activation="relu",
        skip=0.0,
        norm="post-layernorm",
    )
    return block, flipped


def test_layernorm_discards_the_mean() -> None:
    block, flipped = layernorm_pair()
    assert proved_equal(compare(block, flipped))
    assert proved_different(block.inner(), flipped.inner())
    third = ResidualBlock(
        w_up=-block.w_up,
        w_down=block.w_down + np.eye(3) * 2.0**-40,
        activation="relu",
        skip=0.0,
        norm="post-layernorm",
    )
    found = compare(block, third)
    assert (found.proved, found.equal, found.exact) == (True, False, False)


def test_a_norm_may_hide_a_difference() -> None:
    one = {"w_up": np.eye(2), "activation": "relu", "norm": "post-rmsnorm"}
    for hides in ({"norm_eps": 0.0}, {"norm_gain": [1.0, 0.0]}):
        first = ResidualBlock(**one, **hides, w_down=np.eye(2))
        double = ResidualBlock(**one, **hides, w_down=2 * np.eye(2), skip=2.0)
        found = compare(first, double)
        assert not found.proved
        assert "may hide" in found.reason
    same = ResidualBlock(**one, norm_eps=0.0, w_down=np.eye(2))
    assert undecided(
        compare(same, ResidualBlock(**one, norm_eps=0.0, w_down=2 * np.eye(2), skip=2))
    )
    faithful = [ResidualBlock(**one, w_down=s * np.eye(2), skip=s) for s in (1.0, 2.0)]
    found = compare(*faithful)
    assert (found.proved, found.equal) == (True, False)


def test_before_a_norm_comes_the_branch() -> None:
    up, down = np.array([[1.0, 2.0], [0.5, 1.0]]), np.array([[1.0, 1.0], [2.0, 4.0]])
    merged = {"w_up": up[:1], "w_down": (down @ [[1.0], [0.5]])}
    for norm in ("pre-layernorm", "pre-rmsnorm", "sandwich-rmsnorm"):
        first = ResidualBlock(w_up=up, w_down=down, activation="relu", norm=norm)
        second = ResidualBlock(**merged, activation="relu", norm=norm, norm_gain=[1.0, 1.0])
        assert proved_equal(compare(first, second))
        gain = ResidualBlock(**merged, activation="relu", norm=norm, norm_gain=[1.0, 1.5])
        found = compare(first, gain)
        assert (found.proved, found.equal, found.reason) == (False, False, "their norms differ")
        doubled = ResidualBlock(**merged, activation="relu", norm=norm, skip=2.0)
        found = compare(first, doubled)  # the same branch
        assert (found.proved, found.equal) == (False, False)
        nowhere = [
            ResidualBlock(**merged, activation=name, norm=norm, norm_gain=[0.0, 0.0])
            for name in ("relu", "leaky_relu(0.5)")
        ]
        assert undecided(compare(*nowhere))  # different branches that only ever see 0
    # x + relu(N x) against relu-free 2x: the same inner map only if the skips are
    a = ResidualBlock(w_up=np.eye(2), w_down=0 * np.eye(2), activation="relu", norm="pre-rmsnorm")
    b = ResidualBlock(
        w_up=[[1, 0], [-1, 0], [0, 1], [0, -1]],
        w_down=[[1, -1, 0, 0], [0, 0, 1, -1]],
        activation="relu",
        skip=0.0,
        norm="pre-rmsnorm",
    )
    assert proved_equal(compare(a.inner(), b.inner()))
    assert compare(a, b).equal is False


def test_hard_swish_identity() -> None:
    case = next(c for c in GOLDEN if c["id"] == "G41")
    six = PlainBlock(
        w_up=case["U"], b_up=case["b_up"], w_down=case["D"], activation=case["activation"]
    )
    nothing = PlainBlock(w_up=[[1]], w_down=[[0]], activation=case["activation"])
    found = compare(six, nothing)
    assert undecided(found)  # it is zero, and the form cannot know
    assert found.max_error < 1e-9
    assert "not unique" in found.reason
    # The linear part needs no theorem on kinks.
    tilted = ResidualBlock(
        w_up=case["U"], b_up=case["b_up"], w_down=case["D"], activation=case["activation"]
    )
    found = compare(six, tilted)
    assert (found.proved, found.equal) == (True, False)
    order = [3, 1, 5, 0, 2, 4]
    sorted_six = PlainBlock(
        w_up=-six.w_up[order],
        b_up=-six.b_up[order],
        w_down=six.w_down[:, order],
        b_down=[0],
        activation="hard_swish",
    )
    found = compare(six, sorted_six)  # equal forms are equal functions all the same
    # the flips leave Σ d (u·x + b) = 0
    assert proved_equal(found)


def test_gated_flip_is_only_measured() -> None:
    case = next(c for c in GOLDEN if c["id"] == "G30")
    block = ResidualBlock(
        w_gate=case["W_gate"],
        b_gate=case["b_gate"],
        w_up=case["V_up"],
        b_up=case["c_up"],
        w_down=case["D"],
        activation="silu",
    )
    witness = case["witness"]
    plain = PlainBlock(
        w_gate=witness["W_gate"],
        b_gate=witness["b_gate"],
        w_up=witness["V_up"],
        b_up=witness["c_up"],
        w_down=witness["D"],
        activation="silu",
    )
    found = compare(block, plain)
    assert undecided(found)
    assert found.max_error < 1e-9
    dropped = PlainBlock(**block.tensors, activation="silu")
    found = compare(block, dropped)
    assert (found.proved, found.equal) == (False, False)
    assert "by measurement" in str(found)


# --------------------------------------------------------------------------------------
# An independent decision for ReLU-like blocks: vertices of the arrangement.


def solve(rows: list[list[Fraction]], right: list[Fraction]) -> list[Fraction] | None:
    work = [[*row, value] for row, value in zip(rows, right, strict=True)]
    n = len(work)
    for i in range(n):
        pivot = next((j for j in range(i, n) if work[j][i]), None)
        if pivot is None:
            return None
        work[i], work[pivot] = work[pivot], work[i]
        work[i] = [x / work[i][i] for x in work[i]]
        for j in range(n):
            if j != i and work[j][i]:
                work[j] = [x - work[j][i] * y for x, y in zip(work[j], work[i], strict=True)]
    return [row[-1] for row in work]


def vertices(a: Block, b: Block, box: int) -> Iterator[list[Fraction]]:
    """Every vertex of the arrangement of both blocks' hyperplanes within a box.

    The box must reach every flat of the arrangement.  Then each cell meets it in a polytope
    whose corners are among these points, and a function that is affine on each cell and zero
    at all of them is zero.
    """
    d = a.d
    planes = set()
    for block in (a, b):
        bias = np.zeros(block.m) if block.b_up is None else block.b_up
        planes |= {
            (*map(F, u), F(c)) for u, c in zip(block.w_up.tolist(), bias.tolist(), strict=True)
        }
    planes = {p for p in planes if any(p[:-1])}
    for i in range(d):
        unit = [F(int(i == k)) for k in range(d)]
        planes |= {(*unit, F(box)), (*unit, F(-box))}
    for chosen in combinations(sorted(planes), d):
        point = solve([list(p[:-1]) for p in chosen], [-p[-1] for p in chosen])
        if point is not None:
            yield point


def same_function(a: Block, b: Block, box: int = 200) -> bool:
    return all(exact_value(a, x) == exact_value(b, x) for x in vertices(a, b, box))


def small_block(draw: st.DrawFn, d: int, m: int, bound: int) -> ResidualBlock:
    small = st.integers(-bound, bound)

    def matrix(rows: int, columns: int) -> np.ndarray:
        entries = draw(st.lists(small, min_size=rows * columns, max_size=rows * columns))
        return np.array(entries, dtype=np.float64).reshape(rows, columns)

    return ResidualBlock(
        w_up=matrix(m, d),
        b_up=matrix(1, m)[0],
        w_down=matrix(d, m),
        b_down=matrix(1, d)[0],
        skip=matrix(d, d),
        activation="relu",
    )


def rewritten(draw: st.DrawFn, block: ResidualBlock) -> ResidualBlock:
    """The same function, or nearly: flips, scales, splits, and perhaps one entry changed."""
    up, bias, down = block.w_up.copy(), block.b_up.copy(), block.w_down.copy()
    skip, offset = block.skip_matrix.copy(), block.b_down.copy()
    for j in range(block.m):
        if draw(st.booleans()):  # relu(z) = z + relu(−z)
            skip += np.outer(down[:, j], up[j])
            offset += down[:, j] * bias[j]
            up[j], bias[j] = -up[j], -bias[j]
        if draw(st.booleans()):
            up[j], bias[j], down[:, j] = 2 * up[j], 2 * bias[j], down[:, j] / 2
    if draw(st.booleans()):
        part = draw(st.integers(-2, 2))
        up, bias = np.vstack([up, up[0]]), np.append(bias, bias[0])
        down = np.column_stack([down, part * down[:, 0]])
        down[:, 0] *= 1 - part
    if draw(st.booleans()):
        changed = draw(st.sampled_from([up, bias, down, skip, offset]))
        entry = draw(st.integers(0, changed.size - 1))
        changed.flat[entry] += draw(st.sampled_from([-1, 1]))
    order = draw(st.permutations(range(len(up))))
    return ResidualBlock(
        w_up=up[order],
        b_up=bias[order],
        w_down=down[:, order],
        b_down=offset,
        skip=skip,
        activation="relu",
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[ResidualBlock, ResidualBlock]:
    d = draw(st.integers(1, 2))
    first = small_block(draw, d, draw(st.integers(1, 3)), 2)
    if draw(st.booleans()):
        return first, rewritten(draw, first)
    tiny = st.integers(1, 2)
    return small_block(draw, d, draw(tiny), 1), small_block(draw, d, draw(tiny), 1)


@settings(max_examples=300)
@given(pairs())
def test_forms_are_equal_exactly_when_the_functions_are(
    pair: tuple[ResidualBlock, ResidualBlock],
) -> None:
    a, b = pair
    same = same_function(a, b)
    assert (canonical_form(a) == canonical_form(b)) == same


@settings(max_examples=30)
@given(pairs())
def test_compare_decides_relu_blocks(pair: tuple[ResidualBlock, ResidualBlock]) -> None:
    a, b = pair
    if same_function(a, b):
        assert proved_equal(compare(a, b))
    else:
        assert proved_different(a, b)


def test_the_oracle_sees_both_answers() -> None:
    a = ResidualBlock(w_up=np.eye(2), w_down=-np.eye(2), activation="relu")
    b = PlainBlock(w_up=-np.eye(2), w_down=-np.eye(2), activation="relu")
    c = PlainBlock(w_up=-np.eye(2), w_down=-np.eye(2), b_up=[0, 1], activation="relu")
    assert same_function(a, b)
    assert not same_function(a, c)


# --------------------------------------------------------------------------------------
# Across activations, and small differences.


def random_weights(seed: int, d: int = 3, m: int = 7) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "w_up": rng.normal(size=(m, d)),
        "w_down": rng.normal(size=(d, m)),
        "b_up": rng.normal(size=m),
        "b_down": rng.normal(size=d),
    }


def test_leaky_relu_is_two_relus() -> None:
    w = random_weights(0)
    w["w_down"] = w["w_down"].astype(np.float32).astype(np.float64)  # a multiple stays exact
    leaky = ResidualBlock(**w, activation="leaky_relu(0.25)")
    two = ResidualBlock(
        w_up=np.vstack([w["w_up"], -w["w_up"]]),
        b_up=np.append(w["b_up"], -w["b_up"]),
        w_down=np.column_stack([w["w_down"], -0.25 * w["w_down"]]),
        b_down=w["b_down"],
        activation="relu",
    )
    assert proved_equal(compare(leaky, two))
    assert proved_different(leaky, ResidualBlock(**w, activation="relu"))


def test_prelu_with_one_slope_a_neuron() -> None:
    w = random_weights(1, m=4)
    slopes = [0.5, -1.0, 1.0, 0.25]
    mixed = PlainBlock(**w, activation=prelu(slopes))
    order = [2, 0, 3, 1]
    moved = PlainBlock(
        w_up=w["w_up"][order],
        b_up=w["b_up"][order],
        w_down=w["w_down"][:, order],
        b_down=w["b_down"],
        activation=prelu([slopes[j] for j in order]),
    )
    assert proved_equal(compare(mixed, moved))
    assert proved_different(mixed, PlainBlock(**w, activation=prelu(slopes[::-1])))
    linear = PlainBlock(**w, activation=prelu([1.0]))
    assert proved_equal(compare(linear, PlainBlock(**w, activation="identity")))


def test_gelu_and_its_tanh_form_differ_by_measurement() -> None:
    w = random_weights(2)
    found = compare(
        ResidualBlock(**w, activation="gelu"), ResidualBlock(**w, activation="gelu_new")
    )
    assert (found.proved, found.equal) == (False, False)
    assert found.max_error > 1e-4
    assert "no theorem compares gelu with gelu_tanh" in str(found)


def test_an_affine_block_is_comparable_with_every_other() -> None:
    cancels = PlainBlock(w_up=[[2], [-2]], w_down=[[1, -1]], activation="silu")
    line = ResidualBlock(w_up=[[1]], w_down=[[0]], skip=2.0, activation="relu")
    assert proved_equal(compare(cancels, line))
    bent = PlainBlock(w_up=[[1]], w_down=[[1]], activation="gelu")
    assert proved_different(bent, line)


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "leaky_relu(0.01)", "hard_swish"])
@pytest.mark.parametrize("entry", ["w_up", "w_down", "b_up", "b_down"])
def test_one_unit_in_the_last_place(name: str, entry: str) -> None:
    w = random_weights(4)
    off = {k: v.copy() for k, v in w.items()}
    off[entry].flat[0] = np.nextafter(off[entry].flat[0], 9)
    a, b = ResidualBlock(**w, activation=name), ResidualBlock(**off, activation=name)
    assert proved_different(a, b)
    assert proved_equal(compare(a, ResidualBlock(**w, activation=name)))


def test_a_distant_narrow_bump_is_found() -> None:
    at = 2.0**20
    flat = PlainBlock(w_up=[[1.0]], w_down=[[0.0]], activation="relu")
    bump = PlainBlock(
        w_up=[[1.0]] * 3,
        b_up=[-at + 0.5, -at, -at - 0.5],
        w_down=[[1.0, -2.0, 1.0]],
        activation="relu",
    )
    assert np.abs(bump(np.linspace(-1e4, 1e4, 999)[:, None])).max() == 0
    assert proved_different(flat, bump)


def test_irrational_constants_are_left_open() -> None:
    one = {"w_up": [[1.0], [0.0]], "w_down": [[1.0, 1.0]], "activation": "gelu"}
    a, b = PlainBlock(**one, b_up=[0, 1]), PlainBlock(**one, b_up=[0, 2])
    found = compare(a, b)
    assert (found.proved, found.equal) == (False, False)
    assert "not rational" in found.reason
    assert proved_equal(compare(a, PlainBlock(**one, b_up=[-0.0, 1])))
    flipped = PlainBlock(**one, b_up=[0, -1], b_down=[1])  # gelu(1) = 1 + gelu(−1)
    assert proved_equal(compare(a, flipped))
    relu = {**one, "activation": "relu"}
    assert proved_equal(compare(PlainBlock(**relu, b_up=[0, -3]), PlainBlock(**relu, b_up=[0, -1])))


@pytest.mark.parametrize("name", ["mish", "cube", "swiglu", "glu", "sine"])
def test_reordered_neurons_are_the_same_for_every_kind(name: str) -> None:
    w = random_weights(5)
    gated = {"w_gate": w["w_up"] + 1, "b_gate": -w["b_up"]} if "glu" in name else {}
    order = np.roll(np.arange(7), 3)
    moved = {k: v[order] for k, v in {**w, **gated}.items() if k not in ("w_down", "b_down")}
    moved |= {"w_down": w["w_down"][:, order], "b_down": w["b_down"]}
    a = ResidualBlock(**w, **gated, activation=name)
    found = compare(a, ResidualBlock(**moved, activation=name))
    assert proved_equal(found)
    assert found.reason == "they have the same neurons"
    moved["w_down"] = np.ascontiguousarray(moved["w_down"][::-1])
    assert compare(a, ResidualBlock(**moved, activation=name)).equal is False


def test_equal_neurons_add_up_for_every_kind() -> None:
    one = PlainBlock(w_up=[[1.0]], w_down=[[3.0]], activation="mish")
    three = PlainBlock(w_up=[[1.0]] * 4, w_down=[[4.0, -1.5, 0.5, 0.0]], activation="mish")
    assert proved_equal(compare(one, three))
    other = PlainBlock(w_up=[[1.0]] * 4, w_down=[[4.0, -1.5, 0.25, 0.0]], activation="mish")
    assert compare(one, other).equal is False


# --------------------------------------------------------------------------------------
# Measurement.


def test_given_inputs_are_tried() -> None:
    """A bump so far out and so narrow that no search finds it: the user's word counts."""
    at = np.array([123.4375, 77.625])
    bump = {
        "w_gate": [[1024.0, 0.0]],
        "b_gate": [-1024 * at[0]],
        "w_up": [[0.0, 1024.0]],
        "b_up": [-1024 * at[1]],
        "activation": "gaussian",
        "up_activation": "gaussian",
    }
    a = PlainBlock(**bump, w_down=[[0.0], [0.0]])
    b = PlainBlock(**bump, w_down=[[1.0], [0.0]])
    assert undecided(compare(a, b, samples=512))
    here = compare(a, b, inputs=[at], samples=512)
    assert (here.proved, here.equal, here.max_error) == (False, False, 1.0)
    assert here.where is not None
    assert here.where.tolist() == at.tolist()


def test_the_search_climbs() -> None:
    one = {"w_up": [[1.0]], "w_down": [[1.0]]}
    tanh, erf = (PlainBlock(**one, activation=name) for name in ("tanh", "erf"))
    x = np.linspace(0, 3, 300_001)[:, None]
    best = np.abs(tanh(x) - erf(x)).max()
    assert compare(tanh, erf, samples=256).max_error == pytest.approx(best, rel=1e-6)


def test_kinks_that_differ_are_looked_at_first() -> None:
    """The only difference is a bump at 5000, of three neurons among five hundred."""
    up, bias = np.ones((500, 1)), np.linspace(-50, 50, 500)
    down = np.full((1, 500), 0.5)
    shared = PlainBlock(w_up=up, b_up=bias, w_down=down, activation="silu")
    bumped = PlainBlock(
        w_up=np.ones((503, 1)),
        b_up=np.append(bias, [-4999, -5000, -5001]),
        w_down=np.append(down, [[1, -2, 1]], axis=1),
        activation="silu",
    )
    found = compare(shared, bumped, samples=64)
    assert (found.proved, found.equal) == (True, False)
    assert found.max_error > 0.1
    assert found.where is not None
    assert abs(found.where[0] - 5000) < 20


def test_measurement_is_reproducible_and_read_only() -> None:
    w = random_weights(6)
    blocks = [PlainBlock(**w, activation=name) for name in ("tanh", "erf")]
    first, second = compare(*blocks, seed=3), compare(*blocks, seed=3)
    assert first.where is not None
    assert second.where is not None
    assert np.array_equal(first.where, second.where)
    assert first.max_error == second.max_error > 0.01
    deviation = np.abs(blocks[0](first.where[None]) - blocks[1](first.where[None]))
    assert deviation.max() == pytest.approx(first.max_error, rel=1e-12)
    with pytest.raises(ValueError, match="read-only"):
        first.where[0] = 1.0


def test_rounding_is_not_called_a_difference() -> None:
    rng = np.random.default_rng(7)
    for name in ("mish", "cube", "tanh", "swiglu", "sine"):
        w = random_weights(7, d=6, m=30)
        w["w_up"] *= 30
        turn = np.linalg.qr(rng.normal(size=(6, 6)))[0]
        gated = {"w_gate": w["w_up"][::-1].copy()} if name == "swiglu" else {}
        a = ResidualBlock(**w, **gated, activation=name)
        split = {k: np.concatenate([v, v]) for k, v in {**w, **gated}.items() if "b_down" not in k}
        split["w_down"] = np.column_stack([w["w_down"] * 0.3, w["w_down"] - w["w_down"] * 0.3])
        shift = turn @ turn.T  # the identity up to rounding
        b = ResidualBlock(**split, b_down=w["b_down"], skip=shift, activation=name)
        found = compare(a, b)
        assert undecided(found)
        assert found.relative_error < 1e-9 or found.max_error < 1e-6


def test_overflow_is_no_evidence() -> None:
    huge = PlainBlock(w_up=[[1e200]], w_down=[[1e200]], b_up=[1e200], activation="cube")
    other = PlainBlock(w_up=[[1e200]], w_down=[[2e200]], b_up=[1e200], activation="cube")
    found = compare(huge, other, samples=16)
    assert found.equal is None
    assert not found.proved


def test_bad_arguments() -> None:
    a = PlainBlock(w_up=[[1.0]], w_down=[[1.0]], activation="relu")
    b = PlainBlock(w_up=[[1.0, 0.0]], w_down=[[1.0], [0.0]], activation="relu")
    with pytest.raises(BlockError, match="dimensions"):
        compare(a, b)
    with pytest.raises(BlockError, match="inputs"):
        compare(a, a, inputs=[1.0])
    with pytest.raises(BlockError, match="samples"):
        compare(a, a, samples=0)
