"""Evaluators for Langfuse, LangSmith and promptfoo, which take plain functions: no library of theirs is needed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragfault.integrations.records import RecordScorer, explain_score
from ragfault.judges.loading import DEFAULT_JUDGE

DEFAULT_METRICS = ("groundedness", "answer_relevance", "context_relevance")


def build_langsmith_evaluator(
    metrics: Sequence[str] = DEFAULT_METRICS, judge: str = DEFAULT_JUDGE
) -> Callable[..., dict[str, Any]]:
    """Build an evaluator of LangSmith: `client.evaluate(target, data=…, evaluators=[build_langsmith_evaluator()])`.

    Inputs, outputs and reference outputs may have any names that `ragfault evaluate` recognises. A metric that is
    undefined on an example has no score, and a comment with the reason.

    >>> evaluator = build_langsmith_evaluator(["groundedness"], "lexical")
    >>> evaluator({"question": "When?"}, {"answer": "It opens at noon.", "contexts": ["It opens at noon."]})
    {'results': [{'key': 'groundedness', 'score': 1.0, 'comment': ''}]}
    """
    records = RecordScorer(metrics, judge)

    def evaluate(inputs: Any, outputs: Any, reference_outputs: Any = None) -> dict[str, Any]:
        rows = _score_rows(records, inputs, outputs, reference_outputs)
        return {"results": [{"key": name, "score": value, "comment": why} for name, value, why in rows]}

    return evaluate


def build_langfuse_evaluator(
    metrics: Sequence[str] = DEFAULT_METRICS, judge: str = DEFAULT_JUDGE
) -> Callable[..., list[dict[str, Any]]]:
    """Build an evaluator of Langfuse: `run_experiment(…, evaluators=[build_langfuse_evaluator()])`.

    It returns what `langfuse.Evaluation` takes, and `Evaluation`s where Langfuse is installed. Metrics that are
    undefined on an item are left out.
    """
    records = RecordScorer(metrics, judge)

    def evaluate(*, input: Any, output: Any, expected_output: Any = None, **_: Any) -> list[Any]:
        rows = _score_rows(records, input, output, expected_output)
        fields = [{"name": name, "value": value, "comment": why} for name, value, why in rows if value is not None]
        try:
            from langfuse import Evaluation
        except ImportError:
            return fields
        return [Evaluation(**item) for item in fields]

    return evaluate


def build_promptfoo_assertion(
    metric: str = "groundedness", judge: str = DEFAULT_JUDGE, threshold: float = 0.5
) -> Callable[[str, Mapping[str, Any]], dict[str, Any]]:
    """Build `get_assert` of a Python assertion of promptfoo, which reads the question and the chunks from `vars`.

    In the file that `value: file://check.py` names: `get_assert = build_promptfoo_assertion()`. Without a score an
    output passes, with the reason.

    >>> get_assert = build_promptfoo_assertion(judge="lexical")
    >>> get_assert("It opens at ten.", {"vars": {"question": "When?", "contexts": ["It opens at noon."]}})["pass"]
    False
    """
    records = RecordScorer([metric], judge)

    def get_assert(output: str, context: Mapping[str, Any]) -> dict[str, Any]:
        [(_, value, why)] = _score_rows(records, context.get("vars") or {}, output, None)
        return {"pass": value is None or value >= threshold, "score": 1.0 if value is None else value, "reason": why}

    return get_assert


def _score_rows(records: RecordScorer, *parts: Any) -> list[tuple[str, float | None, str]]:
    """Score a record: name, value and reason of each metric."""
    scored = records.score(*parts)
    return [(metric, scored.values.get(metric), explain_score(scored, metric)) for metric in records.metrics]
