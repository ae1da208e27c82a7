"""Calls of tools in a completion, and results of tools in a request, as texts that rails read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ragfault.model.records import Chunk

TOOL_ROLES = frozenset(("tool", "function"))
TOOL_RESULTS = frozenset(("tool_result", "function_call_output"))
"""Types of the parts of a message that hold the result of a tool."""
READ_FIELDS = frozenset(("role", "content", "tool_calls", "function_call"))
"""Fields of an answer that are read one by one; what others hold (a refusal, reasoning) is a text, too."""


def read_tool_calls(message: Mapping[str, Any]) -> str | None:
    """Return names and arguments of the calls of tools in a message, a line each value; None: it holds no call.

    Arguments are decoded, so that no escape sequence of JSON hides a text. What other fields than the content hold
    follows. Raises ValueError for arguments that are no JSON, TypeError or KeyError for what is no call.

    >>> call = {"type": "function", "function": {"name": "mail", "arguments": '{"to": ["ann", "bo"], "copies": 2}'}}
    >>> print(read_tool_calls({"tool_calls": [call]}))
    mail
    to: ann
    to: bo
    copies: 2
    """
    calls = list(message.get("tool_calls") or ())
    if message.get("function_call"):
        calls.append({"function": message["function_call"]})
    others = {name: value for name, value in message.items() if value and name not in READ_FIELDS}
    if not calls and not others:
        return None
    lines = [line for call in calls for line in _list_lines(call)]
    return "\n".join([*lines, *_list_values(json.loads(json.dumps(others), object_pairs_hook=tuple), "")])


def read_tool_results(messages: Any, known: Iterable[str] = ()) -> tuple[Chunk, ...]:
    """Return the results of tools in the messages of a request as chunks, without the texts that are known already.

    Results are the messages with the role `tool` or `function`, and the parts `tool_result` of any message. One in JSON
    is decoded where it has escape sequences. Raises ValueError for a result with other parts than texts.

    >>> messages = [{"role": "user", "content": "When?"}, {"role": "tool", "tool_call_id": "c1", "content": "At ten."}]
    >>> read_tool_results(messages)[0].text, read_tool_results(messages, ["At ten."])
    ('At ten.', ())
    """
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ValueError("the messages of a request are a list of objects")
    texts = []
    for text in (text for message in messages for text in _list_results(message)):
        remaining = text
        for passage in sorted(filter(str.strip, known), key=len, reverse=True):
            remaining = remaining.replace(passage.strip(), " ")
        if remaining.strip():
            texts.append(text if remaining == text else remaining)
    return tuple(Chunk(id=f"tool-{number}", text=_decode_result(text)) for number, text in enumerate(texts, 1))


def _list_results(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if message.get("role") in TOOL_ROLES:
        yield from _list_texts(content)
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and part.get("type") in TOOL_RESULTS:
                yield from _list_texts(part.get("content", part.get("output")))


def _list_texts(content: Any) -> Iterator[str]:
    """Yield the texts of a result; ValueError for what is no text."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list) and all(
        isinstance(part, str) or (isinstance(part, dict) and isinstance(part.get("text"), str)) for part in content
    ):
        yield from (part if isinstance(part, str) else part["text"] for part in content)
    elif content is not None:
        raise ValueError("the guard reads only texts as results of tools")


def _decode_result(text: str) -> str:
    """Decode a result in JSON, so that no escape sequence hides a text; others stay as they are."""
    if "\\" not in text:
        return text
    try:
        value = json.loads(text, object_pairs_hook=tuple, parse_int=str, parse_float=str, parse_constant=str)
        return "\n".join(_list_values(value, ""))
    except (json.JSONDecodeError, RecursionError):
        return text


def _list_lines(call: Mapping[str, Any]) -> Iterator[str]:
    if call.get("custom"):
        yield from (call["custom"]["name"], call["custom"]["input"])
        if call.get("function") is None:
            return
    function = call["function"]
    yield function["name"]
    arguments = function["arguments"]
    if not isinstance(arguments, str):
        raise TypeError("the arguments of a call of a tool are not a text")
    if arguments.strip():
        try:
            # pairs instead of dictionaries: of a key that is there twice both values are read
            value = json.loads(arguments, object_pairs_hook=tuple, parse_int=str, parse_float=str, parse_constant=str)
            yield from _list_values(value, "")
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"the guard cannot read the arguments of a call of a tool: {error}") from None


def _list_values(value: Any, label: str) -> Iterator[str]:
    """Yield the values in decoded arguments, each after its key; objects are tuples of pairs."""
    if isinstance(value, tuple | list):
        if label and (isinstance(value, tuple) or not value):
            yield label
        pairs = value if isinstance(value, tuple) else ((label, item) for item in value)
        for key, item in pairs:
            yield from _list_values(item, key)
    else:
        yield f"{label}: {value}" if label else str(value)
