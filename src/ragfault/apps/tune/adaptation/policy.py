"""The adaptive policy: it explores only as far as a route stays above its floor, and can be taken back."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from ragfault.apps.tune.adaptation.off_policy import MIN_DECISIONS, estimate_policy, list_unlogged
from ragfault.apps.tune.adaptation.records import (
    AdaptationPlan,
    AdaptivePolicy,
    ArmFigures,
    LoggedDecision,
    RoutePlan,
    RouteShares,
)
from ragfault.model.errors import UsageError
from ragfault.model.whole_files import read_record
from ragfault.stats.intervals import mean_interval
from ragfault.stats.sequences import confidence_sequence
from ragfault.text.number_format import format_bounds

ALPHA = 0.05
"""Chance that the bound of some arm on some route ever fails."""
MAX_EXPLORATION = 0.2
"""Largest share of a route that tries other arms."""
MIN_SHARE = 0.005
"""A smaller share of an arm is none: it would learn nothing."""
MAX_NAMED = 5
"""Routes or arms that a note names."""
MAX_COUNTED, MAX_NAME = 1_000, 80
"""Left-out names that are counted each by itself, and characters of a name that a note shows: traffic brings them."""
MAX_PREVIOUS = 100
"""Policies before it that a policy holds: each is within the next one, and a parser reads only so many levels."""
TOLERANCE = 1e-6
"""Intervals of means that lie less apart than this are not told apart: the rest is rounding."""


def plan_policy(
    decisions: Sequence[LoggedDecision],
    arms: Sequence[str],
    present: str,
    floors: Mapping[str, float],
    *,
    before: AdaptivePolicy | None = None,
    skipped: int = 0,
) -> AdaptationPlan:
    """Plan the next policy of each route from logged decisions.

    A route in `floors` uses its `present` arm, and another in its place only where the lower bound of that arm is above
    the present one's mean. The most promising other arm gets an exploration of at most 20 %, so small that the mean of
    the arms' lower bounds under the policy stays at the route's floor; an arm without a decision counts as 0 in it
    (conservative exploration, Wu et al. 2016). The bounds are confidence sequences, valid at every look, at 5 % over
    all arms and routes; they assume that within a route the choice of the arm did not depend on the query. Where the
    present arm is not shown to reach the floor, nothing is explored. Other routes of `before` stay as they are.

    Raises UsageError for fewer than two arms, a `present` that is none of them, or no floor.

    >>> log = [LoggedDecision(route="faq", arm="top(5)", propensity=1.0, reward=0.9)] * 400
    >>> plan = plan_policy(log, ["top(5)", "top(10)"], "top(5)", {"faq": 0.8})
    >>> {arm: round(share, 2) for arm, share in plan.routes[0].policy.shares.items()}, plan.routes[0].least >= 0.8
    ({'top(5)': 0.91, 'top(10)': 0.09}, True)
    """
    if len(set(arms)) < 2 or present not in arms:
        raise UsageError(f"give two arms or more, the present one ({present}) among them, got {', '.join(arms)}.")
    if not floors:
        raise UsageError("no route has a floor. Set one by --floor for each route that may be adapted.")
    level = ALPHA / (len(set(arms)) * len(floors))
    plans = tuple(
        _plan_route(
            [row for row in decisions if row.route == route],
            RouteShares(route=route, present=present, floor=floor, shares={present: 1.0}),
            tuple(dict.fromkeys(arms)),
            level,
        )
        for route, floor in floors.items()
    )
    policies = tuple(plan.policy for plan in plans)
    old = {policy.route: policy.shares for policy in before.routes} if before is not None else {}
    changed = tuple(
        policy.route for policy in policies if policy.shares != old.get(policy.route, {policy.present: 1.0})
    )
    version = 1 if before is None else before.version + 1
    others = (route for route in before.routes if route.route not in floors) if before is not None else ()
    policy = AdaptivePolicy(routes=(*policies, *others), version=version, previous=_trim_history(before))
    return AdaptationPlan(
        routes=plans,
        policy=policy,
        decisions=len(decisions),
        skipped=skipped,
        changed=changed,
        notes=_count_left_out(decisions, arms, floors),
    )


def _trim_history(policy: AdaptivePolicy | None) -> AdaptivePolicy | None:
    """Return a policy and those before it, `MAX_PREVIOUS` at most."""
    latest: list[AdaptivePolicy] = []
    while policy is not None and len(latest) < MAX_PREVIOUS:
        latest.append(policy)
        policy = policy.previous
    result = None
    for item in reversed(latest):
        result = replace(item, previous=result)
    return result


def _count_left_out(
    decisions: Sequence[LoggedDecision], arms: Sequence[str], floors: Mapping[str, float]
) -> tuple[str, ...]:
    """Return a note on decisions of routes without a floor, and one on those for arms that are not named."""
    routes = _list_largest(row.route for row in decisions if row.route not in floors)
    left_out = _list_largest(row.arm for row in decisions if row.route in floors and row.arm not in arms)
    return tuple(
        f"left out: {total:,} decisions {kind} ({names})"
        for kind, (total, names) in (("on routes without a floor", routes), ("for arms that are not named", left_out))
        if total
    )


def _list_largest(names: Iterable[str]) -> tuple[int, str]:
    """Count names; return their total, and the largest counts by name with the sum of the others."""
    counts, beyond = Counter[str](), 0
    for name in names:
        if name in counts or len(counts) < MAX_COUNTED:
            counts[name] += 1
        else:
            beyond += 1
    ranked = counts.most_common()
    parts = [f"{name[:MAX_NAME]} {count:,}" for name, count in ranked[:MAX_NAMED]]
    if remaining := [count for _, count in ranked[MAX_NAMED:]]:
        parts.append(f"{len(remaining):,} {'other' if len(remaining) == 1 else 'others'} {sum(remaining):,}")
    if beyond:
        parts.append(f"after the first {MAX_COUNTED:,} names {beyond:,}")
    return counts.total() + beyond, ", ".join(parts)


def _plan_route(
    decisions: Sequence[LoggedDecision], policy: RouteShares, arms: Sequence[str], level: float
) -> RoutePlan:
    figures = {arm: _compute_figures(arm, decisions, level) for arm in arms}
    main, reason = _choose_main(figures, policy)
    lead = figures[main]
    rivals = [row for row in figures.values() if row.arm != main and row.high > lead.low]
    shares = {main: 1.0}
    if lead.low <= policy.floor:
        word = "is below" if lead.high < policy.floor else "is not shown to reach"
        reason = f"{main} {word} the floor {policy.floor:g} ({format_bounds(lead)}): nothing is explored"
    elif rivals:
        promises = [((r.mean or 0.0) * r.n + 1) / (r.n + 2) + math.sqrt(1 / (r.n + 2)) for r in rivals]
        # the optimistic mean (UCB, Auer et al. 2002)
        tried = rivals[promises.index(max(promises))]
        price = lead.low - tried.low
        share = MAX_EXPLORATION if price <= 0 else min(MAX_EXPLORATION, (lead.low - policy.floor) / price)
        if share >= MIN_SHARE:
            shares = {main: 1.0 - share, tried.arm: share}
    planned = replace(policy, shares=shares)
    return RoutePlan(
        policy=planned,
        arms=tuple(figures.values()),
        least=sum(part * figures[arm].low for arm, part in shares.items()),
        estimate=estimate_policy(decisions, shares),
        reason=reason,
        notes=(*_explain_unknown(decisions, figures, shares), *_check_agreement(decisions, figures)),
    )


def _choose_main(figures: Mapping[str, ArmFigures], policy: RouteShares) -> tuple[str, str]:
    """Return the arm that most queries use, and why."""
    present = figures[policy.present]
    best = max(figures.values(), key=lambda row: row.low)
    if best.arm != present.arm and present.mean is not None and best.low > max(present.mean, policy.floor):
        return best.arm, f"{best.arm} brings at least {best.low:.3f}, {present.arm} {present.mean:.3f} on average"
    return present.arm, f"no other arm is shown to be better than {present.arm}"


def _compute_figures(arm: str, decisions: Sequence[LoggedDecision], level: float) -> ArmFigures:
    rewards = [row.reward for row in decisions if row.arm == arm]
    if not rewards:
        return ArmFigures(arm=arm, n=0, mean=None, low=0.0, high=1.0)
    band = confidence_sequence(rewards, confidence=1 - level)
    return ArmFigures(
        arm=arm, n=len(rewards), mean=float(np.mean(rewards)), low=float(band.low[-1]), high=float(band.high[-1])
    )


def _explain_unknown(
    decisions: Sequence[LoggedDecision], figures: Mapping[str, ArmFigures], shares: Mapping[str, float]
) -> tuple[str, ...]:
    """Return a note that says why the value of a plan is not estimated; none where it is."""
    missing = [f"{arm} has {figures[arm].n} logged decisions" for arm in list_unlogged(decisions, shares)]
    if not missing:
        return ()
    return (f"the value of the plan is not estimated: {' and '.join(missing)}, and {MIN_DECISIONS} are needed",)


def _check_agreement(decisions: Sequence[LoggedDecision], figures: Mapping[str, ArmFigures]) -> tuple[str, ...]:
    """Return a note for each arm whose mean differs from its weighted mean: its choice depended on the query."""
    notes = []
    for row in figures.values():
        weighted = estimate_policy(decisions, {row.arm: 1.0})
        unweighted = mean_interval([item.reward for item in decisions if item.arm == row.arm]) if weighted else None
        if weighted and unweighted and max(weighted.low - unweighted.high, unweighted.low - weighted.high) > TOLERANCE:
            notes.append(
                f"{row.arm}: its decisions average {unweighted.mean:.3f}, and {weighted.doubly_robust:.3f} weighted by "
                "propensity: its choice depended on the query, and the bounds do not hold"
            )
    return tuple(notes)


def choose_arm(policy: RouteShares, key: str) -> tuple[str, float]:
    """Return the arm for a query and its propensity: both go into the metadata of the trace.

    The same `key`, such as the id of the trace, always gives the same arm.

    >>> policy = RouteShares(route="faq", present="a", floor=0.5, shares={"a": 0.9, "b": 0.1})
    >>> [choose_arm(policy, str(at))[0] for at in range(1000)].count("b") in range(70, 130)
    True
    """
    draw = int.from_bytes(hashlib.sha256(f"{policy.route}\0{key}".encode()).digest()[:8]) / 2**64
    for arm, share in policy.shares.items():
        if draw < share:
            return arm, share
        draw -= share
    return policy.present, policy.shares.get(policy.present, 1.0)


def revert_policy(policy: AdaptivePolicy) -> AdaptivePolicy:
    """Return the policy before a policy; without one, every route on its present arm.

    >>> first = AdaptivePolicy(routes=(RouteShares(route="r", present="a", floor=0.5, shares={"b": 1.0}),))
    >>> revert_policy(first).routes[0].shares
    {'a': 1.0}
    """
    if policy.previous is not None:
        return policy.previous
    return replace(policy, routes=tuple(replace(route, shares={route.present: 1.0}) for route in policy.routes))


def load_policy(path: str | Path) -> AdaptivePolicy:
    """Load a policy that `ragfault tune adapt` wrote. Raises InputError where the file holds none."""
    return read_record(path, AdaptivePolicy, "a policy of ragfault tune adapt")
