"""Records of several attempts of one query."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.diagnosis.causes.records import AnswerOutcome
from ragfault.model.records import Layer
from ragfault.stats.estimates import Interval, VarianceSplit

ComparisonMethod = Literal["agreement", "spelling"]


class AttemptAnswer(Struct, frozen=True, kw_only=True):
    """The answer of one attempt."""

    trace: str
    attempt: int
    answer: str | None
    outcome: AnswerOutcome
    meaning: int
    """Answers of a query that mean the same have the same number, from 1."""


class FlakyQuery(Struct, frozen=True, kw_only=True):
    """A query whose attempts do not all mean the same, or are not all right."""

    query_id: str
    query: str
    right: float
    """The share of its attempts that are right, of those that are right or bad."""
    answers: tuple[AttemptAnswer, ...]


class MetricAttempts(Struct, frozen=True, kw_only=True):
    """One metric over the attempts of queries."""

    metric: str
    layer: Layer
    worst: Interval | None
    """The expected worst value of k attempts of a query."""
    variance: VarianceSplit | None
    """Where the variance of a value comes from; None without any."""


class AttemptReport(Struct, frozen=True, kw_only=True):
    """Reliability over several attempts of each query, and whose noise its scores have."""

    queries: int
    k: int
    """Number of attempts that the figures are about: as many as at least half of the queries have."""
    sizes: dict[int, int]
    """Number of attempts → queries with so many, copies left out."""
    copies: int
    """Attempts that are copies of another one: the same record, with the same time or latency."""
    unsure: int = 0
    """Attempts that nobody could rate: they count half, and the intervals hold whether they are right or bad."""
    all_right: Interval | None
    """pass^k: the share of queries whose k attempts are all right."""
    any_right: Interval | None
    """pass@k: the share of queries of whose k attempts any is right."""
    flakiness: Interval | None
    """The share of queries whose k answers do not all mean the same; None without a judge that compares them.

    If there are too many answers to compare, it is that of a random part of the queries: `n` says of how many."""
    compared_by: ComparisonMethod = "agreement"
    """What flakiness rests on: the agreement head of the encoder, or only words."""
    consistency: Interval | None
    """The share of chunks that two attempts of a query have in common; None if no chunks are recorded."""
    metrics: tuple[MetricAttempts, ...]
    flaky: tuple[FlakyQuery, ...]
    """The queries with most disagreement, at most ten."""
