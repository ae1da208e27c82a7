"""The tuner: search on the selection questions, measure on the holdout, report the gains."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import pstdev
from typing import NamedTuple

from msgspec.structs import replace

from ragfault.apps.tune.holdout import (
    HoldoutEvaluator,
    QuestionSplit,
    adjust_in_sequence,
    gather_questions,
    list_ablations,
    list_rivals,
    list_trials,
    measure_frontier,
    split_questions,
)
from ragfault.apps.tune.recommendation import (
    BEST_SCORING,
    NEEDED_STEPS,
    PLAIN_BM25,
    PRESENT,
    Contender,
    Recommendation,
    count_stages,
    decide,
    describe_difference,
    describe_power,
    order_candidates,
)
from ragfault.apps.tune.results import (
    COMPONENT_NAMES,
    Bound,
    Gain,
    MeasuredPipeline,
    TuningQuestion,
    TuningResult,
    capitalize,
    describe_cost,
)
from ragfault.apps.tune.search import PipelineSearch, SearchResult
from ragfault.apps.tune.search_space import (
    TUNING_PHASES,
    SearchSpace,
    TuningPhase,
    check_space,
    compute_figure,
    compute_violation,
    default_space,
    list_budget_selections,
    parse_bound,
    parse_budget,
    select_phases,
)
from ragfault.apps.tune.settings import TuneSettings
from ragfault.apps.tune.trials import TrialRunner, TuningCache, parse_tuning_metric
from ragfault.diagnosis.run_analysis import suggest_remedies
from ragfault.executors import choose_executor
from ragfault.io.runs.run import Run, open_run
from ragfault.io.runs.samples import sample_run
from ragfault.model.records import Document, Trace
from ragfault.model.settings import accept_fields
from ragfault.retrieval.pipeline_config import (
    NO_EMBEDDER,
    PipelineConfig,
    check_pipeline_config,
    read_pipeline_config,
    replace_stage,
)
from ragfault.text.number_format import format_count, format_p_value, format_percent

HOLDOUT_BUDGET_SHARE = 0.3
"""The share of the budget that is kept for measuring on the held-out questions."""
DEFAULT_BASELINE = PipelineConfig(
    chunker="fixed(512, overlap=64)", stages={"retrieve": "sparse(k=50)", "select": "top(10)"}
)


@accept_fields(TuneSettings)
def tune(corpus: Iterable[Document], questions: Iterable[Trace], settings: TuneSettings) -> TuningResult:
    """Search for the pipeline that answers the questions best, and recommend it where its gain is shown.

    `corpus` is documents, `questions` traces with a query and gold: spans of documents, or ids of documents. One part
    of the questions chooses, step by step; the other measures the choice against `baseline` (a configuration or file)
    and against plain BM25. Of these, and the chosen one without the steps that show no gain of their own, the simplest
    of those whose gain over the baseline is shown there is recommended; else the baseline, unless another is as good
    and simpler: see `recommendation.RULE`. Questions that
    share a document, or where these are few, that share a stretch of gold, are never on both sides. `subject_to` bounds
    what is paid ("latency_p95<=200", "tokens<=2000"); where nothing is said of tokens, those of the baseline are the
    bound. After `budget` minutes the search ends with the best so far. With a `run` only those phases are searched that
    its diagnosis blames. What is kept in `cache` is not computed again. The questions are run by `workers` processes,
    which build the indexes as well, by a cluster of `ray`, or by the workers of an `executor`; what is found is the
    same, times aside.

    Raises InputError for a corpus without text, too few questions, or gold that is not in the corpus; UsageError for a
    metric that cannot be tuned or a bound that cannot be read.
    """
    begin = time.monotonic()
    budget, workers = settings.budget, settings.workers or 1
    metric, bounds = parse_tuning_metric(settings.metric), tuple(map(parse_bound, settings.bounds))
    until = None if budget is None else begin + (1 - HOLDOUT_BUDGET_SHARE) * parse_budget(budget)
    start, notes = _load_baseline(settings.baseline), NoticeLog(settings.notice)
    if settings.baseline is None:
        notes.add(f"no baseline is given: {DEFAULT_BASELINE.name} stands for the present pipeline")
    store = TuningCache(None if settings.cache is None else Path(settings.cache), tuple(corpus))
    bench = TrialRunner(store, metric, choose_executor(settings.workers, settings.executor, settings.ray))
    gathered = gather_questions(questions, bench.cache.documents)
    notes.add(*gathered.notes)
    space = _restrict_space(settings.space or default_space(), settings.run, notes)
    parts = split_questions(gathered.questions, settings.holdout, settings.seed)
    # without a bound more text always retrieves more, and the largest answer would win
    bounds = _add_token_bound(bounds, bench, start, parts.selection, notes)
    notes.add(*_list_power(bench, start, parts))
    bench.deadline = until
    search_result = PipelineSearch(bench, space, start, parts.selection, bounds, workers).run(settings.progress)
    notes.lines += search_result.notes
    if search_result.stopped_at:
        notes.add(f"the budget was spent at the step {search_result.stopped_at}: what follows it was not searched")
    charged, bench.deadline = bench.uncached_seconds, None
    result = replace(
        _measure_holdout(TuningTask(bench, start, parts, bounds, space.phases, settings.seed), search_result),
        grouped_by=gathered.grouped_by,
        notes=tuple(notes.lines),
        seconds=time.monotonic() - begin,
        uncached_seconds=charged,
    )
    bench.cache.flush()
    return result


class NoticeLog:
    """The notices of a run: passed on at once, and collected."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self.notify, self.lines = notify, list[str]()

    def add(self, *lines: str) -> None:
        """Tell and keep lines."""
        for line in lines:
            self.notify(line)
        self.lines += lines


def _add_token_bound(
    bounds: tuple[Bound, ...],
    runner: TrialRunner,
    start: PipelineConfig,
    questions: Sequence[TuningQuestion],
    notes: NoticeLog,
) -> tuple[Bound, ...]:
    """Return the bounds with a bound on tokens."""
    if any(bound.name == "tokens" for bound in bounds):
        return bounds
    tokens = compute_figure("tokens", runner.measure(start, questions))
    # more text retrieves more
    bound = Bound("tokens", "<=", max(100.0, math.ceil(tokens / 100) * 100.0))
    notes.add(f"no bound on tokens is given, so that of the present configuration holds: {bound}")
    return (*bounds, bound)


def _load_baseline(baseline: PipelineConfig | str | Path | None) -> PipelineConfig:
    """Return the present configuration; by default BM25 over chunks of 512 tokens."""
    if baseline is None:
        return DEFAULT_BASELINE
    if isinstance(baseline, PipelineConfig):
        check_pipeline_config(baseline, "the baseline")
        return baseline
    return read_pipeline_config(baseline)


def make_plain_bm25(config: PipelineConfig) -> PipelineConfig:
    """Return plain BM25 over the same chunks.

    >>> make_plain_bm25(PipelineConfig(embedder="latent", stages={"find": "hybrid", "select": "top(5)"})).stages
    {'retrieve': 'sparse(k=50)', 'select': 'top(5)'}
    """
    select = config.get_stage("select") or "top(10)"
    select = select if select.startswith(("top", "budget")) else "top(10)"
    return replace(config, embedder=NO_EMBEDDER, stages={"retrieve": "sparse(k=50)", "select": select})


def _restrict_space(space: SearchSpace, run: Run | str | Path | None, notes: NoticeLog) -> SearchSpace:
    """Return the checked search space, restricted to the phases that the diagnosis of a run, or a sample, blames."""
    check_space(space)
    if run is None:
        return space
    opened = sample_run(open_run(run))
    size = f"{opened.manifest.traces:,} of {opened.manifest.population:,} traces"
    diagnosed = f"{opened.path} ({size}, drawn at random)" if opened.manifest.population else f"{opened.path}"
    remedies = suggest_remedies(opened)
    phases: tuple[TuningPhase, ...] = select_phases(remedies)
    summary = ", ".join(
        f"{remedy.kind.replace('_', ' ')} on {format_percent(remedy.share.mean)} of traces" for remedy in remedies[:4]
    )
    if not phases:
        notes.add(
            f"the diagnosis of {diagnosed} blames nothing that retrieval could fix ({summary or 'no problem'}): "
            "every phase is searched"
        )
        return space
    skipped = [phase for phase in TUNING_PHASES if phase not in phases]
    note = f"; left as they are: {', '.join(skipped)}" if skipped else ""
    notes.add(f"searched, as the diagnosis of {diagnosed} has it ({summary}): {', '.join(phases)}{note}")
    return replace(space, phases=phases)


class TuningTask(NamedTuple):
    """What search and measurement of one tuning share."""

    runner: TrialRunner
    start: PipelineConfig
    """The present configuration."""
    parts: QuestionSplit
    bounds: tuple[Bound, ...]
    phases: Sequence[TuningPhase]
    """Phases that are searched; the others stay as they are."""
    seed: int


def _measure_holdout(task: TuningTask, search_result: SearchResult) -> TuningResult:
    """Measure the best-scoring configuration on the holdout questions, and recommend it or a simpler one."""
    runner, start, parts, bounds, _, seed = task
    best, plain_bm25 = search_result.config, make_plain_bm25(start)
    if list_budget_selections(bounds) and compute_violation(bounds, runner.measure(plain_bm25, parts.selection)):
        # The pipelines that it is compared with keep to the bound; so does it.
        plain_bm25 = replace_stage(plain_bm25, "select", list_budget_selections(bounds)[0])
    known = list(runner.configs.values())
    prover = HoldoutEvaluator(runner, parts.holdout, seed)
    ablated = [test for test in list_ablations(best, plain_bm25) if runner.cache.has_index(test[2])]
    ablations = prover.compare_configs(ablated)
    pruned = drop_spare_steps(best, plain_bm25, ablations, runner.cache.has_index)
    # where some phases are to stay as they are, others would change them
    is_free = set(task.phases) == set(TUNING_PHASES)
    candidates = order_candidates(best, start, *((plain_bm25, pruned) if is_free else (start,)))
    rivals = [name for name in (BEST_SCORING, NEEDED_STEPS, PLAIN_BM25) if name in candidates]
    # the best-scoring one is what the search proposes: the others are tested only where its gain is shown
    gains = prover.compare_configs([_pair_candidates(candidates, name, PRESENT) for name in rivals], adjust_in_sequence)
    simpler = [(name, other) for name in rivals for other in rivals[rivals.index(name) + 1 :]]
    between = prover.compare_configs([_pair_candidates(candidates, *pair) for pair in simpler])
    recommended, reason = _recommend(task, candidates, gains, between)
    winner = candidates[recommended]
    shown_gains = [test[2] for test in ablated]
    refused = [
        test for test in list_rivals(best, known) if runner.cache.has_index(test[2]) and test[2] not in shown_gains
    ]
    points = measure_frontier(runner, (winner, best, start, plain_bm25), parts.selection, prover.measure_config)
    return TuningResult(
        metric=str(runner.metric),
        bounds=bounds,
        config=winner,
        recommended=recommended,
        reason=reason,
        best=best,
        baseline=start,
        plain_bm25=plain_bm25,
        measured=_measure_named(prover, winner, {"best-scoring": best, "present": start, "plain BM25": plain_bm25}),
        gains=(*gains, *between),
        ablations=ablations,
        rejected=prover.compare_configs(refused),
        frontier=points,
        trials=list_trials(runner, parts.selection),
        search_steps=search_result.steps,
        selection_questions=len(parts.selection),
        holdout_questions=len(parts.holdout),
        grouped_by="",
        stopped_at=search_result.stopped_at,
    )


def drop_spare_steps(
    best: PipelineConfig, plain: PipelineConfig, ablations: Sequence[Gain], has_index: Callable[[PipelineConfig], bool]
) -> PipelineConfig:
    """Return the best-scoring configuration with plain BM25's step in place of each that shows no gain."""
    spare = {gain.component for gain in ablations if gain.verdict != "gains"}
    pruned = best
    for _ in spare:
        fewer = (test[2] for test in list_ablations(pruned, plain) if test[0] in spare and has_index(test[2]))
        pruned = next(fewer, pruned)
    return pruned


def _pair_candidates(
    candidates: Mapping[str, PipelineConfig], name: str, simpler: str
) -> tuple[str, PipelineConfig, PipelineConfig, str, str]:
    """Pair a candidate with a simpler one: by the step that differs where it is one, else by its name."""
    config, rival, component = candidates[name], candidates[simpler], name
    for step, _, without, ours, theirs in list_ablations(config, rival):
        if without.name == rival.name:
            component = COMPONENT_NAMES[step] + ("" if theirs == "none" else f" by {ours}")
    return component, config, rival, name, simpler


def _recommend(
    task: TuningTask, candidates: Mapping[str, PipelineConfig], gains: Sequence[Gain], between: Sequence[Gain]
) -> Recommendation:
    """Decide by the rule which of the candidates to use."""
    metric, present = str(task.runner.metric), candidates[PRESENT]
    over_present = {gain.chosen: gain for gain in gains}
    proven = {(gain.chosen, gain.alternative) for gain in between if gain.verdict == "gains"}
    contenders = []
    for name, config in candidates.items():
        if name == PRESENT:
            continue
        gain = over_present[name]
        cost = describe_cost(gain)
        p = format_p_value(gain.adjusted_p)
        figures = f"{describe_difference(gain.difference, metric)} (p {p if p[0] == '<' else f'= {p}'})"
        fewer = count_stages(present) - count_stages(config)
        contenders.append(
            Contender(
                name,
                gain.difference,
                gain.verdict,
                figures + (f", and {cost}" if cost else ""),
                f"has {format_count(fewer, 'stage')} less" if fewer > 0 else "",
                _describe_violation(task, config),
                capitalize(name),
            )
        )
    return decide(PRESENT, contenders, lambda *pair: pair in proven, _describe_violation(task, present))


def _describe_violation(task: TuningTask, config: PipelineConfig) -> str:
    """Return the bounds that a configuration breaks, with its figures, on the questions that chose."""
    outcomes = task.runner.measure(config, task.parts.selection)
    broken = [bound for bound in task.bounds if compute_violation([bound], outcomes) > 0]
    return ", ".join(f"{bound} ({compute_figure(bound.name, outcomes):,.4g})" for bound in broken)


def _list_power(runner: TrialRunner, start: PipelineConfig, parts: QuestionSplit) -> list[str]:
    """List which gain the held-out questions can show, by the spread of the present configuration's values."""
    deviation = pstdev([outcome.value for outcome in runner.measure(start, parts.selection)])
    groups = len({question.group for question in parts.holdout})
    line = describe_power(deviation, len(parts.holdout), groups, str(runner.metric))
    return [] if line is None else [line]


def _measure_named(
    prover: HoldoutEvaluator, winner: PipelineConfig, named: Mapping[str, PipelineConfig]
) -> tuple[MeasuredPipeline, ...]:
    """Measure pipelines under all of their names, the recommended one first."""
    names: dict[str, list[str]] = {winner.name: ["recommended"]}
    for name, config in named.items():
        names.setdefault(config.name, []).append(name)
    configs = {config.name: config for config in named.values()}
    return tuple(prover.measure_config(" = ".join(labels), configs[key]) for key, labels in names.items())
