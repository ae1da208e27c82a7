"""Replies that were paid for, by what was asked."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from ragfault.judges.llm.cache_file import File
from ragfault.judges.llm.calls import Call
from ragfault.judges.llm.endpoint import where
from ragfault.judges.llm.settings import Settings

__all__ = ["Group", "Kept", "export", "key_of", "prune", "put", "stats", "take"]

COLUMNS = "text, cut, kind, provider, model, prompt, completion, cost, time"


class Kept(NamedTuple):
    """A reply as it is kept."""

    text: str
    cut: bool
    kind: str
    provider: str
    model: str
    prompt: int
    completion: int
    cost: int | None
    """Billionths of a US$; None where no price was known."""
    time: int
    """When, in seconds since 1970."""


class Group(NamedTuple):
    """The replies of one model to one kind of call."""

    provider: str
    model: str
    kind: str
    calls: int
    prompt: int
    completion: int
    cost: float | None
    """US$; None where the price of some was not known."""
    oldest: int
    newest: int


def key_of(settings: Settings) -> Keyed:
    """What names the replies to calls under these settings."""
    said = (
        settings.provider,
        where(settings),
        settings.model,
        settings.temperature,
        settings.max_tokens,
        settings.parameters,
        settings.structured,
    )
    return Keyed(hashlib.sha256(msgspec.json.encode(said, order="deterministic")))


class Keyed:
    """Makes the key of a call: a hash of all that bears on the reply."""

    def __init__(self, start: hashlib._Hash) -> None:
        self._start = start

    def __call__(self, call: Call) -> bytes:
        made = self._start.copy()
        said = (call.kind, call.content, call.vote)
        made.update(msgspec.json.encode(said))
        return made.digest()


def take(file: File, key: bytes) -> Kept | None:
    """The reply that is kept under a key."""
    with file.reading() as connection:
        row = connection.execute(f"select {COLUMNS} from replies where key = ?", (key,)).fetchone()
    return None if row is None else Kept(row[0], bool(row[1]), *row[2:])


def put(connection: sqlite3.Connection, key: bytes, kept: Kept) -> None:
    """Keep a reply, within a transaction; the one that was kept first under a key stays."""
    marks = ", ".join("?" * (len(kept) + 1))
    connection.execute(f"insert or ignore into replies (key, {COLUMNS}) values ({marks})", (key, *kept))


def stats(file: File) -> list[Group]:
    """What is kept, by model and kind of call."""
    query = """
        select provider, model, kind, count(*), sum(prompt), sum(completion),
               case when count(cost) = count(*) then sum(cost) / 1e9 end, min(time), max(time)
        from replies group by provider, model, kind order by provider, model, kind
    """
    with file.reading() as connection:
        return [Group(*row) for row in connection.execute(query)]


def prune(file: File, *, older: float | None = None, model: str | None = None) -> int:
    """Remove replies: those older than so many seconds, of one model, or all. Returns how many.

    What was spent by runs stays, so that their budgets hold.
    """
    before = int(time.time() - older) if older is not None else None
    with file.transaction() as connection:
        done = connection.execute(
            "delete from replies where (?1 is null or time < ?1) "
            "and (?2 is null or model = ?2 or provider || '/' || model = ?2)",
            (before, model),
        )
    return done.rowcount


def export(file: File) -> Iterator[dict[str, object]]:
    """Every reply that is kept, oldest first, as plain values."""
    names: Sequence[str] = ("key", *COLUMNS.split(", "))
    with file.reading() as connection:
        rows = connection.execute(f"select hex(key), {COLUMNS} from replies order by time, key")
    while True:
        with file.reading():
            some = rows.fetchmany(1000)
        if not some:
            return
        for row in some:
            made = dict(zip(names, row, strict=True))
            made["cut"] = bool(made["cut"])
            made["cost"] = None if row[8] is None else row[8] / 1e9
            yield made
