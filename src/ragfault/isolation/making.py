"""Making: the parts of a configuration run on every query, each part once on the same input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ragfault.isolation.parts import Step, System
from ragfault.records import Trace
from ragfault.runs.places import writing
from ragfault.sources.normalise import settle

__all__ = ["Maker", "make", "stripped"]


def stripped(trace: Trace) -> Trace:
    """A trace as it is before any part ran: the query, its answer key and its circumstances.

    >>> trace = stripped(Trace(id="1", query="When?", answer="At noon.", reference="At noon."))
    >>> trace.answer, trace.reference
    (None, 'At noon.')
    """
    return replace(
        trace, chunks=None, answer=None, citations=None, model=None, latency=None, tokens=None, error=None
    )


class _Call(Struct, frozen=True):
    """A call of a part, as it is written down."""

    part: str
    side: int
    input: str
    trace: Trace


class Maker:
    """Runs the parts of two systems, and writes down what each part made of what.

    A part that gets the same trace in another configuration is not run again, nor when an experiment that
    was killed goes on: parts that draw at random draw the same there, so that they add no noise to the
    effect of others.
    """

    def __init__(self, baseline: System, candidate: System, store: Path) -> None:
        self.names = tuple(baseline)
        self._systems = (baseline, candidate)
        self._store, self._lock = store, Lock()
        self._made: dict[tuple[str, int, str], Trace] = {}

    def __enter__(self) -> Self:
        good = 0
        with writing(self._store):
            self._file = self._store.open("a+b")
            self._file.seek(0)
            for line in self._file:
                try:
                    call = msgspec.json.decode(line, type=_Call)
                except msgspec.MsgspecError:
                    break
                if not line.endswith(b"\n"):
                    break
                self._made[call.part, call.side, call.input] = call.trace
                good += len(line)
            self._file.truncate(good)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trail: TracebackType | None
    ) -> None:
        self._file.close()

    def make(self, mask: int, start: Trace) -> Trace:
        """Fold a query through the parts of a configuration; a part that fails leaves a trace that says so."""
        trace = start
        for at, name in enumerate(self.names):
            trace = self._step(name, mask >> at & 1, trace)
            if trace.error:
                break
        return _finished(trace, start)

    def _step(self, name: str, side: int, trace: Trace) -> Trace:
        """What a part makes of a trace: remembered, or made now."""
        step = self._systems[side][name]
        digest = _digest(trace)
        key = (name, 0 if step is self._systems[0][name] else side, digest or "")
        if digest and key in self._made:
            return self._made[key]
        made = _called(name, step, trace)
        if digest:
            with self._lock:
                self._keep(key, made)
        return made

    def _keep(self, key: tuple[str, int, str], made: Trace) -> None:
        self._made[key] = made
        try:
            line = msgspec.json.encode(_Call(*key, made))
        except (TypeError, ValueError, OverflowError):
            return
        with writing(self._store):
            self._file.write(line + b"\n")
            self._file.flush()


def _called(name: str, step: Step, trace: Trace) -> Trace:
    """What a part makes of a trace; of a failure, a trace that says so."""
    try:
        made = step(trace)
        if not isinstance(made, Trace):
            raise TypeError(f"it returned {type(made).__name__}, not a Trace")
    except Exception as error:  # noqa: BLE001 - the door to parts that users write: one failed query, not a lost experiment
        return replace(trace, error=f"{name}: {type(error).__name__}: {error}")
    return made


def _digest(trace: Trace) -> str | None:
    """Stands for the input of a part; None where it holds what cannot be written down."""
    try:
        coded = msgspec.msgpack.encode(trace, order="deterministic")
    except (TypeError, ValueError, OverflowError):
        return None
    return blake2b(coded, digest_size=16).hexdigest()


def _finished(trace: Trace, start: Trace) -> Trace:
    """The trace as it is judged: of the user's query, and as it can be written down."""
    try:
        whole = settle(replace(trace, id=start.id, query=start.query), check=True)
        return msgspec.json.decode(msgspec.json.encode(whole), type=Trace)
    except (TypeError, ValueError, OverflowError) as error:
        return replace(start, error=f"the parts made a trace that cannot be written down: {error}")


def make(
    maker: Maker, mask: int, starts: Sequence[Trace], *, threads: int = 1, tick: Callable[[int], None]
) -> list[Trace]:
    """The traces of a configuration, in the order of the queries."""
    made = []
    for trace in _mapped(lambda start: maker.make(mask, start), starts, threads):
        made.append(trace)
        tick(1)
    return made


def _mapped(function: Step, items: Sequence[Trace], threads: int) -> Iterator[Trace]:
    """The results in order, made on some threads."""
    if threads == 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        yield from pool.map(function, items)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
