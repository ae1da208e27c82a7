"""The syntax of a metric: `name`, `name@k`, `name(parameter=value, …)@k`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable

from ragfault.errors import UsageError

ParameterValue = str | int | float | bool | None

_EXPRESSION = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*(?:@\s*(\d{1,9}))?\s*", re.DOTALL)
_PARAMETER = re.compile(r"""\s*([A-Za-z_]\w*)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,"()=]+)\s*(,|$)""")
_NUMBER = re.compile(r"[+-]?(\d+)?(\.\d*)?([eE][+-]?\d+)?")
_KEYWORDS: dict[str, ParameterValue] = {"true": True, "false": False, "none": None}


def parse_expression(text: str) -> tuple[str, int | None, dict[str, ParameterValue]]:
    """Take a metric's text apart into name, cut-off and parameters.

    Raises UsageError where it does not follow the grammar.

    >>> parse_expression("recall(relevant=2)@20")
    ('recall', 20, {'relevant': 2})
    """
    shape = _EXPRESSION.fullmatch(text)
    if shape is None:
        raise UsageError(f'"{text}" is not a metric. Write name, name@k or name(parameter=value)@k.')
    name, inside, cut = shape.groups()
    k = int(cut) if cut else None
    if k == 0:
        raise UsageError(f'"{text}": a cut-off is at least 1.')
    return name, k, _parse_parameters(text, inside or "")


def _parse_parameters(text: str, inside: str) -> dict[str, ParameterValue]:
    found: dict[str, ParameterValue] = {}
    place = 0
    while place < len(inside.rstrip()):
        pair = _PARAMETER.match(inside, place)
        if pair is None:
            raise UsageError(f'"{text}": cannot read "{inside[place:].strip()}". Write parameter=value, …')
        key, value, _ = pair.groups()
        if key in found:
            raise UsageError(f'"{text}": {key} is given twice.')
        found[key] = _parse_value(text, value)
        place = pair.end()
    return found


def _parse_value(text: str, word: str) -> ParameterValue:
    if word.startswith('"'):
        try:
            return str(json.loads(word))
        except ValueError:
            raise UsageError(f'"{text}": cannot read {word}. Quote a text as JSON does.') from None
    if word.lower() in _KEYWORDS:
        return _KEYWORDS[word.lower()]
    if not (any(c.isdigit() for c in word) and _NUMBER.fullmatch(word)):
        return word
    number = float(word)
    if not math.isfinite(number) or len(word) > 300:
        raise UsageError(f'"{text}": {word[:20]} is too large.')
    return number if set(word) & set(".eE") else int(word)


def format_expression(name: str, k: int | None, parameters: Iterable[tuple[str, ParameterValue]]) -> str:
    """Put a metric's text together; the inverse of `read`.

    >>> format_expression("recall", 20, [("relevant", 2)])
    'recall(relevant=2)@20'
    """
    inside = ", ".join(f"{key}={_format_value(value)}" for key, value in parameters)
    return f"{name}{f'({inside})' if inside else ''}{f'@{k}' if k is not None else ''}"


def _format_value(value: ParameterValue) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        plain = re.fullmatch(r'[^\s,"()=]+', value) is not None and _parse_value(value, value) == value
        return value if plain else json.dumps(value)
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value)) if whole else repr(value)
