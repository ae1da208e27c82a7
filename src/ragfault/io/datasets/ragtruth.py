"""Records of RAGTruth: responses with labels; their sources are in another file of the same folder."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ragfault.io.files import iterate_lines, open_bytes
from ragfault.model.errors import InputError

RawRecord = dict[str, Any]
PASSAGE_PREFIX = re.compile(r"\s*\bpassage \d+:\s*")


def make_ragtruth_flattener(name: str, limit: int) -> Callable[[RawRecord], RawRecord]:
    """Return a function that joins a RAGTruth response to its source.

    The sources are held in memory. Raises `InputError` where their file cannot be read.
    """
    sources = _load_ragtruth_sources(Path(name), limit)

    def joined(record: RawRecord) -> RawRecord:
        text = sources.get(str(record.get("source_id")))
        source = msgspec.json.decode(text) if text else {}
        task = source.get("task_type")
        flat = {key: value for key, value in record.items() if key != "source_id"}
        flat |= {
            "query": _extract_ragtruth_query(source),
            "chunks": _extract_ragtruth_chunks(source.get("source_info")),
        }
        flat |= {"source_id": record.get("source_id"), "task": task, "source": source.get("source")}
        return {key: value for key, value in flat.items() if value is not None}

    return joined


def _load_ragtruth_sources(path: Path, limit: int) -> dict[str, bytes]:
    folder = path.parent
    beside = [folder / f"source_info.jsonl{ending}" for ending in ("", ".gz", ".zst")]
    source_file = next((file for file in beside if file.is_file()), None)
    if str(path) == "-" or source_file is None:
        raise InputError(f"{path} holds the responses of RAGTruth; put source_info.jsonl into the same folder")
    table: dict[str, bytes] = {}
    with open_bytes(str(source_file)).body as body:
        for number, line, complete in iterate_lines(body, limit):
            if not line.strip():
                continue
            try:
                if not complete:
                    raise InputError(f"{source_file}:{number}: the line is longer than {limit:,} bytes")
                key = msgspec.json.decode(line, type=dict[str, Any]).get("source_id")
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise InputError(f"{source_file}:{number}: malformed JSON: {error}") from None
            table[str(key)] = line
    return table


def _extract_ragtruth_query(source: RawRecord) -> str | None:
    """Return the question, or the part of the prompt before the source."""
    info, prompt = source.get("source_info"), source.get("prompt")
    if isinstance(info, dict) and isinstance(info.get("question"), str):
        question: str = info["question"]
        return question
    if not isinstance(prompt, str):
        return None
    head = prompt.split(info, 1)[0] if isinstance(info, str) and info else prompt.split("Structured data:", 1)[0]
    return head.strip() or prompt.split("\n", 1)[0]


def _extract_ragtruth_chunks(info: Any) -> list[Any] | None:
    if info is None:
        return None
    if isinstance(info, dict) and isinstance(info.get("passages"), str):
        return [passage for part in PASSAGE_PREFIX.split(info["passages"]) if (passage := part.strip())]
    return info if isinstance(info, list) else [info]
