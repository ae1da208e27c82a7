"""Retrieved chunks of a retriever or reranker span, in any of the ways in which they are recorded."""

from __future__ import annotations

import math
from typing import Any

from ragfault.io.field_values import InvalidRecord, make_content_id, make_json_safe, parse_cell
from ragfault.io.otel.recorded_content import collect_numbered, parse_embedded_json
from ragfault.io.otel.semantic_conventions import (
    DOCUMENT_PREFIXES,
    DOCUMENTS_ATTRIBUTES,
    OUTPUT_ATTRIBUTES,
    RESULT_EVENTS,
    get_first_attribute,
)
from ragfault.io.otel.spans import OtelSpan
from ragfault.records import Chunk

ID_KEYS = ("id", "document.id", "_id", "id_", "chunk_id", "node_id", "doc_id", "key")
TEXT_KEYS = ("content", "page_content", "text", "document.content", "chunk", "passage", "body", "document")
SCORE_KEYS = ("score", "document.score", "relevance_score", "similarity", "_score", "@search.score")
LIST_KEYS = (
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
DOCUMENT_KEYS = (
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
METADATA_ID_KEYS = ("chunk_id", "passage_id", "node_id")
EMBEDDING_KEYS = ("embedding", "vector", "embeddings", "values")
"""Keys under which passages carry their embedding."""

ZERO_COUNTS = (0, "0")


def extract_chunks(span: OtelSpan, role: str) -> tuple[Chunk, ...] | None:
    """The chunks that an operation gave, in order; empty where it found none, None where nothing tells.

    An id is that of the passage, else one in its metadata, else made of its text. Of two passages of the
    same id and text the first is kept.

    >>> held = {"retrieval.documents.0.document.content": "Oslo, 1040", "retrieval.documents.0.document.score": 2}
    >>> [chunk] = extract_chunks(OtelSpan(trace="a", id="b", attributes=held), "retriever")
    >>> chunk.id, chunk.text, chunk.score
    ('t-a54712e2c020', 'Oslo, 1040', 2.0)
    """
    found = _read_numbered_documents(span.attributes, role)
    if found is None:
        found = _read_documents(span)
    if found is None:
        return None
    return _drop_duplicates([chunk for part in found if (chunk := _build_chunk(part)) is not None])


def _drop_duplicates(chunks: list[Chunk]) -> tuple[Chunk, ...]:
    met: set[tuple[str, str]] = set()
    return tuple(c for c in chunks if not ((c.id, c.text) in met or met.add((c.id, c.text))))  # type: ignore[func-returns-value]


# --- where they stand ------------------------------------------------------------------------------


def _read_numbered_documents(attributes: dict[str, Any], role: str) -> list[Any] | None:
    """Documents that OpenInference numbers; their ids, where only the output names them."""
    for prefix in (DOCUMENT_PREFIXES.get(role, ""), *DOCUMENT_PREFIXES.values()):
        found = collect_numbered(attributes, prefix) if prefix else []
        if not found:
            continue
        parts = [_parse_document(part) for part in found]
        if any(part.get("id") is None for part in parts):
            _copy_ids(
                parts,
                _search_passages(parse_embedded_json(get_first_attribute(attributes, OUTPUT_ATTRIBUTES))),
            )
        return parts
    return None


def _parse_document(part: dict[str, Any]) -> dict[str, Any]:
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


def _copy_ids(parts: list[dict[str, Any]], outputs: list[Any] | None) -> None:
    """Take over ids and scores from the output, where it lists the same passages."""
    if outputs is None or len(outputs) != len(parts):
        return
    for part, other in zip(parts, outputs, strict=True):
        if isinstance(other, dict) and _get_field(other, TEXT_KEYS) == part.get("content"):
            for key in ("id", "score"):
                if part.get(key) is None and other.get(key) is not None:
                    part[key] = other[key]


def _read_documents(span: OtelSpan) -> list[Any] | None:
    """Documents as one value, as events, or in the output."""
    held = span.attributes
    found = _search_passages(parse_embedded_json(get_first_attribute(held, DOCUMENTS_ATTRIBUTES)))
    if found is not None:
        return found
    events = [event.attributes for event in span.events if event.name in RESULT_EVENTS]
    if events:
        return [_parse_result_event(event) for event in events]
    if held.get("db.vector.query.result.count") in ZERO_COUNTS:
        return []
    for name in OUTPUT_ATTRIBUTES:
        if name in held and (found := _search_passages(parse_embedded_json(held[name]))) is not None:
            return found
    return None


def _parse_result_event(event: dict[str, Any]) -> dict[str, Any]:
    """A passage that a vector store found, by its own keys."""
    made = {}
    for name, value in event.items():
        prefix = next((known for known in RESULT_EVENTS if name.startswith(known + ".")), None)
        made[name.removeprefix(f"{prefix}.") if prefix else name] = value
    return made


def _search_passages(value: Any, depth: int = 0) -> list[Any] | None:
    """The list of passages that a value is, or keeps under one of the usual names."""
    if isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], list):
            value = value[0]
        passages = [part for part in value if _is_passage(part)]
        return passages if passages or not value else None
    if isinstance(value, dict) and depth < 4:
        for name in LIST_KEYS:
            if (
                name in value
                and (found := _search_passages(parse_embedded_json(value[name]), depth + 1)) is not None
            ):
                return found
    return None


def _is_passage(part: Any) -> bool:
    """Whether a value may be a passage: a text that is not the name of an object, or an object with text or id."""
    if isinstance(part, str):
        return bool(part.strip()) and not part.startswith(("<NodeWithScore", "Node ID:"))
    if not isinstance(part, dict):
        return False
    inner = part.get("node")
    part = inner if isinstance(inner, dict) else part
    return _get_field(part, TEXT_KEYS) is not None or _get_field(part, ID_KEYS) is not None


# --- one of them -----------------------------------------------------------------------------------


def _get_field(value: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The first of these fields that is a text or a number."""
    for name in names:
        found = value.get(name)
        if isinstance(found, (str, int, float)) and not isinstance(found, bool) and found != "":
            return found
    return None


def _build_chunk(part: Any) -> Chunk | None:
    if isinstance(part, str):
        return Chunk(id=make_content_id(part), text=part)
    if isinstance(node := part.get("node"), dict):
        part = {**node, **{key: value for key, value in part.items() if key != "node"}}
    inner = part.get("document")
    if isinstance(inner, dict):
        part = {**inner, **{key: value for key, value in part.items() if key != "document"}}
    metadata = _parse_metadata(part.get("metadata"))
    text = _get_field(part, TEXT_KEYS)
    if text is None:
        text = _get_field(metadata, TEXT_KEYS)
    name = _get_field(part, ID_KEYS)
    if name is None:
        name = _get_field(metadata, METADATA_ID_KEYS)
    if text is None and name is None:
        return None
    body = "" if text is None else str(text)
    start = metadata.get("start_index")
    begin = start if type(start) is int and 0 <= start < 2**62 else None
    return Chunk(
        id=make_content_id(body) if name is None else str(name),
        text=body,
        score=_parse_score(part),
        document=_get_document(part, metadata),
        start=begin,
        end=None if begin is None else begin + len(body),
        metadata=metadata,
    )


def _parse_score(part: dict[str, Any]) -> float | None:
    found = _get_field(part, SCORE_KEYS)
    try:
        score = float(found) if found is not None else None
    except (ValueError, OverflowError):
        return None
    return score if score is not None and math.isfinite(score) else None


def _get_document(part: dict[str, Any], metadata: dict[str, Any]) -> str | None:
    found = _get_field(metadata, DOCUMENT_KEYS)
    if found is None:
        found = _get_field(part, ("name", "url", "source"))
    return None if found is None else str(found)


def _parse_metadata(value: Any) -> dict[str, Any]:
    """An object, its JSON, or the way Python prints it; without embeddings."""
    value = parse_cell("metadata", value)
    if not isinstance(value, dict) or not value:
        return {}
    try:
        made: dict[str, Any] = make_json_safe(
            {name: part for name, part in value.items() if name not in EMBEDDING_KEYS}
        )
    except InvalidRecord:
        return {}
    return made
