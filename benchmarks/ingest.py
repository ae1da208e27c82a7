"""How much live traffic the server takes: traces a second with scoring on and off, times of pages, bytes.

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
from benchmarks.traffic import FORMS, Bodies, Serving, ask, fill, serving

MONTH = 30 * 24 * 60
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
    f"/metrics/groundedness.json?window={MONTH}",
    "/insights.json",
    f"/insights.json?window={MONTH}",
    "/incidents.json",
    "/alerts.json",
    "/metrics",
)
HTML_PAGES = (
    "/",
    "/metrics/groundedness",
    f"/metrics/groundedness?window={MONTH}",
    "/insights",
    f"/insights?window={MONTH}",
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
    f"/versions?window={MONTH}",
)
ANEW = {"/", "/overview.json"}
"""Pages whose figures are kept for two seconds: asked for so seldom that each is made anew."""


# --- how much it takes -----------------------------------------------------------------------------


class Flood(NamedTuple):
    """What became of a flood."""

    rate: float
    """Traces a second that were acknowledged."""
    took: list[float]
    """Milliseconds of each request."""
    refused: int


def flood(place: str, seconds: float, clients: int, bodies: Bodies, start: int = 0) -> Flood:
    """Send as much as is taken."""
    end, took, refused = time.monotonic() + seconds, [], [0]

    def client(name: int) -> None:
        connection, at = http.client.HTTPConnection(place), start + name
        while time.monotonic() < end:
            status, spent = ask(connection, bodies.path, bodies.make(at)[0], bodies.content)
            if status == 200:
                took.append(spent)
            else:
                refused[0] += 1
                time.sleep(0.2)
            at += clients

    start_time = time.monotonic()
    threads = [threading.Thread(target=client, args=(name,)) for name in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Flood(len(took) * bodies.batch / (time.monotonic() - start_time), took, refused[0])


def ingest(seconds: float, clients: int, batch: int, judge: str, different: bool) -> None:
    """Print the rates with scoring off and on, for both ways in."""
    print("form    scoring    taken/s  p50 ms  p95 ms  p99 ms  refused  scored/s  after/s  server cpu  judge cpu   MB")
    for form in FORMS:
        for workers in ("0", "1"):
            folder = Path(tempfile.mkdtemp())
            with serving(folder, "--workers", workers, "--judge", judge) as server:
                bodies = Bodies(form, batch, "m", different)
                flood(server.place, 2.0, 1, bodies, 900_000)
                _row(form, judge if workers == "1" else "off", server, bodies, seconds, clients)
            shutil.rmtree(folder)


def _row(form: str, name: str, server: Serving, bodies: Bodies, seconds: float, clients: int) -> None:
    """Print one line: during the load, and for as long again after it."""
    before, spent = server.overview()["scoring"]["scored"], server.spent()
    start = time.monotonic()
    outcome = flood(server.place, seconds, clients, bodies)
    scored, between = server.overview()["scoring"]["scored"], time.monotonic()
    own, work = server.spent()
    cost = 1000 * (own - spent[0]) / max(1, len(outcome.took) * bodies.batch)
    judging = 1000 * (work - spent[1]) / max(1, scored - before)
    after = 0.0
    if name != "off":
        time.sleep(seconds)
        after = (server.overview()["scoring"]["scored"] - scored) / (time.monotonic() - between)
    p50, p95, p99 = np.percentile(outcome.took, [50, 95, 99])
    print(
        f"{form:7} {name:9} {outcome.rate:8,.0f} {p50:7.1f} {p95:7.1f} {p99:7.1f} {outcome.refused:8,} "
        f"{(scored - before) / (between - start):9,.0f} {after:8,.0f} "
        f"{cost:11.2f} {judging:10.2f} {server.memory:4,.0f}",
        flush=True,
    )


def against(tree: Path, rounds: int, flooding: tuple[float, int, int], judge: str, different: bool) -> None:
    """Print medians of two checkouts that are flooded by turns, for both ways in, with scoring off and on."""
    seconds, clients, batch = flooding
    print("form    scoring    of           taken/s  server cpu ms  scored/s    ratio of taken/s, of cpu")
    for form in FORMS:
        for workers in ("0", "1"):
            bodies, results = Bodies(form, batch, "m", different), {"there": [], "here": []}  # type: ignore[var-annotated]
            for turn in range(2 * rounds):
                side = ("there", "here", "here", "there")[turn % 4]
                folder = Path(tempfile.mkdtemp())
                options = ("--workers", workers, "--judge", judge)
                with serving(folder, *options, tree=tree if side == "there" else None) as server:
                    flood(server.place, 2.0, 1, bodies, 900_000)
                    results[side].append(_measure(server, bodies, seconds, clients))
                shutil.rmtree(folder)
            medians = {side: np.median(rows, axis=0) for side, rows in results.items()}
            for side, (rate, cost, scored) in medians.items():
                name = judge if workers == "1" else "off"
                ratio = medians["here"] / np.maximum(medians["there"], 1e-9)
                shown = f"    {ratio[0]:.2f}, {ratio[1]:.2f}" if side == "here" else ""
                print(f"{form:7} {name:9} {side:8} {rate:12,.0f} {cost:14.3f} {scored:9,.0f}{shown}", flush=True)


def _measure(server: Serving, bodies: Bodies, seconds: float, clients: int) -> tuple[float, float, float]:
    """Return traces taken a second, milliseconds of the server's processor a trace, and traces scored a second.

    Where nothing is scored, the processor includes ending the server, which compresses what only its log has so far.
    """
    scored, spent = server.overview()["scoring"]["scored"], server.spent()[0]
    begin, children = time.monotonic(), _spent_by_children()
    outcome = flood(server.place, seconds, clients, bodies)
    took = time.monotonic() - begin
    summary = server.overview()["scoring"]
    if summary["workers"]:
        used = server.spent()[0] - spent
    else:
        server.process.terminate()
        server.process.wait()
        used = _spent_by_children() - children - spent
    return outcome.rate, 1000 * used / max(1, len(outcome.took) * bodies.batch), (summary["scored"] - scored) / took


def _spent_by_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


# --- how long pages take -----------------------------------------------------------------------------


def stored(count: int, light: bool, looks: int, days: float | None = None) -> None:
    """Print how long each page takes with so many traces, bytes a trace, and memory."""
    folder = Path(tempfile.mkdtemp())
    start = time.monotonic()
    fill(folder, count, light, days)
    print(f"\n{count:,} traces, written in {time.monotonic() - start:,.0f} s", flush=True)
    pages(folder, looks)
    shutil.rmtree(folder)


def pages(folder: Path, looks: int) -> None:
    """Print how long each page of an existing store takes, and how much processor of the server."""
    start = time.monotonic()
    with serving(folder, "--workers", "0") as server:
        print(f"opened in {time.monotonic() - start:.1f} s, {server.memory:,.0f} MB", flush=True)
        totals = server.overview()["totals"]
        print(f"{totals['traces']:,} traces, {totals['bytes'] / totals['traces']:,.0f} bytes a trace")
        connection = server.connection()
        for page in (*JSON_PAGES, *HTML_PAGES):
            took, before = [], server.spent()[0]
            for _ in range(min(10, looks) if page in ANEW else looks):
                time.sleep(2.1 if page in ANEW else 0)
                status, spent = ask(connection, page)
                took.append(spent)
            p50, p95, p99 = np.percentile(took, [50, 95, 99])
            cost = 1000 * (server.spent()[0] - before) / len(took)
            print(
                f"{page:60} {status} p50 {p50:7.1f}  p95 {p95:7.1f}  p99 {p99:7.1f} ms  cpu {cost:6.1f} ms", flush=True
            )
        print(f"{server.memory:,.0f} MB after all pages")


def anew(folder: Path, looks: int) -> None:
    """Print the least processor that each page of an existing store takes where nothing is cached, in this process."""
    from fastapi.testclient import TestClient

    from ragfault.server import ServerSettings, create_app

    app = create_app(ServerSettings(store=folder, workers=0, judge="lexical"))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        for page in (*JSON_PAGES, *HTML_PAGES):
            spent = []
            for _ in range(looks):
                app.state.server._cached.clear()
                before = time.process_time()
                client.get(page).raise_for_status()
                spent.append(time.process_time() - before)
            print(f"{page:60} {1000 * min(spent):7.1f} ms of processor", flush=True)


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
        return anew(options.anew, options.looks)
    if options.pages:
        return pages(options.pages, options.looks)
    if options.against:
        flooding = (options.seconds, options.clients, options.batch)
        return against(options.against, options.rounds, flooding, options.judge, options.different)
    if options.seconds:
        ingest(options.seconds, options.clients, options.batch, options.judge, options.different)
    for count in options.stored:
        stored(count, options.light, options.looks, options.days)
    return None


if __name__ == "__main__":
    main()
