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
    others: list[deque[dict[str, Any]]] = [deque(maxlen=BACK + 1) for _ in range(FOLDS)]
    for name in sets:
        for row in rows(folder, name):
            texts = row["contexts"] if "contexts" in row else [row["passage"]]
            if (*texts,) != last:
                last = (*texts,)
                index = SentenceIndex([Passage(str(place), text) for place, text in enumerate(texts)])
                ground = PassageArrays(index, load_vectors(), load_idf())
            yield _answer(name.split("_")[0], row, ground)
            if row.get("spans") is not None:
                if zlib.crc32(row["id"].encode()) % ALTER_EVERY == 0:
                    changed = alter_answer(row, texts, random.Random(row["id"]))
                    if changed is not None:
                        yield _answer("invented", changed, ground)
                others[fold := zlib.crc32(row["source_id"].encode()) % FOLDS].append(row)
                if zlib.crc32(row["id"].encode()) // FOLDS % EVERY == 0:
                    strange = others[fold][0]
                    if strange["source_id"] != row["source_id"]:
                        yield _answer("invented", invented(row, strange), ground)


def invented(row: dict[str, Any], strange: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with a statement of another source before or after it, which nothing here supports."""
    message = extract_claims(strange["answer"])
    text = message[zlib.crc32(row["id"].encode()) % len(message)].text if message else "The harbour was closed by then."
    first = zlib.crc32(text.encode()) % 2
    answer = f"{text} {row['answer']}" if first else f"{row['answer'].rstrip()} {text}"
    shift = len(text) + 1 if first else 0
    spans = [{"start": item["start"] + shift, "end": item["end"] + shift} for item in row["spans"]]
    own = {"start": 0, "end": len(text)} if first else {"start": len(answer) - len(text), "end": len(answer)}
    return {**row, "answer": answer, "spans": [*spans, own], "label": 1}


def _answer(name: str, row: dict[str, Any], ground: PassageArrays) -> Answer:
    result = extract_claims(row["answer"])
    texts = [strip_marks(claim.text) for claim in result]
    seen = extract_features([(texts, ground)], row.get("query") or "") if texts and len(ground.tokens) else None
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
        seen,
        np.array(marks),
        [_words(claim, _within(claim, spans)) if spans else None for claim in result],
    )


def _within(claim: Claim, spans: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return the marked stretches that touch a claim."""
    return [(span["start"], span["end"]) for span in spans if claim.start < span["end"] and span["start"] < claim.end]


def _words(claim: Claim, marked: Sequence[tuple[int, int]]) -> Array | None:
    """Return which words of a claim lie in marked stretches: the run of words that is spelled so, else each that is."""
    if not marked:
        return None
    reported = split_words(normalize_spelling(strip_marks(claim.text))) or (".",)
    hit = np.zeros(len(reported), np.float32)
    for start, end in marked:
        part = split_words(normalize_spelling(strip_marks(claim.text[max(0, start - claim.start) : end - claim.start])))
        if len(part) >= len(reported) - 1:
            hit[:] = 1
            continue
        place = next((at for at in range(len(reported) - len(part) + 1) if reported[at : at + len(part)] == part), None)
        if place is None:
            hit[[at for at, word in enumerate(reported) if word in part]] = 1
        else:
            hit[place : place + len(part)] = 1
    return hit
