"""Agreement of a judge with human labels as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragfault.evaluation.agreement import AgreementCurves, JudgeMeasurement
from ragfault.reports.charts import import_altair, render_chart_svg
from ragfault.reports.html.elements import Markup, Node, clean_label, tag, wrap_table
from ragfault.reports.html.page import build_security_policy, fill_template, load_assets
from ragfault.reports.output import write_report_file
from ragfault.reports.terminal.agreement import (
    METRIC_HEADINGS,
    SLICE_FIGURES,
    SLICE_HEADINGS,
    build_metric_cells,
    describe_measurement,
    format_figure_title,
    format_view_title,
    get_positive_name,
    list_closing_notes,
    summarize_agreement,
)
from ragfault.text.number_format import format_interval

if TYPE_CHECKING:
    from altair import LayerChart


CHART_SIZE = 300
"""The width of a chart, and the height of a square one."""


def write_agreement_html(measurement: JudgeMeasurement, path: str | Path, *, force: bool = False) -> Path:
    """Write a measurement as one HTML page, whole or not at all; return the path.

    Raises OutputError where something stands there already (unless `force`) or it cannot be written;
    MissingExtra where the packages that draw the charts are not installed.
    """
    return write_report_file(path, render_agreement_html(measurement), force=force)


def render_agreement_html(measurement: JudgeMeasurement) -> str:
    """A measurement as one HTML page; texts of files and traces are escaped."""
    style, script = load_assets("page.css", "agreement.css"), load_assets("theme.js", "bisection.js")
    name = clean_label(summarize_agreement(measurement), 300)
    sections: list[tuple[str, str, Node]] = [("figures", "Figures", _build_figure_table(measurement))]
    if measurement.metrics:
        rows = [build_metric_cells(one) for one in measurement.metrics]
        sections.append(("metrics", "Metric by metric", _build_table(METRIC_HEADINGS, rows, "of metrics")))
    if measurement.slices:
        sections.append(
            ("rows", f"By {clean_label(measurement.by or '', 60)}", _build_slice_table(measurement))
        )
    if measurement.curves is not None:
        sections.append(("charts", "Charts", _build_charts(measurement, measurement.curves)))
    links = [tag("a", text, href=f"#{where}") for where, text, _ in sections]
    body = [tag("section", tag("h2", text), inside, id=where) for where, text, inside in sections]
    return fill_template(
        load_assets("agreement.html"),
        policy=build_security_policy(script, style),
        title=tag("title", f"{name} – ragfault judge measure"),
        name=tag("bdi", name),
        style=style,
        script=script,
        head=_build_header(measurement),
        nav=tag("nav", links, aria_label="Sections"),
        body=Markup("\n".join(body)),
    )


def _build_header(measurement: JudgeMeasurement) -> Markup:
    source = clean_label(", ".join(measurement.source), 300)
    lines = [f"from {source}", *describe_measurement(measurement), *list_closing_notes(measurement)]
    return tag("ul", [tag("li", clean_label(line, 600)) for line in lines], class_="facts")


# --- tables ----------------------------------------------------------------------------------------


def _build_table(heads: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> Markup:
    """A table whose first column names its rows."""
    head = tag("tr", [tag("th", clean_label(text, 80), scope="col") for text in heads])
    body = [
        tag(
            "tr",
            tag("th", clean_label(first, 80), scope="row"),
            [tag("td", clean_label(text, 120)) for text in rest],
        )
        for first, *rest in rows
    ]
    return wrap_table(tag("table", tag("thead", head), tag("tbody", body), class_="measured"), name)


def _build_figure_table(measurement: JudgeMeasurement) -> Markup:
    rows = []
    for one in measurement.overall.figures:
        cells = [format_interval(view.figure(one.name)) for view in measurement.views]
        if cells[0] == "–" and one.reason:
            cells[0] = f"– {one.reason}"
        rows.append([format_figure_title(one.name, measurement), *cells])
    return _build_table(["figure", *map(format_view_title, measurement.views)], rows, "of figures")


def _build_slice_table(measurement: JudgeMeasurement) -> Markup:
    names = [name for name in SLICE_FIGURES if measurement.overall.figure(name) is not None]
    heads = [
        measurement.by or "",
        "n",
        *(SLICE_HEADINGS[name].format(bad=get_positive_name(measurement)) for name in names),
    ]
    rows = [
        [row.value or "", f"{row.n:,}", *(format_interval(row.figure(name)) for name in names)]
        for row in measurement.slices
    ]
    return _build_table(heads, rows, "of values")


# --- charts ----------------------------------------------------------------------------------------


def _build_charts(measurement: JudgeMeasurement, curves: AgreementCurves) -> Markup:
    """Scores by label, calibration and ROC; each with what to see in it."""
    bad, good = get_positive_name(measurement), "not relevant" if measurement.task == "relevance" else "good"
    score = "relevance" if measurement.task == "relevance" else "score: how surely the judge calls it bad"
    drawn = [
        (
            render_chart_svg(_build_distribution_chart(curves, (bad, good), score), "scores by label"),
            f"Scores by label. The further apart {bad} (above) and {good} (below) lie, the better they are told apart.",
        ),
        (
            render_chart_svg(_build_calibration_chart(curves, score, bad), "calibration"),
            "Calibration, in bins of about equal mass. On the dashed line a score can be taken at its word.",
        ),
    ]
    if curves.roc:
        text = "ROC: hits against false alarms at every threshold. The dashed line is guessing."
        drawn.append((render_chart_svg(_build_roc_chart(curves), "ROC"), text))
    figures = [tag("figure", picture, tag("figcaption", text)) for picture, text in drawn]
    rows = [[f"{one.mean:.3f}", f"{one.share:.3f}", f"{one.n:,}"] for one in curves.calibration]
    table = _build_table(["mean score", f"share {bad}", "n"], rows, "of the calibration")
    return Markup(tag("div", figures, class_="agreement-charts") + tag("h3", "Calibration") + table)


def _build_unit_axis(text: str) -> dict[str, Any]:
    """An axis from 0 to 1."""
    alt = import_altair()
    axis = alt.Axis(
        values=[0, 0.25, 0.5, 0.75, 1], format=".2~f", minExtent=40, grid=True, titleColor="var(--muted)"
    )
    return {"title": text, "scale": alt.Scale(domain=[0, 1]), "axis": axis}


def _build_distribution_chart(curves: AgreementCurves, names: tuple[str, str], score: str) -> LayerChart:
    """Two histograms back to back: positives up, negatives down."""
    alt = import_altair()
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
            x=alt.X("low:Q", **_build_unit_axis(score)),
            x2="high:Q",
            y=alt.Y("count:Q", title=" and below ".join(names) + ", counts", axis=axis),
            y2=alt.datum(0),
            color=alt.Color("label:N", scale=colours, legend=None),
        )
    )
    zero = alt.Chart(alt.Data(values=[{"at": 0}])).mark_rule(color="var(--edge)").encode(y="at:Q")
    layers: LayerChart = (bars + zero).properties(width=CHART_SIZE, height=CHART_SIZE)
    return layers


def _build_diagonal() -> Any:
    """The line on which both axes are equal."""
    alt = import_altair()
    ends = alt.Data(values=[{"x": 0, "y": 0}, {"x": 1, "y": 1}])
    return alt.Chart(ends).mark_line(color="var(--edge)", strokeDash=[4, 4]).encode(x="x:Q", y="y:Q")


def _build_calibration_chart(curves: AgreementCurves, score: str, bad: str) -> LayerChart:
    alt = import_altair()
    rows = [{"mean": one.mean, "share": one.share, "n": one.n} for one in curves.calibration]
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("mean:Q", **_build_unit_axis(score)), y=alt.Y("share:Q", **_build_unit_axis(f"share {bad}"))
    )
    line = base.mark_line(color="var(--relevance)", strokeWidth=2)
    points = base.mark_circle(color="var(--relevance)", size=60, opacity=1)
    layers: LayerChart = (_build_diagonal() + line + points).properties(width=CHART_SIZE, height=CHART_SIZE)
    return layers


def _build_roc_chart(curves: AgreementCurves) -> LayerChart:
    alt = import_altair()
    rows = [{"alarms": x, "hits": y, "at": at} for at, (x, y) in enumerate(curves.roc)]
    line = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(color="var(--relevance)", strokeWidth=2)
        .encode(
            x=alt.X("alarms:Q", **_build_unit_axis("false alarms")),
            y=alt.Y("hits:Q", **_build_unit_axis("hits")),
            order="at:Q",
        )
    )
    layers: LayerChart = (_build_diagonal() + line).properties(width=CHART_SIZE, height=CHART_SIZE)
    return layers
