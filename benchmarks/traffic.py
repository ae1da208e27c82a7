"""Traffic for the benchmarks of the server: traces of five chunks and four spans, a store full of them, a server.

Bodies are made once and given new ids by replacing bytes, so that the clients cost little beside the server.
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

from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.online.scorer import ScoredTrace, TraceScorer
from ragfault.io.datasets import load_handbook
from ragfault.records import Trace
from ragfault.server.storage import open_store
from ragfault.server.storage.duckdb.connection import HOURLY_SUMS
from ragfault.server.storage.duckdb.store import SORTED_ROWS, DuckDBStore

ROUTES = ("search", "help", "shop", "staff")
CHUNKS = 5
GENERATED = 10_000
"""Traces of a full store that are really made; the others are copies in SQL, with ids and times of their own."""
STEP = 17
"""Minutes that they take, if nothing else is said."""
JSON = "application/json"
FORMS = {"native": ("/v1/ragfault/traces", JSON), "otlp": ("/v1/traces", "application/x-protobuf")}


def traces(prefix: str, count: int, begin: datetime, gap: float = 0.1) -> list[Trace]:
    """Return traces of the demo under names of their own, each with five chunks, `gap` seconds apart."""
    source = load_handbook().traces["v1"]
    spare = [chunk for trace in source for chunk in trace.chunks or ()]
    generated = []
    for index in range(count):
        like = source[index % len(source)]
        chunks = {chunk.id: chunk for chunk in like.chunks or ()}
        for chunk in islice(cycle(spare), index % len(spare), None):
            if len(chunks) >= CHUNKS:
                break
            chunks.setdefault(chunk.id, chunk)
        moment = begin + timedelta(seconds=index * gap)
        generated.append(
            msgspec.structs.replace(
                like, id=f"{prefix}{index}", time=moment, route=ROUTES[index % 4], chunks=tuple(chunks.values())
            )
        )
    return generated


# --- bodies ----------------------------------------------------------------------------------------

MARK = b"@@name@@"


class Bodies:
    """Request bodies of so many traces, each under ids that no other has.

    The texts of 16 bodies repeat; `different`: those of 512, each text with its words in an order of its own.
    """

    def __init__(self, form: str, batch: int, kind: str, different: bool = False) -> None:
        self.path, self.content = FORMS[form]
        self.form, self.batch, self.kind = form, batch, kind
        self.source = traces("@@name@@-", 16 * self.batch, datetime.now(UTC))
        self.random = random.Random(0) if different else None
        self.templates = [self._template(i) for i in range(512 if different else 16)]

    def _template(self, at: int) -> bytes:
        sent = self.source[at % 16 * self.batch :][: self.batch]
        sent = [msgspec.structs.replace(item, id=f"@@name@@-{n:04}") for n, item in enumerate(sent)]
        if self.random is not None:
            sent = [self._vary(item) for item in sent]
        return msgspec.json.encode(sent) if self.form == "native" else export(sent)

    def _vary(self, trace: Trace) -> Trace:
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

    def make(self, number: int) -> tuple[bytes, list[str]]:
        """Return a body, and the ids of its traces in the store."""
        name = f"{self.kind}{number:07}".encode()
        assert len(name) == len(MARK)
        ids = [f"{name.decode()}-{n:04}" for n in range(self.batch)]
        if self.form == "otlp":
            ids = [traced(item.encode()).hex() for item in ids]
        return self.templates[number % len(self.templates)].replace(MARK, name), ids


def traced(name: bytes) -> bytes:
    """Return a name as the id of a trace: sixteen bytes."""
    return name.ljust(16, b"\x01")


def export(sent: list[Trace], parts: tuple[str, ...] = ("chain", "rewrite", "retrieve", "llm")) -> bytes:
    """Return traces as an export request of OTLP in protobuf, four spans each, as OpenInference names them."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request: Any = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    _attribute(resource.resource.attributes, "service.name", "benchmark")
    spans = resource.scope_spans.add().spans
    for item in sent:
        start = int((item.time or datetime.now(UTC)).timestamp() * 1e9)
        for part in parts:
            _span(spans.add(), item, part, start)
    return bytes(request.SerializeToString())


def _span(span: Any, trace: Trace, part: str, start: int) -> None:
    span.trace_id = traced(trace.id.encode())
    span.span_id = part.encode().ljust(8, b"\x02")[:8]
    if part != "chain":
        span.parent_span_id = b"chain".ljust(8, b"\x02")
    span.name, span.start_time_unix_nano, span.end_time_unix_nano = part, start, start + 400_000_000
    kind = {"chain": "CHAIN", "rewrite": "LLM", "retrieve": "RETRIEVER", "llm": "LLM"}[part]
    reply: dict[str, str] = {"openinference.span.kind": kind, "input.value": trace.query}
    if part == "retrieve":
        for index, chunk in enumerate(trace.chunks or ()):
            reply[f"retrieval.documents.{index}.document.content"] = chunk.text
            reply[f"retrieval.documents.{index}.document.id"] = chunk.id
    elif part == "rewrite":
        reply |= {"output.value": trace.query, "llm.model_name": "small"}
    else:
        reply["output.value"] = trace.answer or ""
    if part == "llm":
        reply |= {"llm.model_name": "large", "llm.output_messages.0.message.content": trace.answer or ""}
    for name, value in reply.items():
        _attribute(span.attributes, name, value)


def _attribute(attributes: Any, name: str, value: str) -> None:
    sent = attributes.add()
    sent.key, sent.value.string_value = name, value


# --- a full store ----------------------------------------------------------------------------------


def fill(folder: Path, count: int, light: bool = False, days: float | None = None) -> None:
    """Put so many judged traces into a store; the demo's own outcomes stand for theirs.

    They are spread over so many days up to now, or come ten a second. `light`: copies lack the long texts that only
    the page of the one trace reads, and scores in lists, which is many times faster.
    """
    scoring = TraceScorer("lexical")
    measures = tuple(map(describe_metric, scoring.metrics))
    size = min(GENERATED, count)
    step = STEP if days is None else max(1, round(1440 * days * size / count))
    begin = datetime.now(UTC) - timedelta(minutes=step * count / size)
    known = [scoring(trace) for trace in traces("k", 200, begin)]
    store = open_store(folder)
    sent = traces("s-", size, begin, 0.1 if days is None else 60 * step / size)
    for first in range(0, size, 1000):
        part = sent[first : first + 1000]
        store.append_traces(part)
        store.add_outcomes(
            [_like(trace, known[i % 200]) for i, trace in enumerate(part)], measures, ("model",)
        ).result()
    store.compact().result()
    store.close()
    if count > size:
        copy(folder, count // size, light, step)


def _like(trace: Trace, known: ScoredTrace) -> ScoredTrace:
    """Return a trace with the outcome of another."""
    verdicts = msgspec.structs.replace(known.verdicts, trace=trace.id)
    return ScoredTrace(trace, verdicts, tuple(msgspec.structs.replace(item, trace=trace.id) for item in known.scores))


def copy(folder: Path, times: int, light: bool, step: int = STEP) -> None:
    """Copy what a store holds in SQL, so many times less one: later by whole minutes, under other ids."""
    import duckdb

    con = duckdb.connect(str(folder / "ragfault.duckdb"), config={"memory_limit": "2GB", "threads": "2"})
    row = con.execute("SELECT max(number) FROM traces").fetchone()
    assert row is not None
    rollup = [name for (name, *_) in con.execute("DESCRIBE rollups").fetchall() if name != "minute"]
    products = [name for (name, *_) in con.execute("DESCRIBE products").fetchall() if name != "minute"]
    outcome = "judge, scored, state, '{}', '[]', gold" if light else "* EXCLUDE (number)"
    con.execute("BEGIN")
    for index in range(1, times):
        body = "'{}'" if light else f"""replace(body, '"id":"s-', '"id":"{index}s-')"""
        number, seconds, low = row[0] * index, 60.0 * step * index, f"number <= {row[0]}"
        for statement in (
            f"INSERT INTO traces SELECT number + {number}, '{index}' || id, received, time + {seconds}, route, model, "
            f"conversation, query, answer, error, {body}, '{index}' || words FROM traces WHERE {low}",
            f"INSERT INTO outcomes SELECT number + {number}, {outcome} FROM outcomes WHERE {low}",
            f"INSERT INTO scores SELECT number + {number}, time + {seconds}, * EXCLUDE (number, time) FROM scores "
            f"WHERE {low}",
        ):
            con.execute(statement)
        if index % 25 == 0:  # rows that make up whole groups go to the file past the log
            con.execute("COMMIT")
            con.execute("BEGIN")
    for table, names in (("rollups", rollup), ("products", products)):
        con.execute(
            f"INSERT INTO {table} BY NAME SELECT {', '.join(names)}, minute + {step} * copy AS minute FROM {table}, "
            f"range(1, {times}) all_(copy) ORDER BY minute"
        )
    con.execute("DELETE FROM hours")
    con.execute(
        f"INSERT INTO hours SELECT metric, route, cohort, {HOURLY_SUMS} FROM rollups GROUP BY ALL ORDER BY 4, 1"
    )
    con.execute("DELETE FROM product_hours")
    con.execute(
        "INSERT INTO product_hours SELECT first, second, route, minute - minute % 60, sum(n), sum(x), sum(y), sum(xx), "
        "sum(yy), sum(xy) FROM products GROUP BY ALL"
    )
    con.execute("COMMIT")
    con.execute("CHECKPOINT")
    con.close()
    store = open_store(folder)
    assert isinstance(store, DuckDBStore)
    while store.unsorted_scores >= SORTED_ROWS:
        store.compact().result()
    store.close()


# --- a server --------------------------------------------------------------------------------------


class Serving(NamedTuple):
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    place: str
    """Host and port."""

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.place, timeout=120)

    def overview(self) -> Any:
        """Return what the first page says."""
        connection = self.connection()
        connection.request("GET", "/overview.json")
        return msgspec.json.decode(connection.getresponse().read())

    def spent(self) -> tuple[float, float]:
        """Return seconds of processor that it and its workers took (Linux)."""
        own = workers = 0.0
        for place in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                report = place.read_text().rsplit(")", 1)[1].split()
                took = (int(report[11]) + int(report[12])) / os.sysconf("SC_CLK_TCK")
                if place.parent.name == str(self.process.pid):
                    own = took
                elif report[1] == str(self.process.pid):
                    workers += took
        return own, workers

    @property
    def memory(self) -> float:
        """Megabytes of memory that it holds now, without its workers (Linux)."""
        report = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(report[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def serve(store: Path, *options: str, tree: Path | None = None) -> Serving:
    """Start a server; `tree` is another checkout that it runs from."""
    command = [sys.executable, "-m", "ragfault", "serve", "--store", str(store), "--port", "0", *options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **({"PYTHONPATH": f"{tree}/src"} if tree else {})}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    return Serving(process, urlsplit(process.stdout.readline().split()[-1]).netloc)


@contextmanager
def serving(store: Path, *options: str, tree: Path | None = None) -> Iterator[Serving]:
    """Return a server that is ended at the end."""
    sent = serve(store, *options, tree=tree)
    try:
        yield sent
    finally:
        sent.process.terminate()
        sent.process.wait()


def ask(
    connection: http.client.HTTPConnection, path: str, body: bytes | None = None, content: str = JSON
) -> tuple[int, float]:
    """Return the status of an answer, and the milliseconds it took."""
    start = time.perf_counter()
    connection.request("GET" if body is None else "POST", path, body, {"Content-Type": content})
    answer = connection.getresponse()
    answer.read()
    return answer.status, 1000 * (time.perf_counter() - start)
