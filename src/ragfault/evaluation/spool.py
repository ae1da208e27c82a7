"""What must lie on disk beside a run: input that can be read only once, and the lines that were no traces."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, cast

from ragfault.errors import Fault, InputError, UsageError
from ragfault.records import Trace
from ragfault.runs.places import writing
from ragfault.sources import write_traces
from ragfault.sources.frames import Frame, is_frame, lay_down
from ragfault.sources.remote import Place, is_remote

__all__ = ["Side", "Where", "settled", "spooling"]

Where = str | Path | Sequence[str | Path]


@contextlib.contextmanager
def spooling(desk: Place) -> Iterator[Path]:
    """The desk of a run, or for a run in an object store a folder of this machine for so long."""
    if isinstance(desk, Path):
        yield desk
        return
    with tempfile.TemporaryDirectory(prefix="ragfault-") as folder:
        yield Path(folder)


def settled(where: Where | Iterable[Trace] | Frame, desk: Path) -> Where:
    """Something that can be read twice: what can be read only once is laid down on the desk of the run.

    That is standard input, pipes, traces and frames in memory.
    """
    if isinstance(where, str | Path):
        return _copied(where, desk, 0) if _once(where) else where
    if isinstance(where, Sequence) and where and all(isinstance(item, str | Path) for item in where):
        names = cast(Sequence[str | Path], where)
        if "-" in map(str, names):
            raise UsageError('"-" (standard input) is read alone, not with other files.')
        return [_copied(name, desk, at) if _once(name) else name for at, name in enumerate(names)]
    if is_frame(where):
        return lay_down(where, _spool(desk))
    target = _spool(desk) / "traces.jsonl"
    if not write_traces(cast(Iterable[Trace], where), target, force=True):
        raise InputError("there is no trace to evaluate.")
    return target


def _once(name: str | Path) -> bool:
    """Whether this can be read only once: standard input, a pipe, a device."""
    if is_remote(name):
        return False
    path = Path(name)
    return str(name) == "-" or (path.exists() and not path.is_file() and not path.is_dir())


def _copied(name: str | Path, desk: Path, number: int) -> Path:
    """A copy of what can be read only once; it keeps the ending of its name."""
    target = _spool(desk) / f"{number}{''.join(Path(name).suffixes)}"
    with writing(target), target.open("wb") as file:
        if str(name) == "-":
            shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
        else:
            with open(name, "rb") as pipe:
                shutil.copyfileobj(pipe, file, 1 << 20)
    return target


def _spool(desk: Path) -> Path:
    with writing(desk):
        (desk / "input").mkdir(exist_ok=True)
    return desk / "input"


class Side:
    """The side file of bad lines: made when the first one comes, never in the place of another file.

    It gets its name when the work is done; where that is taken, a number is added.
    """

    def __init__(self, path: Place, notice: Callable[[str], None]) -> None:
        self.path, self.notice, self.count = path, notice, 0
        self._draft: Path | None = None
        self._file: Any = None

    def keep(self, fault: Fault) -> None:
        """Write down a bad line."""
        with writing(self.path):
            if self._file is None:
                beside = self.path.parent if isinstance(self.path, Path) else None
                handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=beside)
                self._draft = Path(name)
                self._file = os.fdopen(handle, "w", encoding="utf-8", errors="replace")
            self._file.write(fault.text.rstrip("\r\n") + "\n")
        self.count += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._draft is None:
            return
        self._file.close()
        if kind is not None:
            self._draft.unlink(missing_ok=True)
            return
        place = free(self.path)
        _move(self._draft, place)
        self.notice(f"left out {self.count:,} bad lines, kept in {place}")


def _move(draft: Path, place: Place) -> None:
    if isinstance(place, Path):
        draft.rename(place)
        return
    with writing(place), draft.open("rb") as file, place.open("wb") as there:
        shutil.copyfileobj(file, there, 1 << 20)
    draft.unlink()


def free(path: Place) -> Place:
    """The path, or where it is taken the first free one with a number: `run.bad-2.jsonl`."""
    number, place = 1, path
    stem, ending = os.path.splitext(path.name)
    while place.exists():
        number += 1
        place = path.with_name(f"{stem}-{number}{ending}")
    return place
