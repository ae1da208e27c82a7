"""Small models in the layout of the hub, made by hand: what they say follows from which words are shared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

TEXT = """
the harbour office opens at seven on weekdays and nine on sundays not dogs are allowed beach parking costs five an
hour when does it open ferry leaves from pier three every morning brief answer following question bear in mind that
your response should be strictly based passages passage output summarize text one two
"""
NOT = "not"


def list_vocabulary() -> list[str]:
    """Return the words that the models know."""
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *dict.fromkeys(TEXT.split())]


def save(folder: Path, model: Any, config: dict[str, Any]) -> Path:
    """Save a model, its configuration and its tokenizer to a folder."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    words = {word: place for place, word in enumerate(list_vocabulary())}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_padding(length=64)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder


class Graph:
    """A graph that finds which words of the second text stand in the first."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.mark("second", "token_type_ids", 1)
        self.mark("first", "token_type_ids", 0)
        self.mark("read", "attention_mask", 1)
        self.node("Mul", ["first", "read"], "early")
        self.apply("GreaterOrEqual", "input_ids", np.int64(4), "worded")
        self.node("Cast", ["worded"], "words", to=1)
        self.node("Mul", ["second", "words"], "later")  # words of the second text, without its end
        self.node("Unsqueeze", ["input_ids", self.constant(np.array([2]))], "down")
        self.node("Unsqueeze", ["input_ids", self.constant(np.array([1]))], "across")
        self.node("Equal", ["down", "across"], "alike")
        self.node("Cast", ["alike"], "same", to=1)
        self.node("Unsqueeze", ["early", self.constant(np.array([1]))], "wide")
        self.node("Mul", ["same", "wide"], "met")
        self.node("ReduceMax", ["met", self.constant(np.array([2]))], "found", keepdims=0)

    def node(self, kind: str, taken: list[str], given: str, **settings: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(kind, taken, [given], **settings))
        return given

    def constant(self, value: Any) -> str:
        from onnx import numpy_helper

        name = f"constant {len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def apply(self, kind: str, taken: str, value: Any, given: str) -> str:
        return self.node(kind, [taken, self.constant(value)], given)

    def mark(self, given: str, taken: str, value: int) -> None:
        self.node("Cast", [self.apply("Equal", taken, np.int64(value), f"{given} so")], given, to=1)

    def share(self) -> str:
        """Compute the share of the second text's words that the first holds, one number per row."""
        axis = self.constant(np.array([1]))
        self.node("Mul", ["found", "later"], "kept")
        self.node("ReduceSum", ["kept", axis], "hits", keepdims=1)
        self.node("ReduceSum", ["later", axis], "count", keepdims=1)
        self.apply("Max", "count", np.float32(1), "counted")
        return self.node("Div", ["hits", "counted"], "share")

    def denied(self) -> str:
        """Compute per row whether exactly one text says "not"."""
        axis = self.constant(np.array([1]))
        self.mark("nots", "input_ids", list_vocabulary().index(NOT))
        for side in ("early", "later"):
            self.node("Mul", ["nots", side], f"{side} nots")
            self.node("ReduceMax", [f"{side} nots", axis], f"{side} not", keepdims=1)
        self.node("Sub", ["early not", "later not"], "apart")
        return self.node("Abs", ["apart"], "denied")

    def line(self, taken: str, factor: float, shift: float, given: str) -> str:
        self.apply("Mul", taken, np.float32(factor), f"{given} times")
        return self.apply("Add", f"{given} times", np.float32(shift), given)

    def model(self, out: str, shape: Sequence[str | int]) -> Any:
        from onnx import TensorProto, helper

        self.node("Identity", [out], "logits")
        names = ("input_ids", "attention_mask", "token_type_ids")
        taken = [helper.make_tensor_value_info(value, TensorProto.INT64, ["rows", "length"]) for value in names]
        given = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, list(shape))]
        graph = helper.make_graph(self.nodes, "tiny", taken, given, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def write_classifier(folder: Path, labels: Sequence[str], **config: Any) -> Path:
    """Build a classifier with entailment, neutral and contradiction labels in any order."""
    graph = Graph()
    graph.share()
    graph.line("share", 20.0, -16.0, "yes")
    graph.line("share", 0.0, 0.0, "open")
    graph.line(graph.denied(), 30.0, -10.0, "no")
    graph.apply("Mul", "denied", np.float32(40), "penalty")
    graph.node("Sub", ["yes", "penalty"], "holds")
    parts = {"e": "holds", "n": "open", "c": "no"}
    order = [parts["e" if name[0] in "eEsS" else "c" if name[0] in "cC" else "n"] for name in labels]
    graph.node("Concat", order, "all", axis=1)
    names = {str(place): label for place, label in enumerate(labels)}
    settings = {"architectures": ["TinyForSequenceClassification"], "id2label": names, **config}
    return save(folder, graph.model("all", ["rows", len(labels)]), settings)


def write_reranker(folder: Path) -> Path:
    """Build a model that returns the share of the passage's words that the query holds."""
    graph = Graph()
    graph.line(graph.share(), 20.0, -6.0, "score")
    config = {"architectures": ["TinyForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    return save(folder, graph.model("score", ["rows", 1]), config)


def write_marker(folder: Path, **config: Any) -> Path:
    """Build a token classifier that marks words of the second text which the first lacks."""
    graph = Graph()
    graph.line("found", 10.0, -5.0, "known")
    graph.line("found", -10.0, 5.0, "strange")
    for ones in ("known", "strange"):
        graph.node("Unsqueeze", [ones, graph.constant(np.array([2]))], f"{ones} deep")
    graph.node("Concat", ["known deep", "strange deep"], "each", axis=2)
    score = {"architectures": ["TinyForTokenClassification"], "num_labels": 2, **config}
    return save(folder, graph.model("each", ["rows", "length", 2]), score)


def write_alarm(folder: Path, word: str, **config: Any) -> Path:
    """Build a classifier of single texts that is sure of its label unsafe where a text holds a word."""
    graph = Graph()
    graph.mark("alarming", "input_ids", list_vocabulary().index(word))
    graph.node("ReduceMax", ["alarming", graph.constant(np.array([1]))], "any", keepdims=1)
    graph.line("any", 20.0, -10.0, "unsafe")
    graph.line("any", 0.0, 0.0, "safe")
    graph.node("Concat", ["safe", "unsafe"], "all", axis=1)
    names = {"architectures": ["TinyForSequenceClassification"], "id2label": {"0": "safe", "1": "unsafe"}}
    return save(folder, graph.model("all", ["rows", 2]), {**names, **config})
