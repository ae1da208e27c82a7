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

DEPTH, JUDGED_CHUNKS = 100, 10
METRICS = [
    ("average_precision", None),
    ("reciprocal_rank", None),
    *((name, k) for name in ("ndcg", "precision", "recall") for k in (5, 10, 100)),
    *(("hit", k) for k in (1, 5, 10)),
]
PEER_NAMES = {
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
MAX_REPEATED_SECONDS = 8.0
"""Seconds from which a measurement is not repeated."""

Dicts = dict[str, dict[str, Any]]
Means = list[float]


class RankingData(NamedTuple):
    """One run and its qrels as files, as dicts and as Arrow columns."""

    run_file: str
    qrels_file: str
    run: Dicts
    qrels: Dicts
    columns: tuple[Any, Any]


class Timing(NamedTuple):
    """Median seconds of one tool from one source: files, dicts or columns."""

    source: str
    tool: str
    seconds: float
    repeats: int
    note: str = ""


def list_peer_names(peer: str) -> list[str]:
    """Return a peer's names of the metrics, in the order of METRICS."""
    return [PEER_NAMES[peer][name].format(k) for name, k in METRICS]


# --- the data --------------------------------------------------------------------------------------


def write_trec_files(queries: int, folder: Path) -> tuple[str, str]:
    """Write a run and its qrels; no two scores of a query are equal, as the tools order ties differently."""
    rng = np.random.default_rng(7)
    run, qrels = folder / "bench.run", folder / "bench.qrels"
    with run.open("w") as results, qrels.open("w") as judged:
        for query in range(queries):
            docs = rng.choice(1_000_000, DEPTH + 4, replace=False)
            scores = 30 - 0.25 * np.arange(DEPTH) - 0.2 * rng.random(DEPTH)
            pairs = enumerate(zip(docs[:DEPTH].tolist(), scores.tolist(), strict=True), 1)
            results.writelines(f"q{query} Q0 doc{doc} {rank} {score:.6f} bench\n" for rank, (doc, score) in pairs)
            gold = np.concatenate([rng.choice(docs[:DEPTH], JUDGED_CHUNKS - 4, replace=False), docs[DEPTH:]])
            grades = np.maximum(rng.integers(0, 4, JUDGED_CHUNKS), np.arange(JUDGED_CHUNKS) == 0)
            pairs = zip(gold.tolist(), grades.tolist(), strict=True)
            judged.writelines(f"q{query} 0 doc{doc} {grade}\n" for doc, grade in pairs)
    return str(run), str(qrels)


def load_ranking_data(run_file: str, qrels_file: str) -> RankingData:
    """Load the same data in the three forms."""
    columns = read_run(run_file), read_qrels(qrels_file)
    run, qrels = (group_values(*(column.to_pylist() for column in table.columns)) for table in columns)
    graded = {query: {chunk: int(grade) for chunk, grade in grades.items()} for query, grades in qrels.items()}
    return RankingData(run_file, qrels_file, run, graded, columns)


def group_values(queries: list[str], chunks: list[str], values: list[float]) -> Dicts:
    nested: Dicts = {}
    for query, chunk, value in zip(queries, chunks, values, strict=True):
        nested.setdefault(query, {})[chunk] = value
    return nested


# --- the tools -------------------------------------------------------------------------------------


def compute_ragfault_means(ranking: Ranking) -> Means:
    return [
        float(values[defined].mean()) for values, defined in (compute_rank_metric(n, ranking, k) for n, k in METRICS)
    ]


def evaluate_pytrec(run: Dicts, qrels: Dicts) -> Dicts:
    import pytrec_eval as peer

    measures = {"map", "recip_rank", "ndcg_cut.5,10,100", "P.5,10,100", "recall.5,10,100", "success.1,5,10"}
    results: Dicts = peer.RelevanceEvaluator(qrels, measures).evaluate(run)
    return results


def evaluate_pytrec_files(data: RankingData) -> Dicts:
    import pytrec_eval as peer

    with open(data.run_file) as run, open(data.qrels_file) as qrels:
        return evaluate_pytrec(peer.parse_run(run), peer.parse_qrel(qrels))


def compute_pytrec_means(results: Dicts) -> Means:
    return [statistics.fmean(row[name] for row in results.values()) for name in list_peer_names("pytrec_eval")]


def evaluate_ir_measures(run: Any, qrels: Any) -> list[Any]:
    import ir_measures as peer

    measures = [peer.parse_measure(name) for name in list_peer_names("ir_measures")]
    return list(peer.evaluator(measures, qrels).iter_calc(run))


def evaluate_ir_files(data: RankingData) -> list[Any]:
    import ir_measures as peer

    return evaluate_ir_measures(peer.read_trec_run(data.run_file), peer.read_trec_qrels(data.qrels_file))


def compute_ir_means(results: list[Any]) -> Means:
    values: dict[str, list[float]] = {}
    for result in results:
        values.setdefault(str(result.measure), []).append(result.value)
    return [statistics.fmean(values[name]) for name in list_peer_names("ir_measures")]


def evaluate_ranx(run: Any, qrels: Any) -> dict[str, Any]:
    import ranx as peer

    results: dict[str, Any] = peer.evaluate(
        qrels, run, list_peer_names("ranx"), return_mean=False, save_results_in_run=False
    )
    return results


def build_ranx(run: Dicts, qrels: Dicts) -> tuple[Any, Any]:
    import ranx as peer

    return peer.Run(run), peer.Qrels(qrels)


def read_ranx_files(data: RankingData) -> tuple[Any, Any]:
    import ranx as peer

    return peer.Run.from_file(data.run_file, kind="trec"), peer.Qrels.from_file(data.qrels_file, kind="trec")


def compute_ranx_means(results: dict[str, Any]) -> Means:
    return [float(np.mean(results[name])) for name in list_peer_names("ranx")]


# --- the timing ------------------------------------------------------------------------------------


class TimingRounds:
    """Rounds in which all tools take turns, so that other load slows them alike; their means must be equal."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.entries: list[tuple[str, str, Callable[[], Any], Callable[[Any], Means], str]] = []

    def add_tool(
        self, source: str, tool: str, action: Callable[[], Any], means: Callable[[Any], Means], note: str = ""
    ) -> None:
        self.entries.append((source, tool, action, means, note))

    def run(self, repeats: int) -> list[Timing]:
        times: dict[tuple[str, str], list[float]] = {}
        truth: Means = []
        for turn in range(repeats):
            for source, tool, action, means, _ in self.entries:
                taken = times.setdefault((source, tool), [])
                if taken and taken[0] > MAX_REPEATED_SECONDS:
                    continue
                gc.collect()
                start = self.clock()
                result = action()
                taken.append(self.clock() - start)
                if not turn:
                    truth = truth or means(result)
                    check_means(f"{tool} from {source}", means(result), truth)
        return [
            Timing(source, tool, statistics.median(times[source, tool]), len(times[source, tool]), note)
            for source, tool, _, _, note in self.entries
        ]


def check_means(tool: str, values: Means, truth: Means) -> None:
    for (name, k), value, expected in zip(METRICS, values, truth, strict=True):
        if abs(value - expected) > 1e-6:
            raise SystemExit(f"{tool}: {name}@{k} is {value}, and ragfault has {expected}")


def add_tools(data: RankingData, rounds: TimingRounds, peers: list[str]) -> None:
    rounds.add_tool("columns", "ragfault", lambda: compute_ragfault_means(ranking_from_columns(*data.columns)), list)
    rounds.add_tool("dicts", "ragfault", lambda: compute_ragfault_means(ranking_from_dicts(data.run, data.qrels)), list)
    rounds.add_tool(
        "files",
        "ragfault",
        lambda: compute_ragfault_means(ranking_from_columns(read_run(data.run_file), read_qrels(data.qrels_file))),
        list,
    )
    if "pytrec_eval" in peers:
        rounds.add_tool("dicts", "pytrec_eval", lambda: evaluate_pytrec(data.run, data.qrels), compute_pytrec_means)
        rounds.add_tool("files", "pytrec_eval", lambda: evaluate_pytrec_files(data), compute_pytrec_means)
    if "ir_measures" in peers:
        rounds.add_tool("dicts", "ir_measures", lambda: evaluate_ir_measures(data.run, data.qrels), compute_ir_means)
        rounds.add_tool("files", "ir_measures", lambda: evaluate_ir_files(data), compute_ir_means)
    if "ranx" in peers:
        add_ranx(data, rounds)


def add_ranx(data: RankingData, rounds: TimingRounds) -> None:
    """Add ranx, which compiles at its first call: a few queries are evaluated before the clock starts."""
    queries = list(data.run)[:10]
    start = time.perf_counter()
    evaluate_ranx(*build_ranx({q: data.run[q] for q in queries}, {q: data.qrels[q] for q in queries}))
    note = f"after {time.perf_counter() - start:.0f} s of compiling"
    rounds.add_tool("dicts", "ranx", lambda: evaluate_ranx(*build_ranx(data.run, data.qrels)), compute_ranx_means, note)
    rounds.add_tool("files", "ranx", lambda: evaluate_ranx(*read_ranx_files(data)), compute_ranx_means, note)
    built = build_ranx(data.run, data.qrels)
    rounds.add_tool("dicts", "ranx, already built", lambda: evaluate_ranx(*built), compute_ranx_means, note)


def format_table(rows: list[Timing]) -> str:
    """Format the results as Markdown; columns are compared with the peers' times from dicts."""
    ragfault_seconds = {row.source: row.seconds for row in rows if row.tool == "ragfault"}
    lines = ["| from | | seconds | times ragfault | |", "|---|---|--:|--:|---|"]
    for source in ("files", "columns", "dicts"):
        peer_source = "dicts" if source == "columns" else source
        first = next(row for row in rows if row.source == source and row.tool == "ragfault")
        others = sorted(
            (row for row in rows if row.source == peer_source and row.tool != "ragfault"), key=lambda r: r.seconds
        )
        for row in [first, *others]:
            note = ", ".join(
                part
                for part in (
                    row.note,
                    "from dicts" if row.source != source else "",
                    f"median of {row.repeats}" if row.repeats > 1 else "once",
                )
                if part
            )
            ratio = row.seconds / ragfault_seconds[source]
            lines.append(f"| {source} | {row.tool} | {row.seconds:.3f} | {ratio:.2f} | {note} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="processor time of all threads, beside other work")
    parser.add_argument("--peers", nargs="*", default=["pytrec_eval", "ir_measures", "ranx"])
    options = parser.parse_args()
    peers = [peer for peer in options.peers if find_spec(peer)]
    rounds = TimingRounds(time.process_time if options.cpu else time.perf_counter)
    with tempfile.TemporaryDirectory() as folder:
        data = load_ranking_data(*write_trec_files(options.queries, Path(folder)))
        add_tools(data, rounds, peers)
        rows = rounds.run(options.repeats)
    print(f"\n{options.queries:,} queries × {DEPTH} results, {len(METRICS)} metrics, all equal to 1e-6;")
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}.\n")
    print(format_table(rows))
    for peer in options.peers:
        if peer not in peers:
            print(f"\n{peer} is not installed and was left out.")


if __name__ == "__main__":
    main()
