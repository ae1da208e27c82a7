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
    """Traces of two days, judged; every third has no time of its own."""
    begin, numbers = datetime(2031, 5, 4, tzinfo=UTC), counting()
    traces = [
        replace(
            trace,
            time=None if at % 3 == 0 else begin + timedelta(hours=2 * at),
            route="ab"[next(numbers) % 2],
        )
        for at, trace in enumerate(load_handbook().traces["v1"][:n])
    ]
    return [SCORING(trace) for trace in traces]


def whole(store: TraceStore) -> list:
    """All roll-ups as one for each metric and route, without their minutes."""
    return [replace(each, minute=0) for each in store.read_rollups(0, END, grain=END)]


def test_what_was_ever_counted_is_the_sum_of_all_roll_ups(tmp_path: Path):
    """Before and after tidying, and when the store is opened anew; it only grows."""
    store, found, before = open_store(tmp_path), judged(), 0
    for at in range(0, len(found), 10):
        part = found[at : at + 10]
        store.append_traces([each.trace for each in part]).result()
        store.add_outcomes(part, MEASURES).result()
        for _ in range(2):
            assert list(store.read_total_rollups()) == whole(store)
            store.compact().result()
        now = sum(each.n for each in store.read_total_rollups())
        assert now > before
        before = now
    store.delete_expired(before=datetime(2100, 1, 1, tzinfo=UTC).timestamp()).result()
    sums = store.read_total_rollups()
    store.close()
    store = open_store(tmp_path)
    assert store.read_total_rollups() == sums
    assert sum(each.n for each in sums) == before
    store.close()


def test_a_trace_without_a_time_is_counted_when_it_came(tmp_path: Path):
    """Its roll-ups and its values lie in the minute of its arrival."""
    store, found = open_store(tmp_path), [each for each in judged(9) if each.trace.time is None]
    assert {one.time for each in build_outcome_rows(found) for one in each.observations} == {0.0}
    store.append_traces([each.trace for each in found]).result()
    minutes = {int(each.received // 60) for each in store.list_unscored()}
    store.add_outcomes(found, MEASURES).result()
    assert {each.minute for each in store.read_rollups(0, END)} == minutes
    assert not store.read_rollups(0, 1)
    store.close()


def test_what_waits_is_handed_out_once_and_judged_once(tmp_path: Path):
    """Walking what waits meets each trace once in the order of arrival; outcomes may come in any order, and twice."""
    store, found = open_store(tmp_path), judged(20)
    store.append_traces([each.trace for each in found]).result()
    store.add_outcomes(found[3:7], MEASURES).result()
    after, met = 0, []
    while part := store.list_unscored(after, limit=6):
        met += [each.trace.id for each in part]
        after = part[-1].number
    assert met == [each.trace.id for each in found if each not in found[3:7]]
    assert store.add_outcomes(list(reversed(found)), MEASURES).result() == 16
    assert store.add_outcomes(found, MEASURES).result() == 0
    assert not store.list_unscored()
    store.close()


def test_an_outcome_of_a_forgotten_trace_is_passed_over(tmp_path: Path):
    """A trace that was forgotten while it was being judged leaves nothing behind."""
    store, found = open_store(tmp_path), judged(6)
    store.append_traces([each.trace for each in found]).result()
    assert len(store.list_unscored()) == 6
    store.delete_expired(before=datetime(2100, 1, 1, tzinfo=UTC).timestamp()).result()
    assert store.add_outcomes(found, MEASURES).result() == 0
    assert (store.compute_totals().traces, store.compute_totals().waiting) == (0, 0)
    store.close()
