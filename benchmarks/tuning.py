"""What chunkers, retrievers, fusion and reranking are worth, and how near the tuner comes to the best.

    python -m benchmarks.tuning DATA [--set chunking|squad] [--embedders latent,minilm] [--splits 20] [--cache DIR]

Every row of the grid runs on every question: nDCG@10, span recall, IoU, milliseconds, and the difference to plain
BM25 with a paired interval. Then the questions are divided anew and anew; the tuner chooses on one half, and its choice
is held against the best row, the row that the whole grid would have chosen, and the default row on the other half. Its
time is that of all it used, as if nothing were kept, against the time of the whole grid on the same half.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from benchmarks.testsets import read_chunking, read_squad2
from msgspec.structs import replace

from ragfault.records import Trace
from ragfault.retrieval.pipeline_config import PipelineConfig
from ragfault.stats import holm_adjust, paired_difference, sign_flip_test
from ragfault.tuning import QuestionOutcome, SearchSpace, TuningQuestion, enumerate_configs
from ragfault.tuning.holdout import gather_questions, split_questions
from ragfault.tuning.search import PipelineSearch
from ragfault.tuning.search_space import compute_figure, parse_bound
from ragfault.tuning.trials import TrialRunner, TuningCache, parse_tuning_metric

SQUAD_QUESTIONS = 400
NEAR = 0.01
CHUNKERS = {
    "chunking": (
        "fixed(512, overlap=64)",
        "fixed(256, overlap=32)",
        "sentences(256)",
        "recursive(256)",
        "recursive(512)",
        "semantic(512)",
    ),
    "squad": ("fixed(512, overlap=64)", "sentences(64)", "recursive(128)"),
}
RETRIEVALS = ("sparse(k=50)", "dense(k=50)", "hybrid(k=50)", "hybrid(k=50, method=sum)")
RERANKERS = ("rerank(embedded, depth=20)",)
TOKENS = {"chunking": 2000, "squad": 1000}
"""What every row may hand on: chunks of all sizes are held to the same amount of text."""


def select_questions(questions: Sequence[Trace], limit: int) -> list[Trace]:
    """Return at most `limit` questions, at equal steps."""
    return list(questions[:: max(1, len(questions) // limit)][:limit])


def table(
    result: dict[str, list[QuestionOutcome]],
    recipes: Sequence[PipelineConfig],
    default: PipelineConfig,
    groups: list[str],
) -> None:
    """Return every row with its figures and its difference to the default row."""
    base = [item.value for item in result[default.name]]
    pairs = [[item.value for item in result[recipe.name]] for recipe in recipes]
    adjusted = holm_adjust([sign_flip_test(base, item, groups).p for item in pairs])
    print("| chunker | retrieval | reranking | nDCG@10 | less plain BM25 | p | recall | IoU | ms | tokens |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    order = sorted(range(len(recipes)), key=lambda at: -fmean(pairs[at]))
    for at in order:
        recipe, outcomes = recipes[at], result[recipes[at].name]
        gap = paired_difference(base, pairs[at], groups, bounds=(0, 1))
        retrieval = f"{recipe.get_stage('retrieve')}" + ("" if recipe.embedder == "none" else f" {recipe.embedder}")
        figures = [f"{compute_figure(name, outcomes):.3f}" for name in ("recall", "iou")]
        costs = f"{compute_figure('latency', outcomes):.1f} | {compute_figure('tokens', outcomes):,.0f}"
        less = "–" if recipe == default else f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
        reranker = recipe.get_stage("rerank") or "–"
        print(
            f"| {recipe.chunker} | {retrieval} | {reranker} | {fmean(pairs[at]):.3f} | {less} | "
            f"{adjusted[at]:.3f} | {' | '.join(figures)} | {costs} |"
        )


def splits(
    bench: TrialRunner,
    questions: Sequence[TuningQuestion],
    space: SearchSpace,
    default: PipelineConfig,
    tokens: int,
    count: int,
) -> None:
    """Print how near the tuner's choice comes to the best row on the other questions, and its share of the time."""
    recipes = enumerate_configs(space, default)
    place = {question.id: i for i, question in enumerate(questions)}
    values = np.array([[item.value for item in bench.measure(recipe, questions)] for recipe in recipes])
    names = [recipe.name for recipe in recipes]
    rows = []
    for seed in range(count):
        parts = split_questions(questions, 0.5, seed)
        mine = TrialRunner(bench.cache, bench.metric)
        result = PipelineSearch(mine, space, default, parts.selection, (parse_bound(f"tokens<={tokens}"),)).run()
        chosen = [place[item.id] for item in parts.selection]
        stored = [place[item.id] for item in parts.holdout]
        ids = {item.id for item in parts.selection}
        complete = sum(
            cost for key, cost in bench.computed_seconds.items() if " " not in key or key.split(" ", 1)[1] in ids
        )
        means, pick = values[:, stored].mean(axis=1), names.index(result.config.name)
        best_overall = int(values[:, chosen].mean(axis=1).argmax())
        steady = int(values.mean(axis=1).argmax())
        rows.append(
            (
                means[pick],
                means.max(),
                means[best_overall],
                means[names.index(default.name)],
                mine.uncached_seconds / complete,
                means[steady],
            )
        )
        print(
            f"  split {seed}: {result.config.name}: {means[pick]:.3f}, best {means.max():.3f} "
            f"{names[int(means.argmax())]}, time {mine.uncached_seconds / complete:.0%}",
            flush=True,
        )
    pick, best, complete, plain, share, steady = np.array(rows).T
    print(f"\n{count} splits, {len(recipes)} rows; nDCG@10 on held-out questions, mean over the splits")
    print("| row | nDCG@10 | within 0.01 of the best | the tuner's choice is within 0.01 of it, or above |")
    print("|---|---|---|---|")
    print(f"| the tuner's choice | {pick.mean():.3f} | {np.mean(pick >= best - NEAR):.0%} | |")
    for name, other in (
        ("the row that is best on the very held-out questions", best),
        ("the row that the whole grid chooses", complete),
        ("the row that is best on all questions", steady),
        ("the default row, plain BM25", plain),
    ):
        near = f"{np.mean(other >= best - NEAR):.0%} | {np.mean(pick >= other - NEAR):.0%}"
        print(f"| {name} | {other.mean():.3f} | {near} |")
    print(f"\nthe tuner takes {share.mean():.0%} of the time of the grid ({share.min():.0%} to {share.max():.0%})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--set", choices=["chunking", "squad"], default="chunking")
    parser.add_argument("--embedders", default="latent")
    parser.add_argument("--chunkers", nargs="+", help="instead of those of the set")
    parser.add_argument("--documents", nargs="+", help="only these documents, and the questions about them")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args()
    if options.set == "chunking":
        documents, traces = read_chunking(options.data)
    else:
        documents, traces = read_squad2(options.data)
        traces = select_questions(traces, SQUAD_QUESTIONS)
    documents = [document for document in documents if not options.documents or document.id in options.documents]
    gathered = gather_questions(traces, documents)
    tokens = TOKENS[options.set]
    chunkers = tuple(options.chunkers or CHUNKERS[options.set])
    space = SearchSpace(
        chunkers=chunkers,
        embedders=tuple(options.embedders.split(",")),
        retrievals=RETRIEVALS,
        queries=(),
        rerankers=RERANKERS,
        selections=(),
        compressions=(),
    )
    default = replace(
        PipelineConfig(chunker=chunkers[0]), stages={"retrieve": "sparse(k=50)", "select": f"budget({tokens})"}
    )
    bench = TrialRunner(TuningCache(options.cache, documents), parse_tuning_metric("ndcg@10"))
    recipes, begin = enumerate_configs(space, default), time.perf_counter()
    result = {}
    for recipe in recipes:
        result[recipe.name] = bench.measure(recipe, gathered.questions)
    bench.cache.flush()
    groups = [question.group for question in gathered.questions]
    print(f"{len(gathered.questions)} questions, {len(documents)} documents; grouped by {gathered.grouped_by}")
    elapsed = time.perf_counter() - begin
    print(f"{len(recipes)} rows in {bench.uncached_seconds:.0f} s ({elapsed:.0f} s with what was kept)\n")
    table(result, recipes, default, groups)
    print()
    splits(bench, gathered.questions, space, default, tokens, options.splits)


if __name__ == "__main__":
    main()
