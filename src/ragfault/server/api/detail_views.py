"""Views of window comparisons, saved selections, clusters, the judge and the settings."""

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

from ragfault.analysis.monitoring.alert_rules import DEFAULT_RULES, SEVERITIES, AlertRule, load_rules
from ragfault.analysis.monitoring.alerts import Alert
from ragfault.analysis.monitoring.fault_location import FaultLocation, locate_fault
from ragfault.analysis.monitoring.windows import DAY_MINUTES, build_series
from ragfault.errors import UnknownName, UsageError
from ragfault.evaluation.agreement.human_labels import HumanLabel
from ragfault.io.runs import Run
from ragfault.judges.cards import JudgeCard, list_cards, load_card
from ragfault.server.api import traffic_views
from ragfault.server.api.verdict_view import compare_labels
from ragfault.server.state import ServerState
from ragfault.server.storage import AccessRole, AlertEvent, StoreTotals, TraceSelection
from ragfault.stats.intervals import wilson_interval
from ragfault.text.number_format import format_number

if TYPE_CHECKING:
    from ragfault.analysis.clusters import ClusterRegistry, ClusterReport


VIEWS_SETTING = "views"
"""The setting that holds selections of traces by name."""

CLUSTERS_SETTING = "clusters"
"""The setting that holds the clusters that were found last, and what is remembered of all."""

MAX_LABELED_TRACES = 500
"""Labelled traces that the page of the judge looks at, the latest."""

# --- two windows -----------------------------------------------------------------------------------


class WindowComparison(Struct, frozen=True, kw_only=True):
    """Two windows of one route beside each other: which layer moved."""

    route: str | None
    before: tuple[int, int]
    """From a minute to before another."""
    after: tuple[int, int]
    blame: FaultLocation


def compare_windows(
    server: ServerState, route: str | None, before: tuple[int, int], after: tuple[int, int]
) -> WindowComparison:
    """Hold two windows of a route against each other. Raises UsageError for windows without length."""
    for name, (first, last) in (("first", before), ("second", after)):
        if first >= last:
            raise UsageError(f"the {name} window ends before it begins. Give it a later end.")
    low, high = min(before[0], after[0]), max(before[1], after[1])
    if high - low > 90 * DAY_MINUTES:
        raise UsageError(
            "two windows lie within 90 days of each other here. Export both as runs, and bisect these."
        )
    grain = max(1, (high - low) // (4 * DAY_MINUTES))
    found = build_series(server.store.read_rollups(low, high, route=route or "", grain=grain))
    measures = {measure.name: measure for measure in server.store.read_measures()}
    return WindowComparison(
        route=route, before=before, after=after, blame=locate_fault(found, measures, route, before, after)
    )


# --- selections ------------------------------------------------------------------------------------

NUMBER_FIELDS = ("low", "high", "limit")
NO_ROUTE = "-"
"""What a form says for traces that name no route."""


def parse_selection(fields: Sequence[tuple[str, str]]) -> TraceSelection:
    """The selection that the fields of a form ask for; empty fields ask for nothing. Raises UsageError.

    >>> found = parse_selection([("route", "-"), ("text", ""), ("since", "1970-01-01T00:01"), ("low", "0.5")])
    >>> found.route, found.text, found.since, found.low
    ('', None, 60.0, 0.5)
    """
    found: dict[str, Any] = {}
    for name, text in fields:
        if not text.strip() or name not in TraceSelection.__struct_fields__:
            continue
        if name == "ids":
            found[name] = (*found.get(name, ()), text)
        else:
            found[name] = _parse_time(text) if name in ("since", "until") else text
    if found.get("route") == NO_ROUTE:
        found["route"] = ""
    try:
        return msgspec.convert(found, TraceSelection, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"this selection cannot be read: {error}.") from None


def _parse_time(text: str) -> float:
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


def open_run(server: ServerState, name: str) -> Run:
    """A run of the folder of the store. Raises UnknownName for a name that is none."""
    known = [line.name for line in traffic_views.list_runs(server)]
    if name not in known:
        raise UnknownName("run", name, known, hint="Export traces, and it is there.")
    return Run.open(server.settings.runs_folder / name)


def get_latest_judge(server: ServerState) -> str | None:
    """The judge of the trace that was judged last in time: figures of several judges do not go together."""
    for line in server.store.list_traces(TraceSelection(limit=1, state="scored")).lines:
        whole = server.store.get_trace(line.id)
        if whole is not None and whole.verdicts is not None:
            return whole.verdicts.judge
    return None


# --- alerts ----------------------------------------------------------------------------------------


STATUS_ORDER = ("firing", "pending", "resolved")


def sort_alerts(alarms: Iterable[Alert]) -> list[Alert]:
    """Alerts in the order in which they are looked at: those that fire first, the most severe first."""

    def order(each: Alert) -> tuple[int, int, float]:
        return STATUS_ORDER.index(each.status), SEVERITIES.index(each.rule.severity), each.since

    return sorted(alarms, key=order)


def describe_event(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What an event says beyond what names it, in words.

    >>> describe_event({"rule": "DROP", "value": 0.25, "since": 60.0, "layer": "retrieval", "remedies": []})
    [('value', '0.25'), ('since', '1970-01-01 00:01 UTC'), ('layer', 'retrieval')]
    """
    found = []
    for name, value in body.items():
        if name in HIDDEN_FIELDS or value in (None, "", (), []):
            continue
        if name in ("since", "began", "until") and isinstance(value, float):
            text = f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M} UTC"
        elif isinstance(value, float):
            text = format_number(value)
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        found.append((name, text))
    return found


HIDDEN_FIELDS = (
    "kind",
    "rule",
    "severity",
    "metric",
    "route",
    "time",
    "blamed",
    "traces",
    "remedies",
    "suspects",
)
"""What an event says that its line says already, or that stands with the alert."""


def collect_messages(events: tuple[AlertEvent, ...]) -> dict[str, dict[str, Any]]:
    """What was last told of each alert: the layer that the decision tree names, and what to do."""
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        if event.kind in ("firing", "reminder"):
            found.setdefault(event.alert, event.body)
    return found


# --- clusters --------------------------------------------------------------------------------------


class ClustersView(Struct, frozen=True, kw_only=True):
    """The clusters of failing traces that were found last."""

    install_hint: str | None = None
    """What has to be installed first, in words; None: nothing."""
    time: float | None = None
    """When they were looked for; None: never."""
    since: float | None = None
    """Of traces since then."""
    clusters: Any = None
    """The clusters, as `ragfault.analysis.clusters.ClusterReport`."""
    registry: Any = None
    """What is remembered of them, as `ragfault.analysis.clusters.ClusterRegistry`."""
    promoted: int = 0
    """Cases in the evaluation set of the store."""


def load_clusters(server: ServerState) -> ClustersView:
    """The clusters that were found last."""
    missing = "pip install 'ragfault[cluster]'" if find_spec("sklearn") is None else None
    kept: Mapping[str, Any] = server.store.read_setting(CLUSTERS_SETTING, {})
    path = server.settings.data_folder / "promoted.jsonl"
    many = path.read_bytes().count(b"\n") if path.is_file() else 0
    if not kept:
        return ClustersView(install_hint=missing, promoted=many)
    found, registry = _decode_clusters(kept)
    return ClustersView(
        install_hint=missing,
        time=kept["time"],
        since=kept["since"],
        clusters=found,
        registry=registry,
        promoted=many,
    )


def _decode_clusters(saved: Mapping[str, Any]) -> tuple[ClusterReport, ClusterRegistry]:
    from ragfault.analysis.clusters import ClusterRegistry, ClusterReport
    from ragfault.analysis.clusters.registry import apply_registry

    registry = msgspec.convert(saved["registry"], ClusterRegistry)
    return apply_registry(msgspec.convert(saved["found"], ClusterReport), registry), registry


def list_trace_clusters(server: ServerState, trace: str) -> list[tuple[str, str]]:
    """Id and name of the clusters that a trace is in."""
    kept: Mapping[str, Any] = server.store.read_setting(CLUSTERS_SETTING, {})
    if not kept:
        return []
    found, _ = _decode_clusters(kept)
    return [(each.id, each.name) for each in found.clusters if trace in each.members]


# --- the judge -------------------------------------------------------------------------------------


class VerdictAgreement(Struct, frozen=True, kw_only=True):
    """How often people agreed with one kind of verdict."""

    part: str
    agreed: int
    n: int
    low: float
    high: float
    """The ends of Wilson's 95 % interval of the share."""


class JudgeView(Struct, frozen=True, kw_only=True):
    """The judge of this server: its card, and what people here said of its verdicts."""

    judge: str
    profile: str
    card: JudgeCard | None
    """None where it was never measured."""
    labels: int
    agreement: tuple[VerdictAgreement, ...]


def load_judge_view(server: ServerState) -> JudgeView:
    """What is known of the judge of this server."""
    name = server.settings.judge.partition(":")[0]
    labels = server.store.read_labels()
    return JudgeView(
        judge=server.settings.judge,
        profile=server.settings.profile,
        card=load_card(name) if name in list_cards() else None,
        labels=len(labels),
        agreement=tuple(_measure_agreement(server, labels)),
    )


def _measure_agreement(server: ServerState, labels: Sequence[HumanLabel]) -> Iterable[VerdictAgreement]:
    """The share of verdicts that people agreed to, by part."""
    agreed: Counter[str] = Counter()
    all_: Counter[str] = Counter()
    for name in list(dict.fromkeys(each.trace for each in reversed(labels)))[:MAX_LABELED_TRACES]:
        whole = server.store.get_trace(name)
        if whole is None:
            continue
        for (part, _), word in compare_labels(whole, [each for each in labels if each.trace == name]).items():
            all_[part] += 1
            agreed[part] += word == "agreed"
    for part in sorted(all_):
        low, high = wilson_interval(agreed[part], all_[part])
        yield VerdictAgreement(part=part, agreed=agreed[part], n=all_[part], low=low, high=high)


# --- settings --------------------------------------------------------------------------------------


class TokenEntry(Struct, frozen=True, kw_only=True):
    """A token as it may be shown."""

    name: str
    role: AccessRole
    created: float


class SettingsView(Struct, frozen=True, kw_only=True):
    """What this server was told when it started, without anything secret."""

    settings: dict[str, Any]
    totals: StoreTotals
    counts: dict[str, int]
    """What was refused, dropped, sent since the server began."""
    tokens: tuple[TokenEntry, ...]
    rules: tuple[AlertRule, ...]


SECRET_SETTINGS = (
    "check_options",
    "otlp_headers",
    "redact_key",
    "secret",
    "smtp_password",
    "token",
    "webhook",
)
"""What is never shown."""

_URL_SECRETS = re.compile(r"(?<=://)[^/\s]*@|[?#].*")
"""Of an address: who asks, by which password, and what else may open a door."""


def load_settings(server: ServerState) -> SettingsView:
    """What this server was told."""
    told = {
        name: ("set" if value else None)
        if name in SECRET_SETTINGS
        else _URL_SECRETS.sub("…", str(value))
        if isinstance(value, str | Path)
        else value
        for name, value in asdict(server.settings).items()
    }
    told["limits"] = asdict(server.settings.limits)
    rules = DEFAULT_RULES if server.settings.rules is None else load_rules(server.settings.rules)
    return SettingsView(
        settings=told,
        totals=server.store.compute_totals(),
        counts=server.counters.totals,
        tokens=tuple(
            TokenEntry(name=each.name, role=each.role, created=each.created)
            for each in server.store.read_tokens()
        ),
        rules=tuple(rules),
    )
