"""Boundaries of chunks by document structure and by change of topic."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ragfault.judges.checks.tables import RULE_LINE
from ragfault.judges.embedded.word_vectors import embed_word_vectors
from ragfault.model.protocols import Embedder
from ragfault.retrieval.chunking.token_spans import TokenSpan, make_break_finder

HEADING_PATTERN = re.compile(r"(#{1,6})(?:[ \t]|$)")
LIST_ITEM = re.compile(r"(?:[-*+•]|\d{1,4}[.)])[ \t]")
JSON_SYNTAX = re.compile(r'"(?>(?:[^"\\]|\\.)*)"?|[\[\]{},]', re.DOTALL)
MAX_DEPTH = 6
"""Number of levels of headings, or of JSON, that are distinguished."""


class TextBlocks(NamedTuple):
    """Starts of the parts of a text, in characters."""

    headings: list[tuple[int, int]]
    """With their depth, from 1."""
    paragraphs: list[int]
    """Paragraphs, lists, tables and code; what follows a heading without a break is part of its block."""
    items: list[int]
    """List items, and what follows an empty line in code."""
    tables: list[tuple[int, int]]
    """With their ends, exclusive."""


def iterate_lines(text: str) -> Iterator[tuple[int, str]]:
    """Iterate over lines with their offsets."""
    position = 0
    for line in text.split("\n"):
        yield position, line
        position += len(line) + 1


def parse_blocks(text: str) -> TextBlocks:
    r"""Return the blocks of a text, by Markdown syntax (also `Title` over a rule, and `== Title ==`).

    >>> parse_blocks("# Fares\n\nBy length.\n\n| Car | 20 |\n|---|---|\n| Van | 30 |\n\n- dogs\n- cats\n")
    TextBlocks(headings=[(0, 1)], paragraphs=[0, 21, 58], items=[58, 65], tables=[(21, 56)])
    """
    reader = _BlockReader()
    for position, line in iterate_lines(text):
        reader.read_line(position, line)
    reader.end_table(len(text))
    return TextBlocks(reader.headings, reader.paragraphs, reader.items, reader.tables)


class _BlockReader:
    """Reader of the blocks of a text, line by line."""

    def __init__(self) -> None:
        self.headings: list[tuple[int, int]] = []
        self.paragraphs: list[int] = []
        self.items: list[int] = []
        self.tables: list[tuple[int, int]] = []
        self.fence = ""
        """Closing fence of the open code block."""
        self.table_start = -1
        """Start of the open table."""
        self.html_table = False
        """True if the open table is in HTML."""
        self.after_blank = True
        """True at the start of the text and after an empty line."""
        self.after_heading = False
        """True if the last block is a heading."""
        self.last_line = (0, "")

    def read_line(self, position: int, line: str) -> None:
        bare = line.strip()
        if self.fence:
            self.read_code(position, bare)
        elif self.table_start >= 0 and self.continue_table(position, line):
            pass
        elif not bare:
            self.after_blank = True
        else:
            self.read_block(position, line, bare)
        self.last_line = (position, bare)

    def read_code(self, position: int, stripped: str) -> None:
        if stripped.startswith(self.fence) and not stripped.strip(self.fence[0]):
            self.fence, self.after_blank = "", True
        elif stripped and self.after_blank:
            self.items.append(position)
            self.after_blank = False
        elif not stripped:
            self.after_blank = True

    def continue_table(self, position: int, line: str) -> bool:
        """Return True while the line belongs to the table; end the table otherwise."""
        if self.html_table:
            if "</table" in line.lower():
                self.end_table(position + len(line))
            return True
        if "|" in line:
            return True
        self.end_table(position - 1)
        return False

    def end_table(self, position: int) -> None:
        if self.table_start >= 0:
            self.tables.append((self.table_start, position))
            self.table_start, self.after_blank = -1, True

    def read_block(self, position: int, line: str, stripped: str) -> None:
        """Take a line that is not empty."""
        first = stripped[0]
        if first in "`~" and stripped.startswith(("```", "~~~")):
            self.begin_paragraph(position)
            self.fence, self.after_blank = stripped[: len(stripped) - len(stripped.lstrip(first))], False
        elif first == "#" and (atx := HEADING_PATTERN.match(stripped)):
            self.add_heading(position, len(atx[1]))
        elif first in "=-" and not stripped.strip(first) and self.is_underline(stripped):
            self.add_heading(self.last_line[0], 1 if first == "=" else 2)
        elif first == "=" and stripped[-1] == "=" and stripped.strip("= "):
            self.add_heading(position, min(len(stripped[: -len(stripped.lstrip("= "))].replace(" ", "")), MAX_DEPTH))
        elif "|" in stripped and "|" in self.last_line[1] and not self.after_blank and RULE_LINE.fullmatch(stripped):
            self.begin_table(self.last_line[0], tagged=False)
        elif first == "<" and stripped[:6].lower() == "<table":
            self.begin_table(position, tagged=True)
            if "</table" in line.lower():
                self.end_table(position + len(line))
        elif LIST_ITEM.match(stripped):
            self.begin_paragraph(position)
            self.items.append(position)
        else:
            self.begin_paragraph(position)

    def is_underline(self, stripped: str) -> bool:
        """Return True for a rule that turns the line before it into a heading."""
        return (
            len(stripped) >= 3
            and not self.after_blank
            and bool(self.paragraphs)
            and self.paragraphs[-1] == self.last_line[0]
        )

    def add_heading(self, position: int, depth: int) -> None:
        self.headings.append((position, depth))
        if not self.paragraphs or self.paragraphs[-1] < position:
            self.paragraphs.append(position)
        self.after_blank, self.after_heading = False, True

    def begin_table(self, position: int, *, tagged: bool) -> None:
        self.table_start, self.html_table, self.after_heading = position, tagged, False
        if not self.paragraphs or self.paragraphs[-1] < position:
            self.paragraphs.append(position)

    def begin_paragraph(self, position: int) -> None:
        """Begin a paragraph, unless one goes on or nothing but a heading stands before it."""
        if self.after_blank and not self.after_heading:
            self.paragraphs.append(position)
        self.after_blank = self.after_heading = False


def parse_json_levels(text: str) -> list[list[int]] | None:
    """Return the offsets of members of a JSON document after the first, by depth; None for other texts.

    >>> parse_json_levels('{"a": [1, 2], "b": 3}')
    [[14], [10], [], [], [], []]
    """
    bare = text.strip()
    if bare[:1] + bare[-1:] not in ("{}", "[]"):
        return None
    levels: list[list[int]] = [[] for _ in range(MAX_DEPTH)]
    depth = 0
    for match in JSON_SYNTAX.finditer(text):
        sign = match[0]
        if sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
        elif sign == "," and 1 <= depth <= MAX_DEPTH:
            after = match.end()
            levels[depth - 1].append(after + (text[after : after + 1] == " "))
    return levels


BreakLevels = list[list[int]]
"""Places where parts begin, in characters; the coarsest first."""


class PartBoundaries(NamedTuple):
    """Starts of the parts of a document."""

    levels: BreakLevels
    titles: Sequence[int] = ()
    """Starts of lines that always stay with the line after them, in characters."""


MAX_HEADING_LENGTH = 300
"""No line longer than this is a heading or a question."""
NUMBERED_TITLE = re.compile(r"(\d{1,2}(?:\.\d{1,2}){0,4})\.?[ \t]+[^\W\d_]")
ROMAN_TITLE = re.compile(r"[IVX]{1,5}\.[ \t]+[A-Z]")
SECTION_TITLE = re.compile(
    r"(?:abstract|introduction|background|related work|preliminaries|materials and methods|methods?|methodology"
    r"|experiments?|experimental setup|evaluation|results(?: and discussion)?|discussion|limitations|conclusions?"
    r"|future work|acknowledge?ments?|references|bibliography|appendix(?: [A-Z0-9])?|supplementary material)[.:]?",
    re.IGNORECASE,
)
QUESTION_LABEL = re.compile(r"(?:q|question|frage|pregunta)[ \t]*\d{0,4}[ \t]*[:.)]", re.IGNORECASE)
LINE_DECORATION = "#*_>-+• \t"
ARTICLE_TITLE = re.compile(
    r"(?:article|section|clause|chapter|part|title|schedule|annex|appendix|exhibit|artikel|paragraph)[ \t]+"
    r"(?:\d{1,4}|[IVXLC]{1,7}|[A-Z])(?![\w'])"
    r"|§{1,2}[ \t]*\d{1,4}|recitals?$|preamble$|definitions$",
    re.IGNORECASE,
)
CLAUSE_NUMBER = re.compile(r"(\d{1,3}(?:\.\d{1,3}){0,4})(?:[.)][ \t]+|[ \t]+(?=[A-Z\"“]))\S?")
CLAUSE_LETTER = re.compile(r"\(?(?:([ivx]{1,5})|([a-z]{1,2}|\d{1,3}|[A-Z]))\)[ \t]+\S")
SPEAKER_TURN = re.compile(
    r"(?:\[[^\]\n]{1,40}\]|\(?\d{1,2}:\d{2}(?::\d{2})?\)?(?:[ \t]?[AaPp][Mm])?)?[ \t]*[-–]?[ \t]*"
    r"[*_]{0,2}<?([^\W\d_][\w.'-]{0,30}(?:[ \t][\w.'-]{1,30}){0,3})>?[ \t]*(?:[(\[][^)\]\n]{1,40}[)\]])?[ \t]*[*_]{0,2}"
    r"(?::[*_]{0,2}(?:[ \t]|$)|(?<=>)[ \t])"
)
SPEAKER_ROLES = frozenset(
    "user assistant system human ai bot agent customer client support operator caller tool model".split()  # noqa: SIM905
)


def locate_recursive(text: str, blocks: TextBlocks) -> PartBoundaries:
    """Return headings by level, paragraphs and list items; of a JSON document its members by depth."""
    levels = parse_json_levels(text) or [*_group_by_depth(blocks.headings), blocks.paragraphs, blocks.items]
    return PartBoundaries(levels, _list_headings(blocks))


def _list_headings(blocks: TextBlocks) -> list[int]:
    return [position for position, _ in blocks.headings]


def _group_by_depth(headings: Sequence[tuple[int, int]]) -> BreakLevels:
    """Return for each depth the headings of at most this depth."""
    return [[position for position, depth in headings if depth <= max_depth] for max_depth in range(1, MAX_DEPTH + 1)]


def locate_sections(text: str, blocks: TextBlocks) -> PartBoundaries:
    """Return the sections of a paper: by headings, else by numbered and customary titles.

    The first level is the highest of which there are two.
    """
    headings = blocks.headings if len(blocks.headings) > 1 else _detect_titles(text)
    several = (depth for depth, count in sorted(Counter(depth for _, depth in headings).items()) if count > 1)
    top = next(several, 1)
    levels = [*_group_by_depth(headings)[top - 1 :], blocks.paragraphs, blocks.items]
    return PartBoundaries(levels, [position for position, _ in headings])


def _detect_titles(text: str) -> list[tuple[int, int]]:
    """Return section titles in plain text with their depth: short lines that are numbered or customary."""
    titles: list[tuple[int, int]] = []
    fresh = True
    for position, line in iterate_lines(text):
        bare = line.strip()
        if fresh and 0 < len(bare) <= 90 and not bare.endswith((".", ",", ";")):
            numbered = NUMBERED_TITLE.match(bare)
            if numbered:
                titles.append((position, min(numbered[1].count(".") + 1, MAX_DEPTH)))
            elif ROMAN_TITLE.match(bare) or SECTION_TITLE.fullmatch(bare):
                titles.append((position, 1))
        fresh = not bare
    return titles


def locate_pairs(text: str, blocks: TextBlocks) -> PartBoundaries:
    """Return questions with the answers below them, after the headings of their groups.

    Questions are lines that are labelled so; where there are no two of these, headings that end in a question mark;
    else any line after an empty one that does.
    """
    headed = {position for position, _ in blocks.headings}
    labelled: list[int] = []
    titled: list[int] = []
    asked: list[int] = []
    fresh = True
    for position, line in iterate_lines(text):
        bare = line.strip(LINE_DECORATION)
        if bare and len(bare) <= MAX_HEADING_LENGTH:
            if QUESTION_LABEL.match(bare):
                labelled.append(position)
            if bare.endswith(("?", "？")):
                (titled if position in headed else asked if fresh else []).append(position)
        fresh = not bare
    questions = next((marks for marks in (labelled, titled) if len(marks) > 1), sorted(titled + asked))
    starts = sorted({*questions, *(headed.difference(titled) if questions else ())})
    return PartBoundaries([starts, blocks.paragraphs, blocks.items], [*_list_headings(blocks), *questions])


def locate_clauses(text: str, blocks: TextBlocks) -> PartBoundaries:
    """Return articles and headings, then clauses by the depth of their number: 1., 1.1, 1.1.1, (a), (i)."""
    levels: BreakLevels = [[] for _ in range(7)]
    levels[0] += _list_headings(blocks)
    for position, line in iterate_lines(text):
        bare = line.strip(LINE_DECORATION)
        if not bare:
            continue
        numbered = CLAUSE_NUMBER.match(bare)
        if ARTICLE_TITLE.match(bare):
            levels[0].append(position)
        elif numbered:
            levels[min(numbered[1].count(".") + 1, 4)].append(position)
        elif lettered := CLAUSE_LETTER.match(bare):
            levels[6 if lettered[1] and lettered[1] not in ("i", "v", "x") else 5].append(position)
    titles = list(levels[0])
    return PartBoundaries([*(sorted(set(level)) for level in levels), blocks.paragraphs], titles)


def locate_turns(text: str, blocks: TextBlocks) -> PartBoundaries:
    """Return the turns of a chat: lines that begin with a speaker, by a customary role or a repeated name."""
    spoken: list[tuple[int, str]] = []
    for position, line in iterate_lines(text):
        bare = line.lstrip(LINE_DECORATION)
        turn = SPEAKER_TURN.match(bare[:200])
        if turn:
            spoken.append((position, turn[1].casefold()))
    counts = Counter(who for _, who in spoken)
    starts = [position for position, who in spoken if counts[who] > 1 or who in SPEAKER_ROLES]
    levels = [starts] if starts else (parse_json_levels(text) or [])
    return PartBoundaries([*levels, blocks.paragraphs, blocks.items])


SENTENCE_BATCH = 256
CONTEXT_SENTENCES = 3
"""Number of sentences compared on each side (blocks, as in TextTiling: Hearst 1997)."""

Array = np.ndarray[Any, Any]


def measure_topic_shifts(texts: Sequence[str], embedder: Embedder | None = None) -> list[float]:
    """Return the distance of each sentence but the first, with the two after it, from the three before, in [0, 1].

    Half of 1 less the cosine of the sums of their vectors; 0.5 where one side says nothing.
    """
    embed = embed_word_vectors if embedder is None else embedder.embed
    shifts: list[float] = []
    for start in range(1, len(texts), SENTENCE_BATCH):
        last = min(start + SENTENCE_BATCH, len(texts))
        low, high = max(start - CONTEXT_SENTENCES, 0), min(last - 1 + CONTEXT_SENTENCES, len(texts))
        rows = np.asarray(embed(texts[low:high]), np.float32)
        shifts += _compute_distances(rows, np.arange(start - low, last - low))
    return shifts


def _compute_distances(rows: Array, cuts: Array) -> list[float]:
    """Return the distance of the rows from each position on from the rows before."""
    sums = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0, dtype=np.float64)])
    left = sums[cuts] - sums[np.maximum(cuts - CONTEXT_SENTENCES, 0)]
    right = sums[np.minimum(cuts + CONTEXT_SENTENCES, len(rows))] - sums[cuts]
    scale = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosine = (left * right).sum(axis=1) / np.where(scale > 0, scale, 1)
    distances: list[float] = np.round((1 - np.where(scale > 0, cosine, 0)) / 2, 6).tolist()
    return distances


def make_semantic_divider(
    breaks: Sequence[int], strengths: dict[int, float], max_tokens: int
) -> Callable[[TokenSpan], list[TokenSpan]]:
    """Return the divider into spans of at most `max_tokens`, at the strongest break in their second half.

    Equal breaks: the later one; no break in the second half: the last before; none at all: when it is full.

    >>> make_semantic_divider([3, 5, 6, 9], {3: 0.1, 5: 0.4, 6: 0.2, 9: 0.3}, 6)(TokenSpan(0, 12))
    [TokenSpan(start=0, end=5), TokenSpan(start=5, end=9), TokenSpan(start=9, end=12)]
    """
    find_breaks = make_break_finder(breaks)

    def divide(span: TokenSpan) -> list[TokenSpan]:
        pieces: list[TokenSpan] = []
        start = span.start
        while span.end - start > max_tokens:
            candidates = find_breaks(start, start + max_tokens + 1)
            late = [i for i in candidates if i - start >= (max_tokens + 1) // 2]
            if late:
                end = max(late, key=lambda i: (strengths.get(i, 0.0), i))
            else:
                end = candidates[-1] if candidates else start + max_tokens
            pieces.append(TokenSpan(start, end))
            start = end
        return [*pieces, TokenSpan(start, span.end)]

    return divide
