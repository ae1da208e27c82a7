"""Human labels of the traces of a run: file format, reading, writing, and consensus of several annotators.

    {"trace": "q1", "by": "ann", "time": "2031-05-04T09:30:00Z", "answer": "a-5d2e0c6b1f43",
     "verdicts": {"claim": [{"start": 0, "end": 27, "support": "supported"}],
                  "chunk": [{"chunk": "a", "level": "high"}]}}

A label says as much as its author did: some claims, some chunks, the refusal alone. Several labels of one trace
by one author complete and correct each other, the later one wins; those of several authors are settled by majority.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct

from ragfault.errors import MAX_FAULTS_SHOWN, InputError, InputFault
from ragfault.io.field_values import make_content_id
from ragfault.io.files import iterate_lines, open_bytes
from ragfault.io.runs.directory import convert_write_errors
from ragfault.records import (
    Aspect,
    CitationVerdict,
    ClaimSupport,
    FactVerdict,
    RecallVerdict,
    RelevanceLevel,
    Trace,
    UseVerdict,
)

VerdictKey = tuple[str | int, ...]
"""What a word is on: the part of the verdicts, and what names the item within it: `("claim", 0, 27)`."""

VerdictValue = str | float | bool | tuple[str, ...]
"""What somebody said of one item."""

ANSWER_INDEPENDENT = ("chunk", "missing", "recall")
"""The parts that are judged without sight of the answer: what is said of them holds with any answer."""

Probability = Annotated[float, Meta(gt=0, le=1)]
UnitFloat = Annotated[float, Meta(ge=0, le=1)]


class LabelRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The common shape of labels: immutable, by keyword, silent about defaults."""


class ClaimLabel(LabelRecord, frozen=True):
    """What somebody said of one claim of the answer."""

    start: int
    """Where the claim begins in the answer, in characters, as in the verdict of the run."""
    end: int
    support: ClaimSupport


class ChunkLabel(LabelRecord, frozen=True):
    """What somebody said of the relevance of a chunk: in words, in [0, 1], or both."""

    chunk: str
    level: RelevanceLevel | None = None
    relevance: UnitFloat | None = None

    def __post_init__(self) -> None:
        if self.level is None and self.relevance is None:
            raise ValueError("a label of a chunk has a level, a relevance, or both")


class AnswerLabel(LabelRecord, frozen=True):
    """What somebody said of the answer as a whole."""

    relevance: UnitFloat | None = None
    refused: bool | None = None
    aspects: tuple[Aspect, ...] = ()
    """The aspects of the query that were looked at, in the words of the run's verdict."""


class HumanVerdicts(LabelRecord, frozen=True):
    """The verdicts that one author gave on one trace.

    A part that was not looked at is absent; one that was, and in which there is nothing to judge (a trace without
    chunks), is empty.
    """

    claim: tuple[ClaimLabel, ...] | None = None
    chunk: tuple[ChunkLabel, ...] | None = None
    use: tuple[UseVerdict, ...] | None = None
    citation: tuple[CitationVerdict, ...] | None = None
    fact: tuple[FactVerdict, ...] | None = None
    recall: tuple[RecallVerdict, ...] | None = None
    answer: AnswerLabel | None = None
    missing: tuple[str, ...] | None = None
    """Information that the query needs and no chunk holds; empty: nothing is missing."""

    @property
    def reviewed_parts(self) -> frozenset[str]:
        """The parts that were looked at."""
        return frozenset(part for part in self.__struct_fields__ if getattr(self, part) is not None)


class HumanLabel(LabelRecord, frozen=True):
    """What one author said of one trace at one time."""

    trace: str
    """The id of the trace."""
    verdicts: HumanVerdicts
    by: str = ""
    """Who said it."""
    time: datetime | None = None
    answer: str | None = None
    """The fingerprint of the answer that was shown: with another one only the words on the retrieval hold."""
    chance: Probability | None = None
    """The chance with which the trace was drawn to be labelled; None: any was as likely as any other."""


class LabelConsensus(NamedTuple):
    """What the authors of the labels of one trace agree on."""

    values: Mapping[VerdictKey, VerdictValue]
    reviewed_parts: frozenset[str]
    """The parts that some author looked at."""
    annotators: tuple[str, ...]
    """The authors, in the order in which they first spoke."""
    disputed: int
    """Items on which the authors differ, whether or not a majority settles them."""
    answer: str | None
    """The fingerprint of the answer that they saw; None where it was not kept."""
    chance: float | None
    """The chance with which the trace was drawn."""


def fingerprint_answer(trace: Trace) -> str:
    """The fingerprint of a trace's answer, by which a label knows what it was about.

    >>> fingerprint_answer(Trace(id="1", query="When?", answer="In 1040."))
    'a-b7624af79cc7'
    """
    return make_content_id(trace.answer or "", "a-")


# --- on disk ---------------------------------------------------------------------------------------


def read_labels(path: str | Path) -> list[HumanLabel]:
    """The labels of a file, in order (JSON Lines, plain or compressed).

    Raises InputError with every line that is no label (the first 20 and their number), where the file is not
    there, and where it holds none.
    """
    found: list[HumanLabel] = []
    faults: list[InputFault] = []
    decoder = msgspec.json.Decoder(HumanLabel)
    stream = open_bytes(str(path))
    with stream.body as body:
        for number, line, _ in iterate_lines(body):
            if not line.strip():
                continue
            try:
                found.append(decoder.decode(line))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                faults.append(InputFault(str(path), number, str(error)))
    if stream.read_error:
        faults.append(InputFault(str(path), len(found) + len(faults) + 1, stream.read_error))
    if faults:
        raise InputError(_format_faults(faults, len(found)))
    if not found:
        raise InputError(f"{path}: empty, there is no label in it. Make some with: ragfault label RUN")
    return found


def _format_faults(faults: Sequence[InputFault], good: int) -> str:
    told = [f"{len(faults):,} of {good + len(faults):,} labels cannot be read:"]
    told += [f"  {fault}" for fault in faults[:MAX_FAULTS_SHOWN]]
    if len(faults) > MAX_FAULTS_SHOWN:
        told.append(f"  … and {len(faults) - MAX_FAULTS_SHOWN:,} more")
    return "\n".join(told)


def append_label(path: str | Path, label: HumanLabel) -> None:
    """Add one label to a file, which is on the disk when this returns; the file is made where there is none.

    A line that a killed process left half written is ended first, so that nothing is added to it.
    """
    path = Path(path)
    with convert_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            torn = file.tell() > 0 and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
            file.write(b"\n" * torn + msgspec.json.encode(label) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def write_labels(path: str | Path, labels: Iterable[HumanLabel]) -> None:
    """Write labels to a file that replaces what stood there, whole or not at all."""
    path = Path(path)
    draft = path.with_name(path.name + ".draft")
    with convert_write_errors(path):
        draft.write_bytes(b"".join(msgspec.json.encode(label) + b"\n" for label in labels))
        os.replace(draft, path)


# --- what they come to -----------------------------------------------------------------------------


def list_values(verdicts: HumanVerdicts) -> dict[VerdictKey, VerdictValue]:
    """Every word of a label by what it is on, so that labels can be laid over each other.

    >>> list_values(HumanVerdicts(claim=(ClaimLabel(start=0, end=9, support="supported"),), answer=AnswerLabel(refused=False)))
    {('claim', 0, 9): 'supported', ('answer', 'refused'): False}
    """
    return {key: word for key, word in _iterate_values(verdicts) if word is not None}


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
    """What was said of each trace: the last word of each author on each item, the majority of several authors.

    Numbers are averaged. Where no word has more voices than each other word, nothing is said of the item. Words
    on another answer than that of the last label are dropped, save those on the retrieval.

    >>> verdicts = [HumanVerdicts(answer=AnswerLabel(refused=refused)) for refused in (True, True, False)]
    >>> labels = [HumanLabel(trace="1", verdicts=answer, by=name) for answer, name in zip(verdicts, "abc")]
    >>> resolve_labels(labels)["1"].values, resolve_labels(labels)["1"].disputed, resolve_labels(labels[1:])["1"].values
    ({('answer', 'refused'): True}, 1, {})
    """
    by_trace: dict[str, list[HumanLabel]] = {}
    for label in labels:
        by_trace.setdefault(label.trace, []).append(label)
    return {trace: _resolve_trace(each) for trace, each in by_trace.items()}


def _resolve_trace(labels: Sequence[HumanLabel]) -> LabelConsensus:
    """The labels of one trace, settled."""
    answer = next((label.answer for label in reversed(labels) if label.answer is not None), None)
    voices: dict[VerdictKey, dict[str, VerdictValue]] = {}
    looked: set[str] = set()
    for label in labels:
        kept = ANSWER_INDEPENDENT if label.answer not in (None, answer) else HumanVerdicts.__struct_fields__
        looked |= label.verdicts.reviewed_parts & set(kept)
        for key, word in list_values(label.verdicts).items():
            if ("answer" if key[0] == "aspect" else key[0]) in kept:
                voices.setdefault(key, {})[label.by] = word
    found = {key: _majority_value(list(each.values())) for key, each in voices.items()}
    return LabelConsensus(
        values={key: word for key, word in found.items() if word is not None},
        reviewed_parts=frozenset(looked),
        annotators=tuple(dict.fromkeys(label.by for label in labels)),
        disputed=sum(len(set(map(_normalize_value, each.values()))) > 1 for each in voices.values()),
        answer=answer,
        chance=next((label.chance for label in reversed(labels) if label.chance is not None), None),
    )


def _normalize_value(value: VerdictValue) -> Any:
    """What makes two words the same: of lists of what is missing, whether anything is."""
    return bool(value) if isinstance(value, tuple) else value


def _majority_value(values: Sequence[VerdictValue]) -> VerdictValue | None:
    """The word with the most voices, the mean of numbers; None where two have as many."""
    if all(isinstance(word, float) for word in values):
        return sum(map(float, values)) / len(values)  # type: ignore[arg-type]
    counted = Counter(map(_normalize_value, values)).most_common(2)
    if len(counted) > 1 and counted[0][1] == counted[1][1]:
        return None
    return next(word for word in values if _normalize_value(word) == counted[0][0])
