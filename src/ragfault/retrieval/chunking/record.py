"""The record of a chunker: what it is called, what it is asked for, and the chunks it makes of a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ragfault.errors import UnknownName, UsageError
from ragfault.ports import Embedder
from ragfault.records import Chunk, Document
from ragfault.retrieval.calls import write_call
from ragfault.retrieval.chunking import marks
from ragfault.retrieval.chunking.blocks import Blocks, blocks, lines
from ragfault.retrieval.chunking.cohesion import at_turns, turning
from ragfault.retrieval.chunking.cutting import Level, Piece, between, cut, divide, sentence_level
from ragfault.retrieval.chunking.marks import Marks
from ragfault.retrieval.chunking.tokens import Tokens
from ragfault.sources.values import content_id

__all__ = ["KINDS", "Chunker"]

KINDS: dict[str, Callable[[str, Blocks], Marks] | None] = {
    "fixed": None,
    "sentences": lambda text, found: Marks([]),  # noqa: ARG005
    "recursive": marks.recursive,
    "semantic": None,
    "pairs": marks.pairs,
    "clauses": marks.clauses,
    "turns": marks.turns,
    "sections": marks.sections,
}
"""Kind → where its parts begin, the coarsest first."""

APART = ("recursive", "pairs", "clauses", "turns", "sections")
"""Kinds whose parts can be kept apart."""

WHOLE = 4
"""A table is one chunk up to so many times the size."""


class Part(NamedTuple):
    """A piece of a document and whether it is (of) a table."""

    piece: Piece
    table: bool


@dataclass(frozen=True)
class Chunker:
    """A way to cut documents into chunks: a callable, Document → chunks in their order.

    The text of a chunk is `document.text[start:end]`, always; its metadata is that of the document. Its id is that of
    the document, "#", and 12 hex digits of its text, so that the same id means the same passage, also where text
    before it has changed; a text that stands in the document again has "~2", "~3" … behind that. Together the chunks
    hold all of the text but white space, and none is longer than `size` tokens (`token_count`) unless it is a table. A
    document without text has no chunk. The outcome depends on the document and the parameters alone.

    Tables (of Markdown, also those that were made of HTML and CSV) are chunks by themselves, of kind "table", whole
    up to four times the size and cut between rows beyond that; only `fixed` is blind to them. No chunk reaches over
    a table, nor over the bounds of parts that are kept `apart`.

    Raises UnknownName for a kind that does not exist; UsageError where the size is not at least 1, the overlap not at
    least 0 and at most half of the size, or a parameter is not one of the kind.

    >>> made = Chunker("fixed", 4, 1)(Document(id="d", text="The ferry leaves at ten sharp."))
    >>> [(chunk.start, chunk.end, chunk.text) for chunk in made]
    [(0, 19, 'The ferry leaves at'), (17, 30, 'at ten sharp.')]
    """

    kind: str
    size: int
    """The most tokens of a chunk."""
    overlap: int = 0
    """Tokens that a chunk shares with the one before it."""
    apart: bool = False
    """Whether parts of the first level (a section, a pair) are never put together into one chunk."""
    embedder: Embedder | None = None
    """What `semantic` compares sentences with; None: the word vectors that come with ragfault."""
    model: str = ""
    """The name of the embedder, where it was made by name."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownName("chunker", self.kind, KINDS)
        if self.size < 1:
            raise UsageError(f"the size of a chunk is at least 1 token, got {self.size}.")
        if not 0 <= self.overlap <= self.size / 2:
            raise UsageError(
                f"an overlap is at least 0 and at most half of the size, got {self.overlap} of {self.size} tokens."
            )
        if self.apart and self.kind not in APART:
            raise UsageError(f"{self.kind} has no parts to keep apart; these have: {', '.join(APART)}.")
        if self.embedder is not None and self.kind != "semantic":
            raise UsageError(f"{self.kind} takes no embedder; semantic does.")

    def __call__(self, document: Document) -> tuple[Chunk, ...]:
        """The chunks of a document."""
        tokens = Tokens(document.text)
        if not len(tokens):
            return ()
        return tuple(_chunks(document, tokens, _parts(self, document.text, tokens)))

    @property
    def text(self) -> str:
        """The chunker as it is written; `chunker(text)` makes it anew.

        >>> Chunker("pairs", 384, 48).text
        'pairs(384, overlap=48)'
        """
        said = {"overlap": self.overlap, "apart": self.apart, "embedder": self.model}
        return write_call(self.kind, [self.size], {name: value for name, value in said.items() if value})

    @property
    def fingerprint(self) -> str:
        """Its text, and what its embedder is where that was not made by name."""
        return (
            self.text if self.embedder is None or self.model else f"{self.text} {self.embedder.fingerprint}"
        )


def _chunks(document: Document, tokens: Tokens, parts: Iterator[Part]) -> Iterator[Chunk]:
    """The records of the chunks."""
    seen: dict[str, int] = {}
    for piece, table in parts:
        start, end = tokens.starts[piece.start], tokens.ends[piece.end - 1]
        text = document.text[start:end]
        name = content_id(text, f"{document.id}#")
        turn = seen[name] = seen.get(name, 0) + 1
        yield Chunk(
            id=name if turn == 1 else f"{name}~{turn}",
            text=text,
            document=document.id,
            start=start,
            end=end,
            kind="table" if table else "text",
            metadata=dict(document.metadata),
        )


def _parts(chunker: Chunker, text: str, tokens: Tokens) -> Iterator[Part]:
    """The pieces of a text in their order."""
    whole = Piece(0, len(tokens))
    if chunker.kind == "fixed":
        for piece in _windows(whole.end, chunker.size, chunker.overlap):
            yield Part(piece, table=False)
        return
    found = blocks(text)
    way, apart, level = _way(chunker, text, tokens, found)
    for run, table in _runs(whole, [(tokens.at(start), tokens.at(end)) for start, end in found.tables]):
        if table:
            yield from (Part(piece, table=True) for piece in _rows(run, text, tokens, chunker.size))
            continue
        for start, end in pairwise([run.start, *apart(run.start, run.end), run.end]):
            for piece in cut(Piece(start, end), chunker.size, chunker.overlap, way, level):
                yield Part(piece, table=False)


def _windows(end: int, size: int, overlap: int) -> Iterator[Piece]:
    """Windows of one size, each but the first beginning `overlap` tokens before the end of the one before it."""
    start = 0
    while start + size < end:
        yield Piece(start, start + size)
        start += size - overlap
    yield Piece(start, end)


def _runs(whole: Piece, tables: list[tuple[int, int]]) -> Iterator[tuple[Piece, bool]]:
    """Tables and what lies between them."""
    place = whole.start
    for start, end in tables:
        if place < start:
            yield Piece(place, start), False
        if start < end:
            yield Piece(start, end), True
        place = max(place, end)
    if place < whole.end:
        yield Piece(place, whole.end), False


def _rows(table: Piece, text: str, tokens: Tokens, size: int) -> list[Piece]:
    """A table as a whole, or rows of one that is much too long."""
    if table.end - table.start <= WHOLE * size:
        return [table]
    first, last = tokens.starts[table.start], tokens.ends[table.end - 1]
    begun = tokens.places(first + place for place, _ in lines(text[first:last]))
    return divide([between(begun)], size)(table)


def _way(
    chunker: Chunker, text: str, tokens: Tokens, found: Blocks
) -> tuple[Callable[[Piece], list[Piece]], Level, Level]:
    """How a chunker divides a run, which of its parts stay apart, and at what a piece may begin that reaches back."""
    room = chunker.size - chunker.overlap
    read = sentence_level(text, tokens)
    if chunker.kind == "semantic":
        return _turning(chunker, text, tokens, found), between([]), read
    parts = KINDS[chunker.kind]
    assert parts is not None
    marked = parts(text, found)
    held = set(tokens.places(_line_end(text, place) for place in marked.titles))
    levels = [
        between([place for place in tokens.places(places) if place not in held])
        for places in marked.levels
        if places
    ]
    apart = levels[0] if chunker.apart and levels else between([])
    loose: Level = lambda start, end: [place for place in read(start, end) if place not in held]  # noqa: E731
    return divide([*levels, loose], room), apart, read


def _line_end(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end


def _turning(chunker: Chunker, text: str, tokens: Tokens, found: Blocks) -> Callable[[Piece], list[Piece]]:
    """The way of `semantic`: at a heading, else where the text turns to something else."""
    begun = [0, *sentence_level(text, tokens)(0, len(tokens))]
    headings = set(tokens.places(place for place, _ in found.headings))
    begun = sorted({*begun, *(place for place in headings if place < len(tokens))})
    ends = [*begun[1:], len(tokens)]
    if len(tokens) <= chunker.size:
        return at_turns([], {}, chunker.size)
    said = [text[tokens.starts[a] : tokens.ends[b - 1]] for a, b in zip(begun, ends, strict=True)]
    strength = dict(zip(begun[1:], turning(said, chunker.embedder), strict=True))
    strength |= {place: strength[place] + 1 for place in headings if place in strength}
    return at_turns(begun, strength, chunker.size - chunker.overlap)
