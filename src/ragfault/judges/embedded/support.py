"""The support model: calibrated probabilities that passages support claims and whole answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Literal, NamedTuple, get_args

import numpy as np

from ragfault.judges.checks.queries import TASK_QUERY
from ragfault.judges.embedded.claim_arrays import encode_claims, match_claims
from ragfault.judges.embedded.features import FEATURE_COLUMNS, STYLE_FEATURES, NgramMatches, compute_features
from ragfault.judges.embedded.network import SupportNetwork, WordStates, encode_words
from ragfault.judges.embedded.passage_arrays import PassageArrays, PassageBatch, detect_foreign
from ragfault.judges.embedded.trees import TreeEnsemble
from ragfault.judges.embedded.vectors import Array, load_arrays, load_vectors
from ragfault.judges.lexical.entailment import ClaimCheck, check_claim
from ragfault.text import split_words

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
    """The shape of what is judged: by its query, its claims, and the share of the passages that are records.

    A summary is asked for; a reply in a dialogue answers no question, and one of the two sides says "I" or "you";
    a claim stands alone; structured data are records; all else is an answer.

    >>> classify_text("Summarize the report.", ["It rained.", "It snowed."], 0.0)
    'summary'
    >>> classify_text("i love skiing, my whole family goes", ["It was invented in Norway."], 0.0)
    'dialogue'
    """
    if record_share > 0.25:
        return "record"
    if TASK_QUERY.match(query):
        return "summary"
    asked = query.rstrip().endswith("?") or QUESTION_OPENING.match(query) is not None
    if (
        query
        and not asked
        and len(claims) < 4
        and (SPOKEN_WORDS.search(query) or any(map(SPOKEN_WORDS.search, claims)))
    ):
        return "dialogue"
    return "claim" if len(claims) == 1 else "answer"


CONTENT_COLUMNS = np.array([at for name, at in FEATURE_COLUMNS.items() if name not in STYLE_FEATURES])
ALL_COLUMNS = np.arange(len(FEATURE_COLUMNS))


def logistic(odds: Array) -> Array:
    """The probability of log-odds.

    >>> logistic(np.array([0.0])).tolist()
    [0.5]
    """
    p: Array = 1 / (1 + np.exp(-np.minimum(np.maximum(odds, -30), 30)))
    return p


def summarize_answer(odds: Array, features: Array, *, style: bool = False) -> Array:
    """One row for an answer: its worst claims, their mean, and the range of the features of all.

    Without `style` nothing tells how long the answer is or in what manner it is written.
    """
    p = logistic(odds).round(5)
    worst = np.zeros(3)
    ranked = np.sort(p)[::-1][:3]
    worst[: len(ranked)] = ranked
    count = len(p)
    told = [*worst, np.add.reduce(p) / count, np.count_nonzero(p > 0.15) / count]
    if style:
        told += [p.sum(), 1 - np.prod(1 - np.minimum(p, 0.999)), (p > 0.3).sum(), len(p)]
    held = features[:, ALL_COLUMNS if style else CONTENT_COLUMNS]
    whole = np.maximum.reduce(held), np.add.reduce(held) / count, np.minimum.reduce(held)
    return np.concatenate([told, *whole])


class ClaimFeatures(NamedTuple):
    """Claims as numbers, those of the first ground first."""

    features: Array
    """One row for each claim."""
    word_states: WordStates
    """The words of all claims in a row."""
    stem_matches: tuple[Array, Array, Array]
    """Each word of content of each claim once: the claim, the row of the word, and where it was found: 0 in the
    best sentence, 1 elsewhere, 2 in another form, 3 nowhere."""
    checks: tuple[ClaimCheck | None, ...]
    """What the exact checks say."""
    group_numbers: Array
    """The number of the ground that each claim is held against."""


def extract_features(groups: Sequence[tuple[Sequence[str], PassageArrays]], query: str) -> ClaimFeatures:
    """Hold bare claims against their grounds, all at once.

    What is said of a claim depends on the claims of its own ground alone; each has claims, and each ground words.
    """
    joint = PassageBatch([ground for _, ground in groups])
    checks = [
        [check_claim(claim, ground.index, ground.rarity) for claim in claims] for claims, ground in groups
    ]
    known = frozenset(split_words(query))
    said = encode_claims([claims for claims, _ in groups], joint, checks)
    held = match_claims(said, joint)
    shared = NgramMatches(said, joint)
    owner, kind = said.has_stem.nonzero()
    best = held.in_best[0, owner, kind]
    where = 3 - held.is_near[kind].astype(int) - held.is_present[kind] - best
    seen = tuple(chain.from_iterable(checks))
    return ClaimFeatures(
        compute_features(said, held, joint, shared, known, seen),
        encode_words(said, held, joint, shared, known),
        (owner, said.stem_rows[kind], where),
        seen,
        said.group_numbers,
    )


class SupportModel(NamedTuple):
    """All that was learned of support."""

    network: SupportNetwork
    claim_trees: TreeEnsemble
    answer_trees: TreeEnsemble
    word_codes: Array
    """Each word in each state of which something was learned: four times its row, plus the state."""
    word_weights: Array
    bias: float
    claim_calibration: Array
    """For each shape slope and intercept of its calibration."""
    answer_calibration: Array

    def predict_odds(self, claim_features: ClaimFeatures) -> Array:
        """The log-odds that each claim is bad, before calibration: the mean of trees and network."""
        owner, rows, state = claim_features.stem_matches
        code = rows * 4 + state
        at = np.minimum(np.searchsorted(self.word_codes, code), len(self.word_codes) - 1)
        told = np.where(self.word_codes[at] == code, self.word_weights[at], 0.0)
        bag = np.bincount(owner, told, len(claim_features.features)) + self.bias
        trees = self.claim_trees(np.concatenate([claim_features.features, bag[:, None]], axis=1))
        odds: Array = ((trees + self.network(claim_features.word_states, claim_features.features)) / 2).round(
            4
        )
        return odds

    def predict_support(self, odds: Array, text_type: TextType) -> Array:
        """The calibrated probability that each claim is supported."""
        slope, intercept = self.claim_calibration[TEXT_TYPES.index(text_type)]
        return logistic(-(slope * odds + intercept)).round(4)

    def predict_answer_odds(self, answers: Sequence[tuple[Array, Array]]) -> list[float]:
        """For each answer, by the odds and features of its claims, the log-odds that some claim is bad."""
        whole: list[float] = self.answer_trees(
            np.array([summarize_answer(*answer) for answer in answers])
        ).tolist()
        return whole

    def predict_groundedness(self, answer_odds: float, text_type: TextType) -> float:
        """The calibrated probability that all claims of an answer are supported."""
        slope, intercept = self.answer_calibration[TEXT_TYPES.index(text_type)]
        return round(float(logistic(-(slope * np.array(answer_odds) + intercept))), 4)


@cache
def load_support_model() -> SupportModel:
    """The weights that the package carries, read once."""
    packed = load_arrays("support.npz")
    return SupportModel(
        SupportNetwork.unpack(
            {key: part for key, part in packed.items() if key.startswith("network.")}, load_vectors()
        ),
        TreeEnsemble.unpack(packed, "claims"),
        TreeEnsemble.unpack(packed, "answers"),
        packed["bag.codes"].astype(np.int64),
        packed["bag.weights"].astype(float) * float(packed["bag.scale"]),
        float(packed["bag.bias"]),
        packed["claim_line"],
        packed["answer_line"],
    )


class WeighedClaims(NamedTuple):
    """Claims, and what some passages say for and against them."""

    texts: Sequence[str]
    passages: PassageArrays
    features: Array
    checks: Sequence[ClaimCheck | None]
    odds: Array
    """The log-odds that each is bad, before calibration."""
    answer_odds: float
    """The log-odds that some of them is bad, before calibration."""
    text_type: TextType
    is_foreign: list[bool]
    """Whether each is in another language than the passages."""


def weigh_claims(groups: Sequence[tuple[Sequence[str], PassageArrays]], query: str) -> list[WeighedClaims]:
    """Weigh bare claims against their grounds, all at once; each has claims, and each ground words."""
    seen = extract_features(groups, query)
    odds, strange = (
        load_support_model().predict_odds(seen),
        _detect_foreign_claims(seen, [ground for _, ground in groups]),
    )
    ends = np.cumsum([len(claims) for claims, _ in groups]).tolist()
    parts = [slice(end - len(claims), end) for end, (claims, _) in zip(ends, groups, strict=True)]
    wholes = load_support_model().predict_answer_odds([(odds[part], seen.features[part]) for part in parts])
    return [
        WeighedClaims(
            claims,
            ground,
            seen.features[part],
            seen.checks[part],
            odds[part],
            whole,
            classify_text(query, claims, ground.record_share),
            strange[part],
        )
        for (claims, ground), part, whole in zip(groups, parts, wholes, strict=True)
    ]


def _detect_foreign_claims(claim_features: ClaimFeatures, groups: Sequence[PassageArrays]) -> list[bool]:
    """Whether each claim is in another language than its ground."""
    rows, _, values, owner = claim_features.word_states
    table = groups[0].table
    told = np.concatenate([ground.rows[ground.tokens] for ground in groups])
    speaker = np.arange(len(groups)).repeat([len(ground.tokens) for ground in groups])
    other = detect_foreign(told, table, speaker)[claim_features.group_numbers]
    shared = (values[:, 1] > 0) & ~other[owner]
    found: list[bool] = (detect_foreign(rows, table, owner, shared) != other).tolist()
    return found
