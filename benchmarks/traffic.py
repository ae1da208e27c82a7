"""Make traffic for the benchmarks of the server: traces of five chunks and four spans, a store of them, a server.

Bodies are made once and given new ids by replacing bytes, so that the clients use little processor time.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from ragfault.apps.watch.server.storage.duckdb.connection import HOURLY_SUMS
from ragfault.apps.watch.server.storage.duckdb.store import SORTED_ROWS, DuckDBStore
from ragfault.apps.watch.server.storage.opening import open_store
from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.online.scorer import ScoredTrace, TraceScorer
from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.model.records import Trace

ROUTES = ("search", "help", "shop", "staff")
CHUNKS = 5
MAX_SCORED_TRACES = 10_000
"""Scored traces of a full store; the others are copies in SQL, with ids and times of their own."""
DEFAULT_STEP_MINUTES = 17
"""Minutes over which the scored traces are spread, by default."""
JSON = "application/json"
FORMS = {"native": ("/v1/ragfault/traces", JSON), "otlp": ("/v1/traces", "application/x-protobuf")}


def make_traces(prefix: str, count: int, begin: datetime, gap: float = 0.1) -> list[Trace]:
    """Make traces of the demo under new ids, each with five chunks, `gap` seconds apart."""
    source = load_handbook().traces["v1"]
    extra_chunks = [chunk for trace in source for chunk in trace.chunks or ()]
    generated = []
    for index in range(count):
        template = source[index % len(source)]
        chunks = {chunk.id: chunk for chunk in template.chunks or ()}
        for chunk in islice(cycle(extra_chunks), index % len(extra_chunks), None):
            if len(chunks) >= CHUNKS:
                break
            chunks.setdefault(chunk.id, chunk)
        moment = begin + timedelta(seconds=index * gap)
        generated.append(
            msgspec.structs.replace(
                template, id=f"{prefix}{index}", time=moment, route=ROUTES[index % 4], chunks=tuple(chunks.values())
            )
        )
    return generated


# --- bodies ----------------------------------------------------------------------------------------

ID_PLACEHOLDER = b"@@name@@"


class RequestBodies:
    """Maker of request bodies with `batch` traces each, whose ids no other body has.

    The texts repeat after 16 bodies; with `different` after 512, each with its words in another order.
    """

    def __init__(self, form: str, batch: int, kind: str, different: bool = False) -> None:
        self.path, self.content = FORMS[form]
        self.form, self.batch, self.kind = form, batch, kind
        self.source_traces = make_traces("@@name@@-", 16 * self.batch, datetime.now(UTC))
        self.random = random.Random(0) if different else None
        self.templates = [self.build_template(i) for i in range(512 if different else 16)]

    def build_template(self, at: int) -> bytes:
        sent = self.source_traces[at % 16 * self.batch :][: self.batch]
        sent = [msgspec.structs.replace(item, id=f"@@name@@-{n:04}") for n, item in enumerate(sent)]
        if self.random is not None:
            sent = [self.shuffle_words(item) for item in sent]
        return msgspec.json.encode(sent) if self.form == "native" else encode_spans(sent)

    def shuffle_words(self, trace: Trace) -> Trace:
        """Return a trace whose texts have their words in another order."""

        def shuffle(text: str) -> str:
            words = text.split(" ")
            assert self.random is not None
            self.random.shuffle(words)
            return " ".join(words)

        chunks = tuple(msgspec.structs.replace(chunk, text=shuffle(chunk.text)) for chunk in trace.chunks or ())
        return msgspec.structs.replace(
            trace, query=shuffle(trace.query), answer=shuffle(trace.answer or ""), chunks=chunks
        )

    def make_body(self, number: int) -> tuple[bytes, list[str]]:
        """Return a body, and the ids of its traces in the store."""
        name = f"{self.kind}{number:07}".encode()
        assert len(name) == len(ID_PLACEHOLDER)
        ids = [f"{name.decode()}-{n:04}" for n in range(self.batch)]
        if self.form == "otlp":
            ids = [encode_trace_id(item.encode()).hex() for item in ids]
        return self.templates[number % len(self.templates)].replace(ID_PLACEHOLDER, name), ids


def encode_trace_id(name: bytes) -> bytes:
    """Pad a name to the sixteen bytes of a trace id."""
    return name.ljust(16, b"\x01")


def encode_spans(sent: list[Trace], parts: tuple[str, ...] = ("chain", "rewrite", "retrieve", "llm")) -> bytes:
    """Encode traces as an export request of OTLP in protobuf, with the attributes of OpenInference."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request: Any = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    add_attribute(resource.resource.attributes, "service.name", "benchmark")
    spans = resource.scope_spans.add().spans
    for item in sent:
        start = int((item.time or datetime.now(UTC)).timestamp() * 1e9)
        for part in parts:
            fill_span(spans.add(), item, part, start)
    return bytes(request.SerializeToString())


def fill_span(span: Any, trace: Trace, part: str, start: int) -> None:
    span.trace_id = encode_trace_id(trace.id.encode())
    span.span_id = part.encode().ljust(8, b"\x02")[:8]
    if part != "chain":
        span.parent_span_id = b"chain".ljust(8, b"\x02")
    span.name, span.start_time_unix_nano, span.end_time_unix_nano = part, start, start + 400_000_000
    kind = {"chain": "CHAIN", "rewrite": "LLM", "retrieve": "RETRIEVER", "llm": "LLM"}[part]
    attributes: dict[str, str] = {"openinference.span.kind": kind, "input.value": trace.query}
    if part == "retrieve":
        for index, chunk in enumerate(trace.chunks or ()):
            attributes[f"retrieval.documents.{index}.document.content"] = chunk.text
            attributes[f"retrieval.documents.{index}.document.id"] = chunk.id
    elif part == "rewrite":
        attributes |= {"output.value": trace.query, "llm.model_name": "small"}
    else:
        attributes["output.value"] = trace.answer or ""
    if part == "llm":
        attributes |= {"llm.model_name": "large", "llm.output_messages.0.message.content": trace.answer or ""}
    for name, value in attributes.items():
        add_attribute(span.attributes, name, value)


def add_attribute(attributes: Any, name: str, value: str) -> None:
    sent = attributes.add()
    sent.key, sent.value.string_value = name, value


# --- a full store ----------------------------------------------------------------------------------


def fill_store(folder: Path, count: int, is_light: bool = False, days: float | None = None) -> None:
    """Fill a store with `count` traces that have the outcomes of the demo's.

    They are spread over so many days up to now, or come ten a second. With `is_light` copies lack the long texts that
    only the page of one trace reads, and scores in lists, which is many times faster.
    """
    scoring = TraceScorer("lexical")
    measures = tuple(map(describe_metric, scoring.metrics))
    size = min(MAX_SCORED_TRACES, count)
    step = DEFAULT_STEP_MINUTES if days is None else max(1, round(1440 * days * size / count))
    begin = datetime.now(UTC) - timedelta(minutes=step * count / size)
    scored_traces = [scoring(trace) for trace in make_traces("k", 200, begin)]
    store = open_store(folder)
    new_traces = make_traces("s-", size, begin, 0.1 if days is None else 60 * step / size)
    for first in range(0, size, 1000):
        part = new_traces[first : first + 1000]
        store.append_traces(part)
        store.add_outcomes(
            [copy_outcome(trace, scored_traces[i % 200]) for i, trace in enumerate(part)], measures, ("model",)
        ).result()
    store.compact().result()
    store.close()
    if count > size:
        copy_rows(folder, count // size, is_light, step)


def copy_outcome(trace: Trace, scored: ScoredTrace) -> ScoredTrace:
    """Return a trace with the verdicts and scores of another."""
    verdicts = msgspec.structs.replace(scored.verdicts, trace=trace.id)
    return ScoredTrace(trace, verdicts, tuple(msgspec.structs.replace(item, trace=trace.id) for item in scored.scores))


def copy_rows(folder: Path, times: int, is_light: bool, step: int = DEFAULT_STEP_MINUTES) -> None:
    """Multiply the rows of a store by `times` in SQL: each copy is later by whole minutes and has other ids."""
    import duckdb

    connection = duckdb.connect(str(folder / "ragfault.duckdb"), config={"memory_limit": "2GB", "threads": "2"})
    row = connection.execute("SELECT max(number) FROM traces").fetchone()
    assert row is not None
    rollup = [name for (name, *_) in connection.execute("DESCRIBE rollups").fetchall() if name != "minute"]
    products = [name for (name, *_) in connection.execute("DESCRIBE products").fetchall() if name != "minute"]
    outcome = "judge, scored, state, '{}', '[]', gold" if is_light else "* EXCLUDE (number)"
    connection.execute("BEGIN")
    for index in range(1, times):
        body = "'{}'" if is_light else f"""replace(body, '"id":"s-', '"id":"{index}s-')"""
        number, seconds, low = row[0] * index, 60.0 * step * index, f"number <= {row[0]}"
        for statement in (
            f"INSERT INTO traces SELECT number + {number}, '{index}' || id, received, time + {seconds}, route, model, "
            f"conversation, query, answer, error, {body}, '{index}' || words FROM traces WHERE {low}",
            f"INSERT INTO outcomes SELECT number + {number}, {outcome} FROM outcomes WHERE {low}",
            f"INSERT INTO scores SELECT number + {number}, time + {seconds}, * EXCLUDE (number, time) FROM scores "
            f"WHERE {low}",
        ):
            connection.execute(statement)
        if index % 25 == 0:  # rows that make up whole groups go to the file past the log
            connection.execute("COMMIT")
            connection.execute("BEGIN")
    for table, names in (("rollups", rollup), ("products", products)):
        connection.execute(
            f"INSERT INTO {table} BY NAME SELECT {', '.join(names)}, minute + {step} * copy AS minute FROM {table}, "
            f"range(1, {times}) all_(copy) ORDER BY minute"
        )
    connection.execute("DELETE FROM hours")
    connection.execute(
        f"INSERT INTO hours SELECT metric, route, cohort, {HOURLY_SUMS} FROM rollups GROUP BY ALL ORDER BY 4, 1"
    )
    connection.execute("DELETE FROM product_hours")
    connection.execute(
        "INSERT INTO product_hours SELECT first, second, route, minute - minute % 60, sum(n), sum(x), sum(y), sum(xx), "
        "sum(yy), sum(xy) FROM products GROUP BY ALL"
    )
    connection.execute("COMMIT")
    connection.execute("CHECKPOINT")
    connection.close()
    store = open_store(folder)
    assert isinstance(store, DuckDBStore)
    while store.unsorted_scores >= SORTED_ROWS:
        store.compact().result()
    store.close()


# --- a server --------------------------------------------------------------------------------------


class ServerProcess(NamedTuple):
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    address: str
    """Host and port."""

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address, timeout=120)

    def read_overview(self) -> Any:
        """Return the content of the overview page."""
        connection = self.connect()
        connection.request("GET", "/overview.json")
        return msgspec.json.decode(connection.getresponse().read())

    def measure_processor_seconds(self) -> tuple[float, float]:
        """Return the processor seconds of the server and of its workers (Linux)."""
        server_seconds = worker_seconds = 0.0
        for place in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                report = place.read_text().rsplit(")", 1)[1].split()
                took = (int(report[11]) + int(report[12])) / os.sysconf("SC_CLK_TCK")
                if place.parent.name == str(self.process.pid):
                    server_seconds = took
                elif report[1] == str(self.process.pid):
                    worker_seconds += took
        return server_seconds, worker_seconds

    @property
    def memory(self) -> float:
        """Megabytes of resident memory of the server, without its workers (Linux)."""
        report = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(report[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def start_server(store: Path, *options: str, tree: Path | None = None) -> ServerProcess:
    """Start a server; `tree` is another checkout that it runs from."""
    command = [sys.executable, "-m", "ragfault", "serve", "--store", str(store), "--port", "0", *options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **({"PYTHONPATH": f"{tree}/src"} if tree else {})}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    return ServerProcess(process, urlsplit(process.stdout.readline().split()[-1]).netloc)


@contextmanager
def run_server(store: Path, *options: str, tree: Path | None = None) -> Iterator[ServerProcess]:
    """Run a server and terminate it at the end."""
    server = start_server(store, *options, tree=tree)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait()


def send_request(
    connection: http.client.HTTPConnection, path: str, body: bytes | None = None, content: str = JSON
) -> tuple[int, float]:
    """Send a request; return the status of the answer, and its milliseconds."""
    start = time.perf_counter()
    connection.request("GET" if body is None else "POST", path, body, {"Content-Type": content})
    answer = connection.getresponse()
    answer.read()
    return answer.status, 1000 * (time.perf_counter() - start)
