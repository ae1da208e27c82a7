"""The head of every report of a run: how many answers are bad, why, what retrieval found, and what to fix first."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ragfault.diagnosis.causes.records import name_option
from ragfault.model.grouping import group_by
from ragfault.report.document import Block, Heading, Paragraph, StyledText, Table, TableColumn, Text
from ragfault.report.format import OUTCOME_SOURCES
from ragfault.report.run_verdict import describe_unrated
from ragfault.report.safe_text import clean_text, clip_text
from ragfault.text.number_format import format_count, format_number, format_share

if TYPE_CHECKING:
    from ragfault.diagnosis.causes.records import (
        AnswerCounts,
        CauseAgreement,
        CauseCount,
        CostCount,
        PassageSource,
        RetrievalSummary,
    )
    from ragfault.diagnosis.records import Findings, LayerHealth
    from ragfault.model.causes import CauseName

CAUSE_COLUMNS = (TableColumn("Answers", numeric=True), TableColumn("Cause"), TableColumn("Such as", room=60))
CAUSES_SHOWN = 9
"""Rows of causes on the first screen; the rest share a row."""
EXAMPLES_SHOWN = 2
"""Traces named next to a cause."""
PASSAGE_SOURCES: Mapping[PassageSource, str] = {
    "gold": "your gold", "references": "your references", "judge": "the judge",
}  # fmt: skip


def build_head(findings: Findings, place: str | None = None, *, shown: int = CAUSES_SHOWN) -> list[Block]:
    """Build the head: answers, causes whose counts sum to the bad answers, retrieval, and the first fix.

    With `place`, where the run lies, the command that shows the traces of that fix stands beside it. Of a run without
    an answer that was rated, the head says what was measured instead.
    """
    answers = findings.answers
    blocks: list[Block] = []
    if answers is None or not answers.sources.keys() - {"pipeline"}:
        blocks += map(Paragraph, describe_unrated(findings))
    else:
        blocks.append(Paragraph(describe_answers(answers)))
    if answers is not None and answers.bad:
        title = f"Why the {answers.bad:,} are bad" if answers.bad > 1 else "Why it is bad"
        blocks += [Heading(title), Table(CAUSE_COLUMNS, _list_rows(answers, shown))]
    if findings.retrieval is not None:
        blocks.append(Paragraph((StyledText("Retrieval", "strong"), f" {describe_retrieval(findings.retrieval)}")))
    if answers is not None and answers.costs:
        blocks.append(Paragraph((StyledText("Costs", "strong"), f" {describe_costs(answers)}")))
    if answers is not None and answers.fixes:
        blocks.append(Paragraph(_describe_fix(answers, place)))
    return blocks


def describe_answers(answers: AnswerCounts) -> str:
    """Describe how many answers are right, bad and unsure, and by what evidence.

    `104 answers: 49 right, 51 bad (51 % [41 %, 61 %]), 4 unsure; by your answer key on 102, the judge on 2`.
    """
    rated = " of those rated" if answers.unsure else ""
    share = f" ({format_share(answers.share)}{rated})" if answers.share and answers.bad else ""
    refusing = f" ({format_count(answers.refusals, 'refusal')} that no key settles)" if answers.refusals else ""
    unsure = f", {answers.unsure:,} unsure{refusing}" if answers.unsure else ""
    sources = [
        f"{OUTCOME_SOURCES[name]}{f' on {count:,}' if len(answers.sources) > 1 else ''}"
        for name, count in answers.sources.items()
    ]
    counts = f"{answers.right:,} right, {answers.bad:,} bad{share}{unsure}"
    return f"{format_count(answers.total, 'answer')}: {counts}; by {', '.join(sources)}."


def describe_cause_agreement(agreement: CauseAgreement | None) -> list[str]:
    """Describe how far ragfault agrees with people on causes, by stage and by cause; nothing without labels.

    `Causes against your labels of 40 answers: right or bad alike on 90 % [77 %, 96 %]; of the 31 bad ones the same
    stage on 84 % [67 %, 93 %] (retrieval 14 of 15, …), the same cause on 74 % [57 %, 86 %] (refused 10 of 12, …)`.
    """
    if agreement is None:
        return []
    alike = f"right or bad alike on {format_share(agreement.outcome)}"
    text = f"Causes against your labels of {format_count(agreement.answers, 'answer')}: {alike}"
    if agreement.stage is None or agreement.cause is None:
        return [f"{text}."]
    stages: dict[str, tuple[int, int]] = {
        name: (sum(count.same_stage for count in own), sum(count.answers for count in own))
        for name, own in group_by(agreement.causes, lambda count: count.stage).items()
    }
    causes = {name_option(count.cause): (count.same_cause, count.answers) for count in agreement.causes}
    shares = f"the same stage on {format_share(agreement.stage)} ({_list_parts(stages)}), "
    shares += f"the same cause on {format_share(agreement.cause)} ({_list_parts(causes)})"
    return [f"{text}; of the {agreement.stage.n:,} bad ones {shares}."]


def _list_parts(parts: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"{name} {same:,} of {total:,}" for name, (same, total) in parts.items())


def describe_costs(answers: AnswerCounts) -> str:
    """Describe what is wrong beside right answers.

    `of the 49 right answers 6 also say what no passage says (tickets-2, …) and 3 cite wrongly (staff-1, …)`.
    """
    counts = [f"{cost.answers:,} {cost.title} ({_name_examples(cost)})" for cost in answers.costs]
    return f"of the {answers.right:,} right answers {' and '.join(counts)}."


def describe_retrieval(retrieval: RetrievalSummary) -> str:
    """Describe what was found and where, and how many chunks are useful.

    `found 62 % [52 %, 71 %] of the passages (your gold), the first at rank 1.4; 2.1 of 10 chunks useful`.
    """
    share, by = format_share(retrieval.recall), PASSAGE_SOURCES[retrieval.source]
    texts = {
        "gold": f"found {share} of the passages",
        "references": f"found {share} of what the references state",
        "judge": f"found what was asked for {share} of {format_count(retrieval.recall.n, 'trace')}",
    }
    rank = "" if retrieval.rank is None else f", the first at rank {_format_amount(retrieval.rank)}"
    useful = ""
    if retrieval.useful is not None and retrieval.chunks is not None:
        useful = f"; {_format_amount(retrieval.useful)} of {_format_amount(retrieval.chunks)} chunks useful"
    return f"{texts[retrieval.source]} ({by}){rank}{useful}."


def _format_amount(value: float) -> str:
    """Format a mean number of things: `2.1`, or `5` where it is the same for all."""
    return format_number(value, 1).removesuffix(".0")


def describe_health(health: LayerHealth) -> str:
    """Describe what the health of a layer is a share of."""
    if health.layer == "generation":
        return "right answers among those that retrieval did not spoil"
    return f"what the queries ask for that the shown chunks hold, by {PASSAGE_SOURCES[health.source]}"  # type: ignore[index]


def _list_rows(answers: AnswerCounts, shown: int) -> tuple[tuple[Text, ...], ...]:
    """List the causes; those beyond `shown` share a row, so that the counts sum to the bad answers."""
    causes = answers.causes
    rest = causes[shown:] if len(causes) > shown + 1 else ()
    rows = [_build_row(cause) for cause in causes[: len(causes) - len(rest)]]
    if rest:
        rows.append((f"{sum(cause.answers for cause in rest):,}", f"{len(rest):,} other causes", ""))
    return tuple(rows)


def _build_row(cause: CauseCount) -> tuple[Text, ...]:
    return (f"{cause.answers:,}", cause.title, StyledText(_name_examples(cause), "muted"))


def _name_examples(count: CauseCount | CostCount) -> str:
    names = ", ".join(clip_text(name, 24) for name in count.examples[:EXAMPLES_SHOWN])
    return names + (", …" if count.answers > EXAMPLES_SHOWN else "")


def _describe_fix(answers: AnswerCounts, place: str | None) -> Text:
    fix = answers.fixes[0]
    text = f" {fix.fix} ({fix.answers:,} of the {answers.bad:,})."
    if place is None:
        return (StyledText("Fix first:", "strong"), text)
    return (StyledText("Fix first:", "strong"), f"{text} ", StyledText(_build_command(place, fix.causes), "code"))


def _build_command(place: str, causes: Sequence[CauseName]) -> str:
    options = " ".join(f"--cause {name_option(cause)}" for cause in causes)
    return f"ragfault diagnose {shlex.quote(clean_text(place))} {options}"
