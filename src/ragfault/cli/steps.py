"""Command `steps`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.cli.options.output import json_option, print_json, print_notice, supports_color
from ragfault.cli.options.settings import add_trace_options, pick_trace_options

if TYPE_CHECKING:
    from ragfault.records import Trace


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
@add_trace_options
@json_option
def steps(run: str, failed: bool, worst: int, kind: str | None, **options: Any) -> None:
    """Name the first faulty step of each trace of RUN, a run or a file of traces with steps.

    For each trace: the set of steps that holds the first faulty one with 90 % confidence, the layer and kind of the
    fault, and what was seen. Exit code 1 where a step is faulty, 3 where it cannot be told, 0 otherwise.
    """
    from ragfault.analysis.steps import localize_faulty_steps
    from ragfault.reports.terminal.steps import render_steps_terminal

    findings = localize_faulty_steps(_read(run, options), failed=failed)
    if kind == "json":
        print_json(findings)
    else:
        click.echo(render_steps_terminal(findings, worst=worst, color=supports_color()), nl=False)
    statuses = {finding.status for finding in findings.traces}
    code = 1 if "fault" in statuses else 3 if "cannot tell" in statuses or not statuses else 0
    click.get_current_context().exit(code)


def _read(run: str, options: dict[str, Any]) -> Iterator[Trace]:
    from ragfault.io import read_traces
    from ragfault.io.runs import Run

    if (Path(run) / "manifest.json").is_file():
        return Run.open(run).traces()
    return read_traces(run, notice=print_notice, **pick_trace_options(options))
