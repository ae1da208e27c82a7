"""Compare two judges on the same traces, verdict by verdict and metric by metric."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from msgspec import Struct

from ragfault.errors import InputError, UsageError
from ragfault.evaluation.agreement.figures import IntervalOptions
from ragfault.evaluation.agreement.human_verdicts import COMPARED_METRICS, compare_metric
from ragfault.evaluation.agreement.judge_runner import run_judge
from ragfault.evaluation.agreement.labeled_traces import LabeledSource, rank_randomly
from ragfault.evaluation.agreement.measurement import JudgeSpeed
from ragfault.io import read_traces
from ragfault.io.runs import Run
from ragfault.judges import load_judge
from ragfault.metrics import compute_score, parse_metric
from ragfault.protocols import Judge
from ragfault.records import ClaimVerdict, Layer, Trace, Verdicts
from ragfault.stats import BootstrapEstimate, Difference, Interval, bootstrap_estimates
from ragfault.stats.agreement import TwoRaterRatings
from ragfault.stats.clusters import FloatArray

ComparedKind = Literal["chunk", "use", "claim", "citation", "fact", "recall", "refusal"]

VERDICT_ORDER: dict[ComparedKind, tuple[Any, ...]] = {
    "chunk": ("none", "low", "medium", "high"),
    "use": (False, True),
    "claim": ("contradicted", "unsupported", "inferred", "supported"),
    "citation": (False, True),
    "fact": (False, True),
    "recall": (False, True),
    "refusal": (False, True),
}
"""Kind of verdict → its words; the relevance of chunks is ranked."""

MIN_CLAIM_OVERLAP = 0.5
"""Two claims are one where they share so much of the shorter of them."""


class VerdictPair(NamedTuple):
    """What two judges say of one item."""

    kind: ComparedKind
    trace_index: int
    """The place of the trace."""
    item: str
    values: tuple[Any, Any]
    reasons: tuple[str | None, str | None] = (None, None)
    gap: float = 0.0
    """How far apart they are, by their probabilities, in [0, 1]."""


def pair_verdicts(trace_index: int, trace: Trace, first: Verdicts, second: Verdicts) -> Iterator[VerdictPair]:
    """Every item of a trace on which both have a word.

    Chunks are matched by id, claims by the stretch of the answer, citations and facts by their order.
    """
    for left, right in _match_by_name(first.chunk, second.chunk, "chunk"):
        gap = abs(left.relevance - right.relevance)
        yield VerdictPair(
            "chunk", trace_index, left.chunk, (left.level, right.level), (left.reason, right.reason), gap
        )
    for left, right in _match_by_name(first.use, second.use, "chunk"):
        yield _pair_booleans("use", trace_index, left.chunk, left.used, right.used)
    for claim, same in _pair_claims(first.claim or (), second.claim or ()):
        words, reasons = (claim.support, same.support), (claim.reason, same.reason)
        yield VerdictPair("claim", trace_index, claim.claim, words, reasons, _claim_gap(claim, same))
    for left, right in _pair_in_order(first.citation, second.citation, len(trace.citations or ())):
        yield _pair_booleans(
            "citation", trace_index, f"{left.chunk}: {left.claim}", left.supports, right.supports
        )
    for left, right in _pair_in_order(first.fact, second.fact, len(trace.facts or ())):
        yield _pair_booleans("fact", trace_index, left.fact, left.present, right.present)
    for left, right in _match_by_name(first.recall, second.recall, "statement"):
        yield _pair_booleans("recall", trace_index, left.statement, left.covered, right.covered)
    if first.answer is not None and second.answer is not None:
        yield _pair_booleans(
            "refusal", trace_index, trace.answer or "", first.answer.refused, second.answer.refused
        )


def _match_by_name(
    first: Sequence[Any] | None, second: Sequence[Any] | None, name: str
) -> Iterator[tuple[Any, Any]]:
    """Verdicts on the same thing, by what names it."""
    there = {getattr(each, name): each for each in second or ()}
    return ((each, there[getattr(each, name)]) for each in first or () if getattr(each, name) in there)


def _pair_booleans(kind: ComparedKind, trace_index: int, item: str, first: bool, second: bool) -> VerdictPair:
    return VerdictPair(kind, trace_index, item, (first, second), gap=float(first != second))


def _pair_in_order(
    first: Sequence[Any] | None, second: Sequence[Any] | None, size: int
) -> Iterable[tuple[Any, Any]]:
    """Verdicts in the order of what they are on, where both judges have one for each."""
    found = first or (), second or ()
    return zip(*found, strict=True) if len(found[0]) == len(found[1]) == size else ()


def _claim_gap(first: ClaimVerdict, second: ClaimVerdict) -> float:
    """How far two verdicts on a claim are apart; by their words, where a judge gives no probability."""
    if first.p is not None and second.p is not None:
        return abs(first.p - second.p)
    return float(first.support != second.support)


def _pair_claims(
    first: Sequence[ClaimVerdict], second: Sequence[ClaimVerdict]
) -> Iterator[tuple[ClaimVerdict, ClaimVerdict]]:
    """Claims that stand in the same place of the answer, each at most once, the closest first."""
    pairs = sorted(
        (
            (-_overlap_share(left, right), at, to)
            for at, left in enumerate(first)
            for to, right in enumerate(second)
            if _overlap_share(left, right) >= MIN_CLAIM_OVERLAP
        ),
    )
    taken: tuple[set[int], set[int]] = (set(), set())
    found = []
    for _, at, to in pairs:
        if at not in taken[0] and to not in taken[1]:
            taken[0].add(at)
            taken[1].add(to)
            found.append((at, to))
    yield from ((first[at], second[to]) for at, to in sorted(found))


def _overlap_share(first: ClaimVerdict, second: ClaimVerdict) -> float:
    """The share of the shorter claim that stands in the other."""
    least = min(first.end - first.start, second.end - second.start)
    return max(0, min(first.end, second.end) - max(first.start, second.start)) / least if least > 0 else 0.0


MAX_DISAGREEMENTS = 20
"""So many items on which the judges differ are named."""


class KindAgreement(Struct, frozen=True, kw_only=True):
    """How far two judges agree on verdicts of one kind."""

    kind: ComparedKind
    n: int
    """Items on which both have a word."""
    unmatched: tuple[int, int]
    """Items on which only the first, or only the second, has one."""
    accuracy: BootstrapEstimate
    kappa: BootstrapEstimate
    """Cohen's; linear in the levels of relevance. None where both always say the same one word."""
    alpha: BootstrapEstimate
    """Krippendorff's; ordinal for the levels of relevance."""


class JudgeMetricComparison(Struct, frozen=True, kw_only=True):
    """What a metric comes to by each of two judges, on the same traces."""

    metric: str
    layer: Layer
    n: int
    """Traces on which both have a value."""
    means: tuple[Interval, Interval]
    difference: Difference
    """The mean of the second less that of the first."""
    correlation: BootstrapEstimate


class JudgeDisagreement(Struct, frozen=True, kw_only=True):
    """An item on which two judges differ."""

    trace: str
    query: str
    kind: ComparedKind
    item: str
    values: tuple[Any, Any]
    reasons: tuple[str | None, str | None]
    gap: float


class JudgeComparison(Struct, frozen=True, kw_only=True):
    """Two judges on the same traces."""

    judges: tuple[str, str]
    """Their fingerprints."""
    traces: int
    kinds: tuple[KindAgreement, ...]
    metrics: tuple[JudgeMetricComparison, ...]
    disagreements: tuple[JudgeDisagreement, ...]
    """Where they differ most, the furthest apart of each kind first, the kinds in turn."""
    disagreement_count: int
    """Items on which they differ in all."""
    failed: tuple[int, int]
    """Traces on which each lost something."""
    speeds: tuple[JudgeSpeed | None, JudgeSpeed | None] = (None, None)
    """What the judging cost; None for verdicts of a run."""
    seed: int = 0


def _ignore_progress(*_: object) -> None:
    """Tell nobody."""


def compare_judges(  # noqa: PLR0913 - the options of one verb
    first: str | Judge,
    second: str | Judge,
    traces: LabeledSource | Iterable[Trace],
    *,
    options: tuple[dict[str, Any], dict[str, Any]] = ({}, {}),
    limit: int | None = None,
    workers: int = 1,
    resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[int, int], None] = _ignore_progress,
    **reading: Any,
) -> JudgeComparison:
    """Have two judges look at the same traces, and say how far they agree.

    Each is a name (made with its `options`) or an object of the port's shape; `traces` and `reading` are what
    `read_traces` takes; with a `limit` so many are drawn at random. Intervals are over conversations, else over traces.
    What two named judges spend together counts against the budget of each.

    Raises InputError where there is no trace.

    >>> from ragfault import Chunk
    >>> chunk = Chunk(id="a", text="The office opens at 7:30.")
    >>> trace = Trace(id="1", query="When does it open?", chunks=(chunk,), answer="It opens at 7:30.")
    >>> found = compare_judges("lexical", "embedded", [trace])
    >>> [(kind.kind, kind.n) for kind in found.kinds]
    [('chunk', 1), ('use', 1), ('claim', 1), ('refusal', 1)]
    """
    named = isinstance(traces, str | Path) or (
        isinstance(traces, Sequence)
        and len(traces) > 0
        and all(isinstance(each, str | Path) for each in traces)
    )
    found = list(
        read_traces(cast(LabeledSource, traces), **reading) if named else cast("Iterable[Trace]", traces)
    )
    if not found:
        raise InputError("there is no trace to compare judges on.")
    if limit is not None:
        kept = set(sorted((trace.id for trace in found), key=lambda name: rank_randomly(name, seed))[:limit])
        found = [trace for trace in found if trace.id in kept]
    made = [
        load_judge(each, **given) if isinstance(each, str) else each
        for each, given in zip((first, second), options, strict=True)
    ]
    purse = f"compare {uuid.uuid4().hex}"
    seen = [
        run_judge(judge, found, workers, progress, purse if isinstance(each, str) else None)
        for judge, each in zip(made, (first, second), strict=True)
    ]
    prints = (made[0].fingerprint, made[1].fingerprint)
    terms = IntervalOptions(resamples, seed)
    return _build_comparison(found, (seen[0][0], seen[1][0]), prints, (seen[0][1], seen[1][1]), terms)


def compare_run_judges(first: Run, second: Run, *, resamples: int = 1000, seed: int = 0) -> JudgeComparison:
    """The same of two runs that are there: on the traces of one id whose chunks and answer are the same in both.

    Raises UsageError where they share no such trace.
    """
    there = {trace.id: trace for trace in second.traces()}
    found = [trace for trace in first.traces() if trace.id in there and _same_inputs(trace, there[trace.id])]
    if not found:
        raise UsageError(
            f"{first.path} and {second.path} share no trace with the same chunks and answer: their judges looked at "
            "different things. Judge the traces of one again: ragfault evaluate TRACES --judge …"
        )
    seen = [{each.trace: each for each in run.verdicts([t.id for t in found])} for run in (first, second)]
    verdicts = [[side[trace.id] for trace in found] for side in seen]
    prints = (first.manifest.judge, second.manifest.judge)
    return _build_comparison(
        found, (verdicts[0], verdicts[1]), prints, (None, None), IntervalOptions(resamples, seed)
    )


def _same_inputs(first: Trace, second: Trace) -> bool:
    """Whether two traces show a judge the same."""
    chunks = [[(chunk.id, chunk.text) for chunk in each.chunks or ()] for each in (first, second)]
    return first.answer == second.answer and first.query == second.query and chunks[0] == chunks[1]


def _build_comparison(
    traces: Sequence[Trace],
    verdicts: tuple[Sequence[Verdicts], Sequence[Verdicts]],
    fingerprints: tuple[str, str],
    speeds: tuple[JudgeSpeed | None, JudgeSpeed | None],
    options: IntervalOptions,
) -> JudgeComparison:
    groups = [trace.conversation or f"={trace.id}" for trace in traces]
    items = [
        each
        for place, (trace, one, other) in enumerate(zip(traces, *verdicts, strict=True))
        for each in pair_verdicts(place, trace, one, other)
    ]
    differ = _list_disagreements(items, traces)
    kinds = [(kind, [each for each in items if each.kind == kind]) for kind in VERDICT_ORDER]
    return JudgeComparison(
        judges=fingerprints,
        traces=len(traces),
        kinds=tuple(_compare_kind(kind, found, verdicts, groups, options) for kind, found in kinds if found),
        metrics=_compare_metrics(traces, verdicts, groups, options),
        disagreements=tuple(
            _build_disagreement(traces[each.trace_index], each) for each in differ[:MAX_DISAGREEMENTS]
        ),
        disagreement_count=len(differ),
        failed=(
            sum(bool(each.failures) for each in verdicts[0]),
            sum(bool(each.failures) for each in verdicts[1]),
        ),
        speeds=speeds,
        seed=options.seed,
    )


def _list_disagreements(items: Sequence[VerdictPair], traces: Sequence[Trace]) -> list[VerdictPair]:
    """Items on which the judges differ, the furthest apart of each kind first, the kinds in turn."""
    found = [each for each in items if each.values[0] != each.values[1]]
    found.sort(key=lambda each: (-each.gap, traces[each.trace_index].id))
    turns: Counter[ComparedKind] = Counter()
    placed = []
    for each in found:
        placed.append((turns[each.kind], each))
        turns[each.kind] += 1
    return [each for _, each in sorted(placed, key=lambda pair: pair[0])]


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
    options: IntervalOptions,
) -> KindAgreement:
    """Accuracy, kappa and alpha of one kind of verdict."""
    ranked = kind == "chunk"
    crossed = TwoRaterRatings(
        [each.values[0] for each in pairs], [each.values[1] for each in pairs], VERDICT_ORDER[kind]
    )

    def statistic(weights: FloatArray) -> FloatArray:
        tables = crossed.confusion_matrices(weights)
        kappa = crossed.kappa(tables, "linear" if ranked else "none")
        alpha = crossed.alpha(tables, "ordinal" if ranked else "nominal")
        return np.stack([crossed.accuracy(tables), kappa, alpha], axis=1)

    names = [groups[each.trace_index] for each in pairs]
    accuracy, kappa, alpha = bootstrap_estimates(
        statistic, names, resamples=options.resamples, seed=options.seed
    )
    part = "answer" if kind == "refusal" else kind
    counts = [sum(_count_verdicts(getattr(each, part)) for each in side) - len(pairs) for side in verdicts]
    alone = (counts[0], counts[1])
    return KindAgreement(
        kind=kind, n=len(pairs), unmatched=alone, accuracy=accuracy, kappa=kappa, alpha=alpha
    )


def _count_verdicts(part: Any) -> int:
    return len(part) if isinstance(part, tuple) else int(part is not None)


def _compare_metrics(
    traces: Sequence[Trace],
    verdicts: tuple[Sequence[Verdicts], Sequence[Verdicts]],
    groups: Sequence[str],
    options: IntervalOptions,
) -> tuple[JudgeMetricComparison, ...]:
    """Every metric that rests on verdicts, on the traces that both judges score."""
    found = []
    for metric in map(parse_metric, COMPARED_METRICS[1:]):
        if not metric.definition.verdicts:
            continue
        rows, names = [], []
        for trace, group, *pair in zip(traces, groups, *verdicts, strict=True):
            values = [compute_score(metric, trace, each).value for each in pair]
            if None not in values:
                rows.append(values[::-1])
                names.append(group)
        if rows:
            told = compare_metric(metric, np.array(rows, np.float64), names, options)
            found.append(
                JudgeMetricComparison(
                    metric=told.metric,
                    layer=told.layer,
                    n=told.n,
                    means=(told.human, told.judge),
                    difference=told.difference,
                    correlation=told.correlation,
                )
            )
    return tuple(found)
