"""Hugging Face model directories: config.json and safetensors, no code and no pickle.

A family is one entry of :data:`FAMILIES`: where its tensors are and which configuration keys
say what they mean.  CONTRIBUTING.md shows how to add one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unskip.blocks import NormKind, ResidualBlock
from unskip.errors import ModelError, UnskipError
from unskip.files import read_json_object
from unskip.frontends.source import BlockSource, Model
from unskip.frontends.tensors import Tensors

__all__ = ["FAMILIES", "Family", "read_directory"]

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """Where the MLP blocks of a model type are.

    ``layer`` is a regular expression for the path of a layer, without what the task head puts
    in front of it.  ``up``, ``gate``, ``down`` and ``norm`` are module names below a layer.
    ``activation``, ``eps`` and ``layers`` are configuration keys, tried in order;
    ``default_activation`` and ``default_eps`` are what the model class uses without them.
    """

    layer: str
    up: str
    down: str
    norm: str
    placement: NormKind | Callable[[Config], NormKind]
    activation: tuple[str, ...] = ("hidden_act",)
    default_activation: str = "gelu"
    eps: tuple[str, ...] = ("layer_norm_eps",)
    default_eps: float = 1e-5
    layers: tuple[str, ...] = ("num_hidden_layers",)
    gate: str | None = None
    #: ``up`` holds gate and value in one matrix, the gate's m rows first.
    fused: bool = False
    #: Weights are stored (in, out), as GPT-2's Conv1D does.
    transposed: bool = False
    #: The norm multiplies by offset + weight (Gemma: 1).
    gain_offset: float = 0.0
    #: Whether biases must be there: yes, no, or a configuration key and its default.
    biased: bool | tuple[str, bool] = True
    #: The configuration key that, when false, makes a norm without weights.
    norm_affine: str | None = None
    #: Names of activations that the model class takes for others.
    legacy_activations: Mapping[str, str] = field(default_factory=dict)
    #: How many places of the network use each weight set, and how many sets there are.
    sharing: Callable[[Config], tuple[int, int]] | None = None


_BERT = Family(
    layer=r"encoder\.layer\.\d+",
    up="intermediate.dense",
    down="output.dense",
    norm="output.LayerNorm",
    placement=NormKind.POST_LAYERNORM,
    default_eps=1e-12,
)
_LLAMA = Family(
    layer=r"layers\.\d+",
    up="mlp.up_proj",
    gate="mlp.gate_proj",
    down="mlp.down_proj",
    norm="post_attention_layernorm",
    placement=NormKind.PRE_RMSNORM,
    default_activation="silu",
    eps=("rms_norm_eps",),
    default_eps=1e-6,
    biased=("mlp_bias", False),
)


def _opt_placement(config: Config) -> NormKind:
    before = _flag(config, "do_layer_norm_before", True)
    return NormKind.PRE_LAYERNORM if before else NormKind.POST_LAYERNORM


def _albert_sharing(config: Config) -> tuple[int, int]:
    groups = _integer(config, ("num_hidden_groups",), 1)
    inner = _integer(config, ("inner_group_num",), 1)
    return max(1, _integer(config, ("num_hidden_layers",)) // groups), groups * inner


FAMILIES: Mapping[str, Family] = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "camembert": _BERT,
    "electra": _BERT,
    "distilbert": Family(
        layer=r"transformer\.layer\.\d+",
        up="ffn.lin1",
        down="ffn.lin2",
        norm="output_layer_norm",
        placement=NormKind.POST_LAYERNORM,
        activation=("activation",),
        eps=(),
        default_eps=1e-12,
        layers=("n_layers", "num_hidden_layers"),
    ),
    "albert": Family(
        layer=r"encoder\.albert_layer_groups\.\d+\.albert_layers\.\d+",
        up="ffn",
        down="ffn_output",
        norm="full_layer_layer_norm",
        placement=NormKind.POST_LAYERNORM,
        default_activation="gelu_new",
        default_eps=1e-12,
        sharing=_albert_sharing,
    ),
    "gpt2": Family(
        layer=r"h\.\d+",
        up="mlp.c_fc",
        down="mlp.c_proj",
        norm="ln_2",
        placement=NormKind.PRE_LAYERNORM,
        activation=("activation_function",),
        default_activation="gelu_new",
        eps=("layer_norm_epsilon",),
        layers=("n_layer", "num_hidden_layers"),
        transposed=True,
    ),
    "opt": Family(
        layer=r"decoder\.layers\.\d+",
        up="fc1",
        down="fc2",
        norm="final_layer_norm",
        placement=_opt_placement,
        activation=("activation_function",),
        default_activation="relu",
        eps=(),
        biased=("enable_bias", True),
        norm_affine="layer_norm_elementwise_affine",
    ),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "gemma": replace(
        _LLAMA,
        activation=("hidden_activation", "hidden_act"),
        default_activation="gelu_pytorch_tanh",
        legacy_activations={"gelu": "gelu_pytorch_tanh"},
        gain_offset=1.0,
    ),
    "phi3": replace(_LLAMA, up="mlp.gate_up_proj", gate=None, fused=True, default_eps=1e-5),
    "vit": Family(
        layer=r"encoder\.layer\.\d+",
        up="intermediate.dense",
        down="output.dense",
        norm="layernorm_after",
        placement=NormKind.PRE_LAYERNORM,
        default_eps=1e-12,
    ),
}


def read_directory(directory: Path) -> Model:
    """The blocks of a model directory, to be loaded one at a time.

    Raises :class:`ModelError` for an unsupported ``model_type``, missing shards or tensors.
    """
    config = read_json_object(directory / "config.json")
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise ModelError(f"{directory / 'config.json'} has no model_type")
    family = FAMILIES.get(model_type)
    if family is None:
        raise ModelError(
            f"{directory}: model type {model_type!r} is not supported",
            hint=f"add it to FAMILIES in unskip/frontends/huggingface.py (CONTRIBUTING.md shows "
            f"how); known: {', '.join(FAMILIES)}",
        )
    tensors = _tensors(directory)
    layers = _layer_paths(directory, family, tensors, config)
    places = family.sharing(config)[0] if family.sharing else 1
    blocks = tuple(
        BlockSource(layer, functools.partial(_load, family, tensors, config, layer), places)
        for layer in layers
    )
    named = config.get("architectures")
    architectures = [str(name) for name in named] if isinstance(named, list) else []
    description = {"model_type": model_type, "architectures": architectures}
    return Model(str(directory), "huggingface", blocks, description)


def _tensors(directory: Path) -> Tensors:
    single, index = directory / "model.safetensors", directory / "model.safetensors.index.json"
    if single.is_file():
        return Tensors.of_file(single)
    if index.is_file():
        return Tensors.of_index(index)
    pickled = any(directory.glob("pytorch_model*.bin"))
    hint = "convert the pickled weights to safetensors; pickle is never read" if pickled else ""
    raise ModelError(f"{directory} has no model.safetensors and no index of shards", hint=hint)


def _layer_paths(directory: Path, family: Family, tensors: Tensors, config: Config) -> list[str]:
    """Paths like ``bert.encoder.layer.0``, in numerical order, as many as the config says."""
    pattern = re.compile(rf"((?:.*\.)?{family.layer})\.{re.escape(family.up)}\.weight")
    found = {m[1] for m in map(pattern.fullmatch, tensors.names) if m}
    expected = family.sharing(config)[1] if family.sharing else _integer(config, family.layers)
    if len(found) != expected:
        raise ModelError(
            f"{directory}: config.json says {expected} blocks, and the checkpoint has tensors "
            f"*.{family.up}.weight for {len(found)}",
            hint="the download is incomplete, or the checkpoint is not of this model type",
        )
    return sorted(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path)])


def _load(family: Family, tensors: Tensors, config: Config, layer: str) -> ResidualBlock:
    arguments: dict[str, Any] = {}
    up, b_up = _linear(family, tensors, config, f"{layer}.{family.up}")
    if family.fused:
        half, odd = divmod(up.shape[0], 2)
        if odd:
            raise ModelError(f"{layer}.{family.up}.weight has an odd number of rows, {up.shape[0]}")
        arguments |= {"w_gate": up[:half], "w_up": up[half:]}
        if b_up is not None:
            arguments |= {"b_gate": b_up[:half], "b_up": b_up[half:]}
    else:
        arguments |= {"w_up": up, "b_up": b_up}
    if family.gate is not None:
        w_gate, b_gate = _linear(family, tensors, config, f"{layer}.{family.gate}")
        arguments |= {"w_gate": w_gate, "b_gate": b_gate}
    arguments["w_down"], arguments["b_down"] = _linear(
        family, tensors, config, f"{layer}.{family.down}"
    )
    placement = family.placement
    norm = placement if isinstance(placement, NormKind) else placement(config)
    gain, bias = _norm(family, tensors, config, norm, f"{layer}.{family.norm}")
    activation = _text(config, family.activation, family.default_activation)
    try:
        return ResidualBlock(
            **arguments,
            activation=family.legacy_activations.get(activation, activation),
            norm=norm,
            norm_gain=gain,
            norm_bias=bias,
            norm_eps=_number(config, family.eps, family.default_eps),
        )
    except UnskipError as error:
        raise ModelError(f"{layer}: {error.message}", hint=error.hint) from None


def _linear(
    family: Family, tensors: Tensors, config: Config, module: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    weight = tensors.read(f"{module}.weight")
    if weight.ndim != 2:
        raise ModelError(f"{module}.weight has shape {weight.shape}, not that of a matrix")
    biased = family.biased
    required = biased if isinstance(biased, bool) else _flag(config, *biased)
    present = f"{module}.bias" in tensors
    bias = tensors.read(f"{module}.bias") if required or present else None
    return (weight.T if family.transposed else weight), bias


def _norm(
    family: Family, tensors: Tensors, config: Config, norm: NormKind, module: str
) -> tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
    """Gain and bias; old checkpoints call them gamma and beta."""
    gain = next((n for n in ("weight", "gamma") if f"{module}.{n}" in tensors), None)
    if gain is None:
        if family.norm_affine is not None and not _flag(config, family.norm_affine, True):
            return None, None
        raise ModelError(f"the checkpoint lacks the tensor {module}.weight")
    values = tensors.read(f"{module}.{gain}")
    if family.gain_offset:
        values = values.astype(np.float64) + family.gain_offset
    bias = next((n for n in ("bias", "beta") if f"{module}.{n}" in tensors), None)
    if bias is None and norm.centres:
        raise ModelError(f"the checkpoint lacks the tensor {module}.bias")
    return values, None if bias is None else tensors.read(f"{module}.{bias}")


def _text(config: Config, keys: tuple[str, ...], default: str) -> str:
    value = _first(config, keys, default)
    if not isinstance(value, str):
        raise ModelError(f"config.json: {' or '.join(keys)} is {value!r}, not a name")
    return value


def _number(config: Config, keys: tuple[str, ...], default: float) -> float:
    value = _first(config, keys, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelError(f"config.json: {' or '.join(keys)} is {value!r}, not a number")
    try:
        return float(value)
    except OverflowError:
        raise ModelError(f"config.json: {' or '.join(keys)} is too large") from None


def _flag(config: Config, key: str, default: bool) -> bool:
    value = _first(config, (key,), default)
    if not isinstance(value, bool):
        raise ModelError(f"config.json: {key} is {value!r}, neither true nor false")
    return value


def _integer(config: Config, keys: tuple[str, ...], default: int | None = None) -> int:
    value = _first(config, keys, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(f"config.json: {' or '.join(keys)} is {value!r}, not a positive integer")
    return value


def _first(config: Config, keys: tuple[str, ...], default: Any) -> Any:
    return next((config[key] for key in keys if config.get(key) is not None), default)
