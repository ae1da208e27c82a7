"""Events of guard decisions within spans: their attributes, and their way from the active span to a trace."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

GUARD_EVENT = "ragfault.guard.decision"
GUARD_PREFIX = "ragfault.guard."
RAIL_PREFIX = "ragfault.guard.rail."
DECISION_FIELDS = (
    "trace", "route", "outcome", "stage", "action", "reason", "risk", "threshold", "promised", "withdrawn", "latency",
    "answer",
)  # fmt: skip
"""Fields of a decision that are attributes of its event, below `ragfault.guard.`."""
RAIL_FIELDS = {"rail": "", "stage": "", "outcome": "", "reason": "", "latency": 0.0, "failed": False}
"""Fields of the results of rails, each a list with an item a rail, below `ragfault.guard.rail.`; and their defaults."""
MAX_DECISIONS = 20
"""Decisions that a trace keeps; of more the first are left out."""


def to_guard_attributes(record: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a decision, as traces hold it, to the attributes of an event: scalars, and lists of one type.

    >>> record = {"outcome": "block", "results": [{"rail": "secrets", "stage": "output", "outcome": "block"}]}
    >>> attributes = to_guard_attributes(record)
    >>> attributes["ragfault.guard.outcome"], attributes["ragfault.guard.rail.rail"]
    ('block', ['secrets'])
    >>> parse_guard_attributes(attributes) == record
    True
    """
    attributes = {GUARD_PREFIX + name: record[name] for name in DECISION_FIELDS if record.get(name) is not None}
    results: Sequence[Mapping[str, Any]] = record.get("results", ())
    for name, default in RAIL_FIELDS.items():
        if results:
            attributes[RAIL_PREFIX + name] = [result.get(name, default) for result in results]
    return attributes


def parse_guard_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the attributes of an event to a decision as traces hold it; default values are left out."""
    record = {name: attributes[GUARD_PREFIX + name] for name in DECISION_FIELDS if GUARD_PREFIX + name in attributes}
    columns = {name: attributes.get(RAIL_PREFIX + name) for name in RAIL_FIELDS}
    names = columns["rail"]
    if isinstance(names, list | tuple):
        record["results"] = [
            {
                name: column[i]
                for name, column in columns.items()
                if isinstance(column, list | tuple) and i < len(column) and column[i] != RAIL_FIELDS[name]
            }
            for i in range(len(names))
        ]
    return record


def add_span_event(name: str, attributes: Mapping[str, Any]) -> bool:
    """Add an event to the active span of OpenTelemetry; return whether there is one that records.

    A program that never imported OpenTelemetry has none, so nothing is imported here.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return False
    span = api.get_current_span()
    if not span.is_recording():
        return False
    span.add_event(name, dict(attributes))
    return True
