"""Inspect integration: metrics of ragfault as a scorer of a task of Inspect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragfault.model.errors import require_extra

with require_extra("ragfault.integrations.inspect", "inspect_ai", "pip install inspect-ai"):
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import TaskState

from ragfault.integrations.records import RecordScorer, explain_score
from ragfault.judges.loading import DEFAULT_JUDGE


@scorer(metrics={"*": [mean(), stderr()]}, name="ragfault")  # type: ignore[untyped-decorator]
def score_answers(
    metrics: Sequence[str] = ("groundedness", "answer_relevance", "context_relevance"), judge: str = DEFAULT_JUDGE
) -> Scorer:
    """Score the answers of a task: `Task(dataset, solver, scorer=score_answers())`.

    The input of a sample is the query, its target the reference, if it has one. The chunks are in the metadata of the
    sample or of the state, under any name that `ragfault evaluate` recognises (`contexts`). A metric that is undefined
    on a sample has no value there (NaN), and never zero.
    """
    records = RecordScorer(metrics, judge)

    async def score(state: TaskState, target: Target) -> Score:
        """Score one sample."""
        expected: dict[str, Any] = {"reference": target.text} if target.text else {}
        scored = records.score({**state.metadata, "query": state.input_text}, state.output.completion, expected)
        values = {metric: scored.values.get(metric, float("nan")) for metric in records.metrics}
        reasons = {metric: explain_score(scored, metric) for metric in records.metrics}
        explanation = "\n".join(f"{metric}: {text}" for metric, text in reasons.items() if text)
        return Score(value=values, answer=state.output.completion, explanation=explanation)

    return score
