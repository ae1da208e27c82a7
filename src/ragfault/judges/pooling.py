"""Verdicts of several judges on one trace, pooled into one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ragfault.judges.claim_pairs import pair_claims
from ragfault.model.records import AnswerVerdict, ClaimVerdict, MemberVerdicts
from ragfault.model.rules import BAD_SUPPORT, settle_groundedness

MIN_PROBABILITY = 1e-4
"""Probabilities nearer to 0 or 1 are taken for this one before their log-odds."""


def compute_log_odds(p_bad: float) -> float:
    """Compute the log-odds of a probability, which is kept `MIN_PROBABILITY` from 0 and 1.

    >>> compute_log_odds(0.5), round(compute_log_odds(1.0), 2)
    (0.0, 9.21)
    """
    p = min(max(p_bad, MIN_PROBABILITY), 1 - MIN_PROBABILITY)
    return math.log(p / (1 - p))


class PoolWeights(NamedTuple):
    """Weight of each judge in claims and in answers; empty: all equal. Other verdicts have equal weights."""

    claim: tuple[float, ...] = ()
    answer: tuple[float, ...] = ()


EQUAL_WEIGHTS = PoolWeights()
ITEM_NAMES = {"chunk": "chunk", "use": "chunk", "fact": "fact", "recall": "statement", "citation": None}
"""Part of the verdicts → field that names an item; None: items are matched by their order."""
OWN_PARTS = ("missing", "truth", "harm", "rubric", "similarity")
"""Parts that are not pooled: those of the first judge that has them."""


def pool_verdicts(members: Sequence[MemberVerdicts], weights: PoolWeights = EQUAL_WEIGHTS) -> dict[str, Any]:
    """Pool the verdicts of several judges on one trace: the parts of `Verdicts`, without trace and judge.

    A claim is one of the first judge that has claims; the others vote on it with their claim at the same place.
    Probabilities are pooled as weighted means of log-odds. Judges that agree decide together; where they differ the
    pooled probability decides, and the claim is unsure. Relevance is a mean, a yes or no is the majority's, the first
    judge's where they are even. What one judge failed on is failed, with its name and reason.

    >>> claims = [ClaimVerdict(claim="Yes.", start=0, end=4, support=s, p=p) for s, p in
    ...           (("supported", 0.9), ("unsupported", 0.4))]
    >>> pooled = pool_verdicts([MemberVerdicts(trace="1", claim=(claim,)) for claim in claims])["claim"][0]
    >>> pooled.support, round(pooled.p, 2), pooled.unsure
    ('supported', 0.71, True)
    """
    parts: dict[str, Any] = {
        name: next((part for item in members if (part := getattr(item, name)) is not None), None) for name in OWN_PARTS
    }
    for name, key in ITEM_NAMES.items():
        parts[name] = _pool_items([getattr(item, name) for item in members], key)
    parts["claim"] = _pool_claims([item.claim for item in members], weights.claim)
    parts["answer"] = _pool_answers(members, weights.answer)
    parts["injections"] = next((item.injections for item in members if item.injections), ())
    parts["failures"] = {
        kind: f"{shorten_fingerprint(item.judge)}: {reason}"
        for item in reversed(members)
        for kind, reason in item.failures.items()
    }
    return parts


def shorten_fingerprint(fingerprint: str) -> str:
    """Return name and version of a judge.

    >>> shorten_fingerprint("lexical/8 rarity=3f9c inferred=0.55")
    'lexical/8'
    """
    return fingerprint.partition(" ")[0]


def pool_probabilities(votes: Iterable[tuple[float, float]]) -> float:
    """Return the probability whose log-odds are the weighted mean of those of (weight, probability) pairs.

    >>> round(pool_probabilities([(1, 0.9), (1, 0.1)]), 3), round(pool_probabilities([(3, 0.9), (1, 0.1)]), 3)
    (0.5, 0.75)
    """
    listed = list(votes)
    odds = sum(weight * compute_log_odds(p) for weight, p in listed) / sum(weight for weight, _ in listed)
    return round(1 / (1 + math.exp(-odds)), 6)


Voter = tuple[float, Any]
"""Weight of a judge, and its verdict."""


def _weigh(verdicts: Sequence[Any], weights: Sequence[float]) -> list[Voter]:
    """Pair the verdicts that there are with the weights of their judges; equal ones where no voter has any weight."""
    voters = [
        (weight, verdict)
        for weight, verdict in zip(weights or (1.0,) * len(verdicts), verdicts, strict=True)
        if verdict is not None and weight > 0
    ]
    return voters or [(1.0, verdict) for verdict in verdicts if verdict is not None]


def _pool_claims(
    opinions: Sequence[tuple[ClaimVerdict, ...] | None], weights: Sequence[float]
) -> tuple[ClaimVerdict, ...] | None:
    judged = next((claims for claims in opinions if claims is not None), None)
    if judged is None:
        return None
    votes: list[list[ClaimVerdict | None]] = [[None] * len(opinions) for _ in judged]
    for judge, claims in enumerate(opinions):
        for left, right in pair_claims(judged, claims or ()):
            votes[left][judge] = (claims or ())[right]
    return tuple(_pool_claim(claim, _weigh(row, weights)) for claim, row in zip(judged, votes, strict=True))


def _pool_claim(claim: ClaimVerdict, voters: Sequence[Voter]) -> ClaimVerdict:
    """Pool the votes on a claim; evidence and reason are those of the surest judge on the side that decides."""
    calls = {vote.support in BAD_SUPPORT for _, vote in voters}
    if not calls:
        return claim
    p = pool_probabilities((weight, _get_probability(vote)) for weight, vote in voters)
    is_bad = calls.pop() if len(calls) == 1 else p < 0.5
    side: list[ClaimVerdict] = [vote for _, vote in voters if (vote.support in BAD_SUPPORT) == is_bad]
    leader = max(side, key=lambda vote: abs(_get_probability(vote) - 0.5))
    unsure = len(side) < len(voters) or all(vote.unsure for vote in side)
    return replace(leader, claim=claim.claim, start=claim.start, end=claim.end, p=p, unsure=unsure)


def _get_probability(claim: ClaimVerdict) -> float:
    """Return the probability of support; by the decision, where a judge gives none."""
    return float(claim.support not in BAD_SUPPORT) if claim.p is None else claim.p


def estimate_groundedness(verdicts: MemberVerdicts) -> float | None:
    """Return the judge's probability that the chunks support the answer: its own, else that of its worst claim.

    None if it says nothing of the support.

    >>> estimate_groundedness(MemberVerdicts(trace="1", answer=AnswerVerdict(relevance=0.5, grounded=0.8)))
    0.8
    """
    grounded = verdicts.answer.grounded if verdicts.answer is not None else None
    if grounded is None:
        return min(map(_get_probability, verdicts.claim), default=1.0) if verdicts.claim is not None else None
    return settle_groundedness(grounded, verdicts.claim or ())


def _pool_answers(members: Sequence[MemberVerdicts], weights: Sequence[float]) -> AnswerVerdict | None:
    voters = _weigh([item.answer for item in members], weights)
    if not voters:
        return None
    first = next(item.answer for item in members if item.answer is not None)
    grounded = _weigh([None if item.answer is None else estimate_groundedness(item) for item in members], weights)
    return replace(
        first,
        relevance=_average((weight, vote.relevance) for weight, vote in voters),
        agreement=_average((weight, vote.agreement) for weight, vote in voters),
        refused=_decide([(weight, vote.refused) for weight, vote in voters]),
        grounded=pool_probabilities(grounded) if grounded else None,
    )


def _average(votes: Iterable[tuple[float, float | None]]) -> float | None:
    known = [(weight, value) for weight, value in votes if value is not None]
    return sum(weight * value for weight, value in known) / sum(weight for weight, _ in known) if known else None


def _decide(votes: Sequence[tuple[float, bool]]) -> bool:
    """Return the answer of the greater weight; that of the first where both have the same."""
    balance = sum(weight if value else -weight for weight, value in votes)
    return votes[0][1] if balance == 0 else balance > 0


def _pool_items(opinions: Sequence[Sequence[Any] | None], key: str | None) -> tuple[Any, ...] | None:
    """Pool items that several judges judged: numbers as means, yes or no as the majority."""
    judged = next((items for items in opinions if items is not None), None)
    if judged is None:
        return None
    tables = [
        {number if key is None else getattr(item, key): item for number, item in enumerate(items or ())}
        for items in opinions
    ]
    pooled = []
    for number, item in enumerate(judged):
        name = number if key is None else getattr(item, key)
        pooled.append(_pool_item(item, [table[name] for table in tables if name in table]))
    return tuple(pooled)


def _pool_item(item: Any, voters: Sequence[Any]) -> Any:
    changes: dict[str, Any] = {}
    for name in item.__struct_fields__:
        values = [value for vote in voters if (value := getattr(vote, name)) is not None]
        if values and all(isinstance(value, bool) for value in values):
            changes[name] = _decide([(1.0, value) for value in values])
        elif values and all(isinstance(value, float) for value in values):
            changes[name] = sum(values) / len(values)
    if "supports" in changes:
        changes["unsure"] = any(vote.unsure or vote.supports != voters[0].supports for vote in voters)
    return replace(item, **changes)
