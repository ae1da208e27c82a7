"""Focus: how much of an answer keeps to the query, and how much wanders."""

from __future__ import annotations

from collections.abc import Sequence

from ragfault.judges.claims import Claim, refuses
from ragfault.judges.queries import aspects
from ragfault.judges.scorer import Entailment, Passage, Reading
from ragfault.judges.talk import personal
from ragfault.text import content, sentences

__all__ = ["drawn", "focus"]

DRAWN = 0.5
"""A claim is drawn from a chunk one of whose sentences covers so much of it, and no other chunk clearly more."""
NEAR = 0.6
"""A chunk with this share of the relevance of the best one speaks to the query."""
OWN = 0.25
"""A claim speaks to the query itself if it covers so much of a part of it."""
FREE = 4
"""So many words of courtesy or digression cost nothing."""


def drawn(seen: Entailment) -> list[int]:
    """The places of the chunks that a claim is drawn from.

    >>> drawn(Entailment("supported", 0.9, share=(0.2, 0.8, 0.75)))
    [1, 2]
    """
    most = max(seen.share, default=0.0)
    return [place for place, share in enumerate(seen.share) if share >= DRAWN and share >= 0.9 * most]


def focus(
    query: str,
    answer: str,
    said: Sequence[Claim],
    known: Sequence[Entailment],
    relevance: Sequence[float],
    reading: Reading,
) -> float:
    """The share of an answer's words that do not lead away from the query.

    Small talk leads away, and so does a claim drawn from a chunk that is not about the query, unless it
    speaks to the query itself or another claim from that chunk does. What was drawn from nowhere is
    for groundedness to blame; headings and words about missing sources are neither.
    """
    astray = {claim.start for claim in _astray(query, said, known, relevance, reading)}
    ends = {claim.end: claim.start for claim in said}
    kept = lost = 0
    for start, end in sentences(answer):
        size = len(content(answer[start:end]))
        if end in ends:
            wanders = ends[end] in astray
        else:
            wanders = _courteous(answer[start:end])
            if not wanders:
                continue
        kept, lost = (kept, lost + size) if wanders else (kept + size, lost)
    return kept / (kept + max(0, lost - FREE)) if kept else 1.0


def _courteous(text: str) -> bool:
    """Whether a sentence that claims nothing is small talk; not so a heading, a refusal, a question in general."""
    text = text.strip(" *_\"'")
    if text[:1] == "#" or text[-1:] == ":" or text[-1:].isalnum() or refuses(text):
        return False
    return personal(text) or not text.endswith("?")


def _astray(
    query: str,
    said: Sequence[Claim],
    known: Sequence[Entailment],
    relevance: Sequence[float],
    reading: Reading,
) -> list[Claim]:
    """The claims that were drawn from chunks on something else."""
    bar = NEAR * max(relevance, default=0.0)
    sources = [drawn(seen) for seen in known]
    far = [bool(places) and max(relevance[place] for place in places) < bar for places in sources]
    if not any(far):
        return []
    parts = aspects(query)
    near: set[int] = set()
    for claim, places in zip(said, sources, strict=True):
        passage = [Passage("claim", claim.text)]
        if places and any(reading.coverage(part, passage)[0].value >= OWN for part in parts):
            near.update(places)
    return [
        claim
        for claim, places, away in zip(said, sources, far, strict=False)
        if away and near.isdisjoint(places)
    ]
