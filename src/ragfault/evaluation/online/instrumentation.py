"""Instrumentation of retrievers and functions, whose calls become traces for the background scorer."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast
from uuid import uuid4

from ragfault.errors import UnknownName, UsageError
from ragfault.evaluation.online.background import BackgroundScorer
from ragfault.evaluation.online.scorer import to_chunks
from ragfault.records import Chunk, Latency, Step, Trace

Retrieved = TypeVar("Retrieved", bound=Iterable[Any])


class MeasuredRetriever(Generic[Retrieved]):
    """A callable that takes a query and returns what the retriever found, unchanged, at once.

    What it found is scored by the background: relevance, ranking, redundancy and whatever metrics it was told. For
    LangChain and LlamaIndex, whose chains want their own class, see `ragfault.integrations.langchain` and `.llamaindex`.

    >>> found = []
    >>> with BackgroundScorer(found.append, judge="lexical", metrics=["context_relevance"]) as background:
    ...     retriever = MeasuredRetriever(lambda query: ["The ferry leaves at ten."], background)
    ...     retriever("When does the ferry leave?")
    ['The ferry leaves at ten.']
    >>> found[0].trace.query, found[0].values
    ('When does the ferry leave?', {'context_relevance': 1.0})
    """

    def __init__(
        self, retriever: Callable[[str], Retrieved], background: BackgroundScorer, *, route: str | None = None
    ) -> None:
        self._retriever, self._background, self._route = retriever, background, route

    def __call__(self, query: str) -> Retrieved:
        """What the retriever finds; what it raises is raised, and scored as an error."""
        begin = time.perf_counter()
        try:
            found = self._retriever(query)
        except Exception as error:
            self._background.submit(build_failed_trace(query, error, begin, self._route))
            raise
        submit_retrieval(self._background, query, found, begin, self._route)
        return found


def submit_retrieval(
    background: BackgroundScorer,
    query: str,
    retrieved: Iterable[Any],
    started: float,
    route: str | None = None,
) -> None:
    """Submit a retrieval that began at a reading of `time.perf_counter`; what holds no chunks is passed over."""
    took = 1000 * (time.perf_counter() - started)
    try:
        if not isinstance(retrieved, Sequence):
            raise UsageError(f"a retriever returned {type(retrieved).__name__}, which is no list of chunks.")
        chunks = to_chunks(retrieved)
    except Exception as error:  # noqa: BLE001 - whatever a retriever returned, its caller has it and goes on
        background.reject(error)
        return
    trace = Trace(
        id=uuid4().hex,
        query=query,
        chunks=chunks,
        route=route,
        latency=Latency(retrieval=took),
        steps=(
            Step(
                id="retrieve",
                kind="retrieve",
                start=0.0,
                duration=took,
                chunks=tuple(chunk.id for chunk in chunks),
            ),
        ),
    )
    background.submit(trace)


def build_failed_trace(query: str, error: Exception, started: float, route: str | None = None) -> Trace:
    """The trace of a retrieval that raised an error."""
    return Trace(
        id=uuid4().hex,
        query=query,
        route=route,
        error=f"{type(error).__name__}: {error}",
        latency=Latency(retrieval=1000 * (time.perf_counter() - started)),
    )


FunctionKind = Literal["pipeline", "retriever", "generator"]
FUNCTION_KINDS = ("pipeline", "retriever", "generator")
QUERY_ARGUMENTS = ("query", "question", "prompt", "input", "text", "message")
"""Names of arguments that are taken for the query; else it is the first text."""

P = ParamSpec("P")
R = TypeVar("R")


class TraceDraft:
    """A trace in the making."""

    def __init__(self, query: str) -> None:
        self.query, self.started = query, time.perf_counter()
        self.chunks: tuple[Chunk, ...] | None = None
        self.answer: str | None = None
        self.durations = dict.fromkeys(("retriever", "generator"), 0.0)
        self.steps: list[Step] = []

    def add_result(self, kind: FunctionKind, name: str, start: float, value: object) -> None:
        """What an observed function returned."""
        took = 1000 * (time.perf_counter() - start)
        if kind == "retriever" and isinstance(value, (list, tuple)):
            self.chunks = to_chunks(value)
        elif isinstance(value, str):
            self.answer = value
        if kind != "pipeline":
            self.durations[kind] += took
            self.steps.append(
                Step(
                    id=str(len(self.steps) + 1),
                    kind="retrieve" if kind == "retriever" else "generate",
                    name=name,
                    chunks=tuple(chunk.id for chunk in self.chunks)
                    if kind == "retriever" and self.chunks is not None
                    else None,
                    start=1000 * (start - self.started),
                    duration=took,
                )
            )

    def build_trace(self, error: BaseException | None) -> Trace:
        """The finished trace."""
        total = 1000 * (time.perf_counter() - self.started)
        latency = Latency(
            retrieval=self.durations["retriever"] or None,
            generation=self.durations["generator"] or None,
            total=total,
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
    """The decorator of a function, plain or async, whose calls are traces, or parts of one.

    The outermost observed call is a trace: its query is the argument named query, question, …, else the first text. A
    "retriever" within it gives the chunks that it returns, a "generator" the answer; so does the outermost function
    where it returns a text. An error is written into the trace, and raised.

    >>> found = []
    >>> with BackgroundScorer(found.append, judge="lexical", metrics=["groundedness"]) as background:
    ...     @observe(background, "retriever")
    ...     def search(query):
    ...         return ["The ferry leaves at ten."]
    ...     @observe(background)
    ...     def answer(question):
    ...         return search(question)[0]
    ...     answer("When does the ferry leave?")
    'The ferry leaves at ten.'
    >>> found[0].trace.answer, found[0].values
    ('The ferry leaves at ten.', {'groundedness': 1.0})
    """
    if kind not in FUNCTION_KINDS:
        raise UnknownName("kind of function", kind, FUNCTION_KINDS)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        name = getattr(function, "__name__", type(function).__name__)

        @functools.wraps(function)
        def plain(*args: P.args, **kwargs: P.kwargs) -> R:
            with _ObservedCall(background, kind, name, signature, args, kwargs) as seen:
                return seen.record_result(function(*args, **kwargs))

        @functools.wraps(function)
        async def waiting(*args: P.args, **kwargs: P.kwargs) -> Any:
            with _ObservedCall(background, kind, name, signature, args, kwargs) as seen:
                return seen.record_result(await cast(Any, function(*args, **kwargs)))

        return cast(Callable[P, R], waiting) if inspect.iscoroutinefunction(function) else plain

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
        """Note what the function returned."""
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
    """The query among the arguments of a call."""
    try:
        given = signature.bind_partial(*args, **kwargs).arguments
    except TypeError:
        return ""
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    named = next((texts[name] for name in QUERY_ARGUMENTS if name in texts), None)
    return named if named is not None else next(iter(texts.values()), "")
