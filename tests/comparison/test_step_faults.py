"""The kind of step that broke between two runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.faults.situations import load_demo_traces
from ragfault.comparison.bisection import bisect
from ragfault.comparison.checks.table import is_step_metric
from ragfault.comparison.gate.gate import gate
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.datasets.agent import ForgetfulAgent, SimulatedAgent
from ragfault.io.runs.run import Run
from ragfault.model.records import Step, Trace
from remembered import LEXICAL

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return evaluate(SimulatedAgent(0).answer_all(), tmp_path_factory.mktemp("base") / "old", judge=LEXICAL)


def score(traces: list[Trace], place: Path) -> Run:
    return evaluate(traces, place, judge=LEXICAL)


def alter(change: Callable[[Step], Step], share: float = 0.5) -> list[Trace]:
    """Return the traces of the same agent with other chances, the steps of some of them changed."""
    traces = SimulatedAgent(1).answer_all()
    return [
        replace(trace, steps=tuple(map(change, trace.steps))) if at < share * len(traces) else trace
        for at, trace in enumerate(traces)
    ]


def test_a_failing_kind_of_step_is_named_with_its_share_before_and_after(baseline: Run, tmp_path: Path):
    fail = lambda step: replace(step, output=None, error="timeout") if step.kind == "memory" else step  # noqa: E731
    bisection = bisect(baseline, score(alter(fail), tmp_path / "new"))
    assert bisection.verdict == "fault"
    assert bisection.faults[0].step == "memory"
    assert bisection.sentence.startswith("Memory steps fail on 50 % of traces (0 % before; p")


def test_failed_steps_without_effect_on_answers_are_named_with_that(baseline: Run, tmp_path: Path):
    traces = SimulatedAgent(0).answer_all()
    tried = Step(id="x", kind="memory", name="memory", error="timeout")
    new = [replace(t, steps=(tried, *t.steps)) if at % 2 else t for at, t in enumerate(traces)]
    sentence = bisect(baseline, score(new, tmp_path / "new")).sentence
    assert sentence.startswith("Memory steps fail on 50 % of traces")
    assert sentence.endswith("The answers are the same on every pair.")


def test_a_fault_of_a_layer_is_traced_to_the_step_at_which_the_pairs_first_differ(baseline: Run, tmp_path: Path):
    bisection = bisect(baseline, score(ForgetfulAgent(1).answer_all(), tmp_path / "new"))
    assert (bisection.verdict, bisection.faults[0].layer, bisection.faults[0].step) == ("fault", "retrieval", "rewrite")
    assert "the first step that differs is a rewrite step" in bisection.sentence


def test_other_chances_of_the_same_agent_are_no_fault_of_a_step(baseline: Run, tmp_path: Path):
    bisection = bisect(baseline, score(SimulatedAgent(1).answer_all(), tmp_path / "new"))
    assert bisection.verdict != "fault"
    assert not any(is_step_metric(c.metric) and c.verdict == "worse" for c in bisection.comparison.changes)


def test_steps_that_are_the_same_in_both_runs_did_not_become_faulty_between_them(tmp_path: Path):
    traces = [replace(t, id=f"{t.id}{part}") for part in "ab" for t in SimulatedAgent(0).answer_all()]
    refused = [replace(t, answer="I do not know.") for t in traces]
    runs = [score(side, tmp_path / name) for name, side in (("old", traces), ("new", refused))]
    assert not any("first faulty step" in change.metric for change in bisect(*runs).comparison.changes)


def test_a_kind_of_step_that_one_run_never_takes_is_not_tested(baseline: Run, tmp_path: Path):
    def add(trace: Trace) -> Trace:
        return replace(trace, steps=(*trace.steps, Step(id="x", kind="route", error="no route")))

    new = score([add(trace) for trace in SimulatedAgent(0).answer_all()], tmp_path / "new")
    assert bisect(baseline, new).verdict != "fault"


def test_runs_without_steps_have_no_metric_of_steps(tmp_path: Path):
    traces = [replace(trace, steps=None) for trace in SimulatedAgent(0).answer_all()]
    runs = [score(traces, tmp_path / name) for name in ("a", "b")]
    assert not any(is_step_metric(change.metric) for change in bisect(*runs).comparison.changes)


@pytest.mark.parametrize(
    "record",
    [
        lambda steps: (*steps, *(replace(step, id=f"{step.id}-again") for step in steps)),
        lambda steps: steps[::-1],
        lambda steps: tuple(replace(step, output=None, chunks=None) for step in steps),
        lambda steps: steps[-3:],
    ],
    ids=["twice", "backwards", "without outputs", "the last ones"],
)
def test_steps_that_are_logged_otherwise_are_no_faults_of_steps(record: Callable, baseline: Run, tmp_path: Path):
    """Steps that are logged again, in another order, or in part, did not break for it."""
    traces = [replace(trace, steps=record(trace.steps)) for trace in SimulatedAgent(1).answer_all()]
    bisection = bisect(baseline, score(traces, tmp_path / "new"))
    assert not bisection.faults
    assert "first faulty step" not in bisection.sentence.casefold()


def search_again(trace: Trace, *, is_asked: bool) -> Trace:
    """Return a trace whose search failed once before."""
    query = trace.query if is_asked else None
    search = Step(id="r", kind="retrieve", name="search", input=query, chunks=tuple(c.id for c in trace.chunks or ()))
    failed = replace(search, id="f", chunks=None, error="timeout")
    return replace(trace, steps=(failed, search, Step(id="g", kind="generate", output=trace.answer)))


@pytest.mark.parametrize("is_asked", [True, False], ids=["with inputs", "without inputs"])
def test_a_failure_that_succeeds_in_another_attempt_is_named_and_is_no_fault(is_asked: bool, tmp_path: Path):
    new = [search_again(trace, is_asked=is_asked) for trace in load_demo_traces()]
    old = [replace(trace, steps=trace.steps[1:]) for trace in new]
    runs = [score(side, tmp_path / name) for name, side in (("old", old), ("new", new))]
    result = bisect(*runs)
    assert (result.verdict, result.faults, gate(runs[1], baseline=runs[0]).exit_code) == ("no fault", (), 0)
    assert "Retrieve steps fail and succeed when they are made again on 100 % of traces (0 % before" in result.sentence
    assert result.sentence.endswith("The answers are the same on every pair.")


def test_a_search_for_something_else_is_no_other_attempt(tmp_path: Path):
    old = [search_again(trace, is_asked=True) for trace in load_demo_traces()]
    new = [replace(t, steps=(replace(t.steps[0], input=f"{t.query} by law"), *t.steps[1:])) for t in old]
    old = [replace(trace, steps=trace.steps[1:]) for trace in old]
    sentence = bisect(score(old, tmp_path / "old"), score(new, tmp_path / "new")).sentence
    assert sentence.startswith("Retrieve steps fail on 100 % of traces")
