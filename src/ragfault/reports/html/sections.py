"""Sections of the HTML report below the overview: layers, insights, problems and remedies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from ragfault.analysis import ChunkInsight, Diagnosis, Findings, MetricAggregate, ReasonCount, Remedy
from ragfault.records import Layer
from ragfault.reports import charts
from ragfault.reports.html.elements import (
    LAYER_QUESTIONS,
    RESULT_SIGNS,
    Markup,
    Node,
    build_filter_button,
    build_sign,
    clean_label,
    tag,
    wrap_table,
)
from ragfault.text.number_format import format_bounds, format_number, format_share

INSIGHT_PROPERTIES = {
    "chunks": "number of chunks",
    "position": "position of the chunk",
    "length": "length of the chunk, in characters",
    "turn": "turn of the conversation",
    "age": "age of the chunk, in days",
    "route": "route",
}

MetricValues = Mapping[str, Sequence[float | None]]


# --- the layers ------------------------------------------------------------------------------------


def build_layer_sections(findings: Findings, values: MetricValues) -> Markup:
    """A panel for each layer: every metric with its interval, counts, target and distribution."""
    return Markup("".join(_build_layer_section(layer, findings, values) for layer in LAYER_QUESTIONS))


def _build_layer_section(layer: Layer, findings: Findings, values: MetricValues) -> Markup:
    title, question = LAYER_QUESTIONS[layer]
    found = [each for each in findings.scorecard.aggregates if each.layer == layer]
    shown = [each for each in found if each.interval is not None]
    head = ["metric", "mean", "95 % interval", "", "scored", "undefined", "failed", "target", "distribution"]
    rows = [_build_metric_row(each, values.get(each.metric, ())) for each in shown]
    columns = [tag("th", name or tag("span", "interval", class_="hidden"), scope="col") for name in head]
    table = tag("table", tag("thead", tag("tr", columns)), tag("tbody", rows), class_="metrics")
    return tag(
        "section",
        tag("h2", title, " ", tag("span", question, class_="note")),
        wrap_table(table, f"of {title}") if shown else tag("p", "No metric has a value.", class_="empty"),
        _build_valueless_note([each for each in found if each.interval is None]),
        id=layer,
    )


def _build_metric_row(aggregate: MetricAggregate, values: Sequence[float | None]) -> Markup:
    assert aggregate.interval is not None
    known = [value for value in values if value is not None]
    arrow, words = ("↑", "higher is better") if aggregate.better == "higher" else ("↓", "lower is better")
    notes = "; ".join(f"{clean_label(why.text)} ({why.count:,})" for why in aggregate.notes[:2])
    return tag(
        "tr",
        tag(
            "th",
            clean_label(aggregate.metric),
            " ",
            tag("span", arrow, aria_hidden="true", class_="arrow"),
            tag("span", f", {words}", class_="hidden"),
            tag("span", notes, class_="note why") if notes else None,
            scope="row",
        ),
        tag("td", tag("strong", format_number(aggregate.interval.mean)), class_="figure"),
        tag("td", format_bounds(aggregate.interval), class_="figure"),
        tag("td", charts.draw_interval(aggregate)),
        tag("td", f"{aggregate.scored:,}", class_="figure"),
        _build_count_cell(aggregate.undefined, aggregate.why_undefined),
        _build_count_cell(aggregate.failed, aggregate.why_failed),
        tag("td", _build_target(aggregate)),
        tag("td", charts.draw_histogram(known, aggregate.low, aggregate.high) if known else None),
    )


def _build_count_cell(count: int, reasons: Sequence[ReasonCount]) -> Markup:
    """How many scores have no value; why, as a tooltip."""
    why = "; ".join(f"{clean_label(reason.text)} ({reason.count:,})" for reason in reasons[:3])
    if not why or not count:
        return tag("td", f"{count:,}", class_="figure")
    hint = tag(
        "span",
        f"{count:,}",
        tag("span", f": {why}", class_="hidden"),
        data_tip=why,
        class_="hint",
        tabindex=0,
    )
    return tag("td", hint, class_="figure")


def _build_target(aggregate: MetricAggregate) -> Markup | None:
    if aggregate.target is None:
        return None
    goal = f"{aggregate.target.sign.replace('>=', '≥').replace('<=', '≤')} {aggregate.target.value:g}"
    if aggregate.result is None:
        return tag("span", goal)
    glyph, word = RESULT_SIGNS[aggregate.result]
    return tag("span", f"{goal} ", build_sign(glyph, word, f"result-{aggregate.result.replace(' ', '-')}"))


def _build_valueless_note(aggregates: Sequence[MetricAggregate]) -> Markup | None:
    """The metrics without any value, each with its commonest reason, in one line."""
    if not aggregates:
        return None
    items = []
    for each in aggregates:
        reasons = each.why_failed or each.why_undefined
        why = f" ({clean_label(reasons[0].text, 100)})" if reasons else ""
        items.append(f"{clean_label(each.metric)}{why}")
    return tag("p", tag("strong", "No value on any trace: "), "; ".join(items), ".", class_="valueless")


# --- insights and remedies -------------------------------------------------------------------------


def build_insights(findings: Findings) -> Markup:
    """A chart for each insight, with its figures as a table."""
    shown = [each for each in findings.insights if each.buckets]
    figures = [
        _build_insight_figure(each)
        for each in sorted(shown, key=lambda each: list(INSIGHT_PROPERTIES).index(each.by))
    ]
    note = "Bars are means, lines their 95 % intervals; n counts chunks, those of one trace taken together."
    empty = tag("p", "No chunk was judged.", class_="empty")
    body = tag("div", figures, class_="figures") if figures else empty
    return tag("section", tag("h2", "Insights"), tag("p", note, class_="note"), body, id="insights")


def _build_insight_figure(insight: ChunkInsight) -> Markup:
    what = "Mean relevance" if insight.measure == "relevance" else "Share of chunks used"
    title = f"{what} by {INSIGHT_PROPERTIES[insight.by]}"
    unknown = f"{insight.unknown:,} chunks without this property are left out." if insight.unknown else None
    return tag(
        "figure",
        tag("figcaption", title),
        charts.render_chart_svg(charts.build_insight_chart(insight), title),
        tag("p", unknown, class_="note") if unknown else None,
        tag(
            "details",
            tag("summary", "figures", tag("span", f": {title}", class_="hidden")),
            _build_insight_table(insight),
        ),
    )


def _build_insight_table(insight: ChunkInsight) -> Markup:
    """The figures of a chart as a table."""
    rows = [
        tag(
            "tr",
            tag("th", clean_label(bucket.label, 60), scope="row"),
            tag("td", format_number(bucket.interval.mean), class_="figure"),
            tag("td", format_bounds(bucket.interval), class_="figure"),
            tag("td", f"{bucket.interval.n:,}", class_="figure"),
            tag("td", f"{bucket.traces:,}", class_="figure"),
        )
        for bucket in insight.buckets
    ]
    names = (insight.by, "mean", "95 % interval", "chunks", "traces")
    top = tag("tr", [tag("th", name, scope="col") for name in names])
    return tag("table", tag("thead", top), tag("tbody", rows))


def build_remedies(findings: Findings) -> Markup:
    """What is wrong and what mends it, with the traces that show it, and the worst traces."""
    items = [_build_remedy(remedy) for remedy in findings.remedies]
    body: Node = (
        tag("ol", items, class_="remedies") if items else tag("p", "No problem was found.", class_="empty")
    )
    worst = [_build_worst_trace(diagnosis) for diagnosis in findings.worst if diagnosis.problems]
    return tag(
        "section",
        tag("h2", "Problems and remedies"),
        body,
        [tag("h3", "Worst traces"), tag("ol", worst, class_="worst")] if worst else None,
        id="remedies",
    )


def _build_remedy(remedy: Remedy) -> Markup:
    shown: list[Node] = [node for name in remedy.examples[:5] for node in (_link_trace(name), " ")]
    where = f"{remedy.problems:,} in {remedy.traces:,} traces ({format_share(remedy.share)}). "
    return tag(
        "li",
        tag("h3", remedy.title, " ", tag("span", LAYER_QUESTIONS[remedy.layer][0].lower(), class_="tag")),
        tag("p", where, build_filter_button("kind", remedy.kind, "show these traces"), class_="note"),
        tag("ul", [tag("li", step) for step in remedy.steps]),
        tag("p", "For example: ", shown, class_="examples") if shown else None,
    )


def _build_worst_trace(diagnosis: Diagnosis) -> Markup:
    kinds = dict.fromkeys(problem.kind.replace("_", " ") for problem in diagnosis.problems)
    triad = "" if diagnosis.triad is None else f", triad {format_number(diagnosis.triad)}"
    found = len(diagnosis.problems)
    return tag(
        "li",
        _link_trace(diagnosis.trace),
        " ",
        tag("bdi", clean_label(diagnosis.query, 140)),
        tag(
            "span",
            f" {found} {'problem' if found == 1 else 'problems'}{triad}: {', '.join(kinds)}",
            class_="note",
        ),
    )


def _link_trace(name: str) -> Markup:
    """A link that opens a trace further down the page."""
    return tag("a", tag("bdi", clean_label(name, 40)), href="#trace=" + quote(name, safe=""))
