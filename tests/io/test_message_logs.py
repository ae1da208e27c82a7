"""Message logs of agents."""

import json

import pytest

from ragfault.io.agents.message_logs import read_agent_log
from ragfault.io.trace_reader import read_traces

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


def read_one(record):
    [trace] = read_traces([record])
    return trace


def describe(trace):
    return [(step.kind, step.agent, step.name, step.error) for step in trace.steps]


def test_events_of_autogen_are_the_plan_of_their_agent_and_a_step_for_each_result():
    request = [{"id": "a", "name": "search_docs", "arguments": '{"query": "Oslo"}'}]
    request.append({"id": "b", "name": "weather", "arguments": "{}"})
    results = [{"call_id": "b", "name": "weather", "content": "no key", "is_error": True}]
    results.append({"call_id": "a", "name": "search_docs", "content": "Oslo, 1040.", "is_error": False})
    messages = [
        {"source": "user", "type": "TextMessage", "content": QUESTION["content"]},
        {"source": "clerk", "type": "ToolCallRequestEvent", "content": request},
        {"source": "clerk", "type": "ToolCallExecutionEvent", "content": results},
        {"source": "clerk", "type": "ToolCallSummaryMessage", "content": "In 1040.", "results": results},
        {"source": "critic", "type": "TextMessage", "content": "APPROVE"},
    ]
    trace = read_one({"messages": messages, "stop_reason": "approved"})
    assert describe(trace) == [
        ("plan", "clerk", None, None),
        ("tool", None, "weather", "no key"),
        ("retrieve", None, "search_docs", None),
        ("generate", "clerk", None, None),
        (None, "critic", None, None),
    ]
    assert (trace.query, trace.answer, trace.chunks[0].text) == (QUESTION["content"], "In 1040.", "Oslo, 1040.")


@pytest.mark.parametrize("end", [("critic", "TERMINATE", "StopMessage"), ("user_proxy", "APPROVE", "TextMessage")])
def test_words_that_end_a_run_are_neither_a_step_nor_an_answer_nor_a_question(end):
    """The answer is the step before, without its own closing word, and its steps are kept."""
    rows = [
        {"source": "user", "content": "When?", "type": "TextMessage"},
        {"source": "clerk", "content": [{"id": "c", "name": "run", "arguments": "{}"}], "type": "ToolCallRequestEvent"},
        {"source": "clerk", "content": [{"content": "1040", "call_id": "c"}], "type": "ToolCallExecutionEvent"},
        {"source": "coder", "content": "no", "result": {"exit_code": 1, "output": "no"}, "type": "CodeExecutionEvent"},
        {"source": "clerk", "content": "In 1040. TERMINATE", "type": "TextMessage"},
        dict(zip(("source", "content", "type"), end, strict=True)),
    ]
    trace = read_one({"messages": rows})
    assert (trace.query, trace.answer, trace.steps[-1].output) == ("When?", "In 1040.", "In 1040.")
    assert [(step.kind, step.error) for step in trace.steps] == [
        ("plan", None),
        ("tool", None),
        ("tool", "no"),
        ("generate", None),
    ]


def test_passing_a_conversation_to_an_agent_that_searches_retrieves_nothing():
    calls = [{"id": name, "name": name, "args": {}, "type": "tool_call"} for name in ("transfer_to_research", "search")]
    results = ["Successfully transferred to research", "Oslo, 1040."]
    messages = [{"type": "human", "content": "When?"}]
    for call, result in zip(calls, results, strict=True):
        messages += [{"type": "ai", "content": "", "tool_calls": [call]}]
        messages += [{"type": "tool", "tool_call_id": call["id"], "content": result}]
    trace = read_one({"messages": [*messages, {"type": "ai", "content": "In 1040."}]})
    assert [step.kind for step in trace.steps] == ["plan", "tool", "plan", "retrieve", "generate"]
    assert [chunk.text for chunk in trace.chunks] == ["Oslo, 1040."]


def test_a_chat_that_the_proxy_of_the_user_begins_asks_the_question_in_its_first_message():
    messages = [
        {"role": "assistant", "name": "user_proxy", "content": "When?"},
        {"role": "assistant", "name": "clerk", "content": "", "tool_calls": [CALL]},
        {
            "role": "tool",
            "name": "user_proxy",
            "content": "1040",
            "tool_responses": [{"role": "tool", "tool_call_id": "c1", "content": "Oslo, 1040."}],
        },
        {"role": "user", "name": "clerk", "content": "In 1040. TERMINATE"},
    ]
    trace = read_one({"chat_history": messages, "cost": {}})
    assert (trace.query, trace.answer, trace.history) == ("When?", "In 1040.", None)
    assert [step.kind for step in trace.steps] == ["plan", "retrieve", "generate"]


def test_results_in_the_blocks_of_a_message_are_steps_and_not_questions():
    blocks = [{"type": "mcp_tool_use", "id": "m", "name": "search_docs", "input": {"query": "Oslo"}}]
    blocks.append({"type": "mcp_tool_result", "tool_use_id": "m", "content": [{"type": "text", "text": "1040"}]})
    blocks.append({"type": "text", "text": "In 1040."})
    inline = read_one({"messages": [QUESTION, {"role": "assistant", "content": blocks}]})
    assert [step.kind for step in inline.steps] == ["plan", "retrieve", "generate"]
    assert inline.answer == "In 1040."
    call = [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "t", "name": "fares", "input": {}}]
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "timeout", "is_error": True}]
    turns = [{"role": "assistant", "content": call}, {"role": "user", "content": result}]
    trace = read_one({"messages": [QUESTION, *turns, {"role": "assistant", "content": "I cannot look."}]})
    assert (trace.query, trace.steps[1].error) == (QUESTION["content"], "timeout")


def test_a_response_that_searches_is_read_with_its_files_and_without_lists_of_tools():
    results = [{"file_id": "f1", "filename": "oslo.md", "text": "Oslo, 1040.", "score": 0.9}]
    output = [
        {"type": "file_search_call", "id": "a", "queries": ["Oslo"], "status": "completed", "results": results},
        {"type": "web_search_call", "id": "b", "status": "completed", "action": {"type": "search", "query": "Oslo"}},
        {"type": "mcp_list_tools", "id": "c", "server_label": "s", "tools": []},
        {"type": "code_interpreter_call", "id": "d", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "In 1040."}]},
    ]
    trace = read_one({"id": "r", "input": QUESTION["content"], "output": output})
    assert [step.name for step in trace.steps] == ["file_search", "web_search", "code_interpreter", None]
    assert (trace.chunks[0].id, trace.steps[0].chunks, trace.steps[1].chunks) == ("f1", ("f1",), None)
    asked = [QUESTION, {"type": "function_call", "call_id": "k", "name": "search", "arguments": "{}"}]
    asked.append({"type": "function_call_output", "call_id": "k", "output": "1040"})
    both = read_one({"input": asked, "output": output[-1:]})
    assert [step.kind for step in both.steps] == ["plan", "retrieve", "generate"]


def test_documents_of_a_retriever_as_a_tool_are_the_chunks_of_its_message():
    documents = [{"page_content": "Oslo, 1040.", "id": "d7", "metadata": {"source": "oslo.md"}}]
    turns = [
        {"type": "human", "content": "When?"},
        {"type": "ai", "content": "", "tool_calls": [{"id": "x", "name": "retrieve_docs", "args": {"query": "Oslo"}}]},
        {"type": "tool", "name": "retrieve_docs", "tool_call_id": "x", "content": "Oslo.", "artifact": documents},
        {"type": "ai", "content": "In 1040."},
    ]
    trace = read_one({"messages": turns})
    assert (trace.steps[1].chunks, trace.steps[1].agent, trace.chunks[0].text) == (("d7",), None, "Oslo, 1040.")


def test_tasks_of_a_crew_are_the_steps_of_one_trace():
    tasks = [
        {"description": "Find the year.", "name": "find", "agent": "Researcher", "raw": "1040"},
        {"description": "Write it.", "name": "write", "agent": "Writer", "raw": "In 1040."},
    ]
    crew = {"raw": "In 1040.", "inputs": {"question": "When?"}, "tasks_output": tasks}
    trace = read_one({**crew, "token_usage": {"prompt_tokens": 80, "completion_tokens": 20}})
    assert (trace.query, trace.answer, trace.tokens.prompt) == ("When?", "In 1040.", 80)
    assert describe(trace) == [(None, "Researcher", "find", None), ("generate", "Writer", "write", None)]


def test_events_of_a_crew_make_a_trace_for_each_of_its_runs():
    def event(name, status, **more):
        return {
            "timestamp": "2026-03-01 10:00:00",
            "task_name": name,
            "task": f"{name} it",
            "agent": "a",
            "status": status,
            **more,
        }

    run = [event("find", "started"), event("find", "completed", output="1040"), event("write", "started")]
    events = [*run, event("write", "failed", output="no model"), *run, event("write", "completed", output="In 1040.")]
    first, second = read_traces(events)
    assert (first.answer, first.steps[1].error, second.answer) == (None, "no model", "In 1040.")
