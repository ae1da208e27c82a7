"""Calls to a language model and the cache of their replies, in one SQLite file."""

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
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from ragfault.judges.llm.settings import LLMSettings, endpoint_location
from ragfault.model.errors import InputError, JudgeError, JudgeStopped
from ragfault.model.records import Usage

CallKind = Literal["retrieval", "generation", "questions", "relevance", "writing", "answer", "decision"]
"""Verdicts on the retrieval or the answer, questions that the answer answers, relevance of passages, text written by
instructions, the answer to a recorded request, or the answer to a typed question."""


ModelRole = Literal["system", "user", "assistant", "context"]
"""Author of a message; "context" is that of sources, in the template of some models."""


class ModelMessage(Struct, frozen=True):
    """Turn of a conversation with a model."""

    role: ModelRole
    text: str
    images: tuple[str, ...] = ()
    """URLs of its images: `data:` or `https:`."""


class ModelCall(Struct, frozen=True, kw_only=True):
    """Request to a model."""

    kind: CallKind
    messages: tuple[ModelMessage, ...]
    schema: dict[str, Any]
    """Strict JSON schema of the reply: every field is required, none may be added."""
    content: str
    """Hash of everything that affects the reply except model and parameters."""
    vote: int = 0
    """Number of this call among equal ones, from 0."""


class ModelReply(NamedTuple):
    """Reply of a model."""

    text: str
    usage: Usage
    cached: bool
    """The reply was paid for earlier."""
    truncated: bool
    """The reply ended at the token limit."""
    record: CachedReply
    """The reply with what it cost when it was paid for."""


class CallFailed(JudgeError):
    """Error of a call without a reply after all attempts; its message holds no key."""


class ModelCaller(Protocol):
    """Source of replies: a cache, or an endpoint within a budget."""

    async def ask(self, call: ModelCall) -> ModelReply:
        """Return the reply to a call, paid for once.

        Raises CallFailed where this call cannot be answered, JudgeStopped where none can, BudgetExceeded
        where its cost exceeds the budget.
        """
        ...


class CountingCaller:
    """Caller that sums up the usage of the replies of another caller."""

    def __init__(self, caller: ModelCaller) -> None:
        self._caller = caller
        self.usage = Usage()

    async def ask(self, call: ModelCall) -> ModelReply:
        reply = await self._caller.ask(call)
        self.usage = self.usage.combine(reply.usage)
        return reply


CACHE_VARIABLE = "RAGFAULT_CACHE"
"""Environment variable that names another file, or "none"."""
APPLICATION_ID = 0x72676663
"""Mark of the file format in the SQLite header."""
LAYOUT_VERSION = 5
LOCK_TIMEOUT = 60.0
"""Seconds to wait for another process that writes."""

CACHE_SCHEMA = """
create table replies (
    key blob primary key, text text not null, cut integer not null, kind text not null, provider text not null,
    model text not null, prompt integer not null, completion integer not null, cost integer, time integer not null,
    seconds real
);
create table budgets (
    name text primary key, calls integer not null default 0, cached integer not null default 0,
    prompt integer not null default 0, completion integer not null default 0, cost integer not null default 0,
    unpriced integer not null default 0
);
create table reservations (
    id integer primary key, budget text not null, prompt integer not null, completion integer not null, cost integer,
    owner text, sent integer not null default 1
);
create index reserved on reservations (budget);
"""
BATCH_SCHEMA = """
create table batches (label text primary key, batch text, service text not null, owner text, created integer not null);
create table batch_calls (
    name text primary key, label text not null, key blob not null, kind text not null, ticket integer not null
);
create index batched on batch_calls (key);
create index labeled on batch_calls (label)
"""
"""Calls that were sent to a batch endpoint and have no stored reply yet."""


ADD_TABLES, ADD_BATCHES = CACHE_SCHEMA.strip().rstrip(";").split(";"), BATCH_SCHEMA.split(";")
ADD_OWNERS = [
    "alter table reservations add column owner text",
    "alter table reservations add column sent integer not null default 1",
]
ADD_TIMES = ["alter table replies add column seconds real"]
UPGRADES = {
    0: [*ADD_TABLES, *ADD_BATCHES],
    2: [*ADD_OWNERS, *ADD_BATCHES, *ADD_TIMES],
    3: [*ADD_BATCHES, *ADD_TIMES],
    4: ADD_TIMES,
}
"""Layout → statements that bring it to the present one."""


def default_cache_path() -> Path:
    """Return the file of this user, in the cache folder of the system."""
    home = Path.home()
    if sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        folder = home / "Library" / "Caches"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return folder / "ragfault" / "replies.sqlite"


def resolve_cache_path(name: str | None) -> Path | None:
    """Return the path for a name; None names the user's own file, and "none" no file (None is returned)."""
    name = name or os.environ.get(CACHE_VARIABLE) or None
    if name == "none":
        return None
    return Path(name).expanduser() if name else default_cache_path()


class CacheFile:
    """Cache file, or one in memory (`None`), for several threads; InputError where it is damaged or another kind."""

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
        """Check the file, and create its tables where it is new, under a lock."""
        execute = self._connection.execute
        execute("begin immediate")
        mark, layout = (execute("pragma application_id").fetchone()[0], execute("pragma user_version").fetchone()[0])
        if mark not in (0, APPLICATION_ID) or (
            not mark and execute("select count(*) from sqlite_master").fetchone()[0]
        ):
            raise InputError(self._damaged_message())
        if mark and layout not in (*UPGRADES, LAYOUT_VERSION):
            raise InputError(f"{self.path} is of another version of ragfault. Name another file with --cache.")
        if layout != LAYOUT_VERSION:
            for line in UPGRADES[layout]:
                execute(line)
        execute(f"pragma application_id = {APPLICATION_ID}")
        execute(f"pragma user_version = {LAYOUT_VERSION}")
        execute("commit")
        self._enable_wal()
        execute("pragma synchronous = normal")

    def _enable_wal(self) -> None:
        """Enable write-ahead logging; SQLite does not wait for this lock by itself."""
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                self._connection.execute("pragma journal_mode = wal")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _damaged_message(self) -> str:
        return (
            f"{self.path} is damaged, or not a reply cache. Move it away, or name another file with --cache; "
            "replies of a damaged file are requested again."
        )

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Open an exclusive transaction: all of it is done, or nothing."""
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
        """Yield the connection for one query; raise JudgeStopped where the file cannot be used."""
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
        with self.connection() as connection:
            connection.execute("vacuum")
            connection.execute("pragma wal_checkpoint(truncate)")

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def _create_file(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise InputError(
            f"cannot keep replies in {path}: {error.strerror}. Name another file with --cache or {CACHE_VARIABLE}."
        ) from None


REPLY_COLUMNS = "text, cut, kind, provider, model, prompt, completion, cost, time, seconds"


class CachedReply(NamedTuple):
    """Stored reply."""

    text: str
    truncated: bool
    kind: str
    provider: str
    model: str
    prompt: int
    completion: int
    cost: int | None
    """Billionths of a US$; None where the price was unknown."""
    time: int
    """Seconds since 1970."""
    seconds: float | None = None
    """How long the call took; None where that is not known."""


class CacheGroup(Struct, frozen=True):
    """Replies of one model to one kind of call."""

    provider: str
    model: str
    kind: str
    calls: int
    prompt: int
    completion: int
    cost: float | None
    """US$; None where the price of some was unknown."""
    oldest: int
    newest: int


def create_key_builder(settings: LLMSettings) -> CacheKeyBuilder:
    """Create the builder of cache keys for calls under these settings."""
    fields = (
        settings.provider,
        endpoint_location(settings),
        settings.model,
        settings.temperature,
        settings.max_tokens,
        settings.parameters,
        settings.structured,
        *([settings.answer_format] if settings.answer_format != "text" else ()),
    )
    return CacheKeyBuilder(hashlib.sha256(msgspec.json.encode(fields, order="deterministic")))


class CacheKeyBuilder:
    """Builder of the key of a call: a hash of everything that affects the reply."""

    def __init__(self, prefix: hashlib._Hash) -> None:
        self._prefix = prefix

    def __call__(self, call: ModelCall) -> bytes:
        digest = self._prefix.copy()
        fields = (call.kind, call.content, call.vote)
        digest.update(msgspec.json.encode(fields))
        return digest.digest()


def load_reply(file: CacheFile, key: bytes) -> CachedReply | None:
    """Return the reply stored under a key."""
    with file.connection() as connection:
        row = connection.execute(f"select {REPLY_COLUMNS} from replies where key = ?", (key,)).fetchone()
    return None if row is None else CachedReply(row[0], bool(row[1]), *row[2:])


def store_reply(connection: sqlite3.Connection, key: bytes, reply: CachedReply) -> None:
    """Store a reply within a transaction; the first one under a key stays."""
    placeholders = ", ".join("?" * (len(reply) + 1))
    connection.execute(f"insert or ignore into replies (key, {REPLY_COLUMNS}) values ({placeholders})", (key, *reply))


def summarize_cache(file: CacheFile) -> list[CacheGroup]:
    """Summarize the stored replies by model and kind of call."""
    query = """
        select provider, model, kind, count(*), sum(prompt), sum(completion),
               case when count(cost) = count(*) then sum(cost) / 1e9 end, min(time), max(time)
        from replies group by provider, model, kind order by provider, model, kind
    """
    with file.connection() as connection:
        return [CacheGroup(*row) for row in connection.execute(query)]


def prune_cache(file: CacheFile, *, older: float | None = None, model: str | None = None) -> int:
    """Delete old replies, those of one model, or all, and return their number; spending of runs is kept."""
    before = int(time.time() - older) if older is not None else None
    with file.transaction() as connection:
        cursor = connection.execute(
            "delete from replies where (?1 is null or time < ?1) "
            "and (?2 is null or model = ?2 or provider || '/' || model = ?2)",
            (before, model),
        )
    return cursor.rowcount


def export_replies(file: CacheFile) -> Iterator[dict[str, object]]:
    """Yield every stored reply, oldest first, as plain values."""
    names: Sequence[str] = ("key", *REPLY_COLUMNS.split(", "))
    with file.connection() as connection:
        rows = connection.execute(f"select hex(key), {REPLY_COLUMNS} from replies order by time, key")
    while True:
        with file.connection():
            batch = rows.fetchmany(1000)
        if not batch:
            return
        for row in batch:
            record = dict(zip(names, row, strict=True))
            record["cut"] = bool(record["cut"])
            record["cost"] = None if row[8] is None else row[8] / 1e9
            yield record
