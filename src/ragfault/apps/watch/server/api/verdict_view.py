"""Verdicts of one trace as people read and label them: text segments, citations, and human labels of each verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ragfault.apps.watch.server.storage.records import StoredTrace
from ragfault.labels.consensus import resolve_labels
from ragfault.labels.label import Label, Subject, SubjectValue
from ragfault.labels.reading.lines import LabelLine, iterate_values, list_label_line
from ragfault.model.errors import UsageError
from ragfault.model.records import Citation, ClaimSupport, Trace, Verdicts

# longest quote that is searched for, in characters
MAX_QUOTE_LENGTH = 2000

SUPPORT_ORDER: tuple[ClaimSupport, ...] = ("contradicted", "unsupported", "inferred", "supported")
"""Kinds of support, the worst first: it colours the text where claims overlap."""

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


LABELED_PARTS = ("claim", "chunk", "use", "citation", "fact", "recall", "aspect", "refused")
"""Verdicts of a trace that people label on its page."""

OPPOSITES: dict[SubjectValue, SubjectValue] = {
    True: False,
    False: True,
    "supported": "unsupported",
    "inferred": "unsupported",
    "unsupported": "supported",
    "contradicted": "supported",
    "high": "none",
    "medium": "none",
    "low": "high",
    "none": "high",
}
"""Value of a verdict → what a person says who disagrees."""


def build_label(stored: StoredTrace, part: str, at: int, agree: bool) -> Label:
    """Build the label of a person who agrees or disagrees with a verdict, by its part and position.

    Raises UsageError for a verdict that is not there.
    """
    if part not in LABELED_PARTS or stored.verdicts is None:
        raise UsageError(f'no verdict "{part}" of this trace can be labelled. There is: {", ".join(LABELED_PARTS)}.')
    verdicts = _list_verdicts(stored.verdicts, part)
    if not 0 <= at < len(verdicts):
        raise UsageError(f"this trace has no {part} verdict number {at + 1}. Load its page again.")
    subject, judged = verdicts[at]
    # Whoever disagrees that a fact is contradicted says that it is there.
    opposite = judged is not True if part == "fact" else OPPOSITES[judged]
    return Label(trace=stored.trace.id, subject=subject, value=judged if agree else opposite)


def _list_verdicts(verdicts: Verdicts, part: str) -> list[tuple[Subject, SubjectValue]]:
    """List subject and value of the verdicts of a part that people label, in order."""
    kind, name = {"chunk": ("chunk", "level"), "refused": ("answer", "refused")}.get(part, (part, None))
    return [
        (subject, value)
        for subject, value in iterate_values(verdicts)
        if subject[0] == kind and len(subject) > 1 and value is not None and name in (None, subject[-1])
    ]


def compare_labels(stored: StoredTrace, lines: Sequence[LabelLine]) -> dict[VerdictKey, str]:
    """Compare the labels of a trace with its verdicts: "agreed" or "disagreed" by kind and position."""
    resolved = resolve_labels(label for line in lines for label in list_label_line(line)).get(stored.trace.id)
    if resolved is None or stored.verdicts is None:
        return {}
    return {
        (part, index): "agreed" if resolved.values[subject] == value else "disagreed"
        for part in LABELED_PARTS
        for index, (subject, value) in enumerate(_list_verdicts(stored.verdicts, part))
        if subject in resolved.values
    }
