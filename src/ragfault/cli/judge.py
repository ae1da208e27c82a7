"""Command group `judge`: measure, calibrate, compare, repeat and card."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import click

from ragfault.judges.loading import DEFAULT_JUDGE, count_metered
from ragfault.labels.settings import (
    ClarificationSettings,
    JudgeComparisonSettings,
    LabelSettings,
    MeasurementSettings,
    RepetitionSettings,
)
from ragfault.model.errors import UsageError
from ragfault.options.label_results import EXIT_NOT_SHOWN, derive_from_labels, run_with_labels, show_result
from ragfault.options.llm_judge import add_llm_options, print_estimate, resolve_judge_options
from ragfault.options.output import add_result_options, encode_json, json_option, print_notice, print_report
from ragfault.options.records import add_fields, take_fields
from ragfault.options.runs import show_progress
from ragfault.options.settings import (
    add_executor_options,
    add_label_options,
    add_trace_options,
    calibration_option,
    load_settings,
    pick_trace_options,
)

F = TypeVar("F", bound=Callable[..., Any])


@click.group(
    epilog="""\b
Examples:
  ragfault judge measure labelled.jsonl --by task
  ragfault judge calibrate labelled.jsonl -o calibration.json
  ragfault judge compare lexical embedded traces.jsonl
  ragfault judge card"""
)
def judge() -> None:
    """Measure a judge against human labels, calibrate it to them, compare it with another, and show its card."""


@judge.command(
    epilog="""\b
Examples:
  ragfault judge measure labelled.jsonl
  ragfault judge measure labelled.jsonl.gz --within task,model --by task --limit 2000
  ragfault judge measure claims.csv --map query=claim --map answer=claim --map chunks=evidence --positive refuted
  ragfault judge measure passages.parquet --task relevance --positive 2 --within query
  ragfault judge measure labelled.jsonl -o agreement.json --html agreement.html
  ragfault judge measure labels.jsonl --run runs/today --card .ragfault/cards/mine.json"""
)
@click.argument("labels", nargs=-1, required=True)
@add_fields(MeasurementSettings)
@add_label_options
@calibration_option
@add_result_options("measurement")
@click.option("--html", type=click.Path(), help="Write figures and charts to this HTML page.")
@click.option(
    "--card",
    "cards",
    type=click.Path(),
    help="Add the figures to the card of the judge, as JSON or Markdown by suffix. Reports show the card "
    "in .ragfault/cards.",
)
def measure(
    labels: tuple[str, ...],
    out: str | None,
    html: str | None,
    cards: str | None,
    force: bool,
    quiet: bool,
    kind: str | None,
    **options: Any,
) -> None:
    """Measure how far a judge agrees with people.

    LABELS are files of traces as for evaluate, each with its human label in a column: `label`,
    `hallucinated`, `grade`, … or the one of --map label=COLUMN; marked stretches of the answer in `spans`.
    Traces without a label are counted and left out.

    With --run they are the labels that `ragfault label` wrote on that run, and its verdicts are measured as they
    stand, or those of another --judge on the same traces.
    """
    from ragfault.labels.judges.measuring import measure_judge
    from ragfault.report.output import check_output_path

    for path in (out, html):
        if path is not None:
            check_output_path(path, force=force)
    measurement = run_with_labels(measure_judge, MeasurementSettings, labels, {**options, "out": out}, quiet=quiet)
    from ragfault.report.builders.agreement import build_measurement

    output = {"out": out, "html": html, "force": force, "quiet": quiet, "kind": kind}
    show_result(measurement, build_measurement, output, "judge measure")
    if cards is not None:
        print_notice(f"written: {_write_card(measurement, Path(cards), force)}")


@judge.command(
    epilog="""\b
Examples:
  ragfault judge calibrate labelled.jsonl -o calibration.json
  ragfault judge calibrate labels.jsonl --run runs/today -o calibration.json
  ragfault judge calibrate runs/stronger --judge embedded -o calibration.json
  ragfault evaluate traces.jsonl --calibration calibration.json

Exit code 3: the labels do not show that a calibration helps; nothing is written."""
)
@click.argument("labels", nargs=-1, required=True)
@add_label_options
@add_result_options("calibration")
def calibrate(labels: tuple[str, ...], **options: Any) -> int:
    """Calibrate the probabilities of a judge to your own labels, for --calibration of evaluate, gate and serve.

    LABELS are read as by `judge measure`; a run that a stronger judge made of the same traces serves as well. Printed
    is what the calibration changes on labels that it was not fitted on: five folds of whole groups.
    """
    from ragfault.labels.judges.calibration import calibrate_judge
    from ragfault.report.builders.agreement import build_calibration

    return derive_from_labels(calibrate_judge, LabelSettings, build_calibration, attrgetter("helps"), labels, options)


def _write_card(measurement: Any, path: Path, force: bool) -> Path:
    """Write a measurement to a card: added to a card of the same judge, else in a new file."""
    from ragfault.judges.cards.card import read_card
    from ragfault.labels.judges.measurement import build_card
    from ragfault.report.builders.judges import build_judge_card
    from ragfault.report.output import write_report_file
    from ragfault.report.renderers.markdown import render_markdown

    command = " ".join(["ragfault", *map(shlex.quote, sys.argv[1:])])
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() in (".md", ".markdown"):
        return write_report_file(path, render_markdown(build_judge_card(build_card(measurement, command))), force=force)
    old = read_card(path) if path.is_file() else None
    mine = old is not None and old.fingerprint == measurement.judge
    return write_report_file(path, encode_json(build_card(measurement, command, old)), force=force or mine)


@judge.command(
    epilog="""\b
Examples:
  ragfault judge card
  ragfault judge card lexical --markdown > judge.md"""
)
@click.argument("name", default=DEFAULT_JUDGE, metavar="[NAME | FILE]")
@json_option
@click.option("--markdown", "kind", flag_value="markdown", help="As Markdown.")
def card(name: str, kind: str | None) -> None:
    """Show what is known of the judge NAME (by default of the default judge), or the card in FILE.

    What it reads and was made from, how far it agrees with people on each set of labels, and what it gets wrong.
    """
    from ragfault.judges.cards.card import load_card, read_card
    from ragfault.report.builders.judges import build_judge_card
    from ragfault.report.renderers.markdown import render_markdown

    judge_card = read_card(name) if Path(name).is_file() else load_card(name)
    if kind == "markdown":
        click.echo(render_markdown(build_judge_card(judge_card)), nl=False)
    else:
        print_report(judge_card, kind, build_judge_card)


@judge.command(
    epilog="""\b
Examples:
  ragfault judge compare lexical embedded labelled.jsonl
  ragfault judge compare embedded llm:gpt-4o-mini traces.jsonl --budget 2 --limit 200 -o compared.json
  ragfault judge compare runs/embedded runs/model labels.jsonl --html compared.html

Exit code 0: the labels decide, or there are none; 3: they do not tell which judge is better."""
)
@click.argument("first", metavar="JUDGE_A | RUN_A")
@click.argument("second", metavar="JUDGE_B | RUN_B")
@click.argument("traces", nargs=-1, metavar="[TRACES | LABELS]...")
@add_fields(JudgeComparisonSettings)
@add_llm_options
@add_trace_options
@click.option("-o", "--out", type=click.Path(), help="Write the comparison as JSON to this file.")
@click.option("--html", type=click.Path(), help="Write the comparison as one HTML page.")
@click.option("--force", is_flag=True, help="Replace existing files OUT and HTML.")
@json_option
@click.option("-q", "--quiet", is_flag=True, help="No progress bar and no table.")
def compare(first: str, second: str, **options: Any) -> int:
    """Say which of two judges is better on labels of people, and how far they agree on the same TRACES.

    TRACES with labels, as for `judge measure`, decide which one is better; without labels the verb prints only their
    agreement by kind of verdict and by metric, and where they differ most. Two finished runs represent their judges:
    RUN_A and RUN_B, of the same traces, with LABELS of `ragfault label` on RUN_A; nothing is judged again.
    """
    from ragfault.report.builders.judges import build_judges
    from ragfault.report.output import check_output_path

    for place in (options["out"], options["html"]):
        if place is not None:
            check_output_path(place, force=options["force"])
    comparison = _compare_judges((first, second), options)
    show_result(comparison, build_judges, options, "judge compare")
    return EXIT_NOT_SHOWN if comparison.better is not None and not comparison.better.is_decided else 0


def _compare_judges(names: tuple[str, str], options: dict[str, Any]) -> Any:
    """Compare two judges on traces, or two runs."""
    from ragfault.io.runs.run import Run
    from ragfault.labels.judges.comparison import compare_judges, compare_run_judges

    traces, fields = options["traces"], take_fields(JudgeComparisonSettings, options)
    are_runs = all(Path(path).is_dir() for path in names)
    if not are_runs and any((Path(path) / "manifest.json").is_file() for path in names):
        # The other name is not a judge beside a run; the error says whether that run is unfinished or missing.
        for name in names:
            Run.open(name)
    if not traces and not are_runs:
        raise UsageError(
            f"{' and '.join(names)} are not two runs. Name the traces to judge: "
            f"ragfault judge compare {' '.join(names)} TRACES"
        )
    if are_runs:
        if len(traces) > 1:
            raise UsageError("two runs are compared on one file of labels. Name one, that of ragfault label.")
        sample = {"sample": fields["limit"]} if "limit" in fields else {}
        runs, labels = [Run.open(name) for name in names], traces[0] if traces else None
        return compare_run_judges(*runs, labels=labels, settings=JudgeComparisonSettings(**fields), **sample)
    table = load_settings(None).get("llm", {})
    paid = [name for name in names if count_metered(name)]
    if not paid:
        resolve_judge_options(names[0], options, table)
    first, second = (resolve_judge_options(name, options, table) if name in paid else {} for name in names)
    with show_progress(options["quiet"]) as progress:
        settings = JudgeComparisonSettings(**fields, options=(first, second), on_progress=progress)
        return compare_judges(names, list(traces) if len(traces) > 1 else traces[0], settings)


@judge.command(
    epilog="""\b
Examples:
  ragfault judge repeat traces.jsonl --judge llm:gpt-4o-mini -k 5 --limit 100 --budget 2 -o flakiness.json
  ragfault compare runs/v1 runs/v2 --flakiness flakiness.json"""
)
@click.argument("traces", nargs=-1, required=True)
@click.option("--judge", "name", default=DEFAULT_JUDGE, show_default=True, help="Judge to use.")
@add_fields(RepetitionSettings, "repeats")
@click.option("--limit", type=click.IntRange(1), help="Number of traces, drawn at random.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the sample.")
@add_executor_options
@add_llm_options
@add_trace_options
@add_result_options("spread of each metric")
def repeat(traces: tuple[str, ...], name: str, **options: Any) -> None:
    """Measure how far a judge differs from itself: the same TRACES judged several times over.

    Replies are not kept for this, and so paid for each time. compare, bisect and gate take the file with --flakiness.
    """
    from ragfault.labels.judges.runner import repeat_judge
    from ragfault.report.builders.judges import build_flakiness
    from ragfault.report.output import check_output_path

    if options["out"] is not None:
        check_output_path(options["out"], force=options["force"])
    judge_options = resolve_judge_options(name, options, load_settings(None).get("llm", {}))
    if count_metered(name):
        if options["cache"] not in (None, "none"):
            raise UsageError("judge repeat needs fresh replies and cannot use a cache. Leave out --cache.")
        judge_options["cache"] = "none"
    with show_progress(options["quiet"]) as progress:
        fields = take_fields(RepetitionSettings, options)
        settings = RepetitionSettings(**fields, options=judge_options, on_progress=progress)
        flakiness = repeat_judge(name, _sample_traces(traces, options), settings)
    show_result(flakiness, build_flakiness, options)


def _sample_traces(paths: tuple[str, ...], options: dict[str, Any]) -> list[Any]:
    """Sample the traces of files, or so many of them in an order drawn at random."""
    from ragfault.io.attempts import rename_attempts
    from ragfault.io.trace_reader import read_traces
    from ragfault.labels.annotation.sampling import shuffle_ids

    where = list(paths) if len(paths) > 1 else paths[0]
    by_id = {trace.id: trace for trace in rename_attempts(read_traces(where, **pick_trace_options(options)))}
    ids = list(by_id)
    return [
        by_id[name] for name in (shuffle_ids(ids, options["seed"])[: options["limit"]] if options["limit"] else ids)
    ]


@judge.command(
    epilog="""\b
Examples:
  ragfault judge repeat traces.jsonl --judge llm:gpt-4o-mini --rubrics rubrics.toml --limit 50 -o repeat.json
  ragfault judge rubric runs/today labels.csv --flakiness repeat.json -o proof.json
  ragfault gate runs/today --threshold "rubric(name=formal)>=0.9" --rubric-proof proof.json

Exit code 3: no rubric may decide a gate yet; the answer says why."""
)
@click.argument("run", type=click.Path())
@click.argument("labels", type=click.Path())
@click.option("--flakiness", type=click.Path(), help="Judge variability measured by `judge repeat -o`.")
@click.option("--rubrics", type=click.Path(), metavar="FILE", help="Rubrics that judged RUN, for --examples.")
@click.option(
    "--examples", type=click.Path(), metavar="FILE", help="Write --rubrics with examples from half of LABELS here."
)
@click.option(
    "--before", type=click.Path(), metavar="RUN", help="Prove on the other half that the examples of RUN help."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the intervals.")
@click.option("-o", "--out", type=click.Path(), help="Write the proof as JSON to this file.")
@click.option("--force", is_flag=True, help="Replace an existing file OUT.")
@json_option
@click.option("-q", "--quiet", is_flag=True, help="No table.")
def rubric(run: str, labels: str, flakiness: str | None, seed: int, before: str | None, **options: Any) -> int:
    """Measure how far the rubrics of RUN agree with people, and with themselves when judged again.

    LABELS are CSV or JSON Lines: trace, rubric, value, and by whom. `gate --rubric-proof` takes the file OUT.
    """
    from ragfault.labels.judges.flakiness import load_flakiness
    from ragfault.labels.reading.label_files import read_labels
    from ragfault.labels.rubrics.learning import prove_rubrics
    from ragfault.labels.rubrics.measurement import measure_rubrics
    from ragfault.report.builders.judges import build_rubrics

    if (options["rubrics"] is None) != (options["examples"] is None):
        raise UsageError("--rubrics FILE holds the rubrics that judged RUN, --examples FILE gets them: give both.")
    if options["examples"] is not None and not {before, flakiness, options["out"], options["kind"]} <= {None}:
        raise UsageError(
            "--examples writes rubrics and measures nothing. Leave out --before, --flakiness, -o and --json."
        )
    rows = read_labels(labels, "rubric values")
    if options["examples"] is not None:
        return _write_examples(run, rows, options)
    if before is not None:
        rows, lines = prove_rubrics(before, run, rows)
        print_notice("\n".join(lines))
    measured = measure_rubrics(run, rows, flakiness=load_flakiness(flakiness) if flakiness else None, seed=seed)
    show_result(measured, build_rubrics, options)
    return 0 if measured.usable else EXIT_NOT_SHOWN


def _write_examples(run: str, labels: list[Any], options: dict[str, Any]) -> int:
    from ragfault.labels.rubrics.learning import format_rubrics, learn_rubrics
    from ragfault.report.output import write_report_file

    rubrics, lines = learn_rubrics(options["rubrics"], run, labels)
    path = write_report_file(options["examples"], format_rubrics(rubrics), force=options["force"])
    print_notice("\n".join((str(path), *lines)))
    return 0


@judge.command(
    epilog="""\b
Examples:
  ragfault judge clarify runs/today labels.csv --judge llm:gpt-4o-mini --rubrics rubrics.toml --dry-run
  ragfault judge clarify runs/today labels.csv --judge llm:gpt-4o-mini --rubrics rubrics.toml --budget 2 -o clear.toml
  ragfault evaluate traces.jsonl -o runs/clear --judge llm:gpt-4o-mini --rubrics clear.toml

Exit code 3: no rewritten sentence is shown to agree better with people; nothing is written."""
)
@click.argument("run", type=click.Path())
@click.argument("labels", type=click.Path())
@click.option("--judge", "name", required=True, metavar="llm:MODEL", help="Judge that made RUN, with its options.")
@add_fields(ClarificationSettings)
@add_llm_options
@click.option("--dry-run", is_flag=True, help="Estimate calls, tokens and cost without sending anything.")
@click.option("-o", "--out", type=click.Path(), help="Write the rubrics with the clear sentence to this TOML file.")
@click.option("--force", is_flag=True, help="Replace an existing file OUT.")
@json_option
@click.option("-q", "--quiet", is_flag=True, help="No progress bar and no table.")
def clarify(run: str, labels: str, name: str, dry_run: bool, **options: Any) -> int:
    """Find the sentence of a rubric that people and the judge read in two ways, and rewrite it.

    LABELS are those of `judge rubric`, of the answers of RUN. The model names the sentence; each is also left out in
    turn. Rewritten sentences are tried on half of the labels, and the best one is kept if it helps on the other half.
    """
    from ragfault.judges.llm.judge import LLMJudge
    from ragfault.judges.loading import load_judge
    from ragfault.labels.reading.label_files import read_labels
    from ragfault.labels.rubrics.clarification import clarify_rubric, estimate_clarification
    from ragfault.report.builders.clarification import build_clarification
    from ragfault.report.output import check_output_path

    if options["out"] is not None:
        check_output_path(options["out"], force=options["force"])
    judge = load_judge(name, **resolve_judge_options(name, options, load_settings(None).get("llm", {})))
    if not isinstance(judge, LLMJudge):
        raise UsageError(f"rubrics are judged by a language model, and {name} is another judge. Name llm:MODEL.")
    rows, fields = read_labels(labels, "rubric values"), take_fields(ClarificationSettings, options)
    if dry_run:
        print_estimate(estimate_clarification(judge, run, rows, ClarificationSettings(**fields)), options["kind"])
        return 0
    with show_progress(options["quiet"]) as progress:
        settings = ClarificationSettings(**fields, on_progress=progress)
        search = clarify_rubric(judge, run, rows, settings)
    show_result(search, build_clarification, {**options, "out": None})
    if options["out"] is not None:
        _write_clarified(search.clarified, judge.settings.rubrics, options)
    return 0 if search.clarified is not None else EXIT_NOT_SHOWN


def _write_clarified(clarified: Any, rubrics: Any, options: dict[str, Any]) -> None:
    """Write the rubrics with the clarified one in its place, if there is one."""
    from ragfault.labels.rubrics.learning import format_rubrics
    from ragfault.report.output import write_report_file

    if clarified is None:
        print_notice(f"not written: {options['out']}")
        return
    text = format_rubrics([clarified if item.name == clarified.name else item for item in rubrics])
    print_notice(f"written: {write_report_file(options['out'], text, force=options['force'])}")
