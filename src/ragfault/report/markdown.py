"""A run's findings as GitHub-flavoured Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ragfault.findings import Aggregate, Diagnosis, Findings
from ragfault.report.asked import asked
from ragfault.report.plain import (
    LAYERS,
    RESULTS,
    beside,
    by_layer,
    clean,
    clip,
    corrections,
    figure,
    interval,
    kinds,
    lost,
    notes,
    percent,
    plural,
    silent,
    told,
)
from ragfault.report.trust import trust
from ragfault.stats import Interval

__all__ = ["code", "escape", "render", "table"]

SEGMENTS = 20
"""How many segments are shown."""

_SIGNS = re.compile(r"[\\`*_{}\[\]<>&#|~@!$]|://|www\.|^[-+]|^\d+[.)]", re.IGNORECASE)

_CODE = re.compile(r"[\w@.,=()<> -]+")


def escape(text: str) -> str:
    """A text from outside as Markdown that shows it and does nothing: no markup, HTML, link or mention.

    >>> escape("a | b <script> @you [x](y)")
    'a &#124; b &#60;script&#62; &#64;you &#91;x&#93;(y)'
    """
    return _SIGNS.sub(lambda found: "".join(f"&#{ord(sign)};" for sign in found[0]), clean(text))


def code(text: str) -> str:
    """A metric or a bar as code; escaped where it could not stand in a cell so.

    >>> code("recall(relevant=2)@20"), code("odd|name")
    ('`recall(relevant=2)@20`', 'odd&#124;name')
    """
    return f"`{text}`" if _CODE.fullmatch(text) else escape(text)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table; a heading that ends in ":" is aligned right. The cells are Markdown already."""
    rule = ["---:" if heading.endswith(":") else "---" for heading in headings]
    heads = [heading.removesuffix(":") for heading in headings]
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)]


def render(findings: Findings) -> str:
    """The findings as one Markdown page."""
    made = findings.manifest
    facts = f"{plural(made.traces)} · judge {escape(made.judge)} · {escape(made.created)}"
    if made.failed:
        facts += f" · {made.failed:,} scores failed"
    if made.skipped:
        facts += f" · {made.skipped:,} bad lines left out"
    facts = " · ".join([facts, *asked(findings)])
    lines = [
        f"# {escape(findings.run)}",
        "",
        facts,
        *([f"\n{escape(trusted)}"] if (trusted := trust(made.judge)) else []),
        *_layers(findings),
        *_corrected(findings),
        *_silent(findings),
        *_pairs(findings),
        *_rag(findings),
        *_quality(findings),
        *_segments(findings),
        *_insights(findings),
        *_worst(findings.worst),
        *_remedies(findings),
    ]
    return "\n".join(lines) + "\n"


def _name(item: Aggregate) -> str:
    return code(item.metric) + (" ↓" if item.better == "lower" else "")


def _target(item: Aggregate) -> str:
    if item.target is None or item.result is None:
        return ""
    return f"`{item.target.sign} {item.target.value:g}` **{RESULTS[item.result]}**"


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *lines] if lines else []


def _layers(findings: Findings) -> list[str]:
    health = {found.layer: found for found in findings.health}
    lines: list[str] = []
    for layer, found in by_layer(findings.scorecard):
        whole = health.get(layer)  # type: ignore[call-overload]
        above = []
        if whole is not None and whole.interval is not None:
            names = ", ".join(code(part.metric) for part in whole.parts)
            above = [f"Health **{interval(whole.interval)}**, the mean of {names}.", ""]
        rows = [
            (
                _name(item),
                figure(item.interval.mean),
                f"{figure(item.interval.low)} – {figure(item.interval.high)}",
                f"{item.scored:,}",
                f"{item.undefined:,}",
                f"{item.failed:,}",
                _target(item),
            )
            for item in found
            if item.interval
        ]
        heads = ("Metric", "Mean:", "95 % interval", "Scored:", "Undefined:", "Failed:", "Target")
        lines += _section(LAYERS[layer], [*above, *table(heads, rows)])
    return lines


def _corrected(findings: Findings) -> list[str]:
    title = beside(findings.scorecard)
    if title is None:
        return []
    rows = [
        (_name(item), interval(item.interval), escape(text)) for item, text in corrections(findings.scorecard)
    ]
    lines = table(("Metric", "As judged", title.capitalize()), rows) if rows else []
    told = [escape(line) for line in notes(findings.scorecard)]
    return _section(title.capitalize(), [*lines, *([""] if lines else []), " ".join(told)])


def _silent(findings: Findings) -> list[str]:
    return [
        line
        for title, groups in (
            ("Lost to failures", lost(findings.scorecard)),
            ("Not measured", silent(findings.scorecard)),
        )
        for line in _section(
            title, [f"- {', '.join(map(code, names))}: {escape(reason)}" for reason, names in groups]
        )
    ]


def _pairs(findings: Findings) -> list[str]:
    rows = [
        [
            f"{code(name)} {interval(found.interval) if found and found.interval else 'not measured'}"
            for name, found in zip(pair.names, (pair.first, pair.second), strict=True)
        ]
        for pair in findings.pairs
    ]
    return _section("Trade-offs", table(("One", "Other"), rows) if rows else [])


def _rag(findings: Findings) -> list[str]:
    rag = findings.rag
    figures = (
        ("Average relevance", rag.relevance, "traces"),
        ("Context usage rate", rag.usage, "chunks"),
        ("Missing-context rate", rag.missing, "traces"),
        ("Ranking efficiency", rag.ranking, "traces"),
        ("Optimal context hit rate", rag.optimal, "traces"),
    )
    rows = [(name, interval(found), f"{found.n:,} {unit}") for name, found, unit in figures if found]
    alerts = [
        f"- **{alert.name}** ({alert.severity}): {figure(alert.value)}, limit {alert.limit:g}"
        + ("" if alert.certain else ", not with the whole interval")
        for alert in rag.alerts
    ]
    lines = table(("Figure", "Mean", "Over"), rows) if rows else []
    return _section("RAG health", [*lines, *([""] if alerts else []), *alerts])


def _quality(findings: Findings) -> list[str]:
    if not any(found.count for found in findings.quality):
        return []
    rows = [(found.name, f"{found.count:,}", _share(found.share), found.action) for found in findings.quality]
    without = ["", f"{findings.unrated:,} traces have no triad."] if findings.unrated else []
    return _section(
        "Quality of the answers", [*table(("Level", "Traces:", "Share", "Action"), rows), *without]
    )


def _share(found: Interval | None) -> str:
    return f"{percent(found.mean)} [{percent(found.low)}, {percent(found.high)}]" if found else "–"


def _segments(findings: Findings) -> list[str]:
    if not findings.segments:
        return []
    names = told(findings.scorecard)
    by = escape(findings.segments[0].by or "")
    rows = [
        (
            "(none)" if card.segment is None else escape(clip(card.segment, 60)),
            _name(item),
            interval(item.interval),
            f"{item.scored:,}/{item.traces:,}",
            _target(item),
        )
        for card in findings.segments[:SEGMENTS]
        for item in card.aggregates
        if item.metric in names
    ]
    more = len(findings.segments) - SEGMENTS
    rest = ["", f"… and {more:,} more."] if more > 0 else []
    return _section(f"By {by}", [*table((by, "Metric", "Mean", "Scored:", "Target"), rows), *rest])


BY = {"chunks": "number of chunks", "length": "length in characters", "age": "age in days"}


def _insights(findings: Findings) -> list[str]:
    rows = [
        (
            found.measure,
            BY.get(found.by, found.by),
            escape(clip(bucket.label, 60)),
            interval(bucket.interval),
            f"{bucket.interval.n:,}",
            f"{bucket.traces:,}",
        )
        for found in findings.insights
        for bucket in found.buckets
    ]
    heads = ("Measure", "By", "Bucket", "Mean", "Chunks:", "Traces:")
    return _section("Insights", table(heads, rows) if rows else [])


def _worst(found: Sequence[Diagnosis]) -> list[str]:
    lines = []
    for diagnosis in found:
        triad = "" if diagnosis.triad is None else f", triad {figure(diagnosis.triad)} ({diagnosis.quality})"
        lines.append(
            f"- **{escape(clip(diagnosis.trace, 60))}**{triad}: {escape(clip(diagnosis.query, 200))}"
        )
        for title, count, text in kinds(diagnosis):
            lines.append(f"  - {title}{f' ×{count}' if count > 1 else ''}: {escape(text)}")
    return _section("Worst traces", lines)


def _remedies(findings: Findings) -> list[str]:
    rows = [
        (
            found.title,
            f"{found.problems:,}",
            f"{found.traces:,}",
            _share(found.share),
            "; ".join(found.steps),
            ", ".join(escape(clip(name, 60)) for name in found.examples),
        )
        for found in findings.remedies
    ]
    heads = ("Problem", "Problems:", "Traces:", "Share of traces", "What to change", "Such as")
    return _section("What to change", table(heads, rows) if rows else [])
