"""The embedded store: the laws of every store, and its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("duckdb", reason="the store needs the extra `server`")

from ragfault.errors import OutputError, RunError
from ragfault.records import Trace
from ragfault.server.storage import TraceSelection, open_store
from storage_laws import *  # noqa: F403 - the laws hold for the stores of this module
from storage_laws import Place, pages


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
        assert sorted(pages(store, TraceSelection(limit=2))) == sorted({name for batch in sent for name in batch})
    finally:
        store.close()


KILLED = """
import sys
from ragfault.records import Trace
from ragfault.server.storage import open_store
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
    there = pages(store, TraceSelection(limit=500))
    assert len(there) == len(set(there))
    assert acknowledged <= set(there)
    store.close()


@pytest.mark.long
def test_one_process_owns_a_store(tmp_path: Path):
    """A second process is told who has it, and what to do."""
    store = open_store(tmp_path)
    code = "import sys; from ragfault.server.storage import open_store; open_store(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, capture_output=True, text=True)
    assert "another process owns the store" in done.stderr
    store.close()
    with pytest.raises(OutputError, match="closed"):
        store.append_traces([Trace(id="a", query="q")]).result()


def test_a_store_of_a_later_version_is_refused(tmp_path: Path):
    """A schema that is not known is left alone."""
    open_store(tmp_path).close()
    import duckdb

    with duckdb.connect(str(tmp_path / "ragfault.duckdb")) as con:
        con.execute("INSERT INTO migrations VALUES (99)")
    with pytest.raises(RunError, match="schema 99"):
        open_store(tmp_path)


FULL_DISK = """
import random, resource, signal, sys
from pathlib import Path
from ragfault.errors import OutputError
from ragfault.records import Trace
from ragfault.server.storage import TraceSelection, open_store
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
