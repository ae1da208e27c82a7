"""Hold what the answer key says of answers to real questions against people.

    python -m benchmarks.answer_key DATA [--count 400] [--judge encoder]

DATA holds `answer_correctness_nq.jsonl.gz`: answers of five systems to questions of Natural Questions, with short
references, and whether people found them right. Prints for each system how many answers the key calls right and wrong,
and how many of these people do. The judge is `lexical`, which decides where the words of the key do not;
`encoder` reads the answer beside the key instead.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.datasets import read_rows
from ragfault.diagnosis.run_analysis import diagnose_run
from ragfault.evaluation.evaluator import evaluate
from ragfault.model.grouping import group_by
from ragfault.model.records import Trace

OUTCOMES = ("right answer", "wrong answer", "cannot tell")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--judge", default="lexical")
    options = parser.parse_args()
    rows = [row for row in read_rows(options.data, "answer_correctness_nq") if row["answer"].strip()]
    totals: Counter[tuple[str | None, bool]] = Counter()
    print("| system | answers | right by people | key: right (people too) | key: wrong (people too) | cannot tell |")
    print("|---|---|---|---|---|---|")
    for system, answers in sorted(group_by(rows, lambda row: row["model"]).items()):
        counts = count_outcomes(answers[: options.count], options.judge)
        totals += counts
        print_row(system, counts)
    print_row("all", totals)


def count_outcomes(rows: list[dict[str, object]], judge: str) -> Counter[tuple[str | None, bool]]:
    """Count the answers by what the key says and whether people found them right."""
    traces = [
        Trace(id=str(row["id"]), query=str(row["query"]), reference=tuple(row["references"]), answer=str(row["answer"]))  # type: ignore[arg-type]
        for row in rows
    ]
    with tempfile.TemporaryDirectory() as folder:
        diagnoses = diagnose_run(evaluate(traces, Path(folder, "run"), judge=judge))
        return Counter(
            (diagnosis.key_outcome, bool(row["label"])) for diagnosis, row in zip(diagnoses, rows, strict=True)
        )


def print_row(name: str, counts: Counter[tuple[str | None, bool]]) -> None:
    """Print the row of a system."""
    right, wrong, open_count = (counts[outcome, True] + counts[outcome, False] for outcome in OUTCOMES)
    by_people = sum(count for (_, is_right), count in counts.items() if is_right)
    agreed = f"{right:,} ({counts[OUTCOMES[0], True]:,}) | {wrong:,} ({counts[OUTCOMES[1], False]:,})"
    print(f"| {name} | {counts.total():,} | {by_people:,} | {agreed} | {open_count:,} |", flush=True)


if __name__ == "__main__":
    main()
