"""Model files → blocks.  Frontends read and never decide.

source.py       what every frontend yields
tensors.py      safetensors, one file or shards, read lazily
huggingface.py  model directories, by the table of families
blockfile.py    blocks in an .npz or .safetensors of their own
"""

from __future__ import annotations

from pathlib import Path

from unskip.errors import ModelError
from unskip.frontends.blockfile import read_npz, read_safetensors
from unskip.frontends.huggingface import read_directory
from unskip.frontends.source import BlockSource, Model, paired

__all__ = ["BlockSource", "Model", "open_model", "paired"]


def open_model(path: str | Path) -> Model:
    """Open a model directory, or a file of blocks; weights are read when a block is loaded.

    Raises :class:`ModelError` for anything else, naming what is wrong and what to do.
    """
    path = Path(path)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"{path} has no config.json", hint="give a Hugging Face directory")
        return read_directory(path)
    if not path.exists():
        raise ModelError(f"{path} does not exist")
    if not path.is_file():
        raise ModelError(f"{path} is neither a directory nor a regular file")
    match path.suffix:
        case ".npz":
            return read_npz(path)
        case ".safetensors":
            return read_safetensors(path)
    raise ModelError(
        f"{path}: files of this kind are not read",
        hint="give a Hugging Face directory, or blocks as .npz or .safetensors",
    )
