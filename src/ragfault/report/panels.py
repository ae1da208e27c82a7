"""The scorecard of the page: what was found in a run, layer by layer, as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragfault.findings import Aggregate, Findings, Health, Pair, Quality, Remedy
from ragfault.records import Layer
from ragfault.report import charts
from ragfault.report.markup import Markup, Node, label, number, tag
from ragfault.runs import Manifest
from ragfault.stats import Interval

__all__ = ["GLYPHS", "head", "insights", "layers", "overview", "remedies"]

TITLES: dict[Layer, tuple[str, str]] = {
    "retrieval": ("Retrieval", "Did the right chunks arrive, in the right order?"),
    "generation": ("Generation", "Is the answer grounded in the chunks, to the point and complete?"),
    "crosscut": ("Cross-cut", "Retrieval and generation together, and against the truth."),
    "operation": ("Operation", "What it costs in time, tokens and failures."),
}

GLYPHS = {"excellent": "◆", "good": "●", "fair": "◐", "poor": "○", "unrated": "–"}
"""Quality levels as signs, so that colour is never the only one."""

RESULTS = {"pass": ("✓", "met"), "fail": ("✗", "missed"), "cannot tell": ("≈", "cannot tell")}

BY = {
    "chunks": "number of chunks",
    "position": "position of the chunk",
    "length": "length of the chunk, in characters",
    "turn": "turn of the conversation",
    "age": "age of the chunk, in days",
    "route": "route",
}

Values = Mapping[str, Sequence[float | None]]


# --- the head --------------------------------------------------------------------------------------


def head(findings: Findings) -> Markup:
    """What was evaluated, when, and by whom; and how far to trust it."""
    made = findings.manifest
    facts: list[tuple[str, Node]] = [
        ("Traces", f"{made.traces:,}" + (f" ({made.skipped:,} lines skipped)" if made.skipped else "")),
        ("Metrics", str(len(made.metrics))),
        ("Scores", _states(made)),
        ("Created", _moment(made.created)),
        ("Source", label(", ".join(made.source), 160) or "not recorded"),
        ("Judge", tag("code", label(made.judge, 160) or "none")),
        ("Made by", f"ragfault {label(made.ragfault, 40)}"),
    ]
    items = [tag("div", tag("dt", name), tag("dd", text)) for name, text in facts]
    return tag("div", tag("dl", items, class_="run"), tag("p", _caveat(made), class_="caveat"))


def _moment(text: str) -> str:
    """A time to the minute, in UTC as runs write it."""
    day, _, clock = label(text, 40).partition("T")
    return f"{day} {clock[:5]} UTC" if clock else day


def _states(made: Manifest) -> str:
    return f"{made.scored:,} scored, {made.undefined:,} undefined, {made.failed:,} failed"


def _caveat(made: Manifest) -> str:
    """What the judge is, and what its verdicts are worth."""
    if not made.judge:
        return "No judge looked at these traces: only metrics that need no verdicts have values."
    if made.judge.startswith("lexical"):
        return (
            "The lexical judge compares words, numbers and names. It sees neither paraphrase nor reasoning, so read "
            "its verdicts on the traces below before you act on a figure; runs of other judges cannot be "
            "compared with this one."
        )
    return (
        "A judge observes and can be wrong. Read its verdicts on the traces below before you act on a "
        "figure; runs of other judges cannot be compared with this one."
    )


# --- the overview ----------------------------------------------------------------------------------


def overview(findings: Findings) -> Markup:
    """Layer health, RAG health, quality levels, and the metrics that are bought with each other."""
    return tag(
        "section",
        tag("h2", "Overview"),
        tag("p", _summary(findings), class_="lead"),
        tag("div", [_health(each) for each in findings.health], _quality(findings), class_="cards"),
        tag("h3", "RAG health"),
        _rag(findings),
        tag("h3", "Trade-off pairs"),
        tag("p", "One of a pair rises easily while the other falls; judge them together.", class_="note"),
        tag("div", [_pair(pair) for pair in findings.pairs], class_="cards"),
        _segments(findings),
        id="overview",
    )


def _summary(findings: Findings) -> str:
    """The state of the targets and the alerts, in a sentence."""
    aimed = [each for each in findings.scorecard.aggregates if each.result is not None]
    parts = []
    for result, (_, word) in RESULTS.items():
        names = [each.metric for each in aimed if each.result == result]
        if names:
            listed = "" if result == "pass" else f" ({label(', '.join(names), 120)})"
            parts.append(f"{len(names)} {word}{listed}")
    targets = f"Of {len(aimed)} targets: {', '.join(parts)}." if aimed else "No metric here has a target."
    alerts = findings.rag.alerts
    return f"{targets} {len(alerts)} {'alert' if len(alerts) == 1 else 'alerts'}." if alerts else targets


def _health(health: Health) -> Markup:
    absent = f"without {', '.join(map(label, health.absent))}" if health.absent else None
    parts = [
        tag("div", tag("dt", label(each.metric)), tag("dd", _mean(each.interval)), class_="line")
        for each in health.parts
    ]
    return tag(
        "div",
        tag("h3", f"{TITLES[health.layer][0]} health"),
        _big(health.interval),
        tag("dl", parts),
        tag("p", absent, class_="note") if absent else None,
        class_="card",
    )


def _big(interval: Interval | None) -> Markup:
    """A mean in large type with its interval and count."""
    if interval is None:
        return tag("p", tag("span", "–", class_="big"), tag("span", " no trace is scored", class_="note"))
    return tag(
        "p",
        tag("span", number(interval.mean), class_="big"),
        tag("span", f" {_range(interval)}, n {interval.n:,}", class_="note"),
    )


def _mean(interval: Interval | None) -> Markup:
    if interval is None:
        return tag("span", "–")
    return tag(
        "span", number(interval.mean), tag("span", f" {_range(interval)} n {interval.n:,}", class_="note")
    )


def _range(interval: Interval) -> str:
    ends = [number(end) if abs(end) != float("inf") else "∞" for end in (interval.low, interval.high)]
    return f"[{ends[0]}, {ends[1]}]"


def _quality(findings: Findings) -> Markup:
    levels = [
        _level(level, above)
        for above, level in zip((None, *findings.quality[:-1]), findings.quality, strict=True)
    ]
    unrated = f"{findings.unrated:,} without a triad, so without a level" if findings.unrated else None
    return tag(
        "div",
        tag("h3", "Quality by triad"),
        tag("ul", levels, class_="levels"),
        tag("p", unrated, class_="note") if unrated else None,
        class_="card",
    )


def _level(level: Quality, above: Quality | None) -> Markup:
    share = level.share.mean if level.share else 0.0
    bar = tag(
        "svg",
        tag("rect", class_="track", x=0, y=0, width=100, height=4),
        tag("rect", class_=f"fill-{level.name}", x=0, y=0, width=round(100 * share, 1), height=4),
        viewBox="0 0 100 4",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    figure = f"{level.count:,} ({_percent(level.share)})"
    return tag(
        "li",
        _sign(GLYPHS[level.name], _level_name(level, above), f"level-{level.name}"),
        tag("span", figure, class_="figure"),
        bar,
        tag("span", level.action, class_="note"),
        _filter("level", level.name, "show") if level.count else None,
    )


def _level_name(level: Quality, above: Quality | None) -> str:
    if above is not None and level.low <= 0:
        return f"{level.name} < {above.low:g}"
    return f"{level.name} ≥ {level.low:g}"


def _percent(share: Interval | None) -> str:
    if share is None:
        return "–"
    return f"{share.mean:.0%}, {share.low:.0%} to {share.high:.0%}"


def _sign(glyph: str, text: str, kind: str) -> Markup:
    return tag("span", tag("span", glyph, aria_hidden="true"), " ", text, class_=f"sign {kind}")


def _filter(name: str, value: str, text: str) -> Markup:
    """A button that narrows the list of traces; shown once the list is there."""
    return tag(
        "button",
        text,
        tag("span", f" the {value.replace('_', ' ')} traces", class_="hidden"),
        type="button",
        class_="link",
        data_filter=name,
        data_value=value,
        hidden=True,
    )


def _rag(findings: Findings) -> Markup:
    rag = findings.rag
    figures = [
        ("Average relevance", rag.relevance, "of the chunks of a trace"),
        ("Context usage rate", rag.usage, "chunks used of chunks provided"),
        ("Missing-context rate", rag.missing, "traces that lack what they need"),
        ("Ranking efficiency", rag.ranking, "mean context_ranking"),
        ("Optimal context hit rate", rag.optimal, "traces with 3 to 5 relevant chunks"),
    ]
    cards = [
        tag("div", tag("h4", name), _big(interval), tag("p", note, class_="note"), class_="card small")
        for name, interval, note in figures
    ]
    alerts = [
        tag(
            "li",
            _sign("▲", alert.name, f"alert-{alert.severity}"),
            f" {alert.severity}: {number(alert.value)}, limit {number(alert.limit)}"
            + ("" if alert.certain else "; its interval reaches over the limit"),
        )
        for alert in rag.alerts
    ]
    return tag(
        "div", tag("div", cards, class_="cards"), tag("ul", alerts, class_="alerts") if alerts else None
    )


def _pair(pair: Pair) -> Markup:
    sides = [
        tag(
            "div",
            tag("h4", label(name)),
            _big(side.interval) if side else tag("p", "not in this run", class_="note"),
            (charts.whisker(side) if side else None),
        )
        for name, side in zip(pair.names, (pair.first, pair.second), strict=True)
    ]
    return tag("div", sides, class_="card twin")


def _segments(findings: Findings) -> Markup | None:
    """The aimed-at metrics by segment, where there are several."""
    if len(findings.segments) < 2:
        return None
    aimed = [each.metric for each in findings.scorecard.aggregates if each.target and each.interval]
    names = list(dict.fromkeys([*aimed, *(m for m in ("answer_relevance", "triad") if _has(findings, m))]))
    if not names:
        return None
    rows = []
    for card in findings.segments[:40]:
        found = {each.metric: each.interval for each in card.aggregates}
        cells = [tag("td", _mean(found.get(name))) for name in names]
        rows.append(tag("tr", tag("th", label(card.segment or "(none)", 60), scope="row"), cells))
    top = tag("tr", tag("th", "segment", scope="col"), [tag("th", label(n), scope="col") for n in names])
    table = tag("table", tag("thead", top), tag("tbody", rows), class_="segments")
    by = label(findings.segments[0].by or "segment", 40)
    return tag("div", tag("h3", f"By {by}"), _scroll(table, f"by {by}"))


def _has(findings: Findings, metric: str) -> bool:
    return any(each.metric == metric and each.interval for each in findings.scorecard.aggregates)


def _scroll(table: Markup, name: str) -> Markup:
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=f"table {name}")


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
        _scroll(table, f"of {title}") if shown else tag("p", "No metric has a value.", class_="empty"),
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
        tag("td", _range(each.interval), class_="figure"),
        tag("td", charts.whisker(each)),
        tag("td", f"{each.scored:,}", class_="figure"),
        _state(each.undefined, each.why_undefined),
        _state(each.failed, each.why_failed),
        tag("td", _target(each)),
        tag("td", charts.histogram(known, each.low, each.high) if known else None),
    )


def _state(found: int, reasons: Sequence[object]) -> Markup:
    """How many scores have no value; why, as a tooltip."""
    why = "; ".join(
        f"{label(getattr(reason, 'text', ''))} ({getattr(reason, 'count', 0):,})" for reason in reasons[:3]
    )
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
    return tag("span", f"{goal} ", _sign(glyph, word, f"result-{each.result.replace(' ', '-')}"))


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
    figures = []
    for insight in sorted(findings.insights, key=lambda each: list(BY).index(each.by)):
        if not insight.buckets:
            continue
        what = "Mean relevance" if insight.measure == "relevance" else "Share of chunks used"
        title = f"{what} by {BY[insight.by]}"
        rows = [
            tag(
                "tr",
                tag("th", label(bucket.label, 60), scope="row"),
                tag("td", number(bucket.interval.mean), class_="figure"),
                tag("td", _range(bucket.interval), class_="figure"),
                tag("td", f"{bucket.interval.n:,}", class_="figure"),
                tag("td", f"{bucket.traces:,}", class_="figure"),
            )
            for bucket in insight.buckets
        ]
        names = (insight.by, "mean", "95 % interval", "chunks", "traces")
        top = tag("tr", [tag("th", name, scope="col") for name in names])
        table = tag("table", tag("thead", top), tag("tbody", rows))
        unknown = (
            f"{insight.unknown:,} chunks without this property are left out." if insight.unknown else None
        )
        figures.append(
            tag(
                "figure",
                tag("figcaption", title),
                charts.draw(charts.chart(insight), title),
                tag("p", unknown, class_="note") if unknown else None,
                tag("details", tag("summary", "figures", tag("span", f": {title}", class_="hidden")), table),
            )
        )
    note = "Bars are means, lines their 95 % intervals; n counts chunks, those of one trace taken together."
    body: Node = (
        tag("div", figures, class_="figures") if figures else tag("p", "No chunk was judged.", class_="empty")
    )
    return tag("section", tag("h2", "Insights"), tag("p", note, class_="note"), body, id="insights")


def remedies(findings: Findings) -> Markup:
    """What is wrong and what mends it, with the traces that show it."""
    items = [_remedy(remedy) for remedy in findings.remedies]
    body: Node = (
        tag("ol", items, class_="remedies") if items else tag("p", "No problem was found.", class_="empty")
    )
    return tag("section", tag("h2", "Problems and remedies"), body, id="remedies")


def _remedy(remedy: Remedy) -> Markup:
    from urllib.parse import quote

    links = [
        tag("a", tag("bdi", label(name, 40)), href="#trace=" + quote(name, safe=""))
        for name in remedy.examples[:5]
    ]
    shown: list[Node] = [node for link in links for node in (link, " ")]
    return tag(
        "li",
        tag("h3", remedy.title, " ", tag("span", TITLES[remedy.layer][0].lower(), class_="tag")),
        tag(
            "p",
            f"{remedy.problems:,} in {remedy.traces:,} traces ({_percent(remedy.share)}). ",
            _filter("kind", remedy.kind, "show them"),
            class_="note",
        ),
        tag("ul", [tag("li", step) for step in remedy.steps]),
        tag("p", "For example: ", shown, class_="examples") if links else None,
    )
