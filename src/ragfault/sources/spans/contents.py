"""The texts within what instrumentations record: the question in an input, the answer in an output, the messages.

Inputs and outputs are a text, or the JSON of whatever a function took and gave: the names below are those under
which frameworks keep a question or an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

__all__ = ["Message", "answered", "asked", "messages", "numbered", "opened", "told", "unquoted"]

DEPTH = 12
"""How deep a question or an answer is looked for."""

ASKED = (
    *("query", "question", "query_str", "user_input", "user_query", "input", "prompt", "text", "q"),
    *("query_bundle", "message", "messages", "content", "inputs", "args", "kwargs", "parts", "data"),
)
ANSWERED = (
    *("answer", "response", "output", "result", "output_text", "completion", "text", "content"),
    *("message", "messages", "generations", "choices", "outputs", "return_values", "data", "kwargs"),
    *("update", "parts"),
)
"""The keys that are looked under, in order."""

ENCODED = ("traceloop.entity.", "gen_ai.task.")
"""How the names of attributes begin whose value is JSON in any case."""

USER = ("user", "human")
MODEL = ("assistant", "ai", "model", "AIMessage", "AIMessageChunk")


class Message(NamedTuple):
    """What somebody says to a model, or a model says."""

    role: str
    text: str


def opened(value: Any) -> Any:
    """The object or list that a text of JSON is; whatever else it is, itself.

    >>> opened('{"query": "When?"}'), opened("When?"), opened("[1040")
    ({'query': 'When?'}, 'When?', '[1040')
    """
    if isinstance(value, str) and value[:1] in ("{", "[") and value[-1:] in ("}", "]"):
        try:
            return msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return value
    return value


def told(attributes: dict[str, Any], names: Iterable[str]) -> Any:
    """The first of these attributes that is there, without the quotes where its JSON is a mere text.

    >>> told({"traceloop.entity.output": '"In 1040."'}, ["output.value", "traceloop.entity.output"])
    'In 1040.'
    """
    for name in names:
        value = attributes.get(name)
        if value is not None and value not in ("", [], {}):
            return unquoted(value) if name.startswith(ENCODED) else value
    return None


def unquoted(value: Any) -> Any:
    """The text that a text of JSON is; whatever else it is, itself."""
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"':
        try:
            return msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeError):
            return value
    return value


def numbered(attributes: dict[str, Any], prefix: str) -> list[dict[str, Any]]:
    """The objects whose parts stand in attributes `PREFIX NUMBER . PART`, in the order of their numbers.

    >>> numbered({"doc.1.text": "b", "doc.0.text": "a", "doc.0.score": 0.5}, "doc.")
    [{'text': 'a', 'score': 0.5}, {'text': 'b'}]
    """
    found: dict[int, dict[str, Any]] = {}
    length = len(prefix)
    for name, value in attributes.items():
        if name.startswith(prefix):
            place, _, part = name[length:].partition(".")
            if place.isdecimal() and len(place) < 10:
                found.setdefault(int(place), {})[part] = value
    return [found[place] for place in sorted(found)] if len(found) > 1 else list(found.values())


# --- messages --------------------------------------------------------------------------------------


def messages(value: Any, depth: int = 0) -> list[Message]:
    """The messages that a value holds: a list of them, of lists of them, or an object around them.

    >>> messages('[{"role": "user", "parts": [{"type": "text", "content": "When?"}]}]')
    [Message(role='user', text='When?')]
    """
    value = opened(value)
    if depth > DEPTH:
        return []
    if isinstance(value, dict):
        if (found := _message(value)) is not None:
            return [found]
        inner = next((value[key] for key in ("messages", "generations", "choices") if key in value), None)
        return [] if inner is None else messages(inner, depth + 1)
    if isinstance(value, list):
        return [
            found for part in value if isinstance(part, (dict, list)) for found in messages(part, depth + 1)
        ]
    return []


def _message(value: dict[str, Any]) -> Message | None:
    """The message that an object is, in the manner of OpenAI, gen_ai, LangChain or OpenInference."""
    for wrapper in ("message", "kwargs", "data"):
        if isinstance(inner := value.get(wrapper), dict) and (found := _message(inner)) is not None:
            return found
    who = value.get("role") or value.get("message.role") or value.get("type")
    body = next((value[key] for key in ("content", "parts", "message.content") if value.get(key)), None)
    if not isinstance(who, str) or body is None:
        return None
    text = _text(body)
    return Message(who, text) if text else None


def _text(body: Any, depth: int = 0) -> str:
    """The words of a content: a text, or parts of which some are texts."""
    if isinstance(body, str):
        return body
    if isinstance(body, list) and depth < DEPTH:
        return "\n".join(text for part in body if (text := _text(part, depth + 1)))
    if isinstance(body, dict) and body.get("type", "text") in ("text", "input_text", "output_text"):
        found = next((body[key] for key in ("text", "content") if isinstance(body.get(key), str)), "")
        return str(found)
    return ""


def said(found: Sequence[Message], roles: tuple[str, ...]) -> str | None:
    """The last text that one of these roles says."""
    return next((message.text for message in reversed(found) if message.role in roles), None)


# --- questions and answers -------------------------------------------------------------------------


def asked(value: Any, depth: int = 0) -> str | None:
    """The question in an input: a text as it is, of messages the last by the user, of an object by its key.

    >>> asked("When?"), asked('{"query_bundle": {"query_str": "When?", "embedding": null}}')
    ('When?', 'When?')
    >>> asked('{"args": [3], "kwargs": {}}') is None
    True
    """
    return _sought(value, ASKED, USER, depth)


def answered(value: Any) -> str | None:
    """The answer in an output, in the same way: of messages the last by the model.

    >>> answered('{"context": ["Oslo, 1040"], "answer": "In 1040."}'), answered("In 1040.")
    ('In 1040.', 'In 1040.')
    """
    return _sought(value, ANSWERED, MODEL, 0)


def _sought(value: Any, keys: tuple[str, ...], roles: tuple[str, ...], depth: int) -> str | None:
    value = opened(value)
    if isinstance(value, str):
        return value if value.strip() else None
    if depth > DEPTH:
        return None
    if isinstance(value, list):
        if found := said(messages(value), roles):
            return found
        parts = [part for part in value if not (isinstance(part, dict) and _message(part))]
        return next((text for part in parts if (text := _sought(part, keys, roles, depth + 1))), None)
    if not isinstance(value, dict):
        return None
    if (message := _message(value)) is not None and "role" in value:
        return message.text
    for key in keys:
        if value.get(key) and (text := _sought(value[key], keys, roles, depth + 1)):
            return text
    only = next(iter(value.values())) if len(value) == 1 else None
    return _sought(only, keys, roles, depth + 1) if isinstance(only, (str, dict)) else None
