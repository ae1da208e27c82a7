"""Fit the weights of the lexical judge: how likely people are to mark a claim, given its features.

    python training/support.py DATA_FOLDER
    python training/support.py DATA_FOLDER --transfer    (no weights: each task by weights that never saw it)

A logistic regression of few weights on the claims of RAGTruth's training answers, those sources left out
that benchmarks/judge.py measures on. A claim is bad where it touches a span that people marked.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from ragfault.judges.checks.claims import extract_claims, strip_marks
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage, SentenceIndex
from ragfault.judges.lexical.entailment import check_claim, measure_claim
from ragfault.judges.lexical.features import FEATURE_NAMES
from ragfault.judges.lexical.weights import BIAS, WEIGHTS
from ragfault.stats import auroc

TARGET = Path(__file__).parents[1] / "src/ragfault/judges/lexical/weights.py"
RIDGE = 2.0
BALANCE = 5.0
"""How much more a marked claim counts: as if two claims in five were bad, as they are in other sets."""
EVERY = 2
"""Of the training sources one in so many is read; more change nothing."""
TRANSFER_EVERY = 4
"""Of the training sources one in so many tells how the weights carry over."""


Array = np.ndarray[Any, Any]


def examples(folder: Path, every: int = EVERY) -> tuple[Array, Array, list[dict[str, Any]]]:
    """Return features and labels of claims, and the answer of each."""
    rows: list[tuple[float, ...]] = []
    labels: list[int] = []
    owners: list[dict[str, Any]] = []
    with gzip.open(folder / "ragtruth_train.jsonl.gz", "rt", encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            mark = zlib.crc32(record["source_id"].encode())
            if mark % 5 == 0 or mark // 5 % every:
                continue
            index = SentenceIndex([Passage(str(place), text) for place, text in enumerate(record["contexts"])])
            for claim in extract_claims(record["answer"]):
                seen = check_claim(strip_marks(claim.text), index, load_idf())
                if seen is not None:
                    rows.append(measure_claim(seen, index))
                    spans = record["spans"]
                    labels.append(any(claim.start < span["end"] and span["start"] < claim.end for span in spans))
                    owners.append(record)
    return np.array(rows), np.array(labels, float), owners


def transfer(folder: Path) -> None:
    """Print how the worst claim ranks the answers of each task, by weights fitted on the other tasks, and packaged."""
    rows, labels, owners = examples(folder, TRANSFER_EVERY)
    tasks = np.array([record["task"] for record in owners])
    x = np.c_[rows, np.ones(len(rows))]
    for task in np.unique(tasks):
        inside = np.flatnonzero(tasks == task)
        ids = np.array([owners[at]["id"] for at in inside])
        starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
        bad = np.array([owners[inside[at]]["label"] for at in starts])
        figures = [
            auroc(np.maximum.reduceat(x[inside] @ weights, starts), bad)
            for weights in (fit(rows[tasks != task], labels[tasks != task]), np.array([*WEIGHTS, BIAS]))
        ]
        print(f"{task:10} n {len(bad):5,}  AUROC never seen {figures[0]:.3f}  packaged {figures[1]:.3f}")


def fit(rows: Array, labels: Array) -> Array:
    """Return ridge logistic regression by Newton's steps; the last weight is the bias."""
    x = np.c_[rows, np.ones(len(rows))]
    counts = np.where(labels == 1, BALANCE, 1.0)
    ridge = np.full(x.shape[1], RIDGE)
    ridge[-1] = 1e-3
    weights = np.zeros(x.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ weights))
        step = np.linalg.solve(
            (x * (counts * p * (1 - p))[:, None]).T @ x + np.diag(ridge),
            x.T @ (counts * (labels - p)) - ridge * weights,
        )
        weights += step
        if abs(step).max() < 1e-6:
            break
    return weights


def main(folder: Path) -> None:
    """Fit and write."""
    rows, labels, _ = examples(folder)
    *weights, bias = fit(rows, labels).round(2)
    lines = [f"    {weight:g},  # {name}" for name, weight in zip(FEATURE_NAMES, weights, strict=True)]
    head = '"""The weights of the features, fitted by training/support.py; positive speaks against support."""'
    TARGET.write_text("\n".join([head, "", f"BIAS = {bias:g}", "WEIGHTS = (", *lines, ")", ""]), encoding="utf-8")
    print(f"{len(rows):,} claims, {labels.mean():.3f} marked\n" + "\n".join(lines), f"\n    {bias:g}  # bias")


if __name__ == "__main__":
    (transfer if "--transfer" in sys.argv else main)(Path(sys.argv[1]))
