"""The stores side by side: traces a second taken in and scored, and how long what pages ask of them takes.

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

from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.online import ScoredTrace
from ragfault.evaluation.online.scorer import TraceScorer
from ragfault.io.datasets import load_handbook
from ragfault.records import Score, Trace, Verdicts
from ragfault.server.storage import TraceSelection, TraceStore, open_store

BATCH = 1000
TIMES = 9
ROUTES = ("search", "help", "shop", "staff")


class Judged(NamedTuple):
    """A trace with the outcome of one that is like it."""

    trace: Trace
    verdicts: Verdicts
    scores: tuple[Score, ...]


def judged(known: Sequence[ScoredTrace], first: int, count: int, begin: datetime) -> Iterator[Judged]:
    """Return traces of the demo under names of their own, ten a second."""
    for index in range(first, first + count):
        like, name = known[index % len(known)], f"s-{index}"
        time = begin + timedelta(seconds=index / 10)
        yield Judged(
            replace(like.trace, id=name, time=time, route=ROUTES[index % 4]),
            replace(like.verdicts, trace=name),
            tuple(replace(score, trace=name) for score in like.scores),
        )


def fill(store: TraceStore, count: int) -> tuple[float, float]:
    """Return traces a second taken in, and scored."""
    scoring = TraceScorer("lexical")
    known = [scoring(trace) for trace in load_handbook().traces["v1"]]
    measures = tuple(map(describe_metric, scoring.metrics))
    begin = datetime.now(UTC)
    taken = scored = 0.0
    for first in range(0, count, BATCH):
        part = list(judged(known, first, min(BATCH, count - first), begin))
        start = time.perf_counter()
        store.append_traces([row.trace for row in part]).result()
        middle = time.perf_counter()
        store.add_outcomes(part, measures, ("model",)).result()
        taken += middle - start
        scored += time.perf_counter() - middle
    return count / taken, count / scored


def asked(store: TraceStore, count: int) -> dict[str, Callable[[], Any]]:
    """Return what pages ask."""
    last = int(time.time()) // 60 + count // 600 + 2
    day = {"since": last - 1440, "until": last}
    page = store.list_traces(TraceSelection(limit=50))
    return {
        "overview: roll-ups of a day": lambda: store.read_rollups(**day, grain=30, bins=False),
        "metric: roll-ups with bins": lambda: store.read_rollups(**day, metric="groundedness"),
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


def run(place: str, count: int) -> None:
    """Fill a store, and ask it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        known = {"duckdb": str(Path(folder, "duck")), "clickhouse": f"chdb://{folder}/click"}
        store = open_store(known.get(place, place))
        taken, scored = fill(store, count)
        print(f"\n{place}: {count:,} traces, {taken:,.0f}/s taken in, {scored:,.0f}/s scored", flush=True)
        store.compact().result()
        for name, ask in asked(store, count).items():
            print(f"  {name:<30} {1000 * _median(ask):8.1f} ms", flush=True)
        print(f"  {'bytes a trace':<30} {store.compute_totals().bytes / count:8,.0f}", flush=True)
        store.close()


def _median(ask: Callable[[], Any]) -> float:
    """Return seconds that it takes, the median of several."""
    times = []
    for _ in range(TIMES):
        start = time.perf_counter()
        ask()
        times.append(time.perf_counter() - start)
    return median(times)


def main(argv: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stored", type=int, default=100_000)
    parser.add_argument("--place", nargs="*", default=["duckdb", "clickhouse"])
    options = parser.parse_args(argv)
    for place in options.place:
        run(place, options.stored)


if __name__ == "__main__":
    main()
