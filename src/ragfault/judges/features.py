"""Features: what the words of a claim say about its support, one number for each thing."""

from __future__ import annotations

import re
from collections.abc import Container
from itertools import pairwise
from typing import NamedTuple

from ragfault.judges.aliases import LINKS
from ragfault.judges.exact import scope
from ragfault.judges.index import Index
from ragfault.judges.passages import even
from ragfault.judges.rarity import Rarity
from ragfault.text import NEGATIONS, STOP, figures, stem, words

__all__ = ["NAMES", "Alignment", "Statement", "align", "features", "field", "names", "state"]

NAMES = (
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

CAPITAL = re.compile(r"[ /(-](?<![.!?:\"'•*\n].)(?:(?<! )|(?<=[\w,;)] ))([A-Z][\w'’]*)")
OPENING = re.compile(r"([A-Z][\w'’]+)(?=(?: (is|was|has|had)\b| ([A-Z]))?)")
TELLING = 6.5
PROPER = 4.5
"""A capital that opens a sentence makes a name of a word so rare, or nearly so where "is" or "was" follows."""
OPINION = re.compile(
    r"\b(likely|probably|perhaps|may|might|seem\w*|popular|great|perfect|ideal|cozy|welcoming|vibrant|excellent"
    r"|delicious|variety|various|several|known for|well[- ]known|renowned|favorite|highly|overall|suggest\w*"
    r"|indicat\w*|impl(?:y|ies|ied)|concern\w*|despite|due to|because|important|significant\w*|potential\w*"
    r"|additionally|furthermore|ensur\w*|unique|must|should|always|never|all|every|only|best|most)\b"
)
"""Words, in lower case, of whoever judges or guesses."""


class Statement(NamedTuple):
    """A claim as words."""

    text: str
    tokens: tuple[str, ...]
    weights: dict[str, float]
    """The stems of its content, with what each tells."""
    names: frozenset[str]
    """The stems that are names."""


class Alignment(NamedTuple):
    """Where a claim stands in the passages."""

    total: float
    missing: frozenset[str]
    """What no passage holds."""
    order: tuple[int, ...]
    """The sentences that share most with it, the best first, at most three."""
    covered: float
    """The share of its weight that the best sentence covers."""
    votes: dict[int, float]


def state(text: str, rarity: Rarity) -> Statement:
    """A claim as words and weights."""
    tokens = words(even(text))
    get, unseen = rarity.levels.get, rarity.unseen
    weights = {word: get(word, unseen) for word in tokens if word not in STOP and word not in LINKS}
    return Statement(text, tokens, weights, names(text, rarity) & weights.keys())


def names(text: str, rarity: Rarity) -> frozenset[str]:
    """The stems of a sentence that are names: capitals within, and at its opening what looks like one."""
    found = {stem(name.lower()) for name in CAPITAL.findall(text)}
    opening = OPENING.match(text.lstrip("*\"'( "))
    if opening:
        first = stem(opening[1].lower())
        bar = PROPER if opening[2] or opening[3] else TELLING
        if first not in STOP and first not in LINKS and rarity(first) > bar:
            found.add(first)
    return frozenset(found)


def align(statement: Statement, index: Index) -> Alignment:
    """Find the sentences of the passages that share most with a claim."""
    weights = statement.weights
    votes = index.votes(weights)
    ranked = sorted([(-vote, len(index.sentences[place].content), place) for place, vote in votes.items()])
    order = [place for _, _, place in ranked[:3]]
    total = sum(weights.values())
    lost = {
        word
        for word in weights
        if word not in index.postings and not index.near(word, name=word in statement.names)
    }
    if any(word[0].isdigit() for word in lost) and _spelled(statement.text, order, index):
        lost = {word for word in lost if not word[0].isdigit()}
    missing = frozenset(lost)
    return Alignment(total, missing, tuple(order), votes[order[0]] / total if order else 0.0, votes)


def _spelled(text: str, order: list[int], index: Index) -> bool:
    """Whether all quantities of a claim stand in the best sentences, spelled in another way."""
    exact = figures(text)
    stock = {form for place in order for forms in figures(index.source(place)).values() for form in forms}
    return bool(exact) and exact.keys() <= stock


def features(statement: Statement, found: Alignment, index: Index) -> list[float]:
    """The numbers that the probability of support is made from."""
    weights, tokens, missing = statement.weights, statement.tokens, found.missing
    total = found.total or 1.0
    lost = [weights[word] for word in missing]
    absent = sum(lost) / total
    held = [index.sentences[place].content for place in found.order]
    both = held[0] | held[1] if len(held) > 1 else held[0] if held else frozenset()
    pairs = list(pairwise(word for word in tokens if word not in STOP))
    strange = sum(not any(a in one and b in one for one in held) for a, b in pairs)
    digits = [word for word in weights if word[0].isdigit()]
    return [
        absent,
        max(lost, default=0.0) / 10,
        1.0 - found.covered,
        1.0 - sum(weights[word] for word in weights.keys() & both) / total,
        _strange(list(pairwise(tokens)), index.bigrams, absent),
        _strange(list(zip(tokens, tokens[1:], tokens[2:], strict=False)), index.trigrams, absent),
        min(sum(word in missing for word in digits), 3) / 3,
        min(len(missing & statement.names), 3) / 3,
        float(_denied(tokens) != bool(found.order and index.sentences[found.order[0]].negated)),
        min(len(OPINION.findall(statement.text.lower())), 4) / 4,
        strange / max(1, len(pairs)),
        min(len(weights), 30) / 30,
    ]


def _strange(grams: list[tuple[str, ...]], known: Container[tuple[str, ...]], default: float) -> float:
    """The share of n-grams that no passage holds; of a claim too short for any, the share of its words."""
    return sum(gram not in known for gram in grams) / len(grams) if grams else default


def _denied(tokens: tuple[str, ...]) -> bool:
    return not NEGATIONS.isdisjoint(tokens)


def field(statement: Statement, index: Index) -> tuple[str, str] | None:
    """The field of a record that a claim goes against: its key, and what the record says of it."""
    if not index.fields:
        return None
    held = statement.weights.keys()
    denied = scope(statement.tokens, reach=2)
    denies = not NEGATIONS.isdisjoint(statement.tokens)
    for key, polarity in index.fields:
        if key <= held and (
            (polarity == "absent" and not any(word in index.postings for word in key))
            or (polarity == "no" and not denies)
            or (polarity == "yes" and key & denied)
        ):
            return " ".join(sorted(key)), polarity
    return None
