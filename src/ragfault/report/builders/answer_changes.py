"""What happened to the answers between two runs: in a sentence, and as a table of causes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ragfault.report.builders.causes import EXAMPLES_SHOWN
from ragfault.report.comparison_wording import format_change
from ragfault.report.document import (
    Block,
    Paragraph,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    Text,
    VerdictMark,
    join_text,
)
from ragfault.report.safe_text import clip_text
from ragfault.report.wording import name_metric
from ragfault.text.number_format import MISSING, format_count, format_signed, has_too_few

if TYPE_CHECKING:
    from ragfault.comparison.records import AnswerChanges, CauseChange, ExampleTrace, LayerFault
    from ragfault.stats.estimates import Difference

CAUSE_CHANGE_COLUMNS = (
    TableColumn("Became bad", numeric=True),
    TableColumn("Bad, before → after"),
    TableColumn("Cause"),
    TableColumn("Such as", room=90),
)
SCREEN_LINES = 12
"""Lines of the first screen of a comparison or a bisection."""
CAUSES_SHOWN = 5
"""Causes that have a row of their own where there is room."""
LEAST_CAUSES_SHOWN = 1
EXAMPLE_LENGTH = 48
"""Characters of a query or a chunk of the example on the first screen."""


def build_first_screens(build: Callable[[int], ReportDocument]) -> Iterator[ReportDocument]:
    """Build first screens: the lead of the report that `build` makes for so many causes, with fewer each time."""
    hint = Paragraph((StyledText("--full", "code"), " shows every metric, the tests and more examples."), "note")
    for causes in range(CAUSES_SHOWN, LEAST_CAUSES_SHOWN - 1, -1):
        yield replace(build(causes), body=(hint,))


def mark_answers(answers: AnswerChanges | None) -> VerdictMark | None:
    """Return the verdict on the answers as a whole: worse or better if their share of bad ones is shown to differ."""
    if answers is None or has_too_few(answers.difference) or not answers.became_bad + answers.became_right:
        return None
    if answers.difference.low > 0:
        return VerdictMark("worse")
    return VerdictMark("better") if answers.difference.high < 0 else None


def describe_answer_changes(answers: AnswerChanges) -> str:
    """Describe how many answers became bad or right.

    `50 of 104 answers became bad, 3 right; bad 10 → 57 (+45 points [+34, +56])`.
    """
    before, after = answers.bad
    right = f", {answers.became_right:,} right" if answers.became_right else ""
    counts = f"{answers.became_bad:,} of {format_count(answers.pairs, 'answer')} became bad{right}"
    return f"{counts}; bad {before:,} → {after:,} ({_format_points(answers.difference)})"


def list_answer_notes(answers: AnswerChanges) -> list[str]:
    """List what limits these counts: answers that are the same in both runs, and answers that could not be rated."""
    notes = []
    if answers.unchanged:
        was = "was" if answers.unchanged == 1 else "were"
        notes.append(
            f"{answers.unchanged:,} of the {answers.became_bad:,} {was} answered word for word as before: "
            "there the chunks differ, or only the verdict does"
        )
    if answers.unsure:
        notes.append(f"{format_count(answers.unsure, 'pair')} left out: the answer is unsure on a side")
    return notes


def build_cause_changes(answers: AnswerChanges | None, shown: int = CAUSES_SHOWN) -> list[Block]:
    """Build the table of causes for which answers became bad; those beyond `shown` share a row. Nothing without any."""
    if answers is None or not answers.became_bad:
        return []
    causes = [cause for cause in answers.causes if cause.became_bad]
    rest = causes[shown:] if len(causes) > shown + 1 else []
    rows: list[tuple[Text, ...]] = [_build_row(cause) for cause in causes[: len(causes) - len(rest)]]
    if rest:
        became, before, after = (
            sum(cause.became_bad for cause in rest),
            sum(cause.bad[0] for cause in rest),
            sum(cause.bad[1] for cause in rest),
        )
        rows.append((f"{became:,}", f"{before:,} → {after:,}", f"{len(rest):,} other causes", ""))
    return [Table(CAUSE_CHANGE_COLUMNS, tuple(rows))]


def _build_row(cause: CauseChange) -> tuple[Text, ...]:
    names = ", ".join(clip_text(name, 24) for name in cause.examples[:EXAMPLES_SHOWN])
    more = ", …" if cause.became_bad > EXAMPLES_SHOWN else ""
    counts = f"{cause.became_bad:,}", f"{cause.bad[0]:,} → {cause.bad[1]:,}"
    return (*counts, cause.title, StyledText(f"{names}{more}", "muted"))


def _format_points(difference: Difference) -> str:
    """Format a difference of shares in points: `+45 points [+34, +56]`."""

    def write(value: float) -> str:
        return format_signed(100 * value, 0) or MISSING

    ends = "" if has_too_few(difference) else f" [{write(difference.low)}, {write(difference.high)}]"
    return f"{write(difference.mean)} points{ends}"


def summarize_harm(faults: Sequence[LayerFault], answers: AnswerChanges | None) -> str | None:
    """Summarize which layers broke and what became of the answers; None if no answer became bad by the first."""
    if answers is None or not faults or not faults[0].became_bad:
        return None
    layers = list(dict.fromkeys(fault.layer for fault in faults))
    named = " and ".join(filter(None, [", ".join(layers[:-1]), layers[-1]]))
    return f"{named.capitalize()} broke; {describe_answer_changes(answers)}."


def describe_harm(fault: LayerFault) -> Text:
    """Describe a fault: what shows it, by how much, and how many answers became bad there."""
    evidence = fault.evidence[0]
    lead = f"{fault.title[0].upper()}{fault.title[1:]}"
    became = format_count(fault.became_bad, "answer")
    harm = f", and {became} became bad there." if fault.became_bad else "; no answer is shown to have become bad there."
    step = f" {fault.step_evidence[0].upper()}{fault.step_evidence[1:]}." if fault.step_evidence else ""
    return join_text(StyledText(lead, "strong"), ": ", name_metric(evidence), f" {format_change(evidence)}{harm}{step}")


def describe_origin(fault: LayerFault) -> Text | None:
    """Describe the likely stage of a fault and the difference between the runs that speaks for it; None without."""
    if not fault.suspects:
        return None
    first = fault.suspects[0]
    pointing = [clue for clue in fault.differences if first.stage in clue.suspects]
    # The difference that points at the fewest stages says most.
    clue = min(pointing, key=lambda item: len(item.suspects), default=None)
    return (StyledText(f"Likely the {first.stage}", "strong"), f": {first.evidence if clue is None else clue.text}.")


def describe_example(faults: Iterable[LayerFault], answers: AnswerChanges | None) -> Text | None:
    """Describe one trace that shows the first fault, if possible one whose answer became bad; None without any."""
    harmed = {name for cause in answers.causes for name in cause.examples} if answers else set()
    examples = [example for fault in faults for example in fault.examples]
    example = next((item for item in examples if item.trace in harmed), next(iter(examples), None))
    return None if example is None else _describe_trace(example)


def _describe_trace(example: ExampleTrace) -> Text:
    texts = [f"“{clip_text(example.query, EXAMPLE_LENGTH)}”"]
    sides = (("before", example.before), ("after", example.after))
    texts += [f"{word}: “{clip_text(text, EXAMPLE_LENGTH)}”" for word, text in sides if text]
    return (StyledText(f"Such as {clip_text(example.trace, 40)}", "strong"), f": {'; '.join(texts)}")
