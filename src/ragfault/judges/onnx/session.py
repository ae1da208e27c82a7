"""An exported model, loaded: it scores pairs of texts, long passages in windows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ragfault.errors import UsageError
from ragfault.judges.checks.passages import Passage
from ragfault.judges.onnx.model_files import OnnxModelConfig
from ragfault.text import split_sentences

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer


MAX_PASSAGE_CHARS = 200_000
"""How many characters of a passage are read."""
OVERLAP_DIVISOR = 4
"""Of a long passage each stretch says the last part of the one before it again, one part in so many."""


class TextWindow(NamedTuple):
    """A stretch of text that is read at once."""

    text: str
    parts: tuple[tuple[int, int, int], ...]
    """The passages it is made of: number, start, end."""


def split_windows(tokenizer: Tokenizer, passages: Sequence[Passage], max_tokens: int) -> list[TextWindow]:
    """Passages put together as long as they fit into `room` tokens; a longer one is cut.

    Cuts are between sentences where they can be, and each stretch says the last part of the one before it again.

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> split = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    >>> split.pre_tokenizer = pre_tokenizers.Whitespace()
    >>> passages = [Passage("a", "one two"), Passage("b", "three"), Passage("c", "1 2 3 4 5 6")]
    >>> [window.text for window in split_windows(split, passages, 4)]
    ['one two\\nthree', '1 2 3 4', '4 5 6']
    """
    found: list[TextWindow] = []
    parts: list[tuple[int, int, int]] = []
    used = 0

    def close() -> None:
        if parts:
            texts = (passages[number].text[start:end] for number, start, end in parts)
            found.append(TextWindow("\n".join(texts), tuple(parts)))
            parts.clear()

    for number, passage in enumerate(passages):
        text = passage.text[:MAX_PASSAGE_CHARS]
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        if used + len(offsets) > max_tokens:
            close()
            used = 0
        for begin, end in _split_tokens(text, offsets, max_tokens):
            if len(offsets) > max_tokens:
                close()
                used = 0
            parts.append((number, offsets[begin][0], offsets[end - 1][1]))
            used += end - begin
    close()
    return found


def _split_tokens(
    text: str, offsets: Sequence[tuple[int, int]], max_tokens: int
) -> Iterator[tuple[int, int]]:
    """Where a text is cut: the first token of each stretch, and the one after its last."""
    begin, size = 0, len(offsets)
    if size > max_tokens:
        lefts = [left for left, _ in offsets]
        opens = sorted({bisect_left(lefts, start) for start, _ in split_sentences(text)})
    while size - begin > max_tokens:
        last = bisect_right(opens, begin + max_tokens) - 1
        end = opens[last] if last >= 0 and opens[last] > begin + max_tokens // 2 else begin + max_tokens
        yield begin, end
        again = bisect_left(opens, end - max_tokens // OVERLAP_DIVISOR)
        begin = (
            opens[again]
            if again < len(opens) and opens[again] <= end
            else end - max_tokens // OVERLAP_DIVISOR
        )
    if size > begin:
        yield begin, size


def truncate_text(tokenizer: Tokenizer, text: str, max_tokens: int) -> str:
    """The first `room` tokens of a text."""
    offsets = tokenizer.encode(text[:MAX_PASSAGE_CHARS], add_special_tokens=False).offsets
    return text[: offsets[max_tokens - 1][1]] if len(offsets) > max_tokens else text


BATCH_SIZE = 8
"""So many pairs run together."""
INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")
INTEGER_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}

Array = np.ndarray[Any, Any]


class PairScore(NamedTuple):
    """What a model says of a pair."""

    support: float
    """The probability of support or relevance."""
    contradiction: float = 0.0
    """That of contradiction."""


class OnnxModel:
    """A model with its tokenizer.

    Raises UsageError where the files cannot be loaded, or take or give something else than they say.
    """

    def __init__(self, config: OnnxModelConfig, threads: int = 1) -> None:
        self.config = config
        self.tokenizer = open_tokenizer(config.tokenizer)
        self._pair_tokenizer = open_tokenizer(config.tokenizer)
        self._pair_tokenizer.enable_truncation(config.max_tokens, strategy="only_first")
        self._session = _open_session(config, threads)
        self._inputs = {one.name: one.type for one in self._session.get_inputs()}
        strange = [
            name
            for name, kind in self._inputs.items()
            if name not in INPUT_NAMES or kind not in INTEGER_TYPES
        ]
        if strange or "input_ids" not in self._inputs:
            raise UsageError(
                f"{config.graph} takes {', '.join(self._inputs) or 'nothing'}; a model that reads pairs takes whole "
                f"numbers called {', '.join(INPUT_NAMES)}."
            )
        self._probe()

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[PairScore]:
        """What the model says of each pair of texts. Pairs of like length run together."""
        rows = [self._pair_tokenizer.encode(one, two) for one, two in pairs]
        order = sorted(range(len(rows)), key=lambda place: (len(rows[place].ids), place))
        found: list[PairScore] = [PairScore(0.0)] * len(rows)
        for at in range(0, len(order), BATCH_SIZE):
            places = order[at : at + BATCH_SIZE]
            out = self._run([rows[place] for place in places])
            for place, each in zip(places, out, strict=True):
                found[place] = self._to_score(rows[place], each)
        return found

    def _run(self, rows: Sequence[Encoding]) -> Array:
        """The logits of some rows, padded to the longest."""
        shape = len(rows), max(len(row.ids) for row in rows)
        held = {name: np.zeros(shape, np.int64) for name in INPUT_NAMES}
        held["input_ids"] += self.config.pad_token
        for place, row in enumerate(rows):
            size = len(row.ids)
            held["input_ids"][place, :size] = row.ids
            held["attention_mask"][place, :size] = 1
            held["token_type_ids"][place, :size] = row.type_ids
        feed = {name: held[name].astype(INTEGER_TYPES[kind]) for name, kind in self._inputs.items()}
        return np.asarray(self._session.run(None, feed)[0], np.float64)

    def _to_score(self, row: Encoding, out: Array) -> PairScore:
        """Logits as probabilities; of tokens the worst of the second text counts."""
        if self.config.label_count == 1 and self.config.kind == "pair":
            return PairScore(float(1 / (1 + np.exp(-np.clip(out.reshape(-1)[0], -60, 60)))))
        out = np.exp(out - out.max(axis=-1, keepdims=True))
        shares = out / out.sum(axis=-1, keepdims=True)
        if self.config.kind == "tokens":
            own = [place for place, side in enumerate(row.sequence_ids) if side == 1]
            return PairScore(float(shares[own, self.config.support_label].min()) if own else 1.0)
        against = self.config.contradiction_label
        return PairScore(
            float(shares[self.config.support_label]), 0.0 if against is None else float(shares[against])
        )

    def _probe(self) -> None:
        """Run a short pair, so that a model of another shape is refused at once."""
        model = self.config
        row = self._pair_tokenizer.encode("one", "two")
        if not row.ids:
            raise UsageError(f"{model.tokenizer} makes no tokens of text.")
        try:
            out = self._run([row])
        except Exception as error:  # noqa: BLE001 - whatever a strange graph makes the runtime raise
            raise UsageError(f"{model.graph} cannot be run: {_format_error(error)}") from None
        size = len(row.ids)
        fits: list[tuple[int, ...]] = (
            [(1, size, model.label_count)] if model.kind == "tokens" else [(1, model.label_count)]
        )
        if model.label_count == 1 and model.kind == "pair":
            fits.append((1,))
        if out.shape not in fits:
            raise UsageError(
                f"{model.graph} gives an array of {out.shape} for a pair of {size} tokens, but its labels ask for "
                f"{fits[0]}. Say the labels in their order: onnx:PATH?labels=…"
            )


def open_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a file, without the padding and cutting that it comes with; UsageError where it is none."""
    from tokenizers import Tokenizer

    try:
        made = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - tokenizers raises nothing narrower
        raise UsageError(f"{path} is no tokenizer: {_format_error(error)}") from None
    made.no_padding()
    made.no_truncation()
    return made


def _open_session(config: OnnxModelConfig, threads: int) -> Any:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(str(config.graph), settings, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - the errors of onnxruntime share no narrower class
        raise UsageError(f"{config.graph} cannot be loaded as ONNX: {_format_error(error)}") from None


def _format_error(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


@lru_cache(maxsize=4)
def load_model(config: OnnxModelConfig, threads: int = 1) -> OnnxModel:
    """The session of a model, made once in each process."""
    return OnnxModel(config, threads)
