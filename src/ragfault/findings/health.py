"""Health: of the layers, of the retrieval as a whole, and the quality levels of the answers."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ragfault.findings.chunks import Chunks, open_chunks
from ragfault.findings.grid import Grid, open_grid, span
from ragfault.findings.records import Alert, Health, Quality, Rag
from ragfault.findings.scorecard import aggregate
from ragfault.records import Layer
from ragfault.runs import Run
from ragfault.stats import Interval

__all__ = ["LEVELS", "PARTS", "health", "level", "quality", "rag"]

PARTS: tuple[tuple[str, Layer, tuple[str, ...]], ...] = (
    ("retrieval_health", "retrieval", ("context_relevance", "chunk_attribution", "chunk_utilization")),
    ("generation_health", "generation", ("groundedness", "answer_relevance", "completeness")),
)
"""The parts that each layer's health is the mean of."""


def health(source: Run | Grid) -> tuple[Health, ...]:
    """The health of the retrieval and of the generation layer, each with its parts; there is no third, global one.

    A layer's health is the mean of the means of its parts, each over the traces where it is defined. A part that
    the run lacks, or that has no value on any trace, is left out and named as absent. The interval is that of
    the linearised mean: every trace counts with its pull on all parts at once, the traces of a conversation
    together.
    """
    grid = open_grid(source)
    return tuple(_layer(grid, name, layer, parts) for name, layer, parts in PARTS)


def _layer(grid: Grid, name: str, layer: Layer, parts: tuple[str, ...]) -> Health:
    columns = {part: at for part in parts if (at := grid.find(part)) is not None}
    known = {part: card for part, at in columns.items() if (card := aggregate(grid, at)).interval}
    return Health(
        name=name,  # type: ignore[arg-type]
        layer=layer,
        interval=_mean(grid, [columns[part] for part in known]),
        parts=tuple(known.values()),
        absent=tuple(part for part in parts if part not in known),
    )


def _mean(grid: Grid, columns: list[int]) -> Interval | None:
    """The mean of the means of some metrics, by the pull of each trace on it."""
    if not columns:
        return None
    values = grid.values[:, columns]
    there = ~np.isnan(values)
    counts, rows = there.sum(axis=0), there.any(axis=1)
    means = np.nansum(values, axis=0) / counts
    pull = np.where(there, values - means, 0.0) / counts
    whole = means.mean() + rows.sum() * pull.mean(axis=1)
    clusters = None if grid.clusters is None else grid.clusters[rows]
    return span(np.round(whole[rows], 12), clusters)


# --- quality levels --------------------------------------------------------------------------------


class Level(Struct, frozen=True):
    """A quality level: its name, the least triad, and what to do with the answer."""

    name: str
    low: float
    action: str


LEVELS = (
    Level("excellent", 0.85, "return"),
    Level("good", 0.70, "return, log for review"),
    Level("fair", 0.50, "consider refinement"),
    Level("poor", 0.0, "self-correct"),
)
"""The quality levels by triad, best first."""

SLACK = 1e-9
"""What a sum of weighted parts may lack of a level's limit by rounding."""


def level(triad: float) -> Level:
    """The quality level of a trace with this triad.

    >>> level(0.85).name, level(0.4).action
    ('excellent', 'self-correct')
    """
    return next((kind for kind in LEVELS if triad >= kind.low - SLACK), LEVELS[-1])


def quality(source: Run | Grid) -> tuple[tuple[Quality, ...], int]:
    """How many traces are in each quality level by triad, best first, and how many have no triad."""
    grid = open_grid(source)
    at = grid.base("triad")
    values, clusters = (np.empty(0), None) if at is None else grid.column(at)
    upper = [float("inf"), *(kind.low for kind in LEVELS)]
    found = []
    for kind, below in zip(LEVELS, upper, strict=False):
        inside = (values < below - SLACK) & ((values >= kind.low - SLACK) | (kind is LEVELS[-1]))
        found.append(
            Quality(
                name=kind.name,  # type: ignore[arg-type]
                low=kind.low,
                action=kind.action,
                count=int(inside.sum()),
                share=span(inside, clusters),
            )
        )
    return tuple(found), grid.traces - len(values)


# --- RAG health ------------------------------------------------------------------------------------

OPTIMAL = (3, 5)
"""From how many to how many relevant chunks a context is about right."""

ALERTS = (
    ("LOW_RELEVANCE", "high", "relevance", 0.6),
    ("LOW_USAGE", "medium", "usage", 0.4),
    ("MISSING_CONTEXT", "high", "missing", 0.3),
)
"""Name, severity, figure and limit; missing context above its limit, the others below."""


def rag(source: Run | Grid, chunks: Chunks | None = None) -> Rag:
    """RAG health, from the verdicts on chunks, use and missing context.

    Alerts go by the mean: LOW_RELEVANCE below 0.6, LOW_USAGE below 0.4, MISSING_CONTEXT above 0.3; each says
    whether the whole interval is on that side.
    """
    grid = open_grid(source)
    seen = chunks or open_chunks(grid.run)
    groups = seen.groups
    judged = np.bincount(seen.trace[seen.judged], minlength=seen.traces)
    total = np.bincount(seen.trace[seen.judged], seen.relevance[seen.judged], minlength=seen.traces)
    relevant = np.bincount(seen.trace[seen.relevant], minlength=seen.traces)
    some, looked = judged > 0, seen.missing >= 0
    own = grid.clusters
    optimal = (relevant >= OPTIMAL[0]) & (relevant <= OPTIMAL[1])
    rated = some | ((seen.counts == 0) & some.any())
    ranked = grid.find("context_ranking")
    figures = {
        "relevance": span(total[some] / judged[some], None if own is None else own[some]),
        "usage": span(seen.used[seen.tried], groups[seen.tried]),
        "missing": span(seen.missing[looked] > 0, None if own is None else own[looked]),
        "ranking": None if ranked is None else span(*grid.column(ranked), grid.measures[ranked]),
        "optimal": span(optimal[rated], None if own is None else own[rated]),
    }
    return Rag(**figures, alerts=_alerts(figures))


def _alerts(figures: dict[str, Interval | None]) -> tuple[Alert, ...]:
    found = []
    for name, severity, figure, limit in ALERTS:
        value = figures[figure]
        if value is None:
            continue
        above = name == "MISSING_CONTEXT"
        if (value.mean > limit) if above else (value.mean < limit):
            certain = value.low > limit if above else value.high < limit
            found.append(
                Alert(name=name, severity=severity, value=value.mean, limit=limit, certain=certain)  # type: ignore[arg-type]
            )
    return tuple(found)
