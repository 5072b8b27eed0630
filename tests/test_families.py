"""Every family of models: what is read must compute what the model's own modules compute."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import unskip
from unskip import UnskipError
from unskip.frontends import open_model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

D, M = 8, 20
SIZES = {
    "hidden_size": D,
    "intermediate_size": M,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 11,
    "max_position_embeddings": 16,
}
DECODER = {**SIZES, "num_key_value_heads": 1, "head_dim": 4, "pad_token_id": 0}
OPT_SIZES = {
    "hidden_size": D,
    "ffn_dim": M,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 11,
    "word_embed_proj_dim": D,
}
VIT_SIZES = {key: SIZES[key] for key in list(SIZES)[:4]} | {"image_size": 8, "patch_size": 4}

Layer = Any
Map = Callable[[Layer, Any], Any]


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def bert(layer: Layer, x: Any) -> Any:
    return layer.output(layer.intermediate(x), x)


def distilbert(layer: Layer, x: Any) -> Any:
    return layer.output_layer_norm(layer.ffn(x) + x)


def albert(layer: Layer, x: Any) -> Any:
    hidden = layer.activation(layer.ffn(x))
    return layer.full_layer_layer_norm(layer.ffn_output(hidden) + x)


def gpt2(layer: Layer, x: Any) -> Any:
    return x + layer.mlp(layer.ln_2(x))


def opt(layer: Layer, x: Any) -> Any:
    def mlp(z: Any) -> Any:
        return layer.fc2(layer.activation_fn(layer.fc1(z)))

    if layer.do_layer_norm_before:
        return x + mlp(layer.final_layer_norm(x))
    return layer.final_layer_norm(x + mlp(x))


def llama(layer: Layer, x: Any) -> Any:
    return x + layer.mlp(rms_norm(layer.post_attention_layernorm, x))


def rms_norm(norm: Any, x: Any) -> Any:
    """The norm in float64: its own forward() goes through float32, and must agree to that."""
    gemma = not hasattr(norm, "variance_epsilon")
    eps, gain = (norm.eps, 1 + norm.weight) if gemma else (norm.variance_epsilon, norm.weight)
    y = gain * x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    torch.testing.assert_close(y, norm(x), rtol=1e-5, atol=1e-5)
    return y


def vit(layer: Layer, x: Any) -> Any:
    return x + layer.mlp(layer.layernorm_after(x))


@dataclass(frozen=True)
class Family:
    """A toy model, its layers, the map of a layer's block, and what must be read of it."""

    model: str
    config: dict[str, Any]
    layers: str
    map: Map
    names: str
    activation: str
    norm: str
    biases: tuple[str, ...] = ("b_up", "b_down")
    gated: bool = False
    blocks: int = 2
    places: int = 1
    dtype: str = "float32"
    sharded: bool = False


BERT = Family(
    "BertModel", SIZES, "encoder.layer", bert, "encoder.layer.{}", "gelu", "post-layernorm"
)
GPT2 = Family(
    "GPT2LMHeadModel",
    {"n_embd": D, "n_inner": M, "n_layer": 2, "n_head": 2, "vocab_size": 11},
    "transformer.h",
    gpt2,
    "transformer.h.{}",
    "gelu_tanh",
    "pre-layernorm",
)
OPT = Family(
    "OPTForCausalLM",
    OPT_SIZES,
    "model.decoder.layers",
    opt,
    "model.decoder.layers.{}",
    "relu",
    "pre-layernorm",
)
LLAMA = Family(
    "LlamaForCausalLM",
    DECODER,
    "model.layers",
    llama,
    "model.layers.{}",
    "silu",
    "pre-rmsnorm",
    biases=(),
    gated=True,
)
VIT = Family("ViTModel", VIT_SIZES, "layers", vit, "encoder.layer.{}", "gelu", "pre-layernorm")
FAMILIES: dict[str, Family] = {
    "bert": BERT,
    "bert with relu and another eps": replace(
        BERT, config={**SIZES, "hidden_act": "relu", "layer_norm_eps": 1e-3}, activation="relu"
    ),
    "bert of eleven layers": replace(BERT, config={**SIZES, "num_hidden_layers": 11}, blocks=11),
    "bert with a head": replace(
        BERT, model="BertForMaskedLM", layers="bert.encoder.layer", names="bert.encoder.layer.{}"
    ),
    "bert in shards": replace(BERT, sharded=True),
    "bert in bfloat16": replace(BERT, dtype="bfloat16"),
    "bert in float16": replace(BERT, dtype="float16"),
    "roberta": replace(
        BERT,
        model="RobertaModel",
        config={**SIZES, "hidden_act": "gelu_new"},
        activation="gelu_tanh",
    ),
    "xlm-roberta": replace(BERT, model="XLMRobertaModel"),
    "camembert": replace(BERT, model="CamembertModel"),
    "electra": replace(BERT, model="ElectraModel", config={**SIZES, "embedding_size": 6}),
    "distilbert": Family(
        "DistilBertModel",
        {"dim": D, "hidden_dim": M, "n_layers": 2, "n_heads": 2, "vocab_size": 11},
        "transformer.layer",
        distilbert,
        "transformer.layer.{}",
        "gelu",
        "post-layernorm",
    ),
    "albert": Family(
        "AlbertModel",
        {**SIZES, "embedding_size": 6, "num_hidden_layers": 6, "num_hidden_groups": 2},
        "encoder.albert_layer_groups",
        albert,
        "encoder.albert_layer_groups.{}.albert_layers.0",
        "gelu_tanh",
        "post-layernorm",
        places=3,
    ),
    "gpt2": GPT2,
    "opt, pre-norm": OPT,
    "opt, post-norm": replace(
        OPT, config={**OPT_SIZES, "do_layer_norm_before": False}, norm="post-layernorm"
    ),
    "opt without biases and gains": replace(
        OPT,
        config={**OPT_SIZES, "enable_bias": False, "layer_norm_elementwise_affine": False},
        biases=(),
    ),
    "llama": LLAMA,
    "llama with biases and another eps": replace(
        LLAMA,
        model="LlamaModel",
        config={**DECODER, "mlp_bias": True, "rms_norm_eps": 1e-3},
        layers="layers",
        names="layers.{}",
        biases=("b_up", "b_gate", "b_down"),
    ),
    "mistral in bfloat16": replace(LLAMA, model="MistralForCausalLM", dtype="bfloat16"),
    "qwen2": replace(LLAMA, model="Qwen2ForCausalLM"),
    "gemma": replace(LLAMA, model="GemmaForCausalLM", activation="gelu_tanh"),
    "gemma in bfloat16": replace(
        LLAMA, model="GemmaForCausalLM", activation="gelu_tanh", dtype="bfloat16"
    ),
    "phi3": replace(LLAMA, model="Phi3ForCausalLM"),
    "vit": VIT,
    "vit with a head": replace(
        VIT,
        model="ViTForImageClassification",
        layers="vit.layers",
        names="vit.encoder.layer.{}",
    ),
}


@dataclass(frozen=True)
class Toy:
    family: Family
    model: Any
    path: Path


@pytest.fixture(params=FAMILIES.values(), ids=FAMILIES.keys(), scope="module")
def toy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """A saved model with random weights, biases and gains: nothing in it is 0 or 1."""
    family, path = request.param, tmp_path_factory.mktemp("model")
    kind = getattr(transformers, family.model)
    torch.manual_seed(5)
    model = kind(kind.config_class(**family.config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.7)
    size = "2KB" if family.sharded else "1GB"
    model.to(getattr(torch, family.dtype)).save_pretrained(path, max_shard_size=size)
    return Toy(family, model.double(), path)


def torch_layers(toy: Toy) -> list[Layer]:
    layers = list(toy.model.get_submodule(toy.family.layers))
    return [group.albert_layers[0] for group in layers] if toy.family.map is albert else layers


def test_what_is_read(toy: Toy) -> None:
    family, model = toy.family, open_model(toy.path)
    assert (len(list(toy.path.glob("*.safetensors"))) > 1) == family.sharded
    assert [b.name for b in model.blocks] == [family.names.format(i) for i in range(family.blocks)]
    for source in model.blocks:
        block = source.load()
        biases = {"b_up", "b_gate", "b_down"} & block.tensors.keys()
        assert (block.d, block.m, source.places) == (D, M, family.places)
        assert (block.activation_name, block.gated) == (family.activation, family.gated)
        assert (block.norm, biases) == (family.norm, set(family.biases))
        assert {str(block.w_up.dtype), str(block.w_down.dtype)} == {family.dtype}


def test_blocks_compute_what_the_modules_do(toy: Toy) -> None:
    x = np.random.default_rng(3).normal(size=(40, D), scale=2)
    blocks = [source.load() for source in open_model(toy.path).blocks]
    for block, layer in zip(blocks, torch_layers(toy), strict=True):
        with torch.no_grad():
            expected = toy.family.map(layer, torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(block(x), expected, rtol=1e-12, atol=1e-12)


def test_what_a_configuration_leaves_out_has_the_default_of_its_class(
    toy: Toy, tmp_path: Path
) -> None:
    path = shutil.copytree(toy.path, tmp_path / "model")
    config = json.loads((path / "config.json").read_text())
    spare = config.keys() - toy.family.config.keys() - {"model_type"}
    sparse = {key: value for key, value in config.items() if key not in spare}
    (path / "config.json").write_text(json.dumps(sparse))
    x = np.random.default_rng(3).normal(size=(40, D))
    for full, read in zip(open_model(toy.path).blocks, open_model(path).blocks, strict=True):
        np.testing.assert_array_equal(read.load()(x), full.load()(x))


def test_verdicts(toy: Toy) -> None:
    for report in unskip.audit(toy.path):
        verdict = report.verdict
        assert verdict.answer == "not absorbable"
        if toy.family.norm.startswith("pre"):
            assert (verdict.rule, verdict.scope) == ("pre-norm", "any width")
            assert verdict.width.lower == float("inf")
        else:
            assert (verdict.rule, verdict.scope) == ("subset-condition", "this width")
            assert verdict.width.lower > M
            assert verdict.defect is not None
            assert verdict.defect.lower > 0
        unskip.check(verdict.certificate, report.block)


def test_inner_maps(toy: Toy) -> None:
    reports = unskip.audit(toy.path, inner=True)
    if not toy.family.norm.startswith("pre"):
        with pytest.raises(UnskipError, match="no inner map"):
            next(iter(reports))
        return
    for report in reports:
        verdict = report.verdict
        if toy.family.gated and not toy.family.biases:
            assert verdict.answer == "not absorbable"
            assert verdict.rule == "vanishing-linearisation"
            assert verdict.scope == "any width, any depth"
        elif toy.family.gated:
            assert verdict.answer != "absorbable"
        else:
            assert verdict.rule == "subset-condition"
            assert verdict.scope == "this width"
        unskip.check(verdict.certificate, report.block)


def test_old_checkpoints_call_gain_and_bias_gamma_and_beta(tmp_path: Path) -> None:
    transformers.BertModel(transformers.BertConfig(**SIZES)).save_pretrained(tmp_path)
    x = np.random.default_rng(4).normal(size=(40, D))
    expected = open_model(tmp_path).blocks[1].load()(x)
    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    for new, old in (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")):
        tensors = {name.replace(new, old): tensor for name, tensor in tensors.items()}
    save_file(tensors, weights)
    np.testing.assert_array_equal(open_model(tmp_path).blocks[1].load()(x), expected)


def test_gemma_takes_the_legacy_name_of_its_activation_as_transformers_does(
    tmp_path: Path,
) -> None:
    kind = transformers.GemmaForCausalLM
    model = kind(kind.config_class(**DECODER, hidden_act="gelu")).double()
    model.save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "hidden_act": "gelu"}))
    block = open_model(tmp_path).blocks[0].load()
    x = np.random.default_rng(4).normal(size=(40, D))
    with torch.no_grad():
        expected = llama(model.model.layers[0], torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(block(x), expected, rtol=1e-12, atol=1e-12)
