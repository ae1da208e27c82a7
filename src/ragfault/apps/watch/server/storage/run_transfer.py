"""Transfer between a store and a run: export a selection of traces as a run, import a run into a store."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ragfault.apps.watch.server.storage.records import AppendResult, StoredTrace, TraceSelection
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.diagnosis.causes.endings import AnswerEndings
from ragfault.diagnosis.causes.storage import tabulate_causes
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.evaluation.passage_places import ChunkPool, locate_passages
from ragfault.io.atomic_files import convert_write_errors
from ragfault.io.error_collector import IdSet
from ragfault.io.runs.run import MetricInfo, Run, check_free, publish_run, resolve_output
from ragfault.io.runs.writer import (
    ROW_GROUP_SIZES,
    RUN_TABLES,
    RunPlan,
    WrittenTable,
    build_manifest,
    write_manifest,
    write_row_groups,
)
from ragfault.io.trace_reader import TraceDigest
from ragfault.metrics.catalog import compute_scores, get_definitions, parse_metric
from ragfault.model.errors import OutputError, UsageError
from ragfault.model.gold_evidence import has_answer_key
from ragfault.model.records import GoldMode, Score
from ragfault.model.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa


TRACE_BATCH = 512
"""Maximum number of traces in memory at once."""
IMPORTED_JUDGES_SETTING = "imported_judges"
"""The setting with the judges of imported outcomes that the alerts have not looked at yet."""


def export_run(
    store: TraceStore,
    selection: TraceSelection,
    out: str | Path,
    *,
    gold: GoldMode | None = None,
    notice: Callable[[str], None] = lambda _: None,
) -> Run:
    """Write the judged traces of a selection as a run, in order of arrival.

    It equals the result of `evaluate` on the same traces with the same judge and metrics. Traces that wait to be judged
    are left out, with a notice. `gold` is its use in the scores of the run; None is that of the traces, and "apply"
    where they differ. Scores of traces that were scored the other way are computed anew from their verdicts, with a
    notice. Raises UsageError where the selection is empty, or was judged by several judges (name one with
    `TraceSelection.judge`), OutputError if `out` exists, or traces were deleted meanwhile.

    >>> import tempfile
    >>> from ragfault.evaluation.online.scorer import score_response
    >>> from ragfault.apps.watch.server.storage.opening import open_store
    >>> store = open_store(tempfile.mkdtemp())
    >>> found = score_response("When?", ["At noon."], "At noon.", judge="lexical", metrics=["groundedness"])
    >>> _ = store.append_traces([found.trace]).result(), store.add_outcomes([found], []).result()
    >>> export_run(store, TraceSelection(), tempfile.mkdtemp() + "/run").manifest.traces
    1
    >>> store.close()
    """
    out = resolve_output(out)
    check_free(out)
    survey = _survey_selection(store, selection, gold)
    waiting = store.count_traces(msgspec.structs.replace(selection, judge=None)) - survey.traces
    if waiting > 0:
        notice(f"{waiting:,} traces are left out: they wait to be judged, or were scored by another judge")
    if survey.other:
        done = {"apply": "applied", "ignore": "ignored"}
        before = done["ignore" if survey.gold == "apply" else "apply"]
        counted = "1 trace was" if survey.other == 1 else f"{survey.other:,} traces were"
        notice(f"{counted} scored with gold {before}: the scores are computed anew, with gold {done[survey.gold]}")
    with convert_write_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with convert_write_errors(out), tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        draft = Path(folder, "run")
        draft.mkdir()
        tables = _write_tables(store, selection, survey, draft)
        plan = RunPlan(
            ragfault=__version__,
            judge=survey.judge,
            metrics=survey.measures,
            gold=survey.gold,
            fingerprint=survey.fingerprint,
            traces=survey.traces,
            source=("store",),
        )
        write_manifest(draft, build_manifest(plan, tables))
        publish_run(draft, out, force=False)
    return Run.open(out)


class _SelectionSurvey(NamedTuple):
    """Result of the first pass over a selection."""

    traces: int
    ids: IdSet
    """Ids of the traces to export; those judged later are not included."""
    judge: str
    measures: tuple[MetricInfo, ...]
    gold: GoldMode
    fingerprint: str
    other: int
    """Traces whose scores use gold in the other way."""
    endings: AnswerEndings
    pool: ChunkPool


def _survey_selection(store: TraceStore, selection: TraceSelection, gold: GoldMode | None) -> _SelectionSurvey:
    """Collect the judge, the metrics and the traces of a selection in a first pass."""
    judges: Counter[str] = Counter()
    names: dict[str, Score] = {}
    digest, ids, endings, pool = TraceDigest(), IdSet(), AnswerEndings(), ChunkPool()
    modes: Counter[GoldMode] = Counter()
    for stored in store.iterate_judged(selection):
        assert stored.verdicts is not None
        judges[stored.verdicts.judge] += 1
        names.update((score.metric, score) for score in stored.scores if score.metric not in names)
        digest.add(stored.trace)
        endings.add(stored.trace.answer)
        pool.add(stored.trace)
        ids.add(stored.trace.id)
        if stored.gold is not None:
            modes[stored.gold] += has_answer_key(stored.trace)
    if not judges:
        raise UsageError("no judged trace is in this selection: there is nothing to export.")
    if len(judges) > 1:
        shown = ", ".join(f'"{name}" ({count:,})' for name, count in judges.most_common(4))
        raise UsageError(f"several judges scored these traces: {shown}. Name one with judge=.")
    known = {measure.name: measure for measure in store.read_measures()}
    measures = tuple(known.get(name, MetricInfo(name, score.layer)) for name, score in names.items())
    gold = gold or ("ignore" if set(+modes or modes) == {"ignore"} else "apply")
    other = modes.total() - modes[gold]
    judge = next(iter(judges))
    return _SelectionSurvey(digest.count, ids, judge, measures, gold, digest.fingerprint, other, endings, pool)


def _compute_anew(stored: StoredTrace, gold: GoldMode) -> tuple[Score, ...]:
    """Compute the scores of a trace anew from its verdicts; those of metrics that are not known here stay."""
    assert stored.verdicts is not None
    known = get_definitions()
    metrics = [parse_metric(score.metric) for score in stored.scores if metric_name(score.metric) in known]
    scores = {score.metric: score for score in compute_scores(metrics, stored.trace, stored.verdicts, gold)}
    return tuple(scores.get(score.metric, score) for score in stored.scores)


def _write_tables(
    store: TraceStore, selection: TraceSelection, survey: _SelectionSurvey, draft: Path
) -> dict[str, WrittenTable]:
    """Write the tables of a run."""
    written = {}
    for name in RUN_TABLES:
        tables = _build_tables(name, _iterate_again(store, selection, survey), survey)
        written[name] = write_row_groups(tables, draft / f"{name}.parquet", ROW_GROUP_SIZES[name])
    return written


def _iterate_again(store: TraceStore, selection: TraceSelection, survey: _SelectionSurvey) -> Iterator[StoredTrace]:
    """Iterate over the same traces again. Raises OutputError where some were deleted."""
    count = 0
    for stored in store.iterate_judged(selection):
        if stored.trace.id in survey.ids:
            count += 1
            is_other = has_answer_key(stored.trace) and stored.gold not in (None, survey.gold)
            yield msgspec.structs.replace(stored, scores=_compute_anew(stored, survey.gold)) if is_other else stored
    if count != survey.traces:
        raise OutputError("some of these traces were deleted during the export. Export them again.")


def _build_tables(name: str, stored_traces: Iterator[StoredTrace], survey: _SelectionSurvey) -> Iterator[pa.Table]:
    """Iterate over the tables of one file, a bounded number of traces at a time."""
    from ragfault.io.formats.arrow import SCORE_SCHEMA, VERDICTS_SCHEMA, records_to_table, traces_to_table

    metrics = [measure.name for measure in survey.measures]
    while part := list(islice(stored_traces, TRACE_BATCH)):
        traces = [stored.trace for stored in part]
        verdicts = [stored.verdicts for stored in part if stored.verdicts is not None]
        if name in ("verdicts", "causes"):
            verdicts = locate_passages(traces, verdicts, survey.pool)
        if name == "traces":
            yield traces_to_table(traces)
        elif name == "verdicts":
            yield records_to_table(verdicts, VERDICTS_SCHEMA)
        elif name == "causes":
            yield tabulate_causes(traces, verdicts, survey.gold, closed=survey.endings.closed)
        else:
            scores = [score for stored in part for score in _complete_scores(stored, metrics)]
            yield records_to_table(scores, SCORE_SCHEMA)


def _complete_scores(stored: StoredTrace, metrics: list[str]) -> Iterator[Score]:
    """Iterate over a score for every metric; one that was not computed for this trace is undefined with a reason."""
    there = {score.metric: score for score in stored.scores}
    for name in metrics:
        yield there.get(name) or Score(
            trace=stored.trace.id,
            metric=name,
            layer="operation",
            status="undefined",
            reason="not computed for this trace",
        )


def import_run(
    store: TraceStore, run: str | Path | Run, *, cohort_fields: tuple[str, ...] = (), prefix: str = ""
) -> AppendResult:
    """Import the traces of a run into a store, with their verdicts and scores.

    A trace whose id is in the store already is not changed; `prefix` is put before each id, so that two runs over the
    same questions can both be imported. Raises RunError where there is no run.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    size, scores = len(run.manifest.metrics), run.scores()
    imported_traces = (
        _prefix_id(ScoredTrace(trace, verdicts, tuple(islice(scores, size))), prefix)
        for trace, verdicts in zip(run.traces(), run.verdicts(), strict=True)
    )
    taken = repeated = 0
    judges = sorted({*store.read_setting(IMPORTED_JUDGES_SETTING, []), run.manifest.judge})
    while part := list(islice(imported_traces, TRACE_BATCH)):
        appended = store.append_traces([imported.trace for imported in part]).result()
        if store.add_outcomes(part, run.manifest.metrics, cohort_fields, run.manifest.gold).result():
            store.add_events([], {IMPORTED_JUDGES_SETTING: judges}).result()
        taken, repeated = taken + appended.added, repeated + appended.duplicates
    return AppendResult(taken, repeated)


def _prefix_id(imported: ScoredTrace, prefix: str) -> ScoredTrace:
    """Return a judged trace with a prefixed id."""
    if not prefix:
        return imported
    name = prefix + imported.trace.id
    return ScoredTrace(
        msgspec.structs.replace(imported.trace, id=name),
        msgspec.structs.replace(imported.verdicts, trace=name),
        tuple(msgspec.structs.replace(score, trace=name) for score in imported.scores),
    )
