"""Diagnosis of one trace from its verdicts: the kinds of problem, each with its layer and remedies."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from ragfault.diagnosis.records import Diagnosis, KeyOutcome, ProblemKind, TraceProblem
from ragfault.model.gold_evidence import match_answer, measure_key_agreement
from ragfault.model.grouping import group_by
from ragfault.model.records import AnswerVerdict, ClaimVerdict, Evidence, GoldVerdicts, Layer, Trace, Verdicts
from ragfault.model.rules import RELEVANT_LEVELS, chunks_cover_query, get_asked_time, is_outdated, quote_matches


class ProblemDefinition(Struct, frozen=True):
    """Definition of a kind of problem: its title, its layer and its remedies."""

    title: str
    layer: Layer
    # the cheapest first
    steps: tuple[str, ...]


RANKING_REMEDIES = (
    "rerank the chunks",
    "use hybrid search (keywords and vectors)",
    "improve the query before the search (rewrite, expand)",
    "filter by metadata",
)
COVERAGE_REMEDIES = (
    "retrieve wider (more chunks, then rerank)",
    "decompose the query and search for each part",
    "check that the corpus contains the answer",
)
GROUNDING_REMEDIES = (
    "require a citation for each claim",
    "constrain generation to the chunks in the prompt",
    "lower the temperature",
    "verify the answer and drop claims that fail",
)
COMPLETENESS_REMEDIES = (
    "ask in the prompt for every part of the query to be answered",
    "raise the token limit of the answer",
    "decompose the query and retrieve wider",
)
CITATION_REMEDIES = (
    "fix the output schema: chunk ids and verbatim quotes only",
    "number the chunks in the prompt and check each citation before answering",
    "lower the temperature",
)

PROBLEM_KINDS: dict[ProblemKind, ProblemDefinition] = {
    "pipeline_error": ProblemDefinition(
        "pipeline errors", "operation", ("read the error of the trace", "retry and set time-outs")
    ),
    "nothing_retrieved": ProblemDefinition(
        "nothing retrieved", "retrieval", ("loosen filters and score limits", *COVERAGE_REMEDIES)
    ),
    "nothing_relevant": ProblemDefinition(
        "nothing relevant retrieved", "retrieval", (*RANKING_REMEDIES, COVERAGE_REMEDIES[-1])
    ),
    "irrelevant_chunk": ProblemDefinition("irrelevant chunks", "retrieval", RANKING_REMEDIES),
    "missing_context": ProblemDefinition("missing context", "retrieval", COVERAGE_REMEDIES),
    "uncovered_statement": ProblemDefinition("expected facts that no chunk holds", "retrieval", COVERAGE_REMEDIES),
    "empty_answer": ProblemDefinition(
        "empty answers", "generation", ("look for time-outs, filters and token limits of the generator",)
    ),
    "unsupported_claim": ProblemDefinition("unsupported claims", "generation", GROUNDING_REMEDIES),
    "contradicted_claim": ProblemDefinition("claims that the chunks contradict", "generation", GROUNDING_REMEDIES),
    "unanswered_aspect": ProblemDefinition("unanswered parts of the query", "generation", COMPLETENESS_REMEDIES),
    "absent_fact": ProblemDefinition("expected facts that the answer leaves out", "generation", COMPLETENESS_REMEDIES),
    "contradicted_fact": ProblemDefinition(
        "expected facts that the answer contradicts", "generation", GROUNDING_REMEDIES
    ),
    "irrelevant_answer": ProblemDefinition(
        "off-topic answers",
        "generation",
        ("put the query last in the prompt", "shorten the preamble of the prompt", "try a stronger model"),
    ),
    "wrong_refusal": ProblemDefinition(
        "refusals although the chunks cover the query",
        "generation",
        ("relax the refusal instructions of the prompt", "put the most relevant chunks first or last"),
    ),
    "missed_refusal": ProblemDefinition(
        "answers although the chunks do not cover the query",
        "generation",
        ("instruct the model to say when the chunks do not contain the answer", *COVERAGE_REMEDIES),
    ),
    "false_claim": ProblemDefinition(
        "claims that the chunks support and the answer key contradicts",
        "crosscut",
        ("fix or remove their source documents", "filter chunks by their dates of validity", "index again"),
    ),
    "outdated_source": ProblemDefinition(
        "claims that rest on chunks not valid at the time asked about",
        "crosscut",
        (
            "filter chunks by their dates of validity (Query.time)",
            "remove or date the outdated documents",
            "tell the generator the dates of the chunks",
        ),
    ),
    "bad_quote": ProblemDefinition("quotes that do not occur in the chunk they name", "crosscut", CITATION_REMEDIES),
    "bad_citation": ProblemDefinition(
        "citations of chunks that do not support the claim", "crosscut", CITATION_REMEDIES
    ),
    "all_low": ProblemDefinition(
        "everything low",
        "crosscut",
        (
            "inspect the whole pipeline on this trace, from query to prompt",
            "check that the corpus is meant for such queries",
        ),
    ),
}
"""Every kind of problem, in the order in which a diagnosis lists them."""


SUPPORTED = ("supported", "inferred")
# below this, the relevance of an answer and each of the triad's parts is low
LOW_SCORE = 0.5

WORDLESS_KINDS = ("pipeline_error", "nothing_retrieved", "empty_answer", "bad_quote")
"""Problems that show whatever the language."""
KIND_ORDER = {kind: i for i, kind in enumerate(PROBLEM_KINDS)}


def diagnose_trace(trace: Trace, verdicts: Verdicts) -> Diagnosis:
    """Diagnose a trace from its verdicts, as `Run.evidence` yields them: with the answer key applied where it decides.

    What the judge did not look at is not a problem. A chunk is irrelevant at level none. Where the answer
    refuses, what it leaves out is not held against it; a refusal is wrong where the chunks cover what was asked
    (as the metric wrong_refusal has it). An expected fact that the chunks do not hold is the retriever's
    (uncovered_statement), one that they hold, or may hold, and the answer lacks is the generator's (absent_fact).
    A supported claim rests on an outdated source where all of its evidence stands in chunks that were not valid at the
    time asked about (`get_asked_time`).
    Of an answer that agrees with its reference nothing is said to be left out or beside the question, and where a
    query is not answerable nothing relevant is expected of the retriever.

    >>> from ragfault.model.records import Chunk, ChunkVerdict
    >>> trace = Trace(id="1", query="When?", chunks=(Chunk(id="a", text="On dogs."), Chunk(id="b", text="At noon.")))
    >>> bad = ChunkVerdict(chunk="a", relevance=0.1, level="none")
    >>> good = ChunkVerdict(chunk="b", relevance=0.9, level="high")
    >>> [(p.kind, p.chunk) for p in diagnose_trace(trace, Verdicts(trace="1", chunk=(bad, good))).problems]
    [('irrelevant_chunk', 'a')]
    """
    # It compares many texts, so it is measured once.
    agreement = measure_key_agreement(trace, verdicts) if isinstance(verdicts, GoldVerdicts) else None
    problems = [
        *_pipeline_problems(trace),
        *_retrieval_problems(trace, verdicts),
        *_claim_problems(verdicts),
        *_outdated_problems(trace, verdicts),
        *_answer_problems(trace, verdicts, agreement),
        *_citation_problems(trace, verdicts),
    ]
    problems.sort(key=lambda problem: KIND_ORDER[problem.kind])
    return Diagnosis(
        trace=trace.id,
        query=trace.query,
        problems=tuple(problems),
        checked=_count_checked(trace, verdicts),
        key_outcome=_compare_with_key(trace, verdicts, agreement),
        key_agreement=agreement,
    )


def _compare_with_key(trace: Trace, verdicts: Verdicts, agreement: float | None) -> KeyOutcome | None:
    """Return what the answer key says of the answer; None without a key or an answer.

    An answer that refuses one part and repeats the reference is right, and so is a refusal where the reference is one.
    """
    if not isinstance(verdicts, GoldVerdicts) or not trace.answer or verdicts.answer is None:
        return None
    if verdicts.answer.refused:
        if verdicts.answer.agreement == 1 or (verdicts.covered is not False and match_answer(trace)):
            return "right answer"
        return "cannot tell" if verdicts.covered is None else "wrong refusal" if verdicts.covered else "right refusal"
    if agreement is not None:
        return "right answer" if agreement == 1 else "wrong answer"
    return "missed refusal" if verdicts.covered is False else "cannot tell"


def _build_problem(
    kind: ProblemKind,
    text: str,
    reason: str | None = None,
    *,
    chunk: str | None = None,
    start: int | None = None,
    end: int | None = None,
    evidence: tuple[Evidence, ...] = (),
) -> TraceProblem:
    meaning = PROBLEM_KINDS[kind]
    return TraceProblem(
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


def _pipeline_problems(trace: Trace) -> Iterator[TraceProblem]:
    if trace.error is not None:
        yield _build_problem("pipeline_error", trace.error)


def _retrieval_problems(trace: Trace, verdicts: Verdicts) -> Iterator[TraceProblem]:
    if trace.chunks is not None and not trace.chunks:
        yield _build_problem("nothing_retrieved", trace.query, "the retriever returned nothing")
    seen = list(zip(trace.chunks or (), verdicts.chunk or (), strict=False))
    expected = trace.answerable is not False or not isinstance(verdicts, GoldVerdicts)
    if seen and expected and not any(verdict.level in RELEVANT_LEVELS for _, verdict in seen):
        yield _build_problem("nothing_relevant", trace.query, f"none of {len(seen)} chunks is relevant")
    for chunk, verdict in seen:
        if verdict.level == "none":
            reason = verdict.reason or f"relevance {verdict.relevance:.2f}"
            yield _build_problem("irrelevant_chunk", chunk.text, reason, chunk=chunk.id)
    for item in verdicts.missing or ():
        yield _build_problem("missing_context", item, "no chunk holds it")
    for statement in verdicts.recall or ():
        if not statement.covered:
            yield _build_problem("uncovered_statement", statement.statement, "no chunk supports it")


def _claim_problems(verdicts: Verdicts) -> Iterator[TraceProblem]:
    truths = verdicts.truth or ()
    for index, claim in enumerate(verdicts.claim or ()):
        if claim.support == "contradicted":
            yield _claim_problem("contradicted_claim", claim, claim.reason or "the chunks contradict it")
        elif claim.support == "unsupported":
            yield _claim_problem("unsupported_claim", claim, claim.reason or "no chunk supports it")
        elif index < len(truths) and truths[index].status == "contradicted":
            yield _claim_problem("false_claim", claim, "the chunks support it, the answer key contradicts it")


def _outdated_problems(trace: Trace, verdicts: Verdicts) -> Iterator[TraceProblem]:
    """Yield the supported claims whose evidence stands in chunks alone that were not valid at the time asked about."""
    asked = get_asked_time(trace)
    if asked is None:
        return
    outdated = {chunk.id for chunk in trace.chunks or () if is_outdated(chunk, asked)}
    for claim in verdicts.claim or ():
        sources = {evidence.chunk for evidence in claim.evidence}
        if claim.support in SUPPORTED and sources and sources <= outdated:
            named = next(chunk for chunk in trace.chunks or () if chunk.id in sources)
            dates = [
                f"{word} {named.metadata[key]}"
                for key, word in (("valid_from", "from"), ("valid_to", "to"))
                if named.metadata.get(key) is not None
            ]
            reason = f"its source {named.id} is valid {' '.join(dates)}; the query asks about {asked.date()}"
            yield _claim_problem("outdated_source", claim, reason)


MAX_QUOTED_SHARE = 0.8
"""Words that make up more of a claim than this are the claim itself, and not quoted."""


def _claim_problem(kind: ProblemKind, claim: ClaimVerdict, reason: str) -> TraceProblem:
    words = [claim.claim[start - claim.start : end - claim.start] for start, end in claim.unsupported_spans]
    if (
        words
        and sum(map(len, words)) <= MAX_QUOTED_SHARE * len(claim.claim)
        and not any(word in reason for word in words)
    ):
        reason = f"{reason}; in doubt: {', '.join(f'“{word}”' for word in words)}"
    return _build_problem(kind, claim.claim, reason, start=claim.start, end=claim.end, evidence=claim.evidence)


def _answer_problems(trace: Trace, verdicts: Verdicts, agreement: float | None) -> Iterator[TraceProblem]:
    if not trace.answer:
        if trace.answer is not None:
            yield _build_problem("empty_answer", trace.query, "the answer is empty")
        return
    if agreement == 1:
        return
    for fact in verdicts.fact or ():
        if fact.contradicted:
            yield _build_problem("contradicted_fact", fact.fact, "the answer contradicts it")
    known = chunks_cover_query(trace, verdicts)
    if verdicts.answer is not None and verdicts.answer.refused:
        if known:
            yield _build_problem("wrong_refusal", trace.answer, "the chunks cover what was asked")
        return
    yield from _missing_facts(verdicts)
    if verdicts.answer is not None:
        if known is False:
            yield _build_problem("missed_refusal", trace.answer, "the chunks do not cover what was asked")
        yield from _response_problems(trace, verdicts, verdicts.answer)


def _response_problems(trace: Trace, verdicts: Verdicts, answer: AnswerVerdict) -> Iterator[TraceProblem]:
    """Yield the problems of an answer that does not refuse."""
    for aspect in answer.aspects:
        if not aspect.answered:
            yield _build_problem("unanswered_aspect", aspect.text, "the answer does not address it")
    if answer.relevance is not None and answer.relevance < LOW_SCORE:
        yield _build_problem("irrelevant_answer", trace.answer or "", f"relevance {answer.relevance:.2f}")
        if _is_all_low(verdicts):
            yield _build_problem("all_low", trace.query, "chunks, grounding and answer are all poor")


def _missing_facts(verdicts: Verdicts) -> Iterator[TraceProblem]:
    """Yield the expected facts that the answer lacks, save those that no chunk covers."""
    lacking = {item.statement for item in verdicts.recall or () if not item.covered}
    for fact in verdicts.fact or ():
        if not fact.present and not fact.contradicted and fact.fact not in lacking:
            yield _build_problem("absent_fact", fact.fact, "the answer does not state it")


def _is_all_low(verdicts: Verdicts) -> bool:
    """Return whether the chunks and the claims are poor as well."""
    if not verdicts.chunk or not verdicts.claim:
        return False
    relevance = sum(chunk.relevance for chunk in verdicts.chunk) / len(verdicts.chunk)
    grounded = sum(claim.support in SUPPORTED for claim in verdicts.claim) / len(verdicts.claim)
    return relevance < LOW_SCORE and grounded < LOW_SCORE


def _citation_problems(trace: Trace, verdicts: Verdicts) -> Iterator[TraceProblem]:
    chunks = group_by(trace.chunks or (), lambda chunk: chunk.id)
    for index, citation in enumerate(trace.citations or ()):
        quote = (citation.quote or "").strip()
        text = quote or citation.claim or citation.chunk
        if trace.chunks is not None and citation.chunk not in chunks:
            yield _build_problem("bad_quote", text, "the cited chunk was not retrieved", chunk=citation.chunk)
            continue
        named = chunks.get(citation.chunk, ())
        if quote and named and not any(quote_matches(quote, chunk.text) for chunk in named):
            yield _build_problem("bad_quote", text, "the cited chunk does not state it", chunk=citation.chunk)
        verdict = verdicts.citation[index] if verdicts.citation and index < len(verdicts.citation) else None
        if verdict is not None and not verdict.supports:
            yield _build_problem(
                "bad_citation", verdict.claim, "the cited chunk does not support it", chunk=citation.chunk
            )


def _count_checked(trace: Trace, verdicts: Verdicts) -> int:
    """Count the items that were checked."""
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
