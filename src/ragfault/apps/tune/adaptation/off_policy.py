"""Off-policy evaluation: the value of a policy from logged decisions, before it is applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ragfault.apps.tune.adaptation.records import LoggedDecision, PolicyEstimate
from ragfault.model.errors import InputError
from ragfault.model.records import Trace
from ragfault.stats.intervals import mean_interval

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
FOLDS = 2
"""Parts of the decisions: the errors of one are taken from the arms' means of the other."""
MIN_DECISIONS = 10
"""An arm of the policy with fewer logged decisions than this leaves the value of the policy unknown."""


def read_decisions(
    traces: Iterable[Trace], reward: Callable[[Trace], float | None] | None = None
) -> tuple[list[LoggedDecision], int]:
    """Return the logged decisions of traces, and the number of traces that record none.

    A trace records `arm` and `propensity` in its metadata, and `reward` there where no function gives one; its route
    is "default" where it has none. Raises InputError for a propensity that is not in (0, 1] or a reward that is not in
    [0, 1].

    >>> trace = Trace(id="1", query="?", route="faq", metadata={"arm": "top(5)", "propensity": 0.5, "reward": 1})
    >>> read_decisions([trace, Trace(id="2", query="?")])[0][0].arm
    'top(5)'
    """
    decisions, skipped = list[LoggedDecision](), 0
    for trace in traces:
        arm, propensity = trace.metadata.get("arm"), trace.metadata.get("propensity")
        value = trace.metadata.get("reward") if reward is None else reward(trace)
        if not (isinstance(arm, str) and isinstance(propensity, int | float) and isinstance(value, int | float)):
            skipped += 1
            continue
        if not 0 < propensity <= 1 or not 0 <= value <= 1:
            raise InputError(
                f"trace {trace.id}: propensity {propensity:g} and reward {value:g}, but a propensity lies in (0, 1], "
                "and a reward in [0, 1]."
            )
        decisions.append(
            LoggedDecision(route=trace.route or "default", arm=arm, propensity=float(propensity), reward=float(value))
        )
    return decisions, skipped


def estimate_policy(decisions: Sequence[LoggedDecision], shares: Mapping[str, float]) -> PolicyEstimate | None:
    """Estimate the value of a policy on one route from decisions of other policies.

    Inverse propensity weighting, normalised by the weights, and the doubly robust estimate (Dudík et al. 2011) with
    cross-fitted means of the arms: unbiased where the propensities are right. None where an arm with a share has fewer
    than 10 decisions: the log says nothing about what it brings. Decisions are taken as independent.

    >>> log = [LoggedDecision(route="r", arm=arm, propensity=p, reward=value)
    ...        for arm, p, value in (("a", 0.8, 0.5), ("b", 0.2, 1.0)) for _ in range(round(p * 50))]
    >>> estimate = estimate_policy(log, {"b": 1.0})
    >>> round(estimate.doubly_robust, 2), round(estimate.effective_size), estimate_policy(log, {"a": 0.9, "c": 0.1})
    (1.0, 10, None)
    """
    if list_unlogged(decisions, shares):
        return None
    target = {arm: share for arm, share in shares.items() if share > 0}
    rewards = np.array([decision.reward for decision in decisions])
    weights = np.array([target.get(decision.arm, 0.0) / decision.propensity for decision in decisions])
    folds = np.random.default_rng(0).permutation(len(decisions)) % FOLDS
    values = np.empty(len(decisions))
    for fold in range(FOLDS):
        inside, outside = folds == fold, folds != fold
        means = _average_arms(decisions, outside if outside.any() else inside, rewards)
        base = sum(share * means[arm] for arm, share in target.items())
        predicted = np.array([means[decision.arm] for decision in decisions])
        values[inside] = (base + weights * (rewards - predicted))[inside]
    interval = mean_interval(values)
    total = float(weights.sum())
    return PolicyEstimate(
        inverse_propensity=float((weights * rewards).sum()) / total,
        doubly_robust=interval.mean,
        low=max(0.0, interval.low),
        high=min(1.0, interval.high),
        effective_size=total**2 / float((weights**2).sum()),
    )


def list_unlogged(decisions: Sequence[LoggedDecision], shares: Mapping[str, float]) -> tuple[str, ...]:
    """Return the arms of a policy that have fewer than 10 logged decisions.

    >>> list_unlogged([LoggedDecision(route="r", arm="a", propensity=1.0, reward=0.9)] * 10, {"a": 0.9, "b": 0.1})
    ('b',)
    """
    counts = Counter(decision.arm for decision in decisions)
    return tuple(arm for arm, share in shares.items() if share > 0 and counts[arm] < MIN_DECISIONS)


def _average_arms(decisions: Sequence[LoggedDecision], is_chosen: Bools, rewards: Floats) -> dict[str, float]:
    """Return the mean reward of each arm among the chosen decisions; of all of them where it has none."""
    overall = float(rewards[is_chosen].mean())
    means = {}
    names = np.array([decision.arm for decision in decisions])
    for arm in dict.fromkeys(names.tolist()):
        mask = is_chosen & (names == arm)
        means[arm] = float(rewards[mask].mean()) if mask.any() else overall
    return means
