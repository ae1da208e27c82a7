"""Guard proxy: what the endpoint gives reaches the client only through the guard, and keys only the endpoint."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from ragfault.apps.guard.frameworks.asgi import Message
from ragfault.apps.guard.frameworks.proxy import append_decisions, guard_endpoint
from ragfault.apps.guard.policy import parse_policy
from ragfault.apps.guard.runtime import Guard
from ragfault.model.errors import UsageError

PASSAGE = "The harbour office opens at 7:30 on weekdays."
BAD = "The captain plays the violin in Vienna."
POLICY = "message = 'Ask us.'\n[rails.groundedness]\n"


class EndpointServer:
    """An endpoint on this machine that gives one answer, and keeps what it was sent."""

    def __init__(self) -> None:
        self.answer, self.status = PASSAGE, 200
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.requests.append((self.path, dict(self.headers), None))
                self.reply({"object": "list", "data": [{"id": "small"}]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                served.requests.append((self.path, dict(self.headers), body))
                choice = {"index": 0, "message": {"role": "assistant", "content": served.answer}}
                self.reply({"object": "chat.completion", "choices": [choice]})

            def reply(self, value: Any) -> None:
                content = json.dumps(value).encode()
                if served.status == 0:
                    self.wfile.write(b"SSH-2.0-x\r\n")
                    return
                self.send_response(served.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Set-Cookie", "session=1")
                if served.status == 302:
                    self.send_header("Location", "http://127.0.0.1:9/stolen")
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *values: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"


@pytest.fixture
def endpoint() -> Iterator[EndpointServer]:
    served = EndpointServer()
    yield served
    served.server.shutdown()
    served.server.server_close()


def call(
    url: str, path: str = "/v1/chat/completions", method: str = "POST", **fields: Any
) -> tuple[int, Mapping[bytes, bytes], Any]:
    """Call the proxy; return status, headers and JSON."""
    messages = [{"role": "user", "content": "When does the office open?"}]
    body = json.dumps({"model": "small", "messages": messages, "contexts": [PASSAGE], **fields}).encode()
    headers = [(b"authorization", b"Bearer sk-1"), (b"content-type", b"application/json"), (b"cookie", b"c=1")]
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    app = guard_endpoint(Guard(parse_policy(POLICY), judge="lexical"), url, timeout=5)
    asyncio.run(app({"type": "http", "method": method, "path": path, "headers": headers}, receive, send))
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), json.loads(content)


@pytest.mark.parametrize(("answer", "text", "reason"), [(PASSAGE, PASSAGE, None), (BAD, "Ask us.", "content_filter")])
def test_answers_are_released_or_replaced(endpoint: EndpointServer, answer: str, text: str, reason: str | None) -> None:
    endpoint.answer = answer
    status, _, reply = call(endpoint.url)
    choice = reply["choices"][0]
    assert (status, choice["message"]["content"], choice.get("finish_reason")) == (200, text, reason)


@pytest.mark.parametrize("with_path", [True, False])
def test_the_endpoint_gets_the_key_and_neither_passages_nor_cookies(endpoint: EndpointServer, with_path: bool) -> None:
    _, headers, _ = call(endpoint.url if with_path else endpoint.url.removesuffix("/v1"))
    path, sent, body = endpoint.requests[0]
    assert (path, sent["Authorization"]) == ("/v1/chat/completions", "Bearer sk-1")
    assert "contexts" not in body
    assert "Cookie" not in sent
    assert b"set-cookie" not in headers


def test_models_are_listed_and_other_paths_are_not_passed_on(endpoint: EndpointServer) -> None:
    assert call(endpoint.url, "/v1/models", "GET")[2]["data"] == [{"id": "small"}]
    for path, method in (("/v1/files", "GET"), ("/v1/embeddings", "POST"), ("/v1/responses", "POST")):
        assert call(endpoint.url, path, method)[0] in (404, 501)
    assert len(endpoint.requests) == 1


def test_errors_of_the_endpoint_reach_the_client_and_redirects_are_not_followed(endpoint: EndpointServer) -> None:
    for status in (429, 302):
        endpoint.status = status
        assert call(endpoint.url)[0] == status


def test_an_endpoint_that_is_not_there_or_speaks_another_protocol_is_502(endpoint: EndpointServer) -> None:
    endpoint.status = 0
    for url in ("http://127.0.0.1:9/v1", endpoint.url):
        status, _, reply = call(url)
        assert (status, "no response" in reply["error"]["message"]) == (502, True)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "api.openai.com/v1", ""])
def test_an_address_that_is_not_http_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="not the address of an endpoint"):
        guard_endpoint(Guard(parse_policy(POLICY), judge="lexical"), url)


def test_decisions_are_appended_a_line_each(tmp_path: Path, endpoint: EndpointServer) -> None:
    path = tmp_path / "log" / "decisions.jsonl"
    guard = Guard(parse_policy("[rails.secrets]"), sink=append_decisions(path))
    from ragfault.model.records import Trace

    for number in range(2):
        guard.decide(Trace(id=str(number), query="Which?", answer="None."))
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(row["trace"], row["outcome"]) for row in rows] == [("0", "pass"), ("1", "pass")]


@pytest.mark.long
def test_the_command_serves_clients_over_http(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.answer = BAD
    (tmp_path / "policy.toml").write_text(POLICY, encoding="utf-8")
    options = ["--endpoint", endpoint.url, "--port", "0", "--judge", "lexical", "--decisions", "decisions.jsonl"]
    command = [sys.executable, "-m", "ragfault", "guard", "proxy", "policy.toml", *options]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            address = process.stderr.readline().split(" on ")[1].split(";")[0]
            body = {"messages": [{"role": "user", "content": "When?"}], "contexts": [PASSAGE], "model": "small"}
            request = Request(f"{address}/v1/chat/completions", json.dumps(body).encode())
            foreign = Request(request.full_url, request.data, {"Host": "evil.example"})
            with pytest.raises(HTTPError, match="403"):
                urlopen(foreign, timeout=30)
            with urlopen(request, timeout=30) as response:
                assert response.headers["x-ragfault-guard"] == "block"
                assert json.load(response)["choices"][0]["message"]["content"] == "Ask us."
        finally:
            process.terminate()
            process.wait(30)
    decision = json.loads((tmp_path / "decisions.jsonl").read_text(encoding="utf-8"))
    assert decision["outcome"] == "block"
