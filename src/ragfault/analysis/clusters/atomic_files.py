"""Atomic replacement of files, by one process at a time."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ragfault.io.runs.directory import convert_write_errors


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


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically; the new content is on the disk when this returns.

    Raises OutputError where it cannot be written.
    """
    with convert_write_errors(path):
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(draft).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
            os.replace(draft, path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
