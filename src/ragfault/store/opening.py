"""Opening a store by its place."""

from __future__ import annotations

from pathlib import Path

from ragfault.errors import UsageError
from ragfault.store.clickhouse_address import SCHEMES
from ragfault.store.port import Store

__all__ = ["is_folder", "open_store"]


def is_folder(place: str | Path) -> bool:
    """Whether a place is a folder, not the address of a service.

    >>> is_folder("watched"), is_folder("clickhouse://db.example/watched")
    (True, False)
    """
    return "://" not in str(place)


def open_store(place: str | Path) -> Store:
    """The store in a folder, which is made where there is none, or at an address: `clickhouse://HOST/DATABASE`.

    This process owns it until it is closed. Raises UsageError for a place of a kind that there is no store for, and
    what `store.duck.Duck` and `store.clickhouse.ClickHouse` raise.

    >>> import tempfile
    >>> store = open_store(tempfile.mkdtemp())
    >>> store.totals().traces
    0
    >>> store.close()
    """
    from ragfault.store.clickhouse import ClickHouse
    from ragfault.store.duck import Duck

    if is_folder(place):
        return Duck(Path(place))
    scheme = str(place).partition("://")[0]
    if scheme not in SCHEMES:
        raise UsageError(
            f"there is no store for {scheme[:20]}://. Name a folder, --store ./watched, or a ClickHouse, "
            "--store clickhouse://user@host:8123/database"
        )
    return ClickHouse(str(place))
