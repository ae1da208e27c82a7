"""The holdout: split questions into a selection and a holdout part, and measure gains on the latter."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from statistics import fmean
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from ragfault.apps.tune.results import (
    FrontierPoint,
    Gain,
    GainVerdict,
    MeasuredPipeline,
    QuestionOutcome,
    SearchTrial,
    TuningQuestion,
)
from ragfault.apps.tune.search_space import compute_figure
from ragfault.apps.tune.trial_workers import measure_elsewhere
from ragfault.apps.tune.trials import TrialRunner
from ragfault.diagnosis.question_levels import QuestionLevel, is_synthetic, measure_level
from ragfault.model.errors import InputError, UsageError
from ragfault.model.grouping import group_by, join_by_marks
from ragfault.model.records import Document, Gold, Span, Trace
from ragfault.model.rules import check_ids
from ragfault.retrieval.pipeline_config import NO_EMBEDDER, PipelineConfig, replace_stage
from ragfault.retrieval.stage_registry import StageKind
from ragfault.stats.differences import paired_difference
from ragfault.stats.estimates import Difference
from ragfault.stats.intervals import mean_interval
from ragfault.stats.significance import holm_adjust, sign_flip_test

MIN_QUESTIONS = 8
"""Fewer questions than this choose nothing and show nothing."""
MIN_GROUPS = 10
"""Documents group the questions only where they make at least so many groups…"""
MAX_GROUP_SHARE = 0.25
"""…and none of them holds more than this share."""


class QuestionSet(NamedTuple):
    """Questions that can be used, and notes on the others."""

    questions: tuple[TuningQuestion, ...]
    grouped_by: str
    notes: tuple[str, ...]


class QuestionSplit(NamedTuple):
    """Questions that choose, and questions that measure."""

    selection: tuple[TuningQuestion, ...]
    holdout: tuple[TuningQuestion, ...]


def gather_questions(traces: Iterable[Trace], documents: Sequence[Document]) -> QuestionSet:
    """Return the questions whose gold lies in the corpus.

    Gold is spans of documents, or ids of documents with grades. Left out, and counted in a note: questions without
    gold, and those whose gold names documents that are not there. Raises InputError where two have one id or fewer than
    8 are left.

    >>> corpus = [Document(id="d", text="The ferry leaves at ten.")]
    >>> gather_questions([Trace(id="1", query="When?")], corpus)
    Traceback (most recent call last):
    ragfault.model.errors.InputError: 0 of 1 questions can be used, and at least 8 are needed. Without gold: 1.
    """
    sizes = {document.id: len(document.text) for document in documents}
    usable: list[Trace] = []
    lost: Counter[str] = Counter()
    traces = list(traces)
    check_ids((trace.id for trace in traces), "questions")
    for trace in traces:
        why = _explain_unusable(trace, sizes)
        if why is None:
            usable.append(trace)
        else:
            lost[why] += 1
    reasons = "; ".join(f"{why}: {count:,}" for why, count in lost.items())
    if len(usable) < MIN_QUESTIONS:
        short = f"{len(usable):,} of {len(traces):,} questions can be used, and at least {MIN_QUESTIONS} are needed."
        raise InputError(f"{short} {reasons[:1].upper()}{reasons[1:]}." if reasons else short)
    groups, grouped_by = _group_questions(usable)
    questions = tuple(
        TuningQuestion(
            id=trace.id,
            query=trace.query,
            gold=trace.gold or Gold(),
            group=groups[trace.id],
            synthetic=is_synthetic(trace),
        )
        for trace in usable
    )
    return QuestionSet(questions, grouped_by, (f"questions left out: {reasons}",) if reasons else ())


def _explain_unusable(trace: Trace, sizes: Mapping[str, int]) -> str | None:
    """Return the reason why a question cannot be used."""
    gold = trace.gold
    if not trace.query.strip():
        return "without a query"
    if gold is None or not any(grade > 0 for grade in (*gold.chunks.values(), *(span.grade for span in gold.spans))):
        return "without gold"
    if gold.spans:
        if any(span.document not in sizes for span in gold.spans):
            return "gold in documents that are not in the corpus"
        if any(not 0 <= span.start < span.end <= sizes[span.document] for span in gold.spans):
            return "gold beyond the ends of its document"
    elif any(name not in sizes for name in gold.chunks):
        return "gold by ids that are not documents of the corpus (chunks are cut anew: give spans)"
    return None


def _list_documents(trace: Trace) -> list[str]:
    assert trace.gold is not None
    return [span.document for span in trace.gold.spans] or list(trace.gold.chunks)


def _group_questions(traces: Sequence[Trace]) -> tuple[dict[str, str], str]:
    """Map each question to its group: questions that share a document or, with few documents, overlapping gold."""
    groups = join_by_marks({trace.id: _list_documents(trace) for trace in traces})
    sizes = Counter(groups.values())
    if len(sizes) >= MIN_GROUPS and max(sizes.values()) <= MAX_GROUP_SHARE * len(traces):
        return groups, f"document ({len(sizes):,} groups of questions that share one)"
    spans = sorted(
        ((span, trace.id) for trace in traces for span in (trace.gold.spans if trace.gold else ())),
        key=lambda pair: (pair[0].document, pair[0].start),
    )
    groups = join_by_marks(_mark_overlaps(spans, traces))
    return groups, (
        f"overlapping gold ({len(set(groups.values())):,} groups): too few documents to divide the questions by"
    )


def _mark_overlaps(spans: Sequence[tuple[Span, str]], traces: Sequence[Trace]) -> dict[str, list[str]]:
    """Map each question to the clusters of overlapping gold spans that it belongs to."""
    marks: dict[str, list[str]] = {trace.id: [f"question {trace.id}"] for trace in traces}
    cluster, document, end = 0, "", -1
    for span, name in spans:
        if span.document != document or span.start >= end:
            cluster, document, end = cluster + 1, span.document, span.end
        end = max(end, span.end)
        marks[name].append(f"stretch {cluster}")
    return marks


def split_questions(questions: Sequence[TuningQuestion], share: float = 0.5, seed: int = 0) -> QuestionSplit:
    """Divide questions at random, whole groups at a time: a `share` of them measures, the others choose.

    Of a set with made questions those of people measure first, since only they give a level.

    Raises InputError where they are all of one group: nothing then is left to measure on; UsageError for a share that
    is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise UsageError(f"holdout is between 0 and 1, got {share}.")
    groups = group_by(questions, lambda question: question.group)
    names = sorted(groups)
    random.Random(seed).shuffle(names)
    names.sort(key=lambda name: all(question.synthetic for question in groups[name]))
    selection: list[TuningQuestion] = []
    holdout: list[TuningQuestion] = []
    for name in names:
        target = holdout if len(holdout) < share * len(questions) and len(names) > 1 else selection
        target.extend(groups[name])
    if not selection or not holdout:
        raise InputError(
            f"all {len(questions):,} questions hang together: none are left to measure on. Add questions about others."
        )
    return QuestionSplit(tuple(selection), tuple(holdout))


ALPHA = 0.05
MAX_FRONTIER_POINTS = 12
"""At most so many pipelines of the frontier are measured."""
ABLATED_KINDS: tuple[StageKind, ...] = ("query", "filter", "rerank", "select", "compress")
"""Steps whose stage is compared with the stage of plain BM25, or none."""
RIVAL_KINDS: tuple[StageKind, ...] = ("query", "rerank", "compress")


class ConfigComparison(NamedTuple):
    """A comparison before it is corrected for the others."""

    component: str
    chosen: str
    alternative: str
    difference: Difference
    p: float
    ms: float
    tokens: float


class HoldoutEvaluator:
    """Measures configurations on the holdout questions."""

    def __init__(self, runner: TrialRunner, questions: Sequence[TuningQuestion], seed: int = 0) -> None:
        self._runner, self._questions, self._seed = runner, tuple(questions), seed
        self._bounds = runner.metric.range
        self._groups = [question.group for question in questions]

    def measure_outcomes(self, config: PipelineConfig) -> list[QuestionOutcome]:
        """Return the outcome of a configuration on each question."""
        return self._runner.measure(config, self._questions)

    def measure_config(self, name: str, config: PipelineConfig) -> MeasuredPipeline:
        """Return a configuration with its figures."""
        outcomes = self.measure_outcomes(config)
        span = mean_interval([outcome.value for outcome in outcomes], self._groups, bounds=self._bounds)
        return MeasuredPipeline(
            name=name,
            config=config,
            n=len(outcomes),
            value=span.mean,
            low=span.low,
            high=span.high,
            recall=compute_figure("recall", outcomes),
            precision=compute_figure("precision", outcomes),
            iou=compute_figure("iou", outcomes),
            ms=compute_figure("latency", outcomes),
            p50=compute_figure("latency_p50", outcomes),
            p95=compute_figure("latency_p95", outcomes),
            tokens=compute_figure("tokens", outcomes),
            levels=self._measure_levels(outcomes),
        )

    def _measure_levels(self, outcomes: Sequence[QuestionOutcome]) -> tuple[QuestionLevel, ...]:
        """Return the levels of the metric and of recall; none where no question is made."""
        synthetic = [question.synthetic for question in self._questions]
        columns = {str(self._runner.metric): [outcome.value for outcome in outcomes]}
        columns |= {} if self._runner.metric.name == "recall" else {"recall": [outcome.recall for outcome in outcomes]}
        levels = [measure_level(name, values, synthetic) for name, values in columns.items()]
        return tuple(level for level in levels if level is not None)

    def compare_configs(
        self,
        pairs: Sequence[tuple[str, PipelineConfig, PipelineConfig, str, str]],
        adjust: Callable[[Sequence[float]], Sequence[float]] = holm_adjust,
    ) -> tuple[Gain, ...]:
        """Compare pairs of configurations, with p values corrected by Holm or another way."""
        measure_elsewhere(self._runner, [config for pair in pairs for config in pair[1:3]], self._questions)
        gains = [self._compare_pair(*pair) for pair in pairs]
        adjusted = adjust([gain.p for gain in gains]) if gains else []
        return tuple(
            Gain(**gain._asdict(), adjusted_p=p, verdict=_judge_gain(gain.difference.mean, p))
            for gain, p in zip(gains, adjusted, strict=True)
        )

    def _compare_pair(
        self,
        component: str,
        candidate: PipelineConfig,
        alternative: PipelineConfig,
        chosen_name: str,
        alternative_name: str,
    ) -> ConfigComparison:
        new, old = self.measure_outcomes(candidate), self.measure_outcomes(alternative)
        before, after = [outcome.value for outcome in old], [outcome.value for outcome in new]
        difference = paired_difference(before, after, self._groups, bounds=self._bounds, seed=self._seed)
        p = sign_flip_test(before, after, self._groups, seed=self._seed).p
        ms, tokens = (
            fmean(getattr(outcome, key) for outcome in new) - fmean(getattr(outcome, key) for outcome in old)
            for key in ("ms", "tokens")
        )
        return ConfigComparison(component, chosen_name, alternative_name, difference, p, ms, tokens)


def adjust_in_sequence(p_values: Sequence[float]) -> list[float]:
    """Adjust the p values of tests in a fixed order, each made only where all before it reject.

    >>> adjust_in_sequence([0.01, 0.2, 0.03])
    [0.01, 0.2, 0.2]
    """
    return list(accumulate(p_values, max))


def _judge_gain(mean: float, p: float) -> GainVerdict:
    if p > ALPHA:
        return "no gain shown"
    return "gains" if mean > 0 else "loses"


def list_ablations(
    config: PipelineConfig, plain_bm25: PipelineConfig
) -> list[tuple[str, PipelineConfig, PipelineConfig, str, str]]:
    """Return each step in which a configuration differs from plain BM25, with plain BM25's step in its place.

    >>> best = PipelineConfig(stages={"retrieve": "sparse", "rerank": "rerank(lexical)", "select": "top(10)"})
    >>> [(what, theirs) for what, _, _, _, theirs in list_ablations(best, PipelineConfig())]
    [('rerank', 'none')]
    """
    pairs = []
    if config.chunker != plain_bm25.chunker:
        simpler = replace(config, chunker=plain_bm25.chunker)
        pairs.append(("chunker", config, simpler, config.chunker, plain_bm25.chunker))
    mine, theirs = config.get_stage("retrieve") or "", plain_bm25.get_stage("retrieve") or "sparse"
    if mine.partition("(")[0] != theirs.partition("(")[0]:
        needs = (config.get_stage("select") or "").startswith("diverse")
        simpler = replace(config, embedder=config.embedder if needs else NO_EMBEDDER)
        simpler = replace_stage(simpler, "retrieve", "sparse(k=50)")
        ours = mine if config.embedder == NO_EMBEDDER else f"{mine} with {config.embedder}"
        pairs.append(("retrieve", config, simpler, ours, "sparse(k=50)"))
    if mine.startswith("hybrid") and mine != "hybrid(k=50)":
        pairs.append(("fusion", config, replace_stage(config, "retrieve", "hybrid(k=50)"), mine, "hybrid(k=50)"))
    for step in ABLATED_KINDS:
        stage, plain_stage = config.get_stage(step), plain_bm25.get_stage(step)
        if stage is not None and stage != plain_stage:
            if step == "rerank" and (config.get_stage("select") or "").startswith("adaptive"):
                continue
            pairs.append((step, config, replace_stage(config, step, plain_stage), stage, plain_stage or "none"))
    return pairs


def list_rivals(
    config: PipelineConfig, tried: Sequence[PipelineConfig]
) -> list[tuple[str, PipelineConfig, PipelineConfig, str, str]]:
    """Return the rejected alternatives: the configuration with one step replaced, where that was measured."""
    pairs: dict[str, tuple[str, PipelineConfig, PipelineConfig, str, str]] = {}
    kinds = dict.fromkeys(measured.chunker for measured in tried)
    for chunker in kinds:
        if chunker != config.chunker:
            rival = replace(config, chunker=chunker)
            pairs.setdefault(f"chunker {chunker}", ("chunker", config, rival, config.chunker, chunker))
    for step in RIVAL_KINDS:
        for text in dict.fromkeys(measured.get_stage(step) for measured in tried):
            stage = config.get_stage(step)
            if text is not None and text != stage:
                rival = replace_stage(config, step, text)
                pairs.setdefault(f"{step} {text}", (step, config, rival, stage or "none", text))
    return list(pairs.values())


def select_undominated(figures: Sequence[tuple[float, ...]]) -> list[int]:
    """Return the positions of the items that no other dominates: as good in everything and better in something.

    >>> select_undominated([(0.5, -10), (0.4, -5), (0.4, -20)])
    [0, 1]
    """
    figures_array = np.array(figures, float)
    if not len(figures_array):
        return []
    undominated = []
    for index, figure in enumerate(figures_array):
        better = (figures_array >= figure).all(axis=1) & (figures_array > figure).any(axis=1)
        same = (figures_array[:index] == figure).all(axis=1).any()
        if not better.any() and not same:
            undominated.append(index)
    return undominated


def list_trials(runner: TrialRunner, selection: Sequence[TuningQuestion]) -> tuple[SearchTrial, ...]:
    """List every pipeline that ran, with its means on the questions that choose that it came to, the best first."""
    trials = []
    for name, by_question in runner.outcomes.items():
        outcomes = [by_question[question.id] for question in selection if question.id in by_question]
        if outcomes:
            value, ms, tokens = (
                fmean(getattr(outcome, key) for outcome in outcomes) for key in ("value", "ms", "tokens")
            )
            trials.append(SearchTrial(name=name, questions=len(outcomes), value=value, ms=ms, tokens=tokens))
    return tuple(sorted(trials, key=lambda trial: (-trial.questions, -trial.value)))


def measure_frontier(
    runner: TrialRunner,
    named: Sequence[PipelineConfig],
    selection: Sequence[TuningQuestion],
    measure: Callable[[str, PipelineConfig], MeasuredPipeline],
) -> tuple[FrontierPoint, ...]:
    """Return the frontier of value, milliseconds and tokens on the selection questions, with holdout figures.

    The `named` configurations, the recommended one first, are among the points even if they are not on the frontier.
    """
    complete = [
        (runner.configs[name], [outcomes[question.id] for question in selection])
        for name, outcomes in runner.outcomes.items()
        if all(question.id in outcomes for question in selection)
    ]
    figures = [
        (
            round(fmean(outcome.value for outcome in outcomes), 4),
            round(-fmean(outcome.ms for outcome in outcomes), 4),
            round(-fmean(outcome.tokens for outcome in outcomes), 4),
        )
        for _, outcomes in complete
    ]
    undominated = select_undominated(figures)
    on_frontier = {config.name: i in undominated for i, (config, _) in enumerate(complete)}
    frontier = sorted(undominated, key=lambda place: -figures[place][0])[:MAX_FRONTIER_POINTS]
    configs = {config.name: config for config in (*named, *(complete[place][0] for place in frontier))}
    return tuple(
        FrontierPoint(measured=measure(name, config), recommended=config == named[0], undominated=on_frontier.get(name))
        for name, config in configs.items()
    )
