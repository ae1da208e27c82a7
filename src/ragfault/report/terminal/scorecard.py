"""The scorecard and the diagnoses of a run for the terminal, at any width, with or without color."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ragfault.diagnosis.records import Diagnosis, Findings, MetricAggregate
from ragfault.report.format import (
    LAYER_TITLES,
    TARGET_RESULTS,
    clean_text,
    clip_text,
    describe_quantiles,
    explain_corrections,
    get_correction_heading,
    get_problem_title,
    group_by_layer,
    group_failures,
    group_unmeasured_metrics,
    join_names,
    list_corrections,
    list_parts,
    select_segment_metrics,
    summarize_problems,
)
from ragfault.report.run_verdict import (
    PROBLEMS_SHOWN,
    describe_example,
    describe_layers,
    describe_no_problem,
    describe_problem,
    describe_share,
    describe_targets,
)
from ragfault.report.terminal.layout import build_line, build_table, indent_line, render_rich
from ragfault.report.wording import (
    describe_alert,
    describe_faulty_step,
    describe_gold_agreement,
    describe_judge_trust,
    describe_judge_usage,
    describe_trace_count,
    describe_warnings,
    format_metric,
)
from ragfault.text.number_format import format_bounds, format_interval, format_number, format_share, has_too_few

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text


WIDE_COLUMNS, NARROW_COLUMNS = 100, 84
"""From which width an interval is drawn, and below which the counts share one column."""

INTERVAL_CELLS = 20
"""Length of a drawn interval, where there is room for it beside the figures."""

FIGURE_COLUMNS = 92
"""The columns that the figures of a metric take."""

MAX_SEGMENTS = 10
"""Number of segments shown."""

MAX_NAMES = 3
"""Number of metrics named for a reason why they were not measured."""

UNBROKEN_COLUMNS = ("metric", "95 % interval", "scored")
"""The columns whose cells are not broken."""

MAX_SUMMARY_LINES = 40
"""Number of lines of 80 columns that a summary may take; where it is longer, fewer problems are shown."""

SENTENCE_LINES = 3
"""Number of lines that a sentence of the summary may take."""

RESULT_STYLES = {"pass": "green", "fail": "red", "cannot tell": "yellow"}


def render_scorecard_terminal(findings: Findings, *, width: int | None = None, color: bool = False) -> str:
    """Render the findings as text for a terminal of this width (by default the current one's).

    Texts of traces are printed as they are, save that control characters and escape sequences are left out.
    """
    width = width or shutil.get_terminal_size((100, 24)).columns
    return render_rich(_build_page(findings, width), width=width, color=color)


def render_summary_terminal(
    findings: Findings, place: str | None = None, *, width: int | None = None, color: bool = False
) -> str:
    """Render the verdict on a run in at most 40 lines of 80 columns.

    The layers, the targets, how far the judge can be trusted, the largest problems with an example and a fix each,
    and, where `place` names the run, the next commands.
    """
    width = width or shutil.get_terminal_size((100, 24)).columns
    clip = SENTENCE_LINES * min(width, 100) - 10
    first = [*_build_verdict(findings, clip), *_build_gaps(findings, clip)]
    last = [] if place is None else _build_next_commands(place, width)
    text = ""
    for count in range(PROBLEMS_SHOWN, 0, -1):
        parts = [*first, *_build_problems(findings, count, clip), *last]
        text = render_rich(parts, width=width, color=color)
        if text.count("\n") <= MAX_SUMMARY_LINES:
            break
    return text


def render_diagnoses_terminal(diagnoses: Iterable[Diagnosis], *, width: int | None = None, color: bool = False) -> str:
    """Render diagnoses in full: every problem of each trace with its reason, and what fixes it."""
    parts: list[RenderableType] = []
    for diagnosis in diagnoses:
        parts += _build_diagnosis(diagnosis)
    return render_rich(parts, width=width, color=color)


def _build_page(findings: Findings, width: int) -> list[RenderableType]:
    return [
        *_build_verdict(findings, None),
        *_build_layers(findings, width),
        *_build_corrections(findings),
        *_build_unmeasured(findings),
        *_build_tradeoffs(findings),
        *_build_rag_health(findings),
        *_build_quality(findings),
        *_build_segments(findings, width),
        *_build_worst_traces(findings.worst),
        *_build_remedies(findings),
    ]


def _build_verdict(findings: Findings, clip: int | None) -> list[RenderableType]:
    """Build the first lines: what was evaluated, a sentence for each layer, the targets, and trust in the judge."""
    manifest = findings.manifest
    total = manifest.scored + manifest.undefined + manifest.failed
    failed = f" · {manifest.failed:,} of {total:,} scores failed" if manifest.failed else ""
    skipped = f" · {manifest.skipped:,} bad lines left out" if manifest.skipped else ""
    judge = clean_text(manifest.judge) if clip is None else clip_text(manifest.judge.partition(" ")[0], 40)
    facts = f"   {describe_trace_count(manifest, findings.scorecard.aggregates)} · judge {judge}{failed}{skipped}"
    measured = filter(None, [describe_judge_trust(manifest.judge)])
    trust = [*describe_judge_usage(findings), *measured, *describe_gold_agreement(findings)]
    name = clean_text(findings.run) if clip is None else clip_text(findings.run, 60)
    warning = describe_warnings(findings)
    return [
        build_line((name, "bold"), facts),
        *([build_line((warning, "yellow"))] if warning else []),
        *(build_line(_clip_sentence(line, clip)) for line in (*describe_layers(findings), *describe_targets(findings))),
        *(indent_line(2, (_clip_sentence(line, clip), "dim")) for line in trust),
    ]


def _clip_sentence(text: str, clip: int | None) -> str:
    """Clip a sentence, behind one of its parts where it has several."""
    text = clean_text(text)
    if clip is None or len(text) <= clip:
        return text
    parts = text[:clip].rpartition("; ")[0]
    return f"{parts}; …" if parts else clip_text(text, clip)


def _build_gaps(findings: Findings, clip: int) -> list[RenderableType]:
    """Build a line each on scores lost to failures and on metrics that were not measured."""
    lines = []
    for reason, names in group_failures(findings.scorecard)[:1]:
        lines.append(f"Lost to failures: {_list_some(names)}: {reason}")
    groups = group_unmeasured_metrics(findings.scorecard)
    if groups:
        lines.append(f"Not measured: {'; '.join(f'{_list_some(names)} ({reason})' for reason, names in groups)}")
    return [build_line((_clip_sentence(line, clip), "dim")) for line in lines]


def _list_some(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMES
    return join_names(names[:MAX_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _build_problems(findings: Findings, count: int, clip: int) -> list[RenderableType]:
    """Build the largest problems: how many traces, an example, and the cheapest fix."""
    if not findings.remedies:
        return [build_line("\n" + describe_no_problem(findings))]
    parts: list[RenderableType] = [build_line(("\nLargest problems", "bold cyan"))]
    for remedy in findings.remedies[:count]:
        parts += [
            indent_line(2, (describe_problem(remedy), "bold")),
            indent_line(4, ("example: ", "dim"), clip_text(describe_example(remedy), clip - 30)),
            indent_line(4, ("fix: ", "green"), remedy.steps[0]),
        ]
    return parts


def _build_next_commands(place: str, width: int) -> list[RenderableType]:
    """Build the commands that show more of a run."""
    run = shlex.quote(clean_text(place))
    commands = {
        f"ragfault report {run}": "every metric, by layer and route",
        f"ragfault report {run} -o {shlex.quote(clean_text(place).rstrip('/') + '.html')}": "a page with every trace",
        f"ragfault diagnose {run}": "the worst traces, problem by problem",
    }
    widest = max(map(len, commands))
    return [
        build_line(("\nNext", "bold cyan")),
        *(
            indent_line(2, f"{command:<{widest}}   ", (words, "dim"))
            if widest + max(map(len, commands.values())) + 5 <= width
            else indent_line(2, command)
            for command, words in commands.items()
        ),
    ]


def _build_layers(findings: Findings, width: int) -> list[RenderableType]:
    health = {items.layer: items for items in findings.health}
    parts: list[RenderableType] = []
    for layer, items in group_by_layer(findings.scorecard):
        line: list[str | tuple[str, str]] = [("\n" + LAYER_TITLES[layer], "bold cyan")]
        layer_health = health.get(layer)  # type: ignore[call-overload]
        if layer_health is not None and layer_health.interval is not None:
            names = " + ".join(list_parts(layer_health, findings.scorecard.traces))
            line += [f"   health {format_interval(layer_health.interval)}", (f"   mean of {names}", "dim")]
        parts += [build_line(*line), _build_metric_table(items, width)]
        parts += [indent_line(2, (text, "dim")) for text in describe_quantiles(items)]
    return parts


def _build_metric_table(aggregates: Sequence[MetricAggregate], width: int) -> Table:
    """Build the metrics of a layer: mean, interval, counts, target."""
    counts = ("scored", "undefined", "failed") if width >= NARROW_COLUMNS else ("scored",)
    cells = min(INTERVAL_CELLS, width - FIGURE_COLUMNS)
    drawing_column = [""] if width >= WIDE_COLUMNS else []
    heads = ("metric", "mean", "95 % interval", *drawing_column, *counts, "target")
    table = build_table(heads, right=("mean", *counts), unbroken=UNBROKEN_COLUMNS)
    for item in aggregates:
        assert item.interval is not None
        numbers = (
            [f"{item.scored:,}", f"{item.undefined:,}", f"{item.failed:,}"]
            if width >= NARROW_COLUMNS
            else [f"{item.scored:,}" + ("" if item.scored == item.traces else f" of {item.traces:,}")]
        )
        table.add_row(
            build_line(format_metric(item)),
            format_number(item.interval.mean),
            format_bounds(item.interval, "{} – {}"),
            *([_draw_interval(item, cells)] if drawing_column else []),
            *numbers,
            _build_target(item),
        )
    return table


def _draw_interval(item: MetricAggregate, cells: int) -> Text:
    """Draw the interval drawn on the metric's range; nothing where that has no end."""
    if item.interval is None or item.low is None or item.high is None or has_too_few(item.interval):
        return build_line("")
    span = item.high - item.low
    low, mean, high = (
        min(cells - 1, max(0, int((end - item.low) / span * cells)))
        for end in (item.interval.low, item.interval.mean, item.interval.high)
    )
    signs = ["·"] * cells
    signs[low : high + 1] = "─" * (high + 1 - low)
    signs[mean] = "●"
    return build_line(("".join(signs), RESULT_STYLES.get(item.result or "", "")))


def _build_target(item: MetricAggregate) -> Text:
    if item.target is None or item.result is None:
        return build_line("")
    return build_line(
        f"{item.target.sign} {item.target.value:g} ", (TARGET_RESULTS[item.result], RESULT_STYLES[item.result])
    )


def _build_corrections(findings: Findings) -> list[RenderableType]:
    """Build the figures as judged and corrected for the judge's error, or corrected by labels, side by side."""
    title = get_correction_heading(findings.scorecard)
    if title is None:
        return []
    table = build_table(("metric", "as judged", title), unbroken=UNBROKEN_COLUMNS)
    for item, text in list_corrections(findings.scorecard):
        table.add_row(build_line(format_metric(item)), format_interval(item.interval), text)
    notes = [indent_line(2, (line, "dim")) for line in explain_corrections(findings.scorecard)]
    return [build_line((f"\n{title.capitalize()}", "bold cyan")), *([table] if table.rows else []), *notes]


def _build_unmeasured(findings: Findings) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for title, groups in (
        ("Lost to failures", group_failures(findings.scorecard)),
        ("Not measured", group_unmeasured_metrics(findings.scorecard)),
    ):
        if groups:
            parts.append(build_line((f"\n{title}", "bold cyan")))
            parts += [build_line(f"{join_names(names)}: ", (reason, "dim")) for reason, names in groups]
    return parts


def _build_tradeoffs(findings: Findings) -> list[RenderableType]:
    if not findings.pairs:
        return []
    table = build_table(("", "", ""))
    for pair in findings.pairs:
        sides = [
            f"{name} {format_interval(side.interval) if side and side.interval else 'not measured'}"
            for name, side in zip(pair.names, (pair.first, pair.second), strict=True)
        ]
        table.add_row(sides[0], "↔", sides[1])
    table.show_header = False
    return [build_line(("\nTrade-offs", "bold cyan"), ("   read together", "dim")), table]


def _build_rag_health(findings: Findings) -> list[RenderableType]:
    if not findings.rag.figures:
        return []
    figures = findings.rag.figures.items()
    rows = [(name, format_interval(interval), f"{interval.n:,} traces") for name, interval in figures]
    table = build_table(("", "", ""), rows)
    table.show_header = False
    styles = {"high": "red", "medium": "yellow"}
    alerts = [
        build_line((alert.name, styles[alert.severity]), f"   {describe_alert(alert)}") for alert in findings.rag.alerts
    ]
    return [build_line(("\nRAG health", "bold cyan")), table, *alerts]


def _build_quality(findings: Findings) -> list[RenderableType]:
    if not any(level.count for level in findings.quality):
        return []
    rows = [(level.name, f"{level.count:,}", format_share(level.share), level.action) for level in findings.quality]
    table = build_table(("level", "traces", "share", "action"), rows, right=("traces",))
    without = f"   {findings.unrated:,} without a triad" if findings.unrated else ""
    return [build_line(("\nQuality of the answers", "bold cyan"), ("   by triad", "dim"), without), table]


def _build_segments(findings: Findings, width: int) -> list[RenderableType]:
    """Build the scorecard by segment, for the metrics that have a target and those of the triad."""
    if not findings.segments:
        return []
    names = select_segment_metrics(findings.scorecard)
    by = clean_text(findings.segments[0].by or "")
    heads = (by, "metric", "mean", "scored", "target")
    shown = heads if width >= NARROW_COLUMNS else heads[:3]
    table = build_table(shown, right=("scored",), unbroken=UNBROKEN_COLUMNS)
    for card in findings.segments[:MAX_SEGMENTS]:
        first = build_line("(none)" if card.segment is None else clip_text(card.segment, 30))
        for item in card.aggregates:
            if item.metric in names:
                counts = f"{item.scored:,}/{item.traces:,}"
                cells = (
                    first,
                    build_line(clean_text(item.metric)),
                    format_interval(item.interval),
                    counts,
                    _build_target(item),
                )
                table.add_row(*cells[: len(table.columns)])
                first = build_line("")
    if not table.row_count:
        return []
    more = len(findings.segments) - MAX_SEGMENTS
    rest = [build_line((f"… and {more:,} more", "dim"))] if more > 0 else []
    return [build_line((f"\nBy {by}", "bold cyan")), table, *rest]


def _build_worst_traces(diagnoses: Sequence[Diagnosis]) -> list[RenderableType]:
    if not diagnoses:
        return []
    parts: list[RenderableType] = [build_line(("\nWorst traces", "bold cyan"))]
    for diagnosis in diagnoses:
        parts += _build_trace_title(diagnosis)
        for title, count, text in summarize_problems(diagnosis):
            times = f" ×{count}" if count > 1 else ""
            parts.append(indent_line(4, f"{title}{times}: ", (text, "dim")))
    return parts


def _build_trace_title(diagnosis: Diagnosis) -> list[RenderableType]:
    triad = "" if diagnosis.triad is None else f"   triad {format_number(diagnosis.triad)}, {diagnosis.quality}"
    title = indent_line(2, (clip_text(diagnosis.trace, 60), "bold"), triad, f"   {clip_text(diagnosis.query, 200)}")
    return [title, indent_line(4, diagnosis.assessment.sentence)] if diagnosis.assessment else [title]


def _build_diagnosis(diagnosis: Diagnosis) -> list[RenderableType]:
    parts: list[RenderableType] = _build_trace_title(diagnosis)
    if diagnosis.faulty_step is not None:
        parts.append(indent_line(4, ("first faulty step: ", "yellow"), describe_faulty_step(diagnosis.faulty_step)))
    if not diagnosis.problems:
        return [*parts, indent_line(4, f"no problem among {diagnosis.checked:,} things looked at")]
    counts = [(title, count) for title, count, _ in summarize_problems(diagnosis)]
    parts.append(indent_line(4, ("; ".join(f"{title} ×{count:,}" for title, count in counts), "yellow")))
    for kind in dict.fromkeys(problem.kind for problem in diagnosis.problems):
        problems = [problem for problem in diagnosis.problems if problem.kind == kind]
        steps = dict.fromkeys(step for problem in problems for step in problem.remedies)
        parts.append(indent_line(4, (get_problem_title(kind), "yellow")))
        parts.append(indent_line(6, ("how to fix it: ", "green"), "; ".join(steps)))
        for problem in problems:
            where = f"[{clip_text(problem.chunk, 60)}] " if problem.chunk is not None else ""
            reason = f"   {clean_text(problem.reason)}" if problem.reason else ""
            parts.append(indent_line(6, f"{where}{clip_text(problem.text, 600)}", (reason, "dim")))
    return [*parts, build_line()]


def _build_remedies(findings: Findings) -> list[RenderableType]:
    if not findings.remedies:
        return []
    parts: list[RenderableType] = [build_line(("\nWhat to change", "bold cyan"))]
    for remedy in findings.remedies:
        share = f"{remedy.problems:,} on {remedy.traces:,} traces, {describe_share(remedy)} of traces"
        parts += [
            indent_line(2, (remedy.title, "bold"), f"   {share}"),
            indent_line(4, "; ".join(remedy.steps)),
            indent_line(4, (f"such as {join_names(remedy.examples)}", "dim")),
        ]
    return parts
