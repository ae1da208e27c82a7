"""Time the retrieval stages over many chunks, beside the libraries below them used directly.

    python -m benchmarks.retrieval --count 100000

For each way of searching: seconds to build, queries a second, and the share of the exact best ten that it finds. The
last columns say what the stage costs over the bare library: the ratio of medians over alternating rounds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from ragfault.model.records import Chunk
from ragfault.retrieval.index import ChunkIndex
from ragfault.retrieval.lance_index import LanceIndex
from ragfault.retrieval.pipeline import Query

SYLLABLES = [c + v for c, v in zip("bcdfghjklmnprstvwxyz", "aeiouaeiouaeiouaeiou", strict=True)]
VOCABULARY_SIZE, TEXT_WORDS, DIMENSIONS, DEPTH = 20_000, 60, 128, 10


def make_vocabulary(rng: np.random.Generator) -> list[str]:
    """Return a vocabulary of random words."""
    return ["".join(rng.choice(SYLLABLES, 3)) + str(i % 97) for i in range(VOCABULARY_SIZE)]


def draw_texts(count: int, rng: np.random.Generator) -> list[str]:
    """Return random texts whose words have the frequencies of Zipf's law."""
    vocabulary = np.array(make_vocabulary(rng))
    shares = 1 / np.arange(1, VOCABULARY_SIZE + 1)
    sample = rng.choice(VOCABULARY_SIZE, (count, TEXT_WORDS), p=shares / shares.sum())
    return [" ".join(vocabulary[row]) for row in sample]


class HashedEmbedder:
    """An embedder of little cost: the sum of a random vector for each word."""

    dimensions = DIMENSIONS
    fingerprint = "hashed/1"

    def __init__(self) -> None:
        self.rows: dict[str, np.ndarray] = {}

    def get_word_vector(self, word: str) -> np.ndarray:
        if word not in self.rows:
            seed = int.from_bytes(word.encode()[-8:], "little")
            self.rows[word] = np.random.default_rng(seed).standard_normal(DIMENSIONS).astype(np.float32)
        return self.rows[word]

    def embed(self, texts: list[str], *, query: bool = False) -> np.ndarray:  # noqa: ARG002 - the port's shape
        result = np.stack([np.sum([self.get_word_vector(word) for word in text.split()], axis=0) for text in texts])
        return result / np.linalg.norm(result, axis=1, keepdims=True)


def time_call(work: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def time_searches(search: Callable[[str], object], queries: list[str]) -> float:
    """Return the seconds of a search for all queries."""
    return time_call(lambda: [search(text) for text in queries])[0]


def compare_with_library(
    search_stage: Callable[[str], object], search_library: Callable[[str], object], queries: list[str], rounds: int
) -> tuple:
    """Return queries a second of a stage and of its library, and the ratio of their medians, in alternating rounds."""
    both = [(time_searches(search_stage, queries), time_searches(search_library, queries)) for _ in range(rounds)]
    stage_seconds, library_seconds = median(pair[0] for pair in both), median(pair[1] for pair in both)
    return len(queries) / stage_seconds, len(queries) / library_seconds, stage_seconds / library_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="chunks (default: 100,000)")
    parser.add_argument("--queries", type=int, default=50, help="queries to a round (default: 50)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: 5)")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    corpus = draw_texts(arguments.count, rng)
    queries = [
        " ".join(rng.permutation(corpus[place].split())[:6])
        for place in rng.integers(0, arguments.count, arguments.queries)
    ]
    chunks = [Chunk(id=str(i), text=text) for i, text in enumerate(corpus)]
    embedder = HashedEmbedder()
    vectors = embedder.embed(corpus)

    print(f"{arguments.count:,} chunks of {TEXT_WORDS} words, {DIMENSIONS} dimensions, top {DEPTH}")
    print(f"{'':24}{'build s':>9}{'stage q/s':>11}{'bare q/s':>10}{'stage/bare':>12}{'recall':>8}")

    def print_row(name: str, build_seconds: float, figures: tuple, compute_recall: float) -> None:
        ours, search_lancedb, ratio = figures
        print(f"{name:24}{build_seconds:9.1f}{ours:11.0f}{search_lancedb:10.0f}{ratio:12.2f}{compute_recall:8.3f}")

    import bm25s
    from Stemmer import Stemmer

    build_seconds, index = time_call(lambda: ChunkIndex.build(chunks, embedder))
    stemmer = Stemmer("english")

    def tokenize(texts: list[str]) -> object:
        return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)

    bare_build, model = time_call(lambda: bm25s.BM25(method="lucene"))
    bare_build += time_call(lambda: model.index(tokenize(corpus), show_progress=False))[0]
    stage = {kind: index.retrieve(kind, DEPTH) for kind in ("sparse", "dense", "hybrid")}

    def list_ids(search: Callable) -> list[list[str]]:
        return [[hit.id for hit in search(Query(text=text), ()).hits] for text in queries]

    exact = np.argsort(-(vectors @ embedder.embed(queries).T), axis=0, kind="stable")[:DEPTH].T.astype(str).tolist()

    def compute_recall(result: list[list[str]]) -> float:
        return float(np.mean([len({*item} & {*two}) / DEPTH for item, two in zip(result, exact, strict=True)]))

    bm25_figures = compare_with_library(
        lambda text: stage["sparse"](Query(text=text), ()),
        lambda text: model.retrieve(tokenize([text]), k=DEPTH, show_progress=False),
        queries,
        arguments.rounds,
    )
    print_row("BM25, bare: bm25s", build_seconds, bm25_figures, float("nan"))

    import faiss

    faiss.omp_set_num_threads(1)
    flat_build, flat = time_call(lambda: faiss.IndexFlatIP(DIMENSIONS))
    flat_build += time_call(lambda: flat.add(vectors))[0]
    faiss_figures = compare_with_library(
        lambda text: stage["dense"](Query(text=text), ()),
        lambda text: flat.search(embedder.embed([text]), DEPTH),
        queries,
        arguments.rounds,
    )
    print_row("exact, bare: faiss flat", build_seconds, faiss_figures, compute_recall(list_ids(stage["dense"])))

    numpy_figures = compare_with_library(
        lambda text: stage["dense"](Query(text=text), ()),
        lambda text: np.argpartition(-(vectors @ embedder.embed([text])[0]), DEPTH)[:DEPTH],
        queries,
        arguments.rounds,
    )
    print_row("exact, bare: numpy", build_seconds, numpy_figures, compute_recall(list_ids(stage["dense"])))

    with tempfile.TemporaryDirectory() as folder:
        lance_build, lance = time_call(lambda: LanceIndex.build(chunks, Path(folder, "db"), embedder))
        table = lance._table

        def search_lancedb(text: str) -> object:
            query = table.search(embedder.embed([text])[0]).distance_type("cosine")
            return query.select(["chunk", "_distance"]).limit(DEPTH).to_arrow().to_pylist()

        result = lance.retrieve("dense", DEPTH)
        figures = compare_with_library(
            lambda text: result(Query(text=text), ()), search_lancedb, queries, arguments.rounds
        )
        print_row("LanceDB, bare: lancedb", lance_build, figures, compute_recall(list_ids(result)))
    print(
        f"bm25s alone builds in {bare_build:.1f} s, faiss flat in {flat_build:.2f} s; Index.build does both and embeds"
    )


if __name__ == "__main__":
    main()
