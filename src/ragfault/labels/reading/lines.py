"""Lines of the label files that ragfault writes: verdicts on a trace, and reviews of items, each to and from labels.

    {"trace": "q1", "by": "ann", "time": "2031-05-04T09:30:00Z", "answer": "a-5d2e0c6b1f43",
     "verdicts": {"claim": [{"start": 0, "end": 27, "support": "supported"}],
                  "chunk": [{"chunk": "a", "level": "high"}]}}

A line says as much as its author did: some claims, some chunks, only the refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Annotated, Any, Literal, cast

from msgspec import Meta, Struct

from ragfault.labels.label import Label, Subject, SubjectValue
from ragfault.model.causes import CauseLabel
from ragfault.model.records import (
    Aspect,
    CitationVerdict,
    ClaimSupport,
    FactVerdict,
    RecallVerdict,
    RelevanceLevel,
    Trace,
    UseVerdict,
    Verdicts,
)

Probability = Annotated[float, Meta(gt=0, le=1)]
UnitFloat = Annotated[float, Meta(ge=0, le=1)]
Decision = Literal["accepted", "rejected"]


class LabelRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the records of a line: immutable, by keyword, defaults omitted."""


class ClaimLabel(LabelRecord, frozen=True):
    """Label of a claim of the answer."""

    # offset of the claim in the answer, as in the verdict of the run
    start: int
    end: int
    support: ClaimSupport


class ChunkLabel(LabelRecord, frozen=True):
    """Label of the relevance of a chunk: a level, a number in [0, 1], or both."""

    chunk: str
    level: RelevanceLevel | None = None
    relevance: UnitFloat | None = None

    def __post_init__(self) -> None:
        if self.level is None and self.relevance is None:
            raise ValueError("a label of a chunk has a level, a relevance, or both")


class AnswerLabel(LabelRecord, frozen=True):
    """Label of the answer as a whole."""

    relevance: UnitFloat | None = None
    refused: bool | None = None
    # reviewed aspects of the query, in the words of the run's verdict
    aspects: tuple[Aspect, ...] = ()


class HumanVerdicts(LabelRecord, frozen=True):
    """Verdicts of one annotator on one trace; None: not reviewed, empty: reviewed, and there are no items."""

    claim: tuple[ClaimLabel, ...] | None = None
    chunk: tuple[ChunkLabel, ...] | None = None
    use: tuple[UseVerdict, ...] | None = None
    citation: tuple[CitationVerdict, ...] | None = None
    fact: tuple[FactVerdict, ...] | None = None
    recall: tuple[RecallVerdict, ...] | None = None
    answer: AnswerLabel | None = None
    cause: CauseLabel | None = None
    """Why the answer is bad, or that it is right."""
    missing: tuple[str, ...] | None = None
    """Information that the query needs and no chunk contains; empty: nothing is missing."""


class LabelLine(LabelRecord, frozen=True):
    """Verdicts of one annotator on one trace at one time: a line of a file, and a label of the server."""

    # trace id
    trace: str
    verdicts: HumanVerdicts
    # annotator
    by: str = ""
    time: datetime | None = None
    answer: str | None = None
    """Fingerprint of the answer that was shown: for another one only labels of the retrieval hold."""
    # probability of the trace to be sampled; None: uniform
    chance: Probability | None = None
    # remark of the annotator
    note: str = ""


class ReviewLine(LabelRecord, frozen=True):
    """Decision of a person on an item of an evaluation set, with the item as the person left it."""

    item: str
    by: str
    time: datetime
    decision: Decision
    shown: str
    """Fingerprint of the item that was shown: a review of another version of the item does not count."""
    edited: Trace | None = None
    """The item after the edit; None where nothing was changed."""
    # remark of the reviewer
    note: str = ""


def list_label_line(line: LabelLine) -> list[Label]:
    """List the labels of a line of verdicts.

    >>> claim = ClaimLabel(start=0, end=9, support="supported")
    >>> verdicts = HumanVerdicts(claim=(claim,), chunk=(), answer=AnswerLabel(refused=False))
    >>> [(label.subject, label.value) for label in list_label_line(LabelLine(trace="1", verdicts=verdicts))]
    [(('claim', 0, 9), 'supported'), (('chunk',), ()), (('answer', 'refused'), False)]
    """
    return [
        Label(
            trace=line.trace,
            subject=subject,
            value=value,
            annotator=line.by,
            time=line.time,
            note=line.note,
            shown=line.answer,
            chance=line.chance,
        )
        for subject, value in iterate_values(line.verdicts)
        if value is not None
    ]


def iterate_values(verdicts: HumanVerdicts | Verdicts) -> Iterator[tuple[Subject, SubjectValue | None]]:
    """Yield subject and value of each verdict, of a person or a judge; None for a value that is not given."""
    for part in ("claim", "chunk", "use", "citation", "fact", "recall"):
        items = getattr(verdicts, part)
        if items == ():
            yield (part,), ()
        for item in items or ():
            yield from _iterate_item(part, item)
    if verdicts.answer is not None:
        # An answer of which nothing is said was looked at all the same.
        if verdicts.answer == AnswerLabel():
            yield ("answer",), ()
        yield ("answer", "relevance"), verdicts.answer.relevance
        yield ("answer", "refused"), verdicts.answer.refused
        for aspect in verdicts.answer.aspects:
            yield ("aspect", aspect.text), aspect.answered
    if isinstance(verdicts, HumanVerdicts):
        yield ("cause",), verdicts.cause
    yield ("missing",), verdicts.missing


def _iterate_item(part: str, item: Any) -> Iterator[tuple[Subject, SubjectValue | None]]:
    if part == "claim":
        yield ("claim", item.start, item.end), item.support
    elif part == "chunk":
        yield ("chunk", item.chunk, "level"), item.level
        yield ("chunk", item.chunk, "relevance"), item.relevance
    elif part == "use":
        yield ("use", item.chunk), item.used
    elif part == "citation":
        yield ("citation", item.chunk, item.claim), item.supports
    elif part == "fact":
        yield ("fact", item.fact), "contradicted" if item.contradicted else item.present
    else:
        yield ("recall", item.statement), item.covered


def build_label_line(label: Label) -> LabelLine:
    """Build the line of a label of verdicts.

    >>> label = Label(trace="1", subject=("fact", "It is old."), value="contradicted")
    >>> list_label_line(build_label_line(label)) == [label]
    True
    """
    return LabelLine(
        trace=label.trace,
        verdicts=_build_verdicts(label),
        by=label.annotator,
        time=label.time,
        answer=label.shown,
        chance=label.chance,
        note=label.note,
    )


def _build_verdicts(label: Label) -> HumanVerdicts:
    kind, *names = label.subject
    if label.is_empty_review:
        empty: dict[str, Any] = {str(kind): AnswerLabel() if kind == "answer" else ()}
        return HumanVerdicts(**empty)
    return VERDICT_BUILDERS[str(kind)](*names, label.value)


VERDICT_BUILDERS: dict[str, Callable[..., HumanVerdicts]] = {
    "claim": lambda start, end, value: HumanVerdicts(claim=(ClaimLabel(start=start, end=end, support=value),)),
    "chunk": lambda chunk, name, value: HumanVerdicts(chunk=(ChunkLabel(chunk=chunk, **{name: value}),)),
    "use": lambda chunk, value: HumanVerdicts(use=(UseVerdict(chunk=chunk, used=value),)),
    "citation": lambda chunk, claim, value: HumanVerdicts(
        citation=(CitationVerdict(chunk=chunk, claim=claim, supports=value),)
    ),
    "fact": lambda fact, value: HumanVerdicts(
        fact=(FactVerdict(fact=fact, present=value is True, contradicted=value == "contradicted"),)
    ),
    "recall": lambda statement, value: HumanVerdicts(recall=(RecallVerdict(statement=statement, covered=value),)),
    "aspect": lambda text, value: HumanVerdicts(answer=AnswerLabel(aspects=(Aspect(text=text, answered=value),))),
    "answer": lambda name, value: HumanVerdicts(answer=AnswerLabel(**{name: value})),
    "cause": lambda value: HumanVerdicts(cause=value),
    "missing": lambda value: HumanVerdicts(missing=value),
}
"""Kind of subject → builder of its verdict, from the further parts of the subject and the value."""


def list_review_line(line: ReviewLine) -> list[Label]:
    """List the label of a line of reviews."""
    label = Label(
        trace=line.item,
        subject=("item",),
        value=line.decision,
        annotator=line.by,
        time=line.time,
        note=line.note,
        shown=line.shown,
        edited=line.edited,
    )
    return [label]


def build_review_line(label: Label) -> ReviewLine:
    """Build the line of a review."""
    return ReviewLine(
        item=label.trace,
        by=label.annotator,
        time=cast(datetime, label.time),
        decision=cast(Decision, label.value),
        shown=label.shown or "",
        edited=label.edited,
        note=label.note,
    )
