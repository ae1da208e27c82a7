"""What is kept beside traces on ClickHouse: notes of several kinds in one table, so that one insert is one breath."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any, Literal, NamedTuple

import msgspec

from ragfault.runs.labels import Label
from ragfault.sources.values import content_id
from ragfault.store.clickhouse_connection import Connection
from ragfault.store.records import Count, Event, Mark

__all__ = [
    "Kind",
    "Note",
    "add_counts",
    "add_label",
    "add_marks",
    "add_notes",
    "bodies",
    "counts",
    "event_notes",
    "events",
    "marks",
    "note",
    "setting",
]

Kind = Literal["metric", "mark", "event", "label", "setting", "token", "owner"]

_encode = msgspec.json.Encoder().encode


class Note(NamedTuple):
    """Something small; of those of one kind, name and slot the one of the highest number stands."""

    kind: Kind
    name: str
    slot: int = 0
    number: int = 0
    time: float = 0.0
    body: str = ""
    """As JSON; empty: it is gone."""


def note(kind: Kind, name: str, content: Any, numbers: count[int]) -> Note:
    """A note that takes the place of the one of its name; None removes it."""
    return Note(kind, name, number=next(numbers), body="" if content is None else _encode(content).decode())


def add_notes(con: Connection, notes: Sequence[Note]) -> None:
    """Add notes, all or none."""
    if notes:
        con.add("notes", {name: [getattr(each, name) for each in notes] for name in Note._fields})


def bodies(
    con: Connection,
    kind: Kind,
    name: str | None = None,
    *,
    by: Literal["number", "name", "time, name", "time DESC, number DESC"] = "name",
    since: float | None = None,
    until: float | None = None,
    limit: int | None = None,
) -> list[str]:
    """The bodies of the notes of a kind that are not gone, in an order."""
    parts = ["kind = {kind:String}", "body != ''"]
    given: dict[str, Any] = {"kind": kind}
    for key, value, condition in (
        ("name", name, "name = {name:String}"),
        ("since", since, "time >= {since:Float64}"),
        ("until", until, "time < {until:Float64}"),
    ):
        if value is not None:
            parts.append(condition)
            given[key] = value
    most = ""
    if limit is not None:
        most, given["limit"] = " LIMIT {limit:UInt64}", limit
    rows = con.rows(f"SELECT body FROM notes FINAL WHERE {' AND '.join(parts)} ORDER BY {by}{most}", **given)
    return [body for (body,) in rows]


def add_marks(con: Connection, given: Sequence[Mark], now: float, numbers: count[int]) -> int:
    """Keep marks, each once by its id; how many were new."""
    fresh: dict[str, Note] = {}
    for mark in given:
        time = mark.time or datetime.fromtimestamp(now, UTC)
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        name = mark.id or content_id(f"{mark.text}\n{time.isoformat()}\n{mark.route}\n{mark.kind}", "m-")
        if name not in fresh and not bodies(con, "mark", name):
            made = msgspec.structs.replace(mark, id=name, time=time)
            fresh[name] = note("mark", name, made, numbers)._replace(time=time.timestamp())
    add_notes(con, list(fresh.values()))
    return len(fresh)


def marks(con: Connection, since: float, until: float | None) -> tuple[Mark, ...]:
    """Marks in the order of time."""
    found = bodies(con, "mark", by="time, name", since=since, until=until)
    return tuple(msgspec.json.decode(body, type=Mark) for body in found)


def event_notes(given: Sequence[Event], numbers: count[int]) -> list[Note]:
    """What happened to alerts, as notes."""
    made: list[Note] = []
    for event in given:
        number = next(numbers)
        body = _encode(msgspec.structs.replace(event, id=event.id or str(number))).decode()
        made.append(Note("event", event.alert, slot=number, number=number, time=event.time, body=body))
    return made


def events(con: Connection, alert: str | None, limit: int) -> tuple[Event, ...]:
    """What happened to alerts, the latest first."""
    found = bodies(con, "event", alert, by="time DESC, number DESC", limit=limit)
    return tuple(msgspec.json.decode(body, type=Event) for body in found)


def add_label(con: Connection, given: Label, numbers: count[int]) -> None:
    """Keep what somebody said of a trace."""
    made = note("label", given.trace, given, numbers)
    add_notes(con, [made._replace(slot=made.number)])


def setting(con: Connection, name: str, default: Any) -> Any:
    """A setting, or the default."""
    found = bodies(con, "setting", name)
    return msgspec.json.decode(found[0]) if found else default


def add_counts(con: Connection, given: Sequence[Count]) -> None:
    """Add to the counts."""
    if given:
        con.add("counts", {name: [getattr(each, name) for each in given] for name in Count._fields})


def counts(con: Connection, since: int) -> tuple[Count, ...]:
    """The counts by name and minute."""
    rows = con.rows(
        "SELECT name, minute, sum(n) FROM counts WHERE minute >= {since:Int64} "
        "GROUP BY name, minute ORDER BY name, minute",
        since=since,
    )
    return tuple(Count(*row) for row in rows)
