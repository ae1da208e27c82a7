"""What there is to say of a trace: its items, the words for each, and the label that a word becomes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, cast

from ragfault.records import CitationVerdict, FactVerdict, Level, Support, Trace, Verdicts
from ragfault.runs.labels import AnswerLabel, ChunkLabel, ClaimLabel, Key, Label, Labels, Word, fingerprint

__all__ = ["KINDS", "Choice", "Item", "Kind", "choices", "items", "judged", "labelled"]

Kind = Literal["chunk", "claim", "citation", "fact", "refusal"]

KINDS: tuple[Kind, ...] = ("chunk", "claim", "citation", "fact", "refusal")
"""What can be labelled, in the order in which it is asked: chunks first, while the answer is not yet shown."""


class Choice(NamedTuple):
    """A word that can be said of an item."""

    letter: str
    name: str
    word: Word


class Item(NamedTuple):
    """One thing of a trace to be judged."""

    kind: Kind
    key: Key
    """What it is on, as in `ragfault.runs.labels`."""
    trace: Trace
    seen: Verdicts
    """What the judge made of the trace; its claims are the ones that are asked about."""
    place: int
    """Which of its kind it is, from 0."""


YES = (Choice("y", "yes", True), Choice("n", "no", False))

CHOICES: dict[Kind, tuple[Choice, ...]] = {
    "chunk": tuple(Choice(level[0], level, level) for level in ("high", "medium", "low", "none")),
    "claim": tuple(
        Choice(support[0], support, support)
        for support in ("supported", "inferred", "unsupported", "contradicted")
    ),
    "citation": YES,
    "fact": YES,
    "refusal": YES,
}


def choices(kind: Kind) -> tuple[Choice, ...]:
    """The words for a kind of item, each with its letter.

    >>> [choice.letter for choice in choices("claim")]
    ['s', 'i', 'u', 'c']
    """
    return CHOICES[kind]


def items(trace: Trace, seen: Verdicts, only: Collection[str] = KINDS) -> Iterator[Item]:
    """The items of a trace, in the order of KINDS.

    Chunks, citations and expected facts are those of the trace, claims those that the judge found in its answer.

    >>> trace = Trace(id="1", query="When?", answer="In 1040.", facts=("It was 1040.",))
    >>> [item.kind for item in items(trace, Verdicts(trace="1"))]
    ['fact', 'refusal']
    """
    for kind in KINDS:
        if kind in only:
            for place, key in enumerate(_keys(kind, trace, seen)):
                yield Item(kind, key, trace, seen, place)


def _keys(kind: Kind, trace: Trace, seen: Verdicts) -> Iterator[Key]:
    if kind == "chunk":
        yield from (("chunk", chunk.id, "level") for chunk in trace.chunks or ())
    elif trace.answer is None:
        return
    elif kind == "claim":
        yield from (("claim", claim.start, claim.end) for claim in seen.claim or ())
    elif kind == "citation":
        yield from dict.fromkeys(("citation", cited.chunk, cited.claim) for cited in seen.citation or ())
    elif kind == "fact":
        yield from dict.fromkeys(("fact", fact) for fact in trace.facts or ())
    else:
        yield "answer", "refused"


def judged(item: Item) -> str | None:
    """What the judge says of an item, in words; None where it says nothing.

    >>> trace, seen = Trace(id="1", query="When?", answer="No."), Verdicts(trace="1")
    >>> judged(next(items(trace, seen))) is None
    True
    """
    seen, key = item.seen, item.key
    found: Any = None
    if item.kind == "chunk":
        found = next((each.level for each in seen.chunk or () if each.chunk == key[1]), None)
    elif item.kind == "claim":
        found = next((each.support for each in seen.claim or () if (each.start, each.end) == key[1:]), None)
    elif item.kind == "citation":
        found = next(
            (each.supports for each in seen.citation or () if (each.chunk, each.claim) == key[1:]), None
        )
    elif item.kind == "fact":
        found = next((each.present for each in seen.fact or () if each.fact == key[1]), None)
    elif seen.answer is not None:
        found = seen.answer.refused
    return str(found) if isinstance(found, str) else {True: "yes", False: "no"}.get(found)


def labelled(item: Item, word: Word, by: str, chance: float | None = None) -> Label:
    """The label that a word on an item becomes; `chance` is that with which its trace was drawn, where it was.

    >>> item = next(items(Trace(id="1", query="When?", answer="No."), Verdicts(trace="1")))
    >>> labelled(item, True, "ann").verdicts.answer.refused
    True
    """
    return Label(
        trace=item.trace.id,
        by=by,
        time=datetime.now(UTC).replace(microsecond=0),
        answer=fingerprint(item.trace),
        chance=chance,
        verdicts=_said(item, word),
    )


def _said(item: Item, word: Word) -> Labels:
    key: tuple[Any, ...] = item.key
    if item.kind == "chunk":
        return Labels(chunk=(ChunkLabel(chunk=key[1], level=cast(Level, word)),))
    if item.kind == "claim":
        return Labels(claim=(ClaimLabel(start=key[1], end=key[2], support=cast(Support, word)),))
    if item.kind == "citation":
        return Labels(citation=(CitationVerdict(chunk=key[1], claim=key[2], supports=bool(word)),))
    if item.kind == "fact":
        return Labels(fact=(FactVerdict(fact=key[1], present=bool(word)),))
    return Labels(answer=AnswerLabel(refused=bool(word)))
