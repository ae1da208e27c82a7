"""Put a mixed load on a server: traces, spans, pages, hostile requests and kills at once, then count the losses.

python -m benchmarks.mixed_load [--minutes 5] [--rate 40] [--kill-every 20] [--judge lexical]

A real `ragfault serve` in a process of its own. Two clients send traces and spans and repeat each request until it is
acknowledged, as exporters do; one repeats what was acknowledged; one sends what no server should take; two look at
pages. The server, and in turn one of its scoring processes, is killed by signal 9. In the end all traces are listed
over HTTP. Exits 1 where a trace is lost or there twice, a page is larger than 1 MB, or a request was answered 500.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import http.client
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
import numpy as np
from msgspec.structs import replace

from benchmarks.traffic import (
    FORMS,
    JSON,
    RequestBodies,
    ServerProcess,
    encode_spans,
    encode_trace_id,
    make_traces,
    start_server,
)

PAGES = (
    "/",
    "/overview.json",
    "/traces",
    "/traces.json?limit=1000",
    "/traces.json?sort=groundedness&order=ascending",
    "/traces?text=harbour",
    "/metrics/groundedness",
    "/insights",
    "/versions",
    "/incidents",
    "/alerts",
    "/metrics",
)
MAX_PAGE = 1_000_000
BATCH = 10


class HttpAnswer(NamedTuple):
    """An answer of the server; status 0: none came."""

    status: int
    body: bytes
    milliseconds: float


class MixedLoad:
    """A server that is killed and started again, with the ids it acknowledged and the statuses it answered."""

    def __init__(self, folder: Path, judge: str, rate: float) -> None:
        self.folder, self.judge, self.rate = folder, judge, rate
        self.server: ServerProcess = self.start_server()
        self.is_over = threading.Event()
        self.is_up = threading.Event()
        self.is_up.set()
        self.sent: dict[str, set[str]] = {"traces": set(), "spans": set()}
        self.statuses: dict[str, Counter[int]] = defaultdict(Counter)
        self.milliseconds: dict[str, list[float]] = defaultdict(list)
        self.sizes: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()

    def start_server(self) -> ServerProcess:
        return start_server(self.folder, "--judge", self.judge)

    def ask(self, kind: str, path: str, body: bytes | None = None, content: str = JSON, **headers: str) -> HttpAnswer:
        """Send one request; a connection that breaks is status 0."""
        begin, connection = time.perf_counter(), http.client.HTTPConnection(self.server.address, timeout=60)
        try:
            connection.request("GET" if body is None else "POST", path, body, {"Content-Type": content, **headers})
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            status, text = 0, b""
        finally:
            connection.close()
        self.statuses[kind][status] += 1
        return HttpAnswer(status, text, 1000 * (time.perf_counter() - begin))

    def deliver(self, kind: str, path: str, body: bytes, content: str) -> bool:
        """Send a request until it is acknowledged; False where the load ends before."""
        while not self.is_over.is_set():
            if self.ask(kind, path, body, content).status == 200:
                return True
            self.is_up.wait(5)
            time.sleep(0.2)
        return False

    def pause(self) -> None:
        """Wait as long as the rate asks for after a request of BATCH traces."""
        self.is_over.wait(BATCH / self.rate)

    # --- clients -----------------------------------------------------------------------------------

    def send_traces(self) -> None:
        bodies, number = RequestBodies("native", BATCH, "m"), 0
        while not self.is_over.is_set():
            body, ids = bodies.make_body(number)
            if self.deliver("traces", bodies.path, body, bodies.content):
                self.sent["traces"].update(ids)
            number += 1
            self.pause()

    def send_spans(self) -> None:
        """Send the children of each trace in one request and its root in another."""
        prepared, number, (path, content) = make_traces("", BATCH, datetime.now(UTC)), 0, FORMS["otlp"]
        while not self.is_over.is_set():
            part = [replace(trace, id=f"{number:010}{n:02}") for n, trace in enumerate(prepared)]
            groups = (("llm", "rewrite", "retrieve"), ("chain",))
            if all(self.deliver("spans", path, encode_spans(part, spans), content) for spans in groups):
                self.sent["spans"].update(encode_trace_id(trace.id.encode()).hex() for trace in part)
            number += 1
            self.pause()

    def repeat_traces(self) -> None:
        """Send acknowledged requests again, which must not be stored twice."""
        draw, bodies = random.Random(1), RequestBodies("native", BATCH, "m")
        while not self.is_over.wait(1.0):
            count = len(self.sent["traces"]) // BATCH
            if count:
                self.ask("repeated", bodies.path, bodies.make_body(draw.randrange(count))[0], bodies.content)

    def send_hostile(self) -> None:
        """Send malformed, too large and expensive requests; the valid ones have ids of their own."""
        path, draw = FORMS["native"][0], random.Random(2)
        bodies: list[Callable[[int], tuple[str, bytes, dict[str, str]]]] = [
            lambda _: (path, b'{"id": "broken', {}),
            lambda _: (path, b"\xff\x00" * 500, {}),
            lambda _: (path, gzip.compress(b" " * 50_000_000), {"Content-Encoding": "gzip"}),
            lambda _: (path, b"[" * 100_000, {}),
            lambda _: (FORMS["otlp"][0], b"\x0a\xff\xff\xff\xff\x0f", {"Content-Type": FORMS["otlp"][1]}),
            lambda n: (path, _encode_trace(f"x{n}", query="q", answer="word " * 80_000), {}),
            lambda n: (path, _encode_trace(f"y{n}", query="q" * 2_000_000), {}),
            lambda n: (path, _encode_trace(f"z{n}", query="q", route=f"GET /user/{n}/{draw.random()}"), {}),
            lambda n: (path, _encode_trace(f"w{n}", query="<script>alert(1)</script>", answer="\u202e" * 999), {}),
        ]
        for index in range(10**9):
            if self.is_over.wait(0.7):
                return
            place, body, headers = bodies[index % len(bodies)](index)
            self.ask("hostile", place, body, **headers)

    def request_pages(self, seed: int) -> None:
        """Request pages at random; times of failed requests are not recorded."""
        draw = random.Random(seed)
        while not self.is_over.wait(0.3):
            page = draw.choice(PAGES)
            answer = self.ask("pages", page)
            if answer.status == 200:
                self.milliseconds[page].append(answer.milliseconds)
                self.sizes[page] = max(self.sizes[page], len(answer.body))
            else:
                self.is_up.wait(5)

    def kill_processes(self, every: float) -> None:
        """Kill the server, and in turn one of its scoring processes."""
        draw = random.Random(3)
        for index in range(10**9):
            if self.is_over.wait(every * draw.uniform(0.5, 1.5)):
                return
            children = [
                int(child)
                for task in Path(f"/proc/{self.server.process.pid}/task").glob("*/children")
                for child in task.read_text().split()
            ]
            if index % 3 == 2 and children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(children[0], signal.SIGKILL)
                self.kills["scorer"] += 1
                continue
            self.is_up.clear()
            self.server.process.kill()
            self.server.process.wait()
            self.server = self.start_server()
            self.kills["server"] += 1
            self.is_up.set()

    # --- the end -----------------------------------------------------------------------------------

    def run_clients(self, seconds: float, every: float) -> None:
        clients = [self.send_traces, self.send_spans, self.repeat_traces, self.send_hostile]
        threads = [threading.Thread(target=work) for work in clients]
        threads += [threading.Thread(target=self.request_pages, args=(seed,)) for seed in (4, 5)]
        threads.append(threading.Thread(target=self.kill_processes, args=(every,)))
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self.is_over.set()
        for thread in threads:
            thread.join()

    def wait_until_judged(self) -> Any:
        """Wait until all traces are judged; return the overview."""
        while True:
            view = self.server.read_overview()
            if not view["totals"]["waiting"] and not view["totals"]["pending"]:
                return view
            time.sleep(1.0)

    def list_ids(self) -> Iterator[str]:
        """Yield the ids of all stored traces, page by page."""
        after: str | None = None
        while True:
            query = urlencode({"limit": 1000, **({} if after is None else {"after": after})})
            answer = self.ask("pages", f"/traces.json?{query}")
            assert answer.status == 200, answer
            self.sizes["/traces.json, all pages"] = max(self.sizes["/traces.json, all pages"], len(answer.body))
            page = msgspec.json.decode(answer.body)
            yield from (line["id"] for line in page["lines"])
            after = page["next"]
            if after is None:
                return


def _encode_trace(id: str, **fields: str) -> bytes:
    return msgspec.json.encode({"id": id, **fields})


def report_losses(load: MixedLoad) -> bool:
    """Print the figures; return whether no trace is lost or doubled, no request failed, and no page is too large."""
    view = load.wait_until_judged()
    stored = Counter(load.list_ids())
    lost = {kind: sent - stored.keys() for kind, sent in load.sent.items()}
    duplicates = sum(1 for n in stored.values() if n > 1)
    print(f"kills: {load.kills['server']} of the server, {load.kills['scorer']} of a scoring process")
    print(f"acknowledged: {len(load.sent['traces']):,} traces, {len(load.sent['spans']):,} as spans")
    print(f"stored {stored.total():,}, counted as taken {view['counts'].get('taken', 0):,}")
    print(f"lost: {len(lost['traces'])} traces, {len(lost['spans'])} as spans; twice: {duplicates}; all judged")
    for kind, statuses in load.statuses.items():
        print(f"{kind:9}", ", ".join(f"{status or 'no answer'}: {n:,}" for status, n in sorted(statuses.items())))
    print(f"{'page':50} {'looks':>6} {'p50':>7} {'p95':>7} ms {'largest':>10} bytes")
    for page in sorted(load.milliseconds):
        p50, p95 = np.percentile(load.milliseconds[page], [50, 95])
        print(f"{page:50} {len(load.milliseconds[page]):6} {p50:7.0f} {p95:7.0f}    {load.sizes[page]:10,}")
    everything = [spent for times in load.milliseconds.values() for spent in times]
    print(f"{'all':50} {len(everything):6} {np.percentile(everything, 50):7.0f} {np.percentile(everything, 95):7.0f}")
    print(f"largest page {max(load.sizes.values()):,} bytes; memory {load.server.memory:,.0f} MB")
    failed = sum(statuses[500] for statuses in load.statuses.values())
    is_exact = stored.total() == view["counts"].get("taken", 0)
    return not (any(lost.values()) or duplicates or failed) and is_exact and max(load.sizes.values()) <= MAX_PAGE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=40.0, help="traces a second of each of the two clients")
    parser.add_argument("--kill-every", type=float, default=20.0, help="seconds between two kills, on average")
    parser.add_argument("--judge", default="lexical")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    load = MixedLoad(folder, options.judge, options.rate)
    try:
        load.run_clients(60 * options.minutes, options.kill_every)
        is_intact = report_losses(load)
    finally:
        load.server.process.terminate()
        load.server.process.wait()
        shutil.rmtree(folder)
    raise SystemExit(0 if is_intact else 1)


if __name__ == "__main__":
    main()
