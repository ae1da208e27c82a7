"""The lease of a store on ClickHouse: one process writes."""

from __future__ import annotations

import os
import socket
import time
import uuid
from typing import Any

import msgspec

from ragfault.apps.watch.server.storage.clickhouse.connection import ClickHouseConnection
from ragfault.apps.watch.server.storage.notes import StoredNote, to_columns
from ragfault.model.errors import OutputError

LEASE_SECONDS = 30.0
"""Seconds until a lease expires that is not renewed."""

SETTLE_SECONDS = 0.5
"""Seconds after which a new lease is checked: of two processes that start together, the later one owns the store."""

RENEW_SECONDS = 10.0
"""Seconds after which a lease is renewed."""

SERVER_CLOCK = "toUnixTimestamp64Micro(now64(6)) / 1e6"
"""The time of the server, which all processes share."""

_own_tokens: set[str] = set()
"""The leases of this process."""


class StoreLease:
    """The lease of this process on a store.

    The lease of an ended process on this machine is void at once, that of another machine once it expires, which the
    constructor waits for. Raises OutputError where another process owns the store.
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
        """Extend the lease where that is due. Raises OutputError where another process took over the store."""
        if time.monotonic() - self._renewed < RENEW_SECONDS:
            return
        self._check_holder()
        self._claim(LEASE_SECONDS)

    def _check_holder(self) -> None:
        holder = self._read_holder()
        if holder is not None and holder["token"] != self._token:
            raise OutputError(
                f"another process took over the store {self._connection.address}: {_describe_holder(holder)}."
            )

    def release(self) -> None:
        """End the lease."""
        _own_tokens.discard(self._token)
        holder = self._read_holder()
        if holder is not None and holder["token"] == self._token:
            self._claim(0.0)

    def _wait_for_others(self) -> None:
        """Return once no other process holds the store."""
        first = self._read_holder()
        if first is None or _has_ended(first):
            return
        # it may have ended: then its lease expires
        if first["host"] != socket.gethostname():
            time.sleep(first["left"] + 0.5)
            holder = self._read_holder()
            if holder is None:
                return
        raise OutputError(
            f"another process owns the store {self._connection.address}: {_describe_holder(first)}. "
            "Send to it and ask it over HTTP, end it first, or name another store."
        )

    def _read_holder(self) -> dict[str, Any] | None:
        """Return the holder of the store with the seconds `left` of its lease; None without a holder."""
        rows = self._connection.fetch_rows(
            f"SELECT body, time - {SERVER_CLOCK} FROM notes FINAL WHERE kind = 'owner' AND time > {SERVER_CLOCK}"
        )
        return {**msgspec.json.decode(rows[0][0]), "left": rows[0][1]} if rows else None

    def _claim(self, seconds: float) -> None:
        content = {"token": self._token, "host": socket.gethostname(), "pid": os.getpid()}
        until = float(self._connection.fetch_value(f"SELECT {SERVER_CLOCK}")) + seconds
        body = msgspec.json.encode(content).decode()
        note = StoredNote("owner", "owner", number=time.time_ns(), time=until, body=body)
        self._connection.insert("notes", to_columns([note], StoredNote._fields))
        self._renewed = time.monotonic()


def _describe_holder(holder: dict[str, Any]) -> str:
    return f"{holder['pid']} on {holder['host']}"


def _has_ended(holder: dict[str, Any]) -> bool:
    """Return True for a holder on this machine whose process has ended."""
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
