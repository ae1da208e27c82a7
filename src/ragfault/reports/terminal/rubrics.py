"""Rubrics and preferences in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragfault.analysis.rubric_proofs import RubricMeasurement, RubricProof
from ragfault.evaluation.agreement.preferences import PreferenceReport
from ragfault.reports.format import clean_text
from ragfault.reports.terminal.scorecard import build_text_table, render_rich
from ragfault.text.number_format import MISSING, format_count, format_interval

if TYPE_CHECKING:
    from rich.console import RenderableType


def render_rubrics_terminal(measurement: RubricMeasurement, *, width: int | None = None, color: bool = False) -> str:
    """Render how far the rubrics of a judge agree with people and with themselves."""
    from rich.text import Text

    usable, total = len(measurement.usable), len(measurement.proofs)
    parts: list[RenderableType] = [
        Text(f"{usable} of {format_count(total, 'rubric')} may decide a gate", style="bold"),
        Text(f"judge {clean_text(measurement.judge)}", style="dim"),
        Text(""),
        build_text_table(
            ("rubric", "labels:", "agree", "kappa", "repeated:", "alike:"),
            [_format_row(proof) for proof in measurement.proofs],
        ),
    ]
    for proof in measurement.proofs:
        parts += [Text(f"{proof.rubric}: {problem}") for problem in proof.shortcomings]
    return render_rich(parts, width=width, color=color)


def _format_row(proof: RubricProof) -> list[str]:
    consistency = MISSING if proof.consistency is None else f"{100 * proof.consistency:.0f} %"
    return [
        proof.rubric, f"{proof.labelled:,}", format_interval(proof.agreement, 2), format_interval(proof.kappa, 2),
        f"{proof.repeated:,}", consistency,
    ]  # fmt: skip


def render_preferences_terminal(report: PreferenceReport, *, width: int | None = None, color: bool = False) -> str:
    """Render which version people prefer, and how strongly."""
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(clean_text(report.sentence), style="bold"),
        Text(""),
        build_text_table(
            ("version", "compared:", "wins:", "strength", "chance against the mean"),
            [
                [
                    clean_text(item.version), f"{item.compared:,}", f"{item.wins:g}", format_interval(item.strength, 2),
                    format_interval(item.win_rate, 2),
                ]
                for item in report.versions
            ],
        ),
    ]  # fmt: skip
    parts += [Text(clean_text(note)) for note in report.notes]
    return render_rich(parts, width=width, color=color)
