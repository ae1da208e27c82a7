"""Train the model of answerability, and measure it on questions about articles that it has not seen.

python -m training.answerability DATA [--write]

DATA holds squad2_paragraphs, squad2_questions, clapnq_dev, wikiqa and trec_dl19. Fitted with LightGBM and
scikit-learn, used without them. `--write` writes src/ragfault/apps/testsets/answerability.npz, fitted on all pairs.
The sets are left out one after the other, too: of what a model learns of one of them, not all holds for others.
"""

from __future__ import annotations

import argparse
import difflib
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

from ragfault.apps.testsets.answerability import AnswerabilityModel, Array, compute_features
from ragfault.apps.testsets.making.filters import MIN_FALL
from ragfault.stats.classification import auroc
from ragfault.text.normalization import split_content_words
from training.data_files import Row, read_rows
from training.embedded.boosting import pack_trees, train_trees

WEIGHTS = Path(__file__).parents[1] / "src/ragfault/apps/testsets"
FOLDS, TREE_ROUNDS, RIDGE = 8, 200, 0.05
TREE_SETTINGS = {
    "num_leaves": 7, "learning_rate": 0.03, "min_child_samples": 30, "feature_fraction": 0.6,
    # More relevance and support never lower the probability, and what is not stated never raises it.
    "monotone_constraints": [1, 1, 0, -1, 1, 0, -1],
}  # fmt: skip
MAX_PAIRS = 600
"""Pairs that are sampled from each of the sets of single sentences and of search results."""


class LabelledPair(NamedTuple):
    """A question and a passage, with the label of people."""

    source: str
    group: str
    query: str
    passage: str
    answers: bool


def load_pairs(folder: Path) -> Iterator[LabelledPair]:
    """Yield all labelled pairs; of questions with sentences as many wrong ones as right ones."""
    texts = {row["pid"]: row["text"] for row in read_rows(folder, "squad2_paragraphs")}
    for row in read_rows(folder, "squad2_questions"):
        group = row["gold_pid"].split("|")[1]
        yield LabelledPair("squad2", group, row["query"], texts[row["gold_pid"]], row["answerable"])
    yield from _pair_with_others(read_rows(folder, "squad2_questions"), texts)
    for row in read_rows(folder, "clapnq_dev"):
        yield LabelledPair("clapnq", str(row["source_id"] if "source_id" in row else row["contexts"][0][:80]),
                           row["query"], "\n".join(row["contexts"]), bool(row["answerable"]))  # fmt: skip
    yield from _balance("wikiqa", read_rows(folder, "wikiqa"), 1)
    yield from _balance("trec", read_rows(folder, "trec_dl19"), 2)


def _pair_with_others(rows: Sequence[Row], texts: dict[str, str]) -> Iterator[LabelledPair]:
    """Yield questions with their paragraph, and with the other one of its article that has most of their words."""
    words = {name: set(split_content_words(text)) for name, text in texts.items()}
    answered = [row for row in rows if row["answerable"]]
    for row in random.Random(0).sample(answered, MAX_PAIRS // 2):
        group = row["gold_pid"].split("|")[1]
        query_words = set(split_content_words(row["query"]))
        other_passages = [name for name in texts if name.split("|")[1] == group and name != row["gold_pid"]]
        nearest = max(other_passages, key=lambda name: (len(words[name] & query_words), name))
        yield LabelledPair("squad2-other", group, row["query"], texts[row["gold_pid"]], True)
        yield LabelledPair("squad2-other", group, row["query"], texts[nearest], False)


def _balance(source: str, rows: Sequence[Row], threshold: int) -> Iterator[LabelledPair]:
    rng = random.Random(0)
    by_query: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_query[row["query"]].append(row)
    count_so_far = 0
    for query, query_rows in rng.sample(sorted(by_query.items(), key=lambda item: item[0]), len(by_query)):
        if count_so_far >= MAX_PAIRS:
            return
        answering = [row for row in query_rows if row["label"] >= threshold]
        not_answering = [row for row in query_rows if row["label"] < threshold]
        count = min(len(answering), len(not_answering), 12)
        count_so_far += 2 * count
        for row in (*rng.sample(answering, count), *rng.sample(not_answering, count)):
            yield LabelledPair(source, query, query, row["passage"], row["label"] >= threshold)


def find_near_pairs(pairs: Sequence[LabelledPair]) -> list[tuple[int, int]]:
    """Return the indexes of questions on one passage that differ in one word: one has an answer, the other none."""
    by_passage: defaultdict[str, list[int]] = defaultdict(list)
    for index, pair in enumerate(pairs):
        if pair.source == "squad2":
            by_passage[pair.passage].append(index)
    near_pairs = []
    for indexes in by_passage.values():
        for answering in (i for i in indexes if pairs[i].answers):
            for not_answering in (i for i in indexes if not pairs[i].answers):
                words, other_words = (pairs[i].query.lower().rstrip("?").split() for i in (answering, not_answering))
                if abs(len(words) - len(other_words)) <= 1 and _count_edits(words, other_words) == 1:
                    near_pairs.append((answering, not_answering))
    return near_pairs


def _count_edits(words: Sequence[str], other_words: Sequence[str]) -> int:
    """Count the words that were replaced, added or left out."""
    steps = difflib.SequenceMatcher(None, words, other_words, autojunk=False).get_opcodes()
    return sum(max(step[2] - step[1], step[4] - step[3]) for step in steps if step[0] != "equal")


def fit_arrays(features: Array, labels: Array, sources: Array) -> dict[str, Array]:
    """Fit both parts of the model, each source with the same weight in all but SQuAD with twice as much."""
    weights = np.ones(len(sources))
    for source in set(sources):
        weights[sources == source] = (2.0 if source == "squad2" else 1.0) / (sources == source).sum()
    weights *= len(weights) / weights.sum()
    mean, deviation = features.mean(0), features.std(0) + 1e-9
    linear = LogisticRegression(C=RIDGE, max_iter=3000).fit((features - mean) / deviation, labels, weights)
    boosted = train_trees(features, labels.astype(int), weights, TREE_ROUNDS, **TREE_SETTINGS)
    return {
        "mean": mean, "deviation": deviation, "weights": linear.coef_[0], "bias": linear.intercept_[0],
        **{f"trees.{name}": array for name, array in pack_trees(boosted).items()},
    }  # fmt: skip


def _name_group(pair: LabelledPair) -> str:
    """Return the group of a pair, which is never split between folds: its article, its passage or its question."""
    return f"{pair.source.partition('-')[0]} {pair.group}"


def predict_out_of_fold(pairs: Sequence[LabelledPair], features: Array, answers: Array, sources: Array) -> Array:
    """Predict the probability of each pair by a model that has seen no pair of its article or question."""
    groups = sorted(set(map(_name_group, pairs)))
    random.Random(1).shuffle(groups)
    fold_of = {group: i % FOLDS for i, group in enumerate(groups)}
    folds = np.array([fold_of[_name_group(pair)] for pair in pairs])
    scores = np.zeros(len(pairs))
    for fold in range(FOLDS):
        in_training = folds != fold
        arrays = fit_arrays(features[in_training], answers[in_training], sources[in_training])
        scores[~in_training] = AnswerabilityModel.unpack(arrays).predict(features[~in_training])
    return scores


def report(pairs: Sequence[LabelledPair], scores: Array, name: str) -> None:
    """Print the AUROC of each source, and how often the right one of two near questions has the higher score."""
    answers = np.array([pair.answers for pair in pairs])
    for source in sorted({pair.source for pair in pairs}):
        in_source = np.array([pair.source == source for pair in pairs])
        if 0 < answers[in_source].sum() < in_source.sum() and np.ptp(scores[in_source]) > 0:
            print(
                f"{name:12} {source:8} n {in_source.sum():5}  AUROC {auroc(scores[in_source], answers[in_source]):.3f}"
            )
    near_pairs = find_near_pairs(pairs)
    if not near_pairs:
        return
    rows = sorted({i for pair in near_pairs for i in pair})
    wins = np.mean([(scores[a] > scores[b]) + 0.5 * (scores[a] == scores[b]) for a, b in near_pairs])
    print(f"{name:12} one word differs: {len(near_pairs)} pairs, right one higher {wins:.3f}, "
          f"AUROC {auroc(scores[rows], answers[rows]):.3f}")  # fmt: skip
    falls = np.array([scores[a] - scores[b] for a, b in near_pairs])
    print(f"{name:12} the probability falls by {MIN_FALL} in {(falls >= MIN_FALL).mean():.3f}, "
          f"rises by it in {(falls <= -MIN_FALL).mean():.3f}")  # fmt: skip


def measure_overlap(pair: LabelledPair) -> float:
    """Return the share of the words of a question that its passage has."""
    words = set(split_content_words(pair.query))
    return len(words & set(split_content_words(pair.passage))) / max(1, len(words))


def main() -> None:
    """Measure the model, then fit it on all pairs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--write", action="store_true", help="write the weights")
    parser.add_argument("--features", type=Path, help="file that keeps the features between calls")
    options = parser.parse_args()
    pairs = list(load_pairs(options.data))
    if options.features and options.features.exists():
        features = np.load(options.features)
    else:
        features = np.array([compute_features(pair.query, pair.passage) for pair in pairs])
        if options.features:
            np.save(options.features, features)
    answers = np.array([pair.answers for pair in pairs])
    sources = np.array([pair.source for pair in pairs])
    report(pairs, np.array([measure_overlap(pair) for pair in pairs]), "word overlap")
    scores = predict_out_of_fold(pairs, features, answers, sources)
    report(pairs, scores, "folds")
    for share in (0.02, 0.05):
        low, high = np.quantile(scores[answers], share), np.quantile(scores[~answers], 1 - share)
        print(f"{share:.0%} of the answered pairs are below {low:.2f}, {share:.0%} of the others above {high:.2f}")
    for source in ("squad2", "clapnq", "wikiqa", "trec"):
        in_source = np.array([name.startswith(source) for name in sources])
        model = AnswerabilityModel.unpack(fit_arrays(features[~in_source], answers[~in_source], sources[~in_source]))
        report(
            [pair for pair, is_own in zip(pairs, in_source, strict=True) if is_own],
            model.predict(features[in_source]),
            "transfer",
        )
    if options.write:
        path = WEIGHTS / "answerability.npz"
        np.savez_compressed(path, allow_pickle=False, **fit_arrays(features, answers, sources))  # type: ignore[arg-type]
        print(f"{path.stat().st_size:,} bytes in {path.name}")


if __name__ == "__main__":
    main()
