"""OpenAI clients whose calls are guarded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

from ragfault.model.errors import UsageError, require_extra

with require_extra("ragfault.apps.guard.frameworks.openai", "llm"):
    from openai import AsyncOpenAI, OpenAI
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

from ragfault.apps.guard.decisions import GuardDecision
from ragfault.apps.guard.frameworks.asgi import (
    CheckedRequest,
    check_request,
    decide_choices,
    list_chunk_events,
    make_completion,
    remove_stream,
)
from ragfault.apps.guard.policy import GuardPolicy
from ragfault.apps.guard.rails import run_sync
from ragfault.apps.guard.runtime import Guard
from ragfault.evaluation.online.scorer import to_chunks
from ragfault.io.otel.recorded_content import extract_question
from ragfault.model.records import Trace

Client = TypeVar("Client", OpenAI, AsyncOpenAI)
Options = ParamSpec("Options")
ContextRetriever = Callable[[str], Iterable[Any]]


def guard_client(
    client: Client,
    guard: Guard | GuardPolicy | str | Path,
    *,
    contexts: ContextRetriever | None = None,
    route: str | None = None,
) -> Client:
    """Return a copy of a client whose `chat.completions.create` is guarded, plain and async.

    `guard` may be a policy or its file. The call takes `contexts`, the passages in the prompt, and `query`, the
    question of the user, else the last message of the user; neither is sent. `contexts` of this function retrieves the
    passages of a query for calls without any. Passages that a rail drops or masks are replaced in the messages; a
    blocked request never reaches the endpoint, and its completion has the policy's message and the finish reason
    "content_filter". Results of tools in the messages are passages, too. Calls of tools in a completion are decided on
    by their arguments; ValueError for arguments that cannot be read. With `stream` the events come once the answer is
    complete and checked. Raises UsageError for results of tools that are no text, for other calls that give answers,
    which the guard does not cover, and for raw responses.
    """
    guard = guard if isinstance(guard, Guard) else Guard(guard)
    copied = client.copy()
    calls = _GuardedCalls(guard, contexts, route, copied.chat.completions.create)
    create = calls.create_async if isinstance(client, AsyncOpenAI) else calls.create
    setattr(copied.chat.completions, "create", create)  # noqa: B010 - the copy's own, not the class's
    for name in ("parse", "stream", "retrieve", "list"):
        setattr(copied.chat.completions, name, _refuse(f"chat.completions.{name}"))
    for name in UNGUARDED:
        vars(copied)[name] = _Unguarded(name)

    def guard_copies(copy: Callable[Options, Client]) -> Callable[Options, Client]:
        def copy_guarded(*arguments: Options.args, **options: Options.kwargs) -> Client:
            return guard_client(copy(*arguments, **options), guard, contexts=contexts, route=route)

        return copy_guarded

    for name in ("copy", "with_options"):
        setattr(copied, name, guard_copies(client.copy))
    return copied


UNGUARDED = ("responses", "completions", "beta", "realtime")
"""Resources of a client that give answers and are not guarded: their calls are refused."""


def _refuse(name: str) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> Any:
        raise UsageError(f"the guard covers chat.completions.create, and not {name}.")

    return refuse


class _Unguarded:
    """A resource whose calls are refused."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return _refuse(f"{self._name}.{name}")()


class _GuardedCalls:
    """Calls of `chat.completions.create`, each checked before and after."""

    def __init__(
        self, guard: Guard, retrieve_contexts: ContextRetriever | None, route: str | None, create: Callable[..., Any]
    ) -> None:
        self.guard, self.retrieve_contexts, self.route, self.call = guard, retrieve_contexts, route, create

    def create(self, **arguments: object) -> Any:
        trace, body = self._prepare(arguments)
        checked = run_sync(self._check(trace, body))
        if isinstance(checked, GuardDecision):
            return _build_response(body, make_completion(str(body.get("model", "")), checked))
        return run_sync(self._finish(body, checked, self.call(**remove_stream(body))))

    async def create_async(self, **arguments: object) -> Any:
        trace, body = self._prepare(arguments)
        checked = await self._check(trace, body)
        if isinstance(checked, GuardDecision):
            return _build_response(body, make_completion(str(body.get("model", "")), checked))
        return await self._finish(body, checked, await self.call(**remove_stream(body)))

    def _prepare(self, arguments: dict[str, Any]) -> tuple[Trace, dict[str, Any]]:
        """Build the trace of a call, and copy the arguments that are sent: rails change their messages."""
        contexts, query = arguments.pop("contexts", None), arguments.pop("query", None)
        body = {**arguments, "messages": [_copy_message(message) for message in arguments.get("messages", ())]}
        query = extract_question(body["messages"]) or "" if query is None else query
        if contexts is None and self.retrieve_contexts is not None:
            contexts = self.retrieve_contexts(query)
        chunks = None if contexts is None else to_chunks(contexts)
        return Trace(id=uuid4().hex, query=query, chunks=chunks, route=self.route), body

    async def _check(self, trace: Trace, body: dict[str, Any]) -> CheckedRequest | GuardDecision:
        try:
            return await check_request(self.guard, trace, body)
        except ValueError as error:
            raise UsageError(str(error)) from None

    async def _finish(self, body: Mapping[str, Any], checked: CheckedRequest, response: Any) -> Any:
        if not isinstance(response, ChatCompletion):
            raise UsageError(f"the guard cannot read {type(response).__name__}: ask for no raw response.")
        completion = response.model_dump()
        await decide_choices(self.guard, checked, completion)
        return _build_response(body, completion)


def _copy_message(message: Any) -> Any:
    """Copy a message with its parts, so that the caller's stays as it is."""
    return deepcopy(dict(message)) if isinstance(message, Mapping) else message.model_dump(exclude_none=True)


def _build_response(body: Mapping[str, Any], completion: Mapping[str, Any]) -> Any:
    if not body.get("stream"):
        return ChatCompletion.model_validate(completion)
    return _CheckedStream([ChatCompletionChunk.model_validate(event) for event in list_chunk_events(completion, body)])


class _CheckedStream:
    """A stream of the events of a checked answer, to be read by plain or by async code."""

    def __init__(self, events: Sequence[ChatCompletionChunk]) -> None:
        self._events = iter(events)

    def __iter__(self) -> Iterator[ChatCompletionChunk]:
        return self._events

    def __next__(self) -> ChatCompletionChunk:
        return next(self._events)

    def __aiter__(self) -> AsyncIterator[ChatCompletionChunk]:
        return self

    async def __anext__(self) -> ChatCompletionChunk:
        try:
            return next(self._events)
        except StopIteration:
            raise StopAsyncIteration from None

    def __enter__(self) -> _CheckedStream:
        return self

    def __exit__(self, *_: object) -> None:
        """End a block; the stream holds nothing open."""

    async def __aenter__(self) -> _CheckedStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End a block; the stream holds nothing open."""

    def close(self) -> None:
        """Do nothing: the stream holds nothing open."""
