"""Measure the recall that vector stores lose beside exact search, on sentences of paragraphs and questions about them.

    python -m benchmarks.vector_stores --data FOLDER [--size 20000] [--queries 300] [--embedder latent] [STORE …]

FOLDER holds `squad2_paragraphs.jsonl.gz` and `squad2_questions.jsonl.gz`; sentences that are embedded again with a
little noise fill up the size. Without STORE every store is measured whose client is installed; pgvector needs the
variables of libpq (PGHOST …).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.datasets import read_rows
from ragfault.model.errors import MissingExtra
from ragfault.retrieval.embedders.latent import LatentEmbedder
from ragfault.retrieval.embedders.registry import load_embedder
from ragfault.retrieval.index import Array
from ragfault.retrieval.stores.loss import measure_store_loss
from ragfault.retrieval.stores.store_index import load_store
from ragfault.text.sentences import split_sentences

STORES = (
    *("memory", "qdrant", "chroma", "chroma(ef_search=400)", "milvus", "milvus(breadth=32)", "milvus(index=HNSW)"),
    *("pgvector", "pgvector(breadth=200)", "pgvector(index=ivfflat, breadth=10)"),
    *("lance", "lance(refine=10)", "lance(index=IVF_FLAT)", "lance(index=IVF_HNSW_SQ)"),
)
NOISE = 0.3
"""Standard deviation of what is added to a vector of length 1, over the whole vector."""


def embed_corpus(folder: Path, size: int, queries: int, name: str) -> tuple[Array, Array, int]:
    """Return the vectors of sentences, filled up to `size`, those of questions, and the number of sentences."""
    rows = read_rows(folder, "squad2_paragraphs")
    texts = [row["text"][start:end] for row in rows for start, end in split_sentences(row["text"])]
    asked = [row["query"] for row in read_rows(folder, "squad2_questions")]
    rng = np.random.default_rng(0)
    asked = [asked[place] for place in rng.permutation(len(asked))[:queries]]
    embedder = load_embedder(name)
    if isinstance(embedder, LatentEmbedder):
        embedder.fit(texts)
    vectors = np.asarray(embedder.embed(texts), np.float32)
    copies = vectors[rng.integers(0, len(vectors), max(0, size - len(vectors)))]
    noise = rng.normal(size=copies.shape) * NOISE / np.sqrt(vectors.shape[1])
    filled = np.concatenate([vectors, (copies + noise).astype(np.float32)])[:size]
    return np.ascontiguousarray(filled), np.asarray(embedder.embed(asked, query=True), np.float32), len(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("stores", nargs="*", default=STORES)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--size", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--embedder", default="latent")
    parser.add_argument("-k", type=int, default=10)
    options = parser.parse_args()
    vectors, queries, texts = embed_corpus(options.data, options.size, options.queries, options.embedder)
    print(
        f"{len(vectors):,} vectors ({texts:,} of sentences) of {vectors.shape[1]} dimensions, {len(queries)} queries\n"
    )
    print(f"| store | recall@{options.k} [95 %] | on a tenth | complete | p50 / p95 ms | write s |")
    print("|---|---|---|---|---|---|")
    for name in options.stores:
        with tempfile.TemporaryDirectory() as folder:
            place = {} if name.startswith(("memory", "pgvector", "qdrant")) else {"path": f"{folder}/store.db"}
            try:
                loss = measure_store_loss(load_store(name, **place), vectors, queries, options.k, name=name)
            except MissingExtra as error:
                print(f"| {name} | {error} | | | | |")
                continue
        few = "–" if loss.filtered_recall is None else f"{loss.filtered_recall.mean:.3f}"
        print(
            f"| {name} | {loss.recall.mean:.3f} [{loss.recall.low:.3f}, {loss.recall.high:.3f}] | {few} "
            f"| {loss.complete:.0%} | {loss.latency_p50:.1f} / {loss.latency_p95:.1f} | {loss.write_seconds:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
