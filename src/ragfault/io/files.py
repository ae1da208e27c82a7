"""Input files: expand paths, detect formats, and open byte streams.

Compression is recognized by its first bytes. A stream that breaks off ends quietly and records the error.
"""

from __future__ import annotations

import bz2
import codecs
import glob
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, cast

from ragfault.io.formats.tables import describe_memory_table, is_memory_table
from ragfault.io.payloads.inspect_log import LOG_SUFFIX, InspectLog, starts_archive
from ragfault.io.payloads.log_lines import is_log
from ragfault.io.remote_paths import RemotePath, is_remote
from ragfault.io.runs.unfinished import describe_unfinished_run
from ragfault.model.errors import InputError
from ragfault.model.records import Trace

MAX_LINE = 64 * 2**20
"""Maximum length of a line in bytes; a longer one is a bad line."""

FileFormat = Literal["json", "csv", "tsv", "parquet", "arrow", "trec", "yaml", "log"]
InputPaths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

FORMATS_BY_SUFFIX: dict[str, FileFormat] = {
    ".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet",
    ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".trec": "trec", ".run": "trec", LOG_SUFFIX: "json",
}  # fmt: skip
"""Format by suffix; `json` means one object per line or one array, and `.eval` is the log of Inspect."""

COMPRESSION_SUFFIXES = (".gz", ".zst", ".bz2", ".xz")
READ_SIZE = 2**16
"""Bytes read at once; of a broken stream the last block is lost."""

BAD_LINES_FILE = re.compile(r"\.bad(-\d+)?\.jsonl$")
"""Name of the file that keeps the bad lines of an input."""

TREC_LINE = re.compile(rb"\S+[ \t]+Q0[ \t]+\S+[ \t]+\S+[ \t]+\S+([ \t]+\S+)?\s*")

QREL_LINE = re.compile(rb"\S+[ \t]+\S+[ \t]+\S+[ \t]+-?\d+")
ARCHIVE_SUFFIXES = (".zip", ".tar", ".tgz", ".7z", ".rar")
DATASET_FILES = frozenset(("dataset_info.json", "state.json", "dataset_dict.json"))
"""Files that Hugging Face saves beside the tables of a data set."""
TEXT_SUFFIXES = (".md", ".txt", ".html", ".htm", ".pdf", ".docx", ".rst")


class InputStream(NamedTuple):
    """An open file with its uncompressed bytes and its read error, if any."""

    body: io.BufferedReader
    raw: _ReadErrorGuard
    is_compressed: bool = False
    """True if the file is compressed."""

    @property
    def read_error(self) -> str | None:
        return self.raw.read_error


def describe_input(where: object) -> tuple[str, ...]:
    """Return an input as it was named: files, or traces in memory.

    >>> describe_input("traces.jsonl"), describe_input(iter(()))
    (('traces.jsonl',), ('traces in memory',))
    """
    if isinstance(where, str | Path):
        return (str(where),)
    if isinstance(where, Sequence) and all(isinstance(item, str | Path) for item in where):
        return tuple(map(str, where))
    return (describe_memory_table(where) if is_memory_table(where) else "traces in memory",)


def iterate_inputs(where: Any) -> Iterator[Any]:
    """Yield the paths or records of an input that is no frame; one record stands for itself.

    Raises `InputError` for anything else.

    >>> list(iterate_inputs({"query": "When?"}))
    [{'query': 'When?'}]
    """
    inputs = [where] if isinstance(where, (Mapping, Trace, str, os.PathLike)) else where
    if not isinstance(inputs, Iterable):
        raise InputError(f"{INPUTS}, not from {describe_type(where)}")
    for item in inputs:
        if not isinstance(item, (Mapping, Trace, str, os.PathLike)):
            raise InputError(f"{INPUTS}, not from {describe_type(item)}")
        yield item


INPUTS = "traces are read from a path, from records (dicts or Trace) or from a frame of pandas, polars or Arrow"


def describe_type(value: object) -> str:
    """Describe a value of a kind that cannot be read, by its type.

    >>> describe_type(3), describe_type([])
    ('an int', 'a list')
    """
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def expand_paths(where: InputPaths) -> list[str]:
    """Expand a path, a glob, a directory, or a list of these to files, as they were named.

    A directory stands for its files of a known ending, in the order of their names; hidden files, sources of RAGTruth,
    kept bad lines (`*.bad.jsonl`) and runs below it are passed over. A named run stands for its traces; `s3://`,
    `gs://` and `az://` name stores. Raises `InputError` where nothing is there.
    """
    parts = [where] if isinstance(where, (str, os.PathLike)) else where
    names: list[str] = []
    for part in parts:
        name = os.fspath(part)
        try:
            names += _expand_remote_path(RemotePath(name)) if is_remote(name) else _expand_local_path(name)
        except OSError as error:
            raise InputError(f"{part} cannot be read: {error.strerror or error}") from None
    if not names:
        raise InputError("no file was named to read traces from")
    return names


def _expand_local_path(name: str) -> list[str]:
    if name == "-":
        return [name]
    path = Path(name)
    if path.is_dir():
        return _list_folder(path)
    if path.exists():
        return [name]
    if glob.has_magic(name):
        names = sorted(file for file in glob.glob(name, recursive=True) if Path(file).is_file())
        if names:
            return names
        raise InputError(f"no file matches {name}")
    raise InputError(describe_unfinished_run(path) or f"there is no file {name}")


def _expand_remote_path(path: RemotePath) -> list[str]:
    if glob.has_magic(path.url) and not path.is_file():
        names = [str(file) for file in path.glob()]
        if names:
            return names
        raise InputError(f"no file matches {path}")
    if path.is_file():
        return [str(path)]
    if (path / "manifest.json").is_file() and (path / "traces.parquet").is_file():
        return [str(path / "traces.parquet")]
    names = [
        str(file)
        for file in path.list_files()
        if get_format_suffix(file.name) in FORMATS_BY_SUFFIX and not BAD_LINES_FILE.search(file.name)
    ]
    if not names:
        raise InputError(f"there is no file {path}, and none of traces below it")
    return names


def _list_folder(folder: Path) -> list[str]:
    if _is_run_folder(folder):
        return [str(folder / "traces.parquet")]
    if (folder / "dataset_dict.json").is_file():
        splits = ", ".join(sorted(str(path) for path in folder.iterdir() if path.is_dir()))
        raise InputError(f"the directory {folder} holds the splits of a data set: name the folder of one ({splits})")
    names = sorted(_walk_folder(folder))
    if any(_get_stem(path) == "response" for path in names):
        names = [path for path in names if _get_stem(path) != "source_info"]
    if not names:
        raise InputError(
            f"the directory {folder} holds no file of traces ({', '.join(FORMATS_BY_SUFFIX)}; "
            f"also {', '.join(COMPRESSION_SUFFIXES)}); a run below it has to be named itself"
        )
    return [str(path) for path in names]


def _walk_folder(folder: Path) -> Iterator[Path]:
    for directory, folders, names in os.walk(folder):
        above = Path(directory)
        folders[:] = [
            name
            for name in folders
            if not (name.startswith(".") or name.endswith(".partial") or _is_run_folder(above / name))
        ]
        for name in names:
            is_known = (
                get_format_suffix(name) in FORMATS_BY_SUFFIX
                and not name.startswith(".")
                and not BAD_LINES_FILE.search(name)
                and not (name in DATASET_FILES and DATASET_FILES & set(names) > {name})
            )
            if is_known and (above / name).is_file():
                yield above / name


def _is_run_folder(folder: Path) -> bool:
    return (folder / "manifest.json").is_file() and (folder / "traces.parquet").is_file()


def get_format_suffix(name: str) -> str:
    """Return the suffix that names the format: `.jsonl` of `traces.jsonl.gz`."""
    path = Path(name)
    return Path(path.stem).suffix.lower() if path.suffix.lower() in COMPRESSION_SUFFIXES else path.suffix.lower()


def _get_stem(path: Path) -> str:
    return path.name.split(".", 1)[0]


FOREIGN_FORMATS = {
    ".xml": "XML", ".xlsx": "an Excel workbook", ".xls": "an Excel workbook", ".sql": "a dump in SQL",
    ".ods": "a spreadsheet", ".pkl": "a pickle", ".pickle": "a pickle", ".avro": "Avro", ".db": "a database",
    ".sqlite": "a database", ".sqlite3": "a database", ".duckdb": "a database",
}  # fmt: skip
"""Endings of files that hold traces in some tools, and what these files are."""
YAML_SUFFIXES = (".yaml", ".yml")
"""Endings of files that are read if they are named; in a folder they are settings."""


def detect_format(name: str, body: io.BufferedReader) -> FileFormat:
    """Detect the format of an open file by its name, else by its first bytes.

    Raises `InputError` where neither tells.
    """
    head = body.peek(4096).removeprefix(b"\xef\xbb\xbf")
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"ARROW1"):
        return "arrow"
    suffix = get_format_suffix(name)
    promised = "yaml" if suffix in YAML_SUFFIXES else FORMATS_BY_SUFFIX.get(suffix)
    if promised and promised != "json":
        return promised
    if suffix not in {*FOREIGN_FORMATS, *TEXT_SUFFIXES} - {".txt"} and is_log(head):
        return "log"
    if promised or (head.lstrip()[:1] in (b"{", b"[") and suffix not in FOREIGN_FORMATS):
        return "json"
    first_line = head.split(b"\n", 1)[0]
    if TREC_LINE.fullmatch(first_line):
        return "trec"
    names = {cell.strip().strip(b'"').lower() for cell in re.split(rb"[,\t]", first_line)}
    if names & {b"query", b"question", b"user_input", b"input"}:
        return "tsv" if b"\t" in first_line else "csv"
    raise InputError(f"{name}: {_describe_foreign(name, first_line)}")


def _describe_foreign(name: str, first_line: bytes) -> str:
    """Describe a file of no format that is read, and what to do with it."""
    suffix = get_format_suffix(name)
    if QREL_LINE.fullmatch(first_line.strip()):
        return (
            "this is not a set of traces but judgements of relevance (qrels): a TREC run is scored against them "
            "with `ragfault run rank RUN QRELS`, and evaluated with `ragfault evaluate RUN --qrels QRELS`"
        )
    if suffix in TEXT_SUFFIXES:
        return "this is not a set of traces but a document, as `ragfault tune pipeline CORPUS QUESTIONS` takes it"
    if suffix in ARCHIVE_SUFFIXES:
        return "an archive is not read: unpack it, and name its folder or a file of it"
    if kind := "a database" if first_line.startswith(b"SQLite format 3") else FOREIGN_FORMATS.get(suffix):
        return f"{kind} is not read: save it as JSON Lines (.jsonl), JSON, CSV or Parquet"
    return (
        "neither its name nor its beginning says what it is; "
        f"name it with one of {', '.join(FORMATS_BY_SUFFIX)} (also {', '.join(COMPRESSION_SUFFIXES)})"
    )


class _ReadErrorGuard(io.RawIOBase):
    """A raw stream that ends where the inner stream breaks, and keeps the error."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.read_error: str | None = None
        self.read_available = getattr(inner, "read1", inner.read)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self.read_available(min(len(buffer), READ_SIZE))
        except EOFError:
            self.read_error = "the compressed data breaks off here: the file is truncated"
        except (OSError, zlib.error, lzma.LZMAError, ValueError) as error:
            self.read_error = f"the data cannot be read further: {error}"
        else:
            buffer[: len(data)] = data
            return len(data)
        return 0

    def close(self) -> None:
        if not self.closed:
            self.inner.close()
        super().close()


class _Transcoder(io.RawIOBase):
    """A raw stream of UTF-8 over bytes in another encoding."""

    def __init__(self, inner: io.BufferedReader, encoding: str) -> None:
        self.inner, self.decoder, self.rest = inner, codecs.getincrementaldecoder(encoding)(), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.rest:
            data = self.inner.read1(READ_SIZE)
            self.rest = self.decoder.decode(data, final=not data).encode("utf-8", "surrogatepass")
            if not data:
                break
        size = min(len(buffer), len(self.rest))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        return size

    def close(self) -> None:
        if not self.closed:
            self.inner.close()
        super().close()


def _transcode(name: str, stream: InputStream, encoding: str | None, notify: Callable[[str], object]) -> InputStream:
    """Convert a stream of another encoding to UTF-8: the named one, or UTF-16 and UTF-32 by their first bytes."""
    matches = encoding
    if matches is None:
        head = stream.body.peek(4)[:4]
        matches = next((kind for mark, kind in BYTE_ORDER_MARKS.items() if head.startswith(mark)), None)
        if matches is None and len(head) == 4 and head.count(0) == 2:
            matches = "utf-16-le" if head[0] else "utf-16-be"
        if matches is None:
            return stream
        notify(f"{name}: in {matches.upper()}")
    try:
        codecs.lookup(matches)
    except LookupError:
        raise InputError(f"there is no encoding {matches!r}. Common ones: utf-8, utf-16, latin-1, cp1252.") from None
    guard = _ReadErrorGuard(_Transcoder(stream.body, matches))
    return InputStream(cast("io.BufferedReader", io.BufferedReader(guard, 2**18)), guard, is_compressed=True)


BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def open_bytes(name: str, encoding: str | None = None, notify: Callable[[str], object] = str) -> InputStream:
    """Open a file (`-` is standard input), decompress it, and convert it from another encoding to UTF-8.

    Raises `InputError` as below, and for an encoding that does not exist.
    """
    return _transcode(name, _open_decompressed(name), encoding, notify)


def _open_decompressed(name: str) -> InputStream:
    """Open a file and decompress it.

    Raises `InputError` where the file is not there or may not be read.
    """
    try:
        raw = RemotePath(name).open() if is_remote(name) else _open_local_file(name)
    except FileNotFoundError:
        raise InputError(f"there is no file {name}") from None
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror or error}") from None
    if get_format_suffix(name) == LOG_SUFFIX and starts_archive(raw):
        guard = _ReadErrorGuard(InspectLog(raw))
        return InputStream(cast("io.BufferedReader", io.BufferedReader(guard, 2**18)), guard, is_compressed=True)
    guard = _ReadErrorGuard(raw)
    decompressed = io.BufferedReader(guard, 2**18)
    magic = decompressed.peek(4)[:4]
    if magic.startswith(b"\x1f\x8b"):
        guard = _ReadErrorGuard(gzip.GzipFile(fileobj=decompressed))
    elif magic.startswith(b"BZh"):
        guard = _ReadErrorGuard(bz2.BZ2File(decompressed))
    elif magic == b"\xfd7zX":
        guard = _ReadErrorGuard(lzma.LZMAFile(decompressed))  # noqa: SIM115 - closed with the guard
    elif magic == b"\x28\xb5\x2f\xfd":
        import pyarrow as pa

        guard = _ReadErrorGuard(pa.CompressedInputStream(pa.PythonFile(decompressed, mode="r"), "zstd"))
    else:
        return InputStream(cast("io.BufferedReader", decompressed), guard)
    return InputStream(cast("io.BufferedReader", io.BufferedReader(guard, 2**18)), guard, is_compressed=True)


def _open_local_file(name: str) -> IO[bytes]:
    return open(0 if name == "-" else name, "rb", closefd=name != "-")


def iterate_lines(body: io.BufferedReader, limit: int = MAX_LINE) -> Iterator[tuple[int, bytes, bool]]:
    r"""Yield each line with its number and whether it is complete; longer lines are cut at `limit`.

    >>> list(iterate_lines(io.BufferedReader(io.BytesIO(b"one\ntwo and more\nlast")), limit=4))
    [(1, b'one\n', True), (2, b'two ', False), (3, b'last', True)]
    """
    number = 0
    while line := body.readline(limit + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if len(line) <= limit or line.endswith(b"\n"):
            yield number, line, True
            continue
        while (remainder := body.readline(2**20)) and not remainder.endswith(b"\n"):
            pass
        yield number, line[:limit], False
