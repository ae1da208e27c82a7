"""Absence is an event: silence, a backlog, dead scorers, failing receivers, full disks open incidents by themselves."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")

from live_traffic import LiveTraffic
from ragfault.apps.watch.server.alerts import watchdog
from ragfault.apps.watch.server.alerts.delivery import ReceiverFault
from ragfault.apps.watch.server.alerts.watchdog import (
    ServerProblem,
    Watchdog,
    advance_problems,
    find_traffic_gap,
    is_nearly_full,
)
from ragfault.apps.watch.server.app import create_app
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.apps.watch.server.state import ServerState
from ragfault.apps.watch.server.storage.records import EventCount
from ragfault.model.records import Trace

DAY = 24 * 60
OFFICE = {
    minute: 2 for day in (0, 1, 2, 3, 4, 7, 8, 9, 10, 11) for minute in range(day * DAY + 8 * 60, day * DAY + 18 * 60)
}
"""Two traces a minute from 8 to 18 h on working days; days 5 and 6 are a weekend."""


def history(until: int) -> dict[int, int]:
    """Return the office's traffic before a minute."""
    return {minute: n for minute, n in OFFICE.items() if minute < until}


@pytest.mark.parametrize(
    ("last", "now", "silent"),
    [
        (9 * DAY + 12 * 60, 9 * DAY + 12 * 60 + 9, False),
        (9 * DAY + 12 * 60, 9 * DAY + 12 * 60 + 15, True),
        (9 * DAY + 18 * 60, 9 * DAY + 23 * 60, False),
        (9 * DAY + 18 * 60, 10 * DAY + 7 * 60, False),
        (9 * DAY + 18 * 60, 10 * DAY + 8 * 60 + 40, True),
        (11 * DAY + 18 * 60, 12 * DAY + 12 * 60, False),
    ],
    ids=["a short pause", "noon", "evening", "before work", "nobody came to work", "a weekend"],
)
def test_silence_is_measured_by_the_same_time_a_week_before(last: int, now: int, silent: bool):
    """Office hours, nights and weekends are known after a week: only the hours that had traffic miss it."""
    assert (find_traffic_gap(history(last), now, 0) is not None) is silent


def test_silence_while_the_server_was_down_is_its_own():
    """What it could not hear does not count: minutes without traces count from its start."""
    assert find_traffic_gap(history(9 * DAY + 12 * 60), 9 * DAY + 13 * 60, 9 * DAY + 13 * 60 - 5) is None


def test_a_first_evening_that_falls_silent_by_and_by_is_no_incident():
    """The traffic of the first day is no measure of its night: that of its last hour counts where it is less."""
    evening = {minute: max(1, 20 - minute // 30) for minute in range(600)}
    evening |= dict.fromkeys(range(610, 720, 12), 1)
    assert find_traffic_gap(evening, 718 + 30, 0) is None
    noon = find_traffic_gap(dict.fromkeys(range(300), 20), 315, 0)
    assert (noon.minutes, noon.expected, noon.reference) == (16, 320, "on average before")


def test_another_sampling_rate_is_no_silence_and_its_own_end_is():
    """After a week of ten traces a minute one comes every ten minutes: forty without are no silence, two hours are."""
    counts = dict.fromkeys(range(9 * DAY), 10) | dict.fromkeys(range(9 * DAY, 9 * DAY + 240, 10), 1)
    last = max(counts)
    assert find_traffic_gap(counts, last + 40, 0) is None
    assert find_traffic_gap(counts, last + 150, 0) is not None
    assert find_traffic_gap(counts | dict.fromkeys(range(9 * DAY, 9 * DAY + 240), 10), 9 * DAY + 255, 0) is not None


def test_little_traffic_that_pauses_by_chance_is_no_incident():
    """Ten traces of the day before came in an hour and a quarter by chance: on average there are eight."""
    draw = random.Random(7)
    traffic = {minute: 1 for minute in range(10 * DAY) if draw.random() < 0.1}
    alarms = 0
    for last in [minute for minute in traffic if minute > 2 * DAY]:
        known = {minute: n for minute, n in traffic.items() if minute <= last}
        following = next((minute for minute in range(last + 1, 10 * DAY) if minute in traffic), last + 1)
        alarms += find_traffic_gap(known, following - 1, 0) is not None
    assert alarms == 0


@given(st.lists(st.integers(1, 120), min_size=20, max_size=60), st.integers(0, 120))
def test_traffic_that_pauses_is_not_silent_within_its_pauses(pauses: list[int], more: int):
    """Bursts with pauses of up to two hours: no silence is called as long as one of them lasts."""
    minute, counts = 0, {}
    for pause in [*pauses, *pauses]:
        counts[minute] = 50
        minute += pause
    last = max(counts)
    assert find_traffic_gap(counts, last + min(more, max(pauses)), 0) is None


@pytest.mark.parametrize(
    ("total", "free", "was", "full"),
    [
        (100, 6, False, False),
        (100, 4, False, True),
        (100, 5.5, True, True),
        (100, 7, True, False),
        (4000, 30, False, False),
        (4000, 19, False, True),
        (4, 0.6, False, False),
        (4, 0.4, False, True),
    ],
)
def test_a_disk_is_nearly_full_by_share_and_by_size(total: float, free: float, was: bool, full: bool):
    """Below 5 %, of large disks below 20 GB and of small ones below 0.5 GB; well again with a fifth more."""
    assert is_nearly_full(int(total * 1e9), int(free * 1e9), was) is full


def test_a_problem_is_one_incident_until_it_is_over():
    """It opens once, keeps its id while its sentence changes, resolves by itself, and opens anew the next time."""
    silent = ServerProblem("no traffic", "No traces come in", "for 11 minutes")
    [first] = advance_problems([], [silent], 60.0)
    [second] = advance_problems([first], [silent._replace(sentence="for 16 minutes")], 120.0)
    assert (second.id, second.sentence, second.opened) == (first.id, "for 16 minutes", 60.0)
    [over] = advance_problems([second], [], 180.0)
    assert (over.state, over.resolved) == ("resolved", 180.0)
    _, again = advance_problems([over], [silent], 240.0)
    assert again.id != first.id


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerState]:
    """A server that has one trace, a worker that is not started, and plenty of disk."""
    state = create_app(ServerSettings(store=tmp_path / "s", workers=1, judge="lexical")).state.server
    state.store.append_traces([Trace(id="1", query="When?")]).result()
    yield state
    state.store.close()


def kinds(problems: list[ServerProblem]) -> set[str]:
    return {problem.kind for problem in problems if problem.kind != "disk"}


def test_a_second_weekend_without_traffic_is_like_the_first(tmp_path: Path):
    """Office hours: all of a Saturday and Sunday is compared with a week before, not with the Friday; Monday is not."""
    moment = 0.0
    state = create_app(ServerSettings(store=tmp_path / "s", workers=0), lambda: moment).state.server
    dog = Watchdog(state)
    state.store.add_counts([EventCount("taken", minute, n) for minute, n in OFFICE.items()]).result()
    for minute in range(11 * DAY + 19 * 60, 14 * DAY + 8 * 60, 180):
        moment = 60.0 * minute
        assert kinds(dog.find_problems([], frozenset())) == set()
    moment = 60.0 * (14 * DAY + 9 * 60)
    assert kinds(dog.find_problems([], frozenset())) == {"no traffic"}
    [silent] = advance_problems([], dog.find_problems([], frozenset()), state.now())
    assert (silent.opened, silent.onset < silent.opened) == (state.now(), True)
    state.store.close()


def test_a_backlog_and_dead_scorers_are_two_things(server: ServerState, monkeypatch: pytest.MonkeyPatch):
    """An old trace that waits is a backlog; where nothing was stored meanwhile either, scoring has stopped."""
    dog = Watchdog(server)
    assert kinds(dog.find_problems([], frozenset())) == set()
    monkeypatch.setattr(watchdog, "BACKLOG_SECONDS", (0.01, 0.001))
    time.sleep(0.05)
    assert kinds(dog.find_problems([], frozenset())) == {"backlog"}
    monkeypatch.setattr(watchdog, "STALLED_SECONDS", 0.01)
    assert kinds(dog.find_problems([], frozenset())) == {"scorer"}


def test_a_failing_receiver_is_a_problem_and_its_secret_stays_one(server: ServerState):
    """It names the receiver, why it fails, and how many notices it lacks."""
    fault = ReceiverFault(receiver="the webhook at hooks.example", error="it answered 500", since=0.0, unsent=3)
    [problem] = [p for p in Watchdog(server).find_problems([fault], frozenset()) if p.kind == "receiver"]
    assert "hooks.example" in problem.title
    assert "3 notices" in problem.sentence
    assert "500" in problem.sentence


@pytest.mark.long
def test_silence_opens_an_incident_and_traffic_resolves_it(tmp_path: Path):
    """Through the scheduler: half an hour without a trace is told once, and its end once."""
    traffic = LiveTraffic(tmp_path / "s", ["a"])
    traffic.run(70, round_minutes=5)
    traffic.wait(30)
    assert [incident.kind for incident in traffic.open] == ["no traffic"]
    traffic.run(10, round_minutes=5)
    assert traffic.kinds == ["opened", "resolved"]
    assert traffic.open == []
    traffic.close()
