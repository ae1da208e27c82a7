"""Merging: one verdict from several groups of chunks, and one from several votes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median, pstdev
from typing import Any, NamedTuple

from msgspec.structs import replace

from ragfault.judges.llm.conversing import MENDED, Said, even
from ragfault.judges.llm.shapes import FIELDS, FREE, HarmItem

__all__ = ["Settled", "joined", "settled"]

SUPPORT = ("unsupported", "contradicted", "inferred", "supported")
"""From the worst to the best, of several groups of chunks; and the first of equals among votes."""
BEST: dict[str, Callable[[Any], Any]] = {
    "chunks": lambda item: item.relevance,
    "statements": lambda item: item.covered,
    "claims": lambda item: (SUPPORT.index(item.support), item.p),
    "used": lambda item: item.used,
    "citations": lambda item: (item.supports, item.p),
}
"""What counts of several items on the same thing, each made in sight of other chunks: the greatest."""
CAUTIOUS: dict[str, tuple[Any, ...]] = {
    "support": SUPPORT,
    "covered": (False, True),
    "used": (False, True),
    "supports": (False, True),
    "present": (False, True),
    "contradicted": (True, False),
    "answered": (False, True),
    "status": ("unknown", "contradicted", "supported"),
    "refused": (True, False),
}
"""The labels of each verdict: of those that got as many votes, the first counts, which credits the system least."""
NUMBERS = ("relevance", "p")


class Settled(NamedTuple):
    """What all votes together said."""

    items: dict[str, dict[str, Any]]
    free: dict[str, Any]
    lost: dict[str, dict[str, str]]
    spread: dict[str, float]
    """Id of a chunk or claim, or "relevance" → standard deviation over the votes; empty where there was one vote."""


def joined(parts: Sequence[Said]) -> Said:
    """What one vote said in all its requests: of a thing that was held against several groups of chunks, the best.

    What was lost in one of them is lost: there the best may have been. What is missing is what the last one says.
    """
    items: dict[str, dict[str, Any]] = {}
    free: dict[str, Any] = {}
    lost: dict[str, dict[str, str]] = {}
    for part in parts:
        for name, held in part.items.items():
            known = items.setdefault(name, {})
            for one, item in held.items():
                known[one] = max(known[one], item, key=BEST[name]) if one in known and name in BEST else item
        free |= part.free
        for name, reasons in part.lost.items():
            lost[name] = {**reasons, **lost.get(name, {})}
    for name, reasons in lost.items():
        items[name] = {one: item for one, item in items.get(name, {}).items() if one not in reasons}
        if "" in reasons:
            free.pop(name, None)
    return Said(items, free, lost)


def settled(votes: Sequence[Said]) -> Settled:
    """The majority of the labels and the mean of the numbers, with their spread.

    A thing on which no more than half of the votes say anything is lost. Lists that go by no id are those of the vote
    whose list is nearest to the median length.
    """
    if len(votes) == 1:
        return Settled(*votes[0], {})
    items: dict[str, dict[str, Any]] = {}
    free: dict[str, Any] = {}
    lost: dict[str, dict[str, str]] = {}
    spread: dict[str, float] = {}
    for name in dict.fromkeys(name for vote in votes for name in (*vote.items, *vote.free, *vote.lost)):
        if name in FREE:
            said = [vote.free[name] for vote in votes if name in vote.free]
            if 2 * len(said) > len(votes):
                free[name] = _value(name, said, spread)
            else:
                lost[name] = {"": _why(votes, name, "")}
            continue
        for one in dict.fromkeys(
            one for vote in votes for one in (*vote.items.get(name, {}), *vote.lost.get(name, {}))
        ):
            held = [vote.items[name][one] for vote in votes if one in vote.items.get(name, {})]
            if 2 * len(held) > len(votes):
                items.setdefault(name, {})[one] = _elected(held)
                _spread(name, one, held, spread)
            else:
                lost.setdefault(name, {})[one] = _why(votes, name, one)
    return Settled(items, free, lost, spread)


def _why(votes: Sequence[Said], name: str, one: str) -> str:
    """The first reason for which a thing was lost."""
    return next((reasons[one] for vote in votes if one in (reasons := vote.lost.get(name, {}))), MENDED)


def _spread(name: str, one: str, held: Sequence[Any], spread: dict[str, float]) -> None:
    """Note how far the votes on a chunk or claim lie apart."""
    number = {"chunks": "relevance", "claims": "p"}.get(name)
    if number:
        spread[one] = pstdev(getattr(item, number) for item in held)


def _elected(held: Sequence[Any]) -> Any:
    """One item from those of the votes; its words are those of the vote that is nearest."""
    names = FIELDS_OF[type(held[0])]
    labels = {
        name: _majority([getattr(item, name) for item in held], CAUTIOUS[name])
        for name in names
        if name in CAUTIOUS
    }
    numbers = {name: fmean(getattr(item, name) for item in held) for name in names if name in NUMBERS}

    def far(item: Any) -> tuple[int, float]:
        wrong = sum(getattr(item, name) != label for name, label in labels.items())
        return wrong, sum(abs(getattr(item, name) - number) for name, number in numbers.items())

    return even(replace(min(held, key=far), **labels, **numbers))


FIELDS_OF: Mapping[type, tuple[str, ...]] = {shape: shape.__struct_fields__ for shape in FIELDS.values()}


def _majority(said: Sequence[Any], cautious: Sequence[Any]) -> Any:
    """The most frequent label; of several the most cautious."""
    return max(cautious, key=said.count)


def _value(name: str, said: Sequence[Any], spread: dict[str, float]) -> Any:
    """One value from those of the votes, of a field that goes by no id."""
    if name == "relevance":
        spread["relevance"] = pstdev(said)
        return fmean(said)
    if isinstance(said[0], bool):
        return _majority(said, CAUTIOUS["refused"])
    if name == "harm":
        return _harm(said)
    middle = median(map(len, said))
    return min(said, key=lambda one: abs(len(one) - middle))


def _harm(said: Sequence[Sequence[HarmItem]]) -> tuple[HarmItem, ...]:
    """The mean of each kind of harm; a vote that does not name it sees none."""
    worst = [
        {
            kind: max(one.score for one in vote if one.category == kind)
            for kind in {one.category for one in vote}
        }
        for vote in said
    ]
    kinds = sorted({kind for vote in worst for kind in vote})
    return tuple(
        HarmItem(category=kind, score=fmean(vote.get(kind, 0.0) for vote in worst)) for kind in kinds
    )
