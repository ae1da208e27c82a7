"""Lines of logs: the objects that stand behind the text which a logger writes before each."""

from __future__ import annotations

import json
import re
from typing import Any

from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.texts import parse_list_text

LOGGED_OBJECT = re.compile(rb"""^[ \t]*(?!#|//)[^\s{}][^{}\n]{0,300}\{\s*["']\w[^"'\n]{0,80}["']\s*:""", re.MULTILINE)
"""A line with a text, and the beginning of an object with a key."""
JSON_START = re.compile(rb"\s*(\{|\[\s*(?:[{\[\"']|\n|$))")
MAX_STARTS = 8
"""Braces of a line at which an object is looked for."""
PREFIX_KEY = "log"
"""The key under which the text around an object is kept."""


def is_log(head: bytes) -> bool:
    """Tell whether the first lines of a file are those of a log, with objects behind a text.

    >>> is_log(b'2026-01-02 12:00:00 INFO rag {"query": "When?"}'), is_log(b'{"query": "When {now: 1}?"}')
    (True, False)
    """
    return JSON_START.match(head) is None and LOGGED_OBJECT.search(head) is not None


def split_log_line(line: str) -> tuple[dict[str, Any] | None, str]:
    """Split a line into the first object in it, as JSON or Python print it, and the text around that.

    >>> split_log_line('12:00 INFO [rag] trace={"query": "When?"} took=3ms')
    ({'query': 'When?'}, '12:00 INFO [rag] trace= took=3ms')
    """
    decoder = json.JSONDecoder()
    starts = [match.start() for match in re.finditer(r"\{", line)][:MAX_STARTS]
    for start in starts:
        try:
            value, end = decoder.raw_decode(line, start)
        except (ValueError, RecursionError):
            continue
        if value:
            return value, (line[:start].rstrip() + line[end:].rstrip()).strip()
    end = line.rfind("}") + 1
    for start in starts if end else ():
        value = parse_list_text(line[start:end])
        if isinstance(value, dict) and value:
            return value, (line[:start].rstrip() + line[end:].rstrip()).strip()
    return None, line.strip()


def read_log_line(line: bytes) -> dict[str, Any] | InvalidRecord | None:
    """Read the object of a line, with the text around it under `log`; None if the line holds none."""
    try:
        record, text = split_log_line(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return InvalidRecord(f"invalid UTF-8 at byte {error.start + 1}", line)
    if record is None:
        return InvalidRecord("the object in this line of a log is not closed", line) if is_log(line) else None
    return {PREFIX_KEY: text, **record} if text else record
