"""Texts in records: words and codes, printed lists, and the parts of a content."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from typing import Any

from ragfault.io.formats.paths import parse_embedded

CODE = re.compile(
    r"[+-]?\d[\d.,:/eE+-]*%?|[0-9a-fA-F-]{8,}|\w*[\d_#/\\.@:-][^\s]*|https?://\S+|\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*|"
    r"(?i:true|false|yes|no|none|null|nan|n/a|pass|fail|test|train|dev)"
)
"""Texts that are numbers, ids, times, names of files or flags."""


def count_words(text: str) -> int:
    """Count the words of a text; text without spaces counts by its length.

    >>> count_words("When does the ferry leave?"), count_words("渡し船は何時に出ますか")
    (5, 2)
    """
    words = len(text.split())
    return max(words, len(text) // 4) if not text.isascii() and words < 4 else words


def is_code(text: str) -> bool:
    """Tell whether a text is a number, an id, a time, an address or a flag rather than language."""
    return not text.strip() or CODE.fullmatch(text.strip()) is not None


def parse_list_text(text: str) -> Any:
    """Parse a list or object as JSON, Python, NumPy or LangChain print it; return any other text unchanged.

    >>> parse_list_text("['In 1040.' 'No.']"), parse_list_text("[Document(page_content='In 1040.')]")
    (['In 1040.', 'No.'], [{'page_content': 'In 1040.'}])
    """
    bare = text.strip()
    if bare[:1] not in "[{(" or not bare or bare[-1] not in "]})":
        return text
    matches = parse_embedded(bare)
    if matches is not bare and not isinstance(matches, str):
        return matches
    if len(bare) > 2**20:
        return text
    try:
        texts = _list_adjacent_texts(bare)
        return texts if texts else _read_literal(ast.parse(bare, mode="eval").body)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, tokenize.TokenError):
        return text


def _list_adjacent_texts(bare: str) -> list[str]:
    """List the texts of a printed array, which stand side by side without commas."""
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(bare).readline) if t.string.strip()]
    inner = tokens[1:-1]
    if len(inner) > 1 and bare[0] == "[" and all(token.type == tokenize.STRING for token in inner):
        return [str(ast.literal_eval(token.string)) for token in inner]
    return []


def _read_literal(node: ast.expr) -> Any:
    """Evaluate a literal, and a call by keywords as an object of these."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_read_literal(part) for part in node.elts]
    if isinstance(node, ast.Dict):
        return {
            ast.literal_eval(key): _read_literal(part)
            for key, part in zip(node.keys, node.values, strict=True)
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
        selected = [p for p in value if not isinstance(p, dict) or "text" in str(p.get("type", "text"))] or value
        parts = [text for part in selected if (text := join_text(part)) is not None]
        if not parts:
            return None
        spaced = any(part[-1:].isspace() or part[:1].isspace() for part in parts)
        return ("" if spaced else " " if all(isinstance(part, str) for part in value) else "\n").join(parts)
    return None
