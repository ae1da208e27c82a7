"""Trials on other processes or machines: questions that workers take through several configurations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from ragfault.apps.tune.results import QuestionOutcome, TuningQuestion
from ragfault.apps.tune.trials import CachedStep, TrialRunner, TuningCache, parse_tuning_metric
from ragfault.model.records import Document
from ragfault.retrieval.pipeline_config import PipelineConfig

LEAST_SECONDS = 20.0
"""Work that takes less is done in this process: workers start anew for each round, in some seconds."""
QUESTIONS_PER_ITEM = 16
"""Questions that a worker takes at a time."""


def measure_elsewhere(
    runner: TrialRunner,
    configs: Sequence[PipelineConfig],
    questions: Sequence[TuningQuestion],
    least_seconds: float = LEAST_SECONDS,
) -> None:
    """Run configurations on questions by the workers of the executor, so that the runner has the outcomes.

    A worker takes some questions through all of the configurations, since these share their first stages. The first
    questions are run here: where they let expect that the rest takes less than `least_seconds`, starting workers would
    take longer, and nothing else is done, as without an executor. Raises what `TrialRunner.measure` does.
    """
    known = [runner.outcomes.get(config.name, {}) for config in configs]
    missing = [question for question in questions if any(question.id not in outcomes for outcomes in known)]
    if runner.executor is None or len(missing) <= QUESTIONS_PER_ITEM:
        return
    first, missing = missing[:QUESTIONS_PER_ITEM], missing[QUESTIONS_PER_ITEM:]
    for config in configs:
        runner.cache.get_index(config)
    start = time.perf_counter()
    for config in configs:
        runner.measure(config, first)
    if (time.perf_counter() - start) / len(first) * len(missing) < least_seconds:
        return
    # workers on the same disk go on from there
    runner.cache.flush()
    task = TrialTask(runner.cache.folder, runner.cache.documents, str(runner.metric))
    places = range(0, len(missing), QUESTIONS_PER_ITEM)
    items = ((configs, missing[place : place + QUESTIONS_PER_ITEM]) for place in places)
    for batch in runner.executor.map_unordered(task, items):
        runner.check_deadline()
        for name, outcomes in batch.outcomes.items():
            runner.outcomes.setdefault(name, {}).update(outcomes)
        for key, steps in batch.steps.items():
            for query, step in steps.items():
                runner.cache.put_step(key, query, step)
        runner.computed_seconds |= batch.seconds


class TrialBatch(Struct, frozen=True, kw_only=True):
    """Results of a worker: outcomes by configuration and question, results of stages, and their seconds."""

    outcomes: dict[str, dict[str, QuestionOutcome]]
    steps: dict[str, dict[str, CachedStep]]
    seconds: dict[str, float]


class TrialTask:
    """Task of a worker: run configurations on questions.

    Indexes are those of the cache where the worker sees its folder, else the worker builds its own.
    """

    def __init__(self, folder: Path | None, documents: Sequence[Document], metric: str) -> None:
        self._folder, self._documents, self._metric = folder, documents, metric
        self._runner: TrialRunner | None = None

    def __call__(self, item: tuple[Sequence[PipelineConfig], Sequence[TuningQuestion]]) -> TrialBatch:
        """Return what the configurations make of the questions."""
        if self._runner is None:
            is_shared = self._folder is not None and (self._folder / "index").is_dir()
            cache = TuningCache(self._folder if is_shared else None, self._documents)
            self._runner = TrialRunner(cache, parse_tuning_metric(self._metric))
        runner, (configs, questions) = self._runner, item
        runner.outcomes, runner.computed_seconds = {}, {}
        for config in configs:
            runner.measure(config, questions)
        steps = runner.cache.take_unsaved(question.query for question in questions)
        return TrialBatch(outcomes=runner.outcomes, steps=steps, seconds=runner.computed_seconds)
