"""The judge minilm: a cross-encoder that reads each claim with its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ragfault.judges.assembly import ScorerJudge
from ragfault.judges.checks.claims import locate_words
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage, SentenceIndex
from ragfault.judges.checks.queries import WeightedQuery, check_identifiers
from ragfault.judges.checks.word_reading import WordReading
from ragfault.judges.embedded.judge import EmbeddedSession, digest_weights, get_lowest_probability, mark_words
from ragfault.judges.embedded.support import WeighedClaims
from ragfault.judges.embedded.word_vectors import Array
from ragfault.judges.lexical.entailment import EntailmentThresholds
from ragfault.judges.lexical.features import ClaimStatement, parse_statement
from ragfault.judges.minilm.calibration import (
    Logits,
    build_claim_inputs,
    digest_calibration,
    load_calibration,
    locate_doubtful_span,
)
from ragfault.judges.minilm.encoder import (
    TokenPair,
    encode_pair,
    encode_text,
    load_base_weights,
    load_delta,
    load_embedder,
    load_encoder,
    load_tokenizer,
    locate_weights,
)
from ragfault.judges.scorer import Entailment, EntailmentGroup, RelevanceScore
from ragfault.model.errors import UsageError

MAX_EVIDENCE_CHARS = 460
"""The evidence of a claim has about this many characters."""
OVERFLOW_FACTOR = 1.15
"""A sentence that would exceed this multiple of it is left out, unless it is the first."""
MAX_SENTENCES = 7
"""At most this many sentences are evidence."""
CLOSEST_COUNT, CANDIDATE_COUNT = 60, 40
"""The number of sentences that share most with the claim, and of distinct ones among them, to consider."""
REPEATED_WORD_FACTOR = 0.4
"""The weight of a word that a chosen sentence has already."""
LENGTH_OFFSET, LENGTH_EXPONENT = 12, 0.35
"""Penalty of a long sentence: its number of words plus the first number, to the power of the second."""


def select_evidence(statement: ClaimStatement, index: SentenceIndex) -> tuple[int, ...]:
    """Return the positions of the sentences that cover a claim best, in the order of the passages.

    They are chosen one after the other: each adds words of the claim that those before it lack, by rarity,
    and short ones come first. A field without a value is evidence if the claim has its key. Empty if no
    sentence shares a word with the claim. The model was trained on the choice of this function.

    >>> from ragfault.judges.lexical.features import parse_statement
    >>> from ragfault.judges.checks.passages import Passage
    >>> from ragfault.judges.checks.lexicon import load_idf
    >>> index = SentenceIndex([Passage("a", "Cats sleep. Dogs bark at night. The harbour opens at seven.")])
    >>> select_evidence(parse_statement("The dogs bark.", load_idf()), index)
    (1,)
    """
    uncovered = dict(statement.weights)
    candidates = _select_candidates(statement, index)
    chosen: list[int] = []
    length = 0
    while candidates and length < MAX_EVIDENCE_CHARS and len(chosen) < MAX_SENTENCES:
        best = max(
            candidates, key=lambda position: (_score_candidate(statement, uncovered, index, position), -position)
        )
        candidates.remove(best)
        size = len(get_sentence_text(index, best, None))
        if length + size > MAX_EVIDENCE_CHARS * OVERFLOW_FACTOR and chosen:
            continue
        chosen.append(best)
        length += size + 1
        for word in index.sentences[best].content:
            uncovered.pop(word, None)
    return tuple(sorted(chosen))


def get_sentence_text(index: SentenceIndex, position: int, max_chars: int | None = MAX_EVIDENCE_CHARS) -> str:
    """Return a sentence in one line."""
    return " ".join(index.sentences[position].text.split())[:max_chars]


def _select_candidates(statement: ClaimStatement, index: SentenceIndex) -> list[int]:
    """Return the sentences that share most with a claim, each once."""
    weights = statement.weights
    total = sum(weights.values()) or 1.0
    shared = dict(index.sum_shared_weights(weights))
    for position, sentence in enumerate(index.sentences):
        if sentence.polarity == "absent" and sentence.key and sentence.key <= weights.keys():
            shared[position] = sum(weights[word] for word in sentence.key)
    ranked = sorted(
        shared, key=lambda position: (-shared[position] / total, len(index.sentences[position].content), position)
    )
    candidates: list[int] = []
    seen: set[tuple[str, ...]] = set()
    for position in ranked[:CLOSEST_COUNT]:
        tokens = index.sentences[position].tokens
        if not tokens or tokens not in seen:
            seen.add(tokens)
            candidates.append(position)
    return candidates[:CANDIDATE_COUNT]


def _score_candidate(
    statement: ClaimStatement, uncovered: dict[str, float], index: SentenceIndex, position: int
) -> float:
    """Return what a sentence adds to those already chosen, for its length."""
    sentence = index.sentences[position]
    gain = sum(
        weight * (1.0 if word in uncovered else REPEATED_WORD_FACTOR)
        for word, weight in statement.weights.items()
        if word in sentence.content or word in sentence.key
    )
    return float(gain / (LENGTH_OFFSET + len(sentence.content)) ** LENGTH_EXPONENT)


VERSION = 7
MAX_STRETCH_TOKENS = 64
"""A longer passage is compared with the query in stretches of this many tokens; the nearest decides."""
PROBABILITY_DIGITS = 4
"""Probabilities are rounded, so that processors with another order of additions agree."""


def doubt_words(weighed: WeighedClaims, number: int, row: TokenPair, logits: Logits) -> Array:
    """Return for each word of a claim whether the model doubts it: one of its tokens is more doubtful than not."""
    check = weighed.checks[number]
    words = check.statement.tokens if check is not None else ()
    doubted = [span for span, value in zip(row.spans, logits.tokens, strict=True) if value > 0]
    located = locate_words(weighed.texts[number], words)
    return np.array(
        [span is not None and any(a < span[1] and span[0] < b for a, b in doubted) for span in located], dtype=bool
    )


class MiniLMSession(WordReading):
    """The scores of one trace by a cross-encoder, on top of those of the embedded judge."""

    def __init__(self, folder: Path, thresholds: EntailmentThresholds, threads: int, query: str) -> None:
        self._model = load_encoder(folder, threads)
        self._tokenizer = load_tokenizer(folder)
        self._folder, self._thresholds, self._threads = folder, thresholds, threads
        self._rarity = load_idf()
        self.embedded = EmbeddedSession(query, thresholds)
        self._logits: dict[tuple[int, ...], Logits] = {}
        self._weighed_odds: dict[tuple[str, ...], tuple[WeighedClaims, Array]] = {}
        self._embeddings: dict[str, tuple[Array, Array]] = {}

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        weighted_query = WeightedQuery(query, self._rarity)
        embedded_scores = self.embedded.score_relevance(query, passages)
        if weighted_query.is_task or not weighted_query.total_weight:
            return embedded_scores
        scores = []
        for passage, embedded_score in zip(passages, embedded_scores, strict=True):
            if not passage.text.strip():
                scores.append(embedded_score)
                continue
            closeness = self.measure_closeness(query, passage.text)
            value = round(load_calibration().predict_relevance(closeness), PROBABILITY_DIGITS)
            score = RelevanceScore(value, embedded_score.reason if value < 0.5 else None)
            scores.append(check_identifiers(weighted_query, passage.text, score))
        return scores

    def score_coverage(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        return self.embedded.score_coverage(query, passages)

    def prefetch(self, groups: Sequence[EntailmentGroup]) -> None:
        self.embedded.prefetch(groups)

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        weighing = self.weigh_with_model(claims, passages)
        if weighing is None:
            return self.embedded.score_entailment(claims, passages)
        weighed, logits, rows = weighing
        odds = load_calibration().predict_odds(
            np.array([build_claim_inputs(*inputs) for inputs in zip(weighed.odds.tolist(), logits, strict=True)])
        )
        self._weighed_odds.setdefault(tuple(claims), (weighed, odds))
        # then what is said of the answer as a whole is better informed
        if len(odds) == 1:
            grounded = load_calibration().predict_groundedness(odds, weighed.text_type)
            probabilities = [round(grounded, PROBABILITY_DIGITS)]
        else:
            supported = load_calibration().predict_support(odds, weighed.text_type)
            probabilities = supported.round(PROBABILITY_DIGITS).tolist()
        return [
            mark_words(
                self._decide_claim(weighed, number, p, row, claim_logits),
                claims[number],
                weighed,
                number,
                doubt_words(weighed, number, row, claim_logits),
            )
            for number, (p, row, claim_logits) in enumerate(zip(probabilities, rows, logits, strict=True))
        ]

    def weigh_with_model(
        self, claims: Sequence[str], passages: Sequence[Passage]
    ) -> tuple[WeighedClaims, list[Logits], list[TokenPair]] | None:
        """Return the weighed claims, and the model's logits and row of each; None if there is nothing to compare."""
        weighed = self.embedded.weigh_claims(claims, passages)
        if weighed is None:
            return None
        index = weighed.passages.index
        rows = [self._build_claim_row(text, index) for text in weighed.texts]
        logits = self._run_model(rows)
        return weighed, [logits[row.ids] for row in rows], rows

    def score_groundedness(self, answer: str, claims: Sequence[str], entailments: Sequence[Entailment]) -> float:  # noqa: ARG002
        weighing = self._weighed_odds.get(tuple(claims))
        if weighing is None:
            return get_lowest_probability(entailments)
        weighed, odds = weighing
        p = load_calibration().predict_groundedness(odds, weighed.text_type)
        return self.embedded.bound_groundedness(round(p, PROBABILITY_DIGITS), weighed, entailments)

    def measure_similarity(self, left: str, right: str) -> float:
        means = [lengths @ vectors for vectors, lengths in map(self._embed_text, (left, right))]
        return round(min(1.0, max(0.0, _measure_cosine(*means))), PROBABILITY_DIGITS)

    def measure_closeness(self, query: str, text: str) -> float:
        """Return the cosine of a query with the stretch of a text that is nearest to it."""
        vectors, lengths = self._embed_text(query)
        return max((_measure_cosine(lengths @ vectors, row) for row in self._embed_text(text)[0]), default=0.0)

    def _decide_claim(
        self, weighed: WeighedClaims, number: int, p: float, row: TokenPair, logits: Logits
    ) -> Entailment:
        """Return the verdict on a claim, with the doubtful words if no exact check fails."""
        entailment, check = self.embedded.decide_claim(weighed, number, p), weighed.checks[number]
        if (
            entailment.support != "unsupported"
            or entailment.unsure
            or check is None
            or check.field_conflict
            or check.missing_name
        ):
            return entailment
        claim = weighed.texts[number]
        span = locate_doubtful_span(claim, row.spans, logits.tokens)
        if span is None or len(span) > 0.8 * len(claim):
            return entailment
        return entailment._replace(reason=f"the chunks do not say “{span}”")

    def _build_claim_row(self, claim: str, index: SentenceIndex) -> TokenPair:
        texts = [
            get_sentence_text(index, position)
            for position in select_evidence(parse_statement(claim, self._rarity), index)
        ]
        return encode_pair(self._tokenizer, claim, texts)

    def _run_model(self, rows: Sequence[TokenPair]) -> dict[tuple[int, ...], Logits]:
        """Return the logits of some rows; no row runs twice in a session."""
        fresh = list({row.ids: row for row in rows if row.ids not in self._logits}.values())
        self._logits |= {row.ids: logits for row, logits in zip(fresh, self._model.run(fresh), strict=True)}
        return self._logits

    def _embed_text(self, text: str) -> tuple[Array, Array]:
        """Return the vector of each stretch of a text, and its number of tokens."""
        if text not in self._embeddings:
            rows = encode_text(self._tokenizer, text, MAX_STRETCH_TOKENS)
            vectors = load_embedder(self._folder, self._threads, quantised=True).embed(rows)
            self._embeddings[text] = vectors, np.array([row.first_length for row in rows], np.float32)
        return self._embeddings[text]


def _measure_cosine(left: Array, right: Array) -> float:
    norm = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / norm if norm else 0.0


class MiniLMJudge(ScorerJudge):
    """A judge by MiniLM-L6, trained to read a claim with its evidence.

    It needs the published weights, no key and no network. Exact checks of numbers, names,
    negations and fields take precedence over the model. `threads` is for one process; `weights` is a folder
    with the published weights if they are not installed. Raises MissingExtra if they are missing,
    UsageError if the weights are others.
    """

    def __init__(
        self, *, supported: float = 0.7, inferred: float = 0.5, threads: int = 1, weights: str | None = None
    ) -> None:
        if threads < 1:
            raise UsageError(f"threads is at least 1, got {threads}.")
        self._thresholds, self._threads = EntailmentThresholds(supported, inferred), threads
        self._folder = Path(weights).expanduser().absolute() if weights else locate_weights()
        for name in ("model.safetensors", "tokenizer.json"):
            if not (self._folder / name).is_file():
                raise UsageError(f"{self._folder} holds no {name}.")
        load_base_weights(self._folder, load_delta().base_digest)

    @property
    def fingerprint(self) -> str:
        thresholds = self._thresholds
        return (
            f"minilm/{VERSION} weights={load_delta().digest} words={digest_weights()} "
            f"stack={digest_calibration()} {thresholds}"
        )

    def open_session(self, query: str = "", history: Sequence[str] = ()) -> MiniLMSession:  # noqa: ARG002
        return MiniLMSession(self._folder, self._thresholds, self._threads, query)
