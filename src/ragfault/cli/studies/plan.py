"""Command `plan`."""

from __future__ import annotations

from typing import Any

import click

from ragfault.options.output import json_option, print_report


@click.command(
    epilog="""\b
Examples:
  ragfault plan --queries 200 --attempts 3
  ragfault plan --queries 200 --attempts 3 --drop 0.03 --run runs/v1 --metric groundedness"""
)
@click.option("--queries", type=click.IntRange(2), required=True, help="Queries of each run.")
@click.option("--attempts", type=click.IntRange(1), default=1, show_default=True, help="Attempts of each query.")
@click.option(
    "--drop", type=click.FloatRange(0, min_open=True), default=0.05, show_default=True, help="Drop of the mean to find."
)
@click.option("--run", type=click.Path(), help="Run with several attempts whose variance is taken.")
@click.option("--metric", default="groundedness", show_default=True, help="Metric of the run.")
@click.option("--variance", type=click.FloatRange(0, min_open=True), help="Variance of one attempt.  [default: 0.16]")
@click.option("--noise", type=click.FloatRange(0, 1), help="Share of the variance within a query.  [default: 0.5]")
@json_option
def plan(kind: str | None, run: str | None, metric: str, **options: Any) -> None:
    """Say how likely a comparison of two runs finds a drop, and what other numbers of queries and attempts give.

    Both runs have the same queries. Without a run the variance is an assumption: right and wrong answers, 80 % of them
    right, and half of the variance within a query.
    """
    from ragfault.diagnosis.attempts.plan import plan_attempts
    from ragfault.report.builders.attempts import build_plan

    given = {name: value for name, value in options.items() if value is not None}
    result = plan_attempts(**given, run=run, metric=metric)
    print_report(result, kind, build_plan)
