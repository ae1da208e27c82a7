"""Where traces are counted in and faults are handed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ragfault.errors import SHOWN, BadTraces, Fault, InputError
from ragfault.records import Document, Trace
from ragfault.sources.seen import Seen
from ragfault.sources.values import Wrong, content_id

__all__ = ["Desk", "Long", "OnBad", "Places"]

OnBad = Literal["raise", "skip"] | Callable[[Fault], object]

Places = dict[str, tuple[str, int]]
"""Trace id → the file and line that it stands on."""

KEPT = 2**16
"""How much of a bad line a collected fault keeps."""


class Long(Wrong):
    """A line that is longer than may be read, with its beginning."""

    def __init__(self, text: bytes, limit: int) -> None:
        super().__init__(f"the line is longer than {limit:,} bytes", text[:KEPT])


class Desk:
    """Where traces are counted and faults are handed in."""

    def __init__(
        self, on_bad: OnBad, places: Places | None = None, refusal: type[BadTraces] = BadTraces
    ) -> None:
        self.on_bad, self.places, self.refusal = on_bad, places, refusal
        self.faults: list[Fault] = []
        self.bad = self.good = 0
        self.seen = Seen()
        self.turns: dict[str, int] = {}

    def welcome(self, trace: Trace | Document, name: str, line: int, payload: Any) -> bool:
        """Count a trace in; False where its id has been met before."""
        if self.seen.add(trace.id):
            self.good += 1
            if self.places is not None:
                self.places[trace.id] = (name, line)
            return True
        self.fault(name, line, f'the id "{trace.id[:80]}" stands twice', payload)
        return False

    def name(self, trace: Trace) -> Trace:
        """The trace with an id made of its query, numbered from the second of the same query on."""
        plain = content_id(trace.query, "q-")
        name, turn = plain, self.turns.get(plain, 1)
        while name in self.seen:
            turn += 1
            name = f"{plain}#{turn}"
        if turn > 1:
            self.turns[plain] = turn
        return msgspec.structs.replace(trace, id=name)

    def fault(self, name: str, line: int, problem: str, payload: Any) -> None:
        """Hand in what is wrong with one line."""
        wanted = callable(self.on_bad) or len(self.faults) < SHOWN
        self.hand(Fault(name, line, problem, _text(payload) if wanted else ""))

    def hand(self, fault: Fault) -> None:
        self.bad += 1
        if callable(self.on_bad):
            self.on_bad(fault)
        if len(self.faults) < SHOWN:
            self.faults.append(fault._replace(text=fault.text[:KEPT]))

    def close(self, names: list[str]) -> None:
        """Raise what there is to raise at the end."""
        if self.bad and self.on_bad == "raise":
            raise self.refusal(self.faults, self.good, self.bad)
        if not self.good and not self.bad:
            raise InputError(
                f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}: empty, "
                f"there is no {self.refusal.noun[:-1]} in it"
            )


def _text(payload: Any) -> str:
    """The line of a payload, as far as it can be told."""
    if isinstance(payload, Wrong):
        payload = payload.text
    if isinstance(payload, bytes):
        return payload.decode("utf-8", "replace").rstrip("\r\n")
    try:
        return msgspec.json.encode(payload).decode()
    except (TypeError, ValueError, RecursionError):
        return str(payload)
