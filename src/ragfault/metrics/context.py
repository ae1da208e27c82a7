"""Retrieval metrics from verdicts: relevance, ranking, completeness and use of the retrieved chunks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragfault.metrics.catalog import AnnotatedValue, MetricResult, Undefined, metric
from ragfault.model.records import ChunkVerdict, Trace, Verdicts
from ragfault.model.rules import RELEVANT_LEVELS, get_asked_time, is_outdated
from ragfault.text.entities import EntityIndex, extract_entities
from ragfault.text.normalization import split_words

SHINGLE_WORDS = 3
NOTHING_RELEVANT = "nothing relevant retrieved counts as 0"


def explain_no_chunks(trace: Trace, verdicts: Verdicts) -> Undefined:
    """Return the reason why there are no chunk verdicts."""
    if trace.chunks is None:
        return Undefined("chunks not recorded")
    if not trace.chunks:
        return Undefined("nothing retrieved")
    if not any(chunk.text.strip() for chunk in trace.chunks):
        return Undefined("the chunks hold no text")
    return Undefined("the judge offers no chunk verdicts" if verdicts.chunk is None else "no chunk verdicts")


def share_facts(trace: Trace, outcomes: Sequence[tuple[str, bool]], okay: float) -> MetricResult:
    """Return the share of facts that hold, those of `metadata.okay_facts` weighed by `okay`, all others by 1.

    Source: vital and okay nuggets of TREC, Voorhees 2003; TREC RAG 2024 weighs okay ones by 0.5.

    >>> share_facts(Trace(id="1", query="q", metadata={"okay_facts": ["b"]}), [("a", True), ("b", False)], 0.5)
    0.6666666666666666
    """
    okay_facts = trace.metadata.get("okay_facts")
    okay_names = set(map(str, okay_facts)) if isinstance(okay_facts, list | tuple) else set()
    weights = [okay if fact in okay_names else 1.0 for fact, _ in outcomes]
    total = sum(weights)
    if total <= 0:
        return Undefined("no vital fact, and okay ones do not count")
    return sum(weight for weight, (_, holds) in zip(weights, outcomes, strict=True) if holds) / total


@metric(
    layer="retrieval",
    verdicts="chunk",
    fields="query chunks",
    source="graded context relevance as in Mastra's scorer",
    scales="high medium low none",
)
def context_relevance(
    trace: Trace,
    verdicts: Verdicts,
    *,
    k: int | None = None,
    high: float = 1.0,
    medium: float = 0.7,
    low: float = 0.3,
    none: float = 0.0,
) -> MetricResult:
    """Mean relevance of the retrieved chunks to the query.

    The mean over the chunks (the first k) of the weight of each one's level: high 1.0, medium 0.7, low 0.3,
    none 0.0. In [0, 1]. Undefined when nothing was retrieved.

    >>> good = ChunkVerdict(chunk="a", relevance=0.9, level="high")
    >>> bad = ChunkVerdict(chunk="b", relevance=0.1, level="none")
    >>> context_relevance(Trace(id="1", query="q"), Verdicts(trace="1", chunk=(good, bad)))
    0.5
    """
    if not verdicts.chunk:
        return explain_no_chunks(trace, verdicts)
    weights = {"high": high, "medium": medium, "low": low, "none": none}
    levels = [weights[chunk.level] for chunk in verdicts.chunk[:k]]
    return sum(levels) / len(levels)


def chunk_average_precision(chunks: Sequence[ChunkVerdict]) -> float:
    """Return the average precision over the relevant retrieved chunks; 0 without any."""
    relevant, total = 0, 0.0
    for rank, chunk in enumerate(chunks, 1):
        if chunk.level in RELEVANT_LEVELS:
            relevant += 1
            total += relevant / rank
    return total / relevant if relevant else 0.0


@metric(
    layer="retrieval",
    verdicts="chunk",
    fields="query chunks",
    source="average precision divided by relevant retrieved, as Ragas and Mastra compute it",
)
def context_precision(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Average precision of the ranked list: relevant chunks before irrelevant ones.

    Average precision of the ranked list with high and medium chunks relevant, divided by the relevant
    chunks *retrieved* (trec_eval's average_precision divides by all that exist). In [0, 1]. Where
    nothing relevant was retrieved it is 0, and the row says so. Undefined when no chunks were recorded.

    >>> levels = ["high", "none", "medium"]
    >>> chunks = tuple(ChunkVerdict(chunk=str(i), relevance=0, level=level) for i, level in enumerate(levels))
    >>> context_precision(Trace(id="1", query="q"), Verdicts(trace="1", chunk=chunks))
    0.8333333333333333
    """
    if trace.chunks is not None and not trace.chunks:
        return AnnotatedValue(0.0, NOTHING_RELEVANT)
    if not verdicts.chunk:
        return explain_no_chunks(trace, verdicts)
    value = chunk_average_precision(verdicts.chunk)
    return value if value else AnnotatedValue(0.0, NOTHING_RELEVANT)


@metric(
    layer="retrieval",
    better="lower",
    verdicts="chunk",
    fields="query chunks",
    source="Mastra's context precision",
    scales="rate free cap",
)
def ranking_penalty(
    trace: Trace, verdicts: Verdicts, *, rate: float = 0.05, free: int = 3, cap: float = 0.3
) -> MetricResult:
    """Penalty for highly relevant chunks below the third position.

    `rate` × (position − `free`) summed over the highly relevant chunks below position `free`, at most
    `cap`. In [0, cap]. Undefined when nothing was retrieved.

    >>> chunks = tuple(ChunkVerdict(chunk=str(i), relevance=0.9, level="high") for i in range(5))
    >>> round(ranking_penalty(Trace(id="1", query="q"), Verdicts(trace="1", chunk=chunks)), 2)
    0.15
    """
    if not verdicts.chunk:
        return explain_no_chunks(trace, verdicts)
    positions = (rank for rank, chunk in enumerate(verdicts.chunk, 1) if chunk.level == "high")
    return min(sum(rate * (rank - free) for rank in positions if rank > free), cap)


@metric(layer="retrieval", verdicts="chunk", fields="query chunks", source="Mastra's context precision")
def context_ranking(
    trace: Trace, verdicts: Verdicts, *, rate: float = 0.05, free: int = 3, cap: float = 0.3
) -> MetricResult:
    """Quality of the ranking: context_precision less ranking_penalty.

    max(0, context_precision − ranking_penalty). In [0, 1]. Undefined as context_precision is.

    >>> chunks = tuple(ChunkVerdict(chunk=str(i), relevance=0.9, level="high") for i in range(5))
    >>> round(context_ranking(Trace(id="1", query="q"), Verdicts(trace="1", chunk=chunks)), 2)
    0.85
    """
    precision = context_precision(trace, verdicts)
    penalty = ranking_penalty(trace, verdicts, rate=rate, free=free, cap=cap)
    if not isinstance(precision, float) or not isinstance(penalty, int | float):
        return precision
    return max(0.0, precision - penalty)


@metric(layer="retrieval", verdicts="recall", fields="facts reference chunks", source="Ragas, RAGChecker")
def context_recall(trace: Trace, verdicts: Verdicts, *, okay: float = 1.0) -> MetricResult:
    """Share of what a right answer needs that the retrieved chunks support.

    The share of the expected facts (else of the statements of the reference) that the chunks support. Facts that
    `metadata.okay_facts` lists count `okay` times as much as the others, the vital ones. In [0, 1]. Undefined with
    neither facts nor reference, and where nothing counts.
    """
    if not trace.facts and not trace.references:
        return Undefined("no facts and no reference")
    if trace.chunks is None:
        return Undefined("chunks not recorded")
    if verdicts.recall is None:
        return Undefined("the judge offers no recall verdicts")
    if not verdicts.recall:
        return Undefined("the reference makes no statement")
    return share_facts(trace, [(item.statement, item.covered) for item in verdicts.recall], okay)


@metric(layer="retrieval", fields="reference facts chunks", source="exact matching after normalisation")
def context_entity_recall(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the names, numbers, dates and identifiers of a right answer that occur in the chunks.

    The share of the items of the reference (the best of several; else of the facts together) that occur
    in the chunks, matched exactly after normalisation: 1921 is not 2921, Austria is not Australia. In
    [0, 1]. Undefined with no item in the reference.

    >>> from ragfault.model.records import Chunk
    >>> trace = Trace(id="1", query="q", chunks=(Chunk(id="a", text="It opened in 1921."),), reference="In 1921.")
    >>> context_entity_recall(trace, Verdicts(trace="1"))
    1.0
    """
    if trace.chunks is None:
        return Undefined("chunks not recorded")
    sources = trace.references or ((" \n".join(trace.facts),) if trace.facts else ())
    if not sources:
        return Undefined("no facts and no reference")
    expected = [entities for entities in map(extract_entities, sources) if entities]
    if not expected:
        return Undefined("no name, number, date or identifier in the reference")
    index = EntityIndex(*(chunk.text for chunk in trace.chunks))
    return max(sum(entity in index for entity in entities) / len(entities) for entities in expected)


@metric(
    layer="retrieval", better="lower", range=(0.0, math.inf), verdicts="missing", fields="query chunks", source="Mastra"
)
def missing_context(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Number of pieces of information that the query needs and no chunk holds.

    A count from 0. With gold: the gold spans, else the facts, that no chunk holds; 0 where all gold was retrieved.
    Undefined when the judge does not look for missing information or no chunks were recorded.
    """
    if trace.chunks is None:
        return Undefined("chunks not recorded")
    if verdicts.missing is None:
        return (
            explain_no_chunks(trace, verdicts)
            if verdicts.chunk is None
            else Undefined("the judge offers no missing verdicts")
        )
    return len(verdicts.missing)


@metric(layer="retrieval", verdicts="citation", fields="citations chunks", source="attribution to identified sources")
def chunk_attribution(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of citations whose chunk supports the claim they stand by.

    Citations with the verdict "supports" over all citations, in [0, 1]. Undefined without citations.
    """
    if not trace.citations:
        return Undefined("no citations")
    if not verdicts.citation:
        return Undefined("the judge offers no citation verdicts")
    return sum(item.supports for item in verdicts.citation) / len(verdicts.citation)


@metric(layer="retrieval", verdicts="use", fields="chunks answer", source="chunk utilisation")
def chunk_utilization(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the retrieved chunks that the answer drew on.

    Chunks with the verdict "used" over all chunks, in [0, 1]; below 0.25 to 0.30 the system over-fetches.
    Undefined with no chunks or no answer.
    """
    if not trace.chunks:
        return explain_no_chunks(trace, verdicts)
    if not trace.answer:
        return Undefined("no answer")
    if not verdicts.use:
        return Undefined("the judge offers no use verdicts")
    return sum(item.used for item in verdicts.use) / len(verdicts.use)


@metric(layer="retrieval", better="lower", fields="chunks", source="shingle resemblance, Broder 1997")
def redundancy(trace: Trace, verdicts: Verdicts, *, threshold: float = 0.8) -> MetricResult:
    """Share of the chunks that nearly repeat an earlier one.

    The share of chunks whose word shingles have a Jaccard similarity of at least `threshold` with those of
    an earlier chunk. Chunks without text are left out. In [0, 1). Undefined when nothing was retrieved, or
    no text of it is recorded.

    >>> from ragfault.model.records import Chunk
    >>> twice = (Chunk(id="a", text="Dogs must be on a lead."), Chunk(id="b", text="Dogs must be on a lead."))
    >>> redundancy(Trace(id="1", query="q", chunks=twice), Verdicts(trace="1"))
    0.5
    """
    if not trace.chunks:
        return Undefined("chunks not recorded" if trace.chunks is None else "nothing retrieved")
    earlier: list[WordRuns] = []
    earlier_shingles: set[tuple[str, ...]] = set()
    repeats = 0
    for chunk in trace.chunks:
        if chunk.text.strip():
            shingles = _list_shingles(chunk.text)
            # Of all earlier chunks together it shares no less than of one.
            if not shingles or len(shingles & earlier_shingles) / len(shingles) >= threshold:
                repeats += any(_jaccard_similarity(shingles, other) >= threshold for other in earlier)
            earlier.append(shingles)
            earlier_shingles |= shingles
    return repeats / len(earlier) if earlier else Undefined("the chunks hold no text")


WordRuns = frozenset[tuple[str, ...]]


def _list_shingles(source: str) -> WordRuns:
    """List the shingles of `text.make_shingles` as tuples, which are made in less time than texts."""
    words = split_words(source)
    if len(words) < SHINGLE_WORDS:
        return frozenset((words,)) if words else frozenset()
    return frozenset(zip(*(words[start:] for start in range(SHINGLE_WORDS)), strict=False))


def _jaccard_similarity(a: WordRuns, b: WordRuns) -> float:
    if not a or not b:
        return 1.0 if a == b else 0.0
    common = len(a & b)
    return common / (len(a) + len(b) - common)


@metric(
    layer="retrieval",
    better="lower",
    fields="chunks time",
    source="validity of the source at the time asked",
    positive="max_age",
)
def staleness(trace: Trace, verdicts: Verdicts, *, max_age: float | None = None) -> MetricResult:
    """Share of the dated chunks that were not valid at the time of the query.

    The share, among chunks with a date in their metadata, of those asked for before `valid_from`, after
    `valid_to`, or more than `max_age` days after `updated_at` (if `max_age` is given). In [0, 1]. A query that asks
    for what held at another time ("as of 2024"), or follows one in the history that does, counts at that time.
    Undefined without the time of the query or without dates.
    """
    if not trace.chunks:
        return Undefined("chunks not recorded" if trace.chunks is None else "nothing retrieved")
    asked_time = get_asked_time(trace)
    if asked_time is None:
        return Undefined("the time of the query is not recorded")
    stale = [verdict for chunk in trace.chunks if (verdict := is_outdated(chunk, asked_time, max_age)) is not None]
    names = "valid_from or valid_to" if max_age is None else "valid_from, valid_to or updated_at"
    return sum(stale) / len(stale) if stale else Undefined(f"no chunk carries a date as {names}")
