"""The passages that a retriever or a reranker gave, in whatever way they were recorded, as chunks."""

from __future__ import annotations

import math
from typing import Any

from ragfault.records import Chunk
from ragfault.sources.spans.contents import numbered, opened
from ragfault.sources.spans.operation import Operation
from ragfault.sources.spans.vocabulary import DOCUMENTS, LISTED, OUTPUT, RESULTS, first
from ragfault.sources.values import Wrong, cell, clean, content_id

__all__ = ["chunks_of"]

IDS = ("id", "document.id", "_id", "id_", "chunk_id", "node_id", "doc_id", "key")
TEXTS = ("content", "page_content", "text", "document.content", "chunk", "passage", "body", "document")
SCORES = ("score", "document.score", "relevance_score", "similarity", "_score", "@search.score")
LISTS = (
    "documents",
    "results",
    "chunks",
    "nodes",
    "matches",
    "source_nodes",
    "retrieved_documents",
    "hits",
    "contexts",
    "passages",
    "output",
    "result",
    "data",
    "outputs",
    "context",
)
SOURCES = (
    "document_id",
    "doc_id",
    "ref_doc_id",
    "source",
    "file_path",
    "file_name",
    "filename",
    "file",
    "url",
)
NAMES = ("chunk_id", "passage_id", "node_id")
HEAVY = ("embedding", "vector", "embeddings", "values")
"""Keys under which passages carry their embedding."""

EMPTY = (0, "0")


def chunks_of(operation: Operation, role: str) -> tuple[Chunk, ...] | None:
    """The chunks that an operation gave, in order; empty where it found none, None where nothing tells.

    An id is that of the passage, else one in its metadata, else made of its text. Of two passages of the
    same id and text the first is kept.

    >>> held = {"retrieval.documents.0.document.content": "Oslo, 1040", "retrieval.documents.0.document.score": 2}
    >>> [chunk] = chunks_of(Operation(trace="a", id="b", attributes=held), "retriever")
    >>> chunk.id, chunk.text, chunk.score
    ('t-a54712e2c020', 'Oslo, 1040', 2.0)
    """
    found = _listed(operation.attributes, role)
    if found is None:
        found = _told(operation)
    if found is None:
        return None
    return _distinct([chunk for part in found if (chunk := _chunk(part)) is not None])


def _distinct(chunks: list[Chunk]) -> tuple[Chunk, ...]:
    met: set[tuple[str, str]] = set()
    return tuple(c for c in chunks if not ((c.id, c.text) in met or met.add((c.id, c.text))))  # type: ignore[func-returns-value]


# --- where they stand ------------------------------------------------------------------------------


def _listed(held: dict[str, Any], role: str) -> list[Any] | None:
    """Documents that OpenInference numbers; their ids, where only the output names them."""
    for prefix in (LISTED.get(role, ""), *LISTED.values()):
        found = numbered(held, prefix) if prefix else []
        if not found:
            continue
        parts = [_part(part) for part in found]
        if any(part.get("id") is None for part in parts):
            _name(parts, _within(opened(first(held, OUTPUT))))
        return parts
    return None


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """A document by its own keys; metadata may be an object, its JSON, or one attribute for each key."""
    made: dict[str, Any] = {}
    spread: dict[str, Any] = {}
    for name, value in part.items():
        bare = name.removeprefix("document.")
        if bare.startswith("metadata."):
            spread[bare.removeprefix("metadata.")] = value
        else:
            made[bare] = value
    if spread:
        made["metadata"] = spread
    return made


def _name(parts: list[dict[str, Any]], told: list[Any] | None) -> None:
    """Take over ids and scores from the output, where it lists the same passages."""
    if told is None or len(told) != len(parts):
        return
    for part, other in zip(parts, told, strict=True):
        if isinstance(other, dict) and _field(other, TEXTS) == part.get("content"):
            for key in ("id", "score"):
                if part.get(key) is None and other.get(key) is not None:
                    part[key] = other[key]


def _told(operation: Operation) -> list[Any] | None:
    """Documents as one value, as events, or in the output."""
    held = operation.attributes
    found = _within(opened(first(held, DOCUMENTS)))
    if found is not None:
        return found
    events = [event.attributes for event in operation.events if event.name in RESULTS]
    if events:
        return [_result(event) for event in events]
    if held.get("db.vector.query.result.count") in EMPTY:
        return []
    for name in OUTPUT:
        if name in held and (found := _within(opened(held[name]))) is not None:
            return found
    return None


def _result(event: dict[str, Any]) -> dict[str, Any]:
    """A passage that a vector store found, by its own keys."""
    made = {}
    for name, value in event.items():
        prefix = next((known for known in RESULTS if name.startswith(known + ".")), None)
        made[name.removeprefix(f"{prefix}.") if prefix else name] = value
    return made


def _within(value: Any, depth: int = 0) -> list[Any] | None:
    """The list of passages that a value is, or keeps under one of the usual names."""
    if isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], list):
            value = value[0]
        passages = [part for part in value if _passage(part)]
        return passages if passages or not value else None
    if isinstance(value, dict) and depth < 4:
        for name in LISTS:
            if name in value and (found := _within(opened(value[name]), depth + 1)) is not None:
                return found
    return None


def _passage(part: Any) -> bool:
    """Whether a value may be a passage: a text that is not the name of an object, or an object with text or id."""
    if isinstance(part, str):
        return bool(part.strip()) and not part.startswith(("<NodeWithScore", "Node ID:"))
    if not isinstance(part, dict):
        return False
    inner = part.get("node")
    part = inner if isinstance(inner, dict) else part
    return _field(part, TEXTS) is not None or _field(part, IDS) is not None


# --- one of them -----------------------------------------------------------------------------------


def _field(value: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The first of these fields that is a text or a number."""
    for name in names:
        found = value.get(name)
        if isinstance(found, (str, int, float)) and not isinstance(found, bool) and found != "":
            return found
    return None


def _chunk(part: Any) -> Chunk | None:
    if isinstance(part, str):
        return Chunk(id=content_id(part), text=part)
    if isinstance(node := part.get("node"), dict):
        part = {**node, **{key: value for key, value in part.items() if key != "node"}}
    inner = part.get("document")
    if isinstance(inner, dict):
        part = {**inner, **{key: value for key, value in part.items() if key != "document"}}
    metadata = _metadata(part.get("metadata"))
    text = _field(part, TEXTS)
    if text is None:
        text = _field(metadata, TEXTS)
    name = _field(part, IDS)
    if name is None:
        name = _field(metadata, NAMES)
    if text is None and name is None:
        return None
    body = "" if text is None else str(text)
    start = metadata.get("start_index")
    begin = start if type(start) is int and 0 <= start < 2**62 else None
    return Chunk(
        id=content_id(body) if name is None else str(name),
        text=body,
        score=_score(part),
        document=_document(part, metadata),
        start=begin,
        end=None if begin is None else begin + len(body),
        metadata=metadata,
    )


def _score(part: dict[str, Any]) -> float | None:
    found = _field(part, SCORES)
    try:
        score = float(found) if found is not None else None
    except (ValueError, OverflowError):
        return None
    return score if score is not None and math.isfinite(score) else None


def _document(part: dict[str, Any], metadata: dict[str, Any]) -> str | None:
    found = _field(metadata, SOURCES)
    if found is None:
        found = _field(part, ("name", "url", "source"))
    return None if found is None else str(found)


def _metadata(value: Any) -> dict[str, Any]:
    """An object, its JSON, or the way Python prints it; without embeddings."""
    value = cell("metadata", value)
    if not isinstance(value, dict) or not value:
        return {}
    try:
        made: dict[str, Any] = clean({name: part for name, part in value.items() if name not in HEAVY})
    except Wrong:
        return {}
    return made
