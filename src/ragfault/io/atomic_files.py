"""Atomic files: replace a file completely or not at all, by one process at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from ragfault.io.remote_paths import AnyPath, RemotePath
from ragfault.model.errors import OutputError

PART_SUFFIX = ".part"
"""Suffix of the hidden file beside the target to which content is written first."""


def get_part_path(path: Path) -> Path:
    """Return the temporary path beside a file, which differs between processes and threads."""
    return path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}{PART_SUFFIX}")


def write_atomically(path: AnyPath, data: bytes) -> None:
    """Replace a file; the new content is on the disk, with the permissions of the old file, when this returns.

    Raises OutputError where it cannot be written.
    """
    with convert_write_errors(path):
        if isinstance(path, RemotePath):
            path.write_bytes(data)
            return
        with replace_on_success([path]) as [partial_file], partial_file.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if path.exists():
                partial_file.chmod(path.stat().st_mode & 0o777)


@contextlib.contextmanager
def replace_on_success(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield temporary paths that replace the files on success and vanish on failure.

    A path that exists and is no file, such as a pipe, is written to directly.
    """
    parts = [path if path.exists() and not path.is_file() else get_part_path(path) for path in paths]
    try:
        yield parts
        for partial_file, path in zip(parts, paths, strict=True):
            if partial_file != path:
                os.replace(partial_file, path)
    finally:
        for partial_file, path in zip(parts, paths, strict=True):
            if partial_file != path:
                partial_file.unlink(missing_ok=True)


@contextlib.contextmanager
def lock_folder(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the folder of a path; does nothing on systems without file locks."""
    with convert_write_errors(path):
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl

        handle = os.open(path.absolute().parent, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def convert_write_errors(path: AnyPath | str) -> Iterator[None]:
    """Convert an OSError while writing to an OutputError with a suggestion."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write to {path}: {_suggest_fix(error)}") from error


def _suggest_fix(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the disk is full. The finished parts stay: free some space and run the same command again."
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return f"{error.strerror}. Choose another place with -o."
    return f"{error.strerror or error}."
