"""Adapt selection and reranking per route from feedback: a bandit that keeps to a floor, evaluated off-policy first."""

from ragfault.tuning.adaptation.off_policy import estimate_policy, read_decisions
from ragfault.tuning.adaptation.policy import choose_arm, load_policy, plan_policy, revert_policy
from ragfault.tuning.adaptation.records import AdaptationPlan, AdaptivePolicy, LoggedDecision, RoutePlan, RouteShares

__all__ = [
    "AdaptationPlan", "AdaptivePolicy", "LoggedDecision", "RoutePlan", "RouteShares", "choose_arm",
    "estimate_policy", "load_policy", "plan_policy", "read_decisions", "revert_policy",
]  # fmt: skip
