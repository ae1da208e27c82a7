"""Views of decisions on live traffic: of guards, with what human labels say of blocks, and of an adaptive policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct

from ragfault.apps.guard.decisions import GUARD_FIELD, parse_decisions
from ragfault.apps.guard.rates import GuardedRequest, GuardRates, compute_guard_rates
from ragfault.apps.tune.adaptation.off_policy import read_decisions
from ragfault.apps.tune.adaptation.policy import load_policy
from ragfault.apps.tune.adaptation.records import AdaptivePolicy, LoggedDecision, RouteShares
from ragfault.apps.watch.server.api.traffic_views import RouteView, TimeRange
from ragfault.apps.watch.server.state import ServerState
from ragfault.apps.watch.server.storage.records import TraceSelection
from ragfault.io.otel.guard_events import MAX_DECISIONS
from ragfault.labels.reading.human_labels import group_labels, rate_labelled_answer
from ragfault.model.errors import InputError
from ragfault.model.records import Trace
from ragfault.stats.intervals import Interval, mean_interval

MAX_REQUESTS = 20_000  # latest traces of the window that are read
MAX_LABELS = 1_000  # held-back answers with a label that are compared with it
FRESH_SECONDS = 20.0  # seconds for which computed rates are shown again


class GuardView(RouteView, frozen=True, kw_only=True):
    """Decisions of guards within a window."""

    traces: int
    """Traces of the window, with a decision or without."""
    checked: int
    """Latest traces of them, whose decisions are counted."""
    rates: GuardRates


class _Metadata(Struct, frozen=True):
    guard_decisions: list[Any] = []


class _GuardedBody(Struct, frozen=True):
    """The part of a stored trace that holds its decisions."""

    id: str
    route: str | None = None
    metadata: _Metadata = _Metadata()


def load_guard(server: ServerState, route: str | None, times: TimeRange) -> GuardView:
    """Load the rates of a range of time; those of a fixed one are not renewed."""
    window, until, is_fixed = times
    selection = TraceSelection(since=60.0 * (until - window), until=60.0 * until, route=route)

    def compute() -> tuple[int, GuardRates]:
        total = server.store.count_traces(selection)
        requests = _load_requests(server, selection)
        return total, compute_guard_rates(requests, _load_labels(server, requests))

    name = f"guard {route!r} {window} {until if is_fixed else ''}"
    total, rates = server.get_cached(name, compute, FRESH_SECONDS)
    return GuardView(
        now=server.now(),
        window=window,
        until=until,
        route=route,
        traces=total,
        checked=min(total, MAX_REQUESTS),
        rates=rates,
    )


def _load_requests(server: ServerState, selection: TraceSelection) -> list[GuardedRequest]:
    """Load the requests with a decision among the latest traces of a selection."""
    decoder = msgspec.json.Decoder(_GuardedBody)
    requests = []
    for body in server.store.iterate_bodies(selection, f'"{GUARD_FIELD}":[', MAX_REQUESTS):
        try:
            record = decoder.decode(body)
        except msgspec.MsgspecError:
            continue  # metadata of that name that is no list of decisions
        decisions = parse_decisions(record.metadata.guard_decisions[:MAX_DECISIONS])
        if decisions:
            requests.append(GuardedRequest(record.id, record.route, decisions))
    return requests


def _load_labels(server: ServerState, requests: Sequence[GuardedRequest]) -> dict[str, bool]:
    """Return of held-back answers whether labels call them bad, where all claims of that very answer were reviewed."""
    labels = group_labels(server.store.read_labels())
    bad: dict[str, bool] = {}
    for request in requests:
        answers = {decision.answer for decision in request.decisions if decision.outcome == "block"} - {None}
        mine = labels.get(request.id, [])
        stored = server.store.get_trace(request.id) if mine and answers and len(bad) < MAX_LABELS else None
        if stored is None or stored.verdicts is None or stored.verdicts.claim is None:
            continue
        rating = rate_labelled_answer(mine, len(stored.verdicts.claim), answers)
        if rating is not None:
            bad[request.id] = rating
    return bad


class RouteRewards(Struct, frozen=True, kw_only=True):
    """Policy on a route, and the rewards of its decisions within a window."""

    policy: RouteShares
    all: Interval | None
    """Mean reward of all its decisions, with a 95 % interval; None without one."""
    arms: dict[str, Interval]


class AdaptationView(Struct, frozen=True, kw_only=True):
    """Policy of the file that the server shows."""

    now: float
    version: int
    """0: the server was started without a policy."""
    earlier: tuple[RouteShares, ...] | None
    """The policy before it; None where the file holds none."""
    routes: tuple[RouteRewards, ...]


def load_adaptation(server: ServerState, times: TimeRange) -> AdaptationView:
    """Load the policy, and the rewards of a range of time."""
    path = server.settings.policy
    policy = AdaptivePolicy(routes=(), version=0) if path is None else load_policy(path)
    window, until, is_fixed = times
    selection = TraceSelection(since=60.0 * (until - window), until=60.0 * until)
    name = f"adaptation {window} {until if is_fixed else ''}"
    decisions = server.get_cached(name, lambda: _load_decisions(server, selection), FRESH_SECONDS)
    return AdaptationView(
        now=server.now(),
        version=policy.version,
        earlier=None if policy.previous is None else policy.previous.routes,
        routes=tuple(_average(route, decisions) for route in policy.routes),
    )


def _load_decisions(server: ServerState, selection: TraceSelection) -> list[LoggedDecision]:
    """Load the decisions with a reward among the latest traces; a wrong propensity or reward is none."""
    decisions = []
    for body in server.store.iterate_bodies(selection, '"propensity":', MAX_REQUESTS):
        try:
            decisions += read_decisions([msgspec.json.decode(body, type=Trace)])[0]
        except (InputError, msgspec.MsgspecError):
            continue
    return decisions


def _average(policy: RouteShares, decisions: Iterable[LoggedDecision]) -> RouteRewards:
    rewards: dict[str, list[float]] = {}
    for row in decisions:
        if row.route == policy.route:
            rewards.setdefault(row.arm, []).append(row.reward)
    arms = {arm: mean_interval(values, bounds=(0, 1)) for arm, values in rewards.items()}
    total = mean_interval([*chain(*rewards.values())], bounds=(0, 1)) if rewards else None
    return RouteRewards(policy=policy, all=total, arms=arms)
