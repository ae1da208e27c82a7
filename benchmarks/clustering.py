"""How well clusters of failures meet faults that were injected, how stable they are, and how long they take.

    python -m benchmarks.clustering [--data FOLDER] [--judge embedded] [--questions 600] [--seeds 5] [--failures 10000]

Every question is answered by a system with one of seven faults (benchmarks.faults, strong). *spread*: each fault over
all topics, so that there is no topic to find within a fault; *confined*: each fault in some topics alone, as when one
part of a corpus or of a product broke. Of the traces that the fault changed and that fail by their diagnosis: the
adjusted Rand index of the clusters with the faults (over the clustered ones, and over all with each single failure
alone), and their purity; the same of other ways to group them. Stability: the adjusted Rand index of the partitions of
two halves, each put onto all failures by their nearest cluster, the share of the clusters of one half that are
recognised from the other, and of those the share whose commonest fault is the same. Without `--data` over the demo
handbook, with it over SQuAD of that folder. Time is measured on failures that are repeated with other words until there
are as many as asked for.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from msgspec.structs import replace
from sklearn.metrics import adjusted_rand_score

from ragfault.analysis.clusters import (
    Cluster,
    ClusterRegistry,
    ClusterReport,
    FailingTrace,
    TracePopulation,
    cluster_failures,
    collect_failures,
    record_clusters,
)
from ragfault.analysis.clusters.clustering import (
    cluster_by_density,
    embed_failures,
    encode_kinds,
    minimum_size,
    reduce_dimensions,
)
from ragfault.analysis.clusters.description import failure_key
from ragfault.evaluation import evaluate
from ragfault.io.runs import Run
from ragfault.records import Trace
from ragfault.retrieval.embedders import load_embedder

from .faults.config import Config
from .faults.corpora import Corpus, load_handbook_corpus, load_squad_corpus, sample
from .faults.injection import inject
from .faults.system import answer_questions

FAULTS = (
    "wrong-filter",
    "over-refusal",
    "invented-claims",
    "altered-numbers",
    "fabricated-quotes",
    "wandering-preamble",
    "stale-documents",
)

Truth = dict[str, tuple[str, str]]
"""Trace → fault and topic."""


def topic(question: Trace) -> str:
    """Return the document that a question is about."""
    spans = question.gold.spans if question.gold else ()
    return spans[0].document if spans else "none"


def broken(corpus: Corpus, questions: Sequence[Trace], confined: bool) -> Iterator[Trace]:
    """Yield the answers of seven systems, each with a fault, in its share of the questions, labelled by the fault."""
    names = sorted({topic(item) for item in questions})
    rows = {name: i for i, name in enumerate(names)}
    plain = {item.id: item for item in answer_questions(corpus, Config(), questions)}
    for index, fault in enumerate(FAULTS):
        mine = [
            item
            for number, item in enumerate(questions)
            if (rows[topic(item)] if confined else number) % len(FAULTS) == index
        ]
        for item in answer_questions(corpus, inject(Config(), fault, "strong"), mine):
            was = plain[item.id]
            changed = (item.answer, item.citations, item.chunks) != (was.answer, was.citations, was.chunks)
            yield replace(item, metadata={"fault": fault if changed else "none", "topic": topic(item)})


def agreement(labels: Sequence[int], truth: Sequence[str]) -> tuple[float, float, float, float]:
    """Return ARI over what is clustered, ARI over all, purity, share of single failures."""
    alone = [label if label >= 0 else -1 - i for i, label in enumerate(labels)]
    clusters = [i for i, label in enumerate(labels) if label >= 0]
    groups: defaultdict[int, list[str]] = defaultdict(list)
    for at in clusters:
        groups[labels[at]].append(truth[at])
    pure = sum(Counter(item).most_common(1)[0][1] for item in groups.values()) / max(1, len(clusters))
    inside = adjusted_rand_score([truth[at] for at in clusters], [labels[at] for at in clusters]) if clusters else 0.0
    return inside, adjusted_rand_score(truth, alone), pure, 1 - len(clusters) / len(labels)


def labelled(report: ClusterReport, failures: Sequence[FailingTrace]) -> list[int]:
    """Return the place of the cluster that each failure is in; -1 for single ones."""
    rows = {name: i for i, item in enumerate(report.clusters) for name in item.members}
    return [rows.get(item.trace, -1) for item in failures]


def row(name: str, labels: Sequence[int], failures: Sequence[FailingTrace], truth: Truth) -> str:
    """Return a line of the table, over the failures that a fault made."""
    clusters = [i for i, item in enumerate(failures) if truth[item.trace][0] != "none"]
    mine = [labels[at] for at in clusters]
    figures = agreement(mine, [truth[failures[at].trace][0] for at in clusters])
    cross = agreement(mine, [" ".join(truth[failures[at].trace]) for at in clusters])
    topics = agreement(mine, [truth[failures[at].trace][1] for at in clusters])
    return (
        f"| {name} | {len(clusters):,} | {len(set(mine) - {-1})} | {figures[0]:.2f} | {figures[1]:.2f} | "
        f"{figures[2]:.2f} | {topics[2]:.2f} | {cross[0]:.2f} | {figures[3]:.0%} |"
    )


def ways(failures: Sequence[FailingTrace], wholes: Sequence[TracePopulation]) -> Iterator[tuple[str, list[int]]]:
    """Return the clusters as they are, and what parts of them alone would give."""
    yield "ragfault clusters", labelled(cluster_failures(failures, wholes), failures)
    latent = load_embedder("latent", dimensions=128)
    yield ("… with the latent embedder", labelled(cluster_failures(failures, wholes, embedder=latent), failures))
    size = minimum_size(len(failures))
    yield (
        "word vectors alone",
        cluster_by_density(reduce_dimensions(embed_failures(failures), np.zeros((len(failures), 1))), size),
    )
    yield (
        "kinds alone",
        cluster_by_density(reduce_dimensions(np.zeros((len(failures), 1)), encode_kinds(failures)), size),
    )
    kinds = sorted({item.kind for item in failures})
    yield "by leading kind", [kinds.index(item.kind) for item in failures]


def halves(
    failures: Sequence[FailingTrace], populations: TracePopulation, seed: int, truth: Truth
) -> tuple[float, float, float]:
    """Return how far two halves agree on all failures; how many clusters are recognised, and rightly by their fault."""
    order = list(failures)
    random.Random(seed).shuffle(order)
    cut = len(order) // 2
    sides = [sorted(part, key=lambda item: item.trace) for part in (order[:cut], order[cut:])]
    report = [cluster_failures(side, [populations]) for side in sides]
    rows = np.hstack([embed_failures(failures), encode_kinds(failures)])
    at = {item.trace: number for number, item in enumerate(failures)}
    put = []
    for item in report:
        middles = np.stack([rows[[at[name] for name in item.members]].mean(axis=0) for item in item.clusters])
        put.append(((rows[:, None] - middles[None]) ** 2).sum(axis=2).argmin(axis=1))
    first = populations._replace(fingerprint="first")
    known, before = record_clusters(ClusterRegistry(), report[0], [first], "")
    _, again = record_clusters(known, report[1], [populations], "")
    faults = {item.id: mostly(item, truth) for item in before.clusters}
    same = [item for item in again.clusters if not item.new]
    right = [item for item in same if faults[item.id] == mostly(item, truth)]
    return (float(adjusted_rand_score(*put)), len(same) / max(1, len(again.clusters)), len(right) / max(1, len(same)))


def mostly(item: Cluster, truth: Truth) -> str:
    """Return the commonest fault of a cluster."""
    return Counter(truth[name][0] for name in item.members).most_common(1)[0][0]


def stability(failures: Sequence[FailingTrace], wholes: Sequence[TracePopulation], seeds: int, truth: Truth) -> str:
    """Measure stability over seeds and orders of the same failures, and over halves of them."""
    base = labelled(cluster_failures(failures, wholes), failures)
    same = []
    for seed in range(1, seeds + 1):
        mixed = list(failures)
        random.Random(seed).shuffle(mixed)
        same.append(adjusted_rand_score(base, labelled(cluster_failures(mixed, wholes, seed=seed), failures)))
    split = [halves(failures, wholes[0], seed, truth) for seed in range(seeds)]
    means = [fmean(item) for item in zip(*split, strict=True)]
    return f"| {min(same):.2f} | {means[0]:.2f} | {means[1]:.0%} | {means[2]:.0%} |"


def timed(failures: Sequence[FailingTrace], count: int) -> str:
    """Return seconds for so many failures, by part."""
    words = sorted({word for item in failures for word in item.query.split()})
    rng = random.Random(0)
    many = []
    for number in range(count):
        item = failures[number % len(failures)]
        generated = f"{item.query} {' '.join(rng.sample(words, 3))}"
        many.append(replace(item, trace=f"{number:06}", row=number, query=generated))
    populations = TracePopulation("many", "many", "", "", count)
    start = time.perf_counter()
    report = cluster_failures(many, [populations])
    took = time.perf_counter() - start
    start = time.perf_counter()
    known, _ = record_clusters(ClusterRegistry(), report, [populations], "")
    record_clusters(known, report, [populations._replace(fingerprint="again")], "")
    again = time.perf_counter() - start
    keys = len({failure_key(item) for item in many})
    return (
        f"{count:,} failures ({keys:,} different): {took:.1f} s to cluster into {len(report.clusters)}, "
        f"{again:.1f} s to remember and recognise"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with squad2_*.jsonl.gz")
    parser.add_argument("--judge", default="embedded")
    parser.add_argument("--questions", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--failures", type=int, default=10_000)
    options = parser.parse_args()
    corpus = load_squad_corpus(options.data) if options.data else load_handbook_corpus()
    questions = sample(corpus, min(options.questions, len(corpus.questions)), 0)
    print(f"{corpus.name}, {len(questions):,} questions, judge {options.judge}\n")
    head = "| | failures | clusters | ARI | ARI, all | purity | purity by topic | ARI, fault × topic | single |"
    for confined in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            traces = list(broken(corpus, questions, confined))
            run = evaluate(traces, Path(folder, "run"), judge=options.judge)
            failures, populations = gathered(run)
        truth = {item.id: (item.metadata["fault"], item.metadata["topic"]) for item in traces}
        print(f"{'confined' if confined else 'spread'}\n\n{head}\n|---|" + "---:|" * 8)
        for name, labels in ways(failures, [populations]):
            print(row(name, labels, failures, truth), flush=True)
        print("\n| other orders: ARI, least | halves: ARI, mean | recognised | rightly |\n|" + "---:|" * 4)
        print(stability(failures, [populations], options.seeds, truth) + "\n", flush=True)
    print(timed(failures, options.failures))


def gathered(run: Run) -> tuple[list[FailingTrace], TracePopulation]:
    """Return the failures of a run, and the run as a whole."""
    failures = sorted(collect_failures(run), key=lambda failure: failure.trace)
    return failures, TracePopulation("run", "run", "", "", run.manifest.traces)


if __name__ == "__main__":
    main()
