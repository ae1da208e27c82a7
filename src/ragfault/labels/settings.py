"""Settings of the labels that are read, and of the judges that are measured against them or against each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragfault.io.error_collector import OnBad
from ragfault.io.reading_settings import ReadingSettings
from ragfault.labels.judges.measurement import LabelTask
from ragfault.model.settings import (
    Flag,
    NaturalInt,
    NonEmptyText,
    PathText,
    PositiveInt,
    Settings,
    SeveralInt,
    TextList,
    declare,
)
from ragfault.model.work_settings import EXECUTOR, RAY, WORKERS, ignore_report

if TYPE_CHECKING:
    from ragfault.io.runs.run import Run
    from ragfault.judges.calibration import JudgeCalibration
    from ragfault.judges.domain.profile import DomainProfile
    from ragfault.model.protocols import Executor, Judge

RESAMPLES: int = declare(1000, "Resamples of the intervals.", PositiveInt, None)
ON_PROGRESS: Callable[[int, int], None] = declare(
    ignore_report, "Function that is called with the number of judged traces and of all."
)
TASK: LabelTask | None = declare(
    None, "Unit of the labels: answers, claims, or chunks.", LabelTask, Flag(default="inferred from the columns")
)
POSITIVE: str | float | Sequence[str | float] = declare(
    (),
    "Label value of a bad answer or claim; for relevance the lowest relevant grade.",
    TextList,
    Flag(metavar="VALUE"),
)
GROUP: str | None = declare(
    None,
    "Column of independent groups, kept whole in folds and resampling.",
    NonEmptyText,
    Flag(metavar="COLUMN", default="source_id, group, conversation or query"),
)
"""Declarations of fields that are the same for all that is measured."""


class LabelSettings(ReadingSettings, frozen=True, kw_only=True):
    """How labels are read, and which judge looks at their traces: `judge_labels` explains each field."""

    judge: str | Judge | None = declare(
        None, "Judge to use.", NonEmptyText, Flag(default="encoder; with `run`, the judge of the run")
    )
    run: str | Path | Run | None = declare(None, "LABELS are those of `ragfault label` on this run.", PathText)
    profile: str | Path | DomainProfile = declare(
        "general", "Domain profile, as for evaluate.", NonEmptyText, Flag(metavar="NAME|FILE")
    )
    task: LabelTask | None = TASK
    positive: str | float | Sequence[str | float] = POSITIVE
    group: str | None = GROUP
    limit: int | None = declare(
        None, "Judge at most about this many traces, drawn at random by whole groups.", PositiveInt
    )
    seed: int = declare(0, "Seed of the sample, the folds and the intervals.", NaturalInt)
    workers: int | None = WORKERS
    ray: str | None = RAY
    executor: Executor | None = EXECUTOR
    options: Mapping[str, Any] | None = declare(None, "Settings of a judge that is named.")
    calibration: str | Path | JudgeCalibration | None = declare(None, "Calibration of this judge.")
    on_bad: OnBad = declare("raise", "What becomes of lines and labels that cannot be read, as for `read_traces`.")
    on_progress: Callable[[int, int], None] = ON_PROGRESS
    on_notice: Callable[[str], object] = declare(ignore_report, "Function that is called with messages for the user.")


class MeasurementSettings(LabelSettings, frozen=True, kw_only=True):
    """How far a judge agrees with labels: `measure_judge` explains each field."""

    within: str | Sequence[str] = declare(
        (),
        "AUROC also within groups of these columns (a,b).",
        NonEmptyText,
        Flag(metavar="COLUMNS", default="pair, if there is one"),
    )
    by: str | Sequence[str] = declare(
        (),
        "Columns whose values get figures of their own (a,b).",
        NonEmptyText,
        Flag(metavar="COLUMNS", default="kind and language, if there are some"),
    )
    permutations: int | None = declare(
        None,
        "Judge so many traces once more with their chunks in another order.",
        NaturalInt,
        Flag(default="200; 0 for a judge that costs money"),
    )
    threshold: str | float = declare(
        "cv",
        "Threshold for F1: best on the other folds, the judge's own decision, or a score from 0 to 1.",
        NonEmptyText,
        Flag(metavar="cv|own|NUMBER"),
    )
    resamples: int = RESAMPLES


class JudgeComparisonSettings(ReadingSettings, frozen=True, kw_only=True):
    """How two judges are compared: `compare_judges` explains each field."""

    task: LabelTask | None = TASK
    positive: str | float | Sequence[str | float] = POSITIVE
    group: str | None = GROUP
    options: tuple[Mapping[str, Any], Mapping[str, Any]] = declare(({}, {}), "Settings of judges that are named.")
    limit: int | None = declare(
        None, "Number of traces, drawn at random.", PositiveInt, Flag(default="all; of two runs 10000")
    )
    seed: int = declare(0, "Seed of the sample and the intervals.", NaturalInt)
    workers: int | None = WORKERS
    ray: str | None = RAY
    executor: Executor | None = EXECUTOR
    resamples: int = RESAMPLES
    on_progress: Callable[[int, int], None] = ON_PROGRESS


class RepetitionSettings(Settings, frozen=True, kw_only=True):
    """How often a judge judges the same traces: `repeat_judge` explains each field."""

    repeats: int = declare(5, "So many times.", SeveralInt, Flag(names=("-k", "--repeats")))
    options: Mapping[str, Any] | None = declare(None, "Settings of a judge that is named.")
    metrics: Sequence[str] | None = declare(None, "Metrics whose spread is measured; None: those that read verdicts.")
    workers: int | None = WORKERS
    ray: str | None = RAY
    executor: Executor | None = EXECUTOR
    on_progress: Callable[[int, int], None] = ON_PROGRESS


class ClarificationSettings(Settings, frozen=True, kw_only=True):
    """Which rubric is searched for an unclear sentence: `clarify_rubric` explains each field."""

    rubric: str | None = declare(
        None, "Rubric that is searched.", NonEmptyText, Flag(metavar="NAME", default="the one that has labels")
    )
    on_progress: Callable[[int, int], None] = ON_PROGRESS
