"""LangChain: every question to a chain becomes a trace, scored while the chain goes on.

Run it with `python examples/langchain_traces.py`; it asks no network and needs no key, because its model is made up.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnablePassthrough

from ragfault.evaluation.online.background import BackgroundScorer
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.integrations.langchain import LangChainTraceHandler

HANDBOOK = (
    Document(id="ferry", page_content="The last ferry to the island leaves at 22:40 every evening."),
    Document(id="dogs", page_content="Dogs travel free on the ferry, on a lead."),
)


class Shelf(BaseRetriever):
    """Finds every page of the handbook; put your own retriever in its place."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return list(HANDBOOK)


def chain(answer: str) -> Runnable[str, str]:
    """Retrieve, prompt, answer; put your own chain in its place."""
    spent = {"input_tokens": 60, "output_tokens": 9, "total_tokens": 69}
    model = GenericFakeChatModel(messages=iter([AIMessage(answer, usage_metadata=spent)]))
    prompt = ChatPromptTemplate.from_template("Answer from this:\n{context}\n\nQuestion: {question}")
    given = {"context": Shelf() | join, "question": RunnablePassthrough()}
    return given | prompt | model | StrOutputParser()


def join(result: list[Document]) -> str:
    return "\n".join(document.page_content for document in result)


def main() -> None:
    """Ask twice, once with an answer that the handbook does not support, and print what was scored."""
    print(f"langchain-core {version('langchain-core')}")
    result: list[ScoredTrace] = []
    with BackgroundScorer(
        result.append, metrics=["context_relevance", "groundedness", "latency", "tokens"]
    ) as background:
        asked = {
            "callbacks": [LangChainTraceHandler(background, route="counter")],
            "metadata": {"session_id": "visit-7"},
        }
        for answer in ("The last ferry leaves at 22:40.", "The last ferry leaves at noon on Sundays."):
            chain(answer).invoke("When does the last ferry leave?", config=asked)
    for scored in result:
        trace = scored.trace
        print(f"{trace.query} → {trace.answer}")
        print(f"  {len(trace.chunks or ())} chunks, {trace.tokens}, conversation {trace.conversation}")
        print(f"  groundedness {scored.values['groundedness']:.2f}")


if __name__ == "__main__":
    main()
