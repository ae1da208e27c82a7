"""Markup around an answer: tags, reasoning, a table of one column, JSON, escapes."""

from __future__ import annotations

import re

# of the pairs; answers of a model that is asked twice seldom differ in markup alone
MARKUP_SHARE = 0.1

TAG_PATTERN = re.compile(r"</?[a-zA-Z][^<>]{0,80}>")

REASONING_PATTERN = re.compile(
    r"<(think|thinking|reasoning|script|style)\b[^<>]{0,80}>(?:(?!<\1\b).)*?</\1>|<!--.*?-->"
    r"|\A\s*Thought:.*?^Final Answer:|<\|\w+\|>",
    re.DOTALL | re.MULTILINE,
)
"""Reasoning before an answer, as models and agents write it, the special tokens of a model, scripts and comments."""

JSON_START = re.compile(r'\s*(?:\{|\[\s*[{\["])')

FENCE_PATTERN = re.compile(r"\A\s*```\w*\n(.*)\n```\s*\Z", re.DOTALL)

TABLE_PATTERN = re.compile(
    r"\A\s*\|[^|\n]*\|\s*\n\s*\|\s*:?-+:?\s*\|\s*\n((?:[^\S\n]*\|[^|\n]*\|[^\S\n]*(?:\n|\Z))+)\Z"
)
"""A table of one column; its heading is a name for the answer."""

ESCAPE_PATTERN = re.compile(r"%[0-9A-Fa-f]{2}")


def is_url_encoded(answer: str) -> bool:
    """Return whether an answer is one string of escapes.

    >>> is_url_encoded("Open%20until%20nine"), is_url_encoded("A discount of 20%")
    (True, False)
    """
    text = answer.strip()
    return bool(text) and not re.search(r"\s", text) and (bool(ESCAPE_PATTERN.search(text)) or text.count("+") > 1)


def is_json(answer: str) -> bool:
    """Return whether an answer begins as a JSON object or a list of values that are no numbers, fenced or not."""
    return JSON_START.match(unfence(answer)) is not None


def unfence(text: str) -> str:
    """Return what stands between the code fences around a whole text, else the text as it is."""
    fenced = FENCE_PATTERN.match(text)
    return fenced[1] if fenced else text


def is_wrapped(answer: str) -> bool:
    """Return whether an answer has tags or reasoning, is a table of one column, JSON (fenced or not), or encoded."""
    return (
        ("<" in answer and TAG_PATTERN.search(answer) is not None)
        or (may_reason(answer) and REASONING_PATTERN.search(answer) is not None)
        or TABLE_PATTERN.match(answer) is not None
        or is_json(answer)
        or is_url_encoded(answer)
    )


def may_reason(answer: str) -> bool:
    """Return whether an answer holds what every match of `REASONING_PATTERN` does; searching takes far longer."""
    return "<" in answer or "Thought:" in answer
