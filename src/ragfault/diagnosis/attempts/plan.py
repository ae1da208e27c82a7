"""Plan of a comparison: how many queries, and how many attempts of each, find a drop."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from ragfault.diagnosis.attempts.assessment import split_metric
from ragfault.diagnosis.attempts.settings import PlanSettings
from ragfault.diagnosis.run_table import RunTable, open_table
from ragfault.io.runs.run import AnyRun
from ragfault.labels.correction import metric_bounds
from ragfault.model.errors import RunError, UnknownName, UsageError
from ragfault.model.settings import accept_fields
from ragfault.stats.estimates import Interval
from ragfault.stats.repeats import compute_attempt_power
from ragfault.text.number_format import format_count, format_percent

ATTEMPTS_COMPARED = (1, 2, 3, 5, 8)
"""Numbers of attempts whose power a plan lists next to the one that was asked for."""


MAX_PROPOSED = 8
"""Further attempts that are proposed at most; beyond these, queries are."""
PLANNED_POWER = 0.8
"""The power that a proposal aims at, as elsewhere in plans."""


class PlanOption(Struct, frozen=True, kw_only=True):
    """One number of attempts, with the queries that cost as many answers as the plan, and with its own queries."""

    attempts: int
    same_cost_queries: int
    same_cost_power: float | None
    """None below two queries."""
    same_queries_power: float


class AttemptPlan(Struct, frozen=True, kw_only=True):
    """The chance to find a drop between two runs of the same queries, and what other splits of the answers give."""

    queries: int
    attempts: int
    drop: float
    power: float
    power_low: float | None = None
    """The power at the upper end of the noise of the run; None without a run, or if it is not known."""
    power_high: float | None = None
    metric: str | None = None
    """The metric of the run whose variance was taken; None: an assumed one."""
    variance: float
    """Of one attempt."""
    noise: float
    """The share of it within a query."""
    options: tuple[PlanOption, ...]


@accept_fields(PlanSettings)
def plan_attempts(queries: int, attempts: int, settings: PlanSettings) -> AttemptPlan:
    """Plan a comparison of two runs of the same queries, each with some attempts.

    The variance is that of a metric of a `run` whose queries have several attempts, else `variance` and the share
    `noise` of it within a query. Raises UsageError for fewer than two queries or one attempt, or a drop or share out of
    range; UnknownName for a metric that the run lacks; RunError for a run without several attempts.

    >>> plan = plan_attempts(200, 3)
    >>> round(plan.power, 2), [(option.attempts, option.same_cost_queries) for option in plan.options]
    (0.7, [(1, 600), (2, 300), (3, 200), (5, 120), (8, 75)])
    """
    if queries < 2 or attempts < 1:
        raise UsageError(
            f"a plan needs 2 queries or more and 1 attempt or more, got {queries} queries and {attempts} attempts."
        )
    drop, run, metric, noise = settings.drop, settings.run, settings.metric, settings.noise
    variance, reach, step, share = settings.variance, 1.0, 1.0, Interval(noise, noise, noise, 0, 0)
    if run is not None:
        variance, share, reach, step = _measure_run(run, metric)

    def find_power(part: float, count: int, size: int) -> float:
        return compute_attempt_power(drop, variance * part, count, size, reach=reach, step=step)

    answers = queries * attempts
    options = [
        PlanOption(
            attempts=size,
            same_cost_queries=answers // size,
            same_cost_power=find_power(share.mean, answers // size, size) if answers // size > 1 else None,
            same_queries_power=find_power(share.mean, queries, size),
        )
        for size in sorted({*ATTEMPTS_COMPARED, attempts})
    ]
    is_known = run is not None and share.high - share.low < 1
    return AttemptPlan(
        queries=queries,
        attempts=attempts,
        drop=drop,
        power=find_power(share.mean, queries, attempts),
        power_low=find_power(share.high, queries, attempts) if is_known else None,
        power_high=find_power(share.low, queries, attempts) if is_known else None,
        metric=None if run is None else metric,
        variance=variance,
        noise=share.mean,
        options=tuple(options),
    )


def _measure_run(run: AnyRun, metric: str) -> tuple[float, Interval, float, float]:
    """Return the variance of a metric of a run, the share of noise in it, the width of its range, and its step."""
    table = open_table(run)
    column = table.column_index(metric)
    if column is None:
        raise UnknownName(f"metric of {table.run.path.name}", metric, table.metric_names)
    split = None if table.queries is None else split_metric(table, column)
    if split is None:
        raise RunError(
            f"{table.run.path} does not tell the noise of {metric}: no query has several attempts with a value, or all "
            "values are equal. Evaluate several attempts, or plan with --variance and --noise."
        )
    low, high = metric_bounds(table.measures[column])
    total = split.queries + split.system + (split.judge or 0.0)
    reach = high - low if high - low < float("inf") else 0.0
    is_binary = set(np.unique(table.values[table.scored_rows(column), column]).tolist()) <= {low, high}
    return total, split.noise, reach, reach if is_binary else 0.0


def propose_attempts(baseline: RunTable, candidate: RunTable, drop: float = 0.05) -> str:
    """Propose the next run for a comparison that cannot tell: attempts, or queries if attempts are not enough.

    Without several attempts nothing is known of how much answers vary by themselves, and one more run of the baseline
    tells it. Otherwise the proposal is for the metric of generation whose attempts vary most.
    """
    tables = [table for table in (baseline, candidate) if table.queries is not None]
    if not tables:
        return (
            f"run the baseline once more on its {format_count(baseline.traces, 'trace')} and evaluate both of its runs "
            "as attempts 1 and 2 (field `attempt`): this shows how much its answers vary by themselves"
        )
    metric, noise = max(map(_find_noisiest, tables), key=lambda item: item[1])
    counts = [
        table.traces if table.queries is None else len(np.unique(table.queries)) for table in (baseline, candidate)
    ]
    queries, size = min(counts), min(baseline.traces // counts[0], candidate.traces // counts[1])
    goal = f"would show a drop of {drop:g} in {metric} with a probability of {format_percent(PLANNED_POWER)}"
    for more in range(1, MAX_PROPOSED + 1):
        if compute_attempt_power(drop, noise, queries, size + more) >= PLANNED_POWER:
            attempts = format_count(more, "more attempt")
            return f"{attempts} of the same {queries:,} queries in both runs {goal}"
    needed = queries
    while compute_attempt_power(drop, noise, needed, size) < PLANNED_POWER:
        needed = math.ceil(1.1 * needed)
    return (
        f"about {needed:,} queries with {format_count(size, 'attempt')} {goal}; "
        f"{MAX_PROPOSED} more attempts of these {queries:,} are not enough"
    )


def _find_noisiest(table: RunTable) -> tuple[str, float]:
    """Return the metric of generation, from 0 to 1, whose attempts vary most, and the variance of one attempt."""
    measured = [("any metric", 0.0)]
    for column, measure in enumerate(table.measures):
        is_share = measure.layer == "generation" and metric_bounds(measure) == (0.0, 1.0)
        if is_share and (split := split_metric(table, column)) is not None:
            measured.append((measure.name, split.system + (split.judge or 0.0)))
    return max(measured, key=lambda item: item[1])
