"""Fit on the packed weights what is read beside entailment: python -m training.encoder.calibrate DATA.

Each smaller head gets a last layer of its own, a logistic regression on what the encoder makes of the pairs of its
kind: the training of the encoder sees too few of them. The stack weighs what the encoder reads of a claim with what the
embedded judge finds in its words (`training/encoder/stacking.py`); it is fitted on groups that no training has seen.
Writes `heads.npz`, and prints how each head does on pairs that were kept apart, and the stack beside the judge embedded
on sets that it was not fitted on. `--stack` fits the stack alone and leaves the other heads as they are.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from ragfault.judges.checks.claims import extract_claims
from ragfault.judges.checks.refusals import SLOTS, hash_words
from ragfault.judges.encoder.agreement import select_references
from ragfault.judges.encoder.judge import count_threads
from ragfault.judges.encoder.model import HEADS, EncoderModel, encode_pair, load_encoder, load_heads, load_tokenizer
from ragfault.judges.numeric_threads import use_one_thread
from ragfault.stats.classification import auroc
from training.data_files import iterate_rows
from training.encoder.relevance import fit_relevance
from training.encoder.rows import Pair, authored_lines, is_authored, is_measured, is_test_writer, reply_rows
from training.encoder.stacking import fit_stack

TARGET = Path(__file__).parents[2] / "src/ragfault/judges/encoder/heads.npz"
# Replies of the public sets, and answers of each label, that a head is fitted on: more take longer and change little.
PUBLIC_REPLIES, PUBLIC_ANSWERS = 2_500, 600
STATEMENTS = 9_000
KINDS = ("authored", "public", "statements")
REPLY_RIDGE, AGREEMENT_RIDGE = 0.1, 0.01
AUTHORED_WEIGHT = 2.0
# At most this share of answers may be called refusals: the mean of authored ones, which were written to look alike, of
# public ones, and of plain statements.
ANSWERS_REFUSED = 0.005


class KeyedAnswer(NamedTuple):
    """An answer beside the reference that is nearest to it."""

    group: str
    query: str
    reference: str
    answer: str
    same: bool


def keyed_answers(data: Path) -> Iterator[KeyedAnswer]:
    """Yield authored answers beside their references, and some answers of EVOUNA TriviaQA of each label."""
    for group, row in authored_lines("keys"):
        for text, label in row["answers"]:
            yield KeyedAnswer(group, row["query"], row["reference"], text, label == "same")
    rows = [
        row
        for row in iterate_rows(data / "entailment_train" / "answers.jsonl.gz")
        if row["part"] == "evouna_tq" and row["claim"].strip()
    ]
    random.Random(3).shuffle(rows)
    for same in (True, False):
        for row in [row for row in rows if (row["label"] == "supported") == same][:PUBLIC_ANSWERS]:
            [reference] = select_references(row["claim"], row["premise"].split("; "))[:1]
            yield KeyedAnswer(row["source_id"], row["query"], reference, row["claim"], same)


def sampled_replies(data: Path) -> list[Pair]:
    """Return all authored replies, some of the others, and as answers some claims that refuse nothing."""
    pairs = list(reply_rows(data))
    public = [pair for pair in pairs if not is_authored(pair.group)]
    authored = [pair for pair in pairs if is_authored(pair.group)]
    chance = random.Random(1)
    statements = list(list_statements(data))
    return authored + chance.sample(public, min(PUBLIC_REPLIES, len(public))) + chance.sample(statements, STATEMENTS)


def list_statements(data: Path) -> Iterator[Pair]:
    """Yield claims with their questions as answers: each sentence of a reply is asked whether it refuses.

    Without them the head, which saw only whole replies that were written or chosen to look like refusals, takes
    advice, opinions and denials for refusals.
    """
    answer = HEADS["reply"].index("answer")
    for name in ("expertqa", "lingnli", "fever", "condaqa"):
        for row in iterate_rows(data / "entailment_train" / f"{name}.jsonl.gz"):
            yield Pair(row["source_id"], row.get("query") or "", row["claim"], "reply", answer)
    for row in iterate_rows(data / "ragtruth_train.jsonl.gz"):
        for claim in extract_claims(row["answer"])[:2]:
            yield Pair(str(row["source_id"]), row["query"], claim.text, "reply", answer)


def read_pairs(model: EncoderModel, pairs: list[Pair]) -> np.ndarray:
    """Return one row of features a pair."""
    tokenizer = load_tokenizer()
    with use_one_thread(), ThreadPoolExecutor(count_threads()) as pool:
        return np.stack(
            list(pool.map(lambda pair: model.read_features(encode_pair(tokenizer, pair.second, pair.first)), pairs))
        )


def fold_scaling(layer: Pipeline) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and bias that need no scaled features; of two classes the odds of the second alone."""
    scaler, regression = layer[0], layer[1]
    weights = (regression.coef_ / scaler.scale_).T
    return weights, regression.intercept_ - scaler.mean_ @ weights


def count_terms(pairs: list[Pair]) -> csr_matrix:
    """Return which terms each reply has, a row a reply."""
    slots = [hash_words(pair.second) for pair in pairs]
    ends = np.cumsum([0, *map(len, slots)])
    return csr_matrix((np.ones(ends[-1]), np.concatenate(slots), ends), shape=(len(pairs), SLOTS))


def fit_refusals(model: EncoderModel, data: Path) -> dict[str, np.ndarray]:
    """Fit what the encoder reads and what the words tell of a refusal, and print figures of replies that were kept.

    Both give log-odds; a third regression, on predictions for folds that they were not fitted on, weighs them.
    """
    pairs = sampled_replies(data)
    features, terms = read_pairs(model, pairs), count_terms(pairs)
    labels = np.array([pair.label for pair in pairs])
    refuses = labels == HEADS["reply"].index("refusal")
    authored = np.array([is_authored(pair.group) for pair in pairs])
    fitted = ~np.array([is_measured(pair.group) for pair in pairs])
    weights = np.where(authored, AUTHORED_WEIGHT, 1.0)
    groups = np.array([pair.group for pair in pairs])[fitted]
    reading = make_pipeline(StandardScaler(), LogisticRegression(C=REPLY_RIDGE, max_iter=300))
    wording = LogisticRegression(max_iter=500, solver="liblinear")
    folded, layers = [], []
    for layer, inputs, name in (
        (reading, features, "logisticregression__sample_weight"),
        (wording, terms, "sample_weight"),
    ):
        fitting = {name: weights[fitted]}
        folded.append(
            cross_val_predict(
                layer, inputs[fitted], refuses[fitted],
                groups=groups, cv=GroupKFold(4), method="decision_function", params=fitting,
            )
        )  # fmt: skip
        layers.append(layer.fit(inputs[fitted], refuses[fitted], **fitting))
    both = LogisticRegression(C=10.0).fit(np.column_stack(folded), refuses[fitted], sample_weight=weights[fitted])
    read_weight, word_weight = both.coef_[0]
    odds = both.decision_function(
        np.column_stack(
            [layer.decision_function(inputs) for layer, inputs in zip(layers, (features, terms), strict=True)]
        )
    )
    kinds = name_kinds(pairs)
    answers = labels == HEADS["reply"].index("answer")
    folded_odds = both.decision_function(np.column_stack(folded))
    threshold = choose_refusal_threshold([folded_odds[(answers & (kinds == kind))[fitted]] for kind in KINDS])
    for kind in KINDS:
        shares = {
            label: round(float((odds >= threshold)[~fitted & (kinds == kind) & (labels == number)].mean()), 3)
            for number, label in enumerate(HEADS["reply"])
            if (~fitted & (kinds == kind) & (labels == number)).any()
        }
        print("called refusals", kind, int((~fitted & (kinds == kind)).sum()), shares, flush=True)
    vector, bias = fold_scaling(layers[0])
    return {
        "refusal.weights": read_weight * vector[:, 0],
        "refusal.words": word_weight * layers[1].coef_[0],
        "refusal.bias": read_weight * bias[0] + word_weight * layers[1].intercept_[0] + both.intercept_[0],
        "refusal.threshold": np.array(threshold),
    }


def name_kinds(pairs: list[Pair]) -> np.ndarray:
    """Return of which of `KINDS` each pair is."""
    replies = len(pairs) - STATEMENTS
    return np.array([
        "statements" if place >= replies else "authored" if is_authored(pair.group) else "public"
        for place, pair in enumerate(pairs)
    ])  # fmt: skip


def choose_refusal_threshold(odds_of_answers: list[np.ndarray]) -> float:
    """Return the lowest log-odds from which at most so many answers are called refusals, each kind counting alike."""
    candidates = np.arange(-1, 5, 0.05).round(2)
    return float(
        next(
            odds
            for odds in candidates
            if np.mean([(kind >= odds).mean() for kind in odds_of_answers]) <= ANSWERS_REFUSED
        )
    )


def fit_agreement(model: EncoderModel, data: Path) -> dict[str, np.ndarray]:
    """Fit the agreement head, and print figures of answers that were kept."""
    rows = list(keyed_answers(data))
    with use_one_thread(), ThreadPoolExecutor(count_threads()) as pool:
        features = np.stack(
            list(pool.map(lambda row: model.read_agreement(row.query, row.reference, row.answer), rows))
        )
    labels = np.array([row.same for row in rows])
    measured = np.array([is_measured(row.group) for row in rows])
    authored = np.array([is_authored(row.group) for row in rows])
    layer = make_pipeline(StandardScaler(), LogisticRegression(C=AGREEMENT_RIDGE, max_iter=300))
    layer.fit(features[~measured], labels[~measured])
    predicted = layer.predict_proba(features)[:, 1]
    other = np.array([is_test_writer(row.group) for row in rows])
    parts = {
        "authored": measured & authored & ~other,
        "authored, another writer": other,
        "public": measured & ~authored,
    }
    for name, chosen in parts.items():
        accuracy = ((predicted >= 0.5) == labels)[chosen].mean()
        area = auroc(predicted[chosen].tolist(), labels[chosen].tolist())
        print("agreement", name, int(chosen.sum()), f"accuracy {accuracy:.3f} AUROC {area:.3f}", flush=True)
    weights, bias = fold_scaling(layer)
    return {"agreement.weights": weights[:, 0], "agreement.bias": bias[0]}


def main() -> None:
    """Fit everything and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--stack", action="store_true", help="fit the stack alone")
    options = parser.parse_args()
    model = load_encoder()
    if options.stack:
        fitted = {name: value for name, value in load_heads().items() if name.startswith(("refusal", "agreement"))}
    else:
        fitted = fit_refusals(model, options.data) | fit_agreement(model, options.data)
    stack = fit_stack(options.data)._replace(relevance=fit_relevance(model, options.data))
    fitted |= {f"stack.{name}": value for name, value in stack._asdict().items()}
    np.savez_compressed(TARGET, **{name: np.asarray(value, np.float32) for name, value in fitted.items()})
    print({name: value.tolist() for name, value in fitted.items() if value.size < 11})


if __name__ == "__main__":
    main()
