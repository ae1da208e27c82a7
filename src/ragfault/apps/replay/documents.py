"""Documents that the command prints as JSON."""

from __future__ import annotations

from typing import Any

from ragfault.apps.replay.records import ChangeReplay, FixReplay, ReplayPlan, ReplayReport
from ragfault.comparison.ablation.step_repair import StepRepairs

DOCUMENTS: dict[str, tuple[Any, ...]] = {"replay": (ReplayReport, FixReplay, ChangeReplay, StepRepairs, ReplayPlan)}
"""Verb → the types of its document."""
