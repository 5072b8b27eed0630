"""Plain blocks in a ``.safetensors`` file of their own.

The names are those of block files (see ``frontends/blockfile.py``): ``NAME.w_up`` and so on, with
activation and norm as metadata.  A plain block is stored with ``skip`` = 0, so that the file
reads as the blocks that it holds; the norm and its parameters are those of the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import safetensors.numpy

from unskip.blocks import NormKind, PlainBlock, ResidualBlock
from unskip.errors import UnskipError
from unskip.rewriting.precision import stored
from unskip.surgery.plan import Rewrite

__all__ = ["plain_file"]


def plain_file(steps: Iterable[Rewrite]) -> bytes:
    """The contents of such a file; raises :class:`UnskipError` for what it cannot hold."""
    tensors: dict[str, Any] = {}
    texts: dict[str, str] = {"format": "pt"}
    for step in steps:
        dot, dtype = f"{step.name}.", step.precision.dtype
        for name, tensor in _tensors(step.block, step.plain).items():
            tensors[dot + name] = stored(tensor, dtype)
        texts |= {dot + key: text for key, text in _texts(step.block, step.plain).items()}
    return safetensors.numpy.save(tensors, metadata=texts)


def _tensors(block: ResidualBlock, plain: PlainBlock) -> dict[str, Any]:
    tensors = dict(plain.tensors)
    if not plain.m:  # a constant: one idle neuron, as files hold blocks with neurons
        tensors |= {"w_up": np.zeros((1, block.d)), "w_down": np.zeros((block.d, 1))}
        tensors |= {name: np.zeros(1) for name in ("b_up", "b_gate") if name in tensors}
        tensors |= {"w_gate": np.zeros((1, block.d))} if "w_gate" in tensors else {}
    norm = ("norm_gain", "norm_bias", "out_norm_gain", "out_norm_bias")
    tensors |= {name: block.tensors[name] for name in norm if name in block.tensors}
    return tensors | {"skip": np.zeros(block.d)}


def _texts(block: ResidualBlock, plain: PlainBlock) -> dict[str, str]:
    texts = {"activation": plain.activation.name}
    if plain.activation.slopes is not None and len(plain.activation.slopes) > 1:
        raise UnskipError("PReLU with one slope a neuron cannot be stored in a block file")
    if plain.up_activation is not None:
        texts["up_activation"] = plain.up_activation.name
    if block.norm is not NormKind.NONE:
        texts |= {"norm": str(block.norm), "norm_eps": repr(block.norm_eps)}
    return texts
