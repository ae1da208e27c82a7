"""The store: live traces with their verdicts and scores, minute roll-ups, marks, alerts, labels, tokens.

`open_store(PATH)` opens the embedded one (DuckDB, extra `server`); one process owns it at a time.
"""

from ragfault.store.exporting import export, import_run
from ragfault.store.opening import open_store
from ragfault.store.port import Store
from ragfault.store.records import (
    STATES,
    Appended,
    Count,
    Event,
    Held,
    Kept,
    Line,
    Mark,
    Outcome,
    Page,
    Role,
    State,
    Token,
    Totals,
    Wanted,
    Whole,
)

__all__ = [
    "STATES",
    "Appended",
    "Count",
    "Event",
    "Held",
    "Kept",
    "Line",
    "Mark",
    "Outcome",
    "Page",
    "Role",
    "State",
    "Store",
    "Token",
    "Totals",
    "Wanted",
    "Whole",
    "export",
    "import_run",
    "open_store",
]
