"""Fit how the judge minilm weighs its model and the embedded judge together.

    python -m training.embedded DATA --keep kept.npz
    python -m training.stacking DATA kept.npz [--answers 600]

On sources that the model was not trained on (folds 0 and 1; `--answers` of RAGTruth for each, and all of the smaller
sets), with what the embedded judge says of answers that it has not seen. Prints the AUROC on one fold by what was
fitted on the other. The relevance of passages is weighed on pairs of fold 0 and on TREC DL 2019.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from sklearn.linear_model import LogisticRegression
from training.embedded.examples import SETS, rows
from training.embedded.fitting import OTHERS, calibrate, halfway
from training.embedded.relevance import fold, graded, mined

from ragfault.judges.checks.claims import extract_claims
from ragfault.judges.checks.passages import Passage
from ragfault.judges.embedded.support import TEXT_TYPES
from ragfault.judges.embedded.vectors import Array
from ragfault.judges.minilm.calibration import StackedCalibration, build_claim_inputs, summarize_odds
from ragfault.judges.minilm.judge import MiniLMJudge
from ragfault.stats import auroc, auroc_within_groups

TARGET = Path(__file__).parents[1] / "src/ragfault/judges/cross/stack.json"
FOLDS = (0, 1)
PRIOR = 0.4


class Told(NamedTuple):
    """An answer, and what both say of its claims."""

    set: str
    fold: int
    group: str
    shape: int
    bad: int
    whole: float
    """What the embedded judge says of the answer."""
    sides: Array
    marks: Array


def chosen(folder: Path, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The answers that are looked at."""
    for name in SETS:
        for one in FOLDS:
            held = [row for row in rows(folder, name) if fold(row["source_id"]) == one]
            some = random.Random(one).sample(held, min(count, len(held)))
            yield from ((name.split("_")[0], row) for row in some)


def tell(folder: Path, kept: Path, count: int) -> Iterator[Told]:
    """What both say of each answer."""
    with np.load(kept) as packed:
        place = {name: at for at, name in enumerate(packed["ids"].tolist())}
        start, odds, whole = packed["start"], packed["odds"], packed["answers"]
    judge = MiniLMJudge(threads=2)
    for done, (name, row) in enumerate(chosen(folder, count)):
        at = place.get(f"{name} {row['id']}")
        said = extract_claims(row["answer"])
        if at is None or start[at + 1] - start[at] != len(said):
            continue
        texts = row["contexts"] if "contexts" in row else [row["passage"]]
        passages = [Passage(str(number), text) for number, text in enumerate(texts)]
        looked = judge.open_session(row.get("query") or "").weigh_with_model(
            [claim.text for claim in said], passages
        )
        if looked is None:
            continue
        both = [
            build_claim_inputs(*one)
            for one in zip(odds[start[at] : start[at + 1]].tolist(), looked[1], strict=True)
        ]
        spans = row.get("spans")
        if spans is None:
            marks = [row["label"] if len(said) == 1 or not row["label"] else -1] * len(said)
        else:
            marks = [
                int(any(one.start < span["end"] and span["start"] < one.end for span in spans))
                for one in said
            ]
        yield Told(
            name, fold(row["source_id"]), f"{row.get('task')} {row.get('model')}", TEXT_TYPES.index(looked[0].text_type),
            int(row["label"]), float(whole[at]), np.array(both), np.array(marks),
        )  # fmt: skip
        if done % 200 == 0:
            print(f"{done:,} answers", flush=True)


def plain(values: Array, labels: Array, weights: Array, ridge: float) -> tuple[float, ...]:
    """A logistic regression on scaled values, as weights of the values themselves, the intercept last."""
    mean, deviation = values.mean(0), values.std(0) + 1e-9
    model = LogisticRegression(C=ridge, max_iter=2000).fit(
        (values - mean) / deviation, labels, sample_weight=weights
    )
    slopes = model.coef_[0] / deviation
    return (*slopes.round(5).tolist(), round(float(model.intercept_[0] - slopes @ mean), 5))


def put(values: Array, weights: tuple[float, ...]) -> Array:
    """The log-odds by such weights."""
    told: Array = values @ np.array(weights[:-1]) + weights[-1]
    return told


class Fitted(NamedTuple):
    """The weights of claims and answers."""

    claims: tuple[float, ...]
    answers: tuple[float, ...]


def fit(told: list[Told]) -> Fitted:
    """Fit claims, then answers."""
    values, marks = np.concatenate([one.sides for one in told]), np.concatenate([one.marks for one in told])
    counts = np.array([1.0 if one.set == "ragtruth" else OTHERS for one in told])
    sizes = [len(one.marks) for one in told]
    known = marks >= 0
    of_claims = plain(values[known], marks[known], np.repeat(counts, sizes)[known], 1.0)
    return Fitted(
        of_claims, plain(answers(told, of_claims), np.array([one.bad for one in told]), counts, 0.3)
    )


def answers(told: list[Told], of_claims: tuple[float, ...]) -> Array:
    """What is weighed of each answer."""
    return np.array([[one.whole, *summarize_odds(put(one.sides, of_claims))] for one in told])


def report(told: list[Told]) -> tuple[Array, Array]:
    """Print the figures on each fold by what was fitted on the other; return the odds of claims and answers."""
    folds = np.array([one.fold for one in told])
    of_claims: list[Array] = [np.zeros(0)] * len(told)
    of_answers = np.zeros(len(told))
    for one in FOLDS:
        made = fit([each for each in told if each.fold != one])
        held = [each for each in told if each.fold == one]
        of_answers[folds == one] = put(answers(held, made.claims), made.answers)
        for at in np.flatnonzero(folds == one):
            of_claims[at] = put(told[at].sides, made.claims)
    bad, sets = np.array([one.bad for one in told]), np.array([one.set for one in told])
    whole = np.array([one.whole for one in told])
    for name in dict.fromkeys(sets):
        held_ = sets == name
        groups = [one.group for one in told if one.set == name]
        for label, score in (("embedded", whole), ("minilm", of_answers)):
            inner = auroc_within_groups(score[held_], bad[held_], groups)
            print(f"{name:16} {label:9} n {held_.sum():5,}  AUROC {auroc(score[held_], bad[held_]):.3f}  "
                  f"within {inner.value if inner else float('nan'):.3f}")  # fmt: skip
    return np.concatenate(of_claims), of_answers


def lines(told: list[Told], of_claims: Array, of_answers: Array) -> dict[str, list[tuple[float, float]]]:
    """The calibration of each shape."""
    shapes, bad = np.array([one.shape for one in told]), np.array([one.bad for one in told])
    marks = np.concatenate([one.marks for one in told])
    owner = np.repeat(shapes, [len(one.marks) for one in told])
    found: dict[str, list[tuple[float, float]]] = {"claim_lines": [], "answer_lines": []}
    for kind in range(len(TEXT_TYPES)):
        held = (owner == kind) & (marks >= 0)
        found["claim_lines"].append(calibrate(of_claims[held], marks[held], PRIOR))
        held = shapes == kind
        found["answer_lines"].append(calibrate(of_answers[held], bad[held], halfway(bad[held])))
    return found


def passages(folder: Path) -> tuple[float, ...]:
    """Fit the relevance of passages."""
    chance = random.Random(4)
    pairs = [one for one in (*graded(folder), *mined(folder)) if one.fold == 0 or one.set == "trec_dl19"]
    pairs = [one for one in pairs if chance.random() < 0.4]
    reading, values = MiniLMJudge(threads=2).open_session(), []
    for pair in pairs:
        logit = reading.predict_logit(pair.query, Passage("passage", pair.passage))
        values.append((logit, reading.measure_similarity(pair.query, pair.passage)))
    found, labels = np.array(values), np.array([one.relevant for one in pairs])
    sets = np.array([one.set for one in pairs])
    weights = np.zeros(len(pairs))
    for name in dict.fromkeys(sets):
        for label in (0, 1):
            held = (sets == name) & (labels == label)
            weights[held] = 1 / max(1, held.sum())
    weights /= weights.mean()
    for name in dict.fromkeys(sets):
        held = sets == name
        never = put(found[held], plain(found[~held], labels[~held], weights[~held], 0.3))
        told = (found[held, 0], found[held, 1], never)
        model, cosine, both = (auroc(one, labels[held]) or 0.0 for one in told)
        print(
            f"{name:16} n {held.sum():5,}  AUROC: model {model:.3f}  cosine {cosine:.3f}  both {both:.3f}",
            flush=True,
        )
    return plain(found, labels, weights, 0.3)


def main() -> None:
    """Look, fit, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("kept", type=Path)
    parser.add_argument("--answers", type=int, default=600)
    options = parser.parse_args()
    relevance = passages(options.data)
    told = list(tell(options.data, options.kept, options.answers))
    of_claims, of_answers = report(told)
    made = fit(told)
    stack = StackedCalibration(made.claims, made.answers, relevance, **lines(told, of_claims, of_answers))  # type: ignore[arg-type]
    TARGET.write_bytes(msgspec.json.format(msgspec.json.encode(stack)) + b"\n")
    print(TARGET.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
