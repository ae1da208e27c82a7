"""How far a judge agrees with people, as one self-contained page: figures, score distribution, calibration, ROC."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragfault.agreement import Curves, Measurement
from ragfault.report.agreement import (
    HEADS,
    METRIC_HEADS,
    SHORT,
    caption,
    closing,
    facts,
    figure,
    headline,
    kind,
    metric_cells,
    title,
)
from ragfault.report.charts import altair, draw
from ragfault.report.markup import Markup, Node, label, tag
from ragfault.report.pieces import scroll
from ragfault.report.saving import save
from ragfault.report.sheet import carried, fill, policy

if TYPE_CHECKING:
    from altair import LayerChart

__all__ = ["render_agreement", "write_agreement"]

SIZE = 300
"""The width of a chart, and the height of a square one."""


def write_agreement(found: Measurement, path: str | Path, *, force: bool = False) -> Path:
    """Write a measurement as one HTML page, whole or not at all; return the path.

    Raises OutputError where something stands there already (unless `force`) or it cannot be written;
    MissingExtra where the packages that draw the charts are not installed.
    """
    return save(path, render_agreement(found), force=force)


def render_agreement(found: Measurement) -> str:
    """A measurement as one HTML page; texts of files and traces are escaped."""
    style, script = carried("page.css", "agreement.css"), carried("theme.js", "bisection.js")
    name = label(headline(found), 300)
    sections: list[tuple[str, str, Node]] = [("figures", "Figures", _figures(found))]
    if found.metrics:
        rows = [metric_cells(one) for one in found.metrics]
        sections.append(("metrics", "Metric by metric", _table(METRIC_HEADS, rows, "of metrics")))
    if found.slices:
        sections.append(("rows", f"By {label(found.by or '', 60)}", _rows(found)))
    if found.curves is not None:
        sections.append(("charts", "Charts", _charts(found, found.curves)))
    links = [tag("a", text, href=f"#{where}") for where, text, _ in sections]
    body = [tag("section", tag("h2", text), inside, id=where) for where, text, inside in sections]
    return fill(
        carried("agreement.html"),
        policy=policy(script, style),
        title=tag("title", f"{name} – ragfault judge measure"),
        name=tag("bdi", name),
        style=style,
        script=script,
        head=_head(found),
        nav=tag("nav", links, aria_label="Sections"),
        body=Markup("\n".join(body)),
    )


def _head(found: Measurement) -> Markup:
    source = label(", ".join(found.source), 300)
    lines = [f"from {source}", *facts(found), *closing(found)]
    return tag("ul", [tag("li", label(line, 600)) for line in lines], class_="facts")


# --- tables ----------------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> Markup:
    """A table whose first column names its rows."""
    head = tag("tr", [tag("th", label(text, 80), scope="col") for text in heads])
    body = [
        tag(
            "tr",
            tag("th", label(first, 80), scope="row"),
            [tag("td", label(text, 120)) for text in rest],
        )
        for first, *rest in rows
    ]
    return scroll(tag("table", tag("thead", head), tag("tbody", body), class_="measured"), name)


def _figures(found: Measurement) -> Markup:
    rows = []
    for one in found.whole.figures:
        cells = [figure(view.figure(one.name)) for view in found.views]
        if cells[0] == "–" and one.reason:
            cells[0] = f"– {one.reason}"
        rows.append([title(one.name, found), *cells])
    return _table(["figure", *map(caption, found.views)], rows, "of figures")


def _rows(found: Measurement) -> Markup:
    names = [name for name in SHORT if found.whole.figure(name) is not None]
    heads = [found.by or "", "n", *(HEADS[name].format(bad=kind(found)) for name in names)]
    rows = [
        [row.value or "", f"{row.n:,}", *(figure(row.figure(name)) for name in names)] for row in found.slices
    ]
    return _table(heads, rows, "of values")


# --- charts ----------------------------------------------------------------------------------------


def _charts(found: Measurement, curves: Curves) -> Markup:
    """Scores by label, calibration and ROC; each with what to see in it."""
    bad, good = kind(found), "not relevant" if found.task == "relevance" else "good"
    score = "relevance" if found.task == "relevance" else "score: how surely the judge calls it bad"
    drawn = [
        (
            draw(_distribution(curves, (bad, good), score), "scores by label"),
            f"Scores by label. The further apart {bad} (above) and {good} (below) lie, the better they are told apart.",
        ),
        (
            draw(_calibration(curves, score, bad), "calibration"),
            "Calibration, in bins of about equal mass. On the dashed line a score can be taken at its word.",
        ),
    ]
    if curves.roc:
        text = "ROC: hits against false alarms at every threshold. The dashed line is guessing."
        drawn.append((draw(_roc(curves), "ROC"), text))
    figures = [tag("figure", picture, tag("figcaption", text)) for picture, text in drawn]
    rows = [[f"{one.mean:.3f}", f"{one.share:.3f}", f"{one.n:,}"] for one in curves.calibration]
    table = _table(["mean score", f"share {bad}", "n"], rows, "of the calibration")
    return Markup(tag("div", figures, class_="agreement-charts") + tag("h3", "Calibration") + table)


def _axis(text: str) -> dict[str, Any]:
    """An axis from 0 to 1."""
    alt = altair()
    axis = alt.Axis(
        values=[0, 0.25, 0.5, 0.75, 1], format=".2~f", minExtent=40, grid=True, titleColor="var(--muted)"
    )
    return {"title": text, "scale": alt.Scale(domain=[0, 1]), "axis": axis}


def _distribution(curves: Curves, names: tuple[str, str], score: str) -> LayerChart:
    """Two histograms back to back: positives up, negatives down."""
    alt = altair()
    rows = [
        {"low": bar.low, "high": bar.high, "count": sign * count, "label": name}
        for bar in curves.scores
        for name, sign, count in zip(names, (1, -1), (bar.positive, bar.negative), strict=True)
    ]
    colours = alt.Scale(domain=list(names), range=["var(--bad)", "var(--use)"])
    axis = alt.Axis(
        labelExpr="abs(datum.value)", minExtent=40, tickCount=6, grid=True, titleColor="var(--muted)"
    )
    bars = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar()
        .encode(
            x=alt.X("low:Q", **_axis(score)),
            x2="high:Q",
            y=alt.Y("count:Q", title=" and below ".join(names) + ", counts", axis=axis),
            y2=alt.datum(0),
            color=alt.Color("label:N", scale=colours, legend=None),
        )
    )
    zero = alt.Chart(alt.Data(values=[{"at": 0}])).mark_rule(color="var(--edge)").encode(y="at:Q")
    layers: LayerChart = (bars + zero).properties(width=SIZE, height=SIZE)
    return layers


def _diagonal() -> Any:
    """The line on which both axes are equal."""
    alt = altair()
    ends = alt.Data(values=[{"x": 0, "y": 0}, {"x": 1, "y": 1}])
    return alt.Chart(ends).mark_line(color="var(--edge)", strokeDash=[4, 4]).encode(x="x:Q", y="y:Q")


def _calibration(curves: Curves, score: str, bad: str) -> LayerChart:
    alt = altair()
    rows = [{"mean": one.mean, "share": one.share, "n": one.n} for one in curves.calibration]
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("mean:Q", **_axis(score)), y=alt.Y("share:Q", **_axis(f"share {bad}"))
    )
    line = base.mark_line(color="var(--relevance)", strokeWidth=2)
    points = base.mark_circle(color="var(--relevance)", size=60, opacity=1)
    layers: LayerChart = (_diagonal() + line + points).properties(width=SIZE, height=SIZE)
    return layers


def _roc(curves: Curves) -> LayerChart:
    alt = altair()
    rows = [{"alarms": x, "hits": y, "at": at} for at, (x, y) in enumerate(curves.roc)]
    line = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(color="var(--relevance)", strokeWidth=2)
        .encode(
            x=alt.X("alarms:Q", **_axis("false alarms")), y=alt.Y("hits:Q", **_axis("hits")), order="at:Q"
        )
    )
    layers: LayerChart = (_diagonal() + line).properties(width=SIZE, height=SIZE)
    return layers
