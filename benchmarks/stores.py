"""Measure the stores side by side: traces a second taken in and scored, and the times of the queries of pages.

python -m benchmarks.stores [--stored 100000] [--place duckdb clickhouse ADDRESS …]

`clickhouse` is the engine in this process (chdb); an address, clickhouse://user@host/database, an empty one elsewhere.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from msgspec.structs import replace

from ragfault.apps.watch.server.storage.opening import open_store
from ragfault.apps.watch.server.storage.records import TraceSelection
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.online.scorer import ScoredTrace, TraceScorer
from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.model.records import Score, Trace, Verdicts

BATCH = 1000
REPEATS = 9
ROUTES = ("search", "help", "shop", "staff")


class Judged(NamedTuple):
    """A copy of a trace with the verdicts and scores of the original."""

    trace: Trace
    verdicts: Verdicts
    scores: tuple[Score, ...]


def copy_traces(scored_traces: Sequence[ScoredTrace], first: int, count: int, begin: datetime) -> Iterator[Judged]:
    """Yield copies of scored traces under new ids, at ten a second."""
    for index in range(first, first + count):
        source, name = scored_traces[index % len(scored_traces)], f"s-{index}"
        time = begin + timedelta(seconds=index / 10)
        yield Judged(
            replace(source.trace, id=name, time=time, route=ROUTES[index % 4]),
            replace(source.verdicts, trace=name),
            tuple(replace(score, trace=name) for score in source.scores),
        )


def fill_store(store: TraceStore, count: int) -> tuple[float, float]:
    """Fill a store with judged traces; return the traces stored a second, and the outcomes stored a second."""
    scoring = TraceScorer("lexical")
    scored_traces = [scoring(trace) for trace in load_handbook().traces["v1"]]
    measures = tuple(map(describe_metric, scoring.metrics))
    begin = datetime.now(UTC)
    append_seconds = outcome_seconds = 0.0
    for first in range(0, count, BATCH):
        part = list(copy_traces(scored_traces, first, min(BATCH, count - first), begin))
        start = time.perf_counter()
        store.append_traces([row.trace for row in part]).result()
        middle = time.perf_counter()
        store.add_outcomes(part, measures, ("model",)).result()
        append_seconds += middle - start
        outcome_seconds += time.perf_counter() - middle
    return count / append_seconds, count / outcome_seconds


def list_queries(store: TraceStore, count: int) -> dict[str, Callable[[], Any]]:
    """Return the queries that pages of the dashboard send to a store, by name."""
    last = int(time.time()) // 60 + count // 600 + 2
    window = {"since": last - 1440, "until": last}
    page = store.list_traces(TraceSelection(limit=50))
    return {
        "overview: roll-ups of a day": lambda: store.read_rollups(**window, grain=30, bins=False),
        "metric: roll-ups with bins": lambda: store.read_rollups(**window, metric="groundedness"),
        "worst of a metric": lambda: store.read_worst_traces("groundedness", last - 1440, last),
        "traces: first page": lambda: store.list_traces(TraceSelection(limit=50)),
        "traces: next page": lambda: store.list_traces(TraceSelection(limit=50, after=page.next)),
        "traces: sorted by a metric": lambda: store.list_traces(
            TraceSelection(limit=50, sort="groundedness", order="ascending", route="shop")
        ),
        "traces: words": lambda: store.list_traces(TraceSelection(limit=50, text="harbour")),
        "one trace": lambda: store.get_trace(f"s-{count // 2}"),
        "totals": store.compute_totals,
        "what waits": lambda: store.list_unscored(limit=1),
    }


def measure_store(store_name: str, count: int) -> None:
    """Fill a store and print the times of its queries."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        addresses = {"duckdb": str(Path(folder, "duck")), "clickhouse": f"chdb://{folder}/click"}
        store = open_store(addresses.get(store_name, store_name))
        append_rate, outcome_rate = fill_store(store, count)
        print(
            f"\n{store_name}: {count:,} traces, {append_rate:,.0f}/s taken in, {outcome_rate:,.0f}/s scored", flush=True
        )
        store.compact().result()
        for name, query in list_queries(store, count).items():
            print(f"  {name:<30} {1000 * time_query(query):8.1f} ms", flush=True)
        print(f"  {'bytes a trace':<30} {store.compute_totals().bytes / count:8,.0f}", flush=True)
        store.close()


def time_query(query: Callable[[], Any]) -> float:
    """Return the median seconds of a query."""
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        query()
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure every store that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stored", type=int, default=100_000)
    parser.add_argument("--place", nargs="*", default=["duckdb", "clickhouse"])
    options = parser.parse_args(argv)
    for place in options.place:
        measure_store(place, options.stored)


if __name__ == "__main__":
    main()
