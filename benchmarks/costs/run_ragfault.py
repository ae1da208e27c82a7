"""ragfault: the judge that asks a language model, and the eight metrics computed from its verdicts."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from benchmarks.costs.running import MODEL, Metrics, measure_tool
from ragfault.judges.loading import load_judge
from ragfault.metrics.catalog import compute_score, parse_metric
from ragfault.model.records import Trace

METRICS = (
    "groundedness",
    "context_relevance",
    "context_precision",
    "context_recall",
    "answer_relevance",
    "chunk_utilization",
    "chunk_attribution",
    "completeness",
)


def make_metrics(url: str) -> tuple[str, Metrics]:
    """Return all metrics as one: a trace is observed once for all of them, and replies are cached as by default."""
    file = Path(sys.argv[1])
    cache = file.with_name(f"replies-{urlsplit(url).port}.sqlite")
    judge = load_judge(f"llm:{MODEL}", base_url=url, cache=str(cache))
    loaded = msgspec.json.decode(file.with_suffix(".whole.json").read_bytes(), type=list[Trace])
    traces, metrics = {trace.id: trace for trace in loaded}, [parse_metric(name) for name in METRICS]

    def score_metrics(trace: dict[str, Any]) -> list[float | None]:
        (verdicts,) = judge.observe([traces[trace["id"]]])
        return [compute_score(metric, traces[trace["id"]], verdicts).value for metric in metrics]

    return f"ragfault {version('ragfault')}", {"all": score_metrics}


if __name__ == "__main__":
    measure_tool(make_metrics)
