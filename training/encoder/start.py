"""Write the weights that the encoder starts from: those of the judge minilm.

python -m training.encoder.start TARGET.npz

They have learned from RAGTruth which words of a claim its evidence lacks, and they stand under the names of BERT.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from ragfault.judges.minilm.encoder import LAYER_COUNT, apply_delta, load_base_weights, load_delta, locate_weights

LINEAR_NAMES = {"out": "attention.output.dense", "up": "intermediate.dense", "down": "output.dense"}
NORM_NAMES = {"n1": "attention.output.LayerNorm", "n2": "output.LayerNorm"}


def load_start() -> dict[str, np.ndarray]:
    """Return the trained weights of minilm under the names of the published ones."""
    delta = load_delta()
    weights = apply_delta(load_base_weights(locate_weights(), delta.base_digest), delta)
    renamed = {
        "embeddings.word_embeddings.weight": weights["word"],
        "embeddings.position_embeddings.weight": weights["place"],
        "embeddings.token_type_embeddings.weight": weights["kind"],
        "embeddings.LayerNorm.weight": weights["norm.w"],
        "embeddings.LayerNorm.bias": weights["norm.b"],
    }
    for number in range(LAYER_COUNT):
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


if __name__ == "__main__":
    np.savez(Path(sys.argv[1]), **load_start())
