"""Haystack: every run of a pipeline becomes a trace, scored while the pipeline goes on.

Run it with `python examples/haystack_traces.py`; it asks no network and needs no key, because its model is made up.
"""

from __future__ import annotations

import os
from importlib.metadata import version

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "false")

from haystack import Document, Pipeline, component, tracing
from haystack.components.builders import PromptBuilder
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore

from ragfault.evaluation.online.background import BackgroundScorer
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.integrations.haystack import HaystackTracer

HANDBOOK = {
    "ferry": "The last ferry to the island leaves at 22:40 every evening.",
    "dogs": "Dogs travel free on the ferry, on a lead.",
}
TEMPLATE = "{% for document in documents %}{{ document.content }}\n{% endfor %}Question: {{ question }}"


@component
class Parrot:
    """A generator that always says the same; put your own in its place."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    @component.output_types(replies=list[str], meta=list[dict])
    def run(self, prompt: str) -> dict[str, list[object]]:
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": len(self.answer.split())}
        return {"replies": [self.answer], "meta": [{"model": "parrot-1", "usage": usage}]}


def pipeline(answer: str) -> Pipeline:
    """Retrieve, prompt, answer; put your own pipeline in its place."""
    store = InMemoryDocumentStore()
    store.write_documents([Document(id=name, content=text) for name, text in HANDBOOK.items()])
    created = Pipeline()
    created.add_component("search", InMemoryBM25Retriever(store, top_k=2))
    created.add_component("prompt", PromptBuilder(TEMPLATE, required_variables="*"))
    created.add_component("model", Parrot(answer))
    created.connect("search", "prompt.documents")
    created.connect("prompt", "model")
    return created


def main() -> None:
    """Ask twice, once with an answer that the handbook does not support, and print what was scored."""
    print(f"haystack-ai {version('haystack-ai')}")
    result: list[ScoredTrace] = []
    query = "When does the last ferry leave?"
    with BackgroundScorer(result.append, metrics=["context_relevance", "groundedness"]) as background:
        tracing.enable_tracing(HaystackTracer(background, route="counter"))
        for answer in ("The last ferry leaves at 22:40.", "The last ferry leaves at noon on Sundays."):
            pipeline(answer).run({"search": {"query": query}, "prompt": {"question": query}})
        tracing.disable_tracing()
    for scored in result:
        print(f"{scored.trace.query} → {scored.trace.answer}")
        print(f"  {len(scored.trace.chunks or ())} chunks, {scored.trace.tokens} by {scored.trace.model}")
        print(f"  groundedness {scored.values['groundedness']:.2f}")


if __name__ == "__main__":
    main()
