"""The page of an adaptation shows the policy of the file beside the rewards of live decisions, and takes it back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from installed import skip_without

skip_without("duckdb", reason="the dashboard needs the extra `server`")
skip_without("fastapi", reason="the dashboard needs the extra `server`")
skip_without("jinja2", reason="the dashboard needs the extra `server`")

from browser import COLOURS, Visit, list_violations, start_browser
from dashboard_server import BEGAN, Client, DashboardServer
from ragfault.apps.tune.adaptation.policy import load_policy
from ragfault.apps.tune.adaptation.records import AdaptivePolicy, RouteShares
from ragfault.model.records import Trace
from ragfault.report.json_documents import encode_document

HOUR = f"?since={BEGAN.timestamp()}&until={BEGAN.timestamp() + 3600}"
TOKEN = "a-token-of-more-than-sixteen-characters"


def make_policy() -> AdaptivePolicy:
    """Return a second version, which explores on one of two routes, and the first one within it."""
    legal = RouteShares(route="legal <b>", present="top(5)", floor=0.8, shares={"top(5)": 1.0})
    faq = RouteShares(route="faq", present="top(5)", floor=0.7, shares={"top(5)": 1.0})
    first = AdaptivePolicy(routes=(faq, legal))
    tried = RouteShares(route="faq", present="top(5)", floor=0.7, shares={"top(5)": 0.8, "top(10)": 0.2})
    return AdaptivePolicy(routes=(tried, legal), version=2, previous=first)


def make_traces() -> list[Trace]:
    """Return 100 decisions on one route, which earn 0.9 by one arm and 0.2 by the other, and traces without one."""
    rows = [("top(5)", 1.0 if at % 10 else 0.0) for at in range(80)] + [("top(10)", float(at < 4)) for at in range(20)]
    decided = [
        Trace(
            id=f"d{at}",
            query="When?",
            route="faq",
            time=BEGAN + timedelta(seconds=at),
            metadata={"arm": arm, "propensity": 0.8 if arm == "top(5)" else 0.2, "reward": reward},
        )
        for at, (arm, reward) in enumerate(rows)
    ]
    wrong = [{"arm": "a", "propensity": 7, "reward": 1}, {"arm": "a", "propensity": 0.5}, {"propensity": "<b>"}, {}]
    others = [Trace(id=f"o{at}", query="?", time=BEGAN, metadata=row) for at, row in enumerate(wrong)]
    return [*decided, *others]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, Client]]:
    """A server on loopback with a policy and an hour of decisions."""
    path = tmp_path / "policy.json"
    path.write_text(encode_document(make_policy()), encoding="utf-8")
    server = DashboardServer(tmp_path / "s", page_files={"policy": path})
    server.store.append_traces(make_traces()).result()
    with server.serving() as url:
        yield path, Client(url)


def test_the_page_shows_shares_and_what_live_decisions_earned(served: tuple[Path, Client]):
    """Means are those of the rewards that the traces record; wrong records and other routes count nothing."""
    _, client = served
    view = json.loads(client.ask(f"/adaptation.json{HOUR}").text)
    faq, legal = view["routes"]
    assert faq["policy"]["shares"] == {"top(5)": 0.8, "top(10)": 0.2}
    assert {arm: (row["mean"], row["n"]) for arm, row in faq["arms"].items()} == {
        "top(5)": (0.9, 80),
        "top(10)": (0.2, 20),
    }
    assert faq["all"]["mean"] == pytest.approx(0.76)
    assert (legal["all"], legal["arms"]) == (None, {})
    page = client.ask(f"/adaptation{HOUR}").text
    assert "version 2" in page
    assert "top(10)</bdi> 20.0%" in page
    assert "cannot tell" in page  # 0.76 of 100 decisions beside a floor of 0.7
    assert "legal &lt;b&gt;" in page
    assert 'href="/adaptation"' in client.ask("/traces").text


def test_a_policy_is_taken_back_once_for_each_version_that_a_page_showed(served: tuple[Path, Client]):
    """The first form writes the policy before it, one of an older page nothing, and the last one the present arms."""
    path, client = served
    assert client.send("/adaptation", version="2").status == 303
    assert load_policy(path) == make_policy().previous
    late = client.send("/adaptation", version="2")
    assert (late.status, "version 1 by now" in late.text) == (409, True)
    assert "Put every route on its present arm" in client.ask("/adaptation").text
    assert client.send("/adaptation", version="1").status == 303
    assert all(route.shares == {"top(5)": 1.0} for route in load_policy(path).routes)


def test_a_file_that_is_no_policy_is_named_and_not_written(served: tuple[Path, Client]):
    path, client = served
    path.write_text("{}", encoding="utf-8")
    for answer in (client.ask("/adaptation"), client.send("/adaptation", version="2")):
        assert answer.status in (400, 422)
        assert "is not a policy of ragfault tune adapt" in answer.text
    assert path.read_text(encoding="utf-8") == "{}"


def test_only_an_admin_takes_a_policy_back(tmp_path: Path):
    path = tmp_path / "policy.json"
    path.write_text(encode_document(make_policy()), encoding="utf-8")
    server = DashboardServer(tmp_path / "s", page_files={"policy": path}, token=TOKEN)
    with server.serving() as url:
        assert Client(url).ask("/adaptation.json").status == 401
        assert Client(url).ask("/adaptation", {"version": "2"}).status in (401, 403)
        assert load_policy(path) == make_policy()
        assert Client(url).sign_in(TOKEN).ask("/adaptation").status == 200


def test_a_server_without_a_policy_says_how_to_get_one(tmp_path: Path):
    server = DashboardServer(tmp_path / "s")
    with server.serving() as url:
        client = Client(url)
        assert "--policy policy.json" in client.ask("/adaptation").text
        assert json.loads(client.ask("/adaptation.json").text)["version"] == 0
        assert 'href="/adaptation"' not in client.ask("/traces").text
        assert client.send("/adaptation", version="1").status in (400, 422)


@pytest.mark.browser
@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_legible_in_a_narrow_window(served: tuple[Path, Client], scheme: str):
    size = {"width": 420, "height": 900}
    with (
        start_browser() as chromium,
        Visit(chromium, served[1].url, f"/adaptation{HOUR}", color_scheme=scheme, viewport=size) as visit,
    ):
        assert list_violations(visit.page, COLOURS) == []
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 420
