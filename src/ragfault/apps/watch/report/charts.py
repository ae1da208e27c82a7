"""Chart of a metric of the monitor: its rolling mean with a band."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from markupsafe import Markup

from ragfault.report.charts.plots import (
    PlotArea,
    choose_ticks,
    draw_mark,
    draw_plot,
    draw_time_axis,
    draw_vertical_axis,
    pad_range,
    place_across,
    place_up,
)
from ragfault.report.charts.svg import tag
from ragfault.report.format import format_minute
from ragfault.report.safe_text import clean_label

if TYPE_CHECKING:
    from ragfault.apps.watch.monitoring.monitor import MonitorReport, RollingLine


def draw_rolling_mean(monitor: MonitorReport, line: RollingLine, name: str) -> Markup | None:
    """Draw a rolling mean with its 95 % band, deployments and the starts of drops; None without a value."""
    ends = [value for values in (line.means, line.lows, line.highs) for value in values if value is not None]
    if not ends:
        return None
    across = (line.minutes[0], max(line.minutes[-1], line.minutes[0] + 1))
    area = PlotArea(across=across, up=pad_range(ends), width=480, height=190, bottom=26)
    first, last = across
    marks = [
        draw_mark(area, mark.minute, f"{format_minute(mark.minute)}: {clean_label(mark.text, 80)}", "deployed")
        for mark in monitor.marks
        if mark.route in (None, line.route) and first <= mark.minute <= last
    ]
    onsets = [
        drop.detection.onset
        for drop in monitor.drops
        if (drop.reference.metric, drop.reference.route) == (line.metric, line.route)
    ]
    drops = [
        draw_mark(area, onset, f"a drop began at {format_minute(onset)}", "drop")
        for onset in onsets
        if first <= onset <= last
    ]
    return draw_plot(
        area,
        name,
        draw_vertical_axis(area, choose_ticks(*area.up, count=4)),
        draw_time_axis(area, 3),
        [_draw_band(area, run) for run in _split_at_gaps(line)],
        marks,
        drops,
    )


def _split_at_gaps(line: RollingLine) -> Iterator[list[tuple[int, float, float, float]]]:
    """Split a line where windows have no value: minute, mean and ends of the interval of each point."""
    points = zip(line.minutes, line.means, line.lows, line.highs, strict=True)
    for has_value, run in groupby(points, key=lambda point: point[1] is not None):
        if has_value:
            yield [
                (minute, mean, mean if low is None else low, mean if high is None else high)
                for minute, mean, low, high in run
                if mean is not None
            ]


def _draw_band(area: PlotArea, run: Sequence[tuple[int, float, float, float]]) -> Markup:
    """Draw a mean as a line and its interval as a band around it."""
    across = [place_across(area, minute) for minute, _, _, _ in run]
    lows = [f"{x:g},{place_up(area, low):g}" for x, (_, _, low, _) in zip(across, run, strict=True)]
    highs = [f"{x:g},{place_up(area, high):g}" for x, (_, _, _, high) in zip(across, run, strict=True)]
    means = [f"{x:g},{place_up(area, mean):g}" for x, (_, mean, _, _) in zip(across, run, strict=True)]
    band = tag("polygon", class_="band", points=" ".join([*lows, *reversed(highs)]))
    if len(run) == 1:
        return tag("g", band, tag("circle", class_="dot", cx=across[0], cy=place_up(area, run[0][1]), r=2))
    return tag("g", band, tag("polyline", class_="curve", points=" ".join(means)))
