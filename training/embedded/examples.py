"""The labelled answers that the embedded judge is trained on: features and words of their claims."""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ragfault.judges.checks.claims import Claim, extract_claims, strip_marks
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage, SentenceIndex, normalize_spelling
from ragfault.judges.embedded.arrays import PassageArrays
from ragfault.judges.embedded.support import ClaimFeatures, TextType, classify_text, extract_features
from ragfault.judges.embedded.word_vectors import Array, load_vectors
from ragfault.text.normalization import split_words
from training.data_files import FOLDS, Row, assign_fold, read_rows
from training.embedded.altering import alter_answer

__all__ = ["SETS", "Answer", "list_marked_spans", "load_answers"]

SETS = ("ragtruth_train", "attributionbench_dev", "wice_dev", "begin_dev")
INSERT_EVERY, INSERT_DISTANCE = 8, 20
"""One answer in so many is repeated with a foreign claim, taken from an answer so many places before it in its fold."""
ALTER_EVERY = 8
"""One answer in so many is repeated with one claim altered."""


class Answer(NamedTuple):
    """An answer that people labelled, with the features of its claims."""

    set: str
    id: str
    fold: int
    """Answers of one source are in one fold."""
    task: str
    model: str
    text_type: TextType
    bad: int
    """Whether people found something in it that the passages do not support."""
    features: ClaimFeatures | None
    """None where nothing is claimed, or there is nothing to hold it against."""
    marks: Array
    """For each claim whether people marked it; -1 where they judged the answer as a whole and it has more."""
    tokens: list[Array | None]
    """For each claim which of its words people marked; None where they marked none."""

    @property
    def kind(self) -> str:
        """The task of an answer of RAGTruth, the set of another."""
        return self.task if self.set == "ragtruth" else self.set


def load_answers(folder: Path, sets: Sequence[str] = SETS) -> Iterator[Answer]:
    """Yield every labelled answer of some sets, and the altered answers and those with a foreign claim ("invented")."""
    last_texts: tuple[object, ...] = ()
    earlier_rows: list[deque[Row]] = [deque(maxlen=INSERT_DISTANCE + 1) for _ in range(FOLDS)]
    for name in sets:
        for row in read_rows(folder, name):
            texts = row["contexts"] if "contexts" in row else [row["passage"]]
            if (*texts,) != last_texts:
                last_texts = (*texts,)
                index = SentenceIndex([Passage(str(i), text) for i, text in enumerate(texts)])
                passage_arrays = PassageArrays(index, load_vectors(), load_idf())
            yield _build_answer(name.split("_")[0], row, passage_arrays)
            if row.get("spans") is not None:
                if zlib.crc32(row["id"].encode()) % ALTER_EVERY == 0:
                    altered = alter_answer(row, texts, random.Random(row["id"]))
                    if altered is not None:
                        yield _build_answer("invented", altered, passage_arrays)
                earlier_rows[fold := assign_fold(row["source_id"])].append(row)
                if zlib.crc32(row["id"].encode()) // FOLDS % INSERT_EVERY == 0:
                    foreign_row = earlier_rows[fold][0]
                    if foreign_row["source_id"] != row["source_id"]:
                        yield _build_answer("invented", insert_foreign_claim(row, foreign_row), passage_arrays)


def insert_foreign_claim(row: Row, foreign_row: Row) -> Row:
    """Return an answer with a claim about another source before or after it, which its passages do not support."""
    claims = extract_claims(foreign_row["answer"])
    text = claims[zlib.crc32(row["id"].encode()) % len(claims)].text if claims else "The harbour was closed by then."
    is_first = zlib.crc32(text.encode()) % 2
    answer = f"{text} {row['answer']}" if is_first else f"{row['answer'].rstrip()} {text}"
    shift = len(text) + 1 if is_first else 0
    spans = [{"start": item["start"] + shift, "end": item["end"] + shift} for item in row["spans"]]
    span = {"start": 0, "end": len(text)} if is_first else {"start": len(answer) - len(text), "end": len(answer)}
    return {**row, "answer": answer, "spans": [*spans, span], "label": 1}


def _build_answer(set_name: str, row: Row, passage_arrays: PassageArrays) -> Answer:
    claims = extract_claims(row["answer"])
    texts = [strip_marks(claim.text) for claim in claims]
    features = (
        extract_features([(texts, passage_arrays)], row.get("query") or "")
        if texts and len(passage_arrays.tokens)
        else None
    )
    spans = row.get("spans")
    if spans is None:
        marks = [row["label"] if len(claims) == 1 or not row["label"] else -1] * len(claims)
    else:
        marks = [int(bool(list_marked_spans(claim, spans))) for claim in claims]
    return Answer(
        set_name,
        str(row["id"]),
        assign_fold(row["source_id"]),
        row.get("task") or row.get("subset") or set_name,
        row.get("model") or "",
        classify_text(
            row.get("query") or "",
            texts,
            float(passage_arrays.is_field.mean()) if len(passage_arrays.is_field) else 0.0,
        ),
        int(row["label"]),
        features,
        np.array(marks),
        [_mark_words(claim, list_marked_spans(claim, spans)) if spans else None for claim in claims],
    )


def list_marked_spans(claim: Claim, spans: Sequence[Row]) -> list[tuple[int, int]]:
    """Return start and end of the marked spans that overlap a claim."""
    return [(span["start"], span["end"]) for span in spans if claim.start < span["end"] and span["start"] < claim.end]


def _mark_words(claim: Claim, marks: Sequence[tuple[int, int]]) -> Array | None:
    """Return 1 for each word of a claim in a marked span: the run of words that is spelled so, else every such word."""
    if not marks:
        return None
    words = split_words(normalize_spelling(strip_marks(claim.text))) or (".",)
    is_marked = np.zeros(len(words), np.float32)
    for start, end in marks:
        marked_words = split_words(
            normalize_spelling(strip_marks(claim.text[max(0, start - claim.start) : end - claim.start]))
        )
        if len(marked_words) >= len(words) - 1:
            is_marked[:] = 1
            continue
        start_word = next(
            (i for i in range(len(words) - len(marked_words) + 1) if words[i : i + len(marked_words)] == marked_words),
            None,
        )
        if start_word is None:
            is_marked[[i for i, word in enumerate(words) if word in marked_words]] = 1
        else:
            is_marked[start_word : start_word + len(marked_words)] = 1
    return is_marked
