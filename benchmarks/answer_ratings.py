"""Count the right and the false answers that are called right, unsure and bad without an answer key.

    python -m benchmarks.answer_ratings DATA [--judge embedded]

RAGTruth: answers of two strong and four weaker generators to the sources on which the judge was not fitted (of
`encoder` those on which neither its model nor its stack was); an answer is false if people marked a part of it. ClapNQ:
answers that people wrote from the passage, all right. Answers that refuse are left out: without a key they are unsure.
The calibration error is that of the stated probability of a bad answer, in ten bins.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ragfault.diagnosis.causes.rating import rate_answer
from ragfault.diagnosis.causes.records import AnswerRating
from ragfault.diagnosis.diagnosis import diagnose_trace
from ragfault.judges.loading import load_judge
from ragfault.stats.classification import calibration_error
from training.encoder.claims import is_reserved_source

from .datasets import Row, build_trace, is_reserved, read_rows

STRONG_GENERATORS = ("gpt-3.5-turbo-0613", "gpt-4-0613")
TASKS = ("QA", "Summary", "Data2txt")


def read_sets(folder: Path, judge: str) -> dict[str, list[Row]]:
    """Return the records of each set; those of ClapNQ without spans, as nothing of them is false."""
    is_unseen = partial(is_reserved_source, half=1) if judge == "encoder" else is_reserved
    reserved = [row for row in read_rows(folder, "ragtruth_train") if is_unseen(row)]
    sets = {
        f"RAGTruth {task}, {name}": [
            row for row in reserved if row["task"] == task and (row["model"] in STRONG_GENERATORS) == is_strong
        ]
        for task in TASKS
        for name, is_strong in (("strong", True), ("weaker", False))
    }
    sets["ClapNQ, by people"] = [
        {**row, "spans": []} for row in read_rows(folder, "clapnq_dev") if row["answerable"] and row["answer"]
    ]
    return sets


def print_shares(name: str, ratings: Sequence[tuple[AnswerRating, bool]]) -> None:
    """Print the outcomes of the right and of the false answers of one set."""
    for title, is_false in (("right", False), ("false", True)):
        counts = Counter(rating.outcome for rating, other in ratings if other == is_false)
        total = sum(counts.values())
        if total:
            shares = ", ".join(f"{outcome} {counts[outcome] / total:.0%}" for outcome in ("right", "unsure", "bad"))
            print(f"{name:<28}{title:<7}{total:>5}: {shares}", flush=True)


def main() -> None:
    """Print the outcomes of each set, and the calibration error over all of RAGTruth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--judge", default="embedded")
    options = parser.parse_args()
    judge = load_judge(options.judge)
    pairs: list[tuple[float, bool]] = []
    for name, rows in read_sets(options.data, options.judge).items():
        traces = [build_trace(row) for row in rows]
        ratings = [
            (rate_answer(trace, seen, diagnose_trace(trace, seen)), bool(row["spans"]))
            for row, trace, seen in zip(rows, traces, judge.observe(traces), strict=True)
        ]
        ratings = [(rating, is_false) for rating, is_false in ratings if rating.source == "judge"]
        print_shares(name, ratings)
        if name.startswith("RAGTruth"):
            pairs += [(rating.probability, is_false) for rating, is_false in ratings]
    error = calibration_error([p for p, _ in pairs], [is_false for _, is_false in pairs])
    print(f"calibration error of the probability over {len(pairs):,} answers of RAGTruth: {error:.3f}")


if __name__ == "__main__":
    main()
