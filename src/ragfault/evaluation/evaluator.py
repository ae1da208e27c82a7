"""Evaluate traces into a run: streaming, parallel and resumable, with the judge's spending tracked."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from ragfault.evaluation.jobs import (
    BadLineWriter,
    EvaluationJob,
    TraceSource,
    make_rereadable,
    open_input_folder,
    read_unfinished,
    run_job,
)
from ragfault.evaluation.metric_choices import add_chosen_metrics, explain_unused, parse_choices
from ragfault.evaluation.passage_places import ChunkPool
from ragfault.evaluation.settings import EvaluationSettings
from ragfault.evaluation.surveyed_traces import SurveyedTraces
from ragfault.executors import ProcessExecutor, choose_executor
from ragfault.io.files import describe_input, expand_paths
from ragfault.io.formats.tables import TableLike
from ragfault.io.reading_settings import ReadingSettings
from ragfault.io.remote_paths import AnyPath, is_remote
from ragfault.io.runs.run import MetricInfo, Run, check_free, lock_run, parse_output
from ragfault.io.runs.writer import PartialRun, RunPlan
from ragfault.io.slices import TraceIndex, get_file_stamps, index_traces
from ragfault.io.trace_reader import InputSummary, explain_missing_fields, summarize_input
from ragfault.judges.calibration import wrap_judge
from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.loading import apply_profile, count_metered, limit_verdicts, list_rubrics, load_judge
from ragfault.metrics.aliases import explain_aliases
from ragfault.metrics.catalog import Metric, get_definitions, list_verdict_kinds, parse_metric
from ragfault.metrics.selection import select_metrics
from ragfault.model.errors import BadLine, BadRunRows, BadTraces, BudgetExceeded, JudgeStopped, UsageError
from ragfault.model.protocols import Executor, Judge, MeteredJudge
from ragfault.model.records import Trace, Usage
from ragfault.model.rubrics import METRIC_NAME, Rubric, check_rubrics
from ragfault.model.settings import accept_fields
from ragfault.model.version import __version__
from ragfault.model.work_settings import ignore_report


@contextmanager
def track_spending(judge: Judge, partial: PartialRun) -> Iterator[None]:
    """Charge a metered judge's usage to the partial run; raise what stopped it, with how to go on."""
    if not isinstance(judge, MeteredJudge):
        yield
        return
    judge.begin(str(partial.out.absolute()), fresh=not partial.resumed)
    try:
        yield
    except JudgeStopped as error:
        judge.end()
        partial_result = partial.keep_finished(judge.usage)
        larger = ", with a larger budget," if isinstance(error, BudgetExceeded) else ""
        raise type(error)(f"{error} {_describe_progress(partial, partial_result, larger)}") from error
    finally:
        judge.end()


def get_usage(judge: Judge) -> Usage | None:
    """Return the usage of a metered judge; None for others."""
    return judge.usage if isinstance(judge, MeteredJudge) else None


def _describe_progress(partial: PartialRun, readable_run: Run | None, larger: str) -> str:
    """Describe the finished traces of a stopped run, where they can be read, and how to resume it."""
    total, done = partial.plan.traces, 0 if readable_run is None else readable_run.manifest.traces
    readable = (
        "" if readable_run is None else f" Read them with: ragfault report {shlex.quote(str(readable_run.path))}."
    )
    return (
        f"{done:,} of {total:,} traces are done and kept, {total - done:,} are left. "
        f"Run the same command again{larger} to go on in {partial.path}.{readable}"
    )


METERED_BATCH, DEFAULT_BATCH, UNJUDGED_BATCH, MAX_BATCH = 16, 64, 1024, 1024
"""Traces to a part, here and on a cluster: at most so many are lost, for each worker, when an evaluation is killed."""
SURVEYED_NAME = "surveyed"
"""Name of the file of surveyed traces in the folder of an unfinished run."""
# parts that a cluster's work is cut into at the least, before they are made larger than here
MIN_CLUSTER_BATCHES = 256


@accept_fields(EvaluationSettings)
def evaluate(
    trace_source: TraceSource | Iterable[Trace] | TableLike, out: str | AnyPath, settings: EvaluationSettings
) -> Run:
    """Judge every trace, compute every metric, and write the result as a run.

    The settings are given as keywords (`judge="lexical"`), or as one record: `settings=EvaluationSettings(…)`.

    `trace_source` is any input of `read_traces` (with its parameters map, shape, qrels …), a data frame, or traces.
    `judge` is a name or an object with the `Judge` protocol; nothing is judged if no metric reads a verdict. `profile`
    names the identifiers that must agree exactly in a domain: "legal", "medical", "financial", "technical", or a TOML
    file (`ragfault judge profile`). `calibration` is a file of `ragfault judge calibrate`: it calibrates the judge to
    labels. `metrics` is a set ("default", "all", a layer), or expressions such as "ndcg@10",
    and rubrics (see `rubric`), which are handed to a judge named "llm:MODEL"; rubrics of its options are scored, too.
    `metrics_by` are choices such as "route=faq:groundedness,refusal": traces with the tag (route, model, or a key of
    the metadata) are scored by these metrics alone, and only judged where one of them reads a verdict.
    `trusted` are documents, or an index of them, against which the claims of answers without reference and facts are
    checked, for factual_accuracy and other metrics of truth. `gold`: "apply" lets gold, facts, references and
    answerability labels go before the judge where a trace has them, "ignore" scores by the judge alone; stored verdicts
    are the judge's own. The result is the same for any number of `workers` and any `batch`.
    `on_progress` is called with (finished traces, all traces), `on_notice` with messages for the user.

    `ray` runs the work on a Ray cluster, and an `executor` (such as `RayExecutor`) anywhere else. Input and `out`
    may be in an object store ("s3://bucket/run"), which the workers then read and write themselves.

    `options` go to a named judge: for "llm:MODEL" the fields of `LLMSettings` (budget, concurrency …), or an
    `LLMSettings`. A metered judge is called from one process, `on_usage` receives its usage so far, and the manifest
    records the sum. If it cannot continue (BudgetExceeded, JudgeStopped), all results are kept.

    A killed evaluation resumes if called again with the same arguments; at most `batch` traces for each worker are
    lost. A judge that fails on a trace gives `failed` scores with the reason, and the run continues.

    Raises BadTraces if lines of the input are not traces (with `skip_bad` they are written to the side file
    `OUT.bad.jsonl` and the others are evaluated), InputError, UsageError, OutputError, RunError, JudgeStopped.

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
    check_free(out, force=settings.force)
    metrics, on_notice = settings.metrics, settings.on_notice
    requested = [metrics] if isinstance(metrics, str) else [str(item) for item in metrics]
    selected = add_chosen_metrics(select_metrics(requested), settings.tag_choices)
    judge = _resolve_judge(settings, selected)
    if any("truth" in metric.definition.verdicts for metric in selected):
        # The search of a corpus loads numpy, which an evaluation without one does not need.
        from ragfault.evaluation.trusted_corpus import trust_corpus

        judge = trust_corpus(judge, settings.trusted)
    selected = add_rubric_metrics(selected, judge)
    executor = choose_executor(settings.workers, settings.executor, settings.ray)
    _check_workers(settings, judge, executor)
    for line in (*_explain_missing_metrics(requested), *explain_aliases(requested)):
        on_notice(line)
    source_names = describe_input(trace_source)
    with (
        lock_run(out) as run_folder,
        open_input_folder(run_folder) as input_folder,
        BadLineWriter(out.with_name(out.name + ".bad.jsonl"), on_notice) as bad_lines,
    ):
        trace_source = make_rereadable(trace_source, input_folder)
        file_stamps = get_file_stamps(trace_source) if executor is not None else {}
        # The survey writes what the judge reads: all faults are shown before the first verdict, from one reading.
        pool = ChunkPool() if judge.offers else None
        with SurveyedTraces(input_folder / "input" / SURVEYED_NAME, settings.unique == "none", pool) as surveyed:
            on_bad = bad_lines.write if settings.skip_bad else ignore_report
            survey = _survey_input(trace_source, source_names, settings, surveyed.add, on_bad)
        is_spread = settings.executor is not None or settings.ray is not None or is_remote(out)
        plan = RunPlan(
            ragfault=__version__,
            judge=judge.fingerprint,
            metrics=tuple(map(describe_metric, selected)),
            metrics_by=settings.tag_choices,
            gold=settings.gold,
            fingerprint=survey.fingerprint,
            traces=survey.count,
            source=source_names,
            skipped=survey.bad_count,
            batch=settings.batch or _choose_batch_size(survey.count, judge, remote=is_spread),
        )
        partial = _begin_run(out, plan, settings.force, on_notice)
        report_progress = _make_progress_reporter(judge, settings)
        with track_spending(judge, partial):
            # A judge that can do so is asked about all unfinished traces at once.
            if (fetch := getattr(judge, "fetch_in_batches", None)) is not None:
                fetch(lambda: read_unfinished(partial, surveyed.read()), on_notice)
            is_indexed = executor is not None and not surveyed.attempts.has_several
            index = _index_traces(trace_source, survey, file_stamps, settings) if is_indexed else None
            job = EvaluationJob.create(partial, judge, selected, closed=surveyed.endings.closed, pool=pool)
            run_job(job, surveyed.read(), index, executor, report_progress, on_notice)
        return _report_unused(partial.finish(force=settings.force, usage=get_usage(judge)), settings)


def _report_unused(run: Run, settings: EvaluationSettings) -> Run:
    """Report the choices of metrics whose tag no trace of a run has, and return the run."""
    choices = settings.tag_choices
    for line in explain_unused(parse_choices(choices), run.traces() if choices else ()):
        settings.on_notice(line)
    return run


def _begin_run(out: AnyPath, plan: RunPlan, force: bool, on_notice: Callable[[str], None]) -> PartialRun:
    """Begin a run, or resume the partial one and report it."""
    partial = PartialRun.begin(out, plan, force=force)
    if done := len(partial.list_finished_parts()):
        on_notice(f"resuming: {done:,} parts of {partial.plan.batch} traces are done already")
    return partial


def _choose_batch_size(count: int, judge: Judge, *, remote: bool) -> int:
    """Choose the batch size: larger for remote runs of many traces, where each batch costs a request.

    Smaller for a judge that costs money, whose budget may end within a batch; larger without a judge, where a batch
    takes less time than its files.
    """
    if isinstance(judge, MeteredJudge) and not remote:
        return min(DEFAULT_BATCH, max(METERED_BATCH, count // MIN_CLUSTER_BATCHES))
    least = DEFAULT_BATCH if judge.offers else UNJUDGED_BATCH
    return min(MAX_BATCH, max(least, count // MIN_CLUSTER_BATCHES)) if remote else least


def _index_traces(
    trace_source: TraceSource, surveyed: InputSummary, marks_by_file: Mapping[str, str], settings: EvaluationSettings
) -> TraceIndex | None:
    """Index the traces for workers that read them themselves; None if the input must be read as a whole."""
    is_plain = ReadingSettings.select(settings) == ReadingSettings(shape=settings.shape)
    if not is_plain or surveyed.bad_count or surveyed.has_generated_ids or settings.shape not in (None, "ragfault"):
        return None
    return index_traces(trace_source, surveyed.count, marks_by_file)


def _resolve_judge(settings: EvaluationSettings, metrics: Sequence[Metric]) -> Judge:
    """Load the judge; the empty one if it is only named and no metric reads a verdict."""
    judge = settings.combined_judge
    rubrics = (
        [] if isinstance(settings.metrics, str) else [item for item in settings.metrics if isinstance(item, Rubric)]
    )
    options = add_rubrics(judge, settings.options, rubrics)
    limit = limit_verdicts(judge, list_verdict_kinds(metrics))
    if isinstance(options, LLMSettings):
        judge_options: dict[str, Any] = {"settings": options if options.verdicts else replace(options, **limit)}
    else:
        judge_options = {**limit, **(options or {})}
    if isinstance(judge, str):
        judged_rubrics = options.rubrics if isinstance(options, LLMSettings) else judge_options.get("rubrics")
        if not judged_rubrics and not any(metric.definition.verdicts for metric in metrics):
            return load_judge("none")
        return load_judge(judge, profile=settings.profile, calibration=settings.calibration, **judge_options)
    if judge_options:
        raise UsageError("options are for a judge given by name. This one is an object: pass them to its constructor.")
    return wrap_judge(apply_profile(judge, settings.profile), settings.calibration)


def add_rubrics(
    judge: str | Judge, options: Mapping[str, Any] | LLMSettings | None, rubrics: Sequence[Rubric]
) -> Mapping[str, Any] | LLMSettings | None:
    """Return the options of a judge with further rubrics.

    Raises UsageError for rubrics of a judge that is not named as one that asks a language model.
    """
    if not rubrics:
        return options
    if not isinstance(judge, str) or not count_metered(judge):
        shown_judge = f'"{judge}"' if isinstance(judge, str) else "an object"
        raise UsageError(
            f'rubrics are judged by a language model, and this judge is {shown_judge}. Name one: judge="llm:MODEL".'
        )
    if isinstance(options, LLMSettings):
        return replace(options, rubrics=check_rubrics((*options.rubrics, *rubrics)))
    judge_options = dict(options or {})
    return {**judge_options, "rubrics": (*judge_options.get("rubrics", ()), *rubrics)}


def add_rubric_metrics(metrics: tuple[Metric, ...], judge: Judge) -> tuple[Metric, ...]:
    """Return the metrics with one for each rubric of the judge.

    Raises UsageError where a rubric is asked for that the judge was not given.
    """
    names = [item.name for item in list_rubrics(judge)]
    for metric in metrics:
        name = dict(metric.parameters).get("name")
        if metric.name == METRIC_NAME and name and name not in names:
            raise UsageError(
                f'{metric}: the judge was given no rubric "{name}" (it has {", ".join(names) or "none"}). Rubrics are '
                "judged by a language model: write them to a file, and ask with --judge llm:MODEL --rubrics FILE."
            )
    scored = [parse_metric(f"{METRIC_NAME}(name={name})") for name in names]
    return tuple(dict.fromkeys((*metrics, *scored)))


def _check_workers(settings: EvaluationSettings, judge: Judge, executor: Executor | None) -> None:
    """Raise UsageError for a metered judge in several processes; report where it runs instead of on a cluster."""
    if not isinstance(judge, MeteredJudge) or executor is None:
        return
    if isinstance(executor, ProcessExecutor):
        raise UsageError(
            f"a judge that costs money runs in one process, got workers={executor.workers}. "
            "How many calls are under way at once is its --concurrency."
        )
    settings.on_notice(
        "a judge that costs money runs only in this process, so that one budget and one rate limit apply"
    )


def _make_progress_reporter(judge: Judge, settings: EvaluationSettings) -> Callable[[int, int], None]:
    """Return a function that reports the progress, and the usage of a metered judge."""

    def report(done: int, total: int) -> None:
        settings.on_progress(done, total)
        if (usage := get_usage(judge)) is not None:
            settings.on_usage(usage)

    return report


def _survey_input(
    trace_source: TraceSource,
    source_names: tuple[str, ...],
    settings: EvaluationSettings,
    on_trace: Callable[[Trace], object],
    on_bad: Callable[[BadLine], object],
) -> InputSummary:
    """Read the input before judging: count, fingerprint, bad lines; hand on each trace and each bad line."""
    survey = summarize_input(trace_source, on_trace=on_trace, on_bad=on_bad, with_example=False, **settings.reading)
    if survey.bad_count and not (settings.skip_bad and survey.count):
        bad_lines = survey.bad_lines
        if source_names == ("-",):
            bad_lines = tuple(bad_line._replace(where="standard input") for bad_line in bad_lines)
        files = () if source_names == ("-",) else expand_paths(trace_source)
        error = BadRunRows if "read as a TREC run" in survey.shape else BadTraces
        raise error(bad_lines, survey.count, survey.bad_count, survey.bad_kinds, files)
    if survey.shape:
        settings.on_notice(survey.shape)
    if (missing := explain_missing_fields(survey)) is not None:
        settings.on_notice(missing)
    return survey


def _explain_missing_metrics(metrics: str | Sequence[str]) -> Iterator[str]:
    """Yield a message for the metrics that "all" leaves out because an extra is not installed."""
    if "all" in ([metrics] if isinstance(metrics, str) else metrics):
        missing = [entry for entry in get_definitions().values() if not entry.installed]
        for extra in sorted({entry.extra or "" for entry in missing}):
            names = ", ".join(entry.name for entry in missing if (entry.extra or "") == extra)
            yield f"left out {names}. Install what they need with: pip install 'ragfault[{extra}]'"


def describe_metric(metric: Metric) -> MetricInfo:
    """Describe a metric for the manifest of a run.

    >>> describe_metric(select_metrics("latency")[0])
    MetricInfo(name='latency', layer='operation', better='lower', low=0.0, high=None)
    """
    definition = metric.definition
    low, high = (end if math.isfinite(end) else None for end in metric.range)
    return MetricInfo(str(metric), definition.layer, definition.better, low, high)
