"""What people, or a stronger judge, make of the metrics of a run: read from labels, values, traces, another run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from ragfault.agreement.gathering import Asked, gather
from ragfault.agreement.overlay import ITEMS, Reading, metrics, values
from ragfault.agreement.readings import graded, marked
from ragfault.errors import SHOWN, Fault, InputError, UsageError
from ragfault.findings import People, Rectification
from ragfault.records import Trace, Verdicts
from ragfault.runs import Run
from ragfault.runs.labels import BLIND, Label, Settled, fingerprint, read_labels, settled
from ragfault.sources import MAX_LINE
from ragfault.sources.files import ending, form, lines, open_bytes
from ragfault.sources.tables import text_rows
from ragfault.sources.values import Wrong

__all__ = ["people", "peoples"]

Form = Literal["run", "labels", "values", "traces"]
Values = dict[str, dict[str, float]]
Where = str | Path

NAMES = 3
"""How many authors are named."""


def _quiet(*_: object) -> None:
    """Tell nobody."""


def people(
    where: Where, run: Run, *, shared: bool = False, notice: Callable[[str], object] = _quiet
) -> People:
    """What was said of the traces of a run, as values of its metrics.

    `where` is one of four: another run over some of these traces, whose scores are taken for true (a stronger judge);
    labels as `ragfault label` writes them; a table (JSON Lines or CSV) with the column `trace` or `id` and columns
    named as metrics; or traces with labels as `measure` takes them: claims or stretches of the answer, grades of
    chunks. Labels and marks stand in the place of the judge's verdicts, and a metric is computed on a trace where
    all that it reads was said. Where the file is `shared` by two runs, words on an answer count only where it is
    known which answer they are on.

    Raises InputError for a file that cannot be read, with all its faults, or in which nothing fits the run;
    UsageError for a table of values that is shared by two runs.
    """
    kind = _form(where, run)
    if kind == "values" and shared:
        raise UsageError(
            f"{where} gives values of one run, and there are two: give --rectify twice, first that of the baseline."
        )
    by, found, labelled, disputed, chances = READ[kind](where, run, shared)
    known = {name for each in found.values() for name in each}
    if not known:
        raise InputError(_nothing(where, run, labelled, kind))
    strangers = len(labelled) - len(known)
    made = Rectification(by=by, traces=len(known), strangers=strangers, disputed=disputed)
    _tell(notice, where, run, made)
    return People(made=made, values=found, chances=chances)


def peoples(
    where: Sequence[Where], runs: tuple[Run, Run], *, notice: Callable[[str], object] = _quiet
) -> tuple[People | None, People | None]:
    """What was said of a baseline and of a candidate: in one file of both, or in one of each, in this order.

    A file of both may tell of one of them only. Raises what `people` raises; UsageError for more than two files.
    """
    if len(where) > 2:
        raise UsageError(f"--rectify was given {len(where)} times: once for both runs, or once for each.")
    if len(where) == 2:
        return people(where[0], runs[0], notice=notice), people(where[1], runs[1], notice=notice)
    found: list[People | None] = []
    faults: list[InputError] = []
    for run in runs if where else ():
        try:
            found.append(people(where[0], run, shared=True, notice=notice))
        except InputError as fault:
            found.append(None)
            faults.append(fault)
    if len(faults) == 2:
        raise faults[0]
    return (found[0], found[1]) if found else (None, None)


def _tell(notice: Callable[[str], object], where: Where, run: Run, made: Rectification) -> None:
    told = f"rectified by {made.by}: {made.traces:,} of {run.manifest.traces:,} traces of {run.path.name}"
    if made.strangers:
        told += (
            f"; {made.strangers:,} in {where} are of no trace (or another answer) of it, or say too little"
        )
    if made.disputed:
        told += f"; on {made.disputed:,} items those who labelled differ"
    notice(told)


def _nothing(where: Where, run: Run, labelled: Sequence[str], kind: Form) -> str:
    """What to say where nothing fits the run."""
    here = set(run.to_arrow("traces", ["id"])["id"].to_pylist())
    met = [name for name in labelled if name in here]
    if not met:
        such = f" (such as {', '.join(labelled[:3])})" if labelled else ""
        return f"none of the {len(labelled):,} traces of {where}{such} is in {run.path}. Name the labels of this run."
    if kind == "run":
        return f"{where} and {run.path} share {len(met):,} ids, but no answer, or no metric that rests on verdicts."
    return (
        f"{where} has {len(met):,} traces of {run.path}, but of no metric all that it reads was said, of this answer. "
        "Label every claim (or chunk) of a trace, on the answers and claims of this run."
    )


# --- which form ------------------------------------------------------------------------------------


def _form(where: Where, run: Run) -> Form:
    """What a file or folder holds."""
    path = Path(where)
    if path.is_dir():
        if (path / "manifest.json").is_file():
            return "run"
        return "traces"
    first = next((row for _, row in _rows(where)), None)
    if not isinstance(first, dict):
        return "traces"
    if isinstance(first.get("verdicts"), dict) and "trace" in first:
        return "labels"
    named = {"trace", "id"} & first.keys() and "query" not in first
    return "values" if named and _columns(first, run) else "traces"


def _columns(row: Mapping[str, Any], run: Run) -> list[str]:
    """The metrics of the run that a row has a column for."""
    return [measure.name for measure in run.manifest.metrics if measure.name in row]


def _rows(where: Where) -> Iterator[tuple[int, Any]]:
    """The rows of a table of values with their lines; a `Wrong` in the place of one that cannot be read."""
    with open_bytes(str(where)).body as body:
        if not body.peek(1):
            raise InputError(f"{where}: empty, there is no label in it")
        kind = form(str(where), body) if ending(str(where)) else "json"
        if kind in ("csv", "tsv"):
            yield from (
                (line, row) for line, row in text_rows(body, str(where), kind == "tsv", MAX_LINE) if line
            )
        elif kind == "json":
            for line, text, _ in lines(body):
                if not text.isspace():
                    yield line, _object(text)


def _object(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Wrong(str(error))


# --- the four forms --------------------------------------------------------------------------------

Read = tuple[str, Values, list[str], int, Mapping[str, float]]
"""By whom, the values, the ids that were named, the items in dispute, and the chances of the traces."""


def _of_run(where: Where, run: Run, _: bool) -> Read:
    """The scores of a stronger judge, on the traces whose chunks and answer are those of the run."""
    strong = Run.open(where)
    if strong.manifest.judge == run.manifest.judge:
        raise InputError(
            f"{where} was judged as {run.path} was, by {run.manifest.judge}: it can put nothing right."
        )
    there = {trace.id: trace for trace in strong.traces()}
    same = {t.id for t in run.traces(list(there)) if _alike(t, there[t.id])}
    wanted = {str(metric) for metric in metrics(run)}
    found: Values = {}
    for row in strong.scores(list(same)):
        if row.metric in wanted and row.value is not None:
            found.setdefault(row.metric, {})[row.trace] = row.value
    judge = strong.manifest.judge.partition(" ")[0]
    return f"{strong.path.name}, judged by {judge}", found, list(there), 0, {}


def _alike(one: Trace, two: Trace) -> bool:
    """Whether two traces show a judge the same."""
    chunks = [[(chunk.id, chunk.text) for chunk in each.chunks or ()] for each in (one, two)]
    return one.answer == two.answer and chunks[0] == chunks[1]


def _of_labels(where: Where, run: Run, shared: bool) -> Read:
    labels = read_labels(where)
    told = settled(labels)
    disputed, asked = 0, frozenset().union(*(each.looked for each in told.values()))

    def readings(trace: Trace, verdicts: Verdicts) -> list[Reading]:
        nonlocal disputed
        said = told[trace.id]
        empty = {part for part in asked & ITEMS.keys() if not getattr(verdicts, part)}
        disputed += said.disputed
        known = said.answer == fingerprint(trace) if said.answer is not None else not shared
        looked = said.looked if known else said.looked & set(BLIND)
        return [Reading(said.words, looked | empty)]

    found = _laid(run, list(told), readings)
    return _authors(labels, where), found, list(told), disputed, _chances(where, told)


def _chances(where: Where, told: Mapping[str, Settled]) -> dict[str, float]:
    """The chances of the traces to be drawn; raises InputError where only some labels have one."""
    found = {trace: each.chance for trace, each in told.items() if each.chance is not None}
    if found and len(found) < len(told):
        raise InputError(
            f"{where}: {len(found):,} of {len(told):,} traces were drawn with a chance of their own, others not. "
            "Keep the labels of either draw in a file of its own."
        )
    return found


def _authors(labels: Iterable[Label], where: Where) -> str:
    """Who labelled."""
    names = list(dict.fromkeys(label.by for label in labels if label.by))
    if not names:
        return Path(where).name
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(names[:NAMES]) + more


def _laid(run: Run, ids: Sequence[str], readings: Callable[[Trace, Verdicts], list[Reading]]) -> Values:
    """The values of the metrics of a run with the words of people in the place of the judge's."""
    wanted, found, vague = metrics(run), Values(), set()
    for trace, verdicts in zip(run.traces(ids), run.verdicts(ids), strict=True):
        for metric, value in values(wanted, trace, verdicts, readings(trace, verdicts)):
            if value is None:
                vague.add(metric)
            else:
                found.setdefault(metric, {})[trace.id] = value
    return {metric: each for metric, each in found.items() if metric not in vague}


def _of_traces(where: Where, run: Run, _: bool) -> Read:
    """Marks and grades of people, in the place of verdicts."""
    given = gather(where, Asked(None, (), None, None, 0), "raise", _quiet, {})
    said = {one.trace.id: one for one in given.labelled}

    def readings(trace: Trace, verdicts: Verdicts) -> list[Reading]:
        one = said[trace.id]
        if one.grades is not None:
            return graded(one)
        return marked(one, verdicts) if one.trace.answer == trace.answer else [Reading({}, frozenset())]

    return Path(where).name, _laid(run, list(said), readings), list(said), 0, {}


def _of_values(where: Where, run: Run, _: bool) -> Read:
    """Values that stand in a table."""
    found: Values = {}
    faults: list[Fault] = []
    seen: dict[str, None] = {}
    here = set(run.to_arrow("traces", ["id"])["id"].to_pylist())
    ranges = {measure.name: (measure.low, measure.high) for measure in run.manifest.metrics}
    for line, row in _rows(where):
        try:
            name, given = _value(row, ranges)
        except Wrong as wrong:
            faults.append(Fault(str(where), line, str(wrong)))
            continue
        if name in seen:
            faults.append(Fault(str(where), line, f'the trace "{name[:80]}" stands twice'))
        seen[name] = None
        for metric, value in given.items() if name in here else ():
            found.setdefault(metric, {})[name] = value
    if faults:
        told = [f"{len(faults):,} rows cannot be read:", *(f"  {fault}" for fault in faults[:SHOWN])]
        raise InputError(
            "\n".join([*told, *([f"  … and {len(faults) - SHOWN:,} more"] * (len(faults) > SHOWN))])
        )
    return Path(where).name, found, list(seen), 0, {}


def _value(row: Any, ranges: Mapping[str, tuple[float | None, float | None]]) -> tuple[str, dict[str, float]]:
    """The trace of a row and the values it gives; raises `Wrong`."""
    if isinstance(row, Wrong):
        raise row
    name = row.get("trace", row.get("id"))
    if name is None or name == "":
        raise Wrong("neither `trace` nor `id`")
    found = {}
    for metric, (low, high) in ranges.items():
        if row.get(metric) in (None, ""):
            continue
        try:
            value = float(row[metric])
        except (TypeError, ValueError):
            raise Wrong(f'"{str(row[metric])[:40]}" is no number - at `{metric}`') from None
        if not (low is None or value >= low) or not (high is None or value <= high):
            raise Wrong(f"{value:g} is outside the range of the metric - at `{metric}`")
        found[metric] = value
    return str(name), found


READ: dict[Form, Callable[[Where, Run, bool], Read]] = {
    "run": _of_run,
    "labels": _of_labels,
    "values": _of_values,
    "traces": _of_traces,
}
"""Form → what reads it."""
