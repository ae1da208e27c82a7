"""What the pages of the dashboard show beside the views that every reader has: two windows, clusters, judge."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from ragfault.cards import Card, known_cards, load_card
from ragfault.errors import UnknownName, UsageError
from ragfault.findings.alerting import Alarm
from ragfault.findings.alerting_rules import RULES, SEVERITIES, Rule, load_rules
from ragfault.findings.monitoring_blaming import Blame, blame
from ragfault.findings.monitoring_windows import DAY, series
from ragfault.report.markup import number
from ragfault.runs import Run
from ragfault.runs.labels import Label
from ragfault.server import views
from ragfault.server.dashboard_reading import spoken
from ragfault.server.desk import Desk
from ragfault.stats.intervals import wilson
from ragfault.store import Event, Role, Totals, Wanted

if TYPE_CHECKING:
    from ragfault.clustering import Clusters, Registry

__all__ = [
    "CLUSTERS",
    "VIEWS",
    "Agreement",
    "Compared",
    "Grouped",
    "Judged",
    "Kept",
    "clusters_of",
    "compare",
    "details",
    "gravest",
    "grouped",
    "judge",
    "last_judge",
    "run_at",
    "selection",
    "settings",
    "told",
]

VIEWS = "views"
"""The setting that holds selections of traces by name."""

CLUSTERS = "clusters"
"""The setting that holds the clusters that were found last, and what is remembered of all."""

LABELLED = 500
"""Labelled traces that the page of the judge looks at, the latest."""

# --- two windows -----------------------------------------------------------------------------------


class Compared(Struct, frozen=True, kw_only=True):
    """Two windows of one route beside each other: which layer moved."""

    route: str | None
    before: tuple[int, int]
    """From a minute to before another."""
    after: tuple[int, int]
    blame: Blame


def compare(desk: Desk, route: str | None, before: tuple[int, int], after: tuple[int, int]) -> Compared:
    """Hold two windows of a route against each other. Raises UsageError for windows without length."""
    for name, (first, last) in (("first", before), ("second", after)):
        if first >= last:
            raise UsageError(f"the {name} window ends before it begins. Give it a later end.")
    low, high = min(before[0], after[0]), max(before[1], after[1])
    if high - low > 90 * DAY:
        raise UsageError(
            "two windows lie within 90 days of each other here. Export both as runs, and bisect these."
        )
    grain = max(1, (high - low) // (4 * DAY))
    found = series(desk.store.rollups(low, high, route=route or "", grain=grain))
    measures = {measure.name: measure for measure in desk.store.measures()}
    return Compared(
        route=route, before=before, after=after, blame=blame(found, measures, route, before, after)
    )


# --- selections ------------------------------------------------------------------------------------

NUMBERS = ("low", "high", "limit")
UNROUTED = "-"
"""What a form says for traces that name no route."""


def selection(asked: Sequence[tuple[str, str]]) -> Wanted:
    """The selection that the fields of a form ask for; empty fields ask for nothing. Raises UsageError.

    >>> found = selection([("route", "-"), ("text", ""), ("since", "1970-01-01T00:01"), ("low", "0.5")])
    >>> found.route, found.text, found.since, found.low
    ('', None, 60.0, 0.5)
    """
    found: dict[str, Any] = {}
    for name, text in asked:
        if not text.strip() or name not in Wanted.__struct_fields__:
            continue
        if name == "ids":
            found[name] = (*found.get(name, ()), text)
        else:
            found[name] = _time(text) if name in ("since", "until") else text
    if found.get("route") == UNROUTED:
        found["route"] = ""
    try:
        return msgspec.convert(found, Wanted, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"this selection cannot be read: {error}.") from None


def _time(text: str) -> float:
    """Seconds since 1970 from a number, or from a day and a time of day in UTC."""
    try:
        made = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(f'"{text[:40]}" is no time. Write it as 2031-05-04T09:30, in UTC.') from None
        made = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(made):
        raise UsageError(f'"{text[:40]}" is no time. Write it as 2031-05-04T09:30, in UTC.')
    return made


# --- runs ------------------------------------------------------------------------------------------


def run_at(desk: Desk, name: str) -> Run:
    """A run of the folder of the store. Raises UnknownName for a name that is none."""
    known = [line.name for line in views.runs(desk)]
    if name not in known:
        raise UnknownName("run", name, known, hint="Export traces, and it is there.")
    return Run.open(desk.settings.runs / name)


def last_judge(desk: Desk) -> str | None:
    """The judge of the trace that was judged last in time: figures of several judges do not go together."""
    for line in desk.store.find(Wanted(limit=1, state="scored")).lines:
        whole = desk.store.trace(line.id)
        if whole is not None and whole.verdicts is not None:
            return whole.verdicts.judge
    return None


# --- alerts ----------------------------------------------------------------------------------------


STATUSES = ("firing", "pending", "resolved")


def gravest(alarms: Iterable[Alarm]) -> list[Alarm]:
    """Alerts in the order in which they are looked at: those that fire first, the most severe first."""

    def order(each: Alarm) -> tuple[int, int, float]:
        return STATUSES.index(each.status), SEVERITIES.index(each.rule.severity), each.since

    return sorted(alarms, key=order)


def details(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What an event says beyond what names it, in words.

    >>> details({"rule": "DROP", "value": 0.25, "since": 60.0, "layer": "retrieval", "remedies": []})
    [('value', '0.25'), ('since', '1970-01-01 00:01 UTC'), ('layer', 'retrieval')]
    """
    found = []
    for name, value in body.items():
        if name in NAMING or value in (None, "", (), []):
            continue
        if name in ("since", "began", "until") and isinstance(value, float):
            text = f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M} UTC"
        elif isinstance(value, float):
            text = number(value)
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        found.append((name, text))
    return found


NAMING = ("kind", "rule", "severity", "metric", "route", "time", "blamed", "traces", "remedies", "suspects")
"""What an event says that its line says already, or that stands with the alert."""


def told(events: tuple[Event, ...]) -> dict[str, dict[str, Any]]:
    """What was last told of each alert: the layer that the decision tree names, and what to do."""
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        if event.kind in ("firing", "reminder"):
            found.setdefault(event.alert, event.body)
    return found


# --- clusters --------------------------------------------------------------------------------------


class Grouped(Struct, frozen=True, kw_only=True):
    """The clusters of failing traces that were found last."""

    missing: str | None = None
    """What has to be installed first, in words; None: nothing."""
    time: float | None = None
    """When they were looked for; None: never."""
    since: float | None = None
    """Of traces since then."""
    found: Any = None
    """The clusters, as `ragfault.clustering.Clusters`."""
    registry: Any = None
    """What is remembered of them, as `ragfault.clustering.Registry`."""
    promoted: int = 0
    """Cases in the evaluation set of the store."""


def grouped(desk: Desk) -> Grouped:
    """The clusters that were found last."""
    missing = "pip install 'ragfault[cluster]'" if find_spec("sklearn") is None else None
    kept: Mapping[str, Any] = desk.store.setting(CLUSTERS, {})
    path = desk.settings.files / "promoted.jsonl"
    many = path.read_bytes().count(b"\n") if path.is_file() else 0
    if not kept:
        return Grouped(missing=missing, promoted=many)
    found, registry = _shown(kept)
    return Grouped(
        missing=missing,
        time=kept["time"],
        since=kept["since"],
        found=found,
        registry=registry,
        promoted=many,
    )


def _shown(kept: Mapping[str, Any]) -> tuple[Clusters, Registry]:
    from ragfault.clustering import Clusters, Registry
    from ragfault.clustering.registering import shown_as

    registry = msgspec.convert(kept["registry"], Registry)
    return shown_as(msgspec.convert(kept["found"], Clusters), registry), registry


def clusters_of(desk: Desk, trace: str) -> list[tuple[str, str]]:
    """Id and name of the clusters that a trace is in."""
    kept: Mapping[str, Any] = desk.store.setting(CLUSTERS, {})
    if not kept:
        return []
    found, _ = _shown(kept)
    return [(each.id, each.name) for each in found.clusters if trace in each.members]


# --- the judge -------------------------------------------------------------------------------------


class Agreement(Struct, frozen=True, kw_only=True):
    """How often people agreed with one kind of verdict."""

    part: str
    agreed: int
    n: int
    low: float
    high: float
    """The ends of Wilson's 95 % interval of the share."""


class Judged(Struct, frozen=True, kw_only=True):
    """The judge of this server: its card, and what people here said of its verdicts."""

    judge: str
    lens: str
    card: Card | None
    """None where it was never measured."""
    labels: int
    agreement: tuple[Agreement, ...]


def judge(desk: Desk) -> Judged:
    """What is known of the judge of this server."""
    name = desk.settings.judge.partition(":")[0]
    labels = desk.store.labels()
    return Judged(
        judge=desk.settings.judge,
        lens=desk.settings.lens,
        card=load_card(name) if name in known_cards() else None,
        labels=len(labels),
        agreement=tuple(_agreement(desk, labels)),
    )


def _agreement(desk: Desk, labels: Sequence[Label]) -> Iterable[Agreement]:
    """The share of verdicts that people agreed to, by part."""
    agreed: Counter[str] = Counter()
    all_: Counter[str] = Counter()
    for name in list(dict.fromkeys(each.trace for each in reversed(labels)))[:LABELLED]:
        whole = desk.store.trace(name)
        if whole is None:
            continue
        for (part, _), word in spoken(whole, [each for each in labels if each.trace == name]).items():
            all_[part] += 1
            agreed[part] += word == "agreed"
    for part in sorted(all_):
        low, high = wilson(agreed[part], all_[part])
        yield Agreement(part=part, agreed=agreed[part], n=all_[part], low=low, high=high)


# --- settings --------------------------------------------------------------------------------------


class Named(Struct, frozen=True, kw_only=True):
    """A token as it may be shown."""

    name: str
    role: Role
    created: float


class Kept(Struct, frozen=True, kw_only=True):
    """What this server was told when it started, without anything secret."""

    settings: dict[str, Any]
    totals: Totals
    counts: dict[str, int]
    """What was refused, dropped, sent since the server began."""
    tokens: tuple[Named, ...]
    rules: tuple[Rule, ...]


SECRET = ("asking", "otlp_headers", "redact_key", "secret", "smtp_password", "token", "webhook")
"""What is never shown."""

_INSIDE = re.compile(r"(?<=://)[^/\s]*@|[?#].*")
"""Of an address: who asks, by which password, and what else may open a door."""


def settings(desk: Desk) -> Kept:
    """What this server was told."""
    told = {
        name: ("set" if value else None)
        if name in SECRET
        else _INSIDE.sub("…", str(value))
        if isinstance(value, str | Path)
        else value
        for name, value in asdict(desk.settings).items()
    }
    told["limits"] = asdict(desk.settings.limits)
    rules = RULES if desk.settings.rules is None else load_rules(desk.settings.rules)
    return Kept(
        settings=told,
        totals=desk.store.totals(),
        counts=desk.tallies.total,
        tokens=tuple(
            Named(name=each.name, role=each.role, created=each.created) for each in desk.store.tokens()
        ),
        rules=tuple(rules),
    )
