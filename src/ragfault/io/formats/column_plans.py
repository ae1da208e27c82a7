"""Plans of reading that are about as good: each is executed on the file, and shown with its map on the first trace."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragfault.io.error_collector import ErrorCollector
from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.leftovers import UncertainColumns
from ragfault.model.errors import InputError
from ragfault.model.records import Trace

ReadWithMap = Callable[[Mapping[str, str], ErrorCollector], Sequence[Trace]]
"""Reads the first records of a file again by a column map; bad lines go to the collector."""
MAX_PLANS = 4
"""Plans that a question shows."""
ROW_WIDTH = 112
"""Characters that the values of the plans may take in a row, at most half of them for one."""


def format_map(column_map: Mapping[str, str]) -> str:
    """Format a map as flags to paste into a shell.

    >>> format_map({"query": "ask", "chunks": "docs[].text"})
    "--map query=ask --map 'chunks=docs[].text'"
    """
    return " ".join(f"--map {shlex.quote(f'{field}={path}')}" for field, path in column_map.items())


def ask_for_map(uncertain: UncertainColumns, read: ReadWithMap) -> InputError:
    """Return the error that shows the best plans side by side; a map that does not work on the file is not shown."""
    plans: list[tuple[Mapping[str, str], Trace]] = []
    for column_map in uncertain.maps:
        is_open = len(plans) < MAX_PLANS and column_map not in (known for known, _ in plans)
        if is_open and (traces := try_map(column_map, read)):
            plans.append((column_map, traces[0]))
    if not plans:
        advice = uncertain.otherwise or "Say which column is which field: --map query=COLUMN --map chunks=COLUMN"
        return InputError(f"{uncertain.problem}. {advice}")
    if len(plans) == 1:
        lines = [f"Paste the map if this is the first trace: {format_map(plans[0][0])}"]
    else:
        lines = ["Paste the map that reads the first trace right:"]
        lines += [f"  {number}. {format_map(column_map)}" for number, (column_map, _) in enumerate(plans, 1)]
    heads = [{"": f"{number}."} for number in range(1, len(plans) + 1)] if len(plans) > 1 else [{}]
    shown = [{**head, **list_shown_fields(trace)} for head, (_, trace) in zip(heads, plans, strict=True)]
    table = format_side_by_side(shown)
    return InputError("\n".join([uncertain.problem, *lines, *table, *filter(None, [uncertain.otherwise])]))


def try_map(column_map: Mapping[str, str], read: ReadWithMap) -> list[Trace]:
    """Read the file by a map; return its traces, none if the map does not work or if one field feeds another."""
    collector = ErrorCollector("skip")
    try:
        traces = list(read(column_map, collector))
    except (InputError, InvalidRecord):
        return []
    return [] if collector.bad_count > len(traces) or not traces or _feeds_another(traces) else traces


def _feeds_another(traces: Sequence[Trace]) -> bool:
    """Tell whether one text is two fields in every trace that has both, and some text is longer than a few words."""
    for fields in (("query", "answer"), ("query", "reference"), ("answer", "reference")):
        pairs = [tuple(_get_text(trace, field) for field in fields) for trace in traces]
        pairs = [pair for pair in pairs if all(pair)]
        is_long = any(len(pair[0].split()) > MAX_SHARED for pair in pairs)
        if is_long and all(pair[0] == pair[1] for pair in pairs):
            return True
    return False


def _get_text(trace: Trace, field: str) -> str:
    """Return the text of a field, of several references the first."""
    value = getattr(trace, field) or ""
    return value if isinstance(value, str) else str(value[0])


MAX_SHARED = 3
"""Words of an answer that a reference may well have, too."""


def list_shown_fields(trace: Trace) -> dict[str, str]:
    """List the main fields of a trace, each on one line.

    >>> list_shown_fields(Trace(id="1", query="When?", answer="At nine."))
    {'query': 'When?', 'answer': 'At nine.'}
    """
    values: dict[str, Any] = {
        "query": trace.query,
        "chunks": [chunk.text or f"({chunk.id})" for chunk in trace.chunks] if trace.chunks is not None else None,
        "answer": trace.answer,
        "reference": trace.reference,
        "gold": None if trace.gold is None else [*trace.gold.chunks, *(span.document for span in trace.gold.spans)],
        "history": [f"{turn.role}: {turn.text}" for turn in trace.history or ()] or None,
    }
    return {field: _format_value(value) for field, value in values.items() if value is not None}


def _format_value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"{len(value)}: {' | '.join(map(_format_value, value))}" if value else "none"
    return " ".join(str(value).split())


def format_side_by_side(plans: Sequence[Mapping[str, str]]) -> list[str]:
    """Format the fields of plans side by side; a value that is equal in all of them stands once.

    >>> format_side_by_side([{"query": "When?", "answer": "At nine."}, {"query": "When?"}])
    ['  query   When?     When?', '  answer  At nine.  -']
    """
    fields = list(dict.fromkeys(field for plan in plans for field in plan))
    width = ROW_WIDTH // max(2, len(plans))
    rows = [[field, *(_cut(plan.get(field, "-"), width) for plan in plans)] for field in fields]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
