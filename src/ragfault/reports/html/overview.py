"""Overview section of the HTML report: the run, layer health, RAG health, quality levels and trade-offs."""

from __future__ import annotations

from ragfault.analysis import Findings, LayerHealth, QualityCount, TradeoffPair
from ragfault.io.runs import Manifest
from ragfault.reports import charts
from ragfault.reports.format import (
    explain_corrections,
    format_label_gain,
    get_correction_heading,
    list_corrections,
)
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
from ragfault.reports.scorecard_text import describe_judge_trust, describe_judge_usage
from ragfault.stats import Interval
from ragfault.text.number_format import format_bounds, format_number, format_share

QUALITY_GLYPHS = {"excellent": "◆", "good": "●", "fair": "◐", "poor": "○", "unrated": "–"}
"""Quality levels as signs, so that colour is never the only one."""


def build_run_header(findings: Findings) -> Markup:
    """What was evaluated, when, and by whom; and how far to trust it."""
    made = findings.manifest
    facts: list[tuple[str, Node]] = [
        ("Traces", f"{made.traces:,}" + (f" ({made.skipped:,} lines skipped)" if made.skipped else "")),
        ("Metrics", str(len(made.metrics))),
        ("Scores", _format_score_counts(made)),
        ("Created", _format_time(made.created)),
        ("Source", clean_label(", ".join(made.source), 160) or "not recorded"),
        ("Judge", tag("code", clean_label(made.judge, 160) or "none")),
        ("Made by", f"ragfault {clean_label(made.ragfault, 40)}"),
    ]
    facts += [("Asking", line) for line in describe_judge_usage(findings)]
    facts += [("Trust", clean_label(line, 400)) for line in filter(None, [describe_judge_trust(made.judge)])]
    items = [tag("div", tag("dt", name), tag("dd", text)) for name, text in facts]
    return tag("div", tag("dl", items, class_="run"), tag("p", _explain_judge(made), class_="caveat"))


def _format_time(text: str) -> str:
    """A time to the minute, in UTC as runs write it."""
    day, _, clock = clean_label(text, 40).partition("T")
    return f"{day} {clock[:5]} UTC" if clock else day


def _format_score_counts(manifest: Manifest) -> str:
    return f"{manifest.scored:,} scored, {manifest.undefined:,} undefined, {manifest.failed:,} failed"


def _explain_judge(manifest: Manifest) -> str:
    """What the judge is, and what its verdicts are worth."""
    if not manifest.judge:
        return "No judge looked at these traces: only metrics that need no verdicts have values."
    if manifest.judge.startswith("lexical"):
        return (
            "The lexical judge compares words, numbers and names. It sees neither paraphrase nor reasoning, so read "
            "its verdicts on the traces below before you act on a figure; runs of other judges cannot be "
            "compared with this one."
        )
    if manifest.judge.startswith("embedded"):
        return (
            "The embedded judge was trained on answers that people marked; how often it agrees with them is known: "
            "`ragfault judge card`. It can be wrong on any single trace, so read its verdicts below before you act on "
            "a figure; runs of other judges cannot be compared with this one."
        )
    return (
        "A judge observes and can be wrong. Read its verdicts on the traces below before you act on a "
        "figure; runs of other judges cannot be compared with this one."
    )


# --- the overview ----------------------------------------------------------------------------------


def build_overview(findings: Findings) -> Markup:
    """Layer health, RAG health, quality levels, and the metrics that are bought with each other."""
    return tag(
        "section",
        tag("h2", "Overview"),
        tag("p", _summarize_targets(findings), class_="lead"),
        tag(
            "div",
            [_build_health_card(each) for each in findings.health],
            _build_quality_card(findings),
            class_="cards",
        ),
        tag("h3", "RAG health"),
        _build_rag_health(findings),
        tag("h3", "Trade-off pairs"),
        tag("p", "One of a pair rises easily while the other falls; judge them together.", class_="note"),
        tag("div", [_build_tradeoff(pair) for pair in findings.pairs], class_="cards"),
        _build_corrections(findings),
        _build_segments(findings),
        id="overview",
    )


def _summarize_targets(findings: Findings) -> str:
    """The state of the targets and the alerts, in a sentence."""
    aimed = [each for each in findings.scorecard.aggregates if each.result is not None]
    parts = []
    for result, (_, word) in RESULT_SIGNS.items():
        names = [each.metric for each in aimed if each.result == result]
        if names:
            listed = "" if result == "pass" else f" ({clean_label(', '.join(names), 120)})"
            parts.append(f"{len(names)} {word}{listed}")
    targets = f"Of {len(aimed)} targets: {', '.join(parts)}." if aimed else "No metric here has a target."
    alerts = findings.rag.alerts
    return f"{targets} {len(alerts)} {'alert' if len(alerts) == 1 else 'alerts'}." if alerts else targets


def _build_health_card(health: LayerHealth) -> Markup:
    absent = f"without {', '.join(map(clean_label, health.absent))}" if health.absent else None
    parts = [
        tag("div", tag("dt", clean_label(each.metric)), tag("dd", _build_mean(each.interval)), class_="line")
        for each in health.parts
    ]
    return tag(
        "div",
        tag("h3", f"{LAYER_QUESTIONS[health.layer][0]} health"),
        _build_large_mean(health.interval),
        tag("dl", parts),
        tag("p", absent, class_="note") if absent else None,
        class_="card",
    )


def _build_large_mean(interval: Interval | None) -> Markup:
    """A mean in large type with its interval and count."""
    if interval is None:
        return tag("p", tag("span", "–", class_="big"), tag("span", " no trace is scored", class_="note"))
    return tag(
        "p",
        tag("span", format_number(interval.mean), class_="big"),
        tag("span", f" {format_bounds(interval)}, n {interval.n:,}", class_="note"),
    )


def _build_mean(interval: Interval | None) -> Markup:
    if interval is None:
        return tag("span", "–")
    return tag(
        "span",
        format_number(interval.mean),
        tag("span", f" {format_bounds(interval)} n {interval.n:,}", class_="note"),
    )


def _build_quality_card(findings: Findings) -> Markup:
    levels = [
        _build_quality_level(level, above)
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


def _build_quality_level(level: QualityCount, above: QualityCount | None) -> Markup:
    share = level.share.mean if level.share else 0.0
    bar = tag(
        "svg",
        tag("rect", class_="track", x=0, y=0, width=100, height=4),
        tag("rect", class_=f"fill-{level.name}", x=0, y=0, width=round(100 * share, 1), height=4),
        viewBox="0 0 100 4",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    figure = f"{level.count:,} ({format_share(level.share)})"
    return tag(
        "li",
        build_sign(QUALITY_GLYPHS[level.name], _format_level_name(level, above), f"level-{level.name}"),
        tag("span", figure, class_="figure"),
        bar,
        tag("span", level.action, class_="note"),
        build_filter_button("level", level.name, "show traces") if level.count else None,
    )


def _format_level_name(level: QualityCount, above: QualityCount | None) -> str:
    if above is not None and level.low <= 0:
        return f"{level.name} < {above.low:g}"
    return f"{level.name} ≥ {level.low:g}"


def _build_rag_health(findings: Findings) -> Markup:
    rag = findings.rag
    figures = [
        ("Average relevance", rag.relevance, "of the chunks of a trace"),
        ("Context usage rate", rag.usage, "chunks used of chunks provided"),
        ("Missing-context rate", rag.missing, "traces that lack what they need"),
        ("Ranking efficiency", rag.ranking, "mean context_ranking"),
        ("Optimal context hit rate", rag.optimal, "traces with 3 to 5 relevant chunks"),
    ]
    cards = [
        tag(
            "div",
            tag("h4", name),
            _build_large_mean(interval),
            tag("p", note, class_="note"),
            class_="card small",
        )
        for name, interval, note in figures
    ]
    alerts = [
        tag(
            "li",
            build_sign("▲", alert.name, f"alert-{alert.severity}"),
            f" {alert.severity}: {format_number(alert.value)}, limit {format_number(alert.limit)}"
            + ("" if alert.certain else "; its interval reaches over the limit"),
        )
        for alert in rag.alerts
    ]
    return tag(
        "div", tag("div", cards, class_="cards"), tag("ul", alerts, class_="alerts") if alerts else None
    )


def _build_tradeoff(pair: TradeoffPair) -> Markup:
    sides = [
        tag(
            "div",
            tag("h4", clean_label(name)),
            _build_large_mean(side.interval) if side else tag("p", "not in this run", class_="note"),
            (charts.draw_interval(side) if side else None),
        )
        for name, side in zip(pair.names, (pair.first, pair.second), strict=True)
    ]
    return tag("div", sides, class_="card twin")


def _build_corrections(findings: Findings) -> list[Node] | None:
    """The figures as judged and corrected for the judge's error, or rectified by labels, side by side."""
    title = get_correction_heading(findings.scorecard)
    if title is None:
        return None
    rows = [
        tag(
            "tr",
            tag("th", clean_label(item.metric), scope="row"),
            tag("td", _build_mean(item.interval)),
            tag(
                "td",
                (_build_mean(fixed.interval), format_label_gain(fixed))
                if fixed and fixed.interval
                else clean_label(text, 300),
            ),
        )
        for item, text in list_corrections(findings.scorecard)
        for fixed in [item.corrected or item.ppi]
    ]
    top = tag("tr", [tag("th", name, scope="col") for name in ("metric", "as judged", title)])
    table = tag("table", tag("thead", top), tag("tbody", rows), class_="corrected")
    return [
        tag("h3", title.capitalize()),
        wrap_table(table, title) if rows else None,
        [tag("p", clean_label(line, 600), class_="note") for line in explain_corrections(findings.scorecard)],
    ]


def _build_segments(findings: Findings) -> Markup | None:
    """The aimed-at metrics by segment, where there are several."""
    if len(findings.segments) < 2:
        return None
    aimed = [each.metric for each in findings.scorecard.aggregates if each.target and each.interval]
    names = list(
        dict.fromkeys([*aimed, *(m for m in ("answer_relevance", "triad") if _has_metric(findings, m))])
    )
    if not names:
        return None
    rows = []
    for card in findings.segments[:40]:
        found = {each.metric: each.interval for each in card.aggregates}
        cells = [tag("td", _build_mean(found.get(name))) for name in names]
        rows.append(tag("tr", tag("th", clean_label(card.segment or "(none)", 60), scope="row"), cells))
    top = tag(
        "tr", tag("th", "segment", scope="col"), [tag("th", clean_label(n), scope="col") for n in names]
    )
    table = tag("table", tag("thead", top), tag("tbody", rows), class_="segments")
    by = clean_label(findings.segments[0].by or "segment", 40)
    return tag("div", tag("h3", f"By {by}"), wrap_table(table, f"by {by}"))


def _has_metric(findings: Findings, metric: str) -> bool:
    return any(each.metric == metric and each.interval for each in findings.scorecard.aggregates)
