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
START_TOKEN, END_TOKEN = 101, 102
"""The tokens that open a pair, and that end each of its texts."""

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

    def __init__(self) -> None:
        self._heads = load_heads()
        self._graph = WeightedGraph(files(__package__).joinpath("graph.onnx").read_bytes(), load_weights())
        self._tokenizer = load_tokenizer()
        self._features: dict[PairTokens, Array] = {}

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
        logits: Array = self.read_features(encode_pair(self._tokenizer, claim, evidence))[OUTPUTS[head]]
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
        features = self.read_features(encode_pair(self._tokenizer, reply, query))
        read = features @ self._heads["refusal.weights"] + self._heads["refusal.bias"]
        by_words = self._heads["refusal.words"][hash_words(reply)].sum()
        return float(read + by_words) >= float(self._heads["refusal.threshold"])

    def predict_agreement(self, query: str, reference: str, answer: str) -> float:
        """Return the probability that an answer says what a reference says, by model and words together."""
        features = self.read_agreement(query, reference, answer)
        odds = float(features @ self._heads["agreement.weights"] + self._heads["agreement.bias"])
        return 1 / (1 + math.exp(-min(max(odds, -30.0), 30.0)))

    def read_agreement(self, query: str, reference: str, answer: str) -> Array:
        """Return what the agreement head sees: answer and reference, each read as a claim next to the other, and words.

        An answer is right if it entails the reference. If only the reference entails it, it may leave something out.
        """
        claim = claim_text(answer, query)
        entailed = self.read_outputs("entailment", claim, f"{query} {reference}")
        entails = self.read_outputs("entailment", claim_text(reference, query), f"{query} {answer}")
        pair = encode_pair(self._tokenizer, claim, reference)
        return np.concatenate([self.read_features(pair), entailed, entails, compare_words(query, reference, answer)])


OUTPUT_SIZE = sum(map(len, HEADS.values()))
OUTPUTS = {
    head: slice(end - len(classes) - OUTPUT_SIZE, (end - OUTPUT_SIZE) or None)
    for (head, classes), end in zip(HEADS.items(), accumulate(map(len, HEADS.values())), strict=True)
}
"""Head → where its outputs are in the features of a pair."""
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
    return PairTokens((START_TOKEN, *first, END_TOKEN, *second, END_TOKEN), len(first) + 2)


@cache
def load_weights() -> dict[str, Array]:
    """Load the packaged weights, with the word vectors as 32-bit floats."""
    with np.load(io.BytesIO(_read_packed())) as packed:
        weights = {name: packed[name] for name in packed.files}
    weights.pop("calibration", None)
    scale = weights.pop("word.s")
    weights["word"] = weights["word"].astype(np.float32) * scale[:, None]
    return weights


@cache
def load_heads() -> dict[str, Array]:
    """Load the last layers of the fitted heads, and the numbers that were fitted with them."""
    with np.load(io.BytesIO(files(__package__).joinpath("heads.npz").read_bytes())) as packed:
        return {name: packed[name] for name in packed.files}


@cache
def digest_weights() -> str:
    """Return what identifies the weights in a fingerprint."""
    heads = files(__package__).joinpath("heads.npz").read_bytes()
    return hashlib.sha256(_read_packed() + heads).hexdigest()[:8]


@cache
def _read_packed() -> bytes:
    return files(__package__).joinpath("weights.npz").read_bytes()


@cache
def load_tokenizer() -> Tokenizer:
    """Load the packaged tokenizer."""
    from tokenizers import Tokenizer

    packed = files(__package__).joinpath("tokenizer.json.gz").read_bytes()
    tokenizer = Tokenizer.from_str(gzip.decompress(packed).decode("utf-8"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


LOADING = Lock()


def load_encoder() -> EncoderModel:
    """Load the encoder, once in each process, however many threads ask for it."""
    # A cache alone calls again for each thread that comes before the first is done: four models of 120 MB for four.
    with LOADING:
        return _load_encoder()


@cache
def _load_encoder() -> EncoderModel:
    return EncoderModel()
