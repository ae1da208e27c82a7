"""The scorecard: every metric with counts, interval and target, over a run or by segment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec.structs import replace

from ragfault.errors import UsageError
from ragfault.findings.bars import Bar, decide, read_bar
from ragfault.findings.correcting import Asked, correction
from ragfault.findings.correcting import corrected as correct
from ragfault.findings.grid import FAILED, NONE, SCORED, UNDEFINED, Codes, Grid, bare, labels, open_grid, span
from ragfault.findings.records import Aggregate, Pair, Reason, Scorecard
from ragfault.findings.rectifying import People
from ragfault.findings.rectifying import rectified as rectify
from ragfault.runs import Run

__all__ = ["PAIRS", "TARGETS", "Bars", "aggregate", "pairs", "scorecard", "segments"]

Bars = Iterable[Bar | str]

TARGETS = (
    Bar("precision", ">", 0.8),
    Bar("context_recall", ">", 0.7),
    Bar("context_precision", ">", 0.75),
    Bar("groundedness", ">", 0.85),
    Bar("recall", ">=", 0.9),
    Bar("chunk_utilization", ">=", 0.25),
)
"""The targets where none are given: of gold `recall` at any cut-off; of gold `precision` without one, since
precision@k cannot reach 0.8 where fewer chunks than that are relevant; utilisation below its target is
over-fetching."""

PAIRS = (
    ("context_recall", "context_precision"),
    ("groundedness", "completeness"),
    ("context_adherence", "answer_relevance"),
)
"""Metrics that are bought with each other."""

SHOWN = 3
"""How many reasons of a kind an aggregate names."""


def scorecard(
    source: Run | Grid,
    targets: Bars = TARGETS,
    *,
    corrected: Asked = False,
    people: People | None = None,
) -> Scorecard:
    """Every metric over all traces of a run, in the run's order.

    The mean is over the traces that are scored, never over the others; its 95 % interval resamples the
    traces of one conversation together. `targets` are bars, as records or texts; one for a metric's name
    ("recall>=0.9") goes for it with any cut-off and parameters, save `precision`, unless there is one for
    its exact text.

    With `corrected` the metrics that are a rate of one kind of verdict are given a second time, corrected for the
    error of the run's judge by its card: by what was measured on long answers, or on the shape that is named
    ("summary"); or by a card of your own. Targets are decided on the metrics as judged.

    With what `people` (or a stronger judge) said of some traces, the metrics that they gave a value are given a
    second time, put right by it; targets are then decided on those figures. It is one or the other: a metric that is
    put right needs no card.

    Raises UsageError where the run's judge has no card, or one of another version or other settings, or where both
    are asked for; UnknownName for a shape that is not on the card.
    """
    grid = open_grid(source, people)
    if grid.people is not None and corrected is not False:
        raise UsageError(
            "figures are corrected by the judge's card, or rectified by labels: ask for one of the two."
        )
    found = _card(grid, None, _table(targets))
    known = correction(grid.run, tuple(grid.names), corrected)
    if known is None:
        return found
    return replace(
        found,
        aggregates=tuple(
            replace(each, corrected=correct(each.metric, each.interval, known)) for each in found.aggregates
        ),
        correction=known,
    )


def segments(
    source: Run | Grid,
    by: str,
    targets: Bars = TARGETS,
    routes: Mapping[str, Bars] | None = None,
) -> tuple[Scorecard, ...]:
    """The scorecard of each part of the traces, the largest part first.

    `by` is route, conversation, model, turn or metadata.KEY; the traces that lack it are a part of their
    own (`segment=None`). `routes` gives a part targets of its own by its value, which go before `targets`.

    Raises UnknownName for another field.
    """
    grid = open_grid(source)
    codes, names = labels(grid.run, by)
    general = _table(targets)
    found = []
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        code = int(codes[rows[0]])
        name = None if code == NONE else names[code]
        own = _table(routes.get(name, ())) if routes and name is not None else {}
        found.append((len(rows), name, _card(grid, rows, general | own, by, name)))
    found.sort(key=lambda part: (-part[0], part[1] is None, part[1] or ""))
    return tuple(card for _, _, card in found)


def _table(targets: Bars) -> dict[str, Bar]:
    bars = [read_bar(bar) if isinstance(bar, str) else bar for bar in targets]
    return {"".join(bar.metric.split()): bar for bar in bars}


def _card(
    grid: Grid, rows: Codes | None, targets: dict[str, Bar], by: str | None = None, name: str | None = None
) -> Scorecard:
    return Scorecard(
        traces=grid.traces if rows is None else len(rows),
        aggregates=tuple(
            aggregate(grid, at, rows, _target(text, targets)) for at, text in enumerate(grid.names)
        ),
        by=by,
        segment=name,
        rectification=None if grid.people is None else grid.people.made,
    )


def _target(metric: str, targets: dict[str, Bar]) -> Bar | None:
    """The target for a metric: for its exact text, else for its name."""
    name = bare(metric)
    bar = targets.get("".join(metric.split())) or (targets.get(name) if name != "precision" else None)
    return None if bar is None else Bar(metric, bar.sign, bar.value)


def aggregate(grid: Grid, at: int, rows: Codes | None = None, target: Bar | None = None) -> Aggregate:
    """One metric over the traces, or over some rows of them."""
    measure = grid.measures[at]
    states = grid.status[:, at] if rows is None else grid.status[rows, at]
    why = grid.why[:, at] if rows is None else grid.why[rows, at]
    counts = np.bincount(states, minlength=3).tolist()
    judged, clusters = grid.column(at, rows)
    interval, said = span(judged, clusters, measure), grid.said(at)
    right = None if said is None else rectify(judged, said.of(grid.scored(at, rows)), clusters, measure)
    told = (right and right.interval) or interval

    def reasons(state: int) -> tuple[Reason, ...]:
        codes = why[(states == state) & (why != NONE)]
        tally = np.bincount(codes, minlength=1)
        first = np.argsort(-tally, kind="stable")[:SHOWN].tolist()
        return tuple(Reason(text=grid.reasons[code], count=int(tally[code])) for code in first if tally[code])

    return Aggregate(
        metric=measure.name,
        layer=measure.layer,
        better=measure.better,
        low=measure.low,
        high=measure.high,
        interval=interval,
        scored=counts[SCORED],
        undefined=counts[UNDEFINED],
        failed=counts[FAILED],
        why_undefined=reasons(UNDEFINED),
        why_failed=reasons(FAILED),
        notes=reasons(SCORED),
        target=target,
        result=decide(target, told) if target and told else None,
        rectified=right,
    )


def pairs(source: Run | Grid) -> tuple[Pair, ...]:
    """The metrics that are bought with each other, side by side; a pair without a value is left out."""
    grid = open_grid(source)
    found = []
    for names in PAIRS:
        first, second = (None if (at := grid.find(name)) is None else aggregate(grid, at) for name in names)
        if any(side is not None and side.interval for side in (first, second)):
            found.append(Pair(first=first, second=second, names=names))
    return tuple(found)
