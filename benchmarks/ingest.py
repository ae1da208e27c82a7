"""How much live traffic the server takes: traces a second with scoring on and off, times of pages, bytes a trace.

python -m benchmarks.ingest [--stored 10000 100000] [--seconds 10] [--clients 4] [--batch 20] [--judge embedded]

A real `ragfault serve` in a process of its own. Each trace has five chunks; clients send batches one after the other.
"""

from __future__ import annotations

import argparse
import http.client
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import numpy as np

from ragfault.datasets import handbook
from ragfault.online.scoring import Scoring
from ragfault.records import Score, Trace, Verdicts
from ragfault.store import open_store

ROUTES = ("search", "help", "shop", "staff")
PAGES = (
    "/overview.json",
    "/traces.json",
    "/traces.json?route=shop&sort=groundedness&order=ascending",
    "/traces.json?text=harbour",
    "/metrics/groundedness.json",
    "/traces/s-17.json",
    "/metrics",
)


def traces(prefix: str, first: int, count: int, begin: datetime) -> list[Trace]:
    """Traces of the demo under names of their own, ten a second."""
    source = handbook().traces["v1"]
    return [
        msgspec.structs.replace(
            source[at % len(source)],
            id=f"{prefix}-{at}",
            time=begin + timedelta(seconds=at / 10),
            route=ROUTES[at % 4],
        )
        for at in range(first, first + count)
    ]


class Judged(msgspec.Struct, frozen=True):
    """A trace with the outcome of another that is like it."""

    trace: Trace
    verdicts: Verdicts
    scores: tuple[Score, ...]


def fill(store: Path, count: int) -> None:
    """Put so many judged traces into a store; the demo's own outcomes stand for theirs."""
    scoring = Scoring("lexical")
    from ragfault.evaluation.evaluating import measure

    measures = tuple(map(measure, scoring.metrics))
    known = {trace.query: scoring(trace) for trace in handbook().traces["v1"]}
    begin = datetime.now(UTC) - timedelta(seconds=count / 10)
    opened = open_store(store)
    for first in range(0, count, 1000):
        part = traces("s", first, min(1000, count - first), begin)
        opened.append(part)
        outcomes = []
        for trace in part:
            like = known[trace.query]
            verdicts = msgspec.structs.replace(like.verdicts, trace=trace.id)
            scores = tuple(msgspec.structs.replace(score, trace=trace.id) for score in like.scores)
            outcomes.append(Judged(trace, verdicts, scores))
        opened.score(outcomes, measures, by=("model",)).result()
    opened.tidy().result()
    opened.close()


@contextmanager
def serving(store: Path, *options: str) -> Iterator[str]:
    """A server, and its address."""
    command = [sys.executable, "-m", "ragfault", "serve", "--store", str(store), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait()


def ask(connection: http.client.HTTPConnection, path: str, body: bytes | None = None) -> tuple[int, float]:
    """The status of an answer, and the milliseconds it took."""
    begin = time.perf_counter()
    connection.request("GET" if body is None else "POST", path, body)
    answer = connection.getresponse()
    answer.read()
    return answer.status, 1000 * (time.perf_counter() - begin)


def flood(url: str, seconds: float, clients: int, batch: int, prefix: str) -> tuple[float, list[float], int]:
    """Traces a second that were acknowledged, the milliseconds of each request, and how many were refused."""
    place, end = urlsplit(url).netloc, time.monotonic() + seconds
    took: list[float] = []
    refused = [0]

    def client(name: int) -> None:
        connection = http.client.HTTPConnection(place)
        at = 0
        while time.monotonic() < end:
            made = traces(f"{prefix}{name}", at, batch, datetime.now(UTC))
            status, spent = ask(connection, "/v1/ragfault/traces", msgspec.json.encode(made))
            if status == 200:
                took.append(spent)
            else:
                refused[0] += 1
                time.sleep(0.2)
            at += batch

    begin = time.monotonic()
    threads = [threading.Thread(target=client, args=(name,)) for name in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(took) * batch / (time.monotonic() - begin), took, refused[0]


def ingest(seconds: float, clients: int, batch: int, judge: str) -> None:
    """Print the rate with scoring off and on."""
    print("scoring   taken/s   scored/s   p50 ms   p99 ms   refused")
    for workers in ("0", "1"):
        folder = Path(tempfile.mkdtemp())
        with serving(folder, "--workers", workers, "--judge", judge) as url:
            flood(url, 1.0, 1, batch, "w")
            rate, took, refused = flood(url, seconds, clients, batch, "m")
            connection = http.client.HTTPConnection(urlsplit(url).netloc)
            connection.request("GET", "/overview.json")
            scored = msgspec.json.decode(connection.getresponse().read())["scoring"]["per_second"]
        p50, p99 = np.percentile(took, [50, 99])
        name = judge if workers == "1" else "off"
        print(f"{name:8} {rate:8,.0f} {scored:10,.0f} {p50:8.1f} {p99:8.1f} {refused:9,}", flush=True)
        shutil.rmtree(folder)


def pages(stored: int) -> None:
    """Print how long each page takes with so many traces, and bytes a trace."""
    folder = Path(tempfile.mkdtemp())
    begin = time.monotonic()
    fill(folder, stored)
    size = (folder / "ragfault.duckdb").stat().st_size
    print(
        f"\n{stored:,} traces, {size / stored:,.0f} bytes a trace, written in {time.monotonic() - begin:,.0f} s"
    )
    with serving(folder, "--workers", "0") as url:
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        for page in PAGES:
            took = [ask(connection, page)[1] for _ in range(20)]
            p50, p95, p99 = np.percentile(took, [50, 95, 99])
            print(f"{page:60} p50 {p50:7.1f}  p95 {p95:7.1f}  p99 {p99:7.1f} ms", flush=True)
    shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stored", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--batch", type=int, default=20, help="traces to a request")
    parser.add_argument("--judge", default="embedded")
    given = parser.parse_args()
    ingest(given.seconds, given.clients, given.batch, given.judge)
    for stored in given.stored:
        pages(stored)


if __name__ == "__main__":
    main()
