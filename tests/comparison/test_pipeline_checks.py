"""Checks that the pipeline answered: errors, empty retrievals, blank and uncited answers come before the tree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from ragfault.comparison.bisection import bisect
from ragfault.comparison.checks.table import CHECK_METRICS
from ragfault.comparison.checks.values import add_checks
from ragfault.comparison.gate.gate import gate
from ragfault.comparison.paired_runs import pair_runs
from ragfault.io.runs.run import Run
from ragfault.model.records import Trace
from sample_runs import evaluate_system, make_verdicts

N = 120


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return evaluate_system(tmp_path_factory.mktemp("base") / "old", make_verdicts(N, 1))


def alter(place: Path, change: Callable[[Trace], Trace], count: int) -> Run:
    """Evaluate the baseline's system again with some traces changed."""
    return evaluate_system(
        place, [(change(t) if at < count else t, v) for at, (t, v) in enumerate(make_verdicts(N, 1))]
    )


def fail(trace: Trace) -> Trace:
    return replace(trace, error="timeout", chunks=None, answer=None, citations=None)


def blank(trace: Trace) -> Trace:
    return replace(trace, answer=" ", citations=())


def find_nothing(trace: Trace) -> Trace:
    return replace(trace, chunks=(), answer="", citations=())


def cite_nothing(trace: Trace) -> Trace:
    return replace(trace, citations=())


@pytest.mark.parametrize(
    ("change", "layer", "words"),
    [
        (fail, "pipeline", "The pipeline fails on 40 % of traces (errors, 0 % before"),
        (blank, "generation", "Answers are blank on 40 % of traces (0 % before"),
        (find_nothing, "retrieval", "Retrieval returns nothing on 40 % of traces (0 % before"),
        (cite_nothing, "generation", "Citations are gone: 40 % of answers cite nothing (0 % before"),
    ],
)
def test_a_stage_that_stopped_is_the_first_fault(baseline: Run, tmp_path: Path, change, layer: str, words: str):
    """The sentence opens with the fact, the fault names the stage, nothing else is blamed, and the gate fails."""
    new = alter(tmp_path / "new", change, 48)
    bisection = bisect(baseline, new, margin=0.3)
    assert bisection.verdict == "fault"
    assert [fault.layer for fault in bisection.faults] == [layer]
    assert bisection.sentence.startswith(words)
    assert bisection.faults[0].examples
    decided = gate(new, baseline=baseline, max_drop=0.3)
    assert decided.exit_code == 1
    assert any(decision.result == "fail" for decision in decided.regression_decisions)


def test_a_few_errors_are_counted_and_not_called_a_fault(baseline: Run, tmp_path: Path):
    """Three errors of 120 show no rise, and are said as a count in every verdict."""
    bisection = bisect(baseline, alter(tmp_path / "new", fail, 3), margin=0.3)
    assert not bisection.faults
    assert "Errors: 3 of 120 traces, 0 before (not significant)." in bisection.sentence


@pytest.mark.parametrize(("before", "verdict"), [(36, "cannot tell"), (4, "fault")])
def test_a_log_that_keeps_every_failed_trace_has_no_more_errors(tmp_path: Path, before: int, verdict: str):
    """Errors as frequent as before if nothing failed that one log lacks are no fault; more of them are one."""
    verdicts = make_verdicts(3 * N, 1)
    old = [(fail(trace) if at >= 3 * N - before else trace, seen) for at, (trace, seen) in enumerate(verdicts)]
    new = [(fail(trace) if at < 36 else trace, seen) for at, (trace, seen) in enumerate(verdicts)]
    sampled = [*new[:36], *new[36::3]]
    runs = evaluate_system(tmp_path / "old", old), evaluate_system(tmp_path / "new", sampled)
    result = bisect(*runs)
    assert result.verdict == verdict
    assert ("whose log may keep failed ones more often" in result.sentence) == (verdict == "cannot tell")
    assert gate(runs[1], baseline=runs[0]).result == ("fail" if verdict == "fault" else "cannot tell")


def test_a_few_errors_beside_a_fault_are_counted_in_the_tree(baseline: Run, tmp_path: Path):
    """The sentence of a fault is about the fault, and a rise that is not significant is not a warning either."""
    changes = [fail] * 3 + [blank] * 45
    pairs = [(change(trace), verdicts) for change, (trace, verdicts) in zip(changes, make_verdicts(N, 1), strict=False)]
    new = evaluate_system(tmp_path / "new", [*pairs, *make_verdicts(N, 1)[len(pairs) :]])
    bisection = bisect(baseline, new, margin=0.3)
    assert bisection.faults
    assert "not significant" not in bisection.sentence
    assert bisection.comparison.warnings == ()
    assert "errors: 3 of 120 traces, 0 before (not significant)" in [decision.why for decision in bisection.tree]


@pytest.mark.long
def test_fewer_errors_are_no_fault(baseline: Run, tmp_path: Path):
    """A pipeline that fails less often than before is at no fault."""
    bisection = bisect(alter(tmp_path / "old", fail, 48), baseline, margin=0.3)
    assert "pipeline" not in [fault.layer for fault in bisection.faults]


@pytest.mark.parametrize("change", [fail, find_nothing, blank])
def test_a_trace_counts_under_one_check(baseline: Run, tmp_path: Path, change: Callable[[Trace], Trace]):
    """What failed is neither empty nor blank; for which nothing was retrieved is neither blank nor uncited."""
    side = pair_runs(baseline, alter(tmp_path / "new", change, 10))
    add_checks(side)
    counts = np.nansum([side.values(metric, 1) for metric in CHECK_METRICS], axis=0)
    assert counts.tolist() == [1.0] * 10 + [0.0] * (N - 10)


def test_errors_of_one_conversation_are_one_observation(tmp_path: Path):
    """Forty errors in a row show a fault where the traces are independent, not where they are one conversation."""
    talks = [
        (replace(t, conversation="one" if at < 40 else f"c{at}"), v) for at, (t, v) in enumerate(make_verdicts(N, 1))
    ]
    old = evaluate_system(tmp_path / "old", talks)
    new = evaluate_system(tmp_path / "new", [(fail(t) if at < 40 else t, v) for at, (t, v) in enumerate(talks)])
    assert not bisect(old, new, margin=0.3).faults


def test_the_rest_is_compared_where_some_traces_fail(baseline: Run, tmp_path: Path):
    """A drop of generation on the traces that were answered is found beside the errors."""
    worse = [(fail(t) if at < 40 else t, v) for at, (t, v) in enumerate(make_verdicts(N, 2, grounding=0.5))]
    bisection = bisect(baseline, evaluate_system(tmp_path / "new", worse))
    assert [fault.layer for fault in bisection.faults][:2] == ["pipeline", "generation"]
