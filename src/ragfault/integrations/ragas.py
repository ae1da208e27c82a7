"""Ragas integration: metrics of ragfault as metrics of `ragas.evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragfault.model.errors import require_extra

with require_extra("ragfault.integrations.ragas", "ragas", "pip install ragas"):
    from ragas import SingleTurnSample
    from ragas.metrics.base import MetricType, SingleTurnMetric

from ragfault.integrations.records import RecordScorer
from ragfault.judges.loading import DEFAULT_JUDGE

COLUMNS = {"user_input", "response", "retrieved_contexts:optional", "reference:optional"}


class RagasMetric(SingleTurnMetric):  # type: ignore[misc]
    """Metric of ragfault on a single-turn sample; NaN where it is undefined."""

    def __init__(self, records: RecordScorer, metric: str) -> None:
        super().__init__(name=metric, _required_columns={MetricType.SINGLE_TURN: set(COLUMNS)})
        self.records, self.metric = records, metric

    def init(self, run_config: Any) -> None:
        """Take no settings of a run: the judge has its own."""

    async def _single_turn_ascore(self, sample: SingleTurnSample, callbacks: Any) -> float:  # noqa: ARG002
        """Score a sample."""
        inputs = {"query": sample.user_input, "contexts": sample.retrieved_contexts or []}
        expected = {"reference": sample.reference} if sample.reference else None
        value = self.records.score(inputs, sample.response, expected).values.get(self.metric)
        return float("nan") if value is None else value


def build_metrics(
    metrics: Sequence[str] = ("groundedness", "answer_relevance", "context_relevance"), judge: str = DEFAULT_JUDGE
) -> list[RagasMetric]:
    """Build a metric of Ragas for each metric: `evaluate(dataset, metrics=build_metrics())`.

    A metric that is undefined on a sample is NaN there, which Ragas leaves out of its mean.
    """
    records = RecordScorer(metrics, judge)
    return [RagasMetric(records, metric) for metric in records.metrics]
