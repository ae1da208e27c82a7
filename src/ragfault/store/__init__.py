"""The store: live traces with their verdicts and scores, minute roll-ups, marks, alerts, labels, tokens.

`open_store(PATH)` opens the embedded one (DuckDB, extra `server`); one process owns it at a time.
"""

from ragfault.store.exporting import export, import_run
from ragfault.store.opening import open_store
from ragfault.store.port import Checking, Store
from ragfault.store.records import (
    STATES,
    Appended,
    Check,
    Checks,
    Count,
    Event,
    Held,
    Kept,
    Line,
    Mark,
    Outcome,
    Page,
    Role,
    Sample,
    State,
    Token,
    Totals,
    Wanted,
    Whole,
)

__all__ = [
    "STATES",
    "Appended",
    "Check",
    "Checking",
    "Checks",
    "Count",
    "Event",
    "Held",
    "Kept",
    "Line",
    "Mark",
    "Outcome",
    "Page",
    "Role",
    "Sample",
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
