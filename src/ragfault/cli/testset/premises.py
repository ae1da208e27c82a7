"""Command `testset premises`."""

from __future__ import annotations

from pathlib import Path

import click

from ragfault.cli.options.output import json_option, print_json, print_notice

SHOWN = 20
"""Questions that are listed in the terminal."""


@click.command(
    epilog="""\b
Examples:
  ragfault testset premises traces.jsonl
  ragfault testset premises runs/today --json"""
)
@click.argument("traces", type=click.Path())
@json_option
def premises(traces: str, kind: str | None) -> None:
    """Check which questions of TRACES, a file or a run, their chunks do not answer, or answer to a false premise.

    A premise is false where a sentence of a chunk states another number than the question. Labels of answerability
    measure the probability, where there are some.
    """
    from ragfault.io import read_traces
    from ragfault.io.runs import Run
    from ragfault.reports.format import clean_text
    from ragfault.testsets.premises import check_premises

    is_run = (Path(traces) / "manifest.json").is_file()
    report = check_premises(Run.open(traces).traces() if is_run else read_traces(traces, notice=print_notice))
    if kind == "json":
        print_json(report)
        return
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(report.counts.items()))
    left = f"; {report.left_out:,} traces without the text of a chunk left out" if report.left_out else ""
    measured = "" if report.auroc is None else f"; AUROC against the labels {report.auroc:.2f}"
    click.echo(f"{len(report.checks):,} questions: {counts or 'none'}{left}{measured}")
    doubtful = [check for check in report.checks if check.outcome in ("false premise", "not answered")]
    for check in sorted(doubtful, key=lambda check: (check.outcome, check.probability))[:SHOWN]:
        click.echo(f"  {check.outcome} ({check.probability:.2f}): {clean_text(check.query)}")
        click.echo(f"    {clean_text(check.reason)}" + (f": “{clean_text(check.sentence)}”" if check.sentence else ""))
    if len(doubtful) > SHOWN:
        click.echo(f"  … and {len(doubtful) - SHOWN:,} more: --json lists all")
