"""Fit on the packed weights what is read beside entailment: python -m training.encoder.calibrate DATA.

Each smaller head gets a last layer of its own, a logistic regression on what the encoder makes of all pairs of its
kind: the training of the encoder sees too few of them. The log-odds of support are scaled and shifted so that they are
the odds on authored claims and on sentences of RAGTruth whose groups took no part in training, both sources alike.
Writes `heads.npz`, and prints how each head does on pairs that were kept apart. The test part is not used.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from ragfault.judges.encoder.model import (
    FITTED_HEADS,
    HEADS,
    OUTPUT_SIZE,
    EncoderModel,
    encode_pair,
    load_encoder,
    load_tokenizer,
)
from training.data_files import iterate_rows
from training.encoder.rows import (
    NOT_FIRST,
    TEST_WRITERS,
    Pair,
    authored_rows,
    is_authored,
    is_measured,
    key_rows,
    ragtruth_pairs,
    relevance_rows,
    reply_rows,
)

TARGET = Path(__file__).parents[2] / "src/ragfault/judges/encoder/heads.npz"
COUNT = 1_500
READERS: dict[str, Callable[[Path], Iterator[Pair]]] = {
    "agreement": key_rows,
    "relevance": relevance_rows,
    "reply": reply_rows,
}
# Pairs of the public sets that a head is fitted on: more take longer to read and change little.
PUBLIC_PAIRS = 2_500
RIDGE = 0.1
AUTHORED_WEIGHT = 2.0
# At most this share of answers may be called refusals: the mean of authored ones, which were written to look alike, and
# of others.
ANSWERS_REFUSED = 0.02


def sample_pairs(pairs: list[Pair]) -> list[Pair]:
    """Return all authored pairs, and some of the others, with a known class."""
    known = [pair for pair in pairs if pair.label != NOT_FIRST]
    public = [pair for pair in known if not is_authored(pair.group)]
    return [pair for pair in known if is_authored(pair.group)] + random.Random(1).sample(
        public, min(PUBLIC_PAIRS, len(public))
    )


def read_features(model: EncoderModel, pairs: list[Pair]) -> np.ndarray:
    """Return one row of features a pair."""
    tokenizer = load_tokenizer()
    return np.stack([model.read_features(encode_pair(tokenizer, pair.second, pair.first)) for pair in pairs])


def fit_head(features: np.ndarray, pairs: list[Pair]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fit a head; return its weights, its bias, and what folds that did not see a pair give it."""
    labels = np.array([pair.label for pair in pairs])
    weights = np.where([is_authored(pair.group) for pair in pairs], AUTHORED_WEIGHT, 1.0)
    layer = make_pipeline(StandardScaler(), LogisticRegression(C=RIDGE, max_iter=300))
    fold = {"logisticregression__sample_weight": weights}
    predicted = cross_val_predict(
        layer, features, labels, groups=[pair.group for pair in pairs], cv=GroupKFold(4), method="predict_proba",
        params=fold,
    )  # fmt: skip
    layer.fit(features, labels, **fold)
    return (*fold_scaling(layer), predicted)


def fold_scaling(layer: Pipeline) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and bias that need no scaled features."""
    scaler, regression = layer[0], layer[1]
    coefficients, intercept = regression.coef_, regression.intercept_
    if len(intercept) == 1:
        # Of two classes the regression has the odds of the second alone.
        coefficients, intercept = np.vstack([0 * coefficients, coefficients]), np.array([0, intercept[0]])
    weights = (coefficients / scaler.scale_).T
    return weights, intercept - scaler.mean_ @ weights


def choose_refusal_threshold(predicted: np.ndarray, pairs: list[Pair]) -> float:
    """Return the lowest probability from .5 on from which at most so many answers are called refusals."""
    answer = HEADS["reply"].index("answer")
    kinds = [
        np.array(
            [
                p
                for p, pair in zip(predicted[:, 0], pairs, strict=True)
                if pair.label == answer and kind == is_authored(pair.group)
            ]
        )
        for kind in (True, False)
    ]
    candidates = np.arange(0.5, 1, 0.01).round(2)
    return float(next(p for p in candidates if np.mean([(kind >= p).mean() for kind in kinds]) <= ANSWERS_REFUSED))


def fit_heads(model: EncoderModel, data: Path) -> dict[str, np.ndarray]:
    """Fit the last layers, choose the threshold of refusals on folds, and print figures of pairs that were kept."""
    weights, bias, fitted = [], [], {}
    for head in FITTED_HEADS:
        pairs = sample_pairs(list(READERS[head](data)))
        features = read_features(model, pairs)
        kept = np.array([is_measured(pair.group) for pair in pairs])
        trained = [pair for pair, is_kept in zip(pairs, kept, strict=True) if not is_kept]
        layer_weights, layer_bias, predicted = fit_head(features[~kept], trained)
        labels = np.array([pair.label for pair in pairs])
        if head == "reply":
            fitted["refusal_threshold"] = np.array(choose_refusal_threshold(predicted, trained))
        authored = np.array([is_authored(pair.group) for pair in pairs])
        logits = features @ layer_weights + layer_bias
        for name, chosen in (("authored", kept & authored), ("public", kept & ~authored)):
            print(head, name, describe_head(logits[chosen], labels[chosen], fitted.get("refusal_threshold")))
        weights.append(layer_weights)
        bias.append(layer_bias)
    return fitted | {"weights": np.concatenate(weights, axis=1), "bias": np.concatenate(bias)}


def describe_head(logits: np.ndarray, labels: np.ndarray, threshold: np.ndarray | None) -> dict[str, object]:
    """Describe a head on kept pairs: its accuracy, and of each class the share that is called the first."""
    raised = np.exp(logits - logits.max(1, keepdims=True))
    first = raised[:, 0] / raised.sum(1)
    limit = 0.5 if threshold is None else float(threshold)
    shares = {int(label): round(float((first[labels == label] >= limit).mean()), 3) for label in np.unique(labels)}
    return {"pairs": len(labels), "accuracy": round(float((logits.argmax(1) == labels).mean()), 3), "first": shares}


def list_claims(data: Path) -> list[list[Pair]]:
    """Return kept claims of each source."""
    chance = random.Random(2)
    authored = [
        pair
        for pair in authored_rows(data)
        if is_measured(pair.group) and not any(f"-{writer}-" in pair.group for writer in TEST_WRITERS)
    ]
    rows = [row for row in iterate_rows(data / "ragtruth_train.jsonl.gz") if is_measured(str(row["source_id"]))]
    answers = [pair for row in chance.sample(rows, min(400, len(rows))) for pair in ragtruth_pairs(row)]
    return [chance.sample(pairs, min(COUNT, len(pairs))) for pairs in (authored, answers)]


def fit_support(model: EncoderModel, data: Path) -> np.ndarray:
    """Fit the slope and the shift of the log-odds of support."""
    odds, labels, weights = [], [], []
    for pairs in list_claims(data):
        logits = read_features(model, pairs)[:, -OUTPUT_SIZE:][:, : len(HEADS["entailment"])]
        odds.append(logits[:, 0] - np.logaddexp(logits[:, 1], logits[:, 2]))
        labels.append(np.array([pair.label == 0 for pair in pairs]))
        weights.append(np.full(len(pairs), 1_000 / len(pairs)))
    fit = LogisticRegression(C=1e6).fit(
        np.concatenate(odds)[:, None], np.concatenate(labels), sample_weight=np.concatenate(weights)
    )
    return np.array([fit.coef_[0, 0], fit.intercept_[0]]).round(4)


def main() -> None:
    """Fit everything and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    model = load_encoder()
    fitted = fit_heads(model, data) | {"calibration": fit_support(model, data)}
    arrays = {name: value.astype(np.float32) for name, value in fitted.items()}
    np.savez_compressed(TARGET, **arrays)
    print({name: value.tolist() for name, value in arrays.items() if value.size < 5})


if __name__ == "__main__":
    main()
