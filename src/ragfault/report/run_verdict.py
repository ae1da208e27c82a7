"""Sentences on one run that all formats share: targets, the answer key, and the largest problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ragfault.model.grouping import group_by
from ragfault.report.format import LAYER_TITLES, get_common_reason
from ragfault.report.safe_text import clean_text
from ragfault.text.number_format import format_count, format_interval, format_number, format_percent, format_share

if TYPE_CHECKING:
    from ragfault.diagnosis.records import Findings, KeyOutcome, MetricAggregate, Remedy
    from ragfault.model.records import Layer

NAMED_METRICS = 6
"""Number of metrics named in a sentence; the rest are counted."""

METRICS_DESCRIBED = 2
"""Number of metrics that stand for a layer of which nothing else is known."""

JUDGED_LAYERS: tuple[Layer, ...] = ("retrieval", "generation")
"""The layers that have a health."""


def describe_unrated(findings: Findings) -> list[str]:
    """Describe a run of which no answer was rated: why, and what was measured of each layer."""
    traces, failed = format_count(findings.manifest.traces, "trace"), findings.answers.bad if findings.answers else 0
    lines = [f"No answer of {traces} was rated{f'; {failed:,} failed or blank' if failed else ''}."]
    aggregates = findings.scorecard.aggregates
    by_layer = group_by(aggregates, lambda item: item.layer)
    return lines + [f"{LAYER_TITLES[layer]}: {describe_metrics(by_layer.get(layer, []))}." for layer in JUDGED_LAYERS]


OUTCOME_TEXTS: Mapping[KeyOutcome, str] = {
    "right answer": "right", "right refusal": "correct refusals",
    "wrong answer": "wrong", "wrong refusal": "refused although gold was retrieved",
    "missed refusal": "answered although a refusal is right", "cannot tell": "undecided",
}  # fmt: skip


def describe_answer_key(outcomes: Mapping[KeyOutcome, int]) -> list[str]:
    """Describe how many answers agree with the answer key; nothing where it tells of none."""
    total = sum(outcomes.values())
    if total == outcomes.get("cannot tell", 0):
        return []
    texts = [f"{outcomes[word]:,} {text}" for word, text in OUTCOME_TEXTS.items() if outcomes.get(word)]
    return [f"Against your answer key: {', '.join(texts)}, of {format_count(total, 'answer')}."]


def describe_metrics(items: Sequence[MetricAggregate], limit: int = METRICS_DESCRIBED) -> str:
    """Describe the means of some metrics, those with a target first, and why others were not measured."""
    if not items:
        return "no metric was asked for"
    measured = sorted((item for item in items if item.interval), key=lambda item: item.target is None)
    figures = [f"{clean_text(item.metric)} {format_interval(item.interval)}" for item in measured[:limit]]
    reasons = Counter(get_common_reason(item) or "no trace" for item in items if not item.interval)
    figures += [f"{count:,} not measured ({reason})" for reason, count in reasons.most_common(1)]
    return ", ".join(figures)


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


def describe_share(remedy: Remedy) -> str:
    """Describe the share of traces with a problem, beside that of good traces where it may be false positives alone."""
    if not remedy.may_be_false_positives or remedy.false_positive_rate is None:
        return format_share(remedy.share)
    mistakes = f"of good traces such a judge says so on up to {format_percent(remedy.false_positive_rate)}"
    return f"{format_share(remedy.share)}; {mistakes}"


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
