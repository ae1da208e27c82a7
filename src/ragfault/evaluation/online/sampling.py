"""Sampling of traces for a costlier judge, by id and salt, with chances raised for failing and unsure traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b

from msgspec import Struct

from ragfault.analysis.monitoring.alert_rules import DEFAULT_RULES
from ragfault.errors import UsageError
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.records import Verdicts

FAILURE_THRESHOLDS = {
    rule.metric: rule.below
    for rule in DEFAULT_RULES
    if rule.severity == "critical" and rule.below is not None
}
"""Metric → a trace with less fails: the level at which the mean of a window is critical."""


class SamplingPolicy(Struct, frozen=True, kw_only=True):
    """How large a share of the traffic is drawn, and of what more.

    A trace for which several hold has the largest of their chances.
    """

    share: float = 0.05
    """The chance of any trace, above 0: none is without one, so that none counts without end."""
    failing: float = 4.0
    """How many times likelier one is that fails (`FAILING`) or whose judging failed …"""
    unsure: float = 2.0
    """… one that the judge is unsure of …"""
    fresh: float = 4.0
    """… and one of a new route: …"""
    first: int = 100
    """… of the first so many."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(f"the share is above 0 and at most 1, such as 0.05, got {self.share:g}.")

    def compute_chance(self, scored: ScoredTrace, position: int) -> float:
        """The chance of a trace with its scores, the `place`-th of its route, from 0.

        >>> from ragfault.evaluation.online import score_response
        >>> good = score_response("When?", ["At noon."], "At noon.", judge="lexical", metrics=["groundedness"])
        >>> wrong = score_response("When?", ["At noon."], "In June.", judge="lexical", metrics=["groundedness"])
        >>> [SamplingPolicy().compute_chance(scored, 1000) for scored in (good, wrong)]
        [0.05, 0.2]
        >>> SamplingPolicy().chance(good, 0)
        0.2
        """
        times = [1.0]
        if is_failing(scored.values, scored.verdicts):
            times.append(self.failing)
        if is_unsure(scored.verdicts):
            times.append(self.unsure)
        if position < self.first:
            times.append(self.fresh)
        return min(1.0, self.share * max(times))


class SamplingDraw(Struct, frozen=True):
    """What became of a trace in the draw; kept of every trace, taken or not."""

    trace: str
    judge: str
    """The fingerprint of the judge that is asked about those that are taken."""
    chance: float
    taken: bool


class TraceSampler:
    """Draws from the traffic of a server, the same trace with the same lot at any time and on any machine.

    The salt is secret: who does not know it can choose no id that is never drawn. `routes` says how many traces of
    each route have been drawn from already.

    >>> from ragfault.evaluation.online import score_response
    >>> found = score_response("When?", ["At noon."], "In June.", judge="lexical", metrics=["groundedness"])
    >>> sampler = TraceSampler(SamplingPolicy(share=0.25), salt="00ff", judge="llm/1")
    >>> sampler.draw(found).taken, sampler.draw(found).chance
    (True, 1.0)
    """

    def __init__(
        self, policy: SamplingPolicy, salt: str, judge: str, routes: Mapping[str, int] | None = None
    ) -> None:
        self.policy, self.judge = policy, judge
        self._salt = bytes.fromhex(salt)
        self._routes: Counter[str] = Counter(routes or {})

    def draw(self, scored: ScoredTrace) -> SamplingDraw:
        """Draw one trace; it counts as one of its route."""
        route = scored.trace.route or ""
        chance = self.policy.compute_chance(scored, self._routes[route])
        self._routes[route] += 1
        return SamplingDraw(
            scored.trace.id, self.judge, chance, draw_lot(scored.trace.id, self._salt) < chance
        )


def draw_lot(trace: str, salt: bytes) -> float:
    """The lot of a trace: an even draw from [0, 1) by its id; one that is below its chance is taken.

    >>> draw_lot("a", b"1") == draw_lot("a", b"1") != draw_lot("a", b"2")
    True
    """
    made = blake2b(trace.encode("utf-8", "surrogatepass"), digest_size=8, key=salt).digest()
    return (int.from_bytes(made) >> 11) / 2**53


def is_failing(values: Mapping[str, float], verdicts: Verdicts) -> bool:
    """Whether a trace fails by what it scored, or has a part that the judge lost.

    >>> is_failing({"groundedness": 0.4}, Verdicts(trace="1")), is_failing({"groundedness": 0.9}, Verdicts(trace="1"))
    (True, False)
    """
    low = any(values.get(name, least) < least for name, least in FAILURE_THRESHOLDS.items())
    return low or bool(verdicts.failures)


def is_unsure(verdicts: Verdicts) -> bool:
    """Whether the judge is unsure of a claim or a citation: whether its p is near the bar.

    >>> from ragfault.records import ClaimVerdict
    >>> claim = ClaimVerdict(claim="It leaves.", start=0, end=10, support="supported", p=0.52, unsure=True)
    >>> is_unsure(Verdicts(trace="1", claim=(claim,)))
    True
    """
    claims = any(each.unsure for each in verdicts.claim or ())
    return claims or any(each.unsure for each in verdicts.citation or ())
