"""Metadata in ClickHouse: marks, alert events, labels, settings, tokens and counts, as notes in one table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any, Literal, NamedTuple

import msgspec

from ragfault.evaluation.agreement.human_labels import HumanLabel
from ragfault.io.field_values import make_content_id
from ragfault.server.storage.clickhouse.connection import ClickHouseConnection
from ragfault.server.storage.records import AlertEvent, EventCount, TimelineMark

NoteKind = Literal["metric", "mark", "event", "label", "setting", "token", "owner"]

_encode_json = msgspec.json.Encoder().encode


class StoredNote(NamedTuple):
    """Something small; of those of one kind, name and slot the one of the highest number stands."""

    kind: NoteKind
    name: str
    slot: int = 0
    number: int = 0
    time: float = 0.0
    body: str = ""
    """As JSON; empty: it is gone."""


def make_note(kind: NoteKind, name: str, content: Any, numbers: count[int]) -> StoredNote:
    """A note that takes the place of the one of its name; None removes it."""
    return StoredNote(
        kind, name, number=next(numbers), body="" if content is None else _encode_json(content).decode()
    )


def add_notes(con: ClickHouseConnection, notes: Sequence[StoredNote]) -> None:
    """Add notes, all or none."""
    if notes:
        con.insert("notes", {name: [getattr(each, name) for each in notes] for name in StoredNote._fields})


def read_bodies(
    con: ClickHouseConnection,
    kind: NoteKind,
    name: str | None = None,
    *,
    order: Literal["number", "name", "time, name", "time DESC, number DESC"] = "name",
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
    rows = con.fetch_rows(
        f"SELECT body FROM notes FINAL WHERE {' AND '.join(parts)} ORDER BY {order}{most}", **given
    )
    return [body for (body,) in rows]


def add_marks(
    con: ClickHouseConnection, marks: Sequence[TimelineMark], now: float, numbers: count[int]
) -> int:
    """Keep marks, each once by its id; how many were new."""
    fresh: dict[str, StoredNote] = {}
    for mark in marks:
        time = mark.time or datetime.fromtimestamp(now, UTC)
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        name = mark.id or make_content_id(f"{mark.text}\n{time.isoformat()}\n{mark.route}\n{mark.kind}", "m-")
        if name not in fresh and not read_bodies(con, "mark", name):
            made = msgspec.structs.replace(mark, id=name, time=time)
            fresh[name] = make_note("mark", name, made, numbers)._replace(time=time.timestamp())
    add_notes(con, list(fresh.values()))
    return len(fresh)


def read_marks(con: ClickHouseConnection, since: float, until: float | None) -> tuple[TimelineMark, ...]:
    """Marks in the order of time."""
    found = read_bodies(con, "mark", order="time, name", since=since, until=until)
    return tuple(msgspec.json.decode(body, type=TimelineMark) for body in found)


def make_event_notes(events: Sequence[AlertEvent], numbers: count[int]) -> list[StoredNote]:
    """What happened to alerts, as notes."""
    made: list[StoredNote] = []
    for event in events:
        number = next(numbers)
        body = _encode_json(msgspec.structs.replace(event, id=event.id or str(number))).decode()
        made.append(StoredNote("event", event.alert, slot=number, number=number, time=event.time, body=body))
    return made


def read_events(con: ClickHouseConnection, alert: str | None, limit: int) -> tuple[AlertEvent, ...]:
    """What happened to alerts, the latest first."""
    found = read_bodies(con, "event", alert, order="time DESC, number DESC", limit=limit)
    return tuple(msgspec.json.decode(body, type=AlertEvent) for body in found)


def add_label(con: ClickHouseConnection, label: HumanLabel, numbers: count[int]) -> None:
    """Keep what somebody said of a trace."""
    made = make_note("label", label.trace, label, numbers)
    add_notes(con, [made._replace(slot=made.number)])


def read_setting(con: ClickHouseConnection, name: str, default: Any) -> Any:
    """A setting, or the default."""
    found = read_bodies(con, "setting", name)
    return msgspec.json.decode(found[0]) if found else default


def add_counts(con: ClickHouseConnection, counts: Sequence[EventCount]) -> None:
    """Add to the counts."""
    if counts:
        con.insert("counts", {name: [getattr(each, name) for each in counts] for name in EventCount._fields})


def read_counts(con: ClickHouseConnection, since: int) -> tuple[EventCount, ...]:
    """The counts by name and minute."""
    rows = con.fetch_rows(
        "SELECT name, minute, sum(n) FROM counts WHERE minute >= {since:Int64} "
        "GROUP BY name, minute ORDER BY name, minute",
        since=since,
    )
    return tuple(EventCount(*row) for row in rows)
