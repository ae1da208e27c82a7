"""Verdicts of one trace as people read and label them: text segments, citations, and human labels of each verdict."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from ragfault.errors import UsageError
from ragfault.evaluation.agreement.human_labels import (
    AnswerLabel,
    ChunkLabel,
    ClaimLabel,
    HumanLabel,
    HumanVerdicts,
    list_values,
    resolve_labels,
)
from ragfault.records import Citation, ClaimSupport, RelevanceLevel, Trace, Verdicts
from ragfault.server.storage import StoredTrace

MAX_QUOTE_LENGTH = 2000
"""Characters of a quote that is looked for."""

SUPPORT_ORDER: tuple[ClaimSupport, ...] = ("contradicted", "unsupported", "inferred", "supported")
"""Of claims that share words, the gravest colours them."""

T = TypeVar("T")

VerdictKey = tuple[str, int]
"""What a stretch of text is: a claim or a citation, and its place."""


class TextSegment(NamedTuple):
    """A stretch of a text between two ends of what is marked in it."""

    text: str
    keys: tuple[VerdictKey, ...]
    """What it is part of."""
    begins: tuple[VerdictKey, ...]
    """What begins with it."""
    ends: tuple[VerdictKey, ...]
    """What ends with it."""
    kind: str = ""
    """Of a part of an answer: how the gravest of its claims is supported."""


def split_text(text: str, spans: Iterable[tuple[int, int, VerdictKey]]) -> list[TextSegment]:
    """A text cut at the ends of spans, which may overlap or reach beyond it; empty ones are left out.

    >>> [(piece.text, piece.keys) for piece in split_text("abcd", [(1, 3, ("claim", 0)), (2, 9, ("claim", 1))])]
    [('a', ()), ('b', (('claim', 0),)), ('c', (('claim', 0), ('claim', 1))), ('d', (('claim', 1),))]
    """
    held = [(max(0, start), min(len(text), end), key) for start, end, key in spans]
    held = [each for each in held if each[0] < each[1]]
    ends = sorted({0, len(text), *(end for start, stop, _ in held for end in (start, stop))})
    begun: set[VerdictKey] = set()
    found = []
    for start, end in pairwise(ends):
        keys = tuple(dict.fromkeys(key for first, last, key in held if first <= start and end <= last))
        fresh = tuple(key for key in keys if key not in begun)
        begun.update(fresh)
        done = tuple(key for key in keys if any(last == end and key == one for _, last, one in held))
        found.append(TextSegment(text[start:end], keys, fresh, done))
    return found


def segment_answer(trace: Trace, verdicts: Verdicts | None) -> list[TextSegment]:
    """The answer, cut at its claims."""
    claims = (verdicts.claim if verdicts else None) or ()
    found = split_text(
        trace.answer or "", ((each.start, each.end, ("claim", at)) for at, each in enumerate(claims))
    )

    def kind(piece: TextSegment) -> str:
        seen = {claims[at].support for _, at in piece.keys}
        return next((each for each in SUPPORT_ORDER if each in seen), "")

    return [piece._replace(kind=kind(piece)) for piece in found]


def segment_chunk(trace: Trace, verdicts: Verdicts | None, position: int) -> list[TextSegment]:
    """A chunk, cut at the evidence of claims and the quotes of citations."""
    chunk = (trace.chunks or ())[position]
    spans: list[tuple[int, int, VerdictKey]] = []
    if locate_chunk(trace, chunk.id) == position:
        for at, claim in enumerate((verdicts.claim if verdicts else None) or ()):
            spans += [(e.start, e.end, ("claim", at)) for e in claim.evidence if e.chunk == chunk.id]
        for at, citation in enumerate(trace.citations or ()):
            where = locate_quote(trace, citation)
            if citation.chunk == chunk.id and where is not None:
                spans.append((*where, ("citation", at)))
    return split_text(chunk.text, spans)


def locate_chunk(trace: Trace, chunk: str) -> int | None:
    """The place of a chunk in a trace; None where it is not there."""
    return next((at for at, each in enumerate(trace.chunks or ()) if each.id == chunk), None)


def locate_quote(trace: Trace, citation: Citation) -> tuple[int, int] | None:
    """Where the quote of a citation stands in its chunk, whatever the white space; None where it does not."""
    place = locate_chunk(trace, citation.chunk)
    spoken_ = (citation.quote or "")[:MAX_QUOTE_LENGTH].split()
    if place is None or not spoken_:
        return None
    found = re.search(r"\s+".join(map(re.escape, spoken_)), (trace.chunks or ())[place].text)
    return found.span() if found else None


def match_claim(verdicts: Verdicts | None, citation: Citation) -> int | None:
    """The claim that a citation stands by; None where it names none, or one that the judge did not see."""
    told = " ".join((citation.claim or "").split())
    for at, claim in enumerate((verdicts.claim if verdicts else None) or ()):
        seen = " ".join(claim.claim.split())
        if told and seen and (told in seen or seen in told):
            return at
    return None


# --- what people say of verdicts ---------------------------------------------------------------------


def build_labels(stored: StoredTrace, part: str, at: int, agree: bool) -> HumanVerdicts:
    """What somebody says who agrees or disagrees with one verdict, as the verdicts of a label.

    Who disagrees says the opposite: that a supported claim is not, that a chunk is (not at all, or highly) relevant.
    Raises UsageError for a verdict that is not there.
    """
    if part not in LABEL_BUILDERS or stored.verdicts is None:
        raise UsageError(
            f'no verdict "{part}" of this trace can be labelled. There is: {", ".join(LABEL_BUILDERS)}.'
        )
    try:
        return LABEL_BUILDERS[part](stored.verdicts, at, agree)
    except (IndexError, TypeError):
        raise UsageError(f"this trace has no {part} verdict number {at + 1}. Load its page again.") from None


def _label_claim(verdicts: Verdicts, at: int, agree: bool) -> HumanVerdicts:
    claim = _get_item(verdicts.claim, at)
    other: ClaimSupport = "unsupported" if claim.support in ("supported", "inferred") else "supported"
    return HumanVerdicts(
        claim=(ClaimLabel(start=claim.start, end=claim.end, support=claim.support if agree else other),)
    )


def _label_chunk(verdicts: Verdicts, at: int, agree: bool) -> HumanVerdicts:
    chunk = _get_item(verdicts.chunk, at)
    other: RelevanceLevel = "none" if chunk.level in ("high", "medium") else "high"
    return HumanVerdicts(chunk=(ChunkLabel(chunk=chunk.chunk, level=chunk.level if agree else other),))


def _label_use(verdicts: Verdicts, at: int, agree: bool) -> HumanVerdicts:
    use = _get_item(verdicts.use, at)
    return HumanVerdicts(use=(replace(use, used=use.used == agree),))


def _label_citation(verdicts: Verdicts, at: int, agree: bool) -> HumanVerdicts:
    citation = _get_item(verdicts.citation, at)
    return HumanVerdicts(
        citation=(replace(citation, supports=citation.supports == agree, p=None, unsure=False),)
    )


def _label_fact(verdicts: Verdicts, at: int, agree: bool) -> HumanVerdicts:
    fact = _get_item(verdicts.fact, at)
    return HumanVerdicts(
        fact=(fact if agree else replace(fact, present=not fact.present, contradicted=False),)
    )


def _label_recall(verdicts: Verdicts, at: int, agree: bool) -> HumanVerdicts:
    recall = _get_item(verdicts.recall, at)
    return HumanVerdicts(recall=(replace(recall, covered=recall.covered == agree, evidence=()),))


def _label_aspect(verdicts: Verdicts, at: int, agree: bool) -> HumanVerdicts:
    aspect = _get_item(None if verdicts.answer is None else verdicts.answer.aspects, at)
    return HumanVerdicts(answer=AnswerLabel(aspects=(replace(aspect, answered=aspect.answered == agree),)))


def _label_refusal(verdicts: Verdicts, at: int, agree: bool) -> HumanVerdicts:
    answer = _get_item(None if verdicts.answer is None else (verdicts.answer,), at)
    return HumanVerdicts(answer=AnswerLabel(refused=answer.refused == agree))


LABEL_BUILDERS: dict[str, Callable[[Verdicts, int, bool], HumanVerdicts]] = {
    "claim": _label_claim,
    "chunk": _label_chunk,
    "use": _label_use,
    "citation": _label_citation,
    "fact": _label_fact,
    "recall": _label_recall,
    "aspect": _label_aspect,
    "refused": _label_refusal,
}
"""The verdicts that can be agreed to → what is then said."""


def _get_item(items: Sequence[T] | None, at: int) -> T:
    if items is None or not 0 <= at < len(items):
        raise IndexError(at)
    return items[at]


def compare_labels(stored: StoredTrace, labels: Sequence[HumanLabel]) -> dict[VerdictKey, str]:
    """What people said of each verdict so far: "agreed" or "disagreed", by part and place."""
    told = resolve_labels(labels).get(stored.trace.id)
    found: dict[VerdictKey, str] = {}
    if told is None or stored.verdicts is None:
        return found
    for part in LABEL_BUILDERS:
        for at in range(_count_verdicts(stored.verdicts, part)):
            for key, word in list_values(build_labels(stored, part, at, True)).items():
                if key in told.values:
                    found[part, at] = "agreed" if told.values[key] == word else "disagreed"
    return found


def _count_verdicts(verdicts: Verdicts, part: str) -> int:
    """How many verdicts of a part there are."""
    if part == "refused":
        return int(verdicts.answer is not None)
    items = (
        (verdicts.answer.aspects if verdicts.answer else ()) if part == "aspect" else getattr(verdicts, part)
    )
    return len(items or ())
