"""Opening a store by its place."""

from __future__ import annotations

from pathlib import Path

from ragfault.errors import UsageError
from ragfault.store.port import Store

__all__ = ["open_store"]


def open_store(place: str | Path) -> Store:
    """The store in a folder, which is made where there is none; this process owns it until it is closed.

    Raises UsageError for a place of a kind that there is no store for, and what `store.duck.Duck` raises.

    >>> import tempfile
    >>> store = open_store(tempfile.mkdtemp())
    >>> store.totals().traces
    0
    >>> store.close()
    """
    from ragfault.store.duck import Duck

    text = str(place)
    if "://" in text:
        raise UsageError(
            f"there is no store for {text.partition('://')[0]}:// yet. Name a folder: --store ./watched"
        )
    return Duck(Path(place))
