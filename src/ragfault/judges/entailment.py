"""Entailment by words: the probability of support, and the word for it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from ragfault.judges.exact import clash, contested, follows, mutual
from ragfault.judges.features import Alignment, Statement, align, features, field, names, state
from ragfault.judges.index import Index
from ragfault.judges.rarity import Rarity
from ragfault.judges.scorer import Entailment
from ragfault.judges.weights import BIAS, WEIGHTS
from ragfault.records import Evidence, Support
from ragfault.text import words

__all__ = ["Bars", "Check", "check", "entail", "measured", "verdict"]

STEM = re.compile(r"<([^<>]+)>")
TERM = re.compile(r"\d[\d.,:]*\d|[^\W_]+")
NEAR = 0.6
"""The share of a claim's weight that a sentence must cover for a difference to be a contradiction."""
MOST = 0.6
"""The share of a claim that may stand nowhere; beyond it, nothing else counts."""
SAME = 0.6
"""The share of the best sentence that a claim must say for a name to stand in the place of another."""
AGAINST = 0.5
"""How much less likely a contradicted claim is than its words alone would say."""
WHOLE = 0.85
"""The share of the rest of the claim that this sentence must cover."""
DIRECT = 0.7
"""The share that one sentence must cover for a claim to be supported rather than inferred."""


class Bars(NamedTuple):
    """The probabilities from which a claim counts as supported, and as inferred."""

    supported: float
    inferred: float


class Check(NamedTuple):
    """All that is known of a claim before it gets a word."""

    statement: Statement
    found: Alignment
    against: str | None
    """Why a sentence contradicts it."""
    opposed: tuple[str, str] | None
    """The field of a record that it goes against."""
    nowhere: str | None
    """The name or number that stands nowhere."""


def check(claim: str, index: Index, rarity: Rarity) -> Check | None:
    """Compare a claim with the passages; None where there is nothing to compare."""
    statement = state(claim, rarity)
    if not statement.weights or not index.sentences:
        return None
    found = align(statement, index)
    against = _against(statement, found, index)
    opposed = field(statement, index)
    return Check(statement, found, against, opposed, _nowhere(statement, found, index, rarity))


def measured(seen: Check, index: Index) -> tuple[float, ...]:
    """The features of a claim, in the order of `features.NAMES`."""
    flags = (seen.against is not None, seen.opposed is not None, seen.nowhere is not None)
    return (*features(seen.statement, seen.found, index), *map(float, flags))


def entail(claim: str, index: Index, rarity: Rarity, bars: Bars) -> Entailment:
    """How the indexed passages stand to a claim."""
    seen = check(claim, index, rarity)
    if seen is None:
        return Entailment("unsupported", 0.0, share=(0.0,) * len(index.passages))
    return verdict(claim, seen, index, _probability(measured(seen, index)), bars)


def verdict(claim: str, seen: Check, index: Index, p: float, bars: Bars, *, most: float = MOST) -> Entailment:
    """The word for a probability of support, after the exact checks, with reason and evidence.

    Where more than `most` of the claim stands nowhere it is unsupported, however probable it looks.
    """
    support, reason = _word(seen, index, p, bars, most)
    if support in {"contradicted", "unsupported"}:
        p = min(p, bars.inferred - 0.01) * (AGAINST if support == "contradicted" else 1.0)
    evidence = _evidence(seen.found, index)
    if support in {"contradicted", "supported"}:
        evidence = evidence[:1]
    return Entailment(
        support, p, evidence, _spoken(reason, claim, seen.found, index), _shares(seen.found, index)
    )


def _keyed(key: str) -> str:
    return " ".join(f"<{stem}>" for stem in key.split())


def _listed(stems: Sequence[str]) -> str:
    return ", ".join(f"<{stem}>" for stem in stems)


def _spoken(reason: str | None, claim: str, found: Alignment, index: Index) -> str | None:
    """A reason with its stems as the claim or the passages spell them."""
    if not reason or "<" not in reason:
        return reason
    texts = [claim, *(index.source(place) for place in found.order)]
    return STEM.sub(lambda match: _spelling(match[1], texts), reason)


def _spelling(stem: str, texts: Sequence[str]) -> str:
    """How the first of some texts that has a stem spells it last."""
    head = stem[0]
    terms = (
        term
        for text in texts
        for term in reversed(TERM.findall(text))
        # Only a number, an accent or a possessive changes how a word begins.
        if term[0].lower() == head or head.isdigit() or not term.isascii()
    )
    return next((term for term in terms if words(term)[:1] == (stem,)), stem)


def _word(seen: Check, index: Index, p: float, bars: Bars, most: float) -> tuple[Support, str | None]:
    """The word for what was found, and why: exact checks first, then the probability."""
    if seen.opposed and seen.opposed[1] != "absent":
        return "contradicted", f"{_keyed(seen.opposed[0])}: {seen.opposed[1]}"
    if seen.against:
        return "contradicted", seen.against
    if seen.opposed:
        return "unsupported", f"the record says nothing of {_keyed(seen.opposed[0])}"
    if seen.nowhere:
        return "unsupported", seen.nowhere
    return _support(seen.statement, seen.found, index, p, bars, most)


def _probability(values: Sequence[float]) -> float:
    """The logistic of the weighted features."""
    return 1.0 / (1.0 + math.exp(BIAS + sum(w * v for w, v in zip(WEIGHTS, values, strict=True))))


def _support(
    statement: Statement, found: Alignment, index: Index, p: float, bars: Bars, most: float
) -> tuple[Support, str | None]:
    """The word for a probability."""
    absent = sum(statement.weights[word] for word in found.missing)
    if p < bars.inferred or absent > most * found.total:
        lost = sorted(found.missing, key=lambda word: (-statement.weights[word], word))[:3]
        return (
            "unsupported",
            f"no chunk holds {_listed(lost)}" if lost else "the chunks say it nowhere together",
        )
    held = index.sentences[found.order[0]].content if found.order else frozenset()
    apart = any(
        (word[0].isdigit() or word in statement.names) and word not in held for word in statement.weights
    )
    if p >= bars.supported and found.covered >= DIRECT and not apart:
        return "supported", None
    several = len(found.order) > 1 and (apart or found.covered < DIRECT)
    return "inferred", "drawn from several sentences" if several else "in other words than the chunk"


def _nowhere(statement: Statement, found: Alignment, index: Index, rarity: Rarity) -> str | None:
    """Why a claim cannot be supported, whatever else agrees: a name or number that is nowhere, or misplaced."""
    crucial = sorted(word for word in found.missing if word in statement.names or word[0].isdigit())
    if crucial:
        return f"no chunk holds {_listed(crucial[:3])}"
    if not found.order:
        return None
    best = index.sentences[found.order[0]]
    strange = statement.names - best.content
    if (
        not strange
        or mutual(statement.tokens, best) < SAME
        or found.votes[found.order[0]] < WHOLE * (found.total - sum(statement.weights[w] for w in strange))
    ):
        return None
    others = names(index.source(found.order[0]), rarity) & best.content - frozenset(statement.tokens)
    for ours in sorted(strange):
        for theirs in sorted(others):
            if ours[:4] != theirs[:4] and follows(statement.tokens, ours) & follows(best.tokens, theirs):
                return f"<{ours}> in the place of <{theirs}>"
    return None


def _against(statement: Statement, found: Alignment, index: Index) -> str | None:
    """Why the best sentences contradict the claim."""
    points = {word: statement.weights[word] for word in contested(statement.weights)}
    firm = found.total - sum(points.values())
    for place in found.order:
        sentence = index.sentences[place]
        rest = firm + sum([weight for word, weight in points.items() if word in sentence.content])
        near = not sentence.polarity and found.votes[place] >= NEAR * rest
        if not near or len(statement.weights.keys() & sentence.content) < 2:
            continue
        reason = clash(statement.text, statement.tokens, sentence, index.source(place), index.beside)
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
