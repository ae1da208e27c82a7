"""Settings of the plan of a comparison."""

from __future__ import annotations

from ragfault.io.runs.run import AnyRun
from ragfault.model.settings import ClosedShare, NonEmptyText, PathText, PositiveNumber, Settings, declare

ASSUMED_VARIANCE, ASSUMED_NOISE = 0.16, 0.5
"""Variance of right and wrong answers of which 80 % are right, and the share of it that is noise; assumed where no run
is given, not measured."""


class PlanSettings(Settings, frozen=True, kw_only=True):
    """What a plan rests on: `plan_attempts` explains each field."""

    drop: float = declare(0.05, "Drop of the mean to find.", PositiveNumber)
    run: AnyRun | None = declare(None, "Run with several attempts whose variance is taken.", PathText)
    metric: str = declare("groundedness", "Metric of the run.", NonEmptyText)
    variance: float = declare(ASSUMED_VARIANCE, "Variance of one attempt.", PositiveNumber)
    noise: float = declare(ASSUMED_NOISE, "Share of the variance within a query.", ClosedShare)
