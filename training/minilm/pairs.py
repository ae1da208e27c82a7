"""Make the pairs that the encoder of the judge minilm is trained on, as arrays that need no text.

    python -m training.minilm.pairs DATA -o pairs.npz [--processes 2]

A pair is a claim with its evidence, chosen by the function that chooses it at run time. Sources are in one of five
folds (CRC-32 of their id): RAGTruth's are trained on from fold 1, those of the smaller sets from fold 2; the others
are for stacking and for measuring. Kinds: `human` (as people judged it), `altered` (says something else than the
claim that people let stand), and `hidden` (some of the evidence left out: whether the claim still holds is for a
teacher to say).
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
from training.embedded.altering import alter_answer
from training.embedded.examples import SETS, rows
from training.embedded.relevance import fold

from ragfault.judges.checks.claims import Claim, extract_claims, strip_marks
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage, SentenceIndex
from ragfault.judges.lexical.features import parse_statement
from ragfault.judges.minilm.encoder import (
    MAX_CLAIM_TOKENS,
    MAX_EVIDENCE_TOKENS,
    TokenPair,
    encode_pair,
    load_tokenizer,
    locate_weights,
)
from ragfault.judges.minilm.judge import get_sentence_text, select_evidence

FIRST_FOLD = {"ragtruth_train": 1}
"""Sources in this fold and beyond are trained on; of the other sets from 2."""
KINDS = ("human", "altered", "hidden")
ALTERED = 2
"""So many altered claims are tried for each answer that is trained on."""
HIDDEN, HIDDEN_SHARE = 0.3, 0.5
"""So many claims are also read with part of their evidence, and so much of it is left out."""


class Row(NamedTuple):
    """A claim with its evidence, and what people said of it."""

    id: str
    fold: int
    kind: int
    set: int
    number: int
    """Which claim of the answer it is."""
    pair: TokenPair
    label: int
    """1 where it does not hold; -1 where that is not known."""
    marks: list[int]
    """For each token of the claim whether people marked it; -1 where that is not known."""


def answer_rows(set_number: int, answers: Sequence[dict[str, Any]]) -> list[Row]:
    """Return the rows of the answers to one source."""
    texts = answers[0]["contexts"] if "contexts" in answers[0] else [answers[0]["passage"]]
    index = SentenceIndex([Passage(str(place), text) for place, text in enumerate(texts)])
    result: list[Row] = []
    for answer in answers:
        chance = Random(answer["id"])
        human = _rows(index, set_number, answer, 0)
        result += human
        if fold(answer["source_id"]) < FIRST_FOLD.get(SETS[set_number], 2):
            continue
        known = {row.pair.ids for row in human}
        for _ in range(ALTERED if "spans" in answer else 0):
            altered = alter_answer(answer, texts, chance)
            fresh = (
                [row for row in _rows(index, set_number, altered, 1) if row.pair.ids not in known] if altered else []
            )
            known |= {row.pair.ids for row in fresh}
            result += fresh
        result += _rows(index, set_number, answer, 2, chance)
    return result


def _rows(
    index: SentenceIndex, set_number: int, answer: dict[str, Any], kind: int, chance: Random | None = None
) -> list[Row]:
    claims = extract_claims(answer["answer"])
    spans = answer.get("spans")
    result = []
    for number, claim in enumerate(claims):
        if chance is not None and chance.random() >= HIDDEN:
            continue
        text = strip_marks(claim.text)
        evidence = select_evidence(parse_statement(text, load_idf()), index)
        if chance is not None:
            evidence = tuple(place for place in evidence if chance.random() >= HIDDEN_SHARE)
        sentences = [get_sentence_text(index, place) for place in evidence]
        pair = encode_pair(load_tokenizer(locate_weights()), text, sentences, MAX_CLAIM_TOKENS, MAX_EVIDENCE_TOKENS)
        inside: list[tuple[int, int]] | None
        if spans is None:
            label, inside = (int(answer["label"]) if len(claims) == 1 or not answer["label"] else -1), None
        else:
            inside = _within(claim, spans)
            label = int(bool(inside))
            if inside and text != claim.text:
                inside = None  # a mark of a citation was taken out, and the offsets no longer fit
        if label == 0:
            inside = []
        if kind == 2 and label == 0:
            label, inside = -1, None
        marks = [
            -1 if inside is None else int(any(start < right and left < end for left, right in inside))
            for start, end in pair.spans
        ]
        result.append(Row(f"{SETS[set_number].split('_')[0]} {answer['id']}", fold(answer["source_id"]), kind,
                          set_number, number, pair, label, marks))  # fmt: skip
    return result


def _within(claim: Claim, spans: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return the marked stretches of an answer that touch a claim, by its own offsets."""
    return [
        (max(0, span["start"] - claim.start), min(claim.end, span["end"]) - claim.start)
        for span in spans
        if claim.start < span["end"] and span["start"] < claim.end
    ]


def sources(folder: Path) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the answers to each context, of all sets."""
    for number, name in enumerate(SETS):
        ordered = sorted(rows(folder, name), key=lambda row: str(row.get("contexts", row.get("passage"))))
        for _, group in groupby(ordered, key=lambda row: row.get("contexts", row.get("passage"))):
            yield number, list(group)


def pack(result: Sequence[Row]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the rows as flat arrays with offsets."""

    def flat(values: Iterator[Sequence[int]], kind: type) -> np.ndarray[Any, Any]:
        return np.array([item for value in values for item in value], kind)

    def offsets(sizes: Iterator[int]) -> np.ndarray[Any, Any]:
        return np.concatenate([[0], np.cumsum(list(sizes))]).astype(np.int64)

    names = ("fold", "kind", "set", "number", "label")
    return {
        "id": np.array([row.id for row in result]),
        **{name: np.array([getattr(row, name) for row in result], np.int16) for name in names},
        "first_length": np.array([row.pair.first_length for row in result], np.int16),
        "ids": flat((row.pair.ids for row in result), np.uint16),
        "ids_at": offsets(len(row.pair.ids) for row in result),
        "marks": flat((row.marks for row in result), np.int8),
        "marks_at": offsets(len(row.marks) for row in result),
    }


def _work(item: tuple[int, list[dict[str, Any]]]) -> list[Row]:
    return answer_rows(*item)


def main() -> None:
    """Build, pack, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("pairs.npz"))
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    result: list[Row] = []
    with multiprocessing.Pool(options.processes) as pool:
        for number, part in enumerate(pool.imap(_work, sources(options.data), chunksize=8)):
            result += part
            if number % 300 == 0:
                print(f"{number:,} sources, {len(result):,} pairs", flush=True)
    np.savez_compressed(options.out, **pack(result))  # type: ignore[arg-type]
    tokens = sum(len(row.pair.ids) for row in result)
    print(f"{options.out}: {len(result):,} pairs, {tokens:,} tokens, {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
