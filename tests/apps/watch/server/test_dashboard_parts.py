"""The parts of the dashboard: texts are cut and quoted, verdicts are spoken of, figures are pooled and drawn."""

from __future__ import annotations

import math
import re

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from installed import skip_without

skip_without("duckdb", reason="the dashboard needs the extra `server`")
skip_without("fastapi", reason="the dashboard needs the extra `server`")
skip_without("jinja2", reason="the dashboard needs the extra `server`")

from ragfault.apps.watch.monitoring.alert_rules import AlertRule
from ragfault.apps.watch.monitoring.alerts import Alert
from ragfault.apps.watch.server.api import detail_views as seen
from ragfault.apps.watch.server.api import verdict_view as reading
from ragfault.apps.watch.server.api.traffic_views import MetricTrend, TrendPoint
from ragfault.apps.watch.server.dashboard import charts as drawing
from ragfault.apps.watch.server.dashboard import traffic_pages as layers
from ragfault.apps.watch.server.dashboard.page_renderer import show_controls
from ragfault.apps.watch.server.storage.records import StoredTrace
from ragfault.io.runs.run import MetricInfo
from ragfault.labels.reading.lines import build_label_line
from ragfault.model.errors import UsageError
from ragfault.model.records import Chunk, Citation, Latency, Step, Trace
from sample_reports import build_fair_trace


def test_nothing_of_a_text_is_lost_by_cutting():
    """The pieces of a text, joined, are the text, wherever its spans begin and end."""
    text = "🚢 It sails at nine."
    spans = [(-3, 4, ("claim", 0)), (2, 9, ("claim", 1)), (9, 99, ("citation", 0)), (5, 5, ("claim", 2))]
    segments = reading.split_text(text, spans)
    assert "".join(piece.text for piece in segments) == text
    assert [key for piece in segments for key in piece.begins] == [("claim", 0), ("claim", 1), ("citation", 0)]
    assert [key for piece in segments for key in piece.ends] == [("claim", 0), ("claim", 1), ("citation", 0)]
    assert show_controls("a\x00\u202eb\n") == "a␀\ufffdb\n"


def test_quotes_are_located_whatever_the_white_space():
    """A quote is linked to where it stands, also where lines break elsewhere, and to nothing where it does not."""
    trace = Trace(id="1", query="?", chunks=(Chunk(id="a", text="x sails at\n nine. y"),))
    assert reading.locate_quote(trace, Citation(chunk="a", quote="sails  at nine.")) == (2, 17)
    assert reading.locate_quote(trace, Citation(chunk="a", quote="sails at ten")) is None
    assert reading.locate_quote(trace, Citation(chunk="b", quote="x")) is None


def test_who_disagrees_says_something_else():
    """Of every verdict, agreeing and disagreeing are two different words on the same thing."""
    trace, verdicts = build_fair_trace("ship")
    stored = StoredTrace(trace=trace, received=0.0, state="scored", verdicts=verdicts)
    for part in ("claim", "chunk", "use", "citation", "aspect", "refused"):
        yes, no = (reading.build_label(stored, part, 0, agree) for agree in (True, False))
        assert yes.subject == no.subject
        assert yes.value != no.value
        assert reading.compare_labels(stored, [build_label_line(no)])[part, 0] == "disagreed"
    with pytest.raises(UsageError, match="number 8"):
        reading.build_label(stored, "claim", 7, True)


def test_a_layer_stands_as_its_routes_do():
    """The mean over routes weighs them by their values; its interval holds it and is narrower than theirs."""
    row = MetricTrend(
        metric="m",
        layer="generation",
        better="higher",
        route="a",
        window=30,
        n=30,
        undefined=0,
        failed=0,
        mean=0.5,
        low=0.4,
        high=0.6,
        delta=-0.1,
        delta_low=-0.2,
        delta_high=0.0,
    )
    other = msgspec.structs.replace(row, route="b", n=10, mean=0.9, low=0.7, high=1.0)
    pooled = layers.pool_metrics([row, other], ("m", "none"), 30)
    assert pooled is not None
    assert pooled.mean == pytest.approx(0.6)
    assert 0.5 < pooled.low < 0.6 < pooled.high < 0.7  # type: ignore[operator]
    assert layers.pool_metrics([row], ("m",), 90) is None
    assert layers.select_changes([row, msgspec.structs.replace(row, delta_high=-0.05)])[0].delta_high == -0.05


def test_stages_from_whatever_was_recorded():
    """Steps are drawn as they ran; without them retrieval and generation, one after the other."""
    bare = Trace(id="1", query="?")
    assert drawing.list_steps(bare) == []
    rough = msgspec.structs.replace(bare, latency=Latency(retrieval=10.0, generation=20.0, total=35.0))
    assert [(row.name, row.start) for row in drawing.list_steps(rough)] == [
        ("retrieval", 0.0),
        ("generation", 10.0),
        ("total", 0.0),
    ]
    timed = msgspec.structs.replace(bare, steps=(Step(id="s", start=1.0, duration=2.0), Step(id="t", start=math.inf)))
    assert [row.drawing is not None for row in drawing.list_steps(timed)] == [True, False]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([None, *"abcde"])), max_size=8))
def test_a_tree_of_steps_has_each_of_them_once(pairs: list[tuple[str, str | None]]):
    """Whatever the parents, circles and equal ids among them, no step is lost, and each part is below its whole."""
    steps = [Step(id=id, parent=parent, name=str(at)) for at, (id, parent) in enumerate(pairs)]
    ordered = drawing.order_steps(steps)
    assert sorted(step.name for _, step in ordered) == sorted(step.name for step in steps)
    for at, (depth, step) in enumerate(ordered):
        assert depth == 0 or any(above == depth - 1 and outer.id == step.parent for above, outer in ordered[:at])


def test_a_line_over_time_loses_no_value():
    """Points that hold too few values are taken together: as many values, the same mean, and fewer points."""
    thin = [
        TrendPoint(minute=at, route="a", n=at % 3, mean=0.5 if at % 3 else None, undefined=1, failed=0)
        for at in range(240)
    ]
    grain, lines = drawing.coarsen_lines(drawing.group_by_route(thin), 1)
    assert grain == 8
    assert sum(point.n for point in lines["a"]) == sum(point.n for point in thin)
    assert sum(point.undefined for point in lines["a"]) == 240
    assert {point.mean for point in lines["a"]} == {0.5}
    svg = str(drawing.draw_trend(lines, MetricInfo("m", "generation"), (), (-1000, 240)))
    assert svg.count("<circle") == len(lines["a"])
    assert drawing.coarsen_lines({}, 5) == (5, {})
    assert drawing.draw_trend({}, MetricInfo("m", "generation"), (), (0, 9)) is None


def test_the_gravest_alert_stands_first():
    """What fires stands before what may come to fire, and the severe before the less severe."""

    def make_alert(status: str, severity: str) -> Alert:
        rule = AlertRule(name=severity, metric="m", severity=severity)  # type: ignore[arg-type]
        return Alert(rule=rule, metric="m", route=None, status=status, since=0.0)  # type: ignore[arg-type]

    alerts = [make_alert("resolved", "critical"), make_alert("pending", "high"), make_alert("firing", "warning")]
    alerts.append(make_alert("firing", "high"))
    statuses = [(entry.status, entry.rule.name) for entry in seen.sort_alerts(alerts)]
    assert statuses == [("firing", "high"), ("firing", "warning"), ("pending", "high"), ("resolved", "critical")]


def test_a_band_is_the_interval_of_the_means():
    """The 95 % interval of a mean holds 95 % of true means of normal values; one value, or equal ones, have none."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        values = rng.normal(0.5, 0.2, size=5)
        point = TrendPoint(
            minute=0, route=None, n=5, mean=values.mean(), undefined=0, failed=0, squares=float((values**2).sum())
        )
        low, high = drawing.compute_interval(point)
        covered += low <= 0.5 <= high
    assert 0.91 * 400 <= covered <= 0.985 * 400
    assert drawing.compute_interval(msgspec.structs.replace(point, n=1)) is None
    assert drawing.compute_interval(msgspec.structs.replace(point, mean=0.3, squares=5 * 0.3**2)) is None
    assert drawing.compute_interval(msgspec.structs.replace(point, squares=None)) is None


def test_a_band_stays_within_the_chart():
    """A band is drawn where two points have an interval, and never beyond the axis."""
    points = [TrendPoint(minute=at, route="a", n=2, mean=0.5, undefined=0, failed=0, squares=1.0) for at in range(9)]
    measure = MetricInfo("m", "generation")
    svg = str(drawing.draw_trend({"a": points}, measure, (), (0, 9)))
    [band] = re.findall(r'<polygon points="([^"]*)" class="band"', svg) or re.findall(
        r'class="band" points="([^"]*)"', svg
    )
    heights = [float(pair.split(",")[1]) for pair in band.split()]
    assert len(heights) == 18
    assert min(heights) >= 14
    assert max(heights) <= 240 - 34
    bare = [msgspec.structs.replace(point, squares=None) for point in points]
    assert "band" not in str(drawing.draw_trend({"a": bare}, measure, (), (0, 9)))
