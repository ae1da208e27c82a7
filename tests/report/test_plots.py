"""Charts with axes: what is drawn lies where its value is, and nothing is drawn that has no value."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.labels.judges.measurement import AgreementCurves, ScoreBin
from ragfault.report.charts import plots
from ragfault.stats.estimates import CalibrationBin

AREA = plots.PlotArea(across=(0, 10), up=(-1, 1))


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_round_and_inside(low: float, width: float) -> None:
    """There are few ticks, evenly spaced, none outside the axis, and at least one."""
    high = low + width
    if high - low < abs(low) * 1e-9:
        return
    ticks = plots.choose_ticks(low, high)
    slack = 1e-6 * width + 1e-9 * abs(low)
    assert 1 <= len(ticks) <= 7
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    steps = [b - a for a, b in pairwise(ticks)]
    assert all(step == pytest.approx(steps[0], rel=1e-3, abs=slack) for step in steps)


def test_places_are_linear_and_upright() -> None:
    """The ends of an axis are the sides of the plot area, and a larger value lies higher."""
    assert plots.place_across(AREA, 0) == AREA.left
    assert plots.place_across(AREA, 10) == AREA.width - AREA.right
    assert plots.place_up(AREA, 1) == AREA.top
    assert plots.place_up(AREA, -1) == AREA.height - AREA.bottom
    assert plots.place_up(AREA, 0.5) < plots.place_up(AREA, 0.4)


def test_a_distribution_has_a_column_for_each_count() -> None:
    """Positives stand above and negatives below zero, as high as their counts; a bin without units has no column."""
    curves = AgreementCurves(
        calibration=(CalibrationBin(mean=0.4, share=0.5, n=8),),
        roc=((0.0, 0.0), (0.5, 1.0), (1.0, 1.0)),
        scores=(
            ScoreBin(low=0.0, high=0.5, positive=0, negative=4),
            ScoreBin(low=0.5, high=1.0, positive=2, negative=0),
        ),
    )
    svg = str(plots.draw_distribution(curves, ("bad <b>", "good"), "score"))
    columns = dict(re.findall(r'<rect class="column (\w+)".*? height="([\d.]+)">', svg))
    assert float(columns["use"]) == pytest.approx(2 * float(columns["bad"]), abs=0.2)
    assert "<b>" not in svg
    assert "0.500 to 1.000, bad &lt;b&gt;: 2" in svg
    calibration = str(plots.draw_calibration(curves, "score", "bad"))
    assert "mean score 0.400, 0.500 bad, n 8" in calibration
    assert calibration.count("<circle") == 1
    assert str(plots.draw_roc(curves)).count("polyline") == 2
