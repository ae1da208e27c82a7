"""The search: step by step with a beam, each step decided by a race with successive halving."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from ragfault.apps.tune.generators.race import compute_lead_p_value
from ragfault.apps.tune.results import Bound, QuestionOutcome, SearchStep, TuningQuestion
from ragfault.apps.tune.search_space import SearchSpace, compute_violation, list_budget_selections
from ragfault.apps.tune.trial_workers import measure_elsewhere
from ragfault.apps.tune.trials import SearchBudgetSpent, TrialRunner
from ragfault.retrieval.pipeline_config import NO_EMBEDDER, PipelineConfig, replace_stage
from ragfault.retrieval.stage_registry import StageKind

FIRST_ROUND = 32
"""Questions of the first round; each next one has twice as many."""
DROP_CONFIDENCE = 0.98
"""With this confidence a candidate is worse than the leader before it is dropped."""

MeasureOutcomes = Callable[[Sequence[PipelineConfig], Sequence[TuningQuestion]], dict[str, list[QuestionOutcome]]]
"""Configurations and questions → the outcomes by the name of the configuration."""


class RaceResult(NamedTuple):
    """A candidate that came through, with its outcomes."""

    config: PipelineConfig
    outcomes: list[QuestionOutcome]
    value: float


def race_configs(
    candidates: Sequence[PipelineConfig], questions: Sequence[TuningQuestion], measure: MeasureOutcomes, keep: int = 1
) -> list[RaceResult]:
    """Return the best candidates over all questions, the best first: at most `keep`.

    Rounds of 32, 64, … questions, in their order. After each, candidates drop out that are worse than the leader beyond
    doubt (paired, one-sided, 98 %), and of the others the worse half, so far as more than twice `keep` are left:
    successive halving (Jamieson & Talwalkar 2016) with the races of Maron & Moore 1994. Of equal means the
    cheaper is the better.
    """
    field, sizes = list(candidates), plan_round_sizes(len(questions))
    runs: dict[str, list[QuestionOutcome]] = {}
    for size in sizes:
        runs = measure(field, questions[:size])
        field.sort(key=lambda config: _make_rank_key(runs[config.name]))
        if size == sizes[-1]:
            break
        values = {config.name: _collect_values(runs[config.name]) for config in field}
        leader = values[field[0].name]
        field = [config for config in field if compute_lead_p_value(leader - values[config.name]) > 1 - DROP_CONFIDENCE]
        field = field[: max(2 * keep, -(-len(field) // 2))]
        if len(field) <= 1 and len(candidates) > 1 and keep == 1:
            runs = measure(field, questions)
            break
    return [
        RaceResult(config, runs[config.name], float(_collect_values(runs[config.name]).mean()))
        for config in field[:keep]
    ]


def plan_round_sizes(questions: int) -> list[int]:
    """Return the number of questions in each round.

    >>> plan_round_sizes(150), plan_round_sizes(20)
    ([32, 64, 150], [20])
    """
    sizes, size = [], FIRST_ROUND
    while 2 * size <= questions:
        sizes.append(size)
        size *= 2
    return [*sizes, questions] if not sizes or sizes[-1] != questions else sizes


def _collect_values(outcomes: Sequence[QuestionOutcome]) -> np.ndarray[Any, Any]:
    return np.array([outcome.value for outcome in outcomes])


def _make_rank_key(outcomes: Sequence[QuestionOutcome]) -> tuple[float, float, float]:
    """Return the sort key: the greater value, then the shorter time, then the fewer tokens."""
    means = np.array([(outcome.value, outcome.ms, outcome.tokens) for outcome in outcomes]).mean(axis=0)
    return -round(float(means[0]), 9), float(means[1]), float(means[2])


BEAM_WIDTH = 3
"""Candidates kept from one step to the next: the best alone need not be the best with the steps that follow."""
DEFAULT_FUSION = "hybrid(k=50, method=sum)"
"""Retrieval stage with which a new embedder is first tried."""
MIN_STAGE_GAIN = 0.005
"""Minimum gain of an additional stage on the selection questions."""

ProgressCallback = Callable[[str, int, int], None]


class SearchResult(NamedTuple):
    """Result of a search."""

    config: PipelineConfig
    steps: tuple[SearchStep, ...]
    stopped_at: str | None
    """The step at which the budget was spent."""
    notes: tuple[str, ...]


class PipelineSearch:
    """One search over a space, from a start configuration, on the selection questions."""

    def __init__(
        self,
        runner: TrialRunner,
        space: SearchSpace,
        start: PipelineConfig,
        questions: Sequence[TuningQuestion],
        bounds: Sequence[Bound] = (),
        workers: int = 1,
    ) -> None:
        self.runner, self.space, self.start = runner, space, start
        self.questions, self.bounds = tuple(questions), tuple(bounds)
        self.workers = workers
        self.progress: ProgressCallback = lambda *_: None
        self.steps: list[SearchStep] = []
        self.beam = [start]
        """The beam: what goes to the next step, the best first."""

    def run(self, progress: ProgressCallback = lambda *_: None) -> SearchResult:
        """Search until the end or until the budget is spent; what is best so far is returned in either case."""
        self.progress = progress
        steps: list[tuple[str, str, Callable[[], list[PipelineConfig]]]] = [
            ("pre-processing", "chunker", self._search_chunkers),
            ("pre-processing", "embedder", self._search_embedders),
            ("retrieval", "retrieve", self._search_retrievals),
            ("retrieval", "query", lambda: self._search_added_stage("query", self.space.queries)),
            ("selection", "rerank", lambda: self._search_added_stage("rerank", self.space.rerankers)),
            ("selection", "select", self._search_selections),
            ("selection", "compress", lambda: self._search_added_stage("compress", self.space.compressions)),
        ]
        for phase, step, search in steps:
            if phase not in self.space.phases:
                continue
            begin, before = time.monotonic(), len(self.steps)
            try:
                self.beam = search() or self.beam
            except SearchBudgetSpent:
                return SearchResult(self._choose_config(), tuple(self.steps), step, self._describe_violation())
            finally:
                self.runner.cache.flush()
            if len(self.steps) > before:
                self.steps[-1] = replace(self.steps[-1], chosen=self.beam[0].name, seconds=time.monotonic() - begin)
        return SearchResult(self._choose_config(), tuple(self.steps), None, self._describe_violation())

    # --- the steps ---------------------------------------------------------------------------------

    def _search_chunkers(self) -> list[PipelineConfig]:
        """Search chunkers with sparse retrieval, which needs no embeddings."""
        # All are held to the same amount of text: a larger chunk is not a better one.
        select = (list_budget_selections(self.bounds) or (self.start.get_stage("select"),))[0]
        lean = PipelineConfig(stages={"retrieve": "sparse(k=50)", **({"select": select} if select else {})})
        names = dict.fromkeys([*self.space.chunkers, self.start.chunker])
        candidates = [replace(lean, chunker=name) for name in names]
        self.runner.cache.prebuild_indexes(candidates, self.workers)
        return [raced.config for raced in self._race_candidates("chunker", candidates, BEAM_WIDTH)]

    def _search_embedders(self) -> list[PipelineConfig]:
        """Search embedders with the best chunker, then the other chunkers with the best embedder."""
        leader, *followers = self.beam
        candidates = [leader, *(self._add_embedder(leader, name) for name in self.space.embedders)]
        self.runner.cache.prebuild_indexes(candidates, self.workers)
        winner = self._race_candidates("embedder", candidates, 2)[0].config
        if winner.embedder == NO_EMBEDDER:
            return [winner, *followers]
        more = [self._add_embedder(config, winner.embedder) for config in followers]
        return [result.config for result in self._race_candidates("embedder", [winner, *more], BEAM_WIDTH)]

    def _add_embedder(self, config: PipelineConfig, embedder: str) -> PipelineConfig:
        """Return a configuration with an embedder and a fusion by scores, which suffers least from a weak embedder."""
        return replace_stage(replace(config, embedder=embedder), "retrieve", DEFAULT_FUSION)

    def _search_retrievals(self) -> list[PipelineConfig]:
        """Search the retrieval stages and fusions for the beam."""
        candidates = [
            replace_stage(
                replace(config, embedder=NO_EMBEDDER) if text.startswith("sparse") else config, "retrieve", text
            )
            for config in self.beam
            for text in self.space.retrievals
            if config.embedder != NO_EMBEDDER or text.startswith("sparse")
        ]
        return [raced.config for raced in self._race_candidates("retrieve", [*self.beam, *candidates], BEAM_WIDTH)]

    def _search_added_stage(self, kind: StageKind, expressions: Sequence[str]) -> list[PipelineConfig]:
        """Add a stage where it gains enough: each candidate to each configuration of the beam."""
        if not expressions:
            return self.beam
        bare = list(
            {config.name: config for config in (replace_stage(config, kind, None) for config in self.beam)}.values()
        )
        more = [replace_stage(config, kind, text) for config in bare for text in expressions]
        raced = self._race_candidates(kind, [*more, *(config for config in self.beam if config not in bare)], 1)
        bare_outcomes = self._measure_all(bare)
        worthwhile = [result.config for result in raced if self._is_worthwhile(result, bare_outcomes)]
        ranked_bare = sorted(zip(bare_outcomes, bare, strict=True), key=lambda pair: -_mean_value(pair[0]))
        return [*worthwhile, *(config for _, config in ranked_bare)][:BEAM_WIDTH]

    def _search_selections(self) -> list[PipelineConfig]:
        """Search the selection stages: the number of chunks, and their choice."""
        beam, texts = self.beam, [*self.space.selections, *list_budget_selections(self.bounds)]
        candidates = [
            replace_stage(config, "select", text) for config in beam for text in texts if _selection_fits(config, text)
        ]
        if not candidates:
            return beam
        raced = self._race_candidates("select", [*beam, *candidates], len(beam) + len(candidates), halve=False)
        raced.sort(key=lambda result: (round(compute_violation(self.bounds, result.outcomes), 6), -result.value))
        leader = raced[0]
        old = self._measure_all([beam[0]])[0]
        if not compute_violation(self.bounds, old) and not gains_enough(old, leader.outcomes):
            return beam
        return [result.config for result in raced[:BEAM_WIDTH]]

    # --- choice ------------------------------------------------------------------------------------

    def _race_candidates(
        self, step: str, candidates: Sequence[PipelineConfig], keep: int, *, halve: bool = True
    ) -> list[RaceResult]:
        """Return the best candidates; log their number."""
        field = list({config.name: config for config in candidates}.values())
        self.steps.append(SearchStep(step=step, candidates=len(field), chosen="", seconds=0.0))
        total, done = len(field) * len(self.questions), 0

        def measure(
            configs: Sequence[PipelineConfig], questions: Sequence[TuningQuestion]
        ) -> dict[str, list[QuestionOutcome]]:
            nonlocal done
            measure_elsewhere(self.runner, configs, questions)
            runs = {}
            for config in configs:
                runs[config.name] = self.runner.measure(config, questions)
                done += len(questions)
                self.progress(step, min(done, total), total)
            return runs

        if halve:
            return race_configs(field, self.questions, measure, keep)
        runs = measure(field, self.questions)
        return [RaceResult(config, runs[config.name], _mean_value(runs[config.name])) for config in field]

    def _measure_all(self, configs: Sequence[PipelineConfig]) -> list[list[QuestionOutcome]]:
        measure_elsewhere(self.runner, configs, self.questions)
        return [self.runner.measure(config, self.questions) for config in configs]

    def _is_worthwhile(self, raced: RaceResult, baselines: Sequence[Sequence[QuestionOutcome]]) -> bool:
        """Return True where an added stage gains enough, or brings the configuration within the bounds."""
        within = min(compute_violation(self.bounds, outcomes) for outcomes in baselines)
        violation = compute_violation(self.bounds, raced.outcomes)
        if violation != within:
            return violation < within
        return gains_enough(max(baselines, key=_mean_value), raced.outcomes)

    def _choose_config(self) -> PipelineConfig:
        """Return the best configuration within the bounds: of the beam, else of all that ran on every question."""
        complete = [
            (config, [self.runner.outcomes[name][question.id] for question in self.questions])
            for name, config in self.runner.configs.items()
            if all(question.id in self.runner.outcomes[name] for question in self.questions)
        ]
        outcomes_by_name = {config.name: outcomes for config, outcomes in complete}
        for config in self.beam:
            if config.name in outcomes_by_name and not compute_violation(self.bounds, outcomes_by_name[config.name]):
                return config
        if not complete:
            return self.beam[0]
        return min(
            complete, key=lambda pair: (round(compute_violation(self.bounds, pair[1]), 6), -_mean_value(pair[1]))
        )[0]

    def _describe_violation(self) -> tuple[str, ...]:
        """Return the message for the case that no configuration meets the bounds."""
        outcomes = self.runner.outcomes.get(self._choose_config().name, {})
        known_outcomes = [outcomes[question.id] for question in self.questions if question.id in outcomes]
        if not known_outcomes or not compute_violation(self.bounds, known_outcomes):
            return ()
        bounds = ", ".join(map(str, self.bounds))
        return (f"nothing that was searched keeps to {bounds}; what is recommended is nearest to it",)


def _selection_fits(config: PipelineConfig, expression: str) -> bool:
    """Return True where a selection can follow the stages of a configuration."""
    if expression.startswith("adaptive"):
        return config.get_stage("rerank") is not None
    return not expression.startswith("diverse") or config.embedder != NO_EMBEDDER


def gains_enough(baseline: Sequence[QuestionOutcome], extended: Sequence[QuestionOutcome]) -> bool:
    """Return True where an added stage gains at least 0.005 and at least the standard error of its gain.

    >>> plain = [QuestionOutcome(0.5, 1, 1, 1, 1, 1)] * 50
    >>> noisy = [QuestionOutcome(0.51 + 0.4 * (-1) ** at, 1, 1, 1, 1, 1) for at in range(50)]
    >>> gains_enough(plain, noisy), gains_enough(plain, [QuestionOutcome(0.52, 1, 1, 1, 1, 1)] * 50)
    (False, True)
    """
    gaps = [outcome.value - base_outcome.value for outcome, base_outcome in zip(extended, baseline, strict=True)]
    error = stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.inf
    return fmean(gaps) >= max(MIN_STAGE_GAIN, error)


def _mean_value(outcomes: Sequence[QuestionOutcome]) -> float:
    return sum(outcome.value for outcome in outcomes) / len(outcomes)
