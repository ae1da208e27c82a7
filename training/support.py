"""Fit the weights of the lexical judge: a logistic model of whether people mark a claim, given its features.

    python training/support.py DATA_FOLDER
    python training/support.py DATA_FOLDER --transfer    (no weights: each task by weights that never saw it)
    python training/support.py DATA_FOLDER --transfer parts.npz    (and the embedded judge with these weights as its
        part, of what `python -m training.embedded DATA_FOLDER --transfer --keep parts.npz` left)

Fitted on the claims of RAGTruth's training answers, without the sources that benchmarks/judge.py measures on. A claim
is bad where it overlaps a span that people marked.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from data_files import FOLDS, Row, iterate_rows

from ragfault.judges.checks.claims import extract_claims, strip_marks
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage, SentenceIndex
from ragfault.judges.embedded.support import MISSING_ODDS, combine_claims, combine_parts
from ragfault.judges.lexical.entailment import check_claim, measure_claim
from ragfault.judges.lexical.features import FEATURE_NAMES
from ragfault.judges.lexical.weights import BIAS, WEIGHTS
from ragfault.stats.classification import auroc

TARGET = Path(__file__).parents[1] / "src/ragfault/judges/lexical/weights.py"
RIDGE = 2.0
MARKED_CLAIM_WEIGHT = 5.0
"""The weight of a marked claim beside another: as if two claims in five were bad, as they are in other sets."""
TRAINING_STRIDE = 2
"""One in so many of the training sources is read; more change nothing."""
TRANSFER_STRIDE = 4
"""One in so many of the training sources is read to measure transfer between tasks."""


Array = np.ndarray[Any, Any]


def load_claims(folder: Path, stride: int = TRAINING_STRIDE) -> tuple[Array, Array, list[Row], Array]:
    """Return features and labels of claims, and of each claim its answer and its number in the answer."""
    positions: list[int] = []
    rows: list[tuple[float, ...]] = []
    labels: list[int] = []
    owners: list[Row] = []
    for record in iterate_rows(folder / "ragtruth_train.jsonl.gz"):
        hashed = zlib.crc32(record["source_id"].encode())
        if hashed % FOLDS == 0 or hashed // FOLDS % stride:
            continue
        index = SentenceIndex([Passage(str(j), text) for j, text in enumerate(record["contexts"])])
        for i, claim in enumerate(extract_claims(record["answer"])):
            check = check_claim(strip_marks(claim.text), index, load_idf())
            if check is not None:
                rows.append(measure_claim(check, index))
                spans = record["spans"]
                labels.append(any(claim.start < span["end"] and span["start"] < claim.end for span in spans))
                owners.append(record)
                positions.append(i)
    return np.array(rows), np.array(labels, float), owners, np.array(positions)


def measure_transfer(folder: Path, predictions_file: Path | None) -> None:
    """Print the AUROC of each task by weights fitted on the others, by those packaged, and by the embedded judge."""
    rows, labels, owners, positions = load_claims(folder, TRANSFER_STRIDE)
    tasks = np.array([record["task"] for record in owners])
    x = np.c_[rows, np.ones(len(rows))]
    for task in np.unique(tasks):
        inside = np.flatnonzero(tasks == task)
        ids = np.array([owners[i]["id"] for i in inside])
        starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
        is_bad = np.array([owners[inside[i]]["label"] for i in starts])
        fitted = x[inside] @ fit(rows[tasks != task], labels[tasks != task])
        packaged = x[inside] @ np.array([*WEIGHTS, BIAS])
        scores = {
            name: np.maximum.reduceat(odds, starts) for name, odds in (("never seen", fitted), ("packaged", packaged))
        }
        if predictions_file:
            ends = np.append(starts[1:], len(inside))
            spans = [(str(ids[a]), positions[inside[a:b]], fitted[a:b]) for a, b in zip(starts, ends, strict=True)]
            scores["embedded, never seen"] = score_embedded(predictions_file, spans)
        has_score = ~np.isnan(scores.get("embedded, never seen", packaged[starts]))
        listing = "  ".join(
            f"{name} {auroc(score[has_score], is_bad[has_score]):.3f}" for name, score in scores.items()
        )
        print(f"{task:10} n {has_score.sum():5,}  AUROC {listing}")


def score_embedded(predictions_file: Path, spans: list[tuple[str, Array, Array]]) -> Array:
    """Return the log-odds of answers by the embedded judge, the lexical log-odds among its inputs replaced.

    A span has the id of an answer, the numbers of its claims that have log-odds, and these. Of an answer that is not
    among the predictions the result is nan.
    """
    with np.load(predictions_file) as arrays:
        positions = {name: i for i, name in enumerate(arrays["ids"].tolist()) if name.startswith("ragtruth ")}
        start, parts, keyed = arrays["start"], arrays["parts"], arrays["keyed"]
    result = np.full(len(spans), np.nan)
    for number, (name, claim_positions, odds) in enumerate(spans):
        index = positions.get(f"ragtruth {name}")
        if index is not None:
            inside = slice(start[index], start[index + 1])
            odds_copy = parts[inside].copy()
            odds_copy[:, 3] = MISSING_ODDS
            odds_copy[claim_positions, 3] = odds
            result[number] = combine_claims(combine_parts(odds_copy, keyed[inside]))
    return result


def fit(rows: Array, labels: Array) -> Array:
    """Fit a ridge logistic regression by Newton's method; return the weights, the last one the bias."""
    x = np.c_[rows, np.ones(len(rows))]
    sample_weights = np.where(labels == 1, MARKED_CLAIM_WEIGHT, 1.0)
    ridge = np.full(x.shape[1], RIDGE)
    ridge[-1] = 1e-3
    weights = np.zeros(x.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ weights))
        step = np.linalg.solve(
            (x * (sample_weights * p * (1 - p))[:, None]).T @ x + np.diag(ridge),
            x.T @ (sample_weights * (labels - p)) - ridge * weights,
        )
        weights += step
        if abs(step).max() < 1e-6:
            break
    return weights


def main(folder: Path) -> None:
    """Fit the weights, write them as a module, and print them."""
    rows, labels, *_ = load_claims(folder)
    *weights, bias = fit(rows, labels).round(2)
    lines = [f"    {weight:g},  # {name}" for name, weight in zip(FEATURE_NAMES, weights, strict=True)]
    docstring = '"""The weights of the features, fitted by training/support.py; positive speaks against support."""'
    TARGET.write_text("\n".join([docstring, "", f"BIAS = {bias:g}", "WEIGHTS = (", *lines, ")", ""]), encoding="utf-8")
    print(f"{len(rows):,} claims, {labels.mean():.3f} marked\n" + "\n".join(lines), f"\n    {bias:g}  # bias")


if __name__ == "__main__":
    if "--transfer" in sys.argv:
        measure_transfer(Path(sys.argv[1]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
    else:
        main(Path(sys.argv[1]))
