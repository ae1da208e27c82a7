"""Notes of a store (marks, alert events, incidents, labels, settings, tokens: one table) and its event counts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import msgspec

from ragfault.apps.watch.monitoring.incidents import Incident
from ragfault.apps.watch.server.storage.records import (
    AccessToken,
    AlertEvent,
    AuditRecord,
    BrowserSession,
    EventCount,
    LabelPage,
    TimelineMark,
    TraceComment,
)
from ragfault.apps.watch.server.storage.store_engine import DatabaseConnection, StoreEngine, encode_json
from ragfault.io.field_values import make_content_id
from ragfault.labels.reading.lines import LabelLine
from ragfault.model.errors import OutputError
from ragfault.text.times import assume_utc

NoteKind = Literal[
    "metric", "mark", "event", "label", "comment", "setting", "token", "session", "audit", "owner", "incident"
]

NoteRecord = TypeVar("NoteRecord")

NoteOrder = Literal["number", "number DESC", "name", "time, name", "time DESC, number DESC"]


# the setting that finds out whether the store can be written again, its bytes, and the seconds it may take
PROBE_SETTING, PROBE_BYTES, PROBE_SECONDS = "probe", 30_000, 5.0

MAX_MARKS = 100
"""Marks that are read at once: views show each of them."""
LATEST_FIRST: NoteOrder = "time DESC, number DESC"


class StoredNote(NamedTuple):
    """A small versioned record: of the notes with the same kind, name and slot, the highest number is valid."""

    kind: NoteKind
    name: str
    slot: int = 0
    number: int = 0
    time: float = 0.0
    body: str = ""
    """Content as JSON; empty: deleted."""


class NoteSelection(NamedTuple):
    """The latest version of the notes of one kind, of all names and times unless some are given."""

    kind: NoteKind
    name: str | None = None
    since: float | None = None
    """Seconds since 1970, UTC, inclusive."""
    until: float | None = None
    """Exclusive."""
    order: NoteOrder = "name"
    limit: int = 2**31


def to_columns(rows: Sequence[Any], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return records as columns, one for each named field."""
    return {name: [getattr(row, name) for row in rows] for name in names}


class NoteTables(StoreEngine):
    """Tables of the notes and event counts of a store."""

    NOTES: ClassVar[str] = "notes"

    def _add_notes(self, con: DatabaseConnection, notes: Sequence[StoredNote]) -> None:
        """Add notes atomically, replacing those with the same kind, name and slot."""
        con.insert("notes", to_columns(notes, StoredNote._fields))

    def _make_note(self, kind: NoteKind, name: str, content: Any) -> StoredNote:
        body = "" if content is None else encode_json(content).decode()
        return StoredNote(kind, name, number=next(self._numbers), body=body)

    def _save_note(self, kind: NoteKind, name: str, content: Any) -> Future[None]:
        return self.submit(lambda con: self._add_notes(con, [self._make_note(kind, name, content)]))

    def _append_note(self, kind: NoteKind, name: str, content: Any, time: float = 0.0) -> Future[None]:
        """Add a note beside those with the same kind and name."""

        def write(con: DatabaseConnection) -> None:
            note = self._make_note(kind, name, content)
            self._add_notes(con, [note._replace(slot=note.number, time=time)])

        return self.submit(write)

    def _read_bodies(self, con: DatabaseConnection, selection: NoteSelection) -> list[str]:
        """Return the bodies of selected notes."""
        conditions = {
            "name": "name = {name:String}",
            "since": "time >= {since:Float64}",
            "until": "time < {until:Float64}",
        }
        given = {key: value for key in conditions if (value := getattr(selection, key)) is not None}
        where = " AND ".join(["kind = {kind:String}", "body != ''", *(conditions[key] for key in given)])
        rows = con.fetch_rows(
            f"SELECT body FROM {self.NOTES} WHERE {where} ORDER BY {selection.order} LIMIT {{limit:UInt64}}",
            {"kind": selection.kind, "limit": selection.limit, **given},
        )
        return [body for (body,) in rows]

    def _read_records(self, selection: NoteSelection, record: type[NoteRecord]) -> tuple[NoteRecord, ...]:
        """Return selected notes, decoded."""
        bodies = self._read_bodies(self.reader, selection)
        return tuple(msgspec.json.decode(body, type=record) for body in bodies)

    def add_marks(self, marks: Sequence[TimelineMark], now: float) -> Future[int]:
        """Add marks, once for each id, with `now` as the default time; return the number of new ones."""

        def write(con: DatabaseConnection) -> int:
            notes: dict[str, StoredNote] = {}
            for mark in marks:
                time = assume_utc(mark.time or datetime.fromtimestamp(now, UTC))
                content = f"{mark.text}\n{time.isoformat()}\n{mark.route}\n{mark.kind}"
                id = mark.id or make_content_id(content, "m-")
                if id not in notes and not self._read_bodies(con, NoteSelection("mark", id)):
                    dated = msgspec.structs.replace(mark, id=id, time=time)
                    notes[id] = self._make_note("mark", id, dated)._replace(time=time.timestamp())
            self._add_notes(con, list(notes.values()))
            return len(notes)

        return self.submit(write)

    def read_marks(self, since: float = 0.0, until: float | None = None) -> tuple[TimelineMark, ...]:
        """Return the latest MAX_MARKS marks by time."""
        selection = NoteSelection("mark", since=since, until=until, order=LATEST_FIRST, limit=MAX_MARKS)
        marks = self._read_records(selection, TimelineMark)
        return tuple(sorted(marks, key=lambda mark: (mark.time or datetime.min.replace(tzinfo=UTC), mark.id)))

    def add_events(
        self, events: Sequence[AlertEvent], settings: dict[str, Any] | None = None, resolved: Sequence[Incident] = ()
    ) -> Future[None]:
        """Add alert events and, in the same transaction, settings such as the alerts, and incidents that are over."""

        def write(con: DatabaseConnection) -> None:
            notes: list[StoredNote] = []
            for event in events:
                number = next(self._numbers)
                body = encode_json(msgspec.structs.replace(event, id=event.id or str(number))).decode()
                notes.append(StoredNote("event", event.alert, number, number, event.time, body))
            notes += (self._make_note("setting", name, value) for name, value in (settings or {}).items())
            notes += (self._make_note("incident", past.id, past)._replace(time=past.opened) for past in resolved)
            self._add_notes(con, notes)

        return self.submit(write)

    def read_events(
        self, alert: str | None = None, limit: int = 200, until: float | None = None
    ) -> tuple[AlertEvent, ...]:
        """Return alert events, the latest first: at most so many, before a time."""
        return self._read_records(
            NoteSelection("event", alert, until=until, order=LATEST_FIRST, limit=limit), AlertEvent
        )

    def read_past_incidents(self, limit: int = 50, until: float | None = None) -> tuple[Incident, ...]:
        """Return resolved incidents, the latest opened first: at most so many, opened before a time."""
        return self._read_records(NoteSelection("incident", order=LATEST_FIRST, limit=limit, until=until), Incident)

    def add_label(self, label: LabelLine) -> Future[None]:
        """Add a human label of a trace."""
        return self._append_note("label", label.trace, label)

    def read_labels(self, trace: str | None = None, limit: int = 2**31) -> tuple[LabelLine, ...]:
        """Return human labels in the order of arrival: the latest ones, at most so many."""
        return self._read_records(NoteSelection("label", trace, order="number DESC", limit=limit), LabelLine)[::-1]

    def count_labels(self) -> int:
        """Count the human labels."""
        query = f"SELECT count(*) FROM {self.NOTES} WHERE kind = 'label' AND body != ''"
        return int(self.reader.fetch_value(query))

    def list_labels(self, after: int = 0, limit: int = 50) -> LabelPage:
        """Return a page of the human labels in the order of arrival; following `next` lists each once."""
        rows = self.reader.fetch_rows(
            f"SELECT number, body FROM {self.NOTES} WHERE kind = 'label' AND body != '' AND number > {{after:Int64}} "
            "ORDER BY number LIMIT {limit:UInt64}",
            {"after": after, "limit": limit + 1},
        )
        labels = tuple(msgspec.json.decode(body, type=LabelLine) for _, body in rows[:limit])
        return LabelPage(labels=labels, next=rows[limit - 1][0] if len(rows) > limit else None)

    def add_comment(self, comment: TraceComment) -> Future[None]:
        """Add a comment on a trace."""
        return self._append_note("comment", comment.trace, comment, comment.time)

    def read_comments(self, trace: str) -> tuple[TraceComment, ...]:
        """Return the comments on a trace in the order of arrival."""
        return self._read_records(NoteSelection("comment", trace, order="number"), TraceComment)

    def save_setting(self, name: str, value: Any) -> Future[None]:
        """Save a setting as JSON; None deletes it."""
        return self._save_note("setting", name, value)

    def check_writable(self) -> None:
        """Raise OutputError where the last write failed and the store still cannot be written."""
        if self.last_write_error is None:
            return
        try:
            # as large as a small request, and in the place of the probe before
            self.save_setting(PROBE_SETTING, os.urandom(PROBE_BYTES).hex()).result(timeout=PROBE_SECONDS)
        except TimeoutError:
            raise OutputError(f"the store does not take writes: {self.last_write_error}") from None
        self.last_write_error = None

    def read_setting(self, name: str, default: Any = None) -> Any:
        """Return a setting, or the default."""
        bodies = self._read_bodies(self.reader, NoteSelection("setting", name))
        return msgspec.json.decode(bodies[0]) if bodies else default

    def save_token(self, token: AccessToken) -> Future[None]:
        """Save a token in place of one with the same name."""
        return self._save_note("token", token.name, token)

    def delete_token(self, name: str) -> Future[None]:
        """Delete a token."""
        return self._save_note("token", name, None)

    def read_tokens(self) -> tuple[AccessToken, ...]:
        """Return all tokens by name."""
        return self._read_records(NoteSelection("token"), AccessToken)

    def save_session(self, session: BrowserSession) -> Future[None]:
        """Save a session."""
        return self._save_note("session", session.hash, session)

    def delete_session(self, hash: str) -> Future[None]:
        """Delete the session with this hash of its id."""
        return self._save_note("session", hash, None)

    def read_sessions(self) -> tuple[BrowserSession, ...]:
        """Return all sessions."""
        return self._read_records(NoteSelection("session"), BrowserSession)

    def add_audit(self, record: AuditRecord) -> Future[None]:
        """Add a record to the audit log."""
        return self._append_note("audit", record.who, record, record.time)

    def read_audit(self, until: float | None = None, limit: int = 200) -> tuple[AuditRecord, ...]:
        """Return records of the audit log from before a time, the latest first."""
        return self._read_records(NoteSelection("audit", until=until, order=LATEST_FIRST, limit=limit), AuditRecord)

    def delete_audit(self, before: float) -> Future[None]:
        """Delete the records of the audit log from before a time."""
        query = "DELETE FROM notes WHERE kind = 'audit' AND time < {before:Float64}"
        return self.submit(lambda con: con.execute(query, {"before": before}))

    def add_counts(self, counts: Sequence[EventCount]) -> Future[None]:
        """Add to the counts of dropped traces, rejected traces and so on."""
        return self.submit(lambda con: con.insert("counts", to_columns(counts, EventCount._fields)))

    def read_counts(self, since: int = 0, name: str | None = None) -> tuple[EventCount, ...]:
        """Return the counts by name and minute, from a minute on; all of them, or those of one name."""
        where = "minute >= {since:Int64}"
        parameters: dict[str, Any] = {"since": since}
        if name is not None:
            where, parameters = f"{where} AND name = {{name:String}}", parameters | {"name": name}
        rows = self.reader.fetch_rows(
            f"SELECT name, minute, sum(n) FROM counts WHERE {where} GROUP BY name, minute ORDER BY name, minute",
            parameters,
        )
        return tuple(EventCount(*row) for row in rows)
