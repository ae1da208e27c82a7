"""Measure how often each kind of problem is seen on traces on which people see none: the false positives of a judge.

    python -m benchmarks.false_positives DATA [--judge embedded] [--count 300] [--others]

DATA holds clapnq_dev, squad2_paragraphs, squad2_questions and ragtruth_train. Of CLAPnq and SQuAD 2 each question
stands with the passage that answers it and the answer that people gave; of RAGTruth, answers without a mark, whose
claims are all supported (nobody looked at its passages). The rate of a kind is the largest of its sets.

With --others, in place of these: how often the answers to other questions are called off-topic, and how well the
relevance of an answer tells them from those that people gave (AUROC). An answer to a question on another passage stands
beside the passage of the query, that of its own question, or both; in SQuAD 2 also one to a question on the same
passage.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.datasets import read_rows
from ragfault import evaluate
from ragfault.diagnosis.diagnosis import LOW_SCORE
from ragfault.diagnosis.records import ProblemKind
from ragfault.diagnosis.run_analysis import diagnose_run
from ragfault.judges.loading import load_judge
from ragfault.model.records import Chunk, Trace

CLAIM_KINDS: tuple[ProblemKind, ...] = ("unsupported_claim", "contradicted_claim")
KINDS: tuple[ProblemKind, ...] = (
    "missing_context",
    "missed_refusal",
    "unanswered_aspect",
    "irrelevant_answer",
    "nothing_relevant",
    "irrelevant_chunk",
    *CLAIM_KINDS,
)
TASKS = ("QA", "Summary", "Data2txt")
SAME_PASSAGE = "another question on the same passage"
OTHERS = (
    "another question, beside the passage of the query",
    "another question, beside its own passage",
    "another question, beside both passages",
    SAME_PASSAGE,
)


Case = tuple[str, list[str], str]
"""A query, passages and an answer."""


def load_answered_questions(data: Path) -> dict[str, list[Case]]:
    """Load the questions of CLAPnq and SQuAD 2 with the passage and the answer that people gave."""
    passages = {row["pid"]: row["text"] for row in read_rows(data, "squad2_paragraphs")}
    return {
        "CLAPnq": [
            (row["query"], row["contexts"], row["answer"]) for row in read_rows(data, "clapnq_dev") if row["answerable"]
        ],
        "SQuAD 2": [
            (row["query"], [passages[row["gold_pid"]]], row["answers"][0])
            for row in read_rows(data, "squad2_questions")
            if row["answerable"]
        ],
    }


def load_good_traces(data: Path, count: int) -> dict[str, list[Trace]]:
    """Load traces on which people see no problem, by set, chosen at random."""
    rows = load_answered_questions(data)
    answers = read_rows(data, "ragtruth_train")
    for task in TASKS:
        rows[f"RAGTruth {task}"] = [
            (row["query"], row["contexts"], row["answer"])
            for row in answers
            if row["task"] == task and not row["spans"] and row["quality"] == "good"
        ]
    rng = random.Random(0)
    return {name: _build_traces(rng.sample(cases, min(count, len(cases)))) for name, cases in rows.items()}


def pair_with_others(cases: list[Case], count: int) -> dict[str, list[Case]]:
    """Pair questions with answers to others, by the passages beside them."""
    rng = random.Random(0)
    pairs: dict[str, list[Case]] = {name: [] for name in ("right", *OTHERS)}
    for query, texts, answer in rng.sample(cases, min(count, len(cases))):
        pairs["right"].append((query, texts, answer))
        other = rng.choice([case for case in cases if case[1] != texts])
        for name, shown in zip(OTHERS, (texts, other[1], [*texts, *other[1]]), strict=False):
            pairs[name].append((query, shown, other[2]))
        siblings = [text for asked, shown, text in cases if shown == texts and asked != query and text != answer]
        if siblings:
            pairs[SAME_PASSAGE].append((query, texts, rng.choice(siblings)))
    return pairs


def print_others(data: Path, judge: str, count: int) -> None:
    """Print how often answers to other questions are called off-topic, and the AUROC of the relevance of answers."""
    print("| set | answer to | answers | off-topic | AUROC |\n|---|---|---|---|---|")
    for name, cases in load_answered_questions(data).items():
        relevance = {
            kind: np.array([verdicts.answer.relevance for verdicts in load_judge(judge).observe(_build_traces(pairs))])
            for kind, pairs in pair_with_others(cases, count).items()
            if pairs
        }
        for kind, values in relevance.items():
            gaps = np.sign(relevance["right"][:, None] - values)
            area = "–" if kind == "right" else f"{(gaps.mean() + 1) / 2:.3f}"
            print(f"| {name} | {kind} | {len(values)} | {(values < LOW_SCORE).mean():.2f} | {area} |", flush=True)


def _build_traces(rows: list[Case]) -> list[Trace]:
    return [
        Trace(
            id=str(number),
            query=query,
            answer=answer,
            chunks=tuple(Chunk(id=f"{number}-{place}", text=text) for place, text in enumerate(texts)),
        )
        for number, (query, texts, answer) in enumerate(rows)
    ]


def main() -> None:
    """Print a table of the shares by set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--judge", default="embedded")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--others", action="store_true")
    options = parser.parse_args()
    if options.others:
        print_others(options.data, options.judge, options.count)
        return
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
