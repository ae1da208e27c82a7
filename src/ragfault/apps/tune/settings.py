"""Settings of the tuning of pipelines and generators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ragfault.model.settings import (
    Flag,
    NaturalInt,
    NonEmptyText,
    OpenShare,
    PathText,
    PositiveInt,
    Settings,
    TextList,
    declare,
)
from ragfault.model.work_settings import EXECUTOR, RAY, WORKERS, ignore_report

if TYPE_CHECKING:
    from ragfault.apps.tune.results import Bound
    from ragfault.apps.tune.search_space import SearchSpace
    from ragfault.io.runs.run import Run
    from ragfault.model.protocols import Executor
    from ragfault.retrieval.pipeline_config import PipelineConfig

PositiveShare = Annotated[float, Meta(gt=0, le=1, description="a number above 0, up to 1")]


class TuneSettings(Settings, frozen=True, kw_only=True):
    """What is searched, within which bounds, and how the gain is measured: `tune` explains each field."""

    metric: str = declare("ndcg@10", "Metric to maximise; one computed from chunks and gold.", NonEmptyText)
    subject_to: str | Sequence[str] = declare(
        (),
        "Constraint on latency_p95, latency, tokens (<=), recall, precision or iou (>=).",
        TextList,
        Flag(metavar="BOUND"),
    )
    budget: str | float | None = declare(
        None,
        "Time limit, ending with the best pipeline so far: 10m, 90s, 1h.",
        NonEmptyText,
        Flag(metavar="TIME", default="none"),
    )
    baseline: PipelineConfig | str | Path | None = declare(
        None, "Current pipeline (pipeline.toml) to compare with.", PathText
    )
    space: SearchSpace | None = declare(None, "Values of each stage that are searched.")
    run: Run | str | Path | None = declare(
        None,
        "Search only the stages that the diagnosis of RUN names.",
        PathText,
        Flag(names=("--from",), metavar="RUN"),
    )
    cache: str | Path | None = declare(None, "Folder of results, which are not computed again.")
    holdout: float = declare(0.5, "Share of the questions held out for measuring.", OpenShare)
    seed: int = declare(0, "Seed of the split and the tests.", NaturalInt)
    workers: int | None = WORKERS
    ray: str | None = RAY
    executor: Executor | None = EXECUTOR
    progress: Callable[[str, int, int], None] = declare(
        ignore_report, "Function that is called with the step that is searched, its finished trials and all."
    )
    notice: Callable[[str], None] = declare(ignore_report, "Function that is called with messages for the user.")

    @property
    def bounds(self) -> tuple[str, ...]:
        """The texts of `subject_to`."""
        return (self.subject_to,) if isinstance(self.subject_to, str) else tuple(self.subject_to)


class GeneratorSettings(Settings, frozen=True, kw_only=True):
    """How a generator is chosen: the metric, the calls, the split of the questions and the bounds."""

    metric: str = declare("groundedness", "Metric to maximise.", NonEmptyText, Flag(names=("-m", "--metric")))
    subject_to: str | Sequence[str] = declare(
        (),
        "Constraint on cost, latency (median), latency_p95 or tokens of an answer (<=).",
        TextList,
        Flag(metavar="BOUND"),
    )
    holdout: float = declare(0.5, "Share of the questions that measure.", OpenShare)
    seed: int = declare(0, "Seed of the split.", NaturalInt)
    share: float | None = declare(
        None,
        "Share of the calls of the whole grid that race and measurement may take.",
        PositiveShare,
        Flag(default="no limit"),
    )
    repetitions: int = declare(1, "Answers to each question.", PositiveInt)
    control: bool = declare(True, "Measure second answers of the present generator, between which nothing differs.")
    null_replays: int = declare(
        0, "Repeat the choice so often with shuffled names, where nothing differs.", NaturalInt, Flag(metavar="N")
    )

    notice: Callable[[str], None] = declare(ignore_report, "Function that is called with messages for the user.")

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The bounds of `subject_to`."""
        # costs more than all settings
        from ragfault.apps.tune.search_space import ANSWER_FIGURES, parse_bound

        texts = (self.subject_to,) if isinstance(self.subject_to, str) else self.subject_to
        return tuple(parse_bound(text, ANSWER_FIGURES, ()) for text in texts)


class PromptSettings(GeneratorSettings, frozen=True, kw_only=True):
    """How a prompt is improved."""

    rounds: int = declare(6, "Prompts to try.", PositiveInt)
