"""DeepEval integration: metrics of ragfault as metrics of `deepeval.evaluate` and `assert_test`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragfault.model.errors import require_extra

with require_extra("ragfault.integrations.deepeval", "deepeval", "pip install deepeval"):
    from deepeval.metrics import BaseMetric
    from deepeval.test_case import LLMTestCase

from ragfault.integrations.records import RecordScorer, explain_score
from ragfault.judges.loading import DEFAULT_JUDGE


class DeepEvalMetric(BaseMetric):  # type: ignore[misc]
    """Metric of ragfault on a test case; a metric that is undefined there has no score, and the case is skipped."""

    def __init__(self, records: RecordScorer, metric: str, threshold: float) -> None:
        # DeepEval copies a metric by the arguments that it finds as attributes.
        self.records, self.metric, self.threshold = records, metric, threshold

    @property
    def __name__(self) -> str:
        return self.metric

    def measure(self, test_case: LLMTestCase, *_: Any, **__: Any) -> float | None:
        """Score a test case by its input, output, retrieval context and expected output."""
        inputs = {"query": test_case.input, "contexts": test_case.retrieval_context or []}
        expected = {"reference": test_case.expected_output} if test_case.expected_output else None
        scored = self.records.score(inputs, test_case.actual_output, expected)
        self.score, self.reason = scored.values.get(self.metric), explain_score(scored, self.metric)
        self.skipped = self.score is None
        self.is_successful()
        return self.score

    def is_successful(self) -> bool | None:
        """Return whether the score reaches the threshold; None without a score, which fails no test case."""
        self.success = None if self.score is None else self.score >= self.threshold
        return self.success

    async def a_measure(self, test_case: LLMTestCase, *_: Any, **__: Any) -> float | None:
        return self.measure(test_case)


def build_metrics(
    metrics: Sequence[str] = ("groundedness", "answer_relevance", "context_relevance"),
    judge: str = DEFAULT_JUDGE,
    threshold: float = 0.5,
) -> list[DeepEvalMetric]:
    """Build a metric of DeepEval for each metric: `evaluate(test_cases, metrics=build_metrics())`.

    A test case passes from the threshold on. A metric that is undefined on a test case has no score and says why.
    """
    records = RecordScorer(metrics, judge)
    return [DeepEvalMetric(records, metric, threshold) for metric in records.metrics]
