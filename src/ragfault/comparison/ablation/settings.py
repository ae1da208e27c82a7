"""Settings of experiments in which parts of a system, or steps of an agent, are swapped and run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ragfault.comparison.settings import MARGIN
from ragfault.judges.loading import DEFAULT_JUDGE
from ragfault.model.settings import (
    Flag,
    NaturalInt,
    NonEmptyText,
    OpenShare,
    PositiveInt,
    PositiveNumber,
    Settings,
    TextList,
    declare,
)
from ragfault.model.work_settings import ignore_report

if TYPE_CHECKING:
    from ragfault.model.protocols import Judge

REPAIR_METRICS = ("factual_accuracy", "completeness", "groundedness")
SWAP_METRICS = (
    "context_relevance", "context_precision", "context_recall", "span_recall", "groundedness", "answer_relevance",
    "completeness", "token_f1", "factual_accuracy", "error",
)  # fmt: skip
"""The metrics of an experiment where none are named: few, since each costs the others power."""
ON_PROGRESS: Callable[[int, int], object] = declare(
    ignore_report, "Function that is called with the number of finished steps and of all."
)


class RepairSettings(Settings, frozen=True, kw_only=True):
    """How an agent is run again with repaired steps: `repair_steps` explains each field."""

    metrics: Sequence[str] = declare(
        REPAIR_METRICS, "Metric of the answers.", TextList, Flag(names=("-m", "--metrics"), default="three of answers")
    )
    judge: str | Judge = declare(DEFAULT_JUDGE, "Judge, as for `evaluate`.", NonEmptyText)
    margin: float = declare(MARGIN, "Loss that matters, of a metric's range.", PositiveNumber)
    seed: int = declare(0, "Of the resampling.", NaturalInt)
    confidence: float = declare(0.95, "Confidence of the intervals.", OpenShare, None)
    on_progress: Callable[[int, int], object] = ON_PROGRESS


class AblationSettings(Settings, frozen=True, kw_only=True):
    """How parts of a system are swapped, judged and tested: `ablate` explains each field."""

    permutations: int | None = declare(
        None, "Number of random orders in which the parts are swapped; None: every configuration.", PositiveInt, None
    )
    out: str | Path | None = declare(None, "Folder in which each configuration is left as a run.", NonEmptyText, None)
    metrics: str | Sequence[str] = declare(SWAP_METRICS, "Metrics whose change is divided.", TextList, None)
    judge: str | Judge = declare(DEFAULT_JUDGE, "Judge of the answers.", NonEmptyText, None)
    workers: int = declare(1, "Processes that judge.", PositiveInt, None)
    threads: int = declare(1, "Threads that run the parts on several queries at once.", PositiveInt, None)
    seed: int = declare(0, "Seed of the resampling.", NaturalInt, None)
    confidence: float = declare(0.95, "Confidence of the intervals.", OpenShare, None)
    resamples: int | None = declare(None, "Resamples of the intervals.", NaturalInt, None)
    margin: float = declare(MARGIN, "Smallest effect that matters, of a metric's range.", PositiveNumber, None)
    on_progress: Callable[[int, int], object] = ON_PROGRESS
    on_notice: Callable[[str], object] = declare(ignore_report, "Function that is called with messages for the user.")
