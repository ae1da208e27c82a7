"""Claims of two judges on one answer, paired by their place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ragfault.model.records import ClaimVerdict

MIN_CLAIM_OVERLAP = 0.5
"""Share of the shorter claim that two matching claims have in common."""


def pair_claims(first: Sequence[ClaimVerdict], second: Sequence[ClaimVerdict]) -> Iterator[tuple[int, int]]:
    """Yield the positions of claims at the same place of the answer, each at most once, the closest first.

    >>> claims = [ClaimVerdict(claim="It is free.", start=0, end=11, support="supported")]
    >>> list(pair_claims(claims, claims)), list(pair_claims(claims, []))
    ([(0, 0)], [])
    """
    pairs = sorted(
        (-share, left_index, right_index)
        for left_index, left in enumerate(first)
        for right_index, right in enumerate(second)
        if (share := _overlap_share(left, right)) >= MIN_CLAIM_OVERLAP
    )
    lefts: set[int] = set()
    rights: set[int] = set()
    matches = []
    for _, left_index, right_index in pairs:
        if left_index not in lefts and right_index not in rights:
            lefts.add(left_index)
            rights.add(right_index)
            matches.append((left_index, right_index))
    yield from sorted(matches)


def _overlap_share(first: ClaimVerdict, second: ClaimVerdict) -> float:
    """Return the share of the shorter claim that the other contains."""
    shorter = min(first.end - first.start, second.end - second.start)
    return max(0, min(first.end, second.end) - max(first.start, second.start)) / shorter if shorter > 0 else 0.0
