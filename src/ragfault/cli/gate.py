"""Commands `gate` and `ci`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.apps.registry import list_apps
from ragfault.cli.compare import VERDICT_EXIT_CODES
from ragfault.comparison.settings import BASELINE_FIELDS, BisectionSettings, GateSettings, GateTable
from ragfault.evaluation.settings import EvaluationSettings
from ragfault.model.errors import UsageError
from ragfault.options.output import json_option, print_json, print_notice, print_report, supports_color
from ragfault.options.records import add_fields, merge_margins, take_fields
from ragfault.options.runs import (
    calibrate_run,
    human_labels_option,
    load_paired_labels,
    load_run_labels,
    rejudge_baseline,
    show_progress,
)
from ragfault.options.settings import (
    add_config_option,
    add_git_option,
    add_trace_options,
    calibration_option,
    list_fields,
    load_settings,
)

if TYPE_CHECKING:
    from ragfault.comparison.gate.records import GateResult
    from ragfault.comparison.records import Bisection
    from ragfault.io.runs.run import Run
    from ragfault.labels.correction import PairedLabels


@click.command(
    epilog="""\b
Examples:
  ragfault gate runs/today --threshold "groundedness>=0.85" --threshold "latency<=2000"
  ragfault gate runs/today --baseline runs/main --max-drop 0.03
  ragfault gate runs/today --baseline runs/main -m groundedness -m latency --margins latency=50
  ragfault gate runs/today --junit gate.xml --markdown gate.md

\b
What is asked also comes from ragfault.toml:
  [gate]
  thresholds = ["groundedness>=0.85", "context_recall>=0.7"]
  coverage = 0.5
  max_drop = 0.05
  [gate.margins]
  groundedness = 0.01

Exit code 0: every threshold and metric passes; 1: one fails; 3: the data cannot tell."""
)
@click.argument("run", type=click.Path())
@add_fields(GateTable, "thresholds", "coverage", "baseline", "metrics", "max_drop", "margins", "alpha", "power")
@add_fields(GateTable, "flakiness", "anyway")
@click.option("--rejudge", is_flag=True, help="Judge the baseline again with the judge of RUN.")
@add_fields(GateTable, "sample")
@calibration_option
@human_labels_option
@add_fields(GateTable, "rubric_proof")
@click.option("--junit", type=click.Path(), help="Write JUnit XML to this file (overwritten).")
@click.option("--markdown", type=click.Path(), help="Write GitHub-flavoured Markdown to this file (overwritten).")
@json_option
@add_config_option
@add_git_option
def gate(
    run: str, junit: str | None, markdown: str | None, config: str | None, kind: str | None, **options: Any
) -> int:
    """Check RUN against thresholds, against a baseline, or both: pass, fail, or cannot tell.

    A threshold is decided on the 95 % interval of the metric's mean, never on the mean alone: passed where all of the
    interval reaches it, failed where none does. Against a baseline a metric fails where a significant worsening
    beyond its margin is shown, and passes where one is ruled out. Otherwise: "cannot tell", with about how
    many traces would.
    """
    from ragfault.comparison.gate.gate import gate
    from ragfault.diagnosis.attempts.plan import propose_attempts
    from ragfault.diagnosis.run_table import open_table
    from ragfault.io.runs.run import Run
    from ragfault.report.builders.gate import build_gate
    from ragfault.report.junit import render_gate_junit
    from ragfault.report.output import write_report_file
    from ragfault.report.renderers.markdown import render_markdown

    table = load_settings(config).get("gate", {})
    people, calibration, rejudge = (options.pop(name) for name in ("human_labels", "calibration", "rejudge"))
    fields = _read_gate_fields(options, table, rejudge)
    baseline, thresholds = fields.pop("baseline", None), fields.pop("thresholds", ())
    opened = Run.open(run)
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        old = baseline and _open_baseline(baseline, opened, workspace / "judged" if rejudge else None, calibration)
        candidate = calibrate_run(opened, calibration, workspace / "candidate")
        if old is None:
            labels: PairedLabels = (None, load_run_labels(people, candidate))
        else:
            old = calibrate_run(old, calibration, workspace / "baseline")
            labels = load_paired_labels(people, old, candidate)
        result = gate(candidate, thresholds, GateSettings(**fields, baseline=old, labels=labels))
        is_open = result.regression is not None and result.result == "cannot tell"
        proposal = propose_attempts(open_table(old), open_table(candidate)) if old is not None and is_open else None
    if junit:
        write_report_file(junit, render_gate_junit(result), force=True)
    if markdown:
        write_report_file(markdown, render_markdown(build_gate(result)), force=True)
    print_report(result, kind, build_gate)
    if proposal is not None:
        print_notice(f"next: {proposal}")
    return result.exit_code


def _open_baseline(baseline: str, run: Run, folder: Path | None, calibration: str | None) -> Run:
    """Open the baseline; with a folder, judged there as the run was."""
    from ragfault.io.runs.run import Run

    opened = Run.open(baseline)
    return opened if folder is None else rejudge_baseline(opened, run, folder, calibration)


def _read_gate_fields(options: dict[str, Any], table: Mapping[str, Any], rejudge: bool) -> dict[str, Any]:
    """Read the fields of a gate: those of the flags, else of the settings; without a baseline only what needs none."""
    given = take_fields(GateTable, options)
    if "baseline" in given:
        return merge_margins({**table, **given}, table)
    flags = [*GateTable(**given).set_for_baseline, *(["rejudge"] if rejudge else [])]
    if flags:
        listing = ", ".join(f"--{key.replace('_', '-')}" for key in flags)
        raise UsageError(f"{listing}: this needs a baseline. Give one with --baseline.")
    return {name: value for name, value in {**table, **given}.items() if name not in BASELINE_FIELDS}


LEAST_THRESHOLDS = ("error<=0.5", "blank_answer<=0.5")
"""What fails a run without a baseline, whatever else is asked: most of its traces failed."""

SettingsTable = dict[str, dict[str, Any]]

EMPTY_JUNIT = '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites tests="0" failures="0" errors="0" />\n'
"""JUnit XML where nothing was asked, so that a job that collects it finds a file."""


def add_app_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options by which apps work on the run."""
    for name, metavar, text in reversed([option for app in list_apps() for option in app.ci_options]):
        command = click.option(f"--{name}", metavar=metavar, help=text)(command)
    return command


@click.command(
    epilog="""\b
Examples:
  ragfault ci traces.jsonl -o runs/candidate
  ragfault ci traces.jsonl -o runs/candidate --baseline runs/main
  ragfault ci traces.jsonl -o runs/candidate --baseline runs/main --comment comment.md --junit ragfault.xml

\b
Judge, metrics, column map, thresholds and margins come from ragfault.toml:
  [evaluate]
  metrics = ["default"]
  [gate]
  thresholds = ["groundedness>=0.85"]
  max_drop = 0.05

Exit code 0: every threshold and metric passes, or none was given; 1: one fails, a layer broke, or most traces failed;
3: the data cannot tell, which --unsure pass lets by; 2: the command is wrong."""
)
@click.argument("traces", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Directory for the run.")
@click.option("--baseline", type=click.Path(), help="Baseline run; ignored where it does not exist yet.")
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="METRIC>=VALUE",
    help="Threshold in addition to those of the settings file. Repeatable.",
)
@click.option("--comment", "said", type=click.Path(), help="Write a pull-request comment (Markdown) to this file.")
@click.option("--junit", type=click.Path(), help="Write JUnit XML to this file.")
@click.option("--report", "page", type=click.Path(), help="Write the HTML report of the run to this file.")
@click.option("--rejudge", is_flag=True, help="Judge the baseline again with the judge of this run.")
@click.option(
    "--unsure",
    type=click.Choice(["fail", "pass"]),
    default="fail",
    show_default=True,
    help="Pass or fail where the gate cannot tell.",
)
@add_trace_options
@add_fields(EvaluationSettings, "skip_bad", "workers", "ray")
@json_option
@add_config_option
@add_app_options
@add_git_option
def ci(
    traces: tuple[str, ...], out: str, thresholds: tuple[str, ...], unsure: str, config: str | None, **options: Any
) -> int:
    """Evaluate TRACES, check the run against thresholds and a baseline, and name the layer that broke.

    It is evaluate, gate and bisect in one, for a job on every pull request. An existing run at OUT is replaced.
    Where no baseline is given, or nothing lies at its path (the first run of a branch), only thresholds are decided,
    with a note.
    """
    from ragfault.diagnosis.thresholds import parse_threshold

    table = load_settings(config)
    all_thresholds = (*table.get("gate", {}).get("thresholds", ()), *thresholds)
    for threshold in all_thresholds:
        parse_threshold(threshold)
    old, notes = _locate_baseline(options["baseline"], out, bool(all_thresholds))
    extensions = _prepare_apps(options, table)
    run = _evaluate_traces(traces, out, options, table)
    with tempfile.TemporaryDirectory() as folder:
        if old is not None and options["rejudge"]:
            old = rejudge_baseline(old, run, Path(folder), table.get("evaluate", {}).get("calibration"))
        decided, bisected = _gate_run(run, old, all_thresholds, table), _bisect_runs(old, run, table)
    notes += tuple(note for extend in extensions for note in extend(run))
    _write_reports(run, decided, bisected, notes, options)
    _print_results(run, decided, bisected, notes, options["kind"])
    return _choose_exit_code(decided, bisected, unsure)


def _prepare_apps(options: dict[str, Any], table: SettingsTable) -> list[Callable[[Run], tuple[str, ...]]]:
    """Return what the apps do with the run, as far as their options ask for it: each returns notes."""
    extensions = []
    for app in list_apps():
        given = {name: options.pop(name.replace("-", "_")) for name, *_ in app.ci_options}
        if app.ci is not None and any(value is not None for value in given.values()):
            extensions.append(import_module(app.ci).prepare_ci(given, table))
    return extensions


def _evaluate_traces(traces: tuple[str, ...], out: str, options: dict[str, Any], table: SettingsTable) -> Run:
    """Evaluate the run of the traces, as flags and settings ask for it."""
    from ragfault.evaluation.evaluator import evaluate
    from ragfault.options.llm_judge import resolve_judge_options

    fields = take_fields(EvaluationSettings, options, list_fields(table))
    fields["options"] = resolve_judge_options(fields.get("judge"), {}, table.get("llm", {}))
    with show_progress(False) as progress:
        reports: dict[str, Any] = {"on_progress": progress, "on_usage": progress.show_usage, "on_notice": print_notice}
        settings = EvaluationSettings(**{**fields, **reports, "force": True})
        return evaluate(list(traces) if len(traces) > 1 else traces[0], out, settings)


def _locate_baseline(path: str | None, out: str, has_thresholds: bool) -> tuple[Run | None, tuple[str, ...]]:
    """Return the baseline run; where there is none, why."""
    from ragfault.io.runs.run import Run

    hint = (
        ": only the thresholds are checked"
        if has_thresholds
        else ", and there are no thresholds: only whether most traces failed is checked"
    )
    if path is None:
        return None, (f"no baseline was given{hint}",)
    if not Path(path).exists():
        return None, (f"there is no run at the baseline {path}{hint}",)
    if Path(path).resolve() == Path(out).resolve():
        raise UsageError(f"{out} is both the baseline and the output, which would replace it. Give another --out.")
    return Run.open(path), ()


def _gate_run(run: Run, old: Run | None, thresholds: tuple[str, ...], table: SettingsTable) -> GateResult | None:
    from ragfault.comparison.gate.gate import gate

    if old is None:
        known = {measure.name for measure in run.manifest.metrics}
        least = [text for text in LEAST_THRESHOLDS if text.split("<=")[0] in known]
        thresholds += tuple(text for text in least if gate(run, [text]).result == "fail")
        if not thresholds:
            return None
    fields = {name: value for name, value in table.get("gate", {}).items() if name != "thresholds"}
    if old is None:
        fields = {name: value for name, value in fields.items() if name not in BASELINE_FIELDS}
    return gate(run, thresholds, GateSettings(**fields, baseline=old))


def _bisect_runs(old: Run | None, run: Run, table: SettingsTable) -> Bisection | None:
    from ragfault.comparison.bisection import bisect_pairs
    from ragfault.comparison.paired_runs import pair_runs

    return None if old is None else bisect_pairs(pair_runs(old, run), BisectionSettings(**table.get("compare", {})))


def _write_reports(
    run: Run,
    decision: GateResult | None,
    bisection_result: Bisection | None,
    notes: tuple[str, ...],
    options: dict[str, Any],
) -> None:
    """Write what was asked for."""
    from ragfault.diagnosis.run_analysis import analyze
    from ragfault.report.app_sections import build_app_sections
    from ragfault.report.html.report import write_run_html
    from ragfault.report.junit import render_gate_junit
    from ragfault.report.markdown import pull_request_comment
    from ragfault.report.output import write_report_file

    if options["said"]:
        sections = build_app_sections(run)
        text = pull_request_comment.render_comment(decision, bisection_result, analyze(run), notes, sections)
        write_report_file(options["said"], text, force=True)
    if options["junit"]:
        write_report_file(
            options["junit"], EMPTY_JUNIT if decision is None else render_gate_junit(decision), force=True
        )
    if options["page"]:
        write_run_html(run, options["page"], force=True)


def _print_results(
    run: Run, decision: GateResult | None, bisection_result: Bisection | None, notes: tuple[str, ...], kind: str | None
) -> None:
    """Print the gate, the bisection and the notes."""
    from ragfault.report.builders.bisection import build_bisection
    from ragfault.report.builders.gate import build_gate
    from ragfault.report.renderers.terminal import render_terminal

    for note in notes:
        click.echo(note, err=True)
    if kind == "json":
        from ragfault.report.json_documents import CiResult

        path, traces = str(run.path), run.manifest.traces
        print_json(CiResult(path=path, traces=traces, gate=decision, bisection=bisection_result, notes=notes))
        return
    location = f"{run.manifest.traces:,} traces in {run.path}   →   ragfault report {run.path}"
    parts = [] if decision is None else [render_terminal(build_gate(decision), color=supports_color())]
    if bisection_result is not None:
        # what decides the exit code stands first
        place = 0 if bisection_result.verdict == "fault" else len(parts)
        parts.insert(place, render_terminal(build_bisection(bisection_result), color=supports_color()))
    click.echo("\n\n".join([*(part.strip("\n") for part in parts), location]))


def _choose_exit_code(decision: GateResult | None, bisection: Bisection | None, unsure: str) -> int:
    """Choose 1 where the gate fails or a layer broke; else what the gate says."""
    if bisection is not None and bisection.verdict == "fault":
        return VERDICT_EXIT_CODES["fault"]
    code = 0 if decision is None else decision.exit_code
    return 0 if code == VERDICT_EXIT_CODES["cannot tell"] and unsure == "pass" else code
