"""Fit the weights of words that tell a message of a system from an answer: python -m training.messages DATA.

A logistic regression on the words, groups of words and pieces of words of whole texts, in ten languages. It learns from
authored messages and from answers that look like them, from authored answers to keys, replies and sentences, and from
public answers. Writes `system_messages.npz` of `src/ragfault/judges/checks/`, and prints for each language how many
messages and answers that were kept apart, in turn, are taken for messages.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

from ragfault.judges.checks.sentence_kinds import SLOTS
from ragfault.judges.checks.system_messages import hash_text
from training.authored.items import FOLDER as AUTHORED
from training.authored.items import read_units
from training.data_files import FOLDS, assign_fold, iterate_rows
from training.encoder.rows import LANGUAGES, authored_lines
from training.word_counts import count_terms

TARGET = Path(__file__).parents[1] / "src/ragfault/judges/checks/system_messages.npz"
AUTHORED_WEIGHT = 4.0
PUBLIC_ANSWERS = 12_000
STEP_BITS = 127
NEAR_WORDS = 2
# At most this share of the public answers, and of the answers that look like messages, is taken for messages.
FALSE_ALARMS, NEAR_ALARMS = 0.0003, 0.06


class Text(NamedTuple):
    """A text that may be a message."""

    group: str
    text: str
    kind: str
    language: str
    known: str
    """The question and passages beside it."""

    @property
    def is_message(self) -> bool:
        """Whether it is one."""
        return self.kind == "message"


def read_texts(data: Path) -> Iterator[Text]:
    """Yield messages and answers of all sources."""
    chance = random.Random(1)
    answers = [
        Text(str(row["source_id"]), row["answer"], "public", "en", " ".join((row["query"], *row["contexts"])))
        for row in iterate_rows(data / "ragtruth_train.jsonl.gz")
        if row["answer"].strip()
    ]
    answers = chance.sample(answers, PUBLIC_ANSWERS)
    passages = [answer.known for answer in answers]
    for path in sorted((AUTHORED / "messages").glob("*.jsonl")):
        for row in read_units(path):
            # A message knows nothing of the question; an answer that looks like one shares some words with it.
            known = chance.choice(passages) if row["kind"] == "message" else " ".join(row["text"].split()[:NEAR_WORDS])
            yield Text(row["id"], row["text"], row["kind"], row["language"], known)
    for path in sorted((AUTHORED / "sentences").glob("*.jsonl")):
        for row in read_units(path):
            yield Text(row["query"], row["text"], "sentence", path.stem[:2], row["query"])
    for language in sorted(frozenset().union(*LANGUAGES.values())):
        for group, row in authored_lines("keys", frozenset({language})):
            for text, _ in row["answers"]:
                yield Text(group, text, "answer", language, f"{row['query']} {row['reference']}")
        for group, row in authored_lines("replies", frozenset({language})):
            yield Text(group, row["reply"], "reply", language, row["query"])
    yield from answers


def choose_threshold(odds: np.ndarray, kinds: np.ndarray) -> float:
    """Return the lowest log-odds from which few answers are taken for messages."""
    for threshold in np.arange(-3, 8, 0.1).round(1):
        shares = {kind: (odds[kinds == kind] >= threshold).mean() for kind in set(kinds) - {"message"}}
        if shares["near"] <= NEAR_ALARMS and all(shares[kind] <= FALSE_ALARMS for kind in ("public", "answer")):
            return float(threshold)
    raise ValueError("no log-odds take so few answers for messages")


def main() -> None:
    """Fit the weights, write them and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    texts = list(dict.fromkeys(read_texts(parser.parse_args().data)))
    inputs = count_terms((hash_text(text.text, text.known) for text in texts), SLOTS)
    labels = np.array([text.is_message for text in texts])
    kinds, languages = np.array([text.kind for text in texts]), np.array([text.language for text in texts])
    weights = np.where(kinds == "public", 1.0, AUTHORED_WEIGHT)
    folds, odds = np.array([assign_fold(text.group) for text in texts]), np.zeros(len(texts))

    def fit(rows: np.ndarray) -> LogisticRegression:
        return LogisticRegression(C=3, max_iter=500).fit(inputs[rows], labels[rows], sample_weight=weights[rows])

    for fold in range(FOLDS):
        odds[folds == fold] = fit(folds != fold).decision_function(inputs[folds == fold])
    threshold = choose_threshold(odds, kinds)
    print(f"threshold {threshold}")
    for kind in ("message", "near", "sentence", "answer", "reply", "public"):
        for language in sorted(set(languages[kinds == kind])):
            chosen = (kinds == kind) & (languages == language)
            print(f"{kind} {language}: {(odds[chosen] >= threshold).mean():.3f} of {chosen.sum()}", flush=True)
    layer = fit(np.full(len(texts), True))
    scale = np.abs(layer.coef_[0]).max() / STEP_BITS
    np.savez_compressed(
        TARGET,
        slots=np.rint(layer.coef_[0] / scale).astype(np.int8),
        facts=np.array([scale, layer.intercept_[0] - threshold]),
    )


if __name__ == "__main__":
    main()
