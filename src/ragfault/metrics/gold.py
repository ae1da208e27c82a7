"""Retrieval and citation metrics against gold chunks and gold spans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

from ragfault.metrics import ranking
from ragfault.metrics.catalog import AnnotatedValue, BatchFormula, MetricResult, Undefined, metric
from ragfault.model.records import Span, Trace, Verdicts

TREC_EVAL = "trec_eval"


TraceRankings = tuple[ranking.Ranking, list[str | None]]
"""The judged chunks of some traces, and why nothing of a trace can be ranked, or None."""


def _explain_unranked(trace: Trace) -> str | None:
    if trace.gold is None or not trace.gold.chunks:
        return "no gold"
    return "chunks not recorded" if trace.chunks is None else None


def judge_rankings(traces: Sequence[Trace]) -> TraceRankings:
    """Judge the chunks of each trace, in the order the generator saw them, once for all metrics."""
    reasons = list(map(_explain_unranked, traces))
    ids = [[chunk.id for chunk in trace.chunks or ()] for trace in traces]
    pairs = zip(traces, reasons, strict=True)
    gold = [trace.gold.chunks if trace.gold is not None and reason is None else {} for trace, reason in pairs]
    return ranking.rankings_from_lists(ids, gold, [trace.id for trace in traces]), reasons


def _score_rankings(name: str, rankings: TraceRankings, **parameters: Any) -> Iterator[MetricResult]:
    """Compute a ranking metric for each trace."""
    values, defined = ranking.compute_rank_metric(name, rankings[0], **parameters)
    for value, is_defined, reason in zip(values.tolist(), defined.tolist(), rankings[1], strict=True):
        yield value if is_defined else Undefined(reason or "no relevant gold")


def _rank_batch(name: str) -> BatchFormula:
    return BatchFormula(judge_rankings, partial(_score_rankings, name))


def _score_ranking(name: str, trace: Trace, **parameters: Any) -> MetricResult:
    """Compute a ranking metric for the chunks of one trace."""
    if (reason := _explain_unranked(trace)) is not None:
        return Undefined(reason)
    return next(_score_rankings(name, judge_rankings([trace]), **parameters))


@metric(layer="retrieval", fields="chunks gold", source=TREC_EVAL, positive="relevant", batch=_rank_batch("recall"))
def recall(trace: Trace, verdicts: Verdicts, *, k: int | None = None, relevant: float = 1.0) -> MetricResult:
    """Share of the relevant chunks that are among the first k.

    Relevant chunks found / relevant chunks in the gold; a chunk retrieved twice counts once. Relevant are
    grades of at least `relevant`. In [0, 1]. Undefined without relevant gold.

    >>> from ragfault.model.records import Chunk, Gold
    >>> found = tuple(Chunk(id=name) for name in "abc")
    >>> recall(Trace(id="1", query="q", chunks=found, gold=Gold(chunks={"b": 1, "z": 1})), Verdicts(trace="1"), k=2)
    0.5
    """
    return _score_ranking("recall", trace, k=k, relevant=relevant)


@metric(layer="retrieval", fields="chunks gold", source=TREC_EVAL, positive="relevant", batch=_rank_batch("precision"))
def precision(
    trace: Trace,
    verdicts: Verdicts,
    *,
    k: int | None = None,
    relevant: float = 1.0,
    over: Literal["places", "retrieved"] = "places",
) -> MetricResult:
    """Share of the first k chunks that are relevant.

    Relevant chunks found / k, also where fewer than k were retrieved; without k, / retrieved. `over` = retrieved
    divides by the chunks there are among the first k, as mlflow does. In [0, 1]. Undefined without relevant gold.
    """
    return _score_ranking("precision", trace, k=k, relevant=relevant, over=over)


@metric(
    layer="retrieval", fields="chunks gold", source="van Rijsbergen 1979", positive="relevant", batch=_rank_batch("f1")
)
def f1(trace: Trace, verdicts: Verdicts, *, k: int | None = None, relevant: float = 1.0) -> MetricResult:
    """The harmonic mean of precision and recall at k.

    In [0, 1]. Undefined without relevant gold.
    """
    return _score_ranking("f1", trace, k=k, relevant=relevant)


@metric(
    layer="retrieval", fields="chunks gold", source="trec_eval (success)", positive="relevant", batch=_rank_batch("hit")
)
def hit(trace: Trace, verdicts: Verdicts, *, k: int | None = None, relevant: float = 1.0) -> MetricResult:
    """Hit: 1 where a relevant chunk is among the first k, else 0.

    1 or 0. Undefined without relevant gold.
    """
    return _score_ranking("hit", trace, k=k, relevant=relevant)


@metric(
    layer="retrieval",
    fields="chunks gold",
    source="trec_eval; Voorhees 1999",
    positive="relevant",
    batch=_rank_batch("reciprocal_rank"),
)
def reciprocal_rank(trace: Trace, verdicts: Verdicts, *, k: int | None = None, relevant: float = 1.0) -> MetricResult:
    """One over the rank of the first relevant chunk, 0 where none is among the first k.

    In [0, 1]. Undefined without relevant gold.
    """
    return _score_ranking("reciprocal_rank", trace, k=k, relevant=relevant)


@metric(
    layer="retrieval",
    fields="chunks gold",
    source=TREC_EVAL,
    positive="relevant",
    batch=_rank_batch("average_precision"),
)
def average_precision(trace: Trace, verdicts: Verdicts, *, k: int | None = None, relevant: float = 1.0) -> MetricResult:
    """The mean, over all relevant chunks, of the precision at the rank where each was found.

    A relevant chunk that was not found counts 0: the sum is divided by all relevant gold. (context_precision
    divides by the relevant retrieved.) In [0, 1]. Undefined without relevant gold.
    """
    return _score_ranking("average_precision", trace, k=k, relevant=relevant)


@metric(
    layer="retrieval",
    fields="chunks gold",
    source="Järvelin & Kekäläinen 2002; exponential gain: Burges et al. 2005",
    batch=_rank_batch("ndcg"),
)
def ndcg(
    trace: Trace,
    verdicts: Verdicts,
    *,
    k: int | None = None,
    gain: Literal["linear", "exponential", "binary"] = "linear",
) -> MetricResult:
    """Discounted cumulative gain of the ranking, divided by the best that the graded gold allows.

    Discounted cumulative gain over that of the ideal ranking of all gold, both cut at k; discount log2(rank
    + 1); `gain` = linear (the grade, as trec_eval), exponential (2^grade − 1) or binary (1 for any positive grade, as
    mlflow). In [0, 1]. Undefined without gold of a positive grade.
    """
    return _score_ranking("ndcg", trace, k=k, gain=gain)


@metric(
    layer="retrieval", fields="chunks gold", source=TREC_EVAL, positive="relevant", batch=_rank_batch("r_precision")
)
def r_precision(trace: Trace, verdicts: Verdicts, *, relevant: float = 1.0) -> MetricResult:
    """The precision at R, where R is how many relevant chunks there are.

    In [0, 1]. Undefined without relevant gold.
    """
    return _score_ranking("r_precision", trace, relevant=relevant)


@metric(
    layer="retrieval",
    fields="chunks gold",
    source="Moffat & Zobel 2008; ir_measures",
    positive="relevant p",
    scales="gain",
    batch=_rank_batch("rbp"),
)
def rbp(
    trace: Trace,
    verdicts: Verdicts,
    *,
    k: int | None = None,
    relevant: float = 1.0,
    p: float = 0.8,
    gain: Literal["binary", "linear"] = "binary",
) -> MetricResult:
    """Rank-biased precision: the gain of a reader who goes on to the next chunk with probability p.

    The sum over the first k ranks r of (1 − p) · p^(r − 1) · gain; `gain` = binary (1 for a relevant chunk) or linear
    (the grade, as ir_measures without rel; then not bounded by 1). The sum of n ranks is at most 1 − p^n. In [0, 1].
    Undefined without relevant gold; p lies between 0 and 1.

    >>> from ragfault.model.records import Chunk, Gold
    >>> found = tuple(Chunk(id=name) for name in "abc")
    >>> rbp(Trace(id="1", query="q", chunks=found, gold=Gold(chunks={"a": 1, "c": 1})), Verdicts(trace="1"), p=0.5)
    0.625
    """
    return _score_ranking("rbp", trace, k=k, relevant=relevant, p=p, gain=gain)


@metric(layer="retrieval", fields="chunks gold", source="trec_eval; Buckley & Voorhees 2004", positive="relevant")
def bpref(trace: Trace, verdicts: Verdicts, *, relevant: float = 1.0) -> MetricResult:
    """Preference of the relevant chunks over those judged not relevant, by their ranks.

    The mean over the R relevant chunks of 1 − min(n, R) / min(N, R): n judged chunks of a grade from 0 to below
    `relevant` were retrieved before it, of N in the gold; 0 for a chunk that was not retrieved. Chunks without a grade
    change nothing. Where the gold has no such chunk the value is recall, as in trec_eval, and the row says so. In
    [0, 1]. Undefined without relevant gold.

    >>> from ragfault.model.records import Chunk, Gold
    >>> found = tuple(Chunk(id=name) for name in "axb")
    >>> gold = Gold(chunks={"a": 1, "b": 1, "x": 0})
    >>> bpref(Trace(id="1", query="q", chunks=found, gold=gold), Verdicts(trace="1"))
    0.5
    """
    result = _score_ranking("bpref", trace, relevant=relevant)
    grades = trace.gold.chunks.values() if trace.gold else ()
    if isinstance(result, float) and trace.gold and not any(0 <= grade < relevant for grade in grades):
        return AnnotatedValue(result, "no gold of grade 0: bpref is recall")
    return result


def _measure_overlap(trace: Trace) -> tuple[int, int, int] | Undefined:
    """Count the characters that are both retrieved and gold, gold, and retrieved."""
    if trace.gold is None or not trace.gold.spans:
        return Undefined("no gold spans")
    if trace.chunks is None:
        return Undefined("chunks not recorded")
    spans = [
        Span(document=chunk.document, start=chunk.start, end=chunk.end)
        for chunk in trace.chunks
        if chunk.document is not None and chunk.start is not None and chunk.end is not None
    ]
    if trace.chunks and not spans:
        return Undefined("no chunk states its place in a document")
    gold = _merge_spans(span for span in trace.gold.spans if span.grade > 0)
    if not gold:
        return Undefined("no gold spans")
    retrieved = _merge_spans(spans)
    return (
        sum(_count_shared(gold[name], retrieved.get(name, [])) for name in gold),
        _count_characters(gold),
        _count_characters(retrieved),
    )


DocumentIntervals = dict[str, list[tuple[int, int]]]


def _merge_spans(spans: Iterable[Span]) -> DocumentIntervals:
    """Return the spans by document, sorted and without overlap."""
    merged: DocumentIntervals = {}
    for span in sorted(spans, key=lambda span: (span.document, span.start)):
        intervals = merged.setdefault(span.document, [])
        if intervals and span.start <= intervals[-1][1]:
            intervals[-1] = (intervals[-1][0], max(intervals[-1][1], span.end))
        elif span.end > span.start:
            intervals.append((span.start, span.end))
    return {name: intervals for name, intervals in merged.items() if intervals}


def _count_characters(intervals: DocumentIntervals) -> int:
    return sum(end - start for parts in intervals.values() for start, end in parts)


def _count_shared(ours: list[tuple[int, int]], theirs: list[tuple[int, int]]) -> int:
    return sum(max(0, min(end, stop) - max(start, begin)) for start, end in ours for begin, stop in theirs)


@metric(layer="retrieval", fields="chunks gold", source="Smith & Troynikov 2024, evaluating chunking")
def span_recall(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the gold spans of the source documents that the chunks hold.

    Characters of gold retrieved / characters of gold; re-chunking does not void the labels. In [0, 1].
    Undefined without gold spans, or where no chunk says where in its document it stands.

    >>> from ragfault.model.records import Chunk, Gold
    >>> gold = Gold(spans=(Span(document="d", start=0, end=10),))
    >>> chunks = (Chunk(id="a", document="d", start=5, end=25),)
    >>> span_recall(Trace(id="1", query="q", chunks=chunks, gold=gold), Verdicts(trace="1"))
    0.5
    """
    overlap = _measure_overlap(trace)
    return overlap if isinstance(overlap, Undefined) else overlap[0] / overlap[1]


@metric(layer="retrieval", fields="chunks gold", source="Smith & Troynikov 2024, evaluating chunking")
def span_precision(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the retrieved text that is gold.

    Characters of gold retrieved / characters retrieved. In [0, 1]. Undefined without gold spans or where
    nothing was retrieved.
    """
    overlap = _measure_overlap(trace)
    if isinstance(overlap, Undefined):
        return overlap
    return overlap[0] / overlap[2] if overlap[2] else Undefined("nothing retrieved")


@metric(layer="retrieval", fields="chunks gold", source="Smith & Troynikov 2024, evaluating chunking")
def span_iou(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Intersection over union of the retrieved text and the gold spans.

    Characters in both / characters in either. In [0, 1]. Undefined without gold spans.
    """
    overlap = _measure_overlap(trace)
    return overlap if isinstance(overlap, Undefined) else overlap[0] / (overlap[1] + overlap[2] - overlap[0])


def _measure_cited(trace: Trace, relevant: float, *, of_gold: bool) -> MetricResult:
    """Return the share of the relevant chunks (`of_gold`), or of the cited ones, that are both."""
    cited = {citation.chunk for citation in trace.citations or ()}
    relevant_chunks = {name for name, grade in (trace.gold.chunks if trace.gold else {}).items() if grade >= relevant}
    if trace.citations is None or (relevant_chunks and not cited):
        return Undefined("no citations")
    if not relevant_chunks:
        return Undefined("no relevant gold")
    return len(cited & relevant_chunks) / len(relevant_chunks if of_gold else cited)


@metric(
    layer="generation", fields="citations gold", source="precision and recall of the cited set", positive="relevant"
)
def citation_precision(trace: Trace, verdicts: Verdicts, *, relevant: float = 1.0) -> MetricResult:
    """Share of the cited chunks that are relevant by the gold.

    cited ∩ relevant / cited, each chunk once. In [0, 1]. Undefined without citations or relevant gold.
    """
    return _measure_cited(trace, relevant, of_gold=False)


@metric(
    layer="generation", fields="citations gold", source="precision and recall of the cited set", positive="relevant"
)
def citation_recall(trace: Trace, verdicts: Verdicts, *, relevant: float = 1.0) -> MetricResult:
    """Share of the relevant chunks, by the gold, that the answer cites.

    cited ∩ relevant / relevant. In [0, 1]. Undefined without citations or relevant gold.
    """
    return _measure_cited(trace, relevant, of_gold=True)
