"""Blocks: their functions against torch, their weights kept as they came, their errors."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

from unskip import PlainBlock, ResidualBlock
from unskip.activations import prelu, resolve
from unskip.blocks import NormKind
from unskip.errors import ActivationError, BlockError, UnskipError

EPS = sys.float_info.epsilon
D, M, N = 5, 9, 40
SHAPES = {
    "w_up": (M, D),
    "w_gate": (M, D),
    "w_down": (D, M),
    "b_up": (M,),
    "b_gate": (M,),
    "b_down": (D,),
    "norm_gain": (D,),
    "norm_bias": (D,),
    "out_norm_gain": (D,),
    "out_norm_bias": (D,),
    "skip": (D, D),
}
UNGATED = ("w_up", "w_down", "b_up", "b_down")
GATED = (*UNGATED, "w_gate", "b_gate")


def weights(*names: str, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=SHAPES[name]) for name in names}


def inputs(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(N, D)) * 3


def linear(weight: np.ndarray, bias: np.ndarray | None) -> nn.Linear:
    rows, columns = weight.shape
    layer = nn.Linear(columns, rows, bias=bias is not None, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        if bias is not None:
            layer.bias.copy_(torch.from_numpy(bias))
    return layer


def torch_branch(
    w: dict[str, np.ndarray], act: Callable, value: Callable | None = None
) -> Callable:
    up = linear(w["w_up"], w.get("b_up"))
    down = linear(w["w_down"], w.get("b_down"))
    if "w_gate" not in w:
        return lambda x: down(act(up(x)))
    gate = linear(w["w_gate"], w.get("b_gate"))
    if value is None:
        return lambda x: down(act(gate(x)) * up(x))
    return lambda x: down(act(gate(x)) * value(up(x)))


def torch_norm(w: dict[str, np.ndarray], kind: str, eps: float, prefix: str = "norm_") -> nn.Module:
    make = {"layernorm": nn.LayerNorm, "rmsnorm": nn.RMSNorm}[kind]
    norm = make(D, eps=eps, dtype=torch.float64)
    with torch.no_grad():
        if prefix + "gain" in w:
            norm.weight.copy_(torch.from_numpy(w[prefix + "gain"]))
        if prefix + "bias" in w:
            norm.bias.copy_(torch.from_numpy(w[prefix + "bias"]))
    return norm


def magnitude(w: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """What the sums of a branch add up to, in absolute values; |σ(z)| ≤ 1.2 |z| + 1 here."""

    def layer(weight: str, bias: str) -> np.ndarray:
        return np.abs(x) @ np.abs(w[weight]).T + np.abs(w.get(bias, 0.0))

    hidden = 1.2 * layer("w_up", "b_up") + 1
    if "w_gate" in w:
        hidden = hidden * (1.2 * layer("w_gate", "b_gate") + 1)
    return np.abs(hidden) @ np.abs(w["w_down"]).T + np.abs(w.get("b_down", 0.0)) + np.abs(x)


#: Two evaluations of sums of D and of M terms, nested, and a few functions of an ulp or two
#: each: the first-order error is below (D + M + 10) ulps of the magnitude on either side.
STEPS = 2 * (D + M + 10)


def assert_same(ours: np.ndarray, theirs: torch.Tensor, size: np.ndarray) -> None:
    assert ours.shape == tuple(theirs.shape)
    assert ours.dtype == np.float64
    assert (np.abs(ours - theirs.detach().numpy()) <= STEPS * EPS * size).all()


ACTIVATIONS = {
    "relu": nn.ReLU(),
    "gelu": nn.GELU(),
    "gelu_tanh": nn.GELU(approximate="tanh"),
    "silu": nn.SiLU(),
    "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(),
    "leaky_relu(0.2)": nn.LeakyReLU(0.2),
    "elu": nn.ELU(),
}


@pytest.mark.parametrize("present", [(), ("b_up",), ("b_down",), ("b_up", "b_down")], ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_ungated(name: str, present: tuple[str, ...]) -> None:
    w = weights("w_up", "w_down", *present)
    x = inputs()
    branch = torch_branch(w, ACTIVATIONS[name])(torch.from_numpy(x))
    block = ResidualBlock(**w, activation=name)
    assert_same(block(x), torch.from_numpy(x) + branch, magnitude(w, x))
    assert_same(PlainBlock(**w, activation=name)(x), branch, magnitude(w, x))
    assert_same(block.branch(x), branch, magnitude(w, x))
    assert (block.d, block.m, block.gated) == (D, M, False)
    assert len(block.hidden_biases) == ("b_up" in present)
    assert set(block.tensors) == set(w)


@pytest.mark.parametrize("present", [(), ("b_gate",), ("b_up",), ("b_up", "b_gate", "b_down")])
@pytest.mark.parametrize("name", ["silu", "gelu", "relu", "sigmoid", "swiglu"])
def test_gated(name: str, present: tuple[str, ...]) -> None:
    w = weights("w_up", "w_gate", "w_down", *present)
    x = inputs()
    act = ACTIVATIONS["silu" if name == "swiglu" else name]
    branch = torch_branch(w, act)(torch.from_numpy(x))
    block = ResidualBlock(**w, activation=name)
    assert_same(block(x), torch.from_numpy(x) + branch, magnitude(w, x))
    assert_same(PlainBlock(**w, activation=name)(x), branch, magnitude(w, x))
    assert block.gated
    assert len(block.hidden_biases) == len(set(present) - {"b_down"})
    assert block.activation_name == ("silu" if name == "swiglu" else name)


def test_a_gated_block_with_two_functions() -> None:
    """The clamped kind, written out: (clip(u, ±7) + 1) · min(g, 7) · sigmoid(1.702 min(g, 7))."""
    w = weights(*GATED)
    x = inputs() * 4  # so that both clamps bind

    def gate(z: torch.Tensor) -> torch.Tensor:
        z = torch.clamp(z, max=7)
        return z * torch.sigmoid(1.702 * z)

    branch = torch_branch(w, gate, lambda z: torch.clamp(z, -7, 7) + 1)(torch.from_numpy(x))
    named = ResidualBlock(**w, activation="clamped_swiglu")
    # the sums inside are as large as without clamps, and the factors at most 8
    assert_same(named(x), torch.from_numpy(x) + branch, 10 * magnitude(w, x))
    spelled = ResidualBlock(
        **w, activation="clamped_swish(1.702,7)", up_activation="clamped_shift(7,1)"
    )
    assert np.array_equal(spelled(x), named(x))
    assert named.activation_name == "clamped_swish(1.702,7.0) × clamped_shift(7.0,1.0)"


@pytest.mark.parametrize("value", ["tanh", "relu"])
def test_a_value_activation_beside_a_named_kind(value: str) -> None:
    w = weights(*GATED)
    x = inputs()
    branch = torch_branch(w, nn.SiLU(), ACTIVATIONS[value])(torch.from_numpy(x))
    block = ResidualBlock(**w, activation="swiglu", up_activation=value)
    assert_same(block.branch(x), branch, magnitude(w, x))


def test_prelu_slopes_belong_to_neurons() -> None:
    w = weights(*UNGATED)
    slopes = np.random.default_rng(5).normal(size=M)
    layer = nn.PReLU(M, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(slopes))
    x = inputs()
    branch = torch_branch(w, layer)(torch.from_numpy(x))
    size = magnitude(w, x) * max(1.0, np.abs(slopes).max())
    assert_same(ResidualBlock(**w, activation=prelu(slopes)).branch(x), branch, size)


# --------------------------------------------------------------------------------------
# Skips and norms.

SKIPS = {
    "none": None,
    "number": 2.5,
    "zero": 0,
    "vector": np.arange(D) - 1.5,
    "matrix": np.random.default_rng(9).normal(size=(D, D)),
}


@pytest.mark.parametrize("kind", SKIPS)
def test_skips(kind: str) -> None:
    skip = SKIPS[kind]
    matrix = {
        "none": np.eye(D),
        "number": 2.5 * np.eye(D),
        "zero": np.zeros((D, D)),
        "vector": np.diag(np.arange(D) - 1.5),
        "matrix": skip,
    }[kind]
    w = weights(*UNGATED)
    x = inputs()
    block = ResidualBlock(**w, activation="relu", skip=skip)
    assert np.array_equal(block.skip_matrix, matrix)
    expected = torch.from_numpy(x @ matrix.T) + torch_branch(w, nn.ReLU())(torch.from_numpy(x))
    assert_same(block(x), expected, magnitude(w, x) + np.abs(x) @ np.abs(matrix).T)


def test_a_skip_of_one_dimension() -> None:
    one = {"w_up": [[1.0]], "w_down": [[1.0]], "activation": "relu"}
    for skip in (3.0, [3.0], [[3.0]]):
        assert ResidualBlock(**one, skip=skip)([[-2.0]]).tolist() == [[-6.0]]


NORM_WEIGHTS = [(), ("norm_gain",), ("norm_gain", "norm_bias")]


def normed_size(size: np.ndarray, y: np.ndarray, gain: np.ndarray | float) -> np.ndarray:
    """An error e of y moves its norm by at most (|e| + mean|e|)(1 + √D) gain / std(y)."""
    spread = np.sqrt(np.var(y, axis=1, keepdims=True))
    worst = size.max(axis=1, keepdims=True) + np.abs(y).max(axis=1, keepdims=True)
    return 2 * (1 + D**0.5) * worst / spread * (np.abs(gain) + 1)


@pytest.mark.parametrize("present", NORM_WEIGHTS, ids=str)
@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("skip", [None, 0.5])
def test_post_norm(kind: str, present: tuple[str, ...], skip: float | None) -> None:
    if kind == "rmsnorm":
        present = tuple(name for name in present if name != "norm_bias")
    w, p = weights(*UNGATED), weights(*present, seed=2)
    x = inputs()
    y = torch.from_numpy(x * (1.0 if skip is None else skip))
    y = y + torch_branch(w, nn.GELU())(torch.from_numpy(x))
    block = ResidualBlock(
        **w, **p, activation="gelu", norm=f"post-{kind}", norm_eps=1e-3, skip=skip
    )
    size = normed_size(magnitude(w, x), y.detach().numpy(), p.get("norm_gain", 1.0))
    assert_same(block(x), torch_norm(p, kind, 1e-3)(y), size)


@pytest.mark.parametrize("present", NORM_WEIGHTS, ids=str)
@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("gated", [False, True])
def test_pre_norm(kind: str, present: tuple[str, ...], gated: bool) -> None:
    if kind == "rmsnorm":
        present = tuple(name for name in present if name != "norm_bias")
    w, p = weights(*(GATED if gated else UNGATED)), weights(*present, seed=2)
    x = inputs()
    z = torch_norm(p, kind, 1e-6)(torch.from_numpy(x))
    expected = torch.from_numpy(x) + torch_branch(w, nn.SiLU())(z)
    block = ResidualBlock(**w, **p, activation="silu", norm=f"pre-{kind}", norm_eps=1e-6)
    # the inputs are centred around 0 with a spread near 3: the norm costs a few ulps more
    inside = np.abs(z.detach().numpy()) + normed_size(np.abs(x), x, p.get("norm_gain", 1.0))
    assert_same(block(x), expected, magnitude(w, inside) + np.abs(x))
    inner = block.inner()
    assert inner.norm is NormKind.NONE
    assert set(inner.tensors) == set(w)
    assert np.array_equal(inner(x), ResidualBlock(**w, activation="silu")(x))


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_sandwich_norm(kind: str) -> None:
    names = ("norm_gain", "out_norm_gain")
    if kind == "layernorm":
        names += ("norm_bias", "out_norm_bias")
    w, p = weights(*GATED), weights(*names, seed=2)
    x = inputs()
    z = torch_norm(p, kind, 1e-5)(torch.from_numpy(x))
    y = torch_branch(w, nn.SiLU())(z)
    expected = torch.from_numpy(x) + torch_norm(p, kind, 1e-5, prefix="out_norm_")(y)
    block = ResidualBlock(**w, **p, activation="swiglu", norm=f"sandwich-{kind}", norm_eps=1e-5)
    inside = np.abs(z.detach().numpy()) + normed_size(np.abs(x), x, p["norm_gain"])
    size = normed_size(magnitude(w, inside), y.detach().numpy(), p["out_norm_gain"])
    assert_same(block(x), expected, size + np.abs(x))
    assert set(block.inner().tensors) == set(w)


def test_norm_kinds() -> None:
    placements = {kind: kind.placement for kind in NormKind}
    assert set(placements.values()) == {"none", "pre", "post", "sandwich"}
    assert {kind.value for kind in NormKind if kind.centres} == {
        "pre-layernorm",
        "post-layernorm",
        "sandwich-layernorm",
    }
    w = weights("w_up", "w_down")
    for given in (None, "none", NormKind.NONE):
        assert ResidualBlock(**w, activation="relu", norm=given).norm is NormKind.NONE
    by_text = ResidualBlock(**w, activation="relu", norm="post-rmsnorm")
    assert by_text.norm is NormKind.POST_RMSNORM


# --------------------------------------------------------------------------------------
# Types: what is stored is what came, exactly.

NUMPY_TYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
TORCH_TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_numpy_floats_are_kept(dtype: type) -> None:
    w = {name: value.astype(dtype) for name, value in weights(*GATED).items()}
    block = ResidualBlock(**w, activation="swiglu", skip=np.array(1.5, dtype))
    for name, value in w.items():
        stored = block.tensors[name]
        assert stored.dtype == dtype
        assert stored.tobytes() == value.tobytes()
    wide = ResidualBlock(
        **{name: v.astype(np.float64) for name, v in w.items()}, activation="swiglu", skip=1.5
    )
    assert np.array_equal(block(inputs()), wide(inputs()))


@pytest.mark.parametrize(("dtype", "kept"), [*zip(TORCH_TYPES, NUMPY_TYPES, strict=True)], ids=str)
def test_torch_floats_are_kept(dtype: torch.dtype, kept: type) -> None:
    w = {name: torch.from_numpy(value).to(dtype) for name, value in weights(*GATED).items()}
    block = ResidualBlock(**w, activation="swiglu", skip=torch.tensor(1.5, dtype=dtype))
    for name, tensor in w.items():
        stored = block.tensors[name]
        assert stored.dtype == kept
        assert np.array_equal(stored.astype(np.float64), tensor.double().numpy())
    assert block.skip.shape == ()
    assert float(block.skip) == 1.5


def test_every_finite_number_of_sixteen_bits_survives() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    for array, tensor in (
        (bits.view(np.float16), torch.from_numpy(bits.view(np.float16).copy())),
        (bits.view(ml_dtypes.bfloat16), torch.from_numpy(bits.copy()).view(torch.bfloat16)),
    ):
        with np.errstate(invalid="ignore"):  # signalling NaNs
            finite = np.isfinite(array)
        expected = tensor[torch.from_numpy(finite)].double().numpy()
        for column in (array[finite], tensor[torch.from_numpy(finite)]):
            block = PlainBlock(
                w_up=column[:, None], w_down=np.ones((1, len(expected))), activation="relu"
            )
            assert np.array_equal(block.w_up[:, 0].astype(np.float64), expected)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64, bool])
def test_integers_become_float64(dtype: type) -> None:
    value = np.array([[1, 0], [1, 1]], dtype)
    for given in (value, torch.from_numpy(value)):
        block = ResidualBlock(w_up=given, w_down=value.tolist(), activation="relu")
        assert block.w_up.dtype == block.w_down.dtype == np.float64
        assert np.array_equal(block.w_up, value)


@pytest.mark.parametrize(
    "value",
    [2**53 + 1, -(2**53) - 1, 2**63 - 1, np.uint64(2**64 - 1), np.int64(-(2**63) + 1), 10**30],
)
def test_integers_that_float64_would_round_are_refused(value: Any) -> None:
    with pytest.raises(BlockError, match=r"^w_up"):
        ResidualBlock(w_up=[[value]], w_down=[[1.0]], activation="relu")
    exact = ResidualBlock(w_up=[[2**53]], w_down=[[-(2**53)]], activation="relu")
    assert (exact.w_up[0, 0], exact.w_down[0, 0]) == (2.0**53, -(2.0**53))


@pytest.mark.parametrize(
    "value",
    [
        np.ones((M, D), complex),
        np.full((M, D), "1"),
        np.full((M, D), None),
        np.ones((M, D), np.longdouble),
        np.zeros((M, D), "M8[s]"),
        torch.ones(M, D, dtype=torch.complex64),
        torch.ones(M, D).to(torch.float8_e4m3fn),
        [[1.0] * D] * (M - 1) + [[1.0] * (D - 1)],
        torch.ones(M, D, device="meta"),
    ],
    ids=[
        "complex",
        "text",
        "object",
        "longdouble",
        "date",
        "complex tensor",
        "fp8",
        "ragged",
        "meta",
    ],
)
def test_other_types_are_refused_by_name(value: Any) -> None:
    with pytest.raises(BlockError, match=r"^w_up"):
        ResidualBlock(w_up=value, w_down=np.ones((D, M)), activation="relu")


def test_trainable_and_strided_tensors() -> None:
    w = weights(*UNGATED)
    reference = ResidualBlock(**w, activation="gelu")
    parameters = {name: nn.Parameter(torch.from_numpy(value)) for name, value in w.items()}
    (parameters["w_up"].sum() * 2).backward()
    wide = torch.from_numpy(np.repeat(np.repeat(w["w_up"], 2, axis=0), 3, axis=1))
    strided = {
        "w_up": wide[::2, ::3],
        "w_down": torch.from_numpy(np.ascontiguousarray(w["w_down"].T)).T,
        "b_up": torch.from_numpy(w["b_up"][::-1].copy()).flip(0),
        "b_down": np.asfortranarray(w["b_down"])[::-1][::-1],
    }
    assert not strided["w_up"].is_contiguous()
    assert not strided["w_down"].is_contiguous()
    for given in (parameters, strided):
        block = ResidualBlock(**given, activation="gelu")
        assert all(np.array_equal(block.tensors[name], w[name]) for name in w)
        assert np.array_equal(block(inputs()), reference(inputs()))
    halves = ResidualBlock(
        w_up=wide.bfloat16()[::2, ::3], w_down=strided["w_down"].bfloat16(), activation="gelu"
    )
    assert np.array_equal(halves.w_up, w["w_up"].astype(ml_dtypes.bfloat16))


def test_lists_and_other_byte_orders() -> None:
    w = weights("w_up", "w_down")
    listed = ResidualBlock(
        w_up=w["w_up"].tolist(), w_down=w["w_down"].astype(">f8"), activation="relu"
    )
    assert np.array_equal(listed.w_up, w["w_up"])
    assert np.array_equal(listed(inputs()), ResidualBlock(**w, activation="relu")(inputs()))


# --------------------------------------------------------------------------------------
# Immutability.


def all_weights() -> dict[str, np.ndarray]:
    return weights(*SHAPES)


def sandwich(w: dict[str, Any]) -> ResidualBlock:
    return ResidualBlock(**w, activation="swiglu", norm="sandwich-layernorm")


def test_a_block_cannot_be_changed() -> None:
    block = sandwich(all_weights())
    assert set(block.tensors) == set(SHAPES)
    for array in block.tensors.values():
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        block.w_up = np.zeros((M, D))  # type: ignore[misc]
    block.skip_matrix[...] = 0  # a copy
    assert block.skip_matrix.any()


@pytest.mark.parametrize("view", ["array", "read-only view", "read-only transpose", "tensor"])
def test_changing_what_was_passed_changes_nothing(view: str) -> None:
    """And the arrays that were passed stay writeable."""
    owned = all_weights()
    passed: dict[str, Any] = {}
    for name, array in owned.items():
        if view == "tensor":
            passed[name] = torch.from_numpy(array)
            continue
        if view == "read-only transpose":
            array = owned[name] = array.T.copy()
        passed[name] = array.T if view == "read-only transpose" else array
        if view != "array":
            passed[name] = passed[name].view()
            passed[name].flags.writeable = False
    block = sandwich(passed)
    before = {name: array.copy() for name, array in block.tensors.items()}
    outputs = block(inputs())
    for array in owned.values():
        array[...] = 7.0  # raises where it is not writeable
    assert all(np.array_equal(block.tensors[name], before[name]) for name in before)
    assert np.array_equal(block(inputs()), outputs)


def test_replacing_one_field_shares_the_rest() -> None:
    block = ResidualBlock(**weights(*UNGATED), activation="relu")
    other = dataclasses.replace(block, activation="gelu")
    assert other.w_up is block.w_up
    assert other.activation == resolve("gelu")
    assert block.activation == resolve("relu")


# --------------------------------------------------------------------------------------
# Errors.


def fails(**changes: Any) -> str:
    w: dict[str, Any] = {**weights(*GATED), "activation": "silu", **changes}
    with pytest.raises(BlockError) as caught:
        ResidualBlock(**{k: v for k, v in w.items() if v is not None})
    return str(caught.value)


@pytest.mark.parametrize("name", [n for n in SHAPES if n not in ("w_up", "skip")])
@pytest.mark.parametrize("change", ["longer", "shorter", "transposed", "scalar", "deeper"])
def test_shape_errors_name_the_tensor(name: str, change: str) -> None:
    shape = SHAPES[name]
    wrong = {
        "longer": (*shape[:-1], shape[-1] + 1),
        "shorter": (shape[0] - 1, *shape[1:]),
        "transposed": (*shape[::-1], 1) if len(shape) == 1 else shape[::-1],
        "scalar": (),
        "deeper": (1, *shape),
    }[change]
    message = fails(**{name: np.ones(wrong), "norm": "sandwich-layernorm"})
    assert message.startswith(f"{name} has shape {wrong}, not {shape}")
    assert f"m = {M}, d = {D}" in message


@pytest.mark.parametrize("shape", [(), (D,), (M, D, 1), (0, D), (M, 0)])
def test_shapes_of_w_up(shape: tuple[int, ...]) -> None:
    assert fails(w_up=np.ones(shape)).startswith(f"w_up has shape {shape}")


@pytest.mark.parametrize("shape", [(1,), (D + 1,), (M,), (1, D), (D, M), (D, D, 1)])
def test_shapes_of_the_skip(shape: tuple[int, ...]) -> None:
    assert fails(skip=np.ones(shape)).startswith(f"skip has shape {shape}")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", [*NUMPY_TYPES, torch.bfloat16], ids=str)
def test_numbers_that_are_not_finite(name: str, value: float, dtype: Any) -> None:
    array = np.ones(SHAPES[name])
    array.flat[-1] = value
    given = torch.from_numpy(array).to(dtype) if dtype is torch.bfloat16 else array.astype(dtype)
    message = fails(**{name: given, "norm": "sandwich-layernorm"})
    assert message.startswith(f"{name} has a NaN or infinite entry at")
    assert str([n - 1 for n in SHAPES[name]]) in message


@pytest.mark.parametrize("bits", [0x7F81, 0x7FC0, 0xFF80])
def test_all_kinds_of_nan_are_refused_without_a_warning(bits: int) -> None:
    array = np.full((M, D), bits, np.uint16).view(ml_dtypes.bfloat16)
    assert "NaN or infinite" in fails(w_up=array)


def test_inconsistent_arguments() -> None:
    assert "b_gate is given without w_gate" in fails(w_gate=None)
    assert "up_activation" in fails(w_gate=None, b_gate=None, up_activation="relu")
    assert "without a norm" in fails(norm_gain=np.ones(D))
    assert "without a norm" in fails(norm_bias=np.ones(D))
    for norm in ("pre-rmsnorm", "post-layernorm"):
        assert "sandwich" in fails(norm=norm, out_norm_gain=np.ones(D))
    unknown = fails(norm="groupnorm")
    assert "unknown norm 'groupnorm'" in unknown
    assert all(kind.value in unknown for kind in NormKind)
    for eps in (-1e-5, np.nan, np.inf):
        assert "norm_eps" in fails(norm="post-rmsnorm", norm_eps=eps)
    assert ResidualBlock(**weights(*UNGATED), activation="relu", norm_eps=0).norm_eps == 0.0


@pytest.mark.parametrize("half", ["activation", "up_activation"])
def test_prelu_needs_a_slope_for_each_neuron(half: str) -> None:
    assert f"slopes for m = {M}" in fails(**{half: prelu(np.arange(M + 1.0))})


def test_activation_errors_pass_through() -> None:
    w = weights("w_up", "w_down")
    for name in ("swiglu", "geluu"):  # a gated kind is no function of one number
        with pytest.raises(ActivationError, match="unknown activation"):
            ResidualBlock(**w, activation=name)


@pytest.mark.parametrize("shape", [(D,), (3, D + 1), (2, 3, D)])
def test_inputs_of_another_shape(shape: tuple[int, ...]) -> None:
    w = weights("w_up", "w_down")
    for block in (ResidualBlock(**w, activation="relu"), PlainBlock(**w, activation="relu")):
        with pytest.raises(BlockError, match="inputs have shape") as caught:
            block(np.ones(shape))
        assert isinstance(caught.value, UnskipError)
        assert f"(n, {D})" in caught.value.hint


def test_no_inputs_and_integer_inputs() -> None:
    block = ResidualBlock(**weights(*UNGATED), activation="relu")
    assert block(np.empty((0, D))).shape == (0, D)
    assert np.array_equal(block(np.eye(D, dtype=int)), block(np.eye(D)))


def test_the_smallest_block() -> None:
    block = ResidualBlock(w_up=[[1]], w_down=[[-1]], activation="relu")
    assert block([[2.0], [-3.0]]).tolist() == [[0.0], [-3.0]]
    assert (block.d, block.m) == (1, 1)
