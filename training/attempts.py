"""Fit which answers to one question mean the same: python -m training.attempts DATA.

Pairs of answers of different models to the questions of EVOUNA NQ: two that people call right mean the same, a right
and a wrong one do not. Fits on the questions of three folds of five and prints the weights for
`src/ragfault/diagnosis/attempts/meanings.py`, and the figures of these and of the weights in the package on the other
two.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from ragfault.diagnosis.attempts.meanings import INTERCEPT, WEIGHTS, describe_pair
from ragfault.judges.encoder.judge import EncoderJudge
from ragfault.model.grouping import group_by
from training.data_files import assign_fold, iterate_rows

SHORT_ANSWERS = "fid"
"""A reader that returns spans: attempts of one system do not differ from one another as its answers from those of chat
models."""

FITTED_FOLDS = 3


def main() -> None:
    """Print the weights, and how well they and those of the package read the other questions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--questions", type=int, default=2500)
    arguments = parser.parse_args()
    rows = [
        row
        for row in iterate_rows(arguments.data / "answer_correctness_nq.jsonl.gz")
        if row["model"] != SHORT_ANSWERS and row["answer"].strip()
    ]
    draw = random.Random(3)
    groups = list(group_by(rows, lambda row: row["source_id"]).items())
    draw.shuffle(groups)
    judge, inputs, labels, fitted_rows = EncoderJudge(), [], [], []
    for source, answers in groups[: arguments.questions]:
        pair = draw.sample(answers, min(2, len(answers)))
        session = judge.open_session(pair[0]["query"])
        texts = [row["answer"].strip() for row in pair]
        if len(pair) < 2 or not any(row["label"] for row in pair) or any(map(session.is_refusal, texts)):
            continue
        inputs.append(describe_pair(session, pair[0]["query"], *texts))
        labels.append(all(row["label"] for row in pair))
        fitted_rows.append(assign_fold(source) < FITTED_FOLDS)
    features, same, fitted = np.array(inputs), np.array(labels), np.array(fitted_rows)
    layer = LogisticRegression().fit(features[fitted], same[fitted])
    print("weights", layer.coef_[0].round(2).tolist(), "intercept", layer.intercept_.round(2).tolist())
    shipped = (features @ np.array(WEIGHTS) + INTERCEPT)[~fitted]
    for name, odds in (("fitted", layer.decision_function(features[~fitted])), ("in the package", shipped)):
        is_same = odds > 0
        print(
            f"{name}: right on {(is_same == same[~fitted]).mean():.3f} of {len(is_same)}, AUROC "
            f"{roc_auc_score(same[~fitted], odds):.3f}, called different {1 - is_same.mean():.3f}, are "
            f"{1 - same[~fitted].mean():.3f}"
        )


if __name__ == "__main__":
    main()
