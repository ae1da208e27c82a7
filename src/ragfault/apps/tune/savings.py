"""The savings calculator: what better retrieval is worth in quality, tokens and cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.comparison.compare import compare_pairs
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.records import MetricChange
from ragfault.comparison.settings import DEFAULT_COMPARISON
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.io.runs.run import Run
from ragfault.io.runs.samples import sample_runs
from ragfault.metrics.catalog import compute_score, parse_metric
from ragfault.model.errors import RunError, UsageError
from ragfault.model.records import TokenCounts, Trace, Verdicts
from ragfault.stats.estimates import RatioInterval
from ragfault.stats.quantiles import paired_ratio
from ragfault.text.number_format import (
    TOO_FEW,
    format_cost,
    format_interval,
    format_number,
    format_percent,
    has_too_few,
)

TOKEN_GAIN_SHARE = 0.3
"""The share of a relative gain in precision by which tokens fall."""
EPSILON = 1e-6
MONTHS_PER_YEAR = 12
MS_PER_HOUR = 3_600_000
PRECISION_METRICS = ("precision", "context_precision", "span_precision")
RECALL_METRICS = ("recall", "context_recall", "span_recall")
CHARACTERS_PER_TOKEN = 4
Floats = NDArray[np.float64]
Tokens = tuple[Floats, Floats]
"""Tokens or costs of each query of both runs, NaN where they are unknown."""
IMPACT_METRICS = {
    "refusal": "answers that refuse",
    "wrong_refusal": "answers that refuse although the chunks cover the query",
    "missed_refusal": "answers although the chunks do not cover the query",
    "error": "failed queries",
}
"""Metric whose mean is a share of the queries → what it counts."""


class Impact(Struct, frozen=True):
    """Share of the queries that a user notices, before and after."""

    name: str
    shares: tuple[float, float]
    """Means over the traces that are paired and scored in both runs."""
    monthly: float
    """How many more of them a month; below 0: fewer."""
    interval: tuple[float, float] | None
    """Its 95 % interval; None where none is known."""


class Savings(Struct, frozen=True, kw_only=True):
    """Quality and cost before and after."""

    precision: tuple[float, float]
    recall: tuple[float, float]
    quality: tuple[float, float]
    """The harmonic means of precision and recall."""
    gain: float
    """The relative gain in quality, in per cent."""
    tokens: float
    """The factor by which costs change, as the tokens do."""
    monthly: tuple[float, float]
    """US$ a month."""
    saved: float
    """US$ a month."""
    saved_interval: tuple[float, float] | None = None
    """Its 95 % interval by the tokens of paired traces; None without paired runs, or where none is known."""
    yearly: float
    """US$ a year."""
    irrelevant: tuple[float, float]
    """US$ a month for irrelevant chunks, at most: the part of `monthly` that follows the tokens, × (1 − precision)."""
    latency: tuple[float, float] | None = None
    """Milliseconds a query."""
    waiting: tuple[float, float] | None = None
    """Hours a month that queries wait: queries × latency."""
    queries: float
    """Queries a month."""
    cost: float
    """US$ a query before."""
    extra: float
    """US$ that each query costs more afterwards."""
    is_measured: bool
    """Whether the factor of the tokens was measured; otherwise it follows from the gain in precision."""
    basis: tuple[str, ...] = ()
    """Sources of the figures."""
    warnings: tuple[str, ...] = ()
    """Differences of the record, languages, markup and judges that the figures of two runs may rest on."""
    fell: tuple[str, ...] = ()
    """Which of precision and recall fell; of paired runs, whose interval of the change excludes 0."""
    impacts: tuple[Impact, ...] = ()
    """What users notice, of paired runs that measured it: refusals, failed queries."""
    setup: dict[str, float] = {}
    """US$ that are paid once, by what for: labelling, data preparation, compliance …"""
    payback_months: float | None = None
    """Months until what is saved has paid the set-up; None without set-up, or where nothing is saved."""
    first_year: float | None = None
    """US$ saved in the first year, less the set-up; None without set-up."""


class QueryCosts(Struct, frozen=True, kw_only=True):
    """Number and costs of the queries; the milliseconds and US$ are those of one query."""

    queries: float
    """Queries a month, 0 or more."""
    cost: float | None = None
    """US$ before, 0 or more; None: what two runs cost by the price catalogue."""
    extra: float = 0.0
    """Additional US$ afterwards."""
    latency: tuple[float, float] | None = None
    """Milliseconds before and after, 0 or more; None: what two runs measured."""


def compute_savings(
    precision: tuple[float, float],
    recall: tuple[float, float],
    costs: QueryCosts,
    factor: float | None = None,
    basis: tuple[str, ...] = (),
) -> Savings:
    """Return the value of better precision and recall.

    Quality is the harmonic mean, with 1e-6 added to its denominator. Costs follow the tokens, whose factor is
    1 − 0.3 × the relative gain in precision, but not below 0, unless a measured `factor` is given. Raises UsageError
    for shares outside 0 to 1, one of 0 before, no cost, or negative costs and latencies.

    >>> found = compute_savings((0.60, 0.85), (0.65, 0.75), QueryCosts(queries=100_000, cost=0.05))
    >>> [round(value, 3) for value in found.quality], round(found.gain, 1)
    ([0.624, 0.797], 27.7)
    >>> found.monthly, found.saved, found.yearly
    ((5000.0, 4375.0), 625.0, 7500.0)
    """
    queries, cost, extra, latency = costs.queries, costs.cost, costs.extra, costs.latency
    if not all(0 <= value <= 1 for value in (*precision, *recall)):
        raise UsageError(f"precision and recall are from 0 to 1, got {precision} and {recall}.")
    if precision[0] == 0 or (precision[0] * recall[0] == 0):
        raise UsageError(
            "the relative gain over a precision or recall of 0 is without end: there is nothing to compare."
        )
    if cost is None:
        raise UsageError("the cost of a query is not known. Give it in US$, as cost=0.05.")
    if not all(0 <= amount < math.inf for amount in (cost, queries, *(latency or ()))) or not math.isfinite(extra):
        raise UsageError(
            f"cost, queries and latencies are finite and at least 0, got {cost:g}, {queries:g} and {latency}."
        )
    quality = _compute_f1(precision[0], recall[0]), _compute_f1(precision[1], recall[1])
    relative = (precision[1] - precision[0]) / precision[0]
    tokens = max(0.0, 1 - TOKEN_GAIN_SHARE * relative) if factor is None else factor
    before = queries * cost
    fell = tuple(name for name, (old, new) in (("precision", precision), ("recall", recall)) if new < old)
    after = before * tokens + queries * extra
    return Savings(
        precision=precision,
        recall=recall,
        quality=quality,
        gain=100 * (quality[1] - quality[0]) / quality[0],
        tokens=tokens,
        monthly=(round(before, 2), round(after, 2)),
        saved=round(before - after, 2),
        yearly=round((before - after) * MONTHS_PER_YEAR, 2),
        irrelevant=(round(before * (1 - precision[0]), 2), round(before * tokens * (1 - precision[1]), 2)),
        latency=latency,
        waiting=None if latency is None else (_count_hours(queries, latency[0]), _count_hours(queries, latency[1])),
        queries=queries,
        cost=cost,
        extra=extra,
        is_measured=factor is not None,
        fell=fell,
        basis=basis,
    )


def add_setup(savings: Savings, setup: Mapping[str, float]) -> Savings:
    """Return savings with what is paid once to get there, and the months until it is paid back.

    Raises UsageError for a negative amount.

    >>> plain = compute_savings((0.60, 0.85), (0.65, 0.75), QueryCosts(queries=100_000, cost=0.05))
    >>> paid = add_setup(plain, {"labelling": 3000, "compliance": 750})
    >>> paid.payback_months, paid.first_year
    (6.0, 3750.0)
    """
    if any(amount < 0 for amount in setup.values()):
        raise UsageError(f"what is paid once is at least 0, got {dict(setup)}.")
    if not setup:
        return savings
    total = sum(setup.values())
    return replace(
        savings,
        setup=dict(setup),
        payback_months=round(total / savings.saved, 1) if savings.saved > 0 else None,
        first_year=round(savings.yearly - total, 2),
    )


def _count_hours(queries: float, latency: float) -> float:
    return round(queries * latency / MS_PER_HOUR, 6)


def _compute_f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall + EPSILON)


def compute_run_savings(old: Run, new: Run, costs: QueryCosts, model: str | None = None) -> Savings:
    """Return the savings between two runs by their precision, recall, tokens and price of the model.

    Tokens are those recorded of the prompts, where both runs have some, else characters of the chunks / 4; without a
    `latency` in milliseconds it is that of the metric, where both runs have it. Queries that failed are left out.
    Without a `cost`, prompts and answers of both runs cost what the price catalogue says of the model of their traces,
    or of `model`; a `cost` is taken to follow the tokens of the prompts. Where traces
    of both runs pair, what is saved has an interval, and `impacts` say how refusals and failures changed. Of runs with
    more than SAMPLE_TRACES traces a random sample is measured, and the basis says so. Raises UsageError where a run has
    no precision or recall, or no price is known.
    """
    old, new = sample_runs((old, new))
    means = _compute_means(old), _compute_means(new)
    names = [
        _choose_metric(means, choices, aspect)
        for choices, aspect in ((PRECISION_METRICS, "precision"), (RECALL_METRICS, "recall"))
    ]
    precision, recall = ((means[0][name], means[1][name]) for name in names)
    cost = costs.cost
    counts, token_source = _count_tokens(old, new)
    prompts = (counts[0][0], counts[1][0])
    amounts = prompts
    if cost is None:
        amounts = (_price_queries(old, counts[0], model), _price_queries(new, counts[1], model))
    paired, clusters, unpaired = None, None, ""
    try:
        paired = PairedRuns(old, new, anyway=True)
        (prompts, _), (amounts, clusters) = _select_pairs(paired, prompts), _select_pairs(paired, amounts)
    except RunError as error:
        unpaired = f"no interval: {error}"
    (read, read_after), (before, after) = map(_average, (prompts, amounts))
    if not before:
        raise UsageError(f"{old.path} records neither tokens nor chunks: there is nothing to save.")
    prices = f"{format_cost(before)} → {format_cost(after)} (prices of {model or 'the models of the traces'} by "
    prices += "genai-prices, for prompts and answers)"
    basis = (
        f"precision: {names[0]}, recall: {names[1]}, as measured",
        f"tokens a prompt: {format_number(read, 0)} → {format_number(read_after, 0)} ({token_source})",
        f"cost a query: {prices if cost is None else _describe_cost(cost, old, new)}",
        *(
            f"{run.path.name}: random sample of {run.manifest.traces:,} of {run.manifest.population:,} traces"
            for run in (old, new)
            if run.manifest.population
        ),
        *filter(None, [unpaired]),
    )
    known = replace(costs, cost=before if cost is None else cost, latency=costs.latency or _pick_latency(means))
    savings = compute_savings(precision, recall, known, after / before, basis)
    return savings if paired is None else _measure_pairs(savings, paired, paired_ratio(*amounts, clusters), names)


def _measure_pairs(savings: Savings, paired: PairedRuns, ratio: RatioInterval, names: Sequence[str]) -> Savings:
    """Return savings with what paired traces say: intervals, and what users notice.

    `ratio` is that of the tokens, `names` are the metrics of precision and recall.
    """
    ends = [] if ratio.low is None or ratio.high is None or has_too_few(ratio) else [ratio.high, ratio.low]
    saved = tuple(round(savings.queries * (savings.cost * (1 - end) - savings.extra), 2) for end in ends)
    why = ratio.reason or f"{TOO_FEW} independent pairs"
    unsure = () if saved else (f"how sure the saving is, is not known: {why}",)
    comparison = compare_pairs(paired, DEFAULT_COMPARISON, metrics=[*names, *IMPACT_METRICS])
    changes = comparison.changes
    steady = [change.metric for change in changes if change.difference is not None and change.difference.high >= 0]
    moves = [
        f"{change.metric}: {format_interval(change.difference, signed=True)} on {change.n:,} pairs"
        for change in changes
        if change.metric in names
    ]
    metrics = dict(zip(("precision", "recall"), names, strict=True))
    return replace(
        savings,
        saved_interval=saved or None,
        impacts=_measure_impacts(changes, savings.queries),
        fell=tuple(aspect for aspect in savings.fell if metrics[aspect] not in steady),
        basis=(*savings.basis, *moves),
        warnings=(*unsure, *(mismatch.sentence for mismatch in comparison.mismatches), *comparison.warnings),
    )


def describe_impacts(savings: Savings) -> list[str]:
    """Describe what users notice, in a line each."""
    lines = []
    for impact in savings.impacts:
        more = "more" if impact.monthly >= 0 else "fewer"
        ends = sorted(end if impact.monthly >= 0 else -end for end in impact.interval or ())
        shares = " → ".join(map(format_percent, impact.shares))
        bounds = f" [{format_number(ends[0], 0)}, {format_number(ends[1], 0)}]" if ends else ", no interval is known"
        lines.append(f"{impact.name}: {shares}, {format_number(abs(impact.monthly), 0)} {more} a month{bounds}")
    return lines


def _average(amounts: Tokens) -> tuple[float, float]:
    """Return the mean of what is known of both runs; 0 where nothing is."""
    old, new = (float(np.nanmean(values)) if np.isfinite(values).any() else 0.0 for values in amounts)
    return old, new


def _select_pairs(paired: PairedRuns, tokens: Tokens) -> tuple[Tokens, NDArray[np.int64] | None]:
    """Select the paired traces whose tokens are known on both sides, where there are some, and their clusters."""
    old, new = (counts[paired.paired_rows(side)] for side, counts in enumerate(tokens))
    known = np.isfinite(old) & np.isfinite(new)
    clusters = paired.pairing.clusters
    return (old[known], new[known]), None if clusters is None else clusters[known]


def _measure_impacts(changes: Iterable[MetricChange], queries: float) -> tuple[Impact, ...]:
    """Measure what users notice on paired traces, at so many queries a month."""
    impacts = []
    for change in changes:
        name, difference = IMPACT_METRICS.get(change.metric), change.difference
        if name and difference is not None and change.baseline is not None and change.candidate is not None:
            few = math.isinf(difference.low) or has_too_few(difference)
            ends = None if few else (queries * difference.low, queries * difference.high)
            impacts.append(Impact(name, (change.baseline, change.candidate), queries * difference.mean, ends))
    return tuple(impacts)


def _pick_latency(means: tuple[Mapping[str, float], Mapping[str, float]]) -> tuple[float, float] | None:
    """Pick the mean latency of both runs; None where one has none."""
    old, new = (run_means.get("latency") for run_means in means)
    return None if old is None or new is None else (old, new)


def _compute_means(run: Run) -> dict[str, float]:
    """Map each metric to its mean over the scored traces."""
    values: dict[str, list[float]] = {}
    for row in run.scores():
        if row.value is not None:
            values.setdefault(row.metric, []).append(row.value)
    return {name: fmean(metric_values) for name, metric_values in values.items()}


def _choose_metric(
    means: tuple[Mapping[str, float], Mapping[str, float]], names: tuple[str, ...], quantity: str
) -> str:
    for name in names:
        for metric in sorted(means[0], key=len):
            if metric_name(metric) == name and metric in means[1]:
                return metric
    raise UsageError(f"the runs share no measured {quantity} ({', '.join(names)}). Evaluate both with one of these.")


def _count_tokens(old: Run, new: Run) -> tuple[tuple[Floats, Floats], str]:
    """Return the tokens of prompt and answer of each query [2 x traces] of both runs, and their source.

    They are NaN where they are unknown, and of queries that failed.
    """
    recorded, counted = [], []
    for run in (old, new):
        rows = [
            (
                *(math.nan if count is None else count for count in _get_tokens(trace)),
                sum(len(chunk.text) for chunk in trace.chunks or ()) / CHARACTERS_PER_TOKEN,
                len(trace.answer or "") / CHARACTERS_PER_TOKEN,
            )
            for trace in run.traces()
        ]
        columns = np.array(rows, dtype=np.float64).reshape(-1, 4).T
        columns[:, [trace.error is not None for trace in run.traces()]] = math.nan
        recorded.append(columns[:2])
        counted.append(columns[2:])
    has_prompts, has_answers = (all(np.isfinite(counts[at]).any() for counts in recorded) for at in (0, 1))
    prompts, answers = recorded if has_prompts else counted, recorded if has_answers else counted
    tokens = [np.stack([prompts[side][0], answers[side][1]]) for side in (0, 1)]
    source = "recorded prompts" if has_prompts else "characters of the chunks / 4"
    return (tokens[0], tokens[1]), source + ", without queries that failed"


def _get_tokens(trace: Trace) -> tuple[int | None, int | None]:
    return (None, None) if trace.tokens is None else (trace.tokens.prompt, trace.tokens.completion)


def _price_queries(run: Run, tokens: Floats, model: str | None) -> Floats:
    """Return the cost of each query of a run by the metric `cost`, NaN where its tokens are unknown."""
    costs = []
    for trace, (prompt, answer) in zip(run.traces(), tokens.T, strict=True):
        if not math.isfinite(prompt + answer):
            costs.append(math.nan)
            continue
        counts = TokenCounts(prompt=round(prompt), completion=round(answer))
        filled = replace(trace, tokens=counts, model=model or trace.model)
        row = compute_score(parse_metric("cost"), filled, Verdicts(trace=trace.id))
        if row.value is None:
            raise UsageError(f"{run.path}: no cost of a query is known ({row.reason}). Give --cost, or --model.")
        costs.append(row.value)
    return np.array(costs, dtype=np.float64)


def _describe_cost(cost: float, *runs: Run) -> str:
    """Describe a given cost, with the models of the traces where these differ: it cannot hold for both."""
    names = [", ".join(sorted({trace.model for trace in run.traces() if trace.model})) or "no model" for run in runs]
    change = "" if names[0] == names[1] else f", and not to change from {names[0]} to {names[1]}"
    return f"{format_cost(cost)} before (as given), which is taken to follow the prompts{change}"
