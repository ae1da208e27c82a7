"""What each fault does to the metrics: the mean paired change from the baseline, one line a fault.

    python -m benchmarks.faults.check [FAULT …] [--size 200] [--strength medium] [--seed 0] [--data FOLDER]

Without `--data` over the demo handbook, with it over `squad2_*.jsonl.gz` of that folder. A change beyond 2.6 standard
errors is marked with a star; "=" says that no trace differs, "-" that no pair is scored on both sides.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ragfault.evaluation import evaluate
from ragfault.records import Trace

from .corpora import Corpus, handbook_corpus, squad_corpus
from .injection import FAULTS, STRENGTHS, pair

__all__ = ["METRICS", "changes", "scores"]

METRICS = {
    "context_relevance": "ctx_rel",
    "context_relevance@5": "rel@5",
    "context_recall": "ctx_rec",
    "recall@5": "rec@5",
    "span_recall": "span_rec",
    "span_precision": "span_prec",
    "redundancy": "redund",
    "groundedness": "ground",
    "factual_accuracy": "fact_acc",
    "completeness": "complete",
    "chunk_attribution": "attrib",
    "citation_validity": "cit_val",
    "chunk_utilization": "util",
    "answer_relevance": "ans_rel",
}
"""The metrics that the decision tree asks for, and their names at the head of the table."""
JUDGE = "lexical"
"""Of whom the table in docs/judge.md is."""
Table = Mapping[str, Mapping[str, float]]


def scores(traces: Sequence[Trace], folder: Path) -> Table:
    """Return metric → trace → value, for what is scored."""
    run = evaluate(traces, folder, metrics=list(METRICS), force=True, judge=JUDGE)
    result: dict[str, dict[str, float]] = {name: {} for name in METRICS}
    for score in run.scores():
        if score.value is not None:
            result[score.metric][score.trace] = score.value
    return result


def changes(before: Table, after: Table) -> dict[str, str]:
    """Return the mean paired change of every metric as the table shows it."""
    shown = {}
    for name in METRICS:
        both = before[name].keys() & after[name].keys()
        differences = [after[name][trace] - before[name][trace] for trace in both]
        if not any(differences):
            shown[name] = "=" if differences else "-"
            continue
        mean = statistics.fmean(differences)
        error = statistics.stdev(differences) / math.sqrt(len(differences))
        shown[name] = f"{mean:+.3f}{'*' if abs(mean) > 2.6 * error else ''}"
    return shown


def line(name: str, place: str, cells: Mapping[str, str]) -> str:
    """Return one line of the table."""
    return f"| {name} | {place} | " + " | ".join(cells[metric] for metric in METRICS) + " |"


def table(corpus: Corpus, names: Sequence[str], options: argparse.Namespace) -> None:
    """Print the baseline's means and every fault's changes."""
    print("| fault | branch | " + " | ".join(METRICS.values()) + " |")
    print("|---" * (len(METRICS) + 2) + "|")
    with tempfile.TemporaryDirectory() as folder:
        before: Table | None = None
        for name in names:
            baseline, candidate = pair(corpus, name, options.strength, n=options.size, seed=options.seed)
            if before is None:
                before = scores(baseline, Path(folder, "baseline"))
                print(line("baseline", "", {m: f"{_mean(before[m]):.3f}" for m in METRICS}))
            after = scores(candidate, Path(folder, "candidate"))
            kind = FAULTS[name]
            place = f"{kind.layer} {kind.branch}" if kind.branch else "none"
            print(line(name, place, changes(before, after)), flush=True)


def _mean(values: Mapping[str, float]) -> float:
    return statistics.fmean(values.values()) if values else math.nan


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--strength", choices=STRENGTHS, default="medium")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    unknown = [name for name in options.faults if name not in FAULTS]
    if unknown:
        parser.error(f"no fault {', '.join(unknown)}; there are {', '.join(FAULTS)}")
    corpus = squad_corpus(options.data) if options.data else handbook_corpus()
    start = time.perf_counter()
    table(corpus, options.faults or list(FAULTS), options)
    print(f"\n{corpus.name}, {options.strength}, n = {options.size}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
