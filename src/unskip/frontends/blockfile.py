"""Blocks in a file of their own: ``.npz`` or ``.safetensors``.

Arrays carry the names of :class:`unskip.ResidualBlock`'s arguments (``w_up``, ``w_down``,
``b_up`` …), for several blocks with a prefix each: ``first.w_up``, ``second.w_up``.  The text
settings ``activation`` (required), ``up_activation``, ``norm`` and ``norm_eps`` are string
arrays in an ``.npz`` and metadata in a ``.safetensors``; without a prefix they hold for all.
"""

from __future__ import annotations

import difflib
import functools
import warnings
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unskip.blocks import ResidualBlock
from unskip.errors import ModelError
from unskip.frontends.source import BlockSource, Model
from unskip.frontends.tensors import Tensors

ARRAYS = frozenset(
    {"w_up", "w_down", "w_gate", "b_up", "b_gate", "b_down", "skip"}
    | {"norm_gain", "norm_bias", "out_norm_gain", "out_norm_bias"}
)
TEXTS = frozenset(("activation", "up_activation", "norm", "norm_eps"))

Reader = Callable[[Iterable[str]], dict[str, npt.NDArray[Any]]]


def read_safetensors(path: Path) -> Model:
    """The blocks of a ``.safetensors`` file; raises :class:`ModelError`."""
    tensors = Tensors.of_file(path)
    texts = {k: v for k, v in tensors.metadata.items() if k.rpartition(".")[2] in TEXTS}
    return _model(path, tensors.names, texts, lambda names: {n: tensors.read(n) for n in names})


def read_npz(path: Path) -> Model:
    """The blocks of an ``.npz`` file (never unpickled); raises :class:`ModelError`."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
    except Exception as error:  # hostile archives raise of every kind
        raise ModelError(f"{path} is not a readable .npz file: {error}") from None
    read = functools.partial(_read_members, path)
    settings = {name for name in names if name.rpartition(".")[2] in TEXTS}
    texts = {name: str(array) for name, array in read(settings).items()}
    return _model(path, names - settings, texts, read)


def _read_members(path: Path, names: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
    arrays = {}
    name = ""
    try:
        with zipfile.ZipFile(path) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns of headers written by Python 2
            for name in names:
                with archive.open(f"{name}.npy") as member:
                    arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
                arrays[name].flags.writeable = False
    except Exception as error:  # numpy, zipfile and the decompressors raise of every kind
        raise ModelError(f"{path}: array {name} cannot be read: {error}") from None
    return arrays


def _model(path: Path, names: Iterable[str], texts: Mapping[str, str], read: Reader) -> Model:
    fields: dict[str, list[str]] = {}
    for name in names:
        prefix, _, field = name.rpartition(".")
        if field not in ARRAYS:
            near = difflib.get_close_matches(field, ARRAYS | TEXTS, n=3)
            hint = f"did you mean {', '.join(near)}?" if near else "see the names of ResidualBlock"
            raise ModelError(f"{path}: {name} is not part of a block", hint=hint)
        fields.setdefault(prefix, []).append(field)
    if not fields:
        raise ModelError(f"{path} holds no arrays", hint="a block has at least w_up and w_down")
    for name in sorted(texts):
        if name.rpartition(".")[0] not in ("", *fields):
            raise ModelError(f"{path}: {name} is a setting of no block that the file holds")
    sources = []
    for prefix, present in sorted(fields.items(), key=lambda item: _natural(item[0])):
        dot = f"{prefix}." if prefix else ""
        settings = {t: texts[t] for t in TEXTS if t in texts}
        settings |= {t: texts[dot + t] for t in TEXTS if dot + t in texts}
        for required in ("w_up", "w_down"):
            if required not in present:
                raise ModelError(f"{path}: {dot}{required} is missing")
        if "activation" not in settings:
            raise ModelError(
                f"{path}: {dot}activation is missing",
                hint='store it as text, for example activation = "relu"',
            )
        load = functools.partial(_block, path, dot, tuple(present), settings, read)
        sources.append(BlockSource(prefix or path.stem, load))
    return Model(str(path), path.suffix.lstrip("."), tuple(sources), {"blocks": len(sources)})


def _block(
    path: Path, dot: str, present: tuple[str, ...], settings: Mapping[str, str], read: Reader
) -> ResidualBlock:
    arrays = read(dot + name for name in present)
    for name, array in arrays.items():
        if array.dtype.kind not in "fiuV" or array.dtype.hasobject:
            raise ModelError(f"{path}: array {name} has type {array.dtype}")
    arguments: dict[str, Any] = {name.removeprefix(dot): a for name, a in arrays.items()}
    arguments |= settings
    if "norm_eps" in settings:
        try:
            arguments["norm_eps"] = float(settings["norm_eps"])
        except ValueError:
            raise ModelError(f"{path}: norm_eps is not a number") from None
    return ResidualBlock(**arguments)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort block2 before block10."""
    return [(int(p), "") if p.isdigit() else (-1, p) for p in _split_digits(name)]


def _split_digits(name: str) -> list[str]:
    parts: list[str] = []
    for character in name:
        if parts and parts[-1].isdigit() == character.isdigit():
            parts[-1] += character
        else:
            parts.append(character)
    return parts
