"""canonical_form() against hand-made forms, exact evaluation and metamorphic laws."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskip import PlainBlock, ResidualBlock, canonical_form
from unskip.activations import prelu, register, resolve
from unskip.blocks import NormKind
from unskip.canonical import CanonicalForm
from unskip.errors import BlockError

F = Fraction
HALF = F(1, 2)
NAMES = ["relu", "leaky_relu(0.25)", "leaky_relu(-1/2)", "abs", "identity", "gelu", "hard_swish"]


def slopes(block: ResidualBlock | PlainBlock) -> list[Fraction]:
    """The negative-side slopes of a ReLU-like block, from its name alone."""
    if block.activation.slopes is not None:
        values = list(block.activation.slopes)
        return [F(a) for a in (values if len(values) == block.m else values * block.m)]
    known = {"relu": 0.0, "abs": -1.0, "identity": 1.0}
    name = block.activation.name
    a = known[name] if name in known else float(name.removeprefix("leaky_relu(")[:-1])
    return [F(a)] * block.m


def exact_value(block: ResidualBlock | PlainBlock, x: Sequence[Fraction]) -> list[Fraction]:
    """A ReLU-like block at a rational point, by its definition."""
    residual = isinstance(block, ResidualBlock)
    skip = block.skip_matrix if residual else np.zeros((block.d, block.d))
    value = [sum((F(a) * v for a, v in zip(r, x, strict=True)), F(0)) for r in skip.tolist()]
    for j, a in enumerate(slopes(block)):
        z = sum(F(float(w)) * v for w, v in zip(block.w_up[j], x, strict=True))
        z += F(0) if block.b_up is None else F(float(block.b_up[j]))
        z = z if z > 0 else a * z
        value = [v + F(float(w)) * z for v, w in zip(value, block.w_down[:, j], strict=True)]
    if block.b_down is not None:
        value = [v + F(float(c)) for v, c in zip(value, block.b_down, strict=True)]
    return value


def form_value(form: CanonicalForm, x: Sequence[Fraction]) -> list[Fraction]:
    assert form.activation == "abs"
    value = list(form.constant)
    for i, row in enumerate(form.linear):
        value[i] += sum(a * v for a, v in zip(row, x, strict=True))
    for (*normal, offset), column in form.kinks.items():
        z = abs(sum((n * v for n, v in zip(normal, x, strict=True)), offset))
        value = [v + k * z for v, k in zip(value, column, strict=True)]
    return value


@st.composite
def blocks(draw: st.DrawFn, names: Sequence[str] = NAMES) -> ResidualBlock:
    d, m = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    small = st.integers(-2, 2)

    def matrix(rows: int, columns: int) -> np.ndarray:
        entries = draw(st.lists(small, min_size=rows * columns, max_size=rows * columns))
        return np.array(entries, dtype=np.float64).reshape(rows, columns) / 2

    return ResidualBlock(
        w_up=matrix(m, d),
        w_down=matrix(d, m),
        b_up=matrix(1, m)[0] if draw(st.booleans()) else None,
        b_down=matrix(1, d)[0] if draw(st.booleans()) else None,
        activation=draw(st.sampled_from(names)),
        skip=matrix(d, d) if draw(st.booleans()) else None,
    )


# --------------------------------------------------------------------------------------
# Hand-made forms.


def test_relu_form_by_hand() -> None:
    block = ResidualBlock(
        w_up=[[2, 4], [-1, -2], [0, 0], [0, -3], [5, 5]],
        b_up=[2, -1, -7, 1, 0],
        w_down=[[1, 4, 3, 1, 0], [0, 2, 1, 1, 0]],
        b_down=[10, 20],
        activation="relu",
    )
    form = canonical_form(block)
    # relu(z) = z/2 + |z|/2.  Hyperplane x + 2y + 1: sizes 2 and 1, columns (1, 0), (4, 2).
    assert form.kinks == {
        (F(1), F(2), F(1)): (F(3), F(1)),
        (F(0), F(1), F(-1, 3)): (F(3, 2), F(3, 2)),
    }
    # I + ½ ((1, 0)(2, 4) + (4, 2)(−1, −2) + (1, 1)(0, −3))
    assert form.linear == ((F(0), -F(7, 2)), (F(-1), F(-5, 2)))
    # c + ½ (2 (1, 0) − (4, 2) + (1, 1)); the neuron relu(−7) = 0 adds nothing
    assert form.constant == (F(19, 2), F(39, 2))
    assert form.constants == {}
    assert (form.width, form.unique, form.activation) == (2, True, "abs")
    assert str(form) == "on R^2: 2 kinks of |z|, a linear part, a constant; unique"


def test_gelu_form_by_hand() -> None:
    block = PlainBlock(
        w_up=[[1], [2], [-1], [0], [0], [0]],
        b_up=[1, 2, -1, 3, -3, 0],
        w_down=[[1, 1, 2, 5, 7, 9]],
        activation="gelu",
    )
    form = canonical_form(block)
    assert form.kinks == {(F(1), F(1)): (F(3),), (F(2), F(2)): (F(1),)}
    assert form.linear == ((HALF * (1 + 2 - 2),),)
    assert form.constant == (HALF * (1 + 2 - 2 + 15 - 21),)
    assert form.constants == {F(3): (F(12),)}  # gelu(0) = 0 is known
    assert form.activation == "gelu"


def test_softplus_keeps_the_constant_at_zero() -> None:
    block = PlainBlock(w_up=[[0]], w_down=[[5]], activation="softplus")
    assert canonical_form(block).constants == {F(0): (F(5),)}


def test_negative_zeros_are_zeros() -> None:
    plain = PlainBlock(w_up=[[0.0, 1.0]], b_up=[0.0], w_down=[[1], [0.0]], activation="silu")
    signed = PlainBlock(w_up=[[-0.0, -1.0]], b_up=[-0.0], w_down=[[1], [-0.0]], activation="silu")
    assert canonical_form(plain).kinks == canonical_form(signed).kinks
    assert canonical_form(plain).linear != canonical_form(signed).linear


def test_linear_neurons_have_no_kink() -> None:
    block = ResidualBlock(w_up=[[3]], b_up=[2], w_down=[[2]], activation="identity")
    form = canonical_form(block)
    assert (form.width, form.linear, form.constant) == (0, ((F(7),),), (F(4),))


def test_prelu_slopes_weigh_the_kinks() -> None:
    block = PlainBlock(
        w_up=np.eye(3), w_down=np.eye(3), activation=prelu([0.25, 1.0, -1.0]), b_up=[1, 1, 1]
    )
    form = canonical_form(block)
    assert list(form.kinks.values()) == [(F(3, 8), F(0), F(0)), (F(0), F(0), F(1))]
    assert [form.linear[i][i] for i in range(3)] == [F(5, 8), F(1), F(0)]


def test_opposite_pair_is_linear() -> None:
    for name in ("relu", "gelu"):
        block = PlainBlock(
            w_up=[[3, 1], [-3, -1]], b_up=[2, -2], w_down=[[1, -1], [5, -5]], activation=name
        )
        form = canonical_form(block)
        assert form.affine
        assert form.linear == ((F(3), F(1)), (F(15), F(5)))
        assert form.constant == (F(2), F(10))


def test_hard_swish_with_parallel_rows_is_not_unique() -> None:
    # golden G41: these six distinct neurons add up to zero
    six = PlainBlock(
        w_up=[[6], [3], [2], [6], [3], [6]],
        b_up=[-3, -3, -3, -9, -6, -15],
        w_down=[[1, -8, 9, 3, -8, 1]],
        activation="hardswish",
    )
    x = np.linspace(-9, 9, 2001)[:, None]
    assert np.abs(six(x)).max() < 1e-12
    form = canonical_form(six)
    assert (form.width, form.unique) == (6, False)
    assert not any(form.linear[0])
    crossing = PlainBlock(w_up=[[1, 0], [1, 1]], w_down=np.eye(2), activation="hardswish")
    twice = PlainBlock(w_up=[[1, 0], [-1, 0]], w_down=np.eye(2), activation="hardswish")
    assert canonical_form(crossing).unique
    assert canonical_form(twice).unique  # the same neuron twice


# --------------------------------------------------------------------------------------
# Exactness.


@given(blocks([n for n in NAMES if n not in ("gelu", "hard_swish")]), st.data())
def test_form_is_the_function(block: ResidualBlock, data: st.DataObject) -> None:
    form = canonical_form(block)
    for _ in range(4):
        entries = st.fractions(-5, 5, max_denominator=8)
        x = data.draw(st.lists(entries, min_size=block.d, max_size=block.d))
        assert form_value(form, x) == exact_value(block, x)


@pytest.mark.parametrize("name", ["gelu", "silu", "softplus", "hard_swish", "log_sigmoid"])
def test_form_is_the_function_in_floating_point(name: str) -> None:
    rng = np.random.default_rng(3)
    block = ResidualBlock(
        w_up=np.concatenate([rng.normal(size=(5, 3)), np.zeros((2, 3))]),
        b_up=rng.normal(size=7),
        w_down=rng.normal(size=(3, 7)),
        b_down=rng.normal(size=3),
        activation=name,
    )
    form, sigma = canonical_form(block), resolve(name)
    x = rng.normal(size=(50, 3))
    value = x @ np.array(form.linear, dtype=float).T + np.array(form.constant, dtype=float)
    terms = [(x @ np.array(n, float) + float(b), k) for (*n, b), k in form.kinks.items()]
    terms += [(np.full(50, float(b)), k) for b, k in form.constants.items()]
    assert len(terms) == 7
    for z, column in terms:
        value += np.outer(sigma(z) - z / 2, np.array(column, dtype=float))
    np.testing.assert_allclose(value, block(x), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_weights_are_read_exactly(dtype: type) -> None:
    third = np.array([[1 / 3]]).astype(dtype)
    block = PlainBlock(w_up=third, w_down=third, activation="relu")
    exact = F(float(third[0, 0]))
    assert canonical_form(block).kinks == {(F(1), F(0)): (exact * exact / 2,)}


def test_extreme_magnitudes_stay_exact() -> None:
    block = PlainBlock(
        w_up=[[5e-324, 1e308]], b_up=[1.5], w_down=[[1e308], [5e-324]], activation="relu"
    )
    form = canonical_form(block)
    tiny, huge = F(5e-324), F(1e308)
    assert form.kinks == {(F(1), huge / tiny, F(3, 2) / tiny): (huge * tiny / 2, tiny * tiny / 2)}
    assert form.linear == (
        (huge * tiny / 2, huge * huge / 2),
        (tiny * tiny / 2, tiny * huge / 2),
    )


def test_one_unit_in_the_last_place_makes_two_kinks() -> None:
    up = np.array([[1 / 3, 2 / 3], [np.nextafter(1 / 3, 1), 2 / 3]])
    for name in ("relu", "gelu"):
        block = PlainBlock(w_up=up, w_down=np.eye(2), activation=name)
        assert canonical_form(block).width == 2


def test_registered_activation_of_degree_one() -> None:
    facts = resolve("leaky_relu(0.5)").facts
    own = register("half_leaky_for_test", lambda z: np.where(z > 0, z, z / 2), facts)
    blocks = (
        PlainBlock(w_up=[[2.0]], w_down=[[1.0]], activation=a) for a in (own, "leaky_relu(0.5)")
    )
    first, second = map(canonical_form, blocks)
    assert first == second


# --------------------------------------------------------------------------------------
# Laws.


@given(blocks(), st.randoms(use_true_random=False))
def test_order_splitting_dead_neurons_and_flips_change_nothing(
    block: ResidualBlock, random: object
) -> None:
    m, d = block.m, block.d
    order = list(range(m))
    random.shuffle(order)  # type: ignore[attr-defined]
    bias = np.zeros(m) if block.b_up is None else block.b_up
    offset = np.zeros(d) if block.b_down is None else block.b_down
    kappa = [float(k) for k in block.activation.parity_constants(m) or ()]
    up, down = block.w_up[order], block.w_down[:, order]
    bias = bias[order]
    j, flipped = 0, m - 1
    column = kappa[flipped] * down[:, flipped]
    skip = block.skip_matrix + np.outer(column, up[flipped])
    offset = offset + column * bias[flipped]
    up[flipped], bias[flipped] = -up[flipped], -bias[flipped]
    split = down[:, j] * 0.25
    down[:, j] -= split
    other = ResidualBlock(
        w_up=np.vstack([up, up[j], np.ones(d)]),
        b_up=np.append(bias, [bias[j], 3.0]),
        w_down=np.column_stack([down, split, np.zeros(d)]),
        b_down=offset,
        skip=skip,
        activation=block.activation,
    )
    first, second = canonical_form(block), canonical_form(other)
    assert first == second
    assert hash(first) == hash(second)


def test_positive_scaling_only_where_the_activation_is_homogeneous() -> None:
    up, down = np.array([[0.3, -0.7], [1.1, 0.2]]), np.array([[1.0, 2.0], [0.5, 0.1]])
    scale = np.array([4.0, 0.125])
    for name, same in [("relu", True), ("leaky_relu(0.1)", True), ("silu", False)]:
        first = PlainBlock(w_up=up, w_down=down, activation=name)
        second = PlainBlock(w_up=up * scale[:, None], w_down=down / scale, activation=name)
        assert (canonical_form(first) == canonical_form(second)) == same


def test_affine_forms_of_different_activations_are_equal() -> None:
    first, second = (
        canonical_form(PlainBlock(w_up=[[1], [-1]], w_down=[[2, -2]], activation=name))
        for name in ("relu", "gelu")
    )
    assert first == second
    assert hash(first) == hash(second)
    bent = [
        canonical_form(PlainBlock(w_up=[[1]], w_down=[[2]], activation=name))
        for name in ("gelu", "silu")
    ]
    assert bent[0] != bent[1]
    assert bent[0] != "gelu"


def test_width_is_what_the_minimal_width_theorem_counts() -> None:
    block = PlainBlock(
        w_up=[[1, 0], [2, 0], [0, 1], [0, -1]], w_down=[[1, 1, 1, -1]] * 2, activation="relu"
    )
    assert canonical_form(block).width == 1


# --------------------------------------------------------------------------------------
# Refusals, immutability, approximation.


def test_refusals() -> None:
    one = {"w_up": [[1.0]], "w_down": [[1.0]]}
    with pytest.raises(BlockError, match="gated"):
        canonical_form(PlainBlock(**one, w_gate=[[1.0]], activation="swiglu"))
    for norm in NormKind:
        if norm is not NormKind.NONE:
            with pytest.raises(BlockError, match="norm"):
                canonical_form(ResidualBlock(**one, activation="relu", norm=norm))
    for name in ("mish", "tanh", "square", "cube", "elu", "relu6", "gaussian", "hardtanh"):
        with pytest.raises(BlockError, match="no uniqueness theorem"):
            canonical_form(PlainBlock(**one, activation=name))
    for tolerance in (-1.0, float("nan"), float("inf")):
        with pytest.raises(BlockError, match="tolerance"):
            canonical_form(PlainBlock(**one, activation="relu"), tolerance=tolerance)


def test_forms_cannot_be_changed() -> None:
    form = canonical_form(PlainBlock(w_up=[[1.0]], w_down=[[1.0]], activation="relu"))
    with pytest.raises(TypeError):
        form.kinks[F(1), F(0)] = (F(9),)  # type: ignore[index]
    with pytest.raises(AttributeError):
        form.d = 2  # type: ignore[misc]


def test_tolerance_merges_chains_and_drops_small_columns() -> None:
    step = 2.0**-20
    block = PlainBlock(
        w_up=[[1, 0], [1, step], [2, 4 * step], [1, 1], [1, 2]],
        w_down=[[1, 1, 1, 3, step], [0, 0, 0, 0, 0]],
        activation="relu",
    )
    assert canonical_form(block).width == 5
    near = canonical_form(block, tolerance=step)
    assert near.kinks == {(F(1), F(0), F(0)): (F(2), F(0)), (F(1), F(1), F(0)): (F(3, 2), F(0))}
    assert not near.unique
    assert "approximately" in str(near)
    assert near != canonical_form(block)
    assert canonical_form(block, tolerance=step / 2).width == 4  # the small column is gone
    far = PlainBlock(
        w_up=[[5e-324, 1e308], [5e-324, -1e308]], w_down=[[4, 4], [0, 0]], activation="relu"
    )
    assert canonical_form(far).width == 2
    assert canonical_form(far, tolerance=0.1).width == 0  # normalised, their columns are tiny
