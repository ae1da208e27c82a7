"""Make the examples that the cross-encoder is trained on: claims with their evidence, queries with passages.

The evidence is chosen by the function that chooses it at run time, so that what is trained on is what is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from training.embedded.examples import SETS, rows
from training.embedded.relevance import fold, graded, mined
from training.minilm.altering import altered

from ragfault.judges.checks.claims import Claim, extract_claims, strip_marks
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage, SentenceIndex
from ragfault.judges.lexical.features import parse_statement
from ragfault.judges.minilm.judge import get_sentence_text, select_evidence

__all__ = ["Example", "examples"]

FIRST = 2
"""Claims of sources in this fold and beyond are trained on; those before are for stacking and for measuring."""
RELEVANCE = 1
"""Queries in this fold and beyond are trained on."""
ALTERED = 0.12
"""Of the claims that people did not mark, this share is altered as well."""


class Example(NamedTuple):
    """Two texts, and what people said of them."""

    kind: str
    """`marked` and `unmarked` claims of RAGTruth, `altered` ones, those of `other` sets, and `relevance`."""
    subject: str
    """A claim or a query."""
    others: tuple[str, ...]
    """The sentences that are evidence, or one passage."""
    label: int
    """1: a claim that does not hold, or a passage that is relevant."""
    spans: tuple[tuple[int, int], ...] | None = None
    """The marked stretches of the claim; None where they are not known."""


def examples(folder: Path) -> Iterator[Example]:
    """Yield all examples, in the same order every time."""
    chance = Random(0)
    for name in SETS:
        last: tuple[str, ...] = ()
        for row in rows(folder, name):
            if fold(row["source_id"]) < FIRST:
                continue
            texts = tuple(row["contexts"] if "contexts" in row else [row["passage"]])
            if texts != last:
                last, index = (texts, SentenceIndex([Passage(str(place), text) for place, text in enumerate(texts)]))
            yield from (_marked(row, index, chance) if "spans" in row else _judged(row, index))
    yield from relevance(folder)


def relevance(folder: Path) -> Iterator[Example]:
    """Yield queries with passages; never those of TREC DL 2019, nor those of the development part of WikiQA."""
    retained = {row["query"] for row in rows(folder, "wikiqa") if row["split"] != "train"}
    for pairs in (graded(folder), mined(folder)):
        for pair in pairs:
            if pair.set == "trec_dl19" or pair.fold < RELEVANCE or (pair.set == "wikiqa" and pair.query in retained):
                continue
            yield Example("relevance", pair.query, (pair.passage,), pair.relevant)


def _marked(row: dict[str, Any], index: SentenceIndex, chance: Random) -> Iterator[Example]:
    """Yield the claims of an answer in which people marked stretches; and some of the others, altered."""
    for claim in extract_claims(row["answer"]):
        text, spans = strip_marks(claim.text), _within(claim, row["spans"])
        # where a mark of a citation was taken out, the offsets no longer fit
        known = spans if text == claim.text or not spans else None
        yield Example("marked" if spans else "unmarked", text, _evidence(text, index), int(bool(spans)), known)
        if not spans and chance.random() < ALTERED:
            other = altered(text, [passage.text for passage in index.passages], chance)
            if other is not None and other != text:
                yield Example("altered", other, _evidence(other, index), 1)


def _judged(row: dict[str, Any], index: SentenceIndex) -> Iterator[Example]:
    """Yield the claims of an answer that people judged as a whole: a bad one tells only where it has one claim."""
    result = extract_claims(row["answer"])
    if len(result) == 1 or not row["label"]:
        for claim in result:
            text = strip_marks(claim.text)
            yield Example("other", text, _evidence(text, index), int(row["label"]))


def _evidence(text: str, index: SentenceIndex) -> tuple[str, ...]:
    return tuple(get_sentence_text(index, place) for place in select_evidence(parse_statement(text, load_idf()), index))


def _within(claim: Claim, spans: list[dict[str, Any]]) -> tuple[tuple[int, int], ...]:
    """Return the marked stretches of an answer that touch a claim, by its own offsets."""
    return tuple(
        (max(0, span["start"] - claim.start), min(claim.end, span["end"]) - claim.start)
        for span in spans
        if claim.start < span["end"] and span["start"] < claim.end
    )
