"""Verdicts of one trace as people read and label them: text segments, citations, and human labels of each verdict."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from ragfault.apps.watch.server.storage.records import StoredTrace
from ragfault.labels.consensus import resolve_labels
from ragfault.labels.reading.lines import AnswerLabel, ChunkLabel, ClaimLabel, HumanVerdicts, LabelLine, list_label_line
from ragfault.model.errors import UsageError
from ragfault.model.records import Citation, ClaimSupport, RelevanceLevel, Trace, Verdicts

MAX_QUOTE_LENGTH = 2000  # longest quote that is searched for, in characters

SUPPORT_ORDER: tuple[ClaimSupport, ...] = ("contradicted", "unsupported", "inferred", "supported")
"""Kinds of support, the worst first: it colours the text where claims overlap."""

T = TypeVar("T")

VerdictKey = tuple[str, int]
"""Kind ("claim" or "citation") and position of a verdict."""


class TextSegment(NamedTuple):
    """Segment of a text between two ends of marked spans."""

    text: str
    keys: tuple[VerdictKey, ...]
    """Verdicts whose spans cover the segment."""
    begins: tuple[VerdictKey, ...]
    """Verdicts whose spans begin with it."""
    ends: tuple[VerdictKey, ...]
    """Verdicts whose spans end with it."""
    kind: str = ""
    """In an answer, the worst support of its claims."""


def split_text(text: str, spans: Iterable[tuple[int, int, VerdictKey]]) -> list[TextSegment]:
    """Split a text at the ends of spans, which are clipped to it and may overlap; empty spans are dropped.

    >>> [(piece.text, piece.keys) for piece in split_text("abcd", [(1, 3, ("claim", 0)), (2, 9, ("claim", 1))])]
    [('a', ()), ('b', (('claim', 0),)), ('c', (('claim', 0), ('claim', 1))), ('d', (('claim', 1),))]
    """
    clipped = [(max(0, start), min(len(text), end), key) for start, end, key in spans]
    clipped = [span for span in clipped if span[0] < span[1]]
    ends = sorted({0, len(text), *(end for start, stop, _ in clipped for end in (start, stop))})
    begun: set[VerdictKey] = set()
    segments = []
    for start, end in pairwise(ends):
        keys = tuple(dict.fromkeys(key for first, last, key in clipped if first <= start and end <= last))
        begins = tuple(key for key in keys if key not in begun)
        begun.update(begins)
        finished = tuple(key for key in keys if any(last == end and key == begun_key for _, last, begun_key in clipped))
        segments.append(TextSegment(text[start:end], keys, begins, finished))
    return segments


def segment_answer(trace: Trace, verdicts: Verdicts | None) -> list[TextSegment]:
    """Split the answer at its claims."""
    claims = (verdicts.claim if verdicts else None) or ()
    spans = ((claim.start, claim.end, ("claim", i)) for i, claim in enumerate(claims))
    segments = split_text(trace.answer or "", spans)

    def kind(piece: TextSegment) -> str:
        seen = {claims[at].support for _, at in piece.keys}
        return next((claim for claim in SUPPORT_ORDER if claim in seen), "")

    return [piece._replace(kind=kind(piece)) for piece in segments]


def segment_chunk(trace: Trace, verdicts: Verdicts | None, position: int) -> list[TextSegment]:
    """Split a chunk at the evidence of claims and the quotes of citations."""
    chunk = (trace.chunks or ())[position]
    spans: list[tuple[int, int, VerdictKey]] = []
    if locate_chunk(trace, chunk.id) == position:
        for index, claim in enumerate((verdicts.claim if verdicts else None) or ()):
            spans += [(e.start, e.end, ("claim", index)) for e in claim.evidence if e.chunk == chunk.id]
        for index, citation in enumerate(trace.citations or ()):
            where = locate_quote(trace, citation)
            if citation.chunk == chunk.id and where is not None:
                spans.append((*where, ("citation", index)))
    return split_text(chunk.text, spans)


def locate_chunk(trace: Trace, chunk: str) -> int | None:
    """Return the position of a chunk in a trace; None where it is missing."""
    return next((i for i, candidate in enumerate(trace.chunks or ()) if candidate.id == chunk), None)


def locate_quote(trace: Trace, citation: Citation) -> tuple[int, int] | None:
    """Return the span of a citation's quote in its chunk, ignoring whitespace; None where it is missing."""
    place = locate_chunk(trace, citation.chunk)
    words = (citation.quote or "")[:MAX_QUOTE_LENGTH].split()
    if place is None or not words:
        return None
    match = re.search(r"\s+".join(map(re.escape, words)), (trace.chunks or ())[place].text)
    return match.span() if match else None


def match_claim(verdicts: Verdicts | None, citation: Citation) -> int | None:
    """Return the position of the claim that a citation supports; None without a match."""
    cited = " ".join((citation.claim or "").split())
    for index, claim in enumerate((verdicts.claim if verdicts else None) or ()):
        seen = " ".join(claim.claim.split())
        if cited and seen and (cited in seen or seen in cited):
            return index
    return None


def build_labels(stored: StoredTrace, part: str, at: int, agree: bool) -> HumanVerdicts:
    """Build the label of a person who agrees or disagrees with one verdict.

    Disagreement labels the opposite: a supported claim as unsupported, a relevant chunk as not relevant, and so on.
    Raises UsageError for a verdict that does not exist.
    """
    if part not in LABEL_BUILDERS or stored.verdicts is None:
        raise UsageError(f'no verdict "{part}" of this trace can be labelled. There is: {", ".join(LABEL_BUILDERS)}.')
    try:
        return LABEL_BUILDERS[part](stored.verdicts, at, agree)
    except (IndexError, TypeError):
        raise UsageError(f"this trace has no {part} verdict number {at + 1}. Load its page again.") from None


def _label_claim(verdicts: Verdicts, at: int, agree: bool) -> HumanVerdicts:
    claim = _get_item(verdicts.claim, at)
    other: ClaimSupport = "unsupported" if claim.support in ("supported", "inferred") else "supported"
    label = ClaimLabel(start=claim.start, end=claim.end, support=claim.support if agree else other)
    return HumanVerdicts(claim=(label,))


def _label_chunk(verdicts: Verdicts, at: int, agree: bool) -> HumanVerdicts:
    chunk = _get_item(verdicts.chunk, at)
    other: RelevanceLevel = "none" if chunk.level in ("high", "medium") else "high"
    return HumanVerdicts(chunk=(ChunkLabel(chunk=chunk.chunk, level=chunk.level if agree else other),))


def _label_use(verdicts: Verdicts, at: int, agree: bool) -> HumanVerdicts:
    use = _get_item(verdicts.use, at)
    return HumanVerdicts(use=(replace(use, used=use.used == agree),))


def _label_citation(verdicts: Verdicts, at: int, agree: bool) -> HumanVerdicts:
    citation = _get_item(verdicts.citation, at)
    return HumanVerdicts(citation=(replace(citation, supports=citation.supports == agree, p=None, unsure=False),))


def _label_fact(verdicts: Verdicts, at: int, agree: bool) -> HumanVerdicts:
    fact = _get_item(verdicts.fact, at)
    return HumanVerdicts(fact=(fact if agree else replace(fact, present=not fact.present, contradicted=False),))


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
"""Verdicts that can be labelled → builder of the label."""


def _get_item(items: Sequence[T] | None, at: int) -> T:
    if items is None or not 0 <= at < len(items):
        raise IndexError(at)
    return items[at]


def compare_labels(stored: StoredTrace, lines: Sequence[LabelLine]) -> dict[VerdictKey, str]:
    """Compare the labels of a trace with its verdicts: "agreed" or "disagreed" by kind and position."""
    resolved = resolve_labels(label for line in lines for label in list_label_line(line)).get(stored.trace.id)
    compared: dict[VerdictKey, str] = {}
    if resolved is None or stored.verdicts is None:
        return compared
    for part in LABEL_BUILDERS:
        for index in range(_count_verdicts(stored.verdicts, part)):
            line = LabelLine(trace=stored.trace.id, verdicts=build_labels(stored, part, index, True))
            for label in list_label_line(line):
                if label.subject in resolved.values:
                    is_same = resolved.values[label.subject] == label.value
                    compared[part, index] = "agreed" if is_same else "disagreed"
    return compared


def _count_verdicts(verdicts: Verdicts, part: str) -> int:
    if part == "refused":
        return int(verdicts.answer is not None)
    items = (verdicts.answer.aspects if verdicts.answer else ()) if part == "aspect" else getattr(verdicts, part)
    return len(items or ())
