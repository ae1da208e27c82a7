"""DeepEval: its five metrics for RAG, with reasons, as they are by default; `bare` leaves the reasons out."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

from deepeval.metrics import (
    AnswerRelevancyMetric,
    ContextualPrecisionMetric,
    ContextualRecallMetric,
    ContextualRelevancyMetric,
    FaithfulnessMetric,
)
from deepeval.models import OpenAIModel
from deepeval.test_case import LLMTestCase

from benchmarks.costs.running import MODEL, Metrics, measure_tool


def make_metrics(url: str) -> tuple[str, Metrics]:
    """Return the metrics; none for the use of chunks, citations or completeness."""
    model = OpenAIModel(model=MODEL, base_url=url, api_key="none")
    reasons = os.environ.get("WITH_REASONS", "yes") == "yes"

    def make_scorer(kind: Any) -> Any:
        metric = kind(model=model, include_reason=reasons)

        def score(trace: dict[str, Any]) -> float | None:
            case = LLMTestCase(
                input=trace["query"],
                actual_output=trace["answer"],
                expected_output=trace["reference"],
                retrieval_context=trace["chunks"],
            )
            value = metric.measure(case, _show_indicator=False)
            return None if value is None else float(value)

        return score

    return f"deepeval {version('deepeval')}", {
        "faithfulness": make_scorer(FaithfulnessMetric),
        "context_relevance": make_scorer(ContextualRelevancyMetric),
        "context_precision": make_scorer(ContextualPrecisionMetric),
        "context_recall": make_scorer(ContextualRecallMetric),
        "answer_relevance": make_scorer(AnswerRelevancyMetric),
    }


if __name__ == "__main__":
    measure_tool(make_metrics)
