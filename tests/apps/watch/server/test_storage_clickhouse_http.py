"""The store on ClickHouse over HTTP: laws of every store, and what a line that breaks must not do.

Behind the line is the real engine (chdb); the HTTP before it is that of the tests, see `clicking`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from installed import skip_without

skip_without("chdb", reason="the engine of ClickHouse in this process: pip install chdb")
skip_without("clickhouse_connect", reason="ClickHouse needs the extra `clickhouse`")

from clickhouse_server import PASSWORD, USER, serve_clickhouse
from ragfault.apps.watch.server.storage.opening import open_store
from ragfault.apps.watch.server.storage.records import EventCount, TimelineMark, TraceSelection
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.labels.reading.lines import HumanVerdicts, LabelLine
from ragfault.model.errors import OutputError
from ragfault.model.records import Trace
from storage_laws import (  # noqa: F401 - laws that send values of every kind; `test_storage_clickhouse` has all
    Place,
    filled_store,
    list_measures,
    list_pages,
    test_a_failed_write_costs_no_other,
    test_a_key_that_is_none_is_refused,
    test_a_page_ends_before_a_megabyte,
    test_a_pending_body_goes_with_its_trace,
    test_a_trace_round_trips,
    test_an_export_is_the_run_that_evaluate_makes,
    test_filters_are_those_of_the_traces,
    test_measures_are_those_that_were_met,
    test_metadata_survives_a_restart,
    test_pages_meet_everything_once,
    test_products_merge_to_those_of_the_window,
    test_rollups_are_sums_over_their_traces,
    test_rollups_by_hour_are_sums_of_those_by_minute,
    test_rollups_come_merged,
    test_rollups_of_some_cohorts_are_those_of_each,
    test_the_worst_are_the_worst,
    test_what_was_taken_first_stays,
)

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Where the engine answers."""
    with serve_clickhouse(tmp_path_factory.mktemp("engine")) as number:
        yield number


@pytest.fixture(scope="module")
def at(port: int) -> Place:
    """A database for each folder."""
    names: dict[Path, str] = {}
    front = f"clickhouse://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{port}"
    return lambda folder: f"{front}/d{names.setdefault(folder, str(len(names)))}"


def cut(port: int) -> None:
    """Break the line when the next insert was done."""
    with urlopen(f"http://127.0.0.1:{port}/cut") as answer:
        assert answer.status == 200


def test_the_error_of_a_wrong_password_hides_it(at: Place, tmp_path: Path, port: int):
    """Who is not let in is told so, and neither password is."""
    with pytest.raises(OutputError, match="Authentication failed") as error:
        open_store(f"clickhouse://{USER}:gehe1m@127.0.0.1:{port}/x")
    assert "gehe1m" not in str(error.value)
    assert PASSWORD not in str(error.value)


def test_a_line_that_breaks_counts_nothing_twice(filled_store, at: Place, tmp_path: Path, port: int):  # noqa: F811
    """Whichever insert is done and not answered, it is sent again, and what it holds is there once."""
    reference, outcomes = filled_store
    store = open_store(at(tmp_path))
    traces = [row.trace for row in outcomes]
    cut(port)
    assert store.append_traces(traces).result().added == len(traces)
    for at_, row in enumerate(outcomes):
        if at_ % 7 == 0:
            cut(port)
        assert store.add_outcomes([row], list_measures(), cohort_fields=("model",)).result() == 1
    cut(port)
    store.add_counts([EventCount("dropped", 5, 2)]).result()
    assert store.read_counts() == (EventCount("dropped", 5, 2),)
    assert sorted(list_pages(store, TraceSelection(limit=7))) == sorted(trace.id for trace in traces)
    same = [
        store.read_rollups(0, 2**31 - 1, cohort=None, grain=60),
        reference.read_rollups(0, 2**31 - 1, cohort=None, grain=60),
    ]
    assert [(row.key, row.n, row.bins) for row in same[0]] == [(row.key, row.n, row.bins) for row in same[1]]
    assert store.compute_totals().waiting == 0
    store.close()


def test_many_ids_are_asked_for_in_parts(at: Place, tmp_path: Path):
    """A batch with more ids than fit into a parameter is taken in whole, and once."""
    store = open_store(at(tmp_path))
    traces = [Trace(id=f"{n:>060}", query="q") for n in range(3000)]
    assert store.append_traces(traces).result() == (3000, 0, 0)
    assert store.append_traces(traces).result() == (0, 3000, 0)
    assert store.count_traces(TraceSelection(ids=tuple(trace.id for trace in traces[::3]))) == 1000
    store.close()


def test_of_several_who_open_it_at_once_one_owns_it(at: Place, tmp_path: Path):
    """Who looked before the others had claimed it finds out before it writes."""
    open_store(at(tmp_path)).close()
    barrier = threading.Barrier(3)

    def open_at_once() -> TraceStore | OutputError:
        barrier.wait()
        try:
            return open_store(at(tmp_path))
        except OutputError as error:
            return error

    with ThreadPoolExecutor(3) as pool:
        opened = list(pool.map(lambda _: open_at_once(), range(3)))
    [store] = [row for row in opened if not isinstance(row, OutputError)]
    assert store.append_traces([Trace(id="a", query="q")]).result().added == 1
    store.close()


def test_what_fails_has_nothing_else_done_twice(at: Place, tmp_path: Path):
    """A label that waits together with something that fails is kept once."""
    store = open_store(at(tmp_path))
    wrong = TimelineMark(text="m", metadata={"deep": object()})
    label = LabelLine(trace="a", verdicts=HumanVerdicts(), by="ann")
    futures = [
        done
        for _ in range(20)
        for done in (
            store.add_label(label),
            store.add_marks([wrong], 1.0),
            store.add_counts([EventCount("dropped", 5, 1)]),
        )
    ]
    assert sum(future.exception() is not None for future in futures) == 20
    assert len(store.read_labels("a")) == 20
    assert store.read_counts() == (EventCount("dropped", 5, 20),)
    store.close()


def test_a_lost_server_is_reported_and_awaited(tmp_path: Path):
    """While no server answers, writing and reading say so; nothing is lost that was acknowledged."""
    with serve_clickhouse(tmp_path / "engine") as port:
        place = f"clickhouse://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/d"
        store = open_store(place)
        store.append_traces([Trace(id="a", query="q")]).result()
    with pytest.raises(OutputError, match="does not answer"):
        store.append_traces([Trace(id="b", query="q")]).result()
    with pytest.raises(OutputError, match="does not answer"):
        store.compute_totals()
    store.close()
    with serve_clickhouse(tmp_path / "engine") as port:
        store = open_store(place.replace(place.rsplit(":", 1)[1], f"{port}/d"))
        assert list_pages(store, TraceSelection()) == ["a"]
        store.close()
