"""Forms of the dashboard: sign-in, tokens, saved views, labels, comments, incidents, alerts, clusters and runs.

Every form carries a CSRF token and needs the role admin.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from fastapi import APIRouter, Request
from msgspec.structs import replace
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from ragfault.apps.watch.monitoring import alerts
from ragfault.apps.watch.server.api import access_api, traffic_views
from ragfault.apps.watch.server.api.access_api import TokenRequest
from ragfault.apps.watch.server.api.detail_views import (
    CLUSTERS_SETTING,
    VIEWS_SETTING,
    get_latest_judge,
    open_run,
    parse_selection,
)
from ragfault.apps.watch.server.api.verdict_view import build_label
from ragfault.apps.watch.server.dashboard.page_renderer import local_path, render_page, trace_url
from ragfault.apps.watch.server.security import SESSION_COOKIE
from ragfault.apps.watch.server.state import ALERTS_SETTING, INCIDENTS_SETTING, ServerState
from ragfault.apps.watch.server.storage.records import AlertEvent, TraceComment, TraceSelection
from ragfault.apps.watch.server.storage.run_transfer import export_run, import_run
from ragfault.http.forms import AdminForm, FormFields, parse_count, read_author, read_form
from ragfault.http.page_routes import PageRoute
from ragfault.labels.label import fingerprint_answer
from ragfault.labels.reading.lines import build_label_line
from ragfault.model.errors import UnknownName, UsageError

MAX_VIEWS = 50

MAX_COMMENT = 4000
"""Characters of a comment."""

MAX_SILENCE_MINUTES = 30 * 24 * 60
"""Longest silence in minutes."""

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

forms_router = APIRouter(route_class=PageRoute, include_in_schema=False)


async def _apply_and_redirect(
    request: Request, action: Callable[[ServerState], Any], back: str, audited: tuple[str, str, str]
) -> Response:
    """Run an action in a thread, record what was done to what, and redirect to the page that shows its result."""

    def work() -> None:
        action(request.app.state.server)
        request.app.state.audit.record(request, *audited)

    await run_in_threadpool(work)
    return RedirectResponse(back, 303)


def _cookie_options(request: Request) -> dict[str, Any]:
    """Return the attributes of the cookie: no script reads it, no other site sends it, and only TLS where there is."""
    root = request.app.state.server.settings.root_path
    is_secure = request.url.scheme == "https"
    return {"path": root or "/", "httponly": True, "samesite": "strict", "secure": is_secure}


@forms_router.post("/sign-in")
async def post_sign_in(request: Request) -> Response:
    """Begin a session for a valid token; its id goes into a cookie that scripts cannot read."""
    fields = await read_form(request)
    there = local_path(fields.get("next", "/"))
    given = fields.get("token", "").strip()
    access, audit = request.app.state.access, request.app.state.audit
    id = await run_in_threadpool(access.sign_in, request, given)
    if id is None:
        await run_in_threadpool(audit.record_refusal, request)
        return render_page(request, "sign-in", 403, next=there, wrong=True)
    await run_in_threadpool(audit.record, request, "sign_in")
    answer = RedirectResponse(there, 303)
    lifetime = round(3600 * request.app.state.server.settings.session_hours)
    answer.set_cookie(SESSION_COOKIE, id, max_age=lifetime, **_cookie_options(request))
    return answer


@forms_router.post("/sign-out")
async def post_sign_out(request: Request) -> Response:
    """End the session, here and not only in the browser, and delete its cookie."""
    await read_form(request)
    await run_in_threadpool(request.app.state.access.sign_out, request)
    if getattr(request.state, "who", ""):
        await run_in_threadpool(request.app.state.audit.record, request, "sign_out")
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(SESSION_COOKIE, **_cookie_options(request))
    return answer


@forms_router.post("/tokens")
async def post_token(request: Request, fields: FormFields = AdminForm) -> Response:
    """Make a token and show it once, or revoke one."""
    name = fields.get("name", "").strip()
    if fields.get("action") == "revoke":
        await run_in_threadpool(access_api.revoke_token, request, name)
        return RedirectResponse("/access", 303)
    days = fields.get("days", "").strip()
    try:
        asked = msgspec.convert(
            {"name": name, "role": fields.get("role", "read"), "days": float(days) if days else None}, TokenRequest
        )
    except (ValueError, msgspec.ValidationError):
        raise UsageError("a token has a name, a role, and a number of days or none.") from None
    issued = await run_in_threadpool(access_api.issue_token, request, asked)
    return await run_in_threadpool(render_access, request, issued)


def render_access(request: Request, issued: access_api.IssuedAccessToken | None = None) -> Response:
    """Render the page of tokens and of the audit log, with a token that was just made."""
    state = request.app.state
    return render_page(
        request,
        "access",
        without_json=True,
        issued=issued,
        tokens=access_api.list_tokens(state.access),
        records=state.server.store.read_audit(limit=100),
        session_hours=state.server.settings.session_hours,
        is_open=state.access.is_open,
        now=time.time(),
    )


@forms_router.post("/views")
async def post_view(request: Request, fields: FormFields = AdminForm) -> Response:
    """Save a selection of traces under a name, or delete one."""
    name, query = fields.get("name", "").strip()[:80], fields.get("query", "")
    if not name:
        raise UsageError("a view needs a name. Write one next to the button.")
    deleting = fields.get("action") == "delete"
    selection = None if deleting else parse_selection(parse_qsl(query, max_num_fields=100))

    def action(server: ServerState) -> None:
        with server.registry_lock:
            views = dict(server.store.read_setting(VIEWS_SETTING, {}))
            views.pop(name, None)
            if selection is not None:
                views[name] = msgspec.to_builtins(msgspec.structs.replace(selection, after=None))
            if len(views) > MAX_VIEWS:
                raise UsageError(f"there are {MAX_VIEWS} views. Delete one first.")
            server.store.save_setting(VIEWS_SETTING, views).result()

    audited = ("view_deleted" if deleting else "view_saved", name, query)
    return await _apply_and_redirect(request, action, local_path(f"/traces?{query}"), audited)


@forms_router.post("/labels")
async def post_label(request: Request, fields: FormFields = AdminForm) -> Response:
    """Store a label that agrees or disagrees with a verdict."""
    part, name, say = (fields.get(key, "") for key in ("part", "trace", "opinion"))
    at = fields.get("index", "0")
    if say not in ("agree", "disagree") or not at.isascii() or not at.isdigit():
        raise UsageError('a label says "agree" or "disagree" of one verdict. Use the buttons of the trace.')

    def action(server: ServerState) -> None:
        stored = traffic_views.load_trace(server, name)
        label = replace(
            build_label(stored, part, int(at[:9]), say == "agree"),
            annotator=read_author(request, fields),
            time=datetime.fromtimestamp(server.now(), UTC),
            shown=fingerprint_answer(stored.trace),
        )
        server.store.add_label(build_label_line(label)).result()

    anchor = f"#{part}-{int(at[:9]) + 1}" if part.isalpha() else ""
    return await _apply_and_redirect(request, action, trace_url(name) + anchor, ("label", name, f"{say}: {part} {at}"))


@forms_router.post("/comments")
async def post_comment(request: Request, fields: FormFields = AdminForm) -> Response:
    """Store a comment on a trace."""
    name, text = fields.get("trace", ""), fields.get("text", "").strip()
    if not 1 <= len(text) <= MAX_COMMENT:
        raise UsageError(f"a comment has 1 to {MAX_COMMENT:,} characters.")

    def action(server: ServerState) -> None:
        traffic_views.load_trace(server, name)
        comment = TraceComment(trace=name, text=text, by=read_author(request, fields), time=server.now())
        server.store.add_comment(comment).result()

    return await _apply_and_redirect(request, action, trace_url(name) + "#comments", ("comment", name, text))


@forms_router.post("/alerts")
async def post_alert(request: Request, fields: FormFields = AdminForm) -> Response:
    """Silence alerts, or end all silences."""
    action, rule = fields.get("action"), fields.get("rule", "")
    names = {"metric": fields.get("metric") or None, "route": fields.get("route") or None}
    who = read_author(request, fields)

    def work(server: ServerState) -> None:
        with server.alert_lock:
            state, now = server.load_alert_state(), server.now()
            if action == "silence":
                until = now + 60 * parse_count(fields.get("minutes", "60"), MAX_SILENCE_MINUTES, "minutes")
                state, kind = alerts.add_silence(state, until, rule=rule or None, **names), "silenced"
            elif action == "unsilence":
                state, kind = alerts.clear_silences(state), "unsilenced"
            else:
                raise UsageError("alerts can be silenced, and silences can be ended.")
            key = f"{rule or '*'}/{names['metric'] or '*'}/{names['route'] or ''}"
            event = AlertEvent(alert=key, time=now, kind=kind, body={"by": who})
            server.store.add_events([event], {ALERTS_SETTING: msgspec.to_builtins(state)}).result()

    audited = (
        f"alert_{action}",
        f"{rule or '*'}/{names['metric'] or '*'}/{names['route'] or ''}",
        fields.get("minutes", ""),
    )
    return await _apply_and_redirect(request, work, "/alerts", audited)


@forms_router.post("/incidents")
async def post_incident(request: Request, fields: FormFields = AdminForm) -> Response:
    """Acknowledge an incident and the alerts of it that fire: no reminder is sent of them."""
    id, who = fields.get("incident", ""), read_author(request, fields)

    def work(server: ServerState) -> None:
        with server.alert_lock:
            state, incidents = server.load_alert_state(), list(server.load_incidents())
            at = next(
                (i for i, incident in enumerate(incidents) if incident.id == id and incident.resolved is None), None
            )
            if at is None:
                raise UnknownName(
                    "open incident", id, [incident.id for incident in incidents if incident.resolved is None]
                )
            incidents[at] = replace(incidents[at], state="acknowledged", acknowledged=who)
            for rule, metric, route in incidents[at].alerts:
                state = alerts.acknowledge_alert(state, who, rule=rule, metric=metric, route=route or None)
            event = AlertEvent(alert=id, time=server.now(), kind="acknowledged", body={"by": who})
            settings = {ALERTS_SETTING: msgspec.to_builtins(state), INCIDENTS_SETTING: msgspec.to_builtins(incidents)}
            server.store.add_events([event], settings).result()

    back = local_path(fields.get("next", "/incidents"))
    return await _apply_and_redirect(request, work, back, ("incident_acknowledge", id, ""))


@forms_router.post("/clusters")
async def post_clusters(request: Request, fields: FormFields = AdminForm) -> Response:
    """Cluster the failing traces of the last hours."""
    hours = fields.get("hours", "24")
    if not hours.isascii() or not hours.isdigit() or not 1 <= int(hours[:9]) <= 24 * 366:
        raise UsageError(f'clusters are made of the last 1 to {24 * 366:,} hours, got "{hours[:40]}".')
    audited = ("clusters_made", "", f"of the last {hours} hours")
    return await _apply_and_redirect(
        request, lambda server: _cluster_failures(server, int(hours)), "/clusters", audited
    )


def _cluster_failures(server: ServerState, hours: int) -> None:
    from ragfault.diagnosis.clusters.clustering import CLUSTERED_TRACES, cluster_runs
    from ragfault.diagnosis.clusters.description import load_population
    from ragfault.diagnosis.clusters.records import ClusterRegistry
    from ragfault.diagnosis.clusters.registry import record_clusters
    from ragfault.io.runs.samples import sample_run

    now = server.now()
    since = now - 3600 * hours
    moment = datetime.fromtimestamp(now, UTC)
    with tempfile.TemporaryDirectory(prefix="ragfault-") as folder:
        selection = TraceSelection(since=since, judge=get_latest_judge(server))
        run = export_run(server.store, selection, Path(folder, f"live-{moment:%Y-%m-%dT%H%M%S}"))
        run = sample_run(run, CLUSTERED_TRACES)
        clusters = cluster_runs([run])
        with server.registry_lock:
            saved = server.store.read_setting(CLUSTERS_SETTING, {})
            registry = msgspec.convert(saved["registry"], ClusterRegistry) if saved else ClusterRegistry()
            registry, clusters = record_clusters(registry, clusters, [load_population(run)], moment.isoformat())
            _save_clusters(server, {"time": now, "since": since, "found": clusters, "registry": registry})


def _save_clusters(server: ServerState, content: dict[str, Any]) -> None:
    server.store.save_setting(CLUSTERS_SETTING, msgspec.to_builtins(content)).result()


@forms_router.post("/clusters/{id}")
async def post_cluster_change(request: Request, id: str, fields: FormFields = AdminForm) -> Response:
    """Assign, mute or resolve a cluster, or promote its traces."""
    action, person = fields.get("action", ""), fields.get("to", "").strip()[:80]
    if action not in ("assign", "mute", "resolve", "promote"):
        raise UsageError("a cluster can be assigned, muted, resolved, or promoted.")

    def work(server: ServerState) -> None:
        if action == "promote":
            _promote_cluster(server, id)
        else:
            _update_cluster(server, id, action, person)

    return await _apply_and_redirect(request, work, f"/clusters#{id}", (f"cluster_{action}", id, person))


def _update_cluster(server: ServerState, id: str, action: str, person: str) -> None:
    """Assign, mute or resolve a cluster in the registry."""
    from ragfault.diagnosis.clusters.records import ClusterRegistry
    from ragfault.diagnosis.clusters.registry import assign_cluster, mute_cluster, resolve_cluster

    with server.registry_lock:
        saved = server.store.read_setting(CLUSTERS_SETTING, {})
        registry = msgspec.convert(saved["registry"], ClusterRegistry) if saved else ClusterRegistry()
        moment = datetime.fromtimestamp(server.now(), UTC).isoformat()
        if action == "assign":
            registry = assign_cluster(registry, id, person, moment)
        else:
            registry = (mute_cluster if action == "mute" else resolve_cluster)(registry, id, moment)
        _save_clusters(server, {**saved, "registry": registry})


def _promote_cluster(server: ServerState, id: str) -> None:
    """Add the traces of a cluster to the evaluation set of the store."""
    from ragfault.diagnosis.clusters.promotion import build_cases, promote_cases
    from ragfault.diagnosis.clusters.records import ClusterReport

    saved = server.store.read_setting(CLUSTERS_SETTING, {})
    clusters = msgspec.convert(saved["found"], ClusterReport) if saved else None
    all_ = [*clusters.clusters, *filter(None, [clusters.ungrouped])] if clusters else []
    cluster = next((candidate for candidate in all_ if candidate.id == id), None)
    if cluster is None:
        raise UnknownName("cluster", id, [candidate.id for candidate in all_])
    moment = datetime.fromtimestamp(server.now(), UTC).isoformat()
    with tempfile.TemporaryDirectory(prefix="ragfault-") as folder:
        run = export_run(server.store, TraceSelection(ids=cluster.members), Path(folder, "live"))
        there = [trace.id for trace in run.traces()]
        cases = build_cases(run, there, moment, {"id": cluster.id, "name": cluster.name})
        promote_cases(cases, server.settings.data_folder / "promoted.jsonl")


@forms_router.post("/runs")
async def post_run(request: Request, fields: FormFields = AdminForm) -> Response:
    """Export a selection as a run, or import a run into the store."""
    name, action = fields.get("name", ""), fields.get("action")
    if not _RUN_NAME.fullmatch(name):
        raise UsageError(f'"{name[:60]}" cannot be the name of a run. Use letters, digits, dots, dashes, underlines.')

    def work(server: ServerState) -> None:
        if action == "export":
            export_run(server.store, parse_selection(list(fields.items())), server.settings.runs_folder / name)
        elif action == "import":
            run, cohorts = open_run(server, name), server.settings.cohort_fields
            import_run(server.store, run, cohort_fields=cohorts, prefix=fields.get("prefix", "")[:80])
        else:
            raise UsageError("a run is exported or imported.")

    return await _apply_and_redirect(request, work, "/runs", (f"run_{action}", name, ""))
