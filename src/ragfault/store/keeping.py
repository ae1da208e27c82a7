"""What is kept beside traces: marks, alerts and their events, labels, settings, tokens, counts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec

from ragfault.runs.labels import Label
from ragfault.sources.values import content_id
from ragfault.store.records import Count, Event, Mark, Token

__all__ = [
    "add_counts",
    "add_events",
    "add_label",
    "add_marks",
    "counts",
    "drop_token",
    "events",
    "labels",
    "marks",
    "save_setting",
    "save_token",
    "setting",
    "tokens",
]

_encode = msgspec.json.Encoder().encode


def add_marks(con: Any, given: Sequence[Mark], now: float) -> int:
    """Keep marks, each once by its id; how many were new."""
    added = 0
    for mark in given:
        time = mark.time or datetime.fromtimestamp(now, UTC)
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        name = mark.id or content_id(f"{mark.text}\n{time.isoformat()}\n{mark.route}\n{mark.kind}", "m-")
        if con.execute("SELECT 1 FROM marks WHERE id = ?", [name]).fetchone():
            continue
        made = msgspec.structs.replace(mark, id=name, time=time)
        con.execute("INSERT INTO marks VALUES (?, ?, ?)", [name, time.timestamp(), _encode(made).decode()])
        added += 1
    return added


def marks(con: Any, since: float, until: float | None) -> tuple[Mark, ...]:
    """Marks in the order of time."""
    rows = con.execute(
        "SELECT body FROM marks WHERE time >= ? AND (? IS NULL OR time < ?) ORDER BY time, id",
        [since, until, until],
    ).fetchall()
    return tuple(msgspec.json.decode(body, type=Mark) for (body,) in rows)


def add_events(con: Any, given: Sequence[Event], numbers: count[int]) -> None:
    """Keep what happened to alerts."""
    for event in given:
        number = next(numbers)
        made = msgspec.structs.replace(event, id=event.id or str(number))
        con.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?)",
            [number, event.alert, event.time, _encode(made).decode()],
        )


def events(con: Any, alert: str | None, limit: int) -> tuple[Event, ...]:
    """What happened to alerts, the latest first."""
    rows = con.execute(
        "SELECT body FROM events WHERE (? IS NULL OR alert = ?) ORDER BY time DESC, number DESC LIMIT ?",
        [alert, alert, limit],
    ).fetchall()
    return tuple(msgspec.json.decode(body, type=Event) for (body,) in rows)


def add_label(con: Any, given: Label, numbers: count[int]) -> None:
    """Keep what somebody said of a trace."""
    con.execute("INSERT INTO labels VALUES (?, ?, ?)", [next(numbers), given.trace, _encode(given).decode()])


def labels(con: Any, trace: str | None) -> tuple[Label, ...]:
    """What people said, in order."""
    rows = con.execute(
        "SELECT body FROM labels WHERE (? IS NULL OR trace = ?) ORDER BY number", [trace, trace]
    ).fetchall()
    return tuple(msgspec.json.decode(body, type=Label) for (body,) in rows)


def save_setting(con: Any, name: str, value: Any) -> None:
    """Keep a setting; None removes it."""
    con.execute("DELETE FROM settings WHERE name = ?", [name])
    if value is not None:
        con.execute("INSERT INTO settings VALUES (?, ?)", [name, _encode(value).decode()])


def setting(con: Any, name: str, default: Any) -> Any:
    """A setting, or the default."""
    row = con.execute("SELECT value FROM settings WHERE name = ?", [name]).fetchone()
    return default if row is None else msgspec.json.decode(row[0])


def save_token(con: Any, token: Token) -> None:
    """Keep a token; one of the same name gives way."""
    drop_token(con, token.name)
    con.execute("INSERT INTO tokens VALUES (?, ?, ?, ?)", [token.name, token.role, token.hash, token.created])


def drop_token(con: Any, name: str) -> None:
    """Let a token go."""
    con.execute("DELETE FROM tokens WHERE name = ?", [name])


def tokens(con: Any) -> tuple[Token, ...]:
    """All tokens, by name."""
    rows = con.execute("SELECT name, role, hash, created FROM tokens ORDER BY name").fetchall()
    return tuple(Token(name=name, role=role, hash=hash_, created=made) for name, role, hash_, made in rows)


def add_counts(con: Any, given: Sequence[Count]) -> None:
    """Add to the counts."""
    for each in given:
        con.execute("INSERT INTO counts VALUES (?, ?, ?)", list(each))


def counts(con: Any, since: int) -> tuple[Count, ...]:
    """The counts by name and minute."""
    rows = con.execute(
        "SELECT name, minute, sum(n) FROM counts WHERE minute >= ? GROUP BY name, minute ORDER BY name, minute",
        [since],
    ).fetchall()
    return tuple(Count(*row) for row in rows)
