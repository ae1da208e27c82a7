"""Comparison of two runs metric by metric: size of the change, paired test, equivalence test and state.

The comparison is one straight line: the scores of each metric on the compared pairs, a paired test of all metrics
together, and a table with one change for each metric.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ragfault.comparison.answer_changes import count_answer_changes
from ragfault.comparison.paired_runs import PairedRuns, pair_runs
from ragfault.comparison.records import ChangeState, Comparison, MetricChange, MovedTrace
from ragfault.comparison.settings import DEFAULT_COMPARISON, BisectionSettings, ComparisonSettings
from ragfault.diagnosis.score_matrix import FAILED, QUANTILES, SCORED, is_amount, match_metrics, metric_name
from ragfault.io.runs.run import AnyRun, MetricInfo
from ragfault.labels.correction import Codes, Floats, LabeledScores, Mask, correct_difference, metric_bounds
from ragfault.labels.judges.flakiness import widen_intervals
from ragfault.metrics.aliases import resolve_alias
from ragfault.metrics.catalog import MetricDefinition, get_definitions
from ragfault.model.errors import UsageError
from ragfault.model.protocols import VerdictKind
from ragfault.model.settings import accept_fields
from ragfault.stats.differences import paired_differences
from ragfault.stats.distributions import t_quantile
from ragfault.stats.estimates import Difference, PpiDifference, QuantileChange, RatioInterval
from ragfault.stats.power import (
    FurtherMoves,
    detectable_effect,
    required_equivalence_pairs,
    required_pairs,
    typical_jump,
)
from ragfault.stats.quantiles import paired_ratio, quantile_changes
from ragfault.stats.significance import count_flips, equivalence_test, holm_adjust, sign_flip_tests
from ragfault.text.number_format import has_too_few

# the same for an unbounded metric, as a share of the baseline's mean
RELATIVE_MARGIN = 0.05
# number of traces in a list of those that moved most
MAX_MOVED = 5

ANSWER_FREE_FIELDS = frozenset({"query", "chunks", "reference", "facts", "gold"})
"""Fields of a trace that do not depend on the answer."""

ANSWER_FREE_VERDICTS: tuple[VerdictKind, ...] = ("chunk", "missing", "recall")
"""Kinds of verdict that do not depend on the answer."""


@accept_fields(ComparisonSettings)
def compare(
    baseline: AnyRun | PairedRuns, candidate: AnyRun | None = None, settings: ComparisonSettings = DEFAULT_COMPARISON
) -> Comparison:
    """Compare two runs on the traces they share, metric by metric.

    A metric is *steady* where an equivalence test (two one-sided, at `alpha`) shows the change to be
    smaller than its margin, else *dropped* or *rose* where the sign-flip test, corrected by Holm over all
    metrics compared, finds a change at `alpha` and the interval excludes 0; otherwise the data *cannot
    tell*, with about how many pairs would at `power`. The margin is `margin` times the width of the
    metric's range, 5 % of the baseline's mean where the range has no end, or what `margins` gives for a
    metric by its text or its bare name. Pairs of one conversation, or of one query, are resampled together.

    `metrics` (by their full text) selects the metrics; the correction covers these only.
    `share` is the part of alpha that is left to these metrics where other tests have the rest: corrected p are divided
    by it, so that they stand against the whole alpha.
    Raises RunError where the judges differ (unless `anyway`), the metrics have other parameters, or nothing pairs;
    UsageError for impossible settings; UnknownName for a margin of a metric that does not exist.

    >>> import tempfile
    >>> from ragfault import Chunk, Gold, Trace, compare, evaluate
    >>> def retrieve(number, chunk):
    ...     chunks, gold = (Chunk(id=chunk, text=f"Pier {chunk}."),), Gold(chunks={"a": 1.0})
    ...     return Trace(id=f"{number}", query=f"When does ferry {number} leave?", chunks=chunks, gold=gold)
    >>> old = [retrieve(number, "a") for number in range(40)]
    >>> new = [retrieve(number, "ab"[number % 2]) for number in range(40)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs = [evaluate(side, f"{folder}/{at}", metrics=["recall"]) for at, side in enumerate((old, new))]
    ...     change = compare(*runs).changes[0]
    >>> change.metric, change.state, change.baseline, change.candidate
    ('recall', 'dropped', 1.0, 0.5)
    """
    paired = pair_runs(baseline, candidate, anyway=settings.anyway)
    return add_answers(paired, compare_pairs(paired, settings, metrics=settings.metrics), seed=settings.seed)


def add_answers(paired: PairedRuns, comparison: Comparison, pair_mask: Mask | None = None, seed: int = 0) -> Comparison:
    """Return a comparison with what happened to the answers."""
    return replace(comparison, answers=count_answer_changes(paired, pair_mask, seed))


def compare_pairs(
    paired: PairedRuns,
    settings: BisectionSettings,
    *,
    metrics: Sequence[str] | None = None,
    pair_mask: Mask | None = None,
) -> Comparison:
    """Compare paired runs metric by metric, as `compare` does; `pair_mask` selects pairs."""
    _check_margin_names(settings.margins or {}, paired.shared_names())
    pairing = paired.pairing
    mask = np.ones(len(pairing), dtype=bool) if pair_mask is None else pair_mask

    measures = [measure for measure in paired.shared_metrics() if metrics is None or measure.name in metrics]
    samples = [_sample_metric(paired, measure, mask) for measure in measures]
    # numpy computes both at once
    with ThreadPoolExecutor(1) as pool:
        amounts = pool.map(lambda sample: _compare_amounts(paired, sample, mask), samples)
        tests = _test_metrics(paired, samples, mask, settings) if samples else []
    family = sum(test.adjusted is not None for test in tests) / settings.share
    changes = [
        replace(_describe_change(paired, sample, test, mask, settings, family), quantiles=quantiles, ratio=ratio)
        for sample, test, (quantiles, ratio) in zip(samples, tests, amounts, strict=True)
    ]
    old, new = paired.runs
    return Comparison(
        baseline=old.path.name,
        candidate=new.path.name,
        manifests=(old.manifest, new.manifest),
        paired_by=pairing.paired_by,
        pairs=int(mask.sum()),
        unpaired=pairing.unpaired,
        same_chunks=int(pairing.same_chunks[mask].sum()),
        same_answers=int(pairing.same_answers[mask].sum()),
        alpha=settings.alpha,
        power=settings.power,
        changes=_adjust_quantiles(changes),
        warnings=paired.warnings,
        mismatches=paired.mismatches(mask, [measure.name for measure in measures]),
        label_sources=paired.label_sources,
    )


def split_segments(paired: PairedRuns, by: str) -> list[tuple[str, Mask]]:
    """Split the pairs by a field of the baseline, the largest segment first."""
    codes, names = paired.matrices[0].segment_codes(by)
    pair_codes = codes[paired.pairing.baseline]
    segments = [(name, pair_codes == code) for code, name in enumerate(names)]
    return sorted(((name, mask) for name, mask in segments if mask.any()), key=lambda segment: -int(segment[1].sum()))


def compare_segments(paired: PairedRuns, by: str, settings: BisectionSettings) -> list[Comparison]:
    """Compare each segment of the pairs; alpha is divided by their number, which bounds any false alarm."""
    segments = split_segments(paired, by)
    shared = replace(settings, alpha=settings.alpha / max(1, len(segments)))
    comparisons = []
    for name, mask in segments:
        part = add_answers(paired, compare_pairs(paired, shared, pair_mask=mask), mask, shared.seed)
        comparisons.append(replace(part, by=by, segment=name))
    return comparisons


def _choose_margin(settings: BisectionSettings, measure: MetricInfo, mean: float) -> float:
    """Return the margin of a metric, in its units."""
    margins = settings.margins or {}
    named = {name: value for key, value in margins.items() for name in (resolve_alias(key), key)}
    for name in (measure.name, metric_name(measure.name)):
        if name in named:
            return _check_margin(measure, named[name])
    return default_margin(measure, mean, settings.margin)


def split_changes(
    comparison: Comparison, is_apart: Callable[[str], bool]
) -> tuple[tuple[MetricChange, ...], Comparison]:
    """Return the changes of the metrics that stand apart, and the comparison without them."""
    apart = tuple(change for change in comparison.changes if is_apart(change.metric))
    others = tuple(change for change in comparison.changes if not is_apart(change.metric))
    return apart, replace(comparison, changes=others)


def _check_margin_names(margins: Mapping[str, float], names: Sequence[str]) -> None:
    """Raise `UnknownName` for a margin of a metric that neither the runs nor the catalogue have."""
    known = {*get_definitions(), *names, *map(metric_name, names)}
    for text in margins:
        plain = "".join(resolve_alias(text).split())
        if plain not in known and metric_name(plain) not in known:
            match_metrics(text, names, "metric with a margin", hint=f"The runs have: {', '.join(sorted(names))}.")


def default_margin(measure: MetricInfo, mean: float, margin: float) -> float:
    """Return a margin in the units of a metric: a share of its range, else 5 % of a mean."""
    if measure.low is not None and measure.high is not None:
        return margin * (measure.high - measure.low)
    return max(RELATIVE_MARGIN * abs(mean), 1e-9)


def _check_margin(measure: MetricInfo, margin: float) -> float:
    low, high = measure.low, measure.high
    if not margin > 0 or (low is not None and high is not None and margin >= high - low):
        raise UsageError(
            f"the margin {margin:g} of {measure.name} is not above 0 and below the width of its range. "
            "Write a share as 0.05."
        )
    return margin


class MetricSample(Struct, frozen=True, eq=False, kw_only=True):
    """Scores of one metric on the compared pairs."""

    measure: MetricInfo
    # 0 where the pair is not scored on both sides
    baseline: Floats
    candidate: Floats
    # pairs that are scored on both sides
    defined: Mask
    # all inputs of the metric, and its values, are the same in both runs
    identical: bool


def _sample_metric(paired: PairedRuns, measure: MetricInfo, mask: Mask) -> MetricSample:
    baseline, candidate = (paired.values(measure.name, side)[mask] for side in (0, 1))
    defined = np.isfinite(baseline) & np.isfinite(candidate)
    baseline, candidate = np.where(defined, baseline, 0.0), np.where(defined, candidate, 0.0)
    same_chunks = bool(paired.pairing.same_chunks[mask].all())
    same_inputs = same_chunks and (bool(paired.pairing.same_answers[mask].all()) or _ignores_answer(measure.name))
    return MetricSample(
        measure=measure,
        baseline=baseline,
        candidate=candidate,
        defined=defined,
        identical=same_inputs and bool((baseline == candidate).all()),
    )


def _ignores_answer(metric: str) -> bool:
    # context_relevance at equal depth is computed by the bisection and has no definition of its own.
    definition = get_definitions().get(metric_name(metric))
    return metric.startswith("context_relevance") or (definition is not None and ignores_answer(definition))


def ignores_answer(definition: MetricDefinition) -> bool:
    """Return whether a metric reads nothing but the query, the chunks and the answer key."""
    return ANSWER_FREE_FIELDS.issuperset(definition.fields) and set(ANSWER_FREE_VERDICTS).issuperset(
        definition.verdicts
    )


class MetricTest(Struct, frozen=True, kw_only=True):
    """Difference of one metric with its test; None where no pair is scored on both sides."""

    # by the judge's scores alone
    judge_difference: Difference | None
    # corrected by human labels; None where there are none
    ppi: PpiDifference | None
    # of the label-corrected difference where there is one, else of the sign-flip test
    p: float | None
    # by Holm over all metrics whose inputs differ
    adjusted: float | None = None

    @property
    def difference(self) -> Difference | None:
        """Return the label-corrected difference where there is one, else the judge's."""
        return (self.ppi and self.ppi.difference) or self.judge_difference


def _test_metrics(
    paired: PairedRuns, samples: Sequence[MetricSample], mask: Mask, settings: BisectionSettings
) -> list[MetricTest]:
    """Test all metrics on the same resamples of the pairs."""
    baseline = np.stack([sample.baseline for sample in samples], axis=1)
    candidate = np.stack([sample.candidate for sample in samples], axis=1)
    defined = np.stack([sample.defined for sample in samples], axis=1)
    clusters = None if paired.pairing.clusters is None else paired.pairing.clusters[mask]
    measures = [sample.measure for sample in samples]
    bounds = [metric_bounds(measure) for measure in measures]
    differences = widen_intervals(
        paired_differences(baseline, candidate, clusters, defined=defined, bounds=bounds, seed=settings.seed),
        measures,
        paired.judge_flakiness,
    )
    flips = count_flips(sum(not sample.identical for sample in samples), len(baseline), settings.share * settings.alpha)
    sign_flips = sign_flip_tests(baseline, candidate, clusters, defined=defined, resamples=flips, seed=settings.seed)
    tests = []
    for sample, difference, sign_flip in zip(samples, differences, sign_flips, strict=True):
        ppi = None if sample.identical else _correct_by_labels(paired, sample, mask, clusters)
        p = None if sign_flip is None or has_too_few(difference) else sign_flip.p
        if ppi is not None and ppi.difference is not None:
            p = ppi.p
        tests.append(MetricTest(judge_difference=difference, ppi=ppi, p=p))
    family = [at for at, test in enumerate(tests) if test.p is not None and not samples[at].identical]
    for at, adjusted in zip(family, holm_adjust([tests[at].p or 0.0 for at in family]), strict=True):
        tests[at] = replace(tests[at], adjusted=min(1.0, adjusted / settings.share))
    return tests


def _correct_by_labels(
    paired: PairedRuns, sample: MetricSample, mask: Mask, clusters: Codes | None
) -> PpiDifference | None:
    labels = [paired.label_values(sample.measure.name, side) for side in (0, 1)]
    sides = [
        LabeledScores(scores[sample.defined], values and values.select(mask).select(sample.defined))
        for scores, values in zip((sample.baseline, sample.candidate), labels, strict=True)
    ]
    groups = None if clusters is None else clusters[sample.defined]
    return correct_difference(sides[0], sides[1], groups, sample.measure)


def _prefer_labels(paired: PairedRuns, sample: MetricSample, mask: Mask) -> MetricSample:
    """Return the sample with human labels in place of the scores of labelled traces, for counts and examples."""
    sides = []
    for side, scores in enumerate((sample.baseline, sample.candidate)):
        labels = paired.label_values(sample.measure.name, side)
        known = scores if labels is None else labels.values[mask]
        sides.append(np.where(np.isfinite(known) & sample.defined, known, scores))
    return replace(sample, baseline=sides[0], candidate=sides[1])


def _describe_change(
    paired: PairedRuns, sample: MetricSample, test: MetricTest, mask: Mask, settings: BisectionSettings, family: float
) -> MetricChange:
    measure, difference, n = sample.measure, test.difference, int(sample.defined.sum())
    mean = float(sample.baseline[sample.defined].mean()) if n else None
    margin = _choose_margin(settings, measure, mean or 0.0)
    equivalence_p = None if difference is None else equivalence_test(difference, margin, settings.alpha).p
    state: ChangeState = "steady" if sample.identical else "cannot tell"
    needed = detectable = None
    if not sample.identical and difference is not None and test.adjusted is not None:
        assert equivalence_p is not None
        state = classify_difference(difference, test.adjusted, equivalence_p, settings.alpha)
        clusters = None if paired.pairing.clusters is None else paired.pairing.clusters[mask]
        jump = typical_jump(sample.candidate - sample.baseline, clusters, _metric_reach(measure))
        # the spread of some skewed amounts is mostly below that of many
        is_plannable = not is_amount(measure)
        if is_plannable:
            detectable = _detectable_change(difference, margin, jump, _metric_reach(measure), settings, family)
        if is_plannable and state == "cannot tell":
            needed = pairs_to_decide(
                difference, margin, power=settings.power, alpha=settings.alpha, family=family, jump=jump
            )
    statuses = [paired.statuses(measure.name, side)[mask] for side in (0, 1)]
    scored = [status == SCORED for status in statuses]
    shown = _prefer_labels(paired, sample, mask)
    moved = np.where(sample.defined, shown.candidate - shown.baseline, 0.0)
    return MetricChange(
        metric=measure.name,
        layer=measure.layer,
        better=measure.better,
        state=state,
        baseline=mean,
        candidate=float(sample.candidate[sample.defined].mean()) if n else None,
        difference=difference,
        p=test.p,
        adjusted=test.adjusted,
        equivalence_p=equivalence_p,
        margin=margin,
        detectable=detectable,
        needed=needed,
        n=n,
        identical=sample.identical,
        ppi=test.ppi,
        judge_difference=test.judge_difference if difference is not test.judge_difference else None,
        lost=(int((scored[0] & ~scored[1]).sum()), int((scored[1] & ~scored[0]).sum())),
        failed=(int((statuses[0] == FAILED).sum()), int((statuses[1] == FAILED).sum())),
        rose=int((moved > 0).sum()),
        fell=int((moved < 0).sum()),
        gains=_list_moved(paired, shown, mask, moved),
        drops=_list_moved(paired, shown, mask, -moved),
    )


def _compare_amounts(
    paired: PairedRuns, sample: MetricSample, mask: Mask
) -> tuple[tuple[QuantileChange, ...], RatioInterval | None]:
    """Compare the quantiles and the means of an amount such as latency; nothing for other metrics."""
    if sample.identical or not is_amount(sample.measure) or not sample.defined.any():
        return (), None
    clusters = None if paired.pairing.clusters is None else paired.pairing.clusters[mask][sample.defined]
    sides = sample.baseline[sample.defined], sample.candidate[sample.defined]
    changes = quantile_changes(*sides, QUANTILES, clusters)
    return (
        tuple(change for change in changes if change.reason is None or change.quantile < QUANTILES[-1]),
        paired_ratio(*sides, clusters),
    )


def _adjust_quantiles(changes: Sequence[MetricChange]) -> tuple[MetricChange, ...]:
    """Correct the p of all changes of quantiles by Holm, apart from those of the means."""
    adjusted = iter(holm_adjust([item.p for change in changes for item in change.quantiles]))
    return tuple(
        replace(change, quantiles=tuple(replace(item, adjusted=next(adjusted)) for item in change.quantiles))
        for change in changes
    )


def classify_difference(difference: Difference, adjusted: float, equivalence_p: float, alpha: float) -> ChangeState:
    """Return the state of a metric: equivalence is tested first, then the change."""
    if equivalence_p <= alpha:
        return "steady"
    if adjusted <= alpha and not difference.low <= 0 <= difference.high:
        return "rose" if difference.mean > 0 else "dropped"
    return "cannot tell"


def _metric_reach(measure: MetricInfo) -> float:
    """Return the width of a metric's range."""
    low, high = metric_bounds(measure)
    return high - low


def _detectable_change(
    difference: Difference, margin: float, jump: float, reach: float, settings: BisectionSettings, family: float
) -> float | None:
    """Return the smallest change that these pairs would show with the power asked for; None where none would.

    It is shown under Holm's correction of `family` tests, and only if it is not so small that the equivalence test
    calls it steady.
    """
    spread = difference.deviation
    level = settings.alpha / family
    if not (math.isfinite(spread) and spread > 0) or difference.clusters < least_clusters(level):
        return None
    shown = detectable_effect(
        spread,
        difference.n,
        difference.cluster_size,
        power=settings.power,
        alpha=level,
        moves=FurtherMoves(jump, abs(difference.mean)),
    )
    bound = t_quantile(1 - settings.alpha, difference.df) - t_quantile(settings.power, difference.df)
    effect = max(shown, margin - bound * difference.error)
    return effect if effect <= reach else None


def least_clusters(level: float) -> int:
    """Return the smallest number of clusters whose sign flips can reject at a level: p is at least 2^(1−n)."""
    return max(2, 1 + math.ceil(-math.log2(level)))


def pairs_to_decide(
    difference: Difference, margin: float, *, power: float, alpha: float, family: float = 1, jump: float = 0.0
) -> int | None:
    """Return about how many pairs would tell a change of the margin from none, at the present spread.

    The significance test is corrected for `family` tests; the equivalence test is not. A change adds moves to the
    present ones, of the size `jump` (see `typical_jump`).
    """
    spread, size = difference.deviation, difference.cluster_size
    if not math.isfinite(spread) or spread <= 0 or has_too_few(difference):
        return None
    moves = FurtherMoves(jump, abs(difference.mean))
    counts = (
        required_pairs(margin, spread, size, power=power, alpha=alpha / family, moves=moves),
        required_equivalence_pairs(margin, spread, size, power=power, alpha=alpha),
        math.ceil(size * least_clusters(alpha / family)),
    )
    return None if counts[0] is None else max(count for count in counts if count is not None)


def _list_moved(paired: PairedRuns, sample: MetricSample, mask: Mask, gain: Floats) -> tuple[MovedTrace, ...]:
    """Return the traces with the largest positive gain."""
    ids, queries = paired.ids_and_queries()
    candidate_rows = paired.pairing.candidate[mask]
    top = np.argsort(-gain, kind="stable")[: min(MAX_MOVED, int((gain > 0).sum()))].tolist()
    return tuple(
        MovedTrace(
            ids[candidate_rows[at]],
            queries[candidate_rows[at]],
            float(sample.baseline[at]),
            float(sample.candidate[at]),
        )
        for at in top
    )
