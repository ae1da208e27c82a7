"""What is read from a server: where the token goes, and what is said where the server does not serve."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")

from ragfault.http.client import fetch_incidents
from ragfault.model.errors import InputError


@contextmanager
def serve(reply: bytes) -> Iterator[tuple[str, list[str | None]]]:
    """Answer every GET with some bytes; yield the address, and the token of each request."""
    tokens: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(self.headers["Authorization"])
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", tokens
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def test_the_token_stays_with_the_server_that_it_was_given_for() -> None:
    """A server that redirects is an error that names the other place, which gets no request."""
    with serve(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as (target, received):
        redirect = f"HTTP/1.1 302 Found\r\nLocation: {target}/x\r\nContent-Length: 0\r\n\r\n".encode()
        with serve(redirect) as (url, asked), pytest.raises(InputError, match=f"redirects to {target}/x: give"):
            fetch_incidents(url, "secret")
    assert asked == ["Bearer secret"]
    assert received == []


def test_what_is_no_http_is_an_error_that_names_the_server() -> None:
    """A port that speaks another protocol cannot be reached."""
    with serve(b"SSH-2.0-x\r\n") as (url, _), pytest.raises(InputError, match=r"cannot reach 127\.0\.0\.1"):
        fetch_incidents(url, None)
