"""Redaction before storage: what comes in is masked before it is held, and redacted before it is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ragfault.records import Trace
from ragfault.server.settings import Settings
from ragfault.server.tallies import Tallies
from ragfault.sources.redacting import Redactor
from ragfault.sources.spans import Decoded

__all__ = ["Redaction"]


class Redaction:
    """Redacts what the settings ask for, and counts it by kind; where they ask for nothing, nothing is touched."""

    def __init__(self, settings: Settings, tallies: Tallies) -> None:
        self._redactor = Redactor(settings.redact, settings.redact_key) if settings.redact else None
        self._tallies = tallies

    def trace(self, trace: Trace) -> Trace:
        """A trace as it may be kept."""
        if self._redactor is None:
            return trace
        made = self._redactor.trace(trace)
        self._count(made.counts)
        return made.trace

    def traces(self, traces: Iterable[Trace]) -> tuple[Trace, ...]:
        """Traces as they may be kept."""
        return tuple(map(self.trace, traces))

    def decoded(self, found: Decoded) -> Decoded:
        """Spans and records of a log as they may be held until their trace is whole."""
        if self._redactor is None:
            return found
        made = self._redactor.spans(found.operations, found.events)
        self._count(made.counts)
        return found._replace(operations=made.operations, events=made.events)

    def _count(self, counts: Counter[str]) -> None:
        for kind, n in counts.items():
            self._tallies.add(f"redacted_{kind}", n)
