"""The result of a tuning run: its records, and the sentence that summarizes them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.diagnosis.question_levels import QuestionLevel
from ragfault.model.records import Gold
from ragfault.retrieval.pipeline_config import PipelineConfig
from ragfault.stats.estimates import Difference
from ragfault.text.number_format import format_number

GainVerdict = Literal["gains", "loses", "no gain shown"]


class TuningQuestion(Struct, frozen=True, kw_only=True):
    """A query with what should be found for it."""

    id: str
    query: str
    gold: Gold
    """Spans of documents, or documents by their ids; never chunks, which every chunker cuts anew."""
    group: str
    """Questions of one group stay on one side of the split, and are resampled together."""
    synthetic: bool = False
    """Whether a program made it."""


class QuestionOutcome(Struct, frozen=True):
    """Result of a pipeline on a question."""

    value: float
    """Value of the tuned metric."""
    recall: float
    precision: float
    iou: float
    """Recall, precision and IoU over characters of the gold spans, or over documents if gold names documents."""
    ms: float
    tokens: float
    """Characters of the chunks that are left / 4."""


class Bound(Struct, frozen=True):
    """Constraint on a pipeline."""

    name: str
    """"latency_p95", "latency" or "tokens" (means), "recall", "precision" or "iou"."""
    sign: Literal["<=", ">="]
    value: float

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{self.value:g}"


class MeasuredPipeline(Struct, frozen=True, kw_only=True):
    """A pipeline, measured on some questions."""

    name: str
    config: PipelineConfig
    n: int
    value: float
    low: float
    """The interval of the mean, by group."""
    high: float
    recall: float
    precision: float
    iou: float
    ms: float
    p50: float
    p95: float
    tokens: float
    levels: tuple[QuestionLevel, ...] = ()
    """The metric and the recall on made questions, and on those of people; empty where none is made."""


class Gain(Struct, frozen=True, kw_only=True):
    """A pipeline less another, on questions that took no part in the search."""

    component: str
    """The part that differs: a step, or a whole pipeline."""
    chosen: str
    alternative: str
    difference: Difference
    p: float
    """p-value of the sign-flip test of no difference."""
    adjusted_p: float
    """The same by Holm, over all comparisons of its kind."""
    ms: float
    """Milliseconds more for a query, in the mean."""
    tokens: float
    """Tokens more for a query, in the mean."""
    verdict: GainVerdict


class SearchStep(Struct, frozen=True, kw_only=True):
    """A step of the search: how many candidates it had, and what it chose."""

    step: str
    candidates: int
    chosen: str
    seconds: float


class FrontierPoint(Struct, frozen=True, kw_only=True):
    """A pipeline of the frontier (no other that was searched is at least as good and as cheap), or a named one."""

    measured: MeasuredPipeline
    recommended: bool = False
    undominated: bool | None = None
    """True on the frontier, by the questions that chose; None where the search did not run it on all of them."""


class SearchTrial(Struct, frozen=True, kw_only=True):
    """A pipeline that the search ran, on those of the questions that choose that it came to."""

    name: str
    questions: int
    value: float
    ms: float
    tokens: float


class TuningResult(Struct, frozen=True, kw_only=True):
    """Result of a tuning: chosen on some questions, measured on others."""

    metric: str
    bounds: tuple[Bound, ...]
    config: PipelineConfig
    """The recommended pipeline."""
    recommended: str
    """Its name, such as "the present pipeline" or "the best-scoring pipeline"."""
    reason: str
    """Why it is recommended, as a sentence."""
    best: PipelineConfig
    """The pipeline that scored best in the search."""
    baseline: PipelineConfig
    plain_bm25: PipelineConfig
    measured: tuple[MeasuredPipeline, ...]
    """The recommended pipeline and the others, on the held-out questions."""
    gains: tuple[Gain, ...]
    """The others over the present pipeline, then among themselves."""
    ablations: tuple[Gain, ...]
    """Contribution of each step of the best-scoring pipeline, by leaving it out."""
    rejected: tuple[Gain, ...]
    """The best-scoring pipeline against each rejected alternative."""
    frontier: tuple[FrontierPoint, ...]
    trials: tuple[SearchTrial, ...]
    """Every pipeline that the search ran, the best first."""
    search_steps: tuple[SearchStep, ...]
    selection_questions: int
    """Questions that chose."""
    holdout_questions: int
    """Questions that measure."""
    grouped_by: str
    notes: tuple[str, ...] = ()
    stopped_at: str | None = None
    """The step at which the budget was spent."""
    seconds: float = 0.0
    uncached_seconds: float = 0.0
    """Seconds that all of it costs where nothing is kept from before."""


COMPONENT_NAMES = {
    "query": "changing the query", "filter": "filtering", "retrieve": "searching", "fusion": "fusing",
    "rerank": "reranking", "select": "selecting", "compress": "compressing", "chunker": "cutting",
}  # fmt: skip
NEGLIGIBLE_MS = 0.5
"""Milliseconds below which nothing is said of them."""
NEGLIGIBLE_TOKENS = 20
"""Tokens below which nothing is said of them."""


def describe_cost(gain: Gain) -> str:
    """Return the cost or saving of a gain in words; an empty text where it is small.

    A cost is of the mean query.
    """
    amounts = ((gain.ms, "ms", NEGLIGIBLE_MS), (gain.tokens, "tokens", NEGLIGIBLE_TOKENS))
    figures: dict[str, list[str]] = {"costs {} more": [], "saves {}": []}
    for amount, unit, least in amounts:
        if abs(amount) >= least:
            wording = "costs {} more" if amount > 0 else "saves {}"
            figures[wording].append(f"{format_number(abs(amount), 0)} {unit}")
    return " and ".join(wording.format(" and ".join(texts)) for wording, texts in figures.items() if texts)


def summarize_tuning(result: TuningResult) -> str:
    """Summarize what a tuning recommends and why."""
    return f"Recommended: {result.recommended}. {result.reason}"


def capitalize(text: str) -> str:
    """Return a text with a capital first letter, and the others as they are."""
    return text[:1].upper() + text[1:]
