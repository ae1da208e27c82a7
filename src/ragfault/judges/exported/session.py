"""The session: a model of the hub's layout, loaded, that reads pairs of texts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ragfault.errors import UsageError
from ragfault.judges.exported.config import Model

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

__all__ = ["Seen", "Session", "opened", "session"]

BATCH = 8
"""So many pairs run together."""
TAKES = ("input_ids", "attention_mask", "token_type_ids")
WHOLE = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}

Array = np.ndarray[Any, Any]


class Seen(NamedTuple):
    """What a model says of a pair."""

    holds: float
    """The probability of support or relevance."""
    against: float = 0.0
    """That of contradiction."""


class Session:
    """A model with its tokenizer.

    Raises UsageError where the files cannot be loaded, or take or give something else than they say.
    """

    def __init__(self, model: Model, threads: int = 1) -> None:
        self.model = model
        self.tokenizer = opened(model.tokenizer)
        self._pairs = opened(model.tokenizer)
        self._pairs.enable_truncation(model.room, strategy="only_first")
        self._session = _load(model, threads)
        self._takes = {one.name: one.type for one in self._session.get_inputs()}
        strange = [name for name, kind in self._takes.items() if name not in TAKES or kind not in WHOLE]
        if strange or "input_ids" not in self._takes:
            raise UsageError(
                f"{model.graph} takes {', '.join(self._takes) or 'nothing'}; a model that reads pairs takes whole "
                f"numbers called {', '.join(TAKES)}."
            )
        self._probe()

    def read(self, pairs: Sequence[tuple[str, str]]) -> list[Seen]:
        """What the model says of each pair of texts. Pairs of like length run together."""
        rows = [self._pairs.encode(one, two) for one, two in pairs]
        order = sorted(range(len(rows)), key=lambda place: (len(rows[place].ids), place))
        found: list[Seen] = [Seen(0.0)] * len(rows)
        for at in range(0, len(order), BATCH):
            places = order[at : at + BATCH]
            out = self._run([rows[place] for place in places])
            for place, each in zip(places, out, strict=True):
                found[place] = self._seen(rows[place], each)
        return found

    def _run(self, rows: Sequence[Encoding]) -> Array:
        """The logits of some rows, padded to the longest."""
        shape = len(rows), max(len(row.ids) for row in rows)
        held = {name: np.zeros(shape, np.int64) for name in TAKES}
        held["input_ids"] += self.model.pad
        for place, row in enumerate(rows):
            size = len(row.ids)
            held["input_ids"][place, :size] = row.ids
            held["attention_mask"][place, :size] = 1
            held["token_type_ids"][place, :size] = row.type_ids
        feed = {name: held[name].astype(WHOLE[kind]) for name, kind in self._takes.items()}
        return np.asarray(self._session.run(None, feed)[0], np.float64)

    def _seen(self, row: Encoding, out: Array) -> Seen:
        """Logits as probabilities; of tokens the worst of the second text counts."""
        if self.model.labels == 1 and self.model.kind == "pair":
            return Seen(float(1 / (1 + np.exp(-np.clip(out.reshape(-1)[0], -60, 60)))))
        out = np.exp(out - out.max(axis=-1, keepdims=True))
        shares = out / out.sum(axis=-1, keepdims=True)
        if self.model.kind == "tokens":
            own = [place for place, side in enumerate(row.sequence_ids) if side == 1]
            return Seen(float(shares[own, self.model.holds].min()) if own else 1.0)
        against = self.model.against
        return Seen(float(shares[self.model.holds]), 0.0 if against is None else float(shares[against]))

    def _probe(self) -> None:
        """Run a short pair, so that a model of another shape is refused at once."""
        model = self.model
        row = self._pairs.encode("one", "two")
        if not row.ids:
            raise UsageError(f"{model.tokenizer} makes no tokens of text.")
        try:
            out = self._run([row])
        except Exception as error:  # noqa: BLE001 - whatever a strange graph makes the runtime raise
            raise UsageError(f"{model.graph} cannot be run: {_line(error)}") from None
        size = len(row.ids)
        fits: list[tuple[int, ...]] = (
            [(1, size, model.labels)] if model.kind == "tokens" else [(1, model.labels)]
        )
        if model.labels == 1 and model.kind == "pair":
            fits.append((1,))
        if out.shape not in fits:
            raise UsageError(
                f"{model.graph} gives an array of {out.shape} for a pair of {size} tokens, but its labels ask for "
                f"{fits[0]}. Say the labels in their order: onnx:PATH?labels=…"
            )


def opened(path: Path) -> Tokenizer:
    """The tokenizer in a file, without the padding and cutting that it comes with; UsageError where it is none."""
    from tokenizers import Tokenizer

    try:
        made = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - tokenizers raises nothing narrower
        raise UsageError(f"{path} is no tokenizer: {_line(error)}") from None
    made.no_padding()
    made.no_truncation()
    return made


def _load(model: Model, threads: int) -> Any:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(str(model.graph), settings, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - the errors of onnxruntime share no narrower class
        raise UsageError(f"{model.graph} cannot be loaded as ONNX: {_line(error)}") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


@lru_cache(maxsize=4)
def session(model: Model, threads: int = 1) -> Session:
    """The session of a model, made once in each process."""
    return Session(model, threads)
