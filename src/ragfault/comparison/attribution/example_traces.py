"""Traces that show a fault, with their texts before and after."""

from __future__ import annotations

from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.records import ExampleTrace, LayerFault, MovedTrace
from ragfault.labels.correction import apply_labels
from ragfault.model.records import Trace, Verdicts
from ragfault.model.rules import RELEVANT_LEVELS, quote_matches

# maximum length of a text in an example
MAX_CHARACTERS = 400

JudgedTrace = tuple[Trace, Verdicts]


def pick_examples(paired: PairedRuns, fault: LayerFault) -> tuple[ExampleTrace, ...]:
    """Pick the traces on which the first evidence of a fault fell most, with their texts before and after."""
    change = fault.evidence[0]
    movers = {mover.trace: mover for mover in (change.drops if change.better == "higher" else change.gains)}
    new = _load_traces(paired, 1, list(movers))
    partners = paired.baseline_ids(list(movers))
    old = _load_traces(paired, 0, list(partners.values()))
    examples = []
    for name, mover in movers.items():
        if name in new and partners.get(name) in old:
            before, after = _evidence_texts(fault, old[partners[name]], new[name])
            examples.append(_build_example(change.metric, mover, before, after))
    return tuple(examples)


def _load_traces(paired: PairedRuns, side_index: int, ids: list[str]) -> dict[str, JudgedTrace]:
    run, labels = paired.runs[side_index], paired.matrices[side_index].labels
    items = {} if labels is None else labels.items
    return {
        trace.id: (trace, apply_labels(verdicts, items.get(trace.id, {})))
        for trace, verdicts in zip(run.traces(ids), run.verdicts(ids), strict=True)
    }


def _build_example(metric: str, mover: MovedTrace, before: str | None, after: str | None) -> ExampleTrace:
    return ExampleTrace(
        trace=mover.trace,
        query=mover.query,
        metric=metric,
        baseline=mover.baseline,
        candidate=mover.candidate,
        before=_truncate(before),
        after=_truncate(after),
    )


def _evidence_texts(fault: LayerFault, baseline: JudgedTrace, candidate: JudgedTrace) -> tuple[str | None, str | None]:
    """Return the texts to show: chunks for retrieval, claims for grounding, quotes for citations, else answers."""
    if fault.layer == "pipeline":
        return baseline[0].answer, candidate[0].error
    if fault.layer == "retrieval":
        return _lost_chunk_text(baseline, candidate), _irrelevant_chunk_text(candidate)
    if fault.branch.startswith("2"):
        return _claim_text(baseline, good=True), _claim_text(candidate, good=False)
    if fault.branch.startswith("5"):
        return _quote_text(baseline, good=True), _quote_text(candidate, good=False)
    return baseline[0].answer, candidate[0].answer


def _lost_chunk_text(baseline: JudgedTrace, candidate: JudgedTrace) -> str | None:
    """Return the best chunk of the baseline that the candidate did not retrieve."""
    there = {chunk.text for chunk in candidate[0].chunks or ()}
    chunks = baseline[0].chunks or ()
    gold = baseline[0].gold.chunks if baseline[0].gold else {}
    seen = baseline[1].chunk or ()
    ranked = sorted(
        (gold.get(chunk.id, 0.0), seen[at].relevance if at < len(seen) else 0.0, -at, chunk.text)
        for at, chunk in enumerate(chunks)
        if chunk.text not in there
    )
    return ranked[-1][-1] if ranked else None


def _irrelevant_chunk_text(candidate: JudgedTrace) -> str | None:
    """Return the first irrelevant chunk of the candidate, else its first chunk."""
    chunks = candidate[0].chunks or ()
    for chunk, verdict in zip(chunks, candidate[1].chunk or (), strict=False):
        if verdict.level not in RELEVANT_LEVELS:
            return chunk.text
    return chunks[0].text if chunks else None


def _claim_text(judged: JudgedTrace, *, good: bool) -> str | None:
    """Return the first claim that is (not) supported, with the reason; else the answer."""
    for claim in judged[1].claim or ():
        if (claim.support in ("supported", "inferred")) is good:
            reason = f" ({claim.support}{f': {claim.reason}' if claim.reason else ''})" if not good else ""
            return f"{claim.claim}{reason}"
    return judged[0].answer


def _quote_text(judged: JudgedTrace, *, good: bool) -> str | None:
    """Return the first citation that does (not) hold."""
    trace, verdicts = judged
    texts = {chunk.id: chunk.text for chunk in trace.chunks or ()}
    for at, citation in enumerate(trace.citations or ()):
        supported = verdicts.citation is None or at >= len(verdicts.citation) or verdicts.citation[at].supports
        quoted = citation.quote is None or quote_matches(citation.quote, texts.get(citation.chunk, ""))
        if (supported and quoted) is good:
            return f"“{citation.quote or citation.claim or ''}” → {citation.chunk}"
    return None


def _truncate(text: str | None) -> str | None:
    return text if text is None or len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
