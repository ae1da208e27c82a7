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
"""Metric → the value below which a trace fails: the level at which the mean of a window is critical."""


class SamplingPolicy(Struct, frozen=True, kw_only=True):
    """The share of the traffic to sample, and the factors for some traces.

    A trace to which several factors apply has the largest of their chances.
    """

    share: float = 0.05
    """The chance of any trace, above 0, so that no sampling weight is infinite."""
    failing: float = 4.0
    """The factor of a trace that fails (`FAILURE_THRESHOLDS`) or whose judging failed."""
    unsure: float = 2.0
    """The factor of a trace that the judge is unsure of."""
    fresh: float = 4.0
    """The factor of the first traces of a route."""
    first: int = 100
    """The number of first traces of a route."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(f"the share is above 0 and at most 1, such as 0.05, got {self.share:g}.")

    def compute_chance(self, scored: ScoredTrace, position: int) -> float:
        """Return the chance of a trace with its scores, at this position in its route, from 0.

        >>> from ragfault.evaluation.online import score_response
        >>> supported = score_response("When?", ["At noon."], "At noon.", judge="lexical", metrics=["groundedness"])
        >>> unsupported = score_response("When?", ["At noon."], "In June.", judge="lexical", metrics=["groundedness"])
        >>> [SamplingPolicy().compute_chance(scored, 1000) for scored in (supported, unsupported)]
        [0.05, 0.2]
        >>> SamplingPolicy().compute_chance(supported, 0)
        0.2
        """
        factors = [1.0]
        if is_failing(scored.values, scored.verdicts):
            factors.append(self.failing)
        if is_unsure(scored.verdicts):
            factors.append(self.unsure)
        if position < self.first:
            factors.append(self.fresh)
        return min(1.0, self.share * max(factors))


class SamplingDraw(Struct, frozen=True):
    """The draw of a trace; stored for every trace, taken or not."""

    trace: str
    judge: str
    """The fingerprint of the judge that scores the taken traces."""
    chance: float
    taken: bool


class TraceSampler:
    """A sampler of the traffic of a server; a trace has the same lot at any time and on any machine.

    The salt is secret, so that nobody can choose an id that is never drawn. `routes` has the number of traces
    of each route that were drawn before.

    >>> from ragfault.evaluation.online import score_response
    >>> scored = score_response("When?", ["At noon."], "In June.", judge="lexical", metrics=["groundedness"])
    >>> sampler = TraceSampler(SamplingPolicy(share=0.25), salt="00ff", judge="llm/1")
    >>> sampler.draw(scored).taken, sampler.draw(scored).chance
    (True, 1.0)
    """

    def __init__(
        self, policy: SamplingPolicy, salt: str, judge: str, routes: Mapping[str, int] | None = None
    ) -> None:
        self.policy, self.judge = policy, judge
        self._salt = bytes.fromhex(salt)
        self._routes: Counter[str] = Counter(routes or {})

    def draw(self, scored: ScoredTrace) -> SamplingDraw:
        """Draw one trace, and count it in its route."""
        route = scored.trace.route or ""
        chance = self.policy.compute_chance(scored, self._routes[route])
        self._routes[route] += 1
        return SamplingDraw(
            scored.trace.id, self.judge, chance, draw_lot(scored.trace.id, self._salt) < chance
        )


def draw_lot(trace: str, salt: bytes) -> float:
    """Return the lot of a trace: uniform in [0, 1) by its id; it is taken if the lot is below its chance.

    >>> draw_lot("a", b"1") == draw_lot("a", b"1") != draw_lot("a", b"2")
    True
    """
    digest = blake2b(trace.encode("utf-8", "surrogatepass"), digest_size=8, key=salt).digest()
    return (int.from_bytes(digest) >> 11) / 2**53


def is_failing(values: Mapping[str, float], verdicts: Verdicts) -> bool:
    """Return whether a trace fails by its scores, or has a failed verdict.

    >>> is_failing({"groundedness": 0.4}, Verdicts(trace="1")), is_failing({"groundedness": 0.9}, Verdicts(trace="1"))
    (True, False)
    """
    is_low = any(values.get(name, threshold) < threshold for name, threshold in FAILURE_THRESHOLDS.items())
    return is_low or bool(verdicts.failures)


def is_unsure(verdicts: Verdicts) -> bool:
    """Return whether the judge is unsure of a claim or a citation.

    >>> from ragfault.records import ClaimVerdict
    >>> claim = ClaimVerdict(claim="It leaves.", start=0, end=10, support="supported", p=0.52, unsure=True)
    >>> is_unsure(Verdicts(trace="1", claim=(claim,)))
    True
    """
    claims = any(verdict.unsure for verdict in verdicts.claim or ())
    return claims or any(verdict.unsure for verdict in verdicts.citation or ())
