"""Pack the averaged weights: python -m training.encoder.pack EXPORTED.npz TOKENIZER [MODEL].

EXPORTED.npz is what `training.encoder.export` wrote, TOKENIZER the tokenizer.json of the base model, MODEL english
(the default) or multilingual. Run `training.encoder.calibrate` afterwards, which fits on the packed weights.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np

from ragfault.judges.encoder.model import ENGLISH, HEADS, MULTILINGUAL, quantise_rows
from ragfault.retrieval.embedders.minilm import map_tensor_names

FOLDER = Path(__file__).parents[2] / "src/ragfault/judges/encoder"
TARGET = FOLDER / ENGLISH / "weights.npz"

# Matrices are quantised to steps up to this: with larger ones processors without instructions for it overflow.
MAX_STEP = 63
BLOCK = 32


def pack_weights(exported: dict[str, np.ndarray], *, in_blocks: bool) -> dict[str, np.ndarray]:
    """Return the weights under the names of the graph, matrices and word vectors as integers."""
    prefix = "encoder."
    base = {name.removeprefix(prefix): value for name, value in exported.items() if name.startswith(prefix)}
    weights = quantise_words(quantise_weights(map_tensor_names(base)), in_blocks=in_blocks)
    weights["join.w"] = np.ascontiguousarray(exported["join.weight"].T)
    weights["join.b"] = exported["join.bias"]
    weights["head.w"] = np.concatenate([exported[f"heads.{name}.weight"].T for name in HEADS], axis=1)
    weights["head.b"] = np.concatenate([exported[f"heads.{name}.bias"] for name in HEADS])
    return weights


def quantise_weights(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights with the matrices of the layers as integers, and with the scale of each column.

    >>> quantised = quantise_weights({"0.up.w": np.array([[0.5, -2.0], [-2.0, 0.4]], np.float32)})
    >>> quantised["0.up.w"].tolist()
    [[16, -63], [-63, 13]]
    """
    quantised = dict(weights)
    for name, tensor in weights.items():
        if name[0].isdigit() and tensor.ndim == 2:
            scale = np.maximum(np.abs(tensor).max(0), 1e-9).astype(np.float32) / np.float32(MAX_STEP)
            quantised[name] = np.rint(tensor / scale).astype(np.int8)
            quantised[name.removesuffix("w") + "s"] = scale
    return quantised


def quantise_words(weights: dict[str, np.ndarray], *, in_blocks: bool = False) -> dict[str, np.ndarray]:
    """Return the weights with the word vectors as 8-bit integers, with a scale a word; or in blocks of 4 bits.

    Those of the multilingual model come in such blocks and are not trained, so that nothing is lost.
    """
    packed, words = dict(weights), weights["word"]
    if not in_blocks:
        packed["word"], packed["word.s"] = quantise_rows(words)
        return packed
    del packed["word"]
    packed["word.blocks"], packed["word.d"] = pack_blocks(words)
    return packed


def pack_blocks(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of floats as blocks of 32 numbers of 4 bits, two of them a byte, and a scale for each block.

    >>> blocks, scales = pack_blocks(np.linspace(-4, 3.5, 32, dtype=np.float32)[None])
    >>> blocks.shape, scales.tolist()
    ((1, 16), [[0.5]])
    """
    blocks = rows.reshape(len(rows), -1, BLOCK)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(2)[..., None], axis=2)
    scales = (largest / -8).astype(np.float16)
    divisors = np.where(scales == 0, 1, scales).astype(np.float32)
    steps = (np.rint(blocks / divisors) + 8).clip(0, 15).astype(np.uint8)
    halves = steps[..., : BLOCK // 2] | steps[..., BLOCK // 2 :] << 4
    return halves.reshape(len(rows), -1), scales[..., 0]


if __name__ == "__main__":
    model = sys.argv[3] if len(sys.argv) > 3 else ENGLISH
    with np.load(sys.argv[1]) as packed:
        exported = {name: packed[name] for name in packed.files}
    tensors = pack_weights(exported, in_blocks=model == MULTILINGUAL)
    target = FOLDER / model / "weights.npz"
    np.savez_compressed(target, **tensors)
    target.with_name("tokenizer.json.gz").write_bytes(gzip.compress(Path(sys.argv[2]).read_bytes(), 9, mtime=0))
    print(f"{target.stat().st_size:,} bytes")
