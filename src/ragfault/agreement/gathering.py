"""From files to traces with labels: read, checked, sampled, in an order that does not depend on theirs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from ragfault.agreement.columns import find, grouped, parted, value
from ragfault.agreement.labels import Claimed, Grade, Rule, absent, claimed, graded, spans
from ragfault.agreement.records import Columns, Task
from ragfault.errors import SHOWN, BadTraces, Fault, InputError, UnknownName
from ragfault.records import Trace
from ragfault.sources import read_traces
from ragfault.sources.desk import OnBad, Places
from ragfault.sources.values import Wrong

__all__ = ["Asked", "Gathered", "Labelled", "Where", "gather", "rank"]

Where = str | Path | Sequence[str | Path]


class Labelled(NamedTuple):
    """A trace and what people said of it."""

    trace: Trace
    group: str
    positive: bool | None = None
    """Of the answer as a whole."""
    spans: tuple[tuple[int, int], ...] | None = None
    claims: tuple[Claimed, ...] | None = None
    grades: Mapping[str, Grade] | None = None


class Gathered(NamedTuple):
    """Everything that is to be measured."""

    task: Task
    columns: Columns
    positive: str
    labelled: list[Labelled]
    unlabelled: int
    skipped: int
    notes: list[str]


class _Faults:
    """Faults of lines and of labels, together."""

    def __init__(self, on_bad: OnBad) -> None:
        if not callable(on_bad) and on_bad not in ("raise", "skip"):
            raise UnknownName("way to treat bad lines", str(on_bad), ["raise", "skip", "a callable"])
        self.on_bad, self.count = on_bad, 0
        self.kept: list[Fault] = []

    def add(self, fault: Fault) -> None:
        self.count += 1
        if len(self.kept) < SHOWN:
            self.kept.append(fault)
        if callable(self.on_bad):
            self.on_bad(fault)

    def close(self, good: int) -> None:
        """Raise them all where they are not to be passed over, or nothing good is left."""
        if self.count and (self.on_bad == "raise" or not good):
            raise BadTraces(self.kept, good, self.count)


class Asked(NamedTuple):
    """What was asked for, as far as it concerns labels."""

    task: Task | None
    positive: tuple[str, ...]
    group: str | None
    limit: int | None
    seed: int


def gather(
    where: Where | Iterable[Trace],
    asked: Asked,
    on_bad: OnBad,
    notice: Callable[[str], object],
    reading: Mapping[str, Any],
) -> Gathered:
    """Read traces and labels, all faults at once; keep those with labels, sorted by group and id.

    Raises BadTraces for lines and labels that cannot be read (unless they are passed over), InputError where
    nothing has a label, UnknownName for a column or a positive label that is nowhere.
    """
    faults, places = _Faults(on_bad), Places()
    plain, mine = parted(reading.get("map"))
    traces = _traces(where, faults, places, notice, **{**reading, "map": plain or None})
    if not traces:
        faults.close(0)
        raise InputError("there is no trace to measure on.")
    task, columns = find(traces, mine, asked.task)
    name, groups = grouped(traces, asked.group)
    rule = Rule(task, _source(columns), asked.positive)
    found, bare, loose = _labels(zip(traces, groups, strict=True), task, columns, rule, (faults, places))
    _met(rule)
    if not found:
        raise InputError(f"none of {len(traces):,} traces has a label in `{_source(columns)}`.")
    notes = [f"{loose:,} claims have no label and are left out"] if loose else []
    if rule.turned:
        notes.append(f"in `{rule.column}` 1 is taken for good and 0 for bad, by its name")
    kept = sorted(_sample(found, asked.limit, asked.seed), key=lambda one: (one.group, one.trace.id))
    if len(kept) < len(found):
        size = f"{len(kept):,} of {len(found):,} labelled traces"
        notes.append(f"a sample of {size}, by whole groups, seed {asked.seed}")
    words = rule.words() if rule.met else f"a stretch in `{columns.spans}`"
    columns = msgspec.structs.replace(columns, group=name)
    return Gathered(task, columns, words, kept, bare, faults.count, notes)


def _labels(
    traces: Iterable[tuple[Trace, str]],
    task: Task,
    columns: Columns,
    rule: Rule,
    desk: tuple[_Faults, Places],
) -> tuple[list[Labelled], int, int]:
    """The traces with labels, how many have none, and how many claims have none; raises all faults together."""
    faults, places = desk
    found: list[Labelled] = []
    bare = loose = 0
    for trace, group in traces:
        try:
            one, without = _labelled(Labelled(trace, group), task, columns, rule)
        except Wrong as wrong:
            faults.add(Fault(*places[trace.id], str(wrong), msgspec.json.encode(trace).decode()))
            continue
        loose += without
        found += [one] if one else []
        bare += not one
    faults.close(len(found) + bare)
    return found, bare, loose


def _source(columns: Columns) -> str:
    """The column that labels are read from."""
    return columns.grades or columns.claims or columns.label or columns.spans or ""


def _traces(
    where: Where | Iterable[Trace],
    faults: _Faults,
    places: Places,
    notice: Callable[[str], object],
    **reading: Any,
) -> list[Trace]:
    """Every trace of the files, or of memory, with the place of each."""
    named = isinstance(where, str | Path) or (
        isinstance(where, Sequence) and all(isinstance(one, str | os.PathLike) for one in where)
    )
    if named:
        files = cast(Where, where)
        return list(read_traces(files, on_bad=faults.add, notice=notice, rest=True, places=places, **reading))
    traces = list(cast("Iterable[Trace]", where))
    places.update({trace.id: ("traces in memory", at) for at, trace in enumerate(traces, 1)})
    return traces


def _labelled(one: Labelled, task: Task, columns: Columns, rule: Rule) -> tuple[Labelled | None, int]:
    """A trace with what people said of it, or None where they said nothing; and how many claims lack a label."""
    trace, answer = one.trace, one.trace.answer or ""
    if task == "relevance":
        held = _grades(trace, columns)
        grades = {} if absent(held) else graded(held, trace.chunks or (), rule, columns.grades or "")
        return (one._replace(grades=grades) if grades else None), 0
    if columns.claims and not absent(held := value(trace, columns.claims)):
        claims, loose = claimed(held, answer, rule, columns.claims)
        return (one._replace(claims=claims) if claims else None), loose
    marked = None
    if columns.spans and not absent(held := value(trace, columns.spans)):
        marked = spans(held, answer, columns.spans)
    positive = bool(marked) if marked is not None else None
    if columns.label and not absent(held := value(trace, columns.label)):
        positive = rule.positive(held)
    if positive is None or trace.answer is None:
        return None, 0
    return one._replace(positive=positive, spans=marked), 0


def _grades(trace: Trace, columns: Columns) -> Any:
    """The grades of the chunks, in whatever form they stand."""
    if columns.grades == "gold" and "gold" not in trace.metadata:
        gold = trace.gold.chunks if trace.gold else {}
        return {chunk.id: gold[chunk.id] for chunk in trace.chunks or () if chunk.id in gold}
    return value(trace, columns.grades or "")


def _met(rule: Rule) -> None:
    """Raise UnknownName for a label that was called positive and is nowhere."""
    if rule.bar is None and rule.met:
        for wanted in rule.wanted:
            if not any(rule.same(word, wanted) for word in rule.met):
                raise UnknownName("label", wanted, rule.met, hint="Name one of them with --positive.")


def _sample(found: list[Labelled], limit: int | None, seed: int) -> list[Labelled]:
    """Whole groups in an order drawn at random, until there are so many traces."""
    if limit is None or limit >= len(found):
        return found
    groups: dict[str, list[Labelled]] = {}
    for one in found:
        groups.setdefault(one.group, []).append(one)
    kept: list[Labelled] = []
    for name in sorted(groups, key=lambda name: rank(name, seed)):
        if len(kept) >= limit:
            break
        kept += groups[name]
    return kept


def rank(name: str, seed: int) -> bytes:
    """The place of a name in an order drawn at random, which is the same wherever the name stands.

    >>> sorted(["a", "b", "c"], key=lambda name: rank(name, 0))
    ['a', 'c', 'b']
    """
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, key=str(seed).encode()).digest()
