"""Offenders of an incident: the values of fields that set its bad traces apart from the good ones, or that vanished."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import exp, lgamma
from statistics import median
from typing import Any, Literal

from msgspec import Struct

from ragfault.model.records import Trace

OffenderKind = Literal["worse", "vanished"]

# chance of naming any offender where none is
OFFENDER_ALPHA = 0.01
# offenders that an incident names
MAX_OFFENDERS = 5
# bad traces with a value, or traces before with one that vanished
LEAST_TRACES = 5
# an offender is bad so many times as often as the rest; a vanished value has at most the inverse share left
LEAST_RATIO = 1.5
# characters of a value, and metadata fields of a trace, that are compared
MAX_VALUE, MAX_FIELDS = 120, 40
# of the growth of the latency that the slowest step explains, at least
SLOW_SHARE = 0.5
# characters of an error message
MAX_MESSAGE = 200

NUMBERS = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{8,}|\d+")
"""What differs between errors of one kind."""

FIELD_TITLES = {"prompt_version": "prompt version", "chunk_document": "document", "document_type": "document type"}


class Offender(Struct, frozen=True, kw_only=True):
    """A value of a field with the traces that have it, against those that do not."""

    field: str
    """"release", "model", "route", a metadata field, "document", "document type" or "step"."""
    value: str
    kind: OffenderKind = "worse"
    """Worse: more of its traces are bad. Vanished: its traces were there before the onset, and are not since."""
    count: int
    """Bad traces with the value; of a vanished one its traces since the onset."""
    total: int
    """Traces with the value since the onset; of a vanished one all traces since."""
    other_count: int
    """Bad traces without the value; of a vanished one its traces before the onset."""
    other_total: int
    """Traces without the value since the onset; of a vanished one all traces before."""
    p: float
    """Of Fisher's exact test, times the number of values that were compared."""
    is_new: bool = False
    """No trace before the onset had the value."""


def list_values(trace: Trace) -> Iterator[tuple[str, str]]:
    """Yield the fields of a trace with their values, each pair once.

    >>> list(list_values(Trace(id="a", query="q", model="m", metadata={"release": 7})))
    [('model', 'm'), ('release', '7')]
    """
    seen: dict[tuple[str, str], None] = {}

    def add(field: str, value: object) -> None:
        if value is not None and isinstance(value, (str, int, float)) and 0 < len(str(value)) <= MAX_VALUE:
            seen[field, str(value)] = None

    add("model", trace.model)
    add("route", trace.route)
    for name, value in list(trace.metadata.items())[:MAX_FIELDS]:
        add(FIELD_TITLES.get(name, name), value)
    for chunk in trace.chunks or ():
        add("document", chunk.document)
        if chunk.document and "." in chunk.document[-6:]:
            add("document type", chunk.document.rpartition(".")[2].lower())
        for name, value in list(chunk.metadata.items())[:MAX_FIELDS]:
            add("document type" if name in ("type", "doc_type", "document_type") else f"chunk {name}", value)
    for step in trace.steps or ():
        if step.error:
            add("failed step", step.name or step.kind)
    yield from seen


def find_offenders(bad: Sequence[Trace], good: Sequence[Trace], before: Sequence[Trace]) -> tuple[Offender, ...]:
    """Find the values that set bad traces apart from good ones, and those that vanished since the traces before.

    One table of counts for each contrast and one exact test for each value, corrected for the number of values. A value
    that has the same bad traces as one with a smaller p is left out. New values count from their first trace.

    >>> bad = [Trace(id=str(at), query="q", model="new") for at in range(9)]
    >>> good = [Trace(id=str(at), query="q", model="old") for at in range(20, 60)]
    >>> [found] = find_offenders(bad, good, good)
    >>> found.field, found.value, found.count, found.total, found.is_new
    ('model', 'new', 9, 9, True)
    """
    own, rest, then = (_count_values(traces) for traces in (bad, good, before))
    since = own + rest
    number = len(bad) + len(good)
    tables: list[tuple[OffenderKind, tuple[str, str], tuple[int, int, int, int]]] = [
        *(("worse", pair, (own[pair], since[pair], len(bad) - own[pair], number - since[pair])) for pair in own),
        *(("vanished", pair, (since[pair], number, then[pair], len(before))) for pair in then),
    ]
    offenders: list[Offender] = []
    for kind, pair, (count, total, other_count, other_total) in tables:
        table = (count, total, other_count, other_total)
        # a vanished value is rarer since: the same test with the sides exchanged
        first = table if kind == "worse" else (*table[2:], *table[:2])
        if first[0] < LEAST_TRACES or not first[3] or first[0] * first[3] < LEAST_RATIO * first[2] * first[1]:
            continue
        p = len(tables) * excess_probability(*first)
        if p <= OFFENDER_ALPHA:
            is_new = kind == "worse" and bool(before) and not then[pair]
            offenders.append(
                Offender(
                    field=pair[0],
                    value=pair[1],
                    kind=kind,
                    count=count,
                    total=total,
                    other_count=other_count,
                    other_total=other_total,
                    p=p,
                    is_new=is_new,
                )
            )
    return _select_offenders(offenders)


def _select_offenders(offenders: Iterable[Offender]) -> tuple[Offender, ...]:
    """Return the clearest offenders; of several with the same counts, as a tenant and its only release, all fields."""
    ordered = sorted(offenders, key=lambda own: (own.p, own.field, own.value))
    by_field = Counter[str]()
    selected = []
    for own in ordered:
        by_field[own.field] += 1
        if by_field[own.field] <= 2:
            selected.append(own)
    return tuple(selected[:MAX_OFFENDERS])


def _count_values(traces: Iterable[Trace]) -> Counter[tuple[str, str]]:
    return Counter(pair for trace in traces for pair in list_values(trace))


def excess_probability(count: int, total: int, other_count: int, other_total: int) -> float:
    """Return the p-value of Fisher's exact test that a share is larger than another.

    >>> round(excess_probability(9, 9, 0, 40), 12) < 1e-8, excess_probability(1, 2, 10, 20) > 0.5
    (True, True)
    """
    hits, everything = count + other_count, total + other_total
    most = min(total, hits)
    known = _log_choose(everything, hits)
    terms = (
        exp(_log_choose(total, k) + _log_choose(other_total, hits - k) - known)
        for k in range(count, most + 1)
        if hits - k <= other_total
    )
    return min(1.0, sum(terms))


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def split_by_value(
    traces: Sequence[tuple[Trace, float]], before: Sequence[float], *, is_low_worse: bool
) -> tuple[list[Trace], list[Trace]]:
    """Split traces by a metric: bad are those that are worse than nine in ten of the day before.

    >>> pairs = [(Trace(id=str(at), query="q"), at / 10) for at in range(10)]
    >>> [len(part) for part in split_by_value(pairs, [0.5] * 9, is_low_worse=True)]
    [5, 5]
    """
    sign = 1.0 if is_low_worse else -1.0
    ordered = sorted(sign * value for value in before)
    fence = ordered[len(ordered) // 10] if ordered else 0.5 * sign
    bad = [trace for trace, value in traces if sign * value < fence]
    if not bad:
        # the worst value there is was usual before
        bad = [trace for trace, value in traces if sign * value <= fence]
    known = {trace.id for trace in bad}
    return bad, [trace for trace, _ in traces if trace.id not in known]


def find_message(traces: Iterable[Trace]) -> tuple[str, int] | None:
    """Return the commonest error message of traces, numbers apart, and the number of traces with it.

    >>> find_message([Trace(id=str(at), query="q", error=f"HTTP 429 after {at} ms") for at in (3, 40)])
    ('HTTP 429 after 3 ms', 2)
    """
    shown: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for trace in traces:
        if trace.error:
            key = NUMBERS.sub("#", trace.error[:MAX_MESSAGE])
            shown.setdefault(key, trace.error[:MAX_MESSAGE])
            counts[key] += 1
    return next(((shown[key], count) for key, count in counts.most_common(1)), None)


class SlowStep(Struct, frozen=True):
    """The step whose time grew most since an onset, in milliseconds of the median trace."""

    name: str
    layer: str
    before: float
    since: float


LATENCY_PARTS: Mapping[str, Callable[[Any], float | None]] = {
    "retrieval": lambda latency: latency.retrieval,
    "generation": lambda latency: latency.generation,
}
STEP_LAYERS = {"retrieve": "retrieval", "rerank": "retrieval", "generate": "generation"}


def find_slow_step(before: Sequence[Trace], since: Sequence[Trace]) -> SlowStep | None:
    """Find the step, or the part of the latency, that explains at least half of the growth of the total latency."""
    then, now = (_measure_parts(traces) for traces in (before, since))
    if "" not in then or "" not in now:
        return None
    growth = now[""][0] - then[""][0]
    slow = [
        SlowStep(name, now[name][1], then.get(name, (0.0, ""))[0], now[name][0])
        for name in now
        if name and now[name][0] - then.get(name, (0.0, ""))[0] >= SLOW_SHARE * growth > 0
    ]
    # a named step tells more than the part that it belongs to
    return max(slow, key=lambda step: (step.name not in LATENCY_PARTS, step.since - step.before), default=None)


def _measure_parts(traces: Sequence[Trace]) -> dict[str, tuple[float, str]]:
    """Return the median time and the layer of each part of traces; the total as the empty text."""
    times: dict[str, list[float]] = {}
    layers: dict[str, str] = {}
    for trace in traces:
        own: defaultdict[str, float] = defaultdict(float)
        if trace.latency is not None:
            if trace.latency.total is not None:
                own[""] += trace.latency.total
            for name, read in LATENCY_PARTS.items():
                if (value := read(trace.latency)) is not None:
                    own[name] += value
                    layers[name] = name
        outer = {step.parent for step in trace.steps or ()}
        for step in trace.steps or ():
            if step.duration is not None and step.id not in outer and (step.name or step.kind):
                name = step.name or str(step.kind)
                own[name] += step.duration
                layers[name] = STEP_LAYERS.get(step.kind or "", "operation")
        for name, value in own.items():
            times.setdefault(name, []).append(value)
    return {name: (median(values), layers.get(name, "operation")) for name, values in times.items()}
