"""Writing of report files: atomic, and never over an existing file unless forced."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ragfault.errors import OutputError


def write_report_file(path: str | Path, text: str, *, force: bool = False) -> Path:
    """Write a text to a file, under another name first, and return its path.

    Raises OutputError where something stands there already (unless `force`) or it cannot be written.

    >>> folder = tempfile.mkdtemp()
    >>> write_report_file(f"{folder}/report.md", "# Report").read_text()
    '# Report'
    """
    path = check_output_path(path, force=force)
    try:
        _replace_file(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}. Choose another place with -o."
        ) from error
    return path


def check_output_path(path: str | Path, *, force: bool = False) -> Path:
    """The path, where a file may be written to it; for a look before long work.

    Raises OutputError where something stands there already (unless `force`).
    """
    path = Path(path)
    if path.is_dir():
        raise OutputError(f"{path} is a directory. Name a file with -o, such as {path / 'report.html'}.")
    if path.exists() and not force:
        raise OutputError(f"{path} exists already. Choose another place with -o, or replace it with --force.")
    return path


def _replace_file(path: Path, content: bytes) -> None:
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(draft).chmod(0o666 & ~_read_umask())
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _read_umask() -> int:
    """The permissions that new files of this process lack."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
