"""Reading the files of the training data, and the folds of their sources."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["FOLDS", "Row", "assign_fold", "iterate_rows", "read_rows"]

FOLDS = 5
Row = dict[str, Any]


def iterate_rows(path: Path) -> Iterator[Row]:
    """Yield the records of a compressed file of JSON lines."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def read_rows(folder: Path, name: str) -> list[Row]:
    """Read all records of a file of the folder, named without its endings."""
    return list(iterate_rows(folder / f"{name}.jsonl.gz"))


def assign_fold(source: object) -> int:
    """Assign a source to a fold, the same on every machine."""
    return zlib.crc32(str(source).encode()) % FOLDS
