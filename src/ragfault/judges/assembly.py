"""Assemble all verdicts on a trace from relevance and entailment alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ragfault.judges.checks.answers import (
    build_reference_passages,
    contains_fact,
    judge_answer,
    judge_truth,
    locate_citing_sentence,
    measure_focus,
    select_source_chunks,
)
from ragfault.judges.checks.claims import Claim, extract_claims, is_personal
from ragfault.judges.checks.lexicon import load_rarity
from ragfault.judges.checks.passages import Passage, split_passage
from ragfault.judges.checks.queries import list_missing
from ragfault.judges.domain.profile import RelevanceLevels
from ragfault.judges.scorer import Entailment, EntailmentGroup, Scorer, ScorerSession
from ragfault.protocols import VERDICT_KINDS, VerdictKind
from ragfault.records import (
    AnswerVerdict,
    ChunkVerdict,
    Citation,
    CitationVerdict,
    ClaimVerdict,
    FactVerdict,
    RecallVerdict,
    RelevanceLevel,
    Trace,
    UseVerdict,
    Verdicts,
)
from ragfault.text import split_content_words, split_sentences

OFFERED_PARTS: frozenset[VerdictKind] = frozenset(VERDICT_KINDS) - {"harm"}
SUPPORTING_LABELS = ("supported", "inferred")
DEFAULT_LEVELS = RelevanceLevels()
MIN_OWN_SHARE = 0.3
"""A chunk that a claim is drawn from is used where it holds so much of what the claim says beyond the query."""
MIN_TOPIC_COVERAGE = 0.6
"""Words as general as small talk are meant where one sentence of the chunks says so much of them."""


def assemble_verdicts(trace: Trace, scorer: Scorer, levels: RelevanceLevels = DEFAULT_LEVELS) -> Verdicts:
    """All verdicts on one trace; what a scorer cannot cope with costs this trace alone."""
    try:
        parts = _assemble_parts(trace, scorer, levels)
    except Exception as error:  # noqa: BLE001 - the one door: a fault in one trace must not take the batch
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return Verdicts(trace=trace.id, judge=scorer.fingerprint, failures={"*": reason})
    return Verdicts(trace=trace.id, judge=scorer.fingerprint, **parts)


def grade_relevance(relevance: float, levels: RelevanceLevels = DEFAULT_LEVELS) -> RelevanceLevel:
    """Relevance in words, by the levels of a lens.

    >>> grade_relevance(0.75), grade_relevance(0.74), grade_relevance(0.3), grade_relevance(0.1)
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


def _assemble_parts(trace: Trace, scorer: Scorer, levels: RelevanceLevels) -> dict[str, Any]:
    """Every part whose inputs are there."""
    chunks = [Passage(chunk.id, chunk.text) for chunk in trace.chunks or ()]
    reading = scorer.open_session(trace.query)
    parts: dict[str, Any] = {}
    known: list[Entailment] = []
    said = (
        extract_claims(trace.answer, make_topic_check(trace.query, chunks, reading))
        if trace.answer is not None
        else []
    )
    reading.prefetch(_collect_groups(trace, chunks, said))
    if trace.chunks is not None and not lack_text(chunks):
        parts["chunk"] = _judge_chunks(trace.query, chunks, reading, levels)
        parts["missing"] = list_missing(trace.query, chunks, reading)
        if trace.facts is not None or trace.references:
            parts["recall"] = _judge_recall(trace, chunks, reading)
        if trace.answer is not None:
            known = list(reading.score_entailment([claim.text for claim in said], chunks))
            parts["claim"] = tuple(map(_build_claim_verdict, said, known))
            parts["use"] = _judge_use(trace.query, chunks, said, known)
        if trace.citations is not None:
            parts["citation"] = _judge_citations(trace, chunks, reading)
    if trace.answer is not None:
        verdict = _judge_focused_answer(
            trace.query, trace.answer, chunks, said, known, parts.get("chunk", ()), reading
        )
        if "claim" in parts:
            sure = reading.score_groundedness(trace.answer, [claim.text for claim in said], known)
            verdict = replace(verdict, grounded=sure)
        parts["answer"] = verdict
        if trace.facts is not None:
            parts["fact"] = _judge_facts(trace.facts, trace.answer, trace.query, reading)
        if trace.facts or trace.references:
            parts["truth"] = judge_truth(trace.query, said, _get_references(trace), reading)
        if trace.references:
            parts["similarity"] = max(
                reading.measure_similarity(trace.answer, one) for one in trace.references
            )
    return parts


def _collect_groups(
    trace: Trace, chunks: Sequence[Passage], claims: Sequence[Claim]
) -> list[EntailmentGroup]:
    """What will be held against what."""
    groups: list[EntailmentGroup] = []
    texts = [claim.text for claim in claims]
    if trace.chunks is not None and not lack_text(chunks):
        groups += [(texts, chunks)] + [(stated, chunks) for stated in _get_statements(trace)]
        groups += [
            ([claim], [chunk]) for _, claim, chunk in _resolve_citations(trace, chunks) if chunk and claim
        ]
    if trace.answer is not None:
        groups.append((trace.facts or (), [Passage("answer", trace.answer)]))
        groups.append((texts, build_reference_passages(_get_references(trace))))
    return groups


def _get_references(trace: Trace) -> tuple[str, ...]:
    """What is known to be right."""
    return (*trace.references, *(trace.facts or ()))


def lack_text(chunks: Sequence[Passage]) -> bool:
    """Whether something was retrieved and none of its text is there, as in a TREC run: nothing can be judged."""
    return bool(chunks) and not any(chunk.text.strip() for chunk in chunks)


# --- from query and chunks -------------------------------------------------------------------------


def _judge_chunks(
    query: str, chunks: Sequence[Passage], session: ScorerSession, levels: RelevanceLevels
) -> tuple[ChunkVerdict, ...]:
    return tuple(
        ChunkVerdict(
            chunk=chunk.name,
            relevance=seen.value,
            level=grade_relevance(seen.value, levels),
            reason=seen.reason,
        )
        for chunk, seen in zip(chunks, session.score_relevance(query, chunks), strict=True)
    )


def _judge_recall(
    trace: Trace, chunks: Sequence[Passage], session: ScorerSession
) -> tuple[RecallVerdict, ...]:
    """Expected facts, else the sentences of the reference that the chunks cover best."""
    each = [_judge_coverage(stated, chunks, session) for stated in _get_statements(trace)]
    return max(each, key=lambda seen: sum(one.covered for one in seen) / max(1, len(seen)))


def _get_statements(trace: Trace) -> list[Sequence[str]]:
    """Expected facts, else the sentences of each reference."""
    return [trace.facts] if trace.facts is not None else [split_statements(one) for one in trace.references]


def _judge_coverage(
    statements: Sequence[str], chunks: Sequence[Passage], session: ScorerSession
) -> tuple[RecallVerdict, ...]:
    return tuple(
        RecallVerdict(statement=statement, covered=seen.support in SUPPORTING_LABELS, evidence=seen.evidence)
        for statement, seen in zip(statements, session.score_entailment(statements, chunks), strict=True)
    )


def split_statements(reference: str) -> list[str]:
    """The sentences of a reference that say something."""
    spans = (reference[start:end] for start, end in split_sentences(reference))
    return [span for span in spans if split_content_words(span)]


# --- from the answer -------------------------------------------------------------------------------


def make_topic_check(query: str, chunks: Sequence[Passage], session: ScorerSession) -> Callable[[str], bool]:
    """Whether a sentence that sounds like small talk is what the query or a chunk is about."""

    def subject(text: str) -> bool:
        if (
            not is_personal(text)
            and session.score_coverage(query, [Passage("claim", text)])[0].value >= MIN_TOPIC_COVERAGE
        ):
            return True
        seen = session.score_entailment([text], chunks)[0] if chunks else None
        return seen is not None and (
            seen.support == "supported"
            or (max(seen.shares, default=0.0) >= MIN_TOPIC_COVERAGE and len(split_content_words(text)) > 2)
        )

    return subject


def _judge_focused_answer(
    query: str,
    answer: str,
    chunks: Sequence[Passage],
    claims: Sequence[Claim],
    entailments: Sequence[Entailment],
    chunk_verdicts: Sequence[ChunkVerdict],
    session: ScorerSession,
) -> AnswerVerdict:
    """How the answer stands to the query: what it covers of it, times how much of it keeps to it."""
    relevance = [one.relevance for one in chunk_verdicts]
    verdict = judge_answer(
        query, answer, _join_evidence(entailments, chunks), max(relevance, default=1.0), session
    )
    if verdict.refused or not verdict.relevance:
        return verdict
    return replace(
        verdict,
        relevance=verdict.relevance * measure_focus(query, answer, claims, entailments, relevance, session),
    )


def _build_claim_verdict(claim: Claim, entailment: Entailment) -> ClaimVerdict:
    return ClaimVerdict(
        claim=claim.text,
        start=claim.start,
        end=claim.end,
        support=entailment.support,
        p=entailment.p,
        unsure=entailment.unsure,
        evidence=entailment.evidence,
        reason=entailment.reason,
    )


def _judge_use(
    query: str, chunks: Sequence[Passage], claims: Sequence[Claim], entailments: Sequence[Entailment]
) -> tuple[UseVerdict, ...]:
    """A chunk is used where a claim is drawn from it, beyond the words of the query."""
    asked = frozenset(split_content_words(query))
    told = [frozenset(split_content_words(claim.text)) for claim in claims]
    whole = frozenset().union(*told)
    sources = [
        (words - asked, select_source_chunks(seen)) for words, seen in zip(told, entailments, strict=True)
    ]
    verdicts = []
    for place, chunk in enumerate(chunks):
        held = frozenset().union(*(sentence.content for sentence in split_passage(chunk.text)))
        used = any(
            place in places and (not own or _measure_share(own & held, own) >= MIN_OWN_SHARE)
            for own, places in sources
        )
        verdicts.append(
            UseVerdict(chunk=chunk.name, used=used, overlap=measure_chunk_overlap(chunk.text, whole))
        )
    return tuple(verdicts)


def measure_chunk_overlap(text: str, answer_words: frozenset[str]) -> float:
    """The share of the best sentence of a chunk whose words are among those that were told."""
    return max(
        (
            _measure_share(shared, one.content)
            for one in split_passage(text)
            if len(one.content) > 2 and len(shared := one.content & answer_words) * 3 > len(one.content)
        ),
        default=0.0,
    )


def _measure_share(part: frozenset[str], total: frozenset[str]) -> float:
    """The share of the weight of some words."""
    if not part:
        return 0.0
    table = load_rarity()
    return min(1.0, table.sum_rarity(part) / table.sum_rarity(total))


def _join_evidence(entailments: Sequence[Entailment], chunks: Sequence[Passage]) -> str:
    """The best stretches of the chunks for the claims of an answer."""
    texts = {chunk.name: chunk.text for chunk in chunks}
    spans = {
        (one.chunk, one.start, one.end): None
        for seen in entailments
        if seen.support in SUPPORTING_LABELS
        for one in seen.evidence[:1]
    }
    return " ".join(texts[name][start:end] for name, start, end in spans)


def _judge_facts(
    facts: Sequence[str], answer: str, query: str, session: ScorerSession
) -> tuple[FactVerdict, ...]:
    """Expected facts, looked for in the answer."""
    seen = session.score_entailment(facts, [Passage("answer", answer)])
    return tuple(
        FactVerdict(
            fact=fact,
            present=contains_fact(fact, answer, query) or one.support in SUPPORTING_LABELS,
            contradicted=one.support == "contradicted",
        )
        for fact, one in zip(facts, seen, strict=True)
    )


def _judge_citations(
    trace: Trace, chunks: Sequence[Passage], session: ScorerSession
) -> tuple[CitationVerdict, ...]:
    """Whether each cited chunk supports the claim it stands by; a chunk that is not there supports nothing."""
    verdicts = []
    for citation, claim, chunk in _resolve_citations(trace, chunks):
        seen = session.score_entailment([claim], [chunk])[0] if chunk and claim else None
        verdicts.append(
            CitationVerdict(
                chunk=citation.chunk,
                claim=claim,
                supports=seen is not None and seen.support in SUPPORTING_LABELS,
                p=seen.p if seen else 0.0,
                unsure=seen is not None and seen.unsure,
            )
        )
    return tuple(verdicts)


def _resolve_citations(trace: Trace, chunks: Sequence[Passage]) -> list[tuple[Citation, str, Passage | None]]:
    """Each citation with the claim it stands by and the chunk it names."""
    named = {chunk.name: chunk for chunk in chunks}
    return [
        (
            one,
            one.claim or locate_citing_sentence(one, place, trace.answer or "") or one.quote or "",
            named.get(one.chunk),
        )
        for place, one in enumerate(trace.citations or ())
    ]
