"""A set by Ragas: `TestsetGenerator.generate_with_langchain_docs` with its default transforms and distribution."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from langchain_core.documents import Document
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from ragas.testset import TestsetGenerator

from benchmarks.costs.making import measure_tool
from benchmarks.costs.running import MODEL


def make_queries(url: str, folder: Path, count: int) -> tuple[str, list[str]]:
    """Return the version, and the queries of the set."""
    model = ChatOpenAI(model=MODEL, base_url=url, api_key="none")
    embeddings = OpenAIEmbeddings(base_url=url, api_key="none", check_embedding_ctx_length=False)
    documents = [Document(path.read_text("utf-8"), metadata={"source": path.name}) for path in sorted(folder.iterdir())]
    generator = TestsetGenerator.from_langchain(model, embeddings)
    testset = generator.generate_with_langchain_docs(documents, testset_size=count)
    return f"Ragas {version('ragas')}", [sample.eval_sample.user_input for sample in testset.samples]


if __name__ == "__main__":
    measure_tool(make_queries)
