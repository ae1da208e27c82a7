"""Entailment by words: the probability of support, and the word for it."""

from __future__ import annotations

import math
from typing import NamedTuple

from ragfault.judges.exact import clash, contested, follows
from ragfault.judges.features import Alignment, Statement, align, features, field, names, state
from ragfault.judges.index import Index
from ragfault.judges.rarity import Rarity
from ragfault.judges.scorer import Entailment
from ragfault.judges.weights import BIAS, WEIGHTS
from ragfault.records import Evidence, Support

__all__ = ["Bars", "entail"]

NEAR = 0.6
"""The share of a claim's weight that a sentence must cover for a difference to be a contradiction."""
CLASH = 0.1
"""The most that the probability of a contradicted claim can be."""
DIRECT = 0.8
"""The share that one sentence must cover for a claim to be supported rather than inferred."""


class Bars(NamedTuple):
    """The probabilities from which a claim counts as supported, and as inferred."""

    supported: float
    inferred: float


def entail(claim: str, index: Index, rarity: Rarity, bars: Bars) -> Entailment:
    """How the indexed passages stand to a claim."""
    statement = state(claim, rarity)
    if not statement.weights or not index.sentences:
        return Entailment("unsupported", 0.0, share=(0.0,) * len(index.passages))
    found = align(statement, index)
    p = _probability(features(statement, found, index))
    evidence = _evidence(found, index)
    share = _shares(found, index)
    against = _against(statement, found, index)
    if against:
        return Entailment("contradicted", min(p, CLASH), evidence[:1], against, share)
    lacks = _lacks(statement, found, index, rarity)
    if lacks:
        return Entailment("unsupported", min(p, bars.inferred / 2), evidence, lacks, share)
    support, reason = _support(statement, found, p, bars)
    return Entailment(support, p, evidence if support != "supported" else evidence[:1], reason, share)


def _probability(values: list[float]) -> float:
    """The logistic of the weighted features."""
    return 1.0 / (1.0 + math.exp(BIAS + sum(w * v for w, v in zip(WEIGHTS, values, strict=True))))


def _support(statement: Statement, found: Alignment, p: float, bars: Bars) -> tuple[Support, str | None]:
    """The word for a probability."""
    if p < bars.inferred:
        lost = sorted(found.missing, key=lambda word: -statement.weights[word])[:3]
        return (
            "unsupported",
            f"no passage holds {', '.join(lost)}" if lost else "the passages say it nowhere together",
        )
    if p >= bars.supported and found.covered >= DIRECT:
        return "supported", None
    return (
        "inferred",
        "drawn from several places" if found.covered < DIRECT else "close to the passage, not the same",
    )


def _lacks(statement: Statement, found: Alignment, index: Index, rarity: Rarity) -> str | None:
    """Why a claim cannot be supported, whatever else agrees: a name or number that is nowhere, or misplaced."""
    crucial = sorted(word for word in found.missing if word in statement.names or word[0].isdigit())
    if crucial:
        return f"no passage holds {', '.join(crucial[:3])}"
    blank = field(statement, index)
    if blank:
        return f"the record says nothing of {blank[0]}"
    if not found.order:
        return None
    best = index.sentences[found.order[0]]
    strange = statement.names - best.content
    if not strange or found.votes[found.order[0]] < DIRECT * (
        found.total - sum(statement.weights[w] for w in strange)
    ):
        return None
    others = names(index.source(found.order[0]), rarity) & best.content - frozenset(statement.tokens)
    for ours in sorted(strange):
        for theirs in sorted(others):
            if follows(statement.tokens, ours) & follows(best.tokens, theirs):
                return f"{ours} in the place of {theirs}"
    return None


def _against(statement: Statement, found: Alignment, index: Index) -> str | None:
    """Why the best sentences contradict the claim."""
    opposed = field(statement, index)
    if opposed and opposed[1] != "absent":
        return f"{opposed[0]}: {opposed[1]}"
    for place in found.order:
        sentence = index.sentences[place]
        shared = statement.weights.keys() & sentence.content
        rest = sum(
            weight for word, weight in statement.weights.items() if word in shared or not contested(word)
        )
        if sentence.polarity or (len(shared) < 2 or found.votes[place] < NEAR * rest):
            continue
        reason = clash(statement.text, statement.tokens, sentence, index.source(place))
        if reason:
            return reason
        if found.covered >= DIRECT:
            return None
    return None


def _evidence(found: Alignment, index: Index) -> tuple[Evidence, ...]:
    """The best sentence, and those that add to it."""
    spans = []
    for place in found.order:
        if found.votes[place] < 0.4 * found.votes[found.order[0]]:
            break
        sentence = index.sentences[place]
        spans.append(
            Evidence(chunk=index.passages[index.owner[place]].name, start=sentence.start, end=sentence.end)
        )
    return tuple(spans)


def _shares(found: Alignment, index: Index) -> tuple[float, ...]:
    """For each passage the share of the claim that its best sentence covers."""
    shares = [0.0] * len(index.passages)
    for place, vote in found.votes.items():
        owner = index.owner[place]
        shares[owner] = max(shares[owner], vote / found.total)
    return tuple(shares)
