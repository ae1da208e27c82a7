"""The forms of the dashboard: labels, alerts, clusters, runs, and the token of a browser.

Every form carries a stamp that only a page of this server has, and needs the role admin.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from ragfault.errors import UnknownName, UsageError
from ragfault.findings import alerting
from ragfault.runs.labels import Label, fingerprint
from ragfault.server import views
from ragfault.server.access import COOKIE
from ragfault.server.bodies import read_body
from ragfault.server.dashboard_reading import said
from ragfault.server.dashboard_rendering import PageRoute, address, local, render
from ragfault.server.dashboard_views import CLUSTERS, VIEWS, last_judge, run_at, selection
from ragfault.server.desk import ALARMS, Desk
from ragfault.server.settings import Limits
from ragfault.store import Event, Wanted, export, import_run

__all__ = ["forms"]

SMALL = Limits(body=64_000, unpacked=64_000)
"""What a form may weigh."""

MOST_VIEWS = 50

LONG = 30 * 24 * 60
"""Minutes for which an alert may be silenced."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

forms = APIRouter(route_class=PageRoute, include_in_schema=False)

Fields = dict[str, str]


async def filled(request: Request) -> Fields:
    """The fields of a form that a page of this server showed, from somebody who may write. Raises 401, 403, 413."""
    found = await _fields(request)
    request.app.state.access.check(request, "admin")
    return found


async def _fields(request: Request) -> Fields:
    body = await read_body(request, SMALL)
    found = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=100))
    request.app.state.access.stamped(request, found.get("stamp", ""))
    return found


Filled = Depends(filled)


async def _done(request: Request, deed: Callable[[Desk], Any], back: str) -> Response:
    """Do something beside the loop, and go back to a page that shows it."""
    await run_in_threadpool(deed, request.app.state.desk)
    return RedirectResponse(back, 303)


def _who(request: Request, fields: Fields) -> str:
    """Whose word a form is: the name of the token, else what somebody calls themselves."""
    token = request.app.state.access.token(request)
    return token.name if token is not None else fields.get("by", "").strip()[:80] or "dashboard"


# --- the token of a browser ------------------------------------------------------------------------


@forms.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Put a token that counts into a cookie that no script can read."""
    fields = await _fields(request)
    there = local(fields.get("next", "/"))
    given = fields.get("token", "").strip()
    if request.app.state.access.find(given) is None:
        return render(request, "sign-in", 403, next=there, wrong=True)
    answer = RedirectResponse(there, 303)
    answer.set_cookie(
        COOKIE, given, httponly=True, samesite="strict", secure=request.url.scheme == "https", path="/"
    )
    return answer


@forms.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """Forget the token."""
    await _fields(request)
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer


# --- saved views ----------------------------------------------------------------------------------


@forms.post("/views")
async def save_view(request: Request, fields: Fields = Filled) -> Response:
    """Keep a selection of traces under a name, or forget one."""
    name, query = fields.get("name", "").strip()[:80], fields.get("query", "")
    if not name:
        raise UsageError("a view needs a name. Write one beside the button.")
    wanted = None if fields.get("deed") == "forget" else selection(parse_qsl(query, max_num_fields=100))

    def deed(desk: Desk) -> None:
        with desk.registering:
            kept = dict(desk.store.setting(VIEWS, {}))
            kept.pop(name, None)
            if wanted is not None:
                kept[name] = msgspec.to_builtins(msgspec.structs.replace(wanted, after=None))
            if len(kept) > MOST_VIEWS:
                raise UsageError(f"there are {MOST_VIEWS} views. Forget one first.")
            desk.store.save_setting(VIEWS, kept).result()

    return await _done(request, deed, local(f"/traces?{query}"))


# --- labels ----------------------------------------------------------------------------------------


@forms.post("/labels")
async def label(request: Request, fields: Fields = Filled) -> Response:
    """Keep whether somebody agrees with a verdict."""
    part, name, say = (fields.get(key, "") for key in ("part", "trace", "say"))
    at = fields.get("at", "0")
    if say not in ("agree", "disagree") or not at.isascii() or not at.isdigit():
        raise UsageError('a label says "agree" or "disagree" of one verdict. Use the buttons of the trace.')

    def deed(desk: Desk) -> None:
        whole = views.trace(desk, name)
        desk.store.label(
            Label(
                trace=name,
                verdicts=said(whole, part, int(at[:9]), say == "agree"),
                by=_who(request, fields),
                time=datetime.fromtimestamp(desk.now(), UTC),
                answer=fingerprint(whole.trace),
            )
        ).result()

    anchor = f"#{part}-{int(at[:9]) + 1}" if part.isalpha() else ""
    return await _done(request, deed, address(name) + anchor)


# --- alerts ----------------------------------------------------------------------------------------


@forms.post("/alerts")
async def alert(request: Request, fields: Fields = Filled) -> Response:
    """Acknowledge an alert, silence it for a while, or end all silences."""
    deed, rule = fields.get("deed"), fields.get("rule", "")
    names = {"metric": fields.get("metric") or None, "route": fields.get("route") or None}
    who = _who(request, fields)

    def work(desk: Desk) -> None:
        with desk.alarming:
            state, now = desk.alarms(), desk.now()
            if deed == "acknowledge":
                state, kind = alerting.acknowledge(state, who, rule=rule, **names), "acknowledged"
            elif deed == "silence":
                until = now + 60 * _minutes(fields.get("minutes", "60"))
                state, kind = alerting.silence(state, until, rule=rule or None, **names), "silenced"
            elif deed == "unsilence":
                state, kind = alerting.unsilence(state), "unsilenced"
            else:
                raise UsageError("an alert can be acknowledged or silenced, and silences can be ended.")
            key = f"{rule or '*'}/{names['metric'] or '*'}/{names['route'] or ''}"
            event = Event(alert=key, time=now, kind=kind, body={"by": who})
            desk.store.add_events([event], {ALARMS: msgspec.to_builtins(state)}).result()

    return await _done(request, work, "/alerts")


def _minutes(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= LONG:
        raise UsageError(f'an alert is silenced for 1 to {LONG:,} minutes, got "{text[:40]}".')
    return int(text)


# --- clusters --------------------------------------------------------------------------------------


@forms.post("/clusters")
async def find_clusters(request: Request, fields: Fields = Filled) -> Response:
    """Look for clusters among the failing traces of the last hours."""
    hours = fields.get("hours", "24")
    if not hours.isascii() or not hours.isdigit() or not 1 <= int(hours[:9]) <= 24 * 366:
        raise UsageError(f'clusters are made of the last 1 to {24 * 366:,} hours, got "{hours[:40]}".')
    return await _done(request, lambda desk: _cluster(desk, int(hours)), "/clusters")


def _cluster(desk: Desk, hours: int) -> None:
    from ragfault.clustering import Registry, cluster, remember, whole

    now = desk.now()
    since = now - 3600 * hours
    moment = datetime.fromtimestamp(now, UTC)
    with tempfile.TemporaryDirectory(prefix="ragfault-") as folder:
        wanted = Wanted(since=since, judge=last_judge(desk))
        run = export(desk.store, wanted, Path(folder, f"live-{moment:%Y-%m-%dT%H%M%S}"))
        found = cluster([run])
        with desk.registering:
            kept = desk.store.setting(CLUSTERS, {})
            registry = msgspec.convert(kept["registry"], Registry) if kept else Registry()
            registry, found = remember(registry, found, [whole(run)], moment.isoformat())
            _keep(desk, {"time": now, "since": since, "found": found, "registry": registry})


def _keep(desk: Desk, content: dict[str, Any]) -> None:
    desk.store.save_setting(CLUSTERS, msgspec.to_builtins(content)).result()


@forms.post("/clusters/{id}")
async def change_cluster(request: Request, id: str, fields: Fields = Filled) -> Response:
    """Give a cluster to somebody, mute it, call it mended, or promote its traces."""
    deed = fields.get("deed", "")
    changes = {"assign": _assign, "mute": _mute, "resolve": _resolve}
    if deed == "promote":
        return await _done(request, lambda desk: _promote(desk, id), f"/clusters#{id}")
    if deed not in changes:
        raise UsageError("a cluster can be assigned, muted, resolved, or promoted.")
    to = fields.get("to", "").strip()[:80]
    return await _done(request, lambda desk: changes[deed](desk, id, to), f"/clusters#{id}")


def _assign(desk: Desk, id: str, to: str) -> None:
    from ragfault.clustering import assign

    _registered(desk, lambda registry, time: assign(registry, id, to, time))


def _mute(desk: Desk, id: str, _: str) -> None:
    from ragfault.clustering import mute

    _registered(desk, lambda registry, time: mute(registry, id, time))


def _resolve(desk: Desk, id: str, _: str) -> None:
    from ragfault.clustering import resolve

    _registered(desk, lambda registry, time: resolve(registry, id, time))


def _registered(desk: Desk, change: Callable[[Any, str], Any]) -> None:
    """Change what is remembered of clusters."""
    from ragfault.clustering import Registry

    with desk.registering:
        kept = desk.store.setting(CLUSTERS, {})
        registry = msgspec.convert(kept["registry"], Registry) if kept else Registry()
        time = datetime.fromtimestamp(desk.now(), UTC).isoformat()
        _keep(desk, {**kept, "registry": change(registry, time)})


def _promote(desk: Desk, id: str) -> None:
    """Add the traces of a cluster to the evaluation set of the store."""
    from ragfault.clustering import Clusters, cases, promote

    kept = desk.store.setting(CLUSTERS, {})
    found = msgspec.convert(kept["found"], Clusters) if kept else None
    all_ = [*found.clusters, *filter(None, [found.singles])] if found else []
    one = next((each for each in all_ if each.id == id), None)
    if one is None:
        raise UnknownName("cluster", id, [each.id for each in all_])
    time = datetime.fromtimestamp(desk.now(), UTC).isoformat()
    with tempfile.TemporaryDirectory(prefix="ragfault-") as folder:
        run = export(desk.store, Wanted(ids=one.members), Path(folder, "live"))
        there = [trace.id for trace in run.traces()]
        made = cases(run, there, time, {"id": one.id, "name": one.name})
        promote(made, desk.settings.files / "promoted.jsonl")


# --- runs ------------------------------------------------------------------------------------------


@forms.post("/runs")
async def make_run(request: Request, fields: Fields = Filled) -> Response:
    """Export a selection as a run of the folder, or take a run of the folder into the store."""
    name, deed = fields.get("name", ""), fields.get("deed")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f'"{name[:60]}" cannot be the name of a run. Use letters, digits, dots, dashes, underlines.'
        )

    def work(desk: Desk) -> None:
        if deed == "export":
            export(desk.store, selection(list(fields.items())), desk.settings.runs / name)
        elif deed == "import":
            import_run(
                desk.store, run_at(desk, name), by=desk.settings.by, prefix=fields.get("prefix", "")[:80]
            )
        else:
            raise UsageError("a run is exported or imported.")

    return await _done(request, work, "/runs")
