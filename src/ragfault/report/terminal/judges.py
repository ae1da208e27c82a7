"""Judges in the terminal: cards, comparison, flakiness, rubrics and preferences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragfault.judges.cards.card import CardEntry, JudgeCard
from ragfault.labels.judges.comparison import JudgeComparison, JudgeDisagreement
from ragfault.labels.judges.flakiness import JudgeFlakiness
from ragfault.labels.preferences import PreferenceReport
from ragfault.labels.rubrics.proofs import RubricMeasurement, RubricProof
from ragfault.model.grouping import group_by
from ragfault.report.format import clean_text, clip_text
from ragfault.report.markdown.syntax import build_markdown_table, escape_markdown
from ragfault.report.terminal.agreement import format_speed
from ragfault.report.terminal.layout import build_table, render_rich
from ragfault.text.number_format import MISSING, format_count, format_interval, format_number, format_percent

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.padding import Padding


CARD_HEADINGS = (
    "set", "what was judged", "level", "n:", "bad:", "AUROC", "within", "AUROC of lexical", "AUROC of trivial", "F1",
    "recall at precision 0.80:", "order of generators", "F1 at 5 / 10 / 20 / 40 % bad", "sensitivity", "specificity",
    "balanced accuracy", "calibration error:", "bias of groundedness",
)  # fmt: skip
"""The columns of the figures; a ":" stands for alignment to the right."""

BASE_RATES = (0.05, 0.1, 0.2, 0.4)
"""Shares of bad units for which F1 is predicted."""

FITTED_MARK = " ¹"
"""Stands beside the sets that the judge was fitted on, in part."""


def render_card_markdown(card: JudgeCard) -> str:
    """Render the card as a Markdown page."""
    lines = [f"# The judge {escape_markdown(card.judge)}", "", escape_markdown(card.summary), ""]
    lines += [f"- **{name}:** {escape_markdown(text)}" for name, text in _list_facts(card)]
    lines += ["", "## Measured against human labels", "", *build_figure_lines(card), "", "## Known weaknesses", ""]
    lines += [f"- {escape_markdown(text)}" for text in card.weaknesses]
    return "\n".join(lines) + "\n"


def build_figure_lines(card: JudgeCard) -> list[str]:
    """Build the figures of a card as the lines of a Markdown table, with notes and commands below."""
    rows = [
        [escape_markdown(entry.set) + (FITTED_MARK if entry.trained_on else ""), *_build_row(entry)[1:]]
        for entry in card.measured
    ]
    heads = [head[0].upper() + head[1:] for head in CARD_HEADINGS]
    notes = [line for entry in _list_notes(card) for line in (escape_markdown(entry), "")]
    return [*build_markdown_table(heads, rows), "", *notes][:-1]


def render_card_terminal(card: JudgeCard, *, width: int | None = None, color: bool = False) -> str:
    """Render the card as text for a terminal of this width (by default the current one's)."""
    from rich.padding import Padding
    from rich.text import Text

    parts: list[Text | Padding] = [Text.assemble((clean_text(card.judge), "bold"), f"   {clean_text(card.summary)}")]
    parts.append(Text("\nMeasured against human labels", "bold cyan"))
    parts += [piece for entry in card.measured for piece in _build_measurement(entry)]
    parts += [Padding(Text(line, "dim"), (0, 0, 0, 2)) for line in _list_notes(card)]
    parts.append(Text("\nKnown weaknesses", "bold cyan"))
    parts += [Padding(Text(f"- {clean_text(text)}"), (0, 0, 0, 2)) for text in card.weaknesses]
    parts.append(Text("\nWhat it is", "bold cyan"))
    for name, text in _list_facts(card):
        parts.append(Padding(Text.assemble((f"{name}: ", "dim"), clean_text(text)), (0, 0, 0, 2)))
    return render_rich(parts, width=width, color=color)


def _build_measurement(entry: CardEntry) -> tuple[Padding, Padding]:
    """Build an entry as a heading and a line of figures."""
    from rich.padding import Padding
    from rich.text import Text

    cells = dict(zip((head.removesuffix(":") for head in CARD_HEADINGS), _build_row(entry), strict=True))
    figures = ", ".join(f"{name} {cell}" for name, cell in list(cells.items())[3:] if cell not in ("", "–"))
    title = Text.assemble((clean_text(cells["set"]), "bold"), f"   {cells['what was judged']}, by {cells['level']}")
    return Padding(title, (0, 0, 0, 2)), Padding(Text(clean_text(figures)), (0, 0, 0, 4))


def _list_facts(card: JudgeCard) -> list[tuple[str, str]]:
    return [
        ("fingerprint", card.fingerprint),
        ("reads", card.reads),
        ("made from", "; ".join(card.training) or "nothing"),
        ("licence", card.licence),
        ("size", card.size),
        ("speed", card.speed),
    ]


def _build_row(entry: CardEntry) -> tuple[str, ...]:
    """Build the cells of an entry, in the order of CARD_HEADINGS."""
    return (
        entry.set + (FITTED_MARK if entry.trained_on else ""),
        entry.shape,
        entry.level,
        f"{entry.n:,}",
        format_percent(entry.share_bad),
        format_interval(entry.auroc),
        format_interval(entry.auroc_within),
        format_number(entry.auroc_lexical),
        format_number(entry.auroc_trivial),
        format_interval(entry.f1),
        format_number(entry.recall_at_precision.value if entry.recall_at_precision else None),
        format_interval(entry.kendall_tau, signed=True),
        " / ".join(format_number(entry.predict_f1(rate)) for rate in BASE_RATES) if entry.sensitivity else MISSING,
        format_interval(entry.sensitivity),
        format_interval(entry.specificity),
        format_interval(entry.balanced_accuracy),
        format_number(entry.calibration_error.value if entry.calibration_error else None),
        format_interval(entry.groundedness_bias, signed=True) if entry.level == "claim" else MISSING,
    )


def _list_notes(card: JudgeCard) -> list[str]:
    """List what must be known to read the figures, and the commands that measure them anew."""
    notes = [
        "Positive is what is bad. AUROC: 0.5 is guessing; within: inside groups that give nothing away by style. "
        "Lexical is the judge of words alone, trivial the share of the words that no chunk has, on the same units. "
        "F1 is at the threshold that is best on the other folds; the order of generators is Kendall's τ between people "
        "and the judge. Sensitivity, specificity and their mean, "
        "the balanced accuracy, are by the judge's own word. From sensitivity and specificity follows F1 where 5, 10, "
        "20 or 40 % are bad. Bias is the judge's mean groundedness less that of people. Intervals are 95 %, by sources "
        "or queries."
    ]
    if any(entry.trained_on for entry in card.measured):
        notes.append("¹ The judge was fitted on other sources of the same set: elsewhere expect less.")
    for name, entries in group_by(card.measured, lambda entry: entry.set).items():
        corrected = [
            f"By {entry.level} it corrects the rates of {entry.corrects} verdicts."
            for entry in entries
            if entry.corrects
        ]
        notes.append(" ".join(part for part in (f"{name}: {entries[0].split}.", entries[0].note, *corrected) if part))
    return [*notes, *(f"Measured by: {command}" for command in dict.fromkeys(entry.command for entry in card.measured))]


VERDICT_HEADINGS = ("verdicts on", "n", "only by the first, only by the second", "alike", "kappa", "alpha")
METRIC_HEADINGS = ("metric", "layer", "n", "first", "second", "second less first", "correlation")
FLAKINESS_HEADINGS = ("metric", "n", "within a trace", "traces that move", "reliability", "drift of the mean")
MAX_DIFFERENCES_SHOWN = 10
"""Number of items shown on which the judges differ."""

VERDICT_TITLES = {
    "chunk": "relevance of chunks", "use": "use of chunks", "claim": "support of claims", "citation": "citations",
    "fact": "expected facts", "recall": "what the chunks cover", "refusal": "refusals",
}  # fmt: skip


def render_judges_terminal(comparison: JudgeComparison, *, width: int | None = None, color: bool = False) -> str:
    """Render both judges, how far they agree, what metrics come to, and where they differ most."""
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = [Text(summarize_judges(comparison), style="bold")]
    parts += [Text("\nVerdicts", style="bold cyan"), build_table(VERDICT_HEADINGS, build_verdict_rows(comparison))]
    parts += [Text("\nMetrics", style="bold cyan"), build_table(METRIC_HEADINGS, build_metric_rows(comparison))]
    if comparison.disagreements:
        parts.append(
            Text(
                f"\nLargest disagreements, of {format_count(comparison.disagreement_count, 'item')}", style="bold cyan"
            )
        )
    for split in comparison.disagreements[:MAX_DIFFERENCES_SHOWN]:
        parts.append(Text.assemble((clip_text(split.trace, 40), "bold"), f"  {format_verdict_pair(split)}"))
        parts.append(Padding(Text(clip_text(split.item, 200)), (0, 0, 0, 2)))
        parts += [Padding(Text(line, style="dim"), (0, 0, 0, 2)) for line in format_reasons(split)]
    notes = ("", "kappa is linear and alpha ordinal for levels of relevance; 95 % intervals over traces")
    parts += [Text(line, style="dim") for line in (*notes, *describe_judges(comparison))]
    return render_rich(parts, width=width, color=color)


def render_flakiness_terminal(flakiness: JudgeFlakiness, *, width: int | None = None, color: bool = False) -> str:
    """Render how far a judge differs from itself, metric by metric."""
    from rich.text import Text

    name = clean_text(flakiness.judge).split(" ")[0]
    summary = f"{name}, {flakiness.repeats} times over {format_count(flakiness.traces, 'trace')}"
    parts: list[RenderableType] = [
        Text(summary, style="bold"),
        Text(f"judge {clean_text(flakiness.judge)}", style="dim"),
    ]
    if flakiness.deterministic:
        parts.append(Text("Its verdicts were identical each time: no interval needs widening."))
    else:
        rows = [
            [
                metric.metric,
                f"{metric.n:,}",
                f"{metric.deviation:.3f}",
                format_percent(metric.flips),
                "–" if metric.reliability is None else f"{metric.reliability:.2f}",
                f"{metric.drift:.3f}",
            ]
            for metric in flakiness.metrics
        ]
        parts += [Text(""), build_table(FLAKINESS_HEADINGS, rows)]
    return render_rich(parts, width=width, color=color)


def summarize_judges(comparison: JudgeComparison) -> str:
    """Summarize which judges were compared, on how many traces, and on what share of verdicts they agree."""
    names = [clean_text(name).split(" ")[0] for name in comparison.judges]
    shares = [
        f"{VERDICT_TITLES[agreement.kind]} {format_interval(agreement.accuracy, 2)}"
        for agreement in comparison.kinds
        if agreement.accuracy is not None
    ]
    alike = f"; alike: {', '.join(shares)}" if shares else ""
    sample = f" in a random sample of a run of {comparison.population:,}" if comparison.population else ""
    return f"{names[0]} beside {names[1]}: {format_count(comparison.traces, 'trace')}{sample}{alike}"


def describe_judges(comparison: JudgeComparison) -> list[str]:
    """Describe who the judges are, what they cost, and what they lost."""
    lines = []
    for position, judge, speed, lost in zip(
        ("first", "second"), comparison.judges, comparison.speeds, comparison.failed, strict=True
    ):
        cost = f"; {format_speed(speed)}" if speed is not None else ""
        failed = f"; failed in part on {format_count(lost, 'trace')}" if lost else ""
        lines.append(f"{position}: {clean_text(judge)}{cost}{failed}")
    return lines


def build_verdict_rows(comparison: JudgeComparison) -> list[list[str]]:
    """Build a row of each kind of verdict."""
    return [
        [
            VERDICT_TITLES[agreement.kind],
            f"{agreement.n:,}",
            f"{agreement.unmatched[0]:,}, {agreement.unmatched[1]:,}",
            format_interval(agreement.accuracy, 2),
            format_interval(agreement.kappa, 2),
            format_interval(agreement.alpha, 2),
        ]
        for agreement in comparison.kinds
    ]


def build_metric_rows(comparison: JudgeComparison) -> list[list[str]]:
    """Build a row of each metric."""
    rows = []
    for metric in comparison.metrics:
        means = [f"{mean.mean:.3f}" for mean in metric.means]
        together = format_interval(metric.correlation, 2)
        rows.append(
            [metric.metric, metric.layer, f"{metric.n:,}", *means, format_interval(metric.difference, 3), together]
        )
    return rows


def format_verdict_pair(split: JudgeDisagreement) -> str:
    """Format what each says of an item."""
    words = [{True: "yes", False: "no"}[word] if isinstance(word, bool) else str(word) for word in split.values]
    return f"{VERDICT_TITLES[split.kind]}: {words[0]}, {words[1]}"


def format_reasons(split: JudgeDisagreement) -> list[str]:
    """Format the reasons that the judges give."""
    pairs = zip(("first", "second"), split.reasons, strict=True)
    return [f"{position}: {clip_text(reason, 300)}" for position, reason in pairs if reason]


def render_rubrics_terminal(measurement: RubricMeasurement, *, width: int | None = None, color: bool = False) -> str:
    """Render how far the rubrics of a judge agree with people and with themselves."""
    from rich.text import Text

    usable, total = len(measurement.usable), len(measurement.proofs)
    parts: list[RenderableType] = [
        Text(f"{usable} of {format_count(total, 'rubric')} may decide a gate", style="bold"),
        Text(f"judge {clean_text(measurement.judge)}", style="dim"),
        Text(""),
        build_table(
            ("rubric", "labels:", "agree", "kappa", "repeated:", "alike:"),
            [_format_row(proof) for proof in measurement.proofs],
        ),
    ]
    for proof in measurement.proofs:
        parts += [Text(f"{proof.rubric}: {problem}") for problem in proof.shortcomings]
    return render_rich(parts, width=width, color=color)


def _format_row(proof: RubricProof) -> list[str]:
    consistency = MISSING if proof.consistency is None else format_percent(proof.consistency)
    return [
        proof.rubric,
        f"{proof.labelled:,}",
        format_interval(proof.agreement, 2),
        format_interval(proof.kappa, 2),
        f"{proof.repeated:,}",
        consistency,
    ]


def render_preferences_terminal(report: PreferenceReport, *, color: bool = False) -> str:
    """Render which version people prefer, and how strongly."""
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(clean_text(report.sentence), style="bold"),
        Text(""),
        build_table(
            ("version", "compared:", "wins:", "strength", "chance against the mean"),
            [
                [
                    clean_text(item.version),
                    f"{item.compared:,}",
                    f"{item.wins:g}",
                    format_interval(item.strength, 2),
                    format_interval(item.win_rate, 2),
                ]
                for item in report.versions
            ],
        ),
    ]
    parts += [Text(clean_text(note)) for note in report.notes]
    return render_rich(parts, color=color)
