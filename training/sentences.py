"""Fit the weights of words that tell claims from talk and reasoning: python -m training.sentences DATA.

A logistic regression on the words, groups of words and pieces of words of sentences, in nine languages. It learns from
authored sentences of the three kinds, and from authored and public claims. Writes `sentence_kinds.npz` of
`src/ragfault/judges/checks/`. Prints the share of the sentences kept apart that are not taken for claims, by kind and
source, and how many texts of reasoning and how many plain answers are taken for leaked reasoning.
"""

from __future__ import annotations

import argparse
import random
import zlib
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from ragfault.judges.checks.sentence_kinds import KINDS, SLOTS, hash_sentence
from ragfault.text.normalization import split_content_words
from ragfault.text.sentences import split_sentences
from training.authored.items import FOLDER as AUTHORED
from training.authored.items import read_items, read_units
from training.data_files import FOLDS, assign_fold, iterate_rows
from training.encoder.rows import LANGUAGES, authored_lines
from training.word_counts import count_terms

TARGET = Path(__file__).parents[1] / "src/ragfault/judges/checks/sentence_kinds.npz"
# English sentences of this writer are never trained on.
TEST_FILE = "en-w67"
# Of each source at most so many sentences are read.
MOST_CLAIMS = {"sentences": 100_000, "claims en": 5_000, "RAGTruth": 9_000}
MOST_OF_OTHERS = 2_000
AUTHORED_WEIGHT = 10.0
# A sentence of a public answer that shares so many words with its sources is a claim.
SHARED_WORDS = 0.7
# At most this share of the claims of each source may be lost.
CLAIMS_LOST = 0.015
# At most this share of plain answers may be taken for leaked reasoning.
FALSE_ALARMS = 0.0005
PLAIN_ANSWERS = 5_000
REASONING_LENGTHS = (3, 6, 12)


class Sentence(NamedTuple):
    """A sentence of a known kind."""

    group: str
    text: str
    kind: str
    source: str


def authored_sentences() -> Iterator[Sentence]:
    """Yield the authored sentences of the three kinds; those of one question are one group."""
    for path in sorted((AUTHORED / "sentences").glob("*.jsonl")):
        for row in read_units(path):
            yield Sentence(f"{path.stem}-{row['query']}", row["text"], row["label"], "sentences")


def authored_claims() -> Iterator[Sentence]:
    """Yield the claims of units and short texts, short answers to keys, and replies of one sentence."""
    for item in read_items():
        if item.kind != "refusal_partial":
            yield Sentence(item.unit, item.claim, "claim", f"claims {item.language}")
    for language in sorted(frozenset().union(*LANGUAGES.values())):
        for group, row in authored_lines("keys", frozenset({language})):
            for text, _ in row["answers"]:
                yield Sentence(group, text, "claim", f"keys {language}")
        for group, row in authored_lines("replies", frozenset({language})):
            if len(split_sentences(row["reply"])) == 1:
                # That there is no answer is stated as well: a refusal is found before talk is looked for.
                yield Sentence(group, row["reply"], "claim", f"{row['label']} {language}")


def public_claims(data: Path) -> Iterator[Sentence]:
    """Yield claims and short answers of public sets, and sentences of answers made of the words of their sources."""
    for name in ("expertqa", "fever", "condaqa"):
        for row in iterate_rows(data / "entailment_train" / f"{name}.jsonl.gz"):
            yield Sentence(str(row["source_id"]), row["claim"], "claim", name)
    for row in iterate_rows(data / "answer_correctness_nq.jsonl.gz"):
        for number, text in enumerate(row["references"][:2]):
            yield Sentence(row["source_id"], text + "." * number, "claim", "short answers")
    for row in iterate_rows(data / "ragtruth_train.jsonl.gz"):
        known = frozenset(split_content_words(" ".join(map(str, row["contexts"]))))
        for start, end in split_sentences(row["answer"]):
            words = split_content_words(row["answer"][start:end])
            states = len(words) > 3 and not row["answer"][:end].endswith(":")
            if states and sum(word in known for word in words) >= SHARED_WORDS * len(words):
                yield Sentence(str(row["source_id"]), row["answer"][start:end], "claim", "RAGTruth")


def read_sentences(data: Path) -> list[Sentence]:
    """Return sentences of all sources, of each at most `MOST_CLAIMS`."""
    by_source: dict[str, dict[str, Sentence]] = {}
    for sentence in (*authored_sentences(), *authored_claims(), *public_claims(data)):
        by_source.setdefault(sentence.source, {}).setdefault(sentence.text, sentence)
    chance = random.Random(1)
    return [
        sentence
        for source, texts in by_source.items()
        for sentence in chance.sample(list(texts.values()), min(len(texts), MOST_CLAIMS.get(source, MOST_OF_OTHERS)))
    ]


def is_measured(sentence: Sentence) -> bool:
    """Return whether a sentence is measured on: those of one writer, and of each tenth group."""
    return sentence.group.startswith(TEST_FILE) or zlib.crc32(sentence.group.encode()) % 10 == 0


def fit_layer(inputs: csr_matrix, labels: np.ndarray, weights: np.ndarray) -> LogisticRegression:
    """Fit the regression of the three kinds."""
    return LogisticRegression(max_iter=300).fit(inputs, labels, sample_weight=weights)


def read_odds(layer: LogisticRegression, inputs: csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-odds that sentences are not claims, and that they are reasoning and nothing else."""
    claim, talk, reasoning = layer.decision_function(inputs).T
    return np.logaddexp(talk, reasoning) - claim, reasoning - np.logaddexp(claim, talk)


def choose_sure(odds: np.ndarray, claims_by_source: dict[str, np.ndarray]) -> float:
    """Return the lowest log-odds from which few claims of each source are lost."""
    for sure in np.arange(-5, 5, 0.1).round(1):
        if all((odds[chosen] >= sure).mean() <= CLAIMS_LOST for chosen in claims_by_source.values()):
            return float(sure)
    raise ValueError("no log-odds lose so few claims")


class Leaks(NamedTuple):
    """Log-odds of the sentences of texts: plain answers, reasoning, and reasoning with an answer after it."""

    answers: list[np.ndarray]
    reasoning: dict[int, list[np.ndarray]]
    """Number of sentences → texts."""
    answered: list[np.ndarray]


def join_texts(reasoning: np.ndarray, claims: np.ndarray) -> tuple[dict[int, list[np.ndarray]], list[np.ndarray]]:
    """Return texts of sentences of reasoning drawn by chance, and some of them with a claim or two after them."""
    chance = np.random.default_rng(1)
    texts = {size: [chance.choice(reasoning, size) for _ in range(300)] for size in REASONING_LENGTHS}
    return texts, [
        np.concatenate([text, chance.choice(claims, chance.integers(1, 3))]) for text in texts[REASONING_LENGTHS[1]]
    ]


def share_leaked(texts: list[np.ndarray], prior: float, leaked: float) -> float:
    """Return the share of texts that are taken for reasoning without an answer, as `is_leaked_reasoning` decides."""
    called = [
        (odds + prior).sum() >= leaked and min(accumulate((odds + prior)[::-1]), default=0.0) >= 0 for odds in texts
    ]
    return float(np.mean(called))


def choose_leaked(leaks: Leaks) -> tuple[float, float]:
    """Return prior and threshold that find most reasoning and take few answers for it."""
    options = []
    for prior in np.arange(0, 6, 0.5):
        # Plain answers on prompts and users, written to look like reasoning, reach 10.
        for leaked in np.arange(12, 20, 0.5):
            if share_leaked(leaks.answers, prior, leaked) <= FALSE_ALARMS:
                share = np.mean([share_leaked(texts, prior, leaked) for texts in leaks.reasoning.values()])
                options.append((share - share_leaked(leaks.answered, prior, leaked), float(prior), float(leaked)))
                break
    return max(options)[1:]


def plain_answers(data: Path) -> list[list[str]]:
    """Return the sentences of answers of RAGTruth and Natural Questions."""
    answers = [
        row["answer"]
        for name in ("ragtruth_train", "answer_correctness_nq")
        for row in iterate_rows(data / f"{name}.jsonl.gz")
        if row["answer"].strip()
    ]
    chosen = random.Random(2).sample(answers, PLAIN_ANSWERS)
    return [[answer[start:end] for start, end in split_sentences(answer)] for answer in chosen]


def print_shares(name: str, dropped: np.ndarray, chosen: np.ndarray, sentences: list[Sentence]) -> None:
    """Print how many sentences of each kind and source are not taken for claims."""
    keys = [(sentence.kind, sentence.source) for sentence in sentences]
    for key in sorted(set(keys)):
        mask = chosen & np.array([other == key for other in keys])
        if mask.any():
            print(f"{name}, {key[0]} of {key[1]}: {dropped[mask].mean():.3f} of {mask.sum()}", flush=True)


def main() -> None:
    """Fit the weights, write them and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    sentences = read_sentences(data)
    inputs = count_terms((hash_sentence(sentence.text) for sentence in sentences), SLOTS)
    labels = np.array([KINDS.index(sentence.kind) for sentence in sentences])
    authored = np.array([sentence.source == "sentences" for sentence in sentences])
    weights = np.where(authored, AUTHORED_WEIGHT, 1.0)
    apart = np.array(list(map(is_measured, sentences)))
    of_writer = np.array([sentence.group.startswith(TEST_FILE) for sentence in sentences])
    # The thresholds are chosen on sentences whose groups were not fitted on, and not on those that are measured.
    folds = np.array([assign_fold(sentence.group) for sentence in sentences])
    odds, reasoning = np.zeros(len(sentences)), np.zeros(len(sentences))
    for fold in range(FOLDS):
        fitted, rest = ~apart & (folds != fold), ~apart & (folds == fold)
        odds[rest], reasoning[rest] = read_odds(
            fit_layer(inputs[fitted], labels[fitted], weights[fitted]), inputs[rest]
        )
    sources = {sentence.source.partition(" ")[0] for sentence in sentences} - {"refusal"}
    of_source = np.array([sentence.source.partition(" ")[0] for sentence in sentences])
    sure = choose_sure(odds, {source: ~apart & (labels == 0) & (of_source == source) for source in sources})
    layer = fit_layer(inputs[~apart], labels[~apart], weights[~apart])
    odds[apart], reasoning[apart] = read_odds(layer, inputs[apart])
    plain = [read_odds(layer, count_terms(map(hash_sentence, texts), SLOTS))[1] for texts in plain_answers(data)]
    leaks = Leaks(plain, *join_texts(reasoning[~apart & (labels == 2)], reasoning[~apart & authored & (labels == 0)]))
    prior, leaked = choose_leaked(leaks)
    print(f"sure {sure}, prior {prior}, leaked {leaked}")
    print_shares("not claims, in folds", odds >= sure, ~apart & authored, sentences)
    print_shares("not claims, kept apart", odds >= sure, apart & ~of_writer, sentences)
    print_shares("not claims, another writer", odds >= sure, of_writer, sentences)
    for name, chosen in (("in folds", ~apart), ("kept apart", apart & ~of_writer), ("another writer", of_writer)):
        texts, answered = join_texts(reasoning[chosen & (labels == 2)], reasoning[chosen & authored & (labels == 0)])
        shares = {size: round(share_leaked(group, prior, leaked), 3) for size, group in texts.items()}
        print(f"leaked, {name}: {shares}, with an answer {share_leaked(answered, prior, leaked):.3f}")
    print(f"leaked, of {len(plain)} answers: {share_leaked(plain, prior, leaked):.4f}")
    write_weights(layer, sure, prior, leaked)


def write_weights(layer: LogisticRegression, sure: float, prior: float, leaked: float) -> None:
    """Write the weights of talk and reasoning against those of claims."""
    against_claim = layer.coef_[1:] - layer.coef_[0]
    biases = layer.intercept_[1:] - layer.intercept_[0]
    scale = float(np.abs(against_claim).max()) / 127
    np.savez_compressed(
        TARGET,
        slots=np.round(against_claim / scale).astype(np.int8),
        facts=np.array([scale, *biases, sure, prior, leaked]),
    )


if __name__ == "__main__":
    main()
