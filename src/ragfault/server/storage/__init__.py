"""Storage of live traces, scores, roll-ups, marks, alerts, labels and tokens, in DuckDB or ClickHouse."""

from ragfault.server.storage.records import (
    TRACE_STATES,
    AccessRole,
    AccessToken,
    AlertEvent,
    AppendResult,
    EventCount,
    PendingBody,
    ReceivedTrace,
    SpotCheck,
    SpotCheckCounts,
    SpotCheckSample,
    StoredTrace,
    StoreTotals,
    TimelineMark,
    TraceOutcome,
    TracePage,
    TraceSelection,
    TraceState,
    TraceSummary,
)
from ragfault.server.storage.run_transfer import export_run, import_run
from ragfault.server.storage.spot_checks import SpotCheckStore
from ragfault.server.storage.store import TraceStore, open_store

__all__ = [
    "TRACE_STATES",
    "AccessRole",
    "AccessToken",
    "AlertEvent",
    "AppendResult",
    "EventCount",
    "PendingBody",
    "ReceivedTrace",
    "SpotCheck",
    "SpotCheckCounts",
    "SpotCheckSample",
    "SpotCheckStore",
    "StoreTotals",
    "StoredTrace",
    "TimelineMark",
    "TraceOutcome",
    "TracePage",
    "TraceSelection",
    "TraceState",
    "TraceStore",
    "TraceSummary",
    "export_run",
    "import_run",
    "open_store",
]
