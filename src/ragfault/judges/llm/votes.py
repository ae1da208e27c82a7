"""Merging of replies about several groups of chunks, and of several votes, into one result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median, pstdev
from typing import Any, NamedTuple

from msgspec.structs import replace

from ragfault.judges.llm.conversation import AFTER_REPAIR, RequestResult, align_probability
from ragfault.judges.llm.prompts.instructions import ITEM_FIELDS, PLAIN_FIELDS, HarmItem

SUPPORT_ORDER = ("unsupported", "contradicted", "inferred", "supported")
"""Labels from the worst to the best; the first of equally frequent votes counts."""
BEST_KEYS: dict[str, Callable[[Any], Any]] = {
    "chunks": lambda item: item.relevance,
    "statements": lambda item: item.covered,
    "claims": lambda item: (SUPPORT_ORDER.index(item.support), item.p),
    "used": lambda item: item.used,
    "citations": lambda item: (item.supports, item.p),
}
"""Field → sort key of its items: of several items on the same id, each about other chunks, the greatest
counts.
"""
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
"""Labels of each verdict: of equally frequent ones the first counts, which credits the system least."""
NUMBER_FIELDS = ("relevance", "p")


class VoteResult(NamedTuple):
    """Merged result of all votes."""

    items: dict[str, dict[str, Any]]
    fields: dict[str, Any]
    failures: dict[str, dict[str, str]]
    spread: dict[str, float]
    """Id of a chunk or claim, or "relevance" → standard deviation over the votes; empty for a single vote."""


def merge_groups(parts: Sequence[RequestResult]) -> RequestResult:
    """Merge the requests of one vote: of several items on the same id the best counts.

    What failed in one request fails: the best item may have been there. The last list of missing information
    counts.
    """
    items: dict[str, dict[str, Any]] = {}
    fields: dict[str, Any] = {}
    failures: dict[str, dict[str, str]] = {}
    for part in parts:
        for name, part_items in part.items.items():
            merged = items.setdefault(name, {})
            for item_id, item in part_items.items():
                merged[item_id] = (
                    max(merged[item_id], item, key=BEST_KEYS[name])
                    if item_id in merged and name in BEST_KEYS
                    else item
                )
        fields |= part.fields
        for name, reasons in part.failures.items():
            failures[name] = {**reasons, **failures.get(name, {})}
    for name, reasons in failures.items():
        items[name] = {
            item_id: item for item_id, item in items.get(name, {}).items() if item_id not in reasons
        }
        if "" in reasons:
            fields.pop(name, None)
    return RequestResult(items, fields, failures)


def merge_votes(votes: Sequence[RequestResult]) -> VoteResult:
    """Merge votes: the majority of the labels and the mean of the numbers, with their spread.

    An item that at most half of the votes contain fails. Lists without ids are those of the vote nearest to
    the median length.
    """
    if len(votes) == 1:
        return VoteResult(*votes[0], {})
    items: dict[str, dict[str, Any]] = {}
    fields: dict[str, Any] = {}
    failures: dict[str, dict[str, str]] = {}
    spread: dict[str, float] = {}
    for name in dict.fromkeys(name for vote in votes for name in (*vote.items, *vote.fields, *vote.failures)):
        if name in PLAIN_FIELDS:
            values = [vote.fields[name] for vote in votes if name in vote.fields]
            if 2 * len(values) > len(votes):
                fields[name] = _merge_values(name, values, spread)
            else:
                failures[name] = {"": _loss_reason(votes, name, "")}
            continue
        for item_id in dict.fromkeys(
            item_id for vote in votes for item_id in (*vote.items.get(name, {}), *vote.failures.get(name, {}))
        ):
            ballots = [vote.items[name][item_id] for vote in votes if item_id in vote.items.get(name, {})]
            if 2 * len(ballots) > len(votes):
                items.setdefault(name, {})[item_id] = _elect_item(ballots)
                _record_spread(name, item_id, ballots, spread)
            else:
                failures.setdefault(name, {})[item_id] = _loss_reason(votes, name, item_id)
    return VoteResult(items, fields, failures, spread)


def _loss_reason(votes: Sequence[RequestResult], name: str, item_id: str) -> str:
    """Return the first reason of a failure."""
    return next(
        (reasons[item_id] for vote in votes if item_id in (reasons := vote.failures.get(name, {}))),
        AFTER_REPAIR,
    )


def _record_spread(name: str, item_id: str, items: Sequence[Any], spread: dict[str, float]) -> None:
    """Record the standard deviation of the votes on a chunk or claim."""
    number = {"chunks": "relevance", "claims": "p"}.get(name)
    if number:
        spread[item_id] = pstdev(getattr(item, number) for item in items)


def _elect_item(items: Sequence[Any]) -> Any:
    """Merge the votes on an item; its texts are those of the nearest vote."""
    names = ITEM_FIELD_NAMES[type(items[0])]
    labels = {
        name: _majority_label([getattr(item, name) for item in items], CAUTIOUS_ORDER[name])
        for name in names
        if name in CAUTIOUS_ORDER
    }
    numbers = {name: fmean(getattr(item, name) for item in items) for name in names if name in NUMBER_FIELDS}

    def distance(item: Any) -> tuple[int, float]:
        wrong = sum(getattr(item, name) != label for name, label in labels.items())
        return wrong, sum(abs(getattr(item, name) - number) for name, number in numbers.items())

    return align_probability(replace(min(items, key=distance), **labels, **numbers))


ITEM_FIELD_NAMES: Mapping[type, tuple[str, ...]] = {
    shape: shape.__struct_fields__ for shape in ITEM_FIELDS.values()
}


def _majority_label(labels: Sequence[Any], cautious: Sequence[Any]) -> Any:
    """Return the most frequent label; of equals the most cautious."""
    return max(cautious, key=labels.count)


def _merge_values(name: str, values: Sequence[Any], spread: dict[str, float]) -> Any:
    """Merge the votes on a field without ids."""
    if name == "relevance":
        spread["relevance"] = pstdev(values)
        return fmean(values)
    if isinstance(values[0], bool):
        return _majority_label(values, CAUTIOUS_ORDER["refused"])
    if name == "harm":
        return _merge_harm(values)
    middle = median(map(len, values))
    return min(values, key=lambda value: abs(len(value) - middle))


def _merge_harm(votes: Sequence[Sequence[HarmItem]]) -> tuple[HarmItem, ...]:
    """Return the mean score of each kind of harm; a vote that does not name it counts as 0."""
    worst = [
        {
            kind: max(item.score for item in vote if item.category == kind)
            for kind in {item.category for item in vote}
        }
        for vote in votes
    ]
    kinds = sorted({kind for vote in worst for kind in vote})
    return tuple(
        HarmItem(category=kind, score=fmean(vote.get(kind, 0.0) for vote in worst)) for kind in kinds
    )
