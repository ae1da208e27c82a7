"""Measure the live traffic that the server accepts: traces a second with scoring on and off, times of pages, bytes.

python -m benchmarks.ingest [--stored 10000 100000] [--light] [--days 30] [--seconds 10] [--clients 4] [--batch 20]
                            [--judge JUDGE] [--different] [--against CHECKOUT --rounds 5]
python -m benchmarks.ingest --pages FOLDER    (only the pages, over a store that is there)
python -m benchmarks.ingest --anew FOLDER     (their processor without caches)

A real `ragfault serve` in a process of its own. Each trace has five chunks; by OTLP it is four spans in protobuf.
Clients send bodies that were made before, one after the other. `--against` floods a server
of this checkout and one of another by turns, and prints medians and their ratio.
"""

from __future__ import annotations

import argparse
import http.client
import resource
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.traffic import FORMS, RequestBodies, ServerProcess, fill_store, run_server, send_request

MONTH_MINUTES = 30 * 24 * 60
JSON_PAGES = (
    "/overview.json",
    "/traces.json",
    "/traces.json?route=shop&state=scored",
    "/traces.json?sort=groundedness&order=ascending&route=shop",
    "/traces.json?metric=groundedness&high=0.5",
    "/traces.json?text=harbour",
    "/traces.json?text=nowhere-to-be-found",
    "/traces/s-17.json",
    "/metrics/groundedness.json",
    f"/metrics/groundedness.json?window={MONTH_MINUTES}",
    "/insights.json",
    f"/insights.json?window={MONTH_MINUTES}",
    "/incidents.json",
    "/alerts.json",
    "/metrics",
)
HTML_PAGES = (
    "/",
    "/metrics/groundedness",
    f"/metrics/groundedness?window={MONTH_MINUTES}",
    "/insights",
    f"/insights?window={MONTH_MINUTES}",
    "/traces",
    "/traces?route=shop",
    "/traces?sort=groundedness&order=ascending",
    "/traces?text=harbour",
    "/traces/s-17",
    "/conversations",
    "/incidents",
    "/alerts",
    "/clusters",
    "/versions",
    f"/versions?window={MONTH_MINUTES}",
)
CACHED_PAGES = {"/", "/overview.json"}
"""Pages whose figures are cached for two seconds: requests are 2.1 seconds apart, so that none is cached."""


# --- how much it takes -----------------------------------------------------------------------------


class FloodResult(NamedTuple):
    """Result of a flood of requests."""

    rate: float
    """Traces a second that were acknowledged."""
    milliseconds: list[float]
    """Milliseconds of each request."""
    refused_requests: int


def send_flood(address: str, seconds: float, clients: int, bodies: RequestBodies, start: int = 0) -> FloodResult:
    """Send bodies from several clients as fast as the server acknowledges them."""
    deadline, milliseconds, refused_requests = time.monotonic() + seconds, [], [0]

    def send_bodies(name: int) -> None:
        connection, at = http.client.HTTPConnection(address), start + name
        while time.monotonic() < deadline:
            status, spent = send_request(connection, bodies.path, bodies.make_body(at)[0], bodies.content)
            if status == 200:
                milliseconds.append(spent)
            else:
                refused_requests[0] += 1
                time.sleep(0.2)
            at += clients

    start_time = time.monotonic()
    threads = [threading.Thread(target=send_bodies, args=(name,)) for name in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return FloodResult(
        len(milliseconds) * bodies.batch / (time.monotonic() - start_time), milliseconds, refused_requests[0]
    )


def print_ingest_rates(seconds: float, clients: int, batch: int, judge: str, different: bool) -> None:
    """Print the rates with scoring off and on, for each form of request."""
    print("form    scoring    taken/s  p50 ms  p95 ms  p99 ms  refused  scored/s  after/s  server cpu  judge cpu   MB")
    for form in FORMS:
        for workers in ("0", "1"):
            folder = Path(tempfile.mkdtemp())
            with run_server(folder, "--workers", workers, "--judge", judge) as server:
                bodies = RequestBodies(form, batch, "m", different)
                send_flood(server.address, 2.0, 1, bodies, 900_000)
                print_rate_row(form, judge if workers == "1" else "off", server, bodies, seconds, clients)
            shutil.rmtree(folder)


def print_rate_row(
    form: str, name: str, server: ServerProcess, bodies: RequestBodies, seconds: float, clients: int
) -> None:
    """Print the rates of one server during a flood, and with scoring on for as long again after it."""
    scored_before, seconds_before = server.read_overview()["scoring"]["scored"], server.measure_processor_seconds()
    start = time.monotonic()
    outcome = send_flood(server.address, seconds, clients, bodies)
    scored, load_end = server.read_overview()["scoring"]["scored"], time.monotonic()
    server_seconds, worker_seconds = server.measure_processor_seconds()
    cost = 1000 * (server_seconds - seconds_before[0]) / max(1, len(outcome.milliseconds) * bodies.batch)
    judging = 1000 * (worker_seconds - seconds_before[1]) / max(1, scored - scored_before)
    rate_after = 0.0
    if name != "off":
        time.sleep(seconds)
        rate_after = (server.read_overview()["scoring"]["scored"] - scored) / (time.monotonic() - load_end)
    p50, p95, p99 = np.percentile(outcome.milliseconds, [50, 95, 99])
    print(
        f"{form:7} {name:9} {outcome.rate:8,.0f} {p50:7.1f} {p95:7.1f} {p99:7.1f} {outcome.refused_requests:8,} "
        f"{(scored - scored_before) / (load_end - start):9,.0f} {rate_after:8,.0f} "
        f"{cost:11.2f} {judging:10.2f} {server.memory:4,.0f}",
        flush=True,
    )


def compare_checkouts(checkout: Path, rounds: int, load: tuple[float, int, int], judge: str, different: bool) -> None:
    """Print medians of two checkouts flooded by turns, for each form of request, with scoring off and on."""
    seconds, clients, batch = load
    print("form    scoring    of           taken/s  server cpu ms  scored/s    ratio of taken/s, of cpu")
    for form in FORMS:
        for workers in ("0", "1"):
            bodies, results = RequestBodies(form, batch, "m", different), {"there": [], "here": []}  # type: ignore[var-annotated]
            for turn in range(2 * rounds):
                side = ("there", "here", "here", "there")[turn % 4]
                folder = Path(tempfile.mkdtemp())
                options = ("--workers", workers, "--judge", judge)
                with run_server(folder, *options, tree=checkout if side == "there" else None) as server:
                    send_flood(server.address, 2.0, 1, bodies, 900_000)
                    results[side].append(measure_flood(server, bodies, seconds, clients))
                shutil.rmtree(folder)
            medians = {side: np.median(rows, axis=0) for side, rows in results.items()}
            for side, (rate, cost, scored) in medians.items():
                name = judge if workers == "1" else "off"
                ratio = medians["here"] / np.maximum(medians["there"], 1e-9)
                shown = f"    {ratio[0]:.2f}, {ratio[1]:.2f}" if side == "here" else ""
                print(f"{form:7} {name:9} {side:8} {rate:12,.0f} {cost:14.3f} {scored:9,.0f}{shown}", flush=True)


def measure_flood(
    server: ServerProcess, bodies: RequestBodies, seconds: float, clients: int
) -> tuple[float, float, float]:
    """Return traces accepted a second, milliseconds of the server's processor a trace, and traces scored a second.

    Where nothing is scored, the processor includes ending the server, which compresses what only its log has so far.
    """
    scored_before, seconds_before = server.read_overview()["scoring"]["scored"], server.measure_processor_seconds()[0]
    begin, children_before = time.monotonic(), measure_children_seconds()
    outcome = send_flood(server.address, seconds, clients, bodies)
    elapsed = time.monotonic() - begin
    summary = server.read_overview()["scoring"]
    if summary["workers"]:
        processor_seconds = server.measure_processor_seconds()[0] - seconds_before
    else:
        server.process.terminate()
        server.process.wait()
        processor_seconds = measure_children_seconds() - children_before - seconds_before
    return (
        outcome.rate,
        1000 * processor_seconds / max(1, len(outcome.milliseconds) * bodies.batch),
        (summary["scored"] - scored_before) / elapsed,
    )


def measure_children_seconds() -> float:
    """Return the processor seconds of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


# --- how long pages take -----------------------------------------------------------------------------


def print_full_store(count: int, light: bool, repeats: int, days: float | None = None) -> None:
    """Fill a store with so many traces; print how long each page takes, bytes a trace, and memory."""
    folder = Path(tempfile.mkdtemp())
    start = time.monotonic()
    fill_store(folder, count, light, days)
    print(f"\n{count:,} traces, written in {time.monotonic() - start:,.0f} s", flush=True)
    time_pages(folder, repeats)
    shutil.rmtree(folder)


def time_pages(folder: Path, repeats: int) -> None:
    """Print how long each page of an existing store takes, in wall and in processor time."""
    start = time.monotonic()
    with run_server(folder, "--workers", "0") as server:
        print(f"opened in {time.monotonic() - start:.1f} s, {server.memory:,.0f} MB", flush=True)
        totals = server.read_overview()["totals"]
        print(f"{totals['traces']:,} traces, {totals['bytes'] / totals['traces']:,.0f} bytes a trace")
        connection = server.connect()
        for page in (*JSON_PAGES, *HTML_PAGES):
            milliseconds, seconds_before = [], server.measure_processor_seconds()[0]
            for _ in range(min(10, repeats) if page in CACHED_PAGES else repeats):
                time.sleep(2.1 if page in CACHED_PAGES else 0)
                status, elapsed = send_request(connection, page)
                milliseconds.append(elapsed)
            p50, p95, p99 = np.percentile(milliseconds, [50, 95, 99])
            cost = 1000 * (server.measure_processor_seconds()[0] - seconds_before) / len(milliseconds)
            print(
                f"{page:60} {status} p50 {p50:7.1f}  p95 {p95:7.1f}  p99 {p99:7.1f} ms  cpu {cost:6.1f} ms", flush=True
            )
        print(f"{server.memory:,.0f} MB after all pages")


def time_uncached_pages(folder: Path, repeats: int) -> None:
    """Print the least processor time that each page of an existing store takes without caches, in this process."""
    from fastapi.testclient import TestClient

    from ragfault.apps.watch.server.app import create_app
    from ragfault.apps.watch.server.settings import ServerSettings

    app = create_app(ServerSettings(store=folder, workers=0, judge="lexical"))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        for page in (*JSON_PAGES, *HTML_PAGES):
            seconds = []
            for _ in range(repeats):
                app.state.server._cached.clear()
                start = time.process_time()
                client.get(page).raise_for_status()
                seconds.append(time.process_time() - start)
            print(f"{page:60} {1000 * min(seconds):7.1f} ms of processor", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stored", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--light", action="store_true", help="copies in the full store lack bodies and verdicts")
    parser.add_argument("--days", type=float, help="the full store covers so many days, instead of ten traces a second")
    parser.add_argument("--looks", type=int, default=30, help="how often each page is looked at")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--batch", type=int, default=20, help="traces to a request")
    parser.add_argument("--judge", default="embedded")
    parser.add_argument("--different", action="store_true", help="texts of traces differ, instead of repeating")
    parser.add_argument("--against", type=Path, help="a checkout to compare with, by turns")
    parser.add_argument("--rounds", type=int, default=5, help="how often each of the two is flooded")
    parser.add_argument("--pages", type=Path, help="time the pages over this store, and do nothing else")
    parser.add_argument("--anew", type=Path, help="the processor of the pages over this store without caches")
    options = parser.parse_args()
    if options.anew:
        return time_uncached_pages(options.anew, options.looks)
    if options.pages:
        return time_pages(options.pages, options.looks)
    if options.against:
        flooding = (options.seconds, options.clients, options.batch)
        return compare_checkouts(options.against, options.rounds, flooding, options.judge, options.different)
    if options.seconds:
        print_ingest_rates(options.seconds, options.clients, options.batch, options.judge, options.different)
    for count in options.stored:
        print_full_store(count, options.light, options.looks, options.days)
    return None


if __name__ == "__main__":
    main()
