"""Commands `report`, `diagnose` and `steps`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from ragfault.model.errors import UsageError
from ragfault.options.output import (
    add_output_options,
    encode_json,
    json_option,
    plan_output,
    print_json,
    print_notice,
    print_report,
    print_text_warnings,
    render_document,
    supports_color,
    write_output,
)
from ragfault.options.runs import cause_option, human_labels_option, load_run_labels, open_run_or_file, sample_option
from ragfault.options.settings import add_config_option, add_trace_options, load_settings, pick_trace_options
from ragfault.text.number_format import format_count

if TYPE_CHECKING:
    from ragfault.diagnosis.thresholds import Threshold
    from ragfault.io.runs.run import Run
    from ragfault.report.document import ReportDocument

FORMATS = ("html", "md", "csv")
"""The formats of a report, beside the terminal's and JSON."""
VERDICT_LINES = 25
"""Lines of a terminal that the verdict on a run may take."""


@click.command(
    epilog="""\b
Examples:
  ragfault report runs/today
  ragfault report runs/today -o report.html
  ragfault report runs/today --format md >> "$GITHUB_STEP_SUMMARY"
  ragfault report runs/today --by conversation --worst 20
  ragfault report runs/today --corrected
  ragfault report runs/today --human-labels labels.jsonl
  ragfault report runs/attempts --flakiness repeat.json"""
)
@click.argument("run", type=click.Path())
@add_output_options(*FORMATS)
@click.option(
    "--by", default="route", show_default=True, help="Break down by this field: route, model, metadata.KEY, …"
)
@click.option("--worst", type=click.IntRange(0), default=10, show_default=True, help="Number of worst traces to show.")
@click.option(
    "--corrected", is_flag=True, help="Also print verdict rates corrected for the judge's error, from its card."
)
@click.option(
    "--like",
    metavar="SHAPE",
    help='Answer type whose error rates to use: "long answer" (usual), summary, "structured data", …',
)
@click.option(
    "--sample",
    type=click.IntRange(0),
    metavar="N",
    help="Most traces to analyze; of larger runs a random sample. 0: all.  [default: 20000, 10000 for HTML]",
)
@human_labels_option
@click.option(
    "--flakiness",
    type=click.Path(exists=True),
    help="Judge variability measured by `judge repeat -o`, to tell it from that of several attempts.",
)
@add_config_option
def report(
    run: str,
    by: str,
    worst: int,
    corrected: bool,
    like: str | None,
    sample: int | None,
    human_labels: tuple[str, ...],
    flakiness: str | None,
    config: str | None,
    **output: Any,
) -> None:
    """Show RUN: the scorecard by layer, with intervals; what is wrong, on which traces, and what to change.

    In the terminal, or as one self-contained HTML page, Markdown, JSON or CSV.
    """
    from ragfault.diagnosis.attempts.assessment import tell_judge_noise
    from ragfault.diagnosis.run_analysis import analyze
    from ragfault.io.runs.run import SAMPLE_TRACES, Run
    from ragfault.io.runs.samples import sample_run
    from ragfault.labels.judges.flakiness import load_flakiness

    plan = plan_output(output, *FORMATS)
    if sample is None and "html" in plan:
        from ragfault.report.html.report import PAGE_TRACES

        sample = PAGE_TRACES
    opened = Run.open(run)
    labels = load_run_labels(human_labels, opened)
    opened = sample_run(opened, 0 if labels else SAMPLE_TRACES if sample is None else sample)
    targets = read_targets(load_settings(config), opened)
    findings = analyze(opened, n=worst, by=by, corrected=like or corrected, labels=labels, sample=0, **targets)
    if flakiness:
        findings = tell_judge_noise(findings, load_flakiness(flakiness))
    write_output(plan, lambda kind, screen: _render_run(opened, findings, kind, screen, labels), output)


def _render_run(run: Any, findings: Any, kind: str, screen: bool, labels: Any = None) -> str:
    if kind == "json":
        return encode_json(findings)
    if kind == "html":
        from ragfault.report.html.report import render_run_html

        return render_run_html(run, findings, labels)
    if kind == "csv":
        from ragfault.report.output import encode_findings_csv

        return encode_findings_csv(findings)
    return render_document(_build_report(run, findings), kind, screen)


def _build_report(run: Run, findings: Any) -> ReportDocument:
    """Build the report of a run, and after it what apps stored with the run."""
    from dataclasses import replace as change

    from ragfault.report.app_sections import build_app_sections
    from ragfault.report.builders.scorecard import build_findings

    document = build_findings(findings)
    return change(
        document, body=(*document.body, *(block for part in build_app_sections(run) for block in part.blocks))
    )


def print_scorecard(
    run: Any,
    table: dict[str, Any],
    human_labels: Sequence[str] = (),
    *,
    full: bool = False,
    kind: str | None = None,
    has_chosen_metrics: bool = False,
) -> None:
    """Print the verdict on a run that was just made; with `full` every table below it; or all of it as JSON."""
    from ragfault.diagnosis.run_analysis import analyze
    from ragfault.report.builders.scorecard import build_verdicts
    from ragfault.report.renderers.terminal import render_first_fitting

    findings = analyze(run, labels=load_run_labels(human_labels, run), **read_targets(table, run))
    if kind == "json":
        from ragfault.report.json_documents import EvaluatedRun

        print_json(EvaluatedRun(path=str(run.path), findings=findings))
        return
    if full:
        click.echo(_render_run(run, findings, "terminal", True), nl=False)
        return
    verdicts = build_verdicts(findings, str(run.path), has_chosen_metrics=has_chosen_metrics)
    click.echo(render_first_fitting(verdicts, VERDICT_LINES, color=supports_color()), nl=False)


def read_targets(table: dict[str, Any], run: Run) -> dict[str, Any]:
    """Read the targets of the settings file, in the form that `analyze` takes; each names a metric that there is."""
    from ragfault.diagnosis.score_matrix import match_metrics, metric_name
    from ragfault.diagnosis.scorecard import TARGETS
    from ragfault.diagnosis.thresholds import parse_threshold
    from ragfault.metrics.aliases import resolve_alias
    from ragfault.metrics.catalog import get_definitions

    targets = table.get("targets", {})
    names = [*(info.name for info in run.manifest.metrics), *get_definitions()]

    def parse(texts: Sequence[str]) -> tuple[Threshold, ...]:
        thresholds = tuple(map(parse_threshold, texts))
        for threshold in thresholds:
            match_metrics(metric_name(threshold.metric), names, "metric")
        return thresholds

    options: dict[str, Any] = {}
    if "thresholds" in targets:
        stated = (*TARGETS, *parse(targets["thresholds"]))
        options["targets"] = tuple({resolve_alias(threshold.metric): threshold for threshold in stated}.values())
    if "routes" in targets:
        options["routes"] = {route: parse(thresholds) for route, thresholds in targets["routes"].items()}
        unknown = options["routes"].keys() - set(run.to_arrow("traces", ["route"]).column(0).unique().to_pylist())
        traces = format_count(run.manifest.traces, "trace")
        for route in sorted(unknown):
            click.echo(f"warning: [targets.routes] names {route}, and none of {traces} has that route", err=True)
    return options


@click.command(
    epilog="""\b
Examples:
  ragfault diagnose runs/today
  ragfault diagnose runs/today ferry-12 ferry-40
  ragfault diagnose runs/today --cause not-retrieved
  ragfault diagnose runs/today --conversations"""
)
@click.argument("run", type=click.Path())
@click.argument("ids", nargs=-1)
@click.option(
    "--worst", type=click.IntRange(1), default=3, show_default=True, help="Number of worst traces, if no IDS are given."
)
@cause_option
@click.option("--conversations", is_flag=True, help="Show at which turn each conversation went wrong instead.")
@human_labels_option
@sample_option
@json_option
def diagnose(
    run: str,
    ids: tuple[str, ...],
    worst: int,
    causes: tuple[str, ...],
    conversations: bool,
    human_labels: tuple[str, ...],
    sample: int,
    kind: str | None,
) -> None:
    """Show every problem of the traces IDS of RUN, with its fix; without IDS, of the worst traces.

    IDS are looked up in all of RUN, and so are conversations; the worst are those of the sample. With --cause, those
    that show it most surely come first. Human labels take the place of verdicts.
    """
    if ids and causes:
        raise UsageError("IDS and --cause were both given, and each of them chooses the traces. Leave one out.")
    if conversations:
        _print_conversations(run, ids, kind)
        return
    from ragfault.diagnosis.causes.selection import select_causes
    from ragfault.diagnosis.run_analysis import diagnose_run, worst_traces
    from ragfault.diagnosis.run_table import RunTable
    from ragfault.io.runs.run import Run
    from ragfault.io.runs.samples import sample_run
    from ragfault.report.builders.diagnosis import build_diagnoses
    from ragfault.report.wording import describe_trace_count

    labels = load_run_labels(human_labels, Run.open(run))
    opened = sample_run(Run.open(run), 0 if ids or labels else sample)
    if opened.manifest.population:
        print_notice(f"{describe_trace_count(opened.manifest)}; --sample 0 takes all")
    print_text_warnings(opened)
    source = RunTable(opened, labels) if labels else opened
    chosen: Iterable[str] = ids
    if causes:
        chosen = [cause.trace for cause in select_causes(source, causes)][:worst]
    elif not ids:
        chosen = [diagnosis.trace for diagnosis in worst_traces(source, worst)]
    trace_ids = dict.fromkeys(chosen)
    by_id = {diagnosis.trace: diagnosis for diagnosis in diagnose_run(source, tuple(trace_ids))}
    diagnoses = [by_id[name] for name in trace_ids]
    if kind == "json":
        print_json(diagnoses)
        return
    document = build_diagnoses(diagnoses, None if ids or causes else opened.manifest.traces)
    click.echo(render_document(document, "terminal", True), nl=False)


@click.command(
    epilog="""\b
Examples:
  ragfault steps runs/today
  ragfault steps agent-log.jsonl --failed
  ragfault steps runs/today --worst 20
  ragfault steps runs/today --json"""
)
@click.argument("run", type=click.Path())
@click.option("--failed", is_flag=True, help="Every trace is known to have failed: one of its steps is faulty.")
@click.option("--worst", type=click.IntRange(0), default=10, show_default=True, help="How many traces to show.")
@sample_option
@add_trace_options
@json_option
def steps(run: str, failed: bool, worst: int, sample: int, kind: str | None, **options: Any) -> None:
    """Name the first faulty step of each trace of RUN, a run or a file of traces with steps.

    A step is faulty where the answer is wrong: by a short reference, by other runs of the question, or by --failed. The
    first step that failed is named, else the last one, with what was seen and its layer. Exit code 1 where a step is
    faulty, 3 where it cannot be told, 0 otherwise.
    """
    from ragfault.diagnosis.steps.localization import localize_faulty_steps
    from ragfault.report.builders.steps import build_steps

    opened = open_run_or_file(run, sample, pick_trace_options(options))
    if isinstance(opened, Iterator):
        findings = localize_faulty_steps(opened, failed=failed)
    else:
        findings = localize_faulty_steps(opened.traces(), failed=failed)
        findings = replace(findings, population=opened.manifest.population)
    print_report(findings, kind, partial(build_steps, worst=worst))
    statuses = {finding.status for finding in findings.traces}
    code = 1 if "fault" in statuses else 3 if "cannot tell" in statuses or not statuses else 0
    click.get_current_context().exit(code)


def _print_conversations(run: str, names: tuple[str, ...], kind: str | None) -> None:
    """Print the conversations of a run, or those named, with the turn at which each went wrong."""
    from ragfault.diagnosis.conversations import trace_conversations
    from ragfault.io.runs.run import Run
    from ragfault.model.errors import UnknownName
    from ragfault.report.builders.steps import build_conversations

    print_text_warnings(Run.open(run))
    outcomes = trace_conversations(run)
    conversations = [outcome.conversation for outcome in outcomes]
    for name in names:
        if name not in conversations:
            raise UnknownName(f"conversation in {run}", name, conversations)
    selected = [outcome for outcome in outcomes if not names or outcome.conversation in names]
    print_report(selected, kind, build_conversations)
