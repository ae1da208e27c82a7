"""Chunkers: the record of a chunker, the chunks that it makes of a document, and loading one by its expression."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from ragfault.io.field_values import make_content_id
from ragfault.judges.checks.tables import RULE_LINE
from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.expressions import format_expression, parse_expression
from ragfault.model.protocols import Embedder
from ragfault.model.records import Chunk, Document
from ragfault.retrieval.chunking import structure
from ragfault.retrieval.chunking.structure import (
    PartBoundaries,
    TextBlocks,
    iterate_lines,
    make_semantic_divider,
    measure_topic_shifts,
    parse_blocks,
)
from ragfault.retrieval.chunking.token_spans import (
    BreakFinder,
    TokenOffsets,
    TokenSpan,
    make_break_finder,
    make_divider,
    make_sentence_finder,
    split_with_overlap,
)
from ragfault.retrieval.embedders.registry import load_embedder

CHUNKER_KINDS: dict[str, Callable[[str, TextBlocks], PartBoundaries] | None] = {
    "fixed": None,
    "sentences": lambda text, blocks: PartBoundaries([]),  # noqa: ARG005
    "recursive": structure.locate_recursive,
    "semantic": None,
    "pairs": structure.locate_pairs,
    "clauses": structure.locate_clauses,
    "turns": structure.locate_turns,
    "sections": structure.locate_sections,
}
"""Kind → where its parts begin, the coarsest first."""

SEPARABLE_KINDS = ("recursive", "pairs", "clauses", "turns", "sections")
"""Kinds whose parts can be kept apart."""

MAX_TABLE_FACTOR = 4
"""A table is one chunk up to so many times the size."""


class DocumentPart(NamedTuple):
    """A piece of a document and whether it is (of) a table."""

    span: TokenSpan
    is_table: bool
    head: str = ""
    """Heading and names of the columns, which the text of a later part of a table begins with."""


@dataclass(frozen=True)
class Chunker:
    """A way to cut documents into chunks: a callable, Document → chunks in their order.

    The text of a chunk is `document.text[start:end]`, in the later parts of a cut table after the head of the table;
    its metadata is that of the document. Its id is that of
    the document, "#", and 12 hex digits of its text, so that the same id means the same passage, also where text
    before it has changed; a text that is repeated in the document has "~2", "~3" … appended. Together the chunks
    hold all of the text but white space, and none is longer than `size` tokens (`token_count`) unless it is a table. A
    document without text has no chunk. The outcome depends on the document and the parameters alone.

    Tables (of Markdown, also those that were made of HTML and CSV) are chunks by themselves, of kind "table", with the
    heading right above them; each is one chunk up to four times the size, and cut between rows beyond that. Every
    part then begins with the heading and the names of the columns, where these take at most half of the size; only
    `fixed` is blind to tables. No chunk reaches over a table, nor over the bounds of parts that are kept `apart`.

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
    """True if parts of the first level (a section, a pair) are never merged into one chunk."""
    embedder: Embedder | None = None
    """Embedder with which `semantic` compares sentences; None: the packaged word vectors."""
    model: str = ""
    """The name of the embedder, where it was made by name."""

    def __post_init__(self) -> None:
        if self.kind not in CHUNKER_KINDS:
            raise UnknownName("chunker", self.kind, CHUNKER_KINDS)
        if self.size < 1:
            raise UsageError(f"the size of a chunk is at least 1 token, got {self.size}.")
        if not 0 <= self.overlap <= self.size / 2:
            raise UsageError(
                f"an overlap is at least 0 and at most half of the size, got {self.overlap} of {self.size} tokens."
            )
        if self.apart and self.kind not in SEPARABLE_KINDS:
            raise UsageError(f"{self.kind} has no parts to keep apart; these have: {', '.join(SEPARABLE_KINDS)}.")
        if self.embedder is not None and self.kind != "semantic":
            raise UsageError(f"{self.kind} takes no embedder; semantic does.")

    def __call__(self, document: Document) -> tuple[Chunk, ...]:
        """Return the chunks of a document."""
        tokens = TokenOffsets(document.text)
        if not len(tokens):
            return ()
        return tuple(_build_chunks(document, tokens, _split_document(self, document.text, tokens)))

    @property
    def expression(self) -> str:
        """The chunker as it is written; `chunker(text)` makes it anew.

        >>> Chunker("pairs", 384, 48).expression
        'pairs(384, overlap=48)'
        """
        options = {"overlap": self.overlap, "apart": self.apart, "embedder": self.model}
        return format_expression(self.kind, [self.size], {name: value for name, value in options.items() if value})

    @property
    def fingerprint(self) -> str:
        """Text of the configuration, with the fingerprint of an embedder that was passed as an object."""
        return (
            self.expression if self.embedder is None or self.model else f"{self.expression} {self.embedder.fingerprint}"
        )


def _build_chunks(document: Document, tokens: TokenOffsets, parts: Iterator[DocumentPart]) -> Iterator[Chunk]:
    """Return the chunk records."""
    ids: dict[str, int] = {}
    for piece, table, head in parts:
        start, end = tokens.starts[piece.start], tokens.ends[piece.end - 1]
        text = head + document.text[start:end]
        name = make_content_id(text, f"{document.id}#")
        # the same text twice in a document has one content id: the second one is numbered
        turn = ids[name] = ids.get(name, 0) + 1
        yield Chunk(
            id=name if turn == 1 else f"{name}~{turn}",
            text=text,
            document=document.id,
            start=start,
            end=end,
            kind="table" if table else "text",
            metadata=dict(document.metadata),
        )


def _split_document(chunker: Chunker, text: str, tokens: TokenOffsets) -> Iterator[DocumentPart]:
    """Return the spans of the chunks of a text, in order."""
    span = TokenSpan(0, len(tokens))
    if chunker.kind == "fixed":
        for piece in _slide_windows(span.end, chunker.size, chunker.overlap):
            yield DocumentPart(piece, is_table=False)
        return
    # tables are taken out first, since a divider would cut them between rows without their head
    blocks = parse_blocks(text)
    way, apart, level = _plan_division(chunker, text, tokens, blocks)
    tables = [(_reach_heading(start, text, blocks.headings), end) for start, end in blocks.tables]
    for run, table in _separate_tables(span, [(tokens.token_at(start), tokens.token_at(end)) for start, end in tables]):
        if table:
            yield from _split_table(run, text, tokens, chunker.size)
            continue
        for start, end in pairwise([run.start, *apart(run.start, run.end), run.end]):
            for piece in split_with_overlap(TokenSpan(start, end), chunker.size, chunker.overlap, way, level):
                yield DocumentPart(piece, is_table=False)


def _slide_windows(end: int, size: int, overlap: int) -> Iterator[TokenSpan]:
    """Return windows of one size; each begins `overlap` tokens before the end of the one before it."""
    start = 0
    while start + size < end:
        yield TokenSpan(start, start + size)
        start += size - overlap
    yield TokenSpan(start, end)


def _separate_tables(span: TokenSpan, tables: list[tuple[int, int]]) -> Iterator[tuple[TokenSpan, bool]]:
    """Return tables and the text between them."""
    position = span.start
    for start, end in tables:
        if position < start:
            yield TokenSpan(position, start), False
        if start < end:
            yield TokenSpan(start, end), True
        position = max(position, end)
    if position < span.end:
        yield TokenSpan(position, span.end), False


def _reach_heading(start: int, text: str, headings: Sequence[tuple[int, int]]) -> int:
    """Return the start of the headings right above a table, or of the table where text stands between them."""
    for position, _ in reversed(headings[: bisect_right(headings, (start, 0))]):
        _, _, below = text[position:start].partition("\n")
        if below.strip(" \t\r\n=-"):
            break
        start = position
    return start


def _split_table(table: TokenSpan, text: str, tokens: TokenOffsets, size: int) -> Iterator[DocumentPart]:
    """Yield a table as one part, or parts of rows, each with the head, where it is much too long."""
    if table.end - table.start <= MAX_TABLE_FACTOR * size:
        yield DocumentPart(table, is_table=True)
        return
    first, last = tokens.starts[table.start], tokens.ends[table.end - 1]
    lines = list(iterate_lines(text[first:last]))
    rule = next((i for i, (_, line) in enumerate(lines) if i and RULE_LINE.fullmatch(line.strip())), None)
    head_end = table.start if rule is None else tokens.token_at(first + lines[rule][0] + len(lines[rule][1]))
    if head_end - table.start > size // 2:
        head_end = table.start
    starts = [token for token in tokens.tokens_at(first + position for position, _ in lines) if token > head_end]
    head = text[first : tokens.ends[head_end - 1]] + "\n" if head_end > table.start else ""
    # a table may be longer, so the head takes no row away
    divide = make_divider([make_break_finder(starts)], size)
    pieces = divide(TokenSpan(head_end, table.end))
    for number, piece in enumerate(pieces):
        if number:
            yield DocumentPart(piece, is_table=True, head=head)
        else:
            yield DocumentPart(TokenSpan(table.start, piece.end), is_table=True)


def _plan_division(
    chunker: Chunker, text: str, tokens: TokenOffsets, blocks: TextBlocks
) -> tuple[Callable[[TokenSpan], list[TokenSpan]], BreakFinder, BreakFinder]:
    """Return how a chunker divides a run, which parts stay separate, and where an overlap may begin."""
    room = chunker.size - chunker.overlap
    read = make_sentence_finder(text, tokens)
    if chunker.kind == "semantic":
        return _plan_semantic_division(chunker, text, tokens, blocks), make_break_finder([]), read
    parts = CHUNKER_KINDS[chunker.kind]
    assert parts is not None
    boundaries = parts(text, blocks)
    # a title belongs to the text below it, so that no chunk may begin right after one
    title_tokens = set(tokens.tokens_at(_locate_line_end(text, i) for i in boundaries.titles))
    levels = [
        make_break_finder([i for i in tokens.tokens_at(level) if i not in title_tokens])
        for level in boundaries.levels
        if level
    ]
    apart = levels[0] if chunker.apart and levels else make_break_finder([])
    loose: BreakFinder = lambda start, end: [i for i in read(start, end) if i not in title_tokens]  # noqa: E731
    return make_divider([*levels, loose], room), apart, read


def _locate_line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _plan_semantic_division(
    chunker: Chunker, text: str, tokens: TokenOffsets, blocks: TextBlocks
) -> Callable[[TokenSpan], list[TokenSpan]]:
    """Return the divider of `semantic`: at headings, else where the topic shifts."""
    starts = [0, *make_sentence_finder(text, tokens)(0, len(tokens))]
    headings = set(tokens.tokens_at(i for i, _ in blocks.headings))
    starts = sorted({*starts, *(i for i in headings if i < len(tokens))})
    ends = [*starts[1:], len(tokens)]
    if len(tokens) <= chunker.size:
        return make_semantic_divider([], {}, chunker.size)
    sentences = [text[tokens.starts[start] : tokens.ends[end - 1]] for start, end in zip(starts, ends, strict=True)]
    strength = dict(zip(starts[1:], measure_topic_shifts(sentences, chunker.embedder), strict=True))
    # a heading is a stronger break than any shift of topic
    strength |= {i: strength[i] + 1 for i in headings if i in strength}
    return make_semantic_divider(starts, strength, chunker.size - chunker.overlap)


DEFAULT_SIZE = 512
"""Default size of a chunk."""

CHUNKER_PRESETS = {
    "technical": "semantic(1250, overlap=0.175)",
    "legal": "clauses(1000, overlap=0.225)",
    "faq": "pairs(384, overlap=0.125)",
    "papers": "sections(756, overlap=0.175)",
    "chat": "turns(450, overlap=0.275)",
}
"""Type of document → the chunker for it: the middle of what is advised for size and overlap."""

CHUNKER_PARAMETERS = ("size", "overlap", "apart", "embedder")


def load_chunker(expression: str = "recursive", *, embedder: Embedder | None = None) -> Chunker:
    """Return the chunker of an expression: a kind or a type of document with its parameters.

    `KIND(size, overlap=…, apart=true, embedder=NAME)`. The size is in tokens (512 where it is left out); the overlap in
    tokens, or below 1 a share of the size. Of a type of document (technical, legal, faq, papers, chat) each parameter
    can be set anew, and an overlap that is not keeps its share. `embedder` is what `semantic` compares sentences with.

    Raises UnknownName for a kind or parameter that does not exist, UsageError for what cannot be read or cannot be.

    >>> tuple(load_chunker(text).expression for text in ("fixed(512, overlap=64)", "faq", "legal(800)"))
    ('fixed(512, overlap=64)', 'pairs(384, overlap=48)', 'clauses(800, overlap=180)')
    >>> load_chunker("recursiv(800)")
    Traceback (most recent call last):
    ragfault.model.errors.UnknownName: no chunker "recursiv". Did you mean "recursive"?
    """
    name, options = _parse_chunker(expression)
    if name in CHUNKER_PRESETS:
        name, usual = _parse_chunker(CHUNKER_PRESETS[name])
        options = usual | options
    if name not in CHUNKER_KINDS:
        raise UnknownName("chunker", name, [*CHUNKER_KINDS, *CHUNKER_PRESETS])
    size = _check_integer(expression, "size", options.get("size", DEFAULT_SIZE))
    overlap = options.get("overlap", 0)
    if isinstance(overlap, float):
        if not 0 <= overlap < 1:
            raise UsageError(f'"{expression}": an overlap that is not a whole number is a share of the size, below 1.')
        overlap = round(overlap * size)
    apart, model = options.get("apart", False), options.get("embedder", "")
    if not isinstance(apart, bool) or not isinstance(model, str):
        raise UsageError(f'"{expression}": apart is true or false, and an embedder has a name.')
    if model and embedder is None and name == "semantic":
        embedder = load_embedder(model)
    elif model and name != "semantic":
        raise UsageError(f'"{expression}": {name} takes no embedder; semantic does.')
    return Chunker(name, size, _check_integer(expression, "overlap", overlap), apart, embedder, model)


def _check_integer(expression: str, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f'"{expression}": the {name} is a whole number of tokens, got {value}.')
    return value


def _parse_chunker(expression: str) -> tuple[str, dict[str, Any]]:
    """Take the text of a chunker apart into name and parameters."""
    name, values, options, _ = parse_expression(expression, "chunker")
    if len(values) > 1:
        raise UsageError(f'"{expression}": only the size has no name before it. Write NAME(SIZE, overlap=…).')
    if values and "size" in options:
        raise UsageError(f'"{expression}": size is given twice.')
    for key in options:
        if key not in CHUNKER_PARAMETERS:
            raise UnknownName("parameter of a chunker", key, CHUNKER_PARAMETERS)
    return name, {**({"size": values[0]} if values else {}), **options}
