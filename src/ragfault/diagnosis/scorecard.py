"""Scorecard of a run or of its segments, health of its layers and quality levels of its answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ragfault.diagnosis.records import (
    HEALTH_ALERTS,
    HealthAlert,
    MetricAggregate,
    QualityCount,
    RagHealth,
    ReasonCount,
    Scorecard,
    TradeoffPair,
)
from ragfault.diagnosis.run_table import RunTable, open_table
from ragfault.diagnosis.score_matrix import (
    FAILED,
    NO_CODE,
    SCORED,
    UNDEFINED,
    estimate_mean,
    estimate_quantiles,
    metric_name,
)
from ragfault.diagnosis.thresholds import Threshold, check_threshold, parse_thresholds
from ragfault.io.runs.run import AnyRun, MetricInfo
from ragfault.labels.correction import (
    CardChoice,
    Codes,
    HumanLabels,
    correct_interval,
    correct_mean,
    load_correction,
    metric_bounds,
)
from ragfault.metrics.aliases import resolve_alias
from ragfault.metrics.catalog import get_definitions
from ragfault.model.errors import UsageError, group_messages
from ragfault.stats.estimates import Interval

Thresholds = Iterable[Threshold | str]

TARGETS = (
    Threshold("precision", ">", 0.8),
    Threshold("context_recall", ">", 0.7),
    Threshold("context_precision", ">", 0.75),
    Threshold("groundedness", ">", 0.85),
    Threshold("recall", ">=", 0.9),
    Threshold("chunk_utilization", ">=", 0.25),
)
"""The targets where none are given: of gold `recall` at any cut-off; of gold `precision` without one, since precision@k
cannot reach 0.8 where fewer chunks than that are relevant; utilisation below its target is over-fetching."""

TRADEOFF_PAIRS = (
    ("context_recall", "context_precision"),
    ("groundedness", "completeness"),
    ("context_adherence", "answer_relevance"),
)
"""Metrics that trade off against each other."""

# maximum number of reasons of one kind in an aggregate
MAX_REASONS = 3


def build_scorecard(
    source: AnyRun | RunTable,
    targets: Thresholds = TARGETS,
    *,
    corrected: CardChoice = False,
    labels: HumanLabels | None = None,
) -> Scorecard:
    """Aggregate every metric over all traces of a run, in the run's order.

    The mean is over the traces that are scored, never over the others; its 95 % interval resamples the traces of one
    conversation together. `targets` are thresholds, as records or texts; one for a metric's name ("recall>=0.9")
    applies with any cut-off and parameters, except for `precision`, unless there is one for the exact text.

    With `corrected` the metrics that are a rate of one kind of verdict are given a second time, corrected for the
    error of the run's judge by its card: by what was measured on long answers, or on the shape that is named
    ("summary"); or by a card of your own. Targets are decided on the metrics as judged.

    With human `labels` (or those of a stronger judge) of some traces, the labelled metrics are given a second time,
    corrected by the labels; targets are then decided on those figures. The two corrections exclude each other.

    Raises UsageError where the run's judge has no card, or one of another version or other settings, or where both
    are asked for; UnknownName for a shape that is not on the card.
    """
    table = open_table(source, labels)
    if table.labels is not None and corrected is not False:
        raise UsageError("figures are corrected by the judge's card or by human labels: ask for one of the two.")
    scorecard = _build_card(table, None, _thresholds_by_metric(targets))
    known = load_correction(table.run, tuple(table.metric_names), corrected)
    if known is None:
        return scorecard
    return replace(
        scorecard,
        aggregates=tuple(
            replace(aggregate, corrected=correct_interval(aggregate.metric, aggregate.interval, known))
            for aggregate in scorecard.aggregates
        ),
        correction=known,
    )


def build_segments(
    source: AnyRun | RunTable, by: str, targets: Thresholds = TARGETS, routes: Mapping[str, Thresholds] | None = None
) -> tuple[Scorecard, ...]:
    """Build the scorecard of each segment of the traces, the largest first.

    `by` is route, conversation, model, turn or metadata.KEY; the traces that lack it are a part of their
    own (`segment=None`). `routes` gives a part targets of its own by its value, which go before `targets`.

    Raises UnknownName for another field.
    """
    table = open_table(source)
    codes, names = table.segment_codes(by)
    general = _thresholds_by_metric(targets)
    cards = []
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        code = int(codes[rows[0]])
        name = None if code == NO_CODE else names[code]
        own = _thresholds_by_metric(routes.get(name, ())) if routes and name is not None else {}
        cards.append((len(rows), name, _build_card(table, rows, general | own, by, name)))
    cards.sort(key=lambda part: (-part[0], part[1] is None, part[1] or ""))
    return tuple(card for _, _, card in cards)


def find_default_target(metric: str) -> Threshold | None:
    """Return the target of a metric where none is given."""
    return _target_for(metric, _thresholds_by_metric(TARGETS))


def _thresholds_by_metric(targets: Thresholds) -> dict[str, Threshold]:
    parsed = parse_thresholds(targets)
    if of_attempts := [target for target in parsed if target.attempts is not None]:
        raise UsageError(
            f"{of_attempts[0]} is about several attempts, and targets are means of a metric. Check it with: "
            f'ragfault gate RUN --threshold "{of_attempts[0]}"'
        )
    return {
        "".join(name.split()): target for target in parsed for name in (resolve_alias(target.metric), target.metric)
    }


def _build_card(
    table: RunTable, rows: Codes | None, targets: dict[str, Threshold], by: str | None = None, name: str | None = None
) -> Scorecard:
    return Scorecard(
        traces=table.traces if rows is None else len(rows),
        aggregates=tuple(
            _spare_refusals(table, i, rows, aggregate_metric(table, i, rows, _target_for(text, targets)))
            for i, text in enumerate(table.metric_names)
        ),
        by=by,
        segment=name,
        label_source=None if table.labels is None else table.labels.source,
    )


def _spare_refusals(table: RunTable, column: int, rows: Codes | None, aggregate: MetricAggregate) -> MetricAggregate:
    """Drop a result of the use of chunks that the answers which do not refuse do not share: a refusal uses none."""
    if metric_name(aggregate.metric) != "chunk_utilization" or aggregate.result in (None, "pass"):
        return aggregate
    answers = aggregate_metric(table, column, _list_answers(table, rows), aggregate.target)
    return aggregate if answers.result == aggregate.result else replace(aggregate, result=None)


def _list_answers(table: RunTable, rows: Codes | None = None) -> Codes:
    """Return the rows whose answer does not refuse, where the run has the metric refusal; else all."""
    rows, refusal = np.arange(table.traces) if rows is None else rows, table.column_index("refusal")
    return rows if refusal is None else rows[table.values[rows, refusal] != 1]


def _target_for(metric: str, targets: dict[str, Threshold]) -> Threshold | None:
    """Return the target for a metric: for its exact text, else for its name."""
    name = metric_name(metric)
    target = targets.get("".join(metric.split())) or (targets.get(name) if name != "precision" else None)
    return None if target is None else Threshold(metric, target.sign, target.value)


def aggregate_metric(
    table: RunTable, column: int, rows: Codes | None = None, target: Threshold | None = None
) -> MetricAggregate:
    """Aggregate one metric over all traces, or over some rows."""
    measure = table.measures[column]
    states = table.status[:, column] if rows is None else table.status[rows, column]
    why = table.scores.reason_codes[:, column] if rows is None else table.scores.reason_codes[rows, column]
    counts = np.bincount(states, minlength=3).tolist()
    judged, clusters = table.scored_values(column, rows)
    interval, labels = estimate_mean(judged, clusters, measure), table.label_values(column)
    right = (
        None
        if labels is None
        else correct_mean(judged, labels.select(table.scored_rows(column, rows)), clusters, measure)
    )
    interval_used = (right and right.interval) or _widen_unknown(table, measure, target, interval, rows)

    def reasons(state: int) -> tuple[ReasonCount, ...]:
        codes = why[(states == state) & (why != NO_CODE)]
        tally = np.bincount(codes, minlength=1)
        grouped = group_messages(
            {table.scores.reasons[code]: int(tally[code]) for code in np.flatnonzero(tally).tolist()}
        )
        return tuple(ReasonCount(text=text, count=count) for text, count in list(grouped.items())[:MAX_REASONS])

    return MetricAggregate(
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
        result=check_threshold(target, interval_used) if target and interval_used else None,
        ppi=right,
        quantiles=estimate_quantiles(judged, clusters, measure),
    )


def _widen_unknown(
    table: RunTable, measure: MetricInfo, target: Threshold | None, interval: Interval | None, rows: Codes | None
) -> Interval | None:
    """Widen an interval by what verdicts on traces in a language that the judge does not know may change."""
    definition = get_definitions().get(metric_name(measure.name))
    if target is None or interval is None or definition is None or not definition.verdicts:
        return interval
    low, high = metric_bounds(measure)
    spread = (high - low) * share if (share := table.estimate_unknown_share(rows)) else 0.0
    return replace(interval, low=interval.low - spread, high=interval.high + spread)


def pair_tradeoffs(source: AnyRun | RunTable) -> tuple[TradeoffPair, ...]:
    """Return the metrics that trade off against each other, in pairs; pairs without a value are left out."""
    table = open_table(source)
    pairs = []
    for names in TRADEOFF_PAIRS:
        first, second = (
            None if (at := table.column_index(name)) is None else aggregate_metric(table, at) for name in names
        )
        if any(side is not None and side.interval for side in (first, second)):
            pairs.append(TradeoffPair(first=first, second=second, names=names))
    return tuple(pairs)


class QualityLevel(Struct, frozen=True):
    """Quality level: its name, the least triad, and what to do with the answer."""

    name: str
    low: float
    action: str


QUALITY_LEVELS = (
    QualityLevel("excellent", 0.85, "return"),
    QualityLevel("good", 0.70, "return, log for review"),
    QualityLevel("fair", 0.50, "consider refinement"),
    QualityLevel("poor", 0.0, "self-correct"),
)
"""The quality levels by triad, best first."""

# tolerance of a level's limit for rounding of a weighted sum
ROUNDING_SLACK = 1e-9


def quality_level(triad: float) -> QualityLevel:
    """Return the quality level of a triad.

    >>> quality_level(0.85).name, quality_level(0.4).action
    ('excellent', 'self-correct')
    """
    return next((kind for kind in QUALITY_LEVELS if triad >= kind.low - ROUNDING_SLACK), QUALITY_LEVELS[-1])


def count_quality(source: AnyRun | RunTable) -> tuple[tuple[QualityCount, ...], int]:
    """Count the traces in each quality level by triad, best first, and those without a triad."""
    table = open_table(source)
    at = table.triad_column()
    values, clusters = (np.empty(0), None) if at is None else table.scored_values(at)
    upper = [float("inf"), *(kind.low for kind in QUALITY_LEVELS)]
    counts = []
    for kind, below in zip(QUALITY_LEVELS, upper, strict=False):
        inside = (values < below - ROUNDING_SLACK) & (
            (values >= kind.low - ROUNDING_SLACK) | (kind is QUALITY_LEVELS[-1])
        )
        counts.append(
            QualityCount(
                name=kind.name,  # type: ignore[arg-type]
                low=kind.low,
                action=kind.action,
                count=int(inside.sum()),
                share=estimate_mean(inside, clusters),
            )
        )
    return tuple(counts), table.traces - len(values)


# range of the number of relevant chunks of a good context
OPTIMAL_CHUNKS = (3, 5)


def assess_rag(source: AnyRun | RunTable) -> RagHealth:
    """Assess RAG health by the run's metrics, under their names and with their numbers.

    Alerts go by the mean: LOW_RELEVANCE where context_relevance is below 0.6, LOW_USAGE where chunk_utilization is
    below 0.4, MISSING_CONTEXT where missing_context_rate is above 0.3; each says whether the whole interval is on
    that side. A refusal uses no chunk: LOW_USAGE needs answers that do not refuse below the limit as well.
    """
    table = open_table(source)
    figures: dict[str, Interval | None] = {}
    for name in ("context_relevance", "chunk_utilization", "context_ranking"):
        at = table.column_index(name)
        figures[name] = None if at is None else estimate_mean(*table.scored_values(at), table.measures[at])
    missing = table.column_index("missing_context")
    figures["missing_context_rate"] = None
    if missing is not None:
        counts, clusters = table.scored_values(missing)
        figures["missing_context_rate"] = estimate_mean(counts > 0, clusters)
    figures["optimal_context_rate"] = _estimate_optimal_context(table)
    alerts = _raise_alerts(figures)
    usage = table.column_index("chunk_utilization")
    answers = None if usage is None else estimate_mean(*table.scored_values(usage, _list_answers(table)))
    is_read = table.estimate_unknown_share() < 1
    confirmed = {alert.name for alert in _raise_alerts({**figures, "chunk_utilization": answers}) if is_read}
    return RagHealth(**figures, alerts=tuple(alert for alert in alerts if alert.name in confirmed))


def _estimate_optimal_context(table: RunTable) -> Interval | None:
    """Estimate the share of traces with a good number of relevant chunks, over those whose chunks were judged."""
    seen = table.chunks
    some = np.bincount(seen.trace_index[seen.judged], minlength=seen.trace_count) > 0
    relevant = np.bincount(seen.trace_index[seen.relevant], minlength=seen.trace_count)
    optimal = (relevant >= OPTIMAL_CHUNKS[0]) & (relevant <= OPTIMAL_CHUNKS[1])
    rated = some | ((seen.counts == 0) & some.any())
    return estimate_mean(optimal[rated], None if table.clusters is None else table.clusters[rated])


def _raise_alerts(figures: dict[str, Interval | None]) -> tuple[HealthAlert, ...]:
    alerts = []
    for name, severity, figure, limit in HEALTH_ALERTS:
        value = figures[figure]
        if value is None:
            continue
        above = name == "MISSING_CONTEXT"
        if (value.mean > limit) if above else (value.mean < limit):
            certain = value.low > limit if above else value.high < limit
            alerts.append(
                HealthAlert(name=name, severity=severity, value=value.mean, limit=limit, certain=certain)  # type: ignore[arg-type]
            )
    return tuple(alerts)
