"""A real server for the tests: `ragfault serve` in a process of its own, with a small client."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import msgspec

from ragfault.model.records import Trace
from waiting import wait_until


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """`ragfault serve` as a user starts it, on a free port."""

    def __init__(self, store: Path, *options: str, judge: str = "lexical") -> None:
        command = [sys.executable, "-m", "ragfault", "serve", "--store", str(store), "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--judge", judge, *options],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "listens on" in line, line
        self.url = line.split()[-1]

    def ask(self, path: str, body: Any = None, headers: dict[str, str] | None = None, **query: Any) -> Answer:
        """Request a page, or send a body."""
        if body is not None and not isinstance(body, bytes):
            body = msgspec.json.encode(body)
        url = self.url + path + (f"?{urlencode(query)}" if query else "")
        try:
            with urlopen(Request(url, body, headers or {}), timeout=60) as response:
                return Answer(response.status, _headers(response.headers), response.read())
        except HTTPError as error:
            with error:
                return Answer(error.code, _headers(error.headers), error.read())

    def send(self, traces: list[Trace], **headers: str) -> Answer:
        """Send traces as JSON."""
        return self.ask("/v1/ragfault/traces", traces, headers)

    def settled(self, count: int) -> None:
        """Wait until so many traces are stored and none waits to be judged."""

        def is_settled() -> bool:
            totals = self.ask("/overview.json").json["totals"]
            return totals["traces"] >= count and not totals["waiting"] and not totals["pending"]

        # each look costs the server some processor time
        wait_until(is_settled, pause=0.3)

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop the server by a signal and return its exit code."""
        self.process.send_signal(how)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def _headers(given: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in given.items()}


@contextlib.contextmanager
def run_server(store: Path, *options: str, judge: str = "lexical") -> Iterator[Server]:
    """Run a server until the end of the block."""
    server = Server(store, *options, judge=judge)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end()


def list_ids(server: Server, limit: int = 500, **query: Any) -> list[str]:
    """List the ids of all traces, page by page."""
    ids: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = server.ask("/traces.json", limit=limit, **query, **after).json
        ids += [line["id"] for line in page["lines"]]
        if page["next"] is None:
            return ids
        after = {"after": page["next"]}


def build_span(trace: str, name: str, parent: str | None = None, **attributes: Any) -> dict[str, Any]:
    """Build a span in the JSON of OTLP."""
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue"}
    encoded = {
        "traceId": trace,
        "spanId": (name.encode().hex() + "0" * 16)[:16],
        "name": name,
        "startTimeUnixNano": "1900000000000000000",
        "endTimeUnixNano": "1900000000500000000",
        "attributes": [{"key": k, "value": {kinds[type(v)]: v}} for k, v in attributes.items()],
    }
    return encoded if parent is None else encoded | {"parentSpanId": (parent.encode().hex() + "0" * 16)[:16]}


def encode_spans(*spans: dict[str, Any]) -> bytes:
    """Build a compressed export request of spans."""
    body = {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}
    return gzip.compress(json.dumps(body).encode())


def build_rag_spans(trace: str) -> list[dict[str, Any]]:
    """Build the spans of one question: chain, retriever, model."""
    documents = "retrieval.documents.0.document."
    return [
        build_span(
            trace,
            "chain",
            **{
                "openinference.span.kind": "CHAIN",
                "input.value": "When does the ferry leave?",
                "output.value": "At ten.",
            },
        ),
        build_span(
            trace,
            "retrieve",
            "chain",
            **{
                "openinference.span.kind": "RETRIEVER",
                "input.value": "When does the ferry leave?",
                f"{documents}content": "The ferry leaves at ten.",
                f"{documents}id": "c1",
            },
        ),
        build_span(
            trace,
            "llm",
            "chain",
            **{
                "openinference.span.kind": "LLM",
                "llm.model_name": "small",
                "llm.input_messages.0.message.role": "user",
                "llm.input_messages.0.message.content": "When does the ferry leave?",
                "llm.output_messages.0.message.content": "At ten.",
                "output.value": "At ten.",
            },
        ),
    ]
