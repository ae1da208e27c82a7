"""The verdicts of two judges on the same trace, item by item: which of one stands beside which of the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from ragfault.records import ClaimVerdict, Trace, Verdicts

__all__ = ["ORDER", "SHARE", "Both", "Kind", "both"]

Kind = Literal["chunk", "use", "claim", "citation", "fact", "recall", "refusal"]

ORDER: dict[Kind, tuple[Any, ...]] = {
    "chunk": ("none", "low", "medium", "high"),
    "use": (False, True),
    "claim": ("contradicted", "unsupported", "inferred", "supported"),
    "citation": (False, True),
    "fact": (False, True),
    "recall": (False, True),
    "refusal": (False, True),
}
"""Kind of verdict → its words; the relevance of chunks is ranked."""

SHARE = 0.5
"""Two claims are one where they share so much of the shorter of them."""


class Both(NamedTuple):
    """What two judges say of one item."""

    kind: Kind
    trace: int
    """The place of the trace."""
    item: str
    words: tuple[Any, Any]
    reasons: tuple[str | None, str | None] = (None, None)
    gap: float = 0.0
    """How far apart they are, by their probabilities, in [0, 1]."""


def both(place: int, trace: Trace, one: Verdicts, other: Verdicts) -> Iterator[Both]:
    """Every item of a trace on which both have a word.

    Chunks are matched by id, claims by the stretch of the answer, citations and facts by their order.
    """
    for left, right in _matched(one.chunk, other.chunk, "chunk"):
        gap = abs(left.relevance - right.relevance)
        yield Both("chunk", place, left.chunk, (left.level, right.level), (left.reason, right.reason), gap)
    for left, right in _matched(one.use, other.use, "chunk"):
        yield _plain("use", place, left.chunk, left.used, right.used)
    for claim, same in _claims(one.claim or (), other.claim or ()):
        words, reasons = (claim.support, same.support), (claim.reason, same.reason)
        yield Both("claim", place, claim.claim, words, reasons, _apart(claim, same))
    for left, right in _turns(one.citation, other.citation, len(trace.citations or ())):
        yield _plain("citation", place, f"{left.chunk}: {left.claim}", left.supports, right.supports)
    for left, right in _turns(one.fact, other.fact, len(trace.facts or ())):
        yield _plain("fact", place, left.fact, left.present, right.present)
    for left, right in _matched(one.recall, other.recall, "statement"):
        yield _plain("recall", place, left.statement, left.covered, right.covered)
    if one.answer is not None and other.answer is not None:
        yield _plain("refusal", place, trace.answer or "", one.answer.refused, other.answer.refused)


def _matched(one: Sequence[Any] | None, other: Sequence[Any] | None, name: str) -> Iterator[tuple[Any, Any]]:
    """Verdicts on the same thing, by what names it."""
    there = {getattr(each, name): each for each in other or ()}
    return ((each, there[getattr(each, name)]) for each in one or () if getattr(each, name) in there)


def _plain(kind: Kind, place: int, item: str, one: bool, other: bool) -> Both:
    return Both(kind, place, item, (one, other), gap=float(one != other))


def _turns(one: Sequence[Any] | None, other: Sequence[Any] | None, size: int) -> Iterable[tuple[Any, Any]]:
    """Verdicts in the order of what they are on, where both judges have one for each."""
    found = one or (), other or ()
    return zip(*found, strict=True) if len(found[0]) == len(found[1]) == size else ()


def _apart(one: ClaimVerdict, other: ClaimVerdict) -> float:
    """How far two verdicts on a claim are apart; by their words, where a judge gives no probability."""
    if one.p is not None and other.p is not None:
        return abs(one.p - other.p)
    return float(one.support != other.support)


def _claims(
    one: Sequence[ClaimVerdict], other: Sequence[ClaimVerdict]
) -> Iterator[tuple[ClaimVerdict, ClaimVerdict]]:
    """Claims that stand in the same place of the answer, each at most once, the closest first."""
    pairs = sorted(
        (
            (-_shared(left, right), at, to)
            for at, left in enumerate(one)
            for to, right in enumerate(other)
            if _shared(left, right) >= SHARE
        ),
    )
    taken: tuple[set[int], set[int]] = (set(), set())
    found = []
    for _, at, to in pairs:
        if at not in taken[0] and to not in taken[1]:
            taken[0].add(at)
            taken[1].add(to)
            found.append((at, to))
    yield from ((one[at], other[to]) for at, to in sorted(found))


def _shared(one: ClaimVerdict, other: ClaimVerdict) -> float:
    """The share of the shorter claim that stands in the other."""
    least = min(one.end - one.start, other.end - other.start)
    return max(0, min(one.end, other.end) - max(one.start, other.start)) / least if least > 0 else 0.0
