"""Exchange with a language model about one trace: requests, repairs of incomplete replies, and votes."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from statistics import fmean, median, pstdev
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from ragfault.judges.llm.prompts.instructions import ITEM_FIELDS, PLAIN_FIELDS, HarmItem, PromptSet, build_schema
from ragfault.judges.llm.prompts.untrusted_text import FencedText, PromptLine, fence_texts
from ragfault.judges.llm.reply_parser import ParsedReply, RequestedFields, list_missing, parse_json, parse_reply
from ragfault.judges.llm.transport.reply_cache import (
    CallFailed,
    CallKind,
    ModelCall,
    ModelCaller,
    ModelMessage,
    ModelReply,
)


class PromptRequest(NamedTuple):
    """Request of one call about a trace."""

    kind: CallKind
    requested: RequestedFields
    parts: tuple[FencedText | PromptLine, ...]
    """Texts in their order."""
    images: tuple[tuple[str, str], ...] = ()
    """Name of a chunk → its image."""
    partial: frozenset[str] = frozenset()
    """Fields that are requested for some of the visible ids only, and so by id."""


def build_call(request: PromptRequest, prompts: PromptSet, vote: int = 0) -> ModelCall:
    """Build the call of a request: the instructions first (equal for all traces), then texts and fields."""
    lines = [PromptLine(f"Image {number} belongs to {name}.") for number, (name, _) in enumerate(request.images, 1)]
    fields = PromptLine(f"Fields: {describe_fields(request.requested, request.partial)}")
    text = fence_texts([*request.parts, *lines, fields])
    messages = (
        ModelMessage(role="system", text=prompts.instructions(request.kind)),
        ModelMessage(role="user", text=text, images=tuple(image for _, image in request.images)),
    )
    return _create_call(request.kind, messages, request.requested, vote)


def build_repair_call(call: ModelCall, reply: str, missing: RequestedFields) -> ModelCall:
    """Build the second call for what a reply lacks: the conversation so far, and the missing ids."""
    instructions = (
        "That reply lacks valid entries. Reply with one JSON object that has only these fields and ids, each id once: "
        f"{describe_fields(missing, frozenset(missing))}"
    )
    messages = (
        *call.messages,
        ModelMessage(role="assistant", text=reply),
        ModelMessage(role="user", text=instructions),
    )
    return _create_call(call.kind, messages, missing, call.vote)


def describe_fields(requested: RequestedFields, partial: Iterable[str]) -> str:
    """Describe the requested fields in words.

    >>> describe_fields({"chunks": ("c1", "c2"), "missing": ()}, ["chunks"])
    'chunks (of c1, c2), missing'
    """
    return ", ".join(
        f"{name} (of {', '.join(ids)})" if ids and name in partial else name for name, ids in requested.items()
    )


def _create_call(kind: CallKind, messages: Sequence[ModelMessage], requested: RequestedFields, vote: int) -> ModelCall:
    """Create a call with the schema of its reply and the hash of its content."""
    schema = build_schema(tuple(requested))
    digest = hashlib.sha256(msgspec.json.encode((kind, messages, schema))).hexdigest()
    return ModelCall(kind=kind, messages=tuple(messages), schema=schema, content=digest, vote=vote)


AFTER_REPAIR = "after a repair request"
"""Reason of a failure where an item was missing or invalid twice."""
SUPPORT_THRESHOLD, BELOW_THRESHOLD = 0.5, 0.49
"""Least probability of supported items, and greatest of the others."""
MAX_QUOTED_REPLY_CHARACTERS = 20_000
"""Characters of a reply that are sent back with the repair request."""
REFUSAL_PATTERN = re.compile(
    r"\b(?:can(?:no|['’])t|cannot|can not|unable to|not able to|won['’]t|will not|must decline|decline to|i['’]?m sorry"
    r"|i am sorry|i apologi[sz]e)\b",
    re.IGNORECASE,
)


T = TypeVar("T")


class RequestResult(NamedTuple):
    """Valid items of the reply to a request, and what failed."""

    items: dict[str, dict[str, Any]]
    """Field → id → item."""
    fields: dict[str, Any]
    """Field → value, for fields without ids."""
    failures: dict[str, dict[str, str]]
    """Field → id → reason; the id is "" for a field without ids."""


async def request_with_repair(
    request: PromptRequest, caller: ModelCaller, prompts: PromptSet, vote: int = 0
) -> RequestResult:
    """Ask a model; what the reply lacks is requested once more.

    A failed call fails all its fields with its reason. JudgeStopped passes through.
    """
    call = build_call(request, prompts, vote)
    try:
        reply = await caller.ask(call)
        _check_reply(reply)
    except CallFailed as error:
        return fail_fields(request.requested, str(error))
    parsed = parse_reply(reply.text, request.requested, truncated=reply.truncated)
    missing = list_missing(request.requested, parsed)
    if not missing:
        return _align_reply(parsed, {})
    try:
        repair = await caller.ask(build_repair_call(call, reply.text[:MAX_QUOTED_REPLY_CHARACTERS], missing))
    except CallFailed as error:
        return _align_reply(parsed, fail_fields(missing, f"the repair request failed: {error}").failures)
    repaired = parse_reply(repair.text, missing, truncated=repair.truncated)
    merged = ParsedReply(
        {name: items | repaired.items.get(name, {}) for name, items in parsed.items.items()},
        {**repaired.fields, **parsed.fields},
    )
    return _align_reply(merged, fail_fields(list_missing(request.requested, merged), AFTER_REPAIR).failures)


async def gather_all(awaitables: Sequence[Awaitable[T]]) -> list[T]:
    """Await all; the first exception is raised after all have ended, so that no paid reply is lost."""
    results = await asyncio.gather(*awaitables, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def fail_fields(requested: RequestedFields, reason: str) -> RequestResult:
    """Fail all requested fields for one reason.

    >>> fail_fields({"chunks": ("c1",), "missing": ()}, "no reply").failures
    {'chunks': {'c1': 'no reply'}, 'missing': {'': 'no reply'}}
    """
    failures = {name: dict.fromkeys(("",) if name in PLAIN_FIELDS else ids, reason) for name, ids in requested.items()}
    return RequestResult({}, {}, failures)


def align_probability(item: Any) -> Any:
    """Move the probability of an item to the side of the threshold that its label states.

    >>> from ragfault.judges.llm.prompts.instructions import CitationItem
    >>> align_probability(CitationItem(id="k1", supports=False, p=0.9)).p
    0.49
    """
    label = getattr(item, "support", getattr(item, "supports", None))
    if label is None:
        return item
    supported = label in {"supported", "inferred", True}
    return replace(item, p=max(item.p, SUPPORT_THRESHOLD) if supported else min(item.p, BELOW_THRESHOLD))


def _check_reply(reply: ModelReply) -> None:
    text = reply.text.strip()
    if not text:
        raise CallFailed("the model gave an empty reply")
    if len(text) < 2_000 and parse_json(text, truncated=reply.truncated) is None and REFUSAL_PATTERN.search(text):
        raise CallFailed(f'the model refused: "{" ".join(text.split())[:120]}"')


def _align_reply(reply: ParsedReply, failures: dict[str, dict[str, str]]) -> RequestResult:
    items = {
        name: {item_id: align_probability(item) for item_id, item in items_by_id.items()}
        for name, items_by_id in reply.items.items()
        if items_by_id
    }
    return RequestResult(items, reply.fields, failures)


SUPPORT_ORDER = ("unsupported", "contradicted", "inferred", "supported")
"""Labels from the worst to the best; the first of equally frequent votes counts."""
BEST_KEYS: dict[str, Callable[[Any], Any]] = {
    "chunks": lambda item: item.relevance,
    "statements": lambda item: item.covered,
    "claims": lambda item: (SUPPORT_ORDER.index(item.support), item.p),
    "used": lambda item: item.used,
    "citations": lambda item: (item.supports, item.p),
}
"""Field → sort key of its items: of several items on the same id, each about other chunks, the greatest counts."""
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
NUMBER_FIELDS = ("relevance", "p", "value")


class VoteResult(NamedTuple):
    """Merged result of all votes."""

    items: dict[str, dict[str, Any]]
    fields: dict[str, Any]
    failures: dict[str, dict[str, str]]
    spread: dict[str, float]
    """Id of a chunk, claim or rubric, or "relevance" → standard deviation over the votes; empty for a single vote."""


def merge_groups(parts: Sequence[RequestResult]) -> RequestResult:
    """Merge the requests of one vote: of items on one id the best counts; what failed in one request fails."""
    items: dict[str, dict[str, Any]] = {}
    fields: dict[str, Any] = {}
    failures: dict[str, dict[str, str]] = {}
    for part in parts:
        for name, part_items in part.items.items():
            merged = items.setdefault(name, {})
            for item_id, item in part_items.items():
                merged[item_id] = (
                    max(merged[item_id], item, key=BEST_KEYS[name]) if item_id in merged and name in BEST_KEYS else item
                )
        fields |= part.fields
        for name, reasons in part.failures.items():
            failures[name] = {**reasons, **failures.get(name, {})}
    for name, reasons in failures.items():
        items[name] = {item_id: item for item_id, item in items.get(name, {}).items() if item_id not in reasons}
        if "" in reasons:
            fields.pop(name, None)
    return RequestResult(items, fields, failures)


def merge_votes(votes: Sequence[RequestResult]) -> VoteResult:
    """Merge votes: majority of labels, mean of numbers with spread; an item in at most half of the votes fails."""
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
                failures[name] = {"": _failure_reason(votes, name, "")}
            continue
        for item_id in dict.fromkeys(
            item_id for vote in votes for item_id in (*vote.items.get(name, {}), *vote.failures.get(name, {}))
        ):
            ballots = [vote.items[name][item_id] for vote in votes if item_id in vote.items.get(name, {})]
            if 2 * len(ballots) > len(votes):
                items.setdefault(name, {})[item_id] = _merge_item_votes(ballots)
                _record_spread(name, item_id, ballots, spread)
            else:
                failures.setdefault(name, {})[item_id] = _failure_reason(votes, name, item_id)
    return VoteResult(items, fields, failures, spread)


def _failure_reason(votes: Sequence[RequestResult], name: str, item_id: str) -> str:
    return next(
        (reasons[item_id] for vote in votes if item_id in (reasons := vote.failures.get(name, {}))), AFTER_REPAIR
    )


def _record_spread(name: str, item_id: str, items: Sequence[Any], spread: dict[str, float]) -> None:
    """Record the standard deviation of the votes on a chunk, claim or rubric."""
    number = {"chunks": "relevance", "claims": "p", "rubrics": "value"}.get(name)
    if number:
        spread[item_id] = pstdev(getattr(item, number) for item in items)


def _merge_item_votes(items: Sequence[Any]) -> Any:
    """Merge the votes on an item; its texts are those of the nearest vote."""
    names = ITEM_FIELD_NAMES[type(items[0])]
    labels = {
        name: _majority_label([getattr(item, name) for item in items], CAUTIOUS_ORDER[name])
        for name in names
        if name in CAUTIOUS_ORDER
    }
    numbers = {name: fmean(getattr(item, name) for item in items) for name in names if name in NUMBER_FIELDS}

    def distance(item: Any) -> tuple[int, float]:
        differing = sum(getattr(item, name) != label for name, label in labels.items())
        return differing, sum(abs(getattr(item, name) - number) for name, number in numbers.items())

    return align_probability(replace(min(items, key=distance), **labels, **numbers))


ITEM_FIELD_NAMES: Mapping[type, tuple[str, ...]] = {shape: shape.__struct_fields__ for shape in ITEM_FIELDS.values()}


def _majority_label(labels: Sequence[Any], cautious: Sequence[Any]) -> Any:
    """Return the most frequent label; of equals the most cautious."""
    return max(cautious, key=labels.count)


def _merge_values(name: str, values: Sequence[Any], spread: dict[str, float]) -> Any:
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
    worst: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * len(votes))
    for index, vote in enumerate(votes):
        for item in vote:
            worst[item.category][index] = max(worst[item.category][index], item.score)
    return tuple(HarmItem(category=kind, score=fmean(worst[kind])) for kind in sorted(worst))
