"""Laws of the bound on harm, and of what is left out of it: wording, other queries, citations of lost passages."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from ragfault.comparison.bisection import bisect
from ragfault.comparison.compare import compare_pairs
from ragfault.comparison.decision_tree import RIGHT_ANSWERS, excludes_drop, excludes_harm
from ragfault.comparison.gate.gate import gate
from ragfault.comparison.paired_runs import pair_runs
from ragfault.comparison.settings import DEFAULT_BISECTION, MARGIN
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import MetricInfo
from ragfault.model.records import Chunk, Citation, Trace
from remembered import LEXICAL

METRICS = ["groundedness", "completeness", "answer_relevance"]


def ask(number, answer=None, **fields):
    """Return the trace of a query about an office, whose chunk holds the answer."""
    defaults = {
        "id": f"{number}",
        "query": f"When does office {number} open?",
        "chunks": (Chunk(id=f"c{number}", text=f"Office {number} opens at 7:30."),),
        "answer": answer or f"Office {number} opens at 7:30.",
    }
    return Trace(**defaults | fields)


def evaluate_sides(folder, old, new, metrics=METRICS):
    """Evaluate both sides by words."""
    return [evaluate(s, folder / n, metrics=metrics, judge=LEXICAL) for n, s in (("a", old), ("b", new))]


@pytest.fixture
def measure(tmp_path):
    """Return a function that compares given moves of a metric on 100 pairs."""
    paired = pair_runs(*evaluate_sides(tmp_path, [ask(n) for n in range(100)], [ask(n) for n in range(100)]))

    def compare_moves(name, moves):
        paired.add_metric(MetricInfo(name, "generation", "higher", 0.0, 1.0), np.full(100, 0.5), 0.5 + moves)
        return compare_pairs(paired, DEFAULT_BISECTION, metrics=[name]).changes[-1]

    return compare_moves


def test_a_worded_metric_rests_on_right_answers(measure):
    """Wording that moves asks for no bound of its own, unless a loss of right answers is not ruled out."""
    scatter = np.tile([0.5, -0.5], 50)
    steady, fell = measure("steady_answers", np.zeros(100)), measure("bad_answers", scatter - 0.0)
    even = measure("completeness", scatter)
    assert not excludes_drop(even)
    assert excludes_harm(even, steady)
    assert not excludes_harm(even, fell)
    assert not excludes_harm(measure("recall", scatter), steady)


def test_no_fault_bounds_right_answers(tmp_path):
    """Without a fault the loss of right answers is one of the bounds, and it lies within the margin."""
    answers = [f"At 7:30, office {n} opens." if n % 3 else f"Office {n} opens at 7:30." for n in range(200)]
    runs = evaluate_sides(tmp_path, [ask(n) for n in range(200)], [ask(n, answers[n]) for n in range(200)])
    result = bisect(*runs)
    [right] = [change for change in result.comparison.changes if change.metric == RIGHT_ANSWERS]
    assert result.verdict == "no fault"
    assert right.margin == MARGIN
    assert excludes_drop(right)


def test_a_metric_that_no_pair_has_on_both_sides_stays_open_in_a_gate(tmp_path):
    """Where right answers exclude harm, what could not be compared is neither passed nor an error."""
    new = [ask(n, f"Hello! Office {n} opens at 7:30.") for n in range(120)]
    runs = evaluate_sides(tmp_path, [ask(n) for n in range(120)], new)
    decided = {item.change.metric: item for item in gate(runs[1], baseline=runs[0]).regression_decisions}
    assert decided[RIGHT_ANSWERS].result == "pass"
    assert {item.result for item in decided.values() if item.change.difference is None} == {"cannot tell"}


def test_errors_that_are_not_ruled_out_exclude_no_fault(tmp_path):
    """A rise of errors that is not significant passes neither a bisection nor a gate."""
    new = [ask(n, error="timeout") if n < 3 else ask(n) for n in range(60)]
    runs = evaluate_sides(tmp_path, [ask(n) for n in range(60)], new)
    assert bisect(*runs).verdict == "cannot tell"
    assert gate(runs[1], baseline=runs[0]).result == "cannot tell"


def test_other_queries_on_a_few_pairs_are_only_left_out(tmp_path):
    """They are counted, and neither hide a fault of a segment nor exclude that there is none."""
    old = [ask(n, route=f"r{n % 5}") for n in range(200)]
    other = [replace(t, query=old[n - 9].query) if n % 25 == 0 else t for n, t in enumerate(old)]
    same, broken = other, [replace(t, answer="It is blue.") if n % 5 == 3 else t for n, t in enumerate(other)]
    for name, new, verdict in (("same", same, "no fault"), ("broken", broken, "fault")):
        result = bisect(*evaluate_sides(tmp_path / name, old, new))
        assert result.verdict == verdict
        assert [(m.kind, m.pairs, m.blocks) for m in result.comparison.mismatches] == [("queries", 8, False)]
    assert [segment.by for segment in result.segments] == ["route"]


def test_a_citation_of_a_passage_that_is_gone_is_not_lost(tmp_path):
    """Where answers cite nothing only because the passage is no longer retrieved, retrieval is the only fault."""
    old = [ask(n, citations=(Citation(chunk=f"c{n}"),)) for n in range(80)]
    elsewhere = (Chunk(id="x", text="The harbour was built of granite."),)
    new = [
        replace(t, chunks=elsewhere, answer="The harbour was built of granite.", citations=()) if n % 2 else t
        for n, t in enumerate(old)
    ]
    metrics = [*METRICS, "context_relevance", "chunk_attribution", "uncited_answer"]
    result = bisect(*evaluate_sides(tmp_path, old, new, metrics))
    assert [fault.layer for fault in result.faults] == ["retrieval"]
    gone = bisect(*evaluate_sides(tmp_path / "schema", old, [replace(t, citations=()) for t in old], metrics))
    assert [fault.branch for fault in gone.faults] == ["0 uncited answer"]
