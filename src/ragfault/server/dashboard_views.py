"""What the pages of the dashboard show beside the views that every reader has: layers, windows, clusters, judge."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from ragfault.cards import Card, known_cards, load_card
from ragfault.errors import UsageError
from ragfault.findings.alerting_rules import RULES, Rule, load_rules
from ragfault.findings.health import PARTS
from ragfault.findings.monitoring_blaming import Blame, blame
from ragfault.findings.monitoring_windows import DAY, series
from ragfault.records import Layer
from ragfault.runs.labels import Label
from ragfault.server.dashboard_reading import spoken
from ragfault.server.desk import Desk
from ragfault.server.views import Moved
from ragfault.stats.intervals import wilson
from ragfault.store import Role, Totals, Wanted

if TYPE_CHECKING:
    from ragfault.clustering import Clusters, Registry

__all__ = [
    "CLUSTERS",
    "Agreement",
    "Compared",
    "Grouped",
    "Judged",
    "Kept",
    "Standing",
    "clusters_of",
    "compare",
    "grouped",
    "judge",
    "selection",
    "settings",
    "standing",
    "stirred",
]

CLUSTERS = "clusters"
"""The setting that holds the clusters that were found last, and what is remembered of all."""

LABELLED = 500
"""Labelled traces that the page of the judge looks at, the latest."""

PARTS_OF: dict[Layer, tuple[str, ...]] = {
    **{layer: parts for _, layer, parts in PARTS},
    "crosscut": ("triad",),
    "operation": ("latency",),
}
"""What stands for each layer on the first page; the first two have a health made of them."""


# --- layers ----------------------------------------------------------------------------------------


class Standing(Struct, frozen=True, kw_only=True):
    """A mean over all routes, and how it moved."""

    mean: float
    low: float | None
    high: float | None
    n: int
    delta: float | None = None
    delta_low: float | None = None
    delta_high: float | None = None


def standing(moved: Iterable[Moved], metrics: Sequence[str], window: int) -> Standing | None:
    """The mean of some metrics' means over all routes in a window; None where no one has a value.

    Routes count by their values and are taken as independent; the metrics count alike and are taken as moving
    together, so that the interval is, if anything, too wide.
    """
    found = [each for each in moved if each.window == window and each.mean is not None and each.n]
    parts = [_pooled([each for each in found if each.metric == name]) for name in metrics]
    known = [each for each in parts if each is not None]
    if not known:
        return None
    return Standing(
        mean=_mean([each.mean for each in known]) or 0.0,
        low=_mean([each.low for each in known]),
        high=_mean([each.high for each in known]),
        n=max(each.n for each in known),
        delta=_mean([each.delta for each in known]),
        delta_low=_mean([each.delta_low for each in known]),
        delta_high=_mean([each.delta_high for each in known]),
    )


def _pooled(routes: Sequence[Moved]) -> Standing | None:
    """One metric over its routes."""
    if not routes:
        return None
    n = sum(each.n for each in routes)
    share = [each.n / n for each in routes]
    mean = sum(part * (each.mean or 0.0) for part, each in zip(share, routes, strict=True))
    low, high = _ends(mean, share, [(each.mean, each.low, each.high) for each in routes])
    there = [each for each in routes if each.delta is not None]
    size = sum(each.n for each in there)
    parts = [each.n / size for each in there]
    delta = (
        sum(part * (each.delta or 0.0) for part, each in zip(parts, there, strict=True)) if there else None
    )
    ends = _ends(delta or 0.0, parts, [(each.delta, each.delta_low, each.delta_high) for each in there])
    known = delta is not None
    return Standing(
        mean=mean, low=low, high=high, n=n, delta=delta,
        delta_low=ends[0] if known else None, delta_high=ends[1] if known else None,
    )  # fmt: skip


def _ends(
    mean: float, share: Sequence[float], parts: Sequence[tuple[float | None, float | None, float | None]]
) -> tuple[float | None, float | None]:
    """The ends of the interval of a weighted mean of independent parts; unknown where that of a part is."""
    if any(low is None or high is None for _, low, high in parts):
        return None, None
    down = math.sqrt(
        sum((w * ((m or 0) - (low or 0))) ** 2 for w, (m, low, _) in zip(share, parts, strict=True))
    )
    up = math.sqrt(
        sum((w * ((high or 0) - (m or 0))) ** 2 for w, (m, _, high) in zip(share, parts, strict=True))
    )
    return mean - down, mean + up


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None where a value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def stirred(moved: Iterable[Moved], most: int = 8) -> list[Moved]:
    """What certainly moved: differences whose interval leaves out zero, for the worse first, the surest first."""

    def sure(each: Moved) -> float:
        half = ((each.delta_high or 0.0) - (each.delta_low or 0.0)) / 2
        return abs(each.delta or 0.0) / half if half else math.inf

    found = [
        each
        for each in moved
        if each.delta_low is not None
        and each.delta_high is not None
        and (each.delta_low > 0 or each.delta_high < 0)
    ]
    return sorted(found, key=lambda each: (not _worse(each), -sure(each), each.metric))[:most]


def _worse(each: Moved) -> bool:
    return ((each.delta or 0.0) < 0) == (each.better == "higher")


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
    path = desk.settings.store / "promoted.jsonl"
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


SECRET = ("token", "secret", "webhook")
"""What is never shown."""


def settings(desk: Desk) -> Kept:
    """What this server was told."""
    told = {
        name: ("set" if value else None)
        if name in SECRET
        else str(value)
        if name in ("store", "rules")
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
