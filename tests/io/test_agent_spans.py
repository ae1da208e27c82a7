"""Spans of agents: plans, memories, tools and workflows, and chunks that are named by their ids alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragfault.diagnosis.steps.operations import list_operation_faults
from ragfault.io.otel.spans import OtelSpan
from ragfault.io.otel.trace_mapping import build_trace
from ragfault.io.trace_reader import read_traces
from ragfault.model.records import Chunk, Trace

QUERY = "When does the last ferry to Texel leave?"


def message(role: str, text: str | None = None, call: dict[str, Any] | None = None) -> str:
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
    parts += [{"type": "tool_call", "id": "c1", **call}] if call else []
    return json.dumps([{"role": role, "parts": parts}])


def build_span(place: int, name: str, parent: int | None = 0, **recorded: Any) -> OtelSpan:
    """Build a span that runs after the ones before it; the root runs around all."""
    return OtelSpan(
        trace="t",
        id=str(place),
        parent=None if parent is None else str(parent),
        name=name,
        start=place * 10,
        end=1000 if parent is None else place * 10 + 5,
        attributes=recorded,
    )


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
        build_span(
            1,
            "search_memory",
            **operation("search_memory", memory__query__text="ferry", memory__records=json.dumps(records)),
        ),
        build_span(2, "plan", **operation("plan", agent__name="clerk")),
        build_span(3, "chat", 2, **operation("chat", request__model="m", output__messages=call)),
        build_span(
            4,
            "retrieval",
            **operation("retrieval", retrieval__query__text="last ferry Texel", retrieval__documents=json.dumps(first)),
        ),
        build_span(5, "chat", **operation("chat", request__model="m", response__finish_reasons=["tool_calls"])),
        build_span(
            6,
            "execute_tool",
            **operation(
                "execute_tool",
                tool__name="fares",
                tool__call__arguments='{"to":"Texel","day":"today"}',
                tool__call__result='{"price": "12 pounds"}',
            ),
        ),
        build_span(7, "retrieval", **operation("retrieval", retrieval__documents=json.dumps(second))),
        build_span(8, "chat", **operation("chat", input__messages=asked, output__messages=message("model", "22:40."))),
    ]


def test_plans_memories_and_tools_of_gen_ai_are_steps_of_their_kinds():
    trace = build_trace(agent_spans())
    assert [step.kind for step in trace.steps] == [
        None,
        "memory",
        "plan",
        "plan",
        "retrieve",
        "plan",
        "tool",
        "retrieve",
        "generate",
    ]
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


STATED = {
    "an attribute": {"ragfault.step.kind": "KIND"},
    "an operation of gen_ai": {"gen_ai.operation.name": "KIND"},
    "metadata of OpenInference": {"openinference.span.kind": "CHAIN", "metadata": '{"ragfault.step.kind": "KIND"}'},
    "metadata of Langfuse": {
        "langfuse.observation.type": "span", "langfuse.observation.metadata.ragfault.step.kind": "KIND",
    },
    "properties of OpenLLMetry": {
        "traceloop.span.kind": "task", "traceloop.association.properties.ragfault.step.kind": "KIND",
    },
}  # fmt: skip
"""Ways to state the kind of a step."""


def staged_spans(stated: dict[str, str], *, with_root: bool = True) -> list[OtelSpan]:
    """Return the spans of a pipeline that rewrites the question by a model, searches, reads and answers."""

    def stage(kind: str, given: str, returned: str) -> dict[str, Any]:
        recorded = {key: value.replace("KIND", kind) for key, value in stated.items()}
        return recorded | {"input.value": given, "output.value": returned}

    documents = json.dumps([{"id": "ferry.md", "content": "The last ferry leaves at 22:40."}])
    asked = operation("chat", request__model="m", input__messages=message("user", f"Rewrite: {QUERY}"))
    root = build_span(0, "ask", None, **{"openinference.span.kind": "CHAIN", "input.value": QUERY})
    return [
        *([root] if with_root else []),
        build_span(1, "condense", **stage("rewrite", QUERY, "last ferry Texel")),
        build_span(2, "chat", 1, **asked, **{"gen_ai.output.messages": message("assistant", "last ferry Texel")}),
        build_span(
            3,
            "search",
            **operation("retrieval", retrieval__query__text="last ferry Texel", retrieval__documents=documents),
        ),
        build_span(4, "extract", **stage("read", "last ferry Texel", "leaves at 22:40")),
        build_span(5, "chat", **operation("chat", request__model="m", output__messages=message("assistant", "22:40."))),
    ]


@pytest.mark.parametrize("name", STATED)
def test_rewriting_and_reading_are_steps_where_spans_state_them(name: str):
    """The model that rewrites is part of the rewriting: it neither answers nor is it an answer without reading."""
    trace = build_trace(staged_spans(STATED[name]))
    assert [step.kind for step in trace.steps] == [None, "rewrite", "rewrite", "retrieve", "read", "generate"]
    assert (trace.query, trace.answer) == (QUERY, "22:40.")
    assert [(step.input, step.output) for step in trace.steps if step.name == "extract"] == [
        ("last ferry Texel", "leaves at 22:40")
    ]
    assert list_operation_faults(trace) == ()


def test_the_question_is_what_was_rewritten_and_no_rewriting_is_the_answer():
    """Without a span around all, the input of the rewriting is the query; without an answer there is none."""
    trace = build_trace(staged_spans(STATED["an attribute"], with_root=False)[:-1])
    assert (trace.query, trace.answer) == (QUERY, None)


def test_a_stage_that_encloses_a_search_is_more_than_its_kind():
    """A router around a whole pipeline leaves the calls of models in it what they are."""
    spans = staged_spans(STATED["an attribute"])
    spans[0] = build_span(0, "router", None, **{"ragfault.step.kind": "route", "input.value": QUERY})
    trace = build_trace(spans)
    assert [step.kind for step in trace.steps] == ["route", "rewrite", "rewrite", "retrieve", "read", "generate"]
    assert (trace.query, trace.answer) == (QUERY, "22:40.")


def test_metadata_that_a_search_inherits_do_not_rename_it():
    """Frameworks hand metadata down: a search within a rewriting stays a search; an unknown kind says nothing."""
    inherited = {"metadata": {"ragfault.step.kind": "rewrite"}}
    search = operation("retrieval", retrieval__query__text="ferry", retrieval__documents='[{"id": "a"}]')
    chain = {"openinference.span.kind": "CHAIN", "input.value": QUERY, "ragfault.step.kind": "dance"}
    trace = build_trace([build_span(0, "ask", None, **chain), build_span(1, "search", **search, **inherited)])
    assert [step.kind for step in trace.steps] == [None, "retrieve"]


def test_the_kind_is_read_from_exports_of_platforms(tmp_path: Path):
    """Langfuse and LangSmith keep it in the metadata of an observation or run."""
    langfuse = {
        "id": "t",
        "timestamp": "2026-01-01T00:00:00Z",
        "input": QUERY,
        "output": "22:40.",
        "observations": [
            {
                "id": "o",
                "type": "SPAN",
                "name": "condense",
                "startTime": "2026-01-01T00:00:01Z",
                "input": QUERY,
                "output": "last ferry",
                "metadata": {"ragfault.step.kind": "rewrite"},
            }
        ],
    }
    child = {
        "id": "b",
        "run_type": "chain",
        "name": "condense",
        "start_time": "2026-01-01T00:00:01Z",
        "inputs": {"query": QUERY},
        "outputs": {"output": "ferry"},
        "extra": {"metadata": {"ragfault.step.kind": "rewrite"}},
    }
    langsmith = {
        "id": "a",
        "run_type": "chain",
        "start_time": "2026-01-01T00:00:00Z",
        "inputs": {"query": QUERY},
        "outputs": {"output": "22:40."},
        "child_runs": [child],
    }
    for record in (langfuse, langsmith):
        path = tmp_path / "export.jsonl"
        path.write_text(json.dumps(record) + "\n", encoding="utf-8")
        [trace] = read_traces(path)
        assert [step.kind for step in trace.steps] == [None, "rewrite"]
        assert (trace.query, trace.answer) == (QUERY, "22:40.")
