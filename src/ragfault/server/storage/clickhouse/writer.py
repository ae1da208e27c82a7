"""The ClickHouse writer: the thread that batches queued writes, and the lease that lets only one process write."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

import msgspec

from ragfault.errors import OutputError
from ragfault.server.storage.clickhouse.connection import ClickHouseConnection
from ragfault.server.storage.clickhouse.metadata import StoredNote, add_notes

T = TypeVar("T")

MAX_BATCH = 512
"""Deeds that are done together, at most."""

MIN_ROUND_SECONDS = 0.02
"""Seconds between two rounds, at least: few large inserts are what ClickHouse is made for."""

BatchWork = Callable[[Sequence[Any]], Sequence[Any]]
"""What is done with all that was given at once; a result for each."""


class _WriteRequest(NamedTuple):
    work: BatchWork
    payload: Any
    future: Future[Any]


class ClickHouseWriter:
    """A thread that does deeds in order, those of one kind that follow each other together.

    Where several fail together, each is done by itself. `before` is called before each round and, with nothing to do,
    every `idle` seconds; where it raises, the deeds of the round fail.
    """

    def __init__(self, before: Callable[[], None], idle: float) -> None:
        self._before, self._idle = before, idle
        self._queue: SimpleQueue[_WriteRequest | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._open = True
        self._thread = threading.Thread(target=self._run, name="ragfault-store", daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """Deeds that wait, about."""
        return self._queue.qsize()

    def submit(self, work: Callable[[Sequence[Any]], Sequence[T]], payload: Any) -> Future[T]:
        """Have something done; the Future is done when the server has acknowledged it."""
        future: Future[T] = Future()
        with self._lock:
            if not self._open:
                future.set_exception(OutputError("the store is closed: nothing more is written to it."))
                return future
            self._queue.put(_WriteRequest(work, payload, future))
        return future

    def close(self) -> None:
        """Do what waits, and end. Safe to call twice."""
        with self._lock:
            if self._open:
                self._open = False
                self._queue.put(None)
        self._thread.join()

    # --- on the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        ended, last = False, 0.0
        while not ended:
            time.sleep(max(0.0, last + MIN_ROUND_SECONDS - time.monotonic()))
            deeds, ended = self._next_requests()
            fault = self._prepare_round()
            for work, group in groupby(deeds, key=lambda deed: deed.work):
                self._run_requests(work, list(group), fault)
            last = time.monotonic()

    def _next_requests(self) -> tuple[list[_WriteRequest], bool]:
        """What waits, and whether this is the end; nothing where nothing came for a while."""
        deeds: list[_WriteRequest] = []
        while len(deeds) < MAX_BATCH:
            try:
                found = self._queue.get_nowait() if deeds else self._queue.get(timeout=self._idle)
            except Empty:
                break
            if found is None:
                return deeds, True
            deeds.append(found)
        return deeds, False

    def _prepare_round(self) -> Exception | None:
        """What keeps a round from being done, if anything."""
        try:
            self._before()
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the deeds of the round
            return error
        return None

    def _run_requests(
        self, work: BatchWork, requests: list[_WriteRequest], round_error: Exception | None
    ) -> None:
        """Deeds of one kind together; where that fails, each by itself."""
        try:
            if round_error is not None:
                raise round_error
            results = work([deed.payload for deed in requests])
        except BaseException as error:  # noqa: BLE001 - whatever a deed raises belongs to whoever asked for it
            if len(requests) == 1 or round_error is not None:
                for deed in requests:
                    deed.future.set_exception(error)
                return
            for deed in requests:
                self._run_requests(work, [deed], self._prepare_round())
            return
        for deed, result in zip(requests, results, strict=True):
            deed.future.set_result(result)


LEASE_SECONDS = 30.0
"""Seconds for which a claim holds without being renewed."""

SETTLE_SECONDS = 0.5
"""Seconds after which a claim is looked at again: of two who saw nobody at the same time, the later one owns it."""

RENEW_SECONDS = 10.0
"""Seconds after which it is renewed."""

SERVER_CLOCK = "toUnixTimestamp64Micro(now64(6)) / 1e6"
"""The server's time, which is the same for all who ask."""

_own_tokens: set[str] = set()
"""The claims of this process."""


class StoreLease:
    """The claim of this process to a store.

    The claim of a process that ended falls at once where it ran on this machine, else when it lapses, which is waited
    for. Raises OutputError where another process owns the store.
    """

    def __init__(self, con: ClickHouseConnection) -> None:
        self._connection, self._token, self._renewed = con, uuid.uuid4().hex, 0.0
        self._wait_for_others()
        _own_tokens.add(self._token)
        self._claim(LEASE_SECONDS)
        if con.address.folder is None:
            time.sleep(SETTLE_SECONDS)
            self._check_holder()

    def renew(self) -> None:
        """Claim it for longer, where that is due. Raises OutputError where another process took it over meanwhile."""
        if time.monotonic() - self._renewed < RENEW_SECONDS:
            return
        self._check_holder()
        self._claim(LEASE_SECONDS)

    def _check_holder(self) -> None:
        """Raise OutputError where another process has it."""
        found = self._read_holder()
        if found is not None and found["token"] != self._token:
            raise OutputError(
                f"another process took over the store {self._connection.address}: {_describe_holder(found)}."
            )

    def release(self) -> None:
        """Let it go."""
        _own_tokens.discard(self._token)
        found = self._read_holder()
        if found is not None and found["token"] == self._token:
            self._claim(0.0)

    def _wait_for_others(self) -> None:
        """Return when nobody holds the store."""
        first = self._read_holder()
        if first is None or _has_ended(first):
            return
        if first["host"] != socket.gethostname():  # it may have ended: then nobody renews its claim
            time.sleep(first["left"] + 0.5)
            found = self._read_holder()
            if found is None:
                return
        raise OutputError(
            f"another process owns the store {self._connection.address}: {_describe_holder(first)}. Ask it over HTTP, or end it first."
        )

    def _read_holder(self) -> dict[str, Any] | None:
        """Who holds the store, and for how many seconds yet; None: nobody does."""
        rows = self._connection.fetch_rows(
            f"SELECT body, time - {SERVER_CLOCK} FROM notes FINAL WHERE kind = 'owner' AND time > {SERVER_CLOCK}"
        )
        return {**msgspec.json.decode(rows[0][0]), "left": rows[0][1]} if rows else None

    def _claim(self, seconds: float) -> None:
        content = {"token": self._token, "host": socket.gethostname(), "pid": os.getpid()}
        until = float(self._connection.fetch_value(f"SELECT {SERVER_CLOCK}")) + seconds
        body = msgspec.json.encode(content).decode()
        add_notes(
            self._connection, [StoredNote("owner", "owner", number=time.time_ns(), time=until, body=body)]
        )
        self._renewed = time.monotonic()


def _describe_holder(holder: dict[str, Any]) -> str:
    return f"{holder['pid']} on {holder['host']}"


def _has_ended(holder: dict[str, Any]) -> bool:
    """Whether a holder is known to be gone: it ran on this machine, and no longer does."""
    if holder["host"] != socket.gethostname():
        return False
    if holder["pid"] == os.getpid():
        return holder["token"] not in _own_tokens
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
