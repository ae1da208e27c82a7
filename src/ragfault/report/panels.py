"""The sections of the page below its top: the layers, the insights, the problems and what mends them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from ragfault.findings import Aggregate, Diagnosis, Findings, Insight, Reason, Remedy
from ragfault.records import Layer
from ragfault.report import charts
from ragfault.report.markup import Markup, Node, label, number, tag
from ragfault.report.pieces import RESULTS, TITLES, bounds, narrow, percent, scroll, sign

__all__ = ["insights", "layers", "remedies"]

BY = {
    "chunks": "number of chunks",
    "position": "position of the chunk",
    "length": "length of the chunk, in characters",
    "turn": "turn of the conversation",
    "age": "age of the chunk, in days",
    "route": "route",
}

Values = Mapping[str, Sequence[float | None]]


# --- the layers ------------------------------------------------------------------------------------


def layers(findings: Findings, values: Values) -> Markup:
    """A panel for each layer: every metric with its interval, counts, target and distribution."""
    return Markup("".join(_panel(layer, findings, values) for layer in TITLES))


def _panel(layer: Layer, findings: Findings, values: Values) -> Markup:
    title, question = TITLES[layer]
    found = [each for each in findings.scorecard.aggregates if each.layer == layer]
    shown = [each for each in found if each.interval is not None]
    head = ["metric", "mean", "95 % interval", "", "scored", "undefined", "failed", "target", "distribution"]
    rows = [_row(each, values.get(each.metric, ())) for each in shown]
    columns = [tag("th", name or tag("span", "interval", class_="hidden"), scope="col") for name in head]
    table = tag("table", tag("thead", tag("tr", columns)), tag("tbody", rows), class_="metrics")
    return tag(
        "section",
        tag("h2", title, " ", tag("span", question, class_="note")),
        scroll(table, f"of {title}") if shown else tag("p", "No metric has a value.", class_="empty"),
        _valueless([each for each in found if each.interval is None]),
        id=layer,
    )


def _row(each: Aggregate, values: Sequence[float | None]) -> Markup:
    assert each.interval is not None
    known = [value for value in values if value is not None]
    arrow, words = ("↑", "higher is better") if each.better == "higher" else ("↓", "lower is better")
    notes = "; ".join(f"{label(why.text)} ({why.count:,})" for why in each.notes[:2])
    return tag(
        "tr",
        tag(
            "th",
            label(each.metric),
            " ",
            tag("span", arrow, aria_hidden="true", class_="arrow"),
            tag("span", f", {words}", class_="hidden"),
            tag("span", notes, class_="note why") if notes else None,
            scope="row",
        ),
        tag("td", tag("strong", number(each.interval.mean)), class_="figure"),
        tag("td", bounds(each.interval), class_="figure"),
        tag("td", charts.whisker(each)),
        tag("td", f"{each.scored:,}", class_="figure"),
        _state(each.undefined, each.why_undefined),
        _state(each.failed, each.why_failed),
        tag("td", _target(each)),
        tag("td", charts.histogram(known, each.low, each.high) if known else None),
    )


def _state(found: int, reasons: Sequence[Reason]) -> Markup:
    """How many scores have no value; why, as a tooltip."""
    why = "; ".join(f"{label(reason.text)} ({reason.count:,})" for reason in reasons[:3])
    if not why or not found:
        return tag("td", f"{found:,}", class_="figure")
    hint = tag(
        "span",
        f"{found:,}",
        tag("span", f": {why}", class_="hidden"),
        data_tip=why,
        class_="hint",
        tabindex=0,
    )
    return tag("td", hint, class_="figure")


def _target(each: Aggregate) -> Markup | None:
    if each.target is None:
        return None
    goal = f"{each.target.sign.replace('>=', '≥').replace('<=', '≤')} {each.target.value:g}"
    if each.result is None:
        return tag("span", goal)
    glyph, word = RESULTS[each.result]
    return tag("span", f"{goal} ", sign(glyph, word, f"result-{each.result.replace(' ', '-')}"))


def _valueless(found: Sequence[Aggregate]) -> Markup | None:
    """The metrics without any value, each with its commonest reason, in one line."""
    if not found:
        return None
    items = []
    for each in found:
        reasons = each.why_failed or each.why_undefined
        why = f" ({label(reasons[0].text, 100)})" if reasons else ""
        items.append(f"{label(each.metric)}{why}")
    return tag("p", tag("strong", "No value on any trace: "), "; ".join(items), ".", class_="valueless")


# --- insights and remedies -------------------------------------------------------------------------


def insights(findings: Findings) -> Markup:
    """A chart for each insight, with its figures as a table."""
    shown = [each for each in findings.insights if each.buckets]
    figures = [_figure(each) for each in sorted(shown, key=lambda each: list(BY).index(each.by))]
    note = "Bars are means, lines their 95 % intervals; n counts chunks, those of one trace taken together."
    empty = tag("p", "No chunk was judged.", class_="empty")
    body = tag("div", figures, class_="figures") if figures else empty
    return tag("section", tag("h2", "Insights"), tag("p", note, class_="note"), body, id="insights")


def _figure(insight: Insight) -> Markup:
    what = "Mean relevance" if insight.measure == "relevance" else "Share of chunks used"
    title = f"{what} by {BY[insight.by]}"
    unknown = f"{insight.unknown:,} chunks without this property are left out." if insight.unknown else None
    return tag(
        "figure",
        tag("figcaption", title),
        charts.draw(charts.chart(insight), title),
        tag("p", unknown, class_="note") if unknown else None,
        tag(
            "details",
            tag("summary", "figures", tag("span", f": {title}", class_="hidden")),
            _figures(insight),
        ),
    )


def _figures(insight: Insight) -> Markup:
    """The figures of a chart as a table."""
    rows = [
        tag(
            "tr",
            tag("th", label(bucket.label, 60), scope="row"),
            tag("td", number(bucket.interval.mean), class_="figure"),
            tag("td", bounds(bucket.interval), class_="figure"),
            tag("td", f"{bucket.interval.n:,}", class_="figure"),
            tag("td", f"{bucket.traces:,}", class_="figure"),
        )
        for bucket in insight.buckets
    ]
    names = (insight.by, "mean", "95 % interval", "chunks", "traces")
    top = tag("tr", [tag("th", name, scope="col") for name in names])
    return tag("table", tag("thead", top), tag("tbody", rows))


def remedies(findings: Findings) -> Markup:
    """What is wrong and what mends it, with the traces that show it, and the worst traces."""
    items = [_remedy(remedy) for remedy in findings.remedies]
    body: Node = (
        tag("ol", items, class_="remedies") if items else tag("p", "No problem was found.", class_="empty")
    )
    worst = [_worst(diagnosis) for diagnosis in findings.worst if diagnosis.problems]
    return tag(
        "section",
        tag("h2", "Problems and remedies"),
        body,
        [tag("h3", "Worst traces"), tag("ol", worst, class_="worst")] if worst else None,
        id="remedies",
    )


def _remedy(remedy: Remedy) -> Markup:
    shown: list[Node] = [node for name in remedy.examples[:5] for node in (_link(name), " ")]
    where = f"{remedy.problems:,} in {remedy.traces:,} traces ({percent(remedy.share)}). "
    return tag(
        "li",
        tag("h3", remedy.title, " ", tag("span", TITLES[remedy.layer][0].lower(), class_="tag")),
        tag("p", where, narrow("kind", remedy.kind, "show these traces"), class_="note"),
        tag("ul", [tag("li", step) for step in remedy.steps]),
        tag("p", "For example: ", shown, class_="examples") if shown else None,
    )


def _worst(diagnosis: Diagnosis) -> Markup:
    kinds = dict.fromkeys(problem.kind.replace("_", " ") for problem in diagnosis.problems)
    triad = "" if diagnosis.triad is None else f", triad {number(diagnosis.triad)}"
    found = len(diagnosis.problems)
    return tag(
        "li",
        _link(diagnosis.trace),
        " ",
        tag("bdi", label(diagnosis.query, 140)),
        tag(
            "span",
            f" {found} {'problem' if found == 1 else 'problems'}{triad}: {', '.join(kinds)}",
            class_="note",
        ),
    )


def _link(name: str) -> Markup:
    """A link that opens a trace further down the page."""
    return tag("a", tag("bdi", label(name, 40)), href="#trace=" + quote(name, safe=""))
