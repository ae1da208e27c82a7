"""What a measurement says: small frozen records, every figure with its interval."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.records import Layer, Usage
from ragfault.stats import Bin, Difference, Estimate, Interval

__all__ = [
    "Agreement",
    "Bar",
    "Columns",
    "Curves",
    "Figure",
    "Marked",
    "Measurement",
    "MetricAgreement",
    "Speed",
    "Task",
    "Unit",
]

Task = Literal["answer", "support", "relevance"]
Unit = Literal["answer", "claim", "sentence", "chunk"]


class Figure(Struct, frozen=True, kw_only=True):
    """One figure with its interval."""

    name: str
    """`auroc`, `f1`, `sensitivity`, …"""
    value: float | None
    low: float | None = None
    """None where the data tell nothing of the spread."""
    high: float | None = None
    n: int = 0
    """What it is made from: units, or those of them that it is a share of."""
    reason: str | None = None
    """Why there is no value."""


class Bar(Struct, frozen=True, kw_only=True):
    """How many units have a score in [low, high)."""

    low: float
    high: float
    positive: int
    negative: int


class Curves(Struct, frozen=True, kw_only=True):
    """What the charts draw."""

    calibration: tuple[Bin, ...]
    """Mean score and share of positives, in bins of about equal mass."""
    roc: tuple[tuple[float, float], ...]
    """False alarms and hits (shares of negatives and of positives), from (0, 0) to (1, 1)."""
    scores: tuple[Bar, ...]


class Agreement(Struct, frozen=True, kw_only=True):
    """How far the judge agrees with people on units of one kind."""

    unit: Unit
    value: str | None = None
    """The value of the column that the traces were divided by; None: all."""
    n: int
    groups: int
    positives: int
    figures: tuple[Figure, ...]

    def figure(self, name: str) -> Figure | None:
        """The figure of that name."""
        return next((figure for figure in self.figures if figure.name == name), None)


class Marked(Struct, frozen=True, kw_only=True):
    """How the claims that the judge calls bad lie over the stretches that people marked."""

    spans: int
    """Stretches that people marked."""
    figures: tuple[Figure, ...]
    """`found`: the share of them that such a claim touches; `precision`, `recall` and `f1` of characters."""


class MetricAgreement(Struct, frozen=True, kw_only=True):
    """What a metric comes to by the judge's verdicts and by those of people, on the same traces."""

    metric: str
    layer: Layer
    n: int
    """Traces on which both have a value."""
    judge: Interval
    people: Interval
    difference: Difference
    """The judge's mean less that of people."""
    correlation: Estimate
    """Pearson's, over the traces; None where one of both does not vary."""


class Speed(Struct, frozen=True, kw_only=True):
    """What the judging cost."""

    traces: int
    """Traces that were timed: all but the first few of each process."""
    seconds: float
    """Of processor time."""
    rate: float | None
    """Traces per second on one core."""
    memory: int | None
    """The largest memory of a process at its peak, in bytes; None where the system does not tell."""
    wall: bool = False
    """Whether the seconds are those of the clock on the wall: of a judge that waits on a network."""
    usage: Usage | None = None
    """What the calls of a judge that is paid for came to; None for other judges."""


class Columns(Struct, frozen=True, kw_only=True):
    """Where the words of people stood."""

    label: str | None = None
    spans: str | None = None
    claims: str | None = None
    grades: str | None = None
    group: str | None = None
    """None: every trace by itself."""


class Measurement(Struct, frozen=True, kw_only=True):
    """How far a judge agrees with people."""

    judge: str
    """Its fingerprint."""
    source: tuple[str, ...]
    task: Task
    columns: Columns
    positive: str
    """What is counted as positive, in words."""
    threshold: str
    """`cv`, `own` or a number: where F1, precision and recall are taken."""
    cut: float | None = None
    """The threshold, or the mean of those of the folds."""
    traces: int
    """Traces that are measured."""
    unlabelled: int = 0
    """Traces left out because people said nothing of them."""
    skipped: int = 0
    """Lines and labels left out because they cannot be read."""
    failed: int = 0
    """Traces left out because the judge failed on them."""
    silent: int = 0
    """Traces left out because the judge gave no verdict on what people labelled."""
    failures: dict[str, int] = {}
    """Why it failed, and how often."""
    views: tuple[Agreement, ...]
    """The task's own units first, then those that the labels tell of as well."""
    marked: Marked | None = None
    by: str | None = None
    slices: tuple[Agreement, ...] = ()
    """For each value of the column `by`."""
    within: tuple[str, ...] = ()
    """The columns within which `auroc_within` is taken."""
    cells: int = 0
    """How many groups of those columns have positives and negatives."""
    curves: Curves | None = None
    metrics: tuple[MetricAgreement, ...] = ()
    """The metrics that the labels can speak of."""
    speed: Speed
    seed: int = 0
    resamples: int = 1000
    confidence: float = 0.95
    notes: tuple[str, ...] = ()
    """What was guessed, and what to beware of."""

    @property
    def whole(self) -> Agreement:
        """The task's own units, all of them."""
        return self.views[0]
