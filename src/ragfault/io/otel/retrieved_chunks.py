"""Retrieved chunks of a retriever or reranker span, in any of the ways in which they are recorded."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from ragfault.io.field_values import (
    DOCUMENT_NAME_KEYS,
    InvalidRecord,
    get_metadata_id,
    make_content_id,
    make_json_safe,
    parse_cell,
)
from ragfault.io.formats.field_names import rank_fields
from ragfault.io.formats.field_words import join_words, split_words
from ragfault.io.formats.passages import classify
from ragfault.io.formats.paths import list_paths, parse_embedded
from ragfault.io.otel.recorded_content import collect_numbered
from ragfault.io.otel.semantic_conventions import (
    DOCUMENT_PREFIXES,
    DOCUMENTS_ATTRIBUTES,
    INPUT_ATTRIBUTES,
    OUTPUT_ATTRIBUTES,
    RESULT_EVENTS,
    TRACE_INPUT_ATTRIBUTES,
    TRACE_OUTPUT_ATTRIBUTES,
    get_first_attribute,
)
from ragfault.io.otel.spans import OtelSpan
from ragfault.model.records import Chunk

ID_KEYS = ("id", "document.id", "_id", "id_", "chunk_id", "node_id", "doc_id", "key")
TEXT_KEYS = ("content", "page_content", "text", "document.content", "chunk", "passage", "body", "document")
SCORE_KEYS = ("score", "document.score", "relevance_score", "similarity", "_score", "@search.score")
LIST_KEYS = (
    *("documents", "results", "chunks", "nodes", "matches", "source_nodes", "retrieved_documents", "hits"),
    *("contexts", "passages", "output", "result", "data", "outputs", "context"),
)
EMBEDDING_KEYS = ("embedding", "vector", "embeddings", "values")
"""Keys under which passages carry their embedding."""
ZERO_COUNTS = (0, "0")


def extract_chunks(span: OtelSpan, role: str) -> tuple[Chunk, ...] | None:
    """Extract the chunks of a span in order; empty where it retrieved none, None where not recorded.

    An id is the passage's, else one in its metadata, else made of its text. Equal passages with one id are kept once.

    >>> held = {"retrieval.documents.0.document.content": "Oslo, 1040", "retrieval.documents.0.document.score": 2}
    >>> [chunk] = extract_chunks(OtelSpan(trace="a", id="b", attributes=held), "retriever")
    >>> chunk.id, chunk.text, chunk.score
    ('t-a54712e2c020', 'Oslo, 1040', 2.0)
    """
    passages = _read_numbered_documents(span.attributes, role)
    if passages is None:
        passages = _read_documents(span)
    if passages is None and _retrieved_nothing(span):
        passages = []
    if passages is None:
        return None
    return _drop_duplicates([chunk for item in passages if (chunk := _build_chunk(item)) is not None])


def _retrieved_nothing(span: OtelSpan) -> bool:
    """Tell whether a retriever of OpenInference recorded its query and no document.

    OpenInference numbers documents, one attribute each, so that an empty list leaves no attribute.
    """
    attributes = span.attributes
    is_retriever = str(attributes.get("openinference.span.kind", "")).upper() == "RETRIEVER"
    is_recorded = get_first_attribute(attributes, INPUT_ATTRIBUTES) is not None
    is_silent = get_first_attribute(attributes, (*OUTPUT_ATTRIBUTES, *DOCUMENTS_ATTRIBUTES)) is None
    return is_retriever and is_recorded and is_silent and not span.events and span.status != "error"


def extract_reply_chunks(span: OtelSpan) -> tuple[Chunk, ...] | None:
    """Extract the contexts of a span that is no retriever: numbered documents, or passages its output names as such.

    Those that its input names count if the output has none.

    >>> held = {"output.value": '{"answer": "1040", "contexts": ["Oslo was founded in 1040."]}'}
    >>> [chunk.text for chunk in extract_reply_chunks(OtelSpan(trace="a", id="b", attributes=held))]
    ['Oslo was founded in 1040.']
    """
    passages = _read_numbered_documents(span.attributes, "retriever")
    given = parse_embedded(get_first_attribute(span.attributes, DOCUMENTS_ATTRIBUTES))
    passages = _search_passages(given) if passages is None else passages
    for name in (*TRACE_OUTPUT_ATTRIBUTES, *OUTPUT_ATTRIBUTES, *TRACE_INPUT_ATTRIBUTES, *INPUT_ATTRIBUTES):
        content = parse_embedded(span.attributes.get(name))
        if passages is None and isinstance(content, dict):
            lists = (value for path, value in list_paths(content) if _names_passages(path) and isinstance(value, list))
            passages = next((value for value in lists if classify(value) in ("passages", "texts")), None)
    if passages is None:
        return None
    return _drop_duplicates([chunk for item in passages if (chunk := _build_chunk(item)) is not None])


def _names_passages(path: str) -> bool:
    """Tell whether a name says that passages stand there; `results` and `output` may be answers."""
    words = split_words(path.rpartition(".")[2])
    return any(field == "chunks" for field, _ in rank_fields(path)) and not {"result", "results", "output"} & set(words)


def _drop_duplicates(chunks: list[Chunk]) -> tuple[Chunk, ...]:
    met: set[tuple[str, str]] = set()
    return tuple(c for c in chunks if not ((c.id, c.text) in met or met.add((c.id, c.text))))  # type: ignore[func-returns-value]


def _read_numbered_documents(attributes: dict[str, Any], role: str) -> list[Any] | None:
    """Read the numbered documents of OpenInference, with ids from the output where they lack them."""
    names_joined = "\n".join(attributes)
    for prefix in (DOCUMENT_PREFIXES.get(role, ""), *DOCUMENT_PREFIXES.values()):
        documents = collect_numbered(attributes, prefix) if prefix and prefix in names_joined else []
        if not documents:
            continue
        parts = [_parse_document(item) for item in documents]
        if any(part.get("id") is None for part in parts):
            _copy_ids(parts, _search_passages(parse_embedded(get_first_attribute(attributes, OUTPUT_ATTRIBUTES))))
        return parts
    return None


def _parse_document(part: dict[str, Any]) -> dict[str, Any]:
    """Rename the attributes of a document to its own keys, metadata included."""
    document = {name.removeprefix("document."): value for name, value in part.items()}
    spread = [name for name in document if name.startswith("metadata.")]
    if spread:
        document["metadata"] = {name.removeprefix("metadata."): document.pop(name) for name in spread}
    return document


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
    """Read documents from one attribute, from events, or from the output."""
    attributes = span.attributes
    passages = _search_passages(parse_embedded(get_first_attribute(attributes, DOCUMENTS_ATTRIBUTES)))
    if passages is not None:
        return passages
    events = [event.attributes for event in span.events if event.name in RESULT_EVENTS]
    if events:
        return [_parse_result_event(event) for event in events]
    if attributes.get("db.vector.query.result.count") in ZERO_COUNTS:
        return []
    for name in OUTPUT_ATTRIBUTES:
        if name in attributes and (passages := _search_passages(parse_embedded(attributes[name]))) is not None:
            return passages
    return None


def _parse_result_event(event: dict[str, Any]) -> dict[str, Any]:
    """Rename the attributes of a vector store's result event to its own keys."""
    first, second = (f"{name}." for name in RESULT_EVENTS)
    return {name.removeprefix(first).removeprefix(second): value for name, value in event.items()}


def _search_passages(value: Any, depth: int = 0) -> list[Any] | None:
    """Return the list of passages that a value is, or holds under a usual key."""
    if isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], list):
            value = value[0]
        passages = [item for item in value if _is_passage(item)]
        return passages if passages or not value else None
    if isinstance(value, dict) and depth < 4:
        for name in LIST_KEYS:
            if (
                name in value
                and (passages_below := _search_passages(parse_embedded(value[name]), depth + 1)) is not None
            ):
                return passages_below
    return None


def _is_passage(part: Any) -> bool:
    """Tell whether a value may be a passage: a text (but no printed object), or an object with text or id."""
    if isinstance(part, str):
        return bool(part.strip()) and not part.startswith(("<NodeWithScore", "Node ID:"))
    if not isinstance(part, dict):
        return False
    inner = part.get("node")
    part = inner if isinstance(inner, dict) else part
    return _get_field(part, TEXT_KEYS) is not None or _get_field(part, ID_KEYS) is not None


_join_words = lru_cache(maxsize=4096)(join_words)


def _get_field(value: dict[str, Any], names: tuple[str, ...]) -> Any:
    """Return the first of these fields, in any spelling, that is a text or a number."""
    if value.keys().isdisjoint(names):
        value = {_join_words(name): field for name, field in value.items()}
        # "document_id" names the document, and "document.id" the passage
        names = tuple(_join_words(name) for name in names if "." not in name)
    for name in names:
        field = value.get(name)
        if isinstance(field, (str, int, float)) and not isinstance(field, bool) and field != "":
            return field
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
    name, document = _get_field(part, ID_KEYS), _get_document(part, metadata)
    if name is None:
        name = get_metadata_id(metadata, document)
    if text is None and name is None:
        return None
    body = "" if text is None else str(text)
    start = metadata.get("start_index")
    begin = start if type(start) is int and 0 <= start < 2**62 else None
    return Chunk(
        id=make_content_id(body) if name is None else str(name),
        text=body,
        score=_parse_score(part if _get_field(part, SCORE_KEYS) is not None else metadata),
        document=document,
        start=begin,
        end=None if begin is None else begin + len(body),
        metadata=metadata,
    )


def _parse_score(part: dict[str, Any]) -> float | None:
    raw = _get_field(part, SCORE_KEYS)
    try:
        score = float(raw) if raw is not None else None
    except (ValueError, OverflowError):
        return None
    return score if score is not None and math.isfinite(score) else None


def _get_document(part: dict[str, Any], metadata: dict[str, Any]) -> str | None:
    document = _get_field(metadata, DOCUMENT_NAME_KEYS)
    if document is None:
        document = _get_field(part, ("name", "url", "source"))
    return None if document is None else str(document)


def _parse_metadata(value: Any) -> dict[str, Any]:
    """Parse an object, its JSON, or its Python form; drop embeddings."""
    value = parse_cell("metadata", value)
    if not isinstance(value, dict) or not value:
        return {}
    try:
        metadata: dict[str, Any] = make_json_safe(
            {name: item for name, item in value.items() if name not in EMBEDDING_KEYS}
        )
    except InvalidRecord:
        return {}
    return metadata
