"""Laws of the charts of the monitor."""

from __future__ import annotations

from ragfault.apps.watch.monitoring.monitor import RollingLine
from ragfault.apps.watch.report import charts
from ragfault.report.charts.plots import PlotArea

AREA = PlotArea(across=(0, 10), up=(-1, 1))


def test_a_line_breaks_where_windows_have_no_value() -> None:
    """Windows without a value are a gap in the line and its band; a single window is a dot."""
    line = RollingLine(
        metric="m",
        route=None,
        window=30,
        minutes=tuple(range(6)),
        means=(0.5, 0.6, None, 0.4, None, None),
        lows=(0.4, 0.5, None, None, None, None),
        highs=(0.6, 0.7, None, None, None, None),
    )
    runs = list(charts._split_at_gaps(line))
    assert runs == [[(0, 0.5, 0.4, 0.6), (1, 0.6, 0.5, 0.7)], [(3, 0.4, 0.4, 0.4)]]
    bands = [str(charts._draw_band(AREA, run)) for run in runs]
    assert "<polyline" in bands[0]
    assert "<polyline" not in bands[1]
    assert "<circle" in bands[1]
