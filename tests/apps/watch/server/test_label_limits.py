"""Laws of the bounds on what traffic names: routes are templates, and no number of names makes pages large."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragfault.apps.watch.server.ingest.label_limits import MAX_COHORT_VALUES, MAX_ROUTES, LabelLimiter, template_route
from ragfault.model.records import Trace
from server_process import run_server


@pytest.mark.parametrize(
    ("name", "route"),
    [
        ("GET /user/17/ask", "GET /user/{id}/ask"),
        ("/v2/docs?page=3", "/v2/docs"),
        ("POST /chat/550e8400-e29b-41d4-a716-446655440000/turn", "POST /chat/{id}/turn"),
        ("/u/me@example.org/ask", "/u/{id}/ask"),
        ("/session/sess_8fJk29dLmQx71/x", "/session/{id}/x"),
        ("ask user 1834021", "ask user {id}"),
        ("cohort analysis", "route cohort analysis"),  # else it were taken for a followed cohort, whose tests are fewer
        *((name, name) for name in ("faq search", "gpt-4 route", "v2", "GET /user/{id}", "Why? Because", "a.b_c-3")),
        ("x" * 500, "x" * 120),
        *(
            (text * 900_000, text * (120 // len(text))) for text in ("<", "&", "a-", "?")
        ),  # the square would take an hour
        ("/a" * 450_000, "/a" * 60),
        ("/docs?page=" + "9" * 900_000, "/docs"),
    ],
)
def test_a_route_is_a_template(name: str, route: str):
    """Ids, addresses and query strings are no part of a route; names and versions are; a template stays one."""
    assert template_route(name) == route
    assert template_route(route) == route


def test_routes_and_cohorts_beyond_the_bound_are_counted_together():
    """The first values keep their names, also those of an earlier start; every later one is "other", and counted."""
    counts: dict[str, int] = {}

    def count(name: str, n: int) -> None:
        counts[name] = counts.get(name, 0) + n

    limiter = LabelLimiter(lambda: ["old", ""], count)
    routes = [limiter.limit_route(Trace(id="1", query="q", route=f"route {at}")) for at in range(MAX_ROUTES + 9)]
    assert routes[0].route == "route 0"
    assert routes[0].metadata == {}
    assert len({trace.route for trace in routes} | {"old"}) == MAX_ROUTES + 1
    assert (routes[-1].route, routes[-1].metadata) == ("other", {"sent_route": f"route {MAX_ROUTES + 8}"})
    assert limiter.limit_route(Trace(id="1", query="q", route="old")).route == "old"
    assert counts == {"other_route": 10}
    fields = ("model", "release")
    releases = [
        limiter.limit_cohorts(Trace(id="1", query="q", model="m", metadata={"release": at}), fields)
        for at in range(MAX_COHORT_VALUES + 5)
    ]
    assert [trace.model for trace in releases] == ["m"] * len(releases)
    assert sum(trace.metadata["release"] == "other" for trace in releases) == 5
    assert counts["other_cohort"] == 5


def test_a_busy_name_takes_the_place_of_a_quiet_one():
    """A route that comes after a hundred others has figures of its own once it is busy; others keep theirs."""
    limiter = LabelLimiter(list, lambda *_: None)

    def send(route: str, n: int) -> str | None:
        return [limiter.limit_route(Trace(id="1", query="q", route=route)).route for _ in range(n)][-1]

    assert send("steady", 500) == "steady"
    for at in range(MAX_ROUTES - 1):
        send(f"once {chr(97 + at // 26)}{chr(97 + at % 26)}", 1)
    assert send("late", 1) == "other"
    assert send("late", 30) == "late"
    for at in range(3000):
        send(f"flood {chr(97 + at // 676 % 26)}{chr(97 + at // 26 % 26)}{chr(97 + at % 26)}", 1)
    assert (send("steady", 1), send("late", 1)) == ("steady", "late")
    assert len(limiter._routes._counts) == MAX_ROUTES
    assert len(limiter._routes._others) <= 10 * MAX_ROUTES + 1


@pytest.mark.long
def test_untemplated_routes_keep_pages_small(tmp_path: Path):
    """Of 1,500 traces with 1,500 routes and releases, the overview, its page and the metrics stay below 1 MB."""
    traces = [
        Trace(id=str(at), query="When?", answer="At ten.", route=f"name {at}", metadata={"release": f"r{at}"})
        for at in range(1500)
    ]
    with run_server(tmp_path / "s", "--metrics", "blank_answer") as server:
        for first in range(0, 1500, 500):
            assert server.send(traces[first : first + 500]).status == 200
        server.settled(1500)
        overview = server.ask("/overview.json")
        assert len(overview.json["routes"]) == MAX_ROUTES + 1
        counted = server.ask("/metrics").body.decode()
        assert f'outcome="other_route"}} {1500 - MAX_ROUTES}\n' in counted
        assert f'outcome="other_cohort"}} {1500 - MAX_COHORT_VALUES}\n' in counted
        for path in (
            "/overview.json",
            "/metrics",
            "/",
            "/metrics/blank_answer.json",
            "/insights",
            "/alerts",
            "/traces",
        ):
            answer = server.ask(path)
            assert answer.status == 200, path
            assert len(answer.body) < 1_000_000, (path, len(answer.body))
