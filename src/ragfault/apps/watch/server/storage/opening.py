"""Storage of live traces, scores, roll-ups, marks, alerts, labels and tokens, in DuckDB or ClickHouse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ragfault.model.errors import UsageError

if TYPE_CHECKING:
    from ragfault.apps.watch.server.storage.store import TraceStore

ADDRESS_SCHEMES = ("clickhouse", "clickhouses", "chdb")


def is_store_folder(place: str | Path) -> bool:
    """Return True for a folder, False for the address of a service.

    >>> is_store_folder("watched"), is_store_folder("clickhouse://db.example/watched")
    (True, False)
    """
    return "://" not in str(place)


def open_store(place: str | Path) -> TraceStore:
    """Open the store in a folder, which is created if it is missing, or at `clickhouse://HOST/DATABASE`.

    This process owns the store until it is closed. Raises UsageError for an unknown kind of place, MissingExtra
    without the client of the database, OutputError where another process owns the store or the database cannot be
    reached or written, RunError for a store of a later version.

    >>> import tempfile
    >>> store = open_store(tempfile.mkdtemp())
    >>> store.compute_totals().traces
    0
    >>> store.close()
    """
    if is_store_folder(place):
        from ragfault.apps.watch.server.storage.duckdb.store import DuckDBStore

        return DuckDBStore(Path(place))
    scheme = str(place).partition("://")[0]
    if scheme not in ADDRESS_SCHEMES:
        raise UsageError(
            f'there is no store for {scheme[:20]}://. Name a folder, --store "watched", or a ClickHouse, '
            "--store clickhouse://user@host:8123/database"
        )
    from ragfault.apps.watch.server.storage.clickhouse.store import ClickHouseStore

    return ClickHouseStore(str(place))
