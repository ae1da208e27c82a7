"""Classifier of texts as an ONNX model on disk, in the layout of the hub: model.onnx, config.json, tokenizer.json."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from ragfault.judges.onnx.session import INTEGER_TYPES
from ragfault.model.errors import UnknownName, UsageError
from ragfault.text.personal_data import Finding

MAX_TOKENS = 512
MAX_WINDOWS = 64
"""Windows of a text that are classified."""


class OnnxClassifier(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sequence classifier that runs here: a folder, an .onnx file, or the name of a downloaded model of the hub.

    A text longer than the model reads is classified in windows; of one beyond MAX_WINDOWS windows the scan raises
    UsageError, so that the rail fails as its policy says. Raises UsageError where the model cannot be loaded and
    UnknownName for a label that it does not have.
    """

    model: str
    flagged: tuple[str, ...]
    """Labels of the model that are findings."""
    threshold: float = 0.5
    """Probability from which a label counts."""

    def __post_init__(self) -> None:
        """Load the model, so that a missing one is noticed before the first request."""
        labels = load_classifier_model(self.model).labels
        if not self.flagged:
            raise UsageError(f"flagged names labels of {self.model}: {', '.join(labels)}.")
        for label in self.flagged:
            if label not in labels:
                raise UnknownName(f"label of {self.model}", label, labels)

    def scan(self, text: str) -> list[Finding]:
        """Return the windows with a flagged label."""
        model = load_classifier_model(self.model)
        return [
            Finding(start, end, label, float(shares[model.labels.index(label)]))
            for start, end, shares in model.classify(text)
            for label in self.flagged
            if shares[model.labels.index(label)] >= self.threshold
        ]


class ClassifierModel(NamedTuple):
    """A loaded model."""

    session: Any
    tokenizer: Any
    labels: tuple[str, ...]
    several: bool
    """True where each label has a probability of its own."""

    def classify(self, text: str) -> Iterator[tuple[int, int, Any]]:
        """Yield start, end and the probabilities of the labels of each window of a text."""
        row = self.tokenizer.encode(text)
        windows = [row, *row.overflowing]
        if len(windows) > MAX_WINDOWS:
            raise UsageError(f"the text has {len(windows):,} windows; at most {MAX_WINDOWS} are classified.")
        for window in windows:
            spans = [
                span for span, special in zip(window.offsets, window.special_tokens_mask, strict=True) if not special
            ]
            if spans:
                yield spans[0][0], spans[-1][1], self._predict(window)

    def _predict(self, window: Any) -> Any:
        values = {"input_ids": window.ids, "attention_mask": window.attention_mask, "token_type_ids": window.type_ids}
        feed = {
            model_input.name: np.array([values[model_input.name]], INTEGER_TYPES[model_input.type])
            for model_input in self.session.get_inputs()
        }
        logits = np.asarray(self.session.run(None, feed)[0], np.float64)
        if logits.shape != (1, len(self.labels)):
            raise UsageError(f"the model gives an array of {logits.shape} for {len(self.labels)} labels.")
        if self.several or len(self.labels) == 1:
            return 1 / (1 + np.exp(-np.clip(logits[0], -60, 60)))
        shares = np.exp(logits[0] - logits[0].max())
        return shares / shares.sum()


@lru_cache(maxsize=4)
def load_classifier_model(location: str) -> ClassifierModel:
    """Load a model, once in each process; UsageError where files are missing or it reads other inputs."""
    from ragfault.judges.onnx.model_files import check_file, locate_files, read_json, read_labels
    from ragfault.judges.onnx.session import open_session, open_tokenizer

    graph, folder = locate_files(location)
    config = read_json(folder / "config.json")
    session, tokenizer = open_session(graph, 1), open_tokenizer(check_file(folder / "tokenizer.json"))
    for model_input in session.get_inputs():
        if model_input.name not in ("input_ids", "attention_mask", "token_type_ids") or (
            model_input.type not in INTEGER_TYPES
        ):
            raise UsageError(f"{graph} takes {model_input.name}; a classifier of texts takes tokens as whole numbers.")
    size = config.get("max_position_embeddings")
    length = min(MAX_TOKENS, size) if isinstance(size, int) and size > 8 else MAX_TOKENS
    tokenizer.enable_truncation(length, stride=min(32, length // 4))
    several = config.get("problem_type") == "multi_label_classification"
    return ClassifierModel(session, tokenizer, tuple(read_labels(config, None)), several)
