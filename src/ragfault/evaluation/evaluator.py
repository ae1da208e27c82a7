"""Evaluate traces into a run: streaming, parallel and resumable, with the judge's spending tracked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragfault import judges
from ragfault.errors import BadTraces, InputError, JudgeStopped, UsageError
from ragfault.evaluation.executors import ProcessExecutor
from ragfault.evaluation.inputs import BadLineWriter, TraceSource, make_rereadable, open_input_folder
from ragfault.evaluation.jobs import EvaluationJob, run_job
from ragfault.io import InputSummary, TraceDigest, read_traces, summarize_input
from ragfault.io.files import describe_input
from ragfault.io.formats.tables import TableLike
from ragfault.io.remote_paths import AnyPath, is_remote
from ragfault.io.runs import MetricInfo, PartialRun, Run, RunPlan
from ragfault.io.runs.directory import check_free, lock_run, parse_output
from ragfault.io.slices import TraceIndex, get_file_stamps, index_traces
from ragfault.judges.domain.profile import DomainProfile
from ragfault.judges.llm.settings import LLMSettings
from ragfault.metrics import Metric, get_definitions, select_metrics
from ragfault.metrics.aliases import explain_aliases as answered
from ragfault.protocols import Executor, Judge, MeteredJudge
from ragfault.records import Trace, Usage
from ragfault.version import __version__


@contextmanager
def track_spending(judge: Judge, partial: PartialRun) -> Iterator[None]:
    """Have what the judge spends put down to the run in the making; nothing for judges that cost nothing.

    Raises what stopped it, with how much is done and how to go on.
    """
    if not isinstance(judge, MeteredJudge):
        yield
        return
    judge.begin(str(partial.out.absolute()), fresh=not partial.resumed)
    try:
        yield
    except JudgeStopped as error:
        judge.end()
        raise type(error)(f"{error} {_describe_progress(partial)}") from error
    finally:
        judge.end()


def get_usage(judge: Judge) -> Usage | None:
    """What a judge spent; None for one that costs nothing."""
    return judge.usage if isinstance(judge, MeteredJudge) else None


def _describe_progress(partial: PartialRun) -> str:
    """What was done before a judge stopped, and how to go on."""
    plan = partial.plan
    done = min(len(partial.list_finished_parts()) * plan.batch, plan.traces)
    return (
        f"{done:,} of {plan.traces:,} traces are done and kept, {plan.traces - done:,} are left. "
        f"Run the same command again to go on in {partial.path}."
    )


DEFAULT_BATCH, MAX_BATCH = 64, 1024
"""Traces to a part, here and on a cluster: at most so many are lost, for each worker, when an evaluation is killed."""
MIN_CLUSTER_BATCHES = 256
"""Parts that a cluster's work is cut into at the least, before they are made larger than here."""


def _ignore(*_: object) -> None:
    """Tell nobody."""


def evaluate(  # noqa: PLR0913 - the options of one verb
    trace_source: TraceSource | Iterable[Trace] | TableLike,
    out: str | AnyPath,
    *,
    judge: str | Judge = judges.DEFAULT_JUDGE,
    options: Mapping[str, Any] | LLMSettings | None = None,
    profile: str | Path | DomainProfile = "general",
    metrics: str | Sequence[str] = "default",
    workers: int = 1,
    executor: Executor | None = None,
    batch: int | None = None,
    force: bool = False,
    skip_bad: bool = False,
    on_progress: Callable[[int, int], None] = _ignore,
    on_usage: Callable[[Usage], None] = _ignore,
    on_notice: Callable[[str], None] = _ignore,
    **read_options: Any,
) -> Run:
    """Judge every trace, compute every metric on it, and leave the result as a run on disk.

    `where` is what `read_traces` takes (and `reading` its options: map, shape, qrels, …), frames among it, or traces
    themselves. `judge` is a name or an object of the port's shape; where no metric reads a verdict, nothing
    is judged. `lens` names what must agree exactly in a domain: "legal", "medical", "financial", "technical",
    or a TOML file of yours (see `ragfault profile`). `metrics` is a set ("default", "all", a layer), or texts
    such as "ndcg@10". The result is the same for any number of `workers` and any `batch`. `progress` is
    called with (traces done, traces in all), `notice` with lines worth telling.

    An `executor` has the work done in the place of `workers`, on a cluster, say (`Ray`). Input and `out` may lie in an
    object store ("s3://bucket/run"), where those who do the work read and write themselves.

    `options` go to a judge that is named: those of "llm:MODEL" are the fields of `Settings` (budget, concurrency …),
    or `Settings` themselves. A judge that is paid for asks from one process, `spent` is called with what it spent so
    far, and the run's manifest holds the sum. Where it cannot go on (BudgetSpent, Stopped) all that was done is kept.

    Killed at any point and called again with the same arguments, it goes on where it stopped; the traces in
    flight are lost, `batch` for each worker at the most. A judge that fails on a trace gives `failed`
    scores with the reason, and the run goes on.

    Raises BadTraces where lines of the input are not traces (with `skip_bad` they go to a side file
    `OUT.bad.jsonl` and the others are evaluated), InputError, UsageError, OutputError, RunError, Stopped.

    >>> import tempfile
    >>> from ragfault import Chunk, Trace, evaluate
    >>> chunk = Chunk(id="a", text="The harbour office opens at 7:30 on weekdays.")
    >>> trace = Trace(id="1", query="When does it open?", chunks=(chunk,), answer="It opens at 7:30 on weekdays.")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = evaluate([trace], f"{folder}/run", metrics=["groundedness", "error"])
    ...     [(score.metric, score.value) for score in run.scores()]
    [('groundedness', 1.0), ('error', 0.0)]
    """
    out = parse_output(out)
    check_free(out, force=force)
    chosen = select_metrics(metrics)
    judge = _resolve_judge(judge, options, profile, chosen)
    _check_workers(workers, batch, judge, executor, on_notice)
    for line in (*_explain_missing_metrics(metrics), *answered(metrics)):
        on_notice(line)
    source = describe_input(trace_source)
    with lock_run(out) as place, open_input_folder(place) as spool:
        trace_source = make_rereadable(trace_source, spool)
        by = executor or (ProcessExecutor(workers) if workers > 1 else None)
        marked = get_file_stamps(trace_source) if by is not None else {}
        found = _survey_input(trace_source, source, skip_bad, on_notice, read_options)
        size = batch or _choose_batch_size(found.count, remote=executor is not None or is_remote(out))
        partial = _begin_run(out, _make_plan(judge, chosen, found, source, size), force, on_notice)
        told = _make_progress_reporter(judge, on_progress, on_usage)
        with (
            BadLineWriter(out.with_name(out.name + ".bad.jsonl"), on_notice) as side,
            track_spending(judge, partial),
        ):
            traces = _verify_unchanged(read_traces(trace_source, on_bad=side.write, **read_options), found)
            places = _index_traces(trace_source, found, marked, read_options) if by is not None else None
            run_job(EvaluationJob.create(partial, judge, chosen), traces, places, by, told)
        return partial.finish(force=force, usage=get_usage(judge))


def _begin_run(out: AnyPath, plan: RunPlan, force: bool, on_notice: Callable[[str], None]) -> PartialRun:
    """Begin the run, or take up the one that was begun, and say so."""
    partial = PartialRun.begin(out, plan, force=force)
    if done := len(partial.list_finished_parts()):
        on_notice(f"resuming: {done:,} parts of {partial.plan.batch} traces are done already")
    return partial


def _choose_batch_size(count: int, *, remote: bool) -> int:
    """Traces to a part: where each costs a request to a store or a cluster, more of them the more there are."""
    return min(MAX_BATCH, max(DEFAULT_BATCH, count // MIN_CLUSTER_BATCHES)) if remote else DEFAULT_BATCH


def _index_traces(
    trace_source: TraceSource,
    surveyed: InputSummary,
    marks_by_file: Mapping[str, str],
    read_options: Mapping[str, Any],
) -> TraceIndex | None:
    """Where the traces stand, for workers who read them themselves; None where only the whole can be read."""
    given = {name for name, value in read_options.items() if value is not None} - {"shape"}
    if (
        given
        or surveyed.bad_count
        or surveyed.has_generated_ids
        or read_options.get("shape") not in (None, "ragfault")
    ):
        return None
    return index_traces(trace_source, surveyed.count, marks_by_file)


def _resolve_judge(
    judge: str | Judge,
    options: Mapping[str, Any] | LLMSettings | None,
    profile: str | Path | DomainProfile,
    metrics: Sequence[Metric],
) -> Judge:
    """The judge that is meant; none where no metric reads a verdict and it is only named."""
    given = {"settings": options} if isinstance(options, LLMSettings) else dict(options or {})
    if isinstance(judge, str):
        asked = any(metric.definition.verdicts for metric in metrics)
        return judges.load_judge(judge, profile=profile, **given) if asked else judges.load_judge("none")
    if given:
        raise UsageError(
            "options go to a judge that is named. This one is made already: give them where it is made."
        )
    return judges.apply_profile(judge, profile)


def _check_workers(
    workers: int,
    batch: int | None,
    judge: Judge,
    executor: Executor | None,
    on_notice: Callable[[str], None],
) -> None:
    """Refuse numbers of workers and sizes of parts that cannot be; say where a judge that is paid for is asked."""
    if workers < 1 or (batch is not None and batch < 1):
        raise UsageError(f"workers and batch are at least 1, got workers={workers}, batch={batch}.")
    if not isinstance(judge, MeteredJudge):
        return
    if executor is not None:
        on_notice("a judge that is paid for is asked from here alone, so that one budget and one pace hold")
    elif workers > 1:
        raise UsageError(
            f"a judge that is paid for asks from one process, got workers={workers}. "
            "How many calls are under way at once is its concurrency: --concurrency, or options={'concurrency': 32}."
        )


def _make_progress_reporter(
    judge: Judge, on_progress: Callable[[int, int], None], on_usage: Callable[[Usage], None]
) -> Callable[[int, int], None]:
    """What tells of the progress, and of what was spent where something is."""

    def told(done: int, total: int) -> None:
        on_progress(done, total)
        if (so_far := get_usage(judge)) is not None:
            on_usage(so_far)

    return told


def _survey_input(
    trace_source: TraceSource,
    source_names: tuple[str, ...],
    skip_bad: bool,
    on_notice: Callable[[str], None],
    read_options: dict[str, Any],
) -> InputSummary:
    """Read the input once before a judge sees any of it: count, fingerprint, faults."""
    found = summarize_input(trace_source, **read_options)
    if found.bad_count and not (skip_bad and found.count):
        faults = found.faults
        if source_names == ("-",):
            faults = tuple(fault._replace(where="standard input") for fault in faults)
        raise BadTraces(faults, found.count, found.bad_count)
    if found.shape:
        on_notice(found.shape)
    return found


def _verify_unchanged(traces: Iterable[Trace], surveyed: InputSummary) -> Iterator[Trace]:
    """The traces, and an error at their end if they are not those that the survey saw."""
    digest = TraceDigest()
    for trace in traces:
        digest.add(trace)
        yield trace
    if digest.fingerprint != surveyed.fingerprint:
        raise InputError(
            f"the input changed while it was read: {surveyed.count:,} traces before, {digest.count:,} now, or other "
            "ones. Evaluate again when nothing writes to it."
        )


def _explain_missing_metrics(metrics: str | Sequence[str]) -> Iterator[str]:
    """What the set "all" leaves out because an extra is not installed, in words."""
    if "all" in ([metrics] if isinstance(metrics, str) else metrics):
        missing = [entry for entry in get_definitions().values() if not entry.installed]
        for extra in sorted({entry.extra or "" for entry in missing}):
            names = ", ".join(entry.name for entry in missing if (entry.extra or "") == extra)
            yield f"left out {names}. Install what they need with: pip install 'ragfault[{extra}]'"


def _make_plan(
    judge: Judge, metrics: Sequence[Metric], surveyed: InputSummary, source_names: tuple[str, ...], batch: int
) -> RunPlan:
    return RunPlan(
        ragfault=__version__,
        judge=judge.fingerprint,
        metrics=tuple(map(describe_metric, metrics)),
        fingerprint=surveyed.fingerprint,
        traces=surveyed.count,
        source=source_names,
        skipped=surveyed.bad_count,
        batch=batch,
    )


def describe_metric(metric: Metric) -> MetricInfo:
    """What a run remembers of a metric.

    >>> describe_metric(select_metrics("latency")[0])
    MetricInfo(name='latency', layer='operation', better='lower', low=0.0, high=None)
    """
    kind = metric.definition
    low, high = (end if math.isfinite(end) else None for end in metric.range)
    return MetricInfo(str(metric), kind.layer, kind.better, low, high)
