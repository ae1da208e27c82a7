"""The store on ClickHouse, on the real engine in this process (chdb): the laws of every store, and its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from installed import skip_without

skip_without("chdb", reason="the engine of ClickHouse in this process: pip install chdb")
skip_without("clickhouse_connect", reason="ClickHouse needs the extra `clickhouse`")

from ragfault.apps.watch.server.storage.clickhouse.connection import (
    CREATE_MIGRATIONS,
    MIGRATIONS,
    PASSWORD_VARIABLE,
    ClickHouseConnection,
    parse_address,
)
from ragfault.apps.watch.server.storage.clickhouse.store import ClickHouseStore
from ragfault.apps.watch.server.storage.opening import open_store
from ragfault.apps.watch.server.storage.records import SpotCheck, TraceSelection
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.evaluation.online.scorer import SamplingDraw
from ragfault.model.errors import OutputError, RunError, UsageError
from ragfault.model.records import Trace
from storage_laws import *  # noqa: F403 - its laws, which hold here under the places of this module
from storage_laws import METRICS, Place, list_measures, list_pages

pytestmark = pytest.mark.long

ALL = 2**31 - 1


@pytest.fixture(scope="module")
def at() -> Iterator[Place]:
    """A database for each folder; the engine has one folder in a process."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as engine:
        names: dict[Path, str] = {}
        yield lambda folder: f"chdb://{engine}?database=d{names.setdefault(folder, str(len(names)))}"


@pytest.fixture(scope="module")
def open_one(at: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TraceStore]:
    """A store that stays open, for what needs no fresh one."""
    store = open_store(at(tmp_path_factory.mktemp("store")))
    yield store
    store.close()


def reading(place: str | Path) -> ClickHouseConnection:
    """Return a connection beside that of a store."""
    return ClickHouseConnection(parse_address(str(place)))


# --- the address -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("clickhouse://db", "clickhouse://db:8123/ragfault"),
        ("clickhouses://ann:s3cret@db/live", "clickhouses://db:8443/live"),
        ("clickhouse://ann:s3cret@db:9000/live?secure=1", "clickhouses://db:9000/live"),
        ("clickhouse://ann:s3cret@[::1]:9000/", "clickhouse://::1:9000/ragfault"),
    ],
)
def test_an_address_is_shown_without_its_password(text, shown):
    """An address is read with its defaults, and shows neither user nor password."""
    assert str(parse_address(text)) == repr(parse_address(text)) == shown


def test_a_password_comes_from_the_environment(monkeypatch):
    """Where the address has no password, the variable has it; a quoted one is unquoted."""
    monkeypatch.setenv(PASSWORD_VARIABLE, "s3cret")
    assert parse_address("clickhouse://ann@db").password == "s3cret"
    assert parse_address("clickhouse://ann:a%40b@db").password == "a@b"


@pytest.mark.parametrize(
    "text",
    [
        "clickhouse://",
        "clickhouse://:s3cret@/x",
        "clickhouse://db:port/s3cret",
        "clickhouse://u:s3cret@db/a-b",
        "clickhouse://u:s3cret@db/x`y",
        "clickhouse://u:s3cret@db/x?verify=0",
        "clickhouse://u:s3cret@db/x?secure=yes",
        "chdb://",
        "chdb:///x?secure=1",
        "mysql://u:s3cret@db/x",
    ],
)
def test_what_is_no_address_is_refused(text):
    """What cannot be read as an address is a usage error that says what can, and tells no password."""
    with pytest.raises(UsageError) as error:
        open_store(text)
    assert "s3cret" not in str(error.value) or "/s3cret" in text


def test_the_error_of_an_unreachable_server_hides_the_password():
    """Where no server is, the error names the address, and nothing in its chain has the password."""
    with pytest.raises(OutputError, match=r"127\.0\.0\.1:9") as raised:
        open_store("clickhouse://ann:s3cret@127.0.0.1:9/x")
    error: BaseException | None = raised.value
    assert "s3cret" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


# --- once each -------------------------------------------------------------------------------------

turns = count()


@pytest.mark.long
@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=6), max_size=6))
def test_a_trace_is_there_once_whatever_comes_together(open_one: TraceStore, sent):
    """Whatever batches come at once, every id is there once, and taken and repeated add up to what came."""
    prefix = f"{next(turns)}-"
    batches = [[Trace(id=prefix + name, query="q", route=prefix) for name in batch] for batch in sent]
    results = [future.result() for future in [open_one.append_traces(batch) for batch in batches]]
    assert [sum(row) for row in results] == list(map(len, sent))
    there = list_pages(open_one, TraceSelection(limit=2, route=prefix))
    assert sorted(there) == sorted({trace.id for batch in batches for trace in batch})
    assert sum(row.added for row in results) == len(there)


# --- one owner, and what it leaves -------------------------------------------------------------------


@pytest.mark.long
def test_one_process_owns_a_store(at: Place, tmp_path: Path):
    """Who opens a store that is owned is told who owns it; one that was closed is free."""
    store = open_store(at(tmp_path))
    with pytest.raises(OutputError, match="another process owns the store"):
        open_store(at(tmp_path))
    store.close()
    store.close()
    with pytest.raises(OutputError, match="closed"):
        store.append_traces([Trace(id="a", query="q")]).result()
    open_store(at(tmp_path)).close()


def test_a_store_that_was_taken_over_writes_nothing(at: Place, tmp_path: Path, monkeypatch):
    """A process that slept while another took its store over finds that out before it writes."""
    store = open_store(at(tmp_path))
    con = reading(at(tmp_path))
    body = '{"token": "another", "host": "elsewhere", "pid": 1}'
    row = {"kind": "owner", "name": "owner", "slot": 0, "number": 2**62, "time": 2.0**40, "body": body}
    con.insert("notes", {name: [value] for name, value in row.items()})
    con.close()
    monkeypatch.setattr("ragfault.apps.watch.server.storage.clickhouse.lease.RENEW_SECONDS", 0.0)
    with pytest.raises(OutputError, match="took over"):
        store.append_traces([Trace(id="a", query="q")]).result()
    assert store.compute_totals().traces == 0
    store.close()


def test_a_store_of_a_later_version_is_refused(at: Place, tmp_path: Path):
    """A schema that is not known is left alone; one that was half made is made whole."""
    con = reading(at(tmp_path))
    con.execute(CREATE_MIGRATIONS)
    for statement in MIGRATIONS[0].statements[:4]:
        con.execute(statement)
    open_store(at(tmp_path)).close()
    con.insert("migrations", {"number": [99]})
    con.close()
    with pytest.raises(RunError, match="schema 99"):
        open_store(at(tmp_path))


KILLED = """
import sys
from ragfault.model.records import Trace
from ragfault.apps.watch.server.storage.records import TraceSelection
from ragfault.apps.watch.server.storage.opening import open_store
store = open_store(sys.argv[1])
print("there", *(line.id for line in store.list_traces(TraceSelection(limit=1000)).lines), flush=True)
at = 0
while len(sys.argv) > 2:
    batch = [Trace(id=f"{sys.argv[2]}-{at}-{n}", query="q" * 200) for n in range(5)]
    number = store.add_pending([b"held"]).result()
    store.append_traces(batch, released=number).result()
    print(*(trace.id for trace in batch), flush=True)
    at += 1
print("held", len(store.list_pending()))
store.close()
"""


@pytest.mark.long
def test_what_was_acknowledged_survives_kills(tmp_path: Path):
    """After kill -9 in the middle of writing, several times over, all that was acknowledged is there, once."""
    command = [sys.executable, "-c", KILLED, f"chdb://{tmp_path}/engine"]
    acknowledged: set[str] = set()
    for turn in range(2):
        process = subprocess.Popen([*command, str(turn)], stdout=subprocess.PIPE, text=True)
        lines = [process.stdout.readline() for _ in range(2 + 10 * turn)]
        process.kill()
        lines += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        acknowledged |= {name for line in lines[1:] if line.endswith("\n") for name in line.split()}
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    [_, *there], [_, left] = (line.split() for line in done.stdout.splitlines())
    assert len(there) == len(set(there)) >= len(acknowledged) > 9
    assert acknowledged <= set(there)
    assert int(left) <= 3


def broken(store: TraceStore, place: str | Path, table: str, write) -> None:
    """Do something while a table takes nothing, so that it breaks off there."""
    con = reading(place)
    con.execute(f"ALTER TABLE {table} ADD CONSTRAINT broken CHECK 0")
    with pytest.raises(OutputError, match="broken"):
        write().result()
    con.execute(f"ALTER TABLE {table} DROP CONSTRAINT broken")
    con.close()


@pytest.mark.long
@pytest.mark.parametrize("table", ["scores", "rollups", "products", "nothing"])
@pytest.mark.parametrize("opened", [False, True])
def test_an_interrupted_count_is_completed(filled_store, at: Place, tmp_path: Path, table, opened):
    """Wherever counting breaks off, the next writing or opening makes the roll-ups whole, counting nothing twice."""
    reference, outcomes = filled_store
    store = open_store(at(tmp_path))
    store.append_traces([row.trace for row in outcomes]).result()
    store.add_outcomes(outcomes[:20], list_measures(), cohort_fields=("model",)).result()

    def rest():
        return store.add_outcomes(outcomes[20:], list_measures(), cohort_fields=("model",))

    if table == "nothing":
        rest().result()
    else:
        broken(store, at(tmp_path), table, rest)
    if opened:
        for _ in range(2):
            store.close()
            store = open_store(at(tmp_path))
    assert store.add_outcomes(outcomes, list_measures(), cohort_fields=("model",)).result() == 0
    same = {"cohort": None}
    assert store.read_rollups(0, ALL, **same) == reference.read_rollups(0, ALL, **same)
    assert store.read_products(0, ALL) == reference.read_products(0, ALL)
    for name in METRICS:
        assert store.read_worst_traces(name, 0, ALL) == reference.read_worst_traces(name, 0, ALL)
    store.close()


@pytest.mark.parametrize("opened", [False, True])
def test_a_trace_whose_taking_broke_off_is_there_once(at: Place, tmp_path: Path, opened):
    """Traces that were stored but not acknowledged are found when they are sent again."""
    store = open_store(at(tmp_path))
    traces = [Trace(id=name, query="q") for name in "abc"]
    broken(store, at(tmp_path), "ids", lambda: store.append_traces(traces))
    if opened:
        store.close()
        store = open_store(at(tmp_path))
    assert store.append_traces(traces).result().duplicates == 3
    assert sorted(list_pages(store, TraceSelection())) == ["a", "b", "c"]
    assert store.get_trace("b").trace.query == "q"
    store.close()


def test_an_insert_that_is_sent_again_counts_once(at: Place, tmp_path: Path):
    """The same rows under the same token are there once, which is what makes a retry harmless."""
    store = open_store(at(tmp_path))
    con = reading(at(tmp_path))
    for _ in range(3):
        con.insert("counts", {"name": ["dropped"], "minute": [5], "n": [2]}, token="one")
    con.insert("counts", {"name": ["dropped"], "minute": [5], "n": [2]}, token="two")
    assert [row.n for row in store.read_counts()] == [4]
    con.close()
    store.close()


# --- what is stored is text, and nothing else --------------------------------------------------------

NASTY = [
    "'; DROP TABLE traces; --",
    "\\' OR 1 = 1",
    "{id:String}",
    "%(x)s %s ?",
    "`back`",
    "nul\x00tab\tnew\nline",
    "ünïcode 漢字 🐟",
    "",
]


@pytest.mark.long
def test_text_of_users_is_never_a_statement(at: Place, tmp_path: Path):
    """Whatever stands in ids, routes, searches and names comes back as it is, and finds itself alone."""
    store = open_store(at(tmp_path))
    traces = [
        Trace(id=f"{n}{text}", query=text, route=text, model=text, conversation=text, answer=text)
        for n, text in enumerate(NASTY)
    ]
    assert store.append_traces(traces).result().added == len(NASTY)
    for trace, text in zip(traces, NASTY, strict=True):
        assert store.get_trace(trace.id).trace == trace
        for selection in (TraceSelection(route=text), TraceSelection(model=text), TraceSelection(conversation=text)):
            assert list_pages(store, selection) == [trace.id]
        assert list_pages(store, TraceSelection(ids=(trace.id, "none"))) == [trace.id]
        if text:
            assert trace.id in list_pages(store, TraceSelection(text=text.upper()))
        store.save_setting(text, {"is": text}).result()
        assert store.read_setting(text) == {"is": text}
        assert (
            store.list_traces(TraceSelection(sort=text)).lines
            == store.list_traces(TraceSelection(metric=text, judge=text)).lines
            == ()
        )
    assert store.list_routes() == tuple(sorted(NASTY, key=lambda text: text.encode()))
    store.close()


def test_old_days_are_dropped_by_partition(at: Place, tmp_path: Path):
    """What came on days of which all is old is dropped by partition; of the rest only what is old goes."""
    store = open_store(at(tmp_path))
    assert isinstance(store, ClickHouseStore)
    con = reading(at(tmp_path))
    store.append_traces([Trace(id="new", query="q")]).result()
    now = store.compute_totals().newest
    for table in ("traces", "ids"):  # as if they had come ten days ago
        same = "number + 100, id, received - 864000, time - 864000" if table == "traces" else None
        columns = same or "concat('old-', id), number + 100, received - 864000, time - 864000"
        rest = ", route, model, conversation, query, answer, error, body" if table == "traces" else ""
        con.execute(f"INSERT INTO {table} SELECT {columns}{rest} FROM {table}")
    assert store.compute_totals().traces == 2
    assert store.delete_expired(before=now - 86400).result() == 1
    assert con.fetch_value("SELECT uniqExact(_partition_id) FROM traces") == 1
    assert (store.get_trace("new") is not None, store.get_trace("old-new")) == (True, None)
    con.close()
    store.close()


# --- what a better judge says of a sample ------------------------------------------------------------


@pytest.mark.long
def test_checks_are_those_of_the_embedded_store(filled_store, at: Place, tmp_path: Path):
    """Draws, checks, what is left out and both judges' values side by side are the same on both stores."""
    _, outcomes = filled_store
    stores = [open_store(tmp_path / "duck"), open_store(at(tmp_path))]
    results = []
    for store in stores:
        store.append_traces(
            [replace(row.trace, conversation=f"c{n % 3}"[n % 2 :]) for n, row in enumerate(outcomes)]
        ).result()
        store.add_outcomes(outcomes, list_measures()).result()
        checking = store.spot_checks
        draws = [SamplingDraw(row.trace.id, "better", 0.25 + n / 100, n % 2 == 0) for n, row in enumerate(outcomes)]
        for part in (draws, draws[:5], [SamplingDraw("nobody", "better", 0.5, True)]):
            checking.add_draws(part).result()
        waiting = checking.list_waiting("better", limit=30)
        assert [row.trace.id for row in waiting] == [row.trace.id for row in outcomes[:40:2]]
        done = [_check(row, n) for n, row in enumerate(outcomes[:24:2])]
        checking.add_checks(done, [row.number for row in waiting[: len(done)]]).result()
        left = checking.skip_waiting("better", 9.0).result()
        given = {"judge": "better", "since": 0.0, "until": 2.0**40}
        samples = [
            checking.read_samples(**given),
            checking.read_samples(**given, route=outcomes[0].trace.route, metric="groundedness"),
        ]
        results.append(
            (
                left,
                checking.count_draws(),
                checking.count_checks("better"),
                checking.count_checks("better", since=5.0),
                checking.count_checks("worse"),
                [checking.read_trace_checks(row.trace.id) for row in outcomes],
                [[_places(row) for row in sample] for sample in samples],
                checking.read_samples(**given, metric="none"),
            )
        )
        assert checking.list_waiting("better") == []
        assert len(results[-1][6][0]) > 5
        assert any(rows for *_, rows in results[-1][6][1])
    assert results[0] == results[1]
    for store in stores:
        store.delete_expired(before=2.0**40).result()
        assert store.spot_checks.count_draws() == {}
        assert store.spot_checks.count_checks("better").checked == 0
        store.close()


def _check(row, n: int) -> SpotCheck:
    """Return what a better judge said, in some of the ways in which it may."""
    state = "failed" if n == 3 else "checked"
    scores = () if n == 3 else row.scores
    return SpotCheck(
        trace=row.trace.id,
        judge="better",
        time=float(n),
        chance=0.25 + 2 * n / 100,
        state=state,
        cost=None if n == 4 else 0.25,
        verdicts=row.verdicts,
        scores=scores,
    )


def _places(sample) -> tuple:
    """Return a sample with its columns as rows, and for each whether it has a conversation."""
    named, rest, columns = sample[:5], sample.remainder, sample[6:]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    plain = ((*(-1.0 if value != value else value for value in row[:-1]), row[-1] > 0) for row in rows)
    return (named, tuple(round(number, 9) for number in rest), sorted(plain))
