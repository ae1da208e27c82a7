"""Incidents of live traffic: one for one cause, two for two, told once, over when it is well again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")

from live_traffic import BEGIN, GENERATION, RETRIEVAL, LiveTraffic
from ragfault.apps.watch.monitoring.alert_rules import DROP_RULE
from ragfault.apps.watch.monitoring.alerts import Alert
from ragfault.apps.watch.monitoring.change_detection import DropDetection, SeriesWatch
from ragfault.apps.watch.monitoring.windows import build_series
from ragfault.apps.watch.server.alerts.incidents import IncidentBuilder
from ragfault.apps.watch.server.api.traffic_views import load_incidents

ROUTES = ("a", "b", "c", "d")

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> LiveTraffic:
    """Four routes that were well for 80 minutes, in a store that is closed."""
    healthy = LiveTraffic(tmp_path_factory.mktemp("healthy") / "s", ROUTES)
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


def test_a_fault_on_one_route_is_one_incident_and_one_notice(traffic: LiveTraffic):
    """Whatever many alerts fire of it: it names route, layer, onset, mark, size, share and traces of the fault."""
    traffic.mark("release 7")
    traffic.run(120, {"b": RETRIEVAL})
    [incident] = traffic.open
    assert traffic.kinds == ["opened"]
    assert len(incident.alerts) >= 5
    assert (incident.kind, incident.state, incident.layer, incident.routes) == ("quality", "open", "retrieval", ("b",))
    assert incident.sentence.startswith("Retrieval broke (the wrong chunks are retrieved): context_relevance")
    assert abs(incident.onset - BEGIN - 80 * 60) <= 300
    assert incident.earliest <= incident.onset <= incident.latest
    assert [mark.text for mark in incident.marks] == ["release 7"]
    assert incident.size.metric.startswith("context_relevance")
    assert incident.size.low <= -0.45 <= incident.size.high
    assert incident.share == pytest.approx(0.25, abs=0.01)
    assert incident.suspects
    assert incident.remedies
    assert incident.traces
    assert all(trace.startswith("b-") and int(trace.split("-")[1]) >= 80 for trace in incident.traces)
    assert [(cohort.cohort, cohort.state) for cohort in sorted(incident.cohorts, key=lambda cohort: cohort.cohort)] == [
        ("metadata.tenant=acme", "affected"),
        ("metadata.tenant=b", "affected"),
        ("release=6", "unaffected"),
        ("release=7", "affected"),
    ]


def test_a_fault_on_all_routes_is_one_incident(traffic: LiveTraffic):
    """No route is spared: one cause, told once or told to grow, and never as four."""
    traffic.run(60, dict.fromkeys(ROUTES, RETRIEVAL))
    [incident] = traffic.open
    assert set(incident.routes) == set(ROUTES)
    assert traffic.kinds.count("opened") == 1
    assert set(traffic.kinds) <= {"opened", "grew"}


@pytest.mark.parametrize(
    ("faults", "layers"),
    [
        ({"a": RETRIEVAL, "c": GENERATION}, {"a": "retrieval", "c": "generation"}),
        ({"a": RETRIEVAL, "c": RETRIEVAL}, {"a": "retrieval", "c": "retrieval"}),
    ],
    ids=["different layers", "the same layer"],
)
def test_faults_at_one_time_on_two_of_four_routes_stay_apart(traffic: LiveTraffic, faults, layers):
    """Nothing says that they have one cause: two incidents, each with its route and layer."""
    traffic.run(90, faults)
    assert {incident.routes: incident.layer for incident in traffic.open} == {
        (route,): layer for route, layer in layers.items()
    }
    assert traffic.kinds == ["opened", "opened"]


def test_a_mark_before_both_is_evidence_of_one_cause(traffic: LiveTraffic):
    """The same fault on two routes right after a release for all routes is one incident."""
    traffic.mark("release 8")
    traffic.run(60, {"a": RETRIEVAL, "c": RETRIEVAL})
    [incident] = traffic.open
    assert set(incident.routes) == {"a", "c"}


def test_a_mark_of_one_route_is_no_evidence_for_another(traffic: LiveTraffic):
    """A release of one route does not make the fault of another its own."""
    traffic.mark("release 8", route="a")
    traffic.run(60, {"a": RETRIEVAL, "c": RETRIEVAL})
    assert sorted(incident.routes for incident in traffic.open) == [("a",), ("c",)]
    assert {len(incident.marks) for incident in traffic.open} == {0, 1}


def test_a_second_fault_later_is_a_second_incident(traffic: LiveTraffic):
    """The same layer an hour later on another route, and generation on the same route, are incidents of their own."""
    traffic.run(60, {"a": GENERATION})
    traffic.run(90, {"a": GENERATION | {"context_relevance": 0.4}, "b": GENERATION})
    causes = {(incident.routes, incident.layer) for incident in traffic.open}
    assert causes == {(("a",), "generation"), (("b",), "generation"), (("a",), "retrieval")}
    assert traffic.kinds == ["opened"] * 3


def test_healthy_traffic_has_no_incident(traffic: LiveTraffic):
    """Two more hours as before: nothing opens."""
    traffic.run(120)
    assert traffic.notices == []
    assert traffic.open == []


def test_an_incident_resolves_when_it_is_well_again(traffic: LiveTraffic):
    """Told once that it is over, it goes to the past ones, with the time of its end and how long that took."""
    traffic.run(40, {"b": RETRIEVAL})
    assert traffic.kinds == ["opened"]
    traffic.run(240)
    assert traffic.kinds == ["opened", "resolved"]
    assert traffic.open == []
    [past] = traffic.server.store.read_past_incidents()
    assert (past.id, past.state) == (traffic.notices[0].incident.id, "resolved")
    assert BEGIN + 120 * 60 < past.resolved <= traffic.moment
    assert traffic.server.load_incidents() == ()
    times = load_incidents(traffic.server).times
    assert times is not None
    assert (times.incidents, times.until_opened) == (1, past.opened - past.onset)
    assert times.until_opened < times.until_resolved == past.resolved - past.onset


def test_silence_keeps_an_incident_untold(traffic: LiveTraffic):
    """While its alerts are silenced it is open and not told; when the silence ends, it is."""
    from msgspec import to_builtins

    from ragfault.apps.watch.monitoring.alerts import add_silence
    from ragfault.apps.watch.server.state import ALERTS_SETTING

    state = add_silence(traffic.server.load_alert_state(), traffic.moment + 3600, route="b")
    traffic.server.store.save_setting(ALERTS_SETTING, to_builtins(state)).result()
    traffic.run(55, {"b": RETRIEVAL})
    assert len(traffic.open) == 1
    assert traffic.kinds == []
    traffic.run(10, {"b": RETRIEVAL})
    assert traffic.kinds == ["opened"]


def test_a_restart_neither_repeats_nor_forgets(traffic: LiveTraffic, tmp_path: Path):
    """A server that is started anew on the store has the same incident open, and tells nobody again."""
    traffic.run(60, {"b": RETRIEVAL})
    before = traffic.open
    traffic.close()
    again = LiveTraffic(tmp_path / "s", ROUTES)
    again.moment, again.minute = traffic.moment, traffic.minute
    assert again.open == before
    again.run(10, {"b": RETRIEVAL})
    assert [incident.id for incident in again.open] == [incident.id for incident in before]
    assert again.notices == []
    again.close()


def test_nothing_fires_after_the_last_trace(traffic: LiveTraffic):
    """A fault and, before any alert fires, silence: no drop is told of it, however long one waits; the silence is."""
    traffic.run(5, {"b": RETRIEVAL})
    traffic.wait(120)
    assert [notice.incident.kind for notice in traffic.notices if notice.kind == "opened"] == ["no traffic"]


def test_a_route_that_is_low_from_its_first_trace_opens_nothing(tmp_path: Path):
    """What was always so did not break: the page of the metric shows it, and nobody is told."""
    healthy = LiveTraffic(tmp_path / "s", ("a",))
    healthy.run(150, {"a": {"groundedness": 0.6, "answer_relevance": 0.5}})
    assert healthy.open == []
    healthy.close()


def test_more_errors_everywhere_are_one_incident(traffic: LiveTraffic):
    """Two of five traces of all routes fail: they have no other scores, and the errors are reported once."""
    traffic.run(60, {route: {"error": 0.4} for route in ROUTES})
    [incident] = traffic.open
    assert (incident.title, incident.layer) == ("More traces end in an error", "operation")
    pattern = (
        r"More traces end in an error on [abcd], the worst of 4 routes: [345]\d % since the onset, \d % .* before\."
    )
    assert re.fullmatch(pattern, incident.sentence)
    assert abs(incident.onset - BEGIN - 80 * 60) <= 900
    assert set(incident.routes) == set(ROUTES)
    assert incident.traces
    assert traffic.kinds.count("opened") == 1


@pytest.mark.parametrize("fault", [{"error": 0.8}, RETRIEVAL])
def test_a_fault_of_one_tenant_names_the_tenant(traffic: LiveTraffic, fault: dict[str, float]):
    """Its traces break on all routes, those of the other tenant on none: one incident, with its figures and traces."""
    traffic.run(90, {"acme": fault})
    [incident] = traffic.open
    assert incident.routes[0] == incident.size.route == "cohort metadata.tenant=acme"
    assert abs(incident.size.difference) > 0.3
    assert incident.branch == (None if "error" in fault else "1 retrieval")
    assert {cohort.cohort: cohort.state for cohort in incident.cohorts if "tenant" in cohort.cohort} == {
        "metadata.tenant=acme": "affected",
        "metadata.tenant=b": "unaffected",
    }
    assert incident.traces
    assert all(trace.endswith("-0") for trace in incident.traces)


def test_a_fault_of_a_route_names_no_tenant(traffic: LiveTraffic):
    """All tenants are affected alike there: no cohort changed more than the route."""
    traffic.run(90, {"b": {"error": 0.6}})
    [incident] = traffic.open
    assert incident.routes == ("b",)


def test_open_incidents_say_at_once_why_and_what_to_do(traffic: LiveTraffic):
    """One is unfolded, on the overview too, and so is a second one. The traces are those of its route; notices link."""
    from fastapi.testclient import TestClient

    def read_page(path: str = "/incidents") -> str:
        return TestClient(traffic.app).get(path, headers={"host": "localhost"}).text

    traffic.run(60, {"b": {"error": 0.4}})
    page = read_page()
    assert "<details open><summary>Why, and what to do" in page
    assert "<details open><summary>Why, and what to do" in read_page("/")
    assert "Read the errors of these traces" in page
    assert "traces on this route, 25 % of those scored since" in page
    traffic.run(60, {"b": {"error": 0.4}, "c": RETRIEVAL})
    assert len(traffic.open) == 2
    page = read_page()
    assert page.count("<details open>") == 2
    assert read_page("/").count("<details open>") == 1  # the overview goes on to the layers
    for notice in traffic.notices:
        assert notice.link == f"http://127.0.0.1:4318/incidents#{notice.incident.id}"
        assert f'id="{notice.incident.id}"' in page


@pytest.fixture(scope="module")
def excuses(healthy: LiveTraffic, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveTraffic]:
    """Return traffic of which a route had failing queries for 90 minutes, whose answers are excuses."""
    own = healthy.go_on_in(tmp_path_factory.mktemp("excuses") / "s")
    own.run(90, {"b": {"error": 0.4, "groundedness": 0.6}})
    yield own
    own.close()


def test_errors_and_what_they_do_to_answers_are_one_incident(excuses: LiveTraffic):
    """Failing queries whose answers are excuses: groundedness falls by no more than they explain, and is not blamed."""
    [incident] = excuses.open
    assert (incident.title, incident.layer, incident.routes) == ("More traces end in an error", "operation", ("b",))
    assert {metric for _, metric, _ in incident.alerts} >= {"error", "groundedness"}


def test_an_incident_keeps_what_it_says_while_only_what_followed_still_fires(excuses: LiveTraffic):
    """Once the alerts of errors are over and that of groundedness is not, it is still one of errors."""
    [incident] = excuses.open
    series = excuses.scheduler._load_series(int(excuses.moment // 60))
    builder = IncidentBuilder(excuses.server.store, series, excuses.server.measures, (), excuses.moment)
    followed = [alert for alert in excuses.server.load_alert_state().firing if alert.metric == "groundedness"]
    [later] = builder.group_alerts([incident], followed)
    assert later.resolved is None
    assert (later.title, later.sentence) == (incident.title, incident.sentence)


def test_a_layer_is_named_beside_errors_that_are_too_few_to_explain_it(traffic: LiveTraffic):
    """Groundedness falls by .45 and one of five queries fails: generation is named, with the errors."""
    traffic.run(120, {"b": {"error": 0.2} | GENERATION})
    [incident] = traffic.open
    assert (incident.layer, incident.routes) == ("generation", ("b",))
    assert incident.sentence.startswith("Generation broke")
    assert "More traces end in an error on b: " in incident.sentence


def test_twice_the_latency_is_an_incident_and_a_tenth_is_none(traffic: LiveTraffic):
    """It says by how much, as geometric means, and is over when traces are as fast as they were."""
    traffic.run(90, {"b": {"ms": 1600.0}, "c": {"ms": 880.0}})
    [incident] = traffic.open
    assert (incident.title, incident.layer, incident.routes) == ("Traces take longer", "operation", ("b",))
    assert incident.sentence.startswith("Traces take longer on b: 1,")
    traffic.run(180, {"c": {"ms": 880.0}})
    assert traffic.open == []
    assert traffic.kinds == ["opened", "resolved"]


@pytest.mark.parametrize("route", ["a", None])
def test_an_incident_that_opens_late_is_compared_with_all_of_the_day_before(tmp_path: Path, route: str | None):
    """A weekend is lower from its first minute and called after 40 hours: the Friday is no weekend, so no layer is."""
    traffic = LiveTraffic(tmp_path / "s", [route])
    day, minute = 1440, int(BEGIN) // 60
    traffic.minute += (1 - minute // day) % 7 * day - minute % day  # to a Friday, as 2 January 1970
    traffic.fill(day, per_minute=1)
    onset = minute + traffic.minute
    traffic.fill(40 * 60, {route: {"context_relevance": 0.77, "groundedness": 0.77}}, per_minute=1)
    until = minute + traffic.minute
    series = build_series(traffic.server.store.read_rollups(until - 2 * day, until, bins=False))
    called = DropDetection(detected_at=until - 9, onset=onset, earliest=onset, latest=onset, log_evidence=20.0)
    watch = SeriesWatch(metric="context_relevance", route=route, detection=called)
    alert = Alert(rule=DROP_RULE, metric=watch.metric, route=route, status="firing", since=60.0 * until)
    builder = IncidentBuilder(traffic.server.store, series, traffic.server.measures, [watch], 60.0 * until)
    [incident] = builder.group_alerts([], [alert])
    assert incident.branch is None
    assert "the day before the onset has no weekend (UTC)" in incident.sentence
    traffic.close()


def test_a_resolved_incident_keeps_the_figures_of_its_worst_time(traffic: LiveTraffic):
    """When the fault has passed, size, share and cohorts are still those of the time when it was worst."""
    traffic.run(60, {"b": RETRIEVAL})
    [worst] = traffic.open
    traffic.run(240)
    [over] = [incident for incident in load_incidents(traffic.server).past if incident.id == worst.id]
    assert over.resolved is not None
    assert abs(over.size.difference) > 0.8 * abs(worst.size.difference)
    assert over.size.high < 0
    affected = {cohort.cohort for cohort in worst.cohorts if cohort.state == "affected"}
    assert affected <= {cohort.cohort for cohort in over.cohorts if cohort.state == "affected"}
