"""Input files of an evaluation: copies of single-use input, and the file of bad lines."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, cast

from ragfault.errors import InputError, InputFault, UsageError
from ragfault.io import write_traces
from ragfault.io.atomic_files import convert_write_errors
from ragfault.io.formats.tables import TableLike, is_memory_table, write_memory_table
from ragfault.io.remote_paths import AnyPath, is_remote
from ragfault.records import Trace

TraceSource = str | Path | Sequence[str | Path]


@contextlib.contextmanager
def open_input_folder(run_folder: AnyPath) -> Iterator[Path]:
    """Yield the run's folder for input copies; for a run in an object store a temporary local one."""
    if isinstance(run_folder, Path):
        yield run_folder
        return
    with tempfile.TemporaryDirectory(prefix="ragfault-") as folder:
        yield Path(folder)


def make_rereadable(trace_source: TraceSource | Iterable[Trace] | TableLike, run_folder: Path) -> TraceSource:
    """Return an input that can be read twice; copy standard input, pipes, traces and frames in memory."""
    if isinstance(trace_source, str | Path):
        return _copy_input(trace_source, run_folder, 0) if _is_single_use(trace_source) else trace_source
    if (
        isinstance(trace_source, Sequence)
        and trace_source
        and all(isinstance(item, str | Path) for item in trace_source)
    ):
        names = cast(Sequence[str | Path], trace_source)
        if "-" in map(str, names):
            raise UsageError('"-" (standard input) is read alone, not with other files.')
        return [
            _copy_input(name, run_folder, at) if _is_single_use(name) else name
            for at, name in enumerate(names)
        ]
    if is_memory_table(trace_source):
        return write_memory_table(trace_source, _make_input_folder(run_folder))
    target = _make_input_folder(run_folder) / "traces.jsonl"
    if not write_traces(cast(Iterable[Trace], trace_source), target, force=True):
        raise InputError("there is no trace to evaluate.")
    return target


def _is_single_use(name: str | Path) -> bool:
    """Return whether an input can be read only once: standard input, a pipe, a device."""
    if is_remote(name):
        return False
    path = Path(name)
    return str(name) == "-" or (path.exists() and not path.is_file() and not path.is_dir())


def _copy_input(name: str | Path, run_folder: Path, number: int) -> Path:
    """Copy an input that can be read only once; keep the suffix of its name."""
    target = _make_input_folder(run_folder) / f"{number}{''.join(Path(name).suffixes)}"
    with convert_write_errors(target), target.open("wb") as file:
        if str(name) == "-":
            shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
        else:
            with open(name, "rb") as pipe:
                shutil.copyfileobj(pipe, file, 1 << 20)
    return target


def _make_input_folder(run_folder: Path) -> Path:
    with convert_write_errors(run_folder):
        (run_folder / "input").mkdir(exist_ok=True)
    return run_folder / "input"


class BadLineWriter:
    """The side file of bad lines, created with the first one; it never replaces another file.

    It gets its name at the end; if that is taken, a number is added.
    """

    def __init__(self, path: AnyPath, on_notice: Callable[[str], None]) -> None:
        self.path, self.on_notice, self.count = path, on_notice, 0
        self._draft: Path | None = None
        self._file: Any = None

    def write(self, fault: InputFault) -> None:
        """Write a bad line."""
        with convert_write_errors(self.path):
            if self._file is None:
                folder = self.path.parent if isinstance(self.path, Path) else None
                handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=folder)
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
        path = choose_free_path(self.path)
        _move_draft(self._draft, path)
        self.on_notice(f"left out {self.count:,} bad lines, kept in {path}")


def _move_draft(draft: Path, target: AnyPath) -> None:
    if isinstance(target, Path):
        draft.rename(target)
        return
    with convert_write_errors(target), draft.open("rb") as file, target.open("wb") as output:
        shutil.copyfileobj(file, output, 1 << 20)
    draft.unlink()


def choose_free_path(path: AnyPath) -> AnyPath:
    """Return the path, or the first free one with a number: `run.bad-2.jsonl`."""
    number, candidate = 1, path
    stem, suffix = os.path.splitext(path.name)
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{stem}-{number}{suffix}")
    return candidate
