"""The document of a report: what it says, in the order it is read, and nothing about how a medium shows it.

A builder (`ragfault.report.builders`) makes a `ReportDocument` of the record of an analysis; a renderer
(`ragfault.report.renderers`) writes it for a terminal, as Markdown or as HTML. Texts go in as they are, those of
traces too: each renderer makes them harmless in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from markupsafe import Markup

Emphasis = Literal["strong", "muted", "code", "quote"]
"""What a piece of a text is: a medium chooses the type face; a quote of a trace is cut to what it has room for."""

VerdictKind = Literal["good", "bad", "unsure", "open", "better", "worse", "steady"]
"""The kinds of verdict that media have a sign and a colour for; the last two words are of changes."""

VERDICT_KINDS: dict[str, VerdictKind] = {
    **dict.fromkeys(("pass", "no fault", "recovered", "ruled out"), "good"),
    **dict.fromkeys(("fail", "fault"), "bad"),
    **dict.fromkeys(("not reached", "not measured"), "open"),
    "cannot tell": "unsure",
    "better": "better",
    "worse": "worse",
    "steady": "steady",
}
"""The verdict of an analysis → its kind."""


@dataclass(frozen=True, slots=True)
class StyledText:
    """A piece of a text with an emphasis."""

    text: str
    emphasis: Emphasis


@dataclass(frozen=True, slots=True)
class VerdictMark:
    """A verdict, shown as a sign and its word; colour is never the only sign.

    >>> VerdictMark("fail").kind, VerdictMark("identical", "steady").kind
    ('bad', 'steady')
    """

    word: str
    given_kind: VerdictKind | None = None

    @property
    def kind(self) -> VerdictKind:
        """The kind that was given, else that of the word."""
        return self.given_kind or VERDICT_KINDS[self.word]


@dataclass(frozen=True, slots=True)
class Link:
    """A text that leads to an address."""

    text: str
    url: str

    @property
    def is_safe(self) -> bool:
        """Whether the address is one of the web or of the page itself; another is shown as its text only."""
        return self.url.startswith(("https://", "http://", "#"))


@dataclass(frozen=True, slots=True)
class IntervalMark:
    """A mean and its interval as a drawing, for a cell; each in [0, 1], as a share of the metric's range."""

    mean: float
    low: float
    high: float
    kind: VerdictKind = "steady"
    """Its color: that of the verdict it was held to."""


Inline: TypeAlias = "str | StyledText | VerdictMark | Link | IntervalMark"
Text: TypeAlias = "Inline | tuple[Inline, ...]"
"""A text of one piece or of several, one after the other."""


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a document (level 1), of a section (2) or of a part of one (3)."""

    text: Text
    level: Literal[1, 2, 3] = 2
    mark: VerdictMark | None = None
    """The verdict that the text explains."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One or a few sentences: plain, a remark in the background, or a warning to act on."""

    text: Text
    role: Literal["plain", "note", "warning"] = "plain"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table."""

    title: str
    numeric: bool = False
    """Whether its cells are aligned right."""
    prose: bool = False
    """Whether its cells are sentences: a terminal writes them below the row."""
    aside: bool = False
    """Whether it is one of many figures: a terminal writes those that are known below the row, each by its name."""
    room: int = 0
    """Columns of a terminal from which it is shown there; other media show every column."""
    graphic: bool = False
    """Whether its cells are drawings, which Markdown leaves out."""


PAGE_ONLY = 10_000
"""The `room` of what no terminal shows."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under headings."""

    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Text, ...], ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """Items one below the other; a listing among them belongs to the item before it."""

    items: tuple[Text | Listing, ...]
    ordered: bool = False
    shown: int = PAGE_ONLY
    """Items that a terminal shows, with their listings, before it counts the others."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing with its caption; only HTML shows it."""

    caption: str
    drawing: Markup


@dataclass(frozen=True, slots=True)
class Details:
    """Blocks that a page folds behind a summary; a terminal shows them under it."""

    summary: str
    blocks: tuple[Block, ...]
    room: int = 0
    """Columns of a terminal from which it is shown there."""


Block: TypeAlias = "Heading | Paragraph | Table | Listing | Chart | Details"


@dataclass(frozen=True, slots=True)
class ReportDocument:
    """A report: the lead that every reader sees first, then the rest.

    >>> lead = (Heading("1 fail of 2 thresholds", 1, VerdictMark("fail")),)
    >>> len(ReportDocument("demo", lead, (Paragraph("104 traces"),)).blocks)
    2
    """

    name: str
    """What it is about, such as the name of a run: the title of a page."""
    lead: tuple[Block, ...]
    """What belongs to the first ten lines: the verdict, what it rests on, and warnings."""
    body: tuple[Block, ...] = ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks, in the order of reading."""
        return self.lead + self.body


def build_warnings(texts: tuple[str, ...] | list[str]) -> list[Block]:
    """Build a warning of each text."""
    return [Paragraph(text, "warning") for text in texts]


def build_section(title: Text, *blocks: Block) -> list[Block]:
    """Build a heading with what belongs below it; nothing where nothing does.

    >>> build_section("Segments"), len(build_section("Segments", Listing(()))), len(build_section("A", Paragraph("b")))
    ([], 0, 2)
    """
    filled = [block for block in blocks if not isinstance(block, Listing) or block.items]
    return [Heading(title), *filled] if filled else []


def drop_hidden(blocks: Sequence[Block], is_shown: Callable[[Block], bool]) -> list[Block]:
    """Drop the blocks that a medium does not show, and the headings that have none but such below them.

    >>> chart = Chart("means", Markup("<svg></svg>"))
    >>> len(drop_hidden([Heading("Charts"), chart, Heading("Empty")], lambda block: block is not chart))
    1
    """
    shown: list[Block] = []
    for place, block in enumerate(blocks):
        content = list(_take_section(block, blocks[place + 1 :])) if isinstance(block, Heading) else [block]
        if not content or any(map(is_shown, content)):
            shown.append(block)
    return shown


def _take_section(heading: Heading, blocks: Sequence[Block]) -> Iterator[Block]:
    """Take what lies below a heading, up to the next of its level, without the headings in between."""
    for block in blocks:
        if not isinstance(block, Heading):
            yield block
        elif block.level <= heading.level:
            return


def lower_headings(blocks: Sequence[Block]) -> list[Block]:
    """Lower the headings of sections to parts of a section.

    >>> lower_headings([Heading("Segments")])[0].level
    3
    """
    return [replace(block, level=3) if isinstance(block, Heading) else block for block in blocks]


def join_text(*texts: Text) -> tuple[Inline, ...]:
    """Join texts to one.

    >>> len(join_text((StyledText("latency", "code"), " ↓"), ": 3 traces worse"))
    3
    """
    return tuple(piece for text in texts for piece in split_text(text))


def split_text(text: Text) -> tuple[Inline, ...]:
    """Return the pieces of a text."""
    return text if isinstance(text, tuple) else (text,)
