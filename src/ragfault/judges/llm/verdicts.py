"""Verdicts: from what a model said by our ids to the verdicts on a trace, in the order of the trace."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ragfault.judges.assemble import level, overlap
from ragfault.judges.lens import Bars, Lens
from ragfault.judges.lexical import Lexical
from ragfault.judges.llm.conversing import BELOW, MENDED
from ragfault.judges.llm.matter import Matter, Shown
from ragfault.judges.llm.merging import Settled
from ragfault.judges.llm.shapes import ClaimItem
from ragfault.judges.queries import aspects, missing
from ragfault.records import (
    AnswerVerdict,
    Aspect,
    ChunkVerdict,
    CitationVerdict,
    ClaimVerdict,
    Evidence,
    FactVerdict,
    Harm,
    RecallVerdict,
    Support,
    TruthVerdict,
    UseVerdict,
)
from ragfault.rules import TOLERANCE
from ragfault.text import content
from ragfault.text.quotes import quoted

__all__ = ["failures", "generated", "retrieved"]

PART = {
    "chunks": "chunk",
    "statements": "recall",
    "claims": "claim",
    "used": "use",
    "citations": "citation",
    "facts": "fact",
    "aspects": "answer",
    "relevance": "answer",
    "refused": "answer",
    "questions": "answer",
    "noncommittal": "answer",
}
"""Field → part of the verdicts, where they have other names."""
DOUBT = (1 / 3, 2 / 3)
"""A probability within these bounds is unsure: the model is not far from saying the opposite."""
EMPTY = "the chunk is empty"


def failures(*said: Settled) -> dict[str, str]:
    """Part → why some of it is lost, with the ids of what is."""
    told: dict[str, dict[str, None]] = {}
    for one in said:
        for name, reasons in one.lost.items():
            for reason in dict.fromkeys(reasons.values()):
                ids = ", ".join(key for key, why in reasons.items() if why == reason and key)
                text = (
                    f"no verdict on {name}{' ' if ids else ''}{ids} {MENDED}" if reason == MENDED else reason
                )
                told.setdefault(PART.get(name, name), {})[text] = None
    return {part: "; ".join(reasons) for part, reasons in told.items()}


# --- what was retrieved ----------------------------------------------------------------------------


def retrieved(matter: Matter, said: Settled, lens: Lens) -> dict[str, Any]:
    """The parts that are made from query and chunks. Where nothing was retrieved no model is needed."""
    if matter.chunks is None:
        return {}
    parts: dict[str, Any] = {"chunk": _chunk(matter, said, lens), "missing": _missing(said)}
    if not matter.chunks:
        parts["missing"] = missing(matter.trace.query, (), Lexical().read())
    if matter.statements:
        each = [_recall(matter, said, place) for place in range(len(matter.statements))]
        parts["recall"] = max(each, key=lambda one: sum(item.covered for item in one) / max(1, len(one)))
    return parts


def _missing(said: Settled) -> tuple[str, ...] | None:
    """What is missing, each thing once; None where that is lost."""
    found = said.free.get("missing")
    return None if found is None else tuple(dict.fromkeys(one for one in found if one))


def _chunk(matter: Matter, said: Settled, lens: Lens) -> tuple[ChunkVerdict, ...]:
    held = said.items.get("chunks", {})
    found = []
    for one in matter.chunks or ():
        if one.blank and not one.unseen:
            found.append(
                ChunkVerdict(chunk=one.chunk.id, relevance=0.0, level=level(0.0, lens.levels), reason=EMPTY)
            )
        elif item := held.get(one.name):
            found.append(
                ChunkVerdict(
                    chunk=one.chunk.id,
                    relevance=item.relevance,
                    level=level(item.relevance, lens.levels),
                    reason=item.reason or None,
                    spread=said.spread.get(one.name),
                )
            )
    return tuple(found)


def _recall(matter: Matter, said: Settled, place: int) -> tuple[RecallVerdict, ...]:
    """What is expected by the facts or by one of the references."""
    held = said.items.get("statements", {})
    found = []
    for one in matter.statements[place]:
        if not matter.seen:
            found.append(RecallVerdict(statement=one.text, covered=False))
        elif item := held.get(one.name):
            stretches = _evidence(matter, item.chunk, item.quote) or ()
            found.append(
                RecallVerdict(
                    statement=one.text, covered=item.covered, evidence=stretches if item.covered else ()
                )
            )
    return tuple(found)


# --- what was generated ----------------------------------------------------------------------------


def generated(matter: Matter, said: Settled, lens: Lens) -> dict[str, Any]:
    """The parts that are made from the answer. Of an answer without a word no model is asked."""
    trace = matter.trace
    if trace.answer is None:
        return {}
    blank = not trace.answer.strip()
    parts: dict[str, Any] = {
        "answer": _answer(matter, said, blank=blank),
        "harm": () if blank else _harm(said),
    }
    if matter.chunks is not None:
        parts["claim"] = _claims(matter, said, lens.support)
        parts["use"] = _use(matter, said, blank=blank)
        if trace.citations is not None:
            parts["citation"] = _citation(matter, said, blank=blank)
    if parts["answer"] is not None and parts.get("claim") is not None:
        parts["answer"] = _grounded(parts["answer"], parts["claim"], len(matter.claims))
    if trace.facts is not None:
        parts["fact"] = _fact(matter, said, blank=blank)
    if trace.facts or trace.references:
        parts["truth"] = _truth(matter, said)
    if trace.references:
        reading = Lexical().read(trace.query)
        parts["similarity"] = max(reading.similarity(trace.answer, one) for one in trace.references)
    return parts


def _claims(matter: Matter, said: Settled, bars: Bars) -> tuple[ClaimVerdict, ...]:
    held = said.items.get("claims", {})
    found = []
    for number, claim in enumerate(matter.claims, 1):
        plain: dict[str, Any] = {"claim": claim.text, "start": claim.start, "end": claim.end}
        if not matter.chunks:
            found.append(ClaimVerdict(**plain, support="unsupported", p=0.0, reason="nothing was retrieved"))
        elif item := held.get(f"s{number}"):
            support, p, barred = _borne(item, bars)
            stretches = _evidence(matter, item.chunk, item.quote)
            found.append(
                ClaimVerdict(
                    **plain,
                    support=support,
                    p=p,
                    unsure=DOUBT[0] <= p <= DOUBT[1],
                    evidence=stretches or (),
                    unquoted=stretches is None,
                    reason=barred or item.reason or None,
                    spread=said.spread.get(f"s{number}"),
                )
            )
    return tuple(found)


def _borne(item: ClaimItem, bars: Bars) -> tuple[Support, float, str]:
    """What is said of a claim, lowered where its probability is below a bar of the lens, with the reason."""
    if item.support not in {"supported", "inferred"}:
        return item.support, item.p, ""
    if item.p < bars.inferred:
        return (
            "unsupported",
            min(item.p, BELOW),
            f"p = {item.p:.2f} is below {bars.inferred:g}, the bar of the lens",
        )
    if item.support == "supported" and item.p < bars.supported:
        return "inferred", item.p, f"p = {item.p:.2f} is below {bars.supported:g}, the bar of the lens"
    return item.support, item.p, ""


def _use(matter: Matter, said: Settled, *, blank: bool) -> tuple[UseVerdict, ...]:
    held = said.items.get("used", {})
    told = frozenset(word for claim in matter.claims for word in content(claim.text))
    return tuple(
        UseVerdict(
            chunk=one.chunk.id,
            used=one.name in held and held[one.name].used,
            overlap=overlap(one.chunk.text, told),
        )
        for one in matter.chunks or ()
        if one.name in held or blank or (one.blank and not one.unseen)
    )


def _citation(matter: Matter, said: Settled, *, blank: bool) -> tuple[CitationVerdict, ...]:
    """Whether each cited chunk supports its claim; one that was not retrieved, or stands by nothing, does not."""
    held = said.items.get("citations", {})
    found = []
    if blank:
        return tuple(
            CitationVerdict(chunk=one.chunk, claim=one.claim or "", supports=False, p=0.0)
            for one in matter.trace.citations or ()
        )
    for one in matter.cited:
        chunk = one.citation.chunk
        if one.chunk is None or not one.claim:
            found.append(CitationVerdict(chunk=chunk, claim=one.claim, supports=False, p=0.0))
        elif item := held.get(one.name):
            unsure = DOUBT[0] <= item.p <= DOUBT[1]
            found.append(
                CitationVerdict(chunk=chunk, claim=one.claim, supports=item.supports, p=item.p, unsure=unsure)
            )
    return tuple(found)


def _fact(matter: Matter, said: Settled, *, blank: bool) -> tuple[FactVerdict, ...]:
    held = said.items.get("facts", {})
    return tuple(
        FactVerdict(fact=one.text, present=False)
        if blank
        else FactVerdict(
            fact=one.text, present=held[one.name].present, contradicted=held[one.name].contradicted
        )
        for one in matter.facts
        if blank or one.name in held
    )


def _truth(matter: Matter, said: Settled) -> tuple[TruthVerdict, ...]:
    held = said.items.get("truth", {})
    return tuple(
        TruthVerdict(claim=claim.text, status=held[name].status)
        for number, claim in enumerate(matter.claims, 1)
        if (name := f"s{number}") in held
    )


def _harm(said: Settled) -> tuple[Harm, ...] | None:
    if "harm" not in said.free:
        return None
    return tuple(Harm(category=one.category, score=one.score) for one in said.free["harm"] if one.score > 0)


def _answer(matter: Matter, said: Settled, *, blank: bool) -> AnswerVerdict | None:
    """How the answer stands to the query; none where its relevance is lost."""
    if blank:
        asked = aspects(matter.trace.query)
        return AnswerVerdict(relevance=0.0, aspects=tuple(Aspect(text=one, answered=False) for one in asked))
    if "relevance" not in said.free:
        return None
    return AnswerVerdict(
        relevance=said.free["relevance"],
        aspects=tuple(
            Aspect(text=one.text, answered=one.answered) for one in said.free.get("aspects", ()) if one.text
        ),
        refused=said.free.get("refused", False),
        spread=said.spread.get("relevance"),
    )


def _grounded(answer: AnswerVerdict, seen: tuple[ClaimVerdict, ...], count: int) -> AnswerVerdict:
    """An answer is as probable as its least probable claim; what claims nothing is grounded.

    That is not known where a claim is lost.
    """
    if len(seen) < count:
        return answer
    return replace(answer, grounded=min((one.p for one in seen if one.p is not None), default=1.0))


# --- evidence --------------------------------------------------------------------------------------


def _evidence(matter: Matter, name: str, quote: str) -> tuple[Evidence, ...] | None:
    """Where the quoted words stand: in the chunk that was named, else in another; None where they stand nowhere."""
    if not quote.strip():
        return ()
    named = [one for one in matter.seen if one.name == name.strip().lower()]
    for one in (*named, *(one for one in matter.seen if one not in named)):
        if spans := _stretches(one, quote):
            return tuple(Evidence(chunk=one.chunk.id, start=start, end=end) for start, end in spans)
    for one in named:
        if one.image:
            return (Evidence(chunk=one.chunk.id, start=0, end=len(one.chunk.text)),)
    return None


def _stretches(shown: Shown, quote: str) -> tuple[tuple[int, int], ...]:
    """The stretches of a chunk's own text; all of it where the words stand only in the table made of it."""
    spans = quoted(quote, shown.chunk.text, TOLERANCE)
    if not spans and shown.chunk.kind in {"table", "record"} and quoted(quote, shown.text, TOLERANCE):
        return ((0, len(shown.chunk.text)),)
    return spans
