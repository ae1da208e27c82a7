"""Measure the gains of chunkers, retrievers, fusion and reranking, and the gap between the tuner's choice and the best.

    python -m benchmarks.tuning DATA [--set chunking|squad] [--embedders latent,minilm] [--splits 20] [--cache DIR]

Every row of the grid runs on every question: nDCG@10, span recall, IoU, milliseconds, and the difference to plain
BM25 with a paired interval. Then the questions are divided anew and anew; the tuner chooses on one half, and its choice
is compared with the best row, the row that the whole grid would have chosen, and the default row on the other half. Its
time is that of all it used, without a cache, against the time of the whole grid on the same half.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from msgspec.structs import replace

from benchmarks.testsets import read_chunking, read_squad2
from ragfault.apps.tune.holdout import gather_questions, split_questions
from ragfault.apps.tune.results import QuestionOutcome, TuningQuestion
from ragfault.apps.tune.search import PipelineSearch
from ragfault.apps.tune.search_space import SearchSpace, compute_figure, parse_bound
from ragfault.apps.tune.trials import TrialRunner, TuningCache, parse_tuning_metric
from ragfault.model.records import Trace
from ragfault.retrieval.pipeline_config import NO_EMBEDDER, PipelineConfig, replace_stage
from ragfault.stats.differences import paired_difference
from ragfault.stats.significance import holm_adjust, sign_flip_test

SQUAD_QUESTIONS = 400
TOLERANCE = 0.01
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
TOKEN_BUDGETS = {"chunking": 2000, "squad": 1000}
"""Tokens of the chunks that every row may return, so that rows with chunks of all sizes return as much text."""


def select_questions(questions: Sequence[Trace], limit: int) -> list[Trace]:
    """Return at most `limit` questions, at equal steps."""
    return list(questions[:: max(1, len(questions) // limit)][:limit])


def print_table(
    outcomes_by_name: dict[str, list[QuestionOutcome]],
    configs: Sequence[PipelineConfig],
    default: PipelineConfig,
    groups: list[str],
) -> None:
    """Print every row with its figures and its difference to the default row."""
    base = [item.value for item in outcomes_by_name[default.name]]
    pairs = [[item.value for item in outcomes_by_name[config.name]] for config in configs]
    adjusted = holm_adjust([sign_flip_test(base, item, groups).p for item in pairs])
    print("| chunker | retrieval | reranking | nDCG@10 | less plain BM25 | p | recall | IoU | ms | tokens |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    order = sorted(range(len(configs)), key=lambda index: -fmean(pairs[index]))
    for index in order:
        config, outcomes = configs[index], outcomes_by_name[configs[index].name]
        gap = paired_difference(base, pairs[index], groups, bounds=(0, 1))
        retrieval = f"{config.get_stage('retrieve')}" + ("" if config.embedder == "none" else f" {config.embedder}")
        figures = [f"{compute_figure(name, outcomes):.3f}" for name in ("recall", "iou")]
        costs = f"{compute_figure('latency', outcomes):.1f} | {compute_figure('tokens', outcomes):,.0f}"
        less = "–" if config == default else f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
        reranker = config.get_stage("rerank") or "–"
        print(
            f"| {config.chunker} | {retrieval} | {reranker} | {fmean(pairs[index]):.3f} | {less} | "
            f"{adjusted[index]:.3f} | {' | '.join(figures)} | {costs} |"
        )


def enumerate_configs(space: SearchSpace, start: PipelineConfig) -> list[PipelineConfig]:
    """Return every combination of chunker, embedder, retrieval and reranking; other steps unchanged.

    Retrieval by words alone ("sparse") is combined with no embedder, and each retrieval also with no reranker.
    """
    configs: dict[str, PipelineConfig] = {}
    for chunker in space.chunkers:
        for retrieval in space.retrievals:
            embedders = (NO_EMBEDDER,) if retrieval.startswith("sparse") else space.embedders
            for embedder in embedders:
                config = replace_stage(replace(start, chunker=chunker, embedder=embedder), "retrieve", retrieval)
                for text in (None, *space.rerankers):
                    reranked = replace_stage(config, "rerank", text)
                    configs[reranked.name] = reranked
    return list(configs.values())


def print_splits(
    runner: TrialRunner,
    questions: Sequence[TuningQuestion],
    space: SearchSpace,
    default: PipelineConfig,
    tokens: int,
    count: int,
) -> None:
    """Print how near the tuner's choice comes to the best row on the other questions, and its share of the time."""
    configs = enumerate_configs(space, default)
    positions = {question.id: i for i, question in enumerate(questions)}
    values = np.array([[item.value for item in runner.measure(config, questions)] for config in configs])
    names = [config.name for config in configs]
    rows = []
    for seed in range(count):
        parts = split_questions(questions, 0.5, seed)
        split_runner = TrialRunner(runner.cache, runner.metric)
        result = PipelineSearch(
            split_runner, space, default, parts.selection, (parse_bound(f"tokens<={tokens}"),)
        ).run()
        selection = [positions[item.id] for item in parts.selection]
        holdout = [positions[item.id] for item in parts.holdout]
        ids = {item.id for item in parts.selection}
        grid_seconds = sum(
            cost for key, cost in runner.computed_seconds.items() if " " not in key or key.split(" ", 1)[1] in ids
        )
        time_share = split_runner.uncached_seconds / grid_seconds
        means = values[:, holdout].mean(axis=1)
        choice, default_index = names.index(result.config.name), names.index(default.name)
        grid_choice, overall_best = (int(part.mean(axis=1).argmax()) for part in (values[:, selection], values))
        rows.append(
            (means[choice], means.max(), means[grid_choice], means[overall_best], means[default_index], time_share)
        )
        print(
            f"  split {seed}: {result.config.name}: {means[choice]:.3f}, best {means.max():.3f} "
            f"{names[int(means.argmax())]}, time {time_share:.0%}",
            flush=True,
        )
    chosen, best, by_grid, on_all, by_default, time_shares = np.array(rows).T
    print(f"\n{count} splits, {len(configs)} rows; nDCG@10 on held-out questions, mean over the splits")
    print("| row | nDCG@10 | within 0.01 of the best | the tuner's choice is within 0.01 of it, or above |")
    print("|---|---|---|---|")
    print(f"| the tuner's choice | {chosen.mean():.3f} | {np.mean(chosen >= best - TOLERANCE):.0%} | |")
    for name, other in (
        ("the row that is best on the very held-out questions", best),
        ("the row that the whole grid chooses", by_grid),
        ("the row that is best on all questions", on_all),
        ("the default row, plain BM25", by_default),
    ):
        near = f"{np.mean(other >= best - TOLERANCE):.0%} | {np.mean(chosen >= other - TOLERANCE):.0%}"
        print(f"| {name} | {other.mean():.3f} | {near} |")
    mean, low, high = time_shares.mean(), time_shares.min(), time_shares.max()
    print(f"\nthe tuner takes {mean:.0%} of the time of the grid ({low:.0%} to {high:.0%})")


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
    tokens = TOKEN_BUDGETS[options.set]
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
    runner = TrialRunner(TuningCache(options.cache, documents), parse_tuning_metric("ndcg@10"))
    configs, begin = enumerate_configs(space, default), time.perf_counter()
    outcomes = {}
    for config in configs:
        outcomes[config.name] = runner.measure(config, gathered.questions)
    runner.cache.flush()
    groups = [question.group for question in gathered.questions]
    print(f"{len(gathered.questions)} questions, {len(documents)} documents; grouped by {gathered.grouped_by}")
    elapsed = time.perf_counter() - begin
    print(f"{len(configs)} rows in {runner.uncached_seconds:.0f} s ({elapsed:.0f} s with what was kept)\n")
    print_table(outcomes, configs, default, groups)
    print()
    print_splits(runner, gathered.questions, space, default, tokens, options.splits)


if __name__ == "__main__":
    main()
