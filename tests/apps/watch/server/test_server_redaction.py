"""Redaction in the server: nothing of what was to go is ever on the disk, and what is left still hangs together."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")

from ragfault.cli.commands import run_command as command
from ragfault.model.records import Chunk, Trace
from server_process import Server, build_rag_spans, encode_spans, run_server

pytestmark = pytest.mark.long

MAIL, PHONE = "ann.lee@example.org", "+44 20 7946 0958"
JSON = {"Content-Type": "application/json", "Content-Encoding": "gzip"}


def on_disk(store: Path) -> bytes:
    """Read all bytes of a store."""
    return b"".join(path.read_bytes() for path in store.rglob("*") if path.is_file())


def asking(trace: str) -> list[dict]:
    """Build the spans of a question that names a person."""
    spans = build_rag_spans(trace)
    for span in spans:
        for entry in span["attributes"]:
            value = entry["value"]
            if "stringValue" in value:
                value["stringValue"] = value["stringValue"].replace("At ten.", f"Ask {MAIL} or {PHONE}.")
                value["stringValue"] = value["stringValue"].replace("leaves at ten", f"is asked of {MAIL}")
    return spans


def test_traces_are_redacted_before_storage(tmp_path: Path):
    """Address and number go, the same in chunk and answer stay the same, the answer stays grounded, all is counted."""
    trace = Trace(
        id="t",
        query=f"Is {MAIL} right?",
        chunks=(Chunk(id="c", text=f"The office is reached by mail at {MAIL}."),),
        answer=f"The office is reached by mail at {MAIL}.",
    )
    with run_server(tmp_path / "s", "--redact", "email,phone", "--metrics", "groundedness") as server:
        assert server.send([trace]).status == 200
        server.settled(1)
        stored = server.ask("/traces/t.json").json
        assert stored["trace"]["answer"] == "The office is reached by mail at [email 1]."
        assert stored["trace"]["query"] == "Is [email 1] right?"
        assert [score["value"] for score in stored["scores"]] == [1.0]
        assert 'ragfault_ingest_total{outcome="redacted_email"} 3' in server.ask("/metrics").body.decode()
    assert MAIL.encode() not in on_disk(tmp_path / "s")


def test_spans_are_redacted_before_they_are_pending(tmp_path: Path):
    """Killed between two requests of a trace, the store has no address in it; joined, a trace agrees with itself."""
    chain, retrieve, llm = asking("0" * 31 + "7")
    server = Server(tmp_path / "s", "--redact", "all", "--metrics", "groundedness")
    assert server.ask("/v1/traces", encode_spans(retrieve, llm), JSON).status == 200
    server.end(signal.SIGKILL)
    pending = on_disk(tmp_path / "s")
    assert b"At ten" not in pending
    assert b"[email~" in pending
    assert MAIL.encode() not in pending
    assert b"7946" not in pending
    with run_server(tmp_path / "s", "--redact", "all", "--metrics", "groundedness") as server:
        assert server.ask("/v1/traces", encode_spans(*asking("0" * 31 + "8")), JSON).status == 200
        assert server.ask("/v1/traces", encode_spans(chain), JSON).status == 200
        server.settled(2)
        trace = server.ask(f"/traces/{'0' * 31}8.json").json["trace"]
        assert trace["chunks"][0]["text"] == "The ferry is asked of [email 1]."
        assert trace["answer"] == "Ask [email 1] or [phone 1]."
    assert MAIL.encode() not in on_disk(tmp_path / "s")


def test_nothing_hides_in_an_id_of_opentelemetry(tmp_path: Path):
    """What stands where a parent, or the trace of a record of a log, is to be named and is no id is not kept at all."""
    part = {**build_rag_spans("0" * 31 + "7")[0], "parentSpanId": MAIL}
    record = {"traceId": MAIL, "spanId": MAIL, "eventName": "e"}
    logs = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}).encode()
    server = Server(tmp_path / "s", "--redact", "all")
    assert server.ask("/v1/traces", encode_spans(part), JSON).status == 200
    assert server.ask("/v1/logs", logs, {"Content-Type": "application/json"}).status == 200
    server.end(signal.SIGKILL)
    assert MAIL.encode() not in on_disk(tmp_path / "s")


def test_spans_pending_before_redaction_was_enabled_are_redacted(tmp_path: Path):
    """Spans that an earlier server held as they came are redacted when they become a trace."""
    chain, retrieve, llm = asking("0" * 31 + "7")
    server = Server(tmp_path / "s", "--metrics", "groundedness")
    assert server.ask("/v1/traces", encode_spans(retrieve, llm), JSON).status == 200
    server.end(signal.SIGKILL)
    with run_server(tmp_path / "s", "--redact", "email", "--metrics", "groundedness") as server:
        assert server.ask("/v1/traces", encode_spans(chain), JSON).status == 200
        server.settled(1)
        [line] = server.ask("/traces.json").json["lines"]
        assert line["answer"] == f"Ask [email 1] or {PHONE}."


def test_nothing_is_redacted_unless_it_is_asked_for(tmp_path: Path, capsys):
    """Off by default; a kind that there is not is told before anything is made."""
    with run_server(tmp_path / "s", "--workers", "0") as server:
        server.send([Trace(id="t", query=MAIL)])
        assert server.ask("/traces/t.json").json["trace"]["query"] == MAIL
    assert command(["serve", "--store", str(tmp_path / "n"), "--redact", "emails"]) == 2
    assert 'Did you mean "email"?' in capsys.readouterr().err
    assert not (tmp_path / "n").exists()
