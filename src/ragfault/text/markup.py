"""Markup around an answer: tags, reasoning, a table of one column, JSON, escapes."""

from __future__ import annotations

import re
from functools import lru_cache

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

EMPHASIS_MARK = re.compile(r"\*{1,3}|_{1,3}|`{1,3}|~~|\n")
WORD_CHARACTER = re.compile(r"\w")
LINE_MARK_PATTERN = re.compile(r"(?m)^[^\S\n]*(?:(?:[-*+•]|#{1,6}|>)[^\S\n]+|(\d{1,2})[.)][^\S\n]+)")


# judge, metrics and causes ask for what one answer states, eight times a trace
@lru_cache(maxsize=1 << 10)
def strip_emphasis(text: str) -> str:
    """Return a text without the marks of Markdown within its lines: bold, italics, code.

    A mark opens before a character and closes after one; `*` and `_` alone do neither within a word. One pass over the
    marks, since a pattern of whole stretches looks for the end of each mark anew in a line of many.

    >>> strip_emphasis("A **night** in `room_2` is *not* 3 * 4 or my_own_name, f(**a, **b)")
    'A night in room_2 is not 3 * 4 or my_own_name, f(**a, **b)'
    """
    opened: dict[str, re.Match[str]] = {}
    marks: list[tuple[int, int]] = []
    for match in EMPHASIS_MARK.finditer(text):
        mark = match[0]
        if mark == "\n":
            opened.clear()
            continue
        start, end = match.span()
        before, after = text[max(0, start - 1) : start], text[end : end + 1]
        splits_words = mark[0] in "`~" or mark.startswith("**")
        if mark in opened and before.strip() and (splits_words or not WORD_CHARACTER.match(after)):
            marks += [opened.pop(mark).span(), (start, end)]
        elif after.strip() and (splits_words or not WORD_CHARACTER.match(before)):
            opened[mark] = match
    ends = [0, *(end for _, end in sorted(marks))]
    starts = [*(start for start, _ in sorted(marks)), len(text)]
    return "".join(text[end:start] for end, start in zip(ends, starts, strict=True))


def strip_markdown(text: str) -> str:
    """Return a text without the marks of Markdown: emphasis, code, headings, quotes and lists, on one line.

    Numbers of a list are marks if they count from 1.

    >>> strip_markdown("## Fees\\n\\n1. A night is **£10**.\\n2. *Children* pay `half`.")
    'Fees A night is £10. Children pay half.'
    >>> strip_markdown("- 3 * 4 * 5 and my_own_name\\n7. May")
    '3 * 4 * 5 and my_own_name 7. May'
    """
    expected = 1

    def remove(match: re.Match[str]) -> str:
        nonlocal expected
        if match[1] is None:
            return ""
        if int(match[1]) != expected:
            return match[0]
        expected += 1
        return ""

    return " ".join(LINE_MARK_PATTERN.sub(remove, strip_emphasis(text)).split())


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
