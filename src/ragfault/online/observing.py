"""Observing functions: the outermost one is a trace, and those within it add what they retrieve and write."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Literal, ParamSpec, TypeVar, cast
from uuid import uuid4

from ragfault.errors import UnknownName
from ragfault.online.background import Background
from ragfault.online.passages import chunks_of
from ragfault.records import Chunk, Latency, Timing, Trace

__all__ = ["observe"]

Kind = Literal["pipeline", "retriever", "generator"]
KINDS = ("pipeline", "retriever", "generator")
QUERIES = ("query", "question", "prompt", "input", "text", "message")
"""Names of arguments that are taken for the query; else it is the first text."""

P = ParamSpec("P")
R = TypeVar("R")


class Draft:
    """A trace in the making."""

    def __init__(self, query: str) -> None:
        self.query, self.begin = query, time.perf_counter()
        self.chunks: tuple[Chunk, ...] | None = None
        self.answer: str | None = None
        self.spent = dict.fromkeys(("retriever", "generator"), 0.0)
        self.timings: list[Timing] = []

    def add(self, kind: Kind, name: str, start: float, value: object) -> None:
        """What an observed function returned."""
        took = 1000 * (time.perf_counter() - start)
        if kind == "retriever" and isinstance(value, (list, tuple)):
            self.chunks = chunks_of(value)
        elif isinstance(value, str):
            self.answer = value
        if kind != "pipeline":
            self.spent[kind] += took
            count = len(self.chunks) if kind == "retriever" and self.chunks is not None else None
            self.timings.append(Timing(name=name, start=1000 * (start - self.begin), took=took, chunks=count))

    def trace(self, error: BaseException | None) -> Trace:
        """The finished trace."""
        total = 1000 * (time.perf_counter() - self.begin)
        latency = Latency(
            retrieval=self.spent["retriever"] or None, generation=self.spent["generator"] or None, total=total
        )
        return Trace(
            id=uuid4().hex,
            query=self.query,
            chunks=self.chunks,
            answer=self.answer,
            latency=latency,
            timings=tuple(self.timings),
            error=None if error is None else f"{type(error).__name__}: {error}",
        )


_draft: ContextVar[Draft | None] = ContextVar("draft", default=None)


def observe(background: Background, kind: Kind = "pipeline") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The decorator of a function, plain or async, whose calls are traces, or parts of one.

    The outermost observed call is a trace: its query is the argument named query, question, …, else the first text. A
    "retriever" within it gives the chunks that it returns, a "generator" the answer; so does the outermost function
    where it returns a text. An error is written into the trace, and raised.

    >>> found = []
    >>> with Background(found.append, judge="lexical", metrics=["groundedness"]) as background:
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
    if kind not in KINDS:
        raise UnknownName("kind of function", kind, KINDS)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        name = getattr(function, "__name__", type(function).__name__)

        @functools.wraps(function)
        def plain(*args: P.args, **kwargs: P.kwargs) -> R:
            with _Observed(background, kind, name, signature, args, kwargs) as seen:
                return seen.keep(function(*args, **kwargs))

        @functools.wraps(function)
        async def waiting(*args: P.args, **kwargs: P.kwargs) -> Any:
            with _Observed(background, kind, name, signature, args, kwargs) as seen:
                return seen.keep(await cast(Any, function(*args, **kwargs)))

        return cast(Callable[P, R], waiting) if inspect.iscoroutinefunction(function) else plain

    return decorate


class _Observed:
    """One call of an observed function."""

    def __init__(
        self,
        background: Background,
        kind: Kind,
        name: str,
        signature: inspect.Signature,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._background, self._kind, self._name = background, kind, name
        outer = _draft.get()
        self._own = outer is None
        self._draft = outer or Draft(_query(signature, args, kwargs))

    def keep(self, value: R) -> R:
        """Note what the function returned."""
        try:
            self._draft.add(self._kind, self._name, self._start, value)
        except Exception as error:  # noqa: BLE001 - whatever a function returned, its caller has it and goes on
            self._background.pass_over(error)
        return value

    def __enter__(self) -> _Observed:
        self._start = time.perf_counter()
        self._token = _draft.set(self._draft) if self._own else None
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._token is not None:
            _draft.reset(self._token)
            self._background.submit(self._draft.trace(error))


def _query(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The query among the arguments of a call."""
    try:
        given = signature.bind_partial(*args, **kwargs).arguments
    except TypeError:
        return ""
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    named = next((texts[name] for name in QUERIES if name in texts), None)
    return named if named is not None else next(iter(texts.values()), "")
