"""The page of the guard: its figures are those of the decisions on the traces, and of nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from installed import skip_without

skip_without("duckdb", reason="the dashboard needs the extra `server`")
skip_without("fastapi", reason="the dashboard needs the extra `server`")
skip_without("jinja2", reason="the dashboard needs the extra `server`")

from browser import COLOURS, Visit, list_violations, start_browser
from dashboard_server import BEGAN, Client, DashboardServer
from ragfault.apps.guard.decisions import attach_decisions
from ragfault.apps.guard.policy import parse_policy
from ragfault.apps.guard.runtime import Guard
from ragfault.apps.watch.server.storage.records import TraceSelection
from ragfault.labels.label import fingerprint_answer
from ragfault.labels.reading.lines import ClaimLabel, HumanVerdicts, LabelLine

HOUR = f"?since={BEGAN.timestamp()}&until={BEGAN.timestamp() + 7200}"

LONG_NAME = "names_of_projects_that_only_the_harbour_office_knows"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DashboardServer, str]]:
    """A server whose traces of the first hour were decided on by a guard, and one label of a held-back answer."""
    server = DashboardServer(tmp_path_factory.mktemp("guarded") / "s")
    server.fill()
    named = f"[rails.{LONG_NAME}]\nkind = 'pattern'\noptions = {{patterns = ['qqq']}}"
    policy = f"[rails.groundedness]\n[rails.secrets]\n{named}"
    guard = Guard(parse_policy(policy), judge="lexical")
    judged = list(server.store.iterate_judged(TraceSelection(until=BEGAN.timestamp() + 3600)))
    decided = [
        attach_decisions(replace(item.trace, id=f"g/{item.trace.id}"), [guard.decide(item.trace)]) for item in judged
    ]
    server.store.append_traces(decided).result()
    with server.serving() as url:
        yield server, url
    server.app.state.server.close()


def test_the_rates_are_those_of_the_decisions(guarded: tuple[DashboardServer, str]) -> None:
    server, url = guarded
    view = json.loads(Client(url).ask(f"/guard.json{HOUR}").text)
    traces = [item.trace for item in server.store.iterate_judged(TraceSelection(until=BEGAN.timestamp() + 3600))]
    guard = Guard(parse_policy("[rails.groundedness]"), judge="lexical")
    blocked = {trace.id: guard.decide(trace).outcome == "block" for trace in traces}
    assert view["rates"]["requests"] == len(traces)
    assert view["traces"] > 2 * len(traces)
    total = view["rates"]["routes"][0]
    assert total["abstained"]["mean"] == pytest.approx(sum(blocked.values()) / len(blocked))
    assert total["abstained"]["low"] < total["abstained"]["mean"] < total["abstained"]["high"]
    assert {row["route"] for row in view["rates"]["routes"]} == {None, "counter", "website"}
    website = json.loads(Client(url).ask(f"/guard.json{HOUR}&route=website").text)
    assert website["rates"]["requests"] == sum(trace.route == "website" for trace in traces)
    page = Client(url).ask(f"/guard{HOUR}").text
    assert f"{len(traces)} requests with a decision" in page
    assert "No held-back answer of this window has a label" in page


def test_a_window_without_decisions_says_so(guarded: tuple[DashboardServer, str]) -> None:
    text = Client(guarded[1]).ask("/guard?since=2031-05-04T10:30&until=2031-05-04T10:40").text
    assert "has a decision of a guard" in text


@pytest.mark.long
def test_false_blocks_are_counted_where_all_claims_of_the_answer_were_labelled(tmp_path_factory) -> None:
    server = DashboardServer(tmp_path_factory.mktemp("labelled") / "s")
    server.fill()
    guard = Guard(parse_policy("threshold = 0.0\n[rails.groundedness]"), judge="lexical")
    judged = list(server.store.iterate_judged(TraceSelection(until=BEGAN.timestamp() + 3600)))[:30]
    decided = [
        replace(item, trace=attach_decisions(replace(item.trace, id=f"g/{item.trace.id}"), [guard.decide(item.trace)]))
        for item in judged
    ]
    blocked = [
        item
        for item in decided
        if item.verdicts and item.verdicts.claim and item.trace.metadata["guard_decisions"][0]["outcome"] == "block"
    ]
    server.store.append_traces([item.trace for item in decided]).result()
    from ragfault.evaluation.online.scorer import ScoredTrace

    outcomes = [ScoredTrace(item.trace, replace(item.verdicts, trace=item.trace.id), ()) for item in blocked[:3]]
    server.store.add_outcomes(outcomes, ()).result()
    for item, support, answer in zip(
        blocked, ("supported", "unsupported", "supported"), (None, None, "another"), strict=False
    ):
        claims = tuple(ClaimLabel(start=claim.start, end=claim.end, support=support) for claim in item.verdicts.claim)
        label = LabelLine(
            trace=item.trace.id, verdicts=HumanVerdicts(claim=claims), answer=answer or fingerprint_answer(item.trace)
        )
        server.store.add_label(label).result()
    with server.serving() as url:
        view = json.loads(Client(url).ask(f"/guard.json{HOUR}").text)
        assert "of 2 with a label of every claim" in Client(url).ask(f"/guard{HOUR}").text
    server.app.state.server.close()
    assert view["rates"]["labels"] == 2
    assert view["rates"]["routes"][0]["false_blocks"]["mean"] == 0.5


@pytest.mark.browser
@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_window_shows_how_often_each_rail_blocks(guarded: tuple[DashboardServer, str], scheme: str) -> None:
    """Beside the name of any length stands the share of blocks, the times are legible, and the menu names the page."""
    size = {"width": 420, "height": 900}
    with (
        start_browser() as chromium,
        Visit(chromium, guarded[1], f"/guard{HOUR}", color_scheme=scheme, viewport=size) as visit,
    ):
        assert list_violations(visit.page, COLOURS) == []
        assert LONG_NAME in visit.page.content()
        edges = "element => { const box = element.getBoundingClientRect(); return [box.left, box.right] }"
        places = [
            "nav [aria-current]",
            *(f"section[aria-labelledby={name}] td:nth-child(3)" for name in ("by-route", "by-rail")),
        ]
        for place in places:
            left, right = visit.page.locator(place).first.evaluate(edges)
            assert 0 <= left < right <= 420, place
        for field in visit.page.locator("input[type=datetime-local]").all():
            assert field.bounding_box()["width"] >= 200
