"""Fit the weights by which the judge minilm combines its model with the embedded judge.

    python -m training.embedded DATA --keep kept.npz
    python -m training.stacking DATA kept.npz [--answers 600] [--keep kept-minilm.npz]

Fitted on two halves of the sources that the model was not trained on (at most `--answers` of each set in each half),
with the cross-fitted predictions of the embedded judge. Prints the AUROC on each half by weights fitted on the other,
and how far the words that the model doubts agree with those that people marked. The weights for the relevance of
passages are fitted on pairs of fold 0 and on TREC DL 2019. With --keep the cross-fitted log-odds of the answers are
written as `training.embedded` writes those of the embedded judge.
"""

from __future__ import annotations

import argparse
import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from sklearn.linear_model import LogisticRegression

from ragfault.judges.checks.claims import Claim, extract_claims, locate_words
from ragfault.judges.checks.passages import Passage
from ragfault.judges.embedded.support import TEXT_TYPES, WeighedClaims, combine_claims
from ragfault.judges.embedded.word_vectors import Array
from ragfault.judges.minilm.calibration import StackedCalibration, build_claim_inputs
from ragfault.judges.minilm.judge import MiniLMJudge, doubt_words
from ragfault.stats.classification import auroc, auroc_within_groups
from training.data_files import FOLDS, Row, assign_fold, read_rows
from training.embedded.altering import is_marked
from training.embedded.examples import SETS
from training.embedded.fitting import SMALL_SET_WEIGHT
from training.embedded.rates import BASE_RATES, calibrate, compute_prior
from training.embedded.relevance import balance_sets, generate_pairs, load_graded_pairs

TARGET = Path(__file__).parents[1] / "src/ragfault/judges/minilm/stack.json"
HALVES = (0, 1)


class JudgedAnswer(NamedTuple):
    """An answer, with the predictions of the embedded judge and of the model for its claims."""

    set: str
    id: str
    half: int
    group: str
    text_type: int
    bad: int
    embedded_odds: float
    """The cross-fitted log-odds of the answer by the embedded judge."""
    claim_inputs: Array
    marks: Array
    words: list[tuple[Array, Array]]
    """Of each claim of RAGTruth, which words the model doubts, and which ones people marked."""


def assign_half(name: str, source: str) -> int:
    """Return the half of a source that the model was not trained on, or -1 where it was.

    It was trained on four of five folds of RAGTruth, and on three of the smaller sets.
    """
    number = assign_fold(source)
    if name.startswith("ragtruth"):
        return zlib.crc32(source.encode()) // FOLDS % 2 if number == 0 else -1
    return number if number in HALVES else -1


def sample_answers(folder: Path, count: int) -> Iterator[tuple[str, Row]]:
    """Yield at most so many answers of each set and half, each with the name of its set."""
    for name in SETS:
        for half in HALVES:
            candidates = [row for row in read_rows(folder, name) if assign_half(name, row["source_id"]) == half]
            selected = random.Random(half).sample(candidates, min(count, len(candidates)))
            yield from ((name.split("_")[0], row) for row in selected)


def judge_answers(folder: Path, predictions_file: Path, count: int) -> Iterator[JudgedAnswer]:
    """Yield the sampled answers that both judge and predictions have, with the same number of claims."""
    with np.load(predictions_file) as arrays:
        positions = {name: position for position, name in enumerate(arrays["ids"].tolist())}
        start, odds, answer_odds = arrays["start"], arrays["odds"], arrays["answers"]
    judge = MiniLMJudge(threads=2)
    for number, (name, row) in enumerate(sample_answers(folder, count)):
        position = positions.get(f"{name} {row['id']}")
        claims = extract_claims(row["answer"])
        if position is None or start[position + 1] - start[position] != len(claims):
            continue
        texts = row["contexts"] if "contexts" in row else [row["passage"]]
        passages = [Passage(str(number), text) for number, text in enumerate(texts)]
        judgement = judge.open_session(row.get("query") or "").weigh_with_model(
            [claim.text for claim in claims], passages
        )
        if judgement is None:
            continue
        weighed, logits, token_pairs = judgement
        answer_claim_odds = odds[start[position] : start[position + 1]].tolist()
        claim_inputs = [build_claim_inputs(*pair) for pair in zip(answer_claim_odds, logits, strict=True)]
        spans = row.get("spans")
        words = [] if spans is None else [
            (doubt_words(weighed, i, token_pairs[i], logits[i]), mark_words(claim, weighed, i, spans))
            for i, claim in enumerate(claims)
        ]  # fmt: skip
        if spans is None:
            marks = [row["label"] if len(claims) == 1 or not row["label"] else -1] * len(claims)
        else:
            marks = [int(is_marked(claim, spans)) for claim in claims]
        yield JudgedAnswer(
            name, str(row["id"]), assign_half(name, row["source_id"]), f"{row.get('task')} {row.get('model')}",
            TEXT_TYPES.index(weighed.text_type), int(row["label"]), float(answer_odds[position]),
            np.array(claim_inputs), np.array(marks), words,
        )  # fmt: skip
        if number % 200 == 0:
            print(f"{number:,} answers", flush=True)


def mark_words(claim: Claim, weighed: WeighedClaims, index: int, spans: list[Row]) -> Array:
    """Return a mask of the words of a claim that people marked."""
    check = weighed.checks[index]
    located = locate_words(claim.text, check.statement.tokens if check is not None else ())
    return np.array([
        word is not None
        and any(claim.start + word[0] < span["end"] and span["start"] < claim.start + word[1] for span in spans)
        for word in located
    ], dtype=bool)  # fmt: skip


def report_words(judged_answers: list[JudgedAnswer], claim_odds: Array) -> None:
    """Print precision and recall of the words in doubt, in as many of the most improbable claims as people marked."""
    words = [pair for item in judged_answers for pair in item.words]
    inside = np.repeat([bool(item.words) for item in judged_answers], [len(item.marks) for item in judged_answers])
    odds, marks = claim_odds[inside], np.concatenate([item.marks for item in judged_answers])[inside]
    worst = np.argsort(-odds, kind="stable")[: int(marks.sum())]
    doubted, marked = (np.concatenate([words[index][column] for index in worst]) for column in (0, 1))
    print(
        f"words of {len(worst):,} claims: {marked.mean():.2f} marked by people; in doubt {doubted.mean():.2f}, "
        f"of these marked {marked[doubted].mean():.2f}; of those marked in doubt {doubted[marked].mean():.2f}"
    )


def fit_logistic(values: Array, labels: Array, weights: Array, ridge: float) -> tuple[float, ...]:
    """Fit a logistic regression on scaled values; return weights of the values as they were, the intercept last."""
    mean, deviation = values.mean(0), values.std(0) + 1e-9
    model = LogisticRegression(C=ridge, max_iter=2000).fit((values - mean) / deviation, labels, sample_weight=weights)
    slopes = model.coef_[0] / deviation
    return (*slopes.round(5).tolist(), round(float(model.intercept_[0] - slopes @ mean), 5))


def apply_weights(values: Array, weights: tuple[float, ...]) -> Array:
    """Apply the weights of `fit_logistic`; return log-odds."""
    odds: Array = values @ np.array(weights[:-1]) + weights[-1]
    return odds


def fit_claim_weights(judged_answers: list[JudgedAnswer]) -> tuple[float, ...]:
    """Fit the weights of the inputs of a claim."""
    values, marks = (
        np.concatenate([item.claim_inputs for item in judged_answers]),
        np.concatenate([item.marks for item in judged_answers]),
    )
    counts = np.array([1.0 if item.set == "ragtruth" else SMALL_SET_WEIGHT for item in judged_answers])
    known = marks >= 0
    return fit_logistic(
        values[known], marks[known], np.repeat(counts, [len(item.marks) for item in judged_answers])[known], 1.0
    )


def cross_fit_halves(judged_answers: list[JudgedAnswer]) -> tuple[Array, Array]:
    """Return the log-odds of claims and answers of each half by weights fitted on the other; print the figures."""
    halves = np.array([item.half for item in judged_answers])
    claim_odds: list[Array] = [np.zeros(0)] * len(judged_answers)
    minilm_odds = np.zeros(len(judged_answers))
    for half in HALVES:
        weights = fit_claim_weights([item for item in judged_answers if item.half != half])
        for index in np.flatnonzero(halves == half):
            claim_odds[index] = apply_weights(judged_answers[index].claim_inputs, weights)
            minilm_odds[index] = combine_claims(claim_odds[index])
    bad, sets = np.array([item.bad for item in judged_answers]), np.array([item.set for item in judged_answers])
    embedded_odds = np.array([item.embedded_odds for item in judged_answers])
    for name in dict.fromkeys(sets):
        selected = sets == name
        groups = [item.group for item in judged_answers if item.set == name]
        for label, score in (("embedded", embedded_odds), ("minilm", minilm_odds)):
            within = auroc_within_groups(score[selected], bad[selected], groups)
            print(f"{name:16} {label:9} n {selected.sum():5,}  AUROC {auroc(score[selected], bad[selected]):.3f}  "
                  f"within {within.value if within else float('nan'):.3f}")  # fmt: skip
    return np.concatenate(claim_odds), minilm_odds


def calibrate_text_types(
    judged_answers: list[JudgedAnswer], claim_odds: Array, answer_odds: Array
) -> dict[str, list[tuple[float, float]]]:
    """Return the calibration of claims and of answers for each type of text."""
    text_types, bad = (
        np.array([item.text_type for item in judged_answers]),
        np.array([item.bad for item in judged_answers]),
    )
    marks = np.concatenate([item.marks for item in judged_answers])
    claim_types = np.repeat(text_types, [len(item.marks) for item in judged_answers])
    result: dict[str, list[tuple[float, float]]] = {"claim_lines": [], "answer_lines": []}
    for kind, name in enumerate(TEXT_TYPES):
        selected = (claim_types == kind) & (marks >= 0)
        result["claim_lines"].append(calibrate(claim_odds[selected], marks[selected], BASE_RATES[name]))
        selected = text_types == kind
        result["answer_lines"].append(calibrate(answer_odds[selected], bad[selected], compute_prior(bad[selected])))
    return result


def fit_relevance(folder: Path) -> tuple[float, ...]:
    """Fit the weights for the relevance of passages, and print the AUROC of their input."""
    rng = random.Random(4)
    pairs = [
        item
        for item in (*load_graded_pairs(folder), *generate_pairs(folder))
        if item.fold == 0 or item.set == "trec_dl19"
    ]
    pairs = [pair for pair in pairs if rng.random() < 0.4]
    session = MiniLMJudge(threads=2).open_session()
    closeness = np.array([[session.measure_closeness(pair.query, pair.passage)] for pair in pairs])
    labels = np.array([pair.relevant for pair in pairs])
    sets = np.array([pair.set for pair in pairs])
    for name in dict.fromkeys(sets):
        selected = sets == name
        value = auroc(closeness[selected, 0], labels[selected]) or float("nan")
        print(f"{name:16} n {selected.sum():5,}  AUROC {value:.3f}", flush=True)
    return fit_logistic(closeness, labels, balance_sets(sets, labels), 0.3)


def main() -> None:
    """Judge the sampled answers, measure and fit the weights, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("kept", type=Path)
    parser.add_argument("--answers", type=int, default=600)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    relevance = fit_relevance(options.data)
    judged_answers = list(judge_answers(options.data, options.kept, options.answers))
    claim_odds, answer_odds = cross_fit_halves(judged_answers)
    report_words(judged_answers, claim_odds)
    if options.keep:
        np.savez_compressed(
            options.keep,
            ids=np.array([f"{item.set} {item.id}" for item in judged_answers]),
            start=np.cumsum([0, *(len(item.marks) for item in judged_answers)]),
            odds=claim_odds,
            answers=answer_odds,
        )
    stack = StackedCalibration(
        fit_claim_weights(judged_answers), relevance, **calibrate_text_types(judged_answers, claim_odds, answer_odds)
    )  # type: ignore[arg-type]
    TARGET.write_bytes(msgspec.json.format(msgspec.json.encode(stack)) + b"\n")
    print(TARGET.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
