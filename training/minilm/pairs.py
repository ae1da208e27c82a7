"""Make the pairs of claim and evidence that the encoder of the judge minilm is trained on, as arrays of tokens.

    python -m training.minilm.pairs DATA -o pairs.npz [--processes 2]

A pair is a claim with its evidence, selected by the function that selects it at run time. Sources are in one of five
folds (CRC-32 of their id): RAGTruth's are trained on from fold 1, those of the smaller sets from fold 2; the others
are for stacking and for measuring. Kinds: `human` (with the label of people), `altered` (a supported claim changed into
another statement), and `hidden` (some of the evidence left out; the label comes from a teacher).
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

from ragfault.judges.checks.claims import Claim, extract_claims, strip_marks
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage, SentenceIndex
from ragfault.judges.lexical.features import parse_statement
from ragfault.judges.minilm.encoder import TokenPair, encode_pair, load_tokenizer, locate_weights
from ragfault.judges.minilm.judge import get_sentence_text, select_evidence
from training.data_files import Row, assign_fold, read_rows
from training.embedded.altering import alter_answer
from training.embedded.examples import SETS

FIRST_FOLD = {"ragtruth_train": 1}
"""Sources in this fold and beyond are trained on; of the other sets from 2."""
KINDS = ("human", "altered", "hidden")
ALTERED_PER_ANSWER = 2
"""Alterations that are tried for each answer that is trained on."""
HIDDEN_CLAIM_SHARE, HIDDEN_EVIDENCE_SHARE = 0.3, 0.5
"""The share of claims that are repeated with part of their evidence, and the share of it that is left out."""


class TrainingPair(NamedTuple):
    """A claim with its evidence and its labels."""

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


def build_pairs(set_number: int, answers: Sequence[Row]) -> list[TrainingPair]:
    """Return the pairs of the answers to one source."""
    texts = answers[0]["contexts"] if "contexts" in answers[0] else [answers[0]["passage"]]
    index = SentenceIndex([Passage(str(place), text) for place, text in enumerate(texts)])
    pairs: list[TrainingPair] = []
    for answer in answers:
        rng = Random(answer["id"])
        human_pairs = _build_claim_pairs(index, set_number, answer, 0)
        pairs += human_pairs
        if assign_fold(answer["source_id"]) < FIRST_FOLD.get(SETS[set_number], 2):
            continue
        known_ids = {row.pair.ids for row in human_pairs}
        for _ in range(ALTERED_PER_ANSWER if "spans" in answer else 0):
            altered = alter_answer(answer, texts, rng)
            new_pairs = (
                [row for row in _build_claim_pairs(index, set_number, altered, 1) if row.pair.ids not in known_ids]
                if altered
                else []
            )
            known_ids |= {row.pair.ids for row in new_pairs}
            pairs += new_pairs
        pairs += _build_claim_pairs(index, set_number, answer, 2, rng)
    return pairs


def _build_claim_pairs(
    index: SentenceIndex, set_number: int, answer: Row, kind: int, rng: Random | None = None
) -> list[TrainingPair]:
    """Return a pair for each claim of an answer; given a generator, for some claims and with part of their evidence."""
    claims = extract_claims(answer["answer"])
    spans = answer.get("spans")
    result = []
    for number, claim in enumerate(claims):
        if rng is not None and rng.random() >= HIDDEN_CLAIM_SHARE:
            continue
        text = strip_marks(claim.text)
        evidence = select_evidence(parse_statement(text, load_idf()), index)
        if rng is not None:
            evidence = tuple(place for place in evidence if rng.random() >= HIDDEN_EVIDENCE_SHARE)
        sentences = [get_sentence_text(index, place) for place in evidence]
        pair = encode_pair(load_tokenizer(locate_weights()), text, sentences)
        marked_offsets: list[tuple[int, int]] | None
        if spans is None:
            label, marked_offsets = (int(answer["label"]) if len(claims) == 1 or not answer["label"] else -1), None
        else:
            marked_offsets = _list_marked_offsets(claim, spans)
            label = int(bool(marked_offsets))
            if marked_offsets and text != claim.text:
                marked_offsets = None  # a mark of a citation was taken out, and the offsets no longer fit
        if label == 0:
            marked_offsets = []
        if kind == 2 and label == 0:
            label, marked_offsets = -1, None
        marks = [
            -1 if marked_offsets is None else int(any(start < right and left < end for left, right in marked_offsets))
            for start, end in pair.spans
        ]
        name, fold = f"{SETS[set_number].split('_')[0]} {answer['id']}", assign_fold(answer["source_id"])
        result.append(TrainingPair(name, fold, kind, set_number, number, pair, label, marks))
    return result


def _list_marked_offsets(claim: Claim, spans: list[Row]) -> list[tuple[int, int]]:
    """Return start and end of the marked spans that overlap a claim, counted from its first character."""
    return [
        (max(0, span["start"] - claim.start), min(claim.end, span["end"]) - claim.start)
        for span in spans
        if claim.start < span["end"] and span["start"] < claim.end
    ]


def group_answers(folder: Path) -> Iterator[tuple[int, list[Row]]]:
    """Yield for each context of all sets the number of the set and the answers."""
    for number, name in enumerate(SETS):
        ordered = sorted(read_rows(folder, name), key=lambda row: str(row.get("contexts", row.get("passage"))))
        for _, group in groupby(ordered, key=lambda row: row.get("contexts", row.get("passage"))):
            yield number, list(group)


def pack_pairs(pairs: Sequence[TrainingPair]) -> dict[str, np.ndarray[Any, Any]]:
    """Pack the pairs as flat arrays with offsets."""

    def flatten(values: Iterator[Sequence[int]], kind: type) -> np.ndarray[Any, Any]:
        return np.array([item for value in values for item in value], kind)

    def compute_offsets(sizes: Iterator[int]) -> np.ndarray[Any, Any]:
        return np.concatenate([[0], np.cumsum(list(sizes))]).astype(np.int64)

    names = ("fold", "kind", "set", "number", "label")
    return {
        "id": np.array([row.id for row in pairs]),
        **{name: np.array([getattr(row, name) for row in pairs], np.int16) for name in names},
        "first_length": np.array([row.pair.first_length for row in pairs], np.int16),
        "ids": flatten((row.pair.ids for row in pairs), np.uint16),
        "ids_at": compute_offsets(len(row.pair.ids) for row in pairs),
        "marks": flatten((row.marks for row in pairs), np.int8),
        "marks_at": compute_offsets(len(row.marks) for row in pairs),
    }


def _process_source(source: tuple[int, list[Row]]) -> list[TrainingPair]:
    return build_pairs(*source)


def main() -> None:
    """Build the pairs of all sources and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("pairs.npz"))
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    pairs: list[TrainingPair] = []
    with multiprocessing.Pool(options.processes) as pool:
        for number, part in enumerate(pool.imap(_process_source, group_answers(options.data), chunksize=8)):
            pairs += part
            if number % 300 == 0:
                print(f"{number:,} sources, {len(pairs):,} pairs", flush=True)
    np.savez_compressed(options.out, **pack_pairs(pairs))  # type: ignore[arg-type]
    tokens = sum(len(row.pair.ids) for row in pairs)
    print(f"{options.out}: {len(pairs):,} pairs, {tokens:,} tokens, {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
