"""Hostile requests: whatever comes over the wire, no answer is a failure, nothing grows, the server answers."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import random
import socket
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")
skip_without("opentelemetry.proto", reason="OTLP as protobuf needs the extra `server`")

from ragfault.http.bodies import MAX_MEMBERS
from ragfault.http.request_limits import RequestLimits
from server_process import Server, build_rag_spans, run_server

JSON, PROTOBUF = "application/json", "application/x-protobuf"
PATHS = ("/v1/traces", "/v1/logs", "/v1/ragfault/traces", "/v1/ragfault/marks")

ROUNDS = 700
"""Hostile requests that are sent while memory is watched."""

GROWTH = 200
"""MB by which a server that has seen each of them once may grow when it sees them all again and again."""

PEAK = 800
"""MB that a server never passes, whatever one client sends: requests of 8 MB that open to 32, one after the other."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("fuzzed") / "s", "--workers", "0") as running:
        yield running


# --- what is sent ------------------------------------------------------------------------------------


def field(number: int, body: bytes) -> bytes:
    """Encode a protobuf field that has a length."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def attribute(value: bytes) -> bytes:
    """Encode an export request whose span has one attribute of this `AnyValue`."""
    pair = field(1, b"k") + field(2, value)
    span = field(1, b"\x01" * 16) + field(2, b"\x02" * 8) + field(9, pair)
    return field(1, field(2, field(2, span)))


def nested(depth: int, number: int = 5) -> bytes:
    """Encode an `AnyValue` of lists in lists (5), or of objects in objects (6)."""
    value = field(1, b"deep")
    for _ in range(depth):
        value = field(number, field(1, value if number == 5 else field(1, b"k") + field(2, value)))
    return value


def spans(value: object) -> bytes:
    """Build an export request in JSON whose span has one attribute of this value."""
    span = {"traceId": "1" * 32, "spanId": "2" * 16, "attributes": [{"key": "k", "value": value}]}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def opening(depth: int) -> bytes:
    """Build the same, nested too deeply for `json` to write."""
    inner = b'{"arrayValue":{"values":[' * depth + b"{}" + b"]}}" * depth
    return spans("HERE").replace(b'"HERE"', inner)


BOMB = gzip.compress(bytes(60_000_000))
COMPLETE = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": build_rag_spans("3" * 32)}]}]}).encode()
SPAN = b'{"traceId":"%032d","spanId":"%016d"}'


class Sent(NamedTuple):
    body: bytes
    content: str = JSON
    packing: str = ""


HOSTILE = {
    "truncated": Sent(COMPLETE[: len(COMPLETE) // 2]),
    "nothing": Sent(b""),
    "huge": Sent(b'"' + b"x" * 9_000_000),
    "huge text": Sent(spans({"stringValue": "x" * 7_000_000})),
    "lists in lists": Sent(b"[" * 200_000),
    "objects in objects": Sent(b'{"a":' * 100_000),
    "values in values": Sent(opening(500)),
    "values in values beyond any": Sent(opening(50_000)),
    "many objects": Sent(b'{"resourceSpans":[' + b"{}," * 1_500_000 + b"{}]}"),
    "many spans": Sent(b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b"{}," * 900_000 + b"{}]}]}]}"),
    "many attributes": Sent(spans({"kvlistValue": {"values": [{"key": str(n)} for n in range(50_000)]}})),
    "wrong types": Sent(b'{"resourceSpans": {"scopeSpans": "spans"}}'),
    "wrong types of spans": Sent(b'{"resourceSpans":[{"scopeSpans":[{"spans":[1,"2",[3],null,true]}]}]}'),
    "wrong types of values": Sent(spans({"intValue": {"a": 1}, "boolValue": "yes", "arrayValue": 7})),
    "of another content": Sent(COMPLETE, "text/html"),
    "JSON called protobuf": Sent(COMPLETE, PROTOBUF),
    "protobuf called JSON": Sent(attribute(field(1, b"x")), JSON),
    "no content type that is one": Sent(COMPLETE, ";;;\xff/" + "x" * 5000),
    "bad UTF-8": Sent(COMPLETE.replace(b"ferry", b"\xff\xfe\xed\xa0\x80")),
    "bad UTF-8 in protobuf": Sent(attribute(field(1, b"\xff\xfe")), PROTOBUF),
    "half of a pair": Sent(spans({"stringValue": "S"}).replace(b'"S"', b'"\\ud800"')),
    "no number": Sent(spans({"doubleValue": "D"}).replace(b'"D"', b"NaN")),
    "no number as text": Sent(spans({"doubleValue": "NaN"})),
    "endless": Sent(spans({"doubleValue": "D"}).replace(b'"D"', b"-Infinity")),
    "beyond floats": Sent(spans({"doubleValue": "D"}).replace(b'"D"', b"1e400")),
    "beyond integers": Sent(spans({"intValue": 10**308})),
    "beyond integers as text": Sent(spans({"intValue": "9" * 4000})),
    "beyond time": Sent(COMPLETE.replace(b'"1900000000000000000"', b'"' + b"9" * 300 + b'"')),
    "keys twice": Sent(b'{"resourceSpans":[],"resourceSpans":[{"scopeSpans":1}],"resourceSpans":[]}'),
    "bomb": Sent(BOMB, packing="gzip"),
    "bomb called protobuf": Sent(BOMB, PROTOBUF, "gzip"),
    "bomb in a packing": Sent(gzip.compress(BOMB), packing="gzip"),
    "bomb in two packings": Sent(gzip.compress(gzip.compress(BOMB)), packing="gzip"),
    "bomb behind a part": Sent(gzip.compress(b"{}") + BOMB, packing="gzip"),
    "bomb by deflate": Sent(zlib.compress(bytes(60_000_000)), packing="deflate"),
    "parts without end": Sent(gzip.compress(b" ") * 100_000, packing="gzip"),
    "half a packing": Sent(BOMB[:1000], packing="gzip"),
    "no packing": Sent(COMPLETE, packing="gzip"),
    "unknown packing": Sent(COMPLETE, packing="br"),
    "two packings": Sent(gzip.compress(COMPLETE), packing="gzip, gzip"),
    "protobuf: lists in lists": Sent(attribute(nested(90)), PROTOBUF),
    "protobuf: lists in lists beyond any": Sent(attribute(nested(5000)), PROTOBUF),
    "protobuf: objects in objects": Sent(attribute(nested(3000, 6)), PROTOBUF),
    "protobuf: a length below nothing": Sent(b"\x0a" + varint(2**64 - 1) + b"x", PROTOBUF),
    "protobuf: a length beyond the end": Sent(b"\x0a\xff\xff\xff\x7fx", PROTOBUF),
    "protobuf: a number that never ends": Sent(b"\x0a" + b"\xff" * 1000, PROTOBUF),
    "protobuf: groups": Sent(b"\x0b" * 1000 + b"\x0c" * 1000, PROTOBUF),
    "protobuf: no field": Sent(b"\x00" * 1_000_000, PROTOBUF),
    "protobuf: many spans": Sent(field(1, field(2, field(2, b"") * 1_500_000)), PROTOBUF),
    "protobuf: truncated": Sent(attribute(nested(3))[:-3], PROTOBUF),
}


def post(server: Server, path: str, sent: Sent) -> int:
    """Return the status of the answer; closing while the client still sends counts as an answer."""
    headers = {"Content-Type": sent.content.encode("latin-1").decode("latin-1")}
    if sent.packing:
        headers["Content-Encoding"] = sent.packing
    place = urlsplit(server.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=240)
    try:
        connection.request("POST", path, sent.body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


@pytest.fixture(scope="module")
def statuses(server: Server) -> dict[str, list[int]]:
    """Return the status that each path answers to each hostile body."""
    return {name: [post(server, path, sent) for path in PATHS] for name, sent in HOSTILE.items()}


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_hostile_is_refused_or_taken(server: Server, statuses: dict[str, list[int]], name: str):
    """Every route answers every hostile body with what it made of it, and none of them is a failure."""
    assert set(statuses[name]) <= {200, 400, 413, 415}
    assert server.ask("/healthz").status == 200


def test_all_parts_of_a_packed_body_are_read(server: Server):
    """What is packed in several parts is whole, and in more parts than anybody needs is refused."""
    lines = [b'{"id": "part %d", "query": "q"}\n' % n for n in range(3)]
    packed = Sent(b"".join(map(gzip.compress, lines)), packing="gzip")
    headers = {"Content-Encoding": packed.packing}
    assert server.ask("/v1/ragfault/traces", packed.body, headers).json["taken"] == 3
    assert post(server, "/v1/ragfault/traces", Sent(gzip.compress(b" ") * (MAX_MEMBERS + 1), JSON, "gzip")) == 400


damaged = st.builds(
    lambda body, at, new, times, cut: body[: at % len(body)] + new * times + body[at % len(body) + cut :],
    st.sampled_from([COMPLETE, attribute(nested(4)), attribute(nested(20, 6)), opening(20)]),
    st.integers(0, 10_000),
    st.binary(max_size=6) | st.sampled_from([b"{", b"[", b'"', b"\xff", b"-1e999", b"\x0a", b"null"]),
    st.integers(0, 300),
    st.integers(0, 40),
)


@settings(max_examples=100, deadline=None)
@given(
    path=st.sampled_from(PATHS),
    body=damaged,
    content=st.sampled_from([JSON, PROTOBUF, "application/json; charset=utf-16", "*/*"]),
    layers=st.integers(0, 3),
    packing=st.sampled_from(["", "gzip", "x-gzip", "deflate"]),
)
def test_what_is_damaged_is_refused_or_taken(server: Server, path, body, content, layers, packing):
    """A request that was whole once, damaged anywhere and packed any number of times, fails nothing."""
    for _ in range(layers):
        body = gzip.compress(body)
    assert post(server, path, Sent(body, content, packing)) in (200, 400, 413, 415)


# --- what is never whole -----------------------------------------------------------------------------


@contextlib.contextmanager
def talking(server: Server, sent: bytes) -> Iterator[socket.socket]:
    """Open a connection and send bytes."""
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname, place.port), timeout=30) as connection:
        connection.sendall(sent)
        yield connection


def heard(connection: socket.socket) -> bytes:
    """Receive everything until the server closes."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            received += part
    return received


HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
LIES = {
    "less than is said": HEAD + b"Content-Length: 1000000\r\n\r\n{}",
    "more than is said": HEAD + b"Content-Length: 2\r\n\r\n{}{}{}{}",
    "below nothing": HEAD + b"Content-Length: -5\r\n\r\n{}",
    "no number": HEAD + b"Content-Length: many\r\n\r\n{}",
    "beyond any": HEAD + b"Content-Length: " + b"9" * 19 + b"\r\n\r\n{}",
    "beyond any number": HEAD + b"Content-Length: " + b"9" * 4000 + b"\r\n\r\n{}",
    "said twice": HEAD + b"Content-Length: 2\r\nContent-Length: 9\r\n\r\n{}",
    "of two kinds": HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "parts without end": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"2\r\n{}\r\n" * 1000,
    "a part below nothing": HEAD + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n",
    "a part beyond any": HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}\r\n",
    "a head without end": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: " + b"x" * 200_000,
    "heads without end": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: x\r\n" * 20_000,
    "no request": bytes(range(256)) * 100,
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,
}


@pytest.mark.parametrize("name", LIES)
def test_lies_about_length_harm_nobody(server: Server, name: str):
    """A request that is not as long as it says is refused or waited for, and others are answered meanwhile."""
    with talking(server, LIES[name]) as connection:
        assert server.ask("/healthz").status == 200
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        answer = heard(connection)
        assert answer[:12] not in (b"HTTP/1.1 500", b"HTTP/1.1 501", b"HTTP/1.1 503")


def test_connections_that_never_end_are_borne(server: Server):
    """While two hundred clients send a byte now and then, the others are answered."""
    begun = [HEAD[:-20], HEAD + b"Content-Length: 1000\r\n\r\n{", HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n"]
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(talking(server, begun[at % 3])) for at in range(200)]
        for _ in range(3):
            for connection in slow:
                connection.sendall(b"x")
            assert server.ask("/overview.json").status == 200
            assert server.ask("/v1/traces", COMPLETE, {"Content-Type": JSON}).status == 200


@pytest.mark.long
def test_who_never_ends_is_let_go(tmp_path: Path):
    """A body that does not come is told so, a head that does not come ends the connection, both in a set time."""
    from dashboard_server import serve_app
    from ragfault.apps.watch.server.app import create_app
    from ragfault.apps.watch.server.request_limits import make_timeout_protocol
    from ragfault.apps.watch.server.settings import ServerSettings

    app = create_app(
        ServerSettings(store=tmp_path / "s", workers=0, judge="lexical", limits=RequestLimits(timeout=0.3))
    )
    with serve_app(app, http=make_timeout_protocol(0.3)) as url:
        server = object.__new__(Server)
        server.url = url
        with talking(server, HEAD + b"Content-Length: 10\r\n\r\n{") as connection:
            assert heard(connection).startswith(b"HTTP/1.1 408")
        for part in (b"", b"GET / HT", HEAD, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + HEAD):
            with talking(server, part) as connection:
                answer = heard(connection)
                assert answer == b"" or (part.startswith(b"GET /healthz") and b" 200 OK" in answer)
        assert server.ask("/healthz").status == 200


# --- memory ------------------------------------------------------------------------------------------


def resident(server: Server, line: str = "VmRSS") -> float:
    """Return the memory of a server in MB, now or at most (`VmHWM`)."""
    status = Path(f"/proc/{server.process.pid}/status").read_text("utf-8")
    return int(status.split(f"{line}:")[1].split()[0]) / 1000


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc, which is Linux's")
def test_a_server_does_not_grow(server: Server, statuses: dict[str, list[int]]):
    """Thousands of hostile requests later a server needs hardly more memory than after the first of each kind."""
    requests = random.Random(7)
    light = [sent for sent in HOSTILE.values() if len(sent.body) < 50_000]
    before = resident(server)
    for at in range(ROUNDS):
        sent = requests.choice(light) if at % 60 else requests.choice(list(HOSTILE.values()))
        assert post(server, PATHS[at % 4], sent) < 500
        if at % 50 == 0:
            with talking(server, requests.choice(list(LIES.values()))):
                pass
    grown = resident(server) - before
    assert grown < GROWTH, f"{before:,.0f} MB, and then {grown:,.0f} MB more"
    assert resident(server, "VmHWM") < PEAK
    assert server.ask("/overview.json").status == 200
