"""Comparison of two judges on the same traces, verdict by verdict and metric by metric."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ragfault.executors import choose_executor
from ragfault.io.attempts import rename_attempts
from ragfault.io.runs.copies import group_trace
from ragfault.io.runs.run import Run
from ragfault.io.runs.samples import sample_runs
from ragfault.io.trace_reader import read_traces
from ragfault.judges.claim_pairs import pair_claims
from ragfault.judges.loading import load_judge
from ragfault.labels.agreement import estimate_agreement
from ragfault.labels.judges.contest import ContestVerdicts, JudgeContest, find_labels, hold_contest
from ragfault.labels.judges.measurement import JudgeSpeed
from ragfault.labels.judges.measuring import load_run_labels
from ragfault.labels.judges.runner import hash_inputs, run_judge
from ragfault.labels.judges.units import derive_claim_traces
from ragfault.labels.reading.human_verdicts import COMPARED_METRICS, compare_metric
from ragfault.labels.reading.label_columns import split_map
from ragfault.labels.reading.labeled_traces import LabeledSource, LabeledTrace, LabeledTraces, hash_rank
from ragfault.labels.settings import JudgeComparisonSettings
from ragfault.metrics.catalog import compute_score, parse_metric
from ragfault.model.errors import BadTraces, InputError, UsageError
from ragfault.model.protocols import Judge
from ragfault.model.records import ClaimVerdict, Layer, Trace, Verdicts
from ragfault.model.settings import accept_fields
from ragfault.stats.bootstrap import Resampling
from ragfault.stats.estimates import BootstrapEstimate, Difference, Interval

ComparedKind = Literal["chunk", "use", "claim", "citation", "fact", "recall", "refusal"]

VERDICT_ORDER: dict[ComparedKind, tuple[Any, ...]] = {
    "chunk": ("none", "low", "medium", "high"), "use": (False, True),
    "claim": ("contradicted", "unsupported", "inferred", "supported"), "citation": (False, True),
    "fact": (False, True), "recall": (False, True), "refusal": (False, True),
}  # fmt: skip
"""Kind of verdict → labels; those of chunks are ranked."""


class VerdictPair(NamedTuple):
    """Verdicts of two judges on one item."""

    kind: ComparedKind
    # index of the trace
    trace_index: int
    item: str
    values: tuple[Any, Any]
    reasons: tuple[str | None, str | None] = (None, None)
    # distance of their probabilities, in [0, 1]
    gap: float = 0.0


def pair_verdicts(trace_index: int, trace: Trace, first: Verdicts, second: Verdicts) -> Iterator[VerdictPair]:
    """Yield the items with a verdict of both: chunks by id, claims by span, citations and facts by order."""
    for left, right in _match_by_name(first.chunk, second.chunk, "chunk"):
        gap = abs(left.relevance - right.relevance)
        yield VerdictPair("chunk", trace_index, left.chunk, (left.level, right.level), (left.reason, right.reason), gap)
    for left, right in _match_by_name(first.use, second.use, "chunk"):
        yield _pair_booleans("use", trace_index, left.chunk, left.used, right.used)
    claims, others = first.claim or (), second.claim or ()
    for left_index, right_index in pair_claims(claims, others):
        claim, match = claims[left_index], others[right_index]
        labels, reasons = (claim.support, match.support), (claim.reason, match.reason)
        yield VerdictPair("claim", trace_index, claim.claim, labels, reasons, _claim_gap(claim, match))
    for left, right in _pair_in_order(first.citation, second.citation, len(trace.citations or ())):
        yield _pair_booleans("citation", trace_index, f"{left.chunk}: {left.claim}", left.supports, right.supports)
    for left, right in _pair_in_order(first.fact, second.fact, len(trace.facts or ())):
        yield _pair_booleans("fact", trace_index, left.fact, left.present, right.present)
    for left, right in _match_by_name(first.recall, second.recall, "statement"):
        yield _pair_booleans("recall", trace_index, left.statement, left.covered, right.covered)
    if first.answer is not None and second.answer is not None:
        yield _pair_booleans("refusal", trace_index, trace.answer or "", first.answer.refused, second.answer.refused)


def _match_by_name(first: Sequence[Any] | None, second: Sequence[Any] | None, name: str) -> Iterator[tuple[Any, Any]]:
    """Match verdicts by the field that names their item."""
    second_by_name = {getattr(verdict, name): verdict for verdict in second or ()}
    return (
        (verdict, second_by_name[getattr(verdict, name)])
        for verdict in first or ()
        if getattr(verdict, name) in second_by_name
    )


def _pair_booleans(kind: ComparedKind, trace_index: int, item: str, first: bool, second: bool) -> VerdictPair:
    return VerdictPair(kind, trace_index, item, (first, second), gap=float(first != second))


def _pair_in_order(first: Sequence[Any] | None, second: Sequence[Any] | None, size: int) -> Iterable[tuple[Any, Any]]:
    """Pair verdicts by order, where both judges have one for each item."""
    sides = first or (), second or ()
    return zip(*sides, strict=True) if len(sides[0]) == len(sides[1]) == size else ()


def _claim_gap(first: ClaimVerdict, second: ClaimVerdict) -> float:
    """Return the distance of two verdicts on a claim; by their labels, where a judge gives no probability."""
    if first.p is not None and second.p is not None:
        return abs(first.p - second.p)
    return float(first.support != second.support)


# disagreements that are listed
MAX_DISAGREEMENTS = 20
# most traces of two runs whose verdicts are held at once
COMPARED_TRACES = 10_000


class KindAgreement(Struct, frozen=True, kw_only=True):
    """Agreement of two judges on verdicts of one kind."""

    kind: ComparedKind
    # items with a verdict of both
    n: int
    # items with a verdict of only the first, or only the second
    unmatched: tuple[int, int]
    accuracy: BootstrapEstimate
    # cohen's; linear for relevance levels. None where both always give the same single label.
    kappa: BootstrapEstimate
    # krippendorff's; ordinal for relevance levels
    alpha: BootstrapEstimate


class JudgeMetricComparison(Struct, frozen=True, kw_only=True):
    """Metric by each of two judges, on the same traces."""

    metric: str
    layer: Layer
    # traces with a value of both
    n: int
    means: tuple[Interval, Interval]
    # mean of the second minus that of the first
    difference: Difference
    correlation: BootstrapEstimate


class JudgeDisagreement(Struct, frozen=True, kw_only=True):
    """Item on which two judges differ."""

    trace: str
    query: str
    kind: ComparedKind
    item: str
    values: tuple[Any, Any]
    reasons: tuple[str | None, str | None]
    gap: float


class JudgeComparison(Struct, frozen=True, kw_only=True):
    """Comparison of two judges on the same traces."""

    judges: tuple[str, str]
    """Fingerprints."""
    traces: int
    kinds: tuple[KindAgreement, ...]
    metrics: tuple[JudgeMetricComparison, ...]
    disagreements: tuple[JudgeDisagreement, ...]
    """Greatest disagreements, the furthest apart of each kind first, the kinds in turn."""
    disagreement_count: int
    """Number of all disagreements."""
    failed: tuple[int, int]
    """Traces on which each judge failed in part."""
    speeds: tuple[JudgeSpeed | None, JudgeSpeed | None] = (None, None)
    """Time and cost; None for recorded verdicts."""
    seed: int = 0
    better: JudgeContest | None = None
    """Which judge is better, if people labelled the traces."""
    unread_labels: str | None = None
    """Why labels in the columns of the traces were not used."""
    population: int = 0
    """Traces of the first run, where random samples of two runs were compared; 0: all were."""


@accept_fields(JudgeComparisonSettings)
def compare_judges(
    judges: tuple[str | Judge, str | Judge], traces: LabeledSource | Iterable[Trace], settings: JudgeComparisonSettings
) -> JudgeComparison:
    """Compare two judges on the same traces.

    Each judge is a name (loaded with its `options`) or an object; `traces` and the settings of reading are what
    `read_traces` takes; `limit` samples so many traces. Intervals are over conversations, else over queries
    with the same chunks. Two named judges spend from one budget. If the traces have labels, as for `measure_judge`,
    the comparison says which judge is better; `task`, `positive` and `group` describe the labels.

    Raises InputError where there is no trace.

    >>> from ragfault import Chunk
    >>> chunk = Chunk(id="a", text="The office opens at 7:30.")
    >>> trace = Trace(id="1", query="When does it open?", chunks=(chunk,), answer="It opens at 7:30.")
    >>> comparison = compare_judges(("lexical", "embedded"), [trace])
    >>> [(kind.kind, kind.n) for kind in comparison.kinds]
    [('chunk', 1), ('use', 1), ('claim', 1), ('refusal', 1)]
    """
    from_files = isinstance(traces, str | Path) or (
        isinstance(traces, Sequence) and len(traces) > 0 and all(isinstance(judge, str | Path) for judge in traces)
    )
    rows = traces if from_files else list(cast("Iterable[Trace]", traces))
    labels = find_labels(rows, settings) if rows else None
    if isinstance(labels, LabeledTraces):
        compared: list[Trace] = list(labels.traces)
    else:
        trace_columns, _ = split_map(settings.map)
        reading = replace(settings, map=trace_columns or None).reading
        compared = rename_attempts(
            read_traces(cast(LabeledSource, rows), **reading) if from_files else cast("Iterable[Trace]", rows)
        )
    if not compared:
        raise InputError("there is no trace to compare judges on.")
    if settings.limit is not None:
        ranked = sorted(compared, key=lambda trace: hash_rank(trace.id, settings.seed))
        sampled = {trace.id for trace in ranked[: settings.limit]}
        compared = [trace for trace in compared if trace.id in sampled]
    loaded = [
        load_judge(judge, **options) if isinstance(judge, str) else judge
        for judge, options in zip(judges, settings.options, strict=True)
    ]
    budget = f"compare {uuid.uuid4().hex}"
    executor = choose_executor(settings.workers, settings.executor, settings.ray)
    labeled = _select_labels(labels, compared)
    judged = [*compared, *derive_claim_traces(labeled)]
    first, second = (
        run_judge(judge, judged, executor, settings.on_progress, budget if isinstance(given, str) else None)
        for judge, given in zip(loaded, judges, strict=True)
    )
    fingerprints = (loaded[0].fingerprint, loaded[1].fingerprint)
    intervals = Resampling(settings.resamples, settings.seed)
    verdicts = (first[0], second[0])
    on_traces = (verdicts[0][: len(compared)], verdicts[1][: len(compared)])
    comparison = _build_comparison(compared, on_traces, fingerprints, (first[1], second[1]), intervals)
    return _add_contest(comparison, labels, labeled, verdicts, intervals)


def _select_labels(labels: LabeledTraces | BadTraces | None, traces: Sequence[Trace]) -> list[LabeledTrace]:
    """Return the labels of some traces."""
    ids = {trace.id for trace in traces}
    return [item for item in labels.labeled if item.trace.id in ids] if isinstance(labels, LabeledTraces) else []


def _add_contest(
    comparison: JudgeComparison,
    labels: LabeledTraces | BadTraces | None,
    labeled: list[LabeledTrace],
    verdicts: tuple[Sequence[Verdicts], Sequence[Verdicts]],
    options: Resampling,
) -> JudgeComparison:
    """Add which judge is better on labels; verdicts on claims that are not in answers come last."""
    if isinstance(labels, BadTraces):
        return replace(comparison, unread_labels=str(labels))
    if labels is None or not labeled:
        return comparison
    separate = len(derive_claim_traces(labeled))
    rows = []
    for seen in verdicts:
        by_trace = {item.trace: item for item in seen}
        on_traces = [by_trace[item.trace.id] for item in labeled]
        rows.append(ContestVerdicts(on_traces, seen[len(seen) - separate :]))
    contest = hold_contest(labels._replace(labeled=labeled), (rows[0], rows[1]), options)
    return replace(comparison, better=contest)


def compare_run_judges(
    first: Run,
    second: Run,
    *,
    sample: int = COMPARED_TRACES,
    labels: str | Path | None = None,
    settings: JudgeComparisonSettings | None = None,
) -> JudgeComparison:
    """Compare the judges of two runs on the traces with the same id, query, chunks and answer.

    Of larger runs a random sample of `sample` traces is taken, and `population` says so; 0 takes all. Labels are those
    of the file that `ragfault label` wrote for the first run, else those in the columns of its traces. Raises
    UsageError where they share no such trace, and what reading the labels raises.
    """
    settings = settings or JudgeComparisonSettings()
    given = None if labels is None else load_run_labels(first, labels, settings.task).given
    first, second = sample_runs((first, second), sample)
    inputs = {trace.id: (trace.query, hash_inputs(trace)) for trace in second.traces()}
    shared_traces = [trace for trace in first.traces() if inputs.get(trace.id) == (trace.query, hash_inputs(trace))]
    if not shared_traces:
        raise UsageError(
            f"{first.path} and {second.path} share no trace with the same chunks and answer: their judges looked at "
            "different things. Judge the traces of one again: ragfault evaluate TRACES --judge …"
        )
    ids = [trace.id for trace in shared_traces]
    verdicts_by_run = [{verdicts.trace: verdicts for verdicts in run.verdicts(ids)} for run in (first, second)]
    verdicts = [[by_trace[trace] for trace in ids] for by_trace in verdicts_by_run]
    fingerprints = (first.manifest.judge, second.manifest.judge)
    both, intervals = (verdicts[0], verdicts[1]), Resampling(settings.resamples, settings.seed)
    comparison = _build_comparison(shared_traces, both, fingerprints, (None, None), intervals)
    known_labels = find_labels(given or shared_traces, settings)
    # No recorded judge saw a claim that is not in its answer.
    labeled = [
        item
        for item in _select_labels(known_labels, shared_traces)
        if all(claim.start >= 0 for claim in item.claims or ())
    ]
    comparison = replace(comparison, population=first.manifest.population)
    return _add_contest(comparison, known_labels, labeled, both, intervals)


def _build_comparison(
    traces: Sequence[Trace],
    verdicts: tuple[Sequence[Verdicts], Sequence[Verdicts]],
    fingerprints: tuple[str, str],
    speeds: tuple[JudgeSpeed | None, JudgeSpeed | None],
    options: Resampling,
) -> JudgeComparison:
    groups = [group_trace(trace) for trace in traces]
    items = [
        item
        for index, (trace, first, second) in enumerate(zip(traces, *verdicts, strict=True))
        for item in pair_verdicts(index, trace, first, second)
    ]
    disagreements = _list_disagreements(items, traces)
    kinds = [(kind, [item for item in items if item.kind == kind]) for kind in VERDICT_ORDER]
    return JudgeComparison(
        judges=fingerprints,
        traces=len(traces),
        kinds=tuple(_compare_kind(kind, pairs, verdicts, groups, options) for kind, pairs in kinds if pairs),
        metrics=_compare_metrics(traces, verdicts, groups, options),
        disagreements=tuple(
            _build_disagreement(traces[item.trace_index], item) for item in disagreements[:MAX_DISAGREEMENTS]
        ),
        disagreement_count=len(disagreements),
        failed=(sum(bool(item.failures) for item in verdicts[0]), sum(bool(item.failures) for item in verdicts[1])),
        speeds=speeds,
        seed=options.seed,
    )


def _list_disagreements(items: Sequence[VerdictPair], traces: Sequence[Trace]) -> list[VerdictPair]:
    """List the disagreements, the furthest apart of each kind first, the kinds in turn."""
    disagreements = [item for item in items if item.values[0] != item.values[1]]
    disagreements.sort(key=lambda item: (-item.gap, traces[item.trace_index].id))
    turns: Counter[ComparedKind] = Counter()
    ranked = []
    for item in disagreements:
        ranked.append((turns[item.kind], item))
        turns[item.kind] += 1
    return [item for _, item in sorted(ranked, key=lambda ranked_pair: ranked_pair[0])]


def _build_disagreement(trace: Trace, pair: VerdictPair) -> JudgeDisagreement:
    return JudgeDisagreement(
        trace=trace.id,
        query=trace.query,
        kind=pair.kind,
        item=pair.item,
        values=pair.values,
        reasons=pair.reasons,
        gap=pair.gap,
    )


def _compare_kind(
    kind: ComparedKind,
    pairs: Sequence[VerdictPair],
    verdicts: tuple[Sequence[Verdicts], Sequence[Verdicts]],
    groups: Sequence[str],
    options: Resampling,
) -> KindAgreement:
    """Compute accuracy, kappa and alpha of one kind of verdict."""
    agreement = estimate_agreement(
        [item.values for item in pairs],
        VERDICT_ORDER[kind],
        [groups[item.trace_index] for item in pairs],
        ranked=kind == "chunk",
        resampling=options,
    )
    assert agreement.kappa is not None
    field = "answer" if kind == "refusal" else kind
    counts = [sum(_count_verdicts(getattr(item, field)) for item in row) - len(pairs) for row in verdicts]
    unmatched = (counts[0], counts[1])
    return KindAgreement(
        kind=kind,
        n=len(pairs),
        unmatched=unmatched,
        accuracy=agreement.equal,
        kappa=agreement.kappa,
        alpha=agreement.alpha,
    )


def _count_verdicts(verdicts: Any) -> int:
    return len(verdicts) if isinstance(verdicts, tuple) else int(verdicts is not None)


def _compare_metrics(
    traces: Sequence[Trace],
    verdicts: tuple[Sequence[Verdicts], Sequence[Verdicts]],
    groups: Sequence[str],
    options: Resampling,
) -> tuple[JudgeMetricComparison, ...]:
    """Compare every metric that depends on verdicts, on the traces that both judges score."""
    comparisons = []
    for metric in map(parse_metric, COMPARED_METRICS[1:]):
        if not metric.definition.verdicts:
            continue
        rows, names = [], []
        for trace, group, *pair in zip(traces, groups, *verdicts, strict=True):
            values = [compute_score(metric, trace, verdict).value for verdict in pair]
            if None not in values:
                rows.append(values[::-1])
                names.append(group)
        if rows:
            agreement = compare_metric(metric, np.array(rows, np.float64), names, options)
            comparisons.append(
                JudgeMetricComparison(
                    metric=agreement.metric,
                    layer=agreement.layer,
                    n=agreement.n,
                    means=(agreement.human, agreement.judge),
                    difference=agreement.difference,
                    correlation=agreement.correlation,
                )
            )
    return tuple(comparisons)
