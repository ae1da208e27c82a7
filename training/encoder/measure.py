"""Measures the running average of the weights on kept groups: python -m training.encoder.measure DATA BASE STATE.

With `--model multilingual` the second model is measured: three classes and keys in each of its languages, on writers
that it was not trained on, and on public pairs kept apart.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from ragfault.judges.encoder.evidence import claim_text, evidence
from ragfault.judges.encoder.model import ENGLISH, MULTILINGUAL
from training.authored.check import auroc
from training.data_files import Row, iterate_rows
from training.encoder.model import Encoder, read_configuration
from training.encoder.rows import (
    LANGUAGES,
    LETTERS,
    OTHER_LANGUAGES,
    Pair,
    answer_sentences,
    authored_items,
    authored_key_rows,
    entailment_rows,
    is_measured,
    is_test_writer,
    key_rows,
    ragtruth_pairs,
    relevance_rows,
    reply_rows,
)
from training.encoder.train import HAS_BFLOAT16, encoded, load_tokenizer

BATCH = 32


class Reader:
    """The averaged weights, and the probabilities that they give to pairs."""

    def __init__(self, base: Path, state: Path) -> None:
        saved = torch.load(state / "state.pt", weights_only=False)
        self.seen = saved["seen"]
        self.model = Encoder(read_configuration(base))
        self.model.load_state_dict(saved["average"])
        self.model.eval()
        self.tokenizer = load_tokenizer(base)

    @torch.no_grad()
    def probabilities(self, pairs: list[Pair], head: str = "entailment") -> np.ndarray:
        """Return one row a pair: the probability of each class of the head."""
        order = sorted(range(len(pairs)), key=lambda place: len(pairs[place].first) + len(pairs[place].second))
        result = None
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=HAS_BFLOAT16):
                outputs = self.model(*encoded(self.tokenizer, [pairs[place] for place in places]))[head]
            values = torch.softmax(outputs.float(), dim=-1).numpy()
            if result is None:
                result = np.zeros((len(pairs), values.shape[1]))
            result[places] = values
        return result if result is not None else np.zeros((0, 1))

    def answer_support(self, rows: list[tuple[list[str], str, str]]) -> list[float]:
        """Return the support of the weakest sentence of each answer; a row is chunks, answer and query."""
        pairs: list[Pair] = []
        owners: list[int] = []
        for number, (chunks, answer, query) in enumerate(rows):
            for start, end in answer_sentences(answer):
                claim = answer[start:end].strip()
                second = claim_text(claim, query)
                pairs.append(Pair("", evidence(chunks, claim, query), second, "entailment", 0))
                owners.append(number)
        weakest = [1.0] * len(rows)
        for owner, value in zip(owners, self.probabilities(pairs)[:, 0], strict=True):
            weakest[owner] = min(weakest[owner], float(value))
        return weakest


def contrast_figures(reader: Reader, data: Path) -> dict[str, float]:
    """Return the contrast pairs: AUROC, both above the falsehood, the verbatim passage above it."""
    rows = [json.loads(line) for line in (data / "contrast_dev" / "dev.jsonl").read_text().splitlines()]
    guard = [json.loads(line) for line in (data / "contrast_dev" / "dev_guard.jsonl").read_text().splitlines()]
    answers = [(row["chunks"], row["answer"], row["query"]) for row in rows + guard]
    values = reader.answer_support(answers)
    true = {row["pair"]: value for row, value in zip(rows, values, strict=False) if row["supported"]}
    false = {row["pair"]: value for row, value in zip(rows, values, strict=False) if not row["supported"]}
    same = {row["pair"]: value for row, value in zip(guard, values[len(rows) :], strict=True)}
    both = [true[pair] > false[pair] and same[pair] > false[pair] for pair in same]
    return {
        "auroc": auroc(list(true.values()), list(false.values())),
        "paraphrase_above": float(np.mean([true[pair] > false[pair] for pair in true])),
        "both_above": float(np.mean(both)),
        "verbatim_above": float(np.mean([same[pair] > false[pair] for pair in same])),
    }


def authored_figures(reader: Reader) -> dict[str, float]:
    """Return accuracy on held-out authored units: of three classes, and in the four cells."""
    items = [item for item in authored_items() if is_measured(item.unit)]
    if len(items) < 30:
        return {}
    pairs = [
        Pair(
            item.unit,
            evidence(item.chunks, item.claim, item.query),
            claim_text(item.claim, item.query, item.history),
            "entailment",
            LETTERS[item.label],
        )
        for item in items
    ]
    values = reader.probabilities(pairs)
    labels = np.array([pair.label for pair in pairs])
    figures = {"items": len(items), "accuracy": float((values.argmax(1) == labels).mean())}
    for form in ("copy", "para"):
        for label, name in enumerate(("true", "false")):
            cell = [place for place, item in enumerate(items) if item.form == form and labels[place] == label]
            figures[f"{form}_{name}"] = float(np.mean((values[cell, 0] > 0.5) == (label == 0)))
    decided = labels < 2
    figures["auroc_s_c"] = auroc(list(values[labels == 0, 0]), list(values[labels == 1, 0]))
    figures["balanced_s_c"] = float(
        np.mean([np.mean((values[decided, 0] > 0.5)[labels[decided] == label] == (label == 0)) for label in (0, 1)])
    )
    return figures


def ragtruth_figures(reader: Reader, data: Path, count: int = 500) -> dict[str, float]:
    """Return AUROC on held-out RAGTruth answers, and on sentences with conflicts and inventions."""
    rows = [row for row in iterate_rows(data / "ragtruth_train.jsonl.gz") if is_measured(str(row["source_id"]))]
    rows = random.Random(1).sample(rows, min(count, len(rows)))
    pairs: list[Pair] = []
    owners: list[int] = []
    for number, row in enumerate(rows):
        for pair in ragtruth_pairs(row):
            pairs.append(pair)
            owners.append(number)
    support = reader.probabilities(pairs)[:, 0]
    weakest = [1.0] * len(rows)
    for owner, value in zip(owners, support, strict=True):
        weakest[owner] = min(weakest[owner], float(value))
    labels = np.array([pair.label for pair in pairs])
    task = {"answers": bad_auroc(weakest, [row["label"] for row in rows])}
    for name in ("QA", "Summary", "Data2txt"):
        chosen = [place for place, row in enumerate(rows) if row["task"] == name]
        task[name] = bad_auroc([weakest[place] for place in chosen], [rows[place]["label"] for place in chosen])
    task["conflict_sentences"] = auroc(list(support[labels == 0]), list(support[labels == 1]))
    task["invented_sentences"] = auroc(list(support[labels == 0]), list(support[labels == 2]))
    return task


def bad_auroc(support: list[float], bad: list[int]) -> float:
    """Return the AUROC of low support for the bad class."""
    good = [value for value, label in zip(support, bad, strict=True) if not label]
    wrong = [value for value, label in zip(support, bad, strict=True) if label]
    return auroc(good, wrong)


def transfer_figures(reader: Reader, data: Path, count: int = 300) -> dict[str, float]:
    """Return figures of sets that take no part in training: AUROC of the weakest sentence."""
    figures = {}
    for name in ("wice_dev", "begin_dev", "attributionbench_dev"):
        rows = list(iterate_rows(data / f"{name}.jsonl.gz"))
        rows = random.Random(1).sample(rows, min(count, len(rows)))
        support = reader.answer_support([texts(row) for row in rows])
        figures[name] = bad_auroc(support, [row["label"] for row in rows])
    return figures


def texts(row: Row) -> tuple[list[str], str, str]:
    """Return chunks, answer and query of a row of the transfer sets, which hold claims without need of their query."""
    return row["contexts"], row["answer"], ""


def head_figures(reader: Reader, data: Path, read: Callable, head: str, count: int = 1_000) -> dict[str, float]:
    """Return the AUROC of the first class on held-out pairs of a head."""
    pairs = [pair for pair in read(data) if pair.head == head and is_measured(pair.group)]
    pairs = random.Random(1).sample(pairs, min(count, len(pairs)))
    values = reader.probabilities(pairs, head)[:, 0]
    first = [value for value, pair in zip(values, pairs, strict=True) if pair.label == 0]
    return {"pairs": len(pairs), "auroc": auroc(first, [v for v, p in zip(values, pairs, strict=True) if p.label != 0])}


def three_class_figures(reader: Reader, writer: str) -> dict[str, float]:
    """Return the share of the claims of a test writer, in each language, whose one class of three is right."""
    items = [item for item in authored_items(OTHER_LANGUAGES) if item.writer == writer]
    pairs = [
        Pair(
            item.unit,
            evidence(item.chunks, item.claim, item.query, 1),
            claim_text(item.claim, item.query, item.history),
            "entailment",
            LETTERS[item.label],
        )
        for item in items
    ]
    right = reader.probabilities(pairs).argmax(1) == np.array([pair.label for pair in pairs])
    languages = np.array([item.language for item in items])
    figures = {language: float(right[languages == language].mean()) for language in sorted(OTHER_LANGUAGES)}
    return {"items": len(items), "mean": float(np.mean(list(figures.values()))), **figures}


def public_figures(reader: Reader, data: Path, count: int = 800) -> dict[str, float]:
    """Return the share of three classes that is right on public pairs kept apart; OCNLI is never trained on."""
    figures = {}
    for name in ("ocnli", "indonli", "inferes", "farstail", "mnli_dev"):
        pairs = list(entailment_rows(name, 1)(data))
        if name != "ocnli":
            pairs = [pair for pair in pairs if is_measured(pair.group)]
        pairs = random.Random(1).sample(pairs, min(count, len(pairs)))
        values = reader.probabilities(pairs)
        figures[name] = float((values.argmax(1) == np.array([pair.label for pair in pairs])).mean())
    return figures


def key_figures(reader: Reader, data: Path) -> dict[str, float]:
    """Return right or wrong on the keys of test writers: the share that is right, and the AUROC, of each language."""
    rows = [pair for pair in authored_key_rows(OTHER_LANGUAGES)(data) if is_test_writer(pair.group)]
    pairs = [pair for pair in rows if pair.head == "agreement"]
    values = reader.probabilities(pairs, "agreement")[:, 0]
    same = np.array([pair.label == 0 for pair in pairs])
    figures = {
        "pairs": len(pairs),
        "accuracy": float(((values > 0.5) == same).mean()),
        "auroc": auroc(list(values[same]), list(values[~same])),
    }
    languages = np.array([pair.group[:2] for pair in pairs])
    for language in sorted(OTHER_LANGUAGES):
        at = languages == language
        figures[language] = auroc(list(values[same & at]), list(values[~same & at]))
    return figures


def main() -> None:
    """Print one line of figures a set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("base", type=Path)
    parser.add_argument("state", type=Path)
    parser.add_argument("--model", choices=[ENGLISH, MULTILINGUAL], default=ENGLISH)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    reader = Reader(options.base, options.state)

    def show(name: str, figures: dict[str, float]) -> None:
        rounded = {key: round(value, 3) for key, value in figures.items()}
        print(json.dumps({"seen": reader.seen, "set": name, **rounded}), flush=True)

    if options.model == MULTILINGUAL:
        show("three classes, short texts of w35", three_class_figures(reader, "w35"))
        show("three classes, units of w22", three_class_figures(reader, "w22"))
        show("three classes, public", public_figures(reader, options.data))
        show("keys of w43", key_figures(reader, options.data))
        show("reply", head_figures(reader, options.data, reply_rows(OTHER_LANGUAGES), "reply"))
        return
    show("contrast", contrast_figures(reader, options.data))
    show("authored", authored_figures(reader))
    show("agreement", head_figures(reader, options.data, key_rows, "agreement"))
    show("agreement, authored", head_figures(reader, options.data, authored_key_rows(LANGUAGES[ENGLISH]), "agreement"))
    show("reply", head_figures(reader, options.data, reply_rows(), "reply"))
    show("relevance", head_figures(reader, options.data, relevance_rows, "relevance"))
    show("transfer", transfer_figures(reader, options.data))
    show("ragtruth", ragtruth_figures(reader, options.data))


if __name__ == "__main__":
    main()
