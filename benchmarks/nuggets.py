"""Score systems by nuggets with a packaged judge, and compare with people's marks of the same answers.

    python -m benchmarks.nuggets --data ../shared/data --judge embedded

EVOUNA (answers of five systems to Natural Questions, marked right or wrong by people): the nuggets of a question are
its references, an answer has a nugget where the judge finds it there. Printed are the accuracy of the assignment, with
that of the words of the nugget in the answer, and Kendall's tau of the systems by completeness and by people's marks.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from pathlib import Path

from benchmarks.datasets import read_rows
from ragfault.judges.loading import load_judge
from ragfault.model.records import Trace
from ragfault.text.normalization import normalize_answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--judge", default="embedded")
    parser.add_argument("-n", type=int, default=400, help="questions")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = [row for row in read_rows(options.data, "answer_correctness_nq") if row["answer"].strip()]
    names = sorted({row["source_id"] for row in rows})
    chosen = set(random.Random(options.seed).sample(names, min(options.n, len(names))))
    rows = [row for row in rows if row["source_id"] in chosen]
    judge = load_judge(options.judge)
    traces = [
        Trace(id=row["id"], query=row["query"], answer=row["answer"], facts=tuple(row["references"])) for row in rows
    ]
    outcomes: defaultdict[str, list[tuple[bool, bool, bool]]] = defaultdict(list)
    for row, verdicts in zip(rows, judge.observe(traces), strict=True):
        stated = any(fact.present for fact in verdicts.fact or ())
        words = any(normalize_answer(name) in normalize_answer(row["answer"]) for name in row["references"])
        outcomes[row["model"]].append((bool(row["label"]), stated, words))
    print("| system | answers | right by people | by nuggets | assignment agrees | words agree |")
    print("|---|---|---|---|---|---|")
    means = []
    for model, marks in sorted(outcomes.items()):
        people, stated_share, words_share = (sum(mark[i] for mark in marks) / len(marks) for i in range(3))
        nugget_agreement, word_agreement = (sum(mark[0] == mark[i] for mark in marks) / len(marks) for i in (1, 2))
        means.append((people, stated_share, words_share))
        figures = (people, stated_share, nugget_agreement, word_agreement)
        print(f"| {model} | {len(marks)} | {' | '.join(f'{figure:.3f}' for figure in figures)} |")
    from scipy.stats import kendalltau

    people_means, *others = zip(*means, strict=True)
    for name, values in zip(("nuggets", "words"), others, strict=True):
        print(f"tau of {len(means)} systems by {name} and by people: {kendalltau(people_means, values).statistic:.2f}")


if __name__ == "__main__":
    main()
