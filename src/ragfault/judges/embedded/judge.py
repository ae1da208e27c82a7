"""The embedded judge: support by trees and network, relevance by word vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import compress

import numpy as np

from ragfault.judges.assembly import ScorerJudge
from ragfault.judges.calibration import UNSURE_RANGE
from ragfault.judges.checks.claims import join_spans, locate_words, strip_marks
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage
from ragfault.judges.checks.queries import KIND_PATTERNS, WeightedQuery, check_identifiers
from ragfault.judges.checks.word_reading import WordReading
from ragfault.judges.embedded.arrays import PassageArrays
from ragfault.judges.embedded.features import FEATURE_COLUMNS
from ragfault.judges.embedded.support import TEXT_TYPES, WeighedClaims, load_support_model, logistic, weigh_claims
from ragfault.judges.embedded.word_vectors import Array, load_arrays, load_vectors
from ragfault.judges.lexical.entailment import MAX_MISSING_SHARE, EntailmentThresholds, LexicalSession, decide_support
from ragfault.judges.scorer import Entailment, EntailmentGroup, RelevanceScore

FEATURE_LIST = """
covered kinds best best2 soft soft_least soft_best meaning meaning3 shows expects length
"""
FEATURE_NAMES = tuple(FEATURE_LIST.split())
"""The features of a query and a passage, in order."""
SAME_WORD_SIMILARITY = 0.999
"""Words of this similarity are the same; a smaller difference is rounding."""


def compute_relevance_features(weighted_query: WeightedQuery, arrays: PassageArrays) -> tuple[Array, Array]:
    """Return the features of each passage, and which words of the query it has; each depends on that passage alone."""
    passages, passage_numbers = arrays.index.passages, np.array(arrays.index.passage_numbers, np.int64)
    weights = np.array(list(weighted_query.weights.values()))
    total = weights.sum()
    features, holds = (np.zeros((len(passages), len(FEATURE_NAMES))), np.zeros((len(passages), len(weights)), bool))
    if not len(passage_numbers) or not total:
        return features, holds
    similarity, cosine = _compare_words(weighted_query, weights, arrays)
    bounds = passage_numbers.searchsorted(np.arange(len(passages) + 1))
    sizes = bounds[1:] - bounds[:-1]
    nonempty = np.flatnonzero(sizes)
    # of each passage that has any, its first sentence, and how many
    first, sizes = (bounds[nonempty], sizes[nonempty])
    best_similarity = np.maximum.reduceat(similarity, first)
    matched = best_similarity > SAME_WORD_SIMILARITY
    holds[nonempty] = matched
    top_coverage = _select_top((similarity > SAME_WORD_SIMILARITY) @ weights / total, passage_numbers, first, sizes, 2)
    has_kind = [
        bool(weighted_query.answer_kind and KIND_PATTERNS[weighted_query.answer_kind].search(passages[number].text))
        for number in nonempty
    ]
    features[nonempty] = np.array(
        [
            matched @ weights / total,
            np.add.reduce(matched, axis=1) / len(weights),
            top_coverage[0],
            np.add.reduce(top_coverage) / np.minimum(sizes, 2),
            best_similarity @ weights / total,
            np.minimum.reduce(best_similarity, axis=1),
            np.maximum.reduceat(similarity @ weights, first) / total,
            np.maximum.reduceat(cosine, first),
            np.add.reduce(_select_top(cosine, passage_numbers, first, sizes, 3)) / np.minimum(sizes, 3),
            has_kind,
            np.full(len(nonempty), weighted_query.answer_kind is not None),
            np.log1p(np.add.reduceat(arrays.sizes, first)),
        ]
    ).T
    return features.round(5), holds


def _compare_words(weighted_query: WeightedQuery, weights: Array, arrays: PassageArrays) -> tuple[Array, Array]:
    """Return, for each sentence, the best similarity to each word of the query, and the cosine with the query."""
    words, table = list(weighted_query.weights), arrays.table
    rows = table.get_rows(words)
    vectors = table.get_vectors(rows)
    similarity = (arrays.vectors @ vectors.T) / (arrays.norms[:, None] * table.norms[rows])
    for number, word in enumerate(words):
        if word in arrays.stem_numbers:
            similarity[arrays.stem_numbers[word], number] = 1.0
    closeness = np.zeros((len(arrays.sizes), len(words)))
    nonempty = arrays.sizes > 0
    closeness[nonempty] = np.maximum.reduceat(similarity[arrays.tokens], arrays.starts[:-1][nonempty])
    query_vector = weights @ vectors.astype(float)
    return closeness, arrays.sentence_vectors @ (query_vector / (np.sqrt(query_vector @ query_vector) + 1e-9))


def _select_top(values: Array, owner: Array, first: Array, sizes: Array, count: int) -> Array:
    """Return [count × passages] the greatest values of each passage's sentences in order; 0 if it has fewer."""
    ranked = values[np.lexsort((-values, owner))]
    ranks = np.arange(count)[:, None]
    top: Array = np.where(ranks < sizes, ranked.take(first + ranks, mode="clip"), 0.0)
    return top


@cache
def _load_weights() -> Mapping[str, Array]:
    return load_arrays("relevance.npz")


def predict_relevance(features: Array) -> Array:
    """Return the probability that each passage is relevant, from its features."""
    fitted = _load_weights()
    return logistic(((features - fitted["mean"]) / fitted["deviation"]) @ fitted["weights"] + fitted["bias"])


def score_passages(weighted_query: WeightedQuery, arrays: PassageArrays) -> list[RelevanceScore]:
    """Return the probability that each passage is relevant, low for another section or code, and missing words."""
    passages = arrays.index.passages
    if not weighted_query.total_weight or not len(arrays.tokens):
        return [RelevanceScore(0.0, "nothing to compare")] * len(passages)
    features, holds = compute_relevance_features(weighted_query, arrays)
    scores = []
    for passage, p, matched in zip(passages, predict_relevance(features).round(4).tolist(), holds, strict=True):
        score = RelevanceScore(
            p, weighted_query.describe_missing(compress(weighted_query.weights, (~matched).tolist()))
        )
        scores.append(check_identifiers(weighted_query, passage.text, score))
    return scores


VERSION = 7
MIN_COPY_OVERLAP = 0.5
"""From this Jaccard index on, claim and sentence say the same but for one point, which is then contradicted."""
SHORT_TYPES = ("claim", "dialogue")
"""In these an answer is no more probable than its worst claim; in longer ones exact checks are often wrong."""
FOREIGN_PROBABILITY, FOREIGN_REASON = 0.5, "written in another language than the chunks"


class EmbeddedSession(WordReading):
    """The scores of one trace by its words and their vectors."""

    def __init__(self, query: str, thresholds: EntailmentThresholds) -> None:
        self._query, self._thresholds = query, thresholds
        self._lexical = LexicalSession(load_idf(), thresholds)
        self._passages: dict[tuple[Passage, ...], PassageArrays] = {}
        self._weighed: dict[tuple[tuple[str, ...], tuple[Passage, ...]], WeighedClaims | None] = {}
        self._weighed_by_claims: dict[tuple[str, ...], WeighedClaims] = {}

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        weighted_query = self._lexical.get_query(query)
        if weighted_query.is_task:
            return [RelevanceScore(1.0, "the query is about the passage itself")] * len(passages)
        return score_passages(weighted_query, self._get_passages(tuple(passages)))

    def score_coverage(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        return self._lexical.score_coverage(query, passages)

    def prefetch(self, requested: Sequence[EntailmentGroup]) -> None:
        groups_by_key = {}
        for key in ((tuple(claims), tuple(passages)) for claims, passages in requested):
            if key not in self._weighed:
                self._weighed[key] = None
                arrays = self._get_passages(key[1]) if all(key) else None
                if arrays and len(arrays.tokens):
                    groups_by_key[key] = [strip_marks(claim) for claim in key[0]], arrays
        if groups_by_key:
            self._weighed |= zip(groups_by_key, weigh_claims(list(groups_by_key.values()), self._query), strict=True)

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        weighed = self.weigh_claims(claims, passages)
        if weighed is None:
            return [Entailment("unsupported", 0.0, shares=(0.0,) * len(passages)) for _ in claims]
        # then what is said of the answer as a whole is better informed
        is_single = len(weighed.texts) == 1
        probabilities = (
            [load_support_model().predict_groundedness(weighed.answer_odds, weighed.text_type)]
            if is_single
            else load_support_model().predict_support(weighed.odds, weighed.text_type).tolist()
        )
        return [
            mark_words(
                self.decide_claim(weighed, number, probability),
                claims[number],
                weighed,
                number,
                weighed.word_odds[number] > MIN_WORD_ODDS,
            )
            for number, probability in enumerate(probabilities)
        ]

    def _choose_thresholds(self, weighed: WeighedClaims) -> EntailmentThresholds:
        """Choose the thresholds: of one claim of several by the type of the text."""
        if len(weighed.texts) == 1:
            return self._thresholds
        inferred = float(load_support_model().claim_thresholds[TEXT_TYPES.index(weighed.text_type)])
        return EntailmentThresholds(max(self._thresholds.supported, (1 + inferred) / 2), inferred)

    def weigh_claims(self, claims: Sequence[str], passages: Sequence[Passage]) -> WeighedClaims | None:
        """Weigh claims against passages; None if there is nothing to compare."""
        key = tuple(claims), tuple(passages)
        if key not in self._weighed:
            self.prefetch([key])
        weighed = self._weighed[key]
        if weighed is not None:
            # against all chunks first, later against single ones
            self._weighed_by_claims.setdefault(key[0], weighed)
        return weighed

    def score_groundedness(self, answer: str, claims: Sequence[str], entailments: Sequence[Entailment]) -> float:  # noqa: ARG002
        weighed = self._weighed_by_claims.get(tuple(claims))
        if weighed is None:
            return get_lowest_probability(entailments)
        return self.bound_groundedness(
            load_support_model().predict_groundedness(weighed.answer_odds, weighed.text_type), weighed, entailments
        )

    def bound_groundedness(
        self, probability: float, weighed: WeighedClaims, entailments: Sequence[Entailment]
    ) -> float:
        """Bound a probability that all claims are supported by the worst claim if the answer is short."""
        if any(entailment.reason == FOREIGN_REASON for entailment in entailments):
            return get_lowest_probability(entailments)
        is_bounded = (
            weighed.text_type in SHORT_TYPES and get_lowest_probability(entailments) < self._thresholds.inferred
        )
        return min(probability, get_lowest_probability(entailments)) if is_bounded else probability

    def measure_similarity(self, left: str, right: str) -> float:
        return self._lexical.measure_similarity(left, right)

    def _get_passages(self, passages: tuple[Passage, ...]) -> PassageArrays:
        arrays = self._passages.get(passages)
        if arrays is None:
            arrays = self._passages[passages] = PassageArrays(
                self._lexical.get_index(passages), load_vectors(), load_idf()
            )
        return arrays

    def decide_claim(self, weighed: WeighedClaims, number: int, p: float) -> Entailment:
        """Decide the label of a claim by its probability of support; exact checks say why it is unsupported.

        In answers that people judged, most claims of several that the model finds supported are so even where an
        exact check objects, so that the checks do not overrule the model; a claim that all but copies a sentence and
        says otherwise is unsure.
        """
        arrays, check, text = weighed.passages, weighed.checks[number], weighed.texts[number]
        thresholds = self._choose_thresholds(weighed)
        if check is None:
            return Entailment("unsupported", 0.0, shares=(0.0,) * len(arrays.index.passages))
        if weighed.is_foreign[number]:
            shares = decide_support(text, check, arrays.index, FOREIGN_PROBABILITY, thresholds).shares
            return Entailment("unsupported", FOREIGN_PROBABILITY, (), FOREIGN_REASON, shares, unsure=True)
        is_doubted = check.contradiction is not None
        is_copy = weighed.features[number, FEATURE_COLUMNS["joint"]] >= MIN_COPY_OVERLAP
        if len(weighed.texts) > 1 and p >= thresholds.inferred:
            check = check._replace(contradiction=None, field_conflict=None, missing_name=None)
        elif not is_copy and (len(weighed.texts) > 1 or p >= thresholds.inferred):
            check = check._replace(contradiction=None)
        max_missing = 1.0 if p >= thresholds.inferred else MAX_MISSING_SHARE
        entailment = decide_support(text, check, arrays.index, p, thresholds, max_missing=max_missing)
        is_unsure = UNSURE_RANGE[0] < entailment.p < max(UNSURE_RANGE[1], thresholds.inferred) or (
            is_doubted and is_copy and entailment.support in ("supported", "inferred")
        )
        return entailment._replace(unsure=True) if is_unsure else entailment


MIN_WORD_ODDS = -1.5
"""From these log-odds on a word of an unsupported claim is marked: in RAGTruth people marked 46 % of such words of the
claims that are most improbable, and half of those that people marked are (`training/embedded/words.py`)."""


def mark_words(entailment: Entailment, claim: str, weighed: WeighedClaims, number: int, doubted: Array) -> Entailment:
    """Mark the words of a claim that is not supported: those in doubt by a model, and missing names and numbers."""
    check = weighed.checks[number]
    if entailment.support not in ("unsupported", "contradicted") or check is None or weighed.is_foreign[number]:
        return entailment
    statement, missing = check.statement, check.alignment.missing
    if len(doubted) != len(statement.tokens):
        return entailment
    spans = [
        is_doubted or (word in missing and (word in statement.names or word[0].isdigit()))
        for word, is_doubted in zip(statement.tokens, doubted.tolist(), strict=True)
    ]
    return entailment._replace(unsupported_spans=join_spans(locate_words(claim, statement.tokens), spans))


def get_lowest_probability(entailments: Sequence[Entailment]) -> float:
    """Return the lowest probability of a claim, 1 without claims."""
    return min((entailment.p for entailment in entailments), default=1.0)


class EmbeddedJudge(ScorerJudge):
    """The fast trained judge: fitted on human labels, run in numpy, with the same results on every machine.

    >>> from ragfault.model.records import Chunk, Trace
    >>> chunks = (Chunk(id="a", text="The clinic has four physicians and one nurse. It opens at eight."),)
    >>> trace = Trace(id="1", query="Who is there?", chunks=chunks, answer="The clinic has four doctors and one nurse.")
    >>> verdict = EmbeddedJudge().observe([trace])[0].claim[0]
    >>> verdict.support, verdict.p > 0.7
    ('supported', True)
    """

    def __init__(self, *, supported: float = 0.7, inferred: float = 0.5) -> None:
        self._thresholds = EntailmentThresholds(supported, inferred)

    @property
    def fingerprint(self) -> str:
        thresholds = self._thresholds
        return f"embedded/{VERSION} weights={digest_weights()} {thresholds}"

    def open_session(self, query: str = "", history: Sequence[str] = ()) -> EmbeddedSession:  # noqa: ARG002
        return EmbeddedSession(query, self._thresholds)


@cache
def digest_weights() -> str:
    """Return the digest of all weights and the rarity table."""
    digest = sha256(load_idf().digest.encode())
    for name in ("vectors.npz", "support.npz", "relevance.npz"):
        digest.update(files(__package__).joinpath(name).read_bytes())
    return digest.hexdigest()[:8]
