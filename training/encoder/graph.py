"""Write the graph of the encoder: six layers, the outputs of all heads and what they read, no weights.

python -m training.encoder.graph
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper

from ragfault.judges.encoder.model import HEADS
from training.graph import HEAD_COUNT, HIDDEN_SIZE, LAYER_COUNT, GraphBuilder, add_embeddings, add_layer

TARGET = Path(__file__).parents[2] / "src/ragfault/judges/encoder/graph.onnx"


def add_heads(graph: GraphBuilder, value: str) -> None:
    """Add the opening token, the mean and the maximum over the claim, their joint layer, and the heads."""
    graph.add_node("Cast", ["kinds"], "second", to=TensorProto.FLOAT)
    graph.add_node("Sub", ["one", "second"], "first")
    graph.add_node("Mul", ["first", "seen"], "own")
    graph.add_node("Unsqueeze", ["own", "axis2"], "wide")
    graph.add_node("Mul", [value, "wide"], "kept")
    graph.add_node("ReduceSum", ["kept", "axis1"], "sum", keepdims=0)
    graph.add_node("ReduceSum", ["own", "axis1"], "count", keepdims=1)
    graph.add_node("Div", ["sum", "count"], "mean")
    graph.add_node("Sub", ["wide", "one"], "outside")
    graph.add_node("Mul", ["outside", graph.add_constant("below", np.float32(1e4))], "lowered")
    graph.add_node("Add", [value, "lowered"], "claim")
    graph.add_node("ReduceMax", ["claim", "axis1"], "largest", keepdims=0)
    graph.add_node("Gather", [value, graph.add_constant("start", np.int64(0))], "opening", axis=1)
    graph.add_node("Concat", ["opening", "mean", "largest"], "pooled", axis=1)
    joined = graph.add_node("Gelu", [graph.add_linear("pooled", "join", 3 * HIDDEN_SIZE, HIDDEN_SIZE)], "joined")
    size = sum(map(len, HEADS.values()))
    graph.add_node("Identity", [graph.add_linear(joined, "head", HIDDEN_SIZE, size)], "outputs")


def build_model() -> ModelProto:
    """Build the graph with quantised matrices."""
    graph = GraphBuilder(is_quantised=True)
    graph.add_constant("heads", np.array([0, 0, 3, HEAD_COUNT, HIDDEN_SIZE // HEAD_COUNT], np.int64))
    graph.add_constant("flat", np.array([0, 0, HIDDEN_SIZE], np.int64))
    graph.add_constant("scale", np.float32((HIDDEN_SIZE // HEAD_COUNT) ** -0.5))
    value = add_embeddings(graph)
    for number in range(LAYER_COUNT):
        value = add_layer(graph, value, number)
    add_heads(graph, value)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ("batch", "length")) for name in ("ids", "mask", "kinds")
    ]
    sizes = {"outputs": sum(map(len, HEADS.values())), "pooled": 3 * HIDDEN_SIZE}
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("batch", size)) for name, size in sizes.items()]
    proto = helper.make_graph(graph.nodes, "encoder", inputs, outputs, graph.initializers)
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


if __name__ == "__main__":
    print(f"{TARGET}: {TARGET.write_bytes(build_model().SerializeToString()):,} bytes")
