"""The report of a search for the sentence of a rubric that people and a judge read in two ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ragfault.report.document import (
    Heading,
    Listing,
    Paragraph,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    Text,
    VerdictMark,
    build_section,
)
from ragfault.report.safe_text import clean_text, clip_text
from ragfault.text.number_format import format_count, format_interval, format_number, format_percent

if TYPE_CHECKING:
    from ragfault.labels.rubrics.sentences import RubricSentence
    from ragfault.labels.rubrics.trials import Clarification, SentenceTrial

TRIAL_COLUMNS = (
    TableColumn("Sentence", room=60),
    TableColumn("Tried"),
    TableColumn("Agrees", numeric=True),
    TableColumn("Settled", numeric=True),
    TableColumn("Broken", numeric=True),
    TableColumn("Verdicts as before", numeric=True),
)
SHOWN_CHARACTERS = 400
"""Most characters of a sentence that are shown."""


def build_clarification(search: Clarification) -> ReportDocument:
    """Build the report: whether a sentence is unclear, its readings, the proof on held-out labels, and all trials."""
    mark = VerdictMark("kept", "good") if search.clarified is not None else VerdictMark("not kept", "unsure")
    title = f"{clean_text(search.rubric)}: {_summarize(search)}"
    terms = (
        "Agrees: the share of the labels that is learnt from. Settled: disputed answers on which the judge agrees now. "
        "Broken: answers on which it agreed before. A sentence that is left out is tried without the model's opinion."
    )
    rows = tuple(_build_trial(trial, search.sentences[trial.sentence]) for trial in search.trials)
    findings = [Paragraph(text) for text in _list_findings(search)]
    listed: list[Text | Listing] = list(_list_readings(search))
    body = build_section("Readings", Listing(tuple(listed)))
    if rows:
        body += build_section("Trials", Table(TRIAL_COLUMNS, rows), Paragraph(terms, "note"))
    body.append(Paragraph(f"judge {clean_text(search.judge)}", "note"))
    return ReportDocument(title, (Heading(title, 1, mark if search.proof else None), *findings), tuple(body))


def _summarize(search: Clarification) -> str:
    if search.proof is None:
        return "no sentence is found unclear"
    return "one sentence is read in two ways" if search.clarified else "no sentence is shown to be unclear"


def _list_findings(search: Clarification) -> Iterator[str]:
    differ = f"People and the judge disagree on {search.disputed:,} of {format_count(search.labelled, 'answer')}"
    if not search.shown:
        yield f"{differ}, on {search.examined} in the half that is learnt from: too few to find an unclear sentence."
        return
    higher, lower = search.examined - search.stricter, search.stricter
    yield (
        f"{differ}. In the half that is learnt from there are {search.examined} of these: people give the lower value "
        f"to {lower} and the higher one to {higher}."
    )
    if search.best is None:
        yield "No sentence, left out or rewritten, makes the judge agree better with people: nothing is unclear."
        return
    named = search.named[search.best.sentence]
    alike = f"the model says that {named} of {search.shown} depend on it; " if named else ""
    yield (
        f"Sentence: {alike}{search.best.wording}, it settles {search.best.settled} of {search.examined} "
        f"({format_percent(search.best.settled / search.examined)}) and breaks {search.best.broken}."
    )
    if search.proof is not None:
        proof = search.proof
        gain = format_interval(proof.difference, 2, signed=True)
        yield (
            f"On {proof.n} held-out labels the agreement is {format_number(proof.after, 2)} instead of "
            f"{format_number(proof.before, 2)}: {gain} (McNemar p = {proof.p:.2g}; {proof.improved} better, "
            f"{proof.worsened} worse)."
        )


def _list_readings(search: Clarification) -> Iterator[Text]:
    """List the sentence of the best trial and its wordings."""
    if search.best is None:
        return
    yield _quote("the sentence", search.sentences[search.best.sentence].text)
    for trial in search.trials:
        if trial.sentence == search.best.sentence and trial.text:
            yield _quote(trial.wording, trial.text)


def _quote(name: str, text: str) -> Text:
    return (StyledText(f"{name}: ", "strong"), StyledText(clip_text(text, SHOWN_CHARACTERS), "quote"))


def _build_trial(trial: SentenceTrial, sentence: RubricSentence) -> tuple[Text, ...]:
    level = "" if sentence.value is None else f"level {sentence.value:g}: "
    return (
        clip_text(f"{level}{sentence.text}", SHOWN_CHARACTERS),
        trial.wording,
        format_number(trial.agreement, 2),
        f"{trial.settled:,}",
        f"{trial.broken:,}",
        format_percent(trial.unchanged),
    )
