"""Insights and drift: what live traffic goes with, and how far it has moved from the set it was evaluated on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from installed import skip_without

skip_without("duckdb", reason="the dashboard needs the extra `server`")
skip_without("fastapi", reason="the dashboard needs the extra `server`")
skip_without("jinja2", reason="the dashboard needs the extra `server`")

from dashboard_server import BEGAN, DashboardServer
from ragfault.apps.watch.server.api.detail_views import parse_range
from ragfault.apps.watch.server.api.insight_views import load_drift, load_insights, load_versions
from ragfault.apps.watch.server.api.traffic_views import LONG_WINDOW, TRIAD_METRICS, MetricTrend
from ragfault.apps.watch.server.dashboard.page_renderer import create_environment
from ragfault.apps.watch.server.scoring.ppi_estimates import PpiEstimate
from ragfault.apps.watch.server.state import ServerState
from ragfault.apps.watch.server.storage.records import TraceSelection
from ragfault.apps.watch.server.storage.run_transfer import export_run
from ragfault.http.hosting import TimeRange
from ragfault.labels.reading.lines import HumanVerdicts, LabelLine
from ragfault.model.errors import UnknownName, UsageError

DAY = 24 * 60


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardServer]:
    """A server with two hours of traffic, of which the second is worse, and a run of the first."""
    server = DashboardServer(tmp_path_factory.mktemp("insights") / "s")
    server.fill()
    hour = TraceSelection(since=BEGAN.timestamp(), until=BEGAN.timestamp() + 3600)
    export_run(server.store, hour, server.app.state.server.settings.runs_folder / "before")
    yield server
    server.app.state.server.close()


def up_to_now(server: ServerState, window: int = DAY) -> TimeRange:
    """Return a range of so many minutes up to now."""
    return parse_range(server, {"window": str(window)})


@pytest.mark.long
def test_the_triad_is_complete(watched: DashboardServer):
    """Each part of the triad stands on each route, and its points hold every value of the window once."""
    view = load_insights(watched.app.state.server, None, up_to_now(watched.app.state.server))
    assert {(trend.metric, trend.route) for trend in view.triad if trend.route == "website"} == {
        (metric, "website") for metric in TRIAD_METRICS
    }
    for metric in TRIAD_METRICS:
        n = sum(point.n for trend in view.triad if trend.metric == metric for point in trend.points)
        assert n == sum(trend.n for trend in view.distributions if trend.metric == metric)
    part = load_insights(watched.app.state.server, "website", up_to_now(watched.app.state.server))
    assert {trend.route for trend in part.triad} == {"website"}
    assert part.correlations[0].n < view.correlations[0].n


def test_outliers_lie_beyond_the_fence(watched: DashboardServer):
    """The traces that are named as outliers have values beyond the fence of their route, the worst first."""
    shapes = load_insights(watched.app.state.server, None, up_to_now(watched.app.state.server))
    for shape in shapes.distributions:
        values = [worst.value for worst in shape.outliers]
        assert values == sorted(values)
        assert all(shape.fence is not None and value < shape.fence for value in values)


def test_cohorts_are_those_of_the_fields(watched: DashboardServer):
    """Cohorts are of the fields that were named, never of the places of chunks: these are insights."""
    cohorts = load_insights(watched.app.state.server, None, up_to_now(watched.app.state.server))
    assert {(cohort.cohort or "").partition("=")[0] for cohort in cohorts.cohorts} == {"model", "version"}
    assert {(cohort.measure, cohort.by) for cohort in cohorts.insights} == {
        (measure, by) for measure in ("relevance", "use") for by in ("position", "chunks")
    }


def test_drift_is_seen_and_only_where_it_is(watched: DashboardServer):
    """The worse hour has drifted from the run of the decent one in relevance, and not in topics: it asks the same."""
    state = watched.app.state.server
    drift = load_drift(state, "before", "website", up_to_now(state, 60))
    moved = {score.metric: score for score in drift.drift.scores}
    assert moved["context_relevance"].adjusted < 0.05
    assert moved["context_relevance"].difference.high < 0
    assert drift.drift.topics is not None
    assert drift.drift.topics.p > 0.05
    assert drift.judges[0] == drift.judges[1]
    with pytest.raises(UnknownName, match="no run"):
        load_drift(state, "none", None, up_to_now(state, 60))
    with pytest.raises(UsageError, match="share no metric"):
        load_drift(state, "before", "nowhere", up_to_now(state, 60))


def test_a_ppi_estimate_has_its_interval():
    """What a better judge says of all traffic is shown with its interval; else, where asked, why there is none."""
    show = create_environment().get_template("macros.html").module.ppi  # type: ignore[attr-defined]
    row = MetricTrend(
        metric="m",
        layer="generation",
        better="higher",
        route=None,
        window=DAY,
        n=9,
        undefined=0,
        failed=0,
        mean=0.5,
        low=0.4,
        high=0.6,
        ppi=PpiEstimate(judge="j", checks=40, mean=0.45, low=0.4, high=0.5),
    )
    assert "0.450" in show(row)
    assert "[0.400, 0.500]" in show(row)
    assert "40 checks" in show(row)
    lost = MetricTrend(
        metric="m",
        layer="generation",
        better="higher",
        route=None,
        window=DAY,
        n=9,
        undefined=0,
        failed=0,
        mean=0.5,
        low=0.4,
        high=0.6,
        ppi=PpiEstimate(judge="j", reason="<b>no price"),
    )
    assert show(lost).strip() == ""
    assert "not corrected: &lt;b&gt;no price" in show(lost, True)


def test_versions_stand_side_by_side(watched: DashboardServer):
    """Each metric has the mean of each version over its own traces, and the difference of the last two."""
    server = watched.app.state.server
    view = load_versions(server, "model", up_to_now(server))
    assert view.field == "model"
    assert len(view.versions) == 2
    end = server.next_minute
    for at, version in enumerate(view.versions):
        for row in view.rows:
            rows = server.store.read_rollups(end - DAY, end, metric=row.metric, cohort=f"model={version}", grain=DAY)
            mean = row.means[at]
            assert (0 if mean is None else mean.n) == sum(part.n for part in rows)
            if mean is not None:
                assert mean.mean == pytest.approx(rows[0].sum / rows[0].n)
    both = [row for row in view.rows if row.difference is not None]
    assert both
    for row in both:
        first, second = (mean.mean for mean in row.means[-2:])
        assert row.difference.mean == pytest.approx(second - first)
    assert not load_versions(server, "nothing", up_to_now(server)).versions


def test_drift_is_of_the_chosen_time(watched: DashboardServer):
    """Up to now or between two times; values of other times do not count."""
    server = watched.app.state.server
    first, end = int(BEGAN.timestamp() // 60), server.next_minute
    parts = [
        load_drift(server, "before", None, TimeRange(60, first + 60, True)),
        load_drift(server, "before", None, TimeRange(end - first - 60, end, True)),
        load_drift(server, "before", None, up_to_now(server, end - first)),
    ]
    live = [{row.metric: row.difference.n for row in part.drift.scores} for part in parts]
    assert parts[0].until == first + 60
    evaluated = live[0]["groundedness"] + live[1]["groundedness"] - live[2]["groundedness"]  # counted in each
    assert 2 * evaluated == live[0]["groundedness"]  # the hour beside the run of it


def test_a_long_window_has_full_hours(watched: DashboardServer):
    """It contains every minute that was chosen; its links choose the same one."""
    server = watched.app.state.server
    for size in (LONG_WINDOW, 7 * DAY + 17):
        until = server.next_minute
        chosen = {"since": str(60 * (until - size)), "until": str(60 * until)}
        times = parse_range(server, chosen)
        assert (times.until % 60, times.window % 60) == (0, 0)
        assert until - size - 60 < times.until - times.window <= until - size
        assert times.until >= until
        assert parse_range(server, dict(pair.split("=") for pair in times.query.split("&"))) == times
    assert parse_range(server, {"window": str(7 * DAY)}).window == 7 * DAY
    assert parse_range(server, {}).until == server.next_minute


def test_labels_are_listed_in_pages(watched: DashboardServer):
    """Following `next` lists each label once, in the order in which they came."""
    store = watched.app.state.server.store
    labels = [LabelLine(trace=f"t{at % 3}", verdicts=HumanVerdicts(), by=str(at)) for at in range(7)]
    for label in labels:
        store.add_label(label).result()
    listed, page = [], store.list_labels(limit=3)
    while page.next is not None:
        listed += page.labels
        page = store.list_labels(page.next, limit=3)
    assert [*listed, *page.labels] == labels
    assert store.count_labels() == 7
    assert [label.by for label in store.read_labels("t0", limit=2)] == ["3", "6"]
