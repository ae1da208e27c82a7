"""Build the verdicts of a trace from the merged replies of the model."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ragfault.judges.assembly import grade_relevance, measure_chunk_overlap
from ragfault.judges.checks.queries import list_missing, split_query
from ragfault.judges.domain.profile import DomainProfile, SupportThresholds
from ragfault.judges.lexical.judge import LexicalJudge
from ragfault.judges.llm.conversation import AFTER_REPAIR, BELOW_THRESHOLD
from ragfault.judges.llm.prompts.instructions import ClaimItem
from ragfault.judges.llm.prompts.prompt_inputs import PromptChunk, PromptInputs
from ragfault.judges.llm.votes import VoteResult
from ragfault.records import (
    AnswerVerdict,
    Aspect,
    ChunkVerdict,
    CitationVerdict,
    ClaimSupport,
    ClaimVerdict,
    Evidence,
    FactVerdict,
    Harm,
    RecallVerdict,
    TruthVerdict,
    UseVerdict,
)
from ragfault.rules import QUOTE_TOLERANCE
from ragfault.text import split_content_words
from ragfault.text.similarity import locate_quote

PARTS_BY_FIELD = {
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
UNSURE_RANGE = (1 / 3, 2 / 3)
"""A probability within these bounds is unsure: the model is not far from saying the opposite."""
EMPTY_CHUNK = "the chunk is empty"


def list_failures(*results: VoteResult) -> dict[str, str]:
    """Part → why some of it is lost, with the ids of what is."""
    told: dict[str, dict[str, None]] = {}
    for one in results:
        for name, reasons in one.failures.items():
            for reason in dict.fromkeys(reasons.values()):
                ids = ", ".join(key for key, why in reasons.items() if why == reason and key)
                text = (
                    f"no verdict on {name}{' ' if ids else ''}{ids} {AFTER_REPAIR}"
                    if reason == AFTER_REPAIR
                    else reason
                )
                told.setdefault(PARTS_BY_FIELD.get(name, name), {})[text] = None
    return {part: "; ".join(reasons) for part, reasons in told.items()}


# --- what was retrieved ----------------------------------------------------------------------------


def build_retrieval_verdicts(
    inputs: PromptInputs, result: VoteResult, profile: DomainProfile
) -> dict[str, Any]:
    """The parts that are made from query and chunks. Where nothing was retrieved no model is needed."""
    if inputs.chunks is None:
        return {}
    parts: dict[str, Any] = {
        "chunk": _chunk_verdicts(inputs, result, profile),
        "missing": _missing_information(result),
    }
    if not inputs.chunks:
        parts["missing"] = list_missing(inputs.trace.query, (), LexicalJudge().open_session())
    if inputs.statements:
        each = [_recall_verdicts(inputs, result, place) for place in range(len(inputs.statements))]
        parts["recall"] = max(each, key=lambda one: sum(item.covered for item in one) / max(1, len(one)))
    return parts


def _missing_information(result: VoteResult) -> tuple[str, ...] | None:
    """What is missing, each thing once; None where that is lost."""
    found = result.fields.get("missing")
    return None if found is None else tuple(dict.fromkeys(one for one in found if one))


def _chunk_verdicts(
    inputs: PromptInputs, result: VoteResult, profile: DomainProfile
) -> tuple[ChunkVerdict, ...]:
    held = result.items.get("chunks", {})
    found = []
    for one in inputs.chunks or ():
        if one.is_blank and not one.is_unsent_image:
            found.append(
                ChunkVerdict(
                    chunk=one.chunk.id,
                    relevance=0.0,
                    level=grade_relevance(0.0, profile.levels),
                    reason=EMPTY_CHUNK,
                )
            )
        elif item := held.get(one.name):
            found.append(
                ChunkVerdict(
                    chunk=one.chunk.id,
                    relevance=item.relevance,
                    level=grade_relevance(item.relevance, profile.levels),
                    reason=item.reason or None,
                    spread=result.spread.get(one.name),
                )
            )
    return tuple(found)


def _recall_verdicts(inputs: PromptInputs, result: VoteResult, index: int) -> tuple[RecallVerdict, ...]:
    """What is expected by the facts or by one of the references."""
    held = result.items.get("statements", {})
    found = []
    for one in inputs.statements[index]:
        if not inputs.visible_chunks:
            found.append(RecallVerdict(statement=one.text, covered=False))
        elif item := held.get(one.name):
            stretches = _locate_evidence(inputs, item.chunk, item.quote) or ()
            found.append(
                RecallVerdict(
                    statement=one.text, covered=item.covered, evidence=stretches if item.covered else ()
                )
            )
    return tuple(found)


# --- what was generated ----------------------------------------------------------------------------


def build_generation_verdicts(
    inputs: PromptInputs, result: VoteResult, profile: DomainProfile
) -> dict[str, Any]:
    """The parts that are made from the answer. Of an answer without a word no model is asked."""
    trace = inputs.trace
    if trace.answer is None:
        return {}
    blank = not trace.answer.strip()
    parts: dict[str, Any] = {
        "answer": _answer_verdict(inputs, result, blank=blank),
        "harm": () if blank else _harm_verdicts(result),
    }
    if inputs.chunks is not None:
        parts["claim"] = _claim_verdicts(inputs, result, profile.support)
        parts["use"] = _use_verdicts(inputs, result, blank=blank)
        if trace.citations is not None:
            parts["citation"] = _citation_verdicts(inputs, result, blank=blank)
    if parts["answer"] is not None and parts.get("claim") is not None:
        parts["answer"] = _set_grounded(parts["answer"], parts["claim"], len(inputs.claims))
    if trace.facts is not None:
        parts["fact"] = _fact_verdicts(inputs, result, blank=blank)
    if trace.facts or trace.references:
        parts["truth"] = _truth_verdicts(inputs, result)
    if trace.references:
        reading = LexicalJudge().open_session(trace.query)
        parts["similarity"] = max(reading.measure_similarity(trace.answer, one) for one in trace.references)
    return parts


def _claim_verdicts(
    inputs: PromptInputs, result: VoteResult, thresholds: SupportThresholds
) -> tuple[ClaimVerdict, ...]:
    held = result.items.get("claims", {})
    found = []
    for number, claim in enumerate(inputs.claims, 1):
        plain: dict[str, Any] = {"claim": claim.text, "start": claim.start, "end": claim.end}
        if not inputs.chunks:
            found.append(ClaimVerdict(**plain, support="unsupported", p=0.0, reason="nothing was retrieved"))
        elif item := held.get(f"s{number}"):
            support, p, barred = _apply_thresholds(item, thresholds)
            stretches = _locate_evidence(inputs, item.chunk, item.quote)
            found.append(
                ClaimVerdict(
                    **plain,
                    support=support,
                    p=p,
                    unsure=UNSURE_RANGE[0] <= p <= UNSURE_RANGE[1],
                    evidence=stretches or (),
                    misquoted=stretches is None,
                    reason=barred or item.reason or None,
                    spread=result.spread.get(f"s{number}"),
                )
            )
    return tuple(found)


def _apply_thresholds(item: ClaimItem, thresholds: SupportThresholds) -> tuple[ClaimSupport, float, str]:
    """What is said of a claim, lowered where its probability is below a bar of the lens, with the reason."""
    if item.support not in {"supported", "inferred"}:
        return item.support, item.p, ""
    if item.p < thresholds.inferred:
        return (
            "unsupported",
            min(item.p, BELOW_THRESHOLD),
            f"p = {item.p:.2f} is below {thresholds.inferred:g}, the bar of the lens",
        )
    if item.support == "supported" and item.p < thresholds.supported:
        return "inferred", item.p, f"p = {item.p:.2f} is below {thresholds.supported:g}, the bar of the lens"
    return item.support, item.p, ""


def _use_verdicts(inputs: PromptInputs, result: VoteResult, *, blank: bool) -> tuple[UseVerdict, ...]:
    held = result.items.get("used", {})
    told = frozenset(word for claim in inputs.claims for word in split_content_words(claim.text))
    return tuple(
        UseVerdict(
            chunk=one.chunk.id,
            used=one.name in held and held[one.name].used,
            overlap=measure_chunk_overlap(one.chunk.text, told),
        )
        for one in inputs.chunks or ()
        if one.name in held or blank or (one.is_blank and not one.is_unsent_image)
    )


def _citation_verdicts(
    inputs: PromptInputs, result: VoteResult, *, blank: bool
) -> tuple[CitationVerdict, ...]:
    """Whether each cited chunk supports its claim; one that was not retrieved, or stands by nothing, does not."""
    held = result.items.get("citations", {})
    found = []
    if blank:
        return tuple(
            CitationVerdict(chunk=one.chunk, claim=one.claim or "", supports=False, p=0.0)
            for one in inputs.trace.citations or ()
        )
    for one in inputs.citations:
        chunk = one.citation.chunk
        if one.chunk_name is None or not one.claim:
            found.append(CitationVerdict(chunk=chunk, claim=one.claim, supports=False, p=0.0))
        elif item := held.get(one.name):
            unsure = UNSURE_RANGE[0] <= item.p <= UNSURE_RANGE[1]
            found.append(
                CitationVerdict(chunk=chunk, claim=one.claim, supports=item.supports, p=item.p, unsure=unsure)
            )
    return tuple(found)


def _fact_verdicts(inputs: PromptInputs, result: VoteResult, *, blank: bool) -> tuple[FactVerdict, ...]:
    held = result.items.get("facts", {})
    return tuple(
        FactVerdict(fact=one.text, present=False)
        if blank
        else FactVerdict(
            fact=one.text, present=held[one.name].present, contradicted=held[one.name].contradicted
        )
        for one in inputs.facts
        if blank or one.name in held
    )


def _truth_verdicts(inputs: PromptInputs, result: VoteResult) -> tuple[TruthVerdict, ...]:
    held = result.items.get("truth", {})
    return tuple(
        TruthVerdict(claim=claim.text, status=held[name].status)
        for number, claim in enumerate(inputs.claims, 1)
        if (name := f"s{number}") in held
    )


def _harm_verdicts(result: VoteResult) -> tuple[Harm, ...] | None:
    if "harm" not in result.fields:
        return None
    return tuple(
        Harm(category=one.category, score=one.score) for one in result.fields["harm"] if one.score > 0
    )


def _answer_verdict(inputs: PromptInputs, result: VoteResult, *, blank: bool) -> AnswerVerdict | None:
    """How the answer stands to the query; none where its relevance is lost."""
    if blank:
        asked = split_query(inputs.trace.query)
        return AnswerVerdict(relevance=0.0, aspects=tuple(Aspect(text=one, answered=False) for one in asked))
    if "relevance" not in result.fields:
        return None
    return AnswerVerdict(
        relevance=result.fields["relevance"],
        aspects=tuple(
            Aspect(text=one.text, answered=one.answered)
            for one in result.fields.get("aspects", ())
            if one.text
        ),
        refused=result.fields.get("refused", False),
        spread=result.spread.get("relevance"),
    )


def _set_grounded(answer: AnswerVerdict, claims: tuple[ClaimVerdict, ...], count: int) -> AnswerVerdict:
    """An answer is as probable as its least probable claim; what claims nothing is grounded.

    That is not known where a claim is lost.
    """
    if len(claims) < count:
        return answer
    return replace(answer, grounded=min((one.p for one in claims if one.p is not None), default=1.0))


# --- evidence --------------------------------------------------------------------------------------


def _locate_evidence(inputs: PromptInputs, chunk_name: str, quote: str) -> tuple[Evidence, ...] | None:
    """Where the quoted words stand: in the chunk that was named, else in another; None where they stand nowhere."""
    if not quote.strip():
        return ()
    named = [one for one in inputs.visible_chunks if one.name == chunk_name.strip().lower()]
    for one in (*named, *(one for one in inputs.visible_chunks if one not in named)):
        if spans := _locate_quote(one, quote):
            return tuple(Evidence(chunk=one.chunk.id, start=start, end=end) for start, end in spans)
    for one in named:
        if one.image:
            return (Evidence(chunk=one.chunk.id, start=0, end=len(one.chunk.text)),)
    return None


def _locate_quote(chunk: PromptChunk, quote: str) -> tuple[tuple[int, int], ...]:
    """The stretches of a chunk's own text; all of it where the words stand only in the table made of it."""
    spans = locate_quote(quote, chunk.chunk.text, QUOTE_TOLERANCE)
    if (
        not spans
        and chunk.chunk.kind in {"table", "record"}
        and locate_quote(quote, chunk.text, QUOTE_TOLERANCE)
    ):
        return ((0, len(chunk.chunk.text)),)
    return spans
