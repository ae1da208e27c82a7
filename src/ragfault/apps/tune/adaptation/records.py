"""Records of adaptation: logged decisions, figures of arms, estimates of policies, and the policies themselves."""

from __future__ import annotations

from msgspec import Struct


class LoggedDecision(Struct, frozen=True, kw_only=True):
    """Decision between arms on one query, with the probability it had and the reward that followed."""

    route: str
    arm: str
    """Name of the parameters that were used, such as "top(5)"."""
    propensity: float
    """Probability with which this arm was chosen, above 0."""
    reward: float
    """In [0, 1]."""


class ArmFigures(Struct, frozen=True, kw_only=True):
    """Figures of an arm on a route."""

    arm: str
    n: int
    """Decisions for it."""
    mean: float | None
    low: float
    """Lower end of the confidence sequence of its mean, which holds at every look; 0 without a decision."""
    high: float


class PolicyEstimate(Struct, frozen=True, kw_only=True):
    """Value of a policy on a route, estimated from decisions that others made."""

    inverse_propensity: float
    """Self-normalised inverse propensity estimate."""
    doubly_robust: float
    """Mean of the arms' means under the policy, plus the weighted errors of these means."""
    low: float
    """The 95 % interval of the doubly robust estimate."""
    high: float
    effective_size: float
    """Decisions by the policy itself that would say as much (Kish 1965)."""


class RouteShares(Struct, frozen=True, kw_only=True):
    """Policy on a route: the probability of each arm."""

    route: str
    present: str
    """The arm in use before anything was adapted."""
    floor: float
    shares: dict[str, float]


class RoutePlan(Struct, frozen=True, kw_only=True):
    """Next policy on a route, and what it rests on."""

    policy: RouteShares
    arms: tuple[ArmFigures, ...]
    least: float
    """Mean of the arms' lower ends under the policy: what it brings at least."""
    estimate: PolicyEstimate | None
    """None where an arm of the policy has fewer than 10 logged decisions."""
    reason: str
    notes: tuple[str, ...] = ()


class AdaptivePolicy(Struct, frozen=True, kw_only=True):
    """Policies of all routes, with the ones before them, so that each can be taken back."""

    routes: tuple[RouteShares, ...]
    version: int = 1
    previous: AdaptivePolicy | None = None


class AdaptationPlan(Struct, frozen=True, kw_only=True):
    """Result of planning the adaptation."""

    routes: tuple[RoutePlan, ...]
    policy: AdaptivePolicy
    decisions: int
    skipped: int
    """Traces without an arm, a propensity or a reward."""
    changed: tuple[str, ...]
    """Routes whose shares differ from those of the policy before."""
    notes: tuple[str, ...] = ()
    """Decisions that the plan leaves out, with their number."""
