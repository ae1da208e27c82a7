"""One trace as people read it: its answer by claims, its chunks by evidence, and what can be said of each verdict."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from ragfault.errors import UsageError
from ragfault.records import Citation, Level, Support, Trace, Verdicts
from ragfault.runs.labels import AnswerLabel, ChunkLabel, ClaimLabel, Label, Labels, settled, words
from ragfault.store import Whole

__all__ = ["Piece", "answer_pieces", "chunk_pieces", "claim_of", "place_of", "quoted", "said", "spoken"]

QUOTE = 2000
"""Characters of a quote that is looked for."""

SEVERITY: tuple[Support, ...] = ("contradicted", "unsupported", "inferred", "supported")
"""Of claims that share words, the gravest colours them."""

T = TypeVar("T")

Key = tuple[str, int]
"""What a stretch of text is: a claim or a citation, and its place."""


class Piece(NamedTuple):
    """A stretch of a text between two ends of what is marked in it."""

    text: str
    keys: tuple[Key, ...]
    """What it is part of."""
    begins: tuple[Key, ...]
    """What begins with it."""
    ends: tuple[Key, ...]
    """What ends with it."""
    kind: str = ""
    """Of a part of an answer: how the gravest of its claims is supported."""


def cut(text: str, spans: Iterable[tuple[int, int, Key]]) -> list[Piece]:
    """A text cut at the ends of spans, which may overlap or reach beyond it; empty ones are left out.

    >>> [(piece.text, piece.keys) for piece in cut("abcd", [(1, 3, ("claim", 0)), (2, 9, ("claim", 1))])]
    [('a', ()), ('b', (('claim', 0),)), ('c', (('claim', 0), ('claim', 1))), ('d', (('claim', 1),))]
    """
    held = [(max(0, start), min(len(text), end), key) for start, end, key in spans]
    held = [each for each in held if each[0] < each[1]]
    ends = sorted({0, len(text), *(end for start, stop, _ in held for end in (start, stop))})
    begun: set[Key] = set()
    found = []
    for start, end in pairwise(ends):
        keys = tuple(dict.fromkeys(key for first, last, key in held if first <= start and end <= last))
        fresh = tuple(key for key in keys if key not in begun)
        begun.update(fresh)
        done = tuple(key for key in keys if any(last == end and key == one for _, last, one in held))
        found.append(Piece(text[start:end], keys, fresh, done))
    return found


def answer_pieces(trace: Trace, verdicts: Verdicts | None) -> list[Piece]:
    """The answer, cut at its claims."""
    claims = (verdicts.claim if verdicts else None) or ()
    found = cut(trace.answer or "", ((each.start, each.end, ("claim", at)) for at, each in enumerate(claims)))

    def kind(piece: Piece) -> str:
        seen = {claims[at].support for _, at in piece.keys}
        return next((each for each in SEVERITY if each in seen), "")

    return [piece._replace(kind=kind(piece)) for piece in found]


def chunk_pieces(trace: Trace, verdicts: Verdicts | None, place: int) -> list[Piece]:
    """A chunk, cut at the evidence of claims and the quotes of citations."""
    chunk = (trace.chunks or ())[place]
    spans: list[tuple[int, int, Key]] = []
    if place_of(trace, chunk.id) == place:
        for at, claim in enumerate((verdicts.claim if verdicts else None) or ()):
            spans += [(e.start, e.end, ("claim", at)) for e in claim.evidence if e.chunk == chunk.id]
        for at, citation in enumerate(trace.citations or ()):
            where = quoted(trace, citation)
            if citation.chunk == chunk.id and where is not None:
                spans.append((*where, ("citation", at)))
    return cut(chunk.text, spans)


def place_of(trace: Trace, chunk: str) -> int | None:
    """The place of a chunk in a trace; None where it is not there."""
    return next((at for at, each in enumerate(trace.chunks or ()) if each.id == chunk), None)


def quoted(trace: Trace, citation: Citation) -> tuple[int, int] | None:
    """Where the quote of a citation stands in its chunk, whatever the white space; None where it does not."""
    place = place_of(trace, citation.chunk)
    spoken_ = (citation.quote or "")[:QUOTE].split()
    if place is None or not spoken_:
        return None
    found = re.search(r"\s+".join(map(re.escape, spoken_)), (trace.chunks or ())[place].text)
    return found.span() if found else None


def claim_of(verdicts: Verdicts | None, citation: Citation) -> int | None:
    """The claim that a citation stands by; None where it names none, or one that the judge did not see."""
    told = " ".join((citation.claim or "").split())
    for at, claim in enumerate((verdicts.claim if verdicts else None) or ()):
        seen = " ".join(claim.claim.split())
        if told and seen and (told in seen or seen in told):
            return at
    return None


# --- what people say of verdicts ---------------------------------------------------------------------


def said(whole: Whole, part: str, at: int, agree: bool) -> Labels:
    """What somebody says who agrees or disagrees with one verdict, as the verdicts of a label.

    Who disagrees says the opposite: that a supported claim is not, that a chunk is (not at all, or highly) relevant.
    Raises UsageError for a verdict that is not there.
    """
    if part not in SAID or whole.verdicts is None:
        raise UsageError(f'no verdict "{part}" of this trace can be labelled. There is: {", ".join(SAID)}.')
    try:
        return SAID[part](whole.verdicts, at, agree)
    except (IndexError, TypeError):
        raise UsageError(f"this trace has no {part} verdict number {at + 1}. Load its page again.") from None


def _claim(seen: Verdicts, at: int, agree: bool) -> Labels:
    claim = _of(seen.claim, at)
    other: Support = "unsupported" if claim.support in ("supported", "inferred") else "supported"
    return Labels(
        claim=(ClaimLabel(start=claim.start, end=claim.end, support=claim.support if agree else other),)
    )


def _chunk(seen: Verdicts, at: int, agree: bool) -> Labels:
    chunk = _of(seen.chunk, at)
    other: Level = "none" if chunk.level in ("high", "medium") else "high"
    return Labels(chunk=(ChunkLabel(chunk=chunk.chunk, level=chunk.level if agree else other),))


def _use(seen: Verdicts, at: int, agree: bool) -> Labels:
    use = _of(seen.use, at)
    return Labels(use=(replace(use, used=use.used == agree),))


def _citation(seen: Verdicts, at: int, agree: bool) -> Labels:
    citation = _of(seen.citation, at)
    return Labels(citation=(replace(citation, supports=citation.supports == agree, p=None, unsure=False),))


def _fact(seen: Verdicts, at: int, agree: bool) -> Labels:
    fact = _of(seen.fact, at)
    return Labels(fact=(fact if agree else replace(fact, present=not fact.present, contradicted=False),))


def _recall(seen: Verdicts, at: int, agree: bool) -> Labels:
    recall = _of(seen.recall, at)
    return Labels(recall=(replace(recall, covered=recall.covered == agree, evidence=()),))


def _aspect(seen: Verdicts, at: int, agree: bool) -> Labels:
    aspect = _of(None if seen.answer is None else seen.answer.aspects, at)
    return Labels(answer=AnswerLabel(aspects=(replace(aspect, answered=aspect.answered == agree),)))


def _refused(seen: Verdicts, at: int, agree: bool) -> Labels:
    answer = _of(None if seen.answer is None else (seen.answer,), at)
    return Labels(answer=AnswerLabel(refused=answer.refused == agree))


SAID: dict[str, Callable[[Verdicts, int, bool], Labels]] = {
    "claim": _claim,
    "chunk": _chunk,
    "use": _use,
    "citation": _citation,
    "fact": _fact,
    "recall": _recall,
    "aspect": _aspect,
    "refused": _refused,
}
"""The verdicts that can be agreed to → what is then said."""


def _of(items: Sequence[T] | None, at: int) -> T:
    if items is None or not 0 <= at < len(items):
        raise IndexError(at)
    return items[at]


def spoken(whole: Whole, labels: Sequence[Label]) -> dict[Key, str]:
    """What people said of each verdict so far: "agreed" or "disagreed", by part and place."""
    told = settled(labels).get(whole.trace.id)
    found: dict[Key, str] = {}
    if told is None or whole.verdicts is None:
        return found
    for part in SAID:
        for at in range(_many(whole.verdicts, part)):
            for key, word in words(said(whole, part, at, True)).items():
                if key in told.words:
                    found[part, at] = "agreed" if told.words[key] == word else "disagreed"
    return found


def _many(seen: Verdicts, part: str) -> int:
    """How many verdicts of a part there are."""
    if part == "refused":
        return int(seen.answer is not None)
    items = (seen.answer.aspects if seen.answer else ()) if part == "aspect" else getattr(seen, part)
    return len(items or ())
