"""Evidence of an incident in its traces: causes of the bad answers, offenders, error message and slow step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ragfault.apps.watch.monitoring.incidents import Incident
from ragfault.apps.watch.monitoring.offenders import find_message, find_offenders, find_slow_step, split_by_value
from ragfault.apps.watch.monitoring.rollups import LOG_LATENCY, is_cohort, observe_trace
from ragfault.apps.watch.monitoring.windows import DAY_MINUTES
from ragfault.apps.watch.server.storage.outcome_rows import EPOCH
from ragfault.apps.watch.server.storage.records import StoredTrace, TraceSelection
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.diagnosis.causes.endings import AnswerEndings
from ragfault.diagnosis.causes.storage import rate_trace
from ragfault.diagnosis.causes.summary import count_causes
from ragfault.io.runs.run import MetricInfo
from ragfault.model.gold_evidence import apply_gold
from ragfault.model.records import Verdicts

# latest traces since the onset, and of the day before, that are compared
MAX_SINCE, MAX_BEFORE = 600, 400
# latest answers since the onset whose causes are counted, and causes that are named
MAX_DIAGNOSED, MAX_CAUSES = 200, 3
LATENCY_METRICS = ("latency", LOG_LATENCY)


def add_evidence(store: TraceStore, incident: Incident, measure: MetricInfo, until: int) -> Incident:
    """Add to an incident what its traces since the onset show that those of the day before do not."""
    onset, metric = incident.interval.minute, measure.name
    routes = [route for route in incident.routes if not is_cohort(route)]
    since = _load_traces(store, routes, (onset, until), MAX_SINCE)
    before = _load_traces(store, routes, (onset - DAY_MINUTES, onset), MAX_BEFORE)
    values = [(stored.trace, value) for stored in since if (value := _measure(stored, metric)) is not None]
    usual = [value for stored in before if (value := _measure(stored, metric)) is not None]
    bad, good = split_by_value(values, usual, is_low_worse=measure.better == "higher")
    then = [stored.trace for stored in before]
    slow = find_slow_step(then, [trace for trace, _ in values]) if metric in LATENCY_METRICS else None
    message = find_message(bad)
    changes: dict[str, Any] = {
        "offenders": find_offenders(bad, good, then),
        "message": "" if message is None else f"{message[1]:,} of {len(bad):,} bad traces: {message[0]}",
        "step": slow,
        "cause_text": describe_causes(since[-MAX_DIAGNOSED:]),
    }
    if slow is not None and slow.layer != "operation":
        changes["layer"] = slow.layer
    return replace(incident, **changes)


def describe_causes(traces: Sequence[StoredTrace]) -> str:
    """Describe how many answers are bad, and the commonest causes; empty where none is known to be bad.

    >>> describe_causes([])
    ''
    """
    pairs = [(stored.trace, stored.verdicts or Verdicts(trace=stored.trace.id)) for stored in traces]
    closed = AnswerEndings(trace.answer for trace, _ in pairs).closed
    counts = count_causes([rate_trace(trace, verdicts, {}, closed=closed) for trace, verdicts in pairs])
    # unsure ones count as well, or a few failures among answers of which little is known would be all
    unsure = f" ({counts.unsure:,} unsure)" if counts.unsure else ""
    if not counts.bad:
        return ""
    named = [f"{own.answers:,} {own.cause.replace('_', ' ')}" for own in counts.causes[:MAX_CAUSES]]
    rest = counts.bad - sum(own.answers for own in counts.causes[:MAX_CAUSES])
    named += [f"{rest:,} other"] if rest else []
    return f"{counts.bad:,} of {counts.total:,} answers are bad{unsure}: {', '.join(named)}"


def _load_traces(
    store: TraceStore, routes: Sequence[str | None], window: tuple[int, int], limit: int
) -> list[StoredTrace]:
    """Return the latest judged traces of some routes, or of all, between two minutes."""
    route = (routes[0] or "") if len(routes) == 1 else None
    selection = TraceSelection(since=60.0 * window[0], until=60.0 * window[1], route=route)
    stored = store.load_latest(selection, limit if len(routes) <= 1 else 2 * limit)
    return [own for own in stored if not routes or own.trace.route in routes][-limit:]


def _measure(stored: StoredTrace, metric: str) -> float | None:
    """Return the value of a metric, or of a figure that is derived, on a trace; None without one."""
    for score in stored.scores:
        if score.metric == metric:
            return score.value
    trace = stored.trace
    timed = trace if trace.time is not None else replace(trace, time=EPOCH)
    verdicts = None if stored.verdicts is None else apply_gold(trace, stored.verdicts)
    values = (own.value for own in observe_trace(timed, verdicts, ()) if own.metric == metric and own.counts_for_route)
    return next((value for value in values if value is not None), None)
