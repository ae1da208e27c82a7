"""Calls of tools in a completion, as text that rails read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def read_tool_calls(message: Mapping[str, Any]) -> str | None:
    """Return names and arguments of the calls of tools in a message, a line each value; None: it holds no call.

    Arguments are decoded, so that no escape sequence of JSON hides a text. Raises ValueError for arguments that are no
    JSON, TypeError or KeyError for what is no call.

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
    if not calls:
        return None
    return "\n".join(line for call in calls for line in _list_lines(call))


def _list_lines(call: Mapping[str, Any]) -> Iterator[str]:
    if call.get("custom"):
        yield from (call["custom"]["name"], call["custom"]["input"])
        if call.get("function") is None:
            return
    function = call["function"]
    yield function["name"]
    arguments = function["arguments"]
    if not isinstance(arguments, str):
        raise TypeError("the arguments of a call of a tool are no text")
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
