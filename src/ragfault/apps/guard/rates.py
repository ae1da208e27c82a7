"""Rates of decisions: how often each rail and each route blocks, fixes and abstains, with intervals and latency."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from ragfault.apps.guard.decisions import GuardDecision
from ragfault.apps.guard.rails import RailResult
from ragfault.stats.estimates import Interval
from ragfault.stats.intervals import mean_interval

MAX_ROUTES = 20
"""Routes that rates are given for: those with the most requests."""
MAX_RAILS = 30
"""Rails that rates are given for: those with the most requests."""


class GuardedRequest(Struct, frozen=True):
    """All decisions on one request, in the order in which they were made; the last one is what the user got."""

    id: str
    route: str | None
    decisions: tuple[GuardDecision, ...]
    group: int | None = None
    """Requests of one group (a conversation, copies of a trace) count as one in intervals; None: each by itself."""


class RailRate(Struct, frozen=True, kw_only=True):
    """Decisions of one rail over the requests that it checked; a request counts once for each outcome."""

    rail: str
    route: str | None = None
    """None: all routes together."""
    checked: int
    blocked: Interval
    fixed: Interval
    flagged: int
    failed: int
    """Results that are failures, open or closed."""
    latency_p50: float = 0.0
    """Milliseconds; 0 for a stored verdict."""
    latency_p95: float
    false_blocks: Interval | None = None
    """Share of the answers that it blocks which labels call good; None without labels."""


class RouteRate(Struct, frozen=True, kw_only=True):
    """Outcomes of the requests of one route, or of all."""

    route: str | None
    """None: all routes together; empty: requests without a route."""
    requests: int
    blocked: Interval
    """Share with a decision that blocked, though a later one may have released another answer."""
    fixed: Interval
    """Share whose last decision fixed the answer, the query or the passages."""
    abstained: Interval
    """Share that got the policy's words in place of an answer."""
    promised: Interval
    """Share whose answer a certificate covers."""
    false_blocks: Interval | None = None
    """Share of the held-back answers that labels call good; None without labels of any."""
    latency_p50: float
    """Milliseconds of all decisions on a request."""
    latency_p95: float


class GuardRates(Struct, frozen=True, kw_only=True):
    """Rates of a selection of requests; by rail and route of the largest ones."""

    requests: int
    labels: int
    """Held-back answers that have a label."""
    routes: tuple[RouteRate, ...]
    """All routes together, then each one, the one with the most requests first."""
    rails: tuple[RailRate, ...]
    """Each rail over all routes, the one that blocks most first."""
    rails_by_route: tuple[RailRate, ...]
    """Each rail on each route; empty where there is one route."""
    withdrawn: tuple[str, ...] = ()
    """Inputs for which a promise was withdrawn."""
    left_out: int = 0
    """Routes and rails beyond the largest ones; the totals count them."""


def compute_guard_rates(requests: Iterable[GuardedRequest], labels: Mapping[str, bool] | None = None) -> GuardRates:
    """Compute the rates of requests that have a decision; `labels` say of requests whether the held-back answer is bad.

    Intervals take requests without a group as independent.

    >>> decision = GuardDecision(trace="1", outcome="block", stage="input")
    >>> rates = compute_guard_rates([GuardedRequest("1", "web", (decision,))])
    >>> rates.requests, rates.routes[0].abstained.mean
    (1, 1.0)
    """
    known_labels, all_requests = labels or {}, [request for request in requests if request.decisions]
    sizes = Counter(request.route or "" for request in all_requests)
    routes = [route for route, _ in sizes.most_common(MAX_ROUTES)]
    by_route = {route: [item for item in all_requests if (item.route or "") == route] for route in routes}
    rail_sizes = Counter(name for item in all_requests for name in _list_rails(item))
    names = [name for name, _ in rail_sizes.most_common(MAX_RAILS)]
    rails = [rate_rail(name, all_requests, known_labels) for name in names]
    rails.sort(key=lambda rate: (-rate.blocked.mean, rate.rail))
    split = by_route if len(by_route) > 1 else {}
    return GuardRates(
        requests=len(all_requests),
        labels=sum(item.id in known_labels and _was_blocked(item) for item in all_requests),
        routes=(
            *([_rate_route(None, all_requests, known_labels)] if all_requests else ()),
            *(_rate_route(route, items, known_labels) for route, items in split.items()),
        ),
        rails=tuple(rails),
        rails_by_route=tuple(
            rate_rail(rate.rail, items, known_labels, route)
            for rate in rails
            for route, items in split.items()
            if any(rate.rail in _list_rails(item) for item in items)
        ),
        withdrawn=tuple(sorted({d.withdrawn for item in all_requests for d in item.decisions if d.withdrawn})),
        left_out=len(sizes) - len(routes) + len(rail_sizes) - len(names),
    )


def rate_rail(
    name: str, requests: Sequence[GuardedRequest], labels: Mapping[str, bool], route: str | None = None
) -> RailRate:
    """Rate one rail over requests; those that it did not check do not count."""
    checked = [(item, results) for item in requests if (results := _list_results(item, name))]
    outcomes = [{result.outcome for result in results} for _, results in checked]
    groups = [item.group for item, _ in checked]
    good = [
        (not labels[item.id], item.group)
        for (item, _), effects in zip(checked, outcomes, strict=True)
        if "block" in effects and item.id in labels
    ]
    latencies = [result.latency for _, results in checked for result in results]
    return RailRate(
        rail=name,
        route=route,
        checked=len(checked),
        blocked=average(["block" in effects for effects in outcomes], groups),
        fixed=average(["fix" in effects for effects in outcomes], groups),
        flagged=sum("flag" in effects for effects in outcomes),
        failed=sum(result.failed for _, results in checked for result in results),
        latency_p50=_get_quantile(latencies, 0.5),
        latency_p95=_get_quantile(latencies, 0.95),
        false_blocks=average(*zip(*good, strict=True)) if good else None,
    )


def _rate_route(route: str | None, requests: Sequence[GuardedRequest], labels: Mapping[str, bool]) -> RouteRate:
    last = [item.decisions[-1] for item in requests]
    good = [not labels[item.id] for item in requests if _was_blocked(item) and item.id in labels]
    latencies = [sum(decision.latency for decision in item.decisions if not decision.action) for item in requests]
    return RouteRate(
        route=route,
        requests=len(requests),
        blocked=average([_was_blocked(item) for item in requests]),
        fixed=average([decision.outcome == "fix" for decision in last]),
        abstained=average([decision.abstained for decision in last]),
        promised=average([decision.promised for decision in last]),
        false_blocks=average(good) if good else None,
        latency_p50=_get_quantile(latencies, 0.5),
        latency_p95=_get_quantile(latencies, 0.95),
    )


def _list_results(request: GuardedRequest, rail: str) -> list[RailResult]:
    return [result for item in request.decisions if not item.action for result in item.results if result.rail == rail]


def _list_rails(request: GuardedRequest) -> set[str]:
    return {result.rail for decision in request.decisions for result in decision.results}


def _was_blocked(request: GuardedRequest) -> bool:
    return any(decision.outcome == "block" for decision in request.decisions)


def average(values: Sequence[bool], groups: Sequence[int | None] = ()) -> Interval:
    """Return a share with its interval, in which values of a group count as one; of nothing it is unknown, 0 to 1."""
    if not values:
        return Interval(0.0, 0.0, 1.0, 0, 0)
    clusters = [-1 - at if group is None else group for at, group in enumerate(groups)] or None
    return mean_interval([float(value) for value in values], clusters, bounds=(0.0, 1.0))


def _get_quantile(values: Sequence[float], share: float) -> float:
    return round(float(np.quantile(values or [0.0], share)), 2)
