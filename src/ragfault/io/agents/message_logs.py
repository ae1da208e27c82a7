"""Message logs of agents: who said what, which tools were called and what they returned, as steps of a trace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ragfault.io.agents.message_parts import CALL_TYPES, divide_messages
from ragfault.io.field_values import make_content_id
from ragfault.io.formats.conversations import ROLES
from ragfault.io.formats.field_words import join_words
from ragfault.io.formats.texts import join_text

LOG_KEYS = ("steps", "messages", "trajectory", "history", "chat_history", "events", "input", "output", "items")
"""Columns that may hold the messages of an agent, in the order in which they are tried."""
AGENT_KEYS = ("name", "agent", "source", "sender", "agent_name")
SEARCH_WORDS = re.compile(r"search|retriev|quer|lookup|look_up|wiki|browse|knowledge|fetch|docs?\b|rag", re.IGNORECASE)
HANDOFF = re.compile(r"transfer_(back_)?to_|hand_?off", re.IGNORECASE)
"""A call that passes the conversation to another agent, which may be named for its search."""
MEMORY_WORDS = re.compile(r"memor|recall|remember", re.IGNORECASE)
FAILURE = re.compile(
    r"^\W{0,12}(error|exception|traceback|failed|failure)\b|exit ?code: [1-9]|traceback \(most recent call|"
    r"\b\w+error: |\b(tool|function) not found|is not a valid tool",
    re.IGNORECASE,
)
"""Texts by which a tool says that it failed."""
UNEXECUTED = re.compile(r"\bno (effective|valid) (tool|function) call|\binvalid (tool|function) call", re.IGNORECASE)
"""Texts by which the host of an agent says that it could not run what the agent wrote."""
CLOSING = re.compile(r"^\W*(terminate|approved?|exit)?\W*$", re.IGNORECASE)
"""A message that only ends the run, or is empty."""
CLOSING_WORD = re.compile(r"\s+TERMINATE[.!]?\s*$")
END = re.compile(r"\W*(terminate\W*)?", re.IGNORECASE)
"""A message without content: it is no step."""
CALLED_ELSEWHERE = ("function_call", "custom_tool_call", "local_shell_call", "computer_call", "shell_call")
"""Items of OpenAI Responses whose result is an item of its own."""
ERROR_LENGTH = 300
"""Characters that are kept of the text of a failure."""


class ToolCall(NamedTuple):
    """A call of a tool in a message."""

    id: str | None
    name: str | None
    arguments: str


class AgentMessage(NamedTuple):
    """One message of a log: a question, a message of an agent, or what a tool returned."""

    id: str
    role: str
    agent: str | None
    text: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    documents: tuple[Any, ...] | None = None
    is_failed: bool = False


class AgentLog(NamedTuple):
    """The steps of a trace, with the chunks that they returned and the last text of an agent."""

    steps: list[dict[str, Any]]
    chunks: list[dict[str, Any]]
    answer: str | None
    query: str | None
    history: list[dict[str, Any]]
    columns: tuple[str, ...]
    """The columns that the messages stand in."""


def read_agent_log(record: Mapping[str, Any]) -> AgentLog | None:
    """Read the messages of an agent in a record; None where it holds none, or a conversation without tools or teams.

    >>> call = {"function": {"name": "search", "arguments": '{"query": "Oslo"}'}, "id": "1"}
    >>> turns = [{"role": "user", "content": "When?"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    >>> turns += [{"role": "tool", "tool_call_id": "1", "content": "1040"}, {"role": "assistant", "content": "1040"}]
    >>> [(step["id"], step["kind"], step.get("parent")) for step in read_agent_log({"messages": turns}).steps]
    [('1', 'plan', None), ('2', 'retrieve', '1'), ('3', 'generate', None)]
    """
    for key in LOG_KEYS:
        value = _list_items(record, key)
        if value:
            messages = [_read_message(item) for item in divide_messages(value)]
            if _is_agent_log(messages, key in ("steps", "trajectory")):
                inputs = ("input",) if key == "output" and _list_items(record, "input") else ()
                return _build_log(messages, (key, *inputs))
    return None


def _list_items(record: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """List the items of a column; an output with the list of inputs before it, where it does not repeat them."""
    value = record.get(key)
    value = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        return []
    if key == "input" and _list_items(record, "output"):
        # read with the output
        return []
    before = record.get("input") if key == "output" else None
    if isinstance(before, list) and all(isinstance(item, dict) for item in before) and value[: len(before)] != before:
        return [*before, *value]
    return value


def _is_agent_log(messages: list[AgentMessage], is_named: bool) -> bool:
    """Tell whether messages are those of an agent with tools, or of several agents, or of a column named so."""
    tools = is_named or any(message.role == "tool" or message.calls for message in messages)
    agents = {message.agent for message in messages if message.role == "assistant" and message.agent}
    return any(message.role == "assistant" for message in messages) and (tools or len(agents) > 1)


def _read_message(item: dict[str, Any]) -> AgentMessage:
    name = str(item["step"])
    inner = item.get("kwargs", item.get("data"))
    # LangGraph, as it serializes
    if isinstance(inner, dict) and ("content" in inner or "tool_calls" in inner):
        message_type = item["id"][-1] if isinstance(item.get("id"), list) and item["id"] else item.get("type")
        item = {**inner, "type": message_type}
    form = str(item.get("type", ""))
    if form.endswith(("_call", "_output")) or form in ("mcp_call", "reasoning"):
        return _read_response_item(item, name, form)
    agent = next((str(item[key]) for key in AGENT_KEYS if isinstance(item.get(key), str) and item[key]), None)
    speaker = str(item.get("role") or item.get("type") or agent or "")
    role = ROLES.get(join_words(speaker)) if speaker else "system"
    kind = str(item.get("kind", ""))
    if role is None:
        role, agent = _classify_agent(speaker, form, agent)
    if role == "tool" and (item.get("tool_call_id") or form in ("tool", "ToolMessage")):
        # the name is that of the tool
        agent = None
    if kind.startswith("tool"):
        role = "tool"
    elif role == "user" and kind != "question" and agent and join_words(agent) not in ROLES:
        # a group chat: each agent hears the others as the user
        role = "assistant"
    text = join_text(item.get("content", item.get("text", item.get("raw", item.get("output"))))) or ""
    if isinstance(item.get("think"), str) and item["think"]:
        text = f"{item['think']}\n{text}".strip()
    documents = item.get("documents")
    if not documents and role == "tool":
        # documents of LangChain's retrievers as tools
        documents = _list_parts(item.get("artifact")) or None
    return AgentMessage(
        name,
        role,
        agent,
        text,
        tuple(_list_calls(item)),
        item.get("tool_call_id"),
        tuple(documents) if isinstance(documents, list) and role == "tool" else None,
        kind == "tool_error" or item.get("status") == "error" or item.get("is_error") is True,
    )


def _classify_agent(speaker: str, form: str, agent: str | None) -> tuple[str, str | None]:
    """Return role and agent of a message whose role is the name of an agent, or an event."""
    if re.search(r"terminal|executor|tool", speaker, re.IGNORECASE):
        return "tool", agent or speaker
    return "assistant", agent or (None if form.endswith("Event") else speaker or None)


def _read_response_item(item: dict[str, Any], name: str, form: str) -> AgentMessage:
    """Read an item of OpenAI Responses that is no message: a call, its output, or reasoning."""
    if form == "reasoning":
        return AgentMessage(name, "assistant", None, join_text(item.get("summary")) or "")
    call = str(item.get("call_id") or item.get("id") or "") or None
    if form.endswith("_output"):
        return AgentMessage(name, "tool", None, join_text(item.get("output")) or "", call_id=call)
    tool = str(item.get("name") or form.removesuffix("_call"))
    queries = item.get("queries") or (item.get("action") or {}).get("query")
    arguments = _format_arguments(queries or item.get("arguments", item.get("input", item.get("code", ""))))
    calls = (ToolCall(call, tool, arguments),)
    results = item.get("results")
    failed = item.get("error") or (f"the call ended as {item['status']}" if item.get("status") == "failed" else None)
    output = item.get("output", item.get("outputs"))
    is_complete = isinstance(results, list) or output is not None or failed or form not in CALLED_ELSEWHERE
    # the call and its result in one item
    if is_complete:
        text = join_text(failed or [part.get("logs", part) for part in _list_parts(output)] or output) or ""
        documents = tuple(results) if isinstance(results, list) else None
        return AgentMessage(name, "tool", None, text, calls, call, documents, bool(failed))
    return AgentMessage(name, "assistant", None, "", calls)


def _list_parts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _list_calls(item: dict[str, Any]) -> Iterator[ToolCall]:
    """List the calls of tools that a message makes, in the layouts of the known clients."""
    extra = item.get("additional_kwargs")
    tool_calls = item.get("tool_calls") or (extra.get("tool_calls") if isinstance(extra, dict) else None)
    blocks = [part for part in _list_parts(item.get("content")) if part.get("type") in CALL_TYPES]
    for call in (*_list_parts(tool_calls), *blocks):
        function = call["function"] if isinstance(call.get("function"), dict) else call
        arguments = function.get("arguments", function.get("args", function.get("input", "")))
        yield ToolCall(call.get("id"), function.get("name"), _format_arguments(arguments))
    queries = item.get("query")
    if queries and isinstance(queries, (str, list)) and item.get("kind") == "search":
        yield ToolCall(None, "search", _format_arguments(queries))


def _format_arguments(value: Any) -> str:
    """Format the arguments of a call: the words of a query, one a line, else JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _build_log(messages: list[AgentMessage], columns: tuple[str, ...]) -> AgentLog:
    steps: list[dict[str, Any]] = []
    chunks: dict[str, dict[str, Any]] = {}
    calls: dict[str, tuple[str, ToolCall]] = {}
    waiting: list[tuple[str, ToolCall]] = []
    query, parent = None, None
    for message in messages:
        if message.role == "user" and UNEXECUTED.search(message.text) and steps:
            steps.append({"id": message.id, "kind": "tool", "error": message.text[:ERROR_LENGTH], "parent": parent})
            waiting.clear()
        elif message.role == "user" and steps and CLOSING.match(message.text):
            # the person ends the run
            continue
        elif message.role == "user":
            # earlier turns are the history of the last question
            steps.clear()
            chunks.clear()
            query = message.text
        elif message.role == "tool":
            own_calls = [(parent, call) for call in message.calls]
            match = calls.get(message.call_id or "") or next(iter(own_calls), None) or next(iter(waiting), None)
            waiting = waiting[1:] if match in waiting[:1] else waiting
            steps.append(_build_result(message, match[0] if match else parent, match and match[1], chunks))
        elif message.role == "assistant" and (message.calls or not END.fullmatch(message.text)):
            steps.append(_build_action(message))
            parent = message.id
            waiting = [(message.id, call) for call in message.calls]
            calls |= {call.id: (message.id, call) for call in message.calls if call.id}
    spoken = [step for step in steps if step.get("parent") is None and step.get("output")]
    answers = [step for step in spoken if not CLOSING.match(step["output"])]
    if answers and spoken[-1] is steps[-1] and answers[-1].get("kind") is None:
        answers[-1]["kind"] = "generate"
    steps = [{key: value for key, value in step.items() if value is not None} for step in steps]
    answer = answers[-1]["output"] if answers else None
    last = max((i for i, message in enumerate(messages) if message.text == query), default=0)
    turns = ((message.role, message.text) for message in messages[:last] if message.role in ("user", "assistant"))
    history = [{"role": role, "text": text} for role, text in turns if text.strip()]
    return AgentLog(steps, list(chunks.values()), answer, query, history, columns)


def _build_action(message: AgentMessage) -> dict[str, Any]:
    """Build the step of an agent's message: a plan where it calls tools."""
    return {
        "id": message.id,
        "agent": message.agent,
        "kind": "plan" if message.calls else None,
        "input": "\n".join(call.arguments for call in message.calls) or None,
        "output": CLOSING_WORD.sub("", message.text) or None,
    }


def _build_result(
    message: AgentMessage, parent: str | None, call: ToolCall | None, chunks: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Build the step of what a tool returned, and add its passages to the chunks of the trace."""
    name = (call.name if call else None) or message.agent
    kind = "tool"
    if message.documents is not None or (name and SEARCH_WORDS.search(name) and not HANDOFF.match(name)):
        kind = "retrieve"
    if name and MEMORY_WORDS.search(name):
        kind = "memory"
    failed = message.is_failed or bool(FAILURE.search(message.text[:2000]))
    step: dict[str, Any] = {
        "id": message.id,
        "parent": parent,
        "kind": kind,
        "name": name,
        "agent": message.agent,
        "input": call.arguments if call else None,
        "output": message.text or None,
        "error": (message.text.strip()[:ERROR_LENGTH] or "the tool failed") if failed else None,
    }
    if kind != "tool" and not failed and (message.documents is not None or message.text):
        returned = _list_chunks(message)
        chunks |= {chunk["id"]: chunk for chunk in returned}
        step["chunks"] = list(dict.fromkeys(chunk["id"] for chunk in returned))
    return step


def _list_chunks(message: AgentMessage) -> list[dict[str, Any]]:
    """List the passages of a result: its documents, the objects of a JSON list, or its text."""
    documents: list[Any] = list(message.documents or ())
    if not documents and message.text.lstrip()[:1] == "[":
        try:
            documents = [item for item in json.loads(message.text) if isinstance(item, (dict, str))]
        except ValueError:
            documents = []
    if not documents:
        documents = [message.text] if message.text.strip() else []
    return [_read_document(document) for document in documents]


def _read_document(document: Any) -> dict[str, Any]:
    fields = document if isinstance(document, dict) else {"text": str(document)}
    text = join_text(fields.get("text") or fields.get("content") or fields.get("page_content")) or ""
    title = fields.get("title") or fields.get("filename")
    name = fields.get("id") or fields.get("file_id") or make_content_id(text)
    chunk: dict[str, Any] = {"id": str(name), "text": text}
    if title:
        chunk["document"] = str(title)
    if isinstance(fields.get("score"), (int, float)):
        chunk["score"] = float(fields["score"])
    return chunk
