"""Fit how the judge encoder weighs its reading of a passage with its words, and measure it on questions kept apart."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

from ragfault.judges.checks.passages import Passage
from ragfault.judges.embedded.judge import EmbeddedSession
from ragfault.judges.encoder.evidence import evidence
from ragfault.judges.encoder.model import ENGLISH, MULTILINGUAL, EncoderModel, load_encoder
from ragfault.judges.encoder.stack import LEAST_RELEVANCE
from ragfault.judges.lexical.entailment import EntailmentThresholds
from ragfault.stats.classification import auroc, auroc_within_groups
from training.data_files import iterate_rows
from training.encoder.rows import (
    LANGUAGES,
    OTHER_LANGUAGES,
    answer_relevance,
    authored_relevance,
    is_measured,
    is_test_writer,
)

# Passages of each set that the weights are fitted on, and questions of WikiQA that they are measured on.
SAMPLE, QUESTIONS = 400, 130
# Of the retrieved passages of a system, the share that is relevant: it is 5 % in WikiQA, 16 % in NoMIRACL and 35 % of
# what was judged for TREC.
RELEVANT = 0.25
# Of the answers of a system, the share that answers its question.
ANSWERING = 0.8


class JudgedPassage(NamedTuple):
    """A passage and a question, with the label that people gave."""

    set: str
    query: str
    text: str
    relevant: bool
    measured: bool


def list_passages(data: Path, model: str) -> Iterator[JudgedPassage]:
    """Yield passages with labels in the languages of a model."""
    languages = OTHER_LANGUAGES if model == MULTILINGUAL else LANGUAGES[ENGLISH]
    for pair in authored_relevance(random.Random(1), languages):
        yield JudgedPassage("authored", pair.second, pair.first, pair.label == 0, is_measured(pair.group))
    for row in iterate_rows(data / "entailment_train" / "relevance_multilingual.jsonl.gz"):
        if row["lang"] in languages:
            yield JudgedPassage(
                "NoMIRACL", row["query"], row["passage"], row["relevant"], is_measured(row["source_id"])
            )
    if model == ENGLISH:
        yield from list_english_passages(data)


def list_english_passages(data: Path) -> Iterator[JudgedPassage]:
    """Yield passages of WikiQA, whose development part took no part in training, and of TREC."""
    for row in iterate_rows(data / "wikiqa.jsonl.gz"):
        measured = row["split"] != "train" or is_measured(row["source_id"])
        yield JudgedPassage("WikiQA", row["query"], row["passage"], row["label"] > 0, measured)
    for row in iterate_rows(data / "trec_dl19.jsonl.gz"):
        yield JudgedPassage(
            "TREC DL 2019", row["query"], row["passage"], row["label"] > 1, is_measured(row["source_id"])
        )


def sample_fitted(passages: Sequence[JudgedPassage]) -> Iterator[JudgedPassage]:
    """Yield a sample of each set, as many relevant as other passages where there are."""
    chance = random.Random(4)
    for name in dict.fromkeys(item.set for item in passages):
        for relevant in (True, False):
            same = [item for item in passages if (item.set, item.relevant, item.measured) == (name, relevant, False)]
            yield from chance.sample(same, min(SAMPLE // 2, len(same)))


def sample_measured(passages: Sequence[JudgedPassage]) -> Iterator[JudgedPassage]:
    """Yield the passages of the questions that are measured."""
    for name in ("TREC DL 2019", "WikiQA", "NoMIRACL"):
        unseen = [item for item in passages if item.set == name and item.measured]
        queries = sorted({item.query for item in unseen})
        chosen = set(random.Random(1).sample(queries, min(QUESTIONS, len(queries))))
        yield from (item for item in unseen if item.query in chosen)


def read_passages(model: EncoderModel, passages: Iterable[JudgedPassage]) -> np.ndarray:
    """Return the log-odds of the encoder and of the embedded judge, a row a passage."""
    rows = []
    for item in passages:
        session = EmbeddedSession(item.query, EntailmentThresholds(0.7, 0.5))
        [score] = session.score_relevance(item.query, [Passage("0", item.text)])
        p = min(max(score.value, LEAST_RELEVANCE), 1 - LEAST_RELEVANCE)
        read = model.read_relevance(item.query, evidence((item.text,), item.query))
        rows.append((read, np.log(p / (1 - p))))
    return np.array(rows)


def fit_relevance(name: str, data: Path) -> np.ndarray:
    """Fit the weights, each set alike, and print the AUROC of each judge on questions kept apart."""
    model, passages = load_encoder(name), list(list_passages(data, name))
    fitted = list(sample_fitted(passages))
    kinds = np.array([f"{item.set} {item.relevant}" for item in fitted])
    labels = np.array([item.relevant for item in fitted])
    _, places, counts = np.unique(kinds, return_inverse=True, return_counts=True)
    shares = np.where(labels, RELEVANT, 1 - RELEVANT) * 1_000 / counts[places]
    layer = LogisticRegression(C=1e3).fit(read_passages(model, fitted), labels, sample_weight=shares)
    weights = np.append(layer.coef_[0], layer.intercept_[0])
    measured = list(sample_measured(passages))
    odds = read_passages(model, measured)
    for source in dict.fromkeys(item.set for item in measured):
        inside = np.array([item.set == source for item in measured])
        relevant = np.array([item.relevant for item in measured])[inside]
        queries = [item.query for item in measured if item.set == source]
        scores = {"read": odds[:, 0], "embedded": odds[:, 1], "both": odds @ weights[:2]}
        for judge, values in scores.items():
            within = auroc_within_groups(values[inside], relevant, queries)
            area = auroc(values[inside], relevant)
            print(
                f"relevance {source} {judge}: {inside.sum():,}  AUROC {area:.3f}  within {within.value:.3f}", flush=True
            )
    return weights


def fit_answering(name: str, data: Path) -> np.ndarray:
    """Fit the weight of the reading of an answer and the intercept, and print the AUROC on writers kept apart.

    Four in five answers answer their question, as in systems that are not broken.
    """
    model, languages = load_encoder(name), OTHER_LANGUAGES if name == MULTILINGUAL else LANGUAGES[ENGLISH]
    pairs = [pair for pair in answer_relevance(languages)(data) if is_measured(pair.group)]
    read = np.array([model.read_relevance(pair.second, evidence((pair.first,), pair.second)) for pair in pairs])
    answers = np.array([pair.label == 0 for pair in pairs])
    fitted = np.array([not is_test_writer(pair.group) for pair in pairs])
    shares = np.where(answers[fitted], ANSWERING / answers[fitted].sum(), (1 - ANSWERING) / (~answers[fitted]).sum())
    layer = LogisticRegression(C=1e3).fit(read[fitted, None], answers[fitted], sample_weight=shares * fitted.sum())
    weights = np.append(layer.coef_[0], layer.intercept_[0])
    odds, answering = read[~fitted] * weights[0] + weights[1], answers[~fitted]
    print(
        f"answering, another writer: {len(odds):,}  AUROC {auroc(odds, answering):.3f}"
        f"  below .25: answers {(odds[answering] < -1.1).mean():.3f}, others {(odds[~answering] < -1.1).mean():.3f}",
        flush=True,
    )
    return weights
