"""What a store counts: outcomes as rows made beside it, sums of all time that only grow, what waits to be judged."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count as counting
from pathlib import Path

import pytest
from msgspec.structs import replace

from installed import skip_without
from ragfault.apps.watch.monitoring.rollups import Rollup, merge_by_key
from ragfault.apps.watch.server.storage.opening import open_store
from ragfault.apps.watch.server.storage.outcome_rows import build_outcome_rows
from ragfault.apps.watch.server.storage.records import TraceSelection
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.online.scorer import TraceScorer
from ragfault.io.datasets.demo_handbook import load_handbook
from remembered import LEXICAL

skip_without("duckdb", reason="the store needs the extra `server`")

SCORING = TraceScorer(LEXICAL, metrics=("context_relevance", "groundedness", "answer_relevance"))
MEASURES = tuple(map(describe_metric, SCORING.metrics))
END = 2**31 - 1


def judged(n: int = 30) -> list:
    """Return traces of two days, judged; every third has no time of its own."""
    begin, numbers = datetime(2031, 5, 4, tzinfo=UTC), counting()
    traces = [
        replace(trace, time=None if at % 3 == 0 else begin + timedelta(hours=2 * at), route="ab"[next(numbers) % 2])
        for at, trace in enumerate(load_handbook().traces["v1"][:n])
    ]
    return [SCORING(trace) for trace in traces]


def merge_minutes(store: TraceStore) -> list:
    """Return all roll-ups as one for each metric and route, without their minutes."""
    return [replace(row, minute=0) for row in store.read_rollups(0, END, grain=END)]


@pytest.mark.long
def test_what_was_ever_counted_is_the_sum_of_all_roll_ups(tmp_path: Path):
    """Before and after tidying, and when the store is opened anew; it only grows."""
    store, outcomes, before = open_store(tmp_path), judged(), 0
    for at in range(0, len(outcomes), 10):
        part = outcomes[at : at + 10]
        store.append_traces([row.trace for row in part]).result()
        store.add_outcomes(part, MEASURES).result()
        for _ in range(2):
            assert list(store.read_total_rollups()) == merge_minutes(store)
            store.compact().result()
        now = sum(row.n for row in store.read_total_rollups())
        assert now > before
        before = now
    store.delete_expired(before=datetime(2100, 1, 1, tzinfo=UTC).timestamp()).result()
    sums = store.read_total_rollups()
    store.close()
    store = open_store(tmp_path)
    assert store.read_total_rollups() == sums
    assert sum(row.n for row in sums) == before
    store.close()


def sum_by_hour(rollups: Iterable[Rollup]) -> list[Rollup]:
    """Return roll-ups merged by hour."""
    return list(merge_by_key(replace(row, minute=row.minute - row.minute % 60) for row in rollups))


@pytest.mark.long
def test_roll_ups_by_hour_are_the_sums_of_those_by_minute(tmp_path: Path):
    """Before and after tidying, also where an hour that was summed gets more; their counts are those of the values."""
    store, outcomes = open_store(tmp_path), judged()
    end = END // 60 * 60
    for at in range(0, len(outcomes), 10):
        part = outcomes[at::3] if at < 20 else outcomes
        store.append_traces([row.trace for row in part]).result()
        store.add_outcomes(part, MEASURES, ("model",)).result()
        for _ in range(2):
            for cohort in ("", "*", None):
                minutes = store.read_rollups(0, END, cohort=cohort)
                assert list(store.read_rollups(0, end, cohort=cohort, grain=60)) == sum_by_hour(minutes) != []
            products = [replace(row, minute=0) for row in store.read_products(0, END, END)]
            assert list(store.read_products(0, end, end)) == products != []
            store.compact().result()
    counts = store.reader.fetch_rows("SELECT metric, count(*), sum(value) FROM scores GROUP BY metric ORDER BY metric")
    scored = {metric: (n, pytest.approx(total, abs=1e-4)) for metric, n, total in counts}
    totals = {row.metric: (row.n, row.sum) for row in store.read_rollups(0, end, cohort="", grain=end, route="a")}
    others = {row.metric: (row.n, row.sum) for row in store.read_rollups(0, end, cohort="", grain=end, route="b")}
    assert {
        name: (n + others[name][0], total + others[name][1]) for name, (n, total) in totals.items() if name in scored
    } == scored
    store.close()


@pytest.mark.long
def test_sorting_scores_changes_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Lists, searches and the worst traces are the same before and after, also with what comes later."""
    monkeypatch.setattr("ragfault.apps.watch.server.storage.duckdb.store.SORTED_ROWS", 20)
    store, outcomes = open_store(tmp_path), judged()

    def read() -> list:
        pages = [
            store.list_traces(TraceSelection(sort="groundedness", order="ascending")),
            store.list_traces(TraceSelection(metric="groundedness", high=0.9, route="a")),
            store.list_traces(TraceSelection()),
        ]
        return [*pages, store.read_worst_traces("groundedness", 0, END), store.unsorted_scores >= 20]

    for part in (outcomes[:10], outcomes[10:24], outcomes[24:]):
        store.append_traces([row.trace for row in part]).result()
        store.add_outcomes(part, MEASURES).result()
        *before, waits = read()
        rows = sorted(store.reader.fetch_rows("SELECT * FROM scores"))
        for _ in range(3):
            store.compact().result()
        assert [*before, False] == read()
        assert sorted(store.reader.fetch_rows("SELECT * FROM scores")) == rows
        assert waits == (part != outcomes[24:])
    store.close()


def test_a_trace_without_a_time_is_counted_when_it_came(tmp_path: Path):
    """Its roll-ups and its values lie in the minute of its arrival."""
    store, outcomes = open_store(tmp_path), [row for row in judged(9) if row.trace.time is None]
    assert {first.time for row in build_outcome_rows(outcomes) for first in row.observations} == {0.0}
    store.append_traces([row.trace for row in outcomes]).result()
    minutes = {int(row.received // 60) for row in store.list_unscored()}
    store.add_outcomes(outcomes, MEASURES).result()
    assert {row.minute for row in store.read_rollups(0, END)} == minutes
    assert not store.read_rollups(0, 1)
    store.close()


def test_what_waits_is_handed_out_once_and_judged_once(tmp_path: Path):
    """Walking what waits meets each trace once in the order of arrival; outcomes may come in any order, and twice."""
    store, outcomes = open_store(tmp_path), judged(20)
    store.append_traces([row.trace for row in outcomes]).result()
    store.add_outcomes(outcomes[3:7], MEASURES).result()
    after, met = 0, []
    while part := store.list_unscored(after, limit=6):
        met += [row.trace.id for row in part]
        after = part[-1].number
    assert met == [row.trace.id for row in outcomes if row not in outcomes[3:7]]
    assert store.add_outcomes(list(reversed(outcomes)), MEASURES).result() == 16
    assert store.add_outcomes(outcomes, MEASURES).result() == 0
    assert not store.list_unscored()
    store.close()


def test_an_outcome_of_a_forgotten_trace_is_passed_over(tmp_path: Path):
    """A trace that was forgotten while it was being judged leaves nothing behind."""
    store, outcomes = open_store(tmp_path), judged(6)
    store.append_traces([row.trace for row in outcomes]).result()
    assert len(store.list_unscored()) == 6
    store.delete_expired(before=datetime(2100, 1, 1, tzinfo=UTC).timestamp()).result()
    assert store.add_outcomes(outcomes, MEASURES).result() == 0
    assert (store.compute_totals().traces, store.compute_totals().waiting) == (0, 0)
    store.close()
