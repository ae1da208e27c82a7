"""The example dashboard for Grafana: whatever it asks Prometheus for, `/metrics` of a server has."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from installed import skip_without

skip_without("duckdb", reason="the dashboard needs the extra `server`")
skip_without("fastapi", reason="the dashboard needs the extra `server`")

from dashboard_server import DashboardServer

pytestmark = pytest.mark.long

BOARD = json.loads(Path(__file__).parents[4].joinpath("docs", "grafana.json").read_text("utf-8"))

SELECTED = re.compile(r'(ragfault_\w+)(?:\{((?:[^{}"]|"[^"]*")*)\})?(\[[^\]]+\])?')
"""A metric with its labels and its stretch of time."""


def questions() -> Iterator[tuple[str, str]]:
    """List the title of each panel and its query."""
    for panel in BOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What Prometheus reads from a server with traffic."""
    server = DashboardServer(tmp_path_factory.mktemp("scraped") / "s")
    server.fill()
    server.app.state.server.counters.add("taken", 209)
    with server.serving() as url, urllib.request.urlopen(f"{url}/metrics") as answer:
        text: str = answer.read().decode()
    return text


def labels(exposed: str, name: str) -> dict[str, set[str]]:
    """List the labels of a series and their values."""
    values: dict[str, set[str]] = {}
    for line in exposed.splitlines():
        if line.startswith((f"{name}{{", f"{name} ")):
            for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', line.partition(" ")[0]):
                values.setdefault(label, set()).add(value)
    return values


def test_all_that_is_asked_for_is_there(exposed: str):
    """Each series, each label and each name of a metric in a question stands in what the server exposes."""
    for title, asked in questions():
        assert SELECTED.search(asked), title
        for name, chosen, _ in SELECTED.findall(asked):
            assert re.search(rf"^{name}[ {{]", exposed, re.M), (title, name)
            there = labels(exposed, name)
            for label, sign, value in re.findall(r'(\w+)\s*(=~|!=|=)\s*"([^"]*)"', chosen):
                assert label in there, (title, label)
                if sign == "=~" and not value.startswith("$"):
                    assert set(value.split("|")) <= there[label], (title, value)
            for by in re.findall(r"by \(([^)]*)\)", asked):
                assert set(by.split(", ")) <= set(there), (title, by)


def test_rates_are_of_counters(exposed: str):
    """A rate is taken of what only grows, over a stretch of time; anything else is taken as it is now."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposed, re.M))
    for title, asked in questions():
        assert asked.count("(") == asked.count(")"), title
        for rates in SELECTED.finditer(asked):
            name = re.sub(r"_(bucket|sum|count)$", "", rates[1])
            grows = kinds[name] in ("counter", "histogram")
            rated = asked[: rates.start()].endswith(("rate(", "increase("))
            assert grows == rated == bool(rates[3]), (title, rates[0])
        if "histogram_quantile" in asked:
            assert re.match(r"histogram_quantile\(0\.\d+, sum by \(le[^)]*\) \(rate\(ragfault_\w+_bucket", asked)


def test_each_panel_has_its_place():
    """Panels have names and numbers of their own, lie side by side within 24 columns, and ask one source of data."""
    taken: set[tuple[int, int]] = set()
    panels: list[dict[str, Any]] = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        taken |= cells
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${DS_PROMETHEUS}"
    assert [area["name"] for area in BOARD["__inputs"]] == ["DS_PROMETHEUS"]
