"""A set by DeepEval: `Synthesizer.generate_goldens_from_docs`, two contexts a document and two goldens a context."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from deepeval.models import OpenAIEmbeddingModel, OpenAIModel
from deepeval.synthesizer import Synthesizer
from deepeval.synthesizer.config import ContextConstructionConfig

from benchmarks.costs.making import measure_tool
from benchmarks.costs.running import MODEL


def make_queries(url: str, folder: Path, count: int) -> tuple[str, list[str]]:
    """Return the version, and the queries of the set; the number follows from documents, contexts and goldens."""
    model = OpenAIModel(model=MODEL, base_url=url, api_key="none")
    embedder = OpenAIEmbeddingModel(model="text-embedding-3-small", base_url=url, api_key="none")
    paths = sorted(str(path) for path in folder.iterdir())
    contexts = ContextConstructionConfig(
        embedder=embedder, critic_model=model, chunk_size=256, max_contexts_per_document=count // (2 * len(paths))
    )
    goldens = Synthesizer(model=model).generate_goldens_from_docs(
        paths, max_goldens_per_context=2, context_construction_config=contexts
    )
    return f"DeepEval {version('deepeval')}", [golden.input for golden in goldens]


if __name__ == "__main__":
    measure_tool(make_queries)
