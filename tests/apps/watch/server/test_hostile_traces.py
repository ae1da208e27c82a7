"""Hostile texts in every field of every record: in a real browser, on every page, they are texts and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from msgspec.structs import replace

from installed import skip_without

skip_without("duckdb", reason="the dashboard needs the extra `server`")
skip_without("fastapi", reason="the dashboard needs the extra `server`")
skip_without("jinja2", reason="the dashboard needs the extra `server`")

from browser import SCRIPTS, Visit, start_browser
from dashboard_server import DashboardServer
from hostile_records import build_hostile_record, count_texts
from ragfault.apps.watch.monitoring.alerts import Alert, AlertState
from ragfault.apps.watch.monitoring.incidents import Incident
from ragfault.apps.watch.server.alerts.delivery import IncidentNotice
from ragfault.apps.watch.server.dashboard.page_renderer import trace_url
from ragfault.apps.watch.server.storage.records import AccessToken, AlertEvent, TimelineMark, TraceSelection
from ragfault.apps.watch.server.storage.run_transfer import export_run
from ragfault.diagnosis.clusters.records import ClusterRegistry, ClusterReport
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.io.runs.run import MetricInfo, Run
from ragfault.labels.label import fingerprint_answer
from ragfault.labels.reading.lines import AnswerLabel, ClaimLabel, HumanVerdicts, LabelLine
from ragfault.model.records import Score, Trace, Verdicts
from sample_reports import HOSTILE

FOLDER = "<img src=x onerror='window.pwned=5'><script>window.pwned=6"
"""A run whose name is an attack: its folder can hold no slash."""

ROUTE, METRIC = quote(HOSTILE, safe=""), quote(HOSTILE, safe="")

PAGES = {
    "overview": "/",
    "metric": f"/metrics/{METRIC}?window=360",
    "route": f"/metrics/groundedness?route={ROUTE}",
    "insights": "/insights",
    "insights of a route": f"/insights?route={ROUTE}",
    "versions": "/versions",
    "drift": f"/drift?run={quote(FOLDER, safe='')}",
    "compare": f"/compare?route={ROUTE}&since=0&until=60&since2=60&until2=120",
    "traces": "/traces?limit=20",
    "search": f"/traces?text={ROUTE}&model={ROUTE}&conversation={ROUTE}",
    "sorted": f"/traces?sort={METRIC}&metric={METRIC}",
    "trace": trace_url(HOSTILE),
    "waiting": trace_url(f"waiting {HOSTILE}"),
    "incidents": "/incidents",
    "alerts": "/alerts",
    "clusters": "/clusters",
    "runs": "/runs",
    "judge": "/judge",
    "settings": "/settings",
    "sign-in": f"/sign-in?next=/{ROUTE}",
    "error": f"/traces/{ROUTE}{ROUTE}",
    "no metric": f"/metrics/{METRIC}x",
    "report": f"/runs/{quote(FOLDER, safe='')}/report",
    "bisection": f"/bisect?baseline={quote(FOLDER, safe='')}&candidate={quote(FOLDER, safe='')}",
}

LIVING = """scripts => [...document.querySelectorAll("*")].filter((each) =>
  ["img", "iframe", "frame", "object", "embed", "base", "applet", "style"].includes(each.localName)
  || (each.localName === "script" && !scripts.includes(each.getAttribute("src")))
  || [...each.attributes].some(({ name, value }) => name.startsWith("on") || ["style", "srcdoc"].includes(name)
    || (["href", "src", "action", "formaction", "xlink:href"].includes(name) && !/^[/#]/.test(value)))
).map((each) => each.outerHTML.slice(0, 200))"""
"""What could act on its own: scripts, pictures, frames, styles, handlers, and links that lead elsewhere."""

CARRIED = ("report", "bisection")
"""Reports, with a script and a policy of their own; tests/report/test_html_in_browser.py tests them."""

OURS = ("judge", "sign-in")
"""Pages that show nothing that comes from outside."""

TOKEN = "rf_hostile"
SIGNED = {"extra_http_headers": {"Authorization": f"Bearer {TOKEN}"}}
"""A token is needed as soon as there is one in the store, were it one whose name is an attack."""

pytestmark = [pytest.mark.browser, pytest.mark.long]


def test_the_attack_is_everywhere():
    """Each text of a trace, of verdicts, of alerts and of clusters that anybody could fill is an attack."""
    now = datetime(2031, 5, 4, tzinfo=UTC)
    for kind, least in (
        (Trace, 20),
        (Verdicts, 20),
        (Score, 2),
        (TimelineMark, 4),
        (Alert, 5),
        (Incident, 10),
        (ClusterReport, 15),
    ):
        places = msgspec.json.encode(build_hostile_record(kind, now)).decode()
        assert count_texts(kind, now) >= least, kind
        assert places.count("window.pwned=1") == count_texts(kind, now), kind


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A Chromium that is started once."""
    with start_browser() as started:
        yield started


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on which everything that comes from outside is an attack."""
    folder = tmp_path_factory.mktemp("hostile")
    rules = folder / "rules.toml"
    rules.write_text(f'[[rule]]\nname = {_toml(HOSTILE)}\nmetric = "groundedness"\nbelow = 0.9\n', "utf-8")
    fields = ("model", "release", f"metadata.{HOSTILE}")
    server = DashboardServer(folder / "s", rules=rules, token=TOKEN, cohort_fields=fields)
    _attack(server, datetime.fromtimestamp(server.now - 600, UTC))
    with server.serving() as url:
        yield url


def _toml(text: str) -> str:
    return msgspec.json.encode(text).decode().replace("\u2028", "\\u2028").replace("\x1b", "\\u001b")


def _attack(server: DashboardServer, time: datetime) -> None:
    """Store hostile traffic, marks, labels, alerts, clusters, tokens, counts and a run."""
    store, state = server.store, server.app.state.server
    trace = replace(
        build_hostile_record(Trace, time), metadata={HOSTILE: HOSTILE, "release": HOSTILE, "prompt_version": HOSTILE}
    )
    verdicts, score = (
        build_hostile_record(Verdicts, time),
        replace(build_hostile_record(Score, time), layer="generation"),
    )
    several = [
        (replace(trace, id=name), replace(verdicts, trace=name), replace(score, trace=name, metric=metric))
        for name, metric in ((HOSTILE, HOSTILE), *((f"{at}{HOSTILE}", "groundedness") for at in range(5)))
    ]
    outcomes = [ScoredTrace(measure, two, (three,)) for measure, two, three in several]
    store.append_traces([entry.trace for entry in outcomes]).result()
    measures = (MetricInfo(HOSTILE, "generation"), MetricInfo("groundedness", "generation"))
    store.add_outcomes(outcomes, measures, state.settings.cohort_fields).result()
    store.append_traces([replace(trace, id=f"waiting {HOSTILE}")]).result()
    store.add_marks([build_hostile_record(TimelineMark, time)], server.now).result()
    claim = ClaimLabel(start=0, end=len(HOSTILE), support="supported")
    text = HumanVerdicts(claim=(claim,), answer=AnswerLabel(refused=False))
    store.add_label(
        LabelLine(trace=HOSTILE, verdicts=text, by=HOSTILE, time=time, answer=fingerprint_answer(trace))
    ).result()
    _alert(server, time)
    clusters = {
        "found": build_hostile_record(ClusterReport, time),
        "registry": build_hostile_record(ClusterRegistry, time),
    }
    saved = {"time": server.now, "since": 0.0, **clusters}
    store.save_setting("clusters", msgspec.to_builtins(saved)).result()
    store.save_token(AccessToken(name=HOSTILE, role="read", hash="0" * 64, created=server.now)).result()
    state.counters.add(HOSTILE)
    state.counters.flush()
    built: Run = export_run(store, TraceSelection(), state.settings.runs_folder / "plain")
    built.path.rename(state.settings.runs_folder / FOLDER)


def _alert(server: DashboardServer, time: datetime) -> None:
    """Build an alert of each state, and incidents that are open and over."""
    alert = build_hostile_record(Alert, time)
    alerts = tuple(replace(alert, status=entry) for entry in ("firing", "pending", "resolved"))
    state = replace(build_hostile_record(AlertState, time), alerts=alerts)
    incident = build_hostile_record(Incident, time)
    kinds = [replace(incident, id=f"{at}", kind=kind, resolved=None) for at, kind in enumerate(("quality", "backlog"))]
    past = replace(incident, resolved=server.now, state="resolved")
    body = msgspec.to_builtins(IncidentNotice(kind="opened", time=server.now, incident=incident))
    key = f"{alert.rule.name}/{alert.metric}/{alert.route}"
    events = [AlertEvent(alert=key, time=server.now, kind=kind, body=body) for kind in ("firing", HOSTILE)]
    settings = {"alerts": msgspec.to_builtins(state), "incidents": msgspec.to_builtins(kinds)}
    server.store.add_events(events, settings, [past]).result()


def test_hostile_texts_are_inert(chromium: Any, served: str):
    """On every page, and when it renews itself, no script, element, handler or way out comes of any text."""
    with Visit(chromium, served, **SIGNED) as visit:
        page = visit.page
        page.clock.install()
        for name, path in PAGES.items():
            visit.open(path)
            _inert(page, name)
            if page.locator("#main[data-refresh]").count():
                page.evaluate("document.getElementById('main').replaceChildren()")
                page.clock.run_for(31_000)
                page.wait_for_selector("#main > section")
                _inert(page, f"{name}, renewed")


def _inert(page: Any, name: str) -> None:
    assert page.evaluate("window.pwned") is None, name
    if name not in CARRIED:
        assert page.evaluate(LIVING, list(SCRIPTS)) == [], name
        shown = page.locator("body").inner_text()
        assert ("window.pwned=" in shown) == (name not in OURS), name
        assert not set(shown) & {"\x1b", "\u202e", "\u2028"}, name


def test_what_is_shown_is_the_text(chromium: Any, served: str):
    """The attack is there to be read: as query, answer, error, chunk, claim, title, and as the name of a rule."""
    with Visit(chromium, served, trace_url(HOSTILE), **SIGNED) as visit:
        for field in ("p.query", "p.answer", ".failure", ".chunk-text", ".claims", "h1", ".circumstances"):
            shown = visit.page.locator(field).first.inner_text()
            assert "<script>window.pwned=1</script>" in shown, field
        visit.open("/settings")
        rules = visit.page.locator("section[aria-labelledby=rules]")
        assert "<script>window.pwned=1</script>" in rules.inner_text()
