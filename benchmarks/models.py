"""Bisect real outputs: RAGTruth's six models answered the same prompts, and people marked what is wrong.

    python benchmarks/models.py DATA/ragtruth_train.jsonl.gz [--count 400] [--unmarked]

For each task and each ordered pair of models, on up to `count` prompts that all answered, the second replaces the
first. The chunks are the same, so retrieval must never be blamed; the direction of groundedness should be that of the
human labels; a model that people marked less often should not be called a fault unless its gain is said.
Prints a Markdown table. With --unmarked only prompts count for which people marked nothing in the answers of either
model, so that no fault of groundedness is right by the labels.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter, defaultdict
from itertools import combinations, permutations
from pathlib import Path

from msgspec.structs import replace

from ragfault.comparison.bisection import bisect
from ragfault.comparison.records import Bisection
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.trace_reader import read_traces
from ragfault.model.records import Trace

METRICS = ("context_relevance", "groundedness", "completeness", "chunk_utilization", "answer_relevance")
MIN_PROMPTS = 60
FIELD_MAP = {
    "id": "id",
    "query": "query",
    "chunks": "contexts",
    "answer": "answer",
    "model": "model",
    "metadata.label": "label",
    "metadata.task": "task",
    "metadata.source": "source_id",
}

Answers = dict[str, dict[str, Trace]]
"""Model → source → its answer."""


def load_answers(path: Path) -> dict[str, Answers]:
    """Return task → model → source → trace, with the source as id, so that the traces of two models pair."""
    result: dict[str, Answers] = defaultdict(lambda: defaultdict(dict))
    for trace in read_traces(path, map=FIELD_MAP):
        source = trace.metadata["source"]
        result[trace.metadata["task"]][trace.model or ""][source] = replace(trace, id=source)
    return result


def compute_marked_share(answers: dict[str, Trace]) -> float:
    """Return the share of answers in which people marked a span."""
    return sum(trace.metadata["label"] for trace in answers.values()) / len(answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--unmarked", action="store_true")
    options = parser.parse_args()
    print("| task | baseline → candidate | n | marked by people | groundedness | verdict | branch |")
    print("|---|---|---|---|---|---|---|")
    totals: Counter[str] = Counter()
    for task, answers in sorted(load_answers(options.data).items()):
        models = sorted(answers)
        groups = combinations(models, 2) if options.unmarked else [models]
        for group in groups:
            compare_models(task, {model: answers[model] for model in group}, options, totals)
    if options.unmarked:
        print(f"\nGroundedness blamed: {totals['groundedness']} of {totals['better'] + totals['worse']} pairs.")
        return
    better, worse = totals["better"], totals["worse"]
    print(
        f"\nRetrieval blamed: {totals['retrieval']}. Of {totals['moved']} pairs where groundedness is shown to have "
        f"moved, {totals['agreed']} agree with people. Of {better} better candidates {totals['better fault']} are "
        f"called a fault, {totals['gain unsaid']} without their gain; of {worse} worse ones {totals['worse fault']}."
    )


def compare_models(task: str, answers: Answers, options: argparse.Namespace, totals: Counter[str]) -> None:
    """Bisect each ordered pair of models on prompts that all of them answered, and print its row; few are left out."""
    shared = sorted(
        source
        for source in set.intersection(*(set(texts) for texts in answers.values()))
        if not (options.unmarked and any(texts[source].metadata["label"] for texts in answers.values()))
    )[: options.count]
    if len(shared) < MIN_PROMPTS:
        return
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            model: evaluate([answers[model][source] for source in shared], Path(folder, str(i)), metrics=METRICS)
            for i, model in enumerate(answers)
        }
        shares = {
            model: compute_marked_share({source: texts[source] for source in shared})
            for model, texts in answers.items()
        }
        for old, new in permutations(sorted(runs, key=shares.__getitem__), 2):
            print_row(task, (old, new), (shares[old], shares[new]), bisect(runs[old], runs[new]), totals)


def print_row(
    task: str, models: tuple[str, str], marked_shares: tuple[float, float], result: Bisection, totals: Counter[str]
) -> None:
    """Print the row of a pair of models, and add its outcome to the totals."""
    change = next(c for c in result.comparison.changes if c.metric == "groundedness")
    side = "better" if marked_shares[1] < marked_shares[0] else "worse"
    fault = result.faults[0] if result.faults else None
    totals[side] += 1
    totals[f"{side} fault"] += fault is not None
    totals["gain unsaid"] += side == "better" and fault is not None and ", while " not in result.sentence
    totals["groundedness"] += fault is not None and fault.evidence[0].metric == "groundedness"
    totals["retrieval"] += fault is not None and fault.layer == "retrieval"
    if change.state in ("dropped", "rose") and marked_shares[0] != marked_shares[1]:
        totals["moved"] += 1
        totals["agreed"] += (change.state == "dropped") == (side == "worse")
    assert change.difference is not None
    change_text = f"{change.difference.mean:+.3f} [{change.difference.low:+.3f}, {change.difference.high:+.3f}]"
    verdict = "trade-off" if "trade-off" in result.sentence else result.verdict
    print(
        f"| {task} | {models[0]} → {models[1]} | {result.comparison.pairs} "
        f"| {marked_shares[0]:.0%} → {marked_shares[1]:.0%} "
        f"| {change_text} {change.state} | {verdict} | {fault.branch if fault else '–'} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
