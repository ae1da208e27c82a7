"""Write the weights that a training starts from: python -m training.encoder.start TARGET.npz [MODEL].

They are those of the package, as floats under the names of BERT.
"""

from __future__ import annotations

import sys

import numpy as np

from ragfault.judges.encoder.model import ENGLISH, HEADS
from training.encoder.average import unpack_weights
from training.encoder.pack import FOLDER

LINEAR_NAMES = {"out": "attention.output.dense", "up": "intermediate.dense", "down": "output.dense"}
NORM_NAMES = {"n1": "attention.output.LayerNorm", "n2": "output.LayerNorm"}


def rename_weights(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights of a graph under the names of the published ones."""
    renamed = {
        "embeddings.word_embeddings.weight": weights["word"],
        "embeddings.position_embeddings.weight": weights["place"],
        "embeddings.token_type_embeddings.weight": weights["kind"],
        "embeddings.LayerNorm.weight": weights["norm.w"],
        "embeddings.LayerNorm.bias": weights["norm.b"],
    }
    for number in range(sum(name.endswith(".up.w") for name in weights)):
        prefix = f"encoder.layer.{number}."
        matrices = np.split(weights[f"{number}.qkv.w"], 3, axis=1)
        biases = np.split(weights[f"{number}.qkv.b"], 3)
        for name, matrix, bias in zip(("query", "key", "value"), matrices, biases, strict=True):
            renamed[f"{prefix}attention.self.{name}.weight"] = matrix.T
            renamed[f"{prefix}attention.self.{name}.bias"] = bias
        for short, name in LINEAR_NAMES.items():
            renamed[f"{prefix}{name}.weight"] = weights[f"{number}.{short}.w"].T
            renamed[f"{prefix}{name}.bias"] = weights[f"{number}.{short}.b"]
        for short, name in NORM_NAMES.items():
            renamed[f"{prefix}{name}.weight"] = weights[f"{number}.{short}.w"]
            renamed[f"{prefix}{name}.bias"] = weights[f"{number}.{short}.b"]
    return {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in renamed.items()}


def load_packaged(model: str) -> dict[str, np.ndarray]:
    """Return the packaged weights and their heads, from 8-bit integers to floats again."""
    weights = unpack_weights(FOLDER / model / "weights.npz")
    tensors = rename_weights(weights)
    tensors["join.weight"] = np.ascontiguousarray(weights["join.w"].T)
    tensors["join.bias"] = weights["join.b"]
    place = 0
    for head, classes in HEADS.items():
        end = place + len(classes)
        tensors[f"heads.{head}.weight"] = np.ascontiguousarray(weights["head.w"][:, place:end].T)
        tensors[f"heads.{head}.bias"] = weights["head.b"][place:end]
        place = end
    return tensors


if __name__ == "__main__":
    np.savez(sys.argv[1], **load_packaged(sys.argv[2] if len(sys.argv) > 2 else ENGLISH))
