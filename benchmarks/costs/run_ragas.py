"""Ragas: the metrics of `ragas.metrics.collections`, as its documentation recommends them now."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any

from benchmarks.costs.running import MODEL, Metrics, run
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

QUERY, ANSWER, CHUNKS, REFERENCE = "user_input", "response", "retrieved_contexts", "reference"


def make(url: str) -> tuple[str, Metrics]:
    """Return the metrics; completeness is `FactualCorrectness` by recall, and there is none for citations."""
    client = AsyncOpenAI(base_url=url, api_key="none")
    model, embeddings = llm_factory(MODEL, client=client), OpenAIEmbeddings(client=client)
    loop = asyncio.new_event_loop()

    def scorer(metric: Any, *fields: str) -> Any:
        def score(trace: dict[str, Any]) -> float:
            fields_of_trace = {QUERY: "query", ANSWER: "answer", CHUNKS: "chunks", REFERENCE: "reference"}
            given = {field: trace[fields_of_trace[field]] for field in fields}
            return float(loop.run_until_complete(metric.ascore(**given)).value)

        return score

    return f"ragas {version('ragas')}", {
        "faithfulness": scorer(Faithfulness(llm=model), QUERY, ANSWER, CHUNKS),
        "context_relevance": scorer(ContextRelevance(llm=model), QUERY, CHUNKS),
        "context_precision": scorer(ContextPrecision(llm=model), QUERY, REFERENCE, CHUNKS),
        "context_recall": scorer(ContextRecall(llm=model), QUERY, CHUNKS, REFERENCE),
        "answer_relevance": scorer(AnswerRelevancy(llm=model, embeddings=embeddings), QUERY, ANSWER),
        "utilisation": scorer(ContextUtilization(llm=model), QUERY, ANSWER, CHUNKS),
        "completeness": scorer(FactualCorrectness(llm=model, mode="recall"), ANSWER, REFERENCE),
    }


if __name__ == "__main__":
    run(make)
