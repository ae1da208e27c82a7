"""Measure the gain of the stage `entities`: nDCG@10 on people's questions with it and without.

    python -m benchmarks.entities --data ../shared/data

On queries that name an entity, the mean change of nDCG@10 with its 95 % interval; the others are left as they are.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np

from benchmarks.testsets import CORPORA, ChunkedCorpus, list_gold
from ragfault.retrieval.embedders.registry import load_embedder
from ragfault.retrieval.index import ChunkIndex
from ragfault.retrieval.pipeline import Query
from ragfault.retrieval.stage_registry import make_stage
from ragfault.stats.intervals import mean_interval
from ragfault.text.entities import extract_entities

SEARCHES = (
    "latent: sparse(k=50)",
    "latent: dense(k=50)",
    "latent: hybrid(k=50)",
    "minilm: dense(k=50)",
    "minilm: hybrid(k=50)",
)
"""EMBEDDER: SEARCH."""
DEPTH = 10


def compute_ndcg(ids: list[str], gains: dict[str, float]) -> float:
    """Compute nDCG@10 of the documents of ranked chunks; a document counts at its first chunk."""
    discounts = 1 / np.log2(np.arange(2, DEPTH + 2))
    seen: set[str] = set()
    total = 0.0
    for discount, name in zip(discounts, ids, strict=False):
        total += 0.0 if name in seen else discount * gains.get(name, 0.0)
        seen.add(name)
    ideal = np.sort(list(gains.values()))[::-1][:DEPTH]
    return total / float(ideal @ discounts[: len(ideal)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--people", type=int, default=500, help="questions of each corpus, at most")
    parser.add_argument("--weight", type=float, action="append", help="weight of the stage (default: 0.1)")
    options = parser.parse_args()
    weights = options.weight or [0.1]
    print(
        "| corpus | search | queries with an entity | nDCG@10 of these |",
        " | ".join(f"change by {weight}" for weight in weights),
        "|",
    )
    for corpus in ("squad2", "clapnq", "cranfield"):
        documents, questions = CORPORA[corpus](options.data)
        questions = random.Random(0).sample(questions, min(len(questions), options.people))
        with_entity = [question for question in questions if extract_entities(question.query)]
        chunks = ChunkedCorpus(documents, "recursive(256)").chunks
        document_of_chunk = {chunk.id: chunk.document or "" for chunk in chunks}
        indexes = {name: ChunkIndex.build(chunks, load_embedder(name)) for name in ("latent", "minilm")}
        golds = [{span.document: grade for span, grade in list_gold(question, True)} for question in with_entity]
        for search in SEARCHES:
            embedder, _, expression = search.partition(": ")
            index = indexes[embedder]
            retrieve = make_stage(expression, index)
            results = [retrieve(Query(text=question.query), ()) for question in with_entity]
            rows = [results] + [
                [make_stage(f"entities(weight={weight})", index)(*result) for result in results] for weight in weights
            ]
            values = [
                np.array(
                    [
                        compute_ndcg([document_of_chunk[hit.id] for hit in result.hits[:DEPTH]], gold)
                        for result, gold in zip(row, golds, strict=True)
                    ]
                )
                for row in rows
            ]
            cells = [f"{values[0].mean():.3f}"]
            for column in values[1:]:
                change = mean_interval(column - values[0])
                cells.append(f"{change.mean:+.3f} [{change.low:+.3f}, {change.high:+.3f}]")
            print(
                f"| {corpus} | {search} | {len(with_entity)} of {len(questions)} |", " | ".join(cells), "|", flush=True
            )


if __name__ == "__main__":
    main()
