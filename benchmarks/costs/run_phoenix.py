"""phoenix-evals: its classifiers for RAG, each a label with an explanation."""

from __future__ import annotations

from importlib.metadata import version
from statistics import mean
from typing import Any

from phoenix.evals import LLM
from phoenix.evals.metrics import CompletenessEvaluator, FaithfulnessEvaluator, RetrievalRelevanceEvaluator

from benchmarks.costs.running import MODEL, Metrics, measure_tool


def make_metrics(url: str) -> tuple[str, Metrics]:
    """Return the metrics; none for context recall, answer relevance, the use of chunks, or citations.

    Each chunk is labelled by itself, as its documentation recommends for verdicts by document; precision is computed
    from the same labels and costs nothing more. Completeness is about the requests of the user, without the reference.
    """
    model = LLM(provider="openai", model=MODEL, base_url=url, api_key="none")
    faithful, relevant = FaithfulnessEvaluator(llm=model), RetrievalRelevanceEvaluator(llm=model)
    complete, labels = CompletenessEvaluator(llm=model), dict[str, float]()

    def score(evaluator: Any, **inputs: str) -> float:
        return float(evaluator.evaluate(inputs)[0].score)

    def score_relevance(trace: dict[str, Any]) -> float:
        scores = [score(relevant, input=trace["query"], context=chunk) for chunk in trace["chunks"]]
        labels[trace["id"]] = mean(scores)
        return mean(scores)

    return f"arize-phoenix-evals {version('arize-phoenix-evals')}", {
        "faithfulness": lambda trace: score(
            faithful, input=trace["query"], output=trace["answer"], context="\n\n".join(trace["chunks"])
        ),
        "context_relevance": score_relevance,
        "context_precision": lambda trace: labels.get(trace["id"]),
        "completeness": lambda trace: score(
            complete, conversation=f"User: {trace['query']}\nAssistant: {trace['answer']}"
        ),
    }


if __name__ == "__main__":
    measure_tool(make_metrics)
