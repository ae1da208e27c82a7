"""Assembly of verdicts from the session of a judge, part by part, with failures recorded."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from typing import Any

from msgspec.structs import replace

from ragfault.judges.checks.answers import (
    build_reference_passages,
    contains_fact,
    judge_answer,
    judge_truth,
    locate_citing_sentence,
    select_source_chunks,
)
from ragfault.judges.checks.claims import Claim, extract_claims
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import MAX_PASSAGE_CHARS, Passage, split_passage
from ragfault.judges.checks.queries import list_missing, remove_courtesies
from ragfault.judges.domain.profile import RelevanceLevels
from ragfault.judges.numeric_threads import use_one_thread
from ragfault.judges.scorer import Entailment, EntailmentGroup, Scorer, ScorerSession
from ragfault.judges.wrapping import CopySession, restore_subject
from ragfault.model.errors import JudgeError, JudgeStopped
from ragfault.model.protocols import VERDICT_KINDS, Judge, VerdictKind
from ragfault.model.records import (
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
from ragfault.model.rules import is_wordless_image
from ragfault.text.citation_marks import blank_citations
from ragfault.text.markup import strip_emphasis
from ragfault.text.normalization import split_content_words
from ragfault.text.sentences import split_sentences


class NullJudge:
    """A judge without verdicts: every metric that needs one is undefined."""

    offers: frozenset[VerdictKind] = frozenset()
    fingerprint = "none"

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        return [Verdicts(trace=trace.id, judge=self.fingerprint) for trace in traces]


def observe_traces(judge: Judge, traces: Sequence[Trace]) -> list[Verdicts]:
    """Observe traces with a judge and isolate its failures: a batch that fails is retried trace by trace.

    A trace on which the judge fails alone gets verdicts with `failures={"*": reason}`. Raises JudgeStopped if
    the judge cannot go on with any trace.
    """
    try:
        results = list(judge.observe(traces))
        _check_order(traces, results)
    except JudgeStopped:
        raise
    except Exception as error:  # noqa: BLE001 - an error of user code fails one trace, not the run
        if len(traces) > 1:
            return [verdicts for trace in traces for verdicts in observe_traces(judge, [trace])]
        reason = str(error) if isinstance(error, JudgeError) else f"{type(error).__name__}: {error}"
        return [Verdicts(trace=traces[0].id, judge=judge.fingerprint, failures={"*": f"the judge failed: {reason}"})]
    return results


def _check_order(traces: Sequence[Trace], results: Sequence[Verdicts]) -> None:
    if [verdicts.trace for verdicts in results] != [trace.id for trace in traces]:
        raise JudgeError(f"it returned {len(results)} verdicts for {len(traces)} traces, or in another order")


def prepare_worker() -> None:
    """Prepare a worker process: ignore Ctrl-C, and end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()


def _exit_with_parent(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


OFFERED_PARTS: frozenset[VerdictKind] = frozenset(VERDICT_KINDS) - {"harm", "rubric"}
"""All kinds of verdict that a scorer can give."""
SUPPORTING_LABELS = ("supported", "inferred")
DEFAULT_LEVELS = RelevanceLevels()
MAX_CLAIMS = 300
"""Claims of one answer that are judged, so that no answer can hold a worker up; a longer one fails, and says so."""
MIN_OWN_SHARE = 0.3
"""A chunk that a claim comes from is used if it has this share of the claim's words beyond the query."""


def assemble_verdicts(trace: Trace, scorer: Scorer, levels: RelevanceLevels = DEFAULT_LEVELS) -> Verdicts:
    """Assemble all verdicts on one trace; an error of the scorer fails only this trace, except JudgeStopped."""
    try:
        parts = _assemble_parts(trace, scorer, levels)
    except JudgeStopped:
        raise
    except Exception as error:  # noqa: BLE001 - an error in one trace must not fail the batch
        reason = str(error) if isinstance(error, JudgeError) else f"{type(error).__name__}: {error}".removesuffix(": ")
        return Verdicts(trace=trace.id, judge=scorer.fingerprint, failures={"*": reason})
    return Verdicts(trace=trace.id, judge=scorer.fingerprint, **parts)


class ScorerJudge(ABC):
    """A judge that is also a `Scorer`: it assembles its verdicts from its own scores."""

    offers: frozenset[VerdictKind] = OFFERED_PARTS
    levels: RelevanceLevels = DEFAULT_LEVELS

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Identity of the scores, in one line."""

    @abstractmethod
    def open_session(self, query: str = "", history: Sequence[str] = ()) -> ScorerSession:
        """Open a session for one trace."""

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        with use_one_thread():
            return [assemble_verdicts(trace, self, self.levels) for trace in traces]


def grade_relevance(relevance: float, levels: RelevanceLevels = DEFAULT_LEVELS) -> RelevanceLevel:
    """Grade a relevance by the levels of a domain profile.

    >>> grade_relevance(0.75), grade_relevance(0.74), grade_relevance(0.3), grade_relevance(0.1)
    ('high', 'medium', 'low', 'none')
    """
    bounds: dict[RelevanceLevel, float] = {"high": levels.high, "medium": levels.medium, "low": levels.low}
    return next((level for level, bound in bounds.items() if relevance >= bound), "none")


def _assemble_parts(trace: Trace, scorer: Scorer, levels: RelevanceLevels) -> dict[str, Any]:
    chunks = [Passage(chunk.id, "" if is_wordless_image(chunk) else chunk.text) for chunk in trace.chunks or ()]
    trace = replace(trace, query=remove_courtesies(trace.query))
    history = trace.history or ()
    compared = CopySession(scorer.open_session(trace.query, [turn.text for turn in history]), trace.query)
    session = restore_subject(compared, history)
    parts: dict[str, Any] = {}
    entailments: list[Entailment] = []
    claims = extract_claims(trace.answer, session.is_refusal_sentence) if trace.answer is not None else []
    parts["failures"] = _describe_excess(len(claims))
    claims = claims[:MAX_CLAIMS]
    citations = _resolve_citations(trace, chunks)
    # a number in a mark is no number of the answer; the length stays, and so do the places of claims
    trace = replace(trace, answer=trace.answer and blank_citations(trace.answer))
    session.prefetch(_collect_groups(trace, chunks, claims, citations))
    if trace.chunks is not None and not (lack_text(chunks) and not any(map(is_wordless_image, trace.chunks))):
        parts["chunk"] = _judge_chunks(trace.query, chunks, session, levels)
        parts["missing"] = list_missing(trace.query, chunks, session)
        if trace.facts is not None or trace.references:
            parts["recall"] = _judge_recall(trace, chunks, session)
        if trace.answer is not None:
            entailments = list(session.score_entailment([claim.text for claim in claims], chunks))
            parts["claim"] = tuple(map(_build_claim_verdict, claims, entailments))
            parts["use"] = _judge_use(trace.query, chunks, claims, entailments)
        if trace.citations is not None:
            parts["citation"] = _judge_citations(citations, session)
    if trace.answer is not None:
        relevance = [chunk_verdict.relevance for chunk_verdict in parts.get("chunk", ())]
        verdict = judge_answer(trace.query, trace.answer, claims, entailments, chunks, relevance, session)
        if "claim" in parts:
            groundedness = session.score_groundedness(trace.answer, [claim.text for claim in claims], entailments)
            verdict = replace(verdict, grounded=groundedness)
        parts["answer"] = verdict
        if trace.facts is not None:
            parts["fact"] = _judge_facts(trace.facts, trace.answer, trace.query, session)
        if trace.facts or trace.references:
            parts["truth"] = judge_truth(trace.query, claims, _get_references(trace), session)
        if trace.references:
            agreement = session.score_agreement(trace.answer, trace.references)
            parts["answer"] = replace(verdict, agreement=agreement)
            parts["similarity"] = max(
                session.measure_similarity(trace.answer, reference) for reference in trace.references
            )
    return _drop_doubtful_parts(trace, parts)


def _drop_doubtful_parts(trace: Trace, parts: dict[str, Any]) -> dict[str, Any]:
    """Drop the verdicts that an image without words or the rest of a long chunk may overturn, with the reason.

    Support that was found stands; that a claim, statement or citation is unsupported, such a chunk irrelevant or
    unused, or information missing, cannot be told.
    """
    wordless = {chunk.id for chunk in trace.chunks or () if is_wordless_image(chunk)}
    too_long = {chunk.id for chunk in trace.chunks or () if len(chunk.text) > MAX_PASSAGE_CHARS}
    if not wordless | too_long or "chunk" not in parts:
        return parts
    reason = f"{', '.join(sorted(wordless)[:3])}: an image without caption or text, which this judge cannot read"
    if not wordless:
        limit = f"longer than {MAX_PASSAGE_CHARS:,} characters, of which this judge reads no more"
        reason = f"{', '.join(sorted(too_long)[:3])}: {limit}"
    doubtful = {
        "chunk": True,
        "missing": bool(parts.get("missing")),
        "use": "use" in parts,
        "recall": any(not verdict.covered for verdict in parts.get("recall") or ()),
        "claim": any(verdict.support not in SUPPORTING_LABELS for verdict in parts.get("claim") or ()),
        "citation": any(
            not verdict.supports and verdict.chunk in wordless | too_long for verdict in parts.get("citation") or ()
        ),
    }
    dropped = [name for name, is_lost in doubtful.items() if is_lost]
    remaining = {name: part for name, part in parts.items() if name not in dropped}
    if "claim" in dropped:
        remaining["answer"] = replace(parts["answer"], grounded=None)
    return {**remaining, "failures": {**parts["failures"], **dict.fromkeys(dropped, reason)}}


def _describe_excess(claim_count: int) -> dict[str, str]:
    """Return the failures of an answer of too many claims: the parts that its claims decide, with the reason."""
    if claim_count <= MAX_CLAIMS:
        return {}
    reason = f"the answer makes {claim_count:,} claims, of which the first {MAX_CLAIMS} are judged"
    return dict.fromkeys(("claim", "use", "answer", "truth"), reason)


def _collect_groups(
    trace: Trace, chunks: Sequence[Passage], claims: Sequence[Claim], citations: Sequence[ResolvedCitation]
) -> list[EntailmentGroup]:
    groups: list[EntailmentGroup] = []
    texts = [claim.text for claim in claims]
    if trace.chunks is not None and not lack_text(chunks):
        groups += [(texts, chunks)] + [(statements, chunks) for statements in _get_statements(trace)]
        groups += [([claim], [chunk]) for _, claim, chunk in citations if chunk and claim]
    if trace.answer is not None:
        groups.append((trace.facts or (), [Passage("answer", strip_emphasis(trace.answer))]))
        groups.append((texts, build_reference_passages(_get_references(trace))))
    return groups


def _get_references(trace: Trace) -> tuple[str, ...]:
    return (*trace.references, *(trace.facts or ()))


def lack_text(chunks: Sequence[Passage]) -> bool:
    """Return whether no retrieved chunk has text, as in a TREC run: nothing can be judged."""
    return bool(chunks) and not any(chunk.text.strip() for chunk in chunks)


def _judge_chunks(
    query: str, chunks: Sequence[Passage], session: ScorerSession, levels: RelevanceLevels
) -> tuple[ChunkVerdict, ...]:
    return tuple(
        ChunkVerdict(
            chunk=chunk.name, relevance=score.value, level=grade_relevance(score.value, levels), reason=score.reason
        )
        for chunk, score in zip(chunks, session.score_relevance(query, chunks), strict=True)
    )


def _judge_recall(trace: Trace, chunks: Sequence[Passage], session: ScorerSession) -> tuple[RecallVerdict, ...]:
    """Judge the expected facts, else the sentences of the reference that the chunks cover best."""
    candidates = [_judge_coverage(statements, chunks, session) for statements in _get_statements(trace)]
    return max(candidates, key=lambda verdicts: sum(verdict.covered for verdict in verdicts) / max(1, len(verdicts)))


def _get_statements(trace: Trace) -> list[Sequence[str]]:
    return [trace.facts] if trace.facts is not None else [split_statements(reference) for reference in trace.references]


def _judge_coverage(
    statements: Sequence[str], chunks: Sequence[Passage], session: ScorerSession
) -> tuple[RecallVerdict, ...]:
    return tuple(
        RecallVerdict(
            statement=statement, covered=entailment.support in SUPPORTING_LABELS, evidence=entailment.evidence
        )
        for statement, entailment in zip(statements, session.score_entailment(statements, chunks), strict=True)
    )


def split_statements(reference: str) -> list[str]:
    """Return the sentences of a reference with content."""
    spans = (reference[start:end] for start, end in split_sentences(blank_citations(reference)))
    return [span for span in spans if split_content_words(span)]


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
        unsupported_spans=tuple((claim.start + a, claim.start + b) for a, b in entailment.unsupported_spans),
    )


def _judge_use(
    query: str, chunks: Sequence[Passage], claims: Sequence[Claim], entailments: Sequence[Entailment]
) -> tuple[UseVerdict, ...]:
    """Judge which chunks are used: a claim comes from them, with words beyond the query."""
    query_words = frozenset(split_content_words(query))
    claim_words = [frozenset(split_content_words(claim.text)) for claim in claims]
    answer_words = frozenset().union(*claim_words)
    sources = [
        (words - query_words, select_source_chunks(entailment))
        for words, entailment in zip(claim_words, entailments, strict=True)
    ]
    verdicts = []
    for position, chunk in enumerate(chunks):
        chunk_words = frozenset().union(*(sentence.content for sentence in split_passage(chunk.text)))
        is_used = any(
            position in positions
            and (not own_words or _measure_share(own_words & chunk_words, own_words) >= MIN_OWN_SHARE)
            for own_words, positions in sources
        )
        verdicts.append(
            UseVerdict(chunk=chunk.name, used=is_used, overlap=measure_chunk_overlap(chunk.text, answer_words))
        )
    return tuple(verdicts)


def measure_chunk_overlap(text: str, answer_words: frozenset[str]) -> float:
    """Return the share of a chunk's best sentence that is in the answer, by rarity."""
    return max(
        (
            _measure_share(common, sentence.content)
            for sentence in split_passage(text)
            if len(sentence.content) > 2 and len(common := sentence.content & answer_words) * 3 > len(sentence.content)
        ),
        default=0.0,
    )


def _measure_share(words: frozenset[str], total: frozenset[str]) -> float:
    if not words:
        return 0.0
    table = load_idf()
    return min(1.0, table.sum_rarity(words) / table.sum_rarity(total))


def _judge_facts(facts: Sequence[str], answer: str, query: str, session: ScorerSession) -> tuple[FactVerdict, ...]:
    # The emphasis of a figure or a name is none of its words.
    answer = strip_emphasis(answer)
    entailments = session.score_entailment(facts, [Passage("answer", answer)])
    return tuple(
        FactVerdict(
            fact=fact,
            present=contains_fact(fact, answer, query) or entailment.support in SUPPORTING_LABELS,
            contradicted=entailment.support == "contradicted",
        )
        for fact, entailment in zip(facts, entailments, strict=True)
    )


ResolvedCitation = tuple[Citation, str, Passage | None]


def _judge_citations(citations: Sequence[ResolvedCitation], session: ScorerSession) -> tuple[CitationVerdict, ...]:
    """Judge whether each cited chunk supports its claim; a chunk that was not retrieved supports nothing."""
    verdicts = []
    for citation, claim, chunk in citations:
        entailment = session.score_entailment([claim], [chunk])[0] if chunk and claim else None
        scored = entailment or Entailment("unsupported", 0.0)
        supports = scored.support in SUPPORTING_LABELS
        verdicts.append(
            CitationVerdict(chunk=citation.chunk, claim=claim, supports=supports, p=scored.p, unsure=scored.unsure)
        )
    return tuple(verdicts)


def _resolve_citations(trace: Trace, chunks: Sequence[Passage]) -> list[ResolvedCitation]:
    """Return each citation with its claim and the chunk it names.

    One without claim, mark and quote stands for the sentence of the answer that shares most words with its chunk.
    """
    by_name = {chunk.name: chunk for chunk in chunks}
    resolved = []
    for position, citation in enumerate(trace.citations or ()):
        chunk, answer = by_name.get(citation.chunk), trace.answer or ""
        claim = citation.claim or locate_citing_sentence(citation, position, answer) or citation.quote
        words = frozenset(split_content_words(chunk.text)) if chunk and not claim else frozenset()
        closest = max(
            split_statements(answer), key=lambda text: len(words.intersection(split_content_words(text))), default=""
        )
        resolved.append((citation, claim or closest, chunk))
    return resolved
