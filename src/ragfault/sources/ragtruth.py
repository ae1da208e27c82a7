"""RAGTruth: answers in `response.jsonl`, what they were made from in `source_info.jsonl` beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ragfault.errors import InputError
from ragfault.sources.files import lines, open_bytes
from ragfault.sources.shapes import Record

__all__ = ["join"]

PASSAGE = re.compile(r"\s*\bpassage \d+:\s*")


def join(name: str, limit: int) -> Callable[[Record], Record]:
    """What joins a response to its source, for the response file of that name.

    The sources are held in memory, as they stand in their file: each serves several responses. Raises
    `InputError` where the second file is not there or cannot be read.
    """
    sources = _sources(Path(name), limit)

    def joined(record: Record) -> Record:
        text = sources.get(str(record.get("source_id")))
        source = msgspec.json.decode(text) if text else {}
        task = source.get("task_type")
        flat = {key: value for key, value in record.items() if key != "source_id"}
        flat |= {"query": _query(source), "chunks": _chunks(source.get("source_info"))}
        flat |= {"source_id": record.get("source_id"), "task": task, "source": source.get("source")}
        return {key: value for key, value in flat.items() if value is not None}

    return joined


def _sources(path: Path, limit: int) -> dict[str, bytes]:
    folder = path.parent
    beside = [folder / f"source_info.jsonl{ending}" for ending in ("", ".gz", ".zst")]
    found = next((file for file in beside if file.is_file()), None)
    if str(path) == "-" or found is None:
        raise InputError(f"{path} holds the responses of RAGTruth; put source_info.jsonl beside it")
    table: dict[str, bytes] = {}
    with open_bytes(str(found)).body as body:
        for number, line, whole in lines(body, limit):
            if not line.strip():
                continue
            try:
                if not whole:
                    raise InputError(f"{found}:{number}: the line is longer than {limit:,} bytes")
                key = msgspec.json.decode(line, type=dict[str, Any]).get("source_id")
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise InputError(f"{found}:{number}: malformed JSON: {error}") from None
            table[str(key)] = line
    return table


def _query(source: Record) -> str | None:
    """The question, or what the prompt asks before it comes to the source."""
    info, prompt = source.get("source_info"), source.get("prompt")
    if isinstance(info, dict) and isinstance(info.get("question"), str):
        question: str = info["question"]
        return question
    if not isinstance(prompt, str):
        return None
    head = (
        prompt.split(info, 1)[0] if isinstance(info, str) and info else prompt.split("Structured data:", 1)[0]
    )
    return head.strip() or prompt.split("\n", 1)[0]


def _chunks(info: Any) -> list[Any] | None:
    if info is None:
        return None
    if isinstance(info, dict) and isinstance(info.get("passages"), str):
        return [passage for part in PASSAGE.split(info["passages"]) if (passage := part.strip())]
    return info if isinstance(info, list) else [info]
