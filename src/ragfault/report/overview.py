"""The top of the page: what was evaluated and by whom, and how the run does as a whole."""

from __future__ import annotations

from ragfault.findings import Findings, Health, Pair, Quality
from ragfault.report import charts
from ragfault.report.asked import asked
from ragfault.report.markup import Markup, Node, label, number, tag
from ragfault.report.pieces import RESULTS, TITLES, bounds, narrow, percent, scroll, sign
from ragfault.report.plain import beside, corrections, notes, righted
from ragfault.report.trust import trust
from ragfault.runs import Manifest
from ragfault.stats import Interval

__all__ = ["GLYPHS", "head", "overview"]

GLYPHS = {"excellent": "◆", "good": "●", "fair": "◐", "poor": "○", "unrated": "–"}
"""Quality levels as signs, so that colour is never the only one."""


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
    facts += [("Asking", line) for line in asked(findings)]
    facts += [("Trust", label(line, 400)) for line in filter(None, [trust(made.judge)])]
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
    if made.judge.startswith("embedded"):
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
        _corrected(findings),
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
        tag("span", f" {bounds(interval)}, n {interval.n:,}", class_="note"),
    )


def _mean(interval: Interval | None) -> Markup:
    if interval is None:
        return tag("span", "–")
    return tag(
        "span", number(interval.mean), tag("span", f" {bounds(interval)} n {interval.n:,}", class_="note")
    )


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
    figure = f"{level.count:,} ({percent(level.share)})"
    return tag(
        "li",
        sign(GLYPHS[level.name], _level_name(level, above), f"level-{level.name}"),
        tag("span", figure, class_="figure"),
        bar,
        tag("span", level.action, class_="note"),
        narrow("level", level.name, "show traces") if level.count else None,
    )


def _level_name(level: Quality, above: Quality | None) -> str:
    if above is not None and level.low <= 0:
        return f"{level.name} < {above.low:g}"
    return f"{level.name} ≥ {level.low:g}"


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
            sign("▲", alert.name, f"alert-{alert.severity}"),
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


def _corrected(findings: Findings) -> list[Node] | None:
    """The figures as judged and corrected for the judge's error, or rectified by labels, side by side."""
    title = beside(findings.scorecard)
    if title is None:
        return None
    rows = [
        tag(
            "tr",
            tag("th", label(item.metric), scope="row"),
            tag("td", _mean(item.interval)),
            tag(
                "td",
                (_mean(fixed.interval), righted(fixed)) if fixed and fixed.interval else label(text, 300),
            ),
        )
        for item, text in corrections(findings.scorecard)
        for fixed in [item.corrected or item.rectified]
    ]
    top = tag("tr", [tag("th", name, scope="col") for name in ("metric", "as judged", title)])
    table = tag("table", tag("thead", top), tag("tbody", rows), class_="corrected")
    return [
        tag("h3", title.capitalize()),
        scroll(table, title) if rows else None,
        [tag("p", label(line, 600), class_="note") for line in notes(findings.scorecard)],
    ]


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
    return tag("div", tag("h3", f"By {by}"), scroll(table, f"by {by}"))


def _has(findings: Findings, metric: str) -> bool:
    return any(each.metric == metric and each.interval for each in findings.scorecard.aggregates)
