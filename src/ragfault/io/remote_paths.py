"""Paths in object stores (`s3://`, `gs://`, `az://`) with the methods of `pathlib.Path` that ragfault needs.

Stores are reached through fsspec. Nothing is renamed there: a file appears by one put, complete or not at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from ragfault.model.errors import MissingExtra, require_extra

STORE_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
"""Package of each store, by URL scheme."""
UPLOAD_BLOCK_BYTES = 16 * 2**20
"""Bytes per block of an upload."""


def is_remote(name: object) -> bool:
    """Tell whether this names a place in an object store.

    >>> is_remote("s3://bucket/traces.jsonl"), is_remote("traces.jsonl")
    (True, False)
    """
    return isinstance(name, RemotePath) or (isinstance(name, str) and "://" in name and not name.startswith("file:"))


@dataclass(frozen=True, order=True)
class RemotePath:
    """A path in an object store.

    >>> run = RemotePath("s3://bucket/runs/today")
    >>> str(run / "manifest.json"), str(run.with_name("today.partial")), run.name
    ('s3://bucket/runs/today/manifest.json', 's3://bucket/runs/today.partial', 'today')
    """

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.url.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        """The last part of its name."""
        return self.url.rstrip("/").rsplit("/", 1)[-1]

    @property
    def parent(self) -> RemotePath:
        """The place above it."""
        return RemotePath(self.url.rstrip("/").rsplit("/", 1)[0])

    def with_name(self, name: str) -> RemotePath:
        return self.parent / name

    def resolve(self) -> RemotePath:
        """Return the path itself: object stores have no links."""
        return self

    absolute = resolve

    def exists(self) -> bool:
        """Tell whether there is a file here, or anything below it."""
        with self._connect() as (store, path):
            return bool(store.exists(path))

    def is_file(self) -> bool:
        with self._connect() as (store, path):
            return bool(store.isfile(path))

    def is_dir(self) -> bool:
        """Tell whether there is anything below it."""
        with self._connect() as (store, path):
            return bool(store.isdir(path))

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield the direct children in order; nothing where there are none."""
        with self._connect() as (store, path):
            children = store.ls(path, detail=False) if store.isdir(path) else []
        for name in sorted({str(child).rstrip("/").rsplit("/", 1)[-1] for child in children}):
            yield self / name

    def list_files(self) -> list[RemotePath]:
        """List all files below it in order."""
        with self._connect() as (store, path):
            names = [store.unstrip_protocol(name) for name in store.find(path)]
        return [RemotePath(name) for name in sorted(names)]

    def glob(self, pattern: str = "") -> Iterator[RemotePath]:
        """Yield the files that match a pattern below it; without a pattern, those that match its own name."""
        with self._connect() as (store, path):
            names = [store.unstrip_protocol(name) for name in store.glob(f"{path}/{pattern}" if pattern else path)]
        return (RemotePath(name) for name in sorted(names))

    def read_bytes(self) -> bytes:
        """Read the file. Raises FileNotFoundError."""
        with self._connect() as (store, path):
            content: bytes = store.cat_file(path)
        return content

    def write_bytes(self, content: bytes) -> None:
        """Put a file there, whole or not at all."""
        with self._connect() as (store, path):
            store.pipe_file(path, content)

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open the file to read or to write; a written file appears when it is closed."""
        with self._connect() as (store, path):
            file: IO[bytes] = store.open(path, mode, **({"block_size": UPLOAD_BLOCK_BYTES} if "w" in mode else {}))
        return file

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""
        with self._connect() as (store, path):
            try:
                store.rm_file(path)
            except FileNotFoundError:
                if not missing_ok:
                    raise

    def remove_tree(self) -> None:
        """Remove every file below it."""
        with self._connect() as (store, path):
            if store.exists(path):
                store.rm(path, recursive=True)

    def get_stamp(self) -> str:
        """Return a text that changes when the file does."""
        with self._connect() as (store, path):
            info = store.info(path)
        marks = (info.get(key) for key in ("size", "ETag", "etag", "md5Hash", "LastModified", "mtime", "created"))
        return " ".join(str(mark) for mark in marks if mark is not None)

    @contextlib.contextmanager
    def _connect(self) -> Iterator[tuple[Any, str]]:
        """Yield the store and the path in it; convert every error of the store to OSError."""
        store, path = self._resolve_store()
        try:
            yield store, path
        except OSError:
            raise
        except Exception as error:
            # the packages of object stores raise errors of any type
            raise OSError(f"{type(error).__name__}: {error}") from error

    def _resolve_store(self) -> tuple[Any, str]:
        scheme = urlsplit(self.url).scheme
        with require_extra(f"{scheme}://", "ray"):
            from fsspec.core import url_to_fs
        try:
            store, path = url_to_fs(self.url, use_listings_cache=False)
        except ImportError:
            package = STORE_PACKAGES.get(scheme, scheme)
            raise MissingExtra(f"{scheme}://", "", f"pip install {package}") from None
        except ValueError as error:
            raise OSError(str(error)) from None
        return store, path


AnyPath = Path | RemotePath
"""A local path or one in an object store."""


def parse_path(name: str | AnyPath) -> AnyPath:
    """Parse a local path or a URL of an object store."""
    if isinstance(name, RemotePath):
        return name
    return RemotePath(str(name).rstrip("/")) if is_remote(name) else Path(str(name).removeprefix("file://"))


def open_for_arrow(path: str | AnyPath) -> Any:
    """Return a source that pyarrow can read: the local path, or an open file of the store."""
    path_or_remote = parse_path(path)
    return path_or_remote.open("rb") if isinstance(path_or_remote, RemotePath) else path_or_remote


def get_file_stamp(name: str) -> str:
    """Return a text that changes when a file does: size and time, or the mark of its store.

    Raises OSError where there is no such file.
    """
    place = parse_path(name)
    if isinstance(place, RemotePath):
        return place.get_stamp()
    stat = place.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"


def read_files(paths_to_read: Sequence[RemotePath]) -> list[bytes]:
    """Read many files at once and return their contents in order."""
    if not paths_to_read:
        return []
    with paths_to_read[0]._connect() as (store, _):
        paths = [place._resolve_store()[1] for place in paths_to_read]
        contents = store.cat(paths) if len(paths) > 1 else {paths[0]: store.cat_file(paths[0])}
    return [contents[path] for path in paths]
