"""Writing of report files: atomic, and never over an existing file unless forced."""

from __future__ import annotations

from pathlib import Path

from ragfault.errors import OutputError
from ragfault.io.atomic_files import write_atomically


def write_report_file(path: str | Path, text: str, *, force: bool = False) -> Path:
    """Write a text to a file, under another name first, and return its path.

    Raises OutputError where something stands there already (unless `force`) or it cannot be written.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> write_report_file(f"{folder}/report.md", "# Report").read_text()
    '# Report'
    """
    path = check_output_path(path, force=force)
    write_atomically(path, text.encode("utf-8", "replace"))
    return path


def check_output_path(path: str | Path, *, force: bool = False) -> Path:
    """Return the path, where a file may be written to it; for a look before long work.

    Raises OutputError where something stands there already (unless `force`).
    """
    path = Path(path)
    if path.is_dir():
        raise OutputError(f"{path} is a directory. Name a file with -o, such as {path / 'report.html'}.")
    if path.exists() and not force:
        raise OutputError(f"{path} exists already. Choose another place with -o, or replace it with --force.")
    return path
