"""Documents that the command prints as JSON."""

from __future__ import annotations

from typing import Any

from ragfault.apps.replay.records import ReplayPlan, ReplayReport

DOCUMENTS: dict[str, tuple[Any, ...]] = {"replay": (ReplayReport, ReplayPlan)}
"""Verb → the types of its document."""
