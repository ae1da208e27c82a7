"""View of an adaptive policy, with the rewards of its decisions on live traffic."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import msgspec
from msgspec import Struct

from ragfault.apps.tune.adaptation.off_policy import read_decisions
from ragfault.apps.tune.adaptation.policy import load_policy
from ragfault.apps.tune.adaptation.records import AdaptivePolicy, LoggedDecision, RouteShares
from ragfault.http.hosting import PageHost, TimeRange
from ragfault.model.errors import InputError
from ragfault.model.records import Trace
from ragfault.stats.estimates import Interval
from ragfault.stats.intervals import mean_interval

# latest traces of the window that are read
MAX_DECISIONS = 20_000
# seconds for which computed rewards are shown again
FRESH_SECONDS = 20.0


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


def load_adaptation(host: PageHost, times: TimeRange) -> AdaptationView:
    """Load the policy, and the rewards of a range of time."""
    path: Path | None = host.opened["tune"]
    policy = AdaptivePolicy(routes=(), version=0) if path is None else load_policy(path)
    window, until, is_fixed = times
    name = f"adaptation {window} {until if is_fixed else ''}"
    decisions = host.get_cached(name, lambda: _load_decisions(host, times), FRESH_SECONDS)
    return AdaptationView(
        now=host.now(),
        version=policy.version,
        earlier=None if policy.previous is None else policy.previous.routes,
        routes=tuple(_average(route, decisions) for route in policy.routes),
    )


def _load_decisions(host: PageHost, times: TimeRange) -> list[LoggedDecision]:
    """Load the decisions with a reward among the latest traces; a wrong propensity or reward is none."""
    decisions = []
    for body in host.iterate_bodies('"propensity":', MAX_DECISIONS, times):
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
