"""Metrics across the layers: factual accuracy, valid quotes, use of good context."""

from __future__ import annotations

from typing import Literal

from ragfault.metrics.catalog import AnnotatedValue, MetricResult, Undefined, metric
from ragfault.metrics.context import context_relevance, explain_no_chunks
from ragfault.metrics.generation import answer_relevance, explain_no_claims, groundedness, no_claims_value
from ragfault.model.records import Citation, Trace, Verdicts
from ragfault.model.rules import QUOTE_TOLERANCE, RELEVANT_LEVELS, is_right_refusal, quote_matches


@metric(layer="crosscut", verdicts="truth", fields="answer reference facts", source="factual correctness")
def factual_accuracy(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the answer's checkable claims that are true, whatever the chunks say.

    Claims supported / (supported + contradicted) by the reference, the expected facts or a trusted corpus;
    claims on which these are silent do not count. In [0, 1]. Undefined where no claim can be checked.
    """
    if not trace.answer:
        return Undefined("no answer")
    if verdicts.truth is None:
        return _explain_no_truth(trace)
    true = sum(claim.status == "supported" for claim in verdicts.truth)
    false = sum(claim.status == "contradicted" for claim in verdicts.truth)
    return true / (true + false) if true + false else Undefined("no claim that the reference speaks to")


def _explain_no_truth(trace: Trace) -> Undefined:
    """Return the reason why there are no truth verdicts."""
    answer_key = trace.references or trace.facts
    return Undefined("the judge offers no truth verdicts" if answer_key else "no facts and no reference")


@metric(layer="crosscut", verdicts="truth", fields="answer reference facts", source="RAGChecker, Ru et al. 2024")
def claim_precision(trace: Trace, verdicts: Verdicts, *, empty: float | None = None) -> MetricResult:
    """Share of the answer's claims that the reference supports.

    Claims supported by the reference, the expected facts or a trusted corpus / all claims: what these are silent on
    counts against the answer, unlike in factual_accuracy. In [0, 1]. Undefined without an answer, without anything to
    check against, and where the answer makes no claim, unless `empty` gives the value for that (0 in RAGChecker).

    >>> from ragfault.model.records import TruthVerdict
    >>> checked = (TruthVerdict(claim="a", status="supported"), TruthVerdict(claim="b", status="unknown"))
    >>> trace = Trace(id="1", query="q", answer="a. b.", reference="a")
    >>> claim_precision(trace, Verdicts(trace="1", truth=checked))
    0.5
    """
    if not trace.answer:
        return Undefined("no answer")
    if verdicts.truth is None:
        return _explain_no_truth(trace)
    if not verdicts.truth:
        return no_claims_value(Undefined("the answer makes no claim"), empty)
    return sum(claim.status == "supported" for claim in verdicts.truth) / len(verdicts.truth)


@metric(layer="crosscut", fields="citations chunks", source="verbatim quotation")
def citation_validity(
    trace: Trace, verdicts: Verdicts, *, tolerance: float = QUOTE_TOLERANCE, empty: float | None = None
) -> MetricResult:
    """Share of the quotes that stand in the chunk they name.

    The share of citations whose quoted span stands in the named chunk verbatim, or with a similarity of at
    least `tolerance` after white space and quote marks are made alike. A citation of a chunk that was not
    retrieved is invalid; one that names a retrieved chunk without quoting it is not counted. In [0, 1].
    Undefined without a quote to check, unless `empty` gives the value for that.

    >>> from ragfault.model.records import Chunk
    >>> chunk = Chunk(id="a", text="The last ferry leaves at 22:40.")
    >>> cited = (Citation(chunk="a", quote="last ferry leaves at 22:40"), Citation(chunk="b", quote="no such chunk"))
    >>> citation_validity(Trace(id="1", query="q", chunks=(chunk,), citations=cited), Verdicts(trace="1"))
    0.5
    """
    chunks: dict[str, list[str]] = {}
    for chunk in trace.chunks or ():
        chunks.setdefault(chunk.id, []).append(chunk.text)
    checked = [_is_quote_valid(citation, chunks, tolerance) for citation in trace.citations or ()]
    decided = [valid for valid in checked if valid is not None]
    if decided:
        return sum(decided) / len(decided)
    reason = "no citation has a quote" if trace.citations else "no citations"
    return Undefined(reason) if empty is None else AnnotatedValue(empty, f"{reason} counts as {empty:g}")


def _is_quote_valid(citation: Citation, chunks: dict[str, list[str]], tolerance: float) -> bool | None:
    """Return whether the cited chunk contains the quote; None if there is nothing to check."""
    if citation.chunk not in chunks:
        return False
    if not citation.quote or not citation.quote.strip():
        return None
    return any(quote_matches(citation.quote, chunk, tolerance) for chunk in chunks[citation.chunk])


@metric(
    layer="crosscut",
    verdicts="chunk use missing",
    fields="query chunks answer",
    source="Mastra's context relevance",
    scales="unused missing cap scale high medium low none",
)
def context_utility(  # noqa: PLR0913 - each rate of the formula is a parameter
    trace: Trace,
    verdicts: Verdicts,
    *,
    unused: float = 0.1,
    missing: float = 0.15,
    cap: float = 0.5,
    scale: float = 1.0,
    high: float = 1.0,
    medium: float = 0.7,
    low: float = 0.3,
    none: float = 0.0,
) -> MetricResult:
    """Usefulness of the context: relevant, used, and nothing missing.

    max(0, mean level weight − `unused` × unused highly relevant chunks − min(`missing` × missing items, `cap`)) ×
    `scale`, rounded to 2 decimals. In [0, scale]. An empty context counts as 1.0 × scale, by the source's convention,
    and the row says so. Undefined without an answer or where the judge does not offer the parts.
    """
    if trace.chunks is not None and not trace.chunks:
        return AnnotatedValue(scale, f"an empty context counts as {scale:g}")
    base = context_relevance(trace, verdicts, high=high, medium=medium, low=low, none=none)
    if not isinstance(base, int | float):
        return base
    if verdicts.use is None or verdicts.missing is None or verdicts.chunk is None:
        return Undefined("no answer" if not trace.answer else "the judge offers no use or missing verdicts")
    wasted = sum(
        chunk.level == "high" and not use.used for chunk, use in zip(verdicts.chunk, verdicts.use, strict=True)
    )
    value = base - unused * wasted - min(missing * len(verdicts.missing), cap)
    return round(max(0.0, value) * scale, 2)


@metric(
    layer="crosscut",
    better="lower",
    verdicts="claim chunk truth",
    fields="answer chunks reference facts",
    source="RAGChecker, Ru et al. 2024",
)
def noise_sensitivity(
    trace: Trace, verdicts: Verdicts, *, chunks: Literal["all", "relevant", "irrelevant"] = "all", strict: bool = False
) -> MetricResult:
    """Share of the claims that are wrong and were drawn from the chunks.

    The share of claims that the reference contradicts (with `strict`: does not support) and that the chunks
    support, from `chunks` = all, relevant (some chunk in evidence is of high or medium relevance) or
    irrelevant (none is). In [0, 1]. Undefined without claims, reference and facts.
    """
    if not verdicts.claim:
        return explain_no_claims(trace, verdicts)
    if verdicts.truth is None:
        return _explain_no_truth(trace)
    if not verdicts.chunk:
        return explain_no_chunks(trace, verdicts)
    relevant = {chunk.chunk for chunk in verdicts.chunk if chunk.level in RELEVANT_LEVELS}
    wrong = ("contradicted", "unknown") if strict else ("contradicted",)
    count = 0
    for claim, truth in zip(verdicts.claim, verdicts.truth, strict=True):
        if truth.status in wrong and claim.support in ("supported", "inferred"):
            from_relevant = any(evidence.chunk in relevant for evidence in claim.evidence)
            count += chunks == "all" or from_relevant is (chunks == "relevant")
    return count / len(verdicts.claim)


@metric(
    layer="crosscut",
    verdicts="chunk claim answer",
    fields="query chunks answer",
    source="the RAG triad (TruLens)",
    scales="context grounded answer",
)
def triad(
    trace: Trace, verdicts: Verdicts, *, context: float = 0.35, grounded: float = 0.35, answer: float = 0.3
) -> MetricResult:
    """The RAG triad in one number; shown only beside its parts.

    `context` × context_relevance + `grounded` × groundedness + `answer` × answer_relevance. In [0, 1] where
    the weights sum to 1. Undefined where one of the three is, and for a refusal that is right by gold.
    """
    if is_right_refusal(verdicts):
        return Undefined("the refusal is right by gold")
    total = 0.0
    parts = ((context, context_relevance), (grounded, groundedness), (answer, answer_relevance))
    for weight, function in parts:
        value = function(trace, verdicts)
        if isinstance(value, Undefined):
            return Undefined(f"{function.__name__}: {value.reason}")
        total += weight * (value.value if isinstance(value, AnnotatedValue) else value)
    return total
