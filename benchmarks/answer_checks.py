"""Measure checks after generation on RAGTruth: unsupported claims released before and after, and supported ones lost.

    python -m benchmarks.answer_checks DATA_FOLDER [JUDGE] [--sources 150]

Answers of four weaker generators to sources that no weights were fitted on. A claim is unsupported where people marked
a part of it; it is released where the answer after the check still has its words. "escalate" takes the recorded answer
of gpt-4-0613 to the same source where the judge's risk of the first is higher, so its released claims are of either.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.datasets import build_trace, is_marked, is_reserved, read_rows
from ragfault.judges.loading import load_judge
from ragfault.model.protocols import Judge
from ragfault.model.records import Trace
from ragfault.retrieval.answers.checks import AnswerStage, escalate, verify
from ragfault.stats.intervals import mean_interval

STRONG_MODEL = "gpt-4-0613"
WEAK_MODELS = ("gpt-3.5-turbo-0613", "mistral-7B-instruct", "llama-2-7b-chat", "llama-2-13b-chat")
Claims = list[tuple[str, bool]]


def list_claims(row: dict[str, Any], judge: Judge) -> Claims:
    """Return the claims of an answer, each with True where people marked a part of it as unsupported."""
    [verdicts] = judge.observe([build_trace(row)])
    return [(claim.claim, is_marked(claim, row)) for claim in verdicts.claim or ()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("judge", nargs="?", default="embedded")
    parser.add_argument("--sources", type=int, default=150)
    options = parser.parse_args()
    judge, splitter = load_judge(options.judge), load_judge("lexical")
    reserved = [row for row in read_rows(options.data, "ragtruth_train") if is_reserved(row)]
    all_sources = sorted({row["source_id"] for row in reserved})
    strong_rows = {row["source_id"]: row for row in reserved if row["model"] == STRONG_MODEL}
    source_ids = {name for name in all_sources[:: max(1, len(all_sources) // options.sources)] if name in strong_rows}
    weak_rows = [row for row in reserved if row["source_id"] in source_ids and row["model"] in WEAK_MODELS]
    claims = {
        row["id"]: list_claims(row, splitter) for row in (*weak_rows, *(strong_rows[name] for name in source_ids))
    }
    stages: dict[str, Callable[[dict[str, Any]], AnswerStage]] = {
        "none": lambda _: lambda item: item,
        "cut": lambda _: verify(judge, "cut"),
        "abstain, risk 0.5": lambda _: verify(judge, "abstain"),
        "abstain, risk 0.8": lambda _: verify(judge, "abstain", threshold=0.8),
        "escalate": lambda row: escalate(judge, lambda *_: str(strong_rows[row["source_id"]]["answer"])),
    }
    print(f"{len(weak_rows)} answers to {len(source_ids)} sources, judge {judge.fingerprint.split()[0]}")
    for name, make_stage in stages.items():
        report_stage(name, weak_rows, claims, strong_rows, make_stage)


def report_stage(
    name: str,
    rows: list[dict[str, Any]],
    claims: dict[str, Claims],
    strong_rows: dict[str, dict[str, Any]],
    make_stage: Callable[[dict[str, Any]], AnswerStage],
) -> None:
    """Print for one stage the shares of unsupported claims released and of supported ones lost."""
    released, supported, unchanged = [], [], 0
    for row in rows:
        before: Trace = build_trace(row)
        after = make_stage(row)(before).answer or ""
        released_row = strong_rows[row["source_id"]] if after == strong_rows[row["source_id"]]["answer"] else row
        source = row["source_id"]
        unchanged += after == row["answer"]
        released += [(unsupported, source) for claim, unsupported in claims[released_row["id"]] if claim in after]
        if released_row is row:
            supported += [(claim not in after, source) for claim, unsupported in claims[row["id"]] if not unsupported]
    unsupported = mean_interval([flag for flag, _ in released], [source for _, source in released], bounds=(0, 1))
    lost = mean_interval([flag for flag, _ in supported], [source for _, source in supported], bounds=(0, 1))
    total = sum(flag for flag, _ in released)
    shares = f"{unsupported.mean:.1%} [{unsupported.low:.1%}, {unsupported.high:.1%}], {total} of {len(released)}"
    losses = f"{lost.mean:.1%} [{lost.low:.1%}, {lost.high:.1%}]"
    print(f"{name:18} unsupported of released {shares}; supported lost {losses}; unchanged {unchanged / len(rows):.0%}")


if __name__ == "__main__":
    main()
