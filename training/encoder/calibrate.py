"""Fit on the packed weights what is read beside entailment: python -m training.encoder.calibrate DATA.

Each smaller head gets a last layer of its own, a logistic regression on what the encoder makes of the pairs of its
kind: the training of the encoder sees too few of them. The stack weighs what the encoder reads of a claim with what the
embedded judge finds in its words (`training/encoder/stacking.py`); it is fitted on groups that no training has seen.
With `--model multilingual` the heads of that model are fitted, on texts in other languages than English. Writes
`heads.npz`, and prints how each head does on pairs that were kept apart, and the stack beside the judge embedded
on sets that it was not fitted on. `--stack` fits the stack alone and leaves the other heads as they are.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
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
from ragfault.judges.encoder.model import ENGLISH, HEADS, MULTILINGUAL, EncoderModel, load_encoder, load_heads
from ragfault.judges.numeric_threads import use_one_thread
from ragfault.model.gold_evidence import AGREEMENT_UNSURE
from ragfault.stats.classification import auroc
from training.data_files import iterate_rows
from training.encoder.relevance import fit_answering, fit_relevance
from training.encoder.rows import (
    LANGUAGES,
    OTHER_LANGUAGES,
    Pair,
    authored_items,
    authored_lines,
    authored_replies,
    is_authored,
    is_measured,
    is_test_writer,
    reply_rows,
)
from training.encoder.stacking import fit_multilingual_stack, fit_stack

FOLDER = Path(__file__).parents[2] / "src/ragfault/judges/encoder"
# Replies of the public sets, and answers of each label, that a head is fitted on: more take longer and change little.
PUBLIC_REPLIES, PUBLIC_ANSWERS = 2_500, 600
STATEMENTS = {ENGLISH: 9_000, MULTILINGUAL: 2_000}
# Authored claims among the statements in English, and the share of replies in English that come behind an opening, too.
CLAIMS, OPENED = 6_000, 0.3
OPENINGS = ("**Answer:**\n\n- ", "Hi, thanks for your question. ", "Sure! ", "## Answer\n", "Answer: ", "Hello! ")
REPLY_RIDGE, AGREEMENT_RIDGE = 0.1, 0.01
AUTHORED_WEIGHT = 2.0
# Of each language the second model is fitted on at most so many references: English has far more than the others.
MOST_REFERENCES = 100
# At most this share of answers may be called refusals: the mean of authored ones, which were written to look alike, of
# public ones, and of plain statements.
ANSWERS_REFUSED = {ENGLISH: 0.017, MULTILINGUAL: 0.02}


class KeyedAnswer(NamedTuple):
    """An answer beside the reference that is nearest to it."""

    group: str
    query: str
    reference: str
    answer: str
    same: bool


def keyed_answers(data: Path, model: str) -> Iterator[KeyedAnswer]:
    """Yield authored answers beside their references; in English also some of EVOUNA TriviaQA of each label."""
    for language in sorted(LANGUAGES[model]):
        lines = list(authored_lines("keys", frozenset({language})))
        if model != ENGLISH:
            lines = random.Random(5).sample(lines, min(MOST_REFERENCES, len(lines)))
        for group, row in lines:
            for text, label in row["answers"]:
                yield KeyedAnswer(group, row["query"], row["reference"], text, label == "same")
    if model != ENGLISH:
        return
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


def sampled_replies(data: Path, model: str) -> dict[str, list[Pair]]:
    """Return all authored replies, in English some of the others, and as answers some claims that refuse nothing.

    A part of the English replies comes once more behind an opening, which does not change whether they refuse.
    """
    authored, chance = list(authored_replies(LANGUAGES[model])), random.Random(1)
    if model == ENGLISH:
        authored += [
            replace(pair, second=chance.choice(OPENINGS) + pair.second) for pair in authored if chance.random() < OPENED
        ]
    public = [pair for pair in reply_rows()(data) if not is_authored(pair.group)] if model == ENGLISH else []
    claims = list(list_claims(OTHER_LANGUAGES if model == MULTILINGUAL else LANGUAGES[ENGLISH]))
    statements = claims if model == MULTILINGUAL else [*list_statements(data), *chance.sample(claims, CLAIMS)]
    return {
        "authored": authored,
        "public": chance.sample(public, min(PUBLIC_REPLIES, len(public))),
        "statements": chance.sample(statements, min(STATEMENTS[model], len(statements))),
    }


def list_claims(languages: frozenset[str]) -> Iterator[Pair]:
    """Yield the authored claims of some languages as answers to their questions, but those that refuse."""
    for item in authored_items(languages):
        if item.kind != "refusal_partial":
            yield Pair(item.unit, item.query, item.claim, "reply", HEADS["reply"].index("answer"))


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
    with use_one_thread(), ThreadPoolExecutor(count_threads()) as pool:
        return np.stack(list(pool.map(lambda pair: model.read_features(model.encode(pair.second, pair.first)), pairs)))


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


def fit_refusals(name: str, data: Path) -> dict[str, np.ndarray]:
    """Fit what the encoder reads and what the words tell of a refusal, and print figures of replies that were kept.

    Both give log-odds; a third regression, on predictions for folds that they were not fitted on, weighs them.
    """
    sampled = sampled_replies(data, name)
    pairs = [pair for kind in sampled.values() for pair in kind]
    kinds = np.repeat(list(sampled), list(map(len, sampled.values())))
    features, terms = read_pairs(load_encoder(name), pairs), count_terms(pairs)
    labels = np.array([pair.label for pair in pairs])
    refuses = labels == HEADS["reply"].index("refusal")
    authored = np.array([is_authored(pair.group) for pair in pairs])
    fitted = ~np.array([is_measured(pair.group) for pair in pairs])
    weights = np.where(authored, AUTHORED_WEIGHT, 1.0)
    groups = np.array([pair.group for pair in pairs])[fitted]
    reading = make_pipeline(StandardScaler(), LogisticRegression(C=REPLY_RIDGE, max_iter=300))
    wording = LogisticRegression(max_iter=500, solver="liblinear")
    folded, layers = [], []
    for layer, inputs, argument in (
        (reading, features, "logisticregression__sample_weight"),
        (wording, terms, "sample_weight"),
    ):
        fitting = {argument: weights[fitted]}
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
    answers = labels == HEADS["reply"].index("answer")
    folded_odds = both.decision_function(np.column_stack(folded))
    threshold = choose_refusal_threshold(
        [folded_odds[(answers & (kinds == kind))[fitted]] for kind in sampled], ANSWERS_REFUSED[name]
    )
    for kind in sampled:
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


def choose_refusal_threshold(odds_of_answers: list[np.ndarray], most: float) -> float:
    """Return the lowest log-odds from which at most so many answers are called refusals, each kind counting alike."""
    candidates = np.arange(-1, 5, 0.05).round(2)
    return float(
        next(
            odds
            for odds in candidates
            if np.mean([(kind >= odds).mean() for kind in odds_of_answers if len(kind)]) <= most
        )
    )


def fit_agreement(name: str, data: Path) -> dict[str, np.ndarray]:
    """Fit the agreement head, and print figures of answers that were kept."""
    rows, model = list(keyed_answers(data, name)), load_encoder(name)
    with use_one_thread(), ThreadPoolExecutor(count_threads()) as pool:
        features = np.stack(
            list(pool.map(lambda row: model.read_agreement(row.query, row.reference, row.answer), rows))
        )
    labels = np.array([row.same for row in rows])
    measured = np.array([is_measured(row.group) for row in rows])
    authored = np.array([is_authored(row.group) for row in rows])
    layer = make_pipeline(StandardScaler(), LogisticRegression(C=AGREEMENT_RIDGE, max_iter=300))
    layer.fit(features[~measured], labels[~measured])
    other = np.array([is_test_writer(row.group) for row in rows])
    # The encoder itself was trained on the fitted pairs, and is surer of them than of others.
    odds, apart = layer.decision_function(features), measured & ~other
    line = LogisticRegression(C=10.0).fit(odds[apart, None], labels[apart])
    predicted = line.predict_proba(odds[:, None])[:, 1]
    parts = {
        "authored": measured & authored & ~other,
        "authored, other languages": measured & np.array([row.group[:2] in OTHER_LANGUAGES for row in rows]),
        "authored, another writer": other,
        "public": measured & ~authored,
    }
    for part, chosen in parts.items():
        if not chosen.any():
            continue
        accuracy = ((predicted >= 0.5) == labels)[chosen].mean()
        area = auroc(predicted[chosen].tolist(), labels[chosen].tolist())
        print("agreement", part, int(chosen.sum()), f"accuracy {accuracy:.3f} AUROC {area:.3f}", end=" ")
        wrongly = ((predicted < AGREEMENT_UNSURE[0]) & labels)[chosen].sum() / max(1, labels[chosen].sum())
        print(f"right ones called wrong {wrongly:.3f}", flush=True)
    weights, bias = fold_scaling(layer)
    slope = line.coef_[0, 0]
    return {"agreement.weights": slope * weights[:, 0], "agreement.bias": slope * bias[0] + line.intercept_[0]}


def main() -> None:
    """Fit everything and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", choices=[ENGLISH, MULTILINGUAL], default=ENGLISH)
    parser.add_argument("--stack", action="store_true", help="fit the stack alone")
    options = parser.parse_args()
    target = FOLDER / options.model / "heads.npz"
    if options.stack:
        heads = load_heads(options.model)
        fitted = {name: value for name, value in heads.items() if name.startswith(("refusal", "agreement"))}
    else:
        fitted = fit_refusals(options.model, options.data) | fit_agreement(options.model, options.data)
    stack = fit_stack(options.data) if options.model == ENGLISH else fit_multilingual_stack(options.data)
    stack = stack._replace(
        relevance=fit_relevance(options.model, options.data), answering=fit_answering(options.model, options.data)
    )
    fitted |= {f"stack.{name}": value for name, value in stack._asdict().items()}
    np.savez_compressed(target, **{name: np.asarray(value, np.float32) for name, value in fitted.items()})
    print({name: value.tolist() for name, value in fitted.items() if value.size < 11})


if __name__ == "__main__":
    main()
