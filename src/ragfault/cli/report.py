"""Commands `report` and `diagnose`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ragfault.cli.options.runs import human_labels_option, load_run_labels
from ragfault.cli.options.settings import add_config_option, load_settings
from ragfault.errors import UsageError

SUFFIX_FORMATS = {".html": "html", ".htm": "html", ".md": "md", ".json": "json", ".csv": "csv", ".txt": "terminal"}
"""Suffix of the output → format."""


@click.command(
    epilog="""\b
Examples:
  ragfault report runs/today
  ragfault report runs/today -o report.html
  ragfault report runs/today --format md >> "$GITHUB_STEP_SUMMARY"
  ragfault report runs/today --by conversation --worst 20
  ragfault report runs/today --corrected
  ragfault report runs/today --human-labels labels.jsonl"""
)
@click.argument("run", type=click.Path())
@click.option("-o", "--out", type=click.Path(), help="Write to this file; its suffix names the format.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["terminal", "html", "md", "json", "csv"]),
    help="The format, if not by suffix.",
)
@click.option("--by", default="route", show_default=True, help="Divide by this: route, model, metadata.KEY, …")
@click.option("--worst", type=click.IntRange(0), default=10, show_default=True, help="How many of the worst traces.")
@click.option("--corrected", is_flag=True, help="Also correct rates of verdicts for the judge's error, by its card.")
@click.option(
    "--like",
    metavar="SHAPE",
    help='Correct by the error on answers of this shape: "long answer" (usual), summary, "structured data", …',
)
@human_labels_option
@click.option("--force", is_flag=True, help="Replace an existing file OUT.")
@add_config_option
def report(
    run: str,
    out: str | None,
    kind: str | None,
    by: str,
    worst: int,
    corrected: bool,
    like: str | None,
    human_labels: tuple[str, ...],
    force: bool,
    config: str | None,
) -> None:
    """Show RUN: the scorecard by layer, with intervals; what is wrong, on which traces, and what to change.

    In the terminal, or as one self-contained HTML page, Markdown, JSON or CSV.
    """
    from ragfault.io.runs import Run
    from ragfault.reports.output import write_report_file

    kind = kind or _infer_format(out)
    opened = Run.open(run)
    options = {"n": worst, "by": by, "corrected": like or corrected, "labels": load_run_labels(human_labels, opened)}
    text = _render_run(opened, kind, {**options, **read_targets(load_settings(config))}, out is None)
    if out is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"{write_report_file(out, text, force=force)}", err=True)


def _infer_format(out: str | None) -> str:
    """Infer the format that the output's name asks for."""
    if out is None:
        return "terminal"
    suffix = Path(out).suffix.lower()
    if suffix not in SUFFIX_FORMATS:
        raise UsageError(f'"{out}" does not say its format. End it in .html, .md, .json or .csv, or give --format.')
    return SUFFIX_FORMATS[suffix]


def _render_run(run: Any, kind: str, options: dict[str, Any], screen: bool) -> str:
    from ragfault.analysis import analyze

    findings = analyze(run, **options)
    if kind == "html":
        from ragfault.reports.html.report import render_run_html

        return render_run_html(run, findings)
    if kind == "md":
        from ragfault.reports.markdown.scorecard import render_scorecard_markdown

        return render_scorecard_markdown(findings)
    if kind in ("json", "csv"):
        from ragfault.reports.output import encode_findings, encode_findings_csv

        return encode_findings(findings) if kind == "json" else encode_findings_csv(findings)
    from ragfault.reports.terminal import scorecard

    return scorecard.render_scorecard_terminal(
        findings, width=None if screen else 100, color=screen and supports_color()
    )


def print_scorecard(run: Any, table: dict[str, Any], human_labels: Sequence[str] = (), *, full: bool = False) -> None:
    """Print the verdict on a run that was just made; with `full` every table below it."""
    options = {"labels": load_run_labels(human_labels, run), **read_targets(table)}
    if full:
        click.echo(_render_run(run, "terminal", options, True), nl=False)
        return
    from ragfault.analysis import analyze
    from ragfault.reports.terminal.scorecard import render_summary_terminal

    findings = analyze(run, **options)
    click.echo(render_summary_terminal(findings, str(run.path), color=supports_color()), nl=False)


def read_targets(table: dict[str, Any]) -> dict[str, Any]:
    """Read the targets of the settings file, in the form that `find` takes."""
    from ragfault.analysis import TARGETS, parse_threshold

    given = table.get("targets", {})
    options: dict[str, Any] = {}
    if "thresholds" in given:
        mine = {threshold.metric: threshold for threshold in (*TARGETS, *map(parse_threshold, given["thresholds"]))}
        options["targets"] = tuple(mine.values())
    if "routes" in given:
        options["routes"] = {
            route: tuple(map(parse_threshold, thresholds)) for route, thresholds in given["routes"].items()
        }
    return options


def supports_color() -> bool:
    """Return whether standard output is a terminal that wants colour.

    NO_COLOR switches it off, and FORCE_COLOR on where there is no terminal, if they are not empty.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


@click.command(
    epilog="""\b
Examples:
  ragfault diagnose runs/today
  ragfault diagnose runs/today ferry-12 ferry-40"""
)
@click.argument("run", type=click.Path())
@click.argument("ids", nargs=-1)
@click.option(
    "--worst", type=click.IntRange(1), default=3, show_default=True, help="Without IDS: how many of the worst."
)
def diagnose(run: str, ids: tuple[str, ...], worst: int) -> None:
    """Show every problem of the traces IDS of RUN, with what mends it; without IDS, of the worst traces."""
    from ragfault.analysis import diagnose_run
    from ragfault.analysis import worst_traces as pick
    from ragfault.io.runs import Run
    from ragfault.reports.terminal import scorecard

    opened = Run.open(run)
    if ids:
        by_id = {diagnosis.trace: diagnosis for diagnosis in diagnose_run(opened, ids)}
        shown = [by_id[name] for name in dict.fromkeys(ids)]
    else:
        shown = list(pick(opened, worst))
    click.echo(scorecard.render_diagnoses_terminal(shown, color=supports_color()), nl=False)
