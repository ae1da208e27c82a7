"""Change detector for live metrics: feeds the shared change detection round by round and stores its state.

A replay measures one reference period for all series, from the beginning of the traffic. Live, the first minutes of a
metric on a route are its reference, each minute is taken in after a lag, and faults are located against the day before
the onset, since older traffic may be deleted. See `docs/decisions/0017-change-detection.md`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ragfault.analysis.comparison.records import LayerFault
from ragfault.analysis.monitoring.change_detection import (
    DropDetection,
    SeriesWatch,
    advance_watch,
    measure_reference,
    start_test,
)
from ragfault.analysis.monitoring.fault_location import locate_fault
from ragfault.analysis.monitoring.monitor import select_watched
from ragfault.analysis.monitoring.windows import DAY_MINUTES, MetricSeries, SeriesKey
from ragfault.io.runs import MetricInfo

LAG_MINUTES = 2
"""Minutes to wait before one is taken in: traces are judged a little after they arrive."""


class DropEvent(Struct, frozen=True, kw_only=True):
    """Drop that was just detected, or has just recovered."""

    metric: str
    route: str | None
    detection: DropDetection


class DetectorState(Struct, frozen=True, kw_only=True):
    """Watches by `watch_key`."""

    watches: dict[str, SeriesWatch] = {}


def encode_state(state: DetectorState) -> str:
    """Encode the state as text: MessagePack in base64, since JSON has no infinity."""
    return base64.b64encode(msgspec.msgpack.encode(state)).decode()


def decode_state(text: str) -> DetectorState:
    """Decode a state; the empty text is the empty state.

    >>> decode_state(encode_state(DetectorState())) == decode_state("") == DetectorState()
    True
    """
    return msgspec.msgpack.decode(base64.b64decode(text), type=DetectorState) if text else DetectorState()


def watch_key(metric: str, route: str | None) -> str:
    """Return the key of a metric on a route in the state."""
    return msgspec.json.encode([metric, route or ""]).decode()


def detect_changes(
    state: DetectorState,
    all_series: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    until: int,
    reference_minutes: int,
    rate: float,
) -> tuple[DetectorState, tuple[DropEvent, ...]]:
    """Take in the minutes before `until` less the lag; return the drops detected or recovered in them.

    The first `reference_minutes` of a metric on a route are its reference.
    """
    watches, events = dict(state.watches), list[DropEvent]()
    totals = {key: series for key, series in all_series.items() if key[2] is None}
    until -= LAG_MINUTES
    for metric, route, _ in select_watched(totals):
        key, series = watch_key(metric, route), totals[metric, route, None]
        watch = watches.get(key, SeriesWatch(metric=metric, route=route))
        if watch.test is None:
            watch = _start_watch(watch, series, measures[metric], until, reference_minutes, rate)
        watches[key], detections = advance_watch(watch, series, until, rate=rate)
        events += [DropEvent(metric=metric, route=route, detection=detection) for detection in detections]
    return DetectorState(watches=watches), tuple(events)


def _start_watch(
    watch: SeriesWatch,
    series: MetricSeries,
    measure: MetricInfo,
    until: int,
    reference_minutes: int,
    rate: float,
) -> SeriesWatch:
    """Start the test where the reference is long enough and can be measured."""
    if not series.minutes.size or until - int(series.minutes[0]) < reference_minutes:
        return watch
    first = int(series.minutes[0])
    period = measure_reference(
        (watch.metric, watch.route), series.between(first, first + reference_minutes), measure, rate=rate
    )
    return watch if period is None else replace(watch, test=start_test(period, period.last))


def locate_live_fault(
    all_series: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    route: str | None,
    since: int,
    until: int,
) -> LayerFault | None:
    """Return the layer fault between the day before a minute and the time since; None where no branch matches."""
    return locate_fault(all_series, measures, route, (since - DAY_MINUTES, since), (since, until)).fault
