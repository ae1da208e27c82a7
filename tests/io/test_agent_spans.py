"""Spans of agents: plans, memories, tools and workflows, and chunks that are named by their ids alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ragfault.io import read_traces
from ragfault.io.otel import OtelSpan, build_trace
from ragfault.records import Chunk, Trace

QUERY = "When does the last ferry to Texel leave?"


def message(role: str, text: str | None = None, call: dict[str, Any] | None = None) -> str:
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
    parts += [{"type": "tool_call", "id": "c1", **call}] if call else []
    return json.dumps([{"role": role, "parts": parts}])


def build_span(place: int, name: str, parent: int | None = 0, **recorded: Any) -> OtelSpan:
    """Build a span that runs after the ones before it; the root runs around all."""
    return OtelSpan(
        trace="t", id=str(place), parent=None if parent is None else str(parent), name=name, start=place * 10,
        end=1000 if parent is None else place * 10 + 5, attributes=recorded,
    )  # fmt: skip


def operation(name: str, **recorded: Any) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": name,
        **{f"gen_ai.{key.replace('__', '.')}": value for key, value in recorded.items()},
    }


def agent_spans() -> list[OtelSpan]:
    """Return the spans of a workflow whose agent remembers, plans, searches, calls a tool, searches again, answers."""
    asked = message("user", QUERY)
    call = message("assistant", "I look it up.", {"name": "search", "arguments": {"query": "last ferry Texel"}})
    records = [{"id": "m1", "content": "The guest has a dog."}, {"content": {"fact": "asked about Texel"}}]
    first, second = [{"id": "ferry.md", "score": 0.9}, {"id": "dogs.md"}], [{"id": "winter.md", "score": 0.7}]
    return [
        build_span(0, "run", None, **operation("invoke_workflow", workflow__name="help", input__messages=asked)),
        build_span(1, "search_memory", **operation(
            "search_memory", memory__query__text="ferry", memory__records=json.dumps(records))),
        build_span(2, "plan", **operation("plan", agent__name="clerk")),
        build_span(3, "chat", 2, **operation("chat", request__model="m", output__messages=call)),
        build_span(4, "retrieval", **operation(
            "retrieval", retrieval__query__text="last ferry Texel", retrieval__documents=json.dumps(first))),
        build_span(5, "chat", **operation("chat", request__model="m", response__finish_reasons=["tool_calls"])),
        build_span(6, "execute_tool", **operation(
            "execute_tool", tool__name="fares", tool__call__arguments='{"to":"Texel","day":"today"}',
            tool__call__result='{"price": "12 pounds"}')),
        build_span(7, "retrieval", **operation("retrieval", retrieval__documents=json.dumps(second))),
        build_span(8, "chat", **operation("chat", input__messages=asked, output__messages=message("model", "22:40."))),
    ]  # fmt: skip


def test_plans_memories_and_tools_of_gen_ai_are_steps_of_their_kinds():
    trace = build_trace(agent_spans())
    assert [step.kind for step in trace.steps] == [
        None, "memory", "plan", "plan", "retrieve", "plan", "tool", "retrieve", "generate",
    ]  # fmt: skip
    workflow, memory, plan, thought, *_, tool, _, _ = trace.steps
    assert (workflow.name, plan.agent, tool.name) == ("help", "clerk", "fares")
    assert (memory.input, memory.output) == ("ferry", "The guest has a dog.\nasked about Texel")
    assert thought.output == 'I look it up.\nsearch({"query":"last ferry Texel"})'
    assert (tool.input, tool.output) == ('{"to":"Texel","day":"today"}', "12 pounds")
    assert (trace.query, trace.answer) == (QUERY, "22:40.")


def test_chunks_of_every_search_that_an_agent_read_are_those_of_the_trace():
    assert [chunk.id for chunk in build_trace(agent_spans()).chunks] == ["winter.md", "ferry.md", "dogs.md"]


def test_of_a_pipeline_only_the_last_stage_was_read():
    spans = [span for span in agent_spans() if span.name not in ("chat", "plan")]
    assert [chunk.id for chunk in build_trace(spans).chunks] == ["winter.md"]


def test_calls_of_tools_in_the_attributes_of_other_conventions_make_a_plan():
    numbered = {"openinference.span.kind": "LLM", "input.value": QUERY}
    name = "llm.output_messages.0.message.tool_calls.0.tool_call.function"
    traceloop = {"llm.request.type": "chat", "gen_ai.completion.0.tool_calls.0.name": "search", "input.value": QUERY}
    numbered |= {f"{name}.name": "search", f"{name}.arguments": '{"q": "Oslo"}'}
    answer = {"choices": [{"message": {"role": "assistant", "tool_calls": [{"function": {"name": "search"}}]}}]}
    chat = {"openinference.span.kind": "LLM", "input.value": QUERY, "output.value": json.dumps(answer)}
    for recorded in (numbered, traceloop, chat):
        [step] = build_trace([build_span(0, "call", None, **recorded)]).steps
        assert step.kind == "plan"
        assert step.output.startswith("search(")


def test_a_call_over_mcp_is_a_tool():
    recorded = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "fares", "gen_ai.tool.call.result": "12 pounds"}
    spans = [*agent_spans()[:1], build_span(1, "tools/call fares", **recorded)]
    step = build_trace(spans).steps[1]
    assert (step.kind, step.name, step.output) == ("tool", "fares", "12 pounds")


def test_chunks_without_a_text_have_that_of_the_document_with_their_id(tmp_path: Path):
    (tmp_path / "ferry.md").write_text("The last ferry leaves at 22:40.")
    chunks = (
        Chunk(id="ferry.md"),
        Chunk(id="p7", document="ferry.md", start=4, end=14),
        Chunk(id="own", text="a lead"),
    )
    notices: list[str] = []
    given = [Trace(id="1", query=QUERY, chunks=(*chunks, Chunk(id="lost")))]
    [trace] = read_traces(given, documents=tmp_path, notice=notices.append)
    assert [chunk.text for chunk in trace.chunks] == ["The last ferry leaves at 22:40.", "last ferry", "a lead", ""]
    assert notices[-1] == "2 of 3 chunks without a text have that of a document; no document for 1: lost"
