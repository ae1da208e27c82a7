"""Ablation results for the terminal: the effect of each swapped component on each metric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragfault.comparison.ablation.parts import Ablation, MetricAttribution, PartEffect
from ragfault.report.format import LAYER_TITLES, clean_text, join_names
from ragfault.report.terminal.layout import build_table, render_rich
from ragfault.text.number_format import format_interval, format_number

if TYPE_CHECKING:
    from rich.console import RenderableType


EFFECT_STYLES = {"worse": "red", "better": "green", "steady": "dim", "cannot tell": "yellow"}


def render_ablation_terminal(ablation: Ablation, *, width: int | None = None, color: bool = False) -> str:
    """Render which part made the change: in one sentence, then metric by metric with intervals."""
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(_summarize_blame(ablation), style="bold"),
        Text(_describe_experiment(ablation), style="dim"),
    ]
    parts += [Text(f"warning: {clean_text(line)}", style="yellow") for line in ablation.warnings]
    for layer, title in LAYER_TITLES.items():
        mine = [item for item in ablation.attributions if item.layer == layer and item.total is not None]
        if mine:
            parts.append(Text(f"\n{title}", style="bold cyan"))
        for item in mine:
            parts += _build_attribution(item, ablation)
    silent = [item for item in ablation.attributions if item.total is None]
    if silent:
        names = join_names(item.metric for item in silent)
        parts.append(Text(f"\nNot scored on any query in every configuration: {names}", style="dim"))
    return render_rich(parts, width=width, color=color)


def _summarize_blame(ablation: Ablation) -> str:
    """Summarize what each part made worse, the part with most first."""
    blame = sorted(ablation.worsened_by.items(), key=lambda item: -len(item[1]))
    worse = [f"{part} made worse: {join_names(metrics)}" for part, metrics in blame if metrics]
    if worse:
        if any(effect.moved for item in ablation.attributions for effect in item.interactions):
            worse.append("Where parts depend on each other, a share is not what one part does alone")
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


def _build_attribution(item: MetricAttribution, ablation: Ablation) -> list[RenderableType]:
    """Build a metric: its means, its whole change, each share, and the verdict."""
    from rich.padding import Padding
    from rich.text import Text

    assert item.total is not None
    better = "" if item.better == "higher" else " (lower is better)"
    head = Text.assemble((clean_text(item.metric), "bold"), f"{better}   n {item.n:,}   ", clean_text(item.verdict))
    table = build_table(("part", "effect", "verdict"), right=("effect",))
    table.show_header = False
    for effect in (item.total, *item.shares, *item.interactions):
        name = " × ".join(effect.parts) or "whole change"
        state = "untouched" if effect.identical else effect.state
        table.add_row(
            name, format_interval(effect.difference), Text(state, style=EFFECT_STYLES[_classify_effect(effect, item)])
        )
    means = ", ".join(
        f"{configuration.name} {format_number(mean)}"
        for configuration, mean in zip(ablation.configurations, item.means, strict=True)
    )
    return [head, Padding(table, (0, 0, 0, 2)), Padding(Text(means, style="dim"), (0, 0, 0, 2))]


def _classify_effect(effect: PartEffect, item: MetricAttribution) -> str:
    """Return whether an effect is for the better or the worse."""
    if not effect.moved:
        return effect.state
    return "better" if (effect.state == "rose") == (item.better == "higher") else "worse"
