"""Recording: what a framework tells of its steps, put together into a trace when the outermost step ends.

Every framework tells the same: a step began, within another one; it ended, with this or with an error. Steps become
operations in the words of OpenInference and gen_ai, and the operations a trace, by the rules for spans (docs/spans.md).
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from ragfault.online import Background
from ragfault.online.passages import chunks_of
from ragfault.records import Trace
from ragfault.sources.normalise import settle
from ragfault.sources.spans import Operation, to_trace

__all__ = ["Delivery", "Recorder", "To", "documents"]

To = Background | Callable[[Trace], object] | str | Path
"""Where traces go: to a background that scores them, to a function, or as lines to a file of JSON."""

KIND = "openinference.span.kind"
OPEN = 10_000
"""How many traces are put together at once; of more, the oldest, which may never end, are let go."""


class Delivery:
    """Hands finished traces on, and never harms whoever made them: what is no trace is counted and warned of once."""

    def __init__(self, to: To, route: str | None = None) -> None:
        self._background = to if isinstance(to, Background) else None
        self._take = (
            to.submit if isinstance(to, Background) else _lines(to) if isinstance(to, str | Path) else to
        )
        self._route = route
        self.unread = 0
        """Traces that could not be made or handed on."""

    def operations(self, found: Iterable[Operation]) -> None:
        """Hand on the trace that operations make, if they have to do with RAG."""
        found = tuple(found)
        if {one.attributes.get(KIND) for one in found} <= {None, "EMBEDDING", "PROMPT"}:
            return
        try:
            trace = to_trace(found)
            if trace is not None:
                self.trace(settle(trace, check=True))
        except Exception as error:  # noqa: BLE001 - whatever a framework told, its caller goes on
            self.pass_over(error)

    def trace(self, trace: Trace) -> None:
        """Hand on a trace."""
        if self._route is not None:
            trace = msgspec.structs.replace(trace, route=self._route)
        try:
            self._take(trace)
        except Exception as error:  # noqa: BLE001 - a full disk is no reason to fail a user's request
            self.pass_over(error)

    def pass_over(self, error: Exception) -> None:
        """Count what could not be handed on."""
        self.unread += 1
        if self._background is not None:
            self._background.pass_over(error)
        elif self.unread == 1:
            warnings.warn(f"ragfault cannot record this: {error}", RuntimeWarning, stacklevel=3)


def _lines(place: str | Path) -> Callable[[Trace], object]:
    """What adds a line for each trace to a file."""
    path, lock = Path(place), threading.Lock()
    path.parent.mkdir(parents=True, exist_ok=True)

    def take(trace: Trace) -> None:
        with lock, path.open("ab") as file:
            file.write(msgspec.json.encode(trace) + b"\n")

    return take


class _Step:
    """A step that has begun."""

    def __init__(self, name: str, trace: str, parent: str | None, held: dict[str, Any]) -> None:
        self.name, self.trace, self.parent, self.held = name, trace, parent, held
        self.start, self._clock = time.time_ns(), time.perf_counter_ns()

    def ended(self, key: str, error: BaseException | None) -> Operation:
        """The operation that it was."""
        return Operation(
            trace=self.trace,
            id=key,
            parent=self.parent,
            name=self.name,
            start=self.start,
            end=self.start + time.perf_counter_ns() - self._clock,
            status="ok" if error is None else "error",
            message="" if error is None else f"{type(error).__name__}: {error}",
            attributes={name: value for name, value in self.held.items() if value is not None},
        )


class Recorder:
    """Steps that are under way, by their keys; a step within none that is known is the outermost of a trace.

    >>> found = []
    >>> recorder = Recorder(found.append)
    >>> recorder.begin("1", "ask", None, {"openinference.span.kind": "CHAIN", "input.value": "When?"})
    >>> recorder.end("1", {"output.value": "At ten."})
    >>> found[0].query, found[0].answer
    ('When?', 'At ten.')
    """

    def __init__(self, to: To, route: str | None = None) -> None:
        self.delivery = Delivery(to, route)
        self._lock = threading.Lock()
        self._steps: dict[str, _Step] = {}
        self._traces: OrderedDict[str, list[Operation]] = OrderedDict()
        self._inside: dict[str, set[str]] = {}

    def begin(self, key: str, name: str, parent: str | None, held: dict[str, Any] | None = None) -> None:
        """A step has begun."""
        with self._lock:
            above = self._steps.get(parent or "")
            trace = key if above is None else above.trace
            self._steps[key] = _Step(name, trace, None if above is None else parent, dict(held or {}))
            self._inside.setdefault(trace, set()).add(key)
            if above is None:
                self._traces[key] = []
                if len(self._traces) > OPEN:
                    self._forget(next(iter(self._traces)))

    def tell(self, key: str | None, held: dict[str, Any]) -> None:
        """Something more is known of a step."""
        with self._lock:
            if (step := self._steps.get(key or "")) is not None:
                step.held.update(held)

    def told(self, key: str, name: str) -> Any:
        """What is known of a step under that name."""
        step = self._steps.get(key)
        return None if step is None else step.held.get(name)

    def end(self, key: str, held: dict[str, Any] | None = None, error: BaseException | None = None) -> None:
        """A step has ended; with the outermost one its trace is handed on."""
        with self._lock:
            step = self._steps.pop(key, None)
            if step is None:
                return
            step.held.update(held or {})
            self._traces[step.trace].append(step.ended(key, error))
            self._inside[step.trace].discard(key)
            found = self._forget(key) if key == step.trace else None
        if found is not None:
            self.delivery.operations(found)

    def _forget(self, trace: str) -> list[Operation]:
        """Let a trace go, with what is still under way in it."""
        for key in self._inside.pop(trace, ()):
            self._steps.pop(key, None)
        return self._traces.pop(trace)


def documents(found: Any) -> list[dict[str, Any]] | None:
    """What a retriever gave, as `gen_ai.retrieval.documents` has it; None for what is no list of chunks."""
    try:
        chunks = chunks_of(found)
    except Exception:  # noqa: BLE001 - what is no list of chunks is told by its absence
        return None
    return [
        {"id": chunk.id, "content": chunk.text, "score": chunk.score, "metadata": chunk.metadata}
        for chunk in chunks
    ]
