"""Lexical features of a claim: its alignment with the sentences of the passages."""

from __future__ import annotations

import re
from collections.abc import Container
from itertools import pairwise
from typing import NamedTuple

from ragfault.judges.checks.contradictions import collect_negated_words
from ragfault.judges.checks.lexicon import LINKING_STEMS, RarityTable
from ragfault.judges.checks.passages import SentenceIndex, normalize_spelling
from ragfault.text import NEGATIONS, STOP_WORDS, extract_literals, split_words, stem_word

FEATURE_NAMES = (
    "absent",
    "rarest",
    "apart",
    "apart2",
    "bigrams",
    "trigrams",
    "numbers",
    "names",
    "denied",
    "opinion",
    "pairs",
    "size",
    "clash",
    "field",
    "nowhere",
)
"""The features in order; but for `opinion` and `size` each is 0 for a claim that is copied from one sentence.
The last three are found by exact checks: a clash with a sentence, with a field of a record, and a name or
number that stands nowhere."""

CAPITALIZED_WORD = re.compile(r"[ /(-](?<![.!?:\"'•*\n].)(?:(?<! )|(?<=[\w,;)] ))([A-Z][\w'’]*)")
OPENING_WORD = re.compile(r"([A-Z][\w'’]+)(?=(?: (is|was|has|had)\b| ([A-Z]))?)")
MIN_NAME_RARITY = 6.5
MIN_LIKELY_NAME_RARITY = 4.5
"""A capital that opens a sentence makes a name of a word so rare, or nearly so where "is" or "was" follows."""
OPINION_WORDS = re.compile(
    r"\b(likely|probably|perhaps|may|might|seem\w*|popular|great|perfect|ideal|cozy|welcoming|vibrant|excellent"
    r"|delicious|variety|various|several|known for|well[- ]known|renowned|favorite|highly|overall|suggest\w*"
    r"|indicat\w*|impl(?:y|ies|ied)|concern\w*|despite|due to|because|important|significant\w*|potential\w*"
    r"|additionally|furthermore|ensur\w*|unique|must|should|always|never|all|every|only|best|most)\b"
)
"""Words, in lower case, of whoever judges or guesses."""


class ClaimStatement(NamedTuple):
    """A claim as words."""

    text: str
    tokens: tuple[str, ...]
    weights: dict[str, float]
    """The stems of its content, with what each tells."""
    names: frozenset[str]
    """The stems that are names."""


class ClaimAlignment(NamedTuple):
    """Where a claim stands in the passages."""

    total_weight: float
    missing: frozenset[str]
    """What no passage holds."""
    best_sentences: tuple[int, ...]
    """The sentences that share most with it, the best first, at most three."""
    coverage: float
    """The share of its weight that the best sentence covers."""
    shared_weights: dict[int, float]


def parse_statement(text: str, rarity: RarityTable) -> ClaimStatement:
    """A claim as words and weights."""
    tokens = split_words(normalize_spelling(text))
    get, unseen = rarity.rarities.get, rarity.default
    weights = {
        word: get(word, unseen) for word in tokens if word not in STOP_WORDS and word not in LINKING_STEMS
    }
    return ClaimStatement(text, tokens, weights, extract_names(text, rarity) & weights.keys())


def extract_names(text: str, rarity: RarityTable) -> frozenset[str]:
    """The stems of a sentence that are names: capitals within, and at its opening what looks like one."""
    found = {stem_word(name.lower()) for name in CAPITALIZED_WORD.findall(text)}
    opening = OPENING_WORD.match(text.lstrip("*\"'( "))
    if opening:
        first = stem_word(opening[1].lower())
        bar = MIN_LIKELY_NAME_RARITY if opening[2] or opening[3] else MIN_NAME_RARITY
        if first not in STOP_WORDS and first not in LINKING_STEMS and rarity(first) > bar:
            found.add(first)
    return frozenset(found)


def align_statement(statement: ClaimStatement, index: SentenceIndex) -> ClaimAlignment:
    """Find the sentences of the passages that share most with a claim."""
    weights = statement.weights
    votes = index.sum_shared_weights(weights)
    ranked = sorted([(-vote, len(index.sentences[place].content), place) for place, vote in votes.items()])
    order = [place for _, _, place in ranked[:3]]
    total = sum(weights.values())
    lost = {
        word
        for word in weights
        if word not in index.postings and not index.has_variant(word, is_name=word in statement.names)
    }
    if any(word[0].isdigit() for word in lost) and _has_equal_quantities(statement.text, order, index):
        lost = {word for word in lost if not word[0].isdigit()}
    missing = frozenset(lost)
    return ClaimAlignment(total, missing, tuple(order), votes[order[0]] / total if order else 0.0, votes)


def _has_equal_quantities(text: str, order: list[int], index: SentenceIndex) -> bool:
    """Whether all quantities of a claim stand in the best sentences, spelled in another way."""
    exact = extract_literals(text)
    stock = {
        form
        for place in order
        for forms in extract_literals(index.get_source(place)).values()
        for form in forms
    }
    return bool(exact) and exact.keys() <= stock


def measure_features(
    statement: ClaimStatement, alignment: ClaimAlignment, index: SentenceIndex
) -> list[float]:
    """The numbers that the probability of support is made from."""
    weights, tokens, missing = statement.weights, statement.tokens, alignment.missing
    total = alignment.total_weight or 1.0
    lost = [weights[word] for word in missing]
    absent = sum(lost) / total
    held = [index.sentences[place].content for place in alignment.best_sentences]
    both = held[0] | held[1] if len(held) > 1 else held[0] if held else frozenset()
    pairs = list(pairwise(word for word in tokens if word not in STOP_WORDS))
    strange = sum(not any(a in one and b in one for one in held) for a, b in pairs)
    digits = [word for word in weights if word[0].isdigit()]
    return [
        absent,
        max(lost, default=0.0) / 10,
        1.0 - alignment.coverage,
        1.0 - sum(weights[word] for word in weights.keys() & both) / total,
        _measure_unseen(list(pairwise(tokens)), index.bigrams, absent),
        _measure_unseen(list(zip(tokens, tokens[1:], tokens[2:], strict=False)), index.trigrams, absent),
        min(sum(word in missing for word in digits), 3) / 3,
        min(len(missing & statement.names), 3) / 3,
        float(
            _is_negated(tokens)
            != bool(alignment.best_sentences and index.sentences[alignment.best_sentences[0]].negated)
        ),
        min(len(OPINION_WORDS.findall(statement.text.lower())), 4) / 4,
        strange / max(1, len(pairs)),
        min(len(weights), 30) / 30,
    ]


def _measure_unseen(grams: list[tuple[str, ...]], known: Container[tuple[str, ...]], default: float) -> float:
    """The share of n-grams that no passage holds; of a claim too short for any, the share of its words."""
    return sum(gram not in known for gram in grams) / len(grams) if grams else default


def _is_negated(tokens: tuple[str, ...]) -> bool:
    return not NEGATIONS.isdisjoint(tokens)


def detect_field_conflict(statement: ClaimStatement, index: SentenceIndex) -> tuple[str, str] | None:
    """The field of a record that a claim goes against: its key, and what the record says of it."""
    if not index.record_fields:
        return None
    held = statement.weights.keys()
    denied = collect_negated_words(statement.tokens, reach=2)
    denies = not NEGATIONS.isdisjoint(statement.tokens)
    for key, polarity in index.record_fields:
        if key <= held and (
            (polarity == "absent" and not any(word in index.postings for word in key))
            or (polarity == "no" and not denies)
            or (polarity == "yes" and key & denied)
        ):
            return " ".join(sorted(key)), polarity
    return None
