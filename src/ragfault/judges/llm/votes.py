"""Merge replies about several groups of chunks, and several votes, into one result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median, pstdev
from typing import Any, NamedTuple

from msgspec.structs import replace

from ragfault.judges.llm.conversation import AFTER_REPAIR, RequestResult, align_probability
from ragfault.judges.llm.prompts.instructions import ITEM_FIELDS, PLAIN_FIELDS, HarmItem

SUPPORT_ORDER = ("unsupported", "contradicted", "inferred", "supported")
"""From the worst to the best, of several groups of chunks; and the first of equals among votes."""
BEST_KEYS: dict[str, Callable[[Any], Any]] = {
    "chunks": lambda item: item.relevance,
    "statements": lambda item: item.covered,
    "claims": lambda item: (SUPPORT_ORDER.index(item.support), item.p),
    "used": lambda item: item.used,
    "citations": lambda item: (item.supports, item.p),
}
"""What counts of several items on the same thing, each made in sight of other chunks: the greatest."""
CAUTIOUS_ORDER: dict[str, tuple[Any, ...]] = {
    "support": SUPPORT_ORDER,
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
NUMBER_FIELDS = ("relevance", "p")


class VoteResult(NamedTuple):
    """What all votes together said."""

    items: dict[str, dict[str, Any]]
    fields: dict[str, Any]
    failures: dict[str, dict[str, str]]
    spread: dict[str, float]
    """Id of a chunk or claim, or "relevance" → standard deviation over the votes; empty where there was one vote."""


def merge_groups(parts: Sequence[RequestResult]) -> RequestResult:
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
                known[one] = (
                    max(known[one], item, key=BEST_KEYS[name]) if one in known and name in BEST_KEYS else item
                )
        free |= part.fields
        for name, reasons in part.failures.items():
            lost[name] = {**reasons, **lost.get(name, {})}
    for name, reasons in lost.items():
        items[name] = {one: item for one, item in items.get(name, {}).items() if one not in reasons}
        if "" in reasons:
            free.pop(name, None)
    return RequestResult(items, free, lost)


def merge_votes(votes: Sequence[RequestResult]) -> VoteResult:
    """The majority of the labels and the mean of the numbers, with their spread.

    A thing on which no more than half of the votes say anything is lost. Lists that go by no id are those of the vote
    whose list is nearest to the median length.
    """
    if len(votes) == 1:
        return VoteResult(*votes[0], {})
    items: dict[str, dict[str, Any]] = {}
    free: dict[str, Any] = {}
    lost: dict[str, dict[str, str]] = {}
    spread: dict[str, float] = {}
    for name in dict.fromkeys(name for vote in votes for name in (*vote.items, *vote.fields, *vote.failures)):
        if name in PLAIN_FIELDS:
            said = [vote.fields[name] for vote in votes if name in vote.fields]
            if 2 * len(said) > len(votes):
                free[name] = _merge_values(name, said, spread)
            else:
                lost[name] = {"": _loss_reason(votes, name, "")}
            continue
        for one in dict.fromkeys(
            one for vote in votes for one in (*vote.items.get(name, {}), *vote.failures.get(name, {}))
        ):
            held = [vote.items[name][one] for vote in votes if one in vote.items.get(name, {})]
            if 2 * len(held) > len(votes):
                items.setdefault(name, {})[one] = _elect_item(held)
                _record_spread(name, one, held, spread)
            else:
                lost.setdefault(name, {})[one] = _loss_reason(votes, name, one)
    return VoteResult(items, free, lost, spread)


def _loss_reason(votes: Sequence[RequestResult], name: str, item_id: str) -> str:
    """The first reason for which a thing was lost."""
    return next(
        (reasons[item_id] for vote in votes if item_id in (reasons := vote.failures.get(name, {}))),
        AFTER_REPAIR,
    )


def _record_spread(name: str, item_id: str, items: Sequence[Any], spread: dict[str, float]) -> None:
    """Note how far the votes on a chunk or claim lie apart."""
    number = {"chunks": "relevance", "claims": "p"}.get(name)
    if number:
        spread[item_id] = pstdev(getattr(item, number) for item in items)


def _elect_item(items: Sequence[Any]) -> Any:
    """One item from those of the votes; its words are those of the vote that is nearest."""
    names = ITEM_FIELD_NAMES[type(items[0])]
    labels = {
        name: _majority_label([getattr(item, name) for item in items], CAUTIOUS_ORDER[name])
        for name in names
        if name in CAUTIOUS_ORDER
    }
    numbers = {name: fmean(getattr(item, name) for item in items) for name in names if name in NUMBER_FIELDS}

    def far(item: Any) -> tuple[int, float]:
        wrong = sum(getattr(item, name) != label for name, label in labels.items())
        return wrong, sum(abs(getattr(item, name) - number) for name, number in numbers.items())

    return align_probability(replace(min(items, key=far), **labels, **numbers))


ITEM_FIELD_NAMES: Mapping[type, tuple[str, ...]] = {
    shape: shape.__struct_fields__ for shape in ITEM_FIELDS.values()
}


def _majority_label(labels: Sequence[Any], cautious: Sequence[Any]) -> Any:
    """The most frequent label; of several the most cautious."""
    return max(cautious, key=labels.count)


def _merge_values(name: str, values: Sequence[Any], spread: dict[str, float]) -> Any:
    """One value from those of the votes, of a field that goes by no id."""
    if name == "relevance":
        spread["relevance"] = pstdev(values)
        return fmean(values)
    if isinstance(values[0], bool):
        return _majority_label(values, CAUTIOUS_ORDER["refused"])
    if name == "harm":
        return _merge_harm(values)
    middle = median(map(len, values))
    return min(values, key=lambda one: abs(len(one) - middle))


def _merge_harm(votes: Sequence[Sequence[HarmItem]]) -> tuple[HarmItem, ...]:
    """The mean of each kind of harm; a vote that does not name it sees none."""
    worst = [
        {
            kind: max(one.score for one in vote if one.category == kind)
            for kind in {one.category for one in vote}
        }
        for vote in votes
    ]
    kinds = sorted({kind for vote in worst for kind in vote})
    return tuple(
        HarmItem(category=kind, score=fmean(vote.get(kind, 0.0) for vote in worst)) for kind in kinds
    )
