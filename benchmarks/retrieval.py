"""Times the retrieval stages over many chunks, beside the libraries below them used directly.

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

from ragfault.records import Chunk
from ragfault.retrieval import Query
from ragfault.retrieval.index import ChunkIndex
from ragfault.retrieval.lance_index import LanceIndex

SYLLABLES = [c + v for c, v in zip("bcdfghjklmnprstvwxyz", "aeiouaeiouaeiouaeiou", strict=True)]
WORDS, LENGTH, DIMENSIONS, TOP = 20_000, 60, 128, 10


def words(rng: np.random.Generator) -> list[str]:
    """Return a made-up vocabulary."""
    return ["".join(rng.choice(SYLLABLES, 3)) + str(i % 97) for i in range(WORDS)]


def texts(count: int, rng: np.random.Generator) -> list[str]:
    """Return texts whose words are as unevenly common as in real ones (Zipf)."""
    known = np.array(words(rng))
    shares = 1 / np.arange(1, WORDS + 1)
    sample = rng.choice(WORDS, (count, LENGTH), p=shares / shares.sum())
    return [" ".join(known[row]) for row in sample]


class Hashed:
    """An embedder that costs next to nothing: the sum of a random row for each word."""

    dimensions = DIMENSIONS
    fingerprint = "hashed/1"

    def __init__(self) -> None:
        self.rows: dict[str, np.ndarray] = {}

    def row(self, word: str) -> np.ndarray:
        if word not in self.rows:
            seed = int.from_bytes(word.encode()[-8:], "little")
            self.rows[word] = np.random.default_rng(seed).standard_normal(DIMENSIONS).astype(np.float32)
        return self.rows[word]

    def embed(self, given: list[str], *, query: bool = False) -> np.ndarray:  # noqa: ARG002 - the port's shape
        result = np.stack([np.sum([self.row(word) for word in text.split()], axis=0) for text in given])
        return result / np.linalg.norm(result, axis=1, keepdims=True)


def timed(work: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def rate(search: Callable[[str], object], asked: list[str]) -> float:
    """Return seconds for all queries."""
    return timed(lambda: [search(text) for text in asked])[0]


def against(ours: Callable[[str], object], bare: Callable[[str], object], asked: list[str], rounds: int) -> tuple:
    """Return queries a second of both, and the ratio of their medians, in alternating rounds."""
    both = [(rate(ours, asked), rate(bare, asked)) for _ in range(rounds)]
    item, two = median(pair[0] for pair in both), median(pair[1] for pair in both)
    return len(asked) / item, len(asked) / two, item / two


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="chunks (default: 100,000)")
    parser.add_argument("--queries", type=int, default=50, help="queries to a round (default: 50)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: 5)")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    corpus = texts(arguments.count, rng)
    asked = [
        " ".join(rng.permutation(corpus[place].split())[:6])
        for place in rng.integers(0, arguments.count, arguments.queries)
    ]
    chunks = [Chunk(id=str(i), text=text) for i, text in enumerate(corpus)]
    embedder = Hashed()
    vectors = embedder.embed(corpus)

    print(f"{arguments.count:,} chunks of {LENGTH} words, {DIMENSIONS} dimensions, top {TOP}")
    print(f"{'':24}{'build s':>9}{'stage q/s':>11}{'bare q/s':>10}{'stage/bare':>12}{'recall':>8}")

    def show(name: str, build: float, figures: tuple, recall: float) -> None:
        ours, bare, ratio = figures
        print(f"{name:24}{build:9.1f}{ours:11.0f}{bare:10.0f}{ratio:12.2f}{recall:8.3f}")

    import bm25s
    from Stemmer import Stemmer

    build, index = timed(lambda: ChunkIndex.build(chunks, embedder))
    stemmer = Stemmer("english")

    def tokens(given_: list[str]) -> object:
        return bm25s.tokenize(given_, stopwords="en", stemmer=stemmer, show_progress=False)

    bare_build, model = timed(lambda: bm25s.BM25(method="lucene"))
    bare_build += timed(lambda: model.index(tokens(corpus), show_progress=False))[0]
    stage = {kind: index.retrieve(kind, TOP) for kind in ("sparse", "dense", "hybrid")}

    def ids(search: Callable) -> list[list[str]]:
        return [[hit.id for hit in search(Query(text=text), ()).hits] for text in asked]

    exact = np.argsort(-(vectors @ embedder.embed(asked).T), axis=0, kind="stable")[:TOP].T.astype(str).tolist()

    def recall(result: list[list[str]]) -> float:
        return float(np.mean([len({*item} & {*two}) / TOP for item, two in zip(result, exact, strict=True)]))

    sparse = against(
        lambda text: stage["sparse"](Query(text=text), ()),
        lambda text: model.retrieve(tokens([text]), k=TOP, show_progress=False),
        asked,
        arguments.rounds,
    )
    show("BM25, bare: bm25s", build, sparse, float("nan"))

    import faiss

    faiss.omp_set_num_threads(1)
    flat_build, flat = timed(lambda: faiss.IndexFlatIP(DIMENSIONS))
    flat_build += timed(lambda: flat.add(vectors))[0]
    dense = against(
        lambda text: stage["dense"](Query(text=text), ()),
        lambda text: flat.search(embedder.embed([text]), TOP),
        asked,
        arguments.rounds,
    )
    show("exact, bare: faiss flat", build, dense, recall(ids(stage["dense"])))

    product = against(
        lambda text: stage["dense"](Query(text=text), ()),
        lambda text: np.argpartition(-(vectors @ embedder.embed([text])[0]), TOP)[:TOP],
        asked,
        arguments.rounds,
    )
    show("exact, bare: numpy", build, product, recall(ids(stage["dense"])))

    with tempfile.TemporaryDirectory() as folder:
        lance_build, lance = timed(lambda: LanceIndex.build(chunks, Path(folder, "db"), embedder))
        table = lance._table

        def bare(text: str) -> object:
            asked_ = table.search(embedder.embed([text])[0]).distance_type("cosine")
            return asked_.select(["chunk", "_distance"]).limit(TOP).to_arrow().to_pylist()

        result = lance.retrieve("dense", TOP)
        figures = against(lambda text: result(Query(text=text), ()), bare, asked, arguments.rounds)
        show("LanceDB, bare: lancedb", lance_build, figures, recall(ids(result)))
    print(
        f"bm25s alone builds in {bare_build:.1f} s, faiss flat in {flat_build:.2f} s; Index.build does both and embeds"
    )


if __name__ == "__main__":
    main()
