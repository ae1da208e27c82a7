"""ASGI middleware that guards an OpenAI-compatible endpoint: `app = GuardMiddleware(app, guard)`.

Query and passages are checked before the endpoint sees them, its answer before the client does. Passages are those of
the field `contexts` of the request, which is not passed on, else what `retrieve` returns for the query.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from msgspec.structs import replace

from ragfault.apps.guard.decisions import SEVERITIES, GuardDecision
from ragfault.apps.guard.frameworks.tool_calls import TOOL_RESULTS, read_tool_calls, read_tool_results
from ragfault.apps.guard.rails import RailResult, run_in_thread
from ragfault.apps.guard.runtime import STAGES, Guard
from ragfault.evaluation.online.scorer import to_chunks
from ragfault.io.otel.recorded_content import extract_question
from ragfault.model.records import Chunk, Trace

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

GUARDED = "/chat/completions"
REFUSED = ("/completions", "/responses")
"""Endpoints that give answers and are not guarded: they are refused, as are answers that were stored."""
MAX_BODY = 32_000_000
logger = logging.getLogger(__name__)


class GuardMiddleware:
    """Middleware around an application with the endpoint /chat/completions.

    A blocked request or answer is a completion with the policy's message and the finish reason "content_filter". The
    header `x-ragfault-guard` names the decision. A passage that a rail drops or masks is replaced in the messages, and
    the request is blocked where it does not stand there word for word. What cannot be checked is not passed on: an
    answer that is no completion, calls of tools that cannot be read, or a failure of `retrieve` or `route` (logged, not
    told to the client), becomes status 502, and other endpoints that give answers are refused with 501.
    """

    def __init__(
        self,
        app: Application,
        guard: Guard,
        *,
        retrieve: Callable[[str], Iterable[Any]] | None = None,
        route: Callable[[Mapping[str, Any]], str | None] = lambda body: None,  # noqa: ARG005 - a request has no route
    ) -> None:
        self.app, self.guard, self.retrieve, self.route = app, guard, retrieve, route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "").rstrip("/")
        if scope["type"] != "http" or scope["method"] in ("OPTIONS", "HEAD"):
            await self.app(scope, receive, send)
        elif path.endswith(GUARDED) and scope["method"] == "POST":
            await self._guard(scope, receive, send)
        elif any(f"{name}/" in f"{path}/" for name in REFUSED):
            await send_refusal(send, 501, f"the guard does not cover {scope['method']} {path}")
        else:
            await self.app(scope, receive, send)

    async def _guard(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = json.loads(await read_body(receive))
            query = extract_question(body["messages"]) or ""
            contexts = body.pop("contexts", None)
            chunks = None if contexts is None else to_chunks(contexts)
        except Exception as error:  # noqa: BLE001 - what cannot be read is not passed on
            await send_refusal(send, 400, f"{type(error).__name__}: {error}")
            return
        try:
            if chunks is None and self.retrieve is not None:
                retrieve = self.retrieve
                chunks = to_chunks(await run_in_thread(lambda: retrieve(query)))
            trace = Trace(id=uuid4().hex, query=query, chunks=chunks, route=self.route(body))
        except Exception:
            logger.exception("the request is refused: its passages or its route cannot be determined")
            await send_refusal(send, 502, "the passages cannot be retrieved")
            return
        try:
            checked = await check_request(self.guard, trace, body)
        except ValueError as error:
            await send_refusal(send, 400, str(error))
            return
        if isinstance(checked, GuardDecision):
            await _send_completion(send, body, make_completion(body.get("model", ""), checked), "block")
            return
        forwarded = _forward_body(remove_stream(body), scope)
        await self._answer(checked, body, forwarded, send)

    async def _answer(
        self, checked: CheckedRequest, body: Mapping[str, Any], forwarded: tuple[Scope, Receive], send: Send
    ) -> None:
        """Call the application, decide on every choice, and send the completion."""
        status, headers, payload = await _collect_response(self.app, *forwarded)
        if status != 200:
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": payload})
            return
        try:
            completion = json.loads(payload)
            decisions = await decide_choices(self.guard, checked, completion)
            if not completion["choices"]:
                raise ValueError("it has no choice")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            await send_refusal(send, 502, f"no completion: {type(error).__name__}: {error}")
            return
        outcome = max((decision.outcome for decision in decisions), key=SEVERITIES.index, default="pass")
        await _send_completion(send, body, completion, outcome)


class CheckedRequest(NamedTuple):
    """A request whose query and passages may reach the endpoint."""

    trace: Trace
    """Query and passages as rails left them."""
    results: tuple[RailResult, ...]


async def check_request(guard: Guard, trace: Trace, body: dict[str, Any]) -> CheckedRequest | GuardDecision:
    """Check query and passages, and replace in the messages what rails fixed; return a decision where they block.

    Results of tools in the messages are passages, too. A passage that does not stand in the messages word for word
    cannot be replaced: then the request is blocked. Raises ValueError where the query was fixed and is no plain text in
    the messages, and for results of tools that are no text.
    """
    begun = time.perf_counter()
    if tool_results := read_tool_results(body.get("messages"), [chunk.text for chunk in trace.chunks or ()]):
        trace = replace(trace, chunks=(*(trace.chunks or ()), *tool_results))
    results: list[RailResult] = []
    for stage in STAGES[:2]:
        checked = await guard.check_stage(trace, stage)
        before, trace = trace, checked.trace
        if checked.outcome == "block" or not _replace_chunks(body, before.chunks or (), trace.chunks or ()):
            return guard.block(before, stage, checked, begun, results)
        results += checked.results
        if before.query != trace.query and not _replace_query(body, trace.query):
            raise ValueError("the query cannot be fixed in these messages")
    return CheckedRequest(trace, tuple(results))


async def decide_choices(guard: Guard, checked: CheckedRequest, completion: dict[str, Any]) -> list[GuardDecision]:
    """Decide on every choice of a completion, and replace it by what the user gets.

    Calls of tools are decided on by their arguments. Raises TypeError, KeyError, ValueError or AttributeError for what
    is no completion.
    """
    choices = completion["choices"]
    texts = [choice["message"].get("content") for choice in choices]
    if not all(isinstance(text, str | None) for text in texts):
        raise TypeError("the content of a choice is not a text")
    calls = [read_tool_calls(choice["message"]) for choice in choices]
    decisions: list[GuardDecision] = []
    for choice, text, arguments in zip(choices, texts, calls, strict=True):
        blocked, earlier = None, checked.results
        if text or (text is not None and arguments is None):
            decision = await guard.decide_async(replace(checked.trace, answer=text), ("output",), earlier)
            choice["message"]["content"] = decision.text
            decisions.append(decision)
            blocked, earlier = (decision if decision.outcome == "block" else None), ()
        if arguments is not None and blocked is None:
            decision = await guard.decide_tool_calls(checked.trace, arguments, earlier)
            decisions.append(decision)
            blocked = decision if decision.outcome == "block" else None
        choice.pop("logprobs", None)
        if blocked is not None:
            choice["finish_reason"] = "content_filter"
            choice["message"] = {"role": "assistant", "content": blocked.text}
    return decisions


def remove_stream(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request without a stream and its options, which endpoints refuse where no stream is asked for."""
    return {name: value for name, value in body.items() if name not in ("stream", "stream_options")}


def make_completion(model: str, blocked: GuardDecision) -> dict[str, Any]:
    """Make the completion of a request that is blocked."""
    message = {"role": "assistant", "content": blocked.text or ""}
    return {
        "id": f"guard-{uuid4().hex}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "content_filter"}],
    }


def list_chunk_events(completion: Mapping[str, Any], body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the events of a stream of a completion: each choice with its end, then the usage if the request asks for it.

    A message is one event, with the calls of tools and all else that it holds.
    """
    common = {name: completion.get(name) for name in ("id", "created", "model")}
    common["object"] = "chat.completion.chunk"
    events = []
    for number, choice in enumerate(completion["choices"]):
        delta = {**choice["message"], "content": choice["message"].get("content") or ""}
        if delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(delta["tool_calls"])]
        for part, reason in ((delta, None), ({}, choice.get("finish_reason") or "stop")):
            events.append({**common, "choices": [{"index": number, "delta": part, "finish_reason": reason}]})
    if (body.get("stream_options") or {}).get("include_usage") and completion.get("usage"):
        events.append({**common, "choices": [], "usage": completion["usage"]})
    return events


def _replace_query(body: dict[str, Any], query: str) -> bool:
    """Replace the last question of the user; False where its content is no plain text."""
    for message in reversed(body["messages"]):
        if message.get("role") == "user" and not holds_tool_results(message):
            if not isinstance(message.get("content"), str):
                return False
            message["content"] = query
            return True
    return False


def holds_tool_results(message: Mapping[str, Any]) -> bool:
    """Return whether all parts of a message are results of tools."""
    parts = message.get("content")
    return isinstance(parts, list) and all(
        isinstance(part, dict) and part.get("type") in TOOL_RESULTS for part in parts
    )


def _replace_chunks(body: dict[str, Any], before: Sequence[Chunk], after: Sequence[Chunk]) -> bool:
    """Replace the chunks that rails dropped or masked in the messages; False where one of them stands in none."""
    texts_after = {chunk.text for chunk in after}
    texts_before = {chunk.text for chunk in before}
    for chunk in before:
        if chunk.text in texts_after or not chunk.text.strip():
            continue
        masked = [fixed.text for fixed in after if fixed.id == chunk.id and fixed.text not in texts_before]
        if not _replace_text(body["messages"], chunk.text.strip(), masked[0].strip() if len(masked) == 1 else ""):
            return False
    return True


def _replace_text(messages: Sequence[dict[str, Any]], old: str, new: str) -> bool:
    """Replace a text wherever it stands in the texts of messages; return whether it did."""
    replaced = False
    for holder in _list_holders(messages):
        for key in ("content", "text", "output"):
            if isinstance(holder.get(key), str) and old in holder[key]:
                holder[key], replaced = holder[key].replace(old, new), True
    return replaced


def _list_holders(messages: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield messages, their parts, and the parts of results of tools."""
    for holder in messages:
        if isinstance(holder, dict):
            yield holder
            for parts in (holder.get("content"), holder.get("output")):
                yield from _list_holders(parts if isinstance(parts, list) else ())


async def read_body(receive: Receive) -> bytes:
    """Read the body of a request; ValueError beyond MAX_BODY bytes, ConnectionError where the client has gone."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client has gone")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY:
            raise ValueError(f"the body has more than {MAX_BODY:,} bytes")
        if not message.get("more_body"):
            return b"".join(parts)


def _forward_body(body: Mapping[str, Any], scope: Scope) -> tuple[Scope, Receive]:
    """Return the scope and the channel of a request with this body."""
    data = json.dumps(body).encode()
    headers = [
        (name, value)
        for name, value in scope["headers"]
        if name.lower() not in (b"content-length", b"accept-encoding", b"transfer-encoding")
    ]
    was_sent = asyncio.Event()

    async def receive() -> Message:
        if was_sent.is_set():
            await asyncio.sleep(3600)
            return {"type": "http.disconnect"}
        was_sent.set()
        return {"type": "http.request", "body": data, "more_body": False}

    return {**scope, "headers": [*headers, (b"content-length", str(len(data)).encode())]}, receive


async def _collect_response(app: Application, scope: Scope, receive: Receive) -> tuple[int, list[Any], bytes]:
    start: dict[str, Any] = {"status": 502, "headers": []}
    parts: list[bytes] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(status=message["status"], headers=list(message.get("headers", ())))
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return start["status"], start["headers"], b"".join(parts)


async def _send_json(send: Send, status: int, body: Any, outcome: str) -> None:
    data = json.dumps(body).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(data)).encode()),
        (b"x-ragfault-guard", outcome.encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


async def _send_completion(send: Send, body: Mapping[str, Any], completion: Mapping[str, Any], outcome: str) -> None:
    """Send a completion; as events where the client asked for a stream."""
    if not body.get("stream"):
        await _send_json(send, 200, completion, outcome)
        return
    headers = [(b"content-type", b"text/event-stream"), (b"x-ragfault-guard", outcome.encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for event in list_chunk_events(completion, body):
        await send({"type": "http.response.body", "body": f"data: {json.dumps(event)}\n\n".encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def send_refusal(send: Send, status: int, message: str) -> None:
    """Send an error that the guard gives in place of the endpoint."""
    await _send_json(send, status, {"error": {"message": message, "type": "guard_error"}}, "refused")
