"""Observations of judged traces, and the roll-ups by minute that they are summed into."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ragfault.comparison.decision_tree import EQUAL_DEPTH
from ragfault.diagnosis.steps.operations import list_operation_faults
from ragfault.io.runs.run import MetricInfo, Run
from ragfault.metrics.catalog import compute_scores, parse_metric
from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.grouping import group_by
from ragfault.model.records import Score, ScoreStatus, StepKind, Trace, Verdicts
from ragfault.text.times import assume_utc

# how many bins a histogram has
BINS = 20
# most values: one object each; each is its own square
COMMON_VALUES = {0.0: 0.0, 1.0: 1.0}
# how many of its worst traces a roll-up names
MAX_WORST = 5
# how many roll-ups are in the making at once: each takes more memory than a finished one
MAX_BUILDERS = 20_000

VALUE_GRAIN = 1 << 16
"""Values are kept to one part in so many: sums of such, and of their squares, are exact in floating point for up to
two million values from 0 to 1, so that the order of merging can never show."""


class Observation(Struct, frozen=True, kw_only=True, gc=False):
    """Value of a metric, or the lack of one, at a time in live traffic."""

    metric: str
    trace: str
    # seconds since 1970, UTC
    time: float
    status: ScoreStatus = "scored"
    # a number exactly where `status` is "scored"
    value: float | None = None
    route: str | None = None
    # what else it is counted under: "release=7", "position=3"
    cohorts: tuple[str, ...] = ()
    # whether it counts for its route as well, or for its cohorts only
    counts_for_route: bool = True


class WorstTrace(Struct, frozen=True, order=True, gc=False):
    """Trace with its value; the worse sorts first."""

    # the value where lower is better, negated: the least of these is the worst
    badness: float
    trace: str
    value: float


class Rollup(Struct, frozen=True, kw_only=True, gc=False):
    """Summary of the values of one metric on one route within a minute, or within any merged stretch."""

    metric: str
    # none: the traces that name no route
    route: str | None = None
    cohort: str | None = None
    """None: all traces of the route; else those of one cohort, such as "release=7", over all routes."""
    # minutes since 1970, UTC; of merged roll-ups the first
    minute: int
    # values
    n: int = 0
    sum: float = 0.0
    squares: float = 0.0
    # how many values are in each bin of `bin_edges`
    bins: tuple[int, ...] = (0,) * BINS
    undefined: int = 0
    failed: int = 0
    # the traces with the worst values, the worst first, at most five
    worst: tuple[WorstTrace, ...] = ()

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Return the identity of the roll-up; None and the empty text are equal."""
        return (self.metric, self.route or "", self.cohort or "", self.minute)


class ProductSums(Struct, frozen=True, kw_only=True, gc=False):
    """Sums of products of two metrics within a minute, over the traces on which both have a value."""

    first: str
    second: str
    route: str | None = None
    minute: int
    n: int = 0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    yy: float = 0.0
    xy: float = 0.0


def merge_rollups(first: Rollup, second: Rollup) -> Rollup:
    """Merge two roll-ups of one metric, route and cohort.

    Associative and commutative: exactly so for values from 0 to 1, to rounding for others. Raises ValueError for
    roll-ups of different things.

    >>> seen = [Observation(metric="m", trace=name, time=60.0, value=value) for name, value in (("a", 1.0), ("b", 0.5))]
    >>> found = merge_rollups(roll_up(seen)[0], Rollup(metric="m", minute=2, undefined=1))
    >>> found.minute, found.n, found.sum, found.undefined, found.worst[0].trace
    (1, 2, 1.5, 1, 'b')
    """
    if (first.metric, first.route, first.cohort) != (second.metric, second.route, second.cohort):
        raise ValueError(f"{first.metric} of {first.route} and {second.metric} of {second.route} are not of one kind")
    return Rollup(
        metric=first.metric,
        route=first.route,
        cohort=first.cohort,
        minute=min(first.minute, second.minute),
        n=first.n + second.n,
        sum=first.sum + second.sum,
        squares=first.squares + second.squares,
        bins=tuple(a + b for a, b in zip(first.bins, second.bins, strict=True)),
        undefined=first.undefined + second.undefined,
        failed=first.failed + second.failed,
        worst=tuple(sorted(first.worst + second.worst)[:MAX_WORST]),
    )


def merge_product_sums(first: ProductSums, second: ProductSums) -> ProductSums:
    """Merge sums of products of the same two metrics on one route."""
    sums = {name: getattr(first, name) + getattr(second, name) for name in ("n", "x", "y", "xx", "yy", "xy")}
    return ProductSums(
        first=first.first, second=first.second, route=first.route, minute=min(first.minute, second.minute), **sums
    )


def merge_by_key(rollups: Iterable[Rollup]) -> tuple[Rollup, ...]:
    """Merge roll-ups with equal keys; ordered by key."""
    by_metric = group_by(rollups, lambda rollup: rollup.metric)
    merged: list[Rollup] = []
    # A metric at a time: the keys that are sorted take memory too.
    for rollup in chain.from_iterable(sorted(by_metric[name], key=lambda item: item.key) for name in sorted(by_metric)):
        if merged and merged[-1].key == rollup.key:
            merged[-1] = merge_rollups(merged[-1], rollup)
        else:
            merged.append(rollup)
    return tuple(merged)


def bin_edges(low: float | None, high: float | None) -> tuple[float, ...]:
    """Return the 21 edges of a metric's histogram.

    Twenty equal bins over a bounded range; powers of two from 1 where the range has no end. What lies outside is
    counted in the first or the last bin.

    >>> bin_edges(0, 1)[:3], bin_edges(0, None)[:4]
    ((0.0, 0.05, 0.1), (0.0, 1.0, 2.0, 4.0))
    """
    if low is not None and high is not None and high > low:
        return tuple(low + (high - low) * at / BINS for at in range(BINS + 1))
    return (0.0, *(float(1 << at) for at in range(BINS)))


def roll_up(observations: Iterable[Observation], measures: Iterable[MetricInfo] = ()) -> tuple[Rollup, ...]:
    """Roll observations up by minute, ordered by key.

    `measures` say each metric's range and which way is better; a metric that is not among them has values from 0
    to 1, of which higher is better. Rolling up parts and merging them is the same as rolling up the whole.

    >>> found = roll_up([Observation(metric="m", trace=str(at), time=30.0 * at, value=0.25) for at in range(4)])
    >>> [(each.minute, each.n, each.sum) for each in found]
    [(0, 2, 0.5), (1, 2, 0.5)]
    """
    known = {measure.name: measure for measure in measures}
    tallies: dict[tuple[str, str | None, str | None, int], _RollupBuilder] = {}
    rollups: list[Rollup] = []
    # equal ones are stored once
    histograms: dict[tuple[int, ...], tuple[int, ...]] = {}
    # each is one object, for all metrics
    minutes: dict[int, int] = {}
    for observation in observations:
        if len(tallies) > MAX_BUILDERS:
            rollups += (tally.build(*key, histograms) for key, tally in tallies.items())
            tallies.clear()
        minute = math.floor(observation.time / 60)
        minute = minutes.setdefault(minute, minute)
        places = [(observation.route, None)] if observation.counts_for_route else []
        for route, cohort in (*places, *((None, cohort) for cohort in observation.cohorts)):
            key = (observation.metric, route, cohort, minute)
            tally = tallies.get(key)
            if tally is None:
                tally = tallies[key] = _RollupBuilder(
                    known.get(observation.metric, MetricInfo(observation.metric, "operation"))
                )
            tally.add(observation)
    rollups += (tally.build(*key, histograms) for key, tally in tallies.items())
    return merge_by_key(rollups)


class _RollupBuilder:
    """Builder of one roll-up."""

    __slots__ = ("bins", "high", "low", "n", "sign", "squares", "status_counts", "sum", "worst")

    def __init__(self, measure: MetricInfo) -> None:
        self.low, self.high = measure.low, measure.high
        self.sign = 1.0 if measure.better == "higher" else -1.0
        self.bins, self.n, self.sum, self.squares = [0] * BINS, 0, 0.0, 0.0
        self.status_counts: defaultdict[str, int] = defaultdict(int)
        self.worst: list[WorstTrace] = []

    def add(self, observation: Observation) -> None:
        if observation.status != "scored" or observation.value is None:
            self.status_counts[observation.status] += 1
            return
        # Of sparse traffic most roll-ups hold one value: equal numbers are one object.
        value = round(observation.value * VALUE_GRAIN) / VALUE_GRAIN
        value = COMMON_VALUES.get(value, value)
        square = COMMON_VALUES.get(value, value * value)
        self.n += 1
        self.sum, self.squares = (self.sum + value, self.squares + square) if self.n > 1 else (value, square)
        self.bins[_bin_index(value, self.low, self.high)] += 1
        self.worst.append(WorstTrace(value if self.sign > 0 else -value, observation.trace, value))
        if len(self.worst) > 8 * MAX_WORST:
            self.worst = sorted(self.worst)[:MAX_WORST]

    def build(
        self,
        metric: str,
        route: str | None,
        cohort: str | None,
        minute: int,
        histograms: dict[tuple[int, ...], tuple[int, ...]],
    ) -> Rollup:
        bins = tuple(self.bins)
        return Rollup(
            metric=metric,
            route=route,
            cohort=cohort,
            minute=minute,
            n=self.n,
            sum=self.sum,
            squares=self.squares,
            bins=histograms.setdefault(bins, bins),
            undefined=self.status_counts["undefined"],
            failed=self.status_counts["failed"],
            worst=tuple(sorted(self.worst)[:MAX_WORST]),
        )


def _bin_index(value: float, low: float | None, high: float | None) -> int:
    if low is not None and high is not None and high > low:
        return min(BINS - 1, max(0, math.floor((value - low) / (high - low) * BINS)))
    return 0 if value < 1 else min(BINS - 1, math.floor(math.log2(value)) + 1)


def sum_products(observations: Iterable[Observation], pairs: Iterable[tuple[str, str]]) -> tuple[ProductSums, ...]:
    """Sum the products of pairs of metrics by minute.

    >>> seen = [Observation(metric=m, trace="a", time=0.0, value=v) for m, v in (("m", 0.5), ("k", 0.25))]
    >>> sum_products(seen, [("m", "k")])[0].xy
    0.125
    """
    metric_pairs = tuple(pairs)
    names = {name for pair in metric_pairs for name in pair}
    traces: defaultdict[tuple[str | None, int, str], dict[str, float]] = defaultdict(dict)
    for observation in observations:
        if observation.counts_for_route and observation.metric in names and observation.value is not None:
            value = round(observation.value * VALUE_GRAIN) / VALUE_GRAIN
            traces[observation.route, math.floor(observation.time / 60), observation.trace][observation.metric] = value
    merged: dict[tuple[str, str, str, int], ProductSums] = {}
    for (route, minute, _), values in traces.items():
        for first, second in metric_pairs:
            if first in values and second in values:
                x, y = values[first], values[second]
                products = ProductSums(
                    first=first, second=second, route=route, minute=minute, n=1, x=x, y=y, xx=x * x, yy=y * y, xy=x * y
                )
                key = (first, second, route or "", minute)
                merged[key] = products if key not in merged else merge_product_sums(merged[key], products)
    return tuple(merged[key] for key in sorted(merged))


COHORT_FIELDS = ("route", "model", "release", "prompt_version")
"""What traffic is divided by under a name of its own; anything else is metadata.KEY. `release` and `prompt_version`
are keys of the metadata."""

EQUAL_DEPTH_CHUNKS = 3
"""Over how many chunks the relevance at equal depth is taken: the first so many, however long the list is."""

LEVEL_WEIGHTS = {"high": 1.0, "medium": 0.7, "low": 0.3, "none": 0.0}
"""The weights of context_relevance, for the same at equal depth."""

HEALTH_SCORES = tuple(map(parse_metric, ("context_relevance", "chunk_utilization")))
"""Metrics of RAG health that are computed from the verdicts where they are not among the scores."""

CHUNK_RELEVANCE, CHUNK_USE = "chunk_relevance", "chunk_use"
"""Series of single chunks, which exist only by position and by number of chunks."""

STEP_METRICS: dict[StepKind, str] = {kind: f"{kind} steps without a fault" for kind in get_args(StepKind)}
"""Kind of step → the share of the traces with such steps in which none of them has a fault of its operation."""

LOG_LATENCY = "log_latency"
"""The logarithm of the milliseconds of a trace, from 0 for one to 1 for a million: 0.05 more is twice as long."""

OPERATION_TITLES = {
    "error": "More traces end in an error",
    "blank_answer": "More answers are blank",
    "empty_retrieval": "More retrievals return no chunk",
    LOG_LATENCY: "Traces take longer",
}
"""What it is called that a metric of operation got worse."""

COHORT_ROUTE = "cohort "
"""What the names of cohorts begin with where they are followed like routes: "cohort release=7"."""

FAILURES = tuple(name for name in OPERATION_TITLES if name != LOG_LATENCY)
"""Those that are shares of traces of which other metrics, computed from what is missing, are worse or undefined."""

DERIVED_METRICS: tuple[MetricInfo, ...] = (
    MetricInfo("context_relevance", "retrieval"),
    MetricInfo("chunk_utilization", "retrieval"),
    MetricInfo("missing_context_rate", "retrieval", "lower"),
    MetricInfo(EQUAL_DEPTH, "retrieval"),
    MetricInfo("depth", "operation", "lower", 0.0, None),
    MetricInfo(CHUNK_RELEVANCE, "retrieval"),
    MetricInfo(CHUNK_USE, "retrieval"),
    *(MetricInfo(name, "operation") for name in STEP_METRICS.values()),
    MetricInfo(LOG_LATENCY, "operation", "lower"),
)
"""What is watched beside the metrics of the scores, whichever these are: the figures of RAG health, relevance over the
first three chunks, chunks per trace, relevance and use of single chunks by position and number, faults of steps, and
the logarithm of latency."""


def collect_measures(runs: Iterable[Run]) -> tuple[MetricInfo, ...]:
    """Return the metrics of some runs and the derived ones, each once."""
    return add_derived(measure for run in runs for measure in run.manifest.metrics)


def add_derived(measures: Iterable[MetricInfo]) -> tuple[MetricInfo, ...]:
    """Return metrics with the derived ones behind them, each name once."""
    by_name = {measure.name: measure for measure in measures}
    return tuple({**by_name, **{own.name: own for own in DERIVED_METRICS if own.name not in by_name}}.values())


def observe_trace(
    trace: Trace, verdicts: Verdicts | None, scores: Iterable[Score], by: Sequence[str] = ()
) -> Iterator[Observation]:
    """Yield the observations of one judged trace; none where it has no time.

    Every score; of the verdicts the figures of `DERIVED_METRICS` that are no score, those of chunks by the chunk's
    position and by the number of chunks. `by` names the fields whose values are cohorts. Gold is applied to `verdicts`
    already where it is to decide.

    >>> from datetime import UTC, datetime
    >>> one = Trace(id="a", query="q", route="web", time=datetime(1970, 1, 1, 0, 2, tzinfo=UTC))
    >>> two = Score(trace="a", metric="triad", layer="crosscut", status="scored", value=0.5)
    >>> [(each.metric, each.time, each.value, each.route) for each in observe_trace(one, None, [two])]
    [('triad', 120.0, 0.5, 'web')]
    """
    if trace.time is None:
        return
    seconds, groups = assume_utc(trace.time).timestamp(), trace_cohorts(trace, by)
    scored = set()
    for score in scores:
        scored.add(score.metric)
        yield Observation(
            metric=score.metric,
            trace=trace.id,
            time=seconds,
            status=score.status,
            value=score.value,
            route=trace.route,
            cohorts=groups,
        )
    for metric, value, own in _derive_values(trace, verdicts):
        if metric in scored:
            continue
        yield Observation(
            metric=metric,
            trace=trace.id,
            time=seconds,
            value=value,
            route=trace.route,
            cohorts=own if own else groups,
            counts_for_route=not own,
        )


def is_cohort(route: str | None) -> bool:
    """Return whether a route stands for a cohort over all routes."""
    return route is not None and route.startswith(COHORT_ROUTE)


def trace_cohorts(trace: Trace, by: Sequence[str]) -> tuple[str, ...]:
    """Return the cohorts of a trace by some fields, such as "release=7"; fields without a value are left out."""
    cohorts = []
    for field in by:
        if field in ("route", "model"):
            value = getattr(trace, field)
        else:
            value = trace.metadata.get(field.removeprefix("metadata."))
        if value is not None:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            cohorts.append(f"{field}={text}")
    return tuple(cohorts)


def _derive_values(trace: Trace, verdicts: Verdicts | None) -> Iterator[tuple[str, float, tuple[str, ...]]]:
    """Yield metric, value and own cohorts of each derived value."""
    size = None if trace.chunks is None else len(trace.chunks)
    bucket = "1–3" if not size or size <= 3 else "4–6" if size <= 6 else "7–10" if size <= 10 else "11+"
    count = f"chunks={bucket}" if size else None
    if size is not None:
        yield "depth", float(size), ()
        if count:
            yield "depth", float(size), (count,)
    if trace.latency is not None and trace.latency.total is not None:
        yield LOG_LATENCY, min(1.0, math.log10(max(1.0, trace.latency.total)) / 6), ()
    yield from _derive_steps(trace)
    if verdicts is None:
        return
    yield from _derive_health(trace, verdicts)
    for metric, values in (
        (CHUNK_RELEVANCE, [chunk.relevance for chunk in verdicts.chunk or ()]),
        (CHUNK_USE, [float(use.used) for use in verdicts.use or ()]),
    ):
        if len(values) == size and count:
            for at, value in enumerate(values, start=1):
                yield metric, value, (f"position={at if at <= 10 else '11+'}", count)


def _derive_steps(trace: Trace) -> Iterator[tuple[str, float, tuple[str, ...]]]:
    """Yield for each kind of step that a trace takes whether none of its steps has a fault of its operation."""
    if not trace.steps:
        return
    faulty = {fault.kind for fault in list_operation_faults(trace) if fault.is_lasting}
    taken = {step.kind for step in trace.steps} | faulty
    for kind, name in STEP_METRICS.items():
        if kind in taken:
            yield name, float(kind not in faulty), ()


def _derive_health(trace: Trace, verdicts: Verdicts) -> Iterator[tuple[str, float, tuple[str, ...]]]:
    """Yield the figures of RAG health, and the relevance at equal depth."""
    if verdicts.missing is not None:
        yield "missing_context_rate", float(bool(verdicts.missing)), ()
    for score in compute_scores(HEALTH_SCORES, trace, verdicts, "ignore"):
        if score.value is not None:
            yield score.metric, score.value, ()
    if verdicts.chunk:
        weights = [LEVEL_WEIGHTS[chunk.level] for chunk in verdicts.chunk]
        yield EQUAL_DEPTH, sum(weights[:EQUAL_DEPTH_CHUNKS]) / len(weights[:EQUAL_DEPTH_CHUNKS]), ()


def observe_runs(runs: Iterable[Run], by: Sequence[str] = ("route",)) -> Iterator[Observation]:
    """Iterate over the observations of all timed traces of some runs, in their order; by route where `by` names it.

    Elsewhere routes are cohorts, so that a drop by other shares of theirs is told from a fault.
    Raises UnknownName for a field that does not exist, UsageError where no trace has a time.
    """
    for field in by:
        if field not in COHORT_FIELDS and not field.startswith("metadata."):
            raise UnknownName("field to divide by", field, [*COHORT_FIELDS, "metadata.KEY"])
    return _observe_traces(runs, by)


def _observe_traces(runs: Iterable[Run], by: Sequence[str]) -> Iterator[Observation]:
    is_timed = False
    names, routed = [], "route" in by
    fields = [field for field in by if field != "route"] if routed else [*by, "route"]
    for run in runs:
        names.append(str(run.path))
        size = len(run.manifest.metrics)
        scores = run.scores()
        for trace, verdicts in run.evidence():
            is_timed = is_timed or trace.time is not None
            seen = observe_trace(trace, verdicts, [next(scores) for _ in range(size)], fields)
            yield from seen if routed else (replace(observation, route=None) for observation in seen)
    if not is_timed:
        raise UsageError(
            f"no trace of {', '.join(names)} has a time: there is nothing to watch. Give each trace its `time`."
        )
