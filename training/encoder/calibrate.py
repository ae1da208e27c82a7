"""Fit the probability of support on kept groups: python -m training.encoder.calibrate DATA BASE STATE TARGET.json.

The log-odds of support of the entailment head are scaled and shifted so that they are the odds on authored claims and
on sentences of RAGTruth whose groups took no part in training, both sources alike. The test part is not used.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from training.data_files import iterate_rows
from training.encoder.measure import Reader
from training.encoder.rows import TEST_WRITERS, Pair, authored_rows, is_measured, ragtruth_pairs

COUNT = 1_500


def list_pairs(data: Path) -> list[list[Pair]]:
    """Return kept pairs of each source."""
    chance = random.Random(2)
    authored = [
        pair
        for pair in authored_rows(data)
        if is_measured(pair.group) and not any(f"-{writer}-" in pair.group for writer in TEST_WRITERS)
    ]
    rows = [row for row in iterate_rows(data / "ragtruth_train.jsonl.gz") if is_measured(str(row["source_id"]))]
    answers = [pair for row in chance.sample(rows, min(400, len(rows))) for pair in ragtruth_pairs(row)]
    return [chance.sample(pairs, min(COUNT, len(pairs))) for pairs in (authored, answers)]


def main() -> None:
    """Fit the two numbers and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("base", type=Path)
    parser.add_argument("state", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(2)
    reader = Reader(options.base, options.state)
    odds, labels, weights = [], [], []
    for pairs in list_pairs(options.data):
        support = reader.probabilities(pairs)[:, 0].clip(1e-6, 1 - 1e-6)
        odds.append(np.log(support / (1 - support)))
        labels.append(np.array([pair.label == 0 for pair in pairs]))
        weights.append(np.full(len(pairs), 1 / len(pairs)))
    fit = LogisticRegression(C=1e6).fit(
        np.concatenate(odds)[:, None], np.concatenate(labels), sample_weight=np.concatenate(weights) * 1_000
    )
    figures = {"slope": round(float(fit.coef_[0, 0]), 4), "shift": round(float(fit.intercept_[0]), 4)}
    options.target.write_text(json.dumps(figures) + "\n")
    print({"seen": reader.seen, **figures})


if __name__ == "__main__":
    main()
