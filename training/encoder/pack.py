"""Pack the averaged weights: python -m training.encoder.pack EXPORTED.npz TOKENIZER.

EXPORTED.npz is what `training.encoder.export` wrote, TOKENIZER the tokenizer.json of the base model. Run
`training.encoder.calibrate` afterwards, which fits on the packed weights.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np

from ragfault.judges.encoder.model import HEADS
from ragfault.retrieval.embedders.minilm import map_tensor_names

FOLDER = Path(__file__).parents[2] / "src/ragfault/judges/encoder"
TARGET = FOLDER / "weights.npz"

# Matrices are quantised to steps up to this: with larger ones processors without instructions for it overflow.
MAX_STEP = 63


def pack_weights(exported: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights under the names of the graph, matrices and word vectors as 8-bit integers."""
    prefix = "encoder."
    base = {name.removeprefix(prefix): value for name, value in exported.items() if name.startswith(prefix)}
    weights = quantise_words(quantise_weights(map_tensor_names(base)))
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


def quantise_words(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights with the word vectors as 8-bit integers, with a scale a word."""
    scale = np.maximum(np.abs(weights["word"]).max(1), 1e-9).astype(np.float32) / np.float32(127)
    return weights | {"word": np.rint(weights["word"] / scale[:, None]).astype(np.int8), "word.s": scale}


if __name__ == "__main__":
    with np.load(sys.argv[1]) as packed:
        tensors = pack_weights({name: packed[name] for name in packed.files})
    np.savez_compressed(TARGET, **tensors)
    (FOLDER / "tokenizer.json.gz").write_bytes(gzip.compress(Path(sys.argv[2]).read_bytes(), 9, mtime=0))
    print(f"{TARGET.stat().st_size:,} bytes")
