"""Traffic that looks like a fault and is none: nothing is said of a layer that is not true."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")

from live_traffic import BEGIN, RETRIEVAL, LiveTraffic
from ragfault.apps.watch.server.alerts.scheduler import DETECTOR_SETTING, decode_state, watch_key
from ragfault.apps.watch.server.storage.opening import open_store
from ragfault.apps.watch.server.storage.records import TraceSelection
from ragfault.apps.watch.server.storage.run_transfer import export_run, import_run

pytestmark = pytest.mark.long
REPEATED = {"query": "How are you?", **RETRIEVAL}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> LiveTraffic:
    """Two routes that were well for 80 minutes, after a reference of an hour, in a store that is closed."""
    healthy = LiveTraffic(tmp_path_factory.mktemp("healthy") / "s", ("a", "b"))
    healthy.run(80)
    assert healthy.notices == []
    healthy.close()
    return healthy


@pytest.fixture
def traffic(healthy: LiveTraffic, tmp_path: Path) -> Iterator[LiveTraffic]:
    """Return the healthy traffic, which goes on in a store of the test."""
    own = healthy.go_on_in(tmp_path / "s")
    yield own
    own.close()


def say(traffic: LiveTraffic) -> list[str]:
    """Return the sentence of each incident as it is told last."""
    return list({notice.incident.id: notice.incident.sentence for notice in traffic.notices}.values())


def test_another_judge_starts_another_reference(traffic: LiveTraffic):
    """Its lower scores are no drop, a mark says since when it scores, and what drops after its reference is a fault."""
    traffic.judge = "made/2"
    strict = {"context_relevance": 0.7, "groundedness": 0.72}
    traffic.run(80, dict.fromkeys(("a", "b"), strict))
    assert traffic.notices == []
    [mark] = traffic.server.store.read_marks()
    assert mark.text == "scores are of another judge from now on: made/2"
    traffic.run(60, {"a": strict | RETRIEVAL, "b": strict})
    assert [notice.incident.routes for notice in traffic.notices] == [("a",)]
    assert say(traffic)[0].startswith("Retrieval broke")


def test_an_imported_run_of_another_judge_is_no_reference(traffic: LiveTraffic, tmp_path: Path):
    """Lower scores than those of a run of another judge that was imported are no drop, and a mark says why."""
    run = export_run(traffic.server.store, TraceSelection(), tmp_path / "run")
    with closing(open_store(tmp_path / "t")) as store:
        assert import_run(store, run).added == run.manifest.traces
    after = LiveTraffic(tmp_path / "t", ("a", "b"))
    after.judge, after.minute, after.moment = "made/2", traffic.minute, traffic.moment
    strict = {"context_relevance": 0.7, "groundedness": 0.72}
    after.run(80, dict.fromkeys(("a", "b"), strict))
    assert after.notices == []
    [mark] = after.server.store.read_marks()
    assert mark.text == "a run of another judge was imported: alerts compare nothing with what was scored before"
    after.close()


def test_an_imported_run_of_the_same_judge_is_a_reference(traffic: LiveTraffic, tmp_path: Path):
    """What a run of the judge that scores shows of the time before is compared with, and no mark says otherwise."""
    run = export_run(traffic.server.store, TraceSelection(), tmp_path / "run")
    with closing(open_store(tmp_path / "t")) as store:
        import_run(store, run)
    after = LiveTraffic(tmp_path / "t", ("a", "b"))
    after.minute, after.moment = traffic.minute, traffic.moment
    after.run(60, {"a": RETRIEVAL})
    assert [notice.incident.routes for notice in after.notices] == [("a",)]
    assert after.server.store.read_marks() == ()
    after.close()


def test_a_query_that_is_asked_over_and_over_breaks_no_layer(traffic: LiveTraffic):
    """No layer is named where the traces of one query may be all of a fall; one over all queries has a layer."""
    traffic.run(120, {"a": REPEATED, "b": RETRIEVAL})
    assert {notice.incident.routes: notice.incident.branch for notice in traffic.notices} == {
        ("a",): None,
        ("b",): "1 retrieval",
    }
    [text] = [text for text in say(traffic) if "Retrieval broke" not in text]
    assert text.endswith("one query is 100 % of the traces since the onset, 0 % before, which may be all of it.")


def test_what_was_low_from_the_first_trace_has_not_broken(traffic: LiveTraffic):
    """A new route that starts far below the critical limits is told, and that it was better before is not shown."""
    traffic.routes = ("a", "b", "new")
    traffic.run(120, {"new": dict.fromkeys(("context_relevance", "groundedness", "answer_relevance"), 0.3)})
    assert {notice.incident.routes for notice in traffic.notices} == {("new",)}
    assert all(text.endswith("that it was better before is not shown.") for text in say(traffic))


def test_more_failures_among_fewer_traces_are_no_more(tmp_path: Path):
    """Where failing traces are kept and nine in ten of the others no longer sent, the sentence says so."""
    traffic = LiveTraffic(tmp_path / "s", ("a",))
    traffic.run(180, {"a": {"error": 0.06}}, per_minute=10)
    traffic.notices.clear()
    traffic.run(180, {"a": {"error": 0.5}}, per_minute=1)
    [text] = say(traffic)
    assert text.startswith("More traces end in an error on a:")
    assert text.endswith("): fewer others come in.")
    traffic.close()


def test_a_route_that_ends_while_it_is_broken_has_no_incident_for_ever(traffic: LiveTraffic):
    """Two days after its last trace its incident is closed, and says that nobody knows whether it is well again."""
    traffic.run(60, {"b": RETRIEVAL})
    traffic.routes = ("a",)
    for _ in range(0, 3 * 24, 3):
        traffic.fill(180, per_minute=1)
        traffic.notices += traffic.scheduler.run_round()
    assert traffic.open == []
    notices = [notice for notice in traffic.notices if notice.incident.kind == "quality"]
    assert [notice.kind for notice in notices] == ["opened", "resolved"]
    assert notices[-1].incident.sentence.endswith(
        "Whether it is well again is not known: no values are left to tell by."
    )


@pytest.mark.parametrize("days", [-1, 1])
def test_a_client_whose_clock_is_off_by_a_day_opens_nothing(traffic: LiveTraffic, days: int):
    """Nor does a backfill: of traces of yesterday or tomorrow, bad ones too, no drop of now is told."""
    traffic.run(30, round_minutes=5)
    for _ in range(6):
        traffic.fill(5)
        now = traffic.minute
        traffic.minute += 1440 * days
        traffic.fill(5, dict.fromkeys(("a", "b"), RETRIEVAL | {"error": 0.5}))
        traffic.minute = now
        traffic.moment = BEGIN + 60 * now
        traffic.notices += traffic.scheduler.run_round()
    assert traffic.notices == []


def test_an_open_incident_ends_with_the_judge_that_saw_it(traffic: LiveTraffic):
    """By another judge the same fault cannot be told from its scores: the incident is closed, and says so."""
    traffic.run(60, {"b": RETRIEVAL}, round_minutes=5)
    assert traffic.kinds == ["opened"]
    traffic.judge = "made/2"
    traffic.run(30, {"b": RETRIEVAL}, round_minutes=5)
    assert "Whether it is well again is not known: no values are left to tell by." in say(traffic)[0]


def test_another_mix_of_routes_is_no_drop(traffic: LiveTraffic):
    """A release that sends most traffic to a route that was always worse opens nothing."""
    traffic.run(240, {"b": {"groundedness": 0.75}})
    traffic.notices.clear()
    traffic.routes = ("a", "b", "b", "b", "b")
    traffic.run(120, {"b": {"groundedness": 0.75}})
    assert not any(notice.kind == "opened" for notice in traffic.notices)


def test_a_weekend_like_the_one_before_is_no_news(tmp_path: Path):
    """After a reference of a day, a week is known once it is over: the next weekend, as low and slow, opens nothing."""
    traffic = LiveTraffic(tmp_path / "s", ["a"], reference=1440)
    day, minute = 1440, int(BEGIN) // 60
    traffic.minute += (4 - minute // day) % 7 * day - minute % day  # to a Monday, as 5 January 1970
    low = {"a": {"context_relevance": 0.75, "groundedness": 0.75, "ms": 1600.0}}
    traffic.fill(day + 60, per_minute=1)
    traffic.scheduler.run_round()
    for hours, levels in ((95, {}), (48, low), (120, {})):
        traffic.fill(60 * hours, levels, per_minute=1)
    for _ in range(24):
        traffic.notices += traffic.scheduler.run_round()
        traffic.fill(60, low, per_minute=1)
    assert traffic.notices == []
    traffic.close()


def test_a_reference_of_a_week_leaves_known_faults_out(tmp_path: Path):
    """What an incident covered within the first week is not usual from then on: its mean is that of the other days."""
    traffic = LiveTraffic(tmp_path / "s", ["a"], reference=1440)
    day, minute = 1440, int(BEGIN) // 60
    traffic.minute += (4 - minute // day) % 7 * day - minute % day
    traffic.fill(2 * day, per_minute=1)
    traffic.scheduler.run_round()
    for faults in (RETRIEVAL, RETRIEVAL, RETRIEVAL, {}, {}, {}):
        traffic.fill(120, {"a": faults}, per_minute=1)
        traffic.notices += traffic.scheduler.run_round()
    assert traffic.kinds == ["opened", "resolved"]
    traffic.fill(6 * day, per_minute=1)
    for _ in range(3):
        traffic.scheduler.run_round()
    text = traffic.server.store.read_setting(DETECTOR_SETTING)
    watch = decode_state(text).watches[watch_key("context_relevance", "a")]
    assert watch.test is not None
    assert watch.reference_minutes == 7 * day
    assert watch.test.period.n < 7 * day - 360
    assert watch.test.period.mean > 0.83  # with the six hours of the fault it is 0.82
    traffic.close()


@pytest.mark.parametrize("minutes", [5, 60])
def test_a_fault_in_traces_that_come_late_opens_an_incident(tmp_path: Path, minutes: int):
    """All traces come an hour late: a fault is told, with how late they come; five minutes before silence are not."""
    traffic = LiveTraffic(tmp_path / "s", ("a", "b"), late=60)
    traffic.run(80, round_minutes=5)
    traffic.run(minutes, {"a": RETRIEVAL}, round_minutes=5)
    if minutes == 5:
        traffic.wait(120)
        assert {notice.incident.kind for notice in traffic.notices} == {"no traffic"}
    else:
        [incident] = traffic.open
        assert incident.routes == ("a",)
        assert incident.sentence.startswith("Retrieval broke")
        assert incident.sentence.endswith(
            "The last traces came 60 minutes after their time: of what is later nothing is known yet."
        )
        assert abs(incident.onset - BEGIN - 80 * 60) <= 600
    traffic.close()
