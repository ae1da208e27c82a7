"""Write the graphs of the encoder: all layers, the outputs of all heads and what they read, no weights.

python -m training.encoder.graph

One graph for each packed model: they differ in the number of layers and of words.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import ModelProto

from ragfault.judges.encoder.model import ENGLISH, HEADS, MULTILINGUAL, load_weights
from training.graph import HIDDEN_SIZE, GraphBuilder, add_layers, add_mean, finish_model

FOLDER = Path(__file__).parents[2] / "src/ragfault/judges/encoder"


def add_heads(graph: GraphBuilder, value: str) -> None:
    """Add the opening token, the mean and the maximum over the claim, their joint layer, and the heads."""
    add_mean(graph, value)
    graph.add_node("Sub", ["wide", "one"], "outside")
    graph.add_node("Mul", ["outside", graph.add_constant("below", np.float32(1e4))], "lowered")
    graph.add_node("Add", [value, "lowered"], "claim")
    graph.add_node("ReduceMax", ["claim", "axis1"], "largest", keepdims=0)
    graph.add_node("Gather", [value, graph.add_constant("start", np.int64(0))], "opening", axis=1)
    graph.add_node("Concat", ["opening", "mean", "largest"], "pooled", axis=1)
    joined = graph.add_node("Gelu", [graph.add_linear("pooled", "join", 3 * HIDDEN_SIZE, HIDDEN_SIZE)], "joined")
    size = sum(map(len, HEADS.values()))
    graph.add_node("Identity", [graph.add_linear(joined, "head", HIDDEN_SIZE, size)], "outputs")


def build_model(layers: int, vocabulary: int) -> ModelProto:
    """Build a graph with quantised matrices and word vectors."""
    graph = GraphBuilder(is_quantised=True, vocabulary=vocabulary)
    add_heads(graph, add_layers(graph, layers))
    return finish_model(graph, {"outputs": sum(map(len, HEADS.values())), "pooled": 3 * HIDDEN_SIZE})


if __name__ == "__main__":
    for folder in (ENGLISH, MULTILINGUAL):
        weights = load_weights(folder)
        layers = sum(name.endswith(".up.w") for name in weights)
        model = build_model(layers, vocabulary=len(weights["word"]))
        target = FOLDER / folder / "graph.onnx"
        print(f"{target}: {target.write_bytes(model.SerializeToString()):,} bytes")
