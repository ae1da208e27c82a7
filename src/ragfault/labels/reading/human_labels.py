"""Human labels of the traces of a run: file format, reading, writing, and consensus of several annotators.

    {"trace": "q1", "by": "ann", "time": "2031-05-04T09:30:00Z", "answer": "a-5d2e0c6b1f43",
     "verdicts": {"claim": [{"start": 0, "end": 27, "support": "supported"}],
                  "chunk": [{"chunk": "a", "level": "high"}]}}

A label says as much as its author did: some claims, some chunks, the refusal alone. Several labels of one trace
by one author complete and correct each other, the later one wins; those of several authors are settled by majority.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct

from ragfault.io.atomic_files import write_atomically
from ragfault.io.field_values import make_content_id
from ragfault.labels.correction import VerdictKey, VerdictValue
from ragfault.labels.reading.answer_files import read_answers
from ragfault.model.errors import MAX_BAD_LINES_SHOWN, BadLine, InputError
from ragfault.model.grouping import group_by
from ragfault.model.records import (
    Aspect,
    CitationVerdict,
    ClaimSupport,
    FactVerdict,
    RecallVerdict,
    RelevanceLevel,
    Trace,
    UseVerdict,
)

ANSWER_INDEPENDENT = ("chunk", "missing", "recall")
"""Parts that are judged without the answer: their labels hold with any answer."""

Probability = Annotated[float, Meta(gt=0, le=1)]
UnitFloat = Annotated[float, Meta(ge=0, le=1)]


class LabelRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the label records: immutable, by keyword, defaults omitted."""


class ClaimLabel(LabelRecord, frozen=True):
    """Label of a claim of the answer."""

    start: int  # offset of the claim in the answer, as in the verdict of the run
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
    aspects: tuple[Aspect, ...] = ()  # reviewed aspects of the query, in the words of the run's verdict


class HumanVerdicts(LabelRecord, frozen=True):
    """Verdicts of one annotator on one trace; None: not reviewed, empty: reviewed, and there are no items."""

    claim: tuple[ClaimLabel, ...] | None = None
    chunk: tuple[ChunkLabel, ...] | None = None
    use: tuple[UseVerdict, ...] | None = None
    citation: tuple[CitationVerdict, ...] | None = None
    fact: tuple[FactVerdict, ...] | None = None
    recall: tuple[RecallVerdict, ...] | None = None
    answer: AnswerLabel | None = None
    missing: tuple[str, ...] | None = None
    """Information that the query needs and no chunk contains; empty: nothing is missing."""

    @property
    def reviewed_parts(self) -> frozenset[str]:
        """Return the parts that were reviewed."""
        return frozenset(name for name in self.__struct_fields__ if getattr(self, name) is not None)


class HumanLabel(LabelRecord, frozen=True):
    """Label of a trace by one annotator at one time."""

    trace: str  # trace id
    verdicts: HumanVerdicts
    by: str = ""  # annotator
    time: datetime | None = None
    answer: str | None = None
    """Fingerprint of the answer that was shown: for another one only labels of the retrieval hold."""
    chance: Probability | None = None  # probability of the trace to be sampled; None: uniform


class LabelConsensus(NamedTuple):
    """Consensus of the annotators of one trace."""

    values: Mapping[VerdictKey, VerdictValue]
    reviewed_parts: frozenset[str]  # parts that some annotator reviewed
    annotators: tuple[str, ...]  # annotators, in the order of their first label
    disputed: int  # items on which annotators differ, with or without a majority
    answer: str | None  # fingerprint of the answer they saw; None where it was not recorded
    chance: float | None  # probability of the trace to be sampled


def fingerprint_answer(trace: Trace) -> str:
    """Return the fingerprint of a trace's answer, which ties a label to it.

    >>> fingerprint_answer(Trace(id="1", query="When?", answer="In 1040."))
    'a-b7624af79cc7'
    """
    return make_content_id(trace.answer or "", "a-")


def group_labels(labels: Iterable[HumanLabel]) -> dict[str, list[HumanLabel]]:
    """Map each trace to its labels, in order."""
    return group_by(labels, lambda label: label.trace)


def rate_labelled_answer(labels: Iterable[HumanLabel], claims: int, answers: Collection[str | None]) -> bool | None:
    """Return whether labels call an answer of so many claims bad; None where they do not cover all of them.

    Labels of answers with one of these fingerprints count, and of several of one claim the last one.
    """
    valid = [label for label in labels if label.answer in answers]
    supports = {(claim.start, claim.end): claim.support for label in valid for claim in label.verdicts.claim or ()}
    if not supports or len(supports) < claims:
        return None
    return any(support in ("unsupported", "contradicted") for support in supports.values())


def read_labels(path: str | Path) -> list[HumanLabel]:
    """Read the labels of a file, in order (JSON Lines, plain or compressed).

    Raises InputError for lines that are no label (the first 20 and their number), for a missing file, and for
    a file without labels.
    """
    labels, bad_lines, _ = read_answers(path, HumanLabel)
    if bad_lines:
        raise InputError(format_bad_lines(bad_lines, len(labels), "labels"))
    if not labels:
        raise InputError(f"{path}: empty, there is no label in it. Make some with: ragfault label RUN")
    return labels


def format_bad_lines(bad_lines: Sequence[BadLine], good: int, noun: str) -> str:
    """Format the first bad lines of a file and the number of the others."""
    lines = [f"{len(bad_lines):,} of {good + len(bad_lines):,} {noun} cannot be read:"]
    lines += [f"  {bad_line}" for bad_line in bad_lines[:MAX_BAD_LINES_SHOWN]]
    if len(bad_lines) > MAX_BAD_LINES_SHOWN:
        lines.append(f"  … and {len(bad_lines) - MAX_BAD_LINES_SHOWN:,} more")
    return "\n".join(lines)


def write_labels(path: str | Path, labels: Iterable[HumanLabel]) -> None:
    """Replace the content of a file by labels, atomically."""
    path = Path(path)
    write_atomically(path, b"".join(msgspec.json.encode(label) + b"\n" for label in labels))


def list_values(verdicts: HumanVerdicts) -> dict[VerdictKey, VerdictValue]:
    """Map each item of a label to its value.

    >>> claim = ClaimLabel(start=0, end=9, support="supported")
    >>> list_values(HumanVerdicts(claim=(claim,), answer=AnswerLabel(refused=False)))
    {('claim', 0, 9): 'supported', ('answer', 'refused'): False}
    """
    return {key: value for key, value in _iterate_values(verdicts) if value is not None}


def _iterate_values(verdicts: HumanVerdicts) -> Iterator[tuple[VerdictKey, VerdictValue | None]]:
    for claim in verdicts.claim or ():
        yield ("claim", claim.start, claim.end), claim.support
    for chunk in verdicts.chunk or ():
        yield ("chunk", chunk.chunk, "level"), chunk.level
        yield ("chunk", chunk.chunk, "relevance"), chunk.relevance
    for use in verdicts.use or ():
        yield ("use", use.chunk), use.used
    for citation in verdicts.citation or ():
        yield ("citation", citation.chunk, citation.claim), citation.supports
    for fact in verdicts.fact or ():
        yield ("fact", fact.fact), "contradicted" if fact.contradicted else fact.present
    for recall in verdicts.recall or ():
        yield ("recall", recall.statement), recall.covered
    if verdicts.answer is not None:
        yield ("answer", "relevance"), verdicts.answer.relevance
        yield ("answer", "refused"), verdicts.answer.refused
        for aspect in verdicts.answer.aspects:
            yield ("aspect", aspect.text), aspect.answered
    yield ("missing",), verdicts.missing


def resolve_labels(labels: Iterable[HumanLabel]) -> dict[str, LabelConsensus]:
    """Resolve the labels of each trace: the last label of each annotator, then the majority of annotators.

    Numbers are averaged. An item without a majority has no value. Labels of another answer than that of the
    last label are dropped, except those of the retrieval.
    """
    return {trace: _resolve_trace(trace_labels) for trace, trace_labels in group_labels(labels).items()}


def _resolve_trace(labels: Sequence[HumanLabel]) -> LabelConsensus:
    answer = next((label.answer for label in reversed(labels) if label.answer is not None), None)
    votes_by_item: dict[VerdictKey, dict[str, VerdictValue]] = {}
    reviewed: set[str] = set()
    for label in labels:
        valid_parts = ANSWER_INDEPENDENT if label.answer not in (None, answer) else HumanVerdicts.__struct_fields__
        reviewed |= label.verdicts.reviewed_parts & set(valid_parts)
        for key, value in list_values(label.verdicts).items():
            if ("answer" if key[0] == "aspect" else key[0]) in valid_parts:
                votes_by_item.setdefault(key, {})[label.by] = value
    majorities = {key: _majority_value(list(votes.values())) for key, votes in votes_by_item.items()}
    return LabelConsensus(
        values={key: value for key, value in majorities.items() if value is not None},
        reviewed_parts=frozenset(reviewed),
        annotators=tuple(dict.fromkeys(label.by for label in labels)),
        disputed=sum(len(set(map(_normalize_value, votes.values()))) > 1 for votes in votes_by_item.values()),
        answer=answer,
        chance=next((label.chance for label in reversed(labels) if label.chance is not None), None),
    )


def _normalize_value(value: VerdictValue) -> Any:
    """Normalize a value for comparison: lists of missing information by whether they are empty."""
    return bool(value) if isinstance(value, tuple) else value


def _majority_value(values: Sequence[VerdictValue]) -> VerdictValue | None:
    """Return the most frequent value, the mean of numbers; None for a tie."""
    if all(isinstance(value, float) for value in values):
        return sum(map(float, values)) / len(values)  # type: ignore[arg-type]
    counted = Counter(map(_normalize_value, values)).most_common(2)
    if len(counted) > 1 and counted[0][1] == counted[1][1]:
        return None
    return next(value for value in values if _normalize_value(value) == counted[0][0])
