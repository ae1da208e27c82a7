"""Faults of steps over time: which kind of step broke, and since when."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ragfault.apps.watch.monitoring.monitor import monitor
from ragfault.apps.watch.monitoring.rollups import (
    LOG_LATENCY,
    STEP_METRICS,
    Observation,
    add_derived,
    observe_trace,
    roll_up,
)
from ragfault.apps.watch.report.monitor import describe_drop
from ragfault.cli.commands import run_command
from ragfault.io.runs.run import MetricInfo
from ragfault.model.records import Step, Trace

START = datetime(2026, 3, 1, tzinfo=UTC)
BROKEN_FROM = 2000


def build_trace(place: int, error: str | None = None) -> Trace:
    """Build the trace of an agent that plans, calls a tool and answers, one every minute."""
    steps = (
        Step(id="1", kind="plan", output="fares(Texel)"),
        Step(id="2", kind="tool", name="fares", input=f"Texel {place}", output=None if error else "12", error=error),
        Step(id="3", kind="generate", output="Twelve pounds."),
    )
    return Trace(
        id=str(place), query="What does it cost?", answer="12", steps=steps, time=START + timedelta(minutes=place)
    )


def test_a_kind_of_step_whose_faults_rise_is_named_with_its_onset():
    traces = [
        build_trace(place, "timeout" if place >= BROKEN_FROM and place % 2 == 0 else None) for place in range(3000)
    ]
    observations = [observation for trace in traces for observation in observe_trace(trace, None, ())]
    report = monitor(roll_up(observations), add_derived(()))
    first = report.drops[0]
    assert first.reference.metric == STEP_METRICS["tool"]
    begin = int(START.timestamp()) // 60 + BROKEN_FROM
    assert first.detection.earliest <= begin <= first.detection.latest
    assert describe_drop(first).startswith("Tool steps broke: tool steps without a fault fell by 0.5")
    assert {drop.reference.metric for drop in report.drops} <= {STEP_METRICS["tool"], STEP_METRICS["generate"]}


def test_a_call_that_could_not_be_executed_is_a_fault_of_the_plan():
    values = {
        observation.metric: observation.value
        for observation in observe_trace(build_trace(1, "validation error: unexpected argument"), None, ())
    }
    assert (values[STEP_METRICS["plan"]], values[STEP_METRICS["tool"]]) == (0.0, 1.0)


def test_a_trace_without_steps_has_no_figure_of_steps():
    metrics = {seen.metric for seen in observe_trace(replace(build_trace(1), steps=None), None, ())}
    assert metrics.isdisjoint(STEP_METRICS.values())


@pytest.mark.long
def test_the_command_names_the_kind_of_step_that_broke(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    traces = [build_trace(place, "timeout" if place >= BROKEN_FROM else None) for place in range(3000)]
    (tmp_path / "live.jsonl").write_bytes(b"".join(msgspec.json.encode(trace) + b"\n" for trace in traces))
    assert (
        run_command(["evaluate", str(tmp_path / "live.jsonl"), "-o", str(tmp_path / "run"), "-q", "-m", "error"]) == 0
    )
    assert run_command(["monitor", str(tmp_path / "run"), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["drops"][0]["reference"]["metric"] == STEP_METRICS["tool"]


@pytest.mark.parametrize(
    ("metric", "usual", "later", "sentence"),
    [
        ("error", 0.0, 0.4, "More traces end in an error: error rose by 0.4"),
        (LOG_LATENCY, 0.48, 0.53, "Traces take longer: log_latency rose by 0.05"),
    ],
)
def test_more_errors_and_twice_the_latency_are_drops_without_a_layer(metric, usual, later, sentence):
    """They are named as what they are, and no layer is."""
    measure = MetricInfo(metric, "operation", "lower")
    values = [usual if at < 3000 else later for at in range(4000)]
    seen = [
        Observation(metric=metric, trace=str(at), time=30.0 * at, value=float(at % 5 < 2) if value == 0.4 else value)
        for at, value in enumerate(values)
    ]
    [drop] = monitor(roll_up(seen), [measure]).drops
    assert describe_drop(drop).startswith(sentence)
    assert drop.location.fault is None


@pytest.mark.parametrize(("share", "grounded", "is_named"), [(0.5, 0.45, False), (0.1, 0.2, True)])
def test_a_layer_is_named_where_failing_traces_cannot_explain_the_drop(share, grounded, is_named):
    """Answers without chunks are not grounded: half of them lower groundedness by half, and a tenth not by .7."""
    measures = [MetricInfo("empty_retrieval", "operation", "lower"), MetricInfo("groundedness", "generation")]
    values = [(0.0, 0.9) if at < 3000 else (float(at % 10 < 10 * share), grounded) for at in range(4000)]
    seen = [
        Observation(metric=measure.name, trace=str(at), time=30.0 * at, value=value)
        for at, pair in enumerate(values)
        for measure, value in zip(measures, pair, strict=True)
    ]
    drops = {drop.reference.metric: drop for drop in monitor(roll_up(seen), measures).drops}
    text = describe_drop(drops["groundedness"])
    assert text.startswith("Generation broke") == is_named
    assert ("more traces fail, or have no chunk or no answer, which may be all of it" in text) != is_named
