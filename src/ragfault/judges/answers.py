"""Answers: how an answer stands to the query, to expected facts, and to its own citations."""

from __future__ import annotations

from ragfault.judges.claims import refused
from ragfault.judges.exact import scope
from ragfault.judges.queries import aspects
from ragfault.judges.relevance import SHOWS, expects
from ragfault.judges.scorer import Passage, Reading
from ragfault.records import AnswerVerdict, Aspect, Citation
from ragfault.text import STOP, Stock, content, items, plain, sentences, squad, words

__all__ = ["answered", "citing", "present"]

SHORT = 6
"""A fact of at most so many words beyond the query is looked for word by word."""
ANSWERED = 0.5
"""A part of the query with this relevance in the answer counts as answered."""


def answered(query: str, answer: str, evidence: str, best: float, reading: Reading) -> AnswerVerdict:
    """How an answer stands to the query: part by part, in its own words or in those of its evidence.

    A terse answer repeats nothing of the question; then the stretch of the chunks that it was drawn
    from shows what it is about, measured by `best`, the relevance of the best chunk. A refusal answers
    nothing, and what speaks about another section or version than was asked for, next to nothing.
    """
    if not answer.strip():
        return AnswerVerdict(
            relevance=0.0, aspects=tuple(Aspect(text=one, answered=False) for one in aspects(query))
        )
    turned = refused(answer)
    found = []
    for part in aspects(query):
        passages = [Passage("answer", answer), Passage("evidence", evidence)]
        own, drawn = reading.coverage(part, passages)
        value = max(own.value, 0.9 * min(1.0, drawn.value / max(best, ANSWERED)))
        kind = expects(part)
        if own.other:
            value = own.value
        elif kind and SHOWS[kind].search(answer):
            value = max(value, 0.4 + 0.6 * value)
        found.append((part, 0.1 * value if turned else value))
    return AnswerVerdict(
        relevance=min(1.0, sum(value for _, value in found) / len(found)),
        aspects=tuple(Aspect(text=part, answered=value >= ANSWERED) for part, value in found),
        refused=turned,
    )


def present(fact: str, answer: str, query: str) -> bool:
    """Whether a short fact stands in the answer as it is; what the query says need not be said again.

    >>> present("30 days", "You have thirty days to return it.", "How long can I return it?")
    True
    """
    asked = frozenset(content(fact)) - frozenset(words(query))
    exact, bare = items(fact), squad(fact)
    denied = scope(words(fact))
    for start, end in sentences(answer):
        said = answer[start:end]
        tokens = words(said)
        if bool(denied) != bool(scope(tokens, reach=2) & frozenset(content(fact))):
            continue
        if bare and f" {bare} " in f" {squad(said)} ":
            return True
        if asked and len(asked) <= SHORT and asked <= frozenset(tokens):
            stock = Stock(said)
            if all(item in stock for item in exact):
                return True
    return False


def citing(citation: Citation, place: int, answer: str) -> str | None:
    """The sentence of an answer that holds the quote of a citation, or its mark.

    >>> citing(Citation(chunk="c7"), 0, "Oslo is old [c7]. Bergen is wet [c8].")
    'Oslo is old [c7].'
    """
    marks = (f"[{citation.chunk}]", f"({citation.chunk})", f"[{place + 1}]")
    spans = [answer[start:end] for start, end in sentences(answer)]
    for mark in marks[:2]:
        for span in spans:
            if mark in span:
                return span
    quote = plain(citation.quote or "").strip("\"'. ").lower()
    if quote:
        for span in spans:
            if quote in plain(span).lower():
                return span
    else:
        return next((span for span in spans if marks[2] in span), None)
    wanted = frozenset(words(quote)) - STOP
    best = max(spans, key=lambda span: len(wanted & frozenset(words(span))), default="")
    return best if wanted and len(wanted & frozenset(words(best))) >= 0.5 * len(wanted) else None
