"""Message logs of agents."""

import json

import pytest

from ragfault.io import read_traces
from ragfault.io.agents.message_logs import read_agent_log

QUESTION = {"role": "user", "content": "When was Oslo founded?"}
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "search_docs", "arguments": json.dumps({"query": "Oslo founded"})},
}


def summarize(record):
    return [(s["id"], s.get("kind"), s.get("parent"), "error" in s) for s in read_agent_log(record).steps]


def test_calls_of_tools_are_steps_below_the_message_that_makes_them():
    result = {"role": "tool", "tool_call_id": "c1", "content": "Oslo was founded in 1040."}
    turns = [QUESTION, {"role": "assistant", "content": None, "tool_calls": [CALL]}, result]
    turns.append({"role": "assistant", "content": "In 1040."})
    log = read_agent_log({"messages": turns})
    assert summarize({"messages": turns}) == [
        ("1", "plan", None, False),
        ("2", "retrieve", "1", False),
        ("3", "generate", None, False),
    ]
    assert (log.answer, log.query, log.chunks[0]["text"]) == (
        "In 1040.",
        QUESTION["content"],
        "Oslo was founded in 1040.",
    )
    assert log.steps[1]["input"] == "Oslo founded"


def test_a_failed_tool_is_a_step_with_an_error():
    turns = [QUESTION, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "content": "Error: timeout"}]
    assert summarize({"messages": turns}) == [("1", "plan", None, False), ("2", "retrieve", "1", True)]


def test_a_call_that_the_host_could_not_run_is_an_error_of_its_message():
    turns = [QUESTION, {"role": "assistant", "content": "<call>Oslo</call>"}]
    turns += [
        {"role": "user", "content": "No effective tool call detected."},
        {"role": "assistant", "content": "1040", "tool_calls": [CALL]},
    ]
    assert summarize({"messages": turns})[1] == ("2", "tool", "1", True)


def test_messages_of_langgraph_are_steps():
    turns = [
        {"type": "human", "content": "When?"},
        {"type": "ai", "content": "", "tool_calls": [{"id": "c1", "name": "lookup", "args": {"q": "Oslo"}}]},
        {"type": "tool", "tool_call_id": "c1", "name": "lookup", "content": "1040", "status": "success"},
        {"type": "ai", "content": "In 1040."},
    ]
    assert [step[1] for step in summarize({"messages": turns})] == ["plan", "retrieve", "generate"]


def test_items_of_openai_responses_are_steps():
    items = [
        {"role": "user", "content": "When?"},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "sunny"},
        {
            "type": "file_search_call",
            "id": "f",
            "queries": ["Oslo"],
            "results": [{"file_id": "a", "text": "1040", "score": 0.5}],
        },
        {"type": "mcp_call", "id": "m", "name": "ask", "arguments": "{}", "error": "no server", "output": None},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "In 1040."}]},
    ]
    log = read_agent_log({"output": items})
    assert [step["kind"] for step in log.steps] == ["plan", "tool", "retrieve", "tool", "generate"]
    assert (log.chunks[0]["id"], log.steps[3]["error"]) == ("a", "no server")


@pytest.mark.parametrize("key", ["source", "name"])
def test_a_group_chat_has_a_step_for_each_message_of_an_agent(key):
    turns = [
        {key: "user", "role": "user", "content": "Sum the invoices."},
        {key: "Coder", "role": "user", "content": "print(12)"},
        {key: "Computer_terminal", "role": "tool", "content": "exitcode: 1 (execution failed)"},
        {key: "Reviewer", "role": "user", "content": "It is 12."},
    ]
    log = read_agent_log({"messages": turns})
    assert [step["agent"] for step in log.steps] == ["Coder", "Computer_terminal", "Reviewer"]
    assert "error" in log.steps[1]


def test_roles_that_are_names_of_agents_make_a_team():
    turns = [{"role": "human", "content": "Find it."}, {"role": "Orchestrator (thought)", "content": "Plan."}]
    turns += [{"role": "WebSurfer", "content": "I opened the page."}]
    assert [step["agent"] for step in read_agent_log({"history": turns}).steps] == [
        "Orchestrator (thought)",
        "WebSurfer",
    ]


def test_a_plain_conversation_has_no_steps():
    assert read_agent_log({"messages": [QUESTION, {"role": "assistant", "content": "In 1040."}]}) is None


def test_steps_of_a_file_reach_the_trace_with_the_chunks_they_returned():
    result = {"role": "tool", "tool_call_id": "c1", "content": "Oslo was founded in 1040."}
    turns = [
        QUESTION,
        {"role": "assistant", "tool_calls": [CALL]},
        result,
        {"role": "assistant", "content": "In 1040."},
    ]
    [trace] = read_traces([{"id": "1", "messages": turns}])
    assert [step.kind for step in trace.steps] == ["plan", "retrieve", "generate"]
    assert trace.steps[1].chunks == (trace.chunks[0].id,)
    assert (trace.query, trace.answer) == (QUESTION["content"], "In 1040.")
