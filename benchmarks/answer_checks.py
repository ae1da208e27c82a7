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

from benchmarks.judge import is_reserved, rows, trace

from ragfault.judges import load_judge
from ragfault.protocols import Judge
from ragfault.records import Trace
from ragfault.retrieval.answers.checks import AnswerStage, escalate, verify
from ragfault.stats import mean_interval

STRONG = "gpt-4-0613"
WEAK = ("gpt-3.5-turbo-0613", "mistral-7B-instruct", "llama-2-7b-chat", "llama-2-13b-chat")
Claims = list[tuple[str, bool]]


def list_claims(row: dict[str, Any], judge: Judge) -> Claims:
    """List the claims of an answer, each with True where people marked a part of it."""
    [verdicts] = judge.observe([trace(row)])
    return [
        (claim.claim, any(claim.start < span["end"] and span["start"] < claim.end for span in row["spans"]))
        for claim in verdicts.claim or ()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("judge", nargs="?", default="embedded")
    parser.add_argument("--sources", type=int, default=150)
    options = parser.parse_args()
    judge, splitter = load_judge(options.judge), load_judge("lexical")
    reserved = [row for row in rows(options.data, "ragtruth_train") if is_reserved(row)]
    names = sorted({row["source_id"] for row in reserved})
    strong = {row["source_id"]: row for row in reserved if row["model"] == STRONG}
    chosen = {name for name in names[:: max(1, len(names) // options.sources)] if name in strong}
    weak = [row for row in reserved if row["source_id"] in chosen and row["model"] in WEAK]
    claims = {row["id"]: list_claims(row, splitter) for row in (*weak, *(strong[name] for name in chosen))}
    stages: dict[str, Callable[[dict[str, Any]], AnswerStage]] = {
        "none": lambda _: lambda item: item,
        "cut": lambda _: verify(judge, "cut"),
        "abstain, risk 0.5": lambda _: verify(judge, "abstain"),
        "abstain, risk 0.8": lambda _: verify(judge, "abstain", threshold=0.8),
        "escalate": lambda row: escalate(judge, lambda *_: str(strong[row["source_id"]]["answer"])),
    }
    print(f"{len(weak)} answers to {len(chosen)} sources, judge {judge.fingerprint.split()[0]}")
    for name, make in stages.items():
        report(name, weak, claims, strong, make)


def report(
    name: str,
    weak: list[dict[str, Any]],
    claims: dict[str, Claims],
    strong: dict[str, dict[str, Any]],
    make: Callable[[dict[str, Any]], AnswerStage],
) -> None:
    """Print the shares of unsupported claims released and of supported ones lost, with intervals over sources."""
    released, supported, unchanged = [], [], 0
    for row in weak:
        before: Trace = trace(row)
        after = make(row)(before).answer or ""
        own = strong[row["source_id"]] if after == strong[row["source_id"]]["answer"] else row
        source = row["source_id"]
        unchanged += after == row["answer"]
        released += [(bad, source) for claim, bad in claims[own["id"]] if claim in after]
        if own is row:
            supported += [(claim not in after, source) for claim, bad in claims[row["id"]] if not bad]
    bad = mean_interval([flag for flag, _ in released], [source for _, source in released], bounds=(0, 1))
    lost = mean_interval([flag for flag, _ in supported], [source for _, source in supported], bounds=(0, 1))
    total = sum(flag for flag, _ in released)
    shares = f"{bad.mean:.1%} [{bad.low:.1%}, {bad.high:.1%}], {total} of {len(released)}"
    losses = f"{lost.mean:.1%} [{lost.low:.1%}, {lost.high:.1%}]"
    print(f"{name:18} unsupported of released {shares}; supported lost {losses}; unchanged {unchanged / len(weak):.0%}")


if __name__ == "__main__":
    main()
