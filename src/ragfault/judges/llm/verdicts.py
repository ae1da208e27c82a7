"""Builder of the verdicts of a trace from the merged replies of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ragfault.judges.assembly import grade_relevance, measure_chunk_overlap
from ragfault.judges.calibration import UNSURE_RANGE
from ragfault.judges.checks.queries import list_missing, split_query
from ragfault.judges.domain.profile import DomainProfile, SupportThresholds
from ragfault.judges.lexical.entailment import LexicalJudge
from ragfault.judges.llm.model_exchange import AFTER_REPAIR, BELOW_THRESHOLD, VoteResult
from ragfault.judges.llm.prompts.instructions import ClaimItem
from ragfault.judges.llm.prompts.prompt_inputs import PromptChunk, PromptInputs
from ragfault.model.records import (
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
    RubricVerdict,
    TruthVerdict,
    UseVerdict,
)
from ragfault.model.rubrics import Rubric
from ragfault.model.rules import QUOTE_TOLERANCE
from ragfault.text.normalization import split_content_words
from ragfault.text.similarity import locate_quote

PARTS_BY_FIELD = {
    "chunks": "chunk", "statements": "recall", "claims": "claim", "used": "use", "citations": "citation",
    "facts": "fact", "aspects": "answer", "relevance": "answer", "refused": "answer", "questions": "answer",
    "noncommittal": "answer", "rubrics": "rubric",
}  # fmt: skip
"""Field → part of the verdicts, where the names differ."""
EMPTY_CHUNK = "the chunk is empty"


def list_failures(*results: VoteResult) -> dict[str, str]:
    """Map each part to the reasons of its failures, with the ids."""
    reasons_by_part: dict[str, dict[str, None]] = {}
    for result in results:
        for name, reasons in result.failures.items():
            for reason in dict.fromkeys(reasons.values()):
                ids = ", ".join(key for key, cause in reasons.items() if cause == reason and key)
                message = f"no verdict on {name}{' ' if ids else ''}{ids} {AFTER_REPAIR}"
                text = message if reason == AFTER_REPAIR else reason
                reasons_by_part.setdefault(PARTS_BY_FIELD.get(name, name), {})[text] = None
    return {part: "; ".join(reasons) for part, reasons in reasons_by_part.items()}


def build_retrieval_verdicts(inputs: PromptInputs, result: VoteResult, profile: DomainProfile) -> dict[str, Any]:
    """Build the verdicts on the retrieval. Without chunks no model is needed."""
    if inputs.chunks is None:
        return {}
    parts: dict[str, Any] = {"chunk": _chunk_verdicts(inputs, result, profile), "missing": _missing_information(result)}
    if not inputs.chunks:
        parts["missing"] = list_missing(inputs.trace.query, (), LexicalJudge().open_session())
    if inputs.statements:
        candidates = [_recall_verdicts(inputs, result, index) for index in range(len(inputs.statements))]
        parts["recall"] = max(
            candidates, key=lambda verdicts: sum(item.covered for item in verdicts) / max(1, len(verdicts))
        )
    return parts


def _missing_information(result: VoteResult) -> tuple[str, ...] | None:
    missing = result.fields.get("missing")
    return None if missing is None else tuple(dict.fromkeys(text for text in missing if text))


def _chunk_verdicts(inputs: PromptInputs, result: VoteResult, profile: DomainProfile) -> tuple[ChunkVerdict, ...]:
    items = result.items.get("chunks", {})
    verdicts = []
    for chunk in inputs.chunks or ():
        if chunk.is_blank and not chunk.is_unsent_image:
            verdicts.append(
                ChunkVerdict(
                    chunk=chunk.chunk.id, relevance=0.0, level=grade_relevance(0.0, profile.levels), reason=EMPTY_CHUNK
                )
            )
        elif item := items.get(chunk.name):
            verdicts.append(
                ChunkVerdict(
                    chunk=chunk.chunk.id,
                    relevance=item.relevance,
                    level=grade_relevance(item.relevance, profile.levels),
                    reason=item.reason or None,
                    spread=result.spread.get(chunk.name),
                )
            )
    return tuple(verdicts)


def _recall_verdicts(inputs: PromptInputs, result: VoteResult, index: int) -> tuple[RecallVerdict, ...]:
    items = result.items.get("statements", {})
    verdicts = []
    for statement in inputs.statements[index]:
        if not inputs.visible_chunks:
            verdicts.append(RecallVerdict(statement=statement.text, covered=False))
        elif item := items.get(statement.name):
            evidence = _locate_evidence(inputs, item.chunk, item.quote) or ()
            verdicts.append(
                RecallVerdict(statement=statement.text, covered=item.covered, evidence=evidence if item.covered else ())
            )
    return tuple(verdicts)


def build_generation_verdicts(
    inputs: PromptInputs, result: VoteResult, profile: DomainProfile, rubrics: Sequence[Rubric] = ()
) -> dict[str, Any]:
    """Build the verdicts on the answer. A blank answer needs no model."""
    trace = inputs.trace
    if trace.answer is None:
        return {}
    blank = not trace.answer.strip()
    parts: dict[str, Any] = {
        "answer": _answer_verdict(inputs, result, blank=blank),
        "harm": () if blank else _harm_verdicts(result),
    }
    if rubrics:
        parts["rubric"] = _rubric_verdicts(result, rubrics)
    if inputs.chunks is not None:
        parts["claim"] = _claim_verdicts(inputs, result, profile.support)
        parts["use"] = _use_verdicts(inputs, result, blank=blank)
        if trace.citations is not None:
            parts["citation"] = _citation_verdicts(inputs, result, blank=blank)
    claims = parts.get("claim")
    if parts["answer"] is not None and claims is not None and len(claims) >= len(inputs.claims):
        least = min((claim.p for claim in claims if claim.p is not None), default=1.0)
        parts["answer"] = replace(parts["answer"], grounded=least)
    if trace.facts is not None:
        parts["fact"] = _fact_verdicts(inputs, result, blank=blank)
    if trace.facts or trace.references:
        parts["truth"] = _truth_verdicts(inputs, result)
    if trace.references:
        session = LexicalJudge().open_session(trace.query)
        parts["similarity"] = max(session.measure_similarity(trace.answer, reference) for reference in trace.references)
    return parts


def _claim_verdicts(
    inputs: PromptInputs, result: VoteResult, thresholds: SupportThresholds
) -> tuple[ClaimVerdict, ...]:
    items = result.items.get("claims", {})
    verdicts = []
    for number, claim in enumerate(inputs.claims, 1):
        fields: dict[str, Any] = {"claim": claim.text, "start": claim.start, "end": claim.end}
        if not inputs.chunks:
            verdicts.append(ClaimVerdict(**fields, support="unsupported", p=0.0, reason="nothing was retrieved"))
        elif item := items.get(f"s{number}"):
            support, p, threshold_reason = _apply_thresholds(item, thresholds)
            evidence = _locate_evidence(inputs, item.chunk, item.quote)
            verdicts.append(
                ClaimVerdict(
                    **fields,
                    support=support,
                    p=p,
                    unsure=UNSURE_RANGE[0] <= p <= UNSURE_RANGE[1],
                    evidence=evidence or (),
                    misquoted=evidence is None,
                    reason=threshold_reason or item.reason or None,
                    spread=result.spread.get(f"s{number}"),
                )
            )
    return tuple(verdicts)


def _apply_thresholds(item: ClaimItem, thresholds: SupportThresholds) -> tuple[ClaimSupport, float, str]:
    """Lower the support of a claim whose probability is below a threshold of the profile, with the reason."""
    if item.support not in {"supported", "inferred"}:
        return item.support, item.p, ""
    if item.p < thresholds.inferred:
        reason = f"p = {item.p:.2f} is below {thresholds.inferred:g}, the threshold of the profile"
        return "unsupported", min(item.p, BELOW_THRESHOLD), reason
    if item.support == "supported" and item.p < thresholds.supported:
        return ("inferred", item.p, f"p = {item.p:.2f} is below {thresholds.supported:g}, the threshold of the profile")
    return item.support, item.p, ""


def _use_verdicts(inputs: PromptInputs, result: VoteResult, *, blank: bool) -> tuple[UseVerdict, ...]:
    items = result.items.get("used", {})
    claim_words = frozenset(word for claim in inputs.claims for word in split_content_words(claim.text))
    return tuple(
        UseVerdict(
            chunk=chunk.chunk.id,
            used=chunk.name in items and items[chunk.name].used,
            overlap=measure_chunk_overlap(chunk.chunk.text, claim_words),
        )
        for chunk in inputs.chunks or ()
        if chunk.name in items or blank or (chunk.is_blank and not chunk.is_unsent_image)
    )


def _citation_verdicts(inputs: PromptInputs, result: VoteResult, *, blank: bool) -> tuple[CitationVerdict, ...]:
    """Return the verdicts on citations; without a retrieved chunk or a claim it is unsupported."""
    items = result.items.get("citations", {})
    verdicts = []
    if blank:
        return tuple(
            CitationVerdict(chunk=citation.chunk, claim=citation.claim or "", supports=False, p=0.0)
            for citation in inputs.trace.citations or ()
        )
    for citation in inputs.citations:
        chunk_id = citation.citation.chunk
        if citation.chunk_name is None or not citation.claim:
            verdicts.append(CitationVerdict(chunk=chunk_id, claim=citation.claim, supports=False, p=0.0))
        elif item := items.get(citation.name):
            unsure = UNSURE_RANGE[0] <= item.p <= UNSURE_RANGE[1]
            verdicts.append(
                CitationVerdict(chunk=chunk_id, claim=citation.claim, supports=item.supports, p=item.p, unsure=unsure)
            )
    return tuple(verdicts)


def _fact_verdicts(inputs: PromptInputs, result: VoteResult, *, blank: bool) -> tuple[FactVerdict, ...]:
    items = result.items.get("facts", {})
    return tuple(
        FactVerdict(fact=fact.text, present=False)
        if blank
        else FactVerdict(fact=fact.text, present=items[fact.name].present, contradicted=items[fact.name].contradicted)
        for fact in inputs.facts
        if blank or fact.name in items
    )


def _truth_verdicts(inputs: PromptInputs, result: VoteResult) -> tuple[TruthVerdict, ...]:
    items = result.items.get("truth", {})
    return tuple(
        TruthVerdict(claim=claim.text, status=items[name].status)
        for number, claim in enumerate(inputs.claims, 1)
        if (name := f"s{number}") in items
    )


def _rubric_verdicts(result: VoteResult, rubrics: Sequence[Rubric]) -> tuple[RubricVerdict, ...]:
    """Return the verdict by each rubric that the model replied to: the level nearest to its value."""
    items = result.items.get("rubrics", {})
    verdicts = []
    for number, rubric in enumerate(rubrics, 1):
        if item := items.get(f"u{number}"):
            level = rubric.get_level(item.value)
            verdicts.append(
                RubricVerdict(
                    rubric=rubric.name,
                    version=rubric.version,
                    value=level.value,
                    level=level.description,
                    reason=item.reason or None,
                    spread=result.spread.get(f"u{number}"),
                )
            )
    return tuple(verdicts)


def _harm_verdicts(result: VoteResult) -> tuple[Harm, ...] | None:
    if "harm" not in result.fields:
        return None
    return tuple(Harm(category=item.category, score=item.score) for item in result.fields["harm"] if item.score > 0)


def _answer_verdict(inputs: PromptInputs, result: VoteResult, *, blank: bool) -> AnswerVerdict | None:
    """Return the verdict on the answer; None where its relevance failed."""
    if blank:
        aspects = split_query(inputs.trace.query)
        return AnswerVerdict(relevance=0.0, aspects=tuple(Aspect(text=aspect, answered=False) for aspect in aspects))
    if "relevance" not in result.fields:
        return None
    return AnswerVerdict(
        relevance=result.fields["relevance"],
        aspects=tuple(
            Aspect(text=aspect.text, answered=aspect.answered)
            for aspect in result.fields.get("aspects", ())
            if aspect.text
        ),
        refused=result.fields.get("refused", False),
        spread=result.spread.get("relevance"),
    )


def _locate_evidence(inputs: PromptInputs, chunk_name: str, quote: str) -> tuple[Evidence, ...] | None:
    """Locate a quote: in the named chunk, else in another; None where no chunk contains it."""
    if not quote.strip():
        return ()
    matches = [chunk for chunk in inputs.visible_chunks if chunk.name == chunk_name.strip().lower()]
    for chunk in (*matches, *(chunk for chunk in inputs.visible_chunks if chunk not in matches)):
        if spans := _locate_quote(chunk, quote):
            return tuple(Evidence(chunk=chunk.chunk.id, start=start, end=end) for start, end in spans)
    for chunk in matches:
        if chunk.image:
            return (Evidence(chunk=chunk.chunk.id, start=0, end=len(chunk.chunk.text)),)
    return None


def _locate_quote(chunk: PromptChunk, quote: str) -> tuple[tuple[int, int], ...]:
    """Return the spans of a quote in a chunk; the whole chunk where only its Markdown contains it."""
    spans = locate_quote(quote, chunk.chunk.text, QUOTE_TOLERANCE)
    if not spans and chunk.chunk.kind in {"table", "record"} and locate_quote(quote, chunk.text, QUOTE_TOLERANCE):
        return ((0, len(chunk.chunk.text)),)
    return spans
