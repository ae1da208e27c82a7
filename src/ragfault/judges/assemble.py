"""Assembly: all verdicts on a trace, made from relevance and entailment alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ragfault.judges.answers import answered, citing, present
from ragfault.judges.claims import Claim, claims
from ragfault.judges.focus import drawn, focus
from ragfault.judges.lens import Levels
from ragfault.judges.passages import read
from ragfault.judges.queries import missing
from ragfault.judges.rarity import rarity
from ragfault.judges.scorer import Entailment, Group, Passage, Reading, Scorer
from ragfault.judges.talk import personal
from ragfault.judges.truth import keys, truth
from ragfault.ports import PARTS, Part
from ragfault.records import (
    AnswerVerdict,
    ChunkVerdict,
    Citation,
    CitationVerdict,
    ClaimVerdict,
    FactVerdict,
    Level,
    RecallVerdict,
    Trace,
    UseVerdict,
    Verdicts,
)
from ragfault.text import content, sentences

__all__ = ["OFFERS", "assemble", "level", "meant", "overlap", "statements", "textless"]

OFFERS: frozenset[Part] = frozenset(PARTS) - {"harm"}
HOLDS = ("supported", "inferred")
LEVELS = Levels()
OWN = 0.3
"""A chunk that a claim is drawn from is used where it holds so much of what the claim says beyond the query."""
MEANT = 0.6
"""Words as general as small talk are meant where one sentence of the chunks says so much of them."""


def assemble(trace: Trace, scorer: Scorer, levels: Levels = LEVELS) -> Verdicts:
    """All verdicts on one trace; what a scorer cannot cope with costs this trace alone."""
    try:
        parts = _parts(trace, scorer, levels)
    except Exception as error:  # noqa: BLE001 - the one door: a fault in one trace must not take the batch
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return Verdicts(trace=trace.id, judge=scorer.fingerprint, failures={"*": reason})
    return Verdicts(trace=trace.id, judge=scorer.fingerprint, **parts)


def level(relevance: float, levels: Levels = LEVELS) -> Level:
    """Relevance in words, by the levels of a lens.

    >>> level(0.75), level(0.74), level(0.3), level(0.1)
    ('high', 'medium', 'low', 'none')
    """
    return (
        "high"
        if relevance >= levels.high
        else "medium"
        if relevance >= levels.medium
        else "low"
        if relevance >= levels.low
        else "none"
    )


def _parts(trace: Trace, scorer: Scorer, levels: Levels) -> dict[str, Any]:
    """Every part whose inputs are there."""
    chunks = [Passage(chunk.id, chunk.text) for chunk in trace.chunks or ()]
    reading = scorer.read(trace.query)
    parts: dict[str, Any] = {}
    known: list[Entailment] = []
    said = claims(trace.answer, meant(trace.query, chunks, reading)) if trace.answer is not None else []
    reading.expect(_groups(trace, chunks, said))
    if trace.chunks is not None and not textless(chunks):
        parts["chunk"] = _chunk(trace.query, chunks, reading, levels)
        parts["missing"] = missing(trace.query, chunks, reading)
        if trace.facts is not None or trace.references:
            parts["recall"] = _recall(trace, chunks, reading)
        if trace.answer is not None:
            known = list(reading.entailment([claim.text for claim in said], chunks))
            parts["claim"] = tuple(map(_claim, said, known))
            parts["use"] = _use(trace.query, chunks, said, known)
        if trace.citations is not None:
            parts["citation"] = _citation(trace, chunks, reading)
    if trace.answer is not None:
        verdict = _answer(trace.query, trace.answer, chunks, said, known, parts.get("chunk", ()), reading)
        if "claim" in parts:
            sure = reading.grounded(trace.answer, [claim.text for claim in said], known)
            verdict = replace(verdict, grounded=sure)
        parts["answer"] = verdict
        if trace.facts is not None:
            parts["fact"] = _fact(trace.facts, trace.answer, trace.query, reading)
        if trace.facts or trace.references:
            parts["truth"] = truth(trace.query, said, _known(trace), reading)
        if trace.references:
            parts["similarity"] = max(reading.similarity(trace.answer, one) for one in trace.references)
    return parts


def _groups(trace: Trace, chunks: Sequence[Passage], said: Sequence[Claim]) -> list[Group]:
    """What will be held against what."""
    groups: list[Group] = []
    texts = [claim.text for claim in said]
    if trace.chunks is not None and not textless(chunks):
        groups += [(texts, chunks)] + [(stated, chunks) for stated in _stated(trace)]
        groups += [([claim], [chunk]) for _, claim, chunk in _cited(trace, chunks) if chunk and claim]
    if trace.answer is not None:
        groups.append((trace.facts or (), [Passage("answer", trace.answer)]))
        groups.append((texts, keys(_known(trace))))
    return groups


def _known(trace: Trace) -> tuple[str, ...]:
    """What is known to be right."""
    return (*trace.references, *(trace.facts or ()))


def textless(chunks: Sequence[Passage]) -> bool:
    """Whether something was retrieved and none of its text is there, as in a TREC run: nothing can be judged."""
    return bool(chunks) and not any(chunk.text.strip() for chunk in chunks)


# --- from query and chunks -------------------------------------------------------------------------


def _chunk(
    query: str, chunks: Sequence[Passage], reading: Reading, levels: Levels
) -> tuple[ChunkVerdict, ...]:
    return tuple(
        ChunkVerdict(
            chunk=chunk.name, relevance=seen.value, level=level(seen.value, levels), reason=seen.reason
        )
        for chunk, seen in zip(chunks, reading.relevance(query, chunks), strict=True)
    )


def _recall(trace: Trace, chunks: Sequence[Passage], reading: Reading) -> tuple[RecallVerdict, ...]:
    """Expected facts, else the sentences of the reference that the chunks cover best."""
    each = [_covered(stated, chunks, reading) for stated in _stated(trace)]
    return max(each, key=lambda seen: sum(one.covered for one in seen) / max(1, len(seen)))


def _stated(trace: Trace) -> list[Sequence[str]]:
    """Expected facts, else the sentences of each reference."""
    return [trace.facts] if trace.facts is not None else [statements(one) for one in trace.references]


def _covered(
    statements: Sequence[str], chunks: Sequence[Passage], reading: Reading
) -> tuple[RecallVerdict, ...]:
    return tuple(
        RecallVerdict(statement=statement, covered=seen.support in HOLDS, evidence=seen.evidence)
        for statement, seen in zip(statements, reading.entailment(statements, chunks), strict=True)
    )


def statements(reference: str) -> list[str]:
    """The sentences of a reference that say something."""
    spans = (reference[start:end] for start, end in sentences(reference))
    return [span for span in spans if content(span)]


# --- from the answer -------------------------------------------------------------------------------


def meant(query: str, chunks: Sequence[Passage], reading: Reading) -> Callable[[str], bool]:
    """Whether a sentence that sounds like small talk is what the query or a chunk is about."""

    def subject(text: str) -> bool:
        if not personal(text) and reading.coverage(query, [Passage("claim", text)])[0].value >= MEANT:
            return True
        seen = reading.entailment([text], chunks)[0] if chunks else None
        return seen is not None and (
            seen.support == "supported" or (max(seen.share, default=0.0) >= MEANT and len(content(text)) > 2)
        )

    return subject


def _answer(
    query: str,
    answer: str,
    chunks: Sequence[Passage],
    said: Sequence[Claim],
    known: Sequence[Entailment],
    seen: Sequence[ChunkVerdict],
    reading: Reading,
) -> AnswerVerdict:
    """How the answer stands to the query: what it covers of it, times how much of it keeps to it."""
    relevance = [one.relevance for one in seen]
    verdict = answered(query, answer, _evidence(known, chunks), max(relevance, default=1.0), reading)
    if verdict.refused or not verdict.relevance:
        return verdict
    return replace(
        verdict, relevance=verdict.relevance * focus(query, answer, said, known, relevance, reading)
    )


def _claim(claim: Claim, seen: Entailment) -> ClaimVerdict:
    return ClaimVerdict(
        claim=claim.text,
        start=claim.start,
        end=claim.end,
        support=seen.support,
        p=seen.p,
        unsure=seen.unsure,
        evidence=seen.evidence,
        reason=seen.reason,
    )


def _use(
    query: str, chunks: Sequence[Passage], said: Sequence[Claim], known: Sequence[Entailment]
) -> tuple[UseVerdict, ...]:
    """A chunk is used where a claim is drawn from it, beyond the words of the query."""
    asked = frozenset(content(query))
    told = [frozenset(content(claim.text)) for claim in said]
    whole = frozenset().union(*told)
    sources = [(words - asked, drawn(seen)) for words, seen in zip(told, known, strict=True)]
    verdicts = []
    for place, chunk in enumerate(chunks):
        held = frozenset().union(*(sentence.content for sentence in read(chunk.text)))
        used = any(place in places and (not own or _share(own & held, own) >= OWN) for own, places in sources)
        verdicts.append(UseVerdict(chunk=chunk.name, used=used, overlap=overlap(chunk.text, whole)))
    return tuple(verdicts)


def overlap(text: str, told: frozenset[str]) -> float:
    """The share of the best sentence of a chunk whose words are among those that were told."""
    return max(
        (
            _share(shared, one.content)
            for one in read(text)
            if len(one.content) > 2 and len(shared := one.content & told) * 3 > len(one.content)
        ),
        default=0.0,
    )


def _share(part: frozenset[str], whole: frozenset[str]) -> float:
    """The share of the weight of some words."""
    if not part:
        return 0.0
    table = rarity()
    return min(1.0, table.total(part) / table.total(whole))


def _evidence(known: Sequence[Entailment], chunks: Sequence[Passage]) -> str:
    """The best stretches of the chunks for the claims of an answer."""
    texts = {chunk.name: chunk.text for chunk in chunks}
    spans = {
        (one.chunk, one.start, one.end): None
        for seen in known
        if seen.support in HOLDS
        for one in seen.evidence[:1]
    }
    return " ".join(texts[name][start:end] for name, start, end in spans)


def _fact(facts: Sequence[str], answer: str, query: str, reading: Reading) -> tuple[FactVerdict, ...]:
    """Expected facts, looked for in the answer."""
    seen = reading.entailment(facts, [Passage("answer", answer)])
    return tuple(
        FactVerdict(
            fact=fact,
            present=present(fact, answer, query) or one.support in HOLDS,
            contradicted=one.support == "contradicted",
        )
        for fact, one in zip(facts, seen, strict=True)
    )


def _citation(trace: Trace, chunks: Sequence[Passage], reading: Reading) -> tuple[CitationVerdict, ...]:
    """Whether each cited chunk supports the claim it stands by; a chunk that is not there supports nothing."""
    verdicts = []
    for citation, claim, chunk in _cited(trace, chunks):
        seen = reading.entailment([claim], [chunk])[0] if chunk and claim else None
        verdicts.append(
            CitationVerdict(
                chunk=citation.chunk,
                claim=claim,
                supports=seen is not None and seen.support in HOLDS,
                p=seen.p if seen else 0.0,
                unsure=seen is not None and seen.unsure,
            )
        )
    return tuple(verdicts)


def _cited(trace: Trace, chunks: Sequence[Passage]) -> list[tuple[Citation, str, Passage | None]]:
    """Each citation with the claim it stands by and the chunk it names."""
    named = {chunk.name: chunk for chunk in chunks}
    return [
        (
            one,
            one.claim or citing(one, place, trace.answer or "") or one.quote or "",
            named.get(one.chunk),
        )
        for place, one in enumerate(trace.citations or ())
    ]
