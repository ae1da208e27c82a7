"""Train what the embedded judge says of the relevance of a passage to a query.

    python -m training.embedded.relevance DATA

A logistic regression of few numbers. Graded pairs come from WikiQA, TREC DL 2019 and Cranfield; of the others
the passage that a question was asked of is relevant, and of those that share most words with it some are not.
Prints the AUROC on each set by a judge that has not seen a fifth of its sources, and by one that never saw the set.
"""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from training.embedded.examples import FOLDS, rows

from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage
from ragfault.judges.embedded.arrays import PassageArrays
from ragfault.judges.embedded.judge import FEATURE_NAMES, compute_relevance_features
from ragfault.judges.embedded.word_vectors import Array, load_vectors
from ragfault.judges.lexical.entailment import LexicalJudge
from ragfault.stats import auroc

TARGET = Path(__file__).parents[2] / "src/ragfault/judges/embedded/relevance.npz"
RIDGE = 0.1


class Pair(NamedTuple):
    """A query and a passage that is relevant to it or not."""

    set: str
    fold: int
    query: str
    passage: str
    relevant: int


def fold(source: object) -> int:
    """Return the fold of a source."""
    return zlib.crc32(str(source).encode()) % FOLDS


def graded(folder: Path) -> Iterator[Pair]:
    """Yield pairs that people graded."""
    chance = random.Random(1)
    for row in rows(folder, "wikiqa"):
        if row["label"] or chance.random() < 0.35:
            yield Pair("wikiqa", fold(row["source_id"]), row["query"], row["passage"], int(row["label"] > 0))
    for row in rows(folder, "trec_dl19"):
        yield Pair("trec_dl19", fold(row["query"]), row["query"], row["passage"], int(row["label"] >= 2))
    texts = {row["docid"]: row["text"] for row in rows(folder, "cranfield_docs")}
    queries = {row["qid"]: row["query"] for row in rows(folder, "cranfield_queries")}
    for row in rows(folder, "cranfield_qrels"):
        if chance.random() < 0.5 and row["docid"] in texts:
            query, other_text = queries[row["qid"]], texts[chance.choice(list(texts))]
            yield Pair("cranfield", fold(row["qid"]), query, texts[row["docid"]], int(row["label"] >= 1))
            yield Pair("cranfield", fold(row["qid"]), query, other_text, 0)


def mined(folder: Path) -> Iterator[Pair]:
    """Yield pairs of questions and the passages that they were asked of, with others that share words."""
    paragraphs = rows(folder, "squad2_paragraphs")
    position = {paragraph["pid"]: i for i, paragraph in enumerate(paragraphs)}
    asked_ = [row for row in rows(folder, "squad2_questions") if row["answerable"]]
    sampled = random.Random(2).sample(asked_, 1500)
    yield from beside("squad", [(item["query"], {position[item["gold_pid"]]}, item["gold_pid"]) for item in sampled],
                      [paragraph["text"] for paragraph in paragraphs], 2)  # fmt: skip
    natural = rows(folder, "clapnq_dev")
    yield from beside("clapnq", [(item["query"], {i}, item["id"]) for i, item in enumerate(natural)],
                      [item["contexts"][0] for item in natural], 2)  # fmt: skip
    texts: list[str] = []
    queries = []
    for source, row in {row["source_id"]: row for row in rows(folder, "ragtruth_train") if row["task"] == "QA"}.items():
        queries.append((row["query"], set(range(len(texts), len(texts) + len(row["contexts"]))), source))
        texts += row["contexts"]
    yield from beside("marco", queries, texts, 3)


def beside(
    name: str, queries: Sequence[tuple[str, set[int], object]], texts: Sequence[str], count: int
) -> Iterator[Pair]:
    """Yield each query with its own passages, and with some of those that are likest to it."""
    chance = random.Random(3)
    vectorizer = TfidfVectorizer(sublinear_tf=True, stop_words="english", ngram_range=(1, 2)).fit(texts)
    vectors = vectorizer.transform(texts)
    for query, gold, source in queries:
        likest = np.argsort(-(vectors @ vectorizer.transform([query]).T).toarray()[:, 0], kind="stable")
        rivals = [int(i) for i in likest[:30] if i not in gold][:12]
        for i in [*sorted(gold), *chance.sample(rivals, count)]:
            yield Pair(name, fold(source), query, texts[i], int(i in gold))


def numbers(pairs: Sequence[Pair]) -> Array:
    """Return what the judge sees of each pair."""
    table, result = load_vectors(), []
    for pair in pairs:
        reading = LexicalJudge().open_session(pair.query)
        passage = (Passage("passage", pair.passage),)
        ground = PassageArrays(reading.get_index(passage), table, load_idf())
        question = reading.get_query(pair.query)
        has_words = question.total_weight and len(ground.tokens)
        result.append(compute_relevance_features(question, ground)[0][0] if has_words else np.zeros(len(FEATURE_NAMES)))
    return np.array(result)


def fit(values: Array, labels: Array, sets: Array) -> LogisticRegression:
    """Fit; each set counts the same, and in each set relevant and other pairs."""
    weight = np.zeros(len(labels))
    for name in np.unique(sets):
        for label in (0, 1):
            selected = (sets == name) & (labels == label)
            weight[selected] = 1 / max(1, selected.sum())
    return LogisticRegression(C=RIDGE, max_iter=1000).fit(values, labels, sample_weight=weight / weight.mean())


def main(folder: Path) -> None:
    """Measure, fit on everything, write."""
    pairs = [*graded(folder), *mined(folder)]
    values, labels = numbers(pairs), np.array([pair.relevant for pair in pairs])
    sets, folds = np.array([pair.set for pair in pairs]), np.array([pair.fold for pair in pairs])
    mean, deviation = values.mean(0), values.std(0) + 1e-6
    scaled = (values - mean) / deviation
    crossed = np.zeros(len(pairs))
    for first in range(FOLDS):
        crossed[folds == first] = fit(
            scaled[folds != first], labels[folds != first], sets[folds != first]
        ).decision_function(scaled[folds == first])
    for first in dict.fromkeys(sets):
        selected = sets == first
        never = fit(scaled[~selected], labels[~selected], sets[~selected]).decision_function(scaled[selected])
        print(f"{first:10} n {selected.sum():6,}  AUROC {auroc(crossed[selected], labels[selected]):.3f}  "
              f"never seen {auroc(never, labels[selected]):.3f}")  # fmt: skip
    model = fit(scaled, labels, sets)
    np.savez_compressed(TARGET, mean=mean, deviation=deviation, weights=model.coef_[0], bias=model.intercept_[0])
    print("  ".join(f"{name} {weight:.2f}" for name, weight in zip(FEATURE_NAMES, model.coef_[0], strict=True)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
