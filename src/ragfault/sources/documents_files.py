"""The files of a corpus: which ones are meant, and what each is called in it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ragfault.errors import InputError
from ragfault.sources import files
from ragfault.sources.files import Where
from ragfault.sources.mould import Notice

__all__ = ["KINDS", "File", "expand"]

KINDS = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".txt": "plain",
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".jsonl": "lines",
    ".ndjson": "lines",
    ".csv": "csv",
    ".tsv": "tsv",
}
"""What a file name promises, also before .gz and .zst."""


class File(NamedTuple):
    """A file of a corpus."""

    path: str
    id: str
    """Its path relative to the folder that was named."""
    problem: str = ""
    """Why it is not read."""


def expand(where: Where, notice: Notice | None) -> list[File]:
    """The files that a path, a glob, a folder or a list of these stands for."""
    parts = [where] if isinstance(where, (str, os.PathLike)) else where
    found: list[File] = []
    for part in parts:
        name = os.fspath(part)
        path = Path(name)
        if path.is_dir():
            found += _inside(path, notice)
        elif path.exists():
            if files.ending(name) not in KINDS:
                raise InputError(
                    f"{name} is of no known kind; there are: {', '.join(KINDS)} (also .gz, .zst)"
                )
            found.append(File(name, path.name))
        else:
            found += _matches(name)
    if not found:
        raise InputError("no file was named to read documents from")
    return found


def _inside(folder: Path, notice: Notice | None) -> list[File]:
    """The documents in a folder and below it."""
    found: list[File] = []
    other = 0
    for file in sorted(_below(folder), key=lambda file: file.id):
        known = files.ending(file.path) in KINDS and not files.BAD.search(file.path)
        if known or file.problem:
            found.append(file)
        else:
            other += 1
    if other and notice is not None:
        notice(f"passed over {other:,} files of other kinds in {folder}")
    if not found:
        raise InputError(f"the folder {folder} holds no document ({', '.join(KINDS)}; also .gz, .zst)")
    return found


def _below(folder: Path) -> Iterator[File]:
    """Every file that is not hidden; a link to a folder is not followed."""
    home = folder.resolve()
    lost: list[OSError] = []
    for place, folders, names in os.walk(folder, onerror=lost.append):
        above = Path(place)
        for name in [*names, *(name for name in folders if (above / name).is_symlink())]:
            path = above / name
            problem = _stray(path, home)
            if not name.startswith(".") and (problem or path.is_file()):
                yield File(str(path), path.relative_to(folder).as_posix(), problem)
        folders[:] = [name for name in folders if not name.startswith(".")]
    for error in lost:
        yield File(str(error.filename), str(error.filename), f"cannot be read: {error.strerror}")


def _stray(path: Path, home: Path) -> str:
    """What is wrong with a link that leads out of the folder or to nothing."""
    if not path.is_symlink():
        return ""
    try:
        goal = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return "a link that leads nowhere"
    return "" if goal.is_relative_to(home) else "a link that leads out of the folder"


def _matches(pattern: str) -> list[File]:
    """The files that match a glob, named from its last part without a wildcard on."""
    if not glob.has_magic(pattern):
        raise InputError(f"there is no file {pattern}")
    parts = Path(pattern).parts
    first = next(place for place, part in enumerate(parts) if glob.has_magic(part))
    root = Path(*parts[:first])
    names = sorted(glob.glob(pattern, recursive=True))
    found = [Path(name) for name in names if files.ending(name) in KINDS and Path(name).is_file()]
    if not found:
        raise InputError(f"no document matches {pattern}")
    home = root.resolve()
    strays = (
        "" if path.resolve().is_relative_to(home) else "a link that leads out of the folder" for path in found
    )
    return [
        File(str(path), path.relative_to(root).as_posix(), stray)
        for path, stray in zip(found, strays, strict=True)
    ]
