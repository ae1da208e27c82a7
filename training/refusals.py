"""Fit the weights of words that tell a refusal: python -m training.refusals DATA.

A logistic regression on the words and word pairs of replies, and on the mean vector of their stems, which gives words
that no reply has the weight of near ones. It learns from authored and public replies, and from plain statements, since
each sentence of an answer is asked whether it refuses. Writes `src/ragfault/judges/checks/refusals.npz`, and prints how
many replies of each kind are called refusals among those that were kept apart.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.linear_model import LogisticRegression

from ragfault.judges.checks.refusals import READ_WORDS, SLOTS, hash_words
from ragfault.judges.embedded.word_vectors import load_vectors
from ragfault.text.entities import extract_entities
from ragfault.text.normalization import split_words
from training.encoder.calibrate import HEADS, KINDS, list_statements
from training.encoder.rows import is_authored, is_measured, reply_rows
from training.word_counts import count_terms

TARGET = Path(__file__).parents[1] / "src/ragfault/judges/checks/refusals.npz"
STATEMENTS = 20_000
WEIGHTS = {"authored": 4.0, "public": 0.5, "statements": 1.0}
# Log-odds from which a reply refuses, and from which it does though it holds a name or number: the lowest at which
# about one in a hundred plain statements and answers is called a refusal.
THRESHOLD, SURE = -0.5, 0.5


def read_meanings(replies: list[str]) -> np.ndarray:
    """Return the sum of the stems' vectors of each reply over the root of their number."""
    vectors = load_vectors()
    unit = vectors.table.astype(np.float32) / vectors.norms[:, None]
    lines = [vectors.get_rows(split_words(reply)[:READ_WORDS]) for reply in replies]
    return np.stack([unit[rows].sum(0) / np.sqrt(len(rows) or 1) for rows in lines])


def main() -> None:
    """Fit the weights, write them and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    pairs = [(pair, "authored" if is_authored(pair.group) else "public") for pair in reply_rows()(data)]
    statements = random.Random(1).sample(list(list_statements(data)), STATEMENTS)
    pairs += [(pair, "statements") for pair in statements]
    replies = [pair.second for pair, _ in pairs]
    kinds = np.array([kind for _, kind in pairs])
    labels = np.array([pair.label for pair, _ in pairs])
    refuses = labels == HEADS["reply"].index("refusal")
    fitted = ~np.array([is_measured(pair.group) for pair, _ in pairs])
    inputs = hstack([count_terms(map(hash_words, replies), SLOTS), csr_matrix(read_meanings(replies))]).tocsr()
    layer = LogisticRegression(max_iter=500, solver="liblinear")
    layer.fit(inputs[fitted], refuses[fitted], sample_weight=np.array([WEIGHTS[kind] for kind in kinds])[fitted])
    odds = layer.decision_function(inputs)
    stated = np.array([bool(extract_entities(reply)) for reply in replies])
    called = (odds >= SURE) | ((odds >= THRESHOLD) & ~stated)
    for kind in KINDS:
        shares = {
            label: (int(chosen.sum()), round(float(called[chosen].mean()), 3))
            for number, label in enumerate(HEADS["reply"])
            if (chosen := ~fitted & (kinds == kind) & (labels == number)).any()
        }
        print("called refusals", kind, shares, flush=True)
    write_weights(layer)


def write_weights(layer: LogisticRegression) -> None:
    """Write the weight of each slot, and of each stem what its vector tells."""
    vectors = load_vectors()
    unit = vectors.table.astype(np.float32) / vectors.norms[:, None]
    by_stem = unit @ layer.coef_[0][SLOTS:]
    names = [word for word, _ in sorted(vectors.rows.items(), key=lambda item: item[1])]
    scale = float(np.abs(by_stem).max()) / 127
    np.savez_compressed(
        TARGET,
        words=layer.coef_[0][:SLOTS].astype(np.float16),
        stems=np.frombuffer("\n".join(names).encode(), np.uint8),
        stem_weights=np.round(by_stem[: len(names)] / scale).astype(np.int8),
        facts=np.array([scale, layer.intercept_[0], THRESHOLD, SURE]),
    )


if __name__ == "__main__":
    main()
