"""Reader of corpus documents (Markdown, text, HTML, JSON, tables), and the texts of chunks that it finds in them."""

from __future__ import annotations

import codecs
import glob
import io
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from ragfault.io import document_parsers, files
from ragfault.io.decoder import NoticeCallback
from ragfault.io.error_collector import ErrorCollector, LineTooLong, OnBad
from ragfault.io.field_values import InvalidRecord
from ragfault.io.files import MAX_LINE, InputPaths
from ragfault.io.formats import json_stream, tables
from ragfault.model.errors import BadDocuments, InputError, UnknownName
from ragfault.model.records import Chunk, Document, Trace
from ragfault.text.number_format import format_count

DOCUMENT_KINDS = {
    ".md": "markdown", ".markdown": "markdown", ".mdx": "markdown", ".txt": "plain", ".rst": "plain",
    ".html": "html", ".htm": "html", ".json": "json", ".jsonl": "lines", ".ndjson": "lines", ".csv": "csv",
    ".tsv": "tsv",
}  # fmt: skip
"""Kind of file by suffix, also before .gz and .zst."""
MAX_SHOWN_KINDS = 5
"""Kinds of files passed over that a notice counts."""
MAX_SHOWN_IDS = 3
"""Chunks without a document whose ids a notice names."""


class CorpusFile(NamedTuple):
    """A file of a corpus."""

    path: str
    id: str
    """Path relative to the folder that was given."""
    problem: str = ""
    """Reason of skipping it."""


def expand_corpus(where: InputPaths, notice: NoticeCallback | None) -> list[CorpusFile]:
    """Expand a path, a glob, a folder or a list of these to files, without those that a pattern after "!" matches."""
    parts = [where] if isinstance(where, (str, os.PathLike)) else where
    corpus: list[CorpusFile] = []
    excluded: list[str] = []
    for part in parts:
        name = os.fspath(part)
        path = Path(name)
        if name.startswith("!"):
            excluded.append(name[1:])
            continue
        if path.is_dir():
            corpus += _list_corpus_folder(path, notice)
        elif path.exists():
            if files.get_format_suffix(name) not in DOCUMENT_KINDS:
                raise InputError(
                    f"{name} is of no known kind; there are: {', '.join(DOCUMENT_KINDS)} (also .gz, .zst). Convert "
                    "others first, such as a PDF by: pdftotext -layout FILE.pdf"
                )
            corpus.append(CorpusFile(name, path.name))
        else:
            corpus += _match_pattern(name)
    if not corpus:
        raise InputError("no file was named to read documents from")
    for pattern in excluded:
        if not any(_matches(file.id, pattern) for file in corpus):
            raise InputError(f"no file of the corpus matches {pattern}, so that nothing is excluded by it")
    remaining = [file for file in corpus if not any(_matches(file.id, pattern) for pattern in excluded)]
    if not remaining:
        raise InputError(f"every file of the corpus is excluded by {', '.join(excluded)}")
    return remaining


def _matches(name: str, pattern: str) -> bool:
    """Return whether a glob matches the id of a file, or the name of the file or of a folder above it."""
    return any(fnmatchcase(part, pattern.rstrip("/")) for part in (name, *name.split("/")))


def _list_corpus_folder(folder: Path, notice: NoticeCallback | None) -> list[CorpusFile]:
    documents: list[CorpusFile] = []
    skipped: Counter[str] = Counter()
    for file in sorted(_walk_corpus(folder), key=lambda file: file.id):
        known = files.get_format_suffix(file.path) in DOCUMENT_KINDS and not files.BAD_LINES_FILE.search(file.path)
        if known or file.problem:
            documents.append(file)
        else:
            skipped[files.get_format_suffix(file.path) or "without a suffix"] += 1
    if skipped and notice is not None:
        kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in skipped.most_common(MAX_SHOWN_KINDS))
        more = ", …" if len(skipped) > MAX_SHOWN_KINDS else ""
        notice(f"passed over {format_count(skipped.total(), 'file')} of other kinds in {folder} ({kinds}{more})")
    if not documents:
        raise InputError(f"the folder {folder} holds no document ({', '.join(DOCUMENT_KINDS)}; also .gz, .zst)")
    return documents


def _walk_corpus(folder: Path) -> Iterator[CorpusFile]:
    """Yield every file that is not hidden; links to folders are not followed."""
    home = folder.resolve()
    errors: list[OSError] = []
    for directory, folders, names in os.walk(folder, onerror=errors.append):
        above = Path(directory)
        for name in [*names, *(name for name in folders if (above / name).is_symlink())]:
            path = above / name
            problem = _check_link(path, home)
            if not name.startswith(".") and (problem or path.is_file()):
                yield CorpusFile(str(path), path.relative_to(folder).as_posix(), problem)
        folders[:] = [name for name in folders if not name.startswith(".")]
    for error in errors:
        yield CorpusFile(str(error.filename), str(error.filename), f"cannot be read: {error.strerror}")


def _check_link(path: Path, home: Path) -> str:
    """Describe a link that leads out of the folder or to nothing."""
    if not path.is_symlink():
        return ""
    try:
        goal = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return "a link that leads nowhere"
    return "" if goal.is_relative_to(home) else "a link that leads out of the folder"


def _match_pattern(pattern: str) -> list[CorpusFile]:
    """Return the files that match a glob, named from its first part with a wildcard on."""
    if not glob.has_magic(pattern):
        raise InputError(f"there is no file {pattern}")
    parts = Path(pattern).parts
    first_pattern = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    root = Path(*parts[:first_pattern])
    names = sorted(glob.glob(pattern, recursive=True))
    paths = [Path(name) for name in names if files.get_format_suffix(name) in DOCUMENT_KINDS and Path(name).is_file()]
    if not paths:
        raise InputError(f"no document matches {pattern}")
    home = root.resolve()
    reasons = ("" if path.resolve().is_relative_to(home) else "a link that leads out of the folder" for path in paths)
    return [
        CorpusFile(str(path), path.relative_to(root).as_posix(), reason)
        for path, reason in zip(paths, reasons, strict=True)
    ]


MAX_PROBED_ELEMENTS = 16
"""Elements of a JSON document that are searched for a text."""
HEADING_PATTERN = re.compile(
    r"^ {0,3}#[ \t]+(\S[^\n]{0,300})|^ {0,3}(```|~~~).*?(?:^ {0,3}\2|\Z)", re.MULTILINE | re.DOTALL
)
"""A heading of the first level, or code, in which "#" begins a remark."""
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks and their encodings, longer marks before their prefixes."""


class DocumentOptions(NamedTuple):
    """Options of reading documents."""

    text_column: str | None
    encoding: str | None
    notice: NoticeCallback | None
    limit: int
    unparsed: list[str]
    """What was passed over in the front matter of each file."""

    def notify(self, text: str) -> None:
        if self.notice is not None:
            self.notice(text)


def read_documents(
    where: InputPaths,
    *,
    text: str | None = None,
    encoding: str | None = None,
    on_bad: OnBad = "raise",
    notice: NoticeCallback | None = None,
    limit: int = MAX_LINE,
) -> Iterator[Document]:
    r"""Yield the documents of one or many files, in the order of their names, as a stream.

    `where` is a file, a folder, a glob, or a list of these, in which "!drafts" or "!*.txt" leaves files out by the name
    of the file or of a folder above it: Markdown, plain text, HTML, JSON, JSON Lines, CSV, TSV, also packed (gzip,
    Zstandard). A file of text is a document whose id is its path relative to the folder that was named (of a glob: to
    its part without wildcards; of a single file: its name), with / between the parts. A line of JSON Lines, a row of a
    table and an object in a JSON array are documents where they have a column `text` (or `content`, `page_content`,
    `body`, `passage`, or the one that is named); their id is the column `id`, else FILE#LINE, and columns of no other
    use are metadata. JSON of any other shape is one document, a list of messages is a chat, and a table without texts
    one document that is a Markdown table.

    Spans of gold count the characters of `Document.text`: that is the file after its front matter, with plain line
    ends and without a byte order mark; of HTML the Markdown that is made of it (no script, no style, nothing is
    fetched). A span that was counted in an HTML file itself does not fit.

    Files are UTF-8 unless they begin with a byte order mark, an HTML file names its encoding, or `encoding` does.
    What is hidden in a folder is passed over, and so are files of other kinds; their number and unusual
    encodings are reported to `notice`. Bad documents never stop the reading: undecodable bytes, no text, a link that
    leads out of the folder, a duplicate id, more than `limit` bytes. `on_bad="raise"` yields every good
    document and then raises `BadDocuments` with the first 20 bad ones and the count of all; a callable gets each
    as it comes; "skip" leaves them out.

    Raises `InputError` before the first document where nothing is there or a file that was named is of no known kind,
    and after the last where there was none; `UnknownName` for an encoding that does not exist.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "dogs.md").write_text("---\nlanguage: en\n---\n# Dogs\n\nOn a lead.\n")
    >>> [document] = read_documents(folder)
    >>> document.id, document.title, document.text, document.metadata
    ('dogs.md', 'Dogs', '# Dogs\n\nOn a lead.\n', {'language': 'en'})
    """
    if not callable(on_bad) and on_bad not in ("raise", "skip"):
        raise UnknownName("way to treat bad documents", str(on_bad), ["raise", "skip", "a callable"])
    if encoding is not None and _look_up_codec(encoding) is None:
        raise UnknownName("encoding", encoding, ["utf-8", "utf-16", "latin-1", "cp1252", "shift_jis", "gb18030"])
    way = DocumentOptions(text, encoding, notice, limit, [])
    return _read_corpus(expand_corpus(where, notice), way, ErrorCollector(on_bad, error_type=BadDocuments))


def _read_corpus(corpus: list[CorpusFile], options: DocumentOptions, collector: ErrorCollector) -> Iterator[Document]:
    for file in corpus:
        if file.problem:
            collector.report(file.path, 1, file.problem, b"")
            continue
        for line, item in _read_file(file, options):
            problem = str(item) if isinstance(item, InvalidRecord) else _check_document(item)
            if problem:
                collector.report(file.path, line, problem, item if isinstance(item, InvalidRecord) else b"")
            elif collector.accept(item, file.path, line, b""):
                yield item
    if options.unparsed:
        first, *others = options.unparsed
        options.notify(f"{first}; and so in {format_count(len(others), 'more file')}" if others else first)
    collector.raise_errors([file.path for file in corpus])


def _check_document(document: Document) -> str:
    """Describe what is wrong with a document; empty if nothing is."""
    if not document.text.strip():
        return "the document is empty"
    if "\0" in document.text:
        return "it has zero bytes: this is not a text"
    try:
        document.text.encode()
    except UnicodeEncodeError:
        return "a text holds half a character (a lone surrogate, as in \\ud800)"
    return ""


def _read_file(file: CorpusFile, options: DocumentOptions) -> Iterator[tuple[int, Any]]:
    """Yield line numbers with the documents that begin there, or with their problems."""
    kind = DOCUMENT_KINDS[files.get_format_suffix(file.path)]
    try:
        stream = files.open_bytes(file.path)
        with stream.body:
            if kind in ("markdown", "plain", "html"):
                yield 1, _build_text_document(file, kind, _read_bytes(stream, options), options)
            else:
                yield from _read_records(file, kind, stream, options)
    except InvalidRecord as wrong:
        yield 1, wrong
    except InputError as error:
        yield 1, InvalidRecord(str(error))


def _read_bytes(stream: files.InputStream, options: DocumentOptions) -> bytes:
    """Read a file completely. Raises `InvalidRecord` where it is too long or truncated."""
    data = stream.body.read(options.limit + 1)
    if len(data) > options.limit:
        raise InvalidRecord(f"the document is longer than {options.limit:,} bytes")
    if stream.read_error:
        raise InvalidRecord(stream.read_error)
    return data


def _build_text_document(file: CorpusFile, kind: str, data: bytes, options: DocumentOptions) -> Document:
    text = _decode_text(file, kind, data, options)
    if kind == "html":
        title, text = document_parsers.parse_html(text)
        return Document(id=file.id, text=text, title=title or _extract_heading(text))
    if kind != "markdown":
        return Document(id=file.id, text=text)
    metadata, end, strange = document_parsers.parse_markdown_header(text)
    if strange:
        options.unparsed.append(f"{file.path}: passed over in its front matter: {'; '.join(strange[:3])[:200]}")
    title = metadata.pop("title", None)
    text = text[end:]
    return Document(id=file.id, text=text, title=str(title) if title else _extract_heading(text), metadata=metadata)


def _extract_heading(text: str) -> str | None:
    heading = next((match for match in HEADING_PATTERN.finditer(text) if match[1]), None)
    return heading[1].rstrip().rstrip("#").rstrip() or None if heading else None


def _read_records(
    file: CorpusFile, kind: str, stream: files.InputStream, options: DocumentOptions
) -> Iterator[tuple[int, Any]]:
    """Yield the documents of a file of records; of a broken stream those before the break."""
    body = _recode_to_utf8(file, stream, options)
    if kind == "json":
        yield from _read_json(file, body, options)
    elif kind == "lines":
        for number, line, complete in files.iterate_lines(body, options.limit):
            if not complete:
                yield number, LineTooLong(line, options.limit)
            elif not line.isspace() and not (stream.read_error and not line.endswith(b"\n")):
                yield number, _decode_record(file, number, line, options)
    else:
        yield from _read_table(file, tables.read_csv_rows(body, file.path, kind == "tsv", options.limit), options)
    if stream.read_error:
        yield 1, InvalidRecord(stream.read_error)


def _decode_record(file: CorpusFile, number: int, record: Any, options: DocumentOptions) -> Document | InvalidRecord:
    try:
        fields = document_parsers.decode_object(record) if isinstance(record, bytes) else record
        return document_parsers.build_document(fields, f"{file.id}#{number}", options.text_column)
    except InvalidRecord as wrong:
        return wrong if wrong.text else InvalidRecord(str(wrong), record if isinstance(record, bytes) else b"")


def _read_json(file: CorpusFile, body: io.BufferedReader, options: DocumentOptions) -> Iterator[tuple[int, Any]]:
    """Yield the objects of a JSON document that have texts; else the whole file as one document."""
    elements = json_stream.iterate_elements(
        body, options.limit, lambda names: document_parsers.choose_text_column(list(names)) is not None
    )
    samples = list(islice(elements, MAX_PROBED_ELEMENTS))
    if not any(_has_text(item, options) for _, item, _ in samples):
        yield 1, _read_json_document(file, options)
        return
    for number, item, complete in chain(samples, elements):
        if isinstance(item, InvalidRecord):
            yield number, item
        else:
            yield (
                number,
                _decode_record(file, number, item, options) if complete else LineTooLong(item, options.limit),
            )


def _has_text(item: bytes | InvalidRecord, options: DocumentOptions) -> bool:
    """Tell whether a JSON element is an object with a text, and not a message of a chat."""
    try:
        fields = document_parsers.decode_object(item) if isinstance(item, bytes) else {}
        return not document_parsers.format_chat([fields]) and bool(
            document_parsers.build_document(fields, "-", options.text_column).text
        )
    except InvalidRecord:
        return False


def _read_json_document(file: CorpusFile, options: DocumentOptions) -> Document:
    """Read a whole JSON file as one document: its text, or the chat that it holds."""
    import msgspec

    stream = files.open_bytes(file.path)
    with stream.body:
        text = _decode_text(file, "json", _read_bytes(stream, options), options)
    try:
        value = msgspec.json.decode(text.encode()) if text.strip() else None
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidRecord(f"malformed JSON: {error}") from None
    return Document(id=file.id, text=document_parsers.format_chat(value) or text)


def _read_table(
    file: CorpusFile, rows: Iterator[tuple[int, Any]], options: DocumentOptions
) -> Iterator[tuple[int, Any]]:
    """Yield the rows that are documents; a table without texts is one document."""
    number, header = next(rows, (0, []))
    while isinstance(header, InvalidRecord):
        yield number, header
        number, header = next(rows, (0, []))
    if document_parsers.choose_text_column(header, options.text_column) or options.text_column:
        for number, row in rows:
            yield (number, row if isinstance(row, InvalidRecord) else _decode_record(file, number, row, options))
        return
    cells: list[list[str]] = [header]
    for number, row in rows:
        if isinstance(row, InvalidRecord):
            yield number, row
        else:
            cells.append([cell or "" for cell in row.values()])
    if len(cells) > 1:
        options.notify(
            f"{file.path}: read as one table, as none of its columns is {', '.join(document_parsers.TEXT_COLUMNS)}"
        )
    yield (1, Document(id=file.id, text=document_parsers.format_markdown_table(cells) if len(cells) > 1 else ""))


def _look_up_codec(name: str) -> str | None:
    try:
        return codecs.lookup(name).name
    except LookupError:
        return None


def _detect_encoding(file: CorpusFile, kind: str, head: bytes, options: DocumentOptions) -> str:
    """Detect the encoding by the first bytes. Raises `InvalidRecord` for an unknown encoding."""
    marked = next((name for mark, name in BYTE_ORDER_MARKS if head.startswith(mark)), None)
    named = marked or options.encoding or (document_parsers.detect_charset(head) if kind == "html" else None) or "utf-8"
    codec = _look_up_codec(named)
    if codec is None:
        raise InvalidRecord(f"it names the encoding {named}, which does not exist; name the right one: encoding=")
    if codec != "utf-8":
        options.notify(f"{file.path}: read as {codec}")
    return codec


def _decode_text(file: CorpusFile, kind: str, data: bytes, options: DocumentOptions) -> str:
    """Decode bytes and normalize line ends."""
    codec = _detect_encoding(file, kind, data[:4096], options)
    try:
        text = data.decode(codec).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise InvalidRecord(
            f"byte {error.start + 1:,} is no {codec.upper()}; name the encoding that it is: encoding="
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _recode_to_utf8(file: CorpusFile, stream: files.InputStream, options: DocumentOptions) -> io.BufferedReader:
    """Return the stream unchanged, or recoded where it is not UTF-8."""
    codec = _detect_encoding(file, "rows", stream.body.peek(4)[:4], options)
    if codec == "utf-8":
        return stream.body
    text = _decode_text(file, "rows", _read_bytes(stream, options), options._replace(notice=None))
    return io.BufferedReader(io.BytesIO(text.encode()))


def join_chunk_texts(
    traces: Iterable[Trace], documents: InputPaths, notice: NoticeCallback | None = None
) -> Iterator[Trace]:
    """Yield traces whose chunks without a text have that of the document with their id.

    A chunk that names its document and its place there, and whose id is no document's, has the text of that place. What
    no document holds stays without a text; how many chunks that is, and the first of their ids, is said to `notice` at
    the end, and before that each document that cannot be read. Raises what `read_documents` raises.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "corpus.jsonl"
    >>> _ = path.write_text('{"id": "ferry", "text": "The ferry leaves at six."}')
    >>> trace = Trace(id="1", query="When?", chunks=(Chunk(id="ferry", score=0.9), Chunk(id="dog")))
    >>> [chunk.text for chunk in next(join_chunk_texts([trace], path)).chunks]
    ['The ferry leaves at six.', '']
    """
    on_bad: OnBad = "raise" if notice is None else lambda bad: notice(f"left out: {bad}")
    texts = {document.id: document.text for document in read_documents(documents, on_bad=on_bad, notice=notice)}
    joined, missing, absent = 0, 0, dict[str, None]()
    for trace in traces:
        chunks = []
        for chunk in trace.chunks or ():
            text = chunk.text or _find_text(chunk, texts)
            if not chunk.text:
                joined, missing = joined + bool(text), missing + (not text)
                absent |= {} if text else {chunk.id: None}
            chunks.append(replace(chunk, text=text))
        yield replace(trace, chunks=tuple(chunks)) if chunks else trace
    if notice is not None and joined + missing:
        note = f"; no document for {missing:,}: {', '.join(list(absent)[:MAX_SHOWN_IDS])}" if missing else ""
        notice(f"{joined:,} of {joined + missing:,} chunks without a text have that of a document{note}")


def _find_text(chunk: Chunk, texts: dict[str, str]) -> str:
    if chunk.id in texts:
        return texts[chunk.id]
    if chunk.document is None or chunk.start is None or chunk.end is None:
        return ""
    return texts.get(chunk.document, "")[chunk.start : chunk.end]
