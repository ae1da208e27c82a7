"""Cutting documents into chunks with their positions, and the changes of documents before they are cut."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ragfault.model.records import Chunk

from .config import Indexing
from .words import NUMBER, chance, split_sentences

__all__ = ["COPY_SUFFIX", "alter_documents", "cut", "duplicate_documents", "split_sections"]

HEADING = re.compile(r"^## (?:Section (\d+)\. )?(.+)$", re.MULTILINE)
MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
DATE = re.compile(rf"(?<![\w.,:-])(?:[12]\d{{3}}(?![\w:,.]\d|\w)|\d{{1,2}}(?= (?:{MONTH})\b))")
PARAGRAPH = re.compile(r"(?:.+\n?)+")
COPY_SUFFIX = re.compile(r" \(copy \d+\)$")


def split_sections(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and title of every section; of every paragraph where the text has no headings."""
    heads = list(HEADING.finditer(text))
    if not heads:
        yield from ((m.start(), len(text[: m.end()].rstrip()), "") for m in PARAGRAPH.finditer(text))
        return
    ends = [head.start() for head in heads[1:]] + [len(text)]
    for head, end in zip(heads, ends, strict=True):
        yield head.start(), len(text[:end].rstrip()), head[2]


def cut(documents: Mapping[str, str], settings: Indexing) -> list[Chunk]:
    """Cut all documents into chunks; each is the text of its document from its start to its end."""
    documents = duplicate_documents(
        alter_documents(documents, settings.stale_share, settings.seed, settings.redated_share),
        settings.copied_share,
        settings.copies,
        settings.seed,
    )
    return [
        _build_chunk(name, text, start, end, title)
        for name, text in documents.items()
        for start, end, title in (
            split_sections(text) if settings.chunker == "section" else _split_windows(text, settings.size)
        )
    ]


def _build_chunk(name: str, text: str, start: int, end: int, title: str) -> Chunk:
    metadata: dict[str, Any] = {"title": title} if title else {}
    return Chunk(
        id=f"{name}@{start}-{end}", text=text[start:end], document=name, start=start, end=end, metadata=metadata
    )


def _split_windows(text: str, size: int) -> Iterator[tuple[int, int, str]]:
    """Yield runs of sentences of at most so many characters, across the borders of sections."""
    begin = stop = None
    for start, end in _split_sentences(text, size):
        if begin is not None and stop is not None and end - begin > size:
            yield begin, stop, ""
            begin = None
        begin = start if begin is None else begin
        stop = end
    if begin is not None and stop is not None:
        yield begin, stop, ""


def _split_sentences(text: str, size: int) -> Iterator[tuple[int, int]]:
    """Yield the sentences of a text, those of more characters cut at blanks."""
    for start, end in split_sentences(text):
        position = start
        while end - position > size:
            blank = text.rfind(" ", position + size // 2, position + size)
            stop = blank if blank > 0 else position + size
            yield position, stop
            position = stop + (blank > 0)
        yield position, end


def duplicate_documents(documents: Mapping[str, str], share: float, copies: int, seed: int) -> dict[str, str]:
    """Return the documents, with copies of a share of them under other names."""
    copied_names = [name for name in documents if chance(seed, "copied", name) < share]
    copies_by_name = {f"{name} (copy {i + 1})": documents[name] for name in copied_names for i in range(copies)}
    return {**documents, **copies_by_name}


def alter_documents(documents: Mapping[str, str], share: float, seed: int, date_share: float = 0.0) -> dict[str, str]:
    """Return the documents with other figures in a share of their sections, of the same length.

    Given `date_share`, only dates are changed, in this share of the sections: years, and days before a month's name.
    """
    if date_share:
        return {name: _alter_sections(name, text, date_share, seed, DATE) for name, text in documents.items()}
    return {name: _alter_sections(name, text, share, seed, NUMBER) for name, text in documents.items()}


def _alter_sections(name: str, text: str, share: float, seed: int, figures: re.Pattern[str]) -> str:
    """Return a document with other figures in a share of its sections."""
    parts, position = [], 0
    for start, end, _ in split_sections(text):
        section = text[start:end]
        parts += [
            text[position:start],
            _alter_figures(section, figures) if chance(seed, "stale", name, start) < share else section,
        ]
        position = end
    return "".join([*parts, text[position:]])


def _alter_figures(text: str, figures: re.Pattern[str]) -> str:
    """Return a section with other figures, except in its heading and in the first column of its tables."""

    def change_figure(match: re.Match[str]) -> str:
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if line.startswith("##") or line.count("|") == 1 or line.endswith("Section "):
            return match[0]
        total = re.match(r"\d+", match[0])
        last = total.end() - 1 if total else 0
        digit = int(match[0][last])
        new = 1 + (digit + 2) % 9 if last == 0 else (digit + 3) % 10
        return f"{match[0][:last]}{new}{match[0][last + 1 :]}"

    return figures.sub(change_figure, text)
