"""The retriever of the system that records the demo data: random numbers, words, chunkers, and BM25."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from ragfault.model.records import Chunk

# --- random numbers and words ------------------------------------------------------------------------------


def draw_number(*parts: object) -> float:
    """Return a number in [0, 1) that depends on the parts alone."""
    digest = hashlib.sha256("|".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def pick(options: list[str], *parts: object) -> str:
    """Return one of several options, by the number that the parts draw."""
    return options[int(draw_number(*parts) * len(options))]


STOP_WORDS = frozenset(
    re.findall(
        "[a-z]+",
        "a an and are as at be by can do does for from have how i if in is it me my of on or our so than that the "
        "their there they this to up was we what when where which who will with you your",
    )
)


def extract_words(text: str) -> list[str]:
    """Return the words and figures of a text in lower case, without stop words and plural endings."""
    result = re.findall(r"[a-z]+|\d+(?:[.,:]\d+)*", text.lower())
    return [w[:-1] if len(w) > 3 and w.endswith("s") else w for w in result if w not in STOP_WORDS]


# --- the chunkers ----------------------------------------------------------------------------------

SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z0-9])|\n+")
HEADING = re.compile(r"^## Section (\d+)\. (.+)$", re.MULTILINE)


def split_sections(text: str) -> Iterator[tuple[int, int, int, str]]:
    """Yield start, end, number and title of every section, without the white space that follows it."""
    heads = list(HEADING.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    for head, end in zip(heads, ends, strict=True):
        yield head.start(), len(text[:end].rstrip()), int(head[1]), head[2]


def extract_dates(text: str, start: int, end: int) -> dict[str, Any]:
    """Return the date of the document's revision and, for a tariff, the dates between which the section is valid."""
    revised = re.search(r"^Last revised: (\S+)\.$", text, re.MULTILINE)
    valid = re.search(r"Valid: (\S+) to (\S+)\.", text[start:end])
    dates = {"valid_from": valid[1], "valid_to": valid[2]} if valid else {}
    return ({"updated_at": revised[1]} if revised else {}) | dates


def cut_sections(document: str, text: str) -> Iterator[Chunk]:
    """Yield one chunk for each section, with its heading."""
    stem = document.removesuffix(".md")
    for start, end, number, title in split_sections(text):
        metadata = {"section": number, "title": title} | extract_dates(text, start, end)
        yield Chunk(
            id=f"{stem}#{number}", text=text[start:end], document=document, start=start, end=end, metadata=metadata
        )


def split_sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of sentences and table lines of a text, without its heading and rules."""
    position = start = text.index("\n", start) + 1 if text.startswith("## ", start) else start
    for gap in [*SENTENCE.finditer(text, start, end), None]:
        stop = gap.start() if gap else end
        if text[position:stop].strip() and not text.startswith("|---", position):
            yield position, stop
        position = gap.end() if gap else end


def cut_sentences(document: str, text: str) -> Iterator[Chunk]:
    """Yield one chunk for each sentence or table line; headings are dropped, long sentences cut in two."""
    stem = document.removesuffix(".md")
    for section_start, section_end, _, _ in split_sections(text):
        metadata = extract_dates(text, section_start, section_end)
        for start, end in split_sentences(text, section_start, section_end):
            kind = "table" if text.startswith("|", start) else "text"
            for a, b in [(start, end)] if kind == "table" else split_long_sentence(text, start, end):
                yield Chunk(
                    id=f"{stem}@{a}-{b}",
                    text=text[a:b],
                    document=document,
                    start=a,
                    end=b,
                    kind=kind,
                    metadata=metadata,
                )


def split_long_sentence(text: str, start: int, end: int, max_words: int = 100) -> list[tuple[int, int]]:
    """Return the span of a sentence, or two spans cut at the blank before its middle where it is too long."""
    if end - start <= max_words:
        return [(start, end)]
    middle = text.rindex(" ", start, (start + end) // 2 + 1)
    return [(start, middle), (middle + 1, end)]


# --- the retriever ---------------------------------------------------------------------------------


class Index:
    """BM25 over chunks."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self.chunks = chunks
        self.counts = [Counter(extract_words(chunk.text)) for chunk in chunks]
        self.lengths = [sum(count.values()) for count in self.counts]
        self.average = sum(self.lengths) / len(chunks)
        document_counts = Counter(word for count in self.counts for word in count)
        self.idf = {word: math.log(1 + (len(chunks) - n + 0.5) / (n + 0.5)) for word, n in document_counts.items()}

    def score(self, query: list[str], i: int) -> float:
        norm = 1.2 * (0.25 + 0.75 * self.lengths[i] / self.average)
        hits = ((self.counts[i][word], self.idf.get(word, 0.0)) for word in query)
        return sum(idf * n * 2.2 / (n + norm) for n, idf in hits)

    def search(self, query: str, top_k: int, score_floor: float) -> tuple[Chunk, ...]:
        """Return the best chunks, those below the floor (a share of the best score) left out."""
        query_words = sorted(set(extract_words(query)))
        scores = [round(self.score(query_words, i), 3) for i in range(len(self.chunks))]
        ranked = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:top_k]
        threshold = score_floor * scores[ranked[0]]
        return tuple(
            msgspec.structs.replace(self.chunks[i], score=scores[i])
            for i in ranked
            if scores[i] > 0 and scores[i] >= threshold
        )
