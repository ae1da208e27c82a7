"""Values of gold: ids, grades, passages and spans, in the forms in which other tools write them."""

from __future__ import annotations

from typing import Any

from ragfault.io.field_values import (
    CHUNK_ID_KEYS,
    DOCUMENT_NAME_KEYS,
    InvalidRecord,
    as_list,
    get_json_type,
    make_content_id,
    normalize_id,
)
from ragfault.io.formats.passages import find_text_key, split_passages
from ragfault.io.formats.texts import count_words, parse_list_text
from ragfault.model.records import Span

SPAN_FIELDS = frozenset(Span.__struct_fields__)


def normalize_gold(value: Any) -> Any:
    """Convert ids, grades by id, passages and spans to gold; the texts of passages stand for their ids.

    >>> normalize_gold(["a", {"id": "b", "grade": 2}])
    {'chunks': {'a': 1.0, 'b': 2}, 'spans': []}
    """
    value = parse_list_text(value) if isinstance(value, str) else value
    if isinstance(value, dict):
        if value.keys() <= {"chunks", "spans"} and all(
            isinstance(part, (dict, list, tuple)) for part in value.values()
        ):
            return {
                "chunks": _normalize_grades(value.get("chunks", {})),
                "spans": list(map(_normalize_span, value.get("spans", ()))),
            }
        return {"chunks": _normalize_grades(value)}
    parts = split_passages(value) if isinstance(value, str) else as_list(value)
    # a list of gold, any of which answers the query; a pair with a number is a chunk and its grade
    lists = [isinstance(part, (list, tuple)) and not (len(part) == 2 and isinstance(part[1], int)) for part in parts]
    parts = [item for part, is_list in zip(parts, lists, strict=True) for item in (part if is_list else [part])]
    spans = [item for item in parts if isinstance(item, dict) and _is_document_span(item)]
    grades = [item for item in parts if not (isinstance(item, dict) and _is_document_span(item))]
    return {"chunks": _normalize_grades(grades), "spans": [_normalize_span(span) for span in spans]}


def _is_document_span(item: dict[str, Any]) -> bool:
    """Tell whether an object is a span with its places; one that has a text and no document is named by its text."""
    has_document = any(item.get(key) is not None for key in SPAN_DOCUMENT_KEYS)
    return "start" in item and "end" in item and (has_document or find_text_key(item) is None)


SPAN_DOCUMENT_KEYS = ("document", "docid", *DOCUMENT_NAME_KEYS)


def _normalize_grades(value: Any) -> Any:
    if isinstance(value, dict):
        return {normalize_id(key): grade for key, grade in value.items()}
    grades: dict[Any, Any] = {}
    for item in as_list(value):
        if isinstance(item, dict):
            names = [name for name in ("chunk", *CHUNK_ID_KEYS, "doc_uri") if item.get(name) is not None]
            chunk_id = item[names[0]] if names else item.get(find_text_key(item) or "")
            if chunk_id is None:
                raise InvalidRecord("a gold chunk without id - at `$.gold`")
            grades[_normalize_gold_id(chunk_id)] = next(
                (item[key] for key in ("grade", "relevance", "score", "expected_score") if key in item), 1.0
            )
        else:
            is_pair = isinstance(item, (list, tuple)) and len(item) == 2 and isinstance(item[1], int)
            grades[_normalize_gold_id(item[0] if is_pair else item)] = 1.0
    return grades


def _normalize_gold_id(value: Any) -> Any:
    if isinstance(value, (dict, list, tuple, set)):
        raise InvalidRecord(f"Expected `str | object`, got `{get_json_type(value)}` - at `$.gold`")
    return normalize_id(value)


def _normalize_span(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    document = next((value[key] for key in SPAN_DOCUMENT_KEYS if value.get(key) is not None), None)
    span = {key: item for key, item in value.items() if key in SPAN_FIELDS and item is not None}
    return span if document is None else {**span, "document": normalize_id(document)}


def name_gold_texts(grades: dict[Any, Any], chunks: list[dict[str, Any]]) -> dict[Any, Any]:
    """Name gold that is given by its text as the chunk of that text, else by its content."""
    ids, by_text = {chunk["id"] for chunk in chunks}, {chunk["text"]: chunk["id"] for chunk in chunks}
    return {
        by_text[name]
        if name in by_text and name not in ids
        else name
        if name in ids or not isinstance(name, str) or count_words(name) < MIN_GOLD_WORDS
        else make_content_id(name): grade
        for name, grade in grades.items()
    }


MIN_GOLD_WORDS = 5
"""Gold of so many words is a text, not an id."""
