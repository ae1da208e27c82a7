"""The style of queries: their lengths and capitals, about those of search logs or those of real traces."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from msgspec import Struct

from ragfault.model.records import Trace
from ragfault.text.normalization import split_content_words

MIN_STYLE_QUERIES = 20
"""Fewer real queries than that do not set the style."""


class QueryStyle(Struct, frozen=True, kw_only=True):
    """Style of queries, by default about that of queries to search engines and encyclopedias."""

    sizes: tuple[int, ...] = (3, 3, 4, 4, 5, 5, 6, 7)
    """Numbers of words of content, each as likely as the others."""
    lower: float = 0.5
    """Share of queries without capitals."""
    source: str = "default"
    """Where it is from: "default", or "N queries" of a log."""


def fit_style(traces: Iterable[Trace]) -> QueryStyle | None:
    """Fit the style to the queries of real traces: lengths and capitals; None below 20 distinct queries.

    >>> fit_style([Trace(id="1", query="When?")]) is None
    True
    """
    queries = list(dict.fromkeys(trace.query for trace in traces))
    sizes = sorted(len(words) for query in queries if (words := set(split_content_words(query))))
    if len(sizes) < MIN_STYLE_QUERIES:
        return None
    return QueryStyle(
        sizes=tuple(min(20, max(2, sizes[i * len(sizes) // 20])) for i in range(20)),
        lower=fmean(query == query.lower() for query in queries),
        source=f"{len(queries)} queries",
    )
