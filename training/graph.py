"""Write the graphs of the encoder that reads a claim and its evidence together: six layers, two heads, no weights.

    uv pip install onnx
    python training/graph.py

The graph is MiniLM-L6 (a BERT of 6 layers, 384 wide) in plain ONNX operators. Its weights are named and left out;
they are given when the graph is loaded (`ragfault.judges.minilm.encoder`). Outputs: `logits` (badness of the first
text against the second, relevance of the second to the first), `tokens` (badness of each token), `mean` (the mean
of the first text, an embedding where nothing else is given).

There are two: `encoder.onnx` in 32-bit floats, and `encoder-int8.onnx`, in which the matrices of the layers are 8-bit
integers with a scale for each column, and what they are multiplied with is quantised by its own range.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

TARGET = Path(__file__).parents[1] / "src/ragfault/judges/minilm"
LAYERS, WIDTH, HEADS, INNER, WORDS, PLACES = 6, 384, 12, 1536, 30522, 512
EPSILON = 1e-12


class Graph:
    """Nodes and initialisers, as they are added."""

    def __init__(self, is_quantised: bool) -> None:
        self.is_quantised = is_quantised
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []

    def weight(self, name: str, *shape: int, kind: int = TensorProto.FLOAT) -> str:
        """Return a weight that is named here and given at load."""
        tensor = TensorProto()
        tensor.name, tensor.data_type, tensor.data_location = name, kind, TensorProto.EXTERNAL
        tensor.dims.extend(shape)
        size = math.prod(shape) * (4 if kind == TensorProto.FLOAT else 1)
        for key, value in (("location", "given"), ("offset", "0"), ("length", str(size))):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value
        self.initializers.append(tensor)
        return name

    def constant(self, name: str, value: Any) -> str:
        """Return a number that is part of the graph."""
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind: str, inputs: list[str], *outputs: str, **settings: Any) -> str:
        """Return an operator; the name of its first output."""
        self.nodes.append(helper.make_node(kind, inputs, list(outputs), **settings))
        return outputs[0]

    def linear(self, value: str, name: str, rows: int, columns: int) -> str:
        """Return a matrix and a bias."""
        self.node("MatMul", [value, self.weight(f"{name}.w", rows, columns)], f"{name}.product")
        return self.node("Add", [f"{name}.product", self.weight(f"{name}.b", columns)], f"{name}.out")

    def matrix(self, value: str, name: str, rows: int, columns: int) -> str:
        """Return a matrix and a bias of a layer, quantised in a quantised graph."""
        if not self.is_quantised:
            return self.linear(value, name, rows, columns)
        prefix = f"{name}."
        self.node("DynamicQuantizeLinear", [value], prefix + "steps", prefix + "step", prefix + "zero")
        weight = self.weight(prefix + "w", rows, columns, kind=TensorProto.INT8)
        self.node("MatMulInteger", [prefix + "steps", weight, prefix + "zero"], prefix + "whole")
        self.node("Cast", [prefix + "whole"], prefix + "float", to=TensorProto.FLOAT)
        self.node("Mul", [prefix + "step", self.weight(prefix + "s", columns)], prefix + "scale")
        self.node("Mul", [prefix + "float", prefix + "scale"], prefix + "product")
        return self.node("Add", [prefix + "product", self.weight(prefix + "b", columns)], prefix + "out")

    def norm(self, value: str, name: str) -> str:
        """Return a layer norm."""
        weights = [self.weight(f"{name}.w", WIDTH), self.weight(f"{name}.b", WIDTH)]
        return self.node("LayerNormalization", [value, *weights], f"{name}.out", axis=-1, epsilon=EPSILON)


def embeddings(graph: Graph) -> str:
    """Return words, places and kinds, added up; and the bias that keeps attention off the padding."""
    for name, value in (("axis0", [0]), ("axis1", [1]), ("axis2", [2]), ("axes", [1, 2])):
        graph.constant(name, np.array(value, np.int64))
    graph.constant("one", np.float32(1))
    graph.node("Gather", [graph.weight("word", WORDS, WIDTH), "ids"], "words")
    graph.node("Gather", [graph.weight("kind", 2, WIDTH), "kinds"], "sides")
    graph.node("Shape", ["ids"], "length", start=1, end=2)
    graph.node("Slice", [graph.weight("place", PLACES, WIDTH), "axis0", "length", "axis0"], "places")
    graph.node("Add", ["words", "sides"], "said")
    graph.node("Add", ["said", "places"], "laid")
    graph.node("Cast", ["mask"], "seen", to=TensorProto.FLOAT)
    graph.node("Sub", ["seen", "one"], "hidden")
    graph.node("Mul", ["hidden", graph.constant("far", np.float32(1e9))], "away")
    graph.node("Unsqueeze", ["away", "axes"], "bias")
    return graph.norm("laid", "norm")


def layer(graph: Graph, taken: str, number: int) -> str:
    """Return one layer: attention, then two matrices, each with a way round it."""
    prefix = f"{number}."
    graph.node("Reshape", [graph.matrix(taken, prefix + "qkv", WIDTH, 3 * WIDTH), "heads"], prefix + "apart")
    graph.node("Transpose", [prefix + "apart"], prefix + "turned", perm=[2, 0, 3, 1, 4])
    graph.node("Split", [prefix + "turned"], prefix + "q", prefix + "k", prefix + "v", axis=0, num_outputs=3)
    query, key, value = (graph.node("Squeeze", [prefix + item, "axis0"], prefix + item * 2) for item in "qkv")
    graph.node("Transpose", [key], prefix + "kt", perm=[0, 1, 3, 2])
    graph.node("MatMul", [query, prefix + "kt"], prefix + "close")
    graph.node("Mul", [prefix + "close", "scale"], prefix + "scaled")
    graph.node("Add", [prefix + "scaled", "bias"], prefix + "masked")
    graph.node("Softmax", [prefix + "masked"], prefix + "shares", axis=-1)
    graph.node("MatMul", [prefix + "shares", value], prefix + "mixed")
    graph.node("Transpose", [prefix + "mixed"], prefix + "back", perm=[0, 2, 1, 3])
    graph.node("Reshape", [prefix + "back", "flat"], prefix + "context")
    graph.node("Add", [graph.matrix(prefix + "context", prefix + "out", WIDTH, WIDTH), taken], prefix + "first")
    inner = graph.norm(prefix + "first", prefix + "n1")
    graph.node("Gelu", [graph.matrix(inner, prefix + "up", WIDTH, INNER)], prefix + "gelu")
    graph.node("Add", [graph.matrix(prefix + "gelu", prefix + "down", INNER, WIDTH), inner], prefix + "second")
    return graph.norm(prefix + "second", prefix + "n2")


def heads(graph: Graph, value: str) -> None:
    """Add the mean of the first text, the two logits, and a logit for each token."""
    graph.node("Cast", ["kinds"], "second", to=TensorProto.FLOAT)
    graph.node("Sub", ["one", "second"], "first")
    graph.node("Mul", ["first", "seen"], "own")
    graph.node("Unsqueeze", ["own", "axis2"], "wide")
    graph.node("Mul", [value, "wide"], "kept")
    graph.node("ReduceSum", ["kept", "axis1"], "sum", keepdims=0)
    graph.node("ReduceSum", ["own", "axis1"], "count", keepdims=1)
    graph.node("Div", ["sum", "count"], "mean")
    graph.node("Gather", [value, graph.constant("start", np.int64(0))], "opening", axis=1)
    graph.node("Concat", ["mean", "opening"], "both", axis=1)
    graph.node("Identity", [graph.linear("both", "head", 2 * WIDTH, 2)], "logits")
    graph.node("Squeeze", [graph.linear(value, "token", WIDTH, 1), "axis2"], "tokens")


def model(is_quantised: bool) -> ModelProto:
    """Return the whole graph."""
    graph = Graph(is_quantised)
    graph.constant("heads", np.array([0, 0, 3, HEADS, WIDTH // HEADS], np.int64))
    graph.constant("flat", np.array([0, 0, WIDTH], np.int64))
    graph.constant("scale", np.float32((WIDTH // HEADS) ** -0.5))
    value = embeddings(graph)
    for number in range(LAYERS):
        value = layer(graph, value, number)
    heads(graph, value)
    full = ("batch", "length")
    inputs = [helper.make_tensor_value_info(item, TensorProto.INT64, full) for item in ("ids", "mask", "kinds")]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("logits", ("batch", 2)), ("tokens", full), ("mean", ("batch", WIDTH)))
    ]
    built = helper.make_graph(graph.nodes, "encoder", inputs, outputs, graph.initializers)
    return helper.make_model(built, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


if __name__ == "__main__":
    for name, quantised in (("encoder.onnx", False), ("encoder-int8.onnx", True)):
        size = (TARGET / name).write_bytes(model(quantised).SerializeToString())
        print(f"{TARGET / name}: {size:,} bytes")
