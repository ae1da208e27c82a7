"""The effect of each fault on the metrics: the mean paired change from the baseline, one line for each fault.

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

from ragfault.evaluation.evaluator import evaluate
from ragfault.model.records import Trace

from .corpora import Corpus, load_handbook_corpus, load_squad_corpus
from .injection import FAULTS, STRENGTHS, pair

__all__ = ["METRICS", "compare_scores", "score_traces"]

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
"""The judge of the table in docs/cards.md."""
Table = Mapping[str, Mapping[str, float]]


def score_traces(traces: Sequence[Trace], folder: Path) -> Table:
    """Score traces; return metric → trace → value, without undefined and failed ones."""
    run = evaluate(traces, folder, metrics=list(METRICS), force=True, judge=JUDGE)
    result: dict[str, dict[str, float]] = {name: {} for name in METRICS}
    for score in run.scores():
        if score.value is not None:
            result[score.metric][score.trace] = score.value
    return result


def compare_scores(before: Table, after: Table) -> dict[str, str]:
    """Compare two sides; return metric → mean paired change, formatted."""
    cells = {}
    for name in METRICS:
        common = before[name].keys() & after[name].keys()
        differences = [after[name][trace] - before[name][trace] for trace in common]
        if not any(differences):
            cells[name] = "=" if differences else "-"
            continue
        mean = statistics.fmean(differences)
        error = statistics.stdev(differences) / math.sqrt(len(differences))
        cells[name] = f"{mean:+.3f}{'*' if abs(mean) > 2.6 * error else ''}"
    return cells


def format_line(name: str, branch: str, cells: Mapping[str, str]) -> str:
    """Format a line of the table."""
    return f"| {name} | {branch} | " + " | ".join(cells[metric] for metric in METRICS) + " |"


def print_table(corpus: Corpus, names: Sequence[str], options: argparse.Namespace) -> None:
    """Print the means of the baseline and the changes by each fault."""
    print("| fault | branch | " + " | ".join(METRICS.values()) + " |")
    print("|---" * (len(METRICS) + 2) + "|")
    with tempfile.TemporaryDirectory() as folder:
        before: Table | None = None
        for name in names:
            baseline, candidate = pair(corpus, name, options.strength, n=options.size, seed=options.seed)
            if before is None:
                before = score_traces(baseline, Path(folder, "baseline"))
                print(format_line("baseline", "", {m: f"{_average(before[m]):.3f}" for m in METRICS}))
            after = score_traces(candidate, Path(folder, "candidate"))
            fault = FAULTS[name]
            branch = f"{fault.layer} {fault.branch}" if fault.branch else "none"
            print(format_line(name, branch, compare_scores(before, after)), flush=True)


def _average(values: Mapping[str, float]) -> float:
    return statistics.fmean(values.values()) if values else math.nan


def main() -> None:
    """Check the arguments, run the faults and print the table."""
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
    corpus = load_squad_corpus(options.data) if options.data else load_handbook_corpus()
    start = time.perf_counter()
    print_table(corpus, options.faults or list(FAULTS), options)
    print(f"\n{corpus.name}, {options.strength}, n = {options.size}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
