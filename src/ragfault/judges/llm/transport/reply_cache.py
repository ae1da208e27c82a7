"""Cache of paid replies: one SQLite file shared by several processes, keyed by the content of the call."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ragfault.errors import InputError, JudgeStopped
from ragfault.judges.llm.settings import LLMSettings, endpoint_location
from ragfault.judges.llm.transport.calls import ModelCall

CACHE_VARIABLE = "RAGFAULT_CACHE"
"""The environment variable that names another file than the usual one, or "none"."""
APPLICATION_ID = 0x72676663
"""Says in the header of the file that it is ours."""
LAYOUT_VERSION = 1
LOCK_TIMEOUT = 60.0
"""Seconds to wait for another process that writes."""

CACHE_SCHEMA = """
create table replies (
    key blob primary key, text text not null, cut integer not null, kind text not null, provider text not null,
    model text not null, prompt integer not null, completion integer not null, cost integer, time integer not null
);
create table purses (
    name text primary key, calls integer not null default 0, cached integer not null default 0,
    prompt integer not null default 0, completion integer not null default 0, cost integer not null default 0,
    unpriced integer not null default 0
);
create table reservations (
    id integer primary key, purse text not null, prompt integer not null, completion integer not null, cost integer
);
create index reserved on reservations (purse);
"""


def default_cache_path() -> Path:
    """The file of this user: in the cache folder of the system, unless the environment names another."""
    home = Path.home()
    if sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        folder = home / "Library" / "Caches"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return folder / "ragfault" / "replies.sqlite"


def resolve_cache_path(name: str | None) -> Path | None:
    """The file of a name; None names the user's own, and "none" no file, for which None stands."""
    name = name or os.environ.get(CACHE_VARIABLE) or None
    if name == "none":
        return None
    return Path(name).expanduser() if name else default_cache_path()


class CacheFile:
    """An open file, or one in memory (`None`); threads take turns.

    Raises InputError where the file is damaged, of a later layout, or of something else.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.RLock()
        if path is not None:
            _create_file(path)
        self._open()

    def _open(self) -> None:
        try:
            self._connection = sqlite3.connect(
                self.path or ":memory:", timeout=LOCK_TIMEOUT, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise InputError(f"cannot open {self.path}: {error}. Name another file with --cache.") from None
        try:
            self._initialize()
        except sqlite3.OperationalError as error:
            self._connection.close()
            raise InputError(
                f"cannot work with {self.path}: {error}. "
                "Free the file and its folder, or name another file with --cache."
            ) from None
        except sqlite3.Error as error:
            self._connection.close()
            raise InputError(f"{self._damaged_message()} ({error})") from None
        except InputError:
            self._connection.close()
            raise

    def _initialize(self) -> None:
        """See that the file is ours, and make its tables where it is new: one of several that come at once does."""
        run = self._connection.execute
        run("begin immediate")
        mark, layout = run("pragma application_id").fetchone()[0], run("pragma user_version").fetchone()[0]
        if mark not in (0, APPLICATION_ID) or (
            not mark and run("select count(*) from sqlite_master").fetchone()[0]
        ):
            raise InputError(self._damaged_message())
        if layout > LAYOUT_VERSION:
            raise InputError(
                f"{self.path} is of a later ragfault. Upgrade, or name another file with --cache."
            )
        if not mark:
            for line in CACHE_SCHEMA.split(";"):
                run(line)
            run(f"pragma application_id = {APPLICATION_ID}")
            run(f"pragma user_version = {LAYOUT_VERSION}")
        run("commit")
        self._enable_wal()
        run("pragma synchronous = normal")

    def _enable_wal(self) -> None:
        """Have changes written ahead, so that readers and a writer do not wait; this lock SQLite does not wait for."""
        until = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                self._connection.execute("pragma journal_mode = wal")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def _damaged_message(self) -> str:
        return (
            f"{self.path} is damaged, or no file of replies. Move it away, or name another file with --cache; "
            "what a damaged file held is asked for anew."
        )

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is done within is done at once, or not at all; nobody else writes meanwhile."""
        with self._lock, self.connection():
            self._connection.execute("begin immediate")
            try:
                yield self._connection
                self._connection.execute("commit")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("rollback")
                raise

    @contextlib.contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one query; raises Stopped where the file cannot be worked with."""
        try:
            with self._lock:
                yield self._connection
        except sqlite3.OperationalError as error:
            raise JudgeStopped(
                f"cannot work with {self.path}: {error}. Free the disk or the file, and run the same command again."
            ) from None
        except sqlite3.DatabaseError as error:
            raise JudgeStopped(f"{self._damaged_message()} ({error})") from None

    def vacuum(self) -> None:
        """Give the room of what was removed back to the disk."""
        with self.connection() as connection:
            connection.execute("vacuum")
            connection.execute("pragma wal_checkpoint(truncate)")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


def _create_file(path: Path) -> None:
    """Make the file where there is none, readable for its user alone."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise InputError(
            f"cannot keep replies in {path}: {error.strerror}. Name another file with --cache or {CACHE_VARIABLE}."
        ) from None


REPLY_COLUMNS = "text, cut, kind, provider, model, prompt, completion, cost, time"


class CachedReply(NamedTuple):
    """A reply as it is kept."""

    text: str
    truncated: bool
    kind: str
    provider: str
    model: str
    prompt: int
    completion: int
    cost: int | None
    """Billionths of a US$; None where no price was known."""
    time: int
    """When, in seconds since 1970."""


class CacheGroup(NamedTuple):
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


def create_key_builder(settings: LLMSettings) -> CacheKeyBuilder:
    """What names the replies to calls under these settings."""
    said = (
        settings.provider,
        endpoint_location(settings),
        settings.model,
        settings.temperature,
        settings.max_tokens,
        settings.parameters,
        settings.structured,
    )
    return CacheKeyBuilder(hashlib.sha256(msgspec.json.encode(said, order="deterministic")))


class CacheKeyBuilder:
    """Makes the key of a call: a hash of all that bears on the reply."""

    def __init__(self, prefix: hashlib._Hash) -> None:
        self._prefix = prefix

    def __call__(self, call: ModelCall) -> bytes:
        made = self._prefix.copy()
        said = (call.kind, call.content, call.vote)
        made.update(msgspec.json.encode(said))
        return made.digest()


def load_reply(file: CacheFile, key: bytes) -> CachedReply | None:
    """The reply that is kept under a key."""
    with file.connection() as connection:
        row = connection.execute(f"select {REPLY_COLUMNS} from replies where key = ?", (key,)).fetchone()
    return None if row is None else CachedReply(row[0], bool(row[1]), *row[2:])


def store_reply(connection: sqlite3.Connection, key: bytes, reply: CachedReply) -> None:
    """Keep a reply, within a transaction; the one that was kept first under a key stays."""
    marks = ", ".join("?" * (len(reply) + 1))
    connection.execute(
        f"insert or ignore into replies (key, {REPLY_COLUMNS}) values ({marks})", (key, *reply)
    )


def summarize_cache(file: CacheFile) -> list[CacheGroup]:
    """What is kept, by model and kind of call."""
    query = """
        select provider, model, kind, count(*), sum(prompt), sum(completion),
               case when count(cost) = count(*) then sum(cost) / 1e9 end, min(time), max(time)
        from replies group by provider, model, kind order by provider, model, kind
    """
    with file.connection() as connection:
        return [CacheGroup(*row) for row in connection.execute(query)]


def prune_cache(file: CacheFile, *, older: float | None = None, model: str | None = None) -> int:
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


def export_replies(file: CacheFile) -> Iterator[dict[str, object]]:
    """Every reply that is kept, oldest first, as plain values."""
    names: Sequence[str] = ("key", *REPLY_COLUMNS.split(", "))
    with file.connection() as connection:
        rows = connection.execute(f"select hex(key), {REPLY_COLUMNS} from replies order by time, key")
    while True:
        with file.connection():
            some = rows.fetchmany(1000)
        if not some:
            return
        for row in some:
            made = dict(zip(names, row, strict=True))
            made["cut"] = bool(made["cut"])
            made["cost"] = None if row[8] is None else row[8] / 1e9
            yield made
