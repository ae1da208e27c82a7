"""Expressions such as `name(value, key=value)`, in which stages, chunkers, embedders and rerankers are written."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ragfault.errors import UsageError

EXPRESSION_PATTERN = re.compile(r"\s*([A-Za-z_][\w:./-]*)\s*(?:\((.*)\)\s*)?", re.DOTALL)
WORD_PATTERN = re.compile(r"[A-Za-z_]\w*")
LITERAL_WORDS = {"true": True, "false": False, "none": None}


class CallExpression(NamedTuple):
    """What is asked for: a name, its values in order, and those by name."""

    name: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = {}


def parse_expression(text: str) -> CallExpression:
    """Take a call apart; a bare word is a text, `true`, `false` and `none` are what they say.

    Raises UsageError where it does not follow the grammar.

    >>> parse_expression("hybrid(k=50, method=rrf)")
    CallExpression(name='hybrid', arguments=(), options={'k': 50, 'method': 'rrf'})
    >>> parse_expression("sentence:acme/e5(256)").arguments
    (256,)
    """
    shape = EXPRESSION_PATTERN.fullmatch(text)
    if shape is None:
        raise UsageError(f'cannot read "{text}". Write name, or name(value, key=value).')
    name, inside = shape[1], shape[2] or ""
    try:
        node = ast.parse(f"f({inside})", mode="eval").body
        assert isinstance(node, ast.Call)
        values = tuple(_evaluate_literal(each) for each in node.args)
        options = {each.arg: _evaluate_literal(each.value) for each in node.keywords if each.arg}
    except (SyntaxError, ValueError, AssertionError, RecursionError, MemoryError):
        raise UsageError(f'cannot read "{text}". Write name, or name(value, key=value).') from None
    if len(options) != len(node.keywords):
        raise UsageError(f'"{text}" gives an option twice, or one without a name.')
    return CallExpression(name, values, options)


def _evaluate_literal(node: ast.expr) -> Any:
    """What stands at a place of a call; raises ValueError for anything but words, texts, numbers and lists."""
    if isinstance(node, ast.Name):
        return LITERAL_WORDS.get(node.id.lower(), node.id)
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_evaluate_literal(each) for each in node.elts]
    found = ast.literal_eval(node)
    if isinstance(found, (bool, int, float, str)) or found is None:
        return found
    raise ValueError(found)


def format_expression(
    name: str, arguments: Sequence[Any] = (), options: Mapping[str, Any] | None = None
) -> str:
    """Put a call together; the inverse of `read_call`.

    >>> format_expression("restrict", options={"language": "en", "date__from": "2024-01"})
    'restrict(language=en, date__from="2024-01")'
    """
    parts = [_format_value(each) for each in arguments]
    parts += [f"{key}={_format_value(each)}" for key, each in (options or {}).items()]
    return f"{name}({', '.join(parts)})" if parts else name


def _format_value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        plain = WORD_PATTERN.fullmatch(value) and value.lower() not in LITERAL_WORDS
        return value if plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_format_value(each) for each in value)}]"
    return repr(value)
