"""Time the ranked metrics against pytrec_eval, ranx and ir_measures, and check that all agree.

    python benchmarks/ranking.py --queries 20000

Fourteen metrics for every query (AP, RR, nDCG, P and R at 5, 10 and 100, hit at 1, 5 and 10) on a synthetic
run with 100 results a query and 10 judged chunks. Three entrances: TREC files, Arrow columns (the peers have
none, and start from their dicts) and dicts. Prints a Markdown table: medians, and ratios to ragfault through
the same entrance. A peer that is not installed is left out, and the table says so.
"""

from __future__ import annotations

import argparse
import gc
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragfault.io.formats.trec import read_qrels, read_run
from ragfault.metrics.qrels import ranking_from_columns, ranking_from_dicts
from ragfault.metrics.ranking import Ranking, compute_rank_metric

DEPTH, JUDGED = 100, 10
METRICS = [
    ("average_precision", None),
    ("reciprocal_rank", None),
    *((name, k) for name in ("ndcg", "precision", "recall") for k in (5, 10, 100)),
    *(("hit", k) for k in (1, 5, 10)),
]
NAMES = {
    "pytrec_eval": {
        "average_precision": "map",
        "reciprocal_rank": "recip_rank",
        "ndcg": "ndcg_cut_{}",
        "precision": "P_{}",
        "recall": "recall_{}",
        "hit": "success_{}",
    },
    "ranx": {
        "average_precision": "map",
        "reciprocal_rank": "mrr",
        "ndcg": "ndcg@{}",
        "precision": "precision@{}",
        "recall": "recall@{}",
        "hit": "hit_rate@{}",
    },
    "ir_measures": {
        "average_precision": "AP",
        "reciprocal_rank": "RR",
        "ndcg": "nDCG@{}",
        "precision": "P@{}",
        "recall": "R@{}",
        "hit": "Success@{}",
    },
}
SLOW = 8.0
"""Seconds from which a measurement is not repeated."""

Dicts = dict[str, dict[str, Any]]
Means = list[float]


class Data(NamedTuple):
    run_file: str
    qrels_file: str
    run: Dicts
    qrels: Dicts
    columns: tuple[Any, Any]


class Row(NamedTuple):
    entrance: str
    who: str
    seconds: float
    repeats: int
    note: str = ""


def labels(peer: str) -> list[str]:
    """Return a peer's names of the metrics, in the order of METRICS."""
    return [NAMES[peer][name].format(k) for name, k in METRICS]


# --- the data --------------------------------------------------------------------------------------


def write(queries: int, folder: Path) -> tuple[str, str]:
    """Write a run and its qrels; no two scores of a query are equal, so that ties cannot divide the peers."""
    rng = np.random.default_rng(7)
    run, qrels = folder / "bench.run", folder / "bench.qrels"
    with run.open("w") as results, qrels.open("w") as judged:
        for query in range(queries):
            docs = rng.choice(1_000_000, DEPTH + 4, replace=False)
            scores = 30 - 0.25 * np.arange(DEPTH) - 0.2 * rng.random(DEPTH)
            pairs = enumerate(zip(docs[:DEPTH].tolist(), scores.tolist(), strict=True), 1)
            results.writelines(f"q{query} Q0 doc{doc} {rank} {score:.6f} bench\n" for rank, (doc, score) in pairs)
            gold = np.concatenate([rng.choice(docs[:DEPTH], JUDGED - 4, replace=False), docs[DEPTH:]])
            grades = np.maximum(rng.integers(0, 4, JUDGED), np.arange(JUDGED) == 0)
            pairs = zip(gold.tolist(), grades.tolist(), strict=True)
            judged.writelines(f"q{query} 0 doc{doc} {grade}\n" for doc, grade in pairs)
    return str(run), str(qrels)


def load(run_file: str, qrels_file: str) -> Data:
    """Load the same data in the three forms."""
    columns = read_run(run_file), read_qrels(qrels_file)
    run, qrels = (nest(*(column.to_pylist() for column in table.columns)) for table in columns)
    graded = {query: {chunk: int(grade) for chunk, grade in grades.items()} for query, grades in qrels.items()}
    return Data(run_file, qrels_file, run, graded, columns)


def nest(queries: list[str], chunks: list[str], values: list[float]) -> Dicts:
    nested: Dicts = {}
    for query, chunk, value in zip(queries, chunks, values, strict=True):
        nested.setdefault(query, {})[chunk] = value
    return nested


# --- the contestants -------------------------------------------------------------------------------


def ours(ranking: Ranking) -> Means:
    return [
        float(values[defined].mean()) for values, defined in (compute_rank_metric(n, ranking, k) for n, k in METRICS)
    ]


def pytrec_eval(run: Dicts, qrels: Dicts) -> Dicts:
    import pytrec_eval as peer

    measures = {"map", "recip_rank", "ndcg_cut.5,10,100", "P.5,10,100", "recall.5,10,100", "success.1,5,10"}
    results: Dicts = peer.RelevanceEvaluator(qrels, measures).evaluate(run)
    return results


def pytrec_files(data: Data) -> Dicts:
    import pytrec_eval as peer

    with open(data.run_file) as run, open(data.qrels_file) as qrels:
        return pytrec_eval(peer.parse_run(run), peer.parse_qrel(qrels))


def pytrec_means(results: Dicts) -> Means:
    return [statistics.fmean(row[name] for row in results.values()) for name in labels("pytrec_eval")]


def ir_measures(run: Any, qrels: Any) -> list[Any]:
    import ir_measures as peer

    measures = [peer.parse_measure(name) for name in labels("ir_measures")]
    return list(peer.evaluator(measures, qrels).iter_calc(run))


def ir_files(data: Data) -> list[Any]:
    import ir_measures as peer

    return ir_measures(peer.read_trec_run(data.run_file), peer.read_trec_qrels(data.qrels_file))


def ir_means(results: list[Any]) -> Means:
    values: dict[str, list[float]] = {}
    for result in results:
        values.setdefault(str(result.measure), []).append(result.value)
    return [statistics.fmean(values[name]) for name in labels("ir_measures")]


def ranx(run: Any, qrels: Any) -> dict[str, Any]:
    import ranx as peer

    results: dict[str, Any] = peer.evaluate(qrels, run, labels("ranx"), return_mean=False, save_results_in_run=False)
    return results


def ranx_dicts(run: Dicts, qrels: Dicts) -> tuple[Any, Any]:
    import ranx as peer

    return peer.Run(run), peer.Qrels(qrels)


def ranx_files(data: Data) -> tuple[Any, Any]:
    import ranx as peer

    return peer.Run.from_file(data.run_file, kind="trec"), peer.Qrels.from_file(data.qrels_file, kind="trec")


def ranx_means(results: dict[str, Any]) -> Means:
    return [float(np.mean(results[name])) for name in labels("ranx")]


# --- the race --------------------------------------------------------------------------------------


class Race:
    """Contestants that take turns, so that a busy machine slows them all, and who must all agree."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.entries: list[tuple[str, str, Callable[[], Any], Callable[[Any], Means], str]] = []

    def enter(
        self, entrance: str, who: str, action: Callable[[], Any], means: Callable[[Any], Means], note: str = ""
    ) -> None:
        self.entries.append((entrance, who, action, means, note))

    def run(self, repeats: int) -> list[Row]:
        times: dict[tuple[str, str], list[float]] = {}
        truth: Means = []
        for turn in range(repeats):
            for entrance, who, action, means, _ in self.entries:
                taken = times.setdefault((entrance, who), [])
                if taken and taken[0] > SLOW:
                    continue
                gc.collect()
                start = self.clock()
                result = action()
                taken.append(self.clock() - start)
                if not turn:
                    truth = truth or means(result)
                    agree(f"{who} from {entrance}", means(result), truth)
        return [
            Row(entrance, who, statistics.median(times[entrance, who]), len(times[entrance, who]), note)
            for entrance, who, _, _, note in self.entries
        ]


def agree(who: str, values: Means, truth: Means) -> None:
    for (name, k), value, expected in zip(METRICS, values, truth, strict=True):
        if abs(value - expected) > 1e-6:
            raise SystemExit(f"{who}: {name}@{k} is {value}, and ragfault has {expected}")


def compete(data: Data, race: Race, peers: list[str]) -> None:
    race.enter("columns", "ragfault", lambda: ours(ranking_from_columns(*data.columns)), list)
    race.enter("dicts", "ragfault", lambda: ours(ranking_from_dicts(data.run, data.qrels)), list)
    race.enter(
        "files",
        "ragfault",
        lambda: ours(ranking_from_columns(read_run(data.run_file), read_qrels(data.qrels_file))),
        list,
    )
    if "pytrec_eval" in peers:
        race.enter("dicts", "pytrec_eval", lambda: pytrec_eval(data.run, data.qrels), pytrec_means)
        race.enter("files", "pytrec_eval", lambda: pytrec_files(data), pytrec_means)
    if "ir_measures" in peers:
        race.enter("dicts", "ir_measures", lambda: ir_measures(data.run, data.qrels), ir_means)
        race.enter("files", "ir_measures", lambda: ir_files(data), ir_means)
    if "ranx" in peers:
        against_ranx(data, race)


def against_ranx(data: Data, race: Race) -> None:
    """Enter ranx, which compiles at its first call: a few queries are evaluated before the clock starts."""
    few = list(data.run)[:10]
    start = time.perf_counter()
    ranx(*ranx_dicts({q: data.run[q] for q in few}, {q: data.qrels[q] for q in few}))
    compiling = f"after {time.perf_counter() - start:.0f} s of compiling"
    race.enter("dicts", "ranx", lambda: ranx(*ranx_dicts(data.run, data.qrels)), ranx_means, compiling)
    race.enter("files", "ranx", lambda: ranx(*ranx_files(data)), ranx_means, compiling)
    built = ranx_dicts(data.run, data.qrels)
    race.enter("dicts", "ranx, already built", lambda: ranx(*built), ranx_means, compiling)


def table(rows: list[Row]) -> str:
    """Format the results as Markdown; columns are compared with the peers' times from dicts."""
    own = {row.entrance: row.seconds for row in rows if row.who == "ragfault"}
    lines = ["| from | | seconds | times ragfault | |", "|---|---|--:|--:|---|"]
    for entrance in ("files", "columns", "dicts"):
        source = "dicts" if entrance == "columns" else entrance
        first = next(row for row in rows if row.entrance == entrance and row.who == "ragfault")
        others = sorted(
            (row for row in rows if row.entrance == source and row.who != "ragfault"), key=lambda r: r.seconds
        )
        for row in [first, *others]:
            note = ", ".join(
                part
                for part in (
                    row.note,
                    "from dicts" if row.entrance != entrance else "",
                    f"median of {row.repeats}" if row.repeats > 1 else "once",
                )
                if part
            )
            ratio = row.seconds / own[entrance]
            lines.append(f"| {entrance} | {row.who} | {row.seconds:.3f} | {ratio:.2f} | {note} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="processor time of all threads, beside other work")
    parser.add_argument("--peers", nargs="*", default=["pytrec_eval", "ir_measures", "ranx"])
    options = parser.parse_args()
    peers = [peer for peer in options.peers if find_spec(peer)]
    race = Race(time.process_time if options.cpu else time.perf_counter)
    with tempfile.TemporaryDirectory() as folder:
        data = load(*write(options.queries, Path(folder)))
        compete(data, race, peers)
        rows = race.run(options.repeats)
    print(f"\n{options.queries:,} queries × {DEPTH} results, {len(METRICS)} metrics, all equal to 1e-6;")
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}.\n")
    print(table(rows))
    for peer in options.peers:
        if peer not in peers:
            print(f"\n{peer} is not installed and was left out.")


if __name__ == "__main__":
    main()
