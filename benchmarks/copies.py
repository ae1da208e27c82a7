"""Measure how often a claim that copies a sentence but for one point is supported: python -m benchmarks.copies DATA.

Each claim of sets with labels is compared with its passages by the check that every judge of the package has
(`judges/checks/copies.py`). Printed are, for each set, the claims that it calls contradicted, by what differs and by
their label. A claim of RAGTruth is supported if people marked no part of it.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.datasets import is_marked, read_rows
from ragfault.judges.checks.claims import extract_claims
from ragfault.judges.checks.copies import find_copied_difference
from ragfault.judges.checks.passages import Passage
from ragfault.model.records import ClaimVerdict
from training.authored.items import read_items

PAIR_SETS = ("hans", "snli", "mnli_dev", "lingnli", "fever", "scitail", "contractnli", "expertqa", "realsumm_pyrxsum")
LABELS = {"S": "supported", "C": "contradicted", "N": "not stated", "not_stated": "not stated"}
LABELS |= {"not_supported": "not supported"}
LabelledClaim = tuple[str, str, str, list[str]]


def list_claims(data: Path, count: int) -> Iterator[tuple[str, LabelledClaim]]:
    """Yield claims with their set: label, query, text and passages; at most `count` of each set."""
    for name in PAIR_SETS:
        rows = read_rows(data / "entailment_train", name)
        for row in random.Random(1).sample(rows, min(count, len(rows))):
            yield name, (row["label"], "", row["claim"], [row["premise"]])
    for item in read_items():
        if item.language == "en":
            yield "authored", (item.label, item.query, item.claim, list(item.chunks))
    rows = read_rows(data, "ragtruth_train")
    for row in random.Random(2).sample(rows, min(count // 4, len(rows))):
        for claim in extract_claims(row["answer"]):
            verdict = ClaimVerdict(claim=claim.text, start=claim.start, end=claim.end, support="supported")
            label = "not supported" if is_marked(verdict, row) else "supported"
            yield "ragtruth", (label, row["query"], claim.text, row["contexts"])


def main() -> None:
    """Print the counts of each set and of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--count", type=int, default=6_000, help="pairs of each set")
    options = parser.parse_args()
    contradicted: Counter[tuple[str, str, str]] = Counter()
    seen: Counter[str] = Counter()
    for name, (given, query, claim, texts) in list_claims(options.data, options.count):
        label = LABELS.get(given, given)
        seen[label] += 1
        copied = find_copied_difference(query, claim, [Passage(str(n), text) for n, text in enumerate(texts)])
        if copied is not None:
            kind = "a function word" if copied.substitution.is_function_word else "a value, an exchange or a negation"
            contradicted[name, kind, label] += 1
            contradicted["all sets", kind, label] += 1
    for (name, kind, label), number in sorted(contradicted.items()):
        print(f"{name:18} {kind:36} {label:14} {number:5}")
    print("claims:", ", ".join(f"{number:,} {label}" for label, number in seen.most_common()))


if __name__ == "__main__":
    main()
