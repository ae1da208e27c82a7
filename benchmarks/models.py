"""Bisection on real outputs: RAGTruth's six models answered the same prompts, and people marked what is wrong.

    python benchmarks/models.py DATA/ragtruth_train.jsonl.gz [--count 400]

For each task and each pair of neighbouring models (by the share of answers people marked), the better one
is the baseline and the worse the candidate, on up to `count` prompts both answered. The chunks are the
same, so retrieval must never be blamed; the direction of groundedness should be that of the human labels.
Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace

from ragfault.analysis import bisect
from ragfault.evaluation import evaluate
from ragfault.io import read_traces
from ragfault.records import Trace

METRICS = ("context_relevance", "groundedness", "completeness", "chunk_utilization", "answer_relevance")
MAP = {
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


def load(path: Path) -> dict[str, Answers]:
    """Return task → model → source → trace, named by its source so that models pair."""
    result: dict[str, Answers] = defaultdict(lambda: defaultdict(dict))
    for trace in read_traces(path, map=MAP):
        source = trace.metadata["source"]
        result[trace.metadata["task"]][trace.model or ""][source] = replace(trace, id=source)
    return result


def marked(answers: dict[str, Trace]) -> float:
    """Return the share of answers that people marked."""
    return sum(trace.metadata["label"] for trace in answers.values()) / len(answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--count", type=int, default=400)
    asked = parser.parse_args()
    print("| task | baseline → candidate | n | marked by people | groundedness | verdict | branch |")
    print("|---|---|---|---|---|---|---|")
    blamed = agreed = reported = 0
    for task, answers in sorted(load(asked.data).items()):
        for better, worse in pairwise(sorted(answers, key=lambda model: marked(answers[model]))):
            shared = sorted(answers[better].keys() & answers[worse].keys())[: asked.count]
            sides = [[answers[model][source] for source in shared] for model in (better, worse)]
            with tempfile.TemporaryDirectory() as folder:
                runs = [evaluate(traces, Path(folder, str(at)), metrics=METRICS) for at, traces in enumerate(sides)]
                result = bisect(*runs)
            change = next(c for c in result.comparison.changes if c.metric == "groundedness")
            people = [sum(trace.metadata["label"] for trace in traces) / len(traces) for traces in sides]
            layer = result.faults[0].layer if result.faults else "–"
            branch = result.faults[0].branch if result.faults else "–"
            blamed += layer == "retrieval"
            if change.state in ("dropped", "rose") and people[0] != people[1]:
                reported += 1
                agreed += (change.state == "dropped") == (people[1] > people[0])
            assert change.difference is not None
            moved = f"{change.difference.mean:+.3f} [{change.difference.low:+.3f}, {change.difference.high:+.3f}]"
            print(
                f"| {task} | {better} → {worse} | {len(shared)} | {people[0]:.0%} → {people[1]:.0%} "
                f"| {moved} {change.state} | {result.verdict}: {layer} | {branch} |",
                flush=True,
            )
    print(
        f"\nRetrieval blamed: {blamed}. Of {reported} pairs where groundedness is shown to have moved, "
        f"{agreed} agree with people."
    )


if __name__ == "__main__":
    main()
