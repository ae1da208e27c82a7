"""Linear classifiers on hashed character n-grams: each sentence of a text gets a probability, in a fraction of a ms."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragfault.stats.bootstrap import FloatArray

SIZES = (3, 4, 5, 6)
"""Lengths of the n-grams, in bytes of the text in lower case."""
BUCKETS = 1 << 16
MAX_BYTES = 200_000
"""Bytes of a text that are read."""
ROUNDING = 1e-4
"""Unit of a probability."""
MAX_SENTENCE = 400
"""Characters of a sentence; longer ones are cut between words."""
BASE = np.uint32(257)
PADDING = bytes(SIZES[-1])
FACTOR = np.uint32(2_654_435_761)
BOUNDARY = re.compile(r"(?<=[.!?;:])\s+|\s*[\n\r|]+\s*")

ClassifierName = Literal["injection", "jailbreak", "toxicity"]


class ScoredSentence(NamedTuple):
    """Sentence of a text with the probability of the positive class."""

    start: int
    end: int
    p: float


class NgramClassifier(NamedTuple):
    """Weights of the n-grams, and slope and intercept from their mean to log-odds."""

    weights: FloatArray
    intercept: float
    threshold: float
    """Probability from which a sentence, or a whole text, is flagged."""


def split_spans(text: str) -> list[tuple[int, int]]:
    """Split a text into sentences and lines.

    >>> [("Open at 6. Ring twice!\\nBye")[start:end] for start, end in split_spans("Open at 6. Ring twice!\\nBye")]
    ['Open at 6.', 'Ring twice!', 'Bye']
    """
    spans, position = [], 0
    for match in BOUNDARY.finditer(text):
        spans.append((position, match.start()))
        position = match.end()
    spans.append((position, len(text)))
    cut: list[tuple[int, int]] = []
    for start, end in spans:
        position = start
        while end - position > MAX_SENTENCE:
            space = text.rfind(" ", position + MAX_SENTENCE // 2, position + MAX_SENTENCE)
            middle = space if space > 0 else position + MAX_SENTENCE
            cut.append((position, middle))
            position = middle
        if end > position:
            cut.append((position, end))
    return cut


def hash_ngrams(sentences: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.intp]]:
    """Hash the n-grams of sentences; return the buckets of all, and the sentence of each.

    A sentence is read in lower case between two marks, so that its first and last words are n-grams of their own.
    """
    encoded = [f"\x02{' '.join(sentence.split()).lower()}\x03".encode() for sentence in sentences]
    lengths = [len(part) for part in encoded]
    data = np.frombuffer(b"".join((*encoded, PADDING)), dtype=np.uint8).astype(np.uint32)
    size = data.size - len(PADDING)
    owner = np.arange(len(encoded)).repeat(lengths)
    room = np.cumsum(lengths)[owner] - np.arange(size)
    mixed = np.empty((len(SIZES), size), dtype=np.uint32)
    code = data[:size].copy()
    for length in range(2, SIZES[-1] + 1):
        code *= BASE
        code += data[length - 1 : length - 1 + size]
        if length in SIZES:
            np.bitwise_xor(code, np.uint32(length * 40_503), out=mixed[length - SIZES[0]])
    mixed *= FACTOR
    mixed >>= np.uint32(16)
    inside = room >= np.array(SIZES)[:, None]
    return mixed[inside], np.broadcast_to(owner, inside.shape)[inside]


def score_sentences(
    classifier: NgramClassifier, text: str, *, as_one: bool = False, least: float = 0.0
) -> list[ScoredSentence]:
    """Score every sentence of a text, or the whole text as one, and return those of probability `least` or more."""
    text = text[:MAX_BYTES]
    spans = [(0, len(text))] if as_one and text else split_spans(text)
    if not spans:
        return []
    buckets, owners = hash_ngrams([text[start:end] for start, end in spans])
    sums = np.bincount(owners, classifier.weights[buckets], minlength=len(spans))
    counts = np.bincount(owners, minlength=len(spans))
    odds = sums / np.sqrt(np.maximum(counts, 1)) + classifier.intercept
    scored = [
        ScoredSentence(start, end, round(p, 4))
        for (start, end), p in zip(spans, (1 / (1 + np.exp(-np.clip(odds, -30, 30)))).tolist(), strict=True)
        if p > least - ROUNDING
    ]
    return [sentence for sentence in scored if sentence.p >= least]


@lru_cache(maxsize=4)
def load_classifier(name: ClassifierName) -> NgramClassifier:
    """Load a classifier of the package."""
    data = files("ragfault.guard").joinpath("weights", f"{name}.npz").read_bytes()
    return read_classifier(BytesIO(data))


def read_classifier(place: str | Path | BytesIO) -> NgramClassifier:
    """Read a classifier that `write_classifier` wrote."""
    with np.load(place) as arrays:
        return NgramClassifier(
            arrays["weights"].astype(np.float64), float(arrays["intercept"]), float(arrays["threshold"])
        )


def write_classifier(classifier: NgramClassifier, path: str | Path) -> None:
    """Write a classifier, its weights in half precision."""
    np.savez_compressed(
        path,
        weights=classifier.weights.astype(np.float16),
        intercept=np.float64(classifier.intercept),
        threshold=np.float64(classifier.threshold),
    )
