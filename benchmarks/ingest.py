"""How much live traffic the server takes: traces a second with scoring on and off, times of pages, bytes, kills.

python -m benchmarks.ingest [--stored 10000 100000] [--light] [--seconds 10] [--clients 4] [--batch 20] [--judge JUDGE]
python -m benchmarks.ingest --kills 20        (only that: killed during load, is every acknowledged trace there, once?)
python -m benchmarks.ingest --pages FOLDER    (only the pages, over a store that is there)

A real `ragfault serve` in a process of its own. Each trace has five chunks; by OTLP it is four spans in protobuf.
Clients send bodies that were made before, one after the other.
"""

from __future__ import annotations

import argparse
import http.client
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.traffic import FORMS, Bodies, Serving, ask, export, fill, serve, serving, traced, traces
from msgspec.structs import replace

from ragfault.records import Trace
from ragfault.server.storage import TraceSelection, open_store

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
    "/alerts.json",
    "/metrics",
)
HTML_PAGES = ("/", "/metrics/groundedness", "/traces", "/traces?text=harbour", "/traces/s-17", "/alerts", "/clusters")
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

    begin = time.monotonic()
    threads = [threading.Thread(target=client, args=(name,)) for name in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Flood(len(took) * bodies.batch / (time.monotonic() - begin), took, refused[0])


def ingest(seconds: float, clients: int, batch: int, judge: str) -> None:
    """Print the rates with scoring off and on, for both ways in."""
    print("form    scoring    taken/s  p50 ms  p95 ms  p99 ms  refused  scored/s  after/s  server cpu  judge cpu   MB")
    for form in FORMS:
        for workers in ("0", "1"):
            folder = Path(tempfile.mkdtemp())
            with serving(folder, "--workers", workers, "--judge", judge) as server:
                bodies = Bodies(form, batch, "m")
                flood(server.place, 2.0, 1, bodies, 900_000)
                _row(form, judge if workers == "1" else "off", server, bodies, seconds, clients)
            shutil.rmtree(folder)


def _row(form: str, name: str, server: Serving, bodies: Bodies, seconds: float, clients: int) -> None:
    """Print one line: during the load, and for as long again after it."""
    before, spent = server.overview()["scoring"]["scored"], server.spent()
    begin = time.monotonic()
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
        f"{(scored - before) / (between - begin):9,.0f} {after:8,.0f} "
        f"{cost:11.2f} {judging:10.2f} {server.memory:4,.0f}",
        flush=True,
    )


# --- how long pages take -----------------------------------------------------------------------------


def stored(count: int, light: bool) -> None:
    """Print how long each page takes with so many traces, bytes a trace, and memory."""
    folder = Path(tempfile.mkdtemp())
    begin = time.monotonic()
    fill(folder, count, light)
    print(f"\n{count:,} traces, written in {time.monotonic() - begin:,.0f} s", flush=True)
    pages(folder)
    shutil.rmtree(folder)


def pages(folder: Path) -> None:
    """Print how long each page of an existing store takes."""
    begin = time.monotonic()
    with serving(folder, "--workers", "0") as server:
        print(f"opened in {time.monotonic() - begin:.1f} s, {server.memory:,.0f} MB", flush=True)
        totals = server.overview()["totals"]
        print(f"{totals['traces']:,} traces, {totals['bytes'] / totals['traces']:,.0f} bytes a trace")
        connection = server.connection()
        for page in (*JSON_PAGES, *HTML_PAGES):
            took = []
            for _ in range(10 if page in ANEW else 30):
                time.sleep(2.1 if page in ANEW else 0)
                status, spent = ask(connection, page)
                took.append(spent)
            p50, p95, p99 = np.percentile(took, [50, 95, 99])
            print(f"{page:60} {status} p50 {p50:7.1f}  p95 {p95:7.1f}  p99 {p99:7.1f} ms", flush=True)
        print(f"{server.memory:,.0f} MB after all pages")


# --- kills -------------------------------------------------------------------------------------------


class Acknowledged(NamedTuple):
    """What was acknowledged before a kill."""

    native: set[str]
    spans: set[str]


def kills(rounds: int) -> bool:
    """Kill a server during load so many times; return whether every acknowledged trace is stored once."""
    folder, acknowledged = Path(tempfile.mkdtemp()), Acknowledged(set(), set())
    bodies, prepared = Bodies("native", 10, "k"), traces("", 10, datetime.now(UTC))
    print("round  killed after s  native acknowledged  spans acknowledged", flush=True)
    for turn in range(rounds):
        server, before = serve(folder, "--judge", "lexical"), (len(acknowledged.native), len(acknowledged.spans))
        threads = [
            threading.Thread(target=_natively, args=(server, turn, acknowledged, bodies)),
            threading.Thread(target=_by_spans, args=(server, turn, acknowledged, prepared)),
        ]
        for thread in threads:
            thread.start()
        while (len(acknowledged.native), len(acknowledged.spans)) == before:
            time.sleep(0.01)
        delay = random.Random(turn).uniform(0.1, 3.0)
        time.sleep(delay)
        server.process.kill()
        for thread in threads:
            thread.join()
        server.process.wait()
        now = len(acknowledged.native) - before[0], len(acknowledged.spans) - before[1]
        print(f"{turn + 1:5} {delay:15.2f} {now[0]:20,} {now[1]:19,}", flush=True)
    _settled(folder)
    intact = _verdict(folder, acknowledged)
    shutil.rmtree(folder)
    return intact


def _natively(server: Serving, turn: int, acknowledged: Acknowledged, bodies: Bodies) -> None:
    """Send traces as JSON until the server is gone."""
    connection, at = server.connection(), 10_000 * turn
    while True:
        body, ids = bodies.make(at)
        try:
            status, _ = ask(connection, bodies.path, body, bodies.content)
        except (OSError, http.client.HTTPException):
            return
        if status == 200:
            acknowledged.native.update(ids)
        at += 1


def _by_spans(server: Serving, turn: int, acknowledged: Acknowledged, prepared: list[Trace]) -> None:
    """Send traces as spans, the children of each in one request and its root in another."""
    connection, at, (path, content) = server.connection(), 0, FORMS["otlp"]
    while True:
        part = [replace(trace, id=f"{turn:04}{at:06}{n:02}") for n, trace in enumerate(prepared)]
        try:
            for spans in (("llm", "rewrite", "retrieve"), ("chain",)):
                if ask(connection, path, export(part, spans), content)[0] != 200:
                    break
            else:
                acknowledged.spans.update(traced(trace.id.encode()).hex() for trace in part)
        except (OSError, http.client.HTTPException):
            return
        at += 1


def _settled(folder: Path) -> None:
    """Let a server join and judge what is left."""
    with serving(folder, "--judge", "lexical") as server:
        while True:
            totals = server.overview()["totals"]
            if not totals["waiting"] and not totals["held"]:
                return
            time.sleep(0.5)


def _verdict(folder: Path, acknowledged: Acknowledged) -> bool:
    """Print how many acknowledged traces are stored, how often, and how complete they are."""
    store, met, complete, after = open_store(folder), Counter[str](), 0, None
    try:
        while True:
            page = store.list_traces(TraceSelection(limit=1000, after=after))
            met.update(line.id for line in page.lines)
            after = page.next
            if after is None:
                break
        for name in acknowledged.spans:
            entry = store.get_trace(name)
            complete += entry is not None and len(entry.trace.chunks or ()) == 5 and entry.state == "scored"
        waiting = store.compute_totals().waiting
    finally:
        store.close()
    lost = {"native": acknowledged.native - met.keys(), "spans": acknowledged.spans - met.keys()}
    twice = sum(1 for n in met.values() if n > 1)
    native, spans = len(acknowledged.native), len(acknowledged.spans)
    print(f"acknowledged: {native:,} native, {spans:,} by spans; stored {met.total():,}")
    print(f"lost: {len(lost['native'])} native, {len(lost['spans'])} by spans; twice: {twice}; not judged: {waiting}")
    print(f"whole with five chunks and scores: {complete:,} of {spans:,} by spans")
    return not (lost["native"] or lost["spans"] or twice or waiting or complete < len(acknowledged.spans))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stored", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--light", action="store_true", help="copies in the full store lack bodies and verdicts")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--batch", type=int, default=20, help="traces to a request")
    parser.add_argument("--judge", default="embedded")
    parser.add_argument("--kills", type=int, help="kill a server during load so many times, and do nothing else")
    parser.add_argument("--pages", type=Path, help="time the pages over this store, and do nothing else")
    given = parser.parse_args()
    if given.kills:
        raise SystemExit(0 if kills(given.kills) else 1)
    if given.pages:
        return pages(given.pages)
    if given.seconds:
        ingest(given.seconds, given.clients, given.batch, given.judge)
    for count in given.stored:
        stored(count, given.light)
    return None


if __name__ == "__main__":
    main()
