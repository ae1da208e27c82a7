"""Exported model that scores pairs of texts, long passages in windows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ragfault.judges.checks.passages import Passage
from ragfault.judges.onnx.model_files import OnnxModelConfig
from ragfault.judges.open_models import load_open_models
from ragfault.model.errors import JudgeError, UsageError
from ragfault.text.sentences import split_sentences

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer


MAX_PASSAGE_CHARS = 200_000
"""Further characters of a passage are ignored."""
OVERLAP_DIVISOR = 4
"""Windows of a long passage overlap by this fraction."""


class TextWindow(NamedTuple):
    """A text that the model reads at once."""

    text: str
    parts: tuple[tuple[int, int, int], ...]
    """The passages it is made of: number, start, end."""


def split_windows(tokenizer: Tokenizer, passages: Sequence[Passage], max_tokens: int) -> list[TextWindow]:
    r"""Pack passages into windows of `max_tokens` tokens; a longer passage is split.

    It is split between sentences where possible, and its windows overlap.

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    >>> tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    >>> passages = [Passage("a", "one two"), Passage("b", "three"), Passage("c", "1 2 3 4 5 6")]
    >>> [window.text for window in split_windows(tokenizer, passages, 4)]
    ['one two\nthree', '1 2 3 4', '4 5 6']
    """
    windows: list[TextWindow] = []
    parts: list[tuple[int, int, int]] = []
    size = 0

    def close() -> None:
        if parts:
            texts = (passages[number].text[start:end] for number, start, end in parts)
            windows.append(TextWindow("\n".join(texts), tuple(parts)))
            parts.clear()

    for number, passage in enumerate(passages):
        text = passage.text[:MAX_PASSAGE_CHARS]
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        if size + len(offsets) > max_tokens:
            close()
            size = 0
        for begin, end in _split_tokens(text, offsets, max_tokens):
            if len(offsets) > max_tokens:
                close()
                size = 0
            parts.append((number, offsets[begin][0], offsets[end - 1][1]))
            size += end - begin
    close()
    return windows


def _split_tokens(text: str, offsets: Sequence[tuple[int, int]], max_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield the first token of each window, and the one after its last."""
    start, size = 0, len(offsets)
    if size > max_tokens:
        token_starts = [left for left, _ in offsets]
        sentence_starts = sorted({bisect_left(token_starts, start) for start, _ in split_sentences(text)})
    while size - start > max_tokens:
        candidate = bisect_right(sentence_starts, start + max_tokens) - 1
        end = (
            sentence_starts[candidate]
            if candidate >= 0 and sentence_starts[candidate] > start + max_tokens // 2
            else start + max_tokens
        )
        yield start, end
        overlap = bisect_left(sentence_starts, end - max_tokens // OVERLAP_DIVISOR)
        start = (
            sentence_starts[overlap]
            if overlap < len(sentence_starts) and sentence_starts[overlap] <= end
            else end - max_tokens // OVERLAP_DIVISOR
        )
    if size > start:
        yield start, size


def truncate_text(tokenizer: Tokenizer, text: str, max_tokens: int) -> str:
    """Return the first `max_tokens` tokens of a text."""
    offsets = tokenizer.encode(text[:MAX_PASSAGE_CHARS], add_special_tokens=False).offsets
    return text[: offsets[max_tokens - 1][1]] if len(offsets) > max_tokens else text


BATCH_SIZE = 8
"""The number of pairs of a batch."""
INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")
DECODER_INPUT = "decoder_input_ids"
"""Input of a model that generates words: its start token, 0."""
INTEGER_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}

Array = np.ndarray[Any, Any]


class PairScore(NamedTuple):
    """The scores of a pair by the model."""

    support: float
    """The probability of support or relevance."""
    contradiction: float = 0.0
    """The probability of contradiction."""


class OnnxModel:
    """A model with its tokenizer; UsageError if its files cannot be loaded or do not fit the configuration."""

    def __init__(self, config: OnnxModelConfig, threads: int = 1) -> None:
        self.config = config
        self.tokenizer = open_tokenizer(config.tokenizer)
        self._pair_tokenizer = open_tokenizer(config.tokenizer)
        self._pair_tokenizer.enable_truncation(config.max_tokens, strategy="only_first")
        self._session = open_session(config.graph, threads)
        self.entry = load_open_models().get(config.entry)
        """How input is written and output read, of an open model that was named."""
        self._inputs = {model_input.name: model_input.type for model_input in self._session.get_inputs()}
        unknown_inputs = [
            name
            for name, kind in self._inputs.items()
            if name not in (*INPUT_NAMES, DECODER_INPUT) or kind not in INTEGER_TYPES
        ]
        if unknown_inputs or "input_ids" not in self._inputs:
            raise UsageError(
                f"{config.graph} takes {', '.join(self._inputs) or 'nothing'}; a model that reads pairs takes "
                f"integers named {', '.join(INPUT_NAMES)}."
            )
        self._probe()

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[PairScore]:
        """Score each pair of texts. Pairs of similar length run together."""
        rows = [
            self._pair_tokenizer.encode(first, second) if second else self._pair_tokenizer.encode(first)
            for first, second in pairs
        ]
        order = sorted(range(len(rows)), key=lambda number: (len(rows[number].ids), number))
        scores: list[PairScore] = [PairScore(0.0)] * len(rows)
        for start in range(0, len(order), BATCH_SIZE):
            batch = order[start : start + BATCH_SIZE]
            outputs = self._run([rows[number] for number in batch])
            if len(outputs) != len(batch) or not np.isfinite(outputs).all():
                raise JudgeError(f"the model {self.config.name} gave a number that is not finite, or too few of them")
            for number, logits in zip(batch, outputs, strict=True):
                scores[number] = self._to_score(rows[number], logits)
        return scores

    def _run(self, rows: Sequence[Encoding]) -> Array:
        """Return the logits of some rows, padded to the longest."""
        shape = len(rows), max(len(row.ids) for row in rows)
        arrays = {name: np.zeros(shape, np.int64) for name in INPUT_NAMES}
        arrays["input_ids"] += self.config.pad_token
        for number, row in enumerate(rows):
            size = len(row.ids)
            arrays["input_ids"][number, :size] = row.ids
            arrays["attention_mask"][number, :size] = 1
            arrays["token_type_ids"][number, :size] = row.type_ids
        arrays[DECODER_INPUT] = np.zeros((len(rows), 1), np.int64)
        feed = {name: arrays[name].astype(INTEGER_TYPES[kind]) for name, kind in self._inputs.items()}
        return np.asarray(self._session.run(None, feed)[0], np.float64)

    def _to_score(self, row: Encoding, out: Array) -> PairScore:
        """Convert logits to probabilities; of tokens the worst of the second text counts."""
        if self.config.label_count == 1 and self.config.kind == "pair":
            return PairScore(float(1 / (1 + np.exp(-np.clip(out.reshape(-1)[0], -60, 60)))))
        if self.entry is not None and self.entry.reads != "marks":
            out = out[0] if self.entry.reads in ("start", "words") else out
            out = out[list(self.entry.words)]
        out = np.exp(out - out.max(axis=-1, keepdims=True))
        shares = out / out.sum(axis=-1, keepdims=True)
        if self.config.kind == "tokens":
            claim_tokens = [position for position, sequence in enumerate(row.sequence_ids) if sequence == 1]
            return PairScore(float(shares[claim_tokens, self.config.support_label].min()) if claim_tokens else 1.0)
        contradiction = self.config.contradiction_label
        return PairScore(
            float(shares[self.config.support_label]), 0.0 if contradiction is None else float(shares[contradiction])
        )

    def _probe(self) -> None:
        """Run a short pair, so that a model with other outputs is refused at once."""
        model = self.config
        is_pair = self.entry is None or self.entry.reads == "marks"
        row = self._pair_tokenizer.encode("one", "two") if is_pair else self._pair_tokenizer.encode("one two")
        if not row.ids:
            raise UsageError(f"{model.tokenizer} makes no tokens of text.")
        try:
            out = self._run([row])
        except Exception as error:  # noqa: BLE001 - the runtime raises errors of any type on a malformed graph
            raise UsageError(f"{model.graph} cannot be run: {_format_error(error)}") from None
        size = len(row.ids)
        shapes: list[tuple[int, ...]] = (
            [(1, size, model.label_count)] if model.kind == "tokens" else [(1, model.label_count)]
        )
        if model.label_count == 1 and model.kind == "pair":
            shapes.append((1,))
        if self.entry is not None and self.entry.reads in ("start", "words"):
            shapes = [(1, size, 2) if self.entry.reads == "start" else (1, 1, out.shape[-1])]
        if out.shape not in shapes:
            raise UsageError(
                f"{model.graph} gives an array of {out.shape} for a pair of {size} tokens, but its labels need "
                f"{shapes[0]}. Name the labels in their order: onnx:PATH?labels=…"
            )


def open_tokenizer(path: Path) -> Tokenizer:
    """Load a tokenizer from a file, without its padding and truncation; UsageError if the file is not one."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - tokenizers raises nothing narrower
        raise UsageError(f"{path} is no tokenizer: {_format_error(error)}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def open_session(graph: Path, threads: int) -> Any:
    """Open the graph of a model; UsageError if it is none."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(str(graph), settings, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - the errors of onnxruntime share no narrower class
        raise UsageError(f"{graph} cannot be loaded as ONNX: {_format_error(error)}") from None


def _format_error(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


@lru_cache(maxsize=4)
def load_model(config: OnnxModelConfig, threads: int = 1) -> OnnxModel:
    """Load a model, once in each process."""
    return OnnxModel(config, threads)
