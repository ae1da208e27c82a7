"""Telling traces: those that show a fault best, with the chunk or claim that changed."""

from __future__ import annotations

from ragfault.findings.changes import Fault, Mover, Telling
from ragfault.findings.framing import Frame
from ragfault.records import Trace, Verdicts
from ragfault.rules import RELEVANT, stands

__all__ = ["telling"]

LONG = 400
"""Characters of a text that are shown."""

Seen = tuple[Trace, Verdicts]


def telling(side: Frame, fault: Fault) -> tuple[Telling, ...]:
    """The traces on which the first evidence of a fault fell most, with what stood there before and what after."""
    change = fault.evidence[0]
    movers = {mover.trace: mover for mover in change.drops}
    new = _open(side, 1, list(movers))
    partners = side.partners(list(movers))
    old = _open(side, 0, list(partners.values()))
    found = []
    for name, mover in movers.items():
        if name in new and partners.get(name) in old:
            before, after = _shown(fault, old[partners[name]], new[name])
            found.append(_told(change.metric, mover, before, after))
    return tuple(found)


def _open(side: Frame, at: int, ids: list[str]) -> dict[str, Seen]:
    run = side.runs[at]
    return {t.id: (t, v) for t, v in zip(run.traces(ids), run.verdicts(ids), strict=True)}


def _told(metric: str, mover: Mover, before: str | None, after: str | None) -> Telling:
    return Telling(
        trace=mover.trace,
        query=mover.query,
        metric=metric,
        baseline=mover.baseline,
        candidate=mover.candidate,
        before=_clip(before),
        after=_clip(after),
    )


def _shown(fault: Fault, old: Seen, new: Seen) -> tuple[str | None, str | None]:
    """What to show of a trace: chunks for retrieval, claims for grounding, quotes for citations, else answers."""
    if fault.layer == "retrieval":
        return _lost_chunk(old, new), _first_chunk(new)
    if fault.branch.startswith("2"):
        return _claim(old, good=True), _claim(new, good=False)
    if fault.branch.startswith("5"):
        return _quote(old, good=True), _quote(new, good=False)
    return old[0].answer, new[0].answer


def _lost_chunk(old: Seen, new: Seen) -> str | None:
    """The best chunk of the baseline that the candidate did not retrieve."""
    there = {chunk.text for chunk in new[0].chunks or ()}
    chunks = old[0].chunks or ()
    gold = old[0].gold.chunks if old[0].gold else {}
    seen = old[1].chunk or ()
    ranked = sorted(
        (gold.get(chunk.id, 0.0), seen[at].relevance if at < len(seen) else 0.0, -at, chunk.text)
        for at, chunk in enumerate(chunks)
        if chunk.text not in there
    )
    return ranked[-1][-1] if ranked else None


def _first_chunk(new: Seen) -> str | None:
    """The first chunk of the candidate that is not relevant, else its first."""
    chunks = new[0].chunks or ()
    for chunk, verdict in zip(chunks, new[1].chunk or (), strict=False):
        if verdict.level not in RELEVANT:
            return chunk.text
    return chunks[0].text if chunks else None


def _claim(seen: Seen, *, good: bool) -> str | None:
    """The first claim that is (not) supported, with the reason; else the answer."""
    for claim in seen[1].claim or ():
        if (claim.support in ("supported", "inferred")) is good:
            reason = f" ({claim.support}{f': {claim.reason}' if claim.reason else ''})" if not good else ""
            return f"{claim.claim}{reason}"
    return seen[0].answer


def _quote(seen: Seen, *, good: bool) -> str | None:
    """The first citation that does (not) hold."""
    trace, verdicts = seen
    texts = {chunk.id: chunk.text for chunk in trace.chunks or ()}
    for at, citation in enumerate(trace.citations or ()):
        held = verdicts.citation is None or at >= len(verdicts.citation) or verdicts.citation[at].supports
        quoted = citation.quote is None or stands(citation.quote, texts.get(citation.chunk, ""))
        if (held and quoted) is good:
            return f"“{citation.quote or citation.claim or ''}” → {citation.chunk}"
    return None


def _clip(text: str | None) -> str | None:
    return text if text is None or len(text) <= LONG else text[: LONG - 1] + "…"
