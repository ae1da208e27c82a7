"""Logs of Inspect in its own form (`.eval`): an archive that holds one JSON file for each sample."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from typing import IO, Any

import msgspec

LOG_SUFFIX = ".eval"
ARCHIVE_MARK = b"PK\x03\x04"
SAMPLES = "samples/"
ZSTD = 93
"""Number of Zstandard among the ways to compress a file of an archive; `zipfile` reads it only from Python 3.14 on."""
LOCAL_HEADER = 30
"""Bytes before the name of a file; the last four are the lengths of its name and of its extra fields."""


class InspectLog(io.RawIOBase):
    """The samples of a log as JSON Lines."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.rest = file, b""
        self.samples = _iterate_samples(file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self.rest:
            self.rest = next(self.samples, b"")
        size = min(len(buffer), len(self.rest))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        return size

    def close(self) -> None:
        if not self.closed:
            self.file.close()
        super().close()


def starts_archive(file: IO[bytes]) -> bool:
    """Return whether an open file begins as an archive; its position stays."""
    mark = file.read(len(ARCHIVE_MARK))
    file.seek(0)
    return mark == ARCHIVE_MARK


def _iterate_samples(file: IO[bytes]) -> Iterator[bytes]:
    """Yield each sample of a log as a line. Raises ValueError for a damaged log."""
    try:
        archive = zipfile.ZipFile(file)
        for entry in archive.infolist():
            if entry.filename.startswith(SAMPLES) and entry.filename.endswith(".json"):
                data = _unpack(file, entry) if entry.compress_type == ZSTD else archive.read(entry)
                yield msgspec.json.format(data, indent=-1) + b"\n"
    except zipfile.BadZipFile as error:
        raise ValueError(f"{error}, or it is damaged") from None


def _unpack(file: IO[bytes], entry: zipfile.ZipInfo) -> bytes:
    """Return a file of an archive that is compressed by Zstandard."""
    import pyarrow as pa

    file.seek(entry.header_offset)
    header = file.read(LOCAL_HEADER)
    name, extra = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    file.seek(name + extra, io.SEEK_CUR)
    packed: bytes = pa.CompressedInputStream(pa.BufferReader(file.read(entry.compress_size)), "zstd").read()
    return packed
