"""The holdout: split questions into a selection and a holdout part, and measure gains on the latter."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from ragfault.errors import InputError, UsageError
from ragfault.records import Document, Gold, Span, Trace
from ragfault.retrieval.pipeline_config import NO_EMBEDDER, PipelineConfig, replace_stage
from ragfault.retrieval.stages import StageKind
from ragfault.stats import Difference, holm_adjust, mean_interval, paired_difference, sign_flip_test
from ragfault.tuning.results import (
    FrontierPoint,
    Gain,
    GainVerdict,
    MeasuredPipeline,
    QuestionOutcome,
    TuningQuestion,
)
from ragfault.tuning.search_space import compute_figure
from ragfault.tuning.trials import TrialRunner

MIN_QUESTIONS = 8
"""Fewer questions than this choose nothing and show nothing."""
MIN_GROUPS = 10
"""Documents group the questions only where they make at least so many groups…"""
MAX_GROUP_SHARE = 0.25
"""…and none of them holds more than this share."""


class QuestionSet(NamedTuple):
    """Questions that can be used, and what is to be said of the others."""

    questions: tuple[TuningQuestion, ...]
    grouped_by: str
    notes: tuple[str, ...]


class QuestionSplit(NamedTuple):
    """Questions that choose, and questions that measure."""

    selection: tuple[TuningQuestion, ...]
    holdout: tuple[TuningQuestion, ...]


def gather_questions(traces: Iterable[Trace], documents: Sequence[Document]) -> QuestionSet:
    """The questions whose gold lies in the corpus.

    Gold is spans of documents, or ids of documents with grades. Left out, and counted in a note: questions without
    gold, and those whose gold names documents that are not there. Raises InputError where two have one id or fewer than
    8 are left.

    >>> corpus = [Document(id="d", text="The ferry leaves at ten.")]
    >>> gather_questions([Trace(id="1", query="When?")], corpus)
    Traceback (most recent call last):
    ragfault.errors.InputError: 0 of 1 questions can be used, and at least 8 are needed. Without gold: 1.
    """
    sizes = {document.id: len(document.text) for document in documents}
    held: list[Trace] = []
    lost: Counter[str] = Counter()
    seen: set[str] = set()
    for trace in traces:
        if trace.id in seen:
            raise InputError(f'two questions have the id "{trace.id}": give each its own.')
        seen.add(trace.id)
        why = _explain_unusable(trace, sizes)
        if why is None:
            held.append(trace)
        else:
            lost[why] += 1
    told = "; ".join(f"{why}: {count:,}" for why, count in lost.items())
    if len(held) < MIN_QUESTIONS:
        short = (
            f"{len(held):,} of {len(seen):,} questions can be used, and at least {MIN_QUESTIONS} are needed."
        )
        raise InputError(f"{short} {told[:1].upper()}{told[1:]}." if told else short)
    groups, grouped_by = _group_questions(held)
    questions = tuple(
        TuningQuestion(id=one.id, query=one.query, gold=one.gold or Gold(), group=groups[one.id])
        for one in held
    )
    return QuestionSet(questions, grouped_by, (f"questions left out: {told}",) if told else ())


def _explain_unusable(trace: Trace, sizes: Mapping[str, int]) -> str | None:
    """Why a question cannot be used."""
    gold = trace.gold
    if not trace.query.strip():
        return "without a query"
    if gold is None or not any(grade > 0 for grade in _list_grades(gold)):
        return "without gold"
    if gold.spans:
        if any(span.document not in sizes for span in gold.spans):
            return "gold in documents that are not in the corpus"
        if any(not 0 <= span.start < span.end <= sizes[span.document] for span in gold.spans):
            return "gold beyond the ends of its document"
    elif any(name not in sizes for name in gold.chunks):
        return "gold by ids that are not documents of the corpus (chunks are cut anew: give spans)"
    return None


def _list_grades(gold: Gold) -> list[float]:
    return [*gold.chunks.values(), *(span.grade for span in gold.spans)]


def _list_documents(trace: Trace) -> list[str]:
    assert trace.gold is not None
    return [span.document for span in trace.gold.spans] or list(trace.gold.chunks)


def _group_questions(traces: Sequence[Trace]) -> tuple[dict[str, str], str]:
    """Question → group: those that share a document, or where documents are too few, those whose gold overlaps."""
    found = _join_groups({trace.id: _list_documents(trace) for trace in traces})
    sizes = Counter(found.values())
    if len(sizes) >= MIN_GROUPS and max(sizes.values()) <= MAX_GROUP_SHARE * len(traces):
        return found, f"document ({len(sizes):,} groups of questions that share one)"
    spans = sorted(
        ((span, trace.id) for trace in traces for span in (trace.gold.spans if trace.gold else ())),
        key=lambda pair: (pair[0].document, pair[0].start),
    )
    found = _join_groups(_mark_overlaps(spans, traces))
    return found, (
        f"overlapping gold ({len(set(found.values())):,} groups): too few documents to divide the questions by"
    )


def _mark_overlaps(spans: Sequence[tuple[Span, str]], traces: Sequence[Trace]) -> dict[str, list[str]]:
    """Question → the stretches of overlapping gold that it has a part in."""
    found: dict[str, list[str]] = {trace.id: [f"question {trace.id}"] for trace in traces}
    at, document, end = 0, "", -1
    for span, name in spans:
        if span.document != document or span.start >= end:
            at, document, end = at + 1, span.document, span.end
        end = max(end, span.end)
        found[name].append(f"stretch {at}")
    return found


def _join_groups(marks: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Question → the name of its group: all that share a mark, directly or through others."""
    parent: dict[str, str] = {}

    def root(mark: str) -> str:
        while parent.setdefault(mark, mark) != mark:
            parent[mark] = parent[parent[mark]]
            mark = parent[mark]
        return mark

    for each in marks.values():
        for other in each[1:]:
            parent[root(other)] = root(each[0])
    return {name: root(each[0]) for name, each in marks.items()}


def split_questions(questions: Sequence[TuningQuestion], share: float = 0.5, seed: int = 0) -> QuestionSplit:
    """Divide questions at random, whole groups at a time: a `share` of them measures, the others choose.

    Raises InputError where they are all of one group: nothing then is left to measure on; UsageError for a share that
    is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise UsageError(f"holdout is between 0 and 1, got {share}.")
    groups: dict[str, list[TuningQuestion]] = {}
    for question in questions:
        groups.setdefault(question.group, []).append(question)
    names = sorted(groups)
    random.Random(seed).shuffle(names)
    selection: list[TuningQuestion] = []
    held_out: list[TuningQuestion] = []
    for name in names:
        side = held_out if len(held_out) < share * len(questions) and len(names) > 1 else selection
        side.extend(groups[name])
    if not selection or not held_out:
        raise InputError(
            f"all {len(questions):,} questions hang together: none are left to measure on. Add questions about others."
        )
    return QuestionSplit(tuple(selection), tuple(held_out))


ALPHA = 0.05
MAX_FRONTIER_POINTS = 12
"""At most so many pipelines of the frontier are measured."""
ABLATED_KINDS: tuple[StageKind, ...] = ("query", "filter", "rerank", "select", "compress")
"""Steps whose stage is held against the stage of plain BM25, or none."""
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
    """Measures recipes on the questions that chose nothing."""

    def __init__(self, runner: TrialRunner, questions: Sequence[TuningQuestion], seed: int = 0) -> None:
        self._runner, self._questions, self._seed = runner, tuple(questions), seed
        self._bounds = runner.metric.range
        self._groups = [one.group for one in questions]

    def measure_outcomes(self, config: PipelineConfig) -> list[QuestionOutcome]:
        """What a recipe makes of each question."""
        return self._runner.measure(config, self._questions)

    def measure_config(self, name: str, config: PipelineConfig) -> MeasuredPipeline:
        """A recipe with its figures."""
        found = self.measure_outcomes(config)
        span = mean_interval([one.value for one in found], self._groups, bounds=self._bounds)
        return MeasuredPipeline(
            name=name,
            config=config,
            n=len(found),
            value=span.mean,
            low=span.low,
            high=span.high,
            recall=compute_figure("recall", found),
            precision=compute_figure("precision", found),
            iou=compute_figure("iou", found),
            ms=compute_figure("latency", found),
            p95=compute_figure("latency_p95", found),
            tokens=compute_figure("tokens", found),
        )

    def compare_configs(
        self, pairs: Sequence[tuple[str, PipelineConfig, PipelineConfig, str, str]]
    ) -> tuple[Gain, ...]:
        """One recipe less another, for each (what, ours, theirs, and how both are called), corrected by Holm."""
        made = [self._compare_pair(*pair) for pair in pairs]
        adjusted = holm_adjust([one.p for one in made]) if made else []
        return tuple(
            Gain(**one._asdict(), adjusted_p=p, verdict=_judge_gain(one.difference.mean, p))
            for one, p in zip(made, adjusted, strict=True)
        )

    def _compare_pair(
        self,
        component: str,
        chosen: PipelineConfig,
        alternative: PipelineConfig,
        chosen_name: str,
        alternative_name: str,
    ) -> ConfigComparison:
        new, old = self.measure_outcomes(chosen), self.measure_outcomes(alternative)
        before, after = [one.value for one in old], [one.value for one in new]
        found = paired_difference(before, after, self._groups, bounds=self._bounds, seed=self._seed)
        p = sign_flip_test(before, after, self._groups, seed=self._seed).p
        ms, tokens = (
            fmean(getattr(one, key) for one in new) - fmean(getattr(one, key) for one in old)
            for key in ("ms", "tokens")
        )
        return ConfigComparison(component, chosen_name, alternative_name, found, p, ms, tokens)


def _judge_gain(mean: float, p: float) -> GainVerdict:
    if p > ALPHA:
        return "no gain shown"
    return "gains" if mean > 0 else "loses"


def list_ablations(
    config: PipelineConfig, plain_bm25: PipelineConfig
) -> list[tuple[str, PipelineConfig, PipelineConfig, str, str]]:
    """Each step of a recipe that plain BM25 has not, and the recipe with plain BM25's in its place.

    >>> best = PipelineConfig(stages={"retrieve": "sparse", "rerank": "rerank(lexical)", "select": "top(10)"})
    >>> [(what, theirs) for what, _, _, _, theirs in list_ablations(best, PipelineConfig())]
    [('rerank', 'none')]
    """
    found = []
    if config.chunker != plain_bm25.chunker:
        other = replace(config, chunker=plain_bm25.chunker)
        found.append(("chunker", config, other, config.chunker, plain_bm25.chunker))
    mine, theirs = config.get_stage("retrieve") or "", plain_bm25.get_stage("retrieve") or "sparse"
    if mine.partition("(")[0] != theirs.partition("(")[0]:
        needs = (config.get_stage("select") or "").startswith("diverse")
        other = replace(config, embedder=config.embedder if needs else NO_EMBEDDER)
        other = replace_stage(other, "retrieve", "sparse(k=50)")
        ours = mine if config.embedder == NO_EMBEDDER else f"{mine} with {config.embedder}"
        found.append(("retrieve", config, other, ours, "sparse(k=50)"))
    if mine.startswith("hybrid") and mine != "hybrid(k=50)":
        found.append(
            ("fusion", config, replace_stage(config, "retrieve", "hybrid(k=50)"), mine, "hybrid(k=50)")
        )
    for step in ABLATED_KINDS:
        here, there = config.get_stage(step), plain_bm25.get_stage(step)
        if here is not None and here != there:
            if step == "rerank" and (config.get_stage("select") or "").startswith("adaptive"):
                continue
            found.append((step, config, replace_stage(config, step, there), here, there or "none"))
    return found


def list_rivals(
    config: PipelineConfig, known: Sequence[PipelineConfig]
) -> list[tuple[str, PipelineConfig, PipelineConfig, str, str]]:
    """What was tried and not taken: the recipe against itself with one step as it was elsewhere, if that ran."""
    found: dict[str, tuple[str, PipelineConfig, PipelineConfig, str, str]] = {}
    kinds = dict.fromkeys(one.chunker for one in known)
    for chunker in kinds:
        if chunker != config.chunker:
            other = replace(config, chunker=chunker)
            found.setdefault(f"chunker {chunker}", ("chunker", config, other, config.chunker, chunker))
    for step in RIVAL_KINDS:
        for text in dict.fromkeys(one.get_stage(step) for one in known):
            held = config.get_stage(step)
            if text is not None and text != held:
                other = replace_stage(config, step, text)
                found.setdefault(f"{step} {text}", (step, config, other, held or "none", text))
    return list(found.values())


def select_undominated(figures: Sequence[tuple[float, ...]]) -> list[int]:
    """The places of those that no other is at least as good as in everything, and better in something.

    >>> select_undominated([(0.5, -10), (0.4, -5), (0.4, -20)])
    [0, 1]
    """
    held = np.array(figures, float)
    if not len(held):
        return []
    kept = []
    for place, one in enumerate(held):
        better = (held >= one).all(axis=1) & (held > one).any(axis=1)
        same = (held[:place] == one).all(axis=1).any()
        if not better.any() and not same:
            kept.append(place)
    return kept


def measure_frontier(
    runner: TrialRunner,
    named: Sequence[PipelineConfig],
    selection: Sequence[TuningQuestion],
    measure: Callable[[str, PipelineConfig], MeasuredPipeline],
) -> tuple[FrontierPoint, ...]:
    """The frontier of value, milliseconds and tokens by the questions that choose, with the figures of the others.

    Recipes that are `named`, the recommended one first, are among the points whether they are on it or not.
    """
    complete = [
        (runner.configs[name], [held[one.id] for one in selection])
        for name, held in runner.outcomes.items()
        if all(one.id in held for one in selection)
    ]
    figures = [
        tuple(
            round(fmean(getattr(one, key) for one in each) * sign, 4)
            for key, sign in (("value", 1), ("ms", -1), ("tokens", -1))
        )
        for _, each in complete
    ]
    places = sorted(select_undominated(figures), key=lambda place: -figures[place][0])[:MAX_FRONTIER_POINTS]
    recipes = {one.name: one for one in (*named, *(complete[place][0] for place in places))}
    return tuple(
        FrontierPoint(measured=measure(name, one), recommended=one == named[0])
        for name, one in recipes.items()
    )
