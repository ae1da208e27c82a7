"""Recover or exit: while the store is lost every answer is 503, and a store that stays lost ends the server."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")

from ragfault.apps.watch.server.storage.duckdb.connection import translate_error
from ragfault.model.errors import OutputError
from ragfault.model.records import Chunk, Trace
from server_process import Server, list_ids, run_server

LOST_STORE = """
import http.client, json, os, random, resource, signal, sys, threading, time
from pathlib import Path
from ragfault.model.errors import OutputError
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.apps.watch.server import app
from ragfault.apps.watch.server import store_guard
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store_guard.GIVE_UP_SECONDS, store_guard.TRY_SECONDS = 3.0, 0.1
made, keep = [], app.create_app
app.create_app = lambda settings: made.append(keep(settings)) or made[0]
database = Path(sys.argv[1], "ragfault.duckdb")

def ask(path, body=None):
    connection = http.client.HTTPConnection(made[0].url, timeout=60)
    connection.request("POST" if body else "GET", path, body)
    answer = connection.getresponse()
    answer.read()
    return answer.status, answer.headers.get("Retry-After")

def lose(line):
    if "listens on" in line:
        made[0].url = line.split("//")[1]
        threading.Thread(target=break_store, daemon=True).start()

def break_store():
    store = made[0].state.server.store
    text = "".join(random.choice("abcdefgh") for _ in range(400_000))
    body = json.dumps({"id": "a", "query": text})
    print(*ask("/v1/ragfault/traces", body), flush=True)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    os.rename(database, f"{database}.moved")
    database.mkdir()
    resource.setrlimit(resource.RLIMIT_FSIZE, (13_000, limit[1]))
    try:
        store.submit(lambda con: con.execute("CHECKPOINT")).result()
    except OutputError:
        print("lost", store.is_lost, flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    for path in ("/v1/ragfault/traces", "/overview.json", "/traces.json", "/readyz"):
        print(*ask(path, body.replace('"a"', '"b"') if path.startswith("/v1") else None), flush=True)

try:
    app.run_server(ServerSettings(store=sys.argv[1], port=0, workers=0), lose)
except OutputError as error:
    print(error, flush=True)
    sys.exit(2)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files")
@pytest.mark.long
def test_a_store_that_stays_lost_ends_the_server(tmp_path: Path):
    """Every request is answered 503 with Retry-After, and the process ends by itself, not with 0."""
    done = subprocess.run(
        [sys.executable, "-c", LOST_STORE, str(tmp_path / "s")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines[:2] == ["200 None", "lost True"], (done.stdout, done.stderr)
    assert lines[2:6] == ["503 2"] * 4
    assert "could not be opened again" in lines[6]
    assert done.returncode == 2


@pytest.mark.skipif(sys.platform != "linux", reason="no limit on the files of another process")
@pytest.mark.long
def test_what_was_acknowledged_survives_a_full_disk_and_a_kill(tmp_path: Path):
    """After files that may not grow in the middle of ingest, and kill -9, over and over, each is there once.

    While they may not, the answer is 503; a trace that got it may be sent again to the next server.
    """
    import resource

    acknowledged, refused, place = set[str](), list[Trace](), tmp_path / "s"
    for turn in range(4):
        server = Server(place, "--metrics", "context_relevance,groundedness", "--workers", str(turn % 2))
        codes = Counter[int]()
        for at in range(400):
            text = "".join(random.Random(f"{turn}/{at}").choices("abcdefgh ", k=8000))
            batch = [Trace(id=f"{turn}-{at}-{n}", query=text, chunks=(Chunk(id="c", text=text),)) for n in range(5)]
            if at == 10 + 7 * turn:
                largest = max(file.stat().st_size for file in place.iterdir())
                resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (largest + 4096, resource.RLIM_INFINITY))
            answer = server.send([*refused, *batch])
            codes[answer.status] += 1
            if answer.status == 200:
                acknowledged |= {trace.id for trace in (*refused, *batch)}
            refused = [] if answer.status == 200 else batch
            if codes[503] == 1 + 2 * turn:
                break
        assert set(codes) == {200, 503}, codes
        server.end(signal.SIGKILL)
    with run_server(place, "--metrics", "context_relevance,groundedness") as server:
        assert server.send(refused).status == 200
        acknowledged |= {trace.id for trace in refused}
        server.settled(len(acknowledged))
        there = list_ids(server)
        assert acknowledged <= set(there)
        assert len(there) == len(set(there))


@pytest.mark.long
def test_counts_survive_a_kill(tmp_path: Path):
    """What was acknowledged as taken or repeated is counted, however the server ends, and pages say so after it."""
    server = Server(tmp_path / "s", "--workers", "0")
    traces = [Trace(id=str(at), query="When?") for at in range(30)]
    for _ in range(2):
        assert server.send(traces).status == 200
    server.process.kill()
    server.process.wait()
    server.process.stdout.close()
    with run_server(tmp_path / "s", "--workers", "0") as server:
        counts = server.ask("/overview.json").json["counts"]
        assert (counts["taken"], counts["repeated"]) == (30, 30)


def test_a_damaged_file_is_an_error_of_the_store():
    """It asks for a backup and answers 503, and is no failure of the program."""
    import duckdb

    error = translate_error(duckdb.Error("Corrupt database file: computed checksum 1 does not match 2 in block 3"))
    assert isinstance(error, OutputError)
    assert "restore a backup" in str(error)
    assert not isinstance(translate_error(duckdb.Error("no such column")), OutputError)
