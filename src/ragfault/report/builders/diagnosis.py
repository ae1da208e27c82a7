"""The report of diagnoses: every problem of each trace with its reason, and what fixes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragfault.diagnosis.causes.table import CAUSES
from ragfault.report.document import Block, Heading, Listing, ReportDocument, StyledText, Text
from ragfault.report.format import OUTCOME_SOURCES, get_problem_title
from ragfault.report.safe_text import clean_text, clip_text
from ragfault.report.wording import describe_faulty_step
from ragfault.text.number_format import format_count, format_number

if TYPE_CHECKING:
    from ragfault.diagnosis.causes.records import AnswerCause
    from ragfault.diagnosis.records import Diagnosis, TraceProblem


def build_diagnosis(diagnosis: Diagnosis) -> ReportDocument:
    """Build the report of one trace."""
    return build_diagnoses([diagnosis])


def build_diagnoses(diagnoses: Sequence[Diagnosis], worst_of: int | None = None) -> ReportDocument:
    """Build the report of several traces; `worst_of` is the number of traces that they are the worst of."""
    title = f"Problems of {format_count(len(diagnoses), 'trace')}"
    lead: list[Block] = []
    if worst_of is not None:
        traces = f"of {format_count(worst_of, 'trace')}"
        none = f"None {traces} with a problem that is not excused by the answer key."
        title = f"Worst {len(diagnoses):,} {traces}" if diagnoses else none
        lead = [Heading(title, 1)]
    return ReportDocument(title, tuple(lead), tuple(block for item in diagnoses for block in _build_trace(item)))


def name_trace(diagnosis: Diagnosis) -> Text:
    """Name a trace with its triad and its query."""
    triad = "" if diagnosis.triad is None else f", triad {format_number(diagnosis.triad)} ({diagnosis.quality})"
    name = StyledText(clip_text(diagnosis.trace, 60), "strong")
    return (name, f"{triad}: ", StyledText(clip_text(diagnosis.query, 200), "quote"))


def list_assessment(diagnosis: Diagnosis) -> list[Text]:
    """List why the answer is bad, with its evidence, else the sentence that says whether it is right.

    Diagnoses of an older version have none.
    """
    if diagnosis.cause is not None and diagnosis.cause.cause is not None:
        return _describe_cause(diagnosis.cause)
    return [diagnosis.assessment.sentence] if diagnosis.assessment else []


def _describe_cause(cause: AnswerCause) -> list[Text]:
    """Describe the cause of a bad answer: its words, what was seen and where, and what to change."""
    assert cause.cause is not None  # the answer is bad
    definition = CAUSES[cause.cause]
    place = [f"{kind} {clip_text(name, 60)}" for kind, name in (("chunk", cause.chunk), ("step", cause.step)) if name]
    seen = "; ".join(filter(None, [clean_text(cause.reason), *place]))
    bad = (StyledText(f"bad, {definition.stage}: {definition.title}", "strong"), f" ({seen})" if seen else "")
    by = f"; bad by {OUTCOME_SOURCES[cause.rating.source]}" if cause.rating.source in OUTCOME_SOURCES else ""
    quote = [(StyledText("evidence: ", "muted"), clip_text(cause.quote, 300))] if cause.quote else []
    return [bad, *quote, (StyledText("change first: ", "strong"), f"{definition.fix}{by}")]


def _build_trace(diagnosis: Diagnosis) -> list[Block]:
    items: list[Text | Listing] = [*list_assessment(diagnosis)]
    if diagnosis.faulty_step is not None:
        items.append((StyledText("first faulty step: ", "strong"), describe_faulty_step(diagnosis.faulty_step)))
    if not diagnosis.problems:
        items.append(f"no problem among {diagnosis.checked:,} things looked at")
    for kind in dict.fromkeys(problem.kind for problem in diagnosis.problems):
        problems = [problem for problem in diagnosis.problems if problem.kind == kind]
        items += [StyledText(f"{get_problem_title(kind)} ×{len(problems):,}", "strong"), _list_problems(problems)]
    return [Heading(name_trace(diagnosis)), Listing(tuple(items))]


def _list_problems(problems: Sequence[TraceProblem]) -> Listing:
    """List what fixes problems of one kind, then each with its chunk and its reason."""
    steps = dict.fromkeys(step for problem in problems for step in problem.remedies)
    items: list[Text] = [(StyledText("how to fix it: ", "strong"), "; ".join(steps))]
    for problem in problems:
        where = f"[{clip_text(problem.chunk, 60)}] " if problem.chunk is not None else ""
        reason = f" – {clean_text(problem.reason)}" if problem.reason else ""
        items.append((f"{where}{clip_text(problem.text, 600)}", StyledText(reason, "muted")))
    return Listing(tuple(items))
