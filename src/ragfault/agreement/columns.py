"""Where the words of people stand: which columns of the traces, and so what they judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragfault.agreement.labels import absent
from ragfault.agreement.records import Columns, Task
from ragfault.errors import InputError, UnknownName
from ragfault.records import Trace
from ragfault.sources.normalise import absent as no_column
from ragfault.sources.shapes import opened

__all__ = ["KEYS", "checked", "find", "grouped", "parted", "value"]

KEYS = ("label", "spans", "claims", "grades")
"""The map keys that say where the words of people stand."""

NAMES: dict[str, tuple[str, ...]] = {
    "label": (
        *("label", "human_label", "gold_label", "labels", "hallucinated", "hallucination"),
        *("is_hallucinated", "is_hallucination", "has_hallucination", "attributable", "is_attributable"),
        *("attribution", "attribution_label", "supported", "is_supported", "grounded", "is_grounded"),
        *("faithful", "is_faithful", "consistent", "is_consistent", "annotation", "label_name"),
        "verdict",
    ),
    "spans": ("spans", "hallucination_spans", "hallucinated_spans", "labels"),
    "claims": ("claims", "claim_labels", "statements"),
    "grades": ("grades", "grade", "relevances", "chunk_labels", "relevant", "relevance", "rel"),
}
"""Key → the columns it is looked for in, the most telling first."""

GROUPS = ("source_id", "group", "group_id", "conversation", "query")
FIELDS = ("id", "query", "model", "route", "conversation", "turn")
"""Fields of a trace that can be named as a column."""


def parted(map: Mapping[str, str] | str | Path | None) -> tuple[dict[str, str], dict[str, str]]:
    """A map in two: what traces are read by, and where the words of people stand.

    >>> parted({"answer": "claim", "label": "verdict"})
    ({'answer': 'claim'}, {'label': 'verdict'})
    """
    table = opened(map) if map is not None else {}
    mine = {key: table[key] for key in KEYS if key in table}
    return {key: column for key, column in table.items() if key not in mine}, mine


def value(trace: Trace, path: str) -> Any:
    """What a trace has in a column: one of its metadata, also by a path with dots, or one of its fields.

    >>> value(Trace(id="1", query="When?", metadata={"by": {"ann": 1}}), "by.ann")
    1
    """
    if path in trace.metadata:
        return trace.metadata[path]
    if path in FIELDS:
        return getattr(trace, path)
    inner: Any = trace.metadata
    for step in path.removeprefix("metadata.").split("."):
        inner = inner.get(step) if isinstance(inner, dict) else None
    return inner


def _names(traces: Sequence[Trace]) -> dict[str, None]:
    """The columns in which some trace has something."""
    found = dict.fromkeys(
        name for trace in traces for name, held in trace.metadata.items() if not absent(held)
    )
    return found | dict.fromkeys(
        name for name in FIELDS if any(getattr(trace, name) is not None for trace in traces)
    )


def checked(columns: Sequence[str], traces: Sequence[Trace]) -> None:
    """Raise UnknownName for a column that no trace has."""
    for name in columns:
        if all(value(trace, name) is None for trace in traces):
            raise UnknownName("column", name, _names(traces))


def find(traces: Sequence[Trace], given: Mapping[str, str], task: Task | None) -> tuple[Task, Columns]:
    """What people judged, and the columns that say so: as it was asked for, else by their names.

    Raises InputError where a column that was named is in no trace, or no column tells.
    """
    for key, path in given.items():
        if all(value(trace, path) is None for trace in traces):
            raise InputError(no_column(key, path, _names(traces)))
    found = {key: given.get(key) or _column(key, traces, given) for key in KEYS}
    task = task or _task(traces, found, given)
    if task == "relevance":
        named = given.get("grades") or given.get("label")
        found["grades"] = named or found["grades"] or found["label"] or _gold(traces)
    if task is None or not any(found[key] for key in READ[task]):
        there = ", ".join([name for name in _names(traces) if name not in FIELDS][:30])
        keys = READ[task or "answer"]
        raise InputError(
            "no column is known to hold what people said"
            f"{f' of {PEOPLE[task]}' if task else ''}. There are: {there or 'none'}. "
            f"Name it with --map {' or --map '.join(f'{key}=COLUMN' for key in keys)}"
        )
    return task, Columns(**{key: found[key] if key in READ[task] else None for key in KEYS})


READ: dict[Task, tuple[str, ...]] = {
    "answer": ("label", "spans"),
    "support": ("claims", "spans", "label"),
    "relevance": ("grades",),
}
"""Task → the keys that it reads."""

PEOPLE: dict[Task, str] = {"answer": "answers", "support": "claims", "relevance": "chunks"}
"""Task → what people judged."""


def _column(key: str, traces: Sequence[Trace], given: Mapping[str, str]) -> str | None:
    """The first column of a known name that holds what the key stands for."""
    taken = set(given.values())
    for name in NAMES[key]:
        held = [trace.metadata[name] for trace in traces if not absent(trace.metadata.get(name))]
        if name not in taken and held and _fits(key, held):
            return name
    return None


def _fits(key: str, held: Sequence[Any]) -> bool:
    """Whether the values of a column are of the kind: single ones, or lists and objects; grades may be either."""
    if key == "grades":
        return True
    several = any(isinstance(each, (list, tuple, dict)) or _bracket(each) for each in held)
    if key == "claims":
        return any(_labelled(each) for each in held)
    return several != (key == "label")


def _bracket(held: Any) -> bool:
    """Whether a cell of text looks like a list or an object."""
    return isinstance(held, str) and held.lstrip()[:1] in ("[", "{")


def _labelled(held: Any) -> bool:
    """Whether these are claims with labels, or the text of such a list."""
    if isinstance(held, str):
        return _bracket(held) and '"label"' in held
    return isinstance(held, (list, tuple)) and any(isinstance(one, dict) and "label" in one for one in held)


def _gold(traces: Sequence[Trace]) -> str | None:
    """The gold of the traces, where it has grades of chunks."""
    return "gold" if any(trace.gold is not None and trace.gold.chunks for trace in traces) else None


def _task(traces: Sequence[Trace], found: Mapping[str, str | None], given: Mapping[str, str]) -> Task | None:
    """What people judged, by the columns that there are."""
    if "grades" in given:
        return "relevance"
    if "claims" in given or (found["claims"] and not found["label"] and not found["spans"]):
        return "support"
    answered = any(trace.answer is not None for trace in traces)
    if answered and (found["label"] or found["spans"]):
        return "answer"
    if found["grades"] or (not answered and (found["label"] or _gold(traces))):
        return "relevance"
    return None


def grouped(traces: Sequence[Trace], column: str | None) -> tuple[str | None, list[str]]:
    """The column whose values are never split, and the group of each trace; one without a value is its own."""
    if column is not None:
        checked([column], traces)
    else:
        column = next((name for name in GROUPS if any(not absent(value(t, name)) for t in traces)), None)
    held = [value(trace, column) if column else None for trace in traces]
    return column, [
        f"={trace.id}" if absent(each) else str(each) for trace, each in zip(traces, held, strict=True)
    ]
