"""What an isolation found, for the terminal."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from ragfault.isolation import Attribution, Effect, Isolation
from ragfault.report.plain import LAYERS, clean, figure, named
from ragfault.report.terminal import paint

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["render"]

STYLES = {"worse": "red", "better": "green", "steady": "dim", "cannot tell": "yellow"}


def render(found: Isolation, *, width: int | None = None, colour: bool = False) -> str:
    """Which part made the change: in one sentence, then metric by metric with intervals."""
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(_headline(found), style="bold"),
        Text(_circumstances(found), style="dim"),
    ]
    parts += [Text(f"warning: {clean(line)}", style="yellow") for line in found.warnings]
    for layer, title in LAYERS.items():
        mine = [item for item in found.attributions if item.layer == layer and item.total is not None]
        if mine:
            parts.append(Text(f"\n{title}", style="bold cyan"))
        for item in mine:
            parts += _metric(item, found)
    silent = [item for item in found.attributions if item.total is None]
    if silent:
        names = named(item.metric for item in silent)
        parts.append(Text(f"\nNot scored on any query in every configuration: {names}", style="dim"))
    return paint(parts, width=width or shutil.get_terminal_size((100, 24)).columns, colour=colour)


def _headline(found: Isolation) -> str:
    """What each part made worse, the part with most first."""
    blame = sorted(found.blame.items(), key=lambda item: -len(item[1]))
    worse = [f"{part} made worse: {named(metrics)}" for part, metrics in blame if metrics]
    if worse:
        return ". ".join(worse) + "."
    if any(item.result == "cannot tell" and item.total for item in found.attributions):
        return "No part is shown to have made anything worse; on some metrics the data cannot tell."
    return "No part made anything worse."


def _circumstances(found: Isolation) -> str:
    count = f"{found.orders} order{'' if found.orders == 1 else 's'}"
    how = f"{'all orders' if found.orders is None else count} of swapping"
    runs = len(found.configurations)
    reused = sum(made.reused for made in found.configurations)
    again = f", {reused:,} of them from before" if reused else ""
    return (
        f"{found.queries:,} queries · {runs:,} configurations of {' + '.join(found.parts)}{again} · {how} · "
        f"judge {clean(found.judge)}"
    )


def _metric(item: Attribution, found: Isolation) -> list[RenderableType]:
    """A metric: its means, its whole change, each share, and the verdict."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    assert item.total is not None
    better = "" if item.better == "higher" else " (lower is better)"
    head = Text.assemble((clean(item.metric), "bold"), f"{better}   n {item.n:,}   ", clean(item.verdict))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False, show_header=False)
    for side in ("left", "right", "left"):
        table.add_column(justify=side, overflow="fold")
    for effect in (item.total, *item.shares, *item.interactions):
        name = " × ".join(effect.parts) or "whole change"
        state = "untouched" if effect.same else effect.state
        table.add_row(name, _span(effect), Text(state, style=STYLES[_sense(effect, item)]))
    means = ", ".join(
        f"{made.name} {figure(mean)}" for made, mean in zip(found.configurations, item.means, strict=True)
    )
    return [head, Padding(table, (0, 0, 0, 2)), Padding(Text(means, style="dim"), (0, 0, 0, 2))]


def _span(effect: Effect) -> str:
    found = effect.difference
    return f"{figure(found.mean)} [{figure(found.low)}, {figure(found.high)}]"


def _sense(effect: Effect, item: Attribution) -> str:
    """Whether an effect is for the better or the worse."""
    if not effect.moved:
        return effect.state
    return "better" if (effect.state == "rose") == (item.better == "higher") else "worse"
