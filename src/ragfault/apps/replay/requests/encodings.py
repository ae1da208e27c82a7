"""How a passage is written into a request: as it is, escaped as JSON or HTML, indented, quoted, or on one line."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

JSON_ESCAPE = re.compile(r'\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|["\\/bfnrt])')
HTML_ESCAPE = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,8});")
LINE_QUOTE = re.compile(r"(?m)^[ \t]*(?:[>|][ \t]?)+")


class DecodedText(NamedTuple):
    """A text as an encoding reads it, and where each of its characters stands in the text as it was written."""

    text: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]


def read_plain(text: str) -> DecodedText:
    """Return a text as it is."""
    return DecodedText(text, tuple(range(len(text))), tuple(range(1, len(text) + 1)))


def _replace(decoded: DecodedText, pattern: re.Pattern[str], decode: Callable[[str], str]) -> DecodedText:
    """Replace what a pattern matches; each new character stands where the match stood."""
    text: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    position = 0

    def copy(until: int) -> None:
        text.append(decoded.text[position:until])
        starts.extend(decoded.starts[position:until])
        ends.extend(decoded.ends[position:until])

    for match in pattern.finditer(decoded.text):
        copy(match.start())
        position = match.end()
        new = decode(match[0])
        text.append(new)
        starts.extend([decoded.starts[match.start()]] * len(new))
        ends.extend([decoded.ends[match.end() - 1]] * len(new))
    copy(len(decoded.text))
    return DecodedText("".join(text), tuple(starts), tuple(ends))


def _decode_json(escape: str) -> str:
    return str(json.loads(f'"{escape}"'))


def _read_json(decoded: DecodedText) -> DecodedText:
    return _replace(decoded, JSON_ESCAPE, _decode_json)


def _read_html(decoded: DecodedText) -> DecodedText:
    return _replace(decoded, HTML_ESCAPE, html.unescape)


def _read_quoted(decoded: DecodedText) -> DecodedText:
    return _replace(decoded, LINE_QUOTE, lambda _: "")


READERS: dict[str, Callable[[DecodedText], DecodedText]] = {
    "plain": lambda decoded: decoded,
    "json": _read_json,
    "html": _read_html,
    "quoted": _read_quoted,
    "json in json": lambda decoded: _read_json(_read_json(decoded)),
}
"""Encodings of a passage within a message, in the order in which they are tried."""


def compact(decoded: DecodedText) -> DecodedText:
    """Return a text without its white space, so that line breaks and indentation do not matter to a search.

    >>> compact(read_plain("At ten.\\n  Daily.")).text
    'Atten.Daily.'
    """
    visible = [place for place, character in enumerate(decoded.text) if not character.isspace()]
    return DecodedText(
        "".join(decoded.text[place] for place in visible),
        tuple(decoded.starts[place] for place in visible),
        tuple(decoded.ends[place] for place in visible),
    )


class WritingStyle(NamedTuple):
    """How passages are written into a message: the layout of their lines, then the escapes."""

    encoding: str
    layout: str
    """"lines", "one line", or the text that begins each line after the first."""


def _escape(text: str, encoding: str, variant: int) -> str:
    if encoding == "json":
        return json.dumps(text, ensure_ascii=variant == 1)[1:-1]
    if encoding == "json in json":
        inner = json.dumps(text, ensure_ascii=variant == 1)[1:-1]
        return json.dumps(inner, ensure_ascii=variant == 1)[1:-1]
    if encoding == "html":
        return html.escape(text, quote=variant == 1)
    return text


def _lay_out(text: str, layout: str) -> str:
    text = text.strip()
    if layout == "one line":
        return " ".join(text.split())
    if layout == "lines":
        return text
    return text.replace("\n", f"\n{layout}")


class PassageWriter(NamedTuple):
    """Writes a passage as the other passages of a message are written."""

    style: WritingStyle
    variant: int = 0

    def write(self, text: str) -> str:
        return _escape(_lay_out(text, self.style.layout), self.style.encoding, self.variant)


def list_writers(written: Iterable[tuple[str, str]]) -> tuple[PassageWriter, ...]:
    """List the ways of writing that give every one of these texts, from pairs of a passage and what stands for it.

    Passages without line breaks, quotes and signs of markup leave several ways open.

    >>> [writer] = {writer.style for writer in list_writers([("At ten.\\nDaily.", "- At ten.\\n  Daily."[2:])])
    ...     if writer.style.encoding == "plain"}
    >>> writer.layout
    '  '
    >>> list_writers([("At ten.", "At  ten.")])
    ()
    """
    pairs = list(written)
    layouts = ["lines", "one line"]
    for text, shown in pairs:
        lines, shown_lines = text.strip().split("\n"), shown.split("\n")
        if len(lines) == len(shown_lines) > 1 and shown_lines[1].endswith(lines[1]):
            layouts.append(shown_lines[1][: len(shown_lines[1]) - len(lines[1])])
    writers = [
        PassageWriter(WritingStyle(encoding, layout), variant)
        for encoding in READERS
        for layout in dict.fromkeys(layouts)
        for variant in (0, 1)
    ]
    return tuple(writer for writer in writers if all(writer.write(text) == shown for text, shown in pairs))
