"""Change detector for live metrics: a sequential test per metric and route, with its state kept in the store."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from ragfault.analysis.comparison.records import LayerFault
from ragfault.analysis.monitoring.change_detection import (
    RECOVERY_MINUTES,
    DropDetection,
    SequentialTest,
    advance_test,
    estimate_onset,
    log_threshold,
    measure_reference,
    start_test,
)
from ragfault.analysis.monitoring.fault_location import locate_fault
from ragfault.analysis.monitoring.monitor import select_watched
from ragfault.analysis.monitoring.windows import DAY_MINUTES, MetricSeries, SeriesKey
from ragfault.io.runs import MetricInfo

LAG_MINUTES = 2
"""Minutes that are waited before one is taken in: traces are judged a little after they come."""


class MetricWatch(Struct, frozen=True, kw_only=True):
    """One metric on one route under watch."""

    metric: str
    route: str | None
    watch: SequentialTest | None = None
    """None: the reference is still being gathered."""
    call: DropDetection | None = None
    """A drop that is called and not over."""


class DropEvent(Struct, frozen=True, kw_only=True):
    """A drop that was just called, or is just over."""

    metric: str
    route: str | None
    call: DropDetection
    over: bool = False


class DetectorState(Struct, frozen=True, kw_only=True):
    """All that is under watch, by `name`."""

    watches: dict[str, MetricWatch] = {}


def encode_state(state: DetectorState) -> str:
    """The state as a text; JSON has no infinity, so that it is MessagePack beneath."""
    return base64.b64encode(msgspec.msgpack.encode(state)).decode()


def decode_state(text: str) -> DetectorState:
    """The state that a text is; the empty text is nothing under watch.

    >>> decode_state(encode_state(DetectorState())) == decode_state("") == DetectorState()
    True
    """
    return msgspec.msgpack.decode(base64.b64decode(text), type=DetectorState) if text else DetectorState()


def watch_key(metric: str, route: str | None) -> str:
    """What a metric on a route is called in the state."""
    return msgspec.json.encode([metric, route or ""]).decode()


def detect_changes(
    state: DetectorState,
    all_series: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    until: int,
    reference_minutes: int,
    rate: float,
) -> tuple[DetectorState, tuple[DropEvent, ...]]:
    """Take in the minutes to before `until`, and say which drops were called and which are over.

    The first `length` minutes of a metric on a route are its reference. After a call nothing is called until the mean
    is back at the floor over as many minutes as the call took, at least 90.
    """
    beats, told = dict(state.watches), []
    for metric, route, _ in select_watched({key: each for key, each in all_series.items() if key[2] is None}):
        whole, known = all_series[metric, route, None], measures[metric]
        old = beats.get(watch_key(metric, route), MetricWatch(metric=metric, route=route))
        new = _start_watch(old, whole, known, until, reference_minutes, rate) if old.watch is None else old
        new, called = _advance_watch(new, whole, until - LAG_MINUTES, rate)
        beats[watch_key(metric, route)] = new
        told += [called] if called is not None else []
    return DetectorState(watches=beats), tuple(told)


def _start_watch(
    old: MetricWatch,
    values: MetricSeries,
    measure: MetricInfo,
    until: int,
    reference_minutes: int,
    rate: float,
) -> MetricWatch:
    """Begin to watch where the reference is long enough."""
    if not values.minutes.size or until - LAG_MINUTES - int(values.minutes[0]) < reference_minutes:
        return old
    first = int(values.minutes[0])
    made = measure_reference(
        (old.metric, old.route), values.between(first, first + reference_minutes), measure, rate=rate
    )
    return old if made is None else msgspec.structs.replace(old, watch=start_test(made, made.last))


def _advance_watch(
    old: MetricWatch, values: MetricSeries, until: int, rate: float
) -> tuple[MetricWatch, DropEvent | None]:
    """Take in the minutes that are new."""
    watch = old.watch
    if watch is None:
        return old, None
    live = values.between(watch.minute + 1, until)
    if old.call is not None:
        return _restart_watch(old, watch, values, until)
    for at, minute in enumerate(live.minutes.tolist()):
        watch = advance_test(watch, minute, float(live.n[at]), float(live.sum[at]), float(live.squares[at]))
        if watch.log_evidence >= log_threshold(rate):
            first, low, high = estimate_onset(values, watch)
            call = DropDetection(
                detected_at=minute, onset=first, earliest=low, latest=high, log_evidence=watch.log_evidence
            )
            made = msgspec.structs.replace(old, watch=watch, call=call)
            return made, DropEvent(metric=old.metric, route=old.route, call=call)
    return msgspec.structs.replace(old, watch=watch), None


def _restart_watch(
    old: MetricWatch, watch: SequentialTest, values: MetricSeries, until: int
) -> tuple[MetricWatch, DropEvent | None]:
    """Watch anew where the mean is back at the floor."""
    call, found = old.call, watch.period
    assert call is not None
    window = max(RECOVERY_MINUTES, call.detected_at - call.onset)
    mean = values.between(until - window, until).mean
    if mean is None or until <= call.detected_at + window:
        return old, None
    unit = (mean - found.low) / (found.high - found.low)
    if (unit if found.higher_is_better else 1 - unit) < found.floor:
        return old, None
    over = msgspec.structs.replace(call, recovered_at=until - 1)
    made = msgspec.structs.replace(old, watch=start_test(found, until), call=None)
    return made, DropEvent(metric=old.metric, route=old.route, call=over, over=True)


def locate_fault_vigil(
    all_series: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    route: str | None,
    since: int,
    until: int,
) -> LayerFault | None:
    """The layer that the decision tree names between the day before a minute and the time since; None where none."""
    return locate_fault(all_series, measures, route, (since - DAY_MINUTES, since), (since, until)).fault
