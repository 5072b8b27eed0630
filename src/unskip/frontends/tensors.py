"""Tensors by name, read lazily from safetensors files: one, or shards listed in an index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from unskip.errors import ModelError
from unskip.files import read_json_object

#: The element types that are floating-point numbers as they stand.
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})


class Tensors:
    """A read-only view of the tensors of a checkpoint.  Files are mapped, not loaded."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        """``files``: which file holds which tensor."""
        self._files = dict(files)
        self._open: dict[Path, Any] = {}

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """All the tensors of one safetensors file."""
        handle = _open(path)
        tensors = cls(dict.fromkeys(handle.keys(), path))
        tensors._open[path] = handle
        return tensors

    @classmethod
    def of_index(cls, index: Path) -> Self:
        """The shards of a ``*.safetensors.index.json``, each in the index's own directory."""
        weight_map = read_json_object(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise ModelError(f"{index} has no weight_map")
        shards: dict[str, Path] = {}
        for name in weight_map.values():
            if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
                raise ModelError(
                    f"{index} names a shard outside its directory: {name!r}",
                    hint="shards must lie beside the index",
                )
            shards[name] = index.parent / name
        present = {path.name for path in index.parent.iterdir() if path.is_file()}
        missing = sorted(shards.keys() - present)
        if missing:
            raise ModelError(f"{index} names missing shards: {_some(missing)}")
        tensors = cls({tensor: shards[shard] for tensor, shard in weight_map.items()})
        for path in shards.values():
            listed = {tensor for tensor, file in tensors._files.items() if file == path}
            handle = tensors._handle(path)
            absent = sorted(listed - set(handle.keys()))
            if absent:
                raise ModelError(f"{path} lacks tensors that {index} lists: {_some(absent)}")
        return tensors

    @property
    def names(self) -> Iterable[str]:
        """The names of all tensors."""
        return self._files.keys()

    def __contains__(self, name: str) -> bool:
        return name in self._files

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata of the first file."""
        path = next(iter(self._files.values()), None)
        return {} if path is None else self._handle(path).metadata() or {}

    def read(self, name: str) -> npt.NDArray[Any]:
        """The values, read-only and in their own float type.

        Raises :class:`ModelError` where the tensor is missing or is not of a float type (a
        quantised weight has no meaning without its scales).
        """
        dtype = self._slice(name).get_dtype()
        path = self._files[name]
        if dtype not in FLOATS:
            raise ModelError(
                f"{path}: tensor {name} is of type {dtype}",
                hint="dequantise the checkpoint to float32, float16 or bfloat16 first",
            )
        try:
            array: npt.NDArray[Any] = np.asarray(self._handle(path).get_tensor(name))
        except (SafetensorError, ValueError, TypeError, MemoryError) as error:
            raise ModelError(f"{path}: tensor {name} cannot be read: {error}") from None
        owner: Any = array  # nobody else holds it: frozen to its root, a block needn't copy it
        while isinstance(owner, np.ndarray):
            owner.flags.writeable = False
            owner = owner.base
        return array

    def _slice(self, name: str) -> Any:
        if name not in self._files:
            raise ModelError(f"the checkpoint lacks the tensor {name}")
        path = self._files[name]
        try:
            return self._handle(path).get_slice(name)
        except SafetensorError as error:
            raise ModelError(f"{path}: tensor {name} cannot be read: {error}") from None

    def _handle(self, path: Path) -> Any:
        if path not in self._open:
            self._open[path] = _open(path)
        return self._open[path]


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="np")
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path} is not a readable safetensors file: {error}") from None


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
