"""Normalization of field values: the forms in which other tools write the parts of a trace.

Values of a wrong type are left unchanged, for the final validation to report with their path.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import msgspec

from ragfault.records import Chunk, Span

MAX_METADATA_DEPTH = 128
"""Maximum nesting of metadata."""
CHUNK_ID_KEYS = ("id", "chunk_id", "passage_id", "doc_id", "docid", "id_")
CHUNK_TEXT_KEYS = ("text", "content", "page_content", "passage")
FACT_TEXT_KEYS = ("text", "fact", "statement", "claim")
DOCUMENT_ID_KEYS = ("doc_id", "docid")
CHUNK_FIELDS = frozenset(Chunk.__struct_fields__)
SPAN_FIELDS = frozenset(Span.__struct_fields__)


EPOCH_PATTERN = re.compile(r"[+-]?(\d{9,}|\d+\.\d*|\d(\.\d*)?[eE][+-]?\d+)")
"""A text that is a number and no date: `20240101` is one in ISO form."""


class InvalidRecord(ValueError):
    """An invalid record; the message says where and why, `text` is the line where it is known."""

    def __init__(self, problem: str, text: bytes = b"") -> None:
        super().__init__(problem)
        self.text = text


def make_content_id(text: str, prefix: str = "t-") -> str:
    """Derive an id from a text.

    >>> make_content_id("Oslo, 1040")
    't-a54712e2c020'
    """
    return prefix + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def get_json_type(value: object) -> str:
    """Return the JSON name of the type of a value."""
    names = {str: "str", int: "int", float: "float", bool: "bool", list: "array", tuple: "array", dict: "object"}
    return names.get(type(value), "null" if value is None else type(value).__name__)


def _normalize_id(value: Any) -> Any:
    """Turn a number into text."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    return str(value)


def as_list(value: Any) -> list[Any]:
    """Wrap a value that is no list."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def as_chunk_object(chunk: Any) -> dict[str, Any]:
    """Wrap a chunk that is a text."""
    return chunk if isinstance(chunk, dict) else {"text": chunk}


def _normalize_chunks(value: Any) -> list[Any]:
    if isinstance(value, dict) and not any(name in value for name in (*CHUNK_ID_KEYS, *CHUNK_TEXT_KEYS)):
        value = [{"id": name, "text": text} for name, text in value.items() if isinstance(text, str)] or [value]
    chunks = [_normalize_chunk(chunk, place) for place, chunk in enumerate(as_list(value))]
    return _number_document_chunks(chunks)


def _normalize_chunk(value: Any, place: int) -> dict[str, Any]:
    if isinstance(value, str):
        return {"id": make_content_id(value), "text": value}
    if not isinstance(value, dict):
        raise InvalidRecord(f"Expected `object | str`, got `{get_json_type(value)}` - at `$.chunks[{place}]`")
    if isinstance(value.get("node"), dict):
        value = {**value["node"], **{key: part for key, part in value.items() if key != "node"}}
    names = [name for name in CHUNK_ID_KEYS if value.get(name) is not None]
    texts = [name for name in CHUNK_TEXT_KEYS if value.get(name) is not None]
    if not names and not texts:
        return _build_record_chunk(value, place)
    chunk = {key: part for key, part in value.items() if key in CHUNK_FIELDS and part is not None}
    chunk["text"] = value[texts[0]] if texts else ""
    named = _normalize_id(value[names[0]]) if names else None
    if names and names[0] in DOCUMENT_ID_KEYS:
        chunk["_document"] = named
    elif "document" not in chunk and (above := [name for name in names[1:] if name in DOCUMENT_ID_KEYS]):
        chunk["document"] = value[above[0]]
    chunk["id"] = named if named is not None else make_content_id(str(chunk["text"]))
    if "document" in chunk:
        chunk["document"] = _normalize_id(chunk["document"])
    chunk["metadata"] = _collect_chunk_metadata(value, {*names, *texts[:1]})
    return chunk


def _collect_chunk_metadata(value: dict[str, Any], used: set[str]) -> dict[str, Any]:
    """Merge the metadata of a chunk with every key that is no field."""
    spare = {
        key: part for key, part in value.items() if key not in CHUNK_FIELDS and key not in used and part is not None
    }
    own = value.get("metadata")
    spare |= own if isinstance(own, dict) else {} if own is None else {"metadata": own}
    metadata: dict[str, Any] = make_json_safe(spare)
    return metadata


def _build_record_chunk(value: dict[str, Any], place: int) -> dict[str, Any]:
    """Build a chunk of kind `record` whose text is the JSON of the object."""
    if not any(part is not None for part in value.values()):
        raise InvalidRecord(f"a chunk without id and text - at `$.chunks[{place}]`")
    text = msgspec.json.encode(make_json_safe(value)).decode()
    return {"id": make_content_id(text), "text": text, "kind": "record"}


def _number_document_chunks(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add numbers to ids of chunks that are named by the same document."""
    seen: dict[Any, dict[Any, str]] = {}
    for chunk in chunks:
        document = chunk.pop("_document", None)
        if not isinstance(document, str) or not isinstance(chunk["text"], str):
            continue
        texts = seen.setdefault(document, {})
        if chunk["text"] not in texts:
            texts[chunk["text"]] = document if not texts else f"{document}#{len(texts) + 1}"
        chunk["id"] = texts[chunk["text"]]
        if chunk["id"] != document:
            chunk.setdefault("document", document)
    return chunks


def _normalize_citations(value: Any) -> list[Any]:
    return [_normalize_citation(cited) for cited in as_list(value)]


def _normalize_citation(value: Any) -> Any:
    """Map the keys of a citation to its fields; other keys stay, for the metadata of the trace."""
    if not isinstance(value, dict):
        return {"chunk": _normalize_id(value)}
    citation = {key: part for key, part in value.items() if part is not None}
    for field, names in (("chunk", CHUNK_ID_KEYS), ("quote", CHUNK_TEXT_KEYS)):
        alias = next((name for name in (field, *names) if name in citation), None)
        if alias:
            citation[field] = citation.pop(alias)
    if "chunk" in citation:
        citation["chunk"] = _normalize_id(citation["chunk"])
    return citation


def _normalize_texts(value: Any) -> list[Any]:
    return [_normalize_text(item) for item in as_list(value)]


def _normalize_text(value: Any) -> Any:
    if isinstance(value, dict):
        return next((value[name] for name in FACT_TEXT_KEYS if isinstance(value.get(name), str)), value)
    return _normalize_id(value)


def _normalize_reference(value: Any) -> Any:
    return _normalize_texts(value) if isinstance(value, (list, tuple)) else _normalize_id(value)


def _normalize_gold(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() <= {"chunks", "spans"} and all(
            isinstance(part, (dict, list, tuple)) for part in value.values()
        ):
            return {
                "chunks": _normalize_grades(value.get("chunks", {})),
                "spans": list(map(_normalize_span, value.get("spans", ()))),
            }
        return {"chunks": _normalize_grades(value)}
    parts = as_list(value)
    spans = [item for item in parts if isinstance(item, dict) and "start" in item and "end" in item]
    grades = [item for item in parts if not (isinstance(item, dict) and "start" in item and "end" in item)]
    return {"chunks": _normalize_grades(grades), "spans": [_normalize_span(span) for span in spans]}


def _normalize_grades(value: Any) -> Any:
    if isinstance(value, dict):
        return {_normalize_id(key): grade for key, grade in value.items()}
    grades: dict[Any, Any] = {}
    for item in as_list(value):
        if isinstance(item, dict):
            chunk_id = next((item[name] for name in ("chunk", *CHUNK_ID_KEYS) if item.get(name) is not None), None)
            if chunk_id is None:
                raise InvalidRecord("a gold chunk without id - at `$.gold`")
            grades[_normalize_gold_id(chunk_id)] = next(
                (item[k] for k in ("grade", "relevance", "score") if k in item), 1.0
            )
        else:
            grades[_normalize_gold_id(item)] = 1.0
    return grades


def _normalize_gold_id(value: Any) -> Any:
    if isinstance(value, (dict, list, tuple, set)):
        raise InvalidRecord(f"Expected `str | object`, got `{get_json_type(value)}` - at `$.gold`")
    return _normalize_id(value)


def _normalize_span(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    document = next((value[k] for k in ("document", "doc_id", "docid", "source") if value.get(k) is not None), None)
    span = {key: part for key, part in value.items() if key in SPAN_FIELDS and part is not None}
    return span if document is None else {**span, "document": _normalize_id(document)}


def _normalize_time(value: Any) -> Any:
    """Parse ISO text, or seconds or milliseconds since 1970 as a number or as text."""
    try:
        if isinstance(value, str):
            if not EPOCH_PATTERN.fullmatch(value.strip()):
                return datetime.fromisoformat(value.strip())
            value = float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if abs(value) > 1e11 else value, UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidRecord(f"`{str(value)[:40]}` is not a time in ISO form - at `$.time`") from None
    return value


def _normalize_latency(value: Any) -> Any:
    return {"total": value} if isinstance(value, (int, float)) and not isinstance(value, bool) else value


ROLE_NAMES = {
    "human": "user",
    "ai": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "developer": "system",
    "function": "tool",
}
"""Other names of the roles of a conversation."""


def _normalize_history(value: Any) -> list[Any]:
    return [_normalize_turn(turn) for turn in as_list(value)]


def _normalize_turn(value: Any) -> Any:
    """Give a turn the names of its fields: `type` and `content` are common for `role` and `text`."""
    if not isinstance(value, dict):
        return value
    turn = {key: part for key, part in value.items() if part is not None}
    for field, names in (("role", ("type", "speaker")), ("text", ("content", "message"))):
        other = next((name for name in names if name in turn), None)
        if field not in turn and other:
            turn[field] = turn.pop(other)
    if isinstance(turn.get("role"), str):
        turn["role"] = ROLE_NAMES.get(turn["role"].lower(), turn["role"].lower())
    return turn


def _normalize_steps(value: Any) -> list[Any]:
    return [_normalize_step(step, place) for place, step in enumerate(as_list(value), 1)]


def _normalize_step(value: Any, place: int) -> Any:
    """Name a step without an id by its place, from 1, and its chunks by their ids."""
    if not isinstance(value, dict):
        return value
    step = {key: part for key, part in value.items() if part is not None}
    step["id"] = _normalize_id(step.get("id", place))
    if "parent" in step:
        step["parent"] = _normalize_id(step["parent"])
    if isinstance(step.get("chunks"), (list, tuple)):
        step["chunks"] = [
            _normalize_chunk(chunk, number)["id"] if isinstance(chunk, dict) else _normalize_id(chunk)
            for number, chunk in enumerate(step["chunks"])
        ]
    return step


def _normalize_flag(value: Any) -> Any:
    """Read yes and no as text or number."""
    return FLAG_WORDS.get(str(value).strip().lower(), value)


FLAG_WORDS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}

FIELD_NORMALIZERS = {
    "id": _normalize_id,
    "history": _normalize_history,
    "steps": _normalize_steps,
    "answerable": _normalize_flag,
    "chunks": _normalize_chunks,
    "citations": _normalize_citations,
    "reference": _normalize_reference,
    "facts": _normalize_texts,
    "gold": _normalize_gold,
    "time": _normalize_time,
    "conversation": _normalize_id,
    "model": _normalize_id,
    "route": _normalize_id,
    "latency": _normalize_latency,
}
"""Normalizers of fields that accept more than one form."""


NESTED_FIELDS = ("chunks", "citations", "facts", "gold", "latency", "steps", "history", "tokens", "metadata")


def parse_cell(name: str, value: Any) -> Any:
    """Parse a cell of a table: numbers, and lists and objects as JSON or as Python prints them."""
    if not isinstance(value, str):
        return value.tolist() if hasattr(value, "tolist") and not isinstance(value, (int, float, bool)) else value
    if name == "turn" or name.startswith(("tokens.", "latency.")) or name == "latency":
        number = _parse_number(value)
        if number is not None:
            return number
    if name in NESTED_FIELDS or name.startswith(("chunks.", "gold.")):
        return _parse_literal(value)
    if name == "reference":
        parsed = _parse_literal(value)
        return parsed if isinstance(parsed, list) and all(isinstance(part, str) for part in parsed) else value
    return value


def _parse_number(text: str) -> int | float | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() and "e" not in text.lower() else number


def _parse_literal(text: str) -> Any:
    """Parse a list or object; return any other text unchanged."""
    bare = text.strip()
    if bare[:1] not in ("[", "{"):
        return text
    try:
        return msgspec.json.decode(bare)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    if len(bare) > 2**20:
        return text
    from ast import literal_eval

    try:
        return literal_eval(bare)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def make_json_safe(value: Any, depth: int = 0) -> Any:
    """Convert to objects that JSON can hold: no NaN, text keys, bounded nesting."""
    if depth > MAX_METADATA_DEPTH:
        raise InvalidRecord(f"nested more than {MAX_METADATA_DEPTH} levels deep - at `$.metadata`")
    if isinstance(value, dict):
        return {str(key): make_json_safe(part, depth + 1) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [make_json_safe(part, depth + 1) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int)):
        return value
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return str(value)
