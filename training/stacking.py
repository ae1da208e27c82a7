"""Fit how the judge minilm weighs its model and the embedded judge together.

    python -m training.embedded DATA --keep kept.npz
    python -m training.stacking DATA kept.npz [--answers 600] [--keep kept-minilm.npz]

On two halves of the sources that the model was not trained on (`--answers` of RAGTruth for each, and all of the
smaller sets), with what the embedded judge says of answers that it has not seen. Prints the AUROC on one half by what
was fitted on the other, and how the words that the model doubts agree with those that people marked. The relevance of
passages is weighed on pairs of fold 0 and on TREC DL 2019. With --keep the odds of the answers, of the half on which
the weighing was not fitted, are written as `training.embedded` writes those of the embedded judge.
"""

from __future__ import annotations

import argparse
import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from sklearn.linear_model import LogisticRegression
from training.embedded.examples import FOLDS, SETS, rows
from training.embedded.fitting import BASE_RATES, OTHERS, calibrate, halfway
from training.embedded.relevance import fold, graded, mined

from ragfault.judges.checks.claims import Claim, extract_claims, locate_words
from ragfault.judges.checks.passages import Passage
from ragfault.judges.embedded.support import TEXT_TYPES, WeighedClaims, combine_claims
from ragfault.judges.embedded.word_vectors import Array
from ragfault.judges.minilm.calibration import StackedCalibration, build_claim_inputs
from ragfault.judges.minilm.judge import MiniLMJudge, doubt_words
from ragfault.stats import auroc, auroc_within_groups

TARGET = Path(__file__).parents[1] / "src/ragfault/judges/minilm/stack.json"
HALVES = (0, 1)


class JudgedAnswer(NamedTuple):
    """An answer, and what both say of its claims."""

    set: str
    id: str
    half: int
    group: str
    shape: int
    bad: int
    answer_score: float
    """What the embedded judge says of the answer."""
    sides: Array
    marks: Array
    words: list[tuple[Array, Array]]
    """Of each claim of RAGTruth, which words the model doubts, and which ones people marked."""


def find_half(name: str, source: str) -> int:
    """Return the half of a source that the model was not trained on, or -1 where it was.

    It was trained on four of five folds of RAGTruth, and on three of the smaller sets.
    """
    number = fold(source)
    if name.startswith("ragtruth"):
        return zlib.crc32(source.encode()) // FOLDS % 2 if number == 0 else -1
    return number if number in HALVES else -1


def chosen(folder: Path, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the selected answers."""
    for name in SETS:
        for first in HALVES:
            content = [row for row in rows(folder, name) if find_half(name, row["source_id"]) == first]
            some = random.Random(first).sample(content, min(count, len(content)))
            yield from ((name.split("_")[0], row) for row in some)


def tell(folder: Path, retained: Path, count: int) -> Iterator[JudgedAnswer]:
    """Yield what both say of each answer."""
    with np.load(retained) as packed:
        place = {name: at for at, name in enumerate(packed["ids"].tolist())}
        start, odds, full = packed["start"], packed["odds"], packed["answers"]
    judge = MiniLMJudge(threads=2)
    for done, (name, row) in enumerate(chosen(folder, count)):
        at = place.get(f"{name} {row['id']}")
        message = extract_claims(row["answer"])
        if at is None or start[at + 1] - start[at] != len(message):
            continue
        texts = row["contexts"] if "contexts" in row else [row["passage"]]
        passages = [Passage(str(number), text) for number, text in enumerate(texts)]
        looked = judge.open_session(row.get("query") or "").weigh_with_model(
            [claim.text for claim in message], passages
        )
        if looked is None:
            continue
        both = [
            build_claim_inputs(*item) for item in zip(odds[start[at] : start[at + 1]].tolist(), looked[1], strict=True)
        ]
        spans = row.get("spans")
        words = [] if spans is None else [
            (doubt_words(looked[0], at, looked[2][at], looked[1][at]), marked(claim, looked[0], at, spans))
            for at, claim in enumerate(message)
        ]  # fmt: skip
        if spans is None:
            marks = [row["label"] if len(message) == 1 or not row["label"] else -1] * len(message)
        else:
            marks = [
                int(any(item.start < span["end"] and span["start"] < item.end for span in spans)) for item in message
            ]
        yield JudgedAnswer(
            name, str(row["id"]), find_half(name, row["source_id"]), f"{row.get('task')} {row.get('model')}",
            TEXT_TYPES.index(looked[0].text_type), int(row["label"]), float(full[at]), np.array(both), np.array(marks),
            words,
        )  # fmt: skip
        if done % 200 == 0:
            print(f"{done:,} answers", flush=True)


def marked(claim: Claim, weighed: WeighedClaims, number: int, spans: list[dict[str, Any]]) -> Array:
    """Return for each word of a claim whether people marked it."""
    check = weighed.checks[number]
    located = locate_words(claim.text, check.statement.tokens if check is not None else ())
    return np.array([
        word is not None
        and any(claim.start + word[0] < span["end"] and span["start"] < claim.start + word[1] for span in spans)
        for word in located
    ], dtype=bool)  # fmt: skip


def report_words(reported: list[JudgedAnswer], of_claims: Array) -> None:
    """Print how many of the words in doubt people had marked, of the claims that are most improbable.

    As many claims count as improbable as people marked.
    """
    words = [pair for item in reported for pair in item.words]
    inside = np.repeat([bool(item.words) for item in reported], [len(item.marks) for item in reported])
    odds, marks = of_claims[inside], np.concatenate([item.marks for item in reported])[inside]
    worst = np.argsort(-odds, kind="stable")[: int(marks.sum())]
    doubted, people = (np.concatenate([words[at][side] for at in worst]) for side in (0, 1))
    print(
        f"words of {len(worst):,} claims: {people.mean():.2f} marked by people; in doubt {doubted.mean():.2f}, "
        f"of these marked {people[doubted].mean():.2f}; of those marked in doubt {doubted[people].mean():.2f}"
    )


def plain(values: Array, labels: Array, weights: Array, ridge: float) -> tuple[float, ...]:
    """Return a logistic regression on scaled values, as weights of the values themselves, the intercept last."""
    mean, deviation = values.mean(0), values.std(0) + 1e-9
    model = LogisticRegression(C=ridge, max_iter=2000).fit((values - mean) / deviation, labels, sample_weight=weights)
    slopes = model.coef_[0] / deviation
    return (*slopes.round(5).tolist(), round(float(model.intercept_[0] - slopes @ mean), 5))


def put(values: Array, weights: tuple[float, ...]) -> Array:
    """Return the log-odds by such weights."""
    reported: Array = values @ np.array(weights[:-1]) + weights[-1]
    return reported


def fit(reported: list[JudgedAnswer]) -> tuple[float, ...]:
    """Fit the weights of a claim's numbers."""
    values, marks = (
        np.concatenate([item.sides for item in reported]),
        np.concatenate([item.marks for item in reported]),
    )
    counts = np.array([1.0 if item.set == "ragtruth" else OTHERS for item in reported])
    known = marks >= 0
    return plain(values[known], marks[known], np.repeat(counts, [len(item.marks) for item in reported])[known], 1.0)


def report(reported: list[JudgedAnswer]) -> tuple[Array, Array]:
    """Print the figures on each half by what was fitted on the other; return the odds of claims and answers."""
    halves = np.array([item.half for item in reported])
    of_claims: list[Array] = [np.zeros(0)] * len(reported)
    of_answers = np.zeros(len(reported))
    for first in HALVES:
        weights = fit([item for item in reported if item.half != first])
        for at in np.flatnonzero(halves == first):
            of_claims[at] = put(reported[at].sides, weights)
            of_answers[at] = combine_claims(of_claims[at])
    bad, sets = np.array([item.bad for item in reported]), np.array([item.set for item in reported])
    full = np.array([item.answer_score for item in reported])
    for name in dict.fromkeys(sets):
        inside = sets == name
        groups = [item.group for item in reported if item.set == name]
        for label, score in (("embedded", full), ("minilm", of_answers)):
            inner = auroc_within_groups(score[inside], bad[inside], groups)
            print(f"{name:16} {label:9} n {inside.sum():5,}  AUROC {auroc(score[inside], bad[inside]):.3f}  "
                  f"within {inner.value if inner else float('nan'):.3f}")  # fmt: skip
    return np.concatenate(of_claims), of_answers


def lines(reported: list[JudgedAnswer], of_claims: Array, of_answers: Array) -> dict[str, list[tuple[float, float]]]:
    """Return the calibration of each shape."""
    shapes, bad = np.array([item.shape for item in reported]), np.array([item.bad for item in reported])
    marks = np.concatenate([item.marks for item in reported])
    owner = np.repeat(shapes, [len(item.marks) for item in reported])
    result: dict[str, list[tuple[float, float]]] = {"claim_lines": [], "answer_lines": []}
    for kind, name in enumerate(TEXT_TYPES):
        content = (owner == kind) & (marks >= 0)
        result["claim_lines"].append(calibrate(of_claims[content], marks[content], BASE_RATES[name]))
        content = shapes == kind
        result["answer_lines"].append(calibrate(of_answers[content], bad[content], halfway(bad[content])))
    return result


def passages(folder: Path) -> tuple[float, ...]:
    """Fit the relevance of passages."""
    chance = random.Random(4)
    pairs = [item for item in (*graded(folder), *mined(folder)) if item.fold == 0 or item.set == "trec_dl19"]
    pairs = [pair for pair in pairs if chance.random() < 0.4]
    session = MiniLMJudge(threads=2).open_session()
    result = np.array([[session.measure_closeness(pair.query, pair.passage)] for pair in pairs])
    labels = np.array([pair.relevant for pair in pairs])
    sets = np.array([pair.set for pair in pairs])
    weights = np.zeros(len(pairs))
    for name in dict.fromkeys(sets):
        for label in (0, 1):
            content = (sets == name) & (labels == label)
            weights[content] = 1 / max(1, content.sum())
    weights /= weights.mean()
    for name in dict.fromkeys(sets):
        content = sets == name
        value = auroc(result[content, 0], labels[content]) or float("nan")
        print(f"{name:16} n {content.sum():5,}  AUROC {value:.3f}", flush=True)
    return plain(result, labels, weights, 0.3)


def main() -> None:
    """Look, fit, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("kept", type=Path)
    parser.add_argument("--answers", type=int, default=600)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    relevance = passages(options.data)
    reported = list(tell(options.data, options.kept, options.answers))
    of_claims, of_answers = report(reported)
    report_words(reported, of_claims)
    if options.keep:
        np.savez_compressed(
            options.keep,
            ids=np.array([f"{item.set} {item.id}" for item in reported]),
            start=np.cumsum([0, *(len(item.marks) for item in reported)]),
            odds=of_claims,
            answers=of_answers,
        )
    stack = StackedCalibration(fit(reported), relevance, **lines(reported, of_claims, of_answers))  # type: ignore[arg-type]
    TARGET.write_bytes(msgspec.json.format(msgspec.json.encode(stack)) + b"\n")
    print(TARGET.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
