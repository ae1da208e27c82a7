"""Watchdog of the server itself: no traffic, a scoring backlog, a dead scorer, a failing receiver, a full disk."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from ragfault.apps.watch.monitoring.alert_rules import Severity
from ragfault.apps.watch.monitoring.incidents import Incident, IncidentKind
from ragfault.apps.watch.monitoring.windows import DAY_MINUTES
from ragfault.apps.watch.server.alerts.delivery import ReceiverFault
from ragfault.apps.watch.server.state import ServerState
from ragfault.io.field_values import make_content_id
from ragfault.text.number_format import format_count

# minutes without a trace below which nothing is said
MIN_SILENCE = 10
MIN_EXPECTED = 14.0
"""Traces that the reference had in as many minutes, at least: of traces that come by chance, none comes in a time of 14
once in a million times, and a store of little traffic sees tens of thousands of pauses a year."""
# a silence is longer than so many times the longest gap around the same time of the reference
GAP_FACTOR = 2
# minutes before and after, in which that gap is sought
AROUND_MINUTES = 180
HISTORY_MINUTES = 15 * DAY_MINUTES
"""Minutes of traffic that are read: a week before the first minute of a silence of up to eight days."""
# minutes of traffic before the first silence that is noticed
MIN_HISTORY = 60
BACKLOG_SECONDS = (600.0, 120.0)
"""Age of the oldest trace that waits to be judged, above which a backlog opens, and below which it is over."""
# seconds without a stored outcome after which scorers are dead, while traces wait
STALLED_SECONDS = 300.0
# free share of the disk below which it is nearly full …
DISK_SHARE = 0.05
# … if less than the first is free; below the second it is in any case
DISK_BYTES = (20_000_000_000, 500_000_000)
# how many times these limits must be free for it to be over
DISK_HYSTERESIS = 1.2


class ServerProblem(NamedTuple):
    """Something that is wrong with the server now; its title says the same as long as it is so."""

    kind: IncidentKind
    title: str
    sentence: str
    severity: Severity = "high"
    remedies: tuple[str, ...] = ()
    since: float | None = None
    """When it began, in seconds since 1970; None: when it was found."""


class TrafficGap(NamedTuple):
    """A time without traces, and the number that the reference had in as long."""

    minutes: int
    expected: float
    reference: str


def find_traffic_gap(counts: Mapping[int, int], now: int, started: int) -> TrafficGap | None:
    """Return the present silence where the reference of this time had traces: a week ago, otherwise a day ago.

    `counts` has the traces of each minute that had any; before `started` the server did not listen. Without a day of
    history it is the mean of the time before, or of its last hour where that is less, since the traffic of a first
    evening falls gradually. Traffic that pauses by itself is not silent: the gaps around the same
    time of the reference count.

    >>> steady = dict.fromkeys(range(0, 1500), 2)
    >>> find_traffic_gap(steady, 1512, 0)
    TrafficGap(minutes=13, expected=26.0, reference='a day before')
    >>> find_traffic_gap(steady, 1505, 0) is None
    True
    """
    if not counts:
        return None
    first, last = min(counts), max(counts)
    begin = max(last + 1, started)
    length = now - begin + 1
    if length <= MIN_SILENCE or last - first < MIN_HISTORY:
        return None
    for days, name in ((7, "a week before"), (1, "a day before")):
        shift = days * DAY_MINUTES
        if first <= begin - shift:
            return _compare_with_reference(counts, begin, now, shift, min(last, now - shift + AROUND_MINUTES), name)
    latest = sum(count for minute, count in counts.items() if minute > last - MIN_HISTORY)
    rate, reference = min(
        (sum(counts.values()) / (last - first + 1), "on average before"),
        (latest / MIN_HISTORY, "on average in the hour before"),
    )
    expected = length * rate
    is_silent = expected >= MIN_EXPECTED and length > max(MIN_SILENCE, GAP_FACTOR * _longest_gap(counts, first, last))
    return TrafficGap(length, expected, reference) if is_silent else None


def _compare_with_reference(
    counts: Mapping[int, int], begin: int, now: int, shift: int, until: int, reference: str
) -> TrafficGap | None:
    """Return a silence from a minute to now where the reference had traces then, counted from the first of them.

    As many as are expected came in that time and, on average, in the hours around it. Fewer are expected where fewer
    came in the hours before the silence than in the same hours of the reference, as with another sampling.
    """
    then = range(begin - shift, now + 1 - shift)
    awaited = next((minute for minute in then if minute in counts), None)
    if awaited is None:
        return None
    gaps = _longest_gap(counts, awaited, until), _longest_gap(counts, then[0] - AROUND_MINUTES, then[0])
    expected = float(sum(counts.get(minute, 0) for minute in then))
    missed = then[-1] - awaited + 1
    around = range(then[0] - AROUND_MINUTES, min(then[-1] + AROUND_MINUTES, until) + 1)
    last = max(counts) + 1
    hours = (range(end - AROUND_MINUTES, end) for end in (last, last - shift))
    latest, former = (1 + sum(counts.get(minute, 0) for minute in minutes) for minutes in hours)
    # a few traces came by chance
    usual = len(then) * sum(counts.get(minute, 0) for minute in around) / len(around)
    usual = min(expected, usual) * min(1.0, latest / former)
    is_silent = usual >= MIN_EXPECTED and missed > max(MIN_SILENCE, GAP_FACTOR * max(gaps))
    return TrafficGap(len(then), expected, reference) if is_silent else None


def _longest_gap(counts: Mapping[int, int], first: int, last: int) -> int:
    """Return the most minutes without a trace between two that had one."""
    there = sorted(minute for minute in counts if first <= minute <= last)
    return max((later - earlier - 1 for earlier, later in pairwise(there)), default=0)


def is_nearly_full(total: int, free: int, was_full: bool) -> bool:
    """Return whether a disk is nearly full, by its bytes; one that was must have a fifth more free to be well again.

    >>> is_nearly_full(100 * 10**9, 4 * 10**9, False), is_nearly_full(100 * 10**9, 50 * 10**9, True)
    (True, False)
    """
    factor = DISK_HYSTERESIS if was_full else 1.0
    return free < factor * max(DISK_BYTES[1], min(DISK_SHARE * total, DISK_BYTES[0]))


class Watchdog:
    """Looks once a round for what is wrong with the server, and opens and resolves its incidents."""

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._started = time.time()
        self._first_minute = int(server.now() // 60)

    def find_problems(self, faults: Iterable[ReceiverFault], open_kinds: frozenset[str]) -> list[ServerProblem]:
        """Return what is wrong now; `open_kinds` are the kinds of incidents that are open."""
        return [
            *self._find_silence(),
            *self._find_scoring_problem("backlog" in open_kinds),
            *map(_describe_receiver, faults),
            *self._find_full_disk("disk" in open_kinds),
        ]

    def _find_silence(self) -> Iterator[ServerProblem]:
        now = int(self._server.now() // 60)
        recent = self._server.store.read_counts(now - MIN_SILENCE, "taken")
        if recent:
            return
        counts = {count.minute: count.n for count in self._server.store.read_counts(now - HISTORY_MINUTES, "taken")}
        gap = find_traffic_gap(counts, now, self._first_minute)
        if gap is not None:
            many = f"{gap.expected:,.0f} came in as many minutes {gap.reference}"
            yield ServerProblem(
                "no traffic",
                "No traces come in",
                f"No trace has come in for {gap.minutes:,} minutes; {many}.",
                "critical",
                ("check that the application runs", "check its exporter: endpoint, token, network", "ask for /readyz"),
                since=60.0 * (now + 1 - gap.minutes),
            )

    def _find_scoring_problem(self, was_behind: bool) -> Iterator[ServerProblem]:
        """Yield a dead scorer, otherwise a backlog: traces that waited before the start count from the start."""
        server, now = self._server, time.time()
        workers = server.scoring_workers
        if not server.settings.workers:
            return
        oldest = server.store.list_unscored(limit=1)
        age = now - max(self._started, oldest[0].received) if oldest else 0.0
        waiting = format_count(int(workers.summarize()["waiting"]), "trace")
        if not workers.is_alive or (age > BACKLOG_SECONDS[0] and workers.idle_seconds > STALLED_SECONDS):
            yield ServerProblem(
                "scorer",
                "Scoring has stopped",
                f"No score has been stored for {workers.idle_seconds / 60:,.0f} minutes, and {waiting} wait: "
                "what the metrics and alerts show is as old.",
                "critical",
                ("look into the log of the server", "start the server again: what waits is judged then"),
            )
        elif age > BACKLOG_SECONDS[was_behind]:
            yield ServerProblem(
                "backlog",
                "Scoring is behind",
                f"The oldest trace that waits to be judged has waited {age / 60:,.0f} minutes; {waiting} wait.",
                "high",
                ("start more workers (--workers)", "choose a faster judge", "compute fewer metrics (--metrics)"),
            )

    def _find_full_disk(self, was_full: bool) -> Iterator[ServerProblem]:
        disk = shutil.disk_usage(self._server.settings.data_folder)
        if is_nearly_full(disk.total, disk.free, was_full):
            yield ServerProblem(
                "disk",
                "The disk is nearly full",
                f"{disk.free / 1e9:,.1f} of {disk.total / 1e9:,.1f} GB are free; when it is full, ingest answers 503.",
                "critical",
                ("keep less: --keep or --size", "make room on the disk, or move the store"),
            )


def _describe_receiver(fault: ReceiverFault) -> ServerProblem:
    return ServerProblem(
        "receiver",
        f"Notices do not reach {fault.receiver}",
        f"{format_count(fault.unsent, 'notice')} could not be sent to {fault.receiver}: {fault.error}.",
        "high",
        ("check its address and secret", "look at the service that receives"),
    )


def advance_problems(incidents: Sequence[Incident], problems: Sequence[ServerProblem], now: float) -> list[Incident]:
    """Return the incidents with those of the server opened, described anew, and resolved where it is well again."""
    new = {(problem.kind, problem.title): problem for problem in problems}
    current = []
    for incident in incidents:
        problem = new.pop((incident.kind, incident.title), None) if incident.resolved is None else None
        if problem is not None:
            current.append(replace(incident, sentence=problem.sentence))
        elif incident.kind == "quality" or incident.resolved is not None:
            current.append(incident)
        else:
            current.append(replace(incident, resolved=now, state="resolved"))
    opened = [
        Incident(
            id=make_content_id(f"{problem.kind}{problem.title}{now}", "i-"),
            kind=problem.kind,
            severity=problem.severity,
            title=problem.title,
            sentence=problem.sentence,
            opened=now,
            onset=problem.since or now,
            earliest=problem.since or now,
            latest=problem.since or now,
            remedies=problem.remedies,
        )
        for problem in new.values()
    ]
    return [*current, *opened]
