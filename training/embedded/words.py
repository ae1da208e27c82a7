"""Measure how far the words that the embedded judge doubts agree with those that people marked.

    python -m training.embedded.words DATA kept.npz [--thin 3]

Measured on the answers of RAGTruth whose source is in the first fold. The network is trained on one in `--thin` of the
claims of the other folds. As unsupported count as many claims as people marked: those with the highest cross-fitted
log-odds (`python -m training.embedded DATA --keep kept.npz`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from ragfault.judges.embedded.judge import MIN_WORD_ODDS
from ragfault.judges.embedded.word_vectors import Array
from training.embedded import network
from training.embedded.examples import Answer, load_answers
from training.embedded.fitting import ClaimDataset, build_dataset

TEST_FOLD = 0


def main() -> None:
    """Train the network, predict the words of held-out claims, and print their agreement with the marks."""
    parser = argparse.ArgumentParser(
        prog="python -m training.embedded.words",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("kept", type=Path)
    parser.add_argument("--thin", type=int, default=3)
    options = parser.parse_args()
    data = build_dataset(
        [item for item in load_answers(options.data, ("ragtruth_train",)) if item.features is not None]
    )
    odds = load_odds(options.kept, data)
    print(f"{len(data.owner):,} claims", flush=True)
    trained = network.train(data.claims.pick(np.flatnonzero(data.fold != TEST_FOLD)[:: options.thin]))
    tested = np.flatnonzero((data.fold == TEST_FOLD) & ~np.isnan(odds))
    marks = data.claims.marks[tested]
    worst = tested[np.argsort(-odds[tested], kind="stable")[: int(marks.sum())]]
    doubted = [row > MIN_WORD_ODDS for row in network.predict_words(trained, data.claims.pick(worst))]
    specific, missing = zip(
        *(list_missing(data, claim, len(row)) for claim, row in zip(worst, doubted, strict=True)), strict=True
    )
    marked_words = np.concatenate([
        np.zeros(len(row), bool) if data.claims.tokens[claim] is None else data.claims.tokens[claim][: len(row)] > 0.5  # type: ignore[index]
        for claim, row in zip(worst, doubted, strict=True)
    ])  # fmt: skip
    print(f"{len(worst):,} claims, {len(marked_words):,} words, of which people marked {marked_words.mean():.2f}")
    for name, selected in (
        ("words in doubt", np.concatenate(doubted) | np.concatenate(specific)),
        ("words that no chunk has", np.concatenate(missing)),
    ):
        print(f"{name}: {selected.mean():.2f}; marked of these {marked_words[selected].mean():.2f}, "
              f"of those marked {selected[marked_words].mean():.2f}")  # fmt: skip


def load_odds(predictions_file: Path, data: ClaimDataset) -> Array:
    """Load the cross-fitted log-odds of each claim; nan for altered answers and those with a foreign claim."""
    with np.load(predictions_file) as arrays:
        position = {name: i for i, name in enumerate(arrays["ids"].tolist()) if name.startswith("ragtruth ")}
        start, odds = arrays["start"], arrays["odds"]
    result = np.full(len(data.owner), np.nan)
    for number, answer in enumerate(data.answers):
        index = position.get(f"{answer.set} {answer.id}")
        first, stop = data.start[number : number + 2]
        if index is not None and start[index + 1] - start[index] == stop - first:
            result[first:stop] = odds[start[index] : start[index + 1]]
    return result


def list_missing(data: ClaimDataset, claim: int, count: int) -> tuple[Array, Array]:
    """Return which words of a claim are names and numbers that no chunk has, and which are words that none has."""
    answer: Answer = data.answers[data.owner[claim]]
    check = answer.features.checks[claim - data.start[data.owner[claim]]] if answer.features is not None else None
    if check is None:
        return np.zeros(count, bool), np.zeros(count, bool)
    statement, absent = check.statement, check.alignment.missing
    missing = np.array([word in absent for word in statement.tokens[:count]])
    specific = np.array([word in statement.names or word[0].isdigit() for word in statement.tokens[:count]])
    return missing & specific, missing


if __name__ == "__main__":
    main()
