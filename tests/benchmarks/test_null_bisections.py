"""Laws of bisections of two runs of one system."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from ragfault.comparison.bisection import bisect
from ragfault.model.records import Chunk, Trace

sys.path.append(str(Path(__file__).parents[2]))
null_bisections = import_module("benchmarks.null_bisections")
PoolRun = null_bisections.PoolRun


def answered(version: str) -> list[Trace]:
    """Return twelve traces of a system, whose answers differ between versions."""
    return [
        Trace(
            id=str(at),
            query=f"When does ferry {at} leave?",
            answer=f"Ferry {at} leaves at {at + 5} o'clock, says the {version} timetable.",
            chunks=(Chunk(id=str(at), text=f"Ferry {at} leaves at {at + 5} o'clock."),),
        )
        for at in range(12)
    ]


@pytest.fixture
def pool(tmp_path, monkeypatch):
    judged = null_bisections.judge_pool("ferry", (answered("old"), answered("new")), True, tmp_path)
    monkeypatch.setattr(null_bisections, "POOLS", [judged])
    return judged


def test_a_dealt_run_has_the_records_and_scores_of_its_rows(pool):
    rows = np.array([3, 15, 3])
    run = PoolRun("a", pool, rows, [{"tenant": "x"}] * 3)
    assert [trace.answer for trace in run.traces()] == [pool.traces[row].answer for row in rows]
    assert run.to_arrow("traces", ["id", "query"]).to_pylist()[1] == {
        "id": "1",
        "query": "When does ferry 3 leave? (1)",
    }
    table, size = pool.tables["scores"]["value"].to_pylist(), len(pool.manifest.metrics)
    assert run.to_arrow("scores")["value"].to_pylist()[size : 2 * size] == table[15 * size : 16 * size]


def test_a_dealt_run_is_bisected_as_one_on_disk(pool):
    rows = np.arange(12)
    sides = [PoolRun(name, pool, rows + shift, [{}] * 12) for name, shift in (("a", 0), ("b", 12))]
    changes = bisect(*sides).comparison.changes
    assert sum(change.n for change in changes) > 0
    swapped = bisect(*reversed(sides)).comparison.changes
    assert [c.difference and c.difference.mean for c in changes] == pytest.approx(
        [c.difference and -c.difference.mean for c in swapped]
    )


def test_sides_are_dealt_anew_for_each_seed(pool):
    assert null_bisections.bisect_null(0, 12, 1) == null_bisections.bisect_null(0, 12, 1)


@pytest.mark.long
def test_bisections_of_one_system_seldom_name_anything(monkeypatch):
    # twice as many as a side has are enough to deal from
    systems = [(name, *(side[:100] for side in sides)) for name, *sides in null_bisections.draw_systems()]
    monkeypatch.setattr(null_bisections, "draw_systems", lambda: systems)
    rows = [row.split(" | ") for row in null_bisections.bisect_level(20, sizes=(50,), workers=1)][2:]
    trials, named = (sum(int(row[at]) for row in rows) for at in (3, 4))
    assert trials == 40  # with a key and without
    assert named <= 7  # 1 in 1,000 where 5 % are named
