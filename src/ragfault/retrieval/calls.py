"""The grammar in which stages, embedders and rerankers are written: `name(value, key=value)`."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ragfault.errors import UsageError

__all__ = ["Call", "read_call", "write_call"]

HEAD = re.compile(r"\s*([A-Za-z_][\w:./-]*)\s*(?:\((.*)\)\s*)?", re.DOTALL)
PLAIN = re.compile(r"[A-Za-z_]\w*")
WORDS = {"true": True, "false": False, "none": None}


class Call(NamedTuple):
    """What is asked for: a name, its values in order, and those by name."""

    name: str
    values: tuple[Any, ...] = ()
    options: Mapping[str, Any] = {}


def read_call(text: str) -> Call:
    """Take a call apart; a bare word is a text, `true`, `false` and `none` are what they say.

    Raises UsageError where it does not follow the grammar.

    >>> read_call("hybrid(k=50, method=rrf)")
    Call(name='hybrid', values=(), options={'k': 50, 'method': 'rrf'})
    >>> read_call("sentence:acme/e5(256)").values
    (256,)
    """
    shape = HEAD.fullmatch(text)
    if shape is None:
        raise UsageError(f'cannot read "{text}". Write name, or name(value, key=value).')
    name, inside = shape[1], shape[2] or ""
    try:
        node = ast.parse(f"f({inside})", mode="eval").body
        assert isinstance(node, ast.Call)
        values = tuple(_value(each) for each in node.args)
        options = {each.arg: _value(each.value) for each in node.keywords if each.arg}
    except (SyntaxError, ValueError, AssertionError, RecursionError, MemoryError):
        raise UsageError(f'cannot read "{text}". Write name, or name(value, key=value).') from None
    if len(options) != len(node.keywords):
        raise UsageError(f'"{text}" gives an option twice, or one without a name.')
    return Call(name, values, options)


def _value(node: ast.expr) -> Any:
    """What stands at a place of a call; raises ValueError for anything but words, texts, numbers and lists."""
    if isinstance(node, ast.Name):
        return WORDS.get(node.id.lower(), node.id)
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(each) for each in node.elts]
    found = ast.literal_eval(node)
    if isinstance(found, (bool, int, float, str)) or found is None:
        return found
    raise ValueError(found)


def write_call(name: str, values: Sequence[Any] = (), options: Mapping[str, Any] | None = None) -> str:
    """Put a call together; the inverse of `read_call`.

    >>> write_call("restrict", options={"language": "en", "date__from": "2024-01"})
    'restrict(language=en, date__from="2024-01")'
    """
    parts = [_text(each) for each in values]
    parts += [f"{key}={_text(each)}" for key, each in (options or {}).items()]
    return f"{name}({', '.join(parts)})" if parts else name


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        plain = PLAIN.fullmatch(value) and value.lower() not in WORDS
        return value if plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_text(each) for each in value)}]"
    return repr(value)
