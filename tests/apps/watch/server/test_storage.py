"""The embedded store: the laws of every store, and its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from installed import skip_without

skip_without("duckdb", reason="the store needs the extra `server`")

from ragfault.apps.watch.server.ingest.incoming_traces import read_traces
from ragfault.apps.watch.server.storage.duckdb.connection import MIGRATIONS
from ragfault.apps.watch.server.storage.opening import open_store
from ragfault.apps.watch.server.storage.records import AppendResult, TraceSelection
from ragfault.http.request_limits import RequestLimits
from ragfault.model.errors import OutputError, RunError
from ragfault.model.records import Trace
from storage_laws import *  # noqa: F403 - the laws hold for the stores of this module
from storage_laws import Place, list_pages


@pytest.fixture(scope="module")
def at() -> Place:
    """The embedded store; `test_store_clickhouse` holds the other one to the same laws."""
    return lambda folder: folder


@pytest.mark.long
@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=6), max_size=6))
def test_a_trace_is_there_once_however_often_it_is_sent(at: Place, tmp_path_factory, sent):
    """Whatever batches come, every id is there once, and taken and repeated add up to what came."""
    store = open_store(at(tmp_path_factory.mktemp("store")))
    try:
        for batch in sent:
            appended = store.append_traces([Trace(id=name, query=f"{name}?") for name in batch]).result()
            assert appended.added + appended.duplicates == len(batch)
        assert sorted(list_pages(store, TraceSelection(limit=2))) == sorted({name for batch in sent for name in batch})
    finally:
        store.close()


KILLED = """
import sys
import threading
from ragfault.model.records import Trace
from ragfault.apps.watch.server.storage.opening import open_store
store = open_store(sys.argv[1])
at = 0
while True:
    batch = [Trace(id=f"{sys.argv[2]}-{at}-{n}", query="q" * 200) for n in range(5)]
    store.append_traces(batch).result()
    print(*(trace.id for trace in batch), flush=True)
    at += 1
"""


@pytest.mark.long
def test_what_was_acknowledged_survives_kills(tmp_path: Path):
    """After kill -9 in the middle of writing, several times over, all that was acknowledged is there, once."""
    acknowledged: set[str] = set()
    for turn in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path), str(turn)], stdout=subprocess.PIPE, text=True
        )
        lines = [process.stdout.readline() for _ in range(5 + 10 * turn)]
        process.kill()
        lines += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        acknowledged |= {name for line in lines if line.endswith("\n") for name in line.split()}
    store = open_store(tmp_path)
    there = list_pages(store, TraceSelection(limit=500))
    assert len(there) == len(set(there))
    assert acknowledged <= set(there)
    store.close()


@pytest.mark.long
def test_one_process_owns_a_store(tmp_path: Path):
    """A second process is told who has it, and what to do."""
    store = open_store(tmp_path)
    code = "import sys; from ragfault.apps.watch.server.storage.opening import open_store; open_store(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, capture_output=True, text=True)
    assert f"another process owns the store {tmp_path} (process {os.getpid()})" in done.stderr
    store.close()
    with pytest.raises(OutputError, match="closed"):
        store.append_traces([Trace(id="a", query="q")]).result()


@pytest.mark.parametrize("number", [1, 99])
def test_a_store_of_an_unknown_schema_is_refused(tmp_path: Path, number: int):
    """A schema of a later version, or of before the first release, is left alone."""
    import duckdb

    open_store(tmp_path).close()
    with duckdb.connect(str(tmp_path / "ragfault.duckdb")) as con:
        con.execute(f"UPDATE migrations SET number = {number}")
    with pytest.raises(RunError, match=f"schema {number}"):
        open_store(tmp_path)


def test_a_search_finds_parts_of_texts(tmp_path: Path):
    """Traces are found by any part of id, query and answer, in any case, and by no text across two of them."""
    store = open_store(tmp_path)
    many = [Trace(id=f"Old-{at}", query="Wann ÖFFNET es?", answer=None if at else "Um NEUN.") for at in range(3)]
    store.append_traces([*many, Trace(id="new", query="Öffnet es NEUNmal?", answer="50 % _ immer")]).result()
    texts = ("old-", "OLD-1", "öffnet", "neun", "n", "es?", "50 % _", "old-0wann", "nirgends")
    counts = [store.count_traces(TraceSelection(text=text)) for text in texts]
    assert counts == [3, 1, 4, 2, 4, 3, 1, 0, 0]
    store.close()


def test_long_texts_are_compressed_by_zstd(tmp_path: Path):
    """The bodies of traces are stored by zstd, which packs them better than what DuckDB chooses itself."""
    import duckdb

    store = open_store(tmp_path)
    store.append_traces([Trace(id="a", query="q")]).result()
    store.close()
    with duckdb.connect(str(tmp_path / "ragfault.duckdb")) as con:
        con.execute(
            "INSERT INTO traces SELECT t.* REPLACE (repeat(md5(i::VARCHAR), 40) AS body) FROM traces t, "
            "range(5000) AS many(i)"
        )
        con.execute("CHECKPOINT")
        query = "SELECT DISTINCT compression FROM pragma_storage_info('traces') WHERE column_name = 'body'"
        assert ("ZSTD",) in con.execute(query).fetchall()


def test_writes_that_wait_together_each_get_their_own_result(tmp_path: Path):
    """Queued requests are inserted at once; a trace that several of them hold is new in the first alone."""
    store = open_store(tmp_path)
    gate = threading.Event()
    store.submit(lambda _: gate.wait(30))
    appended = [store.append_traces([Trace(id=id, query="q") for id in ids]) for ids in ("ab", "bc", "ccd", "d")]
    pending = [store.add_pending([id.encode() for id in ids]) for ids in ("xy", "", "z")]
    gate.set()
    results = [future.result(timeout=30) for future in appended]
    assert results == [AppendResult(2, 0), AppendResult(1, 1), AppendResult(1, 2), AppendResult(0, 1)]
    numbers = [future.result(timeout=30) for future in pending]
    assert [len(group) for group in numbers] == [2, 0, 1]
    bodies = {body.number: body.body for body in store.list_pending()}
    assert bodies == dict(zip([*numbers[0], *numbers[2]], (b"x", b"y", b"z"), strict=True))
    assert sorted(row.trace.id for row in store.list_unscored()) == list("abcd")
    store.close()


def test_migrations_are_named(tmp_path: Path):
    """A store says which migrations it has, by number, name and time."""
    store = open_store(tmp_path)
    rows = store.reader.fetch_rows("SELECT number, name, applied FROM migrations ORDER BY number")
    assert [row[:2] for row in rows] == [(entry.number, entry.name) for entry in MIGRATIONS]
    assert rows[-1][2] == pytest.approx(time.time(), abs=600)
    store.close()


FULL_DISK = """
import random, resource, signal, sys
from pathlib import Path
from ragfault.model.errors import OutputError
from ragfault.model.records import Trace
from ragfault.apps.watch.server.storage.records import TraceSelection
from ragfault.apps.watch.server.storage.opening import open_store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = open_store(Path(sys.argv[1]))
text = "".join(random.choice("abcdefgh") for _ in range(400_000))
store.append_traces([Trace(id="before", query=text)]).result()
limit = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (13_000, limit[1]))
refused = 0
for write in (lambda: store.submit(lambda con: con.execute("CHECKPOINT")), *2 * [
    lambda: store.append_traces([Trace(id="during", query=text)])
]):
    try:
        write().result()
    except OutputError:
        refused += 1
resource.setrlimit(resource.RLIMIT_FSIZE, limit)
store.append_traces([Trace(id="after", query="q")]).result()
store.check_readable()
print(refused, *sorted(trace.id for trace in store.list_traces(TraceSelection()).lines))
store.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files")
@pytest.mark.long
def test_a_store_takes_up_work_after_a_full_disk(tmp_path: Path):
    """When a checkpoint finds no room, what is sent is refused; with room again the same process writes and reads."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "s")], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["3", "after", "before"], done.stderr
    store = open_store(tmp_path / "s")
    assert store.compute_totals().traces == 2
    store.close()


def test_the_attempts_of_a_query_are_stored_apart(tmp_path: Path):
    """Two attempts that are sent under one id are two traces, and one that is sent again is a duplicate."""
    records = [{"id": "q1", "attempt": number, "query": "When?", "answer": f"At {number}."} for number in (1, 2, 2)]
    sent = read_traces("\n".join(map(json.dumps, records)).encode(), RequestLimits()).traces
    store = open_store(tmp_path)
    try:
        appended = store.append_traces(sent).result()
        assert (appended.added, appended.duplicates) == (2, 1)
        assert sorted(list_pages(store, TraceSelection())) == ["q1", "q1#2"]
    finally:
        store.close()
