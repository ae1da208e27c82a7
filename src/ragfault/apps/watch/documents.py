"""Documents that the commands of the monitor and its server print as JSON."""

from __future__ import annotations

from typing import Any

from ragfault.apps.watch.monitoring.monitor import DetectedDrop, MonitorReport
from ragfault.apps.watch.report.monitor import describe_drop, summarize_monitor
from ragfault.report.json_documents import ComputedFields, VerbDocument, WrittenTraces


class IssuedToken(VerbDocument, frozen=True):
    """A token of a server."""

    name: str
    role: str | None
    token: str | None
    """None: the token was ended."""


class StoreBackup(VerbDocument, frozen=True):
    """A backup of a store."""

    path: str
    """The file, or the folder that it was restored into."""
    traces: int
    created: float
    """Time of the copy, in seconds since 1970, UTC."""


class ImportedTraces(VerbDocument, frozen=True):
    """Traces of a run that a store took, and those that it had."""

    added: int
    duplicates: int


DOCUMENTS: dict[str, tuple[Any, ...]] = {
    "monitor": (MonitorReport,),
    "serve token": (IssuedToken,),
    "serve export": (WrittenTraces,),
    "serve import": (ImportedTraces,),
    "serve backup": (StoreBackup,),
    "serve restore": (StoreBackup,),
}
"""Verb → the types of its document."""

COMPUTED_FIELDS: ComputedFields = {
    MonitorReport: {"sentence": (str, summarize_monitor), "fired": (int, lambda report: len(report.fired))},
    DetectedDrop: {"sentence": (str, describe_drop)},
}
"""Record → what its document says beyond its fields: the type, and the function of the record."""
