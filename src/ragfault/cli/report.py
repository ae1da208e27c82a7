"""`ragfault report` and `ragfault diagnose`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ragfault.cli.options import settings, setup
from ragfault.cli.rectify import rectifier, rectify
from ragfault.errors import UsageError

__all__ = ["colourful", "diagnose", "report", "show"]

FORMATS = {".html": "html", ".htm": "html", ".md": "md", ".json": "json", ".csv": "csv", ".txt": "terminal"}
"""Suffix of the output → format."""


@click.command(
    epilog="""\b
Examples:
  ragfault report runs/today
  ragfault report runs/today -o report.html
  ragfault report runs/today --format md >> "$GITHUB_STEP_SUMMARY"
  ragfault report runs/today --by conversation --worst 20
  ragfault report runs/today --corrected
  ragfault report runs/today --rectify labels.jsonl"""
)
@click.argument("run", type=click.Path())
@click.option("-o", "--out", type=click.Path(), help="Write to this file; its suffix names the format.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["terminal", "html", "md", "json", "csv"]),
    help="The format, if not by suffix.",
)
@click.option(
    "--by", default="route", show_default=True, help="Divide by this: route, model, metadata.KEY, …"
)
@click.option(
    "--worst", type=click.IntRange(0), default=10, show_default=True, help="How many of the worst traces."
)
@click.option(
    "--corrected", is_flag=True, help="Also correct rates of verdicts for the judge's error, by its card."
)
@click.option(
    "--like",
    metavar="SHAPE",
    help='Correct by the error on answers of this shape: "long answer" (usual), summary, "structured data", …',
)
@rectify
@click.option("--force", is_flag=True, help="Replace the file that stands at OUT.")
@setup
def report(
    run: str,
    out: str | None,
    kind: str | None,
    by: str,
    worst: int,
    corrected: bool,
    like: str | None,
    rectify: tuple[str, ...],
    force: bool,
    config: str | None,
) -> None:
    """Show RUN: the scorecard by layer, with intervals; what is wrong, on which traces, and what to change.

    In the terminal, or as one self-contained HTML page, Markdown, JSON or CSV.
    """
    from ragfault.report.saving import save
    from ragfault.runs import Run

    kind = kind or _format(out)
    opened = Run.open(run)
    options = {"n": worst, "by": by, "corrected": like or corrected, "people": rectifier(rectify, opened)}
    text = _render(opened, kind, {**options, **targets(settings(config))}, out is None)
    if out is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"{save(out, text, force=force)}", err=True)


def _format(out: str | None) -> str:
    """The format that the output's name asks for."""
    if out is None:
        return "terminal"
    suffix = Path(out).suffix.lower()
    if suffix not in FORMATS:
        raise UsageError(
            f'"{out}" does not say its format. End it in .html, .md, .json or .csv, or give --format.'
        )
    return FORMATS[suffix]


def _render(run: Any, kind: str, options: dict[str, Any], screen: bool) -> str:
    from ragfault.findings import find

    found = find(run, **options)
    if kind == "html":
        from ragfault.report.html import render_html

        return render_html(run, found)
    if kind == "md":
        from ragfault.report.markdown import render

        return render(found)
    if kind in ("json", "csv"):
        from ragfault.report.tables import to_csv, to_json

        return to_json(found) if kind == "json" else to_csv(found)
    from ragfault.report import terminal

    return terminal.render(found, width=None if screen else 100, colour=screen and colourful())


def show(run: Any, table: dict[str, Any], rectify: Sequence[str] = ()) -> None:
    """Print the scorecard of a run that was just made."""
    options = {"people": rectifier(rectify, run), **targets(table)}
    click.echo(_render(run, "terminal", options, True), nl=False)


def targets(table: dict[str, Any]) -> dict[str, Any]:
    """The targets of the settings file, in the form that `find` takes."""
    from ragfault.findings import TARGETS, read_bar

    given = table.get("targets", {})
    options: dict[str, Any] = {}
    if "bars" in given:
        mine = {bar.metric: bar for bar in (*TARGETS, *map(read_bar, given["bars"]))}
        options["targets"] = tuple(mine.values())
    if "routes" in given:
        options["routes"] = {route: tuple(map(read_bar, bars)) for route, bars in given["routes"].items()}
    return options


def colourful() -> bool:
    """Whether standard output is a terminal that wants colour."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


@click.command(
    epilog="""\b
Examples:
  ragfault diagnose runs/today
  ragfault diagnose runs/today ferry-12 ferry-40"""
)
@click.argument("run", type=click.Path())
@click.argument("ids", nargs=-1)
@click.option(
    "--worst",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Without IDS: how many of the worst.",
)
def diagnose(run: str, ids: tuple[str, ...], worst: int) -> None:
    """Show every problem of the traces IDS of RUN, with what mends it; without IDS, of the worst traces."""
    from ragfault.findings import diagnoses
    from ragfault.findings import worst as pick
    from ragfault.report import terminal
    from ragfault.runs import Run

    opened = Run.open(run)
    if ids:
        found = {each.trace: each for each in diagnoses(opened, ids)}
        shown = [found[name] for name in dict.fromkeys(ids)]
    else:
        shown = list(pick(opened, worst))
    click.echo(terminal.describe(shown, colour=colourful()), nl=False)
