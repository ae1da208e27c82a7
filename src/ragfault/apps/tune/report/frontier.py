"""The charts of a search, for pipelines and generators alike: its metric over each cost, what to use marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

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
from ragfault.report.charts.svg import tag
from ragfault.report.document import Block, Chart
from ragfault.report.safe_text import clean_label


class SearchPoint(NamedTuple):
    """What a search tried: its value and what it costs, None for a cost that was not recorded."""

    name: str
    value: float
    costs: dict[str, float | None]
    """Name of the cost with its unit → amount for a question."""
    is_recommended: bool


def build_frontier_charts(points: Sequence[SearchPoint], metric: str) -> list[Block]:
    """Build a chart of the metric over each cost that at least two points have.

    >>> points = [SearchPoint("a", 0.8, {"milliseconds": 3.0, "US$": None}, True)] * 2
    >>> [chart.caption for chart in build_frontier_charts(points, "recall@5")]
    ['recall@5 and milliseconds']
    """
    charts: list[Block] = []
    for cost in dict.fromkeys(name for point in points for name in point.costs):
        known = [(amount, point) for point in points if (amount := point.costs.get(cost)) is not None]
        if len(known) > 1:
            charts.append(Chart(f"{metric} and {cost}", _draw_frontier(known, cost, metric)))
    return charts


def _draw_frontier(points: Sequence[tuple[float, SearchPoint]], cost: str, metric: str) -> Markup:
    area = PlotArea(
        across=pad_range([amount for amount, _ in points]),
        up=pad_range([point.value for _, point in points]),
        height=260,
    )
    marks = [
        tag(
            "circle",
            tag("title", f"{clean_label(point.name, 120)}: {metric} {point.value:.3f}, {cost} {amount:,.4g}"),
            class_="dot chosen" if point.is_recommended else "dot open",
            cx=place_across(area, amount),
            cy=place_up(area, point.value),
            r=6 if point.is_recommended else 4,
        )
        for amount, point in sorted(points, key=lambda pair: pair[1].is_recommended)
    ]
    return draw_plot(
        area,
        f"{metric} over {cost}",
        draw_horizontal_axis(area, choose_ticks(*area.across, count=4), cost),
        draw_vertical_axis(area, choose_ticks(*area.up), metric),
        marks,
    )
