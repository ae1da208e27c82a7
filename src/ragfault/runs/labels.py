"""What people said of the traces of a run: one label a line, each with the verdicts that its author gave.

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

from ragfault.errors import SHOWN, Fault, InputError
from ragfault.records import (
    Aspect,
    CitationVerdict,
    FactVerdict,
    Level,
    RecallVerdict,
    Support,
    Trace,
    UseVerdict,
)
from ragfault.runs.places import writing
from ragfault.sources.files import lines, open_bytes
from ragfault.sources.values import content_id

__all__ = [
    "BLIND",
    "AnswerLabel",
    "ChunkLabel",
    "ClaimLabel",
    "Key",
    "Label",
    "Labels",
    "Settled",
    "Word",
    "append_label",
    "fingerprint",
    "read_labels",
    "settled",
    "words",
    "write_labels",
]

Key = tuple[str | int, ...]
"""What a word is on: the part of the verdicts, and what names the item within it: `("claim", 0, 27)`."""

Word = str | float | bool | tuple[str, ...]
"""What somebody said of one item."""

BLIND = ("chunk", "missing", "recall")
"""The parts that are judged without sight of the answer: what is said of them holds with any answer."""

Chance = Annotated[float, Meta(gt=0, le=1)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The common shape of labels: immutable, by keyword, silent about defaults."""


class ClaimLabel(Record, frozen=True):
    """What somebody said of one claim of the answer."""

    start: int
    """Where the claim begins in the answer, in characters, as in the verdict of the run."""
    end: int
    support: Support


class ChunkLabel(Record, frozen=True):
    """What somebody said of the relevance of a chunk: in words, in [0, 1], or both."""

    chunk: str
    level: Level | None = None
    relevance: Share | None = None

    def __post_init__(self) -> None:
        if self.level is None and self.relevance is None:
            raise ValueError("a label of a chunk has a level, a relevance, or both")


class AnswerLabel(Record, frozen=True):
    """What somebody said of the answer as a whole."""

    relevance: Share | None = None
    refused: bool | None = None
    aspects: tuple[Aspect, ...] = ()
    """The aspects of the query that were looked at, in the words of the run's verdict."""


class Labels(Record, frozen=True):
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
    def looked(self) -> frozenset[str]:
        """The parts that were looked at."""
        return frozenset(part for part in self.__struct_fields__ if getattr(self, part) is not None)


class Label(Record, frozen=True):
    """What one author said of one trace at one time."""

    trace: str
    """The id of the trace."""
    verdicts: Labels
    by: str = ""
    """Who said it."""
    time: datetime | None = None
    answer: str | None = None
    """The fingerprint of the answer that was shown: with another one only the words on the retrieval hold."""
    chance: Chance | None = None
    """The chance with which the trace was drawn to be labelled; None: any was as likely as any other."""


class Settled(NamedTuple):
    """What the authors of the labels of one trace agree on."""

    words: Mapping[Key, Word]
    looked: frozenset[str]
    """The parts that some author looked at."""
    by: tuple[str, ...]
    """The authors, in the order in which they first spoke."""
    disputed: int
    """Items on which the authors differ, whether or not a majority settles them."""
    answer: str | None
    """The fingerprint of the answer that they saw; None where it was not kept."""
    chance: float | None
    """The chance with which the trace was drawn."""


def fingerprint(trace: Trace) -> str:
    """The fingerprint of a trace's answer, by which a label knows what it was about.

    >>> fingerprint(Trace(id="1", query="When?", answer="In 1040."))
    'a-b7624af79cc7'
    """
    return content_id(trace.answer or "", "a-")


# --- on disk ---------------------------------------------------------------------------------------


def read_labels(path: str | Path) -> list[Label]:
    """The labels of a file, in order (JSON Lines, plain or compressed).

    Raises InputError with every line that is no label (the first 20 and their number), where the file is not
    there, and where it holds none.
    """
    found: list[Label] = []
    faults: list[Fault] = []
    decoder = msgspec.json.Decoder(Label)
    stream = open_bytes(str(path))
    with stream.body as body:
        for number, line, _ in lines(body):
            if not line.strip():
                continue
            try:
                found.append(decoder.decode(line))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                faults.append(Fault(str(path), number, str(error)))
    if stream.broken:
        faults.append(Fault(str(path), len(found) + len(faults) + 1, stream.broken))
    if faults:
        raise InputError(_told(faults, len(found)))
    if not found:
        raise InputError(f"{path}: empty, there is no label in it. Make some with: ragfault label RUN")
    return found


def _told(faults: Sequence[Fault], good: int) -> str:
    told = [f"{len(faults):,} of {good + len(faults):,} labels cannot be read:"]
    told += [f"  {fault}" for fault in faults[:SHOWN]]
    if len(faults) > SHOWN:
        told.append(f"  … and {len(faults) - SHOWN:,} more")
    return "\n".join(told)


def append_label(path: str | Path, label: Label) -> None:
    """Add one label to a file, which is on the disk when this returns; the file is made where there is none.

    A line that a killed process left half written is ended first, so that nothing is added to it.
    """
    path = Path(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            torn = file.tell() > 0 and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
            file.write(b"\n" * torn + msgspec.json.encode(label) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def write_labels(path: str | Path, labels: Iterable[Label]) -> None:
    """Write labels to a file that replaces what stood there, whole or not at all."""
    path = Path(path)
    draft = path.with_name(path.name + ".draft")
    with writing(path):
        draft.write_bytes(b"".join(msgspec.json.encode(label) + b"\n" for label in labels))
        os.replace(draft, path)


# --- what they come to -----------------------------------------------------------------------------


def words(said: Labels) -> dict[Key, Word]:
    """Every word of a label by what it is on, so that labels can be laid over each other.

    >>> words(Labels(claim=(ClaimLabel(start=0, end=9, support="supported"),), answer=AnswerLabel(refused=False)))
    {('claim', 0, 9): 'supported', ('answer', 'refused'): False}
    """
    return {key: word for key, word in _words(said) if word is not None}


def _words(said: Labels) -> Iterator[tuple[Key, Word | None]]:
    for claim in said.claim or ():
        yield ("claim", claim.start, claim.end), claim.support
    for chunk in said.chunk or ():
        yield ("chunk", chunk.chunk, "level"), chunk.level
        yield ("chunk", chunk.chunk, "relevance"), chunk.relevance
    for use in said.use or ():
        yield ("use", use.chunk), use.used
    for citation in said.citation or ():
        yield ("citation", citation.chunk, citation.claim), citation.supports
    for fact in said.fact or ():
        yield ("fact", fact.fact), "contradicted" if fact.contradicted else fact.present
    for recall in said.recall or ():
        yield ("recall", recall.statement), recall.covered
    if said.answer is not None:
        yield ("answer", "relevance"), said.answer.relevance
        yield ("answer", "refused"), said.answer.refused
        for aspect in said.answer.aspects:
            yield ("aspect", aspect.text), aspect.answered
    yield ("missing",), said.missing


def settled(labels: Iterable[Label]) -> dict[str, Settled]:
    """What was said of each trace: the last word of each author on each item, the majority of several authors.

    Numbers are averaged. Where no word has more voices than each other word, nothing is said of the item. Words
    on another answer than that of the last label are dropped, save those on the retrieval.

    >>> said = [Labels(answer=AnswerLabel(refused=refused)) for refused in (True, True, False)]
    >>> labels = [Label(trace="1", verdicts=each, by=name) for each, name in zip(said, "abc")]
    >>> settled(labels)["1"].words, settled(labels)["1"].disputed, settled(labels[1:])["1"].words
    ({('answer', 'refused'): True}, 1, {})
    """
    by_trace: dict[str, list[Label]] = {}
    for label in labels:
        by_trace.setdefault(label.trace, []).append(label)
    return {trace: _settled(each) for trace, each in by_trace.items()}


def _settled(labels: Sequence[Label]) -> Settled:
    """The labels of one trace, settled."""
    answer = next((label.answer for label in reversed(labels) if label.answer is not None), None)
    voices: dict[Key, dict[str, Word]] = {}
    looked: set[str] = set()
    for label in labels:
        kept = BLIND if label.answer not in (None, answer) else Labels.__struct_fields__
        looked |= label.verdicts.looked & set(kept)
        for key, word in words(label.verdicts).items():
            if ("answer" if key[0] == "aspect" else key[0]) in kept:
                voices.setdefault(key, {})[label.by] = word
    found = {key: _majority(list(each.values())) for key, each in voices.items()}
    return Settled(
        words={key: word for key, word in found.items() if word is not None},
        looked=frozenset(looked),
        by=tuple(dict.fromkeys(label.by for label in labels)),
        disputed=sum(len(set(map(_kind, each.values()))) > 1 for each in voices.values()),
        answer=answer,
        chance=next((label.chance for label in reversed(labels) if label.chance is not None), None),
    )


def _kind(word: Word) -> Any:
    """What makes two words the same: of lists of what is missing, whether anything is."""
    return bool(word) if isinstance(word, tuple) else word


def _majority(said: Sequence[Word]) -> Word | None:
    """The word with the most voices, the mean of numbers; None where two have as many."""
    if all(isinstance(word, float) for word in said):
        return sum(map(float, said)) / len(said)  # type: ignore[arg-type]
    counted = Counter(map(_kind, said)).most_common(2)
    if len(counted) > 1 and counted[0][1] == counted[1][1]:
        return None
    return next(word for word in said if _kind(word) == counted[0][0])
