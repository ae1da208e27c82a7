"""One process writes to a store on ClickHouse: a note says which, for half a minute at a time."""

from __future__ import annotations

import os
import socket
import time
import uuid
from typing import Any

import msgspec

from ragfault.errors import OutputError
from ragfault.store.clickhouse_connection import Connection
from ragfault.store.clickhouse_keeping import Note, add_notes

__all__ = ["RENEW", "Ownership"]

LEASE = 30.0
"""Seconds for which a claim holds without being renewed."""

SETTLE = 0.5
"""Seconds after which a claim is looked at again: of two who saw nobody at the same time, the later one owns it."""

RENEW = 10.0
"""Seconds after which it is renewed."""

CLOCK = "toUnixTimestamp64Micro(now64(6)) / 1e6"
"""The server's time, which is the same for all who ask."""

_mine: set[str] = set()
"""The claims of this process."""


class Ownership:
    """The claim of this process to a store.

    The claim of a process that ended falls at once where it ran on this machine, else when it lapses, which is waited
    for. Raises OutputError where another process owns the store.
    """

    def __init__(self, con: Connection) -> None:
        self._con, self._token, self._renewed = con, uuid.uuid4().hex, 0.0
        self._wait_for_others()
        _mine.add(self._token)
        self._claim(LEASE)
        if con.address.folder is None:
            time.sleep(SETTLE)
            self._check()

    def renew(self) -> None:
        """Claim it for longer, where that is due. Raises OutputError where another process took it over meanwhile."""
        if time.monotonic() - self._renewed < RENEW:
            return
        self._check()
        self._claim(LEASE)

    def _check(self) -> None:
        """Raise OutputError where another process has it."""
        found = self._holder()
        if found is not None and found["token"] != self._token:
            raise OutputError(f"another process took over the store {self._con.address}: {_named(found)}.")

    def release(self) -> None:
        """Let it go."""
        _mine.discard(self._token)
        found = self._holder()
        if found is not None and found["token"] == self._token:
            self._claim(0.0)

    def _wait_for_others(self) -> None:
        """Return when nobody holds the store."""
        first = self._holder()
        if first is None or _ended(first):
            return
        if first["host"] != socket.gethostname():  # it may have ended: then nobody renews its claim
            time.sleep(first["left"] + 0.5)
            found = self._holder()
            if found is None:
                return
        raise OutputError(
            f"another process owns the store {self._con.address}: {_named(first)}. Ask it over HTTP, or end it first."
        )

    def _holder(self) -> dict[str, Any] | None:
        """Who holds the store, and for how many seconds yet; None: nobody does."""
        rows = self._con.rows(
            f"SELECT body, time - {CLOCK} FROM notes FINAL WHERE kind = 'owner' AND time > {CLOCK}"
        )
        return {**msgspec.json.decode(rows[0][0]), "left": rows[0][1]} if rows else None

    def _claim(self, seconds: float) -> None:
        content = {"token": self._token, "host": socket.gethostname(), "pid": os.getpid()}
        until = float(self._con.one(f"SELECT {CLOCK}")) + seconds
        body = msgspec.json.encode(content).decode()
        add_notes(self._con, [Note("owner", "owner", number=time.time_ns(), time=until, body=body)])
        self._renewed = time.monotonic()


def _named(found: dict[str, Any]) -> str:
    return f"{found['pid']} on {found['host']}"


def _ended(found: dict[str, Any]) -> bool:
    """Whether a holder is known to be gone: it ran on this machine, and no longer does."""
    if found["host"] != socket.gethostname():
        return False
    if found["pid"] == os.getpid():
        return found["token"] not in _mine
    try:
        os.kill(found["pid"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
