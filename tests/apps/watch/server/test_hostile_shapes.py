"""Hostile shapes of records: beside each, the valid traces of the request are stored, and every page shows them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")

from ragfault.apps.watch.server.dashboard.page_renderer import trace_url
from server_process import Server, run_server
from waiting import wait_until

NDJSON = {"Content-Type": "application/x-ndjson"}


def nest(depth: int, opened: str = "[", closed: str = "]") -> str:
    """Return JSON that is nested so deep."""
    return opened * depth + closed * depth


def give(field: str, value: object) -> str:
    """Return a trace as JSON with a field of a value."""
    return json.dumps({"id": f"hostile-{field}", "query": "When?", "answer": "At ten.", field: value})


def insert(field: str, text: str) -> str:
    """Return a trace as JSON with a field that is written as `text`."""
    return give(field, "HERE").replace('"HERE"', text)


RECORDS = {
    **{f"metadata of {depth} lists": insert("metadata", '{"a":' + nest(depth) + "}") for depth in (400, 700, 5000)},
    **{f"metadata of {depth} objects": insert("metadata", '{"a":' * depth + "1" + "}" * depth)
       for depth in (60, 130, 300, 900)},
    **{f"{field} of 600 lists": insert(field, nest(600)) for field in ("query", "answer", "chunks", "steps", "time")},
    **{f"unknown field of {depth} lists": insert("other", nest(depth)) for depth in (120, 600)},
    "chunk with deep metadata": insert("chunks", '[{"id":"c","text":"t","metadata":{"a":' + nest(500) + "}}]"),
    "step with deep input": insert("steps", '[{"id":"s","input":' + nest(500) + "}]"),
    "id with CRLF": give("id", "a\r\nb"),
    "id of spaces": give("id", "   "),
    "id with NUL": give("id", "a\0b"),
    "id with a slash": give("id", "a/../../b?c#d%2e"),
    "id of direction marks": give("id", "\u202eabc\u2066"),
    "id that is a number": give("id", 7),
    "id that is null": give("id", None),
    "id too long": give("id", "i" * 5000),
    "time years ahead": give("time", "2031-05-05T00:00:00Z"),
    "time before 1970": give("time", "1066-10-14T00:00:00Z"),
    "time beyond all": give("time", "99999-10-14T00:00:00Z"),
    "time as a number": give("time", 1e300),
    "time as text": give("time", "yesterday"),
    "time that is NaN": insert("time", "NaN"),
    "latency below nothing": give("latency", {"total": -5}),
    "latency that is endless": insert("latency", '{"total": 1e999}'),
    "score beyond floats": insert("chunks", '[{"id":"c","text":"t","score":1e999}]'),
    "score that is NaN": insert("chunks", '[{"id":"c","text":"t","score":NaN}]'),
    "chunk that is null": give("chunks", [None]),
    "chunk that is text": give("chunks", ["text"]),
    "chunks that are an object": give("chunks", {"a": 1}),
    "chunk without text": give("chunks", [{"id": "c"}]),
    "one chunk id twice": give("chunks", [{"id": "c", "text": "a"}, {"id": "c", "text": "b"}]),
    "attempt below one": give("attempt", -3),
    "attempt beyond integers": give("attempt", 10**40),
    "turn that is text": give("turn", "first"),
    "metadata that is a list": give("metadata", [1, 2]),
    "metadata with an empty key": give("metadata", {"": {"": ""}}),
    "metadata with huge integers": give("metadata", {"n": 10**400}),
    "metadata with 20,000 keys": give("metadata", {str(at): at for at in range(20_000)}),
    "half of a pair": insert("answer", '"\\ud800"'),
    "half of a pair in metadata": insert("metadata", '{"\\udfff": "\\ud800"}'),
    "keys twice": '{"id": "twice", "id": "again", "query": "When?", "query": "Where?"}',
    "text instead of a record": '"hello"',
    "number instead of a record": "7",
    "null instead of a record": "null",
    "list instead of a record": "[1]",
    "empty record": "{}",
    "cut record": '{"id": "cut", "query": "Wh',
    "two records on a line": '{"id": "x1", "query": "q"} {"id": "x2", "query": "q"}',
    "comment": "// comment",
    "trailing comma": '{"id": "comma", "query": "q",}',
    "bare NaN": "NaN",
    "control characters": give("query", "\x1b[31m\x00\x07 red"),
    "route of markup": give("route", "<script>alert(1)</script>" * 50),
    "error that is an object": give("error", {"message": nest(200)}),
    "history that is text": give("history", "hello"),
    "citations of nothing": give("citations", [{"chunk": {"a": []}}]),
    "messages that are deep": insert("messages", nest(400)),
    "tokens below nothing": give("tokens", {"input": -1, "output": 2**70}),
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("shapes") / "s", "--workers", "0") as running:
        yield running


def list_ids(server: Server) -> list[str]:
    """Return the ids of all stored traces, walked page by page."""
    ids, after = [], {}
    while True:
        page = server.ask("/traces.json", limit=500, **after)
        assert page.status == 200
        ids += [line["id"] for line in page.json["lines"]]
        if page.json["next"] is None:
            return ids
        after = {"after": page.json["next"]}


@pytest.mark.long
def test_no_hostile_record_costs_a_valid_one(server: Server):
    """Each record is stored or rejected by itself, in lines and in lists, and every page of what is stored opens."""
    assert len(RECORDS) >= 60
    expected = set()
    for at, (name, record) in enumerate(RECORDS.items()):
        valid = [json.dumps({"id": f"valid-{at}-{part}", "query": "When?"}) for part in range(4)]
        expected |= {f"valid-{at}-{part}" for part in range(4)}
        lines = "\r\n".join((valid[0], record, valid[1])).encode()
        answer = server.ask("/v1/ragfault/traces", lines, NDJSON)
        assert answer.status == 200, (name, answer.body[:300])
        assert answer.json["taken"] + answer.json["repeated"] + answer.json["rejected"] >= 3, name
        assert len(answer.body) < 20_000, name
        body = f"[{valid[2]},{record},{valid[3]}]".encode()
        answer = server.ask("/v1/ragfault/traces", body)
        assert answer.status in (200, 400), (name, answer.body[:300])
        if answer.status == 400:
            # the body is no list in JSON, and the client sends it again
            expected -= {f"valid-{at}-{part}" for part in (2, 3)}
    ids = list_ids(server)
    assert expected <= set(ids)
    assert len(ids) == len(set(ids))
    for id in set(ids) - expected:
        assert server.ask(trace_url(id)).status == server.ask("/traces/-.json", id=id).status == 200, id[:80]
    for page in ("/", "/traces", "/overview.json", "/metrics"):
        assert server.ask(page).status == 200


def test_a_trace_dated_years_ahead_is_not_listed_first(server: Server):
    """It is stored and listed at its arrival, and the time that it states is in its metadata."""
    for id, more in (("ahead", {"time": "2099-05-05T00:00:00Z"}), ("now", {})):
        assert server.ask("/v1/ragfault/traces", {"id": id, "query": "q", **more}).json["taken"] == 1
    ids = list_ids(server)
    assert ids.index("now") < ids.index("ahead")
    assert server.ask("/traces/ahead.json").json["trace"]["metadata"]["sent_time"].startswith("2099-05-05")


@pytest.mark.parametrize("name", ["metric", "sort"])
def test_a_filter_by_an_unknown_metric_is_refused(server: Server, name: str):
    """The error names the closest metric, instead of an empty list."""
    server.ask("/v1/ragfault/traces", {"id": "measured", "query": "q"})
    answer = server.ask("/traces.json", **{name: "groundednes"})
    assert answer.status == server.ask("/traces", **{name: "groundednes"}).status == 400
    assert "groundednes" in answer.json["detail"]


def test_readiness_follows_writes(tmp_path: Path):
    """While the store cannot be written the server is not ready, and it is again once a write succeeds."""
    resource = pytest.importorskip("resource", reason="files cannot be limited here")
    with run_server(tmp_path / "s", "--workers", "0") as server:
        assert server.ask("/readyz").status == 200
        largest = max(path.stat().st_size for path in (tmp_path / "s").rglob("*") if path.is_file())
        _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (largest + 4096, hard))
        wide = [{"id": str(at), "query": "q", "answer": os.urandom(20_000).hex()} for at in range(20)]
        assert server.ask("/v1/ragfault/traces", wide).status == 503
        assert server.ask("/readyz").status == 503
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
        wait_until(lambda: server.ask("/readyz").status == 200)
        assert server.ask("/v1/ragfault/traces", wide).json["taken"] == 20


def test_a_byte_order_mark_and_crlf_are_read(server: Server):
    """A body that begins with a byte order mark, and lines that end with CRLF, hold the traces that they hold."""
    lines = b"\xef\xbb\xbf" + b'{"id": "bom-1", "query": "q"}\r\n\r\n{"id": "bom-2", "query": "q"}\r\n'
    listed = b"\xef\xbb\xbf" + b'[{"id": "bom-3", "query": "q"}]'
    for body, count in ((lines, 2), (listed, 1)):
        assert server.ask("/v1/ragfault/traces", body, NDJSON).json["taken"] == count
    assert server.ask("/v1/ragfault/marks", b'\xef\xbb\xbf{"text": "release 7"}').status == 200
