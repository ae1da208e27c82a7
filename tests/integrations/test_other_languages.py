"""The wrapper of docs/integrations.md: what Node sends is a trace, and its failures cost no answer."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from ragfault.model.records import Trace

NODE = shutil.which("node")
PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
TYPES = ((r"^type .*;\n", ""), (r"export ", ""), (r"\(ask: .*\) \{$", "(ask, url, onError = (_) => {}) {"))
"""Patterns of the types of the wrapper, and the JavaScript in their place."""


def read_script() -> str:
    """Return the wrapper without its types."""
    [code] = re.findall(r"^```ts\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for pattern, text in TYPES:
        code = re.sub(pattern, text, code, flags=re.MULTILINE)
    return code.replace("(query: string, context: object = {}): Promise<Answered>", "(query, context = {})").replace(
        "headers: Record<string, string>", "headers"
    )


class TraceHandler(BaseHTTPRequestHandler):
    bodies: ClassVar[list[tuple[str, str | None, bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.bodies.append((self.path, self.headers["Authorization"], body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture
def address() -> Iterator[str]:
    TraceHandler.bodies = []
    server = HTTPServer(("127.0.0.1", 0), TraceHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(20)


def run_node(url: str, token: str = "") -> str:
    """Ask one question through the wrapper; return what the program prints."""
    ask = 'async (query) => ({ answer: "At 22:40.", chunks: [{ id: "t4", text: "The last ferry leaves at 22:40." }] })'
    program = (
        f"{read_script()}\nconst ask = traced({ask}, {json.dumps(url)}, () => console.log('error passed on'));\n"
        "ask('When?', { route: 'travel' }).then((result) => console.log(result.answer));"
    )
    assert NODE is not None
    finished = subprocess.run(
        [NODE, "-e", program], check=False, capture_output=True, text=True, timeout=60, env={"RAGFAULT_TOKEN": token}
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.long
@pytest.mark.skipif(NODE is None, reason="there is no Node on this machine")
def test_the_wrapper_sends_a_trace_and_returns_the_answer(address: str):
    """The answer is that of the system; one trace arrives, with what was asked, found and timed, and the token."""
    assert run_node(address, "rf_x").splitlines() == ["At 22:40."]
    [(path, token, body)] = TraceHandler.bodies
    assert (path, token) == ("/v1/ragfault/traces", "Bearer rf_x")
    trace = msgspec.json.decode(body, type=Trace)
    assert (trace.query, trace.answer, trace.route) == ("When?", "At 22:40.", "travel")
    assert trace.chunks is not None
    assert trace.chunks[0].id == "t4"
    assert trace.latency is not None
    assert trace.latency.total is not None


@pytest.mark.long
@pytest.mark.skipif(NODE is None, reason="there is no Node on this machine")
def test_an_address_that_nobody_serves_costs_no_answer():
    """The answer comes, and the error is passed on."""
    assert run_node("http://127.0.0.1:9").splitlines() == ["At 22:40.", "error passed on"]
