"""Traffic over time as one self-contained page: what broke, lines with marks, distributions, alerts, cohorts, drift."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragfault.findings.monitoring import Break, Line, Monitor
from ragfault.findings.monitoring_windows import Distribution
from ragfault.report.charts import altair, chart, draw
from ragfault.report.markup import Markup, Node, label, number, tag
from ragfault.report.monitoring import (
    alerts,
    blamed,
    cohorts,
    drifted,
    gap,
    headline,
    length,
    moment,
    place,
    rolled,
    routes,
    scored,
    sentence,
    watching,
)
from ragfault.report.pieces import scroll
from ragfault.report.plain import interval
from ragfault.report.saving import save
from ragfault.report.sheet import carried, fill, policy
from ragfault.report.wording import signed

if TYPE_CHECKING:
    from altair import LayerChart

__all__ = ["render_monitor", "write_monitor"]

WIDE, TALL = 480, 150
TRIAD = ("context_relevance", "groundedness", "answer_relevance")
MINUTE = 60_000
"""Milliseconds."""


def write_monitor(found: Monitor, path: str | Path, *, force: bool = False) -> Path:
    """Write traffic over time as one HTML page, whole or not at all; return the path.

    Raises OutputError where something stands there already (unless `force`) or it cannot be written; MissingExtra where
    the packages that draw the charts are not installed.
    """
    return save(path, render_monitor(found), force=force)


def render_monitor(found: Monitor) -> str:
    """Traffic over time as one HTML page; traces are named by their ids, their texts do not appear on it."""
    style, script = carried("page.css", "agreement.css"), carried("theme.js", "bisection.js")
    sections: list[tuple[str, str, Node]] = [
        ("breaks", "What broke", _breaks(found)),
        ("triad", "The triad over time", _lines(found, [e for e in found.lines if e.metric in TRIAD])),
        ("lines", "Other metrics", _lines(found, [e for e in found.lines if e.metric not in TRIAD])),
        ("means", "Rolling means", [_means(found, route) for route in routes(found)]),
        ("alerts", "Alerts", _alerts(found)),
        ("distributions", "Distributions", _distributions(found)),
        ("insights", "Insights", _insights(found)),
        ("cohorts", "Cohorts", _cohorts(found)),
        ("together", "Metrics together", _together(found)),
        ("drift", "Against the evaluation set", _drift(found)),
    ]
    kept = [each for each in sections if each[2]]
    links = [tag("a", text, href=f"#{where}") for where, text, _ in kept]
    body = [tag("section", tag("h2", text), inside, id=where) for where, text, inside in kept]
    name = label(headline(found), 400)
    facts = [watching(found), *(f"{moment(mark.minute)}: {mark.text}" for mark in found.marks)]
    return fill(
        carried("monitor.html"),
        policy=policy(script, style),
        title=tag("title", f"{name} – ragfault monitor"),
        name=tag("bdi", name),
        style=style,
        script=script,
        head=tag("ul", [tag("li", label(text, 400)) for text in facts], class_="facts"),
        nav=tag("nav", links, aria_label="Sections"),
        body=Markup("\n".join(body)),
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[Node]], name: str) -> Markup:
    top = tag("tr", [tag("th", text or "what", scope="col") for text in heads])
    body = [
        tag("tr", tag("th", _cell(first), scope="row"), [tag("td", _cell(each)) for each in rest])
        for first, *rest in rows
    ]
    return scroll(tag("table", tag("thead", top), tag("tbody", body)), name)


def _cell(node: Node) -> Node:
    return node if isinstance(node, Markup) or not isinstance(node, str) else label(node, 240)


def _breaks(found: Monitor) -> Markup:
    if not found.breaks:
        return tag("p", "No drop is called.", class_="empty")
    return tag("ul", [_break(found, each) for each in found.breaks], class_="remedies")


def _break(found: Monitor, each: Break) -> Markup:
    made = each.reference
    fault = each.blame.fault
    layer = tag("span", fault.layer if fault else "cannot tell", class_="sign bad" if fault else "sign warn")
    return tag(
        "li",
        tag("h3", label(place(made.metric, made.route), 160)),
        tag("p", layer),
        tag("p", label(sentence(each), 800)),
        tag("ul", [tag("li", label(text, 800)) for text in blamed(found, each)]),
    )


def _lines(found: Monitor, lines: Sequence[Line]) -> Markup | None:
    drawn = [_line(found, each) for each in lines if any(mean is not None for mean in each.means)]
    return tag("div", drawn, class_="figures") if drawn else None


def _line(found: Monitor, each: Line) -> Markup:
    """A metric over time: the rolling mean, its interval, marks, and where a drop began."""
    title = f"{place(each.metric, each.route)}, rolling mean of {length(each.window)}"
    return tag("figure", tag("figcaption", label(title, 200)), draw(_drawing(found, each), label(title, 200)))


def _drawing(found: Monitor, each: Line) -> LayerChart:
    alt = altair()
    rows = [
        {"time": MINUTE * minute, "mean": mean, "low": low, "high": high}
        for minute, mean, low, high in zip(each.minutes, each.means, each.lows, each.highs, strict=True)
    ]
    time = alt.X(
        "time:T", title=None, scale=alt.Scale(type="utc"), axis=alt.Axis(labelOverlap=True, grid=False)
    )
    up = alt.Scale(zero=False)
    base = alt.Chart(alt.Data(values=rows)).encode(x=time)
    band = base.mark_area(color="var(--line)", opacity=0.6).encode(
        y=alt.Y("low:Q", title=None, scale=up), y2="high:Q"
    )
    mean = base.mark_line(color="var(--relevance)", strokeWidth=1.5).encode(y=alt.Y("mean:Q", scale=up))
    upright = [
        alt.Chart(alt.Data(values=moments))
        .mark_rule(color=colour, strokeDash=dash)
        .encode(x=time, description="tip:N")
        for moments, colour, dash in (
            (_marks(found, each), "var(--muted)", [4, 3]),
            (_beginnings(found, each), "var(--bad)", [1, 0]),
        )
        if moments
    ]
    layers: LayerChart = alt.layer(band, mean, *upright).properties(width=WIDE, height=TALL)
    return layers


def _marks(found: Monitor, each: Line) -> list[dict[str, Any]]:
    return [
        {"time": MINUTE * mark.minute, "tip": f"{moment(mark.minute)}: {label(mark.text, 80)}"}
        for mark in found.marks
        if mark.route in (None, each.route) and found.first <= mark.minute <= found.last
    ]


def _beginnings(found: Monitor, each: Line) -> list[dict[str, Any]]:
    return [
        {"time": MINUTE * one.call.began, "tip": f"a drop began at {moment(one.call.began)}"}
        for one in found.breaks
        if (one.reference.metric, one.reference.route) == (each.metric, each.route)
    ]


def _means(found: Monitor, route: str | None) -> Markup:
    heads = ["metric"]
    for window in found.terms.windows:
        heads += [f"{length(window)}, 95 %", "against before"]
    rows = []
    for metric, mine, _ in rolled(found, route):
        cells: list[Node] = [metric]
        for each in mine:
            cells += [interval(each.interval), gap(each.delta)]
        rows.append(cells)
    name = label(route, 60) if route else "all traffic"
    return tag("div", tag("h3", name), _table(heads, rows, f"of {name}"))


def _alerts(found: Monitor) -> Markup:
    if not found.events:
        return tag("p", "No alert fired.", class_="empty")
    return _table(("time", "", "severity", "rule", "where", "figure"), alerts(found.events), "of alerts")


def _distributions(found: Monitor) -> Markup | None:
    rows = [
        (
            place(each.metric, each.route),
            _bars(each),
            " / ".join(number(value) for value in each.quartiles),
            f"{each.n:,}",
            ", ".join(f"{label(worst.trace, 60)} ({number(worst.value)})" for worst in each.outliers),
        )
        for each in found.distributions
    ]
    heads = ("metric", "values", "quartiles", "n", "outliers")
    return _table(heads, rows, "of distributions") if rows else None


def _bars(each: Distribution) -> Markup:
    """The histogram of a window."""
    tallest = max(each.bins)
    bars = []
    for at, count in enumerate(each.bins):
        tall = max(1.5, round(26 * count / tallest, 2)) if count else 0
        where = f"{number(each.edges[at])} to {number(each.edges[at + 1])}"
        bar = tag("rect", x=at * 6 + 0.5, y=27 - tall, width=5, height=tall) if count else None
        area = tag("rect", class_="area", x=at * 6, y=0, width=6, height=28)
        bars.append(tag("g", bar, area, data_tip=f"{where}: {count:,}"))
    return tag(
        "svg",
        bars,
        class_="hist",
        viewBox="0 0 120 28",
        role="img",
        aria_label=f"distribution of {each.n:,} values",
    )


def _insights(found: Monitor) -> Markup | None:
    names = {"position": "position", "chunks": "number of chunks"}
    figures = []
    for each in found.insights:
        what = "Mean relevance" if each.measure == "relevance" else "Share of chunks used"
        title = f"{what} by {names.get(each.by, each.by)}"
        figures.append(tag("figure", tag("figcaption", title), draw(chart(each), title)))
    return tag("div", figures, class_="figures") if figures else None


def _cohorts(found: Monitor) -> Markup | None:
    rows = [
        (
            each.cohort or "",
            each.metric,
            interval(each.interval),
            f"{each.interval.n if each.interval else 0:,}",
        )
        for each in cohorts(found)
    ]
    return _table(("cohort", "metric", "95 %", "n"), rows, "of cohorts") if rows else None


def _together(found: Monitor) -> Markup | None:
    rows = [
        (
            f"{each.first}, {each.second}",
            f"{signed(each.r)} [{signed(each.low)}, {signed(each.high)}]",
            f"{each.n:,}",
        )
        for each in found.correlations
    ]
    return _table(("metrics", "correlation, 95 %", "traces"), rows, "of correlations") if rows else None


def _drift(found: Monitor) -> Markup | None:
    if found.drift is None:
        return None
    rows = [scored(each) for each in found.drift.scores]
    table = _table(("metric", "live less evaluated, 95 %", "distance", "p"), rows, "of drift")
    return tag("div", tag("p", label(drifted(found.drift), 800)), table)
