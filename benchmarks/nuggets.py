"""Score systems by nuggets with a packaged judge, and compare with people's marks of the same answers.

    python -m benchmarks.nuggets --data ../shared/data --judge embedded

EVOUNA (answers of five systems to Natural Questions, marked right or wrong by people): the nuggets of a question are
its references, an answer has a nugget where the judge finds it there. Printed are the accuracy of the assignment, with
that of the words of the nugget in the answer, and Kendall's tau of the systems by completeness and by people's marks.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

from ragfault.judges import load_judge
from ragfault.records import Trace
from ragfault.text import normalize_answer


def read_answers(folder: Path) -> list[dict[str, Any]]:
    with gzip.open(folder / "answer_correctness_nq.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--judge", default="embedded")
    parser.add_argument("-n", type=int, default=400, help="questions")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = [row for row in read_answers(options.data) if row["answer"].strip()]
    names = sorted({row["source_id"] for row in rows})
    chosen = set(random.Random(options.seed).sample(names, min(options.n, len(names))))
    rows = [row for row in rows if row["source_id"] in chosen]
    judge = load_judge(options.judge)
    traces = [
        Trace(id=row["id"], query=row["query"], answer=row["answer"], facts=tuple(row["references"])) for row in rows
    ]
    right: defaultdict[str, list[tuple[bool, bool, bool]]] = defaultdict(list)
    for row, verdicts in zip(rows, judge.observe(traces), strict=True):
        stated = any(fact.present for fact in verdicts.fact or ())
        words = any(normalize_answer(name) in normalize_answer(row["answer"]) for name in row["references"])
        right[row["model"]].append((bool(row["label"]), stated, words))
    print("| system | answers | right by people | by nuggets | assignment agrees | words agree |")
    print("|---|---|---|---|---|---|")
    means = []
    for model, marks in sorted(right.items()):
        people, stated_share, words_share = (sum(mark[i] for mark in marks) / len(marks) for i in range(3))
        agrees, literal = (sum(mark[0] == mark[at] for mark in marks) / len(marks) for at in (1, 2))
        means.append((people, stated_share, words_share))
        print(f"| {model} | {len(marks)} | {people:.3f} | {stated_share:.3f} | {agrees:.3f} | {literal:.3f} |")
    from scipy.stats import kendalltau

    people_means, *others = zip(*means, strict=True)
    for name, values in zip(("nuggets", "words"), others, strict=True):
        print(f"tau of {len(means)} systems by {name} and by people: {kendalltau(people_means, values).statistic:.2f}")


if __name__ == "__main__":
    main()
