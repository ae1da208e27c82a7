"""Measure how often each kind of problem is seen on traces on which people see none: the false positives of a judge.

    python -m benchmarks.false_positives DATA [--judge embedded] [--count 300]

DATA holds clapnq_dev, squad2_paragraphs, squad2_questions and ragtruth_train. Of CLAPnq and SQuAD 2 each question
stands with the passage that answers it and the answer that people gave; of RAGTruth, answers without a mark, whose
claims are all supported (nobody looked at its passages). The rate of a kind is the largest of its sets.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.datasets import read_rows

from ragfault import evaluate
from ragfault.analysis import diagnose_run
from ragfault.analysis.records import ProblemKind
from ragfault.records import Chunk, Trace

CLAIM_KINDS: tuple[ProblemKind, ...] = ("unsupported_claim", "contradicted_claim")
KINDS: tuple[ProblemKind, ...] = (
    "missing_context", "missed_refusal", "unanswered_aspect", "irrelevant_answer", "nothing_relevant",
    "irrelevant_chunk", *CLAIM_KINDS,
)  # fmt: skip
TASKS = ("QA", "Summary", "Data2txt")


def load_good_traces(data: Path, count: int) -> dict[str, list[Trace]]:
    """Load traces on which people see no problem, by set, chosen at random."""
    passages = {row["pid"]: row["text"] for row in read_rows(data, "squad2_paragraphs")}
    rows = {
        "CLAPnq": [
            (row["query"], row["contexts"], row["answer"]) for row in read_rows(data, "clapnq_dev") if row["answerable"]
        ],
        "SQuAD 2": [
            (row["query"], [passages[row["gold_pid"]]], row["answers"][0])
            for row in read_rows(data, "squad2_questions")
            if row["answerable"]
        ],
    }
    answers = read_rows(data, "ragtruth_train")
    for task in TASKS:
        rows[f"RAGTruth {task}"] = [
            (row["query"], row["contexts"], row["answer"])
            for row in answers
            if row["task"] == task and not row["spans"] and row["quality"] == "good"
        ]
    rng = random.Random(0)
    return {name: _build_traces(rng.sample(cases, min(count, len(cases)))) for name, cases in rows.items()}


def _build_traces(rows: list[tuple[str, list[str], str]]) -> list[Trace]:
    return [
        Trace(
            id=str(number), query=query, answer=answer,
            chunks=tuple(Chunk(id=f"{number}-{place}", text=text) for place, text in enumerate(texts)),
        )
        for number, (query, texts, answer) in enumerate(rows)
    ]  # fmt: skip


def main() -> None:
    """Print a table of the shares by set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--judge", default="embedded")
    parser.add_argument("--count", type=int, default=300)
    options = parser.parse_args()
    print(
        "| "
        + " | ".join(["set", *(kind.replace("_", " ") for kind in KINDS)])
        + " |\n"
        + "|---" * (len(KINDS) + 1)
        + "|"
    )
    for name, traces in load_good_traces(options.data, options.count).items():
        with tempfile.TemporaryDirectory() as folder:
            run = evaluate(traces, Path(folder) / "run", judge=options.judge)
            counts = Counter(
                kind for diagnosis in diagnose_run(run) for kind in {problem.kind for problem in diagnosis.problems}
            )
        looked_at = CLAIM_KINDS if name.startswith("RAGTruth") else KINDS
        cells = [f"{counts[kind] / len(traces):.2f}" if kind in looked_at else "–" for kind in KINDS]
        print("| " + " | ".join([name, *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
