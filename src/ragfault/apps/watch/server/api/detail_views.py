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
from msgspec.structs import asdict, replace
from starlette.exceptions import HTTPException

from ragfault.apps.watch.monitoring.alert_rules import DEFAULT_RULES, SEVERITIES, AlertRule, load_rules
from ragfault.apps.watch.monitoring.alerts import Alert
from ragfault.apps.watch.monitoring.change_detection import FaultLocation, locate_fault
from ragfault.apps.watch.monitoring.windows import DAY_MINUTES, build_series
from ragfault.apps.watch.server.api import traffic_views
from ragfault.apps.watch.server.api.verdict_view import compare_labels
from ragfault.apps.watch.server.state import ServerState
from ragfault.apps.watch.server.storage.records import StoreTotals, TraceSelection
from ragfault.http.hosting import TimeRange, parse_route
from ragfault.io.runs.run import Run
from ragfault.judges.calibration import JudgeCalibration, read_calibration
from ragfault.judges.cards.card import JudgeCard, list_cards, load_card
from ragfault.labels.reading.lines import LabelLine
from ragfault.metrics.catalog import get_definitions
from ragfault.model.errors import UnknownName, UsageError
from ragfault.stats.intervals import wilson_interval
from ragfault.text.number_format import format_number
from ragfault.text.times import assume_utc

if TYPE_CHECKING:
    from ragfault.diagnosis.clusters.records import Cluster, ClusterReport


# the setting that holds saved selections by name
VIEWS_SETTING = "views"

# the setting that holds the latest clusters and their registry
CLUSTERS_SETTING = "clusters"

# latest labelled traces that the page of the judge covers
MAX_LABELED_TRACES = 500

# latest labels among which these are
MAX_LABELS = 5000

# traces of a cluster that its views list
MAX_MEMBERS = 200


class WindowComparison(Struct, frozen=True, kw_only=True):
    """Comparison of two windows of one route: which layer changed."""

    route: str | None
    before: tuple[int, int]
    """First minute and end (exclusive) of the window."""
    after: tuple[int, int]
    blame: FaultLocation


def compare_requested_windows(server: ServerState, ends: Sequence[str], route: str | None) -> WindowComparison:
    """Compare the windows that four times (from, to, from, to) delimit. Raises UsageError for an invalid time."""
    minutes = [math.floor((parse_selection([("since", text)]).since or 0) / 60) for text in ends]
    first, second = (minutes[0], minutes[1]), (minutes[2], minutes[3])
    return compare_windows(server, parse_route(route) or None, first, second)


def compare_windows(
    server: ServerState, route: str | None, before: tuple[int, int], after: tuple[int, int]
) -> WindowComparison:
    """Compare two windows of a route. Raises UsageError for empty windows, and for windows over 90 days apart."""
    for name, (first, last) in (("first", before), ("second", after)):
        if first >= last:
            raise UsageError(f"the {name} window ends before it begins. Give it a later end.")
    low, high = min(before[0], after[0]), max(before[1], after[1])
    if high - low > 90 * DAY_MINUTES:
        raise UsageError("two windows lie within 90 days of each other here. Export both as runs, and bisect these.")
    grain = max(1, (high - low) // (4 * DAY_MINUTES))
    series = build_series(server.store.read_rollups(low, high, route=route or "", grain=grain))
    blame = locate_fault(series, server.measures, route, before, after)
    return WindowComparison(route=route, before=before, after=after, blame=blame)


# minutes since 1970 that the store can hold end before this one
MAX_MINUTE = 2**31


def parse_selection(fields: Sequence[tuple[str, str]]) -> TraceSelection:
    """Parse a selection from form fields; empty fields select everything. Raises UsageError.

    >>> selection = parse_selection([("route", "-"), ("text", ""), ("since", "1970-01-01T00:01"), ("low", "0.5")])
    >>> selection.route, selection.text, selection.since, selection.low
    ('', None, 60.0, 0.5)
    """
    selected: dict[str, Any] = {}
    for name, text in fields:
        if not text.strip() or name not in TraceSelection.__struct_fields__:
            continue
        if name == "ids":
            selected[name] = (*selected.get(name, ()), text)
        else:
            selected[name] = _parse_time(text) if name in ("since", "until") else text
    if "route" in selected:
        selected["route"] = parse_route(selected["route"])
    try:
        return msgspec.convert(selected, TraceSelection, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"this selection cannot be read: {error}.") from None


def check_metrics(server: ServerState, selection: TraceSelection) -> TraceSelection:
    """Return a selection whose metrics the store or the catalogue knows. Raises HTTPException (400) for another."""
    known = server.measures.keys() | get_definitions().keys()
    for name in (selection.metric, None if selection.sort == "time" else selection.sort):
        if name is not None and name not in known:
            raise HTTPException(400, str(UnknownName("metric", name, sorted(known))))
    return selection


def parse_range(server: ServerState, query: Mapping[str, str], longest: int = 366 * DAY_MINUTES) -> TimeRange:
    """Parse the parameters `since` and `until`, or `window` in minutes up to now. Raises UsageError.

    `since` alone reaches up to now, and `until` alone back by a day. A window of two days or more begins and ends at
    full hours.
    """
    text = query.get("window") or str(DAY_MINUTES)
    since, until = query.get("since"), query.get("until")
    size = int(text[:20]) if text.isascii() and text.isdigit() else 0
    if not since and not until:
        last = server.next_minute
    else:
        last = math.ceil(_parse_time(until) / 60) if until else server.next_minute
        size = last - math.floor(_parse_time(since) / 60) if since else size
    # the links of a long window begin and end at full hours
    most = longest + 60 if since else longest
    if not 1 <= size <= most or not 0 <= last < MAX_MINUTE:
        raise UsageError(f"a window is 1 to {longest:,} minutes, and ends after it begins; got {size:,}.")
    # no minute that was chosen is left out
    if size >= traffic_views.LONG_WINDOW:
        first, last = last - size, traffic_views.align_end(last, size)
        size = traffic_views.align_end(last - first, size) if since or until else size
    return TimeRange(size, last, bool(since or until))


def _parse_time(text: str) -> float:
    """Parse seconds since 1970 or an ISO time (UTC unless stated) into seconds."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(f'"{text[:40]}" is not a time. Write it as 2031-05-04T09:30, in UTC.') from None
        seconds = assume_utc(moment).timestamp()
    if not math.isfinite(seconds):
        raise UsageError(f'"{text[:40]}" is not a time. Write it as 2031-05-04T09:30, in UTC.')
    return seconds


def open_run(server: ServerState, name: str) -> Run:
    """Open a run of the store's folder. Raises UnknownName for an unknown name."""
    known = [line.name for line in traffic_views.list_runs(server)]
    if name not in known:
        raise UnknownName("run", name, known, hint="Export traces, and it is there.")
    return Run.open(server.settings.runs_folder / name)


def get_latest_judge(server: ServerState) -> str | None:
    """Return the judge of the latest judged trace; scores of different judges are not comparable."""
    for line in server.store.list_traces(TraceSelection(limit=1, state="scored")).lines:
        stored = server.store.get_trace(line.id)
        if stored is not None and stored.verdicts is not None:
            return stored.verdicts.judge
    return None


STATUS_ORDER = ("firing", "pending", "resolved")


def sort_alerts(alerts: Iterable[Alert]) -> list[Alert]:
    """Sort alerts by status, firing first, then by severity."""

    def order(alert: Alert) -> tuple[int, int, float]:
        return STATUS_ORDER.index(alert.status), SEVERITIES.index(alert.rule.severity), alert.since

    return sorted(alerts, key=order)


def describe_event(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Describe the fields of an event that its row does not show, as names and texts.

    >>> describe_event({"rule": "DROP", "value": 0.25, "since": 60.0, "layer": "retrieval", "remedies": []})
    [('value', '0.250'), ('since', '1970-01-01 00:01 UTC'), ('layer', 'retrieval')]
    """
    described = []
    for name, value in body.items():
        if name in HIDDEN_FIELDS or value in (None, "", (), []):
            continue
        if name in ("since", "onset", "until") and isinstance(value, float):
            text = f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M} UTC"
        elif isinstance(value, float):
            text = format_number(value)
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        described.append((name, text))
    return described


HIDDEN_FIELDS = ("kind", "rule", "severity", "metric", "route", "time", "traces", "title")
"""Fields of an event that its row or its alert shows already."""


class ClustersView(Struct, frozen=True, kw_only=True):
    """The latest clusters of failing traces."""

    install_hint: str | None = None
    """The command that installs the missing extra; None: nothing is missing."""
    time: float | None = None
    """Time of the clustering; None: never."""
    since: float | None = None
    """Start of the clustered traffic."""
    clusters: Any = None
    """A `diagnosis.clusters.records.ClusterReport` with a page of its clusters, and at most 200 members of each."""
    next: str | None = None
    """`after` of the next page of clusters; None on the last page."""
    promoted: int = 0
    """Cases in the evaluation set of the store."""


def load_clusters(server: ServerState, after: str = "", limit: int = traffic_views.PAGE_LINES) -> ClustersView:
    """Load a page of the latest clusters: `limit` of them, behind the one with the id `after`.

    Failures that are in no cluster are on the last page. Raises UnknownName for an id that is of no cluster.
    """
    missing = "pip install 'ragfault[cluster]'" if find_spec("sklearn") is None else None
    saved: Mapping[str, Any] = server.store.read_setting(CLUSTERS_SETTING, {})
    path = server.settings.data_folder / "promoted.jsonl"
    promoted = path.read_bytes().count(b"\n") if path.is_file() else 0
    if not saved:
        return ClustersView(install_hint=missing, promoted=promoted)
    report = _decode_clusters(saved)
    ids = [cluster.id for cluster in report.clusters]
    if after and after not in ids:
        raise UnknownName("cluster", after, ids, hint="The clusters may have been made anew.")
    first = ids.index(after) + 1 if after else 0
    page, is_last = report.clusters[first : first + limit], first + limit >= len(ids)
    shown = replace(
        report,
        clusters=tuple(map(_bound_cluster, page)),
        ungrouped=_bound_cluster(report.ungrouped) if is_last and report.ungrouped is not None else None,
        gone=report.gone[: traffic_views.PAGE_LINES],
    )
    times = {name: saved[name] for name in ("time", "since")}
    return ClustersView(
        install_hint=missing, clusters=shown, next=None if is_last else page[-1].id, promoted=promoted, **times
    )


def _bound_cluster(cluster: Cluster) -> Cluster:
    """Return a cluster without what only recognises it, and with MAX_MEMBERS members."""
    return replace(
        cluster, members=cluster.members[:MAX_MEMBERS], failure_keys=(), centroid=(), terms={}, words=cluster.words[:50]
    )


def _decode_clusters(saved: Mapping[str, Any]) -> ClusterReport:
    from ragfault.diagnosis.clusters.records import ClusterRegistry, ClusterReport
    from ragfault.diagnosis.clusters.registry import apply_registry

    registry = msgspec.convert(saved["registry"], ClusterRegistry)
    return apply_registry(msgspec.convert(saved["found"], ClusterReport), registry)


def list_trace_clusters(server: ServerState, trace: str) -> list[tuple[str, str]]:
    """List id and name of the clusters that contain a trace."""
    saved: Mapping[str, Any] = server.store.read_setting(CLUSTERS_SETTING, {})
    if not saved:
        return []
    return [(cluster.id, cluster.name) for cluster in _decode_clusters(saved).clusters if trace in cluster.members]


class VerdictAgreement(Struct, frozen=True, kw_only=True):
    """Agreement of human labels with one kind of verdict."""

    part: str
    agreed: int
    n: int
    low: float
    high: float
    """Limits of Wilson's 95 % interval of the share."""


class JudgeView(Struct, frozen=True, kw_only=True):
    """The judge of this server: its card, and its agreement with human labels."""

    judge: str
    profile: str
    card: JudgeCard | None
    """None where it was never measured, and where it is calibrated: the card is of the judge as it comes."""
    calibration: JudgeCalibration | None = None
    """Calibration that is applied to its verdicts."""
    labels: int
    agreement: tuple[VerdictAgreement, ...]


def load_judge_view(server: ServerState) -> JudgeView:
    """Load the card of the server's judge and its agreement with labels."""
    name = server.settings.judge.partition(":")[0]
    labels = server.store.read_labels(limit=MAX_LABELS)
    path = server.settings.calibration
    return JudgeView(
        judge=server.settings.judge,
        profile=server.settings.profile,
        card=load_card(name) if name in list_cards() and path is None else None,
        calibration=None if path is None else replace(read_calibration(path), source=()),
        labels=server.store.count_labels(),
        agreement=tuple(_measure_agreement(server, labels)),
    )


def _measure_agreement(server: ServerState, labels: Sequence[LabelLine]) -> Iterable[VerdictAgreement]:
    """Yield the share of verdicts that labels confirm, by kind."""
    agreed: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for name in list(dict.fromkeys(label.trace for label in reversed(labels)))[:MAX_LABELED_TRACES]:
        stored = server.store.get_trace(name)
        if stored is None:
            continue
        for (part, _), word in compare_labels(stored, [label for label in labels if label.trace == name]).items():
            totals[part] += 1
            agreed[part] += word == "agreed"
    for part in sorted(totals):
        low, high = wilson_interval(agreed[part], totals[part])
        yield VerdictAgreement(part=part, agreed=agreed[part], n=totals[part], low=low, high=high)


class SettingsView(Struct, frozen=True, kw_only=True):
    """Settings of the server without secrets, its counts, tokens and rules."""

    settings: dict[str, Any]
    totals: StoreTotals
    counts: dict[str, int]
    """Counts since the server started."""
    unread: dict[str, int]
    """Path of records and spans that no field takes → how many had something there since the start; of spans a part."""
    tokens: tuple[str, ...]
    """Names of the tokens of the store; admins list them with `/tokens.json`."""
    rules: tuple[AlertRule, ...]


SECRET_SETTINGS = ("check_options", "otlp_headers", "redact_key", "secret", "smtp_password", "token", "webhook")
"""Settings whose values are never shown."""

_URL_SECRETS = re.compile(r"(?<=://)[^/\s]*@|[?#].*")
"""User, password and query of a URL, which may be secret."""


def load_settings(server: ServerState) -> SettingsView:
    """Load the settings without secrets."""
    shown = {
        name: ("set" if value else None)
        if name in SECRET_SETTINGS
        else _URL_SECRETS.sub("…", str(value))
        if isinstance(value, str | Path)
        else value
        for name, value in asdict(server.settings).items()
    }
    shown["limits"] = asdict(server.settings.limits)
    rules = DEFAULT_RULES if server.settings.rules is None else load_rules(server.settings.rules)
    return SettingsView(
        settings=shown,
        totals=server.store.compute_totals(),
        counts=server.counters.totals,
        unread=server.unread.paths,
        tokens=tuple(token.name for token in server.store.read_tokens()),
        rules=tuple(rules),
    )
