"""The support model: calibrated probabilities that passages support claims and whole answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Literal, NamedTuple, get_args

import numpy as np

from ragfault.judges.checks.queries import TASK_QUERY
from ragfault.judges.embedded.arrays import PassageArrays, PassageBatch, detect_foreign, encode_claims, match_claims
from ragfault.judges.embedded.features import FEATURE_COLUMNS, NgramMatches, compute_features
from ragfault.judges.embedded.network import SupportNetwork, TreeEnsemble, WordStates, encode_words
from ragfault.judges.embedded.word_vectors import Array, load_arrays, load_vectors
from ragfault.judges.lexical.entailment import ClaimCheck, check_claim, compute_odds
from ragfault.judges.lexical.features import ClaimCounts
from ragfault.text.normalization import split_words

TextType = Literal["answer", "claim", "dialogue", "record", "summary"]
TEXT_TYPES: tuple[TextType, ...] = get_args(TextType)

SPOKEN_WORDS = re.compile(
    r"\b(?:i|i'm|i've|i'd|me|my|you|your|you're|we|our|yeah|wow|haha|lol|hey|hi)\b", re.IGNORECASE
)
QUESTION_OPENING = re.compile(
    r"\s*(?:wh\w+|how|is|are|was|were|do|does|did|can|could|should|would|will|has|have|tell|explain|define|list|name)\b",
    re.IGNORECASE,
)


def classify_text(query: str, claims: Sequence[str], record_share: float) -> TextType:
    """Classify an answer by its query, its claims, and the share of the passages that are records.

    A summary is asked for; a reply in a dialogue answers no question, and one of the two sides says "I" or
    "you"; a claim stands alone; structured data are records; all else is an answer.

    >>> classify_text("Summarize the report.", ["It rained.", "It snowed."], 0.0)
    'summary'
    >>> classify_text("i love skiing, my whole family goes", ["It was invented in Norway."], 0.0)
    'dialogue'
    """
    if record_share > RECORD_SHARE:
        return "record"
    if TASK_QUERY.match(query):
        return "summary"
    is_question = query.rstrip().endswith("?") or QUESTION_OPENING.match(query) is not None
    if (
        query
        and not is_question
        and len(claims) < 4
        and (SPOKEN_WORDS.search(query) or any(map(SPOKEN_WORDS.search, claims)))
    ):
        return "dialogue"
    return "claim" if len(claims) == 1 else "answer"


RECORD_SHARE = 0.25
"""Passages of which a larger share is records are structured data."""
MISSING_ODDS = 4.0
"""The lexical log-odds of a claim that nothing can be compared with."""
TEXT_WEIGHTS, RECORD_WEIGHTS = np.array([0.3, 0.2, 0.3, 0.5]), np.array([0.45, 0.0, 0.45, 0.3])
"""The weights of trees, monotone trees, network and lexical log-odds for a claim, beside texts and beside records;
chosen by answers of tasks and sets that were left out of training."""
WORST_COUNT = 5
"""An answer is judged by so many of its worst claims, so that a long one is not doubted for its length."""


def logistic(odds: Array) -> Array:
    """Return the probability of log-odds."""
    p: Array = 1 / (1 + np.exp(-np.minimum(np.maximum(odds, -30), 30)))
    return p


def combine_parts(parts: Array, record_shares: Array) -> Array:
    """Combine the log-odds of the parts (claims × parts), beside passages of which such shares are records."""
    is_record = record_shares[:, None] > RECORD_SHARE
    odds: Array = (parts * np.where(is_record, RECORD_WEIGHTS, TEXT_WEIGHTS)).sum(1)
    return odds


def combine_claims(odds: Array) -> float:
    """Combine the log-odds that claims are unsupported to those of their answer: the sum of the odds of the worst.

    >>> round(combine_claims(np.array([1.0])), 2), round(combine_claims(np.array([1.0, 1.0, -5.0])), 2)
    (1.0, 1.69)
    """
    return float(np.logaddexp.reduce(np.sort(odds)[-WORST_COUNT:]))


class ClaimFeatures(NamedTuple):
    """Claims as numbers, group by group."""

    features: Array
    """One row for each claim."""
    word_states: WordStates
    """The words of all claims in order."""
    stem_matches: tuple[Array, Array, Array]
    """Each content word: claim, row, and match (0 in the best sentence, 1 elsewhere, 2 in another form, 3 nowhere)."""
    checks: tuple[ClaimCheck | None, ...]
    """The exact checks of each claim."""
    group_numbers: Array
    """The group that each claim is compared with."""
    lexical_odds: Array
    """The log-odds of the lexical judge that each claim is unsupported."""


def extract_features(groups: Sequence[tuple[Sequence[str], PassageArrays]], query: str) -> ClaimFeatures:
    """Compare claims without marks with the passages of their groups, all at once; no group is empty."""
    batch = PassageBatch([passages for _, passages in groups])
    query_words = frozenset(split_words(query))
    checks = [
        [check_claim(claim, passages.index, passages.rarity, query_words) for claim in claims]
        for claims, passages in groups
    ]
    claim_words = encode_claims([claims for claims, _ in groups], batch, checks)
    matches = match_claims(claim_words, batch)
    ngrams = NgramMatches(claim_words, batch)
    claim, stem = claim_words.has_stem.nonzero()
    best = matches.in_best[0, claim, stem]
    match_states = 3 - matches.is_near[stem].astype(int) - matches.is_present[stem] - best
    all_checks = tuple(chain.from_iterable(checks))
    features = compute_features(claim_words, matches, batch, ngrams, query_words, all_checks)
    opinions = features[:, FEATURE_COLUMNS["opinion"]].tolist()
    counts = [
        ClaimCounts(1 - pairs if pairs >= 0 else None, 1 - triples if triples >= 0 else None, int(opinion))
        for pairs, triples, opinion in zip(*ngrams.shares[:2].tolist(), opinions, strict=True)
    ]
    indexes = [passages.index for claims, passages in groups for _ in claims]
    lexical_odds = [
        MISSING_ODDS if check is None else compute_odds(check, index, claim_counts)
        for check, index, claim_counts in zip(all_checks, indexes, counts, strict=True)
    ]
    return ClaimFeatures(
        features,
        encode_words(claim_words, matches, batch, ngrams, query_words),
        (claim, claim_words.stem_rows[stem], match_states),
        all_checks,
        claim_words.group_numbers,
        np.array(lexical_odds).round(4),
    )


class SupportModel(NamedTuple):
    """All trained parameters of support."""

    network: SupportNetwork
    claim_trees: TreeEnsemble
    monotone_trees: TreeEnsemble
    """Trees over what varies little between kinds of text; more of a feature never speaks once for and once against."""
    word_codes: Array
    """Each word in each match state with a weight: four times its row, plus the state."""
    word_weights: Array
    bias: float
    claim_calibration: Array
    """Slope and intercept of the calibration of each type of text."""
    claim_thresholds: Array
    """For each type of text the probability from which a claim counts as supported."""
    answer_calibration: Array

    def predict_odds(self, claim_features: ClaimFeatures) -> tuple[Array, Array]:
        """Return the log-odds that each claim is unsupported, by all parts, and those of each word by the network."""
        claim, rows, state = claim_features.stem_matches
        codes = rows * 4 + state
        positions = np.minimum(np.searchsorted(self.word_codes, codes), len(self.word_codes) - 1)
        bag_odds = np.where(self.word_codes[positions] == codes, self.word_weights[positions], 0.0)
        bag = np.bincount(claim, bag_odds, len(claim_features.features)) + self.bias
        lexical_odds = claim_features.lexical_odds
        inputs = np.concatenate([claim_features.features, bag[:, None], lexical_odds[:, None]], axis=1)
        network_odds, word_odds = self.network(claim_features.word_states, claim_features.features)
        parts = np.array([self.claim_trees(inputs), self.monotone_trees(inputs), network_odds, lexical_odds]).T
        return combine_parts(parts, claim_features.features[:, FEATURE_COLUMNS["keyed"]]).round(4), word_odds

    def predict_support(self, odds: Array, text_type: TextType) -> Array:
        """Return the calibrated probability that each claim is supported."""
        slope, intercept = self.claim_calibration[TEXT_TYPES.index(text_type)]
        return logistic(-(slope * odds + intercept)).round(4)

    def predict_groundedness(self, answer_odds: float, text_type: TextType) -> float:
        """Return the calibrated probability that all claims of an answer are supported."""
        slope, intercept = self.answer_calibration[TEXT_TYPES.index(text_type)]
        return round(float(logistic(-(slope * np.array(answer_odds) + intercept))), 4)


@cache
def load_support_model() -> SupportModel:
    """Load the packaged weights, once."""
    arrays = load_arrays("support.npz")
    network = {key: array for key, array in arrays.items() if key.startswith("network.")}
    return SupportModel(
        SupportNetwork.unpack(network, load_vectors()),
        TreeEnsemble.unpack(arrays, "claims"),
        TreeEnsemble.unpack(arrays, "monotone"),
        arrays["bag.codes"].astype(np.int64),
        arrays["bag.weights"].astype(float) * float(arrays["bag.scale"]),
        float(arrays["bag.bias"]),
        arrays["claim_line"],
        arrays["claim_threshold"],
        arrays["answer_line"],
    )


class WeighedClaims(NamedTuple):
    """Claims, and their odds of support by some passages."""

    texts: Sequence[str]
    passages: PassageArrays
    features: Array
    checks: Sequence[ClaimCheck | None]
    odds: Array
    """The log-odds that each claim is unsupported, uncalibrated."""
    answer_odds: float
    """The log-odds that some claim is unsupported, uncalibrated."""
    word_odds: list[Array]
    """For each claim the log-odds that each of its words is unsupported, as the network was taught by marked words."""
    text_type: TextType
    is_foreign: list[bool]
    """For each claim, True if its language differs from that of the passages."""


def weigh_claims(groups: Sequence[tuple[Sequence[str], PassageArrays]], query: str) -> list[WeighedClaims]:
    """Weigh claims without marks against the passages of their groups, all at once; no group is empty."""
    features = extract_features(groups, query)
    odds, word_odds = load_support_model().predict_odds(features)
    claim_starts = features.word_states.claim_numbers.searchsorted(np.arange(1, len(odds)))
    words_by_claim = np.split(word_odds, claim_starts)
    foreign = _detect_foreign_claims(features, [passages for _, passages in groups])
    ends = np.cumsum([len(claims) for claims, _ in groups]).tolist()
    parts = [slice(end - len(claims), end) for end, (claims, _) in zip(ends, groups, strict=True)]
    return [
        WeighedClaims(
            claims,
            passages,
            features.features[part],
            features.checks[part],
            odds[part],
            combine_claims(odds[part]),
            words_by_claim[part],
            classify_text(query, claims, passages.record_share),
            foreign[part],
        )
        for (claims, passages), part in zip(groups, parts, strict=True)
    ]


def _detect_foreign_claims(claim_features: ClaimFeatures, groups: Sequence[PassageArrays]) -> list[bool]:
    rows, _, values, claim_numbers = claim_features.word_states
    table = groups[0].table
    word_rows = np.concatenate([group.rows[group.tokens] for group in groups])
    group_numbers = np.arange(len(groups)).repeat([len(group.tokens) for group in groups])
    is_foreign = detect_foreign(word_rows, table, group_numbers)[claim_features.group_numbers]
    shared = (values[:, 1] > 0) & ~is_foreign[claim_numbers]
    differs: list[bool] = (detect_foreign(rows, table, claim_numbers, shared) != is_foreign).tolist()
    return differs
