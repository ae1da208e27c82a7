"""Charts of a tuning: the frontier of cost and quality, and that of precision and recall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from ragfault.report.charts.svg import tag
from ragfault.report.safe_text import clean_label

if TYPE_CHECKING:
    from ragfault.apps.tune.results import FrontierPoint, TuningResult
from ragfault.report.charts.plots import (
    PlotArea,
    choose_ticks,
    draw_horizontal_axis,
    draw_plot,
    draw_vertical_axis,
    pad_range,
    place_across,
    place_up,
)

COST_LABELS = {"ms": "milliseconds", "tokens": "tokens"}


def draw_cost_frontier(result: TuningResult, cost: str) -> Markup:
    """Draw the frontier of a tuning: its metric over a cost of `COST_LABELS`."""
    return _draw_frontier(result.frontier, (cost, COST_LABELS[cost]), ("value", result.metric))


def draw_recall_frontier(points: Sequence[FrontierPoint]) -> Markup:
    """Draw the frontier of a tuning: precision over recall."""
    return _draw_frontier(points, ("recall", "recall"), ("precision", "precision"))


def _draw_frontier(points: Sequence[FrontierPoint], across: tuple[str, str], up: tuple[str, str]) -> Markup:
    """Draw pipelines as points, the recommended one filled; an axis is a field and its title."""
    values = [(getattr(point.measured, across[0]), getattr(point.measured, up[0]), point) for point in points]
    area = PlotArea(
        across=pad_range([x for x, _, _ in values] or [0.0]),
        up=pad_range([y for _, y, _ in values] or [0.0]),
        height=260,
    )
    marks = [
        tag(
            "circle",
            tag("title", f"{clean_label(point.measured.name, 120)}: {up[1]} {y:.3f}, {across[1]} {x:,.4g}"),
            class_="dot chosen" if point.recommended else "dot open",
            cx=place_across(area, x),
            cy=place_up(area, y),
            r=6 if point.recommended else 4,
        )
        for x, y, point in sorted(values, key=lambda value: value[2].recommended)
    ]
    return draw_plot(
        area,
        f"{up[1]} over {across[1]}",
        draw_horizontal_axis(area, choose_ticks(*area.across, count=4), across[1]),
        draw_vertical_axis(area, choose_ticks(*area.up), up[1]),
        marks,
    )
