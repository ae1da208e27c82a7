"""The one SQLite file that keeps replies and what was spent; several processes share it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ragfault.errors import InputError, Stopped

__all__ = ["ENV", "File", "default_place", "named_place"]

ENV = "RAGFAULT_CACHE"
"""The environment variable that names another file than the usual one, or "none"."""
MARK = 0x72676663
"""Says in the header of the file that it is ours."""
LAYOUT = 1
PATIENCE = 60.0
"""Seconds to wait for another process that writes."""

TABLES = """
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


def default_place() -> Path:
    """The file of this user: in the cache folder of the system, unless the environment names another."""
    home = Path.home()
    if sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        folder = home / "Library" / "Caches"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return folder / "ragfault" / "replies.sqlite"


def named_place(name: str | None) -> Path | None:
    """The file of a name; None names the user's own, and "none" no file, for which None stands."""
    name = name or os.environ.get(ENV) or None
    if name == "none":
        return None
    return Path(name).expanduser() if name else default_place()


class File:
    """An open file, or one in memory (`None`); threads take turns.

    Raises InputError where the file is damaged, of a later layout, or of something else.
    """

    def __init__(self, place: Path | None) -> None:
        self.place = place
        self._turn = threading.RLock()
        if place is not None:
            _prepare(place)
        self._open()

    def _open(self) -> None:
        try:
            self._connection = sqlite3.connect(
                self.place or ":memory:", timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise InputError(f"cannot open {self.place}: {error}. Name another file with --cache.") from None
        try:
            self._begin()
        except sqlite3.OperationalError as error:
            self._connection.close()
            raise InputError(
                f"cannot work with {self.place}: {error}. "
                "Free the file and its folder, or name another file with --cache."
            ) from None
        except sqlite3.Error as error:
            self._connection.close()
            raise InputError(f"{self._foreign()} ({error})") from None
        except InputError:
            self._connection.close()
            raise

    def _begin(self) -> None:
        """See that the file is ours, and make its tables where it is new: one of several that come at once does."""
        run = self._connection.execute
        run("begin immediate")
        mark, layout = run("pragma application_id").fetchone()[0], run("pragma user_version").fetchone()[0]
        if mark not in (0, MARK) or (not mark and run("select count(*) from sqlite_master").fetchone()[0]):
            raise InputError(self._foreign())
        if layout > LAYOUT:
            raise InputError(
                f"{self.place} is of a later ragfault. Upgrade, or name another file with --cache."
            )
        if not mark:
            for line in TABLES.split(";"):
                run(line)
            run(f"pragma application_id = {MARK}")
            run(f"pragma user_version = {LAYOUT}")
        run("commit")
        self._ahead()
        run("pragma synchronous = normal")

    def _ahead(self) -> None:
        """Have changes written ahead, so that readers and a writer do not wait; this lock SQLite does not wait for."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._connection.execute("pragma journal_mode = wal")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def _foreign(self) -> str:
        return (
            f"{self.place} is damaged, or no file of replies. Move it away, or name another file with --cache; "
            "what a damaged file held is asked for anew."
        )

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is done within is done at once, or not at all; nobody else writes meanwhile."""
        with self._turn, self.reading():
            self._connection.execute("begin immediate")
            try:
                yield self._connection
                self._connection.execute("commit")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("rollback")
                raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one query; raises Stopped where the file cannot be worked with."""
        try:
            with self._turn:
                yield self._connection
        except sqlite3.OperationalError as error:
            raise Stopped(
                f"cannot work with {self.place}: {error}. Free the disk or the file, and run the same command again."
            ) from None
        except sqlite3.DatabaseError as error:
            raise Stopped(f"{self._foreign()} ({error})") from None

    def vacuum(self) -> None:
        """Give the room of what was removed back to the disk."""
        with self.reading() as connection:
            connection.execute("vacuum")
            connection.execute("pragma wal_checkpoint(truncate)")

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            self._connection.close()


def _prepare(place: Path) -> None:
    """Make the file where there is none, readable for its user alone."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(place, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise InputError(
            f"cannot keep replies in {place}: {error.strerror}. Name another file with --cache or {ENV}."
        ) from None
