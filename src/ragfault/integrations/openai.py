"""OpenAI integration: calls of a client become traces with the contexts they were made from."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

try:
    from openai import AsyncOpenAI, OpenAI
except ImportError:
    from ragfault.errors import MissingExtra

    raise MissingExtra("ragfault.integrations.openai", "llm") from None

from ragfault.errors import UsageError
from ragfault.evaluation.online import ScoredTrace, score_response
from ragfault.evaluation.online.scorer import to_chunks
from ragfault.integrations.recorder import TraceDelivery, TraceSink
from ragfault.io.otel.recorded_content import extract_question
from ragfault.records import Chunk, Latency, Step, TokenCounts, Trace

Client = TypeVar("Client", OpenAI, AsyncOpenAI)
ContextRetriever = Callable[[str], Iterable[Any]]


def measure_client(
    client: Client, sink: TraceSink, *, contexts: ContextRetriever | None = None, route: str | None = None
) -> Client:
    """A copy of a client whose calls become traces, for a background that scores them, a function or a file.

    `chat.completions.create` and `responses.create`, plain, async and streamed, take three arguments more, which are
    not sent: `contexts`, the passages that the prompt holds; `query`, what the user asked, else the last message of
    the user; `reference`, a right answer. `contexts` of this function finds the passages of a query where a call names
    none. What the client returns and raises is unchanged; Azure's clients are copied alike.
    """
    made = client.copy()
    calls = _CallRecorder(TraceDelivery(sink, route), contexts, isinstance(client, AsyncOpenAI))
    for resource in (made.chat.completions, made.responses):
        setattr(resource, "create", calls.wrap(resource.create))  # noqa: B010 - the copy's own, not the class's
    return made


def score_completion(response: Any, query: str, contexts: Iterable[Any], **options: Any) -> ScoredTrace:
    """The scores of one response of chat completions or of responses with its contexts, at once.

    `options` are those of `ragfault.evaluation.online.score_response`: judge, lens, metrics, reference … Raises UsageError where
    the response holds no text.
    """
    answer = _get_text(response)
    if answer is None:
        raise UsageError(f"this {type(response).__name__} holds no text to score.")
    known = {"model": getattr(response, "model", None), "tokens": _get_tokens(response)}
    return score_response(query, contexts, answer, **{**known, **options})


class _CallRecorder:
    """Puts calls of a client down as traces."""

    def __init__(
        self, delivery: TraceDelivery, retrieve_contexts: ContextRetriever | None, is_async: bool
    ) -> None:
        self.delivery, self.retrieve_contexts, self.is_async = delivery, retrieve_contexts, is_async

    def wrap(self, create: Callable[..., Any]) -> Callable[..., Any]:
        """The call, put down."""

        def plain(*args: Any, **given: Any) -> Any:
            call = self._begin_call(given)
            try:
                made = create(*args, **given)
            except Exception as error:
                call.end(None, error)
                raise
            if given.get("stream"):
                return _RecordedStream(made, call)
            call.end(made)
            return made

        async def waiting(*args: Any, **given: Any) -> Any:
            call = self._begin_call(given)
            try:
                made = await create(*args, **given)
            except Exception as error:
                call.end(None, error)
                raise
            if given.get("stream"):
                return _AsyncRecordedStream(made, call)
            call.end(made)
            return made

        return waiting if self.is_async else plain

    def _begin_call(self, arguments: dict[str, Any]) -> _OpenAICall:
        """A call, with what is not to be sent taken out of its arguments."""
        contexts, query, reference = (
            arguments.pop(name, None) for name in ("contexts", "query", "reference")
        )
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
        return _OpenAICall(
            self.delivery, query, contexts, reference, str(arguments.get("model") or "") or None
        )


class _OpenAICall:
    """A call that is under way."""

    def __init__(
        self, delivery: TraceDelivery, query: str, contexts: Any, reference: Any, model: str | None
    ) -> None:
        self.delivery, self.query, self.contexts = delivery, query, contexts
        self.reference, self.model, self.started = reference, model, time.perf_counter()

    def end(self, response: Any, error: BaseException | None = None) -> None:
        """Hand on the trace of a whole response, or of what was gathered of it."""
        try:
            said = (
                response if isinstance(response, _OpenAIResponse) else _OpenAIResponse.from_response(response)
            )
            self.delivery.deliver_trace(self._build_trace(said, error))
        except Exception as fault:  # noqa: BLE001 - whatever an endpoint sent, the caller has it and goes on
            self.delivery.reject(fault)

    def _build_trace(self, response: _OpenAIResponse, error: BaseException | None) -> Trace:
        took = 1000 * (time.perf_counter() - self.started)
        chunks: tuple[Chunk, ...] | None = None if self.contexts is None else to_chunks(self.contexts)
        return Trace(
            id=uuid4().hex,
            query=self.query,
            chunks=chunks,
            answer=response.text,
            reference=self.reference,
            model=response.model or self.model,
            tokens=response.tokens,
            latency=Latency(generation=took, total=took),
            steps=(Step(id="generate", kind="generate", start=0.0, duration=took),),
            error=None if error is None else f"{type(error).__name__}: {error}",
        )


class _OpenAIResponse:
    """What an endpoint said, whole or in pieces."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.model: str | None = None
        self.tokens: TokenCounts | None = None

    @classmethod
    def from_response(cls, response: Any) -> _OpenAIResponse:
        """What a whole response says."""
        made = cls()
        made.add_metadata(response)
        made.text = _get_text(response)
        return made

    def add_metadata(self, response: Any) -> None:
        """Take over model and tokens."""
        self.model = getattr(response, "model", None) or self.model
        self.tokens = _get_tokens(response) or self.tokens

    def add_event(self, event: Any) -> None:
        """Take in a chunk of a completion, or an event of a response."""
        kind = getattr(event, "type", None)
        if kind == "response.output_text.delta":
            self.text = (self.text or "") + event.delta
        elif kind in ("response.completed", "response.incomplete"):
            self.add_metadata(event.response)
            self.text = _get_text(event.response) or self.text
        elif hasattr(event, "choices"):
            self.add_metadata(event)
            first = event.choices[0] if event.choices else None
            if first is not None and first.index == 0 and first.delta.content:
                self.text = (self.text or "") + first.delta.content


class _RecordedStream:
    """A stream that hands on its pieces as they come, and the trace when it has ended or is closed."""

    def __init__(self, stream: Any, call: _OpenAICall) -> None:
        self._stream, self._call, self._response, self._ended = stream, call, _OpenAIResponse(), False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                yield next(self)
            except StopIteration:
                return

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
        """Close the stream; what came of it is the answer."""
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
    """The same, awaited."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            try:
                yield await self.__anext__()
            except StopAsyncIteration:
                return

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
        """Close the stream; what came of it is the answer."""
        self._end(None)
        await self._stream.close()


def _get_text(response: Any) -> str | None:
    """The text of a response."""
    choices = getattr(response, "choices", None)
    if choices:
        content = getattr(choices[0].message, "content", None)
        return content if isinstance(content, str) else None
    text = getattr(response, "output_text", None)
    return text if isinstance(text, str) and text else None


def _get_tokens(response: Any) -> TokenCounts | None:
    usage = getattr(response, "usage", None)
    names = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
    counts = [
        next((n for name in pair if isinstance(n := getattr(usage, name, None), int)), None) for pair in names
    ]
    return None if counts == [None, None] else TokenCounts(prompt=counts[0], completion=counts[1])


def _to_messages(value: Any) -> Any:
    """The input of a response: a text, or messages as plain objects."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [dict(one) if isinstance(one, Mapping) else one for one in value]
    return value
