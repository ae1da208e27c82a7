"""Evidence on the fields of what is retrieved: values that fill lists, values a query never had, changed settings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from ragfault.comparison.stages.paired_traces import Evidence, PairedTraces, TracePair, give, ramp
from ragfault.comparison.stages.setting_names import find_stage
from ragfault.model.records import Chunk
from ragfault.text.number_format import format_percent

# fewer lists show no habit
LEAST_LISTS = 10
# of the lists of the baseline hold one value of a field alone
UNIFORM_SHARE = 0.9
PREFIX = re.compile(r"^[^\W_]+")


def changed_fields(pairs: Sequence[TracePair]) -> dict[str, tuple[str, str]]:
    """Return the recorded fields that have one usual value in each run, another one in the candidate.

    A field differs where at most three values cover each side and no pair agrees.
    """
    names = Counter(name for pair in pairs for name in pair.new.metadata)
    columns = {name: [(pair.old.metadata.get(name), pair.new.metadata.get(name)) for pair in pairs] for name in names}
    columns["model"] = [(pair.old.model, pair.new.model) for pair in pairs]
    changed = {}
    for name, values in columns.items():
        known = [(str(old), str(new)) for old, new in values if old is not None and new is not None]
        sides = [Counter(pair[side] for pair in known) for side in (0, 1)]
        if len(known) < 0.5 * len(values) or not known or any(len(side) > 3 for side in sides):
            continue
        if all(old != new for old, new in known):
            changed[name] = (sides[0].most_common(1)[0][0], sides[1].most_common(1)[0][0])
    return changed


def setting_rules(traces: PairedTraces) -> Evidence:
    """Observe recorded settings that differ between the runs."""
    for name, (old, new) in changed_fields(traces.pairs).items():
        stage = find_stage(name)
        if stage is not None:
            yield from give("setting", 1.0, f"the runs differ in {name}: {old} → {new}", stage)


def chunk_field_rules(traces: PairedTraces) -> Evidence:
    """Observe values of a field of the chunks that a query never had, or that fill its list now."""
    lists = [(pair.old.chunks, pair.new.chunks) for pair in traces.pairs if pair.old.chunks and pair.new.chunks]
    changed = [pair for pair in lists if [chunk.id for chunk in pair[0]] != [chunk.id for chunk in pair[1]]]
    if len(changed) < LEAST_LISTS:
        return
    fields = Counter(name for _, new in changed for name in _fields(new))
    names = [name for name, count in fields.items() if count >= 0.5 * len(changed)]
    filled = max(((_newly_single(changed, name), name) for name in names), default=(0.0, ""))
    text = f"a single {filled[1]} fills the list on {format_percent(filled[0])} more of the pairs whose lists changed"
    yield from give("one value", ramp(filled[0], 0.05, 0.3), text, "filter")
    other = max(((_foreign_share(lists, name), name) for name in names), default=(0.0, ""))
    text = f"{format_percent(other[0])} of the queries get chunks of another {other[1]} than before"
    yield from give("other value", ramp(other[0], 0.02, 0.2), text, "filter")


def _fields(chunks: Sequence[Chunk]) -> set[str]:
    return {"document", "prefix of ids"} | {name for chunk in chunks for name in chunk.metadata}


def _value(chunk: Chunk, name: str) -> str | None:
    if name == "prefix of ids":
        match = PREFIX.search(chunk.document or chunk.id)
        return match[0] if match else None
    value = chunk.document if name == "document" else chunk.metadata.get(name)
    return None if value is None else str(value)


def _newly_single(lists: Sequence[tuple[Sequence[Chunk], Sequence[Chunk]]], name: str) -> float:
    """Return by how much the share of lists of one value rose, at the depth of the candidate."""
    long = [(old, new) for old, new in lists if len(old) >= 3 and len(new) >= 3]
    if len(long) < LEAST_LISTS:
        return 0.0
    return fmean(_is_single(new, name) - _is_single(old[: len(new)], name) for old, new in long)


def _is_single(chunks: Sequence[Chunk], name: str) -> int:
    """Return 1 where all chunks have the same value of a field."""
    values = {_value(chunk, name) for chunk in chunks}
    return int(len(values) == 1 and None not in values)


def _foreign_share(lists: Sequence[tuple[Sequence[Chunk], Sequence[Chunk]]], name: str) -> float:
    """Return the share of the queries with chunks of another value, where each had chunks of one value alone before."""
    single = [(old, new) for old, new in lists if len(old) >= 2 and _is_single(old, name)]
    values = Counter(_value(old[0], name) for old, _ in single)
    if len(single) < UNIFORM_SHARE * len(lists) or not values or len(values) < 2:
        return 0.0
    return fmean(any(_value(chunk, name) != _value(old[0], name) for chunk in new) for old, new in single)
