"""Paths of incoming records and spans that no field takes, counted since the server started."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Mapping

from ragfault.apps.watch.server.counters import EventCounters
from ragfault.io.accounts import RecordAccount
from ragfault.io.formats.texts import LONGEST_VALUE
from ragfault.io.otel.span_buffer import CollectedTrace, account_for_spans
from ragfault.model.records import Trace

FIRST_TRACES, NEXT_EACH = 100, 20
"""Traces of spans that are looked through first, and then one of so many: each is built again several times."""
MAX_PATHS = 1000
"""Most paths that are counted: clients choose the names of attributes."""
ATTRIBUTES = ".attributes"
"""Part of the path of an attribute of a span or an event."""
MAX_LISTED = 30
"""Most paths that are listed."""


class UnreadPathCounter:
    """Counter of what incoming traces hold and no field takes, by path."""

    def __init__(self, counters: EventCounters) -> None:
        self._counters = counters
        self._lock = threading.Lock()
        self._totals: Counter[str] = Counter()
        self._spans = RecordAccount()
        self._trace_count = 0

    def add(self, paths: Mapping[str, int]) -> None:
        """Add the records that have something unread at each path."""
        self._counters.add("unread", max(paths.values(), default=0))
        with self._lock:
            self._totals.update({path: n for path, n in paths.items() if path in self._totals or self._has_room()})

    def add_spans(self, collected: CollectedTrace, trace: Trace) -> None:
        """Look through the spans of a trace for attributes that no field takes; of many traces, through a part."""
        self._trace_count += 1
        if (self._trace_count > FIRST_TRACES and self._trace_count % NEXT_EACH) or not self._has_room():
            return
        before = self._count_attributes()
        # the trace is stored whatever its account is
        with contextlib.suppress(ValueError, TypeError, LookupError):
            account_for_spans(self._spans, collected, trace)
        self.add({path: n for path, total in self._count_attributes().items() if (n := total - before.get(path, 0))})

    def _count_attributes(self) -> dict[str, int]:
        """Count the traces by the attribute that is not read; a short value may only say what a span is."""
        return {
            path: total.records
            for path, total in self._spans.totals.items()
            if ATTRIBUTES in path and total.characters > LONGEST_VALUE * total.records
        }

    def _has_room(self) -> bool:
        return len(self._totals) < MAX_PATHS and len(self._spans.seen_paths) < MAX_PATHS

    @property
    def paths(self) -> dict[str, int]:
        """The paths with the number of records, the most first."""
        with self._lock:
            return dict(self._totals.most_common(MAX_LISTED))
