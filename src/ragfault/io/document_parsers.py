"""Parsers for documents: HTML to Markdown, records and chats to documents, and Markdown front matter.

HTML tags are matched by one pattern: the standard parser takes quadratic time on unclosed markup.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ragfault.io.field_values import InvalidRecord, make_json_safe
from ragfault.model.records import Document

SKIPPED_ELEMENTS = "script|style|template|noscript|svg|math|iframe|object|canvas|select"
"""Elements whose content is dropped."""
MARKUP_PATTERN = re.compile(
    rf"<!--.*?(?:-->|\Z)"
    rf"|<({SKIPPED_ELEMENTS})\b[^>]*+>.*?(?:</\1[^>]*+>|\Z)"
    r"|<[!?][^<>]*+>"
    r"|<(/?)([a-z][^\s/<>\"']*+)((?>(?:[^<>\"']++|\"[^\"]*+\"|'[^']*+')*))>"
    r"|<",
    re.DOTALL | re.IGNORECASE,
)
"""A comment, a skipped element, a declaration, a tag with its attributes, or a lone `<`."""
ALT_PATTERN = re.compile(r"""\balt\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
CHARSET_PATTERN = re.compile(rb"""<meta\b[^>]{0,300}?\bcharset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
SPACE_PATTERN = re.compile(r"\s+")
BLOCK_ELEMENTS = frozenset(
    re.findall(
        r"\w+",
        """address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure
        footer form header hr html legend main nav ol p section summary ul""",
    )
)
MAX_PADDED_COLUMNS = 64
"""Widest table whose short rows are filled up."""
MAX_LIST_INDENT = 12
"""Deepest indent of a list."""
HEADING_PREFIXES = {f"h{depth}": "#" * depth + " " for depth in range(1, 7)}


class HtmlPage(NamedTuple):
    """Title and text of a page."""

    title: str | None
    text: str
    """Markdown: headings, lists, tables and fenced code; everything else as paragraphs."""


def detect_charset(head: bytes) -> str | None:
    """Return the encoding that a page names in its first bytes, or None.

    What calls itself Latin-1 or ASCII is Windows-1252 on the web.

    >>> detect_charset(b'<html><meta charset="iso-8859-1">')
    'cp1252'
    """
    match = CHARSET_PATTERN.search(head[:4096])
    if match is None:
        return None
    name = match[1].decode("ascii").lower()
    return "cp1252" if name in ("iso-8859-1", "latin1", "latin-1", "us-ascii", "ascii") else name


def parse_html(source: str) -> HtmlPage:
    r"""Extract title and text of a page; scripts, styles and comments are dropped, nothing is fetched.

    Broken markup raises nothing: what opens no tag is text. The time it takes grows with the length alone.

    >>> parse_html("<title>Fares</title><h1>Fares</h1><p>A car is &euro;20,<br>a <b>dog</b> is free.<svg>x</svg>")
    HtmlPage(title='Fares', text='# Fares\n\nA car is €20,\na dog is free.')
    """
    reader = _HtmlReader()
    position = 0
    for match in MARKUP_PATTERN.finditer(source):
        kind = match[3]
        if kind is None and match[0] == "<":
            continue
        if match.start() > position:
            reader.add_text(source[position : match.start()])
        position = match.end()
        if kind is None:
            continue
        tag = kind.lower()
        if match[2]:
            reader.close_tag(tag)
        elif tag == "img":
            alt = ALT_PATTERN.search(match[4])
            reader.add_text((alt[1] or alt[2] or alt[3] or "") if alt else "")
        else:
            reader.open_tag(tag)
    reader.add_text(source[position:])
    return reader.build_page()


class _HtmlReader:
    """Collector of the blocks of a page."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.line: list[str] = []
        self.prefix = ""
        """Marker of the current block."""
        self.after_list_item = False
        """True if the last block was an item of a list."""
        self.list_counters: list[int] = []
        """Last item number of each open list; negative for unordered lists."""
        self.rows: list[list[str]] | None = None
        self.table_depth = self.pre_depth = 0
        self.title_parts: list[str] | None = None
        self.title: str | None = None

    def open_tag(self, tag: str) -> None:
        if tag == "title":
            self.title_parts = []
        elif tag == "br":
            self.line.append("\n")
        elif tag == "pre":
            self.end_block()
            self.pre_depth += 1
        elif tag in ("table", "tr", "td", "th"):
            self.open_table(tag)
        elif tag == "li":
            self.end_block()
            self.prefix = self.make_list_marker()
        elif tag in HEADING_PREFIXES:
            self.end_block()
            self.prefix = HEADING_PREFIXES[tag]
        elif tag in BLOCK_ELEMENTS:
            self.end_block()
            if tag in ("ul", "ol"):
                self.list_counters.append(0 if tag == "ol" else -1)

    def close_tag(self, tag: str) -> None:
        if tag == "title" and self.title_parts is not None:
            self.title = self.title or SPACE_PATTERN.sub(" ", "".join(self.title_parts)).strip() or None
            self.title_parts = None
        elif tag == "pre" and self.pre_depth:
            self.end_block()
            self.pre_depth -= 1
        elif tag == "table" and self.table_depth:
            self.close_table()
        elif tag in BLOCK_ELEMENTS or tag in HEADING_PREFIXES or tag == "li":
            self.end_block()
            if tag in ("ul", "ol") and self.list_counters:
                self.list_counters.pop()

    def add_text(self, source: str) -> None:
        data = html.unescape(source) if "&" in source else source
        if self.title_parts is not None:
            self.title_parts.append(data)
        else:
            self.line.append(data if self.pre_depth else SPACE_PATTERN.sub(" ", data))

    def make_list_marker(self) -> str:
        indent = "  " * min(len(self.list_counters) - 1, MAX_LIST_INDENT)
        if not self.list_counters or self.list_counters[-1] < 0:
            return indent + "- "
        self.list_counters[-1] += 1
        return f"{indent}{self.list_counters[-1]}. "

    def end_block(self) -> None:
        """End the current block; within a table it is a part of its cell."""
        if self.rows is not None:
            self.line.append(" ")
            return
        text, self.line = "".join(self.line), []
        if self.pre_depth:
            text = f"```\n{text.strip(chr(10))}\n```" if text.strip() else ""
        else:
            text = "\n".join(part.strip() for part in text.split("\n")).strip()
            if self.prefix.startswith("#"):
                text = text.replace("\n", " ")
        if text:
            item = bool(self.prefix) and not self.prefix.startswith("#")
            self.blocks.append(("\n" if item and self.after_list_item else "\n\n") + self.prefix + text)
            self.prefix, self.after_list_item = "", item

    def open_table(self, tag: str) -> None:
        if tag == "table":
            self.table_depth += 1
            if self.table_depth == 1:
                self.end_block()
                self.rows = []
        elif self.rows is not None and self.table_depth == 1:
            self.end_cell()
            if tag == "tr":
                self.rows.append([])
            else:
                self.rows = self.rows or [[]]
                self.rows[-1].append("")

    def end_cell(self) -> None:
        """Put the text into the open cell; text outside of cells into a paragraph before the table."""
        assert self.rows is not None
        text = SPACE_PATTERN.sub(" ", "".join(self.line)).strip()
        self.line = []
        if not text:
            return
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] = f"{self.rows[-1][-1]} {text}".strip()
        else:
            self.add_paragraph(text)

    def add_paragraph(self, text: str) -> None:
        self.blocks.append("\n\n" + text)
        self.after_list_item = False

    def close_table(self) -> None:
        self.table_depth -= 1
        if self.table_depth or self.rows is None:
            return
        self.end_cell()
        rows, self.rows = [row for row in self.rows if row], None
        if rows:
            self.add_paragraph(format_markdown_table(rows))

    def build_page(self) -> HtmlPage:
        """Close what is open and return the page."""
        if self.rows is not None:
            self.table_depth = 1
            self.close_table()
        if self.title_parts is not None:
            self.close_tag("title")
        self.end_block()
        return HtmlPage(self.title, "".join(self.blocks).strip())


def format_markdown_table(rows: list[list[str]]) -> str:
    r"""Format rows as a Markdown table; the first row is its head, short rows are filled up.

    >>> print(format_markdown_table([["Fare", "Price"], ["Car", "20|25"], ["Dog"]]))
    | Fare | Price |
    | --- | --- |
    | Car | 20\|25 |
    | Dog |  |
    """
    width = max(map(len, rows))
    filled = width if width <= MAX_PADDED_COLUMNS else 0
    lines = [_format_table_row([*row, *[""] * (filled - len(row))]) for row in rows]
    return "\n".join([lines[0], "| " + " | ".join(["---"] * width) + " |", *lines[1:]])


def _format_table_row(cells: list[str]) -> str:
    escaped = (cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells)
    return "| " + " | ".join(SPACE_PATTERN.sub(" ", cell).strip() for cell in escaped) + " |"


ID_COLUMNS = ("id", "_id", "doc_id", "docid", "document_id")
TEXT_COLUMNS = ("text", "content", "page_content", "body", "passage")
"""The columns that may hold the text of a document, the first that is there."""
CHAT_COLUMNS = ("messages", "turns", "conversation")
SPEAKER_KEYS = ("role", "speaker", "sender", "name", "from")

HEADER_FENCE = re.compile(r"(?:---|\.\.\.)[ \t]*")
HEADER_PAIR = re.compile(r"([A-Za-z_][\w .-]{0,80}?)[ \t]*:(?:[ \t]+(.*))?")
NUMBER_PATTERN = re.compile(r"-?(?:0|[1-9]\d{0,15})(\.\d{1,15})?")
LITERAL_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}


def decode_object(line: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises `InvalidRecord`."""
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except UnicodeDecodeError as error:
        raise InvalidRecord(f"invalid UTF-8 at byte {error.start + 1}") from None
    except msgspec.ValidationError as error:
        raise InvalidRecord(str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRecord(f"malformed JSON: {error}") from None


def choose_text_column(columns: Sequence[str] | Mapping[str, Any], column: str | None = None) -> str | None:
    """Choose the column that holds the text: the requested one, else the first usual name.

    >>> choose_text_column(["id", "body", "date"]), choose_text_column(["id", "body"], "date")
    ('body', None)
    """
    return next((name for name in ((column,) if column else TEXT_COLUMNS) if name in columns), None)


def build_document(record: Mapping[str, Any], default_id: str, column: str | None = None) -> Document:
    """Convert a record to a document; `default_id` is its id where it has none.

    Columns of no other use are metadata. Raises `InvalidRecord` where there is no text.
    """
    rest = dict(record)
    name = next(
        (str(rest.pop(key)) for key in ID_COLUMNS if type(rest.get(key)) in (str, int) and rest[key] != ""), default_id
    )
    title = rest.pop("title", None)
    row = rest.pop("metadata", None) or {}
    if not isinstance(row, dict):
        rest["metadata"], row = row, {}
    text = _pop_text(rest, column)
    fields = {key: value for key, value in {**row, **rest}.items() if value is not None}
    return Document(
        id=name, text=text, title=str(title) if title else None, metadata=make_json_safe(fields) if fields else {}
    )


def _pop_text(metadata: dict[str, Any], requested: str | None) -> str:
    """Take the text out of the columns of a record."""
    column = choose_text_column(metadata, requested)
    if column is None:
        turns = (
            next((key for key in CHAT_COLUMNS if format_chat(metadata.get(key))), None) if requested is None else None
        )
        if turns is None:
            raise InvalidRecord(
                f"there is no text: none of its columns is {' or '.join((requested,) if requested else TEXT_COLUMNS)}"
            )
        return format_chat(metadata.pop(turns)) or ""
    text = metadata.pop(column)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise InvalidRecord(f"the column `{column}` is not a text but {type(text).__name__}")
    return text


def format_chat(turns: Any) -> str | None:
    """Format the turns of a chat as text, one paragraph each; None where these are no turns.

    >>> print(format_chat([{"role": "user", "content": "Any dogs?"}, {"role": "agent", "content": "On a lead."}]))
    user: Any dogs?
    <BLANKLINE>
    agent: On a lead.
    """
    if not isinstance(turns, list) or not turns:
        return None
    text: list[str] = []
    for turn in turns:
        who = next((turn[key] for key in SPEAKER_KEYS if key in turn), None) if isinstance(turn, dict) else None
        what = turn.get(choose_text_column(turn) or "") if isinstance(turn, dict) else None
        if not isinstance(who, str) or not isinstance(what, str):
            return None
        text.append(f"{who}: {what.strip()}")
    return "\n\n".join(text)


class MarkdownHeader(NamedTuple):
    """Front matter of a Markdown file."""

    metadata: dict[str, Any]
    end: int
    """Start of the text after the front matter."""
    unparsed_lines: tuple[str, ...] = ()
    """Lines that are no `key: value`."""


def parse_markdown_header(text: str) -> MarkdownHeader:
    r"""Parse the front matter of a Markdown text: `key: value` lines between two `---` lines at its start.

    Numbers, true, false and lists are read as such, all else as text. Nothing is taken without a closing line of
    dashes.

    >>> parse_markdown_header("---\nlanguage: en\nyear: 2024\ntags: [fares, dogs]\n---\n# Fares\n")
    MarkdownHeader(metadata={'language': 'en', 'year': 2024, 'tags': ['fares', 'dogs']}, end=52, unparsed_lines=())
    """
    nothing = MarkdownHeader({}, 0)
    if not text.startswith("---"):
        return nothing
    match: dict[str, Any] = {}
    strange: list[str] = []
    key, position, is_first = "", 0, True
    while position < len(text):
        stop = text.find("\n", position)
        stop = len(text) if stop < 0 else stop
        line = text[position:stop].rstrip()
        position = min(stop + 1, len(text))
        if HEADER_FENCE.fullmatch(line):
            if not is_first:
                return MarkdownHeader(match, position, tuple(strange)) if match else nothing
        elif is_first:
            return nothing
        else:
            key = _parse_header_line(line, key, match, strange)
        is_first = False
    return nothing


def _parse_header_line(line: str, key: str, metadata: dict[str, Any], unparsed_lines: list[str]) -> str:
    """Take one line in, and return the key that items of a list below it belong to."""
    match = HEADER_PAIR.fullmatch(line)
    if match:
        metadata[match[1]] = _parse_header_value(match[2] or "")
        return match[1]
    item = line.strip()
    if key and item.startswith("- ") and (metadata[key] is None or isinstance(metadata[key], list)):
        metadata[key] = [*(metadata[key] or []), _parse_header_value(item[2:])]
    elif item and not item.startswith("#"):
        unparsed_lines.append(item)
    return key


def _parse_header_value(text: str) -> Any:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    if text.startswith("[") and text.endswith("]"):
        return [_parse_header_value(part) for part in text[1:-1].split(",") if part.strip()]
    if text.lower() in LITERAL_WORDS:
        return LITERAL_WORDS[text.lower()]
    number = NUMBER_PATTERN.fullmatch(text)
    if number:
        return float(text) if number[1] else int(text)
    return text
