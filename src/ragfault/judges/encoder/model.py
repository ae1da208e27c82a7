"""The encoder's graph with its weights, and what its heads say of two texts."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ragfault.judges.checks.refusals import hash_words
from ragfault.judges.encoder.agreement import compare_words
from ragfault.judges.encoder.evidence import claim_text
from ragfault.judges.onnx.weighted_graph import WeightedGraph

if TYPE_CHECKING:
    from tokenizers import Tokenizer

HEADS = {
    "entailment": ("supported", "contradicted", "not_stated"),
    "agreement": ("same", "different", "incomplete"),
    "relevance": ("relevant", "not_relevant"),
    "reply": ("refusal", "partial", "answer"),
}
"""Head → its classes, in the order of the graph's outputs."""
MAX_TOKENS = 192
"""Tokens of a pair: the longer of the two texts is cut first, as in training."""
ENGLISH, MULTILINGUAL = "english", "multilingual"
"""The folders of the two packed models: one reads English, the other nine languages, with more layers."""
WINDOWS = {ENGLISH: 2, MULTILINGUAL: 1}
"""Windows of the passages that each model reads with a claim, as in training."""
MARKERS = (("[CLS]", "[SEP]"), ("<s>", "</s>"))
"""The tokens that open a pair, and that end each of its texts, as tokenizers name them."""

Array = np.ndarray[Any, Any]


class PairTokens(NamedTuple):
    """A claim and its evidence as one row of tokens."""

    ids: tuple[int, ...]
    first_length: int
    """The number of tokens of the claim, with its opening and end tokens."""


class EncoderModel:
    """The graph with its weights, loaded.

    The matrices are 8-bit integers with a scale a column. Each pair runs alone: the steps to which a row is rounded
    depend on that row, so that no verdict depends on its batch.
    """

    def __init__(self, folder: str = ENGLISH) -> None:
        self._folder = folder
        self._graph = WeightedGraph(_read_packed(folder, "graph.onnx"), load_weights(folder))
        self._tokenizer = load_tokenizer(folder)
        self._features: dict[PairTokens, Array] = {}

    def encode(self, claim: str, evidence: str) -> PairTokens:
        """Encode a claim and its evidence as a row of tokens."""
        return encode_pair(self._tokenizer, claim, evidence)

    def read_features(self, pair: PairTokens) -> Array:
        """Return what the fitted heads see of a pair: opening token, mean and maximum of the claim, outputs.

        A pair that was read is kept: a claim is asked for again when an answer is judged as a whole. Threads may read
        at once.
        """
        features = self._features.get(pair)
        if features is None:
            size = len(pair.ids)
            kinds = np.zeros((1, size), np.int64)
            kinds[0, pair.first_length :] = 1
            feed = {"ids": np.array([pair.ids], np.int64), "mask": np.ones((1, size), np.int64), "kinds": kinds}
            pooled, outputs = self._graph.run(["pooled", "outputs"], feed)
            features = np.concatenate([pooled[0], outputs[0]])
            if len(self._features) >= CACHED_PAIRS:
                self._features.clear()
            self._features[pair] = features
        return features

    def read_outputs(self, head: str, claim: str, evidence: str) -> Array:
        """Return the logits of a head on a claim beside its evidence."""
        logits: Array = self.read_features(self.encode(claim, evidence))[OUTPUTS[head]]
        return logits

    def read_entailment(self, pairs: Sequence[tuple[str, str]]) -> Array:
        """Return the logits of supported, contradicted and not stated, a row a pair of claim and evidence."""
        if not pairs:
            return np.zeros((0, len(HEADS["entailment"])))
        return np.stack([self.read_outputs("entailment", *pair) for pair in pairs]).astype(float)

    def read_relevance(self, query: str, passage: str) -> float:
        """Return the log-odds that a passage is relevant to a query."""
        relevant, other = self.read_outputs("relevance", query, passage)
        return float(relevant - other)

    def predicts_refusal(self, reply: str, query: str) -> bool:
        """Return whether a reply to a query, or a sentence of it, says that it cannot answer.

        The encoder and the words decide together: the sum of their log-odds is at least the fitted threshold.
        """
        if not reply.strip():
            return False
        features = self.read_features(self.encode(reply, query))
        heads = load_heads(self._folder)
        read = features @ heads["refusal.weights"] + heads["refusal.bias"]
        by_words = heads["refusal.words"][hash_words(reply)].sum()
        return float(read + by_words) >= float(heads["refusal.threshold"])

    def predict_agreement(self, query: str, reference: str, answer: str) -> float:
        """Return the probability that an answer says what a reference says, by model and words together."""
        features = self.read_agreement(query, reference, answer)
        heads = load_heads(self._folder)
        odds = float(features @ heads["agreement.weights"] + heads["agreement.bias"])
        return 1 / (1 + math.exp(-min(max(odds, -30.0), 30.0)))

    def read_agreement(self, query: str, reference: str, answer: str) -> Array:
        """Return what the agreement head sees: answer and reference, each read as a claim next to the other, and words.

        An answer is right if it entails the reference. If only the reference entails it, it may leave something out.
        """
        claim = claim_text(answer, query)
        entailed = self.read_outputs("entailment", claim, f"{query} {reference}")
        entails = self.read_outputs("entailment", claim_text(reference, query), f"{query} {answer}")
        pair = self.encode(claim, reference)
        return np.concatenate([self.read_features(pair), entailed, entails, compare_words(query, reference, answer)])


OUTPUT_SIZE = sum(map(len, HEADS.values()))
OUTPUTS = {
    head: slice(end - len(classes) - OUTPUT_SIZE, (end - OUTPUT_SIZE) or None)
    for (head, classes), end in zip(HEADS.items(), accumulate(map(len, HEADS.values())), strict=True)
}
"""Head → where its outputs are in the features of a pair."""
ROWS_AT_ONCE = 4_096
"""Word vectors that are unpacked at once."""
CACHED_PAIRS = 2_048
"""Pairs of which the features are kept, 5 kB each."""


def encode_pair(tokenizer: Tokenizer, claim: str, evidence: str) -> PairTokens:
    """Encode two texts as a row of at most `MAX_TOKENS` tokens."""
    first = tokenizer.encode(claim, add_special_tokens=False).ids
    second = tokenizer.encode(evidence, add_special_tokens=False).ids
    excess = len(first) + len(second) + 3 - MAX_TOKENS
    while excess > 0:
        # The longer text loses tokens until both are of one length, then both do.
        longer = first if len(first) > len(second) else second
        surplus = max(1, min(excess, abs(len(first) - len(second))))
        del longer[len(longer) - surplus :]
        excess -= surplus
    start, end = get_markers(tokenizer)
    return PairTokens((start, *first, end, *second, end), len(first) + 2)


def get_markers(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return the tokens that open a pair, and that end each of its texts."""
    named = ((tokenizer.token_to_id(start), tokenizer.token_to_id(end)) for start, end in MARKERS)
    return next((start, end) for start, end in named if start is not None and end is not None)


@cache
def load_weights(folder: str) -> dict[str, Array]:
    """Load the packed weights: matrices and word vectors as 8-bit integers with their scales."""
    with np.load(io.BytesIO(_read_packed(folder, "weights.npz"))) as packed:
        weights = {name: packed[name] for name in packed.files}
    if "word.blocks" in weights:
        blocks, scales = weights.pop("word.blocks"), weights.pop("word.d")
        # In parts: all word vectors as floats would take 130 MB for a moment, and their steps as much.
        parts = [
            quantise_rows(expand_blocks(blocks[start : start + ROWS_AT_ONCE], scales[start : start + ROWS_AT_ONCE]))
            for start in range(0, len(blocks), ROWS_AT_ONCE)
        ]
        weights["word"], weights["word.s"] = (np.concatenate(column) for column in zip(*parts, strict=True))
    return weights


def expand_blocks(blocks: Array, scales: Array) -> Array:
    """Return rows of floats from blocks of 32 numbers of 4 bits, two of them a byte, with a 16-bit scale a block.

    >>> blocks, scales = np.full((1, 16), 0x9C, np.uint8), np.array([[0.5]], np.float16)
    >>> expand_blocks(blocks, scales)[0, [0, 16]].tolist()
    [2.0, 0.5]
    """
    halves = blocks.reshape(*scales.shape, -1)
    steps = np.concatenate([halves & 15, halves >> 4], axis=2).astype(np.float32) - 8
    rows: Array = (steps * scales[..., None].astype(np.float32)).reshape(len(blocks), -1)
    return rows


def quantise_rows(rows: Array) -> tuple[Array, Array]:
    """Return rows as 8-bit integers, and the scale of each row."""
    scale = np.maximum(np.abs(rows).max(1), 1e-9).astype(np.float32) / np.float32(127)
    return np.rint(rows / scale[:, None]).astype(np.int8), scale


@cache
def load_heads(folder: str = ENGLISH) -> dict[str, Array]:
    """Load the last layers of the fitted heads, and the numbers that were fitted with them."""
    with np.load(io.BytesIO(_read_packed(folder, "heads.npz"))) as packed:
        return {name: packed[name] for name in packed.files}


@cache
def digest_weights() -> str:
    """Return what identifies the weights in a fingerprint."""
    digest = hashlib.sha256()
    for folder in (ENGLISH, MULTILINGUAL):
        for name in ("weights.npz", "heads.npz"):
            digest.update(_read_packed(folder, name))
    return digest.hexdigest()[:8]


def _read_packed(folder: str, name: str) -> bytes:
    return files(__package__).joinpath(folder, name).read_bytes()


@cache
def load_tokenizer(folder: str = ENGLISH) -> Tokenizer:
    """Load the packed tokenizer."""
    from tokenizers import Tokenizer

    packed = _read_packed(folder, "tokenizer.json.gz")
    tokenizer = Tokenizer.from_str(gzip.decompress(packed).decode("utf-8"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


LOADING = Lock()


def load_encoder(folder: str = ENGLISH) -> EncoderModel:
    """Load a model, once in each process, however many threads ask for it."""
    # A cache alone calls again for each thread that comes before the first is done: four models of 120 MB for four.
    with LOADING:
        return _load_encoder(folder)


@cache
def _load_encoder(folder: str) -> EncoderModel:
    return EncoderModel(folder)
