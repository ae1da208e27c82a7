"""The grammar of a metric's text: `name`, `name@k`, `name(parameter=value, …)@k`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable

from ragfault.errors import UsageError

__all__ = ["Value", "read", "write"]

Value = str | int | float | bool | None

_SHAPE = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*(?:@\s*(\d{1,9}))?\s*", re.DOTALL)
_PAIR = re.compile(r"""\s*([A-Za-z_]\w*)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,"()=]+)\s*(,|$)""")
_NUMBER = re.compile(r"[+-]?(\d+)?(\.\d*)?([eE][+-]?\d+)?")
_WORDS: dict[str, Value] = {"true": True, "false": False, "none": None}


def read(text: str) -> tuple[str, int | None, dict[str, Value]]:
    """Take a metric's text apart into name, cut-off and parameters.

    Raises UsageError where it does not follow the grammar.

    >>> read("recall(relevant=2)@20")
    ('recall', 20, {'relevant': 2})
    """
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise UsageError(f'"{text}" is not a metric. Write name, name@k or name(parameter=value)@k.')
    name, inside, cut = shape.groups()
    k = int(cut) if cut else None
    if k == 0:
        raise UsageError(f'"{text}": a cut-off is at least 1.')
    return name, k, _pairs(text, inside or "")


def _pairs(text: str, inside: str) -> dict[str, Value]:
    found: dict[str, Value] = {}
    place = 0
    while place < len(inside.rstrip()):
        pair = _PAIR.match(inside, place)
        if pair is None:
            raise UsageError(f'"{text}": cannot read "{inside[place:].strip()}". Write parameter=value, …')
        key, value, _ = pair.groups()
        if key in found:
            raise UsageError(f'"{text}": {key} is given twice.')
        found[key] = _value(text, value)
        place = pair.end()
    return found


def _value(text: str, word: str) -> Value:
    if word.startswith('"'):
        try:
            return str(json.loads(word))
        except ValueError:
            raise UsageError(f'"{text}": cannot read {word}. Quote a text as JSON does.') from None
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if not (any(c.isdigit() for c in word) and _NUMBER.fullmatch(word)):
        return word
    number = float(word)
    if not math.isfinite(number) or len(word) > 300:
        raise UsageError(f'"{text}": {word[:20]} is too large.')
    return number if set(word) & set(".eE") else int(word)


def write(name: str, k: int | None, parameters: Iterable[tuple[str, Value]]) -> str:
    """Put a metric's text together; the inverse of `read`.

    >>> write("recall", 20, [("relevant", 2)])
    'recall(relevant=2)@20'
    """
    inside = ", ".join(f"{key}={_text(value)}" for key, value in parameters)
    return f"{name}{f'({inside})' if inside else ''}{f'@{k}' if k is not None else ''}"


def _text(value: Value) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        plain = re.fullmatch(r'[^\s,"()=]+', value) is not None and _value(value, value) == value
        return value if plain else json.dumps(value)
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value)) if whole else repr(value)
