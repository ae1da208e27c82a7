"""The report of an ablation: which part made the change, then metric by metric the effect of each part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ragfault.report.document import (
    Block,
    Heading,
    Paragraph,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    Text,
    VerdictKind,
    VerdictMark,
    build_warnings,
)
from ragfault.report.format import LAYER_TITLES, join_names
from ragfault.report.safe_text import clean_text
from ragfault.text.number_format import format_interval, format_number

if TYPE_CHECKING:
    from ragfault.comparison.ablation.parts import Ablation, MetricAttribution, PartEffect

EFFECT_COLUMNS = (TableColumn("Part"), TableColumn("Effect", numeric=True), TableColumn(""))


def build_ablation(ablation: Ablation) -> ReportDocument:
    """Build the report of an ablation; the first sentence says which part made what worse."""
    body: list[Block] = []
    for layer, title in LAYER_TITLES.items():
        measured = [item for item in ablation.attributions if item.layer == layer and item.total is not None]
        if measured:
            body.append(Heading(title))
        for item in measured:
            body += _build_attribution(item, ablation)
    silent = [item.metric for item in ablation.attributions if item.total is None]
    if silent:
        text = f"Not scored on any query in every configuration: {join_names(silent)}"
        body.append(Paragraph(text, "note"))
    experiment = Paragraph(_describe_experiment(ablation), "note")
    lead = (Heading(summarize_blame(ablation), 1), experiment, *build_warnings(ablation.warnings))
    return ReportDocument(f"ablation of {' + '.join(ablation.parts)}", lead, tuple(body))


def summarize_blame(ablation: Ablation) -> str:
    """Summarize what each part made worse, the part with most first."""
    blame = sorted(ablation.worsened_by.items(), key=lambda item: -len(item[1]))
    worse = [f"{part} made worse: {join_names(metrics)}" for part, metrics in blame if metrics]
    if worse:
        if any(effect.moved for item in ablation.attributions for effect in item.interactions):
            worse.append("Where parts depend on each other, a share is not what one part does by itself")
        return ". ".join(worse) + "."
    if any(item.result == "cannot tell" and item.total for item in ablation.attributions):
        return "No part is shown to have made anything worse; on some metrics the data cannot tell."
    return "No part made anything worse."


def _describe_experiment(ablation: Ablation) -> str:
    count = f"{ablation.permutations} order{'' if ablation.permutations == 1 else 's'}"
    how = f"{'all orders' if ablation.permutations is None else count} of swapping"
    runs = len(ablation.configurations)
    reused = sum(configuration.reused for configuration in ablation.configurations)
    again = f", {reused:,} of them from before" if reused else ""
    return (
        f"{ablation.queries:,} queries · {runs:,} configurations of {' + '.join(ablation.parts)}{again} · {how} · "
        f"judge {clean_text(ablation.judge)}"
    )


def _build_attribution(item: MetricAttribution, ablation: Ablation) -> Iterator[Block]:
    """Build a metric: its verdict, its whole change, each share, and its mean in each configuration."""
    assert item.total is not None
    better = "" if item.better == "higher" else " (lower is better)"
    yield Heading((StyledText(item.metric, "code"), f"{better}, n {item.n:,}: {clean_text(item.verdict)}"), 3)
    effects = (item.total, *item.shares, *item.interactions)
    yield Table(EFFECT_COLUMNS, tuple(_build_effect(effect, item) for effect in effects))
    means = [
        f"{configuration.name} {format_number(mean)}"
        for configuration, mean in zip(ablation.configurations, item.means, strict=True)
    ]
    yield Paragraph(f"means: {', '.join(means)}", "note")


def _build_effect(effect: PartEffect, item: MetricAttribution) -> tuple[Text, ...]:
    state = "untouched" if effect.identical else effect.state
    name = " × ".join(effect.parts) or "whole change"
    return (name, format_interval(effect.difference), VerdictMark(state, _classify_effect(effect, item)))


def _classify_effect(effect: PartEffect, item: MetricAttribution) -> VerdictKind:
    """Return whether an effect is for the better or the worse."""
    if not effect.moved:
        return "unsure" if effect.state == "cannot tell" else "steady"
    return "better" if (effect.state == "rose") == (item.better == "higher") else "worse"
