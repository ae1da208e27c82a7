"""From documents to chunks that know where they stand; and what happens to documents before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ragfault.records import Chunk

from .config import Indexing
from .words import NUMBER, chance, sentences

__all__ = ["ORIGINAL", "aged", "blocks", "copied", "cut"]

HEADING = re.compile(r"^## (?:Section (\d+)\. )?(.+)$", re.MULTILINE)
MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
DATE = re.compile(rf"(?<![\w.,:-])(?:[12]\d{{3}}(?![\w:,.]\d|\w)|\d{{1,2}}(?= (?:{MONTH})\b))")
PARAGRAPH = re.compile(r"(?:.+\n?)+")
ORIGINAL = re.compile(r" \(copy \d+\)$")


def blocks(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and title of every section; of every paragraph where the text has no headings."""
    heads = list(HEADING.finditer(text))
    if not heads:
        yield from ((m.start(), len(text[: m.end()].rstrip()), "") for m in PARAGRAPH.finditer(text))
        return
    ends = [head.start() for head in heads[1:]] + [len(text)]
    for head, end in zip(heads, ends, strict=True):
        yield head.start(), len(text[:end].rstrip()), head[2]


def cut(documents: Mapping[str, str], settings: Indexing) -> list[Chunk]:
    """Return the chunks of all documents; each is the text of its document from its start to its end."""
    documents = copied(
        aged(documents, settings.stale, settings.seed, settings.redated),
        settings.copied,
        settings.copies,
        settings.seed,
    )
    return [
        _chunk(name, text, start, end, title)
        for name, text in documents.items()
        for start, end, title in (blocks(text) if settings.chunker == "section" else _windows(text, settings.size))
    ]


def _chunk(name: str, text: str, start: int, end: int, title: str) -> Chunk:
    metadata: dict[str, Any] = {"title": title} if title else {}
    return Chunk(
        id=f"{name}@{start}-{end}", text=text[start:end], document=name, start=start, end=end, metadata=metadata
    )


def _windows(text: str, size: int) -> Iterator[tuple[int, int, str]]:
    """Return runs of sentences of at most so many characters, whatever section they belong to."""
    begin = stop = None
    for start, end in _pieces(text, size):
        if begin is not None and stop is not None and end - begin > size:
            yield begin, stop, ""
            begin = None
        begin = start if begin is None else begin
        stop = end
    if begin is not None and stop is not None:
        yield begin, stop, ""


def _pieces(text: str, size: int) -> Iterator[tuple[int, int]]:
    """Return the sentences of a text, those that are too long cut at blanks."""
    for start, end in sentences(text):
        at = start
        while end - at > size:
            blank = text.rfind(" ", at + size // 2, at + size)
            stop = blank if blank > 0 else at + size
            yield at, stop
            at = stop + (blank > 0)
        yield at, end


def copied(documents: Mapping[str, str], share: float, copies: int, seed: int) -> dict[str, str]:
    """Return the documents, a share of them taken in again under other names."""
    twice = [name for name in documents if chance(seed, "copied", name) < share]
    again = {f"{name} (copy {i + 1})": documents[name] for name in twice for i in range(copies)}
    return {**documents, **again}


def aged(documents: Mapping[str, str], share: float, seed: int, redated: float = 0.0) -> dict[str, str]:
    """Return the documents with other figures in a share of their sections; nothing moves by a character.

    In a share `redated` of them only dates are wrong: years, and days beside the name of a month.
    """
    if redated:
        return {name: _aged(name, text, redated, seed, DATE) for name, text in documents.items()}
    return {name: _aged(name, text, share, seed, NUMBER) for name, text in documents.items()}


def _aged(name: str, text: str, share: float, seed: int, figures: re.Pattern[str]) -> str:
    """Return a document with other figures in a share of its sections."""
    parts, at = [], 0
    for start, end, _ in blocks(text):
        old = text[start:end]
        parts += [text[at:start], _other(old, figures) if chance(seed, "stale", name, start) < share else old]
        at = end
    return "".join([*parts, text[at:]])


def _other(text: str, figures: re.Pattern[str]) -> str:
    """Return a section with other figures, but for its heading and the names of the rows of its tables."""

    def change(match: re.Match[str]) -> str:
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if line.startswith("##") or line.count("|") == 1 or line.endswith("Section "):
            return match[0]
        total = re.match(r"\d+", match[0])
        last = total.end() - 1 if total else 0
        digit = int(match[0][last])
        new = 1 + (digit + 2) % 9 if last == 0 else (digit + 3) % 10
        return f"{match[0][:last]}{new}{match[0][last + 1 :]}"

    return figures.sub(change, text)
