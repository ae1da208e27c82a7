"""Documents: the texts of a corpus from files and folders, and every fault told with its file."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

from ragfault.errors import BadDocuments, InputError, UnknownName
from ragfault.records import Document
from ragfault.sources import documents_html, documents_rows, files, scan, tables
from ragfault.sources.desk import Desk, Long, OnBad
from ragfault.sources.documents_files import KINDS, File, expand
from ragfault.sources.files import MAX_LINE, Where
from ragfault.sources.mould import Notice
from ragfault.sources.values import Wrong

__all__ = ["read_documents"]

LOOKED = 16
"""So many elements of a JSON document are looked at for one that has a text."""
HEADING = re.compile(r"^ {0,3}#[ \t]+(\S[^\n]{0,300})", re.MULTILINE)
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""The byte order marks that files begin with, the longer before those that they begin with."""


class Way(NamedTuple):
    """How files are read."""

    column: str | None
    encoding: str | None
    notice: Notice | None
    limit: int

    def tell(self, text: str) -> None:
        if self.notice is not None:
            self.notice(text)


def read_documents(
    where: Where,
    *,
    text: str | None = None,
    encoding: str | None = None,
    on_bad: OnBad = "raise",
    notice: Notice | None = None,
    limit: int = MAX_LINE,
) -> Iterator[Document]:
    """Every document of one or many files, in the order of their names, as a stream.

    `where` is a file, a folder, a glob, or a list of these: Markdown, plain text, HTML, JSON, JSON Lines, CSV, TSV,
    also packed (gzip, Zstandard). A file of text is a document whose id is its path relative to the folder that was
    named (of a glob: to its part without wildcards; of a single file: its name), with / between the parts. A line of
    JSON Lines, a row of a table and an object in a JSON array are documents where they have a column `text` (or
    `content`, `page_content`, `body`, `passage`, or the one that is named); their id is the column `id`, else
    FILE#LINE, and columns of no other use are metadata. JSON of any other shape is one document, a list of messages
    is a chat, and a table without texts one document that is a Markdown table.

    Spans of gold count the characters of `Document.text`: that is the file after its front matter, with plain line
    ends and without a byte order mark; of HTML the Markdown that is made of it (no script, no style, nothing is
    fetched). A span that was counted in an HTML file itself does not fit.

    Files are UTF-8 unless they begin with a byte order mark, an HTML file names its encoding, or `encoding` does.
    What is hidden in a folder is passed over, and so are files of other kinds; both how many those were and odd
    encodings are told to `notice`. Faults never stop the reading: undecodable bytes, an empty document, a link that
    leads out of the folder, an id that stands twice, more than `limit` bytes. `on_bad="raise"` gives every good
    document and then raises `BadDocuments` with the first 20 faults and the count of all; a callable gets each fault
    as it comes; "skip" passes them over.

    Raises `InputError` before the first document where nothing is there or a file that was named is of no known kind,
    and after the last where there was none; `UnknownName` for an encoding that does not exist.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "dogs.md").write_text("---\\nlanguage: en\\n---\\n# Dogs\\n\\nOn a lead.\\n")
    >>> [document] = read_documents(folder)
    >>> document.id, document.title, document.text, document.metadata
    ('dogs.md', 'Dogs', '# Dogs\\n\\nOn a lead.\\n', {'language': 'en'})
    """
    if not callable(on_bad) and on_bad not in ("raise", "skip"):
        raise UnknownName("way to treat bad documents", str(on_bad), ["raise", "skip", "a callable"])
    if encoding is not None and _codec(encoding) is None:
        raise UnknownName(
            "encoding", encoding, ["utf-8", "utf-16", "latin-1", "cp1252", "shift_jis", "gb18030"]
        )
    way = Way(text, encoding, notice, limit)
    return _read(expand(where, notice), way, Desk(on_bad, refusal=BadDocuments))


def _read(found: list[File], way: Way, desk: Desk) -> Iterator[Document]:
    for file in found:
        if file.problem:
            desk.fault(file.path, 1, file.problem, b"")
            continue
        for line, item in _items(file, way):
            problem = str(item) if isinstance(item, Wrong) else _fault(item)
            if problem:
                desk.fault(file.path, line, problem, item if isinstance(item, Wrong) else b"")
            elif desk.welcome(item, file.path, line, b""):
                yield item
    desk.close([file.path for file in found])


def _fault(document: Document) -> str:
    """What is wrong with a document, if anything is."""
    if not document.text.strip():
        return "the document is empty"
    if "\0" in document.text:
        return "it holds zero bytes: this is no text"
    try:
        document.text.encode()
    except UnicodeEncodeError:
        return "a text holds half a character (a lone surrogate, as in \\ud800)"
    return ""


# --- what a file gives -----------------------------------------------------------------------------


def _items(file: File, way: Way) -> Iterator[tuple[int, Any]]:
    """Lines with the documents that begin there, or with what is wrong there."""
    kind = KINDS[files.ending(file.path)]
    try:
        stream = files.open_bytes(file.path)
        with stream.body:
            if kind in ("markdown", "plain", "html"):
                yield 1, _whole(file, kind, _all(stream, way), way)
            else:
                yield from _records(file, kind, stream, way)
    except Wrong as wrong:
        yield 1, wrong
    except InputError as error:
        yield 1, Wrong(str(error))


def _all(stream: files.Stream, way: Way) -> bytes:
    """The bytes of a file; raises `Wrong` where they are too many or break off."""
    data = stream.body.read(way.limit + 1)
    if len(data) > way.limit:
        raise Wrong(f"the document is longer than {way.limit:,} bytes")
    if stream.broken:
        raise Wrong(stream.broken)
    return data


def _whole(file: File, kind: str, data: bytes, way: Way) -> Document:
    """The document that a file of text is."""
    text = _decoded(file, kind, data, way)
    if kind == "html":
        title, text = documents_html.page(text)
        return Document(id=file.id, text=text, title=title or _heading(text))
    if kind != "markdown":
        return Document(id=file.id, text=text)
    metadata, end, strange = documents_rows.front_matter(text)
    if strange:
        way.tell(f"{file.path}: passed over in its front matter: {'; '.join(strange[:3])[:200]}")
    title = metadata.pop("title", None)
    text = text[end:]
    return Document(id=file.id, text=text, title=str(title) if title else _heading(text), metadata=metadata)


def _heading(text: str) -> str | None:
    found = HEADING.search(text)
    return found[1].rstrip().rstrip("#").rstrip() or None if found else None


def _records(file: File, kind: str, stream: files.Stream, way: Way) -> Iterator[tuple[int, Any]]:
    """The documents of a file of many; where the stream breaks, what came before."""
    body = _utf8(file, stream, way)
    if kind == "json":
        yield from _json(file, body, way)
    elif kind == "lines":
        for number, line, whole in files.lines(body, way.limit):
            if not whole:
                yield number, Long(line, way.limit)
            elif not line.isspace() and not (stream.broken and not line.endswith(b"\n")):
                yield number, _record(file, number, line, way)
    else:
        yield from _table(file, tables.text_rows(body, file.path, kind == "tsv", way.limit), way)
    if stream.broken:
        yield 1, Wrong(stream.broken)


def _record(file: File, number: int, record: Any, way: Way) -> Document | Wrong:
    try:
        held = documents_rows.decode(record) if isinstance(record, bytes) else record
        return documents_rows.document(held, f"{file.id}#{number}", way.column)
    except Wrong as wrong:
        return wrong if wrong.text else Wrong(str(wrong), record if isinstance(record, bytes) else b"")


def _json(file: File, body: io.BufferedReader, way: Way) -> Iterator[tuple[int, Any]]:
    """The objects of a JSON document that have texts; else the document as it stands."""
    elements = scan.elements(
        body, way.limit, lambda names: documents_rows.text_column(list(names)) is not None
    )
    first = list(islice(elements, LOOKED))
    if not any(_texted(item, way) for _, item, _ in first):
        yield 1, _document(file, way)
        return
    for number, item, whole in chain(first, elements):
        if isinstance(item, Wrong):
            yield number, item
        else:
            yield number, _record(file, number, item, way) if whole else Long(item, way.limit)


def _texted(item: bytes | Wrong, way: Way) -> bool:
    """Whether a piece of JSON is an object with a text, and not what somebody said in a chat."""
    try:
        held = documents_rows.decode(item) if isinstance(item, bytes) else {}
        return not documents_rows.conversation([held]) and bool(
            documents_rows.document(held, "-", way.column).text
        )
    except Wrong:
        return False


def _document(file: File, way: Way) -> Document:
    """The document that a JSON file as a whole is: its text, or the chat that it holds."""
    import msgspec

    stream = files.open_bytes(file.path)
    with stream.body:
        text = _decoded(file, "json", _all(stream, way), way)
    try:
        held = msgspec.json.decode(text.encode()) if text.strip() else None
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise Wrong(f"malformed JSON: {error}") from None
    return Document(id=file.id, text=documents_rows.conversation(held) or text)


def _table(file: File, rows: Iterator[tuple[int, Any]], way: Way) -> Iterator[tuple[int, Any]]:
    """The rows that are documents; a table without texts is one document."""
    number, header = next(rows, (0, []))
    while isinstance(header, Wrong):
        yield number, header
        number, header = next(rows, (0, []))
    if documents_rows.text_column(header, way.column) or way.column:
        for number, row in rows:
            yield number, row if isinstance(row, Wrong) else _record(file, number, row, way)
        return
    cells: list[list[str]] = [header]
    for number, row in rows:
        if isinstance(row, Wrong):
            yield number, row
        else:
            cells.append([cell or "" for cell in row.values()])
    if len(cells) > 1:
        way.tell(
            f"{file.path}: read as one table, as none of its columns is {', '.join(documents_rows.TEXTS)}"
        )
    yield 1, Document(id=file.id, text=documents_html.table(cells) if len(cells) > 1 else "")


# --- encodings -------------------------------------------------------------------------------------


def _codec(name: str) -> str | None:
    try:
        return codecs.lookup(name).name
    except LookupError:
        return None


def _encoding(file: File, kind: str, head: bytes, way: Way) -> str:
    """The encoding of a file by its first bytes; raises `Wrong` where it names one that does not exist."""
    marked = next((name for mark, name in MARKS if head.startswith(mark)), None)
    named = marked or way.encoding or (documents_html.charset(head) if kind == "html" else None) or "utf-8"
    known = _codec(named)
    if known is None:
        raise Wrong(f"it names the encoding {named}, which does not exist; name the right one: encoding=")
    if known != "utf-8":
        way.tell(f"{file.path}: read as {known}")
    return known


def _decoded(file: File, kind: str, data: bytes, way: Way) -> str:
    """The text of bytes, with plain line ends."""
    known = _encoding(file, kind, data[:4096], way)
    try:
        text = data.decode(known).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise Wrong(
            f"byte {error.start + 1:,} is no {known.upper()}; name the encoding that it is: encoding="
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _utf8(file: File, stream: files.Stream, way: Way) -> io.BufferedReader:
    """The stream as it is, or recoded where it is not UTF-8."""
    known = _encoding(file, "rows", stream.body.peek(4)[:4], way)
    if known == "utf-8":
        return stream.body
    text = _decoded(file, "rows", _all(stream, way), way._replace(notice=None))
    return io.BufferedReader(io.BytesIO(text.encode()))
