"""Decisions: what a span's event and a trace hold of them is one record, and reads back as it was decided."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ragfault.apps.guard.actions import ActionSettings, answer
from ragfault.apps.guard.decisions import GuardDecision, attach_decisions, describe_decision, read_decisions
from ragfault.apps.guard.policy import parse_policy
from ragfault.apps.guard.runtime import Guard
from ragfault.io.otel.guard_events import GUARD_EVENT, MAX_DECISIONS, parse_guard_attributes, to_guard_attributes
from ragfault.io.otel.spans import OtelSpan, SpanEvent
from ragfault.io.otel.trace_mapping import build_trace
from ragfault.model.records import Chunk, Trace

CHUNK = Chunk(id="a", text="The harbour office opens at 7:30 on weekdays and closes at noon.")
KEY = "Use AKIA1BCDEFGHIJKLMNO2 now."
POLICY = "[rails.groundedness]\n[rails.secrets]\noutcome = 'fix'\n[rails.jailbreak]"
ANSWERS = (CHUNK.text, "The captain plays the violin in Vienna.", KEY, None)


def make_guard(**options: Any) -> Guard:
    return Guard(parse_policy(POLICY), judge="lexical", **options)


def make_trace(answer: str | None, query: str = "When does the office open?") -> Trace:
    return Trace(id="1", query=query, chunks=(CHUNK,), answer=answer, route="web")


def make_decisions() -> list[GuardDecision]:
    """Decide on an answer that passes, one that is blocked, one that is fixed and blocked, and a query alone."""
    guard = make_guard()
    return [guard.decide(make_trace(text)) for text in ANSWERS]


def build_guarded_trace(events: tuple[SpanEvent, ...]) -> Trace | None:
    attributes = {"openinference.span.kind": "CHAIN", "input.value": "When?", "output.value": "At ten."}
    return build_trace([OtelSpan(trace="0" * 31 + "1", id="1" * 16, attributes=attributes, events=events)])


@pytest.mark.parametrize("at", range(len(ANSWERS)))
def test_a_decision_reads_back_from_the_event_of_a_span(at: int) -> None:
    decision = make_decisions()[at]
    event = SpanEvent(name=GUARD_EVENT, attributes=to_guard_attributes(describe_decision(decision)))
    trace = build_guarded_trace((event,))
    assert trace is not None
    [read] = read_decisions(trace)
    [attached] = read_decisions(attach_decisions(make_trace(None), [decision]))
    assert read == attached
    for name in ("outcome", "stage", "risk", "threshold", "promised", "reason", "route", "answer"):
        assert getattr(read, name) == getattr(decision, name), name
    assert {(item.rail, item.stage) for item in read.results} == {(item.rail, item.stage) for item in decision.results}


def test_a_risk_of_zero_is_not_taken_for_none() -> None:
    decision = GuardDecision(trace="1", outcome="pass", risk=0.0)
    assert read_decisions(attach_decisions(make_trace(None), [decision]))[0].risk == 0.0


def test_no_text_of_the_answer_is_in_the_record() -> None:
    for decision in make_decisions()[:3]:
        record = str(describe_decision(decision))
        assert "violin" not in record
        assert "AKIA" not in record
        assert "7:30" not in record


def test_attributes_that_are_no_decision_do_no_harm() -> None:
    for attributes in (
        {"ragfault.guard.outcome": "sideways"},
        {"ragfault.guard.rail.rail": ["a", "b"], "ragfault.guard.rail.outcome": ["pass"]},
        {"ragfault.guard.outcome": "pass", "ragfault.guard.rail.rail": "secrets"},
        {},
    ):
        trace = build_guarded_trace((SpanEvent(name=GUARD_EVENT, attributes=attributes),))
        assert trace is not None
        assert len(read_decisions(trace)) <= 1
        assert isinstance(parse_guard_attributes(attributes), dict)
    assert read_decisions(Trace(id="1", query="When?", metadata={"guard_decisions": "yes"})) == ()


def test_a_trace_keeps_the_last_decisions_and_no_more() -> None:
    trace = make_trace(None)
    for at in range(MAX_DECISIONS + 5):
        trace = attach_decisions(trace, [GuardDecision(trace=str(at), outcome="pass")])
    assert [decision.trace for decision in read_decisions(trace)] == [str(at) for at in range(5, MAX_DECISIONS + 5)]


def test_the_active_span_gets_every_decision_also_from_another_thread_and_within_a_loop() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider, guard = InMemorySpanExporter(), TracerProvider(), make_guard()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    guard.decide(make_trace(CHUNK.text))  # without a span nothing happens

    async def decide_within_loop() -> None:
        guard.decide(make_trace(ANSWERS[1]))

    with tracer.start_as_current_span("request"):
        guard.decide(make_trace(CHUNK.text))
        asyncio.run(decide_within_loop())
    [span] = exporter.get_finished_spans()
    events = [event for event in span.events if event.name == GUARD_EVENT]
    assert [(event.attributes or {})["ragfault.guard.outcome"] for event in events] == ["pass", "block"]
    assert "secrets" in (events[0].attributes or {})["ragfault.guard.rail.rail"]  # type: ignore[operator]


def test_the_action_that_ends_a_request_is_its_last_decision() -> None:
    seen: list[GuardDecision] = []
    guard = make_guard(sink=seen.append)
    settings = ActionSettings(("correct", "disclaim"))
    guarded = answer(guard, "When?", lambda *_: [CHUNK.text], lambda *_: ANSWERS[1], settings=settings)
    assert [decision.action for decision in seen] == ["", "", "disclaim"]
    assert not seen[-1].abstained
    assert seen[1].abstained
    assert guarded.decision == seen[-1]
    assert {result.stage for result in seen[0].results} == {"input", "retrieval", "output"}
