"""Metadata in DuckDB: marks, alert events, labels, settings, tokens and counts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec

from ragfault.evaluation.agreement.human_labels import HumanLabel
from ragfault.io.field_values import make_content_id
from ragfault.server.storage.records import AccessToken, AlertEvent, EventCount, TimelineMark

_encode_json = msgspec.json.Encoder().encode


def add_marks(con: Any, marks: Sequence[TimelineMark], now: float) -> int:
    """Keep marks, each once by its id; how many were new."""
    added = 0
    for mark in marks:
        time = mark.time or datetime.fromtimestamp(now, UTC)
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        name = mark.id or make_content_id(f"{mark.text}\n{time.isoformat()}\n{mark.route}\n{mark.kind}", "m-")
        if con.execute("SELECT 1 FROM marks WHERE id = ?", [name]).fetchone():
            continue
        made = msgspec.structs.replace(mark, id=name, time=time)
        con.execute(
            "INSERT INTO marks VALUES (?, ?, ?)", [name, time.timestamp(), _encode_json(made).decode()]
        )
        added += 1
    return added


def read_marks(con: Any, since: float, until: float | None) -> tuple[TimelineMark, ...]:
    """Marks in the order of time."""
    rows = con.execute(
        "SELECT body FROM marks WHERE time >= ? AND (? IS NULL OR time < ?) ORDER BY time, id",
        [since, until, until],
    ).fetchall()
    return tuple(msgspec.json.decode(body, type=TimelineMark) for (body,) in rows)


def add_events(con: Any, events: Sequence[AlertEvent], numbers: count[int]) -> None:
    """Keep what happened to alerts."""
    for event in events:
        number = next(numbers)
        made = msgspec.structs.replace(event, id=event.id or str(number))
        con.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?)",
            [number, event.alert, event.time, _encode_json(made).decode()],
        )


def read_events(con: Any, alert: str | None, limit: int) -> tuple[AlertEvent, ...]:
    """What happened to alerts, the latest first."""
    rows = con.execute(
        "SELECT body FROM events WHERE (? IS NULL OR alert = ?) ORDER BY time DESC, number DESC LIMIT ?",
        [alert, alert, limit],
    ).fetchall()
    return tuple(msgspec.json.decode(body, type=AlertEvent) for (body,) in rows)


def add_label(con: Any, label: HumanLabel, numbers: count[int]) -> None:
    """Keep what somebody said of a trace."""
    con.execute(
        "INSERT INTO labels VALUES (?, ?, ?)", [next(numbers), label.trace, _encode_json(label).decode()]
    )


def read_labels(con: Any, trace: str | None) -> tuple[HumanLabel, ...]:
    """What people said, in order."""
    rows = con.execute(
        "SELECT body FROM labels WHERE (? IS NULL OR trace = ?) ORDER BY number", [trace, trace]
    ).fetchall()
    return tuple(msgspec.json.decode(body, type=HumanLabel) for (body,) in rows)


def save_setting(con: Any, name: str, value: Any) -> None:
    """Keep a setting; None removes it."""
    con.execute("DELETE FROM settings WHERE name = ?", [name])
    if value is not None:
        con.execute("INSERT INTO settings VALUES (?, ?)", [name, _encode_json(value).decode()])


def read_setting(con: Any, name: str, default: Any) -> Any:
    """A setting, or the default."""
    row = con.execute("SELECT value FROM settings WHERE name = ?", [name]).fetchone()
    return default if row is None else msgspec.json.decode(row[0])


def save_token(con: Any, token: AccessToken) -> None:
    """Keep a token; one of the same name gives way."""
    delete_token(con, token.name)
    con.execute("INSERT INTO tokens VALUES (?, ?, ?, ?)", [token.name, token.role, token.hash, token.created])


def delete_token(con: Any, name: str) -> None:
    """Let a token go."""
    con.execute("DELETE FROM tokens WHERE name = ?", [name])


def read_tokens(con: Any) -> tuple[AccessToken, ...]:
    """All tokens, by name."""
    rows = con.execute("SELECT name, role, hash, created FROM tokens ORDER BY name").fetchall()
    return tuple(
        AccessToken(name=name, role=role, hash=hash_, created=made) for name, role, hash_, made in rows
    )


def add_counts(con: Any, counts: Sequence[EventCount]) -> None:
    """Add to the counts."""
    for each in counts:
        con.execute("INSERT INTO counts VALUES (?, ?, ?)", list(each))


def read_counts(con: Any, since: int) -> tuple[EventCount, ...]:
    """The counts by name and minute."""
    rows = con.execute(
        "SELECT name, minute, sum(n) FROM counts WHERE minute >= ? GROUP BY name, minute ORDER BY name, minute",
        [since],
    ).fetchall()
    return tuple(EventCount(*row) for row in rows)
