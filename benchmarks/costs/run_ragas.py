"""Ragas: the metrics of `ragas.metrics.collections`, as its documentation recommends them now."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any

from openai import AsyncOpenAI
from ragas.embeddings import OpenAIEmbeddings
from ragas.llms import llm_factory
from ragas.metrics.collections import (
    AnswerRelevancy,
    ContextPrecision,
    ContextRecall,
    ContextRelevance,
    ContextUtilization,
    FactualCorrectness,
    Faithfulness,
)

from benchmarks.costs.running import MODEL, Metrics, measure_tool

QUERY, ANSWER, CHUNKS, REFERENCE = "user_input", "response", "retrieved_contexts", "reference"


def make_metrics(url: str) -> tuple[str, Metrics]:
    """Return the metrics; completeness is `FactualCorrectness` by recall, and there is none for citations."""
    client = AsyncOpenAI(base_url=url, api_key="none")
    model, embeddings = llm_factory(MODEL, client=client), OpenAIEmbeddings(client=client)
    loop = asyncio.new_event_loop()

    def make_scorer(metric: Any, *fields: str) -> Any:
        def score(trace: dict[str, Any]) -> float:
            fields_of_trace = {QUERY: "query", ANSWER: "answer", CHUNKS: "chunks", REFERENCE: "reference"}
            arguments = {field: trace[fields_of_trace[field]] for field in fields}
            return float(loop.run_until_complete(metric.ascore(**arguments)).value)

        return score

    return f"ragas {version('ragas')}", {
        "faithfulness": make_scorer(Faithfulness(llm=model), QUERY, ANSWER, CHUNKS),
        "context_relevance": make_scorer(ContextRelevance(llm=model), QUERY, CHUNKS),
        "context_precision": make_scorer(ContextPrecision(llm=model), QUERY, REFERENCE, CHUNKS),
        "context_recall": make_scorer(ContextRecall(llm=model), QUERY, CHUNKS, REFERENCE),
        "answer_relevance": make_scorer(AnswerRelevancy(llm=model, embeddings=embeddings), QUERY, ANSWER),
        "utilisation": make_scorer(ContextUtilization(llm=model), QUERY, ANSWER, CHUNKS),
        "completeness": make_scorer(FactualCorrectness(llm=model, mode="recall"), ANSWER, REFERENCE),
    }


if __name__ == "__main__":
    measure_tool(make_metrics)
