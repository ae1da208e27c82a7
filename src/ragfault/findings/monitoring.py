"""Monitoring: live traffic over time, what broke in it and since when, and which alerts fired."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct

from ragfault.errors import UsageError
from ragfault.findings.alerting import Event, State, step
from ragfault.findings.alerting_rules import RULES, Rule, readings
from ragfault.findings.grid import bare
from ragfault.findings.monitoring_blaming import Blame, blame
from ragfault.findings.monitoring_detecting import MARGIN, RATE, Call, Reference, detect, reference
from ragfault.findings.monitoring_drift import Drift
from ragfault.findings.monitoring_marks import Mark
from ragfault.findings.monitoring_rollups import Products, Rollup
from ragfault.findings.monitoring_windows import (
    DAY,
    WINDOWS,
    Correlation,
    Distribution,
    Key,
    Rolling,
    Series,
    correlations,
    difference,
    distribution,
    insights,
    interval,
    rolling,
    series,
)
from ragfault.findings.records import Insight
from ragfault.findings.tree import TREE
from ragfault.runs import Measure
from ragfault.stats import Difference

__all__ = ["CORRELATED", "WATCHED", "Break", "Line", "Monitor", "Terms", "monitor", "watched"]

WATCHED = (*TREE, "triad")
"""The metrics on which drops are looked for, by bare name."""

CORRELATED = tuple(combinations(("context_relevance", "groundedness", "answer_relevance", "completeness"), 2))
"""The pairs of metrics whose products are summed: the triad's parts and completeness."""

REFERENCE = 7 * DAY
"""The reference at most: longer ones only make it older."""

STEPS, EVERY = 2000, 5
"""How often alerts are looked at over the past: every five minutes, and at most so many times."""

POINTS = 96
"""How many points a line over time has."""

OWN = ("position=", "chunks=")
"""Cohorts of chunks, which are shown as insights."""


class Terms(Struct, frozen=True, kw_only=True):
    """On what terms traffic is watched."""

    windows: tuple[int, ...] = WINDOWS
    """Of the rolling means, in minutes; lines over time have the first."""
    reference: int | None = None
    """How many minutes from the beginning are the reference; None: a third of the time, at most seven days."""
    rate: float = RATE
    """False alarms of the sequential test per metric and route in a month, at most."""
    margin: float = MARGIN
    rules: tuple[Rule, ...] = RULES
    seed: int = 0


class Line(Struct, frozen=True, kw_only=True):
    """The rolling mean of a metric on a route over time, with its 95 % interval."""

    metric: str
    route: str | None
    window: int
    minutes: tuple[int, ...]
    """At which the windows end."""
    means: tuple[float | None, ...]
    """None: no value in the window."""
    lows: tuple[float | None, ...]
    highs: tuple[float | None, ...]


class Break(Struct, frozen=True, kw_only=True):
    """A drop that the sequential test called, with its size, its beginning, and the layer to blame."""

    reference: Reference
    call: Call
    until: int
    """Up to which minute it is described: that of its recovery, else the last."""
    difference: Difference
    """From when it began, against the reference. Where it began was chosen by the same values, so that a small drop
    that was only just called looks somewhat larger than it is."""
    blame: Blame
    """What the decision tree says of the reference and the time since."""
    traces: tuple[str, ...]
    """Those that show it: the worst since it began."""


class Monitor(Struct, frozen=True, kw_only=True):
    """Traffic over time; what every report of it is made from."""

    first: int
    last: int
    """The minute after the last trace."""
    traces: int
    """The most values that any metric has."""
    terms: Terms
    rollings: tuple[Rolling, ...]
    """At the end, for each metric, route and window; then for each cohort."""
    lines: tuple[Line, ...]
    """Of the metrics that are watched; the parts of the triad among them."""
    breaks: tuple[Break, ...]
    """In the order in which they were called."""
    silent: tuple[tuple[str, str | None], ...]
    """Metrics and routes with too few values in the reference to be watched."""
    distributions: tuple[Distribution, ...]
    correlations: tuple[Correlation, ...]
    insights: tuple[Insight, ...]
    events: tuple[Event, ...]
    """What would have been sent, in the order of time."""
    state: State
    """The alerts as they stand at the end."""
    marks: tuple[Mark, ...] = ()
    drift: Drift | None = None

    @property
    def fired(self) -> tuple[Event, ...]:
        """The alerts that fired."""
        return tuple(event for event in self.events if event.kind == "firing")


def monitor(
    rollups: Iterable[Rollup],
    measures: Iterable[Measure],
    *,
    products: Iterable[Products] = (),
    marks: Iterable[Mark] = (),
    drift: Drift | None = None,
    terms: Terms | None = None,
) -> Monitor:
    """Watch traffic from its roll-ups, as if minute by minute, up to the last.

    Rolling means over each window of `terms`, drops called by the sequential test with their beginning and the layer
    to blame, and alerts by rule, replayed over time. The figures of cohorts, distributions, correlations and
    insights are of the longest window.

    Raises UsageError where there are no roll-ups, or nothing is left to watch after the reference.

    >>> from ragfault.findings.monitoring_rollups import Observation, roll
    >>> seen = [Observation(metric="groundedness", trace=str(at), time=6.0 * at, value=0.9 if at < 6000 else 0.7)
    ...         for at in range(9000)]
    >>> found = monitor(roll(seen), [Measure("groundedness", "generation")])
    >>> found.breaks[0].call.began, round(found.breaks[0].difference.mean, 2)
    (600, -0.2)
    """
    asked, known = terms or Terms(), {measure.name: measure for measure in measures}
    all_ = series(rollups)
    if not all_:
        raise UsageError("there is nothing to watch: no value has a time.")
    first = min(int(each.minutes[0]) for each in all_.values())
    last = max(int(each.minutes[-1]) for each in all_.values()) + 1
    whole = {key: each for key, each in all_.items() if key[2] is None and key[0] in known}
    until = first + _length(asked, last - first)
    breaks, silent = _breaks(whole, known, asked, (first, until, last))
    events, state = _replay(whole, known, asked, breaks, (first, last))
    wide = last - max(asked.windows)
    shown = [key for key in all_ if key[2] is None or not key[2].startswith(OWN)]
    return Monitor(
        first=first,
        last=last,
        traces=max(each.traces for each in whole.values()) if whole else 0,
        terms=asked,
        rollings=rolling({key: all_[key] for key in sorted(shown, key=_order)}, known, last, asked.windows),
        lines=tuple(_line(key, whole[key], known, asked.windows[0], (first, last)) for key in watched(whole)),
        breaks=breaks,
        silent=silent,
        distributions=tuple(_distributions(whole, known, wide, last)),
        correlations=correlations(products, wide, last),
        insights=insights(all_, wide, last),
        events=events,
        state=state,
        marks=tuple(sorted(marks, key=lambda mark: mark.time)),
        drift=drift,
    )


def watched(all_: Mapping[Key, Series]) -> list[Key]:
    """The series on which drops are looked for: one of each name of WATCHED on each route, in its order."""
    chosen: dict[tuple[str, str | None], Key] = {}
    for key in sorted(all_, key=_order):
        if key[2] is None and bare(key[0]) in WATCHED and all_[key].traces:
            chosen.setdefault((bare(key[0]), key[1]), key)
    return list(chosen.values())


def _order(key: Key) -> tuple[bool, str, int, str, str]:
    """All traces before cohorts, route by route, in the order of the tree."""
    name = bare(key[0])
    return (
        key[2] is not None,
        key[1] or "",
        WATCHED.index(name) if name in WATCHED else len(WATCHED),
        key[0],
        key[2] or "",
    )


def _length(terms: Terms, span: int) -> int:
    """How long the reference is, in minutes."""
    length = min(REFERENCE, span // 3) if terms.reference is None else terms.reference
    if length >= span or length < 1:
        raise UsageError(
            f"a reference of {length:,} minutes leaves nothing to watch: the traces span {span:,}. "
            "Name a shorter one with --reference."
        )
    return length


def _breaks(
    whole: Mapping[Key, Series], known: Mapping[str, Measure], terms: Terms, times: tuple[int, int, int]
) -> tuple[tuple[Break, ...], tuple[tuple[str, str | None], ...]]:
    """Every drop that is called, and what could not be watched."""
    first, until, last = times
    found, silent = [], []
    for key in watched(whole):
        part = whole[key].between(first, until)
        made = reference((key[0], key[1]), part, known[key[0]], rate=terms.rate, margin=terms.margin)
        if made is None:
            silent.append((key[0], key[1]))
            continue
        for call in detect(whole[key].between(first, last), made, rate=terms.rate, seed=terms.seed):
            found.append(_break(whole, known, made, call, last))
    found.sort(key=lambda each: (each.call.called, each.reference.metric))
    return tuple(found), tuple(silent)


def _break(
    whole: Mapping[Key, Series], known: Mapping[str, Measure], made: Reference, call: Call, last: int
) -> Break:
    """A call, with its size and the layer to blame."""
    each = whole[made.metric, made.route, None]
    before, after = (made.first, min(made.last, call.began)), (call.began, call.recovered or last)
    part = each.between(*after)
    gap = difference(each.between(*before), part, known[made.metric])
    assert gap is not None
    return Break(
        reference=made,
        call=call,
        until=after[1],
        difference=gap,
        blame=blame(whole, known, made.route, before, after),
        traces=tuple(worst.trace for worst in part.telling(5)),
    )


def _replay(
    whole: Mapping[Key, Series],
    known: Mapping[str, Measure],
    terms: Terms,
    breaks: Sequence[Break],
    times: tuple[int, int],
) -> tuple[tuple[Event, ...], State]:
    """What the rules would have sent, had they been looked at all along."""
    first, last = times
    every = max(EVERY, (last - first) // STEPS)
    state, events = State(), list[Event]()
    for minute in (*range(first + every, last, every), last):
        called = [
            (each.reference.metric, each.reference.route)
            for each in breaks
            if each.call.called < minute <= (each.call.recovered or last)
        ]
        state, sent = step(state, readings(terms.rules, whole, known, minute, called), 60.0 * minute)
        events += sent
    return tuple(events), state


def _line(key: Key, each: Series, known: Mapping[str, Measure], window: int, times: tuple[int, int]) -> Line:
    """The rolling mean of a series over time."""
    ends = np.unique(np.linspace(times[0], times[1], POINTS + 1).round().astype(int)[1:]).tolist()
    found = [interval(each.between(end - window, end), known[key[0]]) for end in ends]
    return Line(
        metric=key[0],
        route=key[1],
        window=window,
        minutes=tuple(ends),
        means=tuple(None if one is None else one.mean for one in found),
        lows=tuple(None if one is None else one.low for one in found),
        highs=tuple(None if one is None else one.high for one in found),
    )


def _distributions(
    whole: Mapping[Key, Series], known: Mapping[str, Measure], first: int, last: int
) -> Iterator[Distribution]:
    for key in watched(whole):
        found = distribution(key, whole[key].between(first, last), known[key[0]])
        if found is not None:
            yield found
