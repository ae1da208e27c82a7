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
from .faults.corpora import Corpus, handbook_corpus, sample, squad_corpus
from .faults.injection import inject
from .faults.system import answers

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
    """The document that a question is about."""
    spans = question.gold.spans if question.gold else ()
    return spans[0].document if spans else "none"


def broken(corpus: Corpus, questions: Sequence[Trace], confined: bool) -> Iterator[Trace]:
    """The answers of seven systems, each with a fault, in its share of the questions; with what was done to each."""
    names = sorted({topic(one) for one in questions})
    place = {name: at for at, name in enumerate(names)}
    plain = {one.id: one for one in answers(corpus, Config(), questions)}
    for at, fault in enumerate(FAULTS):
        mine = [
            one
            for number, one in enumerate(questions)
            if (place[topic(one)] if confined else number) % len(FAULTS) == at
        ]
        for one in answers(corpus, inject(Config(), fault, "strong"), mine):
            was = plain[one.id]
            changed = (one.answer, one.citations, one.chunks) != (was.answer, was.citations, was.chunks)
            yield replace(one, metadata={"fault": fault if changed else "none", "topic": topic(one)})


def agreement(labels: Sequence[int], truth: Sequence[str]) -> tuple[float, float, float, float]:
    """ARI over what is clustered, ARI over all, purity, share of single failures."""
    alone = [label if label >= 0 else -1 - at for at, label in enumerate(labels)]
    kept = [at for at, label in enumerate(labels) if label >= 0]
    groups: defaultdict[int, list[str]] = defaultdict(list)
    for at in kept:
        groups[labels[at]].append(truth[at])
    pure = sum(Counter(each).most_common(1)[0][1] for each in groups.values()) / max(1, len(kept))
    inside = adjusted_rand_score([truth[at] for at in kept], [labels[at] for at in kept]) if kept else 0.0
    return inside, adjusted_rand_score(truth, alone), pure, 1 - len(kept) / len(labels)


def labelled(found: ClusterReport, held: Sequence[FailingTrace]) -> list[int]:
    """The place of the cluster that each failure is in; -1 for single ones."""
    place = {name: at for at, one in enumerate(found.clusters) for name in one.members}
    return [place.get(one.trace, -1) for one in held]


def row(name: str, labels: Sequence[int], held: Sequence[FailingTrace], truth: Truth) -> str:
    """A line of the table, over the failures that a fault made."""
    kept = [at for at, one in enumerate(held) if truth[one.trace][0] != "none"]
    mine = [labels[at] for at in kept]
    figures = agreement(mine, [truth[held[at].trace][0] for at in kept])
    cross = agreement(mine, [" ".join(truth[held[at].trace]) for at in kept])
    topics = agreement(mine, [truth[held[at].trace][1] for at in kept])
    return (
        f"| {name} | {len(kept):,} | {len(set(mine) - {-1})} | {figures[0]:.2f} | {figures[1]:.2f} | "
        f"{figures[2]:.2f} | {topics[2]:.2f} | {cross[0]:.2f} | {figures[3]:.0%} |"
    )


def ways(held: Sequence[FailingTrace], wholes: Sequence[TracePopulation]) -> Iterator[tuple[str, list[int]]]:
    """The clusters as they are, and what parts of them alone would give."""
    yield "ragfault clusters", labelled(cluster_failures(held, wholes), held)
    latent = load_embedder("latent", dimensions=128)
    yield "… with the latent embedder", labelled(cluster_failures(held, wholes, embedder=latent), held)
    size = minimum_size(len(held))
    yield (
        "word vectors alone",
        cluster_by_density(reduce_dimensions(embed_failures(held), np.zeros((len(held), 1))), size),
    )
    yield (
        "kinds alone",
        cluster_by_density(reduce_dimensions(np.zeros((len(held), 1)), encode_kinds(held)), size),
    )
    kinds = sorted({one.kind for one in held})
    yield "by leading kind", [kinds.index(one.kind) for one in held]


def halves(
    held: Sequence[FailingTrace], whole: TracePopulation, seed: int, truth: Truth
) -> tuple[float, float, float]:
    """How far two halves agree on all failures; how many clusters are recognised, and rightly by their fault."""
    order = list(held)
    random.Random(seed).shuffle(order)
    cut = len(order) // 2
    sides = [sorted(part, key=lambda one: one.trace) for part in (order[:cut], order[cut:])]
    found = [cluster_failures(side, [whole]) for side in sides]
    rows = np.hstack([embed_failures(held), encode_kinds(held)])
    at = {one.trace: number for number, one in enumerate(held)}
    put = []
    for each in found:
        middles = np.stack([rows[[at[name] for name in one.members]].mean(axis=0) for one in each.clusters])
        put.append(((rows[:, None] - middles[None]) ** 2).sum(axis=2).argmin(axis=1))
    first = whole._replace(fingerprint="first")
    known, before = record_clusters(ClusterRegistry(), found[0], [first], "")
    _, again = record_clusters(known, found[1], [whole], "")
    faults = {one.id: mostly(one, truth) for one in before.clusters}
    same = [one for one in again.clusters if not one.new]
    right = [one for one in same if faults[one.id] == mostly(one, truth)]
    return (
        float(adjusted_rand_score(*put)),
        len(same) / max(1, len(again.clusters)),
        len(right) / max(1, len(same)),
    )


def mostly(one: Cluster, truth: Truth) -> str:
    """The commonest fault of a cluster."""
    return Counter(truth[name][0] for name in one.members).most_common(1)[0][0]


def stability(
    held: Sequence[FailingTrace], wholes: Sequence[TracePopulation], seeds: int, truth: Truth
) -> str:
    """Over seeds and orders of the same failures, and over halves of them."""
    base = labelled(cluster_failures(held, wholes), held)
    same = []
    for seed in range(1, seeds + 1):
        mixed = list(held)
        random.Random(seed).shuffle(mixed)
        same.append(adjusted_rand_score(base, labelled(cluster_failures(mixed, wholes, seed=seed), held)))
    split = [halves(held, wholes[0], seed, truth) for seed in range(seeds)]
    means = [fmean(each) for each in zip(*split, strict=True)]
    return f"| {min(same):.2f} | {means[0]:.2f} | {means[1]:.0%} | {means[2]:.0%} |"


def timed(held: Sequence[FailingTrace], count: int) -> str:
    """Seconds for so many failures, by part."""
    words = sorted({word for one in held for word in one.query.split()})
    rng = random.Random(0)
    many = []
    for number in range(count):
        one = held[number % len(held)]
        said = f"{one.query} {' '.join(rng.sample(words, 3))}"
        many.append(replace(one, trace=f"{number:06}", row=number, query=said))
    whole = TracePopulation("many", "many", "", "", count)
    start = time.perf_counter()
    found = cluster_failures(many, [whole])
    took = time.perf_counter() - start
    start = time.perf_counter()
    known, _ = record_clusters(ClusterRegistry(), found, [whole], "")
    record_clusters(known, found, [whole._replace(fingerprint="again")], "")
    again = time.perf_counter() - start
    keys = len({failure_key(one) for one in many})
    return (
        f"{count:,} failures ({keys:,} different): {took:.1f} s to cluster into {len(found.clusters)}, "
        f"{again:.1f} s to remember and recognise"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a folder with squad2_*.jsonl.gz")
    parser.add_argument("--judge", default="embedded")
    parser.add_argument("--questions", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--failures", type=int, default=10_000)
    asked = parser.parse_args()
    corpus = squad_corpus(asked.data) if asked.data else handbook_corpus()
    questions = sample(corpus, min(asked.questions, len(corpus.questions)), 0)
    print(f"{corpus.name}, {len(questions):,} questions, judge {asked.judge}\n")
    head = (
        "| | failures | clusters | ARI | ARI, all | purity | purity by topic | ARI, fault × topic | single |"
    )
    for confined in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            traces = list(broken(corpus, questions, confined))
            run = evaluate(traces, Path(folder, "run"), judge=asked.judge)
            held, whole = gathered(run)
        truth = {one.id: (one.metadata["fault"], one.metadata["topic"]) for one in traces}
        print(f"{'confined' if confined else 'spread'}\n\n{head}\n|---|" + "---:|" * 8)
        for name, labels in ways(held, [whole]):
            print(row(name, labels, held, truth), flush=True)
        print("\n| other orders: ARI, least | halves: ARI, mean | recognised | rightly |\n|" + "---:|" * 4)
        print(stability(held, [whole], asked.seeds, truth) + "\n", flush=True)
    print(timed(held, asked.failures))


def gathered(run: Run) -> tuple[list[FailingTrace], TracePopulation]:
    """The failures of a run, and the run as a whole."""
    held = sorted(collect_failures(run), key=lambda one: one.trace)
    return held, TracePopulation("run", "run", "", "", run.manifest.traces)


if __name__ == "__main__":
    main()
