"""History of a sequence of runs: terminal, Markdown and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragfault.comparison.run_history import MetricHistory, RunBreak, RunHistory, RunStep
from ragfault.report.format import LAYER_TITLES, clean_text, clip_text
from ragfault.report.markdown import syntax as md
from ragfault.report.terminal.layout import build_line, build_table, indent_line, render_rich
from ragfault.report.wording import VERDICT_COLORS, VERDICT_GLYPHS, format_metric
from ragfault.text.number_format import format_number, format_p_value

if TYPE_CHECKING:
    from rich.console import RenderableType

MEANS_SHOWN = 8
"""Number of means of a metric in a line; of more, the first and the last ones are shown."""

HISTORY_STYLES = {"fault": "red", "recovered": "green", "no fault": "green", "cannot tell": "yellow"}
HISTORY_SIGNS = {"fault": "❌", "recovered": "✅", "no fault": "✅", "cannot tell": "❔"}
METRIC_VERDICTS = {"worse": "worse", "better": "better", "recovered": "steady", "cannot tell": "cannot tell"}
"""The verdict on a metric's history → that of a change, whose sign and colour it takes."""


def summarize_history(history: RunHistory) -> str:
    """Summarize what broke in the sequence, where, and whether it recovered, in a sentence."""
    names = f"{len(history.runs)} runs, {clip_text(history.runs[0], 60)} to {clip_text(history.runs[-1], 60)}"
    over = f"over {history.traces:,} traces that are in all of {names}"
    overall = history.overall
    if history.breaks:
        sentence = "; ".join(describe_break(part, history) for part in history.breaks)
        sentence = f"{sentence[0].upper()}{sentence[1:]}"
        overall_note = f" The last run is worse than the first: {clean_text(overall.sentence)}"
        lasting = any(part.recovered_at is None for part in history.breaks)
        return f"{sentence}; {over}.{overall_note if overall.verdict == 'fault' and not lasting else ''}"
    if overall.verdict == "fault":
        return (
            f"No single run is shown to have broken, but {clip_text(overall.candidate, 60)} is worse than "
            f"{clip_text(overall.baseline, 60)}: {clean_text(overall.sentence)}"
        )
    if history.verdict == "no fault":
        return f"No run broke: every step, and the last run against the first, is shown to have no fault, {over}."
    return f"No metric of the tree is shown to have broken {over}."


def explain_unplaced(history: RunHistory) -> list[str]:
    """Explain, in sentences, why metrics with a small p cannot be told; none where there is no such metric."""
    level = history.alpha / 2
    unplaced: list[MetricHistory] = []
    above: list[MetricHistory] = []
    for entry in history.metrics:
        if entry.verdict == "cannot tell" and entry.adjusted <= history.alpha:
            (unplaced if entry.adjusted <= level else above).append(entry)
    changed = sum(entry.adjusted <= level for entry in history.metrics)
    reasons = (
        (
            unplaced,
            f"p says that something changed over the runs, but no run is shown at which it did: each place is tested "
            f"at {format_number(level)} divided by the {changed} metrics that changed",
        ),
        (above, f"p is corrected for all metrics, and the levels have half of alpha, {format_number(level)}"),
    )
    return [
        f"Cannot tell although p is small: {reason}: "
        + ", ".join(f"{clean_text(entry.metric)} (p {format_p_value(entry.adjusted)})" for entry in entries)
        for entries, reason in reasons
        if entries
    ]


def describe_break(part: RunBreak, history: RunHistory) -> str:
    """Describe one break: the run, the layer, the metrics, and the run at which they were back."""
    names = f"{', '.join(map(clean_text, part.metrics[:4]))}{', …' if len(part.metrics) > 4 else ''}"
    if part.gradual:
        span = f"{clip_text(history.runs[0], 60)} to {clip_text(history.runs[-1], 60)}"
        return f"worse little by little from {span}, no single run explains it: {names}"
    layer = f" ({part.layer}: {clean_text(part.title or '')})" if part.layer else ""
    back = ", not shown to have recovered" if part.recovered_at is None else ""
    if part.recovered_at is not None:
        back = f", recovered at {clip_text(part.recovered_at, 60)}"
    return f"worse at {clip_text(part.run, 60)}{layer}{back}: {names}"


def format_means(entry: MetricHistory) -> str:
    """Format the means, run by run."""
    texts = [format_number(mean) for mean in entry.means]
    if len(texts) > MEANS_SHOWN:
        texts[MEANS_SHOWN // 2 : -MEANS_SHOWN // 2] = ["…"]
    return " ".join(texts)


def format_shifts(entry: MetricHistory) -> str:
    """Format where a metric changed, and between which runs that may have been."""
    if entry.gradual:
        return "little by little"
    texts = []
    for shift in entry.shifts:
        first, last = (clip_text(name, 60) for name in shift.between)
        spread = f" ({first} to {last})" if first != last else ""
        worse = shift in entry.worsenings
        texts.append(f"{'worse' if worse else 'better'} at {clip_text(shift.run, 60)}{spread}")
    return ", ".join(texts)


def format_step(step: RunStep) -> str:
    """Format the two runs of a step."""
    return f"{clip_text(step.baseline, 60)} → {clip_text(step.candidate, 60)}"


def render_history_terminal(history: RunHistory, *, width: int | None = None, color: bool = False) -> str:
    """Render the verdict, each step, and each metric with its means and changes, as text for a terminal."""
    verdict = history.verdict
    parts: list[RenderableType] = [
        build_line(
            (f"{verdict.upper()}: ", f"bold {HISTORY_STYLES[verdict]}"),
            (summarize_history(history), f"bold {HISTORY_STYLES[verdict]}"),
        )
    ]
    parts += [build_line(("warning: ", "yellow"), clean_text(text)) for text in history.warnings]
    parts.append(
        build_line(("\nThe steps", "bold cyan"), ("   each bisected, and the last run against the first", "dim"))
    )
    for step in (*history.steps, history.overall):
        style = HISTORY_STYLES[step.verdict]
        parts.append(
            indent_line(
                2, (f"{step.verdict:<12}", style), (format_step(step), "bold"), f"   {clean_text(step.sentence)}"
            )
        )
    for layer, title in LAYER_TITLES.items():
        mine = [entry for entry in history.metrics if entry.layer == layer]
        table = build_table(("metric", "means, run by run", "", "where", "p"))
        for entry in mine:
            word = METRIC_VERDICTS[entry.verdict]
            table.add_row(
                build_line(format_metric(entry)),
                build_line(format_means(entry)),
                build_line((f"{VERDICT_GLYPHS[word]} {entry.verdict}", VERDICT_COLORS[word])),
                build_line(format_shifts(entry)),
                build_line(format_p_value(entry.adjusted)),
            )
        if mine:
            parts += [build_line((f"\n{title}", "bold cyan")), table]
    parts += [indent_line(0, ("\n" + text, "dim")) for text in explain_unplaced(history)]
    if history.broken_at is not None:
        index = history.runs.index(history.broken_at)
        names = f"{clip_text(history.runs[index - 1], 60)} and {clip_text(history.broken_at, 60)}"
        parts.append(indent_line(0, f"\nThe whole tree, with example traces: bisect {names}."))
    return render_rich(parts, width=width, color=color)


def render_history_markdown(history: RunHistory) -> str:
    """Render the same as GitHub-flavoured Markdown; the first line is the verdict."""
    steps = [
        (
            f"{HISTORY_SIGNS[step.verdict]} {step.verdict}",
            md.escape_markdown(format_step(step)),
            md.escape_markdown(step.sentence),
        )
        for step in (*history.steps, history.overall)
    ]
    rows = [
        (
            md.format_metric(entry),
            format_means(entry),
            entry.verdict,
            md.escape_markdown(format_shifts(entry)),
            format_p_value(entry.adjusted).replace("<", "&lt;"),
        )
        for entry in history.metrics
    ]
    lines = [
        f"### {HISTORY_SIGNS[history.verdict]} {history.verdict}: {md.escape_markdown(summarize_history(history))}",
        "",
        *(f"> ⚠️ {md.escape_markdown(text)}\n" for text in history.warnings),
        *md.build_markdown_table(("Verdict", "Step", "In a sentence"), steps),
        "",
        *md.build_markdown_table(("Metric", "Means", "", "Where", "p:"), rows),
        *(f"\n{md.escape_markdown(text)}" for text in explain_unplaced(history)),
    ]
    return "\n".join(lines) + "\n"
