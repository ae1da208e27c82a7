"""Texts in records: words and codes, printed lists, and the parts of a content."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Collection
from itertools import accumulate
from typing import Any

from ragfault.io.formats.paths import parse_embedded

CODE = re.compile(
    r"[+-]?\d[\d.,:/eE+-]*%?|[0-9a-fA-F-]{8,}|\w*[\d_#/\\.@:-][^\s]*|https?://\S+|\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*|"
    r"(?i:true|false|yes|no|none|null|nan|n/a|pass|fail|test|train|dev)"
)
"""Texts that are numbers, ids, times, names of files or flags."""


LONGEST_VALUE = 80
"""Most characters of a text that is kept as metadata; a longer one is content."""
POSTGRES_ITEM = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s",{}\\]+', re.DOTALL)
POSTGRES_ARRAY = re.compile(rf"\{{(?:{POSTGRES_ITEM.pattern})(?:,(?:{POSTGRES_ITEM.pattern}))*\}}", re.DOTALL)
"""An array of texts as PostgreSQL prints it."""


def count_words(text: str) -> int:
    """Count the words of a text; text without spaces counts by its length.

    >>> count_words("When does the ferry leave?"), count_words("渡し船は何時に出ますか")
    (5, 2)
    """
    words = len(text.split())
    return max(words, len(text) // 4) if not text.isascii() and words < 4 else words


def says_nothing(value: Any, keys: Collection[str]) -> bool:
    """Tell whether a value has a place for a text, a list or one of these keys, and no text stands there.

    >>> says_nothing({"role": "assistant", "content": None}, ["content"]), says_nothing({"score": 3}, ["content"])
    (True, False)
    """
    value = parse_embedded(value)
    if isinstance(value, dict):
        named = [item for key, item in value.items() if key in keys]
        return bool(named or not value) and all(says_nothing(item, keys) for item in named)
    if isinstance(value, (list, tuple)):
        return all(says_nothing(item, keys) for item in value)
    return value is None or (isinstance(value, str) and not value.strip())


def is_code(text: str) -> bool:
    """Tell whether a text is a number, an id, a time, an address or a flag rather than language."""
    return not text.strip() or CODE.fullmatch(text.strip()) is not None


def parse_list_text(text: str) -> Any:
    """Parse a list or object as JSON, Python, NumPy, LangChain or PostgreSQL print it; return any other text unchanged.

    >>> parse_list_text("['In 1040.' 'No.']"), parse_list_text("[Document(page_content='In 1040.')]")
    (['In 1040.', 'No.'], [{'page_content': 'In 1040.'}])
    >>> parse_list_text("[{'text': 'In 1040.'}\\n {'text': 'No.'}]"), parse_list_text('{"In 1040.",No}')
    ([{'text': 'In 1040.'}, {'text': 'No.'}], ['In 1040.', 'No'])
    """
    bare = text.strip()
    if not bare or (bare[0] not in "[{(" and not bare.startswith("array(")) or bare[-1] not in "]})":
        return text
    matches = parse_embedded(bare)
    if matches is not bare and not isinstance(matches, str):
        return matches
    if len(bare) > 2**20:
        return text
    if '"' in bare and POSTGRES_ARRAY.fullmatch(bare):
        items = [item for item in POSTGRES_ITEM.findall(bare[1:-1]) if item != "NULL"]
        return [re.sub(r"\\(.)", r"\1", item[1:-1], flags=re.DOTALL) if item[0] == '"' else item for item in items]
    try:
        return _read_literal(ast.parse(_separate_items(bare), mode="eval").body)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, tokenize.TokenError):
        return text


def _separate_items(bare: str) -> str:
    """Put commas between the items of a printed array, which stand side by side without any."""
    lines = bare.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]
    tokens = [token for token in tokenize.generate_tokens(iter(lines).__next__) if token.string.strip()]
    depth, before = 0, ""
    places: list[int] = []
    for token in tokens if bare[0] == "[" else ():
        opens, closes = token.string in ("[", "{", "("), token.string in ("]", "}", ")")
        if depth == 1 and token.string == ",":
            return bare
        if (
            depth == 1
            and before not in ("[", "")
            and not closes
            and not (token.string == "(" and before.isidentifier())
        ):
            places.append(starts[token.start[0] - 1] + token.start[1])
        depth += opens - closes
        before = token.string
    for place in reversed(places):
        bare = f"{bare[:place]},{bare[place:]}"
    return bare


def _read_literal(node: ast.expr) -> Any:
    """Evaluate a literal, and a call by keywords as an object of these."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_read_literal(item) for item in node.elts]
    if isinstance(node, ast.Set):
        raise ValueError("a set has no order")
    if isinstance(node, ast.Constant) and node.value is Ellipsis:
        raise ValueError("items are left out")
    if (
        isinstance(node, ast.Call)
        and len(node.args) == 1
        and isinstance(node.func, ast.Name)
        and node.func.id == "array"
    ):
        return _read_literal(node.args[0])
    if isinstance(node, ast.Dict):
        return {
            ast.literal_eval(key): _read_literal(item)
            for key, item in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    if isinstance(node, ast.Call) and not node.args and node.keywords:
        return {str(word.arg): _read_literal(word.value) for word in node.keywords}
    if isinstance(node, ast.Name) and node.id in ("nan", "NaN", "null"):
        return None
    if isinstance(node, ast.Name) and node.id in ("true", "false"):
        return node.id == "true"
    return ast.literal_eval(node)


def join_text(value: Any) -> str | None:
    """Join the texts of a content: a text, blocks of a message, or sentences; None for anything else.

    >>> join_text([{"type": "text", "text": "In "}, {"type": "text", "text": "1040."}]), join_text({"parts": ["a"]})
    ('In 1040.', 'a')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        inner = next((value[key] for key in ("text", "content", "parts", "value") if value.get(key)), None)
        return None if inner is None or inner is value else join_text(inner)
    if isinstance(value, (list, tuple)) and value:
        spoken = [part for part in value if not isinstance(part, dict) or part.get("thought") is not True]
        selected = [p for p in spoken if not isinstance(p, dict) or "text" in str(p.get("type", "text"))] or spoken
        parts = [text for item in selected if (text := join_text(item)) is not None]
        if not parts:
            return None
        spaced = any(part[-1:].isspace() or part[:1].isspace() for part in parts)
        return ("" if spaced else " " if all(isinstance(item, str) for item in value) else "\n").join(parts)
    return None


def keep_short_values(value: Any) -> Any:
    """Keep of foreign metadata what filters can use: short values, objects and lists of these; None for anything else.

    A text of more than 80 characters is content, unless it is an address or an id; a list of objects is content, too.

    >>> keep_short_values({"tags": ["a", "b"], "note": "so " * 40, "hits": [{"text": "a"}], "user": {"tier": "gold"}})
    {'tags': ['a', 'b'], 'user': {'tier': 'gold'}}
    """
    if isinstance(value, dict):
        short = {key: keep_short_values(item) for key, item in value.items()}
        return {key: item for key, item in short.items() if item is not None or value[key] is None} or (
            None if value else {}
        )
    if isinstance(value, (list, tuple)):
        is_short = (not isinstance(part, (dict, list, tuple)) and keep_short_values(part) == part for part in value)
        return list(value) if all(is_short) else None
    is_long = isinstance(value, str) and len(value) > LONGEST_VALUE
    return None if is_long and not (value.isascii() and " " not in value.strip()) else value
