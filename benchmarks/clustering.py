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

from ragfault.diagnosis.clusters.clustering import (
    cluster_by_density,
    cluster_failures,
    embed_failures,
    encode_kinds,
    minimum_size,
    reduce_dimensions,
)
from ragfault.diagnosis.clusters.description import TracePopulation, failure_key, read_failures
from ragfault.diagnosis.clusters.records import Cluster, ClusterRegistry, ClusterReport, FailingTrace
from ragfault.diagnosis.clusters.registry import record_clusters
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.model.records import Trace
from ragfault.retrieval.embedders.registry import load_embedder

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

TraceLabels = dict[str, tuple[str, str]]
"""Trace id → its fault and its topic."""


def get_topic(question: Trace) -> str:
    """Return the document that a question is about, or "none"."""
    spans = question.gold.spans if question.gold else ()
    return spans[0].document if spans else "none"


def answer_with_faults(corpus: Corpus, questions: Sequence[Trace], confined: bool) -> Iterator[Trace]:
    """Yield the answers of seven systems with one fault each, labelled by fault and topic.

    Each fault gets a seventh of the questions: of the topics, if `confined`, else of the questions in order.
    """
    topics = sorted({get_topic(item) for item in questions})
    topic_numbers = {name: i for i, name in enumerate(topics)}
    plain = {item.id: item for item in answer_questions(corpus, Config(), questions)}
    for index, fault in enumerate(FAULTS):
        affected = [
            item
            for number, item in enumerate(questions)
            if (topic_numbers[get_topic(item)] if confined else number) % len(FAULTS) == index
        ]
        for item in answer_questions(corpus, inject(Config(), fault, "strong"), affected):
            before = plain[item.id]
            changed = (item.answer, item.citations, item.chunks) != (before.answer, before.citations, before.chunks)
            yield replace(item, metadata={"fault": fault if changed else "none", "topic": get_topic(item)})


def compute_agreement(labels: Sequence[int], truth: Sequence[str]) -> tuple[float, float, float, float]:
    """Return ARI over what is clustered, ARI over all, purity, share of single failures."""
    all_labels = [label if label >= 0 else -1 - i for i, label in enumerate(labels)]
    clusters = [i for i, label in enumerate(labels) if label >= 0]
    groups: defaultdict[int, list[str]] = defaultdict(list)
    for at in clusters:
        groups[labels[at]].append(truth[at])
    purity = sum(Counter(item).most_common(1)[0][1] for item in groups.values()) / max(1, len(clusters))
    clustered_ari = (
        adjusted_rand_score([truth[at] for at in clusters], [labels[at] for at in clusters]) if clusters else 0.0
    )
    return clustered_ari, adjusted_rand_score(truth, all_labels), purity, 1 - len(clusters) / len(labels)


def list_cluster_labels(report: ClusterReport, failures: Sequence[FailingTrace]) -> list[int]:
    """Return the number of the cluster of each failure; -1 for failures in no cluster."""
    rows = {name: i for i, item in enumerate(report.clusters) for name in item.members}
    return [rows.get(item.trace, -1) for item in failures]


def format_row(name: str, labels: Sequence[int], failures: Sequence[FailingTrace], truth: TraceLabels) -> str:
    """Format a row of the table, over the failures that an injected fault caused."""
    clusters = [i for i, item in enumerate(failures) if truth[item.trace][0] != "none"]
    clustered_labels = [labels[at] for at in clusters]
    figures = compute_agreement(clustered_labels, [truth[failures[at].trace][0] for at in clusters])
    cross_figures = compute_agreement(clustered_labels, [" ".join(truth[failures[at].trace]) for at in clusters])
    topic_figures = compute_agreement(clustered_labels, [truth[failures[at].trace][1] for at in clusters])
    return (
        f"| {name} | {len(clusters):,} | {len(set(clustered_labels) - {-1})} | {figures[0]:.2f} | {figures[1]:.2f} | "
        f"{figures[2]:.2f} | {topic_figures[2]:.2f} | {cross_figures[0]:.2f} | {figures[3]:.0%} |"
    )


def iterate_groupings(
    failures: Sequence[FailingTrace], populations: Sequence[TracePopulation]
) -> Iterator[tuple[str, list[int]]]:
    """Yield the name and the labels of each way to group the failures: ragfault's clusters and simpler ones."""
    yield "ragfault clusters", list_cluster_labels(cluster_failures(failures, populations), failures)
    latent = load_embedder("latent", dimensions=128)
    yield (
        "… with the latent embedder",
        list_cluster_labels(cluster_failures(failures, populations, embedder=latent), failures),
    )
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


def measure_halves(
    failures: Sequence[FailingTrace], populations: TracePopulation, seed: int, truth: TraceLabels
) -> tuple[float, float, float]:
    """Return the ARI of clusters of two halves on all failures, the share recognised, and of those the share correct.

    A recognised cluster is correct if its commonest fault is that of the cluster of the first half.
    """
    order = list(failures)
    random.Random(seed).shuffle(order)
    cut = len(order) // 2
    sides = [sorted(part, key=lambda item: item.trace) for part in (order[:cut], order[cut:])]
    report = [cluster_failures(side, [populations]) for side in sides]
    rows = np.hstack([embed_failures(failures), encode_kinds(failures)])
    positions = {item.trace: number for number, item in enumerate(failures)}
    assignments = []
    for item in report:
        centroids = np.stack([rows[[positions[name] for name in item.members]].mean(axis=0) for item in item.clusters])
        assignments.append(((rows[:, None] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1))
    first = populations._replace(fingerprint="first")
    registry, first_report = record_clusters(ClusterRegistry(), report[0], [first], "")
    _, second = record_clusters(registry, report[1], [populations], "")
    faults = {item.id: find_commonest_fault(item, truth) for item in first_report.clusters}
    recognized = [item for item in second.clusters if not item.new]
    correct = [item for item in recognized if faults[item.id] == find_commonest_fault(item, truth)]
    return (
        float(adjusted_rand_score(*assignments)),
        len(recognized) / max(1, len(second.clusters)),
        len(correct) / max(1, len(recognized)),
    )


def find_commonest_fault(item: Cluster, truth: TraceLabels) -> str:
    """Return the commonest fault of the members of a cluster."""
    return Counter(truth[name][0] for name in item.members).most_common(1)[0][0]


def measure_stability(
    failures: Sequence[FailingTrace], populations: Sequence[TracePopulation], seeds: int, truth: TraceLabels
) -> str:
    """Format a row of the stability over seeds and orders of the same failures, and over halves of them."""
    base = list_cluster_labels(cluster_failures(failures, populations), failures)
    order_aris = []
    for seed in range(1, seeds + 1):
        mixed = list(failures)
        random.Random(seed).shuffle(mixed)
        order_aris.append(
            adjusted_rand_score(base, list_cluster_labels(cluster_failures(mixed, populations, seed=seed), failures))
        )
    half_figures = [measure_halves(failures, populations[0], seed, truth) for seed in range(seeds)]
    means = [fmean(item) for item in zip(*half_figures, strict=True)]
    return f"| {min(order_aris):.2f} | {means[0]:.2f} | {means[1]:.0%} | {means[2]:.0%} |"


def time_clustering(failures: Sequence[FailingTrace], count: int) -> str:
    """Describe the seconds that clustering and recognition take on `count` failures, repeated with other words."""
    words = sorted({word for item in failures for word in item.query.split()})
    rng = random.Random(0)
    copies = []
    for number in range(count):
        item = failures[number % len(failures)]
        generated = f"{item.query} {' '.join(rng.sample(words, 3))}"
        copies.append(replace(item, trace=f"{number:06}", row=number, query=generated))
    populations = TracePopulation("many", "many", "", "", count)
    start = time.perf_counter()
    report = cluster_failures(copies, [populations])
    cluster_seconds = time.perf_counter() - start
    start = time.perf_counter()
    registry, _ = record_clusters(ClusterRegistry(), report, [populations], "")
    record_clusters(registry, report, [populations._replace(fingerprint="again")], "")
    recognition_seconds = time.perf_counter() - start
    keys = len({failure_key(item) for item in copies})
    return (
        f"{count:,} failures ({keys:,} different): {cluster_seconds:.1f} s to cluster into {len(report.clusters)}, "
        f"{recognition_seconds:.1f} s to remember and recognise"
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
            traces = list(answer_with_faults(corpus, questions, confined))
            run = evaluate(traces, Path(folder, "run"), judge=options.judge)
            failures, populations = collect_run_failures(run)
        truth = {item.id: (item.metadata["fault"], item.metadata["topic"]) for item in traces}
        print(f"{'confined' if confined else 'spread'}\n\n{head}\n|---|" + "---:|" * 8)
        for name, labels in iterate_groupings(failures, [populations]):
            print(format_row(name, labels, failures, truth), flush=True)
        print("\n| other orders: ARI, least | halves: ARI, mean | recognised | rightly |\n|" + "---:|" * 4)
        print(measure_stability(failures, [populations], options.seeds, truth) + "\n", flush=True)
    print(time_clustering(failures, options.failures))


def collect_run_failures(run: Run) -> tuple[list[FailingTrace], TracePopulation]:
    """Return the failures of a run by trace id, and the population of all its traces."""
    failures = sorted(read_failures([run])[0], key=lambda failure: failure.trace)
    return failures, TracePopulation("run", "run", "", "", run.manifest.traces)


if __name__ == "__main__":
    main()
