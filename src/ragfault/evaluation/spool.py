"""What must lie on disk beside a run: input that can be read only once, and the lines that were no traces."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, cast

from ragfault.errors import Fault, InputError, UsageError
from ragfault.records import Trace
from ragfault.runs.writing import check_free, partial_path, writing
from ragfault.sources import write_traces

__all__ = ["Side", "Where", "settled"]

Where = str | Path | Sequence[str | Path]


def settled(where: Where | Iterable[Trace], out: Path) -> Where:
    """Something that can be read twice: standard input and traces in memory are laid down beside the run."""
    if isinstance(where, str | Path) and str(where) != "-":
        return where
    if not isinstance(where, str) and isinstance(where, Sequence) and _named(where):
        if "-" not in map(str, where):
            return where
        raise UsageError('"-" (standard input) is read alone, not with other files.')
    check_free(out, force=True)
    spool = partial_path(out) / "input"
    with writing(spool):
        spool.mkdir(parents=True, exist_ok=True)
        if isinstance(where, str | Path):
            target = spool / "stdin"
            with target.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
            return target
        target = spool / "traces.jsonl"
        if not write_traces(cast(Iterable[Trace], where), target, force=True):
            raise InputError("there is no trace to evaluate.")
    return target


def _named(where: Sequence[object]) -> bool:
    """Whether these are names of files, not traces."""
    return bool(where) and all(isinstance(item, str | Path) for item in where)


class Side:
    """The side file of bad lines; it is made when the first one comes."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        self._file: IO[str] | None = None

    def keep(self, fault: Fault) -> None:
        with writing(self.path):
            self._file = self._file or self.path.open("w", encoding="utf-8", errors="replace")
            self._file.write(fault.text.rstrip("\r\n") + "\n")
        self.count += 1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
