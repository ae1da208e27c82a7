"""Command `plan`."""

from __future__ import annotations

from typing import Any

import click

from ragfault.diagnosis.attempts.settings import PlanSettings
from ragfault.options.output import json_option, print_report
from ragfault.options.records import add_fields, take_fields


@click.command(
    epilog="""\b
Examples:
  ragfault plan --queries 200 --attempts 3
  ragfault plan --queries 200 --attempts 3 --drop 0.03 --run runs/v1 --metric groundedness"""
)
@click.option("--queries", type=click.IntRange(2), required=True, help="Queries of each run.")
@click.option("--attempts", type=click.IntRange(1), default=1, show_default=True, help="Attempts of each query.")
@add_fields(PlanSettings)
@json_option
def plan(queries: int, attempts: int, kind: str | None, **options: Any) -> None:
    """Say how likely a comparison of two runs finds a drop, and what other numbers of queries and attempts give.

    Both runs have the same queries. Without a run the variance is an assumption: right and wrong answers, 80 % of them
    right, and half of the variance within a query.
    """
    from ragfault.diagnosis.attempts.plan import plan_attempts
    from ragfault.report.builders.attempts import build_plan

    settings = PlanSettings(**take_fields(PlanSettings, options))
    print_report(plan_attempts(queries, attempts, settings), kind, build_plan)
