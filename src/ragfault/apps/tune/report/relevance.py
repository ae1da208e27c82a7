"""The report of the relevance of documents to a query, by chunk, with a column for each judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragfault.report.document import (
    Heading,
    Listing,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    Text,
    build_section,
)
from ragfault.report.safe_text import clip_text
from ragfault.text.number_format import format_cost, format_number

if TYPE_CHECKING:
    from ragfault.apps.tune.relevance import RelevanceComparison

PREVIEW_LENGTH = 60
"""Longest preview of a chunk, in characters."""


def build_relevance(relevance: RelevanceComparison, limit: int, *, disputed: bool = False) -> ReportDocument:
    """Build the report of the first `limit` chunks, the most relevant first; if `disputed`, the most disputed first."""
    several = len(relevance.scored) > 1
    first, gaps = relevance.scored[0].values, relevance.gaps
    columns = (
        *(TableColumn(clip_text(scores.judge, 40), numeric=True) for scores in relevance.scored),
        *([TableColumn("Difference", numeric=True)] if several else []),
        TableColumn("Document"),
        TableColumn("Text"),
    )
    order = sorted(range(len(first)), key=lambda row: -(gaps if disputed else first)[row])[:limit]
    rows: list[tuple[Text, ...]] = []
    for row in order:
        chunk = relevance.chunks[row]
        values = [format_number(scores.values[row], 3) for scores in relevance.scored]
        gap = [format_number(gaps[row], 3)] if several else []
        text = StyledText(clip_text(chunk.text, PREVIEW_LENGTH), "quote")
        rows.append((*values, *gap, chunk.document or "", text))
    judges = tuple(
        f"{scores.judge}: {scores.fingerprint}, {format_number(scores.seconds, 2)} s, {format_cost(scores.cost)}"
        for scores in relevance.scored
    )
    title = f"{len(first):,} chunks of {len(relevance.documents):,} documents"
    body = (Table(columns, tuple(rows)), *build_section("Judges", Listing(judges)))
    return ReportDocument("relevance", (Heading(title, 1),), body)
