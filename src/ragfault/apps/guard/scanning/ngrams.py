"""Linear classifiers on hashed character n-grams: each sentence of a text gets a probability, in a fraction of a ms."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
MAX_BYTES = 200_000
"""Bytes of a text that are read."""
ROUNDING = 1e-4
"""Unit of a probability."""
MAX_SENTENCE = 400
"""Characters of a sentence; longer ones are cut between words."""
BASE = np.uint32(257)
PADDING = bytes(SIZES[-1])
OVERHANG = np.array(SIZES, dtype=np.intp) - 1
"""Bytes of an n-gram after its first."""
FACTOR = np.uint32(2_654_435_761)
STOPS = frozenset(".!?;:")
BOUNDARY = re.compile(r"[.!?;:\n\r|](?:(?<=[.!?;:])\s+|(?<=[\n\r|])[\n\r|]*\s*)")
"""Stop with the white space after it, or line end or column sign: few characters begin one, so it is found fast."""

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
        start = match.start()
        end = start + 1 if text[start] in STOPS else position + len(text[position:start].rstrip())
        spans.append((position, end))
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


class HashedNgrams(NamedTuple):
    """Buckets of the n-grams that begin at each byte of sentences, one row for each of SIZES."""

    buckets: NDArray[np.uint32]
    inside: NDArray[np.bool_]
    """False where the n-gram would end after its sentence."""
    starts: NDArray[np.intp]
    """First byte of each sentence."""
    lengths: NDArray[np.intp]

    @property
    def counts(self) -> NDArray[np.intp]:
        """Number of n-grams of each sentence."""
        room: NDArray[np.intp] = np.maximum(self.lengths[:, None] - OVERHANG, 0).sum(axis=1)
        return room


@lru_cache(maxsize=4)
def hash_ngrams(sentences: tuple[str, ...]) -> HashedNgrams:
    """Hash the n-grams of sentences; those of the latest calls are remembered, as several classifiers read a text.

    A sentence is read in lower case between two marks, so that its first and last words are n-grams of their own.

    >>> hash_ngrams(("Hm", "")).counts.tolist()
    [3, 0]
    """
    encoded = [f"\x02{' '.join(sentence.split()).lower()}\x03".encode() for sentence in sentences]
    lengths = np.array([len(sentence_bytes) for sentence_bytes in encoded], dtype=np.intp)
    ends = np.cumsum(lengths)
    data = np.frombuffer(b"".join((*encoded, PADDING)), dtype=np.uint8).astype(np.uint32)
    size = data.size - len(PADDING)
    mixed = np.empty((len(SIZES), size), dtype=np.uint32)
    code = data[:size].copy()
    for length in range(2, SIZES[-1] + 1):
        code *= BASE
        code += data[length - 1 : length - 1 + size]
        if length in SIZES:
            np.bitwise_xor(code, np.uint32(length * 40_503), out=mixed[length - SIZES[0]])
    mixed *= FACTOR
    mixed >>= np.uint32(16)
    room = ends.repeat(lengths) - np.arange(size)
    return HashedNgrams(mixed, room > OVERHANG[:, None], ends - lengths, lengths)


def score_sentences(classifier: NgramClassifier, text: str, *, as_one: bool = False) -> list[ScoredSentence]:
    """Score every sentence of a text, or the whole text as one."""
    return score_texts(classifier, [text], as_one=as_one)[0]


def score_texts(
    classifier: NgramClassifier, texts: Sequence[str], *, as_one: bool = False, least: float = 0.0
) -> list[list[ScoredSentence]]:
    """Score the sentences of each text, or each text as one; those of all texts are scored together, which is faster.

    The weights are numbers in half precision: their sums in double precision are exact, whatever is beside a sentence.

    >>> texts = ["The office opens at ten.", "", "Ring twice. Then wait."]
    >>> [len(scored) for scored in score_texts(load_classifier("toxicity"), texts)]
    [1, 0, 2]
    """
    read = [text[:MAX_BYTES] for text in texts]
    spans = [([(0, len(text))] if text else []) if as_one else split_spans(text) for text in read]
    sentences = tuple(text[start:end] for text, cuts in zip(read, spans, strict=True) for start, end in cuts)
    if not sentences:
        return [[] for _ in texts]
    hashed = hash_ngrams(sentences)
    weights = classifier.weights.take(hashed.buckets)
    weights *= hashed.inside
    sums = np.add.reduceat(weights.sum(axis=0), hashed.starts)
    odds = sums / np.sqrt(np.maximum(hashed.counts, 1)) + classifier.intercept
    chances = iter((1 / (1 + np.exp(-np.clip(odds, -30, 30)))).tolist())
    scored = [[(start, end, next(chances)) for start, end in cuts] for cuts in spans]
    return [
        [
            ScoredSentence(start, end, rounded)
            for start, end, p in rows
            if p > least - ROUNDING and (rounded := round(p, 4)) >= least
        ]
        for rows in scored
    ]


@lru_cache(maxsize=4)
def load_classifier(name: ClassifierName) -> NgramClassifier:
    """Load a classifier of the package."""
    data = files("ragfault.apps.guard").joinpath("weights", f"{name}.npz").read_bytes()
    return read_classifier(BytesIO(data))


def read_classifier(source: str | Path | BytesIO) -> NgramClassifier:
    """Read a classifier that `training/guard.py` wrote."""
    with np.load(source) as arrays:
        return NgramClassifier(
            arrays["weights"].astype(np.float64), float(arrays["intercept"]), float(arrays["threshold"])
        )
