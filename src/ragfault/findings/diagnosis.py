"""Diagnosis: what is wrong with one trace, read off its verdicts, with what mends it."""

from __future__ import annotations

from collections.abc import Iterator

from ragfault.findings.kinds import KINDS
from ragfault.findings.records import Diagnosis, Kind, Problem
from ragfault.records import AnswerVerdict, Chunk, ClaimVerdict, Evidence, Trace, Verdicts
from ragfault.rules import RELEVANT, covered, stands

__all__ = ["diagnose"]

SUPPORTED = ("supported", "inferred")

LOW = 0.5
"""Below this, the relevance of an answer and each of the triad's parts is low."""

ORDER = {kind: at for at, kind in enumerate(KINDS)}


def diagnose(trace: Trace, verdicts: Verdicts) -> Diagnosis:
    """What is wrong with a trace, by the verdicts on it.

    What the judge did not look at is not a problem. A chunk is irrelevant at level none. Where the answer
    refuses, what it leaves out is not held against it; a refusal is wrong where the chunks cover what was asked
    (as the metric wrong_refusal has it). An expected fact that the chunks do not hold is the retriever's
    (uncovered_statement), one that they hold, or may hold, and the answer lacks is the generator's (absent_fact).

    >>> from ragfault.records import ChunkVerdict
    >>> trace = Trace(id="1", query="When?", chunks=(Chunk(id="a", text="On dogs."), Chunk(id="b", text="At noon.")))
    >>> bad = ChunkVerdict(chunk="a", relevance=0.1, level="none")
    >>> good = ChunkVerdict(chunk="b", relevance=0.9, level="high")
    >>> [(p.kind, p.chunk) for p in diagnose(trace, Verdicts(trace="1", chunk=(bad, good))).problems]
    [('irrelevant_chunk', 'a')]
    """
    found = [
        *_pipeline(trace),
        *_retrieval(trace, verdicts),
        *_claims(verdicts),
        *_answer(trace, verdicts),
        *_citations(trace, verdicts),
    ]
    found.sort(key=lambda problem: ORDER[problem.kind])
    return Diagnosis(
        trace=trace.id, query=trace.query, problems=tuple(found), checked=_checked(trace, verdicts)
    )


def _problem(
    kind: Kind,
    text: str,
    reason: str | None = None,
    *,
    chunk: str | None = None,
    start: int | None = None,
    end: int | None = None,
    evidence: tuple[Evidence, ...] = (),
) -> Problem:
    meaning = KINDS[kind]
    return Problem(
        kind=kind,
        layer=meaning.layer,
        text=text,
        reason=reason,
        chunk=chunk,
        start=start,
        end=end,
        evidence=evidence,
        remedies=meaning.steps,
    )


def _pipeline(trace: Trace) -> Iterator[Problem]:
    if trace.error is not None:
        yield _problem("pipeline_error", trace.error)


def _retrieval(trace: Trace, verdicts: Verdicts) -> Iterator[Problem]:
    if trace.chunks is not None and not trace.chunks:
        yield _problem("nothing_retrieved", trace.query, "the retriever came back with nothing")
    seen = list(zip(trace.chunks or (), verdicts.chunk or (), strict=False))
    if seen and not any(verdict.level in RELEVANT for _, verdict in seen):
        yield _problem("nothing_relevant", trace.query, f"none of {len(seen)} chunks is relevant")
    for chunk, verdict in seen:
        if verdict.level == "none":
            reason = verdict.reason or f"relevance {verdict.relevance:.2f}"
            yield _problem("irrelevant_chunk", chunk.text, reason, chunk=chunk.id)
    for item in verdicts.missing or ():
        yield _problem("missing_context", item, "no chunk holds it")
    for statement in verdicts.recall or ():
        if not statement.covered:
            yield _problem("uncovered_statement", statement.statement, "no chunk supports it")


def _claims(verdicts: Verdicts) -> Iterator[Problem]:
    truths = verdicts.truth or ()
    for at, claim in enumerate(verdicts.claim or ()):
        if claim.support == "contradicted":
            yield _claim("contradicted_claim", claim, claim.reason or "the chunks say otherwise")
        elif claim.support == "unsupported":
            yield _claim("unsupported_claim", claim, claim.reason or "no chunk supports it")
        elif at < len(truths) and truths[at].status == "contradicted":
            yield _claim("false_claim", claim, "the chunks support it, the answer key contradicts it")


def _claim(kind: Kind, claim: ClaimVerdict, reason: str) -> Problem:
    return _problem(kind, claim.claim, reason, start=claim.start, end=claim.end, evidence=claim.evidence)


def _answer(trace: Trace, verdicts: Verdicts) -> Iterator[Problem]:
    if not trace.answer:
        if trace.answer is not None:
            yield _problem("empty_answer", trace.query, "the answer is empty")
        return
    for fact in verdicts.fact or ():
        if fact.contradicted:
            yield _problem("contradicted_fact", fact.fact, "the answer says otherwise")
    known = covered(trace, verdicts)
    if verdicts.answer is not None and verdicts.answer.refused:
        if known:
            yield _problem("wrong_refusal", trace.answer, "the chunks cover what was asked")
        return
    yield from _facts(verdicts)
    if verdicts.answer is not None:
        if known is False:
            yield _problem("missed_refusal", trace.answer, "the chunks do not cover what was asked")
        yield from _given(trace, verdicts, verdicts.answer)


def _given(trace: Trace, verdicts: Verdicts, answer: AnswerVerdict) -> Iterator[Problem]:
    """What is wrong with an answer that does not refuse."""
    for aspect in answer.aspects:
        if not aspect.answered:
            yield _problem("unanswered_aspect", aspect.text, "the answer does not speak to it")
    if answer.relevance < LOW:
        yield _problem("irrelevant_answer", trace.answer or "", f"relevance {answer.relevance:.2f}")
        if _low(verdicts):
            yield _problem("all_low", trace.query, "chunks, grounding and answer are all poor")


def _facts(verdicts: Verdicts) -> Iterator[Problem]:
    """The expected facts that the answer lacks, though the chunks hold them for all that is known."""
    lacking = {item.statement for item in verdicts.recall or () if not item.covered}
    for fact in verdicts.fact or ():
        if not fact.present and not fact.contradicted and fact.fact not in lacking:
            yield _problem("absent_fact", fact.fact, "the answer does not state it")


def _low(verdicts: Verdicts) -> bool:
    """Whether the chunks and the claims are poor as well."""
    if not verdicts.chunk or not verdicts.claim:
        return False
    relevance = sum(chunk.relevance for chunk in verdicts.chunk) / len(verdicts.chunk)
    grounded = sum(claim.support in SUPPORTED for claim in verdicts.claim) / len(verdicts.claim)
    return relevance < LOW and grounded < LOW


def _citations(trace: Trace, verdicts: Verdicts) -> Iterator[Problem]:
    chunks: dict[str, list[Chunk]] = {}
    for chunk in trace.chunks or ():
        chunks.setdefault(chunk.id, []).append(chunk)
    for at, citation in enumerate(trace.citations or ()):
        quote = (citation.quote or "").strip()
        text = quote or citation.claim or citation.chunk
        if trace.chunks is not None and citation.chunk not in chunks:
            yield _problem("bad_quote", text, "the chunk it names was not retrieved", chunk=citation.chunk)
            continue
        named = chunks.get(citation.chunk, ())
        if quote and named and not any(stands(quote, chunk.text) for chunk in named):
            yield _problem("bad_quote", text, "the chunk it names does not say so", chunk=citation.chunk)
        verdict = verdicts.citation[at] if verdicts.citation and at < len(verdicts.citation) else None
        if verdict is not None and not verdict.supports:
            yield _problem(
                "bad_citation", verdict.claim, "the cited chunk does not support it", chunk=citation.chunk
            )


def _checked(trace: Trace, verdicts: Verdicts) -> int:
    """How many things were looked at."""
    parts = (
        trace.citations,
        verdicts.chunk,
        verdicts.missing,
        verdicts.recall,
        verdicts.claim,
        verdicts.fact,
        verdicts.answer and verdicts.answer.aspects,
    )
    single = (trace.chunks is not None and not trace.chunks, trace.error, trace.answer is not None)
    return sum(len(part) for part in parts if part) + sum(bool(item) for item in single)
