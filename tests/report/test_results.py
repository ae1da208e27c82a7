"""Laws of results in Python: paths stand for runs everywhere, and `print` shows a report of 40 lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import ragfault
from ragfault.diagnosis.run_analysis import suggest_remedies
from ragfault.diagnosis.scorecard import build_scorecard
from ragfault.diagnosis.steps.records import FaultyStep, StepSuspect
from ragfault.io.runs.run import Run
from ragfault.model.errors import RunError, UsageError
from ragfault.report.wording import describe_faulty_step
from sample_runs import evaluate_pairs, pair


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Three runs of the same queries, the later ones with a claim that nothing supports."""
    return [
        evaluate_pairs(
            tmp_path_factory.mktemp("results"), [pair(f"t{at}", "hn", "su" if at < bad else "ss") for at in range(24)]
        )
        for bad in (0, 16, 16)
    ]


def test_a_path_stands_for_a_run(runs: list[Run]):
    """Every function that takes a run takes the path of one, as text or as a path, with the same result."""
    old, new = runs[0], runs[1]
    places = str(old.path), Path(new.path)
    assert ragfault.compare(*places) == ragfault.compare(old, new)
    assert ragfault.bisect(*places) == ragfault.bisect(old, new)
    assert ragfault.analyze(places[0]) == ragfault.analyze(old)
    assert ragfault.gate(places[1], baseline=places[0]) == ragfault.gate(new, baseline=old)
    assert ragfault.history([run.path for run in runs]) == ragfault.history(runs)
    assert (build_scorecard(places[0]), suggest_remedies(places[1])) == (build_scorecard(old), suggest_remedies(new))


def test_a_run_is_opened_by_its_path(runs: list[Run], tmp_path: Path):
    """`Run(path)` is `Run.open(path)`, with the same errors."""
    assert Run(str(runs[0].path)).manifest == Run.open(runs[0].path).manifest == runs[0].manifest
    with pytest.raises(RunError, match="no run at"):
        Run(tmp_path / "nope")
    with pytest.raises(UsageError, match="baseline and candidate"):
        ragfault.bisect(runs[0])


def test_a_run_is_a_wide_frame(runs: list[Run]):
    """One row a trace in the run's order, one column a metric, NaN where a metric has no value."""
    pytest.importorskip("pandas")
    wide = runs[1].to_frame()
    assert list(wide.index) == [trace.id for trace in runs[1].traces()]
    assert list(wide.columns) == ["query", "answer", "route", *(item.name for item in runs[1].manifest.metrics)]
    for score in runs[1].scores():
        value = wide.loc[score.trace, score.metric]
        assert value == score.value or (score.value is None and value != value)


def test_a_run_and_a_trace_are_diagnosed_by_one_function(runs: list[Run]):
    """`diagnose` of a run gives every trace or those named; of a trace with its verdicts the problems alone."""
    everything = ragfault.diagnose(runs[1].path)
    assert [item.trace for item in everything] == [trace.id for trace in runs[1].traces()]
    assert ragfault.diagnose(runs[1], ids=["t3"]) == (everything[3],)
    [(trace, verdicts)] = runs[1].evidence(["t3"])
    assert ragfault.diagnose(trace, verdicts).problems == everything[3].problems
    with pytest.raises(UsageError, match="from its verdicts"):
        ragfault.diagnose(trace)


def test_a_printed_result_is_its_report_in_forty_lines(runs: list[Run]):
    """The answer stands on top, what is cut is counted, and `repr` keeps the fields."""
    bisection = ragfault.bisect(runs[0], runs[1])
    results = {
        "Retrieval ": ragfault.analyze(runs[1]),
        "worse": ragfault.compare(runs[0], runs[1]),
        bisection.verdict.upper(): bisection,
        "PASS: run": ragfault.gate(runs[0], ["groundedness>=0.5"]),
        "3 runs": ragfault.history(runs),
        "t1": ragfault.diagnose(runs[1], ids=["t1"])[0],
    }
    for answer, result in results.items():
        lines = str(result).splitlines()
        assert len(lines) <= 40
        assert max(map(len, lines)) <= 80
        assert any(answer in line for line in lines[:10]), str(result)
        assert repr(result).startswith(f"{type(result).__name__}(")


def test_a_faulty_step_is_named_only_where_one_is_the_best():
    suspects = tuple(StepSuspect(step=name, layer="generation", kind="generate") for name in ("3", "2"))
    finding = FaultyStep(
        trace="t", status="fault", outcome="unknown", suspects=suspects, best=suspects[0], step_count=3
    )
    assert describe_faulty_step(finding).startswith("step 3 (generate)")
    assert describe_faulty_step(replace(finding, best=None, reason="why")).endswith("(why): look at 3, 2")
    assert describe_faulty_step(replace(finding, status="cannot tell", reason="why")).startswith("cannot tell (why)")
