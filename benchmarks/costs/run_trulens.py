"""TruLens: the feedback functions of its provider for OpenAI, with reasons where they give them."""

from __future__ import annotations

import re
from importlib.metadata import version
from statistics import mean
from typing import Any

from trulens.feedback import llm_provider
from trulens.providers.openai import OpenAI

from benchmarks.costs.running import MODEL, Metrics, measure_tool


def make_metrics(url: str) -> tuple[str, Metrics]:
    """Return the metrics; none for context precision and recall with a model, nor for the use of chunks.

    The limit of 60 calls a minute is raised. Answers are split by a pattern instead of a model of nltk that would be
    downloaded each time. Its metric for summaries, comprehensiveness, serves for completeness.
    """
    llm_provider.nltk.download = lambda *_, **__: True
    llm_provider.sent_tokenize = lambda text: re.split(r"(?<=[.!?]) +", text)
    provider = OpenAI(model_engine=MODEL, base_url=url, api_key="none", rpm=1_000_000)

    def score_relevance(trace: dict[str, Any]) -> float:
        score_chunk = provider.context_relevance_with_cot_reasons
        return mean(score_chunk(trace["query"], chunk)[0] for chunk in trace["chunks"])

    return f"trulens {version('trulens-core')}", {
        "faithfulness": lambda trace: provider.groundedness_measure_with_cot_reasons(
            source="\n\n".join(trace["chunks"]), statement=trace["answer"]
        )[0],
        "context_relevance": score_relevance,
        "answer_relevance": lambda trace: provider.relevance_with_cot_reasons(trace["query"], trace["answer"])[0],
        "attribution": lambda trace: provider.citation_attribution_with_cot_reasons(
            question=trace["query"], source=trace["chunks"], statement=trace["answer"]
        )[0],
        "completeness": lambda trace: provider.comprehensiveness_with_cot_reasons(
            source=trace["reference"], summary=trace["answer"]
        )[0],
    }


if __name__ == "__main__":
    measure_tool(make_metrics)
