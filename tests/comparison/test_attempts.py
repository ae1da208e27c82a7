"""Laws of the comparison of runs with several attempts: all attempts are paired, and a query is the unit."""

from __future__ import annotations

import numpy as np
import pytest

from ragfault.comparison.bisection import bisect
from ragfault.comparison.compare import compare
from ragfault.diagnosis.attempts.plan import propose_attempts
from ragfault.diagnosis.run_table import RunTable
from ragfault.evaluation.evaluator import evaluate
from ragfault.model.records import Chunk, Trace
from remembered import LEXICAL

METRICS = ["groundedness"]


def evaluate_attempts(folder, attempts, is_wrong):
    """Evaluate a run of 20 queries with so many attempts, wrong as told for query and attempt."""
    traces = [
        Trace(
            id=f"q{n}",
            query=f"When does office {n} open?",
            attempt=k,
            chunks=(Chunk(id=f"c{n}", text=f"Office {n} opens at 7:30."),),
            answer=f"Office {n} opens at {9 if is_wrong(n, k) else 7}:30.",
        )
        for k in range(1, attempts + 1)
        for n in range(20)
    ]
    return evaluate(traces, folder, judge=LEXICAL, metrics=METRICS)


@pytest.mark.parametrize("sizes", [(3, 1), (1, 3), (3, 2), (2, 2)])
def test_all_attempts_are_compared_by_query(sizes, tmp_path):
    """The difference is that of the means of all attempts, whichever side has more of them; a query is one cluster."""
    wrong = (lambda n, k: (n + k) % 3 == 0, lambda n, k: (n + k) % 2 == 0)
    runs = [evaluate_attempts(tmp_path / f"{at}", size, wrong[at]) for at, size in enumerate(sizes)]
    comparison = compare(*runs)
    [change] = comparison.changes
    means = [
        sum(not wrong[at](n, k) for k in range(1, size + 1) for n in range(20)) / size / 20
        for at, size in enumerate(sizes)
    ]
    assert comparison.unpaired == (0, 0)
    assert change.difference.clusters == 20
    if max(sizes) % min(sizes) == 0:
        assert change.difference.mean == pytest.approx(means[1] - means[0])


def test_unequal_attempts_can_be_bisected(tmp_path):
    """A baseline with three attempts and a candidate with one that fails on every query: generation broke."""
    baseline = evaluate_attempts(tmp_path / "a", 3, lambda n, k: n == k)
    result = bisect(baseline, evaluate_attempts(tmp_path / "b", 1, lambda *_: True))
    assert result.verdict == "fault"
    assert "generation" in result.faults[0].branch


def test_a_comparison_that_cannot_tell_proposes_the_next_run(tmp_path):
    """Without attempts another run of the baseline is proposed, with them more attempts or more queries."""
    runs = [evaluate_attempts(tmp_path / f"{size}", size, lambda n, k: (n * k) % 7 == 1) for size in (1, 2)]
    single, several = map(RunTable, runs)
    assert "attempts 1 and 2" in propose_attempts(single, single)
    assert "queries with 2 attempts" in propose_attempts(several, several)
    assert "1 more attempt of the same 20 queries" in propose_attempts(several, several, drop=0.45)


@pytest.mark.parametrize("seed", range(6))
def test_attempts_of_the_baseline_are_the_null(seed, tmp_path):
    """Another set of attempts of one system is no fault; a drop beyond their spread is one."""
    wrong = np.random.default_rng(seed).uniform(size=(3, 20, 4))
    baseline = evaluate_attempts(tmp_path / "a", 3, lambda n, k: wrong[0, n, k] < 0.15)
    again = evaluate_attempts(tmp_path / "b", 3, lambda n, k: wrong[1, n, k] < 0.15)
    broken = evaluate_attempts(tmp_path / "c", 3, lambda n, k: wrong[2, n, k] < 0.7)
    assert bisect(baseline, again).verdict != "fault"
    assert [fault.layer for fault in bisect(baseline, broken).faults] == ["generation"]
