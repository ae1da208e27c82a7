"""Messages of agents that hold several at once, divided: calls of tools and their results, in the known layouts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

RESULT_TYPES = ("tool_result", "mcp_tool_result", "web_search_tool_result", "code_execution_tool_result")
CALL_TYPES = ("tool_use", "mcp_tool_use", "server_tool_use")
SKIPPED_TYPES = (
    "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "item_reference", "compaction",
    "ModelClientStreamingChunkEvent", "UserInputRequestedEvent", "CodeGenerationEvent", "SelectSpeakerEvent",
)  # fmt: skip
"""Items that are no step: lists of tools, requests for approval, parts of a stream."""
GROUP_CHAT_TYPE = re.compile(r"(Message|Event)$")
PROXY = re.compile(r"^(user|human|admin)?_?(user)?_?(prox(y|ies)|user)?(_?agent)?$", re.IGNORECASE)
"""Names under which the person speaks in a group chat."""

Item = dict[str, Any]


def divide_messages(items: list[Item]) -> list[Item]:
    """Divide the items of a log into messages with one call or result of tools each, in order.

    >>> blocks = [{"type": "tool_use", "id": "a", "name": "search", "input": {"q": "Oslo"}}]
    >>> blocks += [{"type": "tool_result", "tool_use_id": "a", "content": "1040"}, {"type": "text", "text": "In 1040."}]
    >>> [part["role"] for part in divide_messages([{"role": "assistant", "content": blocks}])]
    ['assistant', 'tool', 'assistant']
    """
    divided: list[Item] = []
    for index, item in enumerate(items):
        name = str(item["index"]) if isinstance(item.get("index"), int) else str(index)
        for number, part in enumerate(_divide(item, is_first=not divided)):
            divided.append({**part, "id": part.get("id"), "step": name if number == 0 else f"{name}.{number + 1}"})
    return divided


def _divide(item: Item, *, is_first: bool) -> Iterator[Item]:
    kind = str(item.get("type", ""))
    if kind in SKIPPED_TYPES:
        return
    if isinstance(item.get("source"), str) and GROUP_CHAT_TYPE.search(kind):
        yield from _divide_group_chat(item, kind)
    elif isinstance(responses := item.get("tool_responses"), list) and responses:
        yield from ({"role": "tool", **part} for part in responses if isinstance(part, dict))
    elif isinstance(content := item.get("content"), list) and any(
        isinstance(part, dict) and part.get("type") in RESULT_TYPES for part in content
    ):
        yield from _divide_blocks(item, content)
    elif is_first and item.get("role") == "assistant" and item.get("content") and _is_proxy(item.get("name")):
        yield {**item, "role": "user", "name": None}
    else:
        yield item


def _is_proxy(name: Any) -> bool:
    return isinstance(name, str) and bool(name) and PROXY.match(name) is not None


def _divide_group_chat(item: Item, kind: str) -> Iterator[Item]:
    """Divide a message of AutoGen: its agent is the source, and the results of its tools are a list."""
    agent = {"agent": item["source"]}
    content = item.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    if kind == "ToolCallRequestEvent":
        yield {"role": "assistant", "content": "", "tool_calls": parts, **agent}
    elif kind == "ToolCallExecutionEvent":
        for part in parts:
            yield {"role": "tool", "tool_call_id": part.get("call_id"), **part}
    elif kind == "MemoryQueryEvent":
        text = "\n".join(str(part.get("content")) for part in parts)
        yield {"role": "tool", "name": "memory", "content": text}
    elif kind == "CodeExecutionEvent":
        result = item.get("result")
        failed = isinstance(result, dict) and result.get("exit_code") not in (0, None)
        yield {"role": "tool", "content": content, "is_error": failed, **agent}
    elif item["source"].lower() in ("user", "human") or _is_proxy(item["source"]):
        yield {"role": "user", "content": content}
    else:
        yield {"role": "assistant", "content": content, **agent}


def _divide_blocks(item: Item, content: list[Any]) -> Iterator[Item]:
    """Divide the blocks of a message at each result of a tool."""
    waiting: list[Any] = []
    for part in content:
        if not (isinstance(part, dict) and part.get("type") in RESULT_TYPES):
            waiting.append(part)
            continue
        if waiting:
            yield {**item, "content": waiting}
            waiting = []
        yield {
            "role": "tool",
            "tool_call_id": part.get("tool_use_id"),
            "content": part.get("content"),
            "is_error": part.get("is_error"),
        }
    if waiting:
        yield {**item, "content": waiting}
