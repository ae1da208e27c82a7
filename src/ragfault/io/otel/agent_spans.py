"""Spans of agents: the calls that a model asked for, and what tools and memories were given and returned."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ragfault.io.formats.paths import parse_embedded
from ragfault.io.otel.recorded_content import get_recorded_value
from ragfault.io.otel.semantic_conventions import (
    AGENT_NAME_ATTRIBUTES,
    CALL_INPUT_ATTRIBUTES,
    CALL_OUTPUT_ATTRIBUTES,
    COMPLETION_ATTRIBUTES,
    FINISH_ATTRIBUTES,
    OUTPUT_ATTRIBUTES,
    TOOL_NAME_ATTRIBUTES,
    WORKFLOW_NAME_ATTRIBUTE,
    get_first_attribute,
)
from ragfault.io.otel.span_tree import SpanStep, read_once
from ragfault.io.otel.spans import OtelSpan

NUMBERED_CALL = re.compile(
    r"^(?:llm\.output_messages|gen_ai\.completion|llm\.choices)\.(\d+)\.(?:message\.)?tool_calls\.(\d+)\."
    r"(?:tool_call\.)?(?:function\.)?(name|arguments)$"
)
"""Attributes of calls, one for each part: OpenInference and OpenLLMetry."""
CALL_TYPES = ("tool_call", "tool_use", "function_call", "mcp_call")
FINISH_REASONS = ("tool_calls", "tool_call", "tool_use", "function_call")
CALL_ATTRIBUTES = (*COMPLETION_ATTRIBUTES, *OUTPUT_ATTRIBUTES)
NAME_ATTRIBUTES = {"tool": TOOL_NAME_ATTRIBUTES, "chain": (WORKFLOW_NAME_ATTRIBUTE,)}
MAX_DEPTH = 12


@read_once
def list_tool_calls(step: SpanStep) -> list[str]:
    """List the calls of tools that a model asked for, as `name(arguments)`; empty where it asked for none.

    >>> part = {"type": "tool_call", "name": "search", "arguments": {"query": "Oslo"}}
    >>> held = {"gen_ai.output.messages": [{"role": "assistant", "parts": [part]}]}
    >>> list_tool_calls(SpanStep(OtelSpan(trace="a", id="b", attributes=held), "llm"))
    ['search({"query":"Oslo"})']
    """
    for span in step.records:
        values = [span.attributes[name] for name in CALL_ATTRIBUTES if name in span.attributes]
        values += [event.attributes for event in span.events if event.name == "gen_ai.choice"]
        calls = [*_list_numbered_calls(span), *(call for value in values for call in _iterate_calls(value, 0))]
        if calls:
            return list(dict.fromkeys(calls))
    return []


@read_once
def asks_for_tools(step: SpanStep) -> bool:
    """Tell whether a call of a model ended with the request to call tools."""
    for span in step.records:
        reason = get_first_attribute(span.attributes, FINISH_ATTRIBUTES)
        if any(str(item).lower() in FINISH_REASONS for item in (reason if isinstance(reason, list) else (reason,))):
            return True
    return bool(list_tool_calls(step))


def get_call_input(step: SpanStep) -> str | None:
    """Return what a tool or a memory was asked, in the attributes of their own."""
    return _format_first(step, CALL_INPUT_ATTRIBUTES)


def get_call_output(step: SpanStep) -> str | None:
    """Return what a tool or a memory returned, records of a memory one a line."""
    return _format_first(step, CALL_OUTPUT_ATTRIBUTES)


def get_step_name(step: SpanStep) -> str | None:
    """Return the name of the tool or workflow where it is recorded, else that of the span."""
    named = get_first_attribute(step.span.attributes, NAME_ATTRIBUTES.get(step.role, ()))
    return str(named or step.span.name) or None


def get_agent_name(step: SpanStep) -> str | None:
    """Return the agent that took a step, where the span says so."""
    named = get_first_attribute(step.span.attributes, AGENT_NAME_ATTRIBUTES)
    return str(named) if named else step.span.name if step.role == "agent" else None


def _format_first(step: SpanStep, names: tuple[str, ...]) -> str | None:
    for span in step.records:
        value = parse_embedded(get_recorded_value(span.attributes, names))
        if value not in (None, "", [], {}):
            return _format_value(value)
    return None


def _format_value(value: Any) -> str:
    """Format a value: the only text of an object, the contents of records one a line, else JSON."""
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    if isinstance(value, list) and value and all(isinstance(item, dict) and "content" in item for item in value):
        return "\n".join(_format_value(item["content"]) for item in value)
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


def _list_numbered_calls(span: OtelSpan) -> list[str]:
    calls: dict[tuple[int, int], dict[str, Any]] = {}
    for name, value in span.attributes.items():
        if "tool_calls." in name and (match := NUMBERED_CALL.match(name)) is not None:
            calls.setdefault((int(match[1]), int(match[2])), {})[match[3]] = value
    return [_format_call(calls[place]) for place in sorted(calls)]


def _iterate_calls(value: Any, depth: int) -> Iterator[str]:
    """Yield the calls within an output, in the layouts of gen_ai, OpenAI, LangChain and Anthropic."""
    value = parse_embedded(value)
    if depth > MAX_DEPTH or isinstance(value, str):
        return
    if isinstance(value, list):
        for item in value:
            yield from _iterate_calls(item, depth + 1)
    if not isinstance(value, dict):
        return
    if value.get("type") in CALL_TYPES and ("name" in value or isinstance(value.get("function"), dict)):
        yield _format_call(value)
        return
    listed = parse_embedded(value.get("tool_calls"))
    if isinstance(listed, list) and listed:
        yield from (_format_call(call) for call in listed if isinstance(call, dict))
        return
    for key, item in value.items():
        if key != "tool_calls" and isinstance(item, (dict, list, str)):
            yield from _iterate_calls(item, depth + 1)


def _format_call(call: dict[str, Any]) -> str:
    function = call["function"] if isinstance(call.get("function"), dict) else call
    arguments = next((function[key] for key in ("arguments", "args", "input") if key in function), "")
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments, enc_hook=str).decode()
    return f"{function.get('name') or 'tool'}({text})"
