"""MLflow integration: metrics of ragfault as scorers of `mlflow.genai.evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragfault.model.errors import require_extra

with require_extra("ragfault.integrations.mlflow", "mlflow", "pip install mlflow"):
    from mlflow.entities import AssessmentError, Feedback
    from mlflow.genai.scorers import Scorer, scorer

from ragfault.integrations.records import RecordScorer, explain_score
from ragfault.judges.loading import DEFAULT_JUDGE

UNDEFINED = "UNDEFINED"
"""Code of a feedback without a value: the metric makes no sense on this record, or its judge failed."""


def build_scorers(
    metrics: Sequence[str] = ("groundedness", "answer_relevance", "context_relevance"), judge: str = DEFAULT_JUDGE
) -> list[Scorer]:
    """Build a scorer of MLflow for each metric: `mlflow.genai.evaluate(data, scorers=build_scorers())`.

    `inputs` has the question and `outputs` the answer, as texts or under any names that `ragfault evaluate`
    recognises; the chunks are in either. `expectations` may have a reference, facts or gold. A metric that is
    undefined on a record gives a feedback with the reason and without a value, and never zero.
    """
    records = RecordScorer(metrics, judge)
    return [_build_scorer(records, metric) for metric in records.metrics]


def _build_scorer(records: RecordScorer, metric: str) -> Scorer:
    """Build the scorer of one metric."""

    def score(*, inputs: Any = None, outputs: Any = None, expectations: Any = None) -> Feedback:
        """Score one record."""
        scored = records.score(inputs, outputs, expectations)
        value, reason = scored.values.get(metric), explain_score(scored, metric)
        if value is None:
            return Feedback(name=metric, error=AssessmentError(error_code=UNDEFINED, error_message=reason))
        return Feedback(name=metric, value=value, rationale=reason or None)

    return scorer(score, name=metric)
