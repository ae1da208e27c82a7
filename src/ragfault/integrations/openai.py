"""OpenAI integration: calls of a client become traces with the contexts they were made from."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast
from uuid import uuid4

from ragfault.model.errors import UsageError, require_extra

with require_extra("ragfault.integrations.openai", "llm"):
    from openai import AsyncOpenAI, OpenAI

from ragfault.evaluation.online.scorer import ScoredTrace, score_response, to_chunks
from ragfault.integrations.recorder import TraceDelivery, TraceSink
from ragfault.io.formats.conversations import find_role
from ragfault.io.otel.recorded_content import extract_messages, extract_question
from ragfault.model.records import Chunk, ConversationTurn, Latency, Step, TokenCounts, Trace

Client = TypeVar("Client", OpenAI, AsyncOpenAI)
ContextRetriever = Callable[[str], Iterable[Any]]


def measure_client(
    client: Client, sink: TraceSink, *, contexts: ContextRetriever | None = None, route: str | None = None
) -> Client:
    """Return a copy of a client whose calls become traces, for a background scorer, a function or a file.

    `chat.completions.create` and `responses.create`, plain, async and streamed, take three more arguments, which are
    not sent: `contexts`, the passages in the prompt; `query`, the question of the user, else the last message of the
    user; `reference`, a correct answer. `contexts` of this function retrieves the passages of a query for calls without
    any. Results and errors of the client are unchanged; Azure's clients are copied alike.
    """
    copied = client.copy()
    calls = _CallRecorder(TraceDelivery(sink, route), contexts, isinstance(client, AsyncOpenAI))
    for resource in (copied.chat.completions, copied.responses):
        setattr(resource, "create", calls.wrap(resource.create))  # noqa: B010 - the copy's own, not the class's
    return copied


def score_completion(response: Any, query: str, contexts: Iterable[Any], **options: Any) -> ScoredTrace:
    """Score one response of chat completions or of responses with its contexts, at once.

    `options` are those of `ragfault.evaluation.online.scorer.score_response`: judge, profile, metrics, reference …
    Raises UsageError if the response has no text.
    """
    answer = _get_text(response)
    if answer is None:
        raise UsageError(f"this {type(response).__name__} holds no text to score.")
    response_fields = {"model": getattr(response, "model", None), "tokens": _get_tokens(response)}
    return score_response(query, contexts, answer, **{**response_fields, **options})


class _CallRecorder:
    """Records calls of a client as traces."""

    def __init__(self, delivery: TraceDelivery, retrieve_contexts: ContextRetriever | None, is_async: bool) -> None:
        self.delivery, self.retrieve_contexts, self.is_async = delivery, retrieve_contexts, is_async

    def wrap(self, create: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a call so that it is recorded."""

        def call_plain(*args: Any, **arguments: Any) -> Any:
            call = self._begin_call(arguments)
            try:
                response = create(*args, **arguments)
            except Exception as error:
                call.end(None, error)
                raise
            if arguments.get("stream"):
                return _RecordedStream(response, call)
            call.end(response)
            return response

        async def call_async(*args: Any, **arguments: Any) -> Any:
            call = self._begin_call(arguments)
            try:
                response = await create(*args, **arguments)
            except Exception as error:
                call.end(None, error)
                raise
            if arguments.get("stream"):
                return _AsyncRecordedStream(response, call)
            call.end(response)
            return response

        return call_async if self.is_async else call_plain

    def _begin_call(self, arguments: dict[str, Any]) -> _OpenAICall:
        """Begin a call, and remove the arguments that are not to be sent."""
        contexts, query, reference = (arguments.pop(name, None) for name in ("contexts", "query", "reference"))
        if query is None:
            query = (
                extract_question(arguments.get("messages"))
                or extract_question(_to_messages(arguments.get("input")))
                or ""
            )
        if contexts is None and self.retrieve_contexts is not None:
            try:
                contexts = self.retrieve_contexts(query)
            except Exception as error:  # noqa: BLE001
                self.delivery.reject(error)
        call = _OpenAICall(self.delivery, query, contexts, reference, str(arguments.get("model") or "") or None)
        call.messages = _list_turns(arguments.get("messages") or arguments.get("input"), arguments.get("instructions"))
        return call


class _OpenAICall:
    """A call that has not ended."""

    def __init__(self, delivery: TraceDelivery, query: str, contexts: Any, reference: Any, model: str | None) -> None:
        self.delivery, self.query, self.contexts = delivery, query, contexts
        self.reference, self.model, self.started = reference, model, time.perf_counter()
        self.messages: tuple[ConversationTurn, ...] | None = None
        """The request; None where a message of it has no text, or a role that chats do not have."""

    def end(self, response: Any, error: BaseException | None = None) -> None:
        """Deliver the trace of a complete response, or of the received part of it."""
        try:
            recorded = response if isinstance(response, _OpenAIResponse) else _OpenAIResponse.from_response(response)
            self.delivery.deliver_trace(self._build_trace(recorded, error))
        except Exception as failure:  # noqa: BLE001 - recording never breaks the caller
            self.delivery.reject(failure)

    def _build_trace(self, response: _OpenAIResponse, error: BaseException | None) -> Trace:
        duration = 1000 * (time.perf_counter() - self.started)
        chunks: tuple[Chunk, ...] | None = None if self.contexts is None else to_chunks(self.contexts)
        return Trace(
            id=uuid4().hex,
            query=self.query,
            chunks=chunks,
            answer=response.text,
            messages=self.messages,
            reference=self.reference,
            model=response.model or self.model,
            finish_reason=response.finish_reason,
            tokens=response.tokens,
            latency=Latency(generation=duration, total=duration),
            steps=(Step(id="generate", kind="generate", start=0.0, duration=duration),),
            error=None if error is None else f"{type(error).__name__}: {error}",
        )


class _OpenAIResponse:
    """The response of an endpoint, complete or in events."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.model: str | None = None
        self.finish_reason: str | None = None
        self.tokens: TokenCounts | None = None

    @classmethod
    def from_response(cls, response: Any) -> _OpenAIResponse:
        """Read a complete response."""
        recorded = cls()
        recorded.add_metadata(response)
        recorded.text = _get_text(response)
        return recorded

    def add_metadata(self, response: Any) -> None:
        """Record the model, the tokens and why it stopped."""
        choice = next(iter(getattr(response, "choices", None) or ()), None)
        incomplete = getattr(response, "incomplete_details", None)
        reason = getattr(choice, "finish_reason", None) or getattr(incomplete, "reason", None)
        self.finish_reason = reason or self.finish_reason
        self.model = getattr(response, "model", None) or self.model
        self.tokens = _get_tokens(response) or self.tokens

    def add_event(self, event: Any) -> None:
        """Record a chunk of a completion, or an event of a response."""
        kind = getattr(event, "type", None)
        if kind == "response.output_text.delta":
            self.text = (self.text or "") + event.delta
        elif kind in ("response.completed", "response.incomplete"):
            self.add_metadata(event.response)
            self.text = _get_text(event.response) or self.text
        elif hasattr(event, "choices"):
            self.add_metadata(event)
            choice = event.choices[0] if event.choices else None
            if choice is not None and choice.index == 0 and choice.delta.content:
                self.text = (self.text or "") + choice.delta.content


class _RecordedStream:
    """A stream that passes events on, and delivers the trace when it has ended or is closed."""

    def __init__(self, stream: Any, call: _OpenAICall) -> None:
        self._stream, self._call, self._response, self._ended = stream, call, _OpenAIResponse(), False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            event = next(self._stream)
        except StopIteration:
            self._end(None)
            raise
        except Exception as error:
            self._end(error)
            raise
        self._record_event(event)
        return event

    def __enter__(self) -> _RecordedStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the stream; the received text is the answer."""
        self._end(None)
        self._stream.close()

    def _record_event(self, event: Any) -> None:
        try:
            self._response.add_event(event)
        except Exception as error:  # noqa: BLE001
            self._call.delivery.reject(error)

    def _end(self, error: BaseException | None) -> None:
        if not self._ended:
            self._ended = True
            self._call.end(self._response, error)


class _AsyncRecordedStream(_RecordedStream):
    """An async stream that passes events on, and delivers the trace when it has ended or is closed."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            event = await self._stream.__anext__()
        except StopAsyncIteration:
            self._end(None)
            raise
        except Exception as error:
            self._end(error)
            raise
        self._record_event(event)
        return event

    async def __aenter__(self) -> _AsyncRecordedStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:  # type: ignore[override]
        """Close the stream; the received text is the answer."""
        self._end(None)
        await self._stream.close()


def _get_text(response: Any) -> str | None:
    """Return the text of a response, None if it has none."""
    choices = getattr(response, "choices", None)
    if choices:
        content = getattr(choices[0].message, "content", None)
        return content if isinstance(content, str) else None
    text = getattr(response, "output_text", None)
    return text if isinstance(text, str) and text else None


def _get_tokens(response: Any) -> TokenCounts | None:
    usage = getattr(response, "usage", None)
    names = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
    counts = [next((n for name in pair if isinstance(n := getattr(usage, name, None), int)), None) for pair in names]
    return None if counts == [None, None] else TokenCounts(prompt=counts[0], completion=counts[1])


def _list_turns(value: Any, instructions: Any) -> tuple[ConversationTurn, ...] | None:
    """List the messages of a request, the instructions of a response first."""
    messages = [{"role": "user", "content": value}] if isinstance(value, str) else _to_messages(value)
    if not isinstance(messages, list):
        return None
    if isinstance(instructions, str):
        messages = [{"role": "system", "content": instructions}, *messages]
    read = extract_messages(messages)
    roles = [find_role(message.role) for message in read]
    if len(read) != len(messages) or None in roles:
        return None
    return tuple(
        ConversationTurn(role=cast(Any, role), text=message.text) for role, message in zip(roles, read, strict=True)
    )


def _to_messages(value: Any) -> Any:
    """Return the input of a response: a text, or messages as plain objects."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [dict(message) if isinstance(message, Mapping) else message for message in value]
    return value
