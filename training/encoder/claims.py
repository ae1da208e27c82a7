"""The labelled claims on which the stack of the judge encoder is fitted, and those on which it is measured.

The encoder was trained on none of them. The packaged weights of the embedded judge were: of its sets a claim has the
log-odds of weights that were fitted without its source. `EMBEDDED_ODDS` has those of fold 0, computed as
`training.embedded --fold 0 --keep` does, from two fifths of the other sources of RAGTruth and all of the smaller sets.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ragfault.judges.checks.claims import extract_claims
from ragfault.judges.checks.passages import Passage
from ragfault.judges.encoder.judge import EncoderJudge, EncoderSession, count_threads
from ragfault.judges.numeric_threads import use_one_thread
from training.authored.items import Item, read_items
from training.data_files import Row, assign_fold, read_rows
from training.encoder.rows import LETTERS, MEASURED_SHARE, OTHER_LANGUAGES, TEST_WRITERS, authored_items, is_measured

EMBEDDED_ODDS = Path(__file__).parent / "embedded_odds.npz"
TRANSFER_SETS = ("wice_dev", "begin_dev", "attributionbench_dev")
# Answers of each set that are read: more take longer and change little.
SAMPLES = {"authored": 700, "ragtruth": 900, "w7": 600, "public": 150}


class LabelledAnswer(NamedTuple):
    """An answer with its claims, and what people say of them."""

    set: str
    id: str
    group: str
    query: str
    history: tuple[str, ...]
    chunks: tuple[str, ...]
    claims: tuple[str, ...]
    marks: tuple[int, ...]
    """For each claim 1 if it is not supported, 0 if it is, -1 where people judged only the answer."""
    bad: int


class WeighedAnswer(NamedTuple):
    """An answer with what is known of its claims."""

    answer: LabelledAnswer
    inputs: np.ndarray
    """The inputs of the stack, a row a claim."""
    is_verbatim: np.ndarray
    """For each claim, whether it is a sentence of a chunk, word for word."""


def sample_rows(rows: Sequence[Row], count: int) -> list[Row]:
    """Return so many rows, the same at each call."""
    return random.Random(2).sample(rows, min(count, len(rows)))


def list_items(set_name: str) -> Iterator[LabelledAnswer]:
    """Yield authored claims that were kept apart: of the writers of the training texts, or of another one."""
    if set_name == "w7":
        items = [item for item in read_items() if item.writer in TEST_WRITERS and item.language == "en"]
    else:
        items = [item for item in authored_items() if is_measured(item.unit) and item.writer not in TEST_WRITERS]
    for item in random.Random(2).sample(items, min(SAMPLES[set_name], len(items))):
        yield label_item(set_name, item)


def split_answer(set_name: str, row: Row) -> LabelledAnswer:
    """Return an answer with its claims; a claim is marked if people marked a stretch that it touches."""
    claims = extract_claims(row["answer"])
    if "spans" in row:
        marks = [any(span["start"] < item.end and item.start < span["end"] for span in row["spans"]) for item in claims]
    else:
        marks = [row["label"] if len(claims) == 1 or not row["label"] else -1] * len(claims)
    return LabelledAnswer(
        set_name, str(row["id"]), str(row["source_id"]), row.get("query") or "", (), tuple(row["contexts"]),
        tuple(claim.text for claim in claims), tuple(map(int, marks)), int(row["label"]),
    )  # fmt: skip


def is_reserved_source(row: Row, half: int) -> bool:
    """Return whether an answer is of a source of RAGTruth that took no part in training, in one half of these."""
    source = str(row["source_id"])
    return is_measured(source) and zlib.crc32(source.encode()) // MEASURED_SHARE % 2 == half


def list_ragtruth(data: Path, half: int) -> Iterator[LabelledAnswer]:
    """Yield answers of one half of the sources of RAGTruth that took no part in training."""
    rows = [row for row in read_rows(data, "ragtruth_train") if is_reserved_source(row, half)]
    return (split_answer("ragtruth", row) for row in sample_rows(rows, SAMPLES["ragtruth"]))


def list_contrast(data: Path) -> Iterator[LabelledAnswer]:
    """Yield the contrast pairs for development: a true paraphrase, a false near copy, the passage word for word."""
    for name in ("dev", "dev_guard"):
        for line in (data / "contrast_dev" / f"{name}.jsonl").read_text().splitlines():
            row = json.loads(line)
            kind = "copied" if name == "dev_guard" else "true" if row["supported"] else "false"
            row |= {"contexts": row["chunks"], "source_id": row["pair"], "label": int(kind == "false"), "id": kind}
            yield split_answer("contrast", row)


def list_measured(data: Path) -> Iterator[LabelledAnswer]:
    """Yield all answers on which the stack is measured and was not fitted."""
    yield from list_contrast(data)
    yield from list_items("w7")
    yield from list_ragtruth(data, 1)
    for name in TRANSFER_SETS:
        for row in read_rows(data, name):
            if assign_fold(row["source_id"]) == 0:
                yield split_answer(name.split("_")[0], row)


def list_fitted(data: Path) -> Iterator[LabelledAnswer]:
    """Yield all answers on which the stack is fitted."""
    yield from list_items("authored")
    yield from list_ragtruth(data, 0)


def label_item(set_name: str, item: Item) -> LabelledAnswer:
    """Return an authored claim as an answer of one claim."""
    bad = int(LETTERS[item.label] != 0)
    identity = f"{item.unit} {item.version} {item.claim}"
    return LabelledAnswer(
        set_name, identity, item.unit, item.query, item.history, item.chunks, (item.claim,), (bad,), bad
    )


def list_other_languages(data: Path) -> Iterator[LabelledAnswer]:
    """Yield claims in other languages that were kept apart: authored ones, and some of the public sets."""
    items = [item for item in authored_items(OTHER_LANGUAGES) if is_measured(item.unit)]
    apart = [item for item in items if item.writer not in TEST_WRITERS]
    for item in random.Random(2).sample(apart, min(SAMPLES["authored"], len(apart))):
        yield label_item("authored", item)
    for name in ("indonli", "inferes", "farstail", "danish_fever"):
        rows = read_rows(data / "entailment_train", name)
        for row in sample_rows([row for row in rows if is_measured(row["source_id"])], SAMPLES["public"]):
            bad = int(row["label"] != "supported")
            yield LabelledAnswer(
                "public", str(row["id"]), row["source_id"], "", (), (row["premise"],), (row["claim"],), (bad,), bad
            )


def list_test_languages(data: Path) -> Iterator[LabelledAnswer]:
    """Yield claims in other languages by a writer on whom nothing was trained."""
    del data
    items = [item for item in authored_items(OTHER_LANGUAGES) if item.writer in TEST_WRITERS]
    for language in sorted(OTHER_LANGUAGES):
        chosen = [item for item in items if item.language == language]
        for item in random.Random(2).sample(chosen, min(SAMPLES["public"], len(chosen))):
            yield label_item(language, item)


def load_embedded_odds() -> dict[str, np.ndarray]:
    """Return the log-odds of the claims of each answer by weights of the embedded judge that had not seen it."""
    with np.load(EMBEDDED_ODDS) as arrays:
        places = pairwise(arrays["start"].tolist())
        return {
            str(name): arrays["odds"][start:end].astype(float)
            for name, (start, end) in zip(arrays["ids"], places, strict=True)
        }


def weigh_answers(answers: Iterator[LabelledAnswer]) -> list[WeighedAnswer]:
    """Return the answers that make claims, with the inputs of the stack.

    An answer of a set that the embedded judge learned from is left out if it has no unseen odds.
    """
    judge, unseen_odds = EncoderJudge(threads=1), load_embedded_odds()
    learned = {name.split(" ")[0] for name in unseen_odds}

    def weigh(answer: LabelledAnswer) -> WeighedAnswer | None:
        session: EncoderSession = judge.open_session(answer.query, answer.history)
        passages = [Passage(str(number), text) for number, text in enumerate(answer.chunks)]
        signs = session.read_signs(answer.claims, passages) if answer.claims else None
        if signs is None:
            return None
        if answer.set in learned:
            odds = unseen_odds.get(f"{answer.set} {answer.id}")
            if odds is None or len(odds) != len(answer.claims):
                return None
            signs = signs._replace(word_odds=odds)
        return WeighedAnswer(answer, signs.inputs, signs.is_verbatim)

    with use_one_thread(), ThreadPoolExecutor(count_threads()) as pool:
        return [item for item in pool.map(weigh, answers) if item is not None]
