"""Train the model of the embedded judge for the relevance of a passage to a query.

    python -m training.embedded.relevance DATA

A logistic regression on few features. Graded pairs come from WikiQA, TREC DL 2019 and Cranfield. In pairs from
question-answering sets the passage that a question was asked of counts as relevant, and some of those that share most
words with it as not relevant. Prints the AUROC on each set, cross-fitted by source, and by a model that never saw the
set.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage
from ragfault.judges.embedded.arrays import PassageArrays
from ragfault.judges.embedded.judge import FEATURE_NAMES, compute_relevance_features
from ragfault.judges.embedded.word_vectors import Array, load_vectors
from ragfault.judges.lexical.entailment import LexicalJudge
from ragfault.stats.classification import auroc
from training.data_files import FOLDS, assign_fold, read_rows

TARGET = Path(__file__).parents[2] / "src/ragfault/judges/embedded/relevance.npz"
RIDGE = 0.1


class RelevancePair(NamedTuple):
    """A query and a passage that is relevant to it or not."""

    set: str
    fold: int
    query: str
    passage: str
    relevant: int


def load_graded_pairs(folder: Path) -> Iterator[RelevancePair]:
    """Yield pairs that people graded; Cranfield also with a passage at random for each, as not relevant."""
    rng = random.Random(1)
    for row in read_rows(folder, "wikiqa"):
        if row["label"] or rng.random() < 0.35:
            yield RelevancePair(
                "wikiqa", assign_fold(row["source_id"]), row["query"], row["passage"], int(row["label"] > 0)
            )
    for row in read_rows(folder, "trec_dl19"):
        yield RelevancePair(
            "trec_dl19", assign_fold(row["query"]), row["query"], row["passage"], int(row["label"] >= 2)
        )
    texts = {row["docid"]: row["text"] for row in read_rows(folder, "cranfield_docs")}
    queries = {row["qid"]: row["query"] for row in read_rows(folder, "cranfield_queries")}
    for row in read_rows(folder, "cranfield_qrels"):
        if rng.random() < 0.5 and row["docid"] in texts:
            query, other_text = queries[row["qid"]], texts[rng.choice(list(texts))]
            yield RelevancePair(
                "cranfield", assign_fold(row["qid"]), query, texts[row["docid"]], int(row["label"] >= 1)
            )
            yield RelevancePair("cranfield", assign_fold(row["qid"]), query, other_text, 0)


def generate_pairs(folder: Path) -> Iterator[RelevancePair]:
    """Yield pairs of questions and the passages that they were asked of, and of other passages that share words."""
    paragraphs = read_rows(folder, "squad2_paragraphs")
    position = {paragraph["pid"]: i for i, paragraph in enumerate(paragraphs)}
    answerable = [row for row in read_rows(folder, "squad2_questions") if row["answerable"]]
    sampled = random.Random(2).sample(answerable, 1500)
    squad_queries = [(row["query"], {position[row["gold_pid"]]}, row["gold_pid"]) for row in sampled]
    yield from pair_with_neighbors("squad", squad_queries, [paragraph["text"] for paragraph in paragraphs], 2)
    clapnq_rows = read_rows(folder, "clapnq_dev")
    clapnq_queries = [(row["query"], {i}, row["id"]) for i, row in enumerate(clapnq_rows)]
    yield from pair_with_neighbors("clapnq", clapnq_queries, [row["contexts"][0] for row in clapnq_rows], 2)
    texts: list[str] = []
    queries = []
    for source, row in {
        row["source_id"]: row for row in read_rows(folder, "ragtruth_train") if row["task"] == "QA"
    }.items():
        queries.append((row["query"], set(range(len(texts), len(texts) + len(row["contexts"]))), source))
        texts += row["contexts"]
    yield from pair_with_neighbors("marco", queries, texts, 3)


def pair_with_neighbors(
    name: str, queries: Sequence[tuple[str, set[int], object]], texts: Sequence[str], count: int
) -> Iterator[RelevancePair]:
    """Yield each query with its own passages, and with some of the other passages nearest to it by TF-IDF."""
    rng = random.Random(3)
    vectorizer = TfidfVectorizer(sublinear_tf=True, stop_words="english", ngram_range=(1, 2)).fit(texts)
    vectors = vectorizer.transform(texts)
    for query, gold, source in queries:
        nearest = np.argsort(-(vectors @ vectorizer.transform([query]).T).toarray()[:, 0], kind="stable")
        candidates = [int(i) for i in nearest[:30] if i not in gold][:12]
        for i in [*sorted(gold), *rng.sample(candidates, count)]:
            yield RelevancePair(name, assign_fold(source), query, texts[i], int(i in gold))


def compute_pair_features(pairs: Sequence[RelevancePair]) -> Array:
    """Return the features of each pair, 0 where query or passage has no words."""
    table, result = load_vectors(), []
    for pair in pairs:
        session = LexicalJudge().open_session(pair.query)
        passage = (Passage("passage", pair.passage),)
        passage_arrays = PassageArrays(session.get_index(passage), table, load_idf())
        question = session.get_query(pair.query)
        has_words = question.total_weight and len(passage_arrays.tokens)
        result.append(
            compute_relevance_features(question, passage_arrays)[0][0] if has_words else np.zeros(len(FEATURE_NAMES))
        )
    return np.array(result)


def fit(values: Array, labels: Array, sets: Array) -> LogisticRegression:
    """Fit a logistic regression with balanced weights."""
    return LogisticRegression(C=RIDGE, max_iter=1000).fit(values, labels, sample_weight=balance_sets(sets, labels))


def balance_sets(sets: Array, labels: Array) -> Array:
    """Return weights by which each set counts the same, and in each set relevant and other pairs; their mean is 1."""
    weights = np.zeros(len(labels))
    for name in np.unique(sets):
        for label in (0, 1):
            selected = (sets == name) & (labels == label)
            weights[selected] = 1 / max(1, selected.sum())
    balanced: Array = weights / weights.mean()
    return balanced


def main(folder: Path) -> None:
    """Measure the model on held-out pairs, fit it on all pairs, and write the weights."""
    pairs = [*load_graded_pairs(folder), *generate_pairs(folder)]
    values, labels = compute_pair_features(pairs), np.array([pair.relevant for pair in pairs])
    sets, folds = np.array([pair.set for pair in pairs]), np.array([pair.fold for pair in pairs])
    mean, deviation = values.mean(0), values.std(0) + 1e-6
    scaled = (values - mean) / deviation
    scores = np.zeros(len(pairs))
    for test_fold in range(FOLDS):
        scores[folds == test_fold] = fit(
            scaled[folds != test_fold], labels[folds != test_fold], sets[folds != test_fold]
        ).decision_function(scaled[folds == test_fold])
    for test_set in dict.fromkeys(sets):
        selected = sets == test_set
        transfer_scores = fit(scaled[~selected], labels[~selected], sets[~selected]).decision_function(scaled[selected])
        print(f"{test_set:10} n {selected.sum():6,}  AUROC {auroc(scores[selected], labels[selected]):.3f}  "
              f"never seen {auroc(transfer_scores, labels[selected]):.3f}")  # fmt: skip
    model = fit(scaled, labels, sets)
    np.savez_compressed(TARGET, mean=mean, deviation=deviation, weights=model.coef_[0], bias=model.intercept_[0])
    print("  ".join(f"{name} {weight:.2f}" for name, weight in zip(FEATURE_NAMES, model.coef_[0], strict=True)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
