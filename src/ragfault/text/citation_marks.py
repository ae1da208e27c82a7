"""Citations that stand in a text: the marks with their places, and the list of sources at the end.

Read are `[1]`, `[1][2]`, `[1, 3-5]`, `[^1]`, `【4†source】`, `[file.pdf#page=3]`, `[chunk-id]`, `[Source 2]`,
`(Source 2)`, and superscripts. A mark names its source by a label; what a label means is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

MarkKind = Literal["number", "footnote", "lenticular", "word", "superscript", "name"]
"""The form of a mark; all marks of one form in a file are numbered in one way."""
MAX_RANGE = 20
"""A mark such as [1-30] is no citation of thirty sources."""
MAX_LABEL = 160

SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
SUPERSCRIPT_DIGITS = str.maketrans(SUPERSCRIPTS, "0123456789")
NUMBERS = r"\d{1,3}(?:\s*[,;–-]\s*\d{1,3})*"
SOURCE_WORDS = r"(?:sources?|passages?|chunks?|docs?|documents?|contexts?|excerpts?|refs?\.?|references?)"
FILE_STEM = r"[^\s\[\]()][^\[\]\n()]{0,120}?\.(?:pdf|docx?|html?|md|txt|pptx?|xlsx?|csv|tsv|json|xml|rst|epub)"
FILE_NAME = (
    r"(?:https?://[^\s\[\]]+"
    rf"|{FILE_STEM}"
    r"(?:[#:?,\s-][^\[\]\n]{0,60})?)"
)
MARK_PATTERN = re.compile(
    rf"\[(?P<number>{NUMBERS})\](?!\()"
    rf"|\[\^(?P<footnote>[\w-]{{1,20}})\](?!:)"
    rf"|【(?P<lenticular>[^】\n]{{1,{MAX_LABEL}}})】"
    rf"|[\[(]{SOURCE_WORDS}\s*#?(?P<word>{NUMBERS}(?:\s*(?:and|&)\s*\d{{1,3}})?)[\])]"
    rf"|\[(?P<name>{FILE_NAME})\](?!\()"
    r"|(?<!\w)\[(?P<id>(?=[\w.:]*[A-Za-z])(?=[^\]]*[\d_./:#@-])\w[\w./:#@-]{1,80})\](?!\()"
    rf"|\((?:sources?|refs?|see|from):?\s+(?P<named>{FILE_NAME})\)"
    rf"|<sup>\[?(?P<tagged>{NUMBERS})\]?</sup>"
    rf"|(?:(?<=[a-z]{{4}})|(?<=[.,;:!?\"'”)]))(?P<superscript>[{SUPERSCRIPTS}]{{1,2}}(?:[˒,⁻][{SUPERSCRIPTS}]{{1,2}})*)"
    r"(?![\w^])",
    re.IGNORECASE,
)
"""A superscript counts behind a word or a full stop, not behind a unit or a figure ("m²", "10⁶").

An id in brackets has a letter, and a digit or a sign: `[2024]` and `[sic]` are text."""
HINTS = re.compile(rf"\[|【|<sup>|[{SUPERSCRIPTS}]|\((?:s|p|c|d|e|r)", re.IGNORECASE)
"""A text without any of these has no marks; searching for them takes far less time."""

SAME_FORM = {"tagged": "superscript", "named": "name", "id": "name"}
"""Groups of the pattern that are another way to write a form."""

LIST_HEADING = re.compile(
    r"^[ \t]*(?:#+\s*|\*\*|__)?(?:sources?|references?|citations?|bibliography|footnotes?|quellen|fuentes|"
    r"r[ée]f[ée]rences)(?:[ \t]+used)?(?:\*\*|__)?:?(?:\*\*|__)?[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
LIST_ENTRY = re.compile(
    r"^[ \t]*(?:[-*•][ \t]+)?(?:\[\^?(?P<label>[\w-]{1,20})\]:?|(?P<number>\d{1,3})[.):])[ \t]*(?P<name>\S.*?)[ \t]*$"
)
PLAIN_ENTRY = re.compile(r"^[ \t]*[-*•][ \t]+(?P<name>\S.*?)[ \t]*$")
LINE_OF_SOURCES = re.compile(
    r"^[ \t]*(?:\*\*)?(?:sources?|references?|citations?):(?:\*\*)?[ \t]*(?P<names>\S.*?)[ \t]*$", re.IGNORECASE
)
CLOSING_SOURCES = re.compile(
    rf"(?<=[.!?])[ \t]+(?:sources?|references?):[ \t]*(?P<names>{FILE_NAME}(?:\s*[,;]\s*{FILE_NAME})*)\.?\s*\Z",
    re.IGNORECASE,
)
LINK = re.compile(r"\[([^\]\n]{1,160})\]\(([^)\s]{1,300})\)")


class CitationMark(NamedTuple):
    """One place of a text that names sources."""

    start: int
    end: int
    kind: MarkKind
    labels: tuple[str, ...]


class SourceEntry(NamedTuple):
    """One line of a list of sources."""

    label: str | None
    """The number or key by which the text names it; None in a list without numbers."""
    name: str
    """What the line says of it: a title, a file, an address."""


class CitedText(NamedTuple):
    """The citations of one text."""

    marks: tuple[CitationMark, ...]
    """In the order of the text, without those of the list of sources."""
    sources: tuple[SourceEntry, ...]
    """The list of sources at the end; empty without one."""
    end: int
    """Where the text ends and the list of sources begins."""


@lru_cache(maxsize=256)
def find_citations(text: str) -> CitedText:
    """Find the marks of a text and the list of sources at its end.

    >>> text = "Oslo is old [1][2]. Bergen is wet [3, 4]."
    >>> [(text[mark.start : mark.end], mark.labels) for mark in find_citations(text).marks]
    [('[1]', ('1',)), ('[2]', ('2',)), ('[3, 4]', ('3', '4'))]
    >>> cited = find_citations("It is old.[^a]\\n\\n[^a]: history.pdf")
    >>> cited.marks[0].labels, cited.sources
    (('a',), (SourceEntry(label='a', name='history.pdf'),))
    >>> find_citations("It covers 12 m² and 10⁶ bees.").marks
    ()
    """
    if HINTS.search(text) is None and "ource" not in text and "eference" not in text and "itation" not in text:
        return CitedText((), (), len(text))
    end, sources = _find_source_list(text)
    marks = tuple(_read_marks(text, end))
    return CitedText(marks, sources, end)


def _read_marks(text: str, end: int) -> Iterator[CitationMark]:
    for match in MARK_PATTERN.finditer(text, 0, end):
        kind = str(match.lastgroup)
        label = match[kind]
        if kind == "superscript":
            label = label.translate(SUPERSCRIPT_DIGITS)
        if kind in ("number", "word", "superscript", "tagged"):
            labels = _expand_numbers(label)
        elif kind == "lenticular":
            place, _, name = label.partition("†")
            is_named = name and name.lower() != "source" and not re.fullmatch(r"L\d+(?:-L?\d+)?", name)
            labels = (name if is_named else place,)
        else:
            labels = (label.strip(),)
        if labels:
            yield CitationMark(match.start(), match.end(), SAME_FORM.get(kind, kind), labels)  # type: ignore[arg-type]


def _expand_numbers(text: str) -> tuple[str, ...]:
    """Expand "1, 3-5" to its numbers; a range that is too long for citations gives none."""
    labels: list[str] = []
    for part in re.split(r"[,;˒]|\band\b|&", text):
        first, _, last = part.strip().partition("–" if "–" in part else "-")
        if not last:
            labels += [first.strip()] if first.strip() else []
        elif int(last) - int(first) > MAX_RANGE or int(last) < int(first):
            return ()
        else:
            labels += [str(number) for number in range(int(first), int(last) + 1)]
    return tuple(dict.fromkeys(labels))


def _find_source_list(text: str) -> tuple[int, tuple[SourceEntry, ...]]:
    """Find where the list of sources at the end of a text begins, and its entries.

    A list has a heading such as "Sources:", or is made of definitions of footnotes, or of lines that begin with the
    marks that the text before them uses.
    """
    none: tuple[int, tuple[SourceEntry, ...]] = (len(text), ())
    if (closing := CLOSING_SOURCES.search(text)) is not None:
        return closing.start(), tuple(_split_names(closing["names"]))
    located, entries = none, list[SourceEntry]()
    position = len(text)
    for line in reversed(text.splitlines(keepends=True)):
        position -= len(line)
        bare, body = line.strip(), text[:position]
        if not bare:
            continue
        if not body.strip():
            break
        if LIST_HEADING.match(bare):
            return (position, tuple(reversed(entries))) if entries else located
        if not entries and (listed := LINE_OF_SOURCES.match(bare)) is not None:
            return position, tuple(_split_names(listed["names"]))
        entry = LIST_ENTRY.match(bare) or PLAIN_ENTRY.match(bare)
        if entry is None:
            break
        groups = entry.groupdict()
        entries.append(SourceEntry(groups.get("label") or groups.get("number"), groups["name"]))
        used = {label for mark in MARK_PATTERN.finditer(body) for label in _expand_numbers(mark["number"] or "")}
        is_complete = used <= {item.label for item in entries}
        if is_complete and all(_is_marked(body, text[position:], item) for item in entries):
            located = position, tuple(reversed(entries))
    return located


def _is_marked(body: str, tail: str, entry: SourceEntry) -> bool:
    """Tell whether a line without a heading above it is an entry: the text uses its mark, and so does the line."""
    label = re.escape(entry.label or "")
    opening = re.search(rf"^\s*(?:[-*•]\s+)?\[(\^?){label}\]", tail, re.MULTILINE)
    return opening is not None and f"[{opening[1]}{entry.label}" in body


def _split_names(names: str) -> Iterator[SourceEntry]:
    """Split the sources of one line, which may be links, marks with names, or names between commas."""
    links = LINK.findall(names)
    if links:
        yield from (SourceEntry(None, address) for _, address in links)
        return
    for part in re.split(r"\s*[;,]\s+", names.strip(" .")):
        entry = LIST_ENTRY.match(part)
        yield SourceEntry(entry["label"] or entry["number"], entry["name"]) if entry else SourceEntry(None, part)


def blank_citations(text: str) -> str:
    """Return a text of the same length with spaces for its marks and for its list of sources.

    >>> blank_citations("Oslo is old [1].")
    'Oslo is old    .'
    """
    cited = find_citations(text)
    if not cited.marks and cited.end == len(text):
        return text
    blanked = text
    for mark in cited.marks:
        blanked = blanked[: mark.start] + " " * (mark.end - mark.start) + blanked[mark.end :]
    return blanked[: cited.end] + re.sub(r"\S", " ", blanked[cited.end :])


def remove_citations(text: str) -> str:
    """Return a text without its marks, the space before them, and its list of sources.

    >>> remove_citations("It pays 80 percent [plan.pdf#page=3]. See 【4†source】 and (Source 2).")
    'It pays 80 percent. See and.'
    """
    cited = find_citations(text)
    parts, position = [], 0
    for mark in cited.marks:
        parts.append(text[position : mark.start].rstrip(" \t"))
        position = mark.end
    return "".join((*parts, text[position : cited.end].rstrip() if cited.sources else text[position:]))
