"""Selections of a store as runs, so that all that reads runs works on live traces; and runs into a store."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ragfault import __version__
from ragfault.errors import OutputError, UsageError
from ragfault.records import Score, Trace, Verdicts
from ragfault.runs import Measure, Plan, Run
from ragfault.runs.places import check_free, resolved, settle, writing
from ragfault.runs.writing import GROUP, manifest, write_groups, write_manifest
from ragfault.sources import Digest
from ragfault.sources.seen import Seen
from ragfault.store.port import Store
from ragfault.store.records import Appended, Wanted, Whole

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["export", "import_run"]

ROWS = 512
"""Traces that are in memory at once."""


def export(
    store: Store,
    wanted: Wanted,
    out: str | Path,
    *,
    force: bool = False,
    notice: Callable[[str], None] = lambda _: None,
) -> Run:
    """Write the judged traces of a selection as a run, in the order in which they came in.

    It is what `evaluate` makes of the same traces with the same judge and metrics. Traces that wait to be judged are
    left out, with a notice. Raises UsageError where the selection is empty, or was judged by several judges (name one
    with `Wanted.judge`), OutputError where the place is taken, or traces were forgotten meanwhile.

    >>> import tempfile
    >>> from ragfault.online import score_response
    >>> from ragfault.store import open_store
    >>> store = open_store(tempfile.mkdtemp())
    >>> found = score_response("When?", ["At noon."], "At noon.", judge="lexical", metrics=["groundedness"])
    >>> _ = store.append([found.trace]).result(), store.score([found], []).result()
    >>> export(store, Wanted(), tempfile.mkdtemp() + "/run").manifest.traces
    1
    >>> store.close()
    """
    out = resolved(out)
    check_free(out, force=force)
    found = _survey(store, wanted)
    waiting = store.count(msgspec.structs.replace(wanted, judge=None)) - found.traces
    if waiting > 0:
        notice(f"{waiting:,} traces are left out: they wait to be judged, or another judge saw them")
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with writing(out), tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        draft = Path(folder, "run")
        draft.mkdir()
        states = _write(store, wanted, found, draft)
        plan = Plan(
            ragfault=__version__,
            judge=found.judge,
            metrics=found.measures,
            fingerprint=found.fingerprint,
            traces=found.traces,
            source=("store",),
        )
        write_manifest(draft, manifest(plan, states))
        settle(draft, out, force=force)
    return Run.open(out)


class _Survey(NamedTuple):
    """What a first walk over a selection finds."""

    traces: int
    ids: Seen
    """What is judged later is not part of the export."""
    judge: str
    measures: tuple[Measure, ...]
    fingerprint: str


def _survey(store: Store, wanted: Wanted) -> _Survey:
    """Walk a selection once: which judge, which metrics, which traces."""
    judges: Counter[str] = Counter()
    names: dict[str, Score] = {}
    digest, ids = Digest(), Seen()
    for each in store.walk(wanted):
        assert each.verdicts is not None
        judges[each.verdicts.judge] += 1
        names.update((score.metric, score) for score in each.scores if score.metric not in names)
        digest.add(each.trace)
        ids.add(each.trace.id)
    if not judges:
        raise UsageError("no judged trace is in this selection: there is nothing to export.")
    if len(judges) > 1:
        shown = ", ".join(f'"{name}" ({n:,})' for name, n in judges.most_common(4))
        raise UsageError(f"several judges saw these traces: {shown}. Name one with judge=.")
    known = {measure.name: measure for measure in store.measures()}
    measures = tuple(known.get(name, Measure(name, score.layer)) for name, score in names.items())
    return _Survey(digest.count, ids, next(iter(judges)), measures, digest.fingerprint)


def _write(store: Store, wanted: Wanted, found: _Survey, draft: Path) -> dict[str, int]:
    """Write the tables; the counts of the states of scores."""
    states: dict[str, int] = {}
    for name in ("traces", "verdicts", "scores"):
        tables = _tables(name, _again(store, wanted, found), [measure.name for measure in found.measures])
        states = write_groups(tables, draft / f"{name}.parquet", GROUP[name]) or states
    return states


def _again(store: Store, wanted: Wanted, found: _Survey) -> Iterator[Whole]:
    """The same traces once more. Raises OutputError where they are not all there any more."""
    n = 0
    for each in store.walk(wanted):
        if each.trace.id in found.ids:
            n += 1
            yield each
    if n != found.traces:
        raise OutputError("some of these traces were forgotten while they were written. Export them again.")


def _tables(name: str, walked: Iterator[Whole], metrics: list[str]) -> Iterator[pa.Table]:
    """One table of a run, a bounded number of traces at a time."""
    from ragfault.runs.tables import SCORE_SCHEMA, VERDICTS_SCHEMA, to_table
    from ragfault.sources.arrow import to_table as trace_table

    while part := list(islice(walked, ROWS)):
        if name == "traces":
            yield trace_table([each.trace for each in part])
        elif name == "verdicts":
            yield to_table([each.verdicts for each in part if each.verdicts is not None], VERDICTS_SCHEMA)
        else:
            yield to_table([score for each in part for score in _full(each, metrics)], SCORE_SCHEMA)


def _full(each: Whole, metrics: list[str]) -> Iterator[Score]:
    """A score for every metric; one that was not asked for when the trace came is undefined, and says so."""
    there = {score.metric: score for score in each.scores}
    for name in metrics:
        yield there.get(name) or Score(
            trace=each.trace.id, metric=name, layer="operation", status="undefined", reason="not asked for then"
        )  # fmt: skip


class _Judged(NamedTuple):
    """A trace of a run with what is known of it."""

    trace: Trace
    verdicts: Verdicts
    scores: tuple[Score, ...]


def import_run(
    store: Store, run: str | Path | Run, *, by: tuple[str, ...] = (), prefix: str = ""
) -> Appended:
    """Take the traces of a run into a store, with their verdicts and scores.

    A trace whose id is there already is left as it is; `prefix` goes before each id, so that two runs over the same
    questions can both be taken in. Raises RunError where there is no run.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    size, scores = len(run.manifest.metrics), run.scores()
    walked = (
        _renamed(_Judged(trace, verdicts, tuple(islice(scores, size))), prefix)
        for trace, verdicts in zip(run.traces(), run.verdicts(), strict=True)
    )
    taken = repeated = 0
    while part := list(islice(walked, ROWS)):
        found = store.append([each.trace for each in part]).result()
        store.score(part, run.manifest.metrics, by).result()
        taken, repeated = taken + found.taken, repeated + found.repeated
    return Appended(taken, repeated)


def _renamed(each: _Judged, prefix: str) -> _Judged:
    """A judged trace under an id with a prefix."""
    if not prefix:
        return each
    name = prefix + each.trace.id
    return _Judged(
        msgspec.structs.replace(each.trace, id=name),
        msgspec.structs.replace(each.verdicts, trace=name),
        tuple(msgspec.structs.replace(score, trace=name) for score in each.scores),
    )
