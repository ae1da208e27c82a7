"""Native bodies: traces and marks as JSON, one, many in a list, or one a line; each fault with its place."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from ragfault.errors import InputError
from ragfault.records import Trace
from ragfault.server.settings import Limits
from ragfault.sources.mould import Mould, Plan
from ragfault.sources.shapes import NATIVE
from ragfault.sources.values import Wrong
from ragfault.store import Mark

__all__ = ["Read", "Refused", "read_marks", "read_traces", "unsound"]

FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
"""Between which times traffic is."""

NAME = 512
"""Characters of an id, at most."""


class Refused(NamedTuple):
    """One thing of a body that is no trace."""

    place: int
    """Its place in the body, from 1."""
    problem: str


class Read(NamedTuple):
    """What a body holds."""

    traces: tuple[Trace, ...]
    refused: tuple[Refused, ...]


def read_traces(body: bytes, limits: Limits) -> Read:
    """The traces of a body, and what in it is none.

    Raises InputError where there is nothing in it, or too much.

    >>> body = b'{"id": "a", "query": "When?"}\\n{"id": "b"}'
    >>> found = read_traces(body, Limits())
    >>> found.traces[0].id, found.refused
    ('a', (Refused(place=2, problem='field `query` is missing'),))
    """
    mould = Mould("the body", Plan({}, NATIVE, None, limits.body))
    traces, refused = [], []
    for place, raw in enumerate(_parts(body), start=1):
        if place > limits.traces:
            raise InputError(f"more than {limits.traces:,} traces. Send fewer at once.")
        try:
            traces.append(_trace(mould, raw, limits))
        except Wrong as wrong:
            refused.append(Refused(place, str(wrong)[:500]))
    if not traces and not refused:
        raise InputError("the body is empty: send a trace as JSON, several in a list, or one a line.")
    return Read(tuple(traces), tuple(refused))


def _trace(mould: Mould, raw: bytes, limits: Limits) -> Trace:
    if len(raw) > limits.trace:
        raise Wrong(f"the trace has {len(raw):,} bytes, at most {limits.trace:,} are taken")
    trace = mould.trace(raw)
    if not trace.id:
        raise Wrong("field `id` is missing: by it a trace that is sent again is known")
    if len(trace.id) > NAME:
        raise Wrong(f"the id has {len(trace.id):,} characters, at most {NAME} are taken")
    if fault := unsound(trace):
        raise Wrong(fault)
    return trace


def unsound(trace: Trace) -> str | None:
    """Why a trace cannot go on its way to the store and to the workers, if it cannot.

    >>> unsound(Trace(id="a", query="q", time=datetime(1066, 10, 14, tzinfo=UTC)))
    'field `time` is not between 1970 and 2200'
    """
    try:
        if trace.time is not None and not FIRST <= trace.time.astimezone(UTC) < LAST:
            return "field `time` is not between 1970 and 2200"
        msgspec.msgpack.decode(msgspec.msgpack.encode(trace), type=Trace)
        msgspec.json.encode(trace).decode()
    except (OverflowError, ValueError, TypeError, RecursionError) as error:
        return f"the trace holds what cannot be passed on: {error}"
    return None


def _parts(body: bytes) -> Iterator[bytes]:
    """The records of a body, each as JSON by itself."""
    if body.lstrip()[:1] == b"[":
        try:
            yield from map(bytes, msgspec.json.decode(body, type=list[msgspec.Raw]))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"the body is no list in JSON: {error}.") from None
        return
    try:
        yield bytes(msgspec.json.decode(body, type=msgspec.Raw))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        yield from (line for line in body.splitlines() if line.strip())


def read_marks(body: bytes) -> tuple[Mark, ...]:
    """The marks of a body: one, or several in a list. Raises InputError where it is none.

    >>> read_marks(b'{"text": "release 7"}')[0].kind
    'deployment'
    """
    try:
        found = msgspec.json.decode(body, type=Mark | list[Mark])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the body is no mark: {error}.") from None
    marks = tuple(found) if isinstance(found, list) else (found,)
    for mark in marks:
        if fault := unsound(Trace(id="mark", query=mark.text, time=mark.time, metadata=mark.metadata)):
            raise InputError(fault.replace("the trace", "the mark"))
    return marks
