"""Lexical features of a claim: its alignment with the sentences of the passages."""

from __future__ import annotations

import re
from collections.abc import Container
from itertools import pairwise
from typing import NamedTuple

from ragfault.judges.checks.contradictions import collect_negated_words
from ragfault.judges.checks.lexicon import LINKING_STEMS, IdfTable
from ragfault.judges.checks.passages import SentenceIndex, normalize_spelling
from ragfault.text.entities import extract_literals
from ragfault.text.normalization import NEGATIONS, STOP_WORDS, split_words, stem_word

FEATURE_LIST = "absent rarest apart apart2 bigrams trigrams numbers names denied opinion pairs size clash field nowhere"
FEATURE_NAMES = tuple(FEATURE_LIST.split())
"""In order; all except `opinion` and `size` are 0 for a copied claim. The last three come from exact checks."""

CAPITALIZED_WORD = re.compile(r"[ /(-](?<![.!?:\"'•*\n].)(?:(?<! )|(?<=[\w,;)] ))([A-Z][\w'’]*)")
OPENING_WORD = re.compile(r"([A-Z][\w'’]+)(?=(?: (is|was|has|had)\b| ([A-Z]))?)")
MIN_NAME_RARITY = 6.5
MIN_LIKELY_NAME_RARITY = 4.5
"""A capitalized opening word of this rarity is a name; this one applies before "is" or "was"."""
OPINION_WORDS = re.compile(
    r"\b(likely|probably|perhaps|may|might|seem\w*|popular|great|perfect|ideal|cozy|welcoming|vibrant|excellent"
    r"|delicious|variety|various|several|known for|well[- ]known|renowned|favorite|highly|overall|suggest\w*"
    r"|indicat\w*|impl(?:y|ies|ied)|concern\w*|despite|due to|because|important|significant\w*|potential\w*"
    r"|additionally|furthermore|ensur\w*|unique|must|should|always|never|all|every|only|best|most)\b"
)
"""Words, in lower case, of opinion and conjecture."""


class ClaimStatement(NamedTuple):
    """A claim as words."""

    text: str
    tokens: tuple[str, ...]
    weights: dict[str, float]
    """The stems of its content words, with their rarity."""
    names: frozenset[str]
    """Stems of names."""


class ClaimAlignment(NamedTuple):
    """The alignment of a claim with the passages."""

    total_weight: float
    missing: frozenset[str]
    """Stems that no passage has."""
    best_sentences: tuple[int, ...]
    """The sentences that share most with it, the best first, at most three."""
    coverage: float
    """The share of its weight that the best sentence covers."""
    shared_weights: dict[int, float]


def parse_statement(text: str, rarity: IdfTable) -> ClaimStatement:
    """Parse a claim into words and weights."""
    tokens = split_words(normalize_spelling(text))
    get, unseen = rarity.rarities.get, rarity.default
    weights = {word: get(word, unseen) for word in tokens if word not in STOP_WORDS and word not in LINKING_STEMS}
    return ClaimStatement(text, tokens, weights, extract_names(text, rarity) & weights.keys())


def extract_names(text: str, rarity: IdfTable) -> frozenset[str]:
    """Return the stems of a sentence that are names: capitalized words, at its opening only rare ones."""
    names = {stem_word(name.lower()) for name in CAPITALIZED_WORD.findall(text)}
    opening = OPENING_WORD.match(text.lstrip("*\"'( "))
    if opening:
        first_stem = stem_word(opening[1].lower())
        threshold = MIN_LIKELY_NAME_RARITY if opening[2] or opening[3] else MIN_NAME_RARITY
        if first_stem not in STOP_WORDS and first_stem not in LINKING_STEMS and rarity(first_stem) > threshold:
            names.add(first_stem)
    return frozenset(names)


def align_statement(statement: ClaimStatement, index: SentenceIndex) -> ClaimAlignment:
    """Find the sentences of the passages that share most with a claim."""
    weights = statement.weights
    shared_weights = index.sum_shared_weights(weights)
    ranked = sorted(
        [(-weight, len(index.sentences[position].content), position) for position, weight in shared_weights.items()]
    )
    best_sentences = [position for _, _, position in ranked[:3]]
    total = sum(weights.values())
    missing = {
        word
        for word in weights
        if word not in index.postings and not index.has_variant(word, is_name=word in statement.names)
    }
    if any(word[0].isdigit() for word in missing) and _has_equal_quantities(statement.text, best_sentences, index):
        missing = {word for word in missing if not word[0].isdigit()}
    return ClaimAlignment(
        total,
        frozenset(missing),
        tuple(best_sentences),
        shared_weights[best_sentences[0]] / total if best_sentences else 0.0,
        shared_weights,
    )


def _has_equal_quantities(text: str, order: list[int], index: SentenceIndex) -> bool:
    """Return whether the best sentences have all quantities of a claim, in another spelling."""
    literals = extract_literals(text)
    source_forms = {
        form for position in order for forms in extract_literals(index.get_source(position)).values() for form in forms
    }
    return bool(literals) and literals.keys() <= source_forms


class ClaimCounts(NamedTuple):
    """The numbers of a claim that another judge may know already."""

    unseen_bigrams: float | None
    """The share of its pairs of neighbours that no passage has; None if it has none."""
    unseen_trigrams: float | None
    opinions: int
    """The number of its words of opinion."""


def count_claim(statement: ClaimStatement, index: SentenceIndex) -> ClaimCounts:
    """Count the unseen n-grams and the words of opinion of a claim."""
    tokens = statement.tokens
    return ClaimCounts(
        _measure_unseen(list(pairwise(tokens)), index.bigrams),
        _measure_unseen(list(zip(tokens, tokens[1:], tokens[2:], strict=False)), index.trigrams),
        len(OPINION_WORDS.findall(statement.text.lower())),
    )


def measure_features(
    statement: ClaimStatement, alignment: ClaimAlignment, index: SentenceIndex, counts: ClaimCounts
) -> list[float]:
    """Return the features of a claim that come from words."""
    weights, tokens, missing = statement.weights, statement.tokens, alignment.missing
    total = alignment.total_weight or 1.0
    missing_weights = [weights[word] for word in missing]
    absent = sum(missing_weights) / total
    best_contents = [index.sentences[position].content for position in alignment.best_sentences]
    best_words = (
        best_contents[0] | best_contents[1]
        if len(best_contents) > 1
        else best_contents[0]
        if best_contents
        else frozenset()
    )
    pairs = list(pairwise([word for word in tokens if word not in STOP_WORDS]))
    new_pairs = 0
    for first, second in pairs:
        for words in best_contents:
            if first in words and second in words:
                break
        else:
            new_pairs += 1
    digits = [word for word in weights if word[0].isdigit()]
    return [
        absent,
        max(missing_weights, default=0.0) / 10,
        1.0 - alignment.coverage,
        1.0 - sum(weights[word] for word in weights.keys() & best_words) / total,
        absent if counts.unseen_bigrams is None else counts.unseen_bigrams,
        absent if counts.unseen_trigrams is None else counts.unseen_trigrams,
        min(sum(word in missing for word in digits), 3) / 3,
        min(len(missing & statement.names), 3) / 3,
        float(
            _is_negated(tokens)
            != bool(alignment.best_sentences and index.sentences[alignment.best_sentences[0]].negated)
        ),
        min(counts.opinions, 4) / 4,
        new_pairs / max(1, len(pairs)),
        min(len(weights), 30) / 30,
    ]


def _measure_unseen(grams: list[tuple[str, ...]], seen: Container[tuple[str, ...]]) -> float | None:
    """Return the share of n-grams that no passage has; None if there are none."""
    return (len(grams) - sum(map(seen.__contains__, grams))) / len(grams) if grams else None


def _is_negated(tokens: tuple[str, ...]) -> bool:
    return not NEGATIONS.isdisjoint(tokens)


def detect_field_conflict(statement: ClaimStatement, index: SentenceIndex) -> tuple[str, str] | None:
    """Return the key of a record's field that contradicts a claim, with its polarity; None if none does."""
    if not index.record_fields:
        return None
    claim_words = statement.weights.keys()
    negated = collect_negated_words(statement.tokens, reach=2)
    is_negated = _is_negated(statement.tokens)
    for key, polarity in index.record_fields:
        if key <= claim_words and (
            (polarity == "absent" and not any(word in index.postings for word in key))
            or (polarity == "no" and not is_negated)
            or (polarity == "yes" and key & negated)
        ):
            return " ".join(sorted(key)), polarity
    return None
