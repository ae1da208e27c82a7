"""Commands `compare` and `bisect`."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.comparison.settings import BisectionSettings, GateSettings, HistorySettings, parse_margins
from ragfault.model.errors import UsageError
from ragfault.options.output import (
    OutputPlan,
    add_output_options,
    combine_options,
    encode_json,
    plan_output,
    print_notice,
    render_document,
    supports_color,
    write_output,
)
from ragfault.options.records import add_fields, merge_margins, take_fields
from ragfault.options.runs import human_labels_option, load_paired_labels, rejudge_baseline
from ragfault.options.settings import add_config_option, add_executor_options, add_git_option, load_settings

if TYPE_CHECKING:
    from ragfault.comparison.paired_runs import PairedRuns
    from ragfault.report.document import ReportDocument

VERDICT_EXIT_CODES = {"no fault": 0, "recovered": 0, "fault": 1, "cannot tell": 3}
"""The verdict of a bisection, or of a sequence of runs, → the exit code."""

FORMATS = ("html", "md")
"""The formats of both verbs, beside the terminal's and JSON."""

_add_comparison_options = combine_options(
    add_fields(BisectionSettings, "margin", "margins", "alpha", "power", "seed"),
    click.option("--by", help="Also test each segment, with correction: route, conversation, metadata.KEY, …"),
    add_fields(GateSettings, "flakiness", "anyway"),
    click.option("--rejudge", is_flag=True, help="Judge BASELINE again with the judge of CANDIDATE."),
    add_executor_options,
    add_fields(HistorySettings, "sample"),
    human_labels_option,
    click.option("--full", is_flag=True, help="Print every metric, the tests and more examples, too."),
    add_output_options(*FORMATS),
)
"""Add the options of both verbs."""


@click.command(
    epilog="""\b
Examples:
  ragfault compare runs/v1 runs/v2
  ragfault compare runs/v1 runs/v2 --margin 0.02 --margins latency=50
  ragfault compare runs/v1 runs/v2 --by route
  ragfault compare runs/old runs/v2 --rejudge -o compare.md
  ragfault compare runs/v1 runs/v2 --human-labels v1-labels.jsonl --human-labels v2-labels.jsonl

\b
Terms also come from ragfault.toml:
  [compare]
  margin = 0.05
  alpha = 0.05
  [compare.margins]
  latency = 50

Exit code 0 whatever changed: bisect and gate are the commands that decide."""
)
@click.argument("baseline", type=click.Path())
@click.argument("candidate", type=click.Path())
@_add_comparison_options
@add_config_option
def compare(baseline: str, candidate: str, **options: Any) -> None:
    """Compare two runs on the traces they share: each metric worse, better, steady, or cannot tell.

    Traces are paired by id, else by query. "Steady" is shown by an equivalence test within the margin; it is
    not merely the absence of a change.
    """
    from ragfault.comparison import compare as paired_comparison

    plan = plan_output(options, *FORMATS)
    named, settings = parse_margins(options["margins"]), _read_settings(options)
    with tempfile.TemporaryDirectory() as folder:
        side = _pair_runs(baseline, candidate, options, settings, folder)
        _check_margins(side, named)
        if options["by"]:
            result: Any = paired_comparison.compare_segments(side, options["by"], settings)
            _require_segments(result, options["by"])
        else:
            result = paired_comparison.compare(side, None, settings=settings)
    write_output(plan, _plan_rendering(result, options), options)
    pages = result if isinstance(result, list | tuple) else [result]
    if plan.printed == "terminal" and any(change.verdict == "worse" for page in pages for change in page.changes):
        click.echo(f"The layer to blame: ragfault bisect {shlex.quote(baseline)} {shlex.quote(candidate)}", err=True)


@click.command(
    epilog="""\b
Examples:
  ragfault bisect runs/v1 runs/v2
  ragfault bisect runs/v1 runs/v2 -o bisect.html
  ragfault bisect runs/v1 runs/v2 --format md >> "$GITHUB_STEP_SUMMARY"
  ragfault bisect runs/v1 runs/v2 --by route --margins groundedness=0.05
  ragfault bisect runs/monday runs/tuesday runs/wednesday
  ragfault bisect runs --cause not-retrieved
  ragfault bisect runs/v1 runs/v2 --config v1.yaml v2.yaml
  git bisect run sh -c './evaluate.sh ../new || exit 125; ragfault bisect ../good ../new --git'

\b
evaluate.sh stands for what answers the queries with the code of a commit, and evaluates the traces.
ragfault ci does both: see docs/ci.md.

\b
Terms also come from the table [compare] of ragfault.toml, as for compare.

Exit code 0: no layer broke, and that is shown, or all that broke between RUNS has recovered; 1: a fault;
3: the data cannot tell."""
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(), metavar="BASELINE CANDIDATE | RUNS...")
@_add_comparison_options
@add_fields(HistorySettings, "causes")
@click.option(
    "--config",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="Settings file; or the two files that configured BASELINE and CANDIDATE: --config old.yaml new.yaml.",
)
@add_git_option
def bisect(runs: tuple[str, ...], config: tuple[str, ...], **options: Any) -> int:
    """Name the layer that broke between two runs: retrieval, generation, or the source data.

    Walks a decision tree on tested changes and says what was ruled out and why, what to look at, how to
    fix it, with example traces; or that the data cannot tell, and about how many traces would.

    Of three or more RUNS, oldest first, or of a folder that holds runs, it bisects each step and the last run against
    the first, and finds the runs at which each metric got worse and at which it recovered.
    """
    from ragfault.comparison import bisection
    from ragfault.comparison.attribution.config_differences import match_settings
    from ragfault.diagnosis.attempts.plan import propose_attempts
    from ragfault.report.comparison_wording import combine_verdicts, summarize_segments, summarize_verdict

    runs, configs, options["config"] = _separate_configs(runs, config)
    runs = _expand_folder(runs)
    plan, by = plan_output(options, *FORMATS), options["by"]
    named, settings = parse_margins(options["margins"]), _read_settings(options)
    if len(runs) == 2 and settings.causes:
        raise UsageError("--cause follows a cause over three or more runs: name more RUNS, or leave it out.")
    if len(runs) != 2:
        if configs:
            raise UsageError("two configurations need exactly two runs: bisect the run that broke and the one before.")
        return _locate_breaking_run(runs, plan, settings, options)
    with tempfile.TemporaryDirectory() as folder:
        side = _pair_runs(*runs, options, settings, folder)
        _check_margins(side, named)
        result: Any = bisection.bisect_segments(side, by, settings) if by else bisection.bisect_pairs(side, settings)
        if by:
            _require_segments(result, by)
        elif configs:
            result = match_settings(result, *configs)
    verdict = combine_verdicts(segment for _, segment in result) if by else result.verdict
    summary = f"{verdict}: {summarize_segments(result, by) if by else summarize_verdict(result)}"
    write_output(plan, _plan_rendering(result, options), options, summary)
    if verdict == "cannot tell" and not by:
        print_notice(f"next: {propose_attempts(*side.matrices)}")
    return VERDICT_EXIT_CODES[verdict]


def _separate_configs(
    runs: tuple[str, ...], config: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    """Return the runs, the configurations of two runs, and the settings file.

    A lone `--config` is the settings file; with a second one, or with a configuration file among the runs, they are
    the configurations.
    """
    from ragfault.comparison.attribution.config_differences import CONFIG_SUFFIXES

    beside = tuple(run for run in runs if run.lower().endswith(CONFIG_SUFFIXES) and not Path(run).is_dir())
    configs = (*config, *beside)
    if not beside and len(configs) < 2:
        return runs, (), configs[0] if configs else None
    if len(configs) != 2:
        raise UsageError(f"--config takes the two files of BASELINE and CANDIDATE, got {len(configs)}.")
    return tuple(run for run in runs if run not in beside), configs, None


def _expand_folder(runs: tuple[str, ...]) -> tuple[str, ...]:
    """Expand the runs as they were named, or those in the one folder that was, the oldest first."""
    from ragfault.io.runs.run import Run

    if len(runs) != 1:
        return runs
    folder = Path(runs[0])
    if not folder.is_dir() or (folder / "manifest.json").exists():
        raise UsageError(f"bisect takes two runs, BASELINE and CANDIDATE, or a folder of runs; not {runs[0]} alone.")
    folders = [place.parent for place in sorted(folder.glob("*/manifest.json"))]
    if len(folders) < 2:
        raise UsageError(f"{folder} holds {len(folders)} runs: bisect takes two or more.")
    return tuple(str(run) for run in sorted(folders, key=lambda place: Run.open(place).manifest.created))


def _locate_breaking_run(
    runs: tuple[str, ...], plan: OutputPlan, settings: HistorySettings, options: dict[str, Any]
) -> int:
    """Find the runs at which a sequence broke and recovered; the exit code is that of its verdict."""
    from ragfault.comparison.run_history import history
    from ragfault.io.runs.run import Run
    from ragfault.report.builders.run_history import summarize_history

    pair_options = ("by", "rejudge", "ray", "workers", "human_labels", "flakiness")
    void = [f"--{name.replace('_', '-')}" for name in pair_options if options[name]]
    if void:
        raise UsageError(
            f"{', '.join(void)}: not for {len(runs)} runs. Find the run first, then bisect it and the one before."
        )
    result = history([Run.open(run) for run in runs], settings)
    write_output(plan, _plan_rendering(result, options), options, summarize_history(result))
    return VERDICT_EXIT_CODES[result.verdict]


def _plan_rendering(result: Any, options: dict[str, Any]) -> Callable[[str, bool], str]:
    """Plan how a result is rendered: on a screen the lead, unless all was asked for; elsewhere all."""
    by = options["by"] or ""

    def render(kind: str, screen: bool) -> str:
        if kind == "json":
            return _encode_result(result, by)
        from ragfault.comparison.records import Comparison
        from ragfault.comparison.run_history import RunHistory

        if kind == "terminal" and screen and not options["full"] and not isinstance(result, RunHistory):
            return _render_first_screen(result, by)

        parts = result if isinstance(result, list) else [result]
        command = "comparison" if isinstance(parts[0], Comparison) else "bisection"
        return render_document(_build_document(result, by), kind, screen, command)

    return render


def _encode_result(result: Any, by: str) -> str:
    """Encode a result as JSON; the bisections of segments are one document."""
    if by and isinstance(result[0], tuple):
        from ragfault.report.json_documents import combine_segments

        return encode_json(combine_segments(result, by))
    return encode_json(result)


def _render_first_screen(result: Any, by: str) -> str:
    """Render the lead with as many causes as fit on the first screen."""
    from ragfault.report.builders.answer_changes import SCREEN_LINES, build_first_screens
    from ragfault.report.renderers.terminal import render_first_fitting

    screens = build_first_screens(lambda causes: _build_document(result, by, causes))
    return render_first_fitting(screens, SCREEN_LINES, color=supports_color())


def _build_document(result: Any, by: str, causes: int | None = None) -> ReportDocument:
    """Build the report of a comparison or a bisection, those of segments, or the history of a sequence of runs."""
    from ragfault.comparison.records import Comparison
    from ragfault.comparison.run_history import RunHistory
    from ragfault.report.builders.bisection import build_bisection
    from ragfault.report.builders.comparison import build_comparison
    from ragfault.report.builders.run_history import build_history

    if isinstance(result, RunHistory):
        return build_history(result)
    parts = result if isinstance(result, list) else [result]
    if isinstance(parts[0], Comparison):
        return build_comparison(result, causes=causes)
    return build_bisection(result, by, causes=causes)


def _read_settings(options: dict[str, Any]) -> HistorySettings:
    """Read the settings of the comparison: those of the flags, else of the settings file."""
    table = load_settings(options["config"]).get("compare", {})
    return HistorySettings(**merge_margins(take_fields(HistorySettings, options, table), table))


def _pair_runs(
    baseline: str, candidate: str, options: dict[str, Any], settings: HistorySettings, folder: str
) -> PairedRuns:
    """Pair the two runs side by side, the baseline judged again where that was asked for."""
    from ragfault.comparison.paired_runs import pair_runs
    from ragfault.io.runs.run import Run
    from ragfault.labels.judges.flakiness import load_flakiness

    old, new = Run.open(baseline), Run.open(candidate)
    executor = {name: options[name] for name in ("workers", "ray") if options[name] is not None}
    if options["rejudge"]:
        old = rejudge_baseline(old, new, Path(folder), executor=executor)
    elif executor:
        raise UsageError("--ray and --workers say where --rejudge judges. Give --rejudge, or leave them out.")
    people = load_paired_labels(options["human_labels"], old, new)
    flakiness = load_flakiness(options["flakiness"]) if options["flakiness"] else None
    return pair_runs(old, new, anyway=settings.anyway, labels=people, flakiness=flakiness, sample=settings.sample)


def _check_margins(side: PairedRuns, margins: Mapping[str, float]) -> None:
    """Check that every metric with a margin of its own is compared."""
    from ragfault.comparison.decision_tree import EQUAL_DEPTH
    from ragfault.diagnosis.score_matrix import match_metrics

    names = [EQUAL_DEPTH, *side.shared_names()]
    for name in margins:
        match_metrics(name, names, "metric in both runs")


def _require_segments(segments: Sequence[Any], by: str) -> None:
    if not segments:
        raise UsageError(f"no paired trace of the baseline has a {by}: a ratio is not possible.")
