"""The verdicts on a trace as people would have them: their words in the place of the judge's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from msgspec.structs import replace

from ragfault.agreement.gathering import Labelled
from ragfault.agreement.labels import Grade
from ragfault.records import AnswerVerdict, ChunkVerdict, Level, Verdicts
from ragfault.runs.labels import Key, Word

__all__ = ["said_of", "worded"]

LEVELS: tuple[tuple[float, Level], ...] = ((0.75, "high"), (0.5, "medium"), (0.25, "low"))
"""From which relevance on a level holds; below all it is none."""
RELEVANCE: dict[Level, float] = {"high": 1.0, "medium": 0.6, "low": 0.3, "none": 0.0}
"""Level → a relevance of that level, where people gave the level alone."""


def said_of(one: Labelled, seen: Verdicts, top: int) -> dict[Key, Word]:
    """What the labels of a trace say of each item of the judge's verdicts.

    A claim of the judge is bad where it touches a marked stretch or a claim that people call bad. `top` is the highest
    grade; 1 where chunks are relevant or not.
    """
    found: dict[Key, Word] = {}
    for claim in seen.claim or ():
        bad = _bad(one, claim.start, claim.end)
        if bad is not None:
            found["claim", claim.start, claim.end] = "unsupported" if bad else "supported"
    for chunk, grade in (one.grades or {}).items():
        found["chunk", chunk, "level"] = _level(_share(grade, top))
    return found


def _bad(one: Labelled, start: int, end: int) -> bool | None:
    """Whether people find fault with a stretch of the answer; None where they said nothing of it."""
    if one.claims is not None:
        touched = [claim.positive for claim in one.claims if claim.start < end and start < claim.end]
        return any(touched) if touched else None
    if one.spans is None or (one.positive and not one.spans):
        return None
    return any(left < end and start < right for left, right in one.spans)


def _share(grade: Grade, top: int) -> float:
    """A grade in [0, 1]."""
    return float(grade.relevant) if grade.grade is None or top < 2 else grade.grade / top


def _level(relevance: float) -> Level:
    """The level of a relevance.

    >>> [_level(each) for each in (1.0, 0.5, 0.1)]
    ['high', 'medium', 'none']
    """
    return next((level for bar, level in LEVELS if relevance >= bar), "none")


# --- verdicts --------------------------------------------------------------------------------------


def worded(seen: Verdicts, words: Mapping[Key, Word]) -> tuple[Verdicts, frozenset[str]]:
    """The verdicts with people's words in the place of the judge's, and of which parts they said all.

    A part of which they left something out is None. Of the answer, "refused" and "relevance" are parts of their own.

    >>> seen = Verdicts(trace="1", chunk=(ChunkVerdict(chunk="a", relevance=0.9, level="high"),))
    >>> said, parts = worded(seen, {("chunk", "a", "level"): "low"})
    >>> said.chunk[0].level, sorted(parts)
    ('low', ['chunk'])
    """
    found: dict[str, Any] = {}
    for part, make in MADE.items():
        items = getattr(seen, part) or ()
        made = [make(item, words) for item in items]
        if made and None not in made:
            found[part] = tuple(made)
    if ("missing",) in words:
        found["missing"] = words["missing",]
    refused, relevance = words.get(("answer", "refused")), words.get(("answer", "relevance"))
    parts = {
        *found,
        *(name for name, word in (("refused", refused), ("relevance", relevance)) if word is not None),
    }
    if refused is not None or relevance is not None:
        found["answer"] = AnswerVerdict(relevance=float(cast(float, relevance or 0.0)), refused=bool(refused))
    return Verdicts(trace=seen.trace, **found), frozenset(parts)


def _chunk(item: ChunkVerdict, words: Mapping[Key, Word]) -> ChunkVerdict | None:
    level = cast("Level | None", words.get(("chunk", item.chunk, "level")))
    relevance = cast("float | None", words.get(("chunk", item.chunk, "relevance")))
    if level is None and relevance is None:
        return None
    return ChunkVerdict(
        chunk=item.chunk,
        level=level if level is not None else _level(cast(float, relevance)),
        relevance=relevance if relevance is not None else RELEVANCE[cast(Level, level)],
    )


def _with(field: str, key: Callable[[Any], Key]) -> Callable[[Any, Mapping[Key, Word]], Any]:
    """An item with one field as people have it; None where they said nothing of it."""

    def made(item: Any, words: Mapping[Key, Word]) -> Any:
        word = words.get(key(item))
        return None if word is None else replace(item, **dict(_fields(field, word)))

    return made


def _fields(field: str, word: Word) -> Iterator[tuple[str, Word]]:
    """The fields that a word fills."""
    if field == "present":
        yield "contradicted", word == "contradicted"
        word = word is True
    yield field, word


MADE: dict[str, Callable[[Any, Mapping[Key, Word]], Any]] = {
    "chunk": _chunk,
    "claim": _with("support", lambda item: ("claim", item.start, item.end)),
    "use": _with("used", lambda item: ("use", item.chunk)),
    "citation": _with("supports", lambda item: ("citation", item.chunk, item.claim)),
    "fact": _with("present", lambda item: ("fact", item.fact)),
    "recall": _with("covered", lambda item: ("recall", item.statement)),
}
"""Part → what makes an item of it from the judge's and the words of people."""
