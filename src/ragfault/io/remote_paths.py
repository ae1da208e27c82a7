"""Paths in object stores (`s3://`, `gs://`, `az://`) with the methods of `pathlib.Path` that ragfault needs.

Stores are reached through fsspec. Nothing is renamed there: a file appears by one put, complete or not at all.

They are reached through fsspec, and the package of each store (s3fs, gcsfs, adlfs), which find keys and endpoints
in the environment as the store's own tools do. Nothing is ever renamed there: a file appears by a put, whole or not
at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from ragfault.errors import MissingExtra

STORE_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
"""The packages that reach a store, by the beginning of its names."""

UPLOAD_BLOCK_BYTES = 16 * 2**20
"""Bytes that are put at once while a large file is written."""


def is_remote(name: object) -> bool:
    """Whether this names a place in an object store.

    >>> is_remote("s3://bucket/traces.jsonl"), is_remote("traces.jsonl")
    (True, False)
    """
    return isinstance(name, RemotePath) or (
        isinstance(name, str) and "://" in name and not name.startswith("file:")
    )


@dataclass(frozen=True, order=True)
class RemotePath:
    """A place in an object store.

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
        """A place beside it."""
        return self.parent / name

    def resolve(self) -> RemotePath:
        """Itself: there are no links."""
        return self

    absolute = resolve

    def exists(self) -> bool:
        """Whether a file stands there, or anything below it."""
        with self._connect() as (store, path):
            return bool(store.exists(path))

    def is_file(self) -> bool:
        """Whether a file stands there."""
        with self._connect() as (store, path):
            return bool(store.isfile(path))

    def is_dir(self) -> bool:
        """Whether anything stands below it."""
        with self._connect() as (store, path):
            return bool(store.isdir(path))

    def iterdir(self) -> Iterator[RemotePath]:
        """What stands directly below it, in order; nothing where nothing does."""
        with self._connect() as (store, path):
            found = store.ls(path, detail=False) if store.isdir(path) else []
        for name in sorted({str(one).rstrip("/").rsplit("/", 1)[-1] for one in found}):
            yield self / name

    def list_files(self) -> list[RemotePath]:
        """Every file below it, however deep, in order."""
        with self._connect() as (store, path):
            found = [store.unstrip_protocol(one) for one in store.find(path)]
        return [RemotePath(one) for one in sorted(found)]

    def glob(self, pattern: str = "") -> Iterator[RemotePath]:
        """The files below it whose names match; those that its own name matches where no pattern is given."""
        with self._connect() as (store, path):
            found = [
                store.unstrip_protocol(one) for one in store.glob(f"{path}/{pattern}" if pattern else path)
            ]
        return (RemotePath(one) for one in sorted(found))

    def read_bytes(self) -> bytes:
        """What the file holds; raises FileNotFoundError where there is none."""
        with self._connect() as (store, path):
            content: bytes = store.cat_file(path)
        return content

    def write_bytes(self, content: bytes) -> None:
        """Put a file there, whole or not at all."""
        with self._connect() as (store, path):
            store.pipe_file(path, content)

    def open(self, mode: str = "rb") -> IO[bytes]:
        """The file, to be read at any place, or to be written from its beginning; it is there once it is closed."""
        with self._connect() as (store, path):
            made: IO[bytes] = store.open(
                path, mode, **({"block_size": UPLOAD_BLOCK_BYTES} if "w" in mode else {})
            )
        return made

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
        """What changes when the file does."""
        with self._connect() as (store, path):
            told = store.info(path)
        marks = (
            told.get(key) for key in ("size", "ETag", "etag", "md5Hash", "LastModified", "mtime", "created")
        )
        return " ".join(str(mark) for mark in marks if mark is not None)

    @contextlib.contextmanager
    def _connect(self) -> Iterator[tuple[Any, str]]:
        """The store and the name within it; whatever goes wrong there is an OSError."""
        store, path = self._resolve_store()
        try:
            yield store, path
        except OSError:
            raise
        except Exception as error:  # the door to the packages of the stores, which raise what they like
            raise OSError(f"{type(error).__name__}: {error}") from error

    def _resolve_store(self) -> tuple[Any, str]:
        scheme = urlsplit(self.url).scheme
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise MissingExtra(f"{scheme}://", "ray") from None
        try:
            store, path = url_to_fs(self.url, use_listings_cache=False)
        except ImportError:
            package = STORE_PACKAGES.get(scheme, scheme)
            raise MissingExtra(f"{scheme}://", "", f"pip install {package}") from None
        except ValueError as error:
            raise OSError(str(error)) from None
        return store, path


AnyPath = Path | RemotePath
"""Where something lies: on this machine's disks, or in an object store."""


def parse_path(name: str | AnyPath) -> AnyPath:
    """The place that a name means."""
    if isinstance(name, RemotePath):
        return name
    return RemotePath(str(name).rstrip("/")) if is_remote(name) else Path(str(name).removeprefix("file://"))


def open_for_arrow(path: str | AnyPath) -> Any:
    """What pyarrow reads a file from: its path, or a file that is open in its store."""
    made = parse_path(path)
    return made.open("rb") if isinstance(made, RemotePath) else made


def get_file_stamp(name: str) -> str:
    """What changes when a file does: its size and when it was written, or the mark that its store gives it.

    Raises OSError where there is no such file.
    """
    place = parse_path(name)
    if isinstance(place, RemotePath):
        return place.get_stamp()
    told = place.stat()
    return f"{told.st_size} {told.st_mtime_ns}"


def read_files(paths_to_read: Sequence[RemotePath]) -> list[bytes]:
    """What many files hold, in order, read at once."""
    if not paths_to_read:
        return []
    with paths_to_read[0]._connect() as (store, _):
        paths = [place._resolve_store()[1] for place in paths_to_read]
        found = store.cat(paths) if len(paths) > 1 else {paths[0]: store.cat_file(paths[0])}
    return [found[path] for path in paths]
