"""How often a route falls below its floor while it adapts, and what the adaptation gains.

    python -m benchmarks.adaptation

Three routes with five arms each; rewards are 0 or 1. In each of the periods the queries of a route are decided by the
policy, their rewards are logged, and the next policy is planned from all decisions. A run fails where the true mean of
some route under some policy is below its floor, --margin below the present arm. The same without a floor is
Thompson sampling. The estimates of policies are held against the truth on logs of another policy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping

import numpy as np

from ragfault.apps.tune.adaptation.off_policy import estimate_policy
from ragfault.apps.tune.adaptation.policy import choose_arm, plan_policy
from ragfault.apps.tune.adaptation.records import AdaptivePolicy, LoggedDecision
from ragfault.stats.intervals import wilson_interval

ARMS = ("top(5)", "top(3)", "top(10)", "top(20)", "adaptive")
PRESENT_ARM = "top(5)"
ROUTES = ("faq", "orders", "legal")


def draw_means(rng: np.random.Generator) -> dict[str, dict[str, float]]:
    """Return the true mean of each arm on each route: the present one between 0.7 and 0.85, others around it."""
    means = {}
    for route in ROUTES:
        present = rng.uniform(0.7, 0.85)
        others = np.clip(present + rng.normal(-0.05, 0.12, len(ARMS) - 1), 0.05, 0.98)
        means[route] = {PRESENT_ARM: present, **dict(zip(ARMS[1:], others.tolist(), strict=True))}
    return means


def has_route_below_floor(policy: AdaptivePolicy, means: Mapping[str, Mapping[str, float]]) -> bool:
    """Return whether the true mean of a route under a policy is below its floor."""
    return any(
        sum(share * means[route.route][arm] for arm, share in route.shares.items()) < route.floor
        for route in policy.routes
    )


def run_adaptation(seed: int, queries_per_period: int, periods: int, margin: float) -> tuple[bool, float, float]:
    """Return True if a route fell below its floor, the mean gain of the last policy, and the mean possible gain."""
    rng = np.random.default_rng(seed)
    means = draw_means(rng)
    floors = {route: means[route][PRESENT_ARM] - margin for route in ROUTES}
    log: list[LoggedDecision] = []
    policy = plan_policy(log, ARMS, PRESENT_ARM, floors).policy
    has_breach = False
    for period in range(periods):
        has_breach = has_breach or has_route_below_floor(policy, means)
        for route in policy.routes:
            for index in range(queries_per_period):
                arm, propensity = choose_arm(route, f"{seed} {period} {index}")
                reward = float(rng.random() < means[route.route][arm])
                log.append(LoggedDecision(route=route.route, arm=arm, propensity=propensity, reward=reward))
        policy = plan_policy(log, ARMS, PRESENT_ARM, floors, before=None).policy
    gains = [
        sum(share * means[route.route][arm] for arm, share in route.shares.items()) - means[route.route][PRESENT_ARM]
        for route in policy.routes
    ]
    possible_gains = [max(means[route].values()) - means[route][PRESENT_ARM] for route in ROUTES]
    return has_breach, float(np.mean(gains)), float(np.mean(possible_gains))


def run_thompson(seed: int, queries_per_period: int, periods: int, margin: float) -> bool:
    """Return True if a route falls below its floor in some period under Thompson sampling."""
    rng = np.random.default_rng(seed)
    means = draw_means(rng)
    for route in ROUTES:
        wins, losses = np.ones(len(ARMS)), np.ones(len(ARMS))
        true_means = np.array([means[route][arm] for arm in ARMS])
        for _ in range(periods):
            arms = rng.beta(wins, losses, (queries_per_period, len(ARMS))).argmax(axis=1)
            if true_means[arms].mean() < means[route][PRESENT_ARM] - margin:
                return True
            rewards = rng.random(queries_per_period) < true_means[arms]
            np.add.at(wins, arms, rewards)
            np.add.at(losses, arms, ~rewards)
    return False


def measure_estimates(simulations: int, decisions: int) -> tuple[int, int, float]:
    """Return how many intervals hold the true value of a policy, the number of intervals, and the mean error."""
    covered, errors = 0, list[float]()
    for seed in range(simulations):
        rng = np.random.default_rng((seed, 1))
        true_means = rng.uniform(0.4, 0.9, 3)
        logging, target = rng.dirichlet((4, 2, 2)), rng.dirichlet((1, 1, 1))
        arms = rng.choice(3, decisions, p=logging)
        rewards = rng.random(decisions) < true_means[arms]
        log = [
            LoggedDecision(route="r", arm=str(arm), propensity=float(logging[arm]), reward=float(reward))
            for arm, reward in zip(arms.tolist(), rewards.tolist(), strict=True)
        ]
        estimate = estimate_policy(log, {str(arm): float(share) for arm, share in enumerate(target)})
        if estimate is None:
            continue
        value = float(target @ true_means)
        covered += estimate.low <= value <= estimate.high
        errors.append(estimate.doubly_robust - value)
    return covered, len(errors), float(np.mean(errors))


def main() -> None:
    """Measure as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replays", type=int, default=100)
    parser.add_argument("--queries", type=int, default=500, help="Queries of a route in a period.")
    parser.add_argument("--periods", type=int, default=20)
    parser.add_argument("--margin", type=float, default=0.05)
    arguments = parser.parse_args()
    start = time.monotonic()
    runs = [
        run_adaptation(seed, arguments.queries, arguments.periods, arguments.margin)
        for seed in range(arguments.replays)
    ]
    n = len(runs)
    safe_runs = sum(not has_breach for has_breach, _, _ in runs)
    low, high = wilson_interval(safe_runs, n)
    print(f"{n} runs of {arguments.periods} periods with {arguments.queries} queries a route and period")
    print(f"no route below its floor: {safe_runs / n:.1%} [{low:.1%}, {high:.1%}] of runs")
    thompson = sum(
        not run_thompson(seed, arguments.queries, arguments.periods, arguments.margin)
        for seed in range(arguments.replays)
    )
    print(f"the same by Thompson sampling without a floor: {thompson / n:.1%}")
    gain, possible = (float(np.mean([run[index] for run in runs])) for index in (1, 2))
    print(f"gain of the last policy {gain:+.3f} of {possible:+.3f} possible")
    covered, estimated, mean_error = measure_estimates(400, 1000)
    print(
        f"doubly robust interval holds the value of another policy: {covered / estimated:.1%} of {estimated}, "
        f"mean error {mean_error:+.4f}"
    )
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
