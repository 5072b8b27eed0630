"""Bad input of every kind: one line on stderr that names the culprit, exit code 2, no change."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import save, save_file

from unskip.cli import main

Tensors = dict[str, np.ndarray]
Builder = Callable[[Path], Path]
Edit = Callable[[bytes], bytes]

RNG = np.random.default_rng(7)
D, M = 3, 5
GARBAGE = RNG.bytes(200)
BLOCK: Tensors = {
    "w_up": RNG.normal(size=(M, D)),
    "w_down": RNG.normal(size=(D, M)),
    "b_up": RNG.normal(size=M),
    "b_down": RNG.normal(size=D),
    "norm_gain": RNG.normal(size=D),
    "norm_bias": RNG.normal(size=D),
}
SETTINGS = {"activation": "relu", "norm": "post-layernorm"}
CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "num_hidden_layers": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}
LAYER: dict[str, tuple[int, ...]] = {
    "intermediate.dense.weight": (M, D),
    "intermediate.dense.bias": (M,),
    "output.dense.weight": (D, M),
    "output.dense.bias": (D,),
    "output.LayerNorm.weight": (D,),
    "output.LayerNorm.bias": (D,),
}
BERT: Tensors = {
    f"encoder.layer.{layer}.{name}": RNG.normal(size=shape).astype(np.float32)
    for layer in range(2)
    for name, shape in LAYER.items()
}


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


class Unskip:
    """The command line, called in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.capsys, self.patch = capsys, patch

    def __call__(self, *arguments: object) -> Outcome:
        self.patch.setattr(sys, "argv", ["unskip", *map(str, arguments)])
        self.patch.setattr(sys, "excepthook", sys.excepthook)
        with pytest.raises(SystemExit) as stop:
            main()
        return Outcome(int(stop.value.code or 0), *self.capsys.readouterr())


@pytest.fixture
def unskip(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Unskip:
    return Unskip(capsys, monkeypatch)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any] | None) -> dict[str, Any]:
    """``base`` with ``changes``; ``...`` removes an entry."""
    return {k: v for k, v in {**base, **(changes or {})}.items() if v is not ...}


def write_directory(directory: Path, config: Mapping[str, Any], tensors: Tensors) -> Path:
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def write_npz(path: Path, arrays: Mapping[str, Any]) -> Path:
    np.savez(path, **arrays)
    return path


def bert(changes: dict[str, Any] | None = None, /, **config: Any) -> Builder:
    return lambda root: write_directory(
        root / "model", merged(CONFIG, config), merged(BERT, changes)
    )


def family(config: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> Builder:
    tensors = {name: RNG.normal(size=shape) for name, shape in shapes.items()}
    return lambda root: write_directory(root / "model", config, tensors)


def block(changes: dict[str, Any] | None = None, /, **settings: Any) -> Builder:
    def build(root: Path) -> Path:
        path = root / "block.safetensors"
        save_file(merged(BLOCK, changes), path, metadata=merged(SETTINGS, settings))
        return path

    return build


def npz(changes: dict[str, Any] | None = None, /) -> Builder:
    return lambda root: write_npz(root / "block.npz", merged({**BLOCK, **SETTINGS}, changes))


def edited(build: Builder, edit: Edit, name: str = "") -> Builder:
    """Change the bytes of the file, or of the file ``name`` of the directory, that was built."""

    def built(root: Path) -> Path:
        path = build(root)
        target = path / name
        target.write_bytes(edit(target.read_bytes()))
        return path

    return built


def file(name: str, content: bytes = b"") -> Builder:
    def build(root: Path) -> Path:
        (root / name).write_bytes(content)
        return root / name

    return build


def directory(files: Mapping[str, bytes]) -> Builder:
    def build(root: Path) -> Path:
        (root / "model").mkdir()
        for name, content in files.items():
            (root / "model" / name).write_bytes(content)
        return root / "model"

    return build


def to(content: bytes | str) -> Edit:
    return lambda _: content.encode() if isinstance(content, str) else content


def cut(length: float) -> Edit:
    """Keep so many bytes, all but so many when negative, or a fraction of them."""
    return lambda b: b[: int(length * len(b)) if 0 < abs(length) < 1 else int(length)]


def claim(size: int) -> Edit:
    return lambda content: size.to_bytes(8, "little") + content[8:]


def header_end(content: bytes) -> int:
    return 8 + int.from_bytes(content[:8], "little")


def beyond_header(offset: int) -> Edit:
    return lambda content: content[: header_end(content) + offset]


def raw_header(text: bytes) -> Edit:
    return lambda content: len(text).to_bytes(8, "little") + text + content[header_end(content) :]


def entry(tensor: str, /, **changes: Any) -> Edit:
    """Change one tensor's entry in the header of a safetensors file."""

    def edit(content: bytes) -> bytes:
        header = json.loads(content[8 : header_end(content)])
        header[tensor] = merged(header[tensor], changes)
        return raw_header(json.dumps(header).encode())(content)

    return edit


def with_entry(array: np.ndarray, value: float) -> np.ndarray:
    changed = array.copy()
    changed.flat[changed.size - 1] = value
    return changed


def sharded(weight_map: Any, shards: Mapping[str, Tensors] | None = None) -> Builder:
    def build(root: Path) -> Path:
        path = root / "model"
        path.mkdir()
        save_file(BERT, root / "outside.safetensors")
        (path / "config.json").write_text(json.dumps(CONFIG))
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        for name, tensors in (shards or {"a.safetensors": BERT}).items():
            save_file(tensors, path / name)
        return path

    return build


def member(content: bytes, name: str = "w_up.npy") -> Builder:
    """An .npz with one member replaced by raw bytes."""

    def build(root: Path) -> Path:
        path = npz({"w_up": ...})(root)
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(name, content)
        return path

    return build


def npy(header: str, body: bytes = b"", version: int = 1) -> bytes:
    text = header.encode("latin1")
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2, "little") + text + body


def nest(depth: int) -> str:
    return "[" * depth + "]" * depth


def fifo(root: Path) -> Path:
    os.mkfifo(root / "block.npz")
    return root / "block.npz"


def directory_in_place_of(name: str) -> Builder:
    def build(root: Path) -> Path:
        path = bert()(root)
        (path / name).unlink()
        (path / name).mkdir()
        return path

    return build


def saved_as_npz(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


MODEL, INDEX = "model.safetensors", "model.safetensors.index.json"
UP = "encoder.layer.1.intermediate.dense.weight"
LLAMA = {"model_type": "llama", "num_hidden_layers": 1}
LLAMA_LAYER = {
    "model.layers.0.mlp.up_proj.weight": (M, D),
    "model.layers.0.mlp.gate_proj.weight": (M, D),
    "model.layers.0.mlp.down_proj.weight": (D, M),
    "model.layers.0.post_attention_layernorm.weight": (D,),
}
OPT = {"model_type": "opt", "num_hidden_layers": 1}
OPT_LAYER = {
    "model.decoder.layers.0.fc1.weight": (M, D),
    "model.decoder.layers.0.fc1.bias": (M,),
    "model.decoder.layers.0.fc2.weight": (D, M),
    "model.decoder.layers.0.fc2.bias": (D,),
    "model.decoder.layers.0.final_layer_norm.weight": (D,),
    "model.decoder.layers.0.final_layer_norm.bias": (D,),
}


def without(shapes: dict[str, tuple[int, ...]], name: str) -> dict[str, tuple[int, ...]]:
    (full,) = (key for key in shapes if key.endswith(name))
    return {key: shape for key, shape in shapes.items() if key != full}


#: Name of the case → what the message must name, and how to build the input.
CASES: dict[str, tuple[str, Builder]] = {}

# Paths that are no model at all.
CASES |= {
    "path that does not exist": ("nowhere.npz", lambda root: root / "nowhere.npz"),
    "directory that does not exist": ("nowhere", lambda root: root / "nowhere"),
    "path below a file": ("below.npz", lambda root: file("f", b"x")(root) / "below.npz"),
    "path with a newline": ("no where", lambda root: root / "no\nwhere"),
    "path that is too long": ("xxx", lambda root: root / ("x" * 5000)),
    "named pipe": ("block.npz", fifo),
    "empty directory": ("config.json", directory({})),
    "directory of garbage": ("config.json", directory({"a": GARBAGE, "b.json": GARBAGE})),
    "weights alone": ("config.json", directory({MODEL: save(BERT)})),
    "directory in place of an npz": (
        "block.npz",
        lambda root: ((root / "block.npz").mkdir(), root / "block.npz")[1],
    ),
    "config.json given as the model": ("config.json", lambda root: bert()(root) / "config.json"),
}
CASES |= {
    f"suffix {suffix!r}": (f"block{suffix}", file(f"block{suffix}", save(BLOCK)))
    for suffix in ("", ".bin", ".onnx", ".pt2", ".pt", ".json", ".gguf", ".NPZ2")
}

# One block in a safetensors file: the bytes.
CASES |= {
    f"block: {length} bytes kept": ("block.safetensors", edited(block(), cut(length)))
    for length in (0, 1, 7, 8, 9, 20, 0.25, 0.5, 0.75, -8, -1)
}
CASES |= {
    f"block: cut {offset:+} bytes from the header's end": (
        "block.safetensors",
        edited(block(), beyond_header(offset)),
    )
    for offset in (-1, 0, 1)
}
CASES |= {
    f"block: header of {size} bytes claimed": ("block.safetensors", edited(block(), claim(size)))
    for size in (0, 1, 5, 1 << 26, 1 << 42, 1 << 63, (1 << 64) - 1)
}
CASES |= {
    f"block: header is {name}": ("block.safetensors", edited(block(), raw_header(text)))
    for name, text in {
        "empty": b"",
        "garbage": GARBAGE,
        "null": b"null",
        "a list": b"[]",
        "a string": b'"w_up"',
        "not closed": b'{"w_up": ',
        "not UTF-8": b'{"\xff\xfe": 1}',
        "deeply nested": nest(50_000).encode(),
        "a map of numbers": b'{"w_up": 1}',
        "without a tensor": b"{}",
    }.items()
}
CASES |= {
    f"block: {name}": ("block.safetensors", edited(block(), entry("w_up", **changes)))
    for name, changes in {
        "offsets that overlap": {"data_offsets": [0, 8 * M * D]},
        "offsets beyond the end": {"data_offsets": [1 << 40, (1 << 40) + 8 * M * D]},
        "offsets that are negative": {"data_offsets": [-8, 8 * M * D - 8]},
        "offsets in reverse": {"data_offsets": [8 * M * D, 0]},
        "offsets of another size": {"shape": [M, D + 1]},
        "no offsets": {"data_offsets": ...},
        "no dtype": {"dtype": ...},
        "no shape": {"shape": ...},
        "dtype unknown": {"dtype": "F7"},
        "dtype a number": {"dtype": 64},
        "shape a string": {"shape": "5x3"},
        "shape negative": {"shape": [-5, -3]},
        "shape that overflows": {"shape": [1 << 62, 1 << 62]},
    }.items()
}
CASES |= {
    "block: trailing bytes": ("block.safetensors", edited(block(), lambda b: b + b"x")),
    "block: garbage": ("block.safetensors", file("block.safetensors", GARBAGE)),
    "block: a pickle": ("block.safetensors", file("block.safetensors", pickle.dumps([1]))),
    "block: an npz": (
        "block.safetensors",
        lambda root: npz()(root).rename(root / "block.safetensors"),
    ),
}

# One block in a safetensors file: what it holds.
CASES |= {
    f"block: {name} of type {dtype}": (name, block({name: BLOCK[name].astype(dtype)}))
    for name, dtype in (
        ("w_up", np.int8),
        ("w_down", np.uint8),
        ("b_up", np.int64),
        ("b_down", np.bool_),
        ("norm_gain", np.complex64),
    )
}
CASES |= {
    f"block: w_up of type {dtype}": (
        "w_up",
        edited(
            block({"w_up": np.zeros((M, D), np.int8)}),
            entry("w_up", dtype=dtype),
        ),
    )
    for dtype in ("F8_E4M3", "F8_E5M2")
}
CASES |= {
    f"block: {value} in {name}": (name, block({name: with_entry(BLOCK[name], value)}))
    for name in BLOCK
    for value in (np.nan, np.inf, -np.inf)
}
CASES |= {
    f"block: {name} of shape {shape}": (name, block({name: np.ones(shape)}))
    for name, shape in (
        ("w_up", ()),
        ("w_up", (M,)),
        ("w_up", (M, D, 1)),
        ("w_up", (0, D)),
        ("w_up", (M, 0)),
        ("w_down", (M, D)),
        ("w_down", (D * M,)),
        ("w_down", (D + 1, M)),
        ("b_up", (D,)),
        ("b_up", (M, 1)),
        ("b_down", (M,)),
        ("b_down", ()),
        ("norm_gain", (M,)),
        ("norm_bias", (1, D)),
        ("w_gate", (D, M)),
        ("skip", (M,)),
        ("skip", (D, D, 1)),
        ("skip", (D, M)),
    )
}
CASES |= {
    f"block: {name}": (named, block(changes, **settings))
    for name, (named, changes, settings) in {
        "w_up missing": ("w_up", {"w_up": ...}, {}),
        "w_down missing": ("w_down", {"w_down": ...}, {}),
        "activation missing": ("activation", {}, {"activation": ...}),
        "activation unknown": ("geluu", {}, {"activation": "geluu"}),
        "activation empty": ("activation", {}, {"activation": ""}),
        "activation not closed": ("relu(", {}, {"activation": "relu("}),
        "activation with too many parameters": ("relu", {}, {"activation": "relu(1,2,3)"}),
        "activation with text as parameter": ("leaky_relu(x)", {}, {"activation": "leaky_relu(x)"}),
        "activation with NaN": ("leaky_relu(nan)", {}, {"activation": "leaky_relu(nan)"}),
        "activation outside its range": ("softplus", {}, {"activation": "softplus(-1)"}),
        "array unknown": ("w_upp", {"w_upp": np.ones((M, D))}, {}),
        "array named by nothing": ("not part of a block", {"": np.ones(3)}, {}),
        "second block incomplete": ("second.w_down", {"second.w_up": np.ones((M, D))}, {}),
        "setting of no block": ("frist.norm", {}, {"frist.norm": "none"}),
        "norm unknown": ("batchnorm", {}, {"norm": "batchnorm"}),
        "norm_eps not a number": ("norm_eps", {}, {"norm_eps": "small"}),
        "norm_eps negative": ("norm_eps", {}, {"norm_eps": "-1"}),
        "norm_eps NaN": ("norm_eps", {}, {"norm_eps": "nan"}),
        "norm_eps infinite": ("norm_eps", {}, {"norm_eps": "1e999"}),
        "norm parameters without a norm": ("norm_gain", {}, {"norm": "none"}),
        "outer norm without a sandwich": ("out_norm_gain", {"out_norm_gain": np.ones(D)}, {}),
        "up_activation without a gate": ("up_activation", {}, {"up_activation": "relu"}),
        "b_gate without a gate": ("b_gate", {"b_gate": np.ones(M)}, {}),
    }.items()
}

# One block in an npz file.
CASES |= {
    f"npz: {length} bytes kept": ("block.npz", edited(npz(), cut(length)))
    for length in (0, 1, 4, 30, 0.25, 0.5, 0.9, -1)
}
CASES |= {
    f"npz: {name}": (named, npz(changes))
    for name, (named, changes) in {
        "object array": ("w_up", {"w_up": np.array([[1.0, None]], dtype=object)}),
        "object array as text": ("activation", {"activation": np.array(["relu"], dtype=object)}),
        "w_up missing": ("w_up", {"w_up": ...}),
        "w_down missing": ("w_down", {"w_down": ...}),
        "array unknown": ("w_updown", {"w_updown": np.ones(3)}),
        "setting of no block": ("frist.norm", {"frist.norm": "none"}),
        "activation missing": ("activation", {"activation": ...}),
        "activation unknown": ("'wish'", {"activation": "wish"}),
        "activation a number": ("activation", {"activation": 3.0}),
        "activation a list": ("activation", {"activation": ["relu", "gelu"]}),
        "complex weights": ("w_up", {"w_up": BLOCK["w_up"].astype(complex)}),
        "text as weights": ("w_up", {"w_up": np.full((M, D), "1.0")}),
        "bytes as weights": ("b_up", {"b_up": np.full(M, b"1")}),
        "dates as weights": ("b_up", {"b_up": np.zeros(M, "M8[s]")}),
        "bools as weights": ("b_up", {"b_up": np.ones(M, bool)}),
        "records as weights": ("b_up", {"b_up": np.zeros(M, [("x", "f8")])}),
        "voids as weights": ("b_up", {"b_up": np.zeros(M, "V2")}),
        "integers beyond float64": ("b_up", {"b_up": np.full(M, 2**53 + 1)}),
        "w_down of wrong shape": ("w_down", {"w_down": np.ones((M, M))}),
        "b_up of wrong shape": ("b_up", {"b_up": np.ones(M + 1)}),
        "NaN in w_down": ("w_down", {"w_down": np.full((D, M), np.nan)}),
        "infinity in b_down": ("b_down", {"b_down": np.full(D, np.inf)}),
        "norm_eps a list": ("norm_eps", {"norm_eps": [1e-5, 1e-6]}),
    }.items()
}
CASES |= {
    f"npz: w_up {name}": ("w_up", member(content))
    for name, content in {
        "empty": b"",
        "garbage": GARBAGE,
        "a pickle": pickle.dumps([1.0]),
        "cut": saved_as_npz(BLOCK["w_up"])[:-8],
        "of a version unknown": npy("{}", version=9),
        "with an empty header": npy(""),
        "with a header of garbage": npy(GARBAGE.decode("latin1")),
        "with a header not closed": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3,"),
        "with a header badly indented": npy("  {\n 'descr': 1\n}\n   x"),
        "with a header that calls": npy("__import__('os').abort()"),
        "with a header deeply nested": npy(nest(4000)),
        "with no shape": npy("{'descr': '<f8', 'fortran_order': False}"),
        "with a strange descr": npy("{'descr': ('<f8', 1, 2), 'fortran_order': 0, 'shape': (3,)}"),
        "of terabytes": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,)}"),
        "whose size overflows": npy(
            "{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 8)}"
        ),
        "of negative size": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-3, 5)}"),
        "with Python 2 integers": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3L,)}"),
    }.items()
}
CASES |= {
    "npz: member that is no array": ("w_up", member(b"hello", "w_up.txt")),
    "npz: garbage": ("block.npz", file("block.npz", GARBAGE)),
    "npz: text": ("block.npz", file("block.npz", b"w_up = 1\n")),
    "npz: a pickle": ("block.npz", file("block.npz", pickle.dumps([1]))),
    "npz: a single array": ("block.npz", file("block.npz", saved_as_npz(np.ones((2, 2))))),
    "npz: an empty archive": ("block.npz", file("block.npz", b"PK\5\6" + bytes(18))),
    "npz: corrupt member": (
        "w_up",
        edited(
            npz(),
            lambda content: content[:180] + GARBAGE[:20] + content[200:],
        ),
    ),
}

# Model directories: the tensors.
CASES |= {
    f"bert: {name} missing": (f"encoder.layer.1.{name}", bert({f"encoder.layer.1.{name}": ...}))
    for name in LAYER
    if name != "intermediate.dense.weight"
}
CASES |= {
    f"bert: {value} in {name}": ("encoder.layer.0", bert({full: with_entry(BERT[full], value)}))
    for name in LAYER
    for full in [f"encoder.layer.0.{name}"]
    for value in (np.nan, np.inf, -np.inf)
}
CASES |= {
    f"bert: {name} of shape {shape}": ("encoder.layer.1", bert({full: np.ones(shape, "f4")}))
    for name in LAYER
    for full in [f"encoder.layer.1.{name}"]
    for shape in ((7,), (7, 7), (7, 7, 7), (0, 0))
}
CASES |= {
    f"bert: {name} of type {dtype}": (full, bert({full: BERT[full].astype(dtype)}))
    for name in LAYER
    for full in [f"encoder.layer.1.{name}"]
    for dtype in ("int8", "bool")
}
CASES |= {
    f"bert: weights cut to {length}": (MODEL, edited(bert(), cut(length), MODEL))
    for length in (0, 8, 0.5, -1)
}
CASES |= {
    "bert: first matrix of a layer missing": ("intermediate.dense.weight", bert({UP: ...})),
    "bert: tensors of another model": (
        "intermediate.dense.weight",
        lambda root: write_directory(root / "model", CONFIG, {"h.0.mlp.c_fc.weight": np.ones(3)}),
    ),
    "bert: weights of garbage": (MODEL, edited(bert(), to(GARBAGE), MODEL)),
    "bert: only pickled weights": (
        "pickle",
        directory({"config.json": json.dumps(CONFIG).encode(), "pytorch_model.bin": GARBAGE}),
    ),
    "bert: no weights": (MODEL, directory({"config.json": json.dumps(CONFIG).encode()})),
    "bert: weights a directory": (MODEL, directory_in_place_of(MODEL)),
    "llama: no gate": ("gate_proj.weight", family(LLAMA, without(LLAMA_LAYER, "gate_proj.weight"))),
    "llama: no norm": (
        "post_attention_layernorm.weight",
        family(LLAMA, without(LLAMA_LAYER, "layernorm.weight")),
    ),
    "llama: no biases where mlp_bias is set": (
        "up_proj.bias",
        family({**LLAMA, "mlp_bias": True}, LLAMA_LAYER),
    ),
    "llama: mlp_bias a string": ("mlp_bias", family({**LLAMA, "mlp_bias": "false"}, LLAMA_LAYER)),
    "llama: gate of another shape": (
        "w_gate",
        family(LLAMA, {**LLAMA_LAYER, "model.layers.0.mlp.gate_proj.weight": (M + 1, D)}),
    ),
    "opt: no norm": ("final_layer_norm.weight", family(OPT, without(OPT_LAYER, "norm.weight"))),
    "opt: no bias of the norm": (
        "final_layer_norm.bias",
        family(OPT, without(OPT_LAYER, "norm.bias")),
    ),
    "opt: do_layer_norm_before a string": (
        "do_layer_norm_before",
        family({**OPT, "do_layer_norm_before": "no"}, OPT_LAYER),
    ),
    "phi3: fused matrix with odd rows": (
        "gate_up_proj.weight",
        family(
            {"model_type": "phi3", "num_hidden_layers": 1},
            {
                "model.layers.0.mlp.gate_up_proj.weight": (2 * M + 1, D),
                "model.layers.0.mlp.down_proj.weight": (D, M),
                "model.layers.0.post_attention_layernorm.weight": (D,),
            },
        ),
    ),
    "gpt2: stored the other way round": (
        "h.0",
        family(
            {"model_type": "gpt2", "n_layer": 1},
            {
                "h.0.mlp.c_fc.weight": (M, D),
                "h.0.mlp.c_fc.bias": (M,),
                "h.0.mlp.c_proj.weight": (D, M),
                "h.0.mlp.c_proj.bias": (D,),
                "h.0.ln_2.weight": (D,),
                "h.0.ln_2.bias": (D,),
            },
        ),
    ),
}

# Model directories: config.json.
CASES |= {
    f"config: {name}": ("config.json", edited(bert(), to(content), "config.json"))
    for name, content in {
        "empty": "",
        "blank": " \n",
        "garbage": GARBAGE,
        "text": "model_type = bert",
        "cut": json.dumps(CONFIG)[:-1],
        "a list": "[]",
        "null": "null",
        "a number": "3",
        "UTF-16 cut in half": json.dumps(CONFIG).encode("utf-16")[:-1],
        "deeply nested": nest(200_000),
        "deeply nested in a value": '{"model_type": ' + nest(200_000) + "}",
        "an integer of too many digits": '{"model_type": ' + "9" * 5000 + "}",
    }.items()
}
CASES |= {
    f"config: {key} is {value!r}"[:60]: (named, bert(**{key: value}))
    for key, named, values in (
        ("model_type", "model_type", (..., None, 3, ["bert"], {}, True)),
        ("model_type", "supported", ("", "t5000", "Bert", "bert\nbert")),
        (
            "num_hidden_layers",
            "num_hidden_layers",
            (..., None, 0, -2, "2", True, 2.0, [2], {"n": 2}, [[[[2]]]]),
        ),
        ("num_hidden_layers", "blocks", (1, 3, 10**9, 10**400)),
        ("hidden_act", "hidden_act", (7, True, ["gelu"], {"a": 1})),
        ("hidden_act", "encoder.layer.0", ("", "geluu", "gelu(", "\ud800", "x" * 10_000)),
        ("layer_norm_eps", "layer_norm_eps", ("1e-12", True, [1e-12], 10**400)),
        ("layer_norm_eps", "norm_eps", (-1e-12, float("nan"), float("inf"), -1)),
    )
    for value in values
}
CASES |= {
    "config: missing": (
        "config.json",
        lambda root: ((path := bert()(root)) / "config.json").unlink() or path,
    ),
    "config: a directory": ("config.json", directory_in_place_of("config.json")),
    "albert: num_hidden_groups zero": (
        "num_hidden_groups",
        bert(model_type="albert", num_hidden_groups=0),
    ),
    "albert: num_hidden_groups not met": (
        "blocks",
        bert(model_type="albert", num_hidden_groups=2**70),
    ),
    "distilbert: n_layers missing": (
        "n_layers",
        bert(model_type="distilbert", num_hidden_layers=...),
    ),
}

# Model directories: the index of shards.
CASES |= {
    f"index: shard {shard!r}"[:60]: (
        INDEX,
        sharded({**dict.fromkeys(BERT, "a.safetensors"), UP: shard}),
    )
    for shard in (
        "missing.safetensors",
        "../outside.safetensors",
        "/outside.safetensors",
        "/etc/passwd",
        "nested/a.safetensors",
        "./a.safetensors",
        "..",
        ".",
        "",
        "\0",
        "\ud800",
        "x" * 5000,
        7,
        None,
        ["a.safetensors"],
        {"a": 1},
    )
}
CASES |= {
    f"index: {name}": (INDEX, edited(sharded({}), to(content), INDEX))
    for name, content in {
        "empty": "",
        "garbage": GARBAGE,
        "a list": "[]",
        "without weight_map": "{}",
        "weight_map null": '{"weight_map": null}',
        "weight_map a list": '{"weight_map": ["a.safetensors"]}',
        "weight_map a string": '{"weight_map": "a.safetensors"}',
        "weight_map empty": '{"weight_map": {}}',
        "deeply nested": nest(200_000),
    }.items()
}
CASES |= {
    "index: tensor that the shard lacks": (
        UP,
        sharded(dict.fromkeys(BERT, "a.safetensors"), {"a.safetensors": merged(BERT, {UP: ...})}),
    ),
    "index: tensor in another shard": (
        UP,
        sharded(
            {**dict.fromkeys(BERT, "a.safetensors"), UP: "b.safetensors"},
            {"a.safetensors": BERT, "b.safetensors": {"other": np.ones(1)}},
        ),
    ),
    "index: shard cut": (
        "a.safetensors",
        edited(sharded(dict.fromkeys(BERT, "a.safetensors")), cut(0.5), "a.safetensors"),
    ),
    "index: shard of garbage": (
        "a.safetensors",
        edited(sharded(dict.fromkeys(BERT, "a.safetensors")), to(GARBAGE), "a.safetensors"),
    ),
    "index: config says more than it lists": (
        "blocks",
        sharded({name: "a.safetensors" for name in BERT if ".0." in name}),
    ),
}


def contents(root: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


def assert_one_error_line(err: str, named: str) -> None:
    assert err.startswith("error: ")
    assert err.endswith("\n")
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err
    assert named in err


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 300


@pytest.mark.parametrize("build", [bert(), block(), npz()])
def test_what_the_cases_spoil_is_good(unskip: Unskip, tmp_path: Path, build: Builder) -> None:
    assert unskip("audit", build(tmp_path)).code == 0


def test_good_shards_are_good(unskip: Unskip, tmp_path: Path) -> None:
    assert unskip("audit", sharded(dict.fromkeys(BERT, "a.safetensors"))(tmp_path)).code == 0


@pytest.mark.parametrize(("named", "build"), CASES.values(), ids=CASES.keys())
def test_malformed_input(unskip: Unskip, tmp_path: Path, named: str, build: Builder) -> None:
    model = build(tmp_path)
    before = contents(tmp_path)
    outcome = unskip("audit", model)
    assert outcome.code == 2, outcome.err
    assert outcome.out == ""
    assert_one_error_line(outcome.err, named)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "name",
    [
        "path that does not exist",
        "block: 8 bytes kept",
        "bert: nan in output.dense.weight",
        "index: shard '../outside.safetensors'",
    ],
)
def test_malformed_input_in_a_process_of_its_own(tmp_path: Path, name: str) -> None:
    named, build = CASES[name]
    command = [Path(sys.executable).with_name("unskip"), "audit", build(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stdout == ""
    assert_one_error_line(done.stderr, named)


@pytest.mark.parametrize("files", [{}, {"notes.txt": b"x"}, {"block.safetensors": GARBAGE}])
def test_check_without_certificates(
    unskip: Unskip, tmp_path: Path, files: dict[str, bytes]
) -> None:
    outcome = unskip("check", directory(files)(tmp_path), block()(tmp_path))
    assert outcome.code == 2
    assert outcome.out == ""
    assert_one_error_line(outcome.err, "holds no certificates")


@pytest.mark.parametrize("name", ["block.json", "absent"])
def test_check_with_certificates_that_are_no_directory(
    unskip: Unskip, tmp_path: Path, name: str
) -> None:
    file("block.json", b"{}")(tmp_path)
    outcome = unskip("check", tmp_path / name, block()(tmp_path))
    assert outcome.code == 2
    assert_one_error_line(outcome.err, name)


def test_check_against_a_malformed_model(unskip: Unskip, tmp_path: Path) -> None:
    certificates = tmp_path / "certificates"
    model = block()(tmp_path)
    assert unskip("audit", model, "--certificates", certificates).code == 0
    block({"w_up": with_entry(BLOCK["w_up"], np.nan)})(tmp_path)
    outcome = unskip("check", certificates, model)
    assert outcome.code == 2
    assert_one_error_line(outcome.err, "w_up")


@pytest.fixture
def certified(unskip: Unskip, tmp_path: Path) -> tuple[Path, Path]:
    """A model, and the JSON file of its certificate."""
    model = block()(tmp_path)
    assert unskip("audit", model, "--certificates", tmp_path / "certificates").code == 0
    return model, tmp_path / "certificates" / "block.json"


def changed(**changes: Any) -> Edit:
    return lambda content: json.dumps(merged(json.loads(content), changes)).encode()


@pytest.mark.parametrize(
    "edit",
    [
        to(""),
        to(GARBAGE),
        to("{}"),
        to("[]"),
        to("null"),
        to(nest(200_000)),
        cut(0.5),
        cut(-3),
        changed(version=2),
        changed(extra=1),
        changed(block=...),
        changed(block="elsewhere"),
        changed(block="block/inner"),
        changed(answer="perhaps"),
        changed(d=0),
        changed(d=10**400),
        changed(m="5"),
        changed(m=M + 1),
        changed(width=None),
        changed(width=[1]),
        changed(width=[float("nan"), 5]),
        changed(defect="0"),
        changed(assumptions=[]),
        changed(assumptions={}),
        changed(data=[1]),
        changed(data={}),
        changed(norm="none"),
        changed(activation="\ud800"),
        changed(activation="gelu"),
        changed(gated=1),
    ],
)
def test_check_of_a_malformed_certificate(
    unskip: Unskip, certified: tuple[Path, Path], edit: Edit
) -> None:
    model, certificate = certified
    certificate.write_bytes(edit(certificate.read_bytes()))
    outcome = unskip("check", certificate.parent, model, "--quiet")
    assert outcome.code == 1, outcome.err
    assert outcome.err == ""
    assert outcome.out.startswith("FAILED  block.json: ")
    assert outcome.out.splitlines()[1:] == ["MISSING block"]


@pytest.mark.parametrize("edit", [to(""), to(GARBAGE), cut(20), cut(0.5), claim(1 << 42)])
def test_check_with_malformed_arrays(
    unskip: Unskip, certified: tuple[Path, Path], edit: Edit
) -> None:
    model, certificate = certified
    arrays = certificate.with_suffix(".safetensors")
    arrays.write_bytes(edit(arrays.read_bytes()))
    outcome = unskip("check", certificate.parent, model, "--quiet")
    assert outcome.code == 1, outcome.err
    assert outcome.out.startswith("FAILED  block.json: ")


def test_check_without_the_arrays(unskip: Unskip, certified: tuple[Path, Path]) -> None:
    model, certificate = certified
    certificate.with_suffix(".safetensors").unlink()
    outcome = unskip("check", certificate.parent, model, "--quiet")
    assert outcome.code == 1, outcome.err
    assert outcome.out.startswith("FAILED  block.json: ")
