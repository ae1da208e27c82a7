"""Measure judges on the authored test part: the same claim under passages that decide it differently.

    python -m benchmarks.contrast [JUDGE ...] [--writer w7] [--language en]

Each claim is judged alone, with its question and the turns before, under each version of its passages. Printed are the
AUROC of support (supported against contradicted, and against not stated), the balanced accuracy of the four cells
(near copy or paraphrase, true or false; short texts have two), and the share of claims whose probability is higher
under the passages that support it than under those that contradict it. A word overlap gets about .5 everywhere.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from ragfault.judges.loading import DEFAULT_JUDGE, load_judge
from ragfault.model.records import Chunk, ConversationTurn, Trace
from ragfault.stats.classification import auroc
from training.authored.items import Item, read_items

ROLES = ("user", "assistant")


def build_trace(number: int, item: Item) -> Trace:
    """Build a trace whose answer is the claim of an item."""
    turns = tuple(ConversationTurn(role=ROLES[place % 2], text=text) for place, text in enumerate(item.history))
    chunks = tuple(Chunk(id=str(place), text=text) for place, text in enumerate(item.chunks))
    return Trace(id=str(number), query=item.query, history=turns or None, chunks=chunks, answer=item.claim)


def judge_items(name: str, items: list[Item]) -> tuple[list[float | None], float]:
    """Return the support of each item, None if the judge makes no claim of it, and the seconds it took."""
    judge = load_judge(name)
    start = time.process_time()
    support: list[float | None] = []
    for verdicts in judge.observe([build_trace(number, item) for number, item in enumerate(items)]):
        support.append(min((claim.p for claim in verdicts.claim), default=None) if verdicts.claim else None)
    return support, time.process_time() - start


def measure_auroc(support: Iterable[tuple[float, str]], other: str) -> float | None:
    """Return the AUROC of supported items against those of another label; None without both."""
    pairs = [(value, int(label == "S")) for value, label in support if label in ("S", other)]
    area = auroc([value for value, _ in pairs], [label for _, label in pairs]) if pairs else None
    return None if area is None else round(area, 3)


def compare_versions(items: list[Item], support: list[float | None]) -> float:
    """Return the share of claims whose support is higher where it is supported than where it is contradicted."""
    groups: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for item, value in zip(items, support, strict=True):
        if value is not None:
            groups[item.unit, item.claim, item.query][item.label].append(value)
    wins = [min(group["S"]) > max(group["C"]) for group in groups.values() if group["S"] and group["C"]]
    return float(np.mean(wins)) if wins else float("nan")


def build_figures(name: str, items: list[Item]) -> dict[str, object]:
    """Judge the items and build the figures of one judge."""
    support, seconds = judge_items(name, items)
    judged = [(item, value) for item, value in zip(items, support, strict=True) if value is not None]
    cells = {}
    for form in sorted({item.form for item in items}):
        for label, is_true in (("S", True), ("C", False)):
            values = [value for item, value in judged if item.form == form and item.label == label]
            cells[f"{form} {'true' if is_true else 'false'}"] = round(
                float(np.mean([(v >= 0.5) == is_true for v in values])), 3
            )
    kinds = defaultdict(list)
    for item, value in judged:
        kinds[item.kind].append((value, item.label))
    return {
        "judge": name,
        "items": len(items),
        "judged": len(judged),
        "auroc": {other: measure_auroc([(v, item.label) for item, v in judged], other) for other in "CN"},
        "cells": cells,
        "balanced": round(float(np.mean(list(cells.values()))), 3),
        "same_claim": round(compare_versions(items, support), 3),
        "kinds": {kind: measure_auroc(rows, "C") for kind, rows in sorted(kinds.items())},
        "items_per_second": round(len(items) / seconds, 1),
    }


def main() -> None:
    """Print one line of JSON a judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("judges", nargs="*", default=[DEFAULT_JUDGE])
    parser.add_argument("--writer", default="w7", help="writers of the units, separated by commas")
    parser.add_argument("--language", default="en")
    options = parser.parse_args()
    writers = options.writer.split(",")
    items = [item for item in read_items() if item.writer in writers and item.language == options.language]
    for name in options.judges:
        figures = build_figures(name, items)
        print(json.dumps(figures, default=lambda value: round(float(value), 3)))


if __name__ == "__main__":
    main()
