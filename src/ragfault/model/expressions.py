"""The syntax `name(value, key=value)@k` of metrics, chunkers, embedders, rerankers and pipeline stages."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ragfault.model.errors import UsageError

Scalar = str | int | float | bool | None

_EXPRESSION = re.compile(r"\s*([A-Za-z_][\w:./-]*)\s*(?:\((.*)\)\s*)?(?:@\s*(\d{1,9})\s*)?", re.DOTALL)
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<word>[^\s"'(),=\[\]]+)|(?P<sign>[(),=\[\]]))\s*"""
)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_NAME = re.compile(r"[A-Za-z_]\w*")
_KEY = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*")
_WORD = re.compile(r"\w[\w:./-]*")
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "none": None}
_CLOSING = {"[": "]", "(": ")"}
MAX_NUMBER_LENGTH = 300


class Expression(NamedTuple):
    """A name with its values in order, its values by name, and its cut-off."""

    name: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = {}
    cutoff: int | None = None


def parse_expression(text: str, kind: str = "") -> Expression:
    """Parse `name`, `name(value, key=value)` or either with a cut-off `@k`; nothing is evaluated.

    Values are whole numbers, decimals, true, false, none, words, quoted texts, and lists of these. `kind` ("metric",
    "stage") is what messages call the expression. Raises UsageError for a text that does not follow the syntax.

    >>> parse_expression("hybrid(50, method=rrf)")
    Expression(name='hybrid', arguments=(50,), options={'method': 'rrf'}, cutoff=None)
    >>> parse_expression("recall(relevant=2)@20").cutoff
    20
    """
    match = _EXPRESSION.fullmatch(text)
    if match is None:
        article = f"a {kind}" if kind else "an expression"
        several = " Give several one by one, not with commas." if "," in text.partition("(")[0] else ""
        raise UsageError(f'"{text}" is not {article}. Write name, name(key=value) or name(key=value)@k.{several}')
    name, inside, cutoff = match.groups()
    if cutoff is not None and not int(cutoff):
        raise UsageError(f'"{text}": a cut-off is at least 1.')
    arguments, options = _Parser(text, inside or "").parse_arguments()
    return Expression(name, arguments, options, int(cutoff) if cutoff else None)


class _Parser:
    """The values between the parentheses of an expression, read token by token."""

    def __init__(self, text: str, inside: str) -> None:
        self.text, self.inside, self.position = text, inside.strip(), 0

    def parse_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        arguments: list[Any] = []
        options: dict[str, Any] = {}
        while self.position < len(self.inside):
            start = self.position
            if key := _KEY.match(self.inside, start):
                if key[1] in options:
                    raise UsageError(f'"{self.text}": {key[1]} is given twice.')
                self.position = key.end()
                options[key[1]] = self._parse_value()
            elif options:
                raise self._make_error(start)
            else:
                arguments.append(self._parse_value())
            if not self._skip(",") and self.position < len(self.inside):
                raise self._make_error(start)
        return tuple(arguments), options

    def _parse_value(self) -> Scalar | list[Scalar]:
        start = self.position
        if (opening := self._skip("[(")) is None:
            return self._parse_scalar()
        items: list[Scalar] = []
        while not self._skip(_CLOSING[opening]):
            items.append(self._parse_scalar())
            if not self._skip(",") and self.inside[self.position : self.position + 1] != _CLOSING[opening]:
                raise self._make_error(start)
        return items

    def _parse_scalar(self) -> Scalar:
        match = _TOKEN.match(self.inside, self.position)
        if match is None or match["sign"]:
            raise self._make_error(self.position)
        if (quoted := match["text"]) is not None:
            self.position = match.end()
            return self._unquote(quoted)
        word = match["word"]
        if word.lower() in _LITERALS:
            self.position = match.end()
            return _LITERALS[word.lower()]
        if _NUMBER.fullmatch(word):
            self.position = match.end()
            return self._parse_number(word)
        if not _WORD.fullmatch(word):
            raise self._make_error(self.position)
        self.position = match.end()
        return word

    def _parse_number(self, word: str) -> int | float:
        if len(word) > MAX_NUMBER_LENGTH or not math.isfinite(float(word)):
            raise UsageError(f'"{self.text}": {word[:20]} is too large.')
        return float(word) if set(word) & set(".eE") else int(word)

    def _unquote(self, quoted: str) -> str:
        if quoted[0] == "'":
            quoted = '"' + quoted[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
        try:
            return str(json.loads(quoted))
        except ValueError:
            raise UsageError(f'"{self.text}": cannot read {quoted}. Quote a text as JSON does.') from None

    def _skip(self, signs: str) -> str | None:
        """Skip one of the signs, and return it; None if another token follows."""
        match = _TOKEN.match(self.inside, self.position)
        if match is None or not match["sign"] or match["sign"] not in signs:
            return None
        self.position = match.end()
        return match["sign"]

    def _make_error(self, start: int) -> UsageError:
        return UsageError(
            f'"{self.text}": cannot read "{self.inside[start:]}". Write values as key=value, …, texts in quotes.'
        )


def format_expression(
    name: str, arguments: Sequence[Any] = (), options: Mapping[str, Any] | None = None, cutoff: int | None = None
) -> str:
    """Format an expression; the inverse of `parse_expression`.

    >>> format_expression("restrict", options={"language": "en", "date__from": "2024-01"})
    'restrict(language=en, date__from="2024-01")'
    """
    parts = [_format_value(value) for value in arguments]
    parts += [f"{key}={_format_value(value)}" for key, value in (options or {}).items()]
    inside = f"({', '.join(parts)})" if parts else ""
    return f"{name}{inside}{f'@{cutoff}' if cutoff is not None else ''}"


def _format_value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        is_plain = _NAME.fullmatch(value) and value.lower() not in _LITERALS
        return value if is_plain else json.dumps(value, ensure_ascii=False)
    return f"[{', '.join(map(_format_value, value))}]" if isinstance(value, (list, tuple)) else repr(value)
