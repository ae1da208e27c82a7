"""Instrumentation of retrievers and functions, whose calls become traces for the background scorer."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, Generic, Literal, ParamSpec, Self, TypeVar, cast
from uuid import uuid4

from ragfault.evaluation.online.background import BackgroundScorer
from ragfault.evaluation.online.scorer import to_chunks
from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.records import Chunk, Latency, Step, Trace

Retrieved = TypeVar("Retrieved", bound=Iterable[Any])


class MeasuredRetriever(Generic[Retrieved]):
    """A callable that takes a query and returns the result of the retriever, unchanged, at once.

    The result is scored in the background: relevance, ranking, redundancy and any other metrics. For LangChain and
    LlamaIndex, whose chains need their own class, see `ragfault.integrations.langchain` and `.llamaindex`.

    >>> results = []
    >>> with BackgroundScorer(results.append, judge="lexical", metrics=["context_relevance"]) as background:
    ...     retriever = MeasuredRetriever(lambda query: ["The ferry leaves at ten."], background)
    ...     retriever("When does the ferry leave?")
    ['The ferry leaves at ten.']
    >>> results[0].trace.query, results[0].values
    ('When does the ferry leave?', {'context_relevance': 1.0})
    """

    def __init__(
        self, retriever: Callable[[str], Retrieved], background: BackgroundScorer, *, route: str | None = None
    ) -> None:
        self._retriever, self._background, self._route = retriever, background, route

    def __call__(self, query: str) -> Retrieved:
        """Return the result of the retriever; an error is raised, and scored as one."""
        with RetrievalMeasurement(self._background, query, self._route) as measurement:
            measurement.result = self._retriever(query)
        return cast(Retrieved, measurement.result)


class RetrievalMeasurement:
    """A context of one retrieval: at its end the result, or the error, is submitted to be scored.

    A result without chunks is rejected; the caller of the retriever never notices.
    """

    def __init__(self, background: BackgroundScorer, query: str, route: str | None = None) -> None:
        self._background, self._query, self._route = background, query, route
        self.result: Any = None

    def __enter__(self) -> Self:
        self._started = time.perf_counter()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        duration = 1000 * (time.perf_counter() - self._started)
        latency = Latency(retrieval=duration)
        if isinstance(error, Exception):
            message = f"{type(error).__name__}: {error}"
            self._background.submit(
                Trace(id=uuid4().hex, query=self._query, route=self._route, error=message, latency=latency)
            )
        if error is not None:
            return
        try:
            if not isinstance(self.result, Sequence):
                raise UsageError(f"a retriever returned {type(self.result).__name__}, which is not a list of chunks.")
            chunks = to_chunks(self.result)
        except Exception as failure:  # noqa: BLE001 - recording never breaks the caller
            self._background.reject(failure)
            return
        step = Step(
            id="retrieve", kind="retrieve", start=0.0, duration=duration, chunks=tuple(chunk.id for chunk in chunks)
        )
        self._background.submit(
            Trace(id=uuid4().hex, query=self._query, chunks=chunks, route=self._route, latency=latency, steps=(step,))
        )


FunctionKind = Literal["pipeline", "retriever", "generator"]
FUNCTION_KINDS = ("pipeline", "retriever", "generator")
QUERY_ARGUMENTS = ("query", "question", "prompt", "input", "text", "message")
"""Names of arguments that are the query; else it is the first text."""

P = ParamSpec("P")
R = TypeVar("R")


class TraceDraft:
    """A trace under construction."""

    def __init__(self, query: str) -> None:
        self.query, self.started = query, time.perf_counter()
        self.chunks: tuple[Chunk, ...] | None = None
        self.answer: str | None = None
        self.durations = dict.fromkeys(("retriever", "generator"), 0.0)
        self.steps: list[Step] = []

    def add_result(self, kind: FunctionKind, name: str, start: float, value: object) -> None:
        """Add the result of an observed function."""
        duration = 1000 * (time.perf_counter() - start)
        if kind == "retriever" and isinstance(value, (list, tuple)):
            self.chunks = to_chunks(value)
        elif isinstance(value, str):
            self.answer = value
        if kind != "pipeline":
            self.durations[kind] += duration
            self.steps.append(
                Step(
                    id=str(len(self.steps) + 1),
                    kind="retrieve" if kind == "retriever" else "generate",
                    name=name,
                    chunks=tuple(chunk.id for chunk in self.chunks)
                    if kind == "retriever" and self.chunks is not None
                    else None,
                    start=1000 * (start - self.started),
                    duration=duration,
                )
            )

    def build_trace(self, error: BaseException | None) -> Trace:
        """Build the finished trace."""
        total = 1000 * (time.perf_counter() - self.started)
        latency = Latency(
            retrieval=self.durations["retriever"] or None, generation=self.durations["generator"] or None, total=total
        )
        return Trace(
            id=uuid4().hex,
            query=self.query,
            chunks=self.chunks,
            answer=self.answer,
            latency=latency,
            steps=tuple(self.steps),
            error=None if error is None else f"{type(error).__name__}: {error}",
        )


_current_draft: ContextVar[TraceDraft | None] = ContextVar("draft", default=None)


def observe(
    background: BackgroundScorer, kind: FunctionKind = "pipeline"
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of a function, plain or async, whose calls are traces, or parts of one.

    The outermost observed call is a trace: its query is the argument named query, question, …, else the first
    text. A "retriever" within it returns the chunks, a "generator" the answer; so does the outermost function
    if it returns a text. An error is recorded in the trace, and raised.

    >>> results = []
    >>> with BackgroundScorer(results.append, judge="lexical", metrics=["groundedness"]) as background:
    ...     @observe(background, "retriever")
    ...     def search(query):
    ...         return ["The ferry leaves at ten."]
    ...     @observe(background)
    ...     def answer(question):
    ...         return search(question)[0]
    ...     answer("When does the ferry leave?")
    'The ferry leaves at ten.'
    >>> results[0].trace.answer, results[0].values
    ('The ferry leaves at ten.', {'groundedness': 1.0})
    """
    if kind not in FUNCTION_KINDS:
        raise UnknownName("kind of function", kind, FUNCTION_KINDS)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        name = getattr(function, "__name__", type(function).__name__)

        @functools.wraps(function)
        def call_plain(*args: P.args, **kwargs: P.kwargs) -> R:
            with _ObservedCall(background, kind, name, signature, args, kwargs) as call:
                return call.record_result(function(*args, **kwargs))

        @functools.wraps(function)
        async def call_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            with _ObservedCall(background, kind, name, signature, args, kwargs) as call:
                return call.record_result(await cast(Any, function(*args, **kwargs)))

        return cast(Callable[P, R], call_async) if inspect.iscoroutinefunction(function) else call_plain

    return decorate


class _ObservedCall:
    """One call of an observed function."""

    def __init__(
        self,
        background: BackgroundScorer,
        kind: FunctionKind,
        name: str,
        signature: inspect.Signature,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._background, self._kind, self._name = background, kind, name
        outer = _current_draft.get()
        self._is_outermost = outer is None
        self._draft = outer or TraceDraft(_extract_query(signature, args, kwargs))

    def record_result(self, value: R) -> R:
        """Record the result of the function."""
        try:
            self._draft.add_result(self._kind, self._name, self._start, value)
        except Exception as error:  # noqa: BLE001
            self._background.reject(error)
        return value

    def __enter__(self) -> _ObservedCall:
        self._start = time.perf_counter()
        self._token = _current_draft.set(self._draft) if self._is_outermost else None
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._token is not None:
            _current_draft.reset(self._token)
            self._background.submit(self._draft.build_trace(error))


def _extract_query(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Extract the query from the arguments of a call."""
    try:
        arguments = signature.bind_partial(*args, **kwargs).arguments
    except TypeError:
        return ""
    texts = {name: value for name, value in arguments.items() if isinstance(value, str)}
    query = next((texts[name] for name in QUERY_ARGUMENTS if name in texts), None)
    return query if query is not None else next(iter(texts.values()), "")
