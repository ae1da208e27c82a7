"""Write the graph of the embedder minilm: six layers and a mean, no weights.

    uv pip install onnx
    python -m training.graph

The graph is MiniLM-L6 (a BERT of 6 layers, 384 wide) in plain ONNX operators. Its weights are named and left out;
they are given when the graph is loaded (`ragfault.retrieval.embedders.minilm`). `training.encoder.graph` builds that
of the judge encoder from the same parts, with matrices of 8-bit integers that have a scale for each column; what they
are multiplied with is quantised by its own range.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

TARGET = Path(__file__).parents[1] / "src/ragfault/retrieval/embedders/minilm.onnx"
LAYER_COUNT, HIDDEN_SIZE, HEAD_COUNT, FEED_FORWARD_SIZE, VOCABULARY_SIZE, MAX_POSITIONS = 6, 384, 12, 1536, 30522, 512
EPSILON = 1e-12


class GraphBuilder:
    """The nodes and initializers of a graph. Each method adds some and returns the name of their output."""

    def __init__(self, is_quantised: bool, vocabulary: int = VOCABULARY_SIZE) -> None:
        self.is_quantised, self.vocabulary = is_quantised, vocabulary
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []

    def add_weight(self, name: str, *shape: int, kind: int = TensorProto.FLOAT) -> str:
        """Add a weight that has a name and a shape here, and its values when the graph is loaded."""
        tensor = TensorProto()
        tensor.name, tensor.data_type, tensor.data_location = name, kind, TensorProto.EXTERNAL
        tensor.dims.extend(shape)
        size = math.prod(shape) * (4 if kind == TensorProto.FLOAT else 1)
        for key, value in (("location", "given"), ("offset", "0"), ("length", str(size))):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value
        self.initializers.append(tensor)
        return name

    def add_constant(self, name: str, value: Any) -> str:
        """Add a constant whose value is part of the graph."""
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add_node(self, kind: str, inputs: list[str], *outputs: str, **settings: Any) -> str:
        """Add an operator; return the name of its first output."""
        self.nodes.append(helper.make_node(kind, inputs, list(outputs), **settings))
        return outputs[0]

    def add_linear(self, value: str, name: str, rows: int, columns: int) -> str:
        """Add a product with a matrix and the sum with a bias."""
        self.add_node("MatMul", [value, self.add_weight(f"{name}.w", rows, columns)], f"{name}.product")
        return self.add_node("Add", [f"{name}.product", self.add_weight(f"{name}.b", columns)], f"{name}.out")

    def add_matrix(self, value: str, name: str, rows: int, columns: int) -> str:
        """Add a product with a matrix and the sum with a bias; in a quantized graph the matrix is of 8-bit integers."""
        if not self.is_quantised:
            return self.add_linear(value, name, rows, columns)
        prefix = f"{name}."
        self.add_node("DynamicQuantizeLinear", [value], prefix + "steps", prefix + "step", prefix + "zero")
        weight = self.add_weight(prefix + "w", rows, columns, kind=TensorProto.INT8)
        self.add_node("MatMulInteger", [prefix + "steps", weight, prefix + "zero"], prefix + "whole")
        self.add_node("Cast", [prefix + "whole"], prefix + "float", to=TensorProto.FLOAT)
        self.add_node("Mul", [prefix + "step", self.add_weight(prefix + "s", columns)], prefix + "scale")
        self.add_node("Mul", [prefix + "float", prefix + "scale"], prefix + "product")
        return self.add_node("Add", [prefix + "product", self.add_weight(prefix + "b", columns)], prefix + "out")

    def add_norm(self, value: str, name: str) -> str:
        """Add a layer normalization."""
        weights = [self.add_weight(f"{name}.w", HIDDEN_SIZE), self.add_weight(f"{name}.b", HIDDEN_SIZE)]
        return self.add_node("LayerNormalization", [value, *weights], f"{name}.out", axis=-1, epsilon=EPSILON)


def add_words(graph: GraphBuilder) -> str:
    """Add the vectors of the words; in a quantized graph they are 8-bit integers with a scale a word."""
    if not graph.is_quantised:
        return graph.add_node("Gather", [graph.add_weight("word", graph.vocabulary, HIDDEN_SIZE), "ids"], "words")
    weight = graph.add_weight("word", graph.vocabulary, HIDDEN_SIZE, kind=TensorProto.INT8)
    graph.add_node("Gather", [weight, "ids"], "word.steps")
    graph.add_node("Cast", ["word.steps"], "word.whole", to=TensorProto.FLOAT)
    graph.add_node("Gather", [graph.add_weight("word.s", graph.vocabulary), "ids"], "word.scale")
    graph.add_node("Unsqueeze", ["word.scale", "axis2"], "word.step")
    return graph.add_node("Mul", ["word.whole", "word.step"], "words")


def add_embeddings(graph: GraphBuilder) -> str:
    """Add the sum of the embeddings of word, position and segment, and the bias that masks padding in attention."""
    for name, value in (("axis0", [0]), ("axis1", [1]), ("axis2", [2]), ("axes", [1, 2])):
        graph.add_constant(name, np.array(value, np.int64))
    graph.add_constant("one", np.float32(1))
    add_words(graph)
    graph.add_node("Gather", [graph.add_weight("kind", 2, HIDDEN_SIZE), "kinds"], "sides")
    graph.add_node("Shape", ["ids"], "length", start=1, end=2)
    graph.add_node(
        "Slice", [graph.add_weight("place", MAX_POSITIONS, HIDDEN_SIZE), "axis0", "length", "axis0"], "places"
    )
    graph.add_node("Add", ["words", "sides"], "said")
    graph.add_node("Add", ["said", "places"], "laid")
    graph.add_node("Cast", ["mask"], "seen", to=TensorProto.FLOAT)
    graph.add_node("Sub", ["seen", "one"], "hidden")
    graph.add_node("Mul", ["hidden", graph.add_constant("far", np.float32(1e9))], "away")
    graph.add_node("Unsqueeze", ["away", "axes"], "bias")
    return graph.add_norm("laid", "norm")


def add_layer(graph: GraphBuilder, hidden: str, number: int) -> str:
    """Add a layer: self-attention, then a feed-forward network, each with a residual connection."""
    prefix = f"{number}."
    graph.add_node(
        "Reshape", [graph.add_matrix(hidden, prefix + "qkv", HIDDEN_SIZE, 3 * HIDDEN_SIZE), "heads"], prefix + "apart"
    )
    graph.add_node("Transpose", [prefix + "apart"], prefix + "turned", perm=[2, 0, 3, 1, 4])
    graph.add_node("Split", [prefix + "turned"], prefix + "q", prefix + "k", prefix + "v", axis=0, num_outputs=3)
    query, key, value = (graph.add_node("Squeeze", [prefix + item, "axis0"], prefix + item * 2) for item in "qkv")
    graph.add_node("Transpose", [key], prefix + "kt", perm=[0, 1, 3, 2])
    graph.add_node("MatMul", [query, prefix + "kt"], prefix + "close")
    graph.add_node("Mul", [prefix + "close", "scale"], prefix + "scaled")
    graph.add_node("Add", [prefix + "scaled", "bias"], prefix + "masked")
    graph.add_node("Softmax", [prefix + "masked"], prefix + "shares", axis=-1)
    graph.add_node("MatMul", [prefix + "shares", value], prefix + "mixed")
    graph.add_node("Transpose", [prefix + "mixed"], prefix + "back", perm=[0, 2, 1, 3])
    graph.add_node("Reshape", [prefix + "back", "flat"], prefix + "context")
    graph.add_node(
        "Add",
        [graph.add_matrix(prefix + "context", prefix + "out", HIDDEN_SIZE, HIDDEN_SIZE), hidden],
        prefix + "first",
    )
    inner = graph.add_norm(prefix + "first", prefix + "n1")
    graph.add_node("Gelu", [graph.add_matrix(inner, prefix + "up", HIDDEN_SIZE, FEED_FORWARD_SIZE)], prefix + "gelu")
    graph.add_node(
        "Add",
        [graph.add_matrix(prefix + "gelu", prefix + "down", FEED_FORWARD_SIZE, HIDDEN_SIZE), inner],
        prefix + "second",
    )
    return graph.add_norm(prefix + "second", prefix + "n2")


def add_layers(graph: GraphBuilder, count: int = LAYER_COUNT) -> str:
    """Add embeddings and all layers."""
    graph.add_constant("heads", np.array([0, 0, 3, HEAD_COUNT, HIDDEN_SIZE // HEAD_COUNT], np.int64))
    graph.add_constant("flat", np.array([0, 0, HIDDEN_SIZE], np.int64))
    graph.add_constant("scale", np.float32((HIDDEN_SIZE // HEAD_COUNT) ** -0.5))
    value = add_embeddings(graph)
    for number in range(count):
        value = add_layer(graph, value, number)
    return value


def add_mean(graph: GraphBuilder, value: str) -> str:
    """Add the mean over the tokens of the first text, those whose `kinds` are 0."""
    graph.add_node("Cast", ["kinds"], "second", to=TensorProto.FLOAT)
    graph.add_node("Sub", ["one", "second"], "first")
    graph.add_node("Mul", ["first", "seen"], "own")
    graph.add_node("Unsqueeze", ["own", "axis2"], "wide")
    graph.add_node("Mul", [value, "wide"], "kept")
    graph.add_node("ReduceSum", ["kept", "axis1"], "sum", keepdims=0)
    graph.add_node("ReduceSum", ["own", "axis1"], "count", keepdims=1)
    return graph.add_node("Div", ["sum", "count"], "mean")


def finish_model(graph: GraphBuilder, sizes: dict[str, int]) -> ModelProto:
    """Return the model of a graph, with the size of each of its outputs."""
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ("batch", "length")) for name in ("ids", "mask", "kinds")
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("batch", size)) for name, size in sizes.items()]
    proto = helper.make_graph(graph.nodes, "encoder", inputs, outputs, graph.initializers)
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def build_model() -> ModelProto:
    """Build the graph of the embedder."""
    graph = GraphBuilder(is_quantised=False)
    return finish_model(graph, {add_mean(graph, add_layers(graph)): HIDDEN_SIZE})


if __name__ == "__main__":
    print(f"{TARGET}: {TARGET.write_bytes(build_model().SerializeToString()):,} bytes")
