"""The encoder: rows of tokens through six layers, on one processor, the same every time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragfault.judges.cross.calibration import Logits
from ragfault.judges.cross.encoding import END, START, Pair
from ragfault.judges.cross.weights import base, delta, trained
from ragfault.judges.exported.session import opened

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Encoder", "alone", "embedder", "encoder", "tokenizer"]

BATCH = 16
"""So many rows run together."""
LONGEST = 256
"""An embedding is made of rows of at most so many tokens."""

Array = np.ndarray[Any, Any]


class Encoder:
    """A graph with its weights, loaded."""

    def __init__(self, weights: dict[str, Array], threads: int = 1) -> None:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
        settings.log_severity_level = 3
        self._held = [
            onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(one)) for one in weights.values()
        ]
        settings.add_external_initializers(list(weights), self._held)
        graph = files(__package__).joinpath("encoder.onnx").read_bytes()
        self._session = onnxruntime.InferenceSession(graph, settings, providers=["CPUExecutionProvider"])

    def run(self, rows: Sequence[Pair]) -> list[Logits]:
        """What the model says of each row. Rows of like length run together."""
        found: list[Logits | None] = [None] * len(rows)
        for places in _batches(rows):
            logits, tokens = self._session.run(["logits", "tokens"], _feed([rows[place] for place in places]))
            for place, two, each in zip(places, logits.tolist(), tokens.tolist(), strict=True):
                found[place] = Logits(two[0], two[1], tuple(each[1 : rows[place].first - 1]))
        return [one for one in found if one is not None]

    def embed(self, rows: Sequence[Pair]) -> Array:
        """The mean of each row, one beneath the other."""
        found = np.zeros((len(rows), 384), np.float32)
        for places in _batches(rows):
            found[places] = self._session.run(["mean"], _feed([rows[place] for place in places]))[0]
        return found


def _batches(rows: Sequence[Pair]) -> list[list[int]]:
    order = sorted(range(len(rows)), key=lambda place: (len(rows[place].ids), place))
    return [order[at : at + BATCH] for at in range(0, len(order), BATCH)]


def _feed(rows: Sequence[Pair]) -> dict[str, Array]:
    """Rows of tokens as arrays, padded to the longest."""
    shape = len(rows), max(len(row.ids) for row in rows)
    ids, mask, kinds = (np.zeros(shape, np.int64) for _ in range(3))
    for place, row in enumerate(rows):
        size = len(row.ids)
        ids[place, :size] = row.ids
        mask[place, :size] = 1
        kinds[place, row.first : size] = 1
    return {"ids": ids, "mask": mask, "kinds": kinds}


@cache
def tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer beside the weights, loaded once in each process."""
    return opened(folder / "tokenizer.json")


@cache
def encoder(folder: Path, threads: int = 1) -> Encoder:
    """The trained encoder, loaded once in each process."""
    added = delta()
    return Encoder(trained(base(folder, added.base), added), threads)


@cache
def embedder(folder: Path, threads: int = 1) -> Encoder:
    """The encoder as it is published, for the likeness of texts; its heads say nothing."""
    held = base(folder, delta().base)
    heads = {
        name: np.zeros(one.shape, np.float32) for name, one in delta().tensors.items() if name not in held
    }
    return Encoder({**held, **heads}, threads)


def alone(split: Tokenizer, text: str) -> list[Pair]:
    """A text as rows of its own."""
    ids = split.encode(text, add_special_tokens=False).ids
    room = LONGEST - 2
    return [
        Pair((START, *ids[at : at + room], END), len(ids[at : at + room]) + 2, ())
        for at in range(0, len(ids), room)
    ]
