"""What a tuning says: small frozen records, each gain with its interval, its test, and what it costs."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.records import Gold
from ragfault.retrieval.recipes import Recipe
from ragfault.stats import Difference

__all__ = ["Bound", "Gain", "Outcome", "Point", "Question", "Row", "Shown", "Tried", "Tuned"]

Shown = Literal["gains", "loses", "no gain shown"]


class Question(Struct, frozen=True, kw_only=True):
    """A query with what should be found for it."""

    id: str
    query: str
    gold: Gold
    """Spans of documents, or documents by their ids; never chunks, which every chunker cuts anew."""
    group: str
    """Questions of one group stay on one side of the split, and are resampled together."""


class Outcome(Struct, frozen=True):
    """What a pipeline made of a question."""

    value: float
    """Of the metric that is tuned."""
    recall: float
    precision: float
    iou: float
    """The three by characters of the gold spans; where gold is documents, by documents."""
    ms: float
    tokens: float
    """Characters of the chunks that are left / 4."""


class Bound(Struct, frozen=True):
    """What a pipeline must keep to."""

    name: str
    """"latency_p95", "latency" or "tokens" (means), "recall", "precision" or "iou"."""
    sign: Literal["<=", ">="]
    value: float

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{self.value:g}"


class Row(Struct, frozen=True, kw_only=True):
    """A pipeline, measured on some questions."""

    name: str
    recipe: Recipe
    n: int
    value: float
    low: float
    """The interval of the mean, by group."""
    high: float
    recall: float
    precision: float
    iou: float
    ms: float
    p95: float
    tokens: float


class Gain(Struct, frozen=True, kw_only=True):
    """The recommended pipeline less another, on questions that chose neither."""

    what: str
    """What is different: a step, or a whole pipeline."""
    ours: str
    theirs: str
    difference: Difference
    p: float
    """Of the sign-flip test that there is no difference."""
    adjusted: float
    """The same by Holm, over all comparisons of its kind."""
    ms: float
    """Milliseconds more for a query, in the mean."""
    tokens: float
    """Tokens more for a query, in the mean."""
    shown: Shown


class Tried(Struct, frozen=True, kw_only=True):
    """A step of the search: how many candidates it had, and what it chose."""

    step: str
    candidates: int
    chosen: str
    seconds: float


class Point(Struct, frozen=True, kw_only=True):
    """A pipeline of the frontier (no other that was searched is at least as good and as cheap), or a named one."""

    row: Row
    recommended: bool = False


class Tuned(Struct, frozen=True, kw_only=True):
    """What a tuning found: chosen on some questions, measured on others."""

    metric: str
    bounds: tuple[Bound, ...]
    recipe: Recipe
    """What is recommended."""
    baseline: Recipe
    plain: Recipe
    rows: tuple[Row, ...]
    """The recommended pipeline, the present one and plain BM25, on the held-out questions."""
    gains: tuple[Gain, ...]
    """Over the present pipeline and over plain BM25."""
    steps: tuple[Gain, ...]
    """What each step of the recommended pipeline brings, by leaving it out."""
    rejected: tuple[Gain, ...]
    """What was tried and not taken, against what was."""
    frontier: tuple[Point, ...]
    tried: tuple[Tried, ...]
    selection: int
    """Questions that chose."""
    held_out: int
    """Questions that measure."""
    grouped_by: str
    notes: tuple[str, ...] = ()
    stopped: str | None = None
    """The step at which the budget was spent."""
    seconds: float = 0.0
    charged: float = 0.0
    """Seconds that all of it costs where nothing is kept from before."""
    sentences: tuple[str, ...] = ()
