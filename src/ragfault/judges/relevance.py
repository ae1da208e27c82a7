"""Relevance: how much of a query a passage speaks about."""

from __future__ import annotations

import re
from functools import cached_property

from ragfault.judges.index import Index
from ragfault.judges.rarity import Rarity
from ragfault.judges.scorer import Relevance
from ragfault.text import STOP, Stock, items, words

__all__ = ["Question", "ask", "elsewhere", "expects", "relevance"]

ASKING = frozenset(
    words(
        "mean define difference tell explain describe give list name example kind type many much long old far"
        " year word term call usually often"
    )
)
"""Words that ask, and are not asked about."""
TASK = re.compile(
    r"\s*(?:summari[sz]e|rewrite|translate|paraphrase|shorten|instruction:|write (?:an?|the) )", re.IGNORECASE
)
"""A query that speaks about the passage itself."""
IDENTIFIER = re.compile(
    r"(?:section|article|chapter|clause|rule|step|figure|table|part|appendix|annex|page) |v\d|(?=\D*\d)[a-z]+\d*-?\d"
)
KINDS = (
    (
        "number",
        re.compile(
            r"\bhow (?:many|much|long|old|far|tall|big|large|high|fast|often|deep|heavy)\b|\bwhat (?:number|age)",
            re.I,
        ),
    ),
    ("date", re.compile(r"\bwhen\b|\b(?:what|which) (?:year|date|day|month|time|century)\b", re.I)),
    (
        "name",
        re.compile(
            r"\bwhos?e?\b|\bwhere\b|\b(?:what|which) (?:city|country|state|company|person|team|actor|place)\b",
            re.I,
        ),
    ),
)
NUMBER = re.compile(r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|hundred|thousand|million)\b", re.I)
DATE = re.compile(
    r"\b[12]\d{3}\b|\b(?:january|february|march|april|june|july|august|september|october|november|december|monday|friday)\b|\d(?:st|nd|rd|th)\b|\d:\d\d",
    re.I,
)
NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")
SHOWS = {"number": NUMBER, "date": DATE, "name": NAME}


class Question:
    """A query as words, weights, and what must agree exactly."""

    def __init__(self, text: str, rarity: Rarity) -> None:
        held = [word for word in words(text) if word not in STOP]
        asked = [word for word in held if word not in ASKING] or held
        self.text = text
        self.weights = {word: rarity(word) for word in asked}
        self.total = sum(self.weights.values())
        self.kind = expects(text)
        self.task = bool(TASK.match(text))

    @cached_property
    def spelled(self) -> dict[str, str]:
        """How the query spells its words."""
        terms = ((words(term), term) for term in re.findall(r"[^\W_]+", self.text))
        return {stems[0]: term for stems, term in terms if stems}

    @cached_property
    def identifiers(self) -> frozenset[str]:
        """What must agree."""
        return frozenset(item for item in items(self.text) if IDENTIFIER.match(item))


def ask(text: str, rarity: Rarity) -> Question:
    """A query made ready."""
    return Question(text, rarity)


def expects(query: str) -> str | None:
    """The kind of answer that a query asks for: a number, a date, a name, or nothing in particular.

    >>> expects("How many people live in Oslo?"), expects("Why?")
    ('number', None)
    """
    return next((kind for kind, pattern in KINDS if pattern.search(query)), None)


def relevance(question: Question, index: Index) -> Relevance:
    """How much of a query one passage covers, as a whole and in its best place.

    Rare words weigh more; the words found together weigh more than scattered ones. A section, version
    or code that the query names must be there: a passage about another one is not relevant.
    """
    if question.task:
        return Relevance(1.0, "the query is about the passage itself")
    if not question.total or not index.sentences:
        return Relevance(0.0, "nothing to compare")
    weights = question.weights
    held = {word for word in weights if word in index.postings or index.near(word)}
    whole = sum(weights[word] for word in held) / question.total
    votes = index.votes(weights)
    best = max((vote + 0.5 * votes.get(place + 1, 0.0) for place, vote in votes.items()), default=0.0)
    place = min(1.0, best / question.total)
    value = 0.5 * whole + 0.5 * place
    return _agree(question, index, value, weights.keys() - held)


def _agree(question: Question, index: Index, value: float, missing: set[str]) -> Relevance:
    """Lower the value where an identifier does not agree, or the kind of answer does not occur."""
    text = index.passages[0].text
    strange = elsewhere(question, text)
    if strange:
        return Relevance(min(value * 0.4, 0.2), strange)
    if question.kind and not SHOWS[question.kind].search(text):
        value *= 0.75
    lacking = [
        question.spelled.get(word, word)
        for word in sorted(missing, key=lambda word: (-question.weights[word], word))[:3]
    ]
    return Relevance(min(1.0, value), f"without {', '.join(lacking)}" if lacking else None)


def elsewhere(question: Question, text: str) -> str | None:
    """Why a passage is about something else, where it holds none of the identifiers of a query."""
    if not question.identifiers:
        return None
    stock = Stock(text)
    if any(item in stock for item in question.identifiers):
        return None
    return f"does not speak about {', '.join(sorted(question.identifiers))}"
