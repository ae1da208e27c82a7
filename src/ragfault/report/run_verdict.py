"""The verdict on one run in sentences that all formats share: layers, targets, and the largest problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ragfault.diagnosis.languages import describe_foreign
from ragfault.diagnosis.records import Findings, KeyOutcome, LayerHealth, MetricAggregate, Remedy
from ragfault.diagnosis.run_analysis import RIGHT_OUTCOMES
from ragfault.diagnosis.scorecard import quality_level
from ragfault.model.records import Layer
from ragfault.report.format import LAYER_TITLES, clean_text, clip_text, get_common_reason, join_names
from ragfault.stats.estimates import Interval
from ragfault.stats.intervals import mean_interval
from ragfault.text.number_format import (
    format_count,
    format_interval,
    format_number,
    format_percent,
    format_share,
    has_too_few,
)

PROBLEMS_SHOWN = 3
"""Number of problems named in a verdict."""

UNPRAISED_SHARE = 0.25
"""Share of traces with a problem from which the mean of a layer is not called good or excellent."""

NAMED_METRICS = 6
"""Number of metrics named in a sentence; the rest are counted."""

JUDGED_LAYERS: tuple[Layer, ...] = ("retrieval", "generation")
"""The layers that have a health."""


def describe_layers(findings: Findings) -> list[str]:
    """Describe each layer in a sentence: its health with its level, and the problem on most traces.

    A layer without health is described by its measured metrics; operation only where the pipeline failed.
    """
    health = {item.layer: item for item in findings.health}
    lines = [_describe_layer(findings, layer, health[layer]) for layer in JUDGED_LAYERS]
    lines += _describe_answer_key(findings.key_outcomes)
    for remedy in findings.remedies:
        if remedy.layer == "operation":
            lines.append(f"{LAYER_TITLES['operation']}: {_describe_share(remedy)}.")
    return lines


def _describe_layer(findings: Findings, layer: Layer, health: LayerHealth) -> str:
    worst = next((remedy for remedy in findings.remedies if remedy.layer == layer), None)
    problem = None if worst is None else _describe_share(worst)
    title = LAYER_TITLES[layer]
    if health.interval is None:
        measured = _describe_metrics(findings.scorecard.aggregates, health)
        return f"{title}: {measured}{f'; {problem}' if problem else ''}."
    absent = f", without {join_names(health.absent)}" if health.absent else ""
    few = has_too_few(health.interval)
    figures = f"{format_number(health.interval.mean) if few else format_interval(health.interval)}{absent}"
    level = describe_level(health.interval)
    if worst is not None and worst.share.mean >= UNPRAISED_SHARE and not worst.may_be_false_positives:
        level = level if level.split()[0] in ("poor", "fair", "too") else ""
    if layer == "generation" and _is_contradicted(health.interval, findings.key_outcomes):
        level = "by a judge that the answer key contradicts"
    if describe_foreign(findings.manifest.judge, findings.foreign_traces, findings.manifest.traces):
        level = "by a judge that does not know the language of all traces"
    return f"{title} {figures}{', ' if level else ''}{level}: {problem or 'no problem found'}."


OUTCOME_TEXTS: Mapping[KeyOutcome, str] = {
    "right answer": "in agreement", "right refusal": "rightly refused",
    "wrong answer": "without a name or number of it", "wrong refusal": "refused although gold was retrieved",
    "missed refusal": "given where a refusal is right", "cannot tell": "undecided",
}  # fmt: skip


def _describe_answer_key(outcomes: Mapping[KeyOutcome, int]) -> list[str]:
    """Describe how many answers agree with the answer key; nothing where it tells of none."""
    total = sum(outcomes.values())
    if total == outcomes.get("cannot tell", 0):
        return []
    texts = [f"{outcomes[word]:,} {text}" for word, text in OUTCOME_TEXTS.items() if outcomes.get(word)]
    return [f"Answer key, {format_count(total, 'answer')}: {', '.join(texts)}."]


def _is_contradicted(judged: Interval, outcomes: Mapping[KeyOutcome, int]) -> bool:
    """Return whether the answer key shows more answers to be right than the judge's figure, which is below good."""
    total, right = sum(outcomes.values()), sum(outcomes.get(word, 0) for word in RIGHT_OUTCOMES)
    if not total or has_too_few(judged) or quality_level(judged.high).name not in ("fair", "poor"):
        return False
    return mean_interval(np.repeat([1.0, 0.0], [right, total - right]), bounds=(0.0, 1.0)).low > judged.high


def describe_level(interval: Interval) -> str:
    """Describe the quality level of a mean; two levels where its interval reaches over the limit between them."""
    if has_too_few(interval):
        return "too few traces to grade"
    low, high = quality_level(interval.low).name, quality_level(interval.high).name
    return low if low == high else f"{low} to {high}"


def _describe_metrics(aggregates: Sequence[MetricAggregate], health: LayerHealth) -> str:
    """Describe what was measured of a layer without health, metrics with a target first; else why nothing was.

    Of generation it also says why no part of its health is known.
    """
    items = [item for item in aggregates if item.layer == health.layer]
    measured = sorted((item for item in items if item.interval), key=lambda item: item.target is None)
    if measured:
        figures = [f"{clean_text(item.metric)} {format_interval(item.interval)}" for item in measured[:2]]
        parts = health.absent if health.layer == "generation" else ()
        unknown = [f"{item.metric} not measured ({get_common_reason(item)})" for item in items if item.metric in parts]
        return ", ".join([*figures, *unknown])
    if not items:
        return "no metric was asked for"
    return f"not measured ({get_common_reason(items[0]) or 'no trace'})"


def _describe_share(remedy: Remedy) -> str:
    doubt = ", which mistakes of the judge may explain" if remedy.may_be_false_positives else ""
    return f"{remedy.title} on {format_percent(remedy.share.mean)} of traces{doubt}"


def describe_targets(findings: Findings) -> list[str]:
    """Describe which targets are missed and which the data cannot tell, each with its figure; else that all are met."""
    items = [item for item in findings.scorecard.aggregates if item.result is not None]
    lines = [
        f"{title}: {_list_targets(matching)}."
        for title, result in (("Missed targets", "fail"), ("Cannot tell", "cannot tell"))
        if (matching := [item for item in items if item.result == result])
    ]
    if lines or not items:
        return lines
    return [f"Targets met: {_list_targets(items)}."]


def _list_targets(items: Sequence[MetricAggregate]) -> str:
    figures = [
        f"{clean_text(item.metric)} {format_number(_get_decided_mean(item))} ({item.target.sign} {item.target.value:g})"
        for item in items[:NAMED_METRICS]
        if item.target
    ]
    more = len(items) - NAMED_METRICS
    return ", ".join(figures) + (f" and {more:,} more" if more > 0 else "")


def _get_decided_mean(item: MetricAggregate) -> float | None:
    """Return the mean that the target was decided on: corrected by human labels where there are enough."""
    interval = (item.ppi and item.ppi.interval) or item.interval
    return interval.mean if interval else None


def describe_problem(remedy: Remedy) -> str:
    """Describe how many traces have a problem: `irrelevant chunks: 96 of 104 traces, 92 % [86 %, 96 %]`."""
    return f"{remedy.title}: {remedy.traces:,} of {remedy.share.n:,} traces, {describe_share(remedy)}"


def describe_share(remedy: Remedy) -> str:
    """Describe the share of traces with a problem, beside that of good traces where it may be false positives alone."""
    if not remedy.may_be_false_positives or remedy.false_positive_rate is None:
        return format_share(remedy.share)
    mistakes = f"of good traces such a judge says so on up to {format_percent(remedy.false_positive_rate)}"
    return f"{format_share(remedy.share)}; {mistakes}"


def describe_example(remedy: Remedy) -> str:
    """Describe the trace that shows a problem best: its id, its query, and what is wrong there."""
    example = remedy.example
    if example is None:
        return ""
    reason = f" ({clip_text(example.reason, 80)})" if example.reason else ""
    query = clip_text(example.query, 70)
    text = clip_text(example.text, 90)
    quote = "" if text == query else f": {text}"
    return f"{clip_text(example.trace, 40)} “{query}”{quote}{reason}"


def describe_no_problem(findings: Findings) -> str:
    """Describe why no problem is named: nobody looked, or none was found."""
    if clean_text(findings.manifest.judge).split("/")[0] == "none":
        return "No problem was looked for: there was no judge."
    if failed := findings.manifest.failed:
        return f"No problem was found where there are scores; {failed:,} failed."
    if not any(item.interval for item in findings.scorecard.aggregates if item.layer != "operation"):
        return "No problem was looked for: no metric of retrieval or generation has a value."
    if unknown := [item.layer for item in findings.health if item.interval is None]:
        return f"No problem was found; the health of {' and '.join(unknown)} is not known."
    return "No problem was found on any trace."
