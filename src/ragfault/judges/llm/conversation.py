"""One request to a model: its wording as a call, the reply, and one repair call for what the reply lacks."""

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
    """What one call asks about a trace."""

    kind: CallKind
    requested: RequestedFields
    parts: tuple[FencedText | PromptLine, ...]
    """The texts, in their order."""
    images: tuple[tuple[str, str], ...] = ()
    """Name of a chunk → its picture."""
    partial: frozenset[str] = frozenset()
    """Fields that are asked for of some of the ids in sight, and so by id."""


def build_call(request: PromptRequest, prompts: PromptSet, vote: int = 0) -> ModelCall:
    """A request as a call: the instructions first, the same for every trace, then the texts, then what is asked for."""
    lines = [PromptLine(f"Image {at} belongs to {name}.") for at, (name, _) in enumerate(request.images, 1)]
    asked = PromptLine(f"Fields: {describe_fields(request.requested, request.partial)}")
    text = fence_texts([*request.parts, *lines, asked])
    messages = (
        ModelMessage(role="system", text=prompts.instructions(request.kind)),
        ModelMessage(role="user", text=text, images=tuple(picture for _, picture in request.images)),
    )
    return _create_call(request.kind, messages, request.requested, vote)


def build_repair_call(call: ModelCall, reply: str, missing: RequestedFields) -> ModelCall:
    """The one further call for what a reply lacks: after the conversation so far, by ids alone."""
    told = (
        "That reply lacks valid entries. Reply with one JSON object that has only these fields and ids, each id once: "
        f"{describe_fields(missing, frozenset(missing))}"
    )
    messages = (
        *call.messages,
        ModelMessage(role="assistant", text=reply),
        ModelMessage(role="user", text=told),
    )
    return _create_call(call.kind, messages, missing, call.vote)


def describe_fields(requested: RequestedFields, partial: Iterable[str]) -> str:
    """What is asked for, in words.

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
    """A call with the schema of its reply and the hash of all that bears on it."""
    held = build_schema(tuple(requested))
    content = hashlib.sha256(msgspec.json.encode((kind, messages, held))).hexdigest()
    return ModelCall(kind=kind, messages=tuple(messages), schema=held, content=content, vote=vote)


AFTER_REPAIR = "after a repair request"
"""Why an item is lost that a model left out or got wrong twice."""
SUPPORT_THRESHOLD, BELOW_THRESHOLD = 0.5, 0.49
"""What is supported has a probability of at least this, what is not at most that."""
MAX_REPLY_ECHO = 20_000
"""So much of a reply is sent back with the repair request."""
REFUSAL_PATTERN = re.compile(
    r"\b(?:can(?:no|['’])t|cannot|can not|unable to|not able to|won['’]t|will not|must decline|decline to|i['’]?m sorry"
    r"|i am sorry|i apologi[sz]e)\b",
    re.IGNORECASE,
)


T = TypeVar("T")


class RequestResult(NamedTuple):
    """What a model said to a request, and what it did not."""

    items: dict[str, dict[str, Any]]
    """Field → id → item."""
    fields: dict[str, Any]
    """Field → value, of those that go by no id."""
    failures: dict[str, dict[str, str]]
    """Field → id → why there is none; under the id "" for a field that goes by no id."""


async def converse(
    request: PromptRequest, caller: ModelCaller, prompts: PromptSet, vote: int = 0
) -> RequestResult:
    """What a model says to a request; what it leaves out or gets wrong is asked for once more.

    A call that fails loses all that it asked for, with its reason. Stopped passes through.
    """
    first = build_call(request, prompts, vote)
    try:
        reply = await caller.ask(first)
        _check_reply(reply)
    except CallFailed as error:
        return fail_fields(request.requested, str(error))
    said = parse_reply(reply.text, request.requested, truncated=reply.truncated)
    lacking = list_missing(request.requested, said)
    if not lacking:
        return _align_reply(said, {})
    try:
        again = await caller.ask(build_repair_call(first, reply.text[:MAX_REPLY_ECHO], lacking))
    except CallFailed as error:
        return _align_reply(said, fail_fields(lacking, f"the repair request failed: {error}").failures)
    mended = parse_reply(again.text, lacking, truncated=again.truncated)
    whole = ParsedReply(
        {name: items | mended.items.get(name, {}) for name, items in said.items.items()},
        {**mended.fields, **said.fields},
    )
    return _align_reply(whole, fail_fields(list_missing(request.requested, whole), AFTER_REPAIR).failures)


async def gather_all(awaitables: Sequence[Awaitable[T]]) -> list[T]:
    """What all of them come to; what one raises is raised when all have ended, so that no paid reply is thrown away."""
    found = await asyncio.gather(*awaitables, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one for one in found if not isinstance(one, BaseException)]


def fail_fields(requested: RequestedFields, reason: str) -> RequestResult:
    """All that was wanted, lost for one reason.

    >>> fail_fields({"chunks": ("c1",), "missing": ()}, "no reply").failures
    {'chunks': {'c1': 'no reply'}, 'missing': {'': 'no reply'}}
    """
    lost = {
        name: dict.fromkeys(("",) if name in PLAIN_FIELDS else ids, reason) for name, ids in requested.items()
    }
    return RequestResult({}, {}, lost)


def align_probability(item: Any) -> Any:
    """An item whose probability is on the side of the bar that its label says: the label counts.

    >>> from ragfault.judges.llm.prompts.instructions import CitationItem
    >>> align_probability(CitationItem(id="k1", supports=False, p=0.9)).p
    0.49
    """
    label = getattr(item, "support", getattr(item, "supports", None))
    if label is None:
        return item
    holds = label in {"supported", "inferred", True}
    return replace(item, p=max(item.p, SUPPORT_THRESHOLD) if holds else min(item.p, BELOW_THRESHOLD))


def _check_reply(reply: ModelReply) -> None:
    """Refuse a reply that says nothing, or that nothing will be said."""
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
        name: {one: align_probability(item) for one, item in held.items()}
        for name, held in reply.items.items()
        if held
    }
    return RequestResult(items, reply.fields, failures)
