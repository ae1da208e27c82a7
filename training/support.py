"""Fit the weights of the lexical judge: how likely people are to mark a claim, given its features.

    python training/support.py DATA_FOLDER
    python training/support.py DATA_FOLDER --transfer    (no weights: each task by weights that never saw it)
    python training/support.py DATA_FOLDER --transfer parts.npz    (and the embedded judge with these weights as its
        part, of what `python -m training.embedded DATA_FOLDER --transfer --keep parts.npz` left)

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
from ragfault.judges.embedded.support import MISSING_ODDS, combine_claims, combine_parts
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


def examples(folder: Path, every: int = EVERY) -> tuple[Array, Array, list[dict[str, Any]], Array]:
    """Return features and labels of claims, and of each the answer and which of its claims it is."""
    positions: list[int] = []
    rows: list[tuple[float, ...]] = []
    labels: list[int] = []
    owners: list[dict[str, Any]] = []
    with gzip.open(folder / "ragtruth_train.jsonl.gz", "rt", encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            mark = zlib.crc32(record["source_id"].encode())
            if mark % 5 == 0 or mark // 5 % every:
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


def transfer(folder: Path, retained: Path | None) -> None:
    """Print how each task is ranked by weights fitted on the others, by those packaged, and by the embedded judge."""
    rows, labels, owners, positions = examples(folder, TRANSFER_EVERY)
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
        if retained:
            ends = np.append(starts[1:], len(inside))
            spans = [(str(ids[a]), positions[inside[a:b]], fitted[a:b]) for a, b in zip(starts, ends, strict=True)]
            scores["embedded, never seen"] = score_embedded(retained, spans)
        has_score = ~np.isnan(scores.get("embedded, never seen", packaged[starts]))
        listing = "  ".join(
            f"{name} {auroc(score[has_score], is_bad[has_score]):.3f}" for name, score in scores.items()
        )
        print(f"{task:10} n {has_score.sum():5,}  AUROC {listing}")


def score_embedded(retained: Path, spans: list[tuple[str, Array, Array]]) -> Array:
    """Return the log-odds of answers by the embedded judge with these log-odds of their claims for its words' part.

    A span has the id of an answer, which of its claims are known, and their log-odds; nan for an unknown answer.
    """
    with np.load(retained) as arrays:
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
    rows, labels, *_ = examples(folder)
    *weights, bias = fit(rows, labels).round(2)
    lines = [f"    {weight:g},  # {name}" for name, weight in zip(FEATURE_NAMES, weights, strict=True)]
    head = '"""The weights of the features, fitted by training/support.py; positive speaks against support."""'
    TARGET.write_text("\n".join([head, "", f"BIAS = {bias:g}", "WEIGHTS = (", *lines, ")", ""]), encoding="utf-8")
    print(f"{len(rows):,} claims, {labels.mean():.3f} marked\n" + "\n".join(lines), f"\n    {bias:g}  # bias")


if __name__ == "__main__":
    if "--transfer" in sys.argv:
        transfer(Path(sys.argv[1]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
    else:
        main(Path(sys.argv[1]))
