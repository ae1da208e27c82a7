"""Make the examples that the embedded judge is trained on: features and words of claims that people judged."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from training.embedded.altering import alter_answer

from ragfault.judges.checks.claims import Claim, extract_claims, strip_marks
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage, SentenceIndex, normalize_spelling
from ragfault.judges.embedded.arrays import PassageArrays
from ragfault.judges.embedded.support import ClaimFeatures, TextType, classify_text, extract_features
from ragfault.judges.embedded.word_vectors import Array, load_vectors
from ragfault.text import split_words

__all__ = ["FOLDS", "SETS", "Answer", "answers"]

SETS = ("ragtruth_train", "attributionbench_dev", "wice_dev", "begin_dev")
FOLDS = 5
EVERY, BACK = 8, 20
ALTER_EVERY = 8
"""One answer in so many is repeated with one claim altered."""
"""One answer in so many is repeated with an invented statement, taken from so many answers before it in its fold."""


class Answer(NamedTuple):
    """An answer that people judged, with all that the judge sees of it."""

    set: str
    id: str
    fold: int
    """Answers of one source are in one fold."""
    task: str
    model: str
    shape: TextType
    bad: int
    """Whether people found something in it that the passages do not support."""
    seen: ClaimFeatures | None
    """None where nothing is claimed, or there is nothing to hold it against."""
    marks: Array
    """For each claim whether people marked it; -1 where they judged the answer as a whole and it has more."""
    tokens: list[Array | None]
    """For each claim which of its words people marked; None where they marked none."""


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the records of one file."""
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def answers(folder: Path, sets: Sequence[str] = SETS) -> Iterator[Answer]:
    """Yield every labelled answer of some sets."""
    last: tuple[object, ...] = ()
    earlier_rows: list[deque[dict[str, Any]]] = [deque(maxlen=BACK + 1) for _ in range(FOLDS)]
    for name in sets:
        for row in rows(folder, name):
            texts = row["contexts"] if "contexts" in row else [row["passage"]]
            if (*texts,) != last:
                last = (*texts,)
                index = SentenceIndex([Passage(str(i), text) for i, text in enumerate(texts)])
                ground = PassageArrays(index, load_vectors(), load_idf())
            yield _answer(name.split("_")[0], row, ground)
            if row.get("spans") is not None:
                if zlib.crc32(row["id"].encode()) % ALTER_EVERY == 0:
                    changed = alter_answer(row, texts, random.Random(row["id"]))
                    if changed is not None:
                        yield _answer("invented", changed, ground)
                earlier_rows[fold := zlib.crc32(row["source_id"].encode()) % FOLDS].append(row)
                if zlib.crc32(row["id"].encode()) // FOLDS % EVERY == 0:
                    strange = earlier_rows[fold][0]
                    if strange["source_id"] != row["source_id"]:
                        yield _answer("invented", invented(row, strange), ground)


def invented(row: dict[str, Any], strange: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with a statement of another source before or after it, which nothing here supports."""
    message = extract_claims(strange["answer"])
    text = message[zlib.crc32(row["id"].encode()) % len(message)].text if message else "The harbour was closed by then."
    comes_first = zlib.crc32(text.encode()) % 2
    answer = f"{text} {row['answer']}" if comes_first else f"{row['answer'].rstrip()} {text}"
    shift = len(text) + 1 if comes_first else 0
    spans = [{"start": item["start"] + shift, "end": item["end"] + shift} for item in row["spans"]]
    span = {"start": 0, "end": len(text)} if comes_first else {"start": len(answer) - len(text), "end": len(answer)}
    return {**row, "answer": answer, "spans": [*spans, span], "label": 1}


def _answer(name: str, row: dict[str, Any], ground: PassageArrays) -> Answer:
    result = extract_claims(row["answer"])
    texts = [strip_marks(claim.text) for claim in result]
    features = extract_features([(texts, ground)], row.get("query") or "") if texts and len(ground.tokens) else None
    spans = row.get("spans")
    if spans is None:
        marks = [row["label"] if len(result) == 1 or not row["label"] else -1] * len(result)
    else:
        marks = [int(bool(_within(claim, spans))) for claim in result]
    return Answer(
        name,
        str(row["id"]),
        zlib.crc32(row["source_id"].encode()) % FOLDS,
        row.get("task") or row.get("subset") or name,
        row.get("model") or "",
        classify_text(row.get("query") or "", texts, float(ground.is_field.mean()) if len(ground.is_field) else 0.0),
        int(row["label"]),
        features,
        np.array(marks),
        [_words(claim, _within(claim, spans)) if spans else None for claim in result],
    )


def _within(claim: Claim, spans: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return the marked stretches that touch a claim."""
    return [(span["start"], span["end"]) for span in spans if claim.start < span["end"] and span["start"] < claim.end]


def _words(claim: Claim, marks: Sequence[tuple[int, int]]) -> Array | None:
    """Return which words of a claim lie in marked stretches: the run of words that is spelled so, else each that is."""
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
