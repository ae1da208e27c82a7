"""Command `stores`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ragfault.options.output import add_corpus_options, align_columns, json_option, print_json, read_corpus
from ragfault.options.settings import add_trace_options, pick_trace_options
from ragfault.text.number_format import format_bounds, format_count, format_number

if TYPE_CHECKING:
    from ragfault.retrieval.stores.loss import StoreLoss


@click.command(
    epilog="""\b
Examples:
  ragfault tune stores handbook/documents handbook/questions.jsonl
  ragfault tune stores docs/ questions.jsonl --store chroma --store "chroma(ef_search=400)"
  ragfault tune stores docs/ questions.jsonl --store "pgvector(dsn='host=db dbname=rag', breadth=100)" -k 20
  ragfault tune stores docs/ questions.jsonl --store "milvus(index=HNSW)" --store "lance(index=IVF_PQ, refine=10)"

\b
Stores: memory (exact, the control), qdrant, chroma, milvus, pgvector, lance. Each writes a collection of its own,
named --collection, and drops it at the end; one that exists is refused.

Exit code 0 whatever is missed."""
)
@click.argument("corpus", type=click.Path())
@click.argument("questions", type=click.Path())
@add_trace_options
@click.option("--store", "stores", multiple=True, metavar="STORE", help="Vector store. Repeatable.  [default: memory]")
@click.option("-k", "k", type=click.IntRange(1), default=10, show_default=True, help="Chunks that are retrieved.")
@click.option("--embedder", default="latent", show_default=True, help="Embedder: latent, minilm, endpoint:MODEL, …")
@click.option("--chunker", default="sentences(256)", show_default=True, help="Chunker for the documents.")
@click.option("--collection", default="ragfault_loss", show_default=True, help="Name of the collection to create.")
@add_corpus_options
@json_option
def stores(
    corpus: str,
    questions: str,
    stores: tuple[str, ...],
    k: int,
    embedder: str,
    chunker: str,
    collection: str,
    skip_bad: bool,
    exclude: tuple[str, ...],
    kind: str | None,
    **reading: object,
) -> None:
    """Measure the chunks that approximate search in vector stores misses beside exact search.

    CORPUS is cut and embedded, the vectors are written to each store, and the queries of QUESTIONS are searched there
    and exactly. Recall is the share of the best k chunks by exact cosine that the store returns; no gold is needed.
    """
    import numpy as np

    from ragfault.io.trace_reader import read_traces
    from ragfault.retrieval.chunking.chunker import load_chunker
    from ragfault.retrieval.embedders.registry import load_embedder
    from ragfault.retrieval.index import ChunkIndex
    from ragfault.retrieval.stores.loss import measure_store_loss
    from ragfault.retrieval.stores.store_index import load_store

    opened = [(name, load_store(name, collection=collection)) for name in stores or ("memory",)]
    cut = load_chunker(chunker)
    chunks = [chunk for document in read_corpus(corpus, skip_bad, exclude) for chunk in cut(document)]
    index = ChunkIndex.build(chunks, load_embedder(embedder))
    assert index.embedder is not None
    assert index.vectors is not None
    texts = list(dict.fromkeys(trace.query for trace in read_traces(questions, **pick_trace_options(reading))))
    queries = index.embedder.embed(texts, query=True)
    vectors = np.ascontiguousarray(index.vectors, dtype=np.float32)
    losses = [measure_store_loss(store, vectors, queries, k, name=name) for name, store in opened]
    if kind == "json":
        print_json(losses)
    else:
        click.echo("\n".join(_format_losses(losses)))


def _format_losses(losses: list[StoreLoss]) -> list[str]:
    """Return the answer in a line, then a table."""
    most = max(losses, key=lambda loss: loss.loss)
    head = (
        "nothing is missed compared with exact search"
        if most.loss <= 0
        else (f"at most {format_number(100 * most.loss, 2)} % of the best {most.k} chunks are missed, by {most.store}")
    )
    rows: list[tuple[str, ...]] = [
        ("store", "search", f"recall@{most.k}", "95 % interval", "filtered", "complete", "p50 ms", "p95 ms", "write s")
    ]
    for loss in losses:
        few = "–" if loss.filtered_recall is None else format_number(loss.filtered_recall.mean, 3)
        rows.append(
            (
                *(loss.store, "exact" if loss.exact else "approximate"),
                *(format_number(loss.recall.mean, 3), format_bounds(loss.recall), few),
                f"{format_number(100 * loss.complete, 1)} %",
                *(format_number(value, 2) for value in (loss.latency_p50, loss.latency_p95, loss.write_seconds)),
            )
        )
    table = align_columns(rows, left=len(rows[0]))
    size = f"{format_count(losses[0].vectors, 'chunk')}, {losses[0].queries:,} queries"
    return [f"{head} ({size})", "", *table, "", "filtered: recall where conditions leave a random tenth of the chunks"]
