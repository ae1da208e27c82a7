"""Parts: the callables that a system is folded from, and how plain functions become parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import update_wrapper
from re import fullmatch
from typing import cast

from msgspec.structs import replace

from ragfault.errors import UsageError
from ragfault.records import Chunk, Trace
from ragfault.sources.values import content_id

__all__ = ["Answer", "Step", "System", "generator", "named", "names", "retriever"]

Step = Callable[[Trace], Trace]
"""A part that can be run: it takes the trace as the parts before it left it, and returns it with its own work added."""

System = Mapping[str, Step]
"""Part name → part, in the order in which they run."""

Answer = Callable[[str, tuple[Chunk, ...]], str | Trace]
"""A generator as a plain function of query and chunks."""

TAKEN = ("baseline", "candidate", "made")


def retriever(function: Callable[[str], Iterable[Chunk | str]]) -> Step:
    """The part that retrieves: a function from a query to chunks, as a part of a system.

    Chunks may be plain strings; their id is then made from their text.

    >>> part = retriever(lambda query: ["The last ferry leaves at 22:40."])
    >>> part(Trace(id="1", query="When does the last ferry leave?")).chunks[0].text
    'The last ferry leaves at 22:40.'
    """

    def retrieve(trace: Trace) -> Trace:
        return replace(trace, chunks=tuple(map(_chunk, function(trace.query))))

    return cast(Step, update_wrapper(retrieve, function))


def generator(function: Answer) -> Step:
    """The part that answers: a function from query and chunks to an answer, as a part of a system.

    It may return a trace instead of a text; answer, citations, model, latency, tokens and error are taken
    from it.

    >>> part = generator(lambda query, chunks: chunks[0].text)
    >>> part(Trace(id="1", query="When?", chunks=(Chunk(id="a", text="At noon."),))).answer
    'At noon.'
    """

    def generate(trace: Trace) -> Trace:
        given = function(trace.query, trace.chunks or ())
        if isinstance(given, str):
            return replace(trace, answer=given)
        if not isinstance(given, Trace):
            raise TypeError(f"it returned {type(given).__name__}, not an answer or a Trace")
        return replace(
            trace,
            answer=given.answer,
            citations=given.citations,
            model=given.model or trace.model,
            latency=given.latency or trace.latency,
            tokens=given.tokens or trace.tokens,
            error=given.error,
        )

    return cast(Step, update_wrapper(generate, function))


def names(baseline: System, candidate: System) -> tuple[str, ...]:
    """The names of the parts of two systems, which must be the same in the same order.

    Raises UsageError where they are not, or cannot name a folder.

    >>> names({"retriever": str}, {"reader": str})
    Traceback (most recent call last):
    ragfault.errors.UsageError: the systems have other parts: the baseline has retriever, the candidate reader. ...
    """
    left, right = tuple(baseline), tuple(candidate)
    if left != right:
        raise UsageError(
            f"the systems have other parts: the baseline has {', '.join(left) or 'none'}, "
            f"the candidate {', '.join(right) or 'none'}. Give both the same names in the same order; "
            "a part that one system lacks is a function that returns the trace as it came."
        )
    if not left:
        raise UsageError("the systems have no part. Give at least one, by name.")
    for name in left:
        if not fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", name) or name in TAKEN:
            raise UsageError(
                f'a part cannot be named "{name}": use letters, digits, "_", "-" and ".", '
                f"and none of {', '.join(TAKEN)}."
            )
    return left


def named(step: object) -> str:
    """What a part calls itself, as far as it does."""
    return str(getattr(step, "__qualname__", type(step).__qualname__))


def _chunk(given: Chunk | str) -> Chunk:
    if isinstance(given, Chunk):
        return given
    if not isinstance(given, str):
        raise TypeError(f"it returned {type(given).__name__}, not a Chunk or a text")
    return Chunk(id=content_id(given), text=given)
