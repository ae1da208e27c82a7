"""Description of an evaluation set: its kinds, coverage of the corpus, effective size, and what it can detect."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from statistics import fmean

from msgspec import Struct

from ragfault.apps.testsets.passages import CorpusIndex
from ragfault.model.errors import InputError
from ragfault.model.grouping import group_by, join_by_marks
from ragfault.model.records import Document, Span, Trace
from ragfault.stats.power import detectable_effect, required_pairs
from ragfault.text.number_format import format_percent
from ragfault.text.similarity import make_shingles

TYPICAL_DEVIATION = 0.25
"""Standard deviation by question of nDCG@10 differences of similar pipelines; medians of four corpora: 0.15 to 0.24."""
PLANNED_CHANGE = 0.05
NEAR_CHARACTERS = 400
"""Gold spans of one document so near to each other depend on one passage."""
SIMILAR_QUERIES = 0.5
"""Jaccard similarity of word pairs from which on two queries ask about one thing."""
DOMINANT_SHARE = 0.3
NEAR_RANK = 10
EASY_SHARE = 0.9
"""Share of items whose gold BM25 ranks first, from which on no retriever has room to be better."""
MIN_DOCUMENTS = 4
MIN_ITEMS = 50
MAX_LISTED = 10


class DocumentCoverage(Struct, frozen=True, kw_only=True):
    """Share of the items that have gold in a document."""

    document: str
    items: int
    share: float


class TestsetDescription(Struct, frozen=True, kw_only=True):
    """Content of an evaluation set, and how much can be concluded from it."""

    # not a class of tests
    __test__ = False

    items: int
    kinds: dict[str, int]
    """Kind of question → number of items; "unknown" without one."""
    unanswerable: int
    """Items that are marked as not answerable."""
    reviewed: int
    """Items that a person accepted."""
    chunks_needed: float | None
    """Mean number of separate gold places of an item; None without gold."""
    documents: tuple[DocumentCoverage, ...]
    """The documents with most items, at most ten."""
    covered: int
    """Number of documents with gold."""
    corpus: int | None
    """Number of documents of the corpus; None where it was not given."""
    topics: dict[str, float]
    """Topic of the corpus → share of it that has gold nearby; empty where the corpus was not given."""
    uncovered: tuple[str, ...]
    """The longest documents without an item, at most ten."""
    ranks: dict[str, int]
    """Rank of the gold by BM25 when the set was made ("1", "2 to 10", "later") → number of items."""
    groups: int
    """Groups of items with overlapping gold or nearly one query."""
    effective: float
    """Number of independent items with as much information (Kish), if the items of a group always agree."""
    detectable: float | None
    """Smallest change of a mean in 0 … 1 that the effective size detects in 4 of 5 cases; None below two groups."""
    required: int
    """Effective size that detects a change of 0.05."""
    warnings: tuple[str, ...]


def describe_testset(items: Iterable[Trace], documents: Iterable[Document] | None = None) -> TestsetDescription:
    """Describe an evaluation set: kinds, coverage by document and topic, effective size, power and warnings.

    The effective size is n² / Σ m², m the sizes of the groups of items with overlapping gold or nearly one query (Kish
    1965): a lower bound. The detectable change is that of a paired comparison at a power of 0.8 and alpha of 0.05, with
    a standard deviation of 0.25 of the differences, which is typical of nDCG@10 between similar pipelines. Topics are
    the folders of the corpus, or its documents where it has no folders.

    Raises InputError for a set without an item.

    >>> description = describe_testset([Trace(id=f"{at}", query=f"question {at}") for at in range(3)])
    >>> description.items, description.groups, description.chunks_needed
    (3, 3, None)
    """
    items_list = list(items)
    if not items_list:
        raise InputError("the evaluation set has no item.")
    corpus = None if documents is None else list(documents)
    by_document = Counter(name for item in items_list for name in {span.document for span in _list_spans(item)})
    sizes = [len(_merge_spans(spans)) for item in items_list if (spans := _list_spans(item))]
    groups = group_items(items_list)
    effective = len(items_list) ** 2 / sum(size * size for size in groups)
    with_gold = sum(1 for item in items_list if _list_spans(item))
    described = tuple(
        DocumentCoverage(document=name, items=count, share=count / with_gold)
        for name, count in sorted(by_document.items(), key=lambda pair: (-pair[1], pair[0]))[:MAX_LISTED]
    )
    detectable = detectable_effect(TYPICAL_DEVIATION, effective)
    missing = [document for document in corpus or () if document.id not in by_document]
    reviewed = sum(item.metadata.get("review") == "accepted" for item in items_list)
    return TestsetDescription(
        items=len(items_list),
        kinds=dict(Counter(str(item.metadata.get("kind", "unknown")) for item in items_list)),
        unanswerable=sum(item.answerable is False for item in items_list),
        reviewed=reviewed,
        chunks_needed=fmean(sizes) if sizes else None,
        documents=described,
        covered=len(by_document),
        corpus=None if corpus is None else len(corpus),
        topics=_measure_topics(corpus, items_list) if corpus else {},
        uncovered=tuple(document.id for document in sorted(missing, key=lambda d: (-len(d.text), d.id))[:MAX_LISTED]),
        ranks=_count_ranks(items_list),
        groups=len(groups),
        effective=effective,
        detectable=detectable if math.isfinite(detectable) else None,
        required=required_pairs(PLANNED_CHANGE, TYPICAL_DEVIATION) or 0,
        warnings=tuple(_list_warnings(items_list, described, len(by_document), effective, reviewed)),
    )


def _list_spans(item: Trace) -> tuple[Span, ...]:
    return item.gold.spans if item.gold is not None else ()


def _count_ranks(items: Sequence[Trace]) -> dict[str, int]:
    """Count the items by the rank that BM25 gave to their gold; empty for a set that was not made with it."""
    ranks = [rank for item in items if isinstance(rank := item.metadata.get("bm25_rank"), int)]
    return dict(Counter("1" if rank <= 1 else "2 to 10" if rank <= NEAR_RANK else "later" for rank in sorted(ranks)))


def _merge_spans(spans: Sequence[Span]) -> list[Span]:
    """Return one span for each separate place: those of a document that are near to each other count once."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.document, span.start)):
        if merged and merged[-1].document == span.document and span.start - merged[-1].end <= NEAR_CHARACTERS:
            continue
        merged.append(span)
    return merged


def group_items(items: Sequence[Trace]) -> list[int]:
    """Return the sizes of the groups of items with overlapping gold or nearly one query, the largest first.

    >>> queries = ["fare of the night ferry", "the fare of the night ferry"]
    >>> group_items([Trace(id=query, query=query) for query in queries])
    [2]
    """
    related = [[index] for index in range(len(items))]
    spans = sorted(
        (span.document, span.start, span.end, i) for i, item in enumerate(items) for span in _list_spans(item)
    )
    reach = ("", -1, 0)
    for document, start, end, index in spans:
        if document == reach[0] and start < reach[1]:
            related[index].append(reach[2])
            end = max(end, reach[1])  # noqa: PLW2901
        reach = (document, end, index)
    pairs = [make_shingles(item.query, 2) for item in items]
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for index, shingles in enumerate(pairs):
        rivals = {rival for shingle in shingles for rival in holders[shingle]}
        related[index] += [
            rival for rival in rivals if len(shingles & pairs[rival]) >= SIMILAR_QUERIES * len(shingles | pairs[rival])
        ]
        for shingle in shingles:
            holders[shingle].append(index)
    groups = join_by_marks(dict(enumerate(related)))
    return sorted(Counter(groups.values()).values(), reverse=True)


def _measure_topics(corpus: Sequence[Document], items: Sequence[Trace]) -> dict[str, float]:
    """Measure, for each folder of the corpus (or document), the share of its passages that have gold."""
    index = CorpusIndex(corpus)
    has_folders = any("/" in document.id for document in corpus)
    spans = group_by(chain.from_iterable(map(_list_spans, items)), lambda span: span.document)
    total: Counter[str] = Counter()
    reached: Counter[str] = Counter()
    for passage in index.passages:
        topic = passage.document.rpartition("/")[0] or "." if has_folders else passage.document
        total[topic] += 1
        reached[topic] += any(
            span.start < passage.end and passage.start < span.end for span in spans.get(passage.document, ())
        )
    return {topic: reached[topic] / total[topic] for topic in sorted(total)}


def _list_warnings(
    items: Sequence[Trace], documents: Sequence[DocumentCoverage], covered: int, effective: float, reviewed: int
) -> Iterable[str]:
    if documents and documents[0].share > DOMINANT_SHARE and covered >= MIN_DOCUMENTS:
        yield (
            f"{documents[0].document} holds the gold of {format_percent(documents[0].share)} of the "
            "items, and decides the means"
        )
    if effective < MIN_ITEMS:
        yield f"the effective size is {effective:.0f}: only large changes show"
    if effective < len(items) / 2:
        yield f"{len(items)} items are worth {effective:.0f} independent ones: many share their gold or a query"
    ranks = _count_ranks(items)
    if ranks and ranks.get("1", 0) > EASY_SHARE * sum(ranks.values()):
        yield (
            f"BM25 ranks the gold first for {format_percent(ranks['1'] / sum(ranks.values()))} of the items: they can "
            "hardly show that a retriever is better"
        )
    if not any(item.answerable is False for item in items):
        yield "no item is unanswerable: whether the system refuses rightly is not tested"
    if reviewed < len(items) and any("review" in item.metadata for item in items):
        yield f"{len(items) - reviewed} of {len(items)} items were not reviewed by a person"
