"""Traffic over time: for the terminal, with sparklines, and as JSON."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ragfault.findings.alerting import Event
from ragfault.findings.monitoring import Break, Line, Monitor
from ragfault.findings.monitoring_drift import Drift, Moved
from ragfault.findings.monitoring_marks import Mark
from ragfault.findings.monitoring_windows import Rolling
from ragfault.report.comparison import inset, line
from ragfault.report.plain import clean, clip, figure, interval, named
from ragfault.report.terminal import paint
from ragfault.report.wording import signed
from ragfault.stats import Difference

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

__all__ = [
    "BESIDE",
    "alerts",
    "blamed",
    "cohorts",
    "drifted",
    "gap",
    "headline",
    "length",
    "moment",
    "near",
    "place",
    "rolled",
    "routes",
    "scored",
    "sentence",
    "sparkline",
    "terminal",
    "to_json",
    "watching",
]

BESIDE = ("relevance", "usage", "missing", "latency", "error")
"""What is shown beside the metrics that are watched for drops."""

BARS = "▁▂▃▄▅▆▇█"
CELLS = 24
"""How long a sparkline is."""

SPREAD = 0.1
"""The least range that a sparkline is drawn over, so that a wobble does not look like a landslide."""

SHOWN = 12
"""How many alerts are told of."""

KINDS = {"firing": "red", "reminder": "yellow", "resolved": "green"}


# --- in words ----------------------------------------------------------------------------------------


def moment(minute: float) -> str:
    """A minute since 1970 as a date and time, UTC.

    >>> moment(29_393_700)
    '2025-11-20 07:00'
    """
    return datetime.fromtimestamp(60 * minute, UTC).strftime("%Y-%m-%d %H:%M")


def length(minutes: int) -> str:
    """A length of time as short as it can be.

    >>> length(45), length(90), length(1440), length(4000)
    ('45 min', '90 min', '24 h', '2.8 d')
    """
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes / 60:.3g} h" if minutes < 2880 else f"{minutes / 1440:.2g} d"


def place(metric: str, route: str | None) -> str:
    """A metric, and where."""
    return clip(metric, 80) + (f" at {clip(route, 40)}" if route else "")


def gap(found: Difference | None) -> str:
    """A difference with its interval."""
    return "–" if found is None else f"{signed(found.mean)} [{signed(found.low)}, {signed(found.high)}]"


def sentence(found: Break) -> str:
    """A break in a sentence."""
    call, made, moved = found.call, found.reference, found.difference
    fault = found.blame.fault
    lead = f"{fault.layer.capitalize()} broke ({fault.title}): " if fault else ""
    ends = sorted((abs(moved.low), abs(moved.high)))
    size = f"{figure(abs(moved.mean))} [{figure(ends[0])}, {figure(ends[1])}]"
    when = f"since {moment(call.began)} [{moment(call.earliest)}, {moment(call.latest)}]"
    over = f"; back at {moment(call.recovered)}" if call.recovered else ""
    where, word = place(made.metric, made.route), "fell" if made.rising else "rose"
    blind = "" if fault else "; which layer, the data cannot tell"
    return f"{lead}{where} {word} by {size} {when}, called at {moment(call.called)}{over}{blind}."


def headline(found: Monitor) -> str:
    """What came of watching, in a sentence."""
    span = f"{length(found.last - found.first)} of traffic"
    if not found.breaks:
        return f"No drop is called in {span}; {len(found.fired)} alerts fired."
    names = {place(each.reference.metric, each.reference.route) for each in found.breaks}
    layers = dict.fromkeys(each.blame.fault.layer for each in found.breaks if each.blame.fault)
    told = f", naming {' and '.join(layers)}" if layers else ""
    return f"{len(names)} metrics dropped in {span}{told}; {len(found.fired)} alerts fired."


def watching(found: Monitor) -> str:
    """On what terms it was watched."""
    made = found.breaks[0].reference if found.breaks else None
    until = f", the reference until {moment(made.last)}" if made else ""
    return (
        f"{moment(found.first)} to {moment(found.last)} UTC{until}; at most {found.terms.rate:g} false alarms of the "
        "sequential test per metric and route in a month, however often one looks"
    )


def near(found: Monitor, each: Break) -> list[Mark]:
    """The marks that a break may go back to: from an hour before its earliest beginning to its latest."""
    first, last = each.call.earliest - 60, each.call.latest
    return [
        mark
        for mark in found.marks
        if first <= mark.minute <= last and mark.route in (None, each.reference.route)
    ]


def blamed(found: Monitor, each: Break) -> list[str]:
    """What to do about a break: suspects, remedies, marks, and the traces that show it."""
    fault = each.blame.fault
    lines = []
    if fault:
        lines += [f"look at: {', '.join(fault.suspects)}", f"to mend it: {'; '.join(fault.remedies)}"]
    marks = [f"{clip(mark.text, 80)} ({moment(mark.minute)})" for mark in near(found, each)]
    if marks:
        lines.append(f"shortly before: {', '.join(marks)}")
    return [*lines, f"traces that show it: {named(each.traces)}"]


def routes(found: Monitor) -> list[str | None]:
    """The routes, in order."""
    return sorted({each.route for each in found.rollings if each.cohort is None}, key=lambda name: name or "")


def rolled(found: Monitor, route: str | None) -> Iterator[tuple[str, list[Rolling], Line | None]]:
    """The metrics to show of a route, each with its rolling means and its line over time."""
    lines = {each.metric: each for each in found.lines if each.route == route}
    for metric in (*lines, *(name for name in BESIDE if name not in lines)):
        mine = [e for e in found.rollings if e.metric == metric and e.route == route and e.cohort is None]
        if any(each.interval for each in mine):
            yield metric, mine, lines.get(metric)


def cohorts(found: Monitor) -> list[Rolling]:
    """The figures of cohorts over the longest window, of the metrics that are watched."""
    metrics, window = {each.metric for each in found.lines}, max(found.terms.windows)
    return [
        each
        for each in found.rollings
        if each.cohort and each.window == window and each.metric in metrics and each.interval
    ]


def alerts(events: Sequence[Event]) -> list[tuple[str, str, str, str, str, str]]:
    """When, what became of it, how urgent, which rule, where, and the figure."""
    return [
        (
            moment(each.time / 60),
            each.kind,
            each.severity,
            clip(each.rule, 60),
            place(each.metric, each.route),
            "–" if each.value is None else figure(each.value),
        )
        for each in events
    ]


def scored(each: Moved) -> tuple[str, str, str, str]:
    """A metric of the evaluation set beside live traffic."""
    p = "< 0.001" if each.adjusted < 0.001 else f"{each.adjusted:.3f}"
    return clip(each.metric, 60), gap(each.difference), figure(each.distance), p


def drifted(found: Drift) -> str:
    """How far topics have moved, in a sentence."""
    topics = found.topics
    if topics is None:
        return "Topics cannot be compared: a side has no query with a word."
    more = f" More of: {named(topics.more)}." if topics.more else ""
    less = f" Less of: {named(topics.less)}." if topics.less else ""
    old, new = topics.queries
    return (
        f"Topics of {new:,} live queries lie {figure(topics.distance)} from those of {old:,} evaluated ones; chance "
        f"alone gives {figure(topics.low)} to {figure(topics.high)} (p {topics.p:.3f}).{more}{less}"
    )


def sparkline(means: Sequence[float | None], cells: int = CELLS) -> str:
    """Means over time as a row of bars, from the least to the greatest of them.

    >>> sparkline([0.2, 0.5, None, 0.8], 4)
    '▁▄ █'
    """
    known = [mean for mean in means if mean is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    if high - low < SPREAD:
        low, high = (low + high - SPREAD) / 2, (low + high + SPREAD) / 2
    step = max(1, -(-len(means) // cells))
    found = []
    for at in range(0, len(means), step):
        part = [mean for mean in means[at : at + step] if mean is not None]
        share = (sum(part) / len(part) - low) / (high - low) if part else 0.0
        found.append(BARS[min(7, max(0, int(8 * share)))] if part else " ")
    return "".join(found)


# --- the terminal --------------------------------------------------------------------------------------


def terminal(found: Monitor, *, width: int | None = None, colour: bool = False) -> str:
    """What broke first, then the rolling means of each route, alerts, cohorts and drift, as text for a terminal."""
    width = width or shutil.get_terminal_size((110, 24)).columns
    style = "red" if found.breaks or found.fired else "green"
    parts: list[RenderableType] = [
        line((headline(found), f"bold {style}")),
        line((watching(found), "dim")),
        *_broken(found),
    ]
    for route in routes(found):
        title = f"\nRoute {clip(route, 60)}" if route else "\nAll traffic"
        parts += [line((title, "bold cyan")), _means(found, route, width)]
    parts += [*_alerts(found), *_marks(found), *_cohorts(found), *_together(found), *_drift(found)]
    if found.silent:
        text = named(place(*each) for each in found.silent)
        parts.append(line((f"\nNot watched for drops, too few values in the reference: {text}", "dim")))
    return paint(parts, width=width, colour=colour)


def _table(*heads: str) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold", no_wrap=head in ("metric", "time", "over time"))
    return table


def _broken(found: Monitor) -> Iterator[RenderableType]:
    last: list[str] = []
    for each in found.breaks:
        *advice, shown = blamed(found, each)
        yield line()
        yield line(("✗ ", "red"), sentence(each))
        for text in (*(advice if advice != last else ()), shown):
            yield inset(2, (text, "dim"))
        last = advice


def _means(found: Monitor, route: str | None, width: int) -> Table:
    """The rolling means of a route, with as many windows as there is room for."""
    shown = found.terms.windows if width >= 150 else found.terms.windows[:1]
    heads = [head for window in shown for head in (f"{length(window)}, 95 %", "against before")]
    table = _table("metric", *heads, "over time")
    for metric, mine, drawn in rolled(found, route):
        cells = []
        for each in mine:
            if each.window in shown:
                cells += [line(interval(each.interval)), _delta(each)]
        table.add_row(line(clean(metric)), *cells, line(sparkline(drawn.means) if drawn else ""))
    return table


def _delta(each: Rolling) -> Any:
    moved = each.delta
    clear = moved is not None and (moved.low > 0 or moved.high < 0)
    return line((gap(moved), "bold" if clear else "dim"))


def _alerts(found: Monitor) -> Iterator[RenderableType]:
    if not found.events:
        return
    yield line(("\nAlerts", "bold cyan"))
    table = _table("time", "", "severity", "rule", "where", "figure")
    for time, kind, severity, rule, where, value in alerts(found.events[-SHOWN:]):
        table.add_row(time, line((kind, KINDS[kind])), severity, line(rule), line(where), value)
    yield table
    if len(found.events) > SHOWN:
        yield line((f"and {len(found.events) - SHOWN:,} before", "dim"))
    still = [f"{clip(a.rule.name, 60)} ({place(a.metric, a.route)})" for a in found.state.firing]
    if still:
        yield line(f"firing at the end: {', '.join(still)}")


def _marks(found: Monitor) -> Iterator[RenderableType]:
    if found.marks:
        yield line(("\nMarks", "bold cyan"))
        for mark in found.marks:
            yield line(f"{moment(mark.minute)}  {clip(mark.text, 100)}")


def _cohorts(found: Monitor) -> Iterator[RenderableType]:
    rows = cohorts(found)
    if rows:
        yield line(("\nCohorts", "bold cyan"), (f"   {length(max(found.terms.windows))}", "dim"))
        table = _table("cohort", "metric", "95 %", "n")
        for each in rows:
            size = each.interval.n if each.interval else 0
            table.add_row(
                line(clip(each.cohort or "", 60)), clean(each.metric), interval(each.interval), f"{size:,}"
            )
        yield table


def _together(found: Monitor) -> Iterator[RenderableType]:
    if found.correlations:
        yield line(("\nTogether", "bold cyan"), ("   correlation of metrics", "dim"))
        for each in found.correlations:
            ends = f"{signed(each.r)} [{signed(each.low)}, {signed(each.high)}] on {each.n:,} traces"
            yield line(f"{clean(each.first)}, {clean(each.second)}: {ends}")


def _drift(found: Monitor) -> Iterator[RenderableType]:
    if found.drift is None:
        return
    yield line(
        ("\nAgainst ", "bold cyan"),
        (clip(found.drift.run, 60), "bold cyan"),
        ("   live less evaluated", "dim"),
    )
    table = _table("metric", "difference, 95 %", "distance", "p")
    for each in found.drift.scores:
        table.add_row(*map(line, scored(each)))
    yield table
    yield line(drifted(found.drift))


def to_json(found: Monitor) -> str:
    """All of it as JSON; each break has its sentence, and an interval's end that is infinite is null."""
    plain: dict[str, Any] = msgspec.to_builtins(found)
    for each, one in zip(plain["breaks"], found.breaks, strict=True):
        each["sentence"] = sentence(one)
    whole = {"sentence": headline(found), "fired": len(found.fired), **plain}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"
