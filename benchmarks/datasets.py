"""Read the public sets with human labels that several benchmarks measure on: files `NAME.jsonl.gz` of one folder."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from ragfault.model.records import Chunk, ClaimVerdict, Trace

Row = dict[str, Any]


def read_rows(folder: Path, name: str) -> list[Row]:
    """Return the records of one file."""
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def is_reserved(row: Row) -> bool:
    """Return whether the source of a record is reserved for measuring, as one in five is."""
    return zlib.crc32(row["source_id"].encode()) % 5 == 0


def is_marked(claim: ClaimVerdict, row: Row) -> bool:
    """Return whether people marked a part of a claim of the answer of a record."""
    return any(claim.start < span["end"] and span["start"] < claim.end for span in row["spans"])


def build_trace(row: Row) -> Trace:
    """Build the trace of a record: its passages as chunks, its query and its answer."""
    texts = row["contexts"] if "contexts" in row else [row["passage"]]
    chunks = tuple(Chunk(id=str(i), text=text) for i, text in enumerate(texts))
    return Trace(id=row.get("id", ""), query=row.get("query") or "", chunks=chunks, answer=row.get("answer"))
