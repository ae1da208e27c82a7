"""Thresholds of rails by cost: chosen on one half of past answers, their expected cost stated on the other.

The cost of an answer is that of a bad one which is released, or of a good one which is held back. The thresholds of all
rails are chosen together, one after the other until none lowers the cost: a rail that only repeats others gets none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ragfault.apps.guard.decisions import GuardDecision
from ragfault.apps.guard.policy import GROUNDEDNESS, GuardPolicy
from ragfault.apps.guard.rails import Stage
from ragfault.apps.guard.scanning.ngrams import load_classifier, score_sentences
from ragfault.apps.guard.scanning.scanners import Scanner, make_scanner
from ragfault.labels.judges.units import Bools
from ragfault.model.errors import UsageError
from ragfault.model.records import Trace
from ragfault.stats.bootstrap import FloatArray
from ragfault.stats.estimates import Interval
from ragfault.stats.intervals import mean_interval

CLASSIFIERS = ("injection", "jailbreak", "toxicity")
"""Kinds of rails with a classifier, whose threshold is an option."""
MIN_HALF = 20
"""Independent answers of each half, below which no threshold is chosen."""
MAX_ROUNDS = 5
"""Rounds over all rails."""
NEVER = 2.0
"""Threshold above every score: the rail never blocks."""


class RailThreshold(Struct, frozen=True, kw_only=True):
    """Threshold of one rail by cost."""

    rail: str
    threshold: float | None
    """Largest score that passes; None: the rail holds nothing back."""
    policy: float | None
    """Threshold of the policy; None: it differs by route, or decided on no answer."""


class CostTuning(Struct, frozen=True, kw_only=True):
    """Thresholds of least cost on one half of the answers, and their cost on the other."""

    false_release: float
    """Cost of a bad answer that is released."""
    false_block: float
    """Cost of a good answer that is held back."""
    thresholds: tuple[RailThreshold, ...]
    chosen_on: int
    """Answers on which the thresholds were chosen."""
    cost: Interval
    """Mean cost of an answer of the other half with these thresholds."""
    policy_cost: Interval
    """Mean cost of an answer of the other half by the policy as it is."""
    saved: Interval
    """Mean of the differences of the two, positive where the thresholds cost less."""
    released: Interval
    """Share of the other half that these thresholds release."""
    by_labels: bool
    """True: which answers are bad is what labels say; False: what the judge's risk makes likely."""


def tune_thresholds(
    policy: GuardPolicy,
    traces: Sequence[Trace],
    decide: Callable[[GuardPolicy], Sequence[GuardDecision]],
    costs: tuple[float, float],
    labels: Mapping[str, bool] | None = None,
    groups: Mapping[str, int] | None = None,
) -> CostTuning:
    """Choose the thresholds of rails that block by a score: groundedness, and the classifiers.

    `decide` gives the decisions of a policy on the traces; what other rails block stays blocked. Halves are drawn by
    the group of a trace, else its conversation, else the trace, and intervals take groups as independent. Without
    `labels` an answer is bad with the chance that the judge gives. Raises UsageError where the policy has no such rail
    or another aggregation than "any", and below 20 independent answers in either half.
    """
    if any(route_policy.aggregate != "any" for route_policy in (policy.default, *policy.routes.values())):
        raise UsageError('thresholds by cost need a policy with aggregate = "any".')
    rails = [name for name, settings in policy.rails.items() if _get_kind(policy, name) and settings.outcome == "block"]
    if not rails:
        raise UsageError("the policy has no rail that blocks by a score: groundedness, injection, jailbreak, toxicity.")
    decided = zip(traces, decide(policy), decide(loosen_policy(policy, rails)), strict=True)
    rows = [(trace, was, item, p) for trace, was, item in decided if (p := get_chance(item, labels)) is not None]
    pairs = [(trace, item) for trace, _, item, _ in rows]
    names = [str((groups or {}).get(trace.id, trace.conversation or trace.id)) for trace, _ in pairs]
    in_first_half = np.array([hashlib.sha256(name.encode()).digest()[0] % 2 == 0 for name in names], bool)
    halves = [set(np.array(names)[mask].tolist()) for mask in (in_first_half, ~in_first_half)]
    counts = [len(half) for half in halves]
    if min(counts) < MIN_HALF:
        raise UsageError(
            f"thresholds by cost need {MIN_HALF} independent answers in either half; there are {counts[0]} and "
            f"{counts[1]} whose answer is known to be good or bad, or has a risk."
        )
    p_bad = np.array([p for *_, p in rows])
    scores = np.array([[_score_rail(policy, rail, trace, item) for rail in rails] for trace, item in pairs])
    blocked = np.array([item.outcome == "block" for _, item in pairs], bool)
    certified = {was.threshold for _, was, *_ in rows} - {None}
    present = [_get_threshold(policy, rail, certified) for rail in rails]
    start = np.array([0.5 if threshold is None else threshold for threshold in present])
    fitted = _descend(scores[in_first_half], blocked[in_first_half], p_bad[in_first_half], costs, start)
    released = _release(scores, blocked, fitted)
    by_policy = np.array([was.outcome != "block" for _, was, *_ in rows], bool)
    cost, before = (measure_cost(mask, p_bad, costs)[~in_first_half] for mask in (released, by_policy))
    clusters = np.array(names)[~in_first_half].tolist()
    return CostTuning(
        false_release=costs[0],
        false_block=costs[1],
        thresholds=tuple(
            RailThreshold(rail=rail, threshold=None if limit >= NEVER else round(float(limit), 4), policy=threshold)
            for rail, limit, threshold in zip(rails, fitted, present, strict=True)
        ),
        chosen_on=int(in_first_half.sum()),
        cost=mean_interval(cost, clusters, bounds=(0.0, max(costs))),
        policy_cost=mean_interval(before, clusters, bounds=(0.0, max(costs))),
        saved=mean_interval(before - cost, clusters, bounds=(-max(costs), max(costs))),
        released=mean_interval(released[~in_first_half].astype(float), clusters, bounds=(0.0, 1.0)),
        by_labels=bool(labels),
    )


def loosen_policy(policy: GuardPolicy, rails: Sequence[str]) -> GuardPolicy:
    """Return a policy in which some rails flag rather than block, so that every rail of every stage is asked."""
    return replace(
        policy,
        rails={
            name: replace(settings, outcome="flag") if name in rails else settings
            for name, settings in policy.rails.items()
        },
        default=replace(policy.default, withdrawn="flag"),
        routes={name: replace(route, withdrawn="flag") for name, route in policy.routes.items()},
    )


def _get_kind(policy: GuardPolicy, rail: str) -> str | None:
    """Return the kind of a rail that blocks by a score; None for others."""
    kind = policy.rails[rail].kind or rail
    return kind if kind in (GROUNDEDNESS, *CLASSIFIERS) else None


def get_chance(decision: GuardDecision, labels: Mapping[str, bool] | None) -> float | None:
    """Return the chance that an answer is bad; None where neither labels nor the judge say it."""
    if labels:
        return float(labels[decision.trace]) if decision.trace in labels else None
    return decision.risk


def _get_threshold(policy: GuardPolicy, rail: str, certified: Collection[float | None]) -> float | None:
    """Return the threshold of a rail; None where routes have several, or no answer was decided on by one."""
    kind = _get_kind(policy, rail)
    if kind == GROUNDEDNESS or kind is None:
        return next(iter(certified)) if len(certified) == 1 else None
    threshold = policy.rails[rail].options.get("threshold")
    return load_classifier(kind).threshold if threshold is None else float(threshold)


def _score_rail(policy: GuardPolicy, rail: str, trace: Trace, decision: GuardDecision) -> float:
    """Return the largest score that a rail gives a trace; above 1 where it blocks whatever the threshold is."""
    results = [result for result in decision.results if result.rail == rail]
    if not results:
        # it does not apply to the route, or another rail blocked before
        return -1.0
    if any(result.failed and result.outcome == "block" for result in results):
        return NEVER + 1
    kind = _get_kind(policy, rail)
    if kind == GROUNDEDNESS or kind is None:
        return 0.0 if decision.risk is None else decision.risk
    classifier, find_patterns = load_classifier(kind), _load_patterns(kind)
    texts = [text for result in results for text in _list_texts(trace, result.stage)]
    if any(map(find_patterns, texts)):
        return NEVER + 1
    as_one = kind != "injection"
    return max((item.p for text in texts for item in score_sentences(classifier, text, as_one=as_one)), default=0.0)


def _list_texts(trace: Trace, stage: Stage) -> list[str]:
    if stage == "retrieval":
        return [chunk.text for chunk in trace.chunks or ()]
    return [trace.query if stage == "input" else trace.answer or ""]


@lru_cache(maxsize=len(CLASSIFIERS))
def _load_patterns(kind: str) -> Scanner:
    """Return the scanner of a kind for its patterns alone, which no threshold changes."""
    return make_scanner(kind, {"threshold": NEVER})


def _release(scores: FloatArray, blocked: Bools, limits: FloatArray) -> Bools:
    released: Bools = ~blocked & (scores <= limits).all(axis=1)
    return released


def measure_cost(released: Bools, p_bad: FloatArray, costs: tuple[float, float]) -> FloatArray:
    """Measure the expected cost of each answer, released or held back."""
    cost: FloatArray = np.where(released, costs[0] * p_bad, costs[1] * (1 - p_bad))
    return cost


def _descend(
    scores: FloatArray, blocked: Bools, p_bad: FloatArray, costs: tuple[float, float], start: FloatArray
) -> FloatArray:
    """Change the threshold of one rail after the other to that of least cost, in the middle between two scores."""
    limits = start.copy()
    lowest = float(measure_cost(_release(scores, blocked, limits), p_bad, costs).mean())
    for _ in range(MAX_ROUNDS):
        before = lowest
        for rail in range(scores.shape[1]):
            distinct_scores = np.unique(np.clip(scores[:, rail], 0.0, 1.0))
            for limit in (0.0, *((distinct_scores[1:] + distinct_scores[:-1]) / 2).tolist(), NEVER):
                tried = limits.copy()
                tried[rail] = limit
                cost = float(measure_cost(_release(scores, blocked, tried), p_bad, costs).mean())
                if cost < lowest - 1e-12:
                    limits, lowest = tried, cost
        if lowest >= before - 1e-12:
            break
    return limits
