"""LlamaIndex: every query of an engine becomes a trace, scored while the engine goes on.

Run it with `python examples/llamaindex_traces.py`; it asks no network and needs no key, because its models are made up.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.schema import TextNode

from ragfault.evaluation.online.background import BackgroundScorer
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.integrations.llamaindex import LlamaIndexTraceHandler

HANDBOOK = {
    "ferry": "The last ferry to the island leaves at 22:40 every evening.",
    "dogs": "Dogs travel free on the ferry, on a lead.",
}


class Parrot(CustomLLM):
    """A model that always says the same; put your own in its place."""

    answer: str
    model: str = "parrot-1"

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name=self.model)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **options: Any) -> CompletionResponse:
        return CompletionResponse(text=self.answer)

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **options: Any) -> Any:
        yield CompletionResponse(text=self.answer, delta=self.answer)


def engine(answer: str) -> BaseQueryEngine:
    """Return an index of the handbook and a model; put your own engine in its place."""
    nodes = [TextNode(id_=name, text=text) for name, text in HANDBOOK.items()]
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=8))
    return index.as_query_engine(llm=Parrot(answer=answer), similarity_top_k=2)


def main() -> None:
    """Ask twice, once with an answer that the handbook does not support, and print what was scored."""
    print(f"llama-index-core {version('llama-index-core')}")
    result: list[ScoredTrace] = []
    engines = [engine("The last ferry leaves at 22:40."), engine("The last ferry leaves at noon on Sundays.")]
    with (
        BackgroundScorer(result.append, metrics=["context_relevance", "groundedness"]) as background,
        LlamaIndexTraceHandler(background, route="counter"),
    ):
        for first in engines:
            first.query("When does the last ferry leave?")
    for scored in result:
        print(f"{scored.trace.query} → {scored.trace.answer}")
        print(f"  {len(scored.trace.chunks or ())} chunks by {scored.trace.model}")
        print(f"  groundedness {scored.values['groundedness']:.2f}")


if __name__ == "__main__":
    main()
