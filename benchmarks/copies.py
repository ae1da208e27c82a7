"""Measure how often a claim that copies a sentence but for one point is supported.

    python -m benchmarks.copies DATA [JUDGE ...]

Each claim of sets with labels is compared with its passages by the check that every judge of the package has
(`judges/checks/copies.py`). Printed are, for each set, the claims that it calls contradicted, by what differs and by
their label. A claim of RAGTruth is supported if people marked no part of it.

Then come the authored near copies (`training/authored/copies`), a false and a true one of each passage: how many of
both the check contradicts, in all and by what they change, and the same of each JUDGE, such as `embedded`, with the
AUROC of its groundedness and a 95 % interval.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.datasets import is_marked, read_rows
from ragfault.judges.checks.claims import extract_claims
from ragfault.judges.checks.copies import find_copied_difference, list_candidates
from ragfault.judges.checks.passages import Passage
from ragfault.judges.loading import load_judge
from ragfault.model.records import Chunk, ClaimVerdict, Trace
from training.authored.items import NearCopy, read_copies, read_items
from training.encoder.stacking import compare_judges

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


def print_copies(judges: Sequence[str]) -> None:
    """Print what the check and each judge find among the authored near copies."""
    copies = list(read_copies())
    bad = np.array([copy.is_false for copy in copies])
    checked = [
        find_copied_difference(copy.query, copy.claim, list_candidates([Passage("1", copy.passage)])) for copy in copies
    ]
    print("near copies, the check")
    print_contradicted(copies, [copied is not None for copied in checked])
    traces = [
        Trace(id=str(place), query=copy.query, chunks=(Chunk(id="1", text=copy.passage),), answer=copy.claim)
        for place, copy in enumerate(copies)
    ]
    for name in judges:
        verdicts = load_judge(name).observe(traces)
        grounded = [verdict.answer.grounded if verdict.answer else None for verdict in verdicts]
        scores = [0.0 if value is None else 1 - value for value in grounded]
        area = compare_judges({name: scores}, bad, [copy.pair for copy in copies])[name]
        print(f"near copies, {name}: AUROC {area.value:.3f} [{area.low:.3f}, {area.high:.3f}]")
        print_contradicted(
            copies, [any(claim.support == "contradicted" for claim in verdict.claim or ()) for verdict in verdicts]
        )


def print_contradicted(copies: Sequence[NearCopy], contradicted: Sequence[bool]) -> None:
    """Print how many false and true copies are contradicted, in all and by what they change."""
    for is_false, title in ((True, "false"), (False, "true")):
        chosen = [
            (copy.change, is_hit)
            for copy, is_hit in zip(copies, contradicted, strict=True)
            if copy.is_false == is_false
        ]
        counts = Counter(change for change, is_hit in chosen if is_hit)
        by_change = ", ".join(f"{change} {number}" for change, number in sorted(counts.items()))
        print(f"  {title} ones contradicted: {counts.total()} of {len(chosen)} ({by_change})")


def main() -> None:
    """Print the counts of each set and of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("judges", metavar="JUDGE", nargs="*", help="judges to read the authored near copies with")
    parser.add_argument("--count", type=int, default=6_000, help="pairs of each set")
    options = parser.parse_args()
    contradicted: Counter[tuple[str, str, str]] = Counter()
    seen: Counter[str] = Counter()
    for name, (given, query, claim, texts) in list_claims(options.data, options.count):
        label = LABELS.get(given, given)
        seen[label] += 1
        copied = find_copied_difference(
            query, claim, list_candidates([Passage(str(n), text) for n, text in enumerate(texts)])
        )
        if copied is not None:
            kind = "a function word" if copied.substitution.is_function_word else "a value, an exchange or a negation"
            contradicted[name, kind, label] += 1
            contradicted["all sets", kind, label] += 1
    for (name, kind, label), number in sorted(contradicted.items()):
        print(f"{name:18} {kind:36} {label:14} {number:5}")
    print("claims:", ", ".join(f"{number:,} {label}" for label, number in seen.most_common()))
    print_copies(options.judges)


if __name__ == "__main__":
    main()
