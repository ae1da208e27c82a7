"""What a store counts: outcomes as rows made beside it, sums of all time that only grow, what waits to be judged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count as counting
from pathlib import Path

import pytest
from msgspec.structs import replace

from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.online.scorer import TraceScorer
from ragfault.io.datasets import load_handbook
from ragfault.server.storage import TraceStore, open_store
from ragfault.server.storage.outcome_rows import build_outcome_rows

pytest.importorskip("duckdb", reason="the store needs the extra `server`")

SCORING = TraceScorer("lexical", metrics=("context_relevance", "groundedness", "answer_relevance"))
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
