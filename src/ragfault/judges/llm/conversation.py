"""Conversation about one request: its call, the reply, and one repair call for what the reply lacks."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from ragfault.judges.llm.prompts.fences import FencedText, PromptLine, fence_texts
from ragfault.judges.llm.prompts.instructions import PLAIN_FIELDS, PromptSet, build_schema
from ragfault.judges.llm.reply_parser import (
    ParsedReply,
    RequestedFields,
    list_missing,
    parse_json,
    parse_reply,
)
from ragfault.judges.llm.transport.calls import (
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
    lines = [
        PromptLine(f"Image {number} belongs to {name}.") for number, (name, _) in enumerate(request.images, 1)
    ]
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
        f"{name} (of {', '.join(ids)})" if ids and name in partial else name
        for name, ids in requested.items()
    )


def _create_call(
    kind: CallKind, messages: Sequence[ModelMessage], requested: RequestedFields, vote: int
) -> ModelCall:
    """Create a call with the schema of its reply and the hash of its content."""
    schema = build_schema(tuple(requested))
    content = hashlib.sha256(msgspec.json.encode((kind, messages, schema))).hexdigest()
    return ModelCall(kind=kind, messages=tuple(messages), schema=schema, content=content, vote=vote)


AFTER_REPAIR = "after a repair request"
"""Reason of a failure where an item was missing or invalid twice."""
SUPPORT_THRESHOLD, BELOW_THRESHOLD = 0.5, 0.49
"""Least probability of supported items, and greatest of the others."""
MAX_REPLY_ECHO = 20_000
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


async def converse(
    request: PromptRequest, caller: ModelCaller, prompts: PromptSet, vote: int = 0
) -> RequestResult:
    """Ask a model; what the reply lacks is requested once more.

    A failed call fails all its fields with its reason. JudgeStopped passes through.
    """
    first = build_call(request, prompts, vote)
    try:
        reply = await caller.ask(first)
        _check_reply(reply)
    except CallFailed as error:
        return fail_fields(request.requested, str(error))
    parsed = parse_reply(reply.text, request.requested, truncated=reply.truncated)
    missing = list_missing(request.requested, parsed)
    if not missing:
        return _align_reply(parsed, {})
    try:
        repair = await caller.ask(build_repair_call(first, reply.text[:MAX_REPLY_ECHO], missing))
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
    failures = {
        name: dict.fromkeys(("",) if name in PLAIN_FIELDS else ids, reason) for name, ids in requested.items()
    }
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
    """Raise CallFailed for an empty reply or a refusal."""
    text = reply.text.strip()
    if not text:
        raise CallFailed("the model gave an empty reply")
    if (
        len(text) < 2_000
        and parse_json(text, truncated=reply.truncated) is None
        and REFUSAL_PATTERN.search(text)
    ):
        raise CallFailed(f'the model refused: "{" ".join(text.split())[:120]}"')


def _align_reply(reply: ParsedReply, failures: dict[str, dict[str, str]]) -> RequestResult:
    items = {
        name: {item_id: align_probability(item) for item_id, item in items_by_id.items()}
        for name, items_by_id in reply.items.items()
        if items_by_id
    }
    return RequestResult(items, reply.fields, failures)
