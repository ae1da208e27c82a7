"""Files: which ones are meant, what form they have, and their bytes, line by line.

Compression is recognised by its first bytes (gzip, Zstandard), never by the name alone, and undone as a
stream. A stream that breaks off (a truncated download) ends quietly here and says so in `broken`, so that
what came before it is kept.
"""

from __future__ import annotations

import glob
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, cast

from ragfault.errors import InputError
from ragfault.sources.frames import frame_name, is_frame
from ragfault.sources.remote import Remote, is_remote

__all__ = [
    "FORMS",
    "MAX_LINE",
    "PACKED",
    "Form",
    "Stream",
    "Where",
    "ending",
    "expand",
    "form",
    "lines",
    "named",
    "open_bytes",
]

MAX_LINE = 64 * 2**20
"""The longest line that is read, in bytes; a longer one is a fault."""

Form = Literal["json", "csv", "tsv", "parquet", "trec"]
Where = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

FORMS: dict[str, Form] = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".trec": "trec",
    ".run": "trec",
}
"""What a file name promises; `json` stands for one object a line and for one array alike."""

PACKED = (".gz", ".zst")
PIECE = 2**16
"""How much is asked of a stream at once: of one that breaks off, what came with its last piece is lost."""

BAD = re.compile(r"\.bad(-\d+)?\.jsonl$")
"""The name of a side file, which holds the lines of an input that are no traces."""

TREC = re.compile(rb"\S+[ \t]+Q0[ \t]+\S+[ \t]+\S+[ \t]+\S+([ \t]+\S+)?\s*")


class Stream(NamedTuple):
    """An open file: its uncompressed bytes, and what broke them off, if anything did."""

    body: io.BufferedReader
    raw: _Guard
    packed: bool = False
    """Whether the file is compressed."""

    @property
    def broken(self) -> str | None:
        return self.raw.broken


# --- which files -----------------------------------------------------------------------------------


def named(where: object) -> tuple[str, ...]:
    """An input as it was named: files, or traces in memory.

    >>> named("traces.jsonl"), named(iter(()))
    (('traces.jsonl',), ('traces in memory',))
    """
    if isinstance(where, str | Path):
        return (str(where),)
    if isinstance(where, Sequence) and all(isinstance(item, str | Path) for item in where):
        return tuple(map(str, where))
    return (frame_name(where) if is_frame(where) else "traces in memory",)


def expand(where: Where) -> list[str]:
    """The files that a path, a glob, a directory, or a list of these stands for, each as it was named.

    A directory stands for its files (and those below it) of a known ending, in the order of their names;
    hidden files are passed over, and so is what belongs to another file: the `source_info` of RAGTruth, and
    the bad lines that were kept of an input (`*.bad.jsonl`). A run stands for its traces where it is named;
    runs below a directory are passed over. What begins as `s3://`, `gs://` or `az://` is looked for in that
    store. Raises `InputError` where nothing is there.
    """
    parts = [where] if isinstance(where, (str, os.PathLike)) else where
    found: list[str] = []
    for part in parts:
        name = os.fspath(part)
        try:
            found += _stored(Remote(name)) if is_remote(name) else _one(name)
        except OSError as error:
            raise InputError(f"{part} cannot be read: {error.strerror or error}") from None
    if not found:
        raise InputError("no file was named to read traces from")
    return found


def _one(name: str) -> list[str]:
    if name == "-":
        return [name]
    path = Path(name)
    if path.is_dir():
        return _inside(path)
    if path.exists():
        return [name]
    if glob.has_magic(name):
        found = sorted(file for file in glob.glob(name, recursive=True) if Path(file).is_file())
        if found:
            return found
        raise InputError(f"no file matches {name}")
    raise InputError(f"there is no file {name}")


def _stored(place: Remote) -> list[str]:
    """The files that a name in an object store stands for."""
    if glob.has_magic(place.url) and not place.is_file():
        found = [str(one) for one in place.glob()]
        if found:
            return found
        raise InputError(f"no file matches {place}")
    if place.is_file():
        return [str(place)]
    if (place / "manifest.json").is_file() and (place / "traces.parquet").is_file():
        return [str(place / "traces.parquet")]
    found = [str(one) for one in place.below() if ending(one.name) in FORMS and not BAD.search(one.name)]
    if not found:
        raise InputError(f"there is no file {place}, and none of traces below it")
    return found


def _inside(folder: Path) -> list[str]:
    if _is_run(folder):
        return [str(folder / "traces.parquet")]
    names = sorted(_below(folder))
    if any(_stem(path) == "response" for path in names):
        names = [path for path in names if _stem(path) != "source_info"]
    if not names:
        raise InputError(
            f"the directory {folder} holds no file of traces ({', '.join(FORMS)}; also {', '.join(PACKED)}); "
            "a run below it has to be named itself"
        )
    return [str(path) for path in names]


def _below(folder: Path) -> Iterator[Path]:
    """The files of traces in a folder and below it."""
    for place, folders, names in os.walk(folder):
        above = Path(place)
        folders[:] = [name for name in folders if not (name.startswith(".") or _made(above / name))]
        for name in names:
            known = ending(name) in FORMS and not name.startswith(".") and not BAD.search(name)
            if known and (above / name).is_file():
                yield above / name


def _made(folder: Path) -> bool:
    """Whether a folder is a run, or one in the making."""
    return folder.suffix == ".partial" or _is_run(folder)


def _is_run(folder: Path) -> bool:
    return (folder / "manifest.json").is_file() and (folder / "traces.parquet").is_file()


def ending(name: str) -> str:
    """The ending that names the form: `.jsonl` of `traces.jsonl.gz`."""
    path = Path(name)
    return Path(path.stem).suffix.lower() if path.suffix.lower() in PACKED else path.suffix.lower()


def _stem(path: Path) -> str:
    return path.name.split(".", 1)[0]


# --- which form ------------------------------------------------------------------------------------


def form(name: str, body: io.BufferedReader) -> Form:
    """The form of an open file: what its name promises, else what its first bytes look like.

    Raises `InputError` where neither tells.
    """
    head = _head(body)
    if head.startswith(b"PAR1"):
        return "parquet"
    promised = FORMS.get(ending(name))
    if promised:
        return promised
    if head.lstrip()[:1] in (b"{", b"["):
        return "json"
    first = head.split(b"\n", 1)[0]
    if TREC.fullmatch(first):
        return "trec"
    names = {cell.strip().strip(b'"').lower() for cell in re.split(rb"[,\t]", first)}
    if names & {b"query", b"question", b"user_input", b"input"}:
        return "tsv" if b"\t" in first else "csv"
    raise InputError(
        f"{name}: neither its name nor its beginning says what it is; "
        f"name it with one of {', '.join(FORMS)} (also {', '.join(PACKED)})"
    )


def _head(body: io.BufferedReader) -> bytes:
    head = body.peek(4096)
    return head.removeprefix(b"\xef\xbb\xbf")


# --- bytes -----------------------------------------------------------------------------------------


class _Guard(io.RawIOBase):
    """A raw stream that ends, and keeps the reason, where the stream beneath it breaks."""

    def __init__(self, beneath: Any) -> None:
        self.beneath = beneath
        self.broken: str | None = None
        self.read_some = getattr(beneath, "read1", beneath.read)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self.read_some(min(len(buffer), PIECE))
        except EOFError:
            self.broken = "the compressed data breaks off here: the file is truncated"
        except (OSError, zlib.error, ValueError) as error:
            self.broken = f"the data cannot be read further: {error}"
        else:
            buffer[: len(data)] = data
            return len(data)
        return 0

    def close(self) -> None:
        if not self.closed:
            self.beneath.close()
        super().close()


def open_bytes(name: str) -> Stream:
    """The bytes of a file (`-` is standard input), uncompressed.

    Raises `InputError` where the file is not there or may not be read.
    """
    try:
        raw = Remote(name).open() if is_remote(name) else _opened(name)
    except FileNotFoundError:
        raise InputError(f"there is no file {name}") from None
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror or error}") from None
    guard = _Guard(raw)
    plain = io.BufferedReader(guard, 2**18)
    magic = plain.peek(4)[:4]
    if magic.startswith(b"\x1f\x8b"):
        guard = _Guard(gzip.GzipFile(fileobj=plain))
    elif magic == b"\x28\xb5\x2f\xfd":
        import pyarrow as pa

        guard = _Guard(pa.CompressedInputStream(pa.PythonFile(plain, mode="r"), "zstd"))
    else:
        return Stream(cast("io.BufferedReader", plain), guard)
    return Stream(cast("io.BufferedReader", io.BufferedReader(guard, 2**18)), guard, packed=True)


def _opened(name: str) -> IO[bytes]:
    return open(0 if name == "-" else name, "rb", closefd=name != "-")


def lines(body: io.BufferedReader, limit: int = MAX_LINE) -> Iterator[tuple[int, bytes, bool]]:
    """Each line with its number and whether it is whole; of one longer than `limit` only the beginning comes.

    >>> list(lines(io.BufferedReader(io.BytesIO(b"one\\ntwo and more\\nlast")), limit=4))
    [(1, b'one\\n', True), (2, b'two ', False), (3, b'last', True)]
    """
    number = 0
    while line := body.readline(limit + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if len(line) <= limit or line.endswith(b"\n"):
            yield number, line, True
            continue
        while (rest := body.readline(2**20)) and not rest.endswith(b"\n"):
            pass
        yield number, line[:limit], False
