"""Make the examples that the cross-encoder is trained on: claims with their evidence, queries with passages.

The evidence is chosen by the function that chooses it at run time, so that what is trained on is what is read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tokenizers import Tokenizer
from training.embedded.examples import FOLDS, SETS, rows
from training.embedded.relevance import fold, graded, mined
from training.minilm.altering import altered

from ragfault.judges.checks.claims import Claim, extract_claims, strip_marks
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage, SentenceIndex
from ragfault.judges.lexical.features import parse_statement
from ragfault.judges.minilm.encoder import MAX_CLAIM_TOKENS
from ragfault.judges.minilm.judge import get_sentence_text, select_evidence

__all__ = ["MAX_WINDOW_CLAIM_TOKENS", "Example", "Reader", "examples", "validation"]

FIRST = 2
"""Claims of sources in this fold and beyond are trained on; those before are for stacking and for measuring."""
RELEVANCE = 1
"""Queries in this fold and beyond are trained on."""
ALTERED = 0.12
"""Of the claims that people did not mark, this share is altered as well."""


MAX_WINDOW_CLAIM_TOKENS = 192
"""Claims of an answer are read in one window up to about this many tokens; the rest of it is for the chunks."""

Spans = tuple[tuple[int, int], ...]


class Example(NamedTuple):
    """Texts that are read together, and what people said of them."""

    kind: str
    """`marked` and `unmarked` claims of RAGTruth, `altered` ones, those of `other` sets, and `relevance`."""
    subjects: tuple[str, ...]
    """Claims of an answer, or a query."""
    others: tuple[str, ...]
    """The sentences that are evidence, or one passage."""
    labels: tuple[int, ...]
    """For each subject 1: a claim that does not hold, or a passage that is relevant."""
    spans: tuple[Spans | None, ...]
    """The marked stretches of each subject; None where they are not known."""


class Statement(NamedTuple):
    """A claim, and what people said of it."""

    text: str
    label: int
    spans: Spans | None = None


class Reader:
    """Decides which claims and sentences are read together: each claim alone with its evidence, or in windows.

    A window holds claims that follow each other, the evidence of each, and of the other sentences of the chunks, from
    the first on, as many as it has room for. Its claims share their evidence, and a short context is read in full.
    """

    def __init__(self, split: Tokenizer, window: int | None) -> None:
        self._split, self._window = split, window
        self._sizes: dict[str, int] = {}

    def group(self, statements: Sequence[Statement]) -> Iterator[tuple[Statement, ...]]:
        """Yield the statements that are read together, and nothing where there are none."""
        group: list[Statement] = []
        size = 0
        for statement in statements:
            more = min(self._measure(statement.text), MAX_CLAIM_TOKENS)
            if group and (self._window is None or size + more > MAX_WINDOW_CLAIM_TOKENS):
                yield tuple(group)
                group, size = [], 0
            group.append(statement)
            size += more
        if group:
            yield tuple(group)

    def select(self, group: Sequence[Statement], index: SentenceIndex) -> tuple[str, ...]:
        """Return the sentences that a group is read with, in the order of the chunks."""
        evidence = [select_evidence(parse_statement(item.text, load_idf()), index) for item in group]
        if self._window is None:
            return tuple(get_sentence_text(index, place) for place in evidence[0])
        room = self._window - 3 - sum(min(self._measure(item.text), MAX_CLAIM_TOKENS) for item in group)
        chosen: set[int] = set()
        in_turn = (place for places in zip_longest(*evidence) for place in places if place is not None)
        for place in chain(in_turn, range(len(index.sentences))):
            size = self._measure(get_sentence_text(index, place)) + 1
            if place not in chosen and size <= room:
                chosen.add(place)
                room -= size
        return tuple(get_sentence_text(index, place) for place in sorted(chosen))

    def _measure(self, text: str) -> int:
        """Return the number of tokens of a text."""
        if text not in self._sizes:
            self._sizes[text] = len(self._split.encode(text, add_special_tokens=False).ids)
        return self._sizes[text]


def examples(folder: Path, reader: Reader) -> Iterator[Example]:
    """Yield all examples, in the same order every time."""
    yield from claims(folder, reader, lambda source: fold(source) >= FIRST)
    yield from relevance(folder)


def validation(folder: Path, reader: Reader) -> Iterator[Example]:
    """Yield the claims of one in four of the sources of fold 0."""
    chosen = claims(folder, reader, lambda source: fold(source) == 0 and zlib.crc32(source.encode()) // FOLDS % 4 == 0)
    yield from (example for example in chosen if example.kind != "altered")


def claims(folder: Path, reader: Reader, keep: Callable[[str], bool]) -> Iterator[Example]:
    """Yield the claims of answers of the sources to keep, and some of them altered."""
    chance = Random(0)
    for name in SETS:
        last: tuple[str, ...] = ()
        for row in rows(folder, name):
            if not keep(row["source_id"]):
                continue
            texts = tuple(row["contexts"] if "contexts" in row else [row["passage"]])
            if texts != last:
                last, index = (texts, SentenceIndex([Passage(str(place), text) for place, text in enumerate(texts)]))
            statements = _marked(row) if "spans" in row else _judged(row)
            for group in reader.group(statements):
                yield from _examples(group, "spans" in row, reader, index, chance)


def _examples(
    group: tuple[Statement, ...], in_ragtruth: bool, reader: Reader, index: SentenceIndex, chance: Random
) -> Iterator[Example]:
    """Yield a group, and for some claims that hold the group again with that claim altered."""
    kind = ("marked" if any(item.label for item in group) else "unmarked") if in_ragtruth else "other"
    yield _example(kind, group, reader.select(group, index))
    for at, item in enumerate(group if in_ragtruth else ()):
        if not item.label and chance.random() < ALTERED / len(group):
            other = altered(item.text, [passage.text for passage in index.passages], chance)
            if other is not None and other != item.text:
                changed = (*group[:at], Statement(other, 1), *group[at + 1 :])
                yield _example("altered", changed, reader.select(changed, index))


def _example(kind: str, group: Sequence[Statement], others: tuple[str, ...]) -> Example:
    subjects, labels, spans = zip(*group, strict=True)
    return Example(kind, subjects, others, labels, spans)


def relevance(folder: Path) -> Iterator[Example]:
    """Yield queries with passages; never those of TREC DL 2019, nor those of the development part of WikiQA."""
    retained = {row["query"] for row in rows(folder, "wikiqa") if row["split"] != "train"}
    for pairs in (graded(folder), mined(folder)):
        for pair in pairs:
            if pair.set == "trec_dl19" or pair.fold < RELEVANCE or (pair.set == "wikiqa" and pair.query in retained):
                continue
            yield Example("relevance", (pair.query,), (pair.passage,), (pair.relevant,), (None,))


def _marked(row: dict[str, Any]) -> list[Statement]:
    """Return the claims of an answer in which people marked stretches."""
    result = []
    for claim in extract_claims(row["answer"]):
        text, spans = strip_marks(claim.text), _within(claim, row["spans"])
        # where a mark of a citation was taken out, the offsets no longer fit
        result.append(Statement(text, int(bool(spans)), spans if text == claim.text or not spans else None))
    return result


def _judged(row: dict[str, Any]) -> list[Statement]:
    """Return the claims of an answer that people judged as a whole: a bad one tells only where it has one claim."""
    result = extract_claims(row["answer"])
    known = len(result) == 1 or not row["label"]
    return [Statement(strip_marks(claim.text), int(row["label"])) for claim in result] if known else []


def _within(claim: Claim, spans: list[dict[str, Any]]) -> Spans:
    """Return the marked stretches of an answer that touch a claim, by its own offsets."""
    return tuple(
        (max(0, span["start"] - claim.start), min(claim.end, span["end"]) - claim.start)
        for span in spans
        if claim.start < span["end"] and span["start"] < claim.end
    )
