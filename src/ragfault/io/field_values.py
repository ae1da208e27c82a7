"""Normalization of field values: the forms in which other tools write the parts of a trace.

Values of a wrong type are left unchanged, for the final validation to report with their path.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from hashlib import blake2b
from typing import Any

import msgspec

from ragfault.io.formats.conversations import ROLES, find_text, find_turns, read_question_answer_pairs
from ragfault.io.formats.field_words import join_words
from ragfault.io.formats.passages import (
    expand_passage,
    find_passages,
    find_text_key,
    read_listed_passage,
    split_named_passages,
    split_passages,
    unwrap_passage,
)
from ragfault.io.formats.texts import join_text, keep_short_values, parse_list_text
from ragfault.model.records import Chunk

MAX_METADATA_DEPTH = 128
"""Maximum nesting of metadata, and of a record."""
CONTAINERS = (dict, list, tuple)
CHUNK_ID_KEYS = (
    *("id", "chunk_id", "passage_id", "doc_id", "docid", "id_", "_id", "node_id", "pid", "document_id", "context_id"),
    *("uuid", "uid", "docno", "key", "ids"),
)
METADATA_ID_KEYS = ("chunk_id", "passage_id", "node_id")
CHUNK_SCORE_KEYS = (
    "score", "similarity", "similarity_score", "relevance_score", "rerank_score", "_score", "@search.score",
)  # fmt: skip
DOCUMENT_NAME_KEYS = (
    *(
        "document_id",
        "doc_id",
        "ref_doc_id",
        "doc",
        "source",
        "file_path",
        "file_name",
        "filename",
        "file",
        "path",
        "url",
    ),
    *("page_url", "doc_uri", "document_title", "title", "page_name"),
)
CHUNK_TEXT_KEYS = ("text", "content", "page_content", "passage", "cited_text")
FACT_TEXT_KEYS = ("text", "fact", "statement", "claim")
DOCUMENT_ID_KEYS = ("doc_id", "docid", "document_id")
CHUNK_FIELDS = frozenset(Chunk.__struct_fields__)
CHUNK_KINDS = ("text", "table", "image", "record")
CITATION_MARK = re.compile(r"\[\d+\]")
"""A number in brackets: a place in the prompt, which names another passage in every trace."""
UNREADABLE_LIST = re.compile(r"""\s*\[\s*(['"{]|<|\w+\()""")
"""The beginning of a list as JSON or Python print it."""


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


def get_metadata_id(metadata: dict[str, Any], document: Any) -> str | None:
    """Return the id that the metadata of a passage give it; a number counts within the document, where that is known.

    >>> get_metadata_id({"chunk_id": 3}, "a.md"), get_metadata_id({"chunk_id": "a-3"}, None)
    ('a.md#3', 'a-3')
    """
    values = (metadata.get(name) for name in METADATA_ID_KEYS)
    value = next((v for v in values if isinstance(v, (str, int)) and not isinstance(v, bool) and v != ""), None)
    if value is None:
        return None
    return f"{document}#{value}" if document is not None and str(value).isdecimal() else str(value)


def get_json_type(value: object) -> str:
    """Return the JSON name of the type of a value."""
    names = {str: "str", int: "int", float: "float", bool: "bool", list: "array", tuple: "array", dict: "object"}
    return names.get(type(value), "null" if value is None else type(value).__name__)


def normalize_id(value: Any) -> Any:
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
    value = parse_list_text(value) if isinstance(value, str) else value
    if isinstance(value, str):
        if UNREADABLE_LIST.match(value):
            raise InvalidRecord("a printed list that cannot be read - at `$.chunks`")
        value = split_named_passages(value) or split_passages(value)
    matches = find_passages(value)
    parts: list[Any] = []
    for item in [value] if matches is None else matches:
        listed = parse_list_text(item) if isinstance(item, str) and item.lstrip().startswith("[{") else item
        if isinstance(listed, list) and listed is not item:
            # the output of a search that was logged as text
            parts += find_passages(listed) or listed
            continue
        inner = expand_passage(item)
        if isinstance(item, (list, tuple)) and read_listed_passage(item) is None:
            inner = find_passages(item)
        parts += inner or [item]
    return _number_document_chunks([_normalize_chunk(chunk, i) for i, chunk in enumerate(parts)])


def _find_keys(value: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    """List the keys of an object that are one of these names in any spelling, in the order of the names."""
    keys = {join_words(key): key for key, item in reversed(value.items()) if item is not None}
    return [
        name if value.get(name) is not None else keys[join_words(name)]
        for name in names
        if value.get(name) is not None or join_words(name) in keys
    ]


def _normalize_chunk(value: Any, number: int) -> dict[str, Any]:
    if isinstance(value, str):
        return {"id": make_content_id(value), "text": value}
    if isinstance(value, (list, tuple)):
        value = read_listed_passage(value)
    if not isinstance(value, dict):
        raise InvalidRecord(f"Expected `object | str`, got `{get_json_type(value)}` - at `$.chunks[{number}]`")
    if value.get("id") is not None and value.keys() <= CHUNK_FIELDS:
        return _build_chunk(value, ["id"], "text" if value.get("text") is not None else None)
    value = unwrap_passage(value)
    names = list(dict.fromkeys(_find_keys(value, CHUNK_ID_KEYS)))
    text_key = "text" if value.get("text") is not None else find_text_key(value)
    names = [
        name
        for name in names
        if name != text_key
        and not isinstance(value[name], (dict, list))
        and not CITATION_MARK.fullmatch(str(value[name]))
    ]
    if not names and text_key is None:
        names = _find_reference_keys(value)
        if not names:
            return _build_record_chunk(value, number)
    chunk = _build_chunk(value, names, text_key)
    return {**chunk, "metadata": keep_short_values(chunk["metadata"]) or {}}


def _find_reference_keys(value: dict[str, Any]) -> list[str]:
    """Return the key that names a document in a search result without text, of which the rest are numbers."""
    document = _find_document_name(value, {}, set())
    if document is None or not _find_keys(value, CHUNK_SCORE_KEYS):
        return []
    rest = (item for key, item in value.items() if key != document[0])
    return [document[0]] if all(item is None or isinstance(item, (int, float)) for item in rest) else []


def _build_chunk(value: dict[str, Any], names: list[str], text_key: str | None) -> dict[str, Any]:
    """Build a chunk from an object, with the keys that are ids and the one that is its text."""
    chunk = {key: item for key, item in value.items() if key in CHUNK_FIELDS and item is not None}
    if text_key == "document" or chunk.get("kind", "text") not in CHUNK_KINDS:
        chunk.pop("document" if text_key == "document" else "kind")
    text = value[text_key] if text_key else ""
    # NaN is how a frame writes a text that is missing
    text = "" if isinstance(text, float) and math.isnan(text) else text
    chunk["text"] = join_text(text) if isinstance(text, (list, tuple)) else text
    chunk_id = normalize_id(value[names[0]]) if names else None
    if names and join_words(names[0]) in ("docid", "documentid"):
        chunk["_document"] = chunk_id
    chunk["id"] = chunk_id if chunk_id is not None else make_content_id(str(chunk["text"]))
    used = {*names[:1], *([text_key] if text_key else [])}
    if "score" not in chunk and (scored := _find_keys(value, CHUNK_SCORE_KEYS)):
        number = value[scored[0]] if isinstance(value[scored[0]], (int, float)) else None
        chunk |= {} if number is None else {"score": number}
        used |= set() if number is None else {scored[0]}
    if "score" in chunk:
        chunk["score"] = _normalize_score(chunk["score"])
    key = "meta" if value.get("metadata") is None and isinstance(value.get("meta"), dict) else "metadata"
    inner = parse_list_text(value[key]) if isinstance(value.get(key), str) else value.get(key)
    chunk["metadata"] = _collect_chunk_metadata({**value, "metadata": inner}, {*used, key})
    if "score" not in chunk and isinstance(inner, dict) and (scored := _find_keys(inner, CHUNK_SCORE_KEYS)):
        # NaN stays metadata alone, as what is no number does
        score = inner[scored[0]]
        chunk |= {"score": score} if type(score) in (int, float) and abs(score) < float("inf") else {}
    if chunk.get("document") is None and (matches := _find_document_name(value, chunk["metadata"], used)) is not None:
        key, chunk["document"] = matches
        if key in DOCUMENT_ID_KEYS and key in value:
            del chunk["metadata"][key]
    if "document" in chunk:
        chunk["document"] = normalize_id(chunk["document"])
        chunk["id"] = chunk["document"] if not names and not chunk["text"] else chunk["id"]
    if not names and isinstance(inner, dict):
        chunk["id"] = get_metadata_id(inner, chunk.get("document")) or chunk["id"]
    return chunk


def _normalize_score(value: Any) -> Any:
    """Parse a score that is written as text; NaN, which many tools write for what is missing, is none."""
    number = _parse_number(value) if isinstance(value, str) else value
    return value if number is None else None if isinstance(number, float) and math.isnan(number) else number


def _find_document_name(value: dict[str, Any], metadata: dict[str, Any], used_keys: set[str]) -> tuple[str, Any] | None:
    """Return the key and name of the document that a passage was cut from, where it is recorded."""
    for table in (value, metadata):
        for name in _find_keys(table, DOCUMENT_NAME_KEYS):
            if name not in used_keys and type(table[name]) in (str, int) and table[name] != "":
                return name, table[name]
    return None


def _collect_chunk_metadata(value: dict[str, Any], used: set[str]) -> dict[str, Any]:
    """Merge the metadata of a chunk with every key that is no field."""
    spare = {
        key: item for key, item in value.items() if key not in CHUNK_FIELDS and key not in used and item is not None
    }
    inner = value.get("metadata")
    spare |= inner if isinstance(inner, dict) else {} if inner is None else {"metadata": inner}
    metadata: dict[str, Any] = make_json_safe(spare)
    return metadata


def _build_record_chunk(value: dict[str, Any], number: int) -> dict[str, Any]:
    """Build a chunk of kind `record` whose text is the JSON of the object."""
    if not any(item is not None for item in value.values()):
        raise InvalidRecord(f"a chunk without id and text - at `$.chunks[{number}]`")
    text = msgspec.json.encode(make_json_safe(value)).decode()
    return {"id": make_content_id(text), "text": text, "kind": "record"}


def _number_document_chunks(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add numbers to ids of chunks that are named by the same document."""
    texts_by_document: dict[Any, dict[Any, str]] = {}
    for chunk in chunks:
        document = chunk.pop("_document", None)
        if not isinstance(document, str) or not isinstance(chunk["text"], str):
            continue
        texts = texts_by_document.setdefault(document, {})
        if chunk["text"] not in texts:
            texts[chunk["text"]] = document if not texts else f"{document}#{len(texts) + 1}"
        chunk["id"] = texts[chunk["text"]]
        if chunk["id"] != document:
            chunk.setdefault("document", document)
    return chunks


def _normalize_citations(value: Any) -> list[Any]:
    return [_normalize_citation(cited) for item in as_list(value) for cited in _split_citation(item)]


def _split_citation(value: Any) -> list[Any]:
    """Split a citation of several documents, as Cohere writes it, to one for each; its text is that of the answer."""
    if not isinstance(value, dict) or not any(isinstance(value.get(key), list) for key in ("document_ids", "sources")):
        return [value]
    names = value.get("document_ids") or [
        item.get("id") if isinstance(item, dict) else item for item in value.get("sources") or ()
    ]
    return [{"chunk": name, "claim": value.get("text")} for name in names]


def _normalize_citation(value: Any) -> Any:
    """Map the keys of a citation to its fields; other keys stay, for the metadata of the trace."""
    if not isinstance(value, dict):
        return {"chunk": normalize_id(value)}
    citation = {key: item for key, item in value.items() if item is not None}
    for field, names in (("chunk", CHUNK_ID_KEYS), ("quote", CHUNK_TEXT_KEYS)):
        alias = next((name for name in (field, *names) if name in citation), None)
        if alias:
            citation[field] = citation.pop(alias)
    if "chunk" in citation:
        citation["chunk"] = normalize_id(citation["chunk"])
    for field in ("start", "end"):
        # a time, a page or an anchor
        if field in citation and type(citation[field]) is not int:
            citation[f"recorded_{field}"] = citation.pop(field)
    return citation


def _normalize_texts(value: Any) -> list[Any]:
    return [_normalize_text(item) for item in as_list(value)]


def _normalize_text(value: Any) -> Any:
    if isinstance(value, dict):
        return next((value[name] for name in FACT_TEXT_KEYS if isinstance(value.get(name), str)), value)
    return normalize_id(value)


def _normalize_reference(value: Any) -> Any:
    """Take a text, several, an object of them (`{"text": [...]}`), or the turns of an answer."""
    if isinstance(value, (list, tuple)) and value and (turns := find_turns(value)) is not None:
        return turns[-1]["text"]
    if isinstance(value, dict):
        inner = next((value[key] for key in ("text", "answer", "value", "content", "aliases") if value.get(key)), value)
        return value if inner is value else _normalize_reference(inner)
    if isinstance(value, (list, tuple)):
        has_keys = any(isinstance(item, dict) and item.keys() & set(REFERENCE_KEYS) for item in value)
        parts = [
            text if isinstance(item, dict) and (text := find_text(item, REFERENCE_KEYS)) else item
            for item in value
            if not isinstance(item, dict) or not has_keys or item.keys() & set(REFERENCE_KEYS)
        ]
        return _normalize_texts(parts)
    return normalize_id(value)


REFERENCE_KEYS = ("text", "answer", "content")


def _normalize_time(value: Any) -> Any:
    """Parse ISO text, or seconds or milliseconds since 1970 as a number or as text."""
    try:
        if isinstance(value, str):
            if not EPOCH_PATTERN.fullmatch(value.strip()):
                return datetime.fromisoformat(value.strip())
            value = float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if abs(value) > 1e11 else value, UTC)
        if isinstance(value, date) and not isinstance(value, datetime):
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidRecord(f'"{str(value)[:40]}" is not a time in ISO form - at `$.time`') from None
    return value


def _normalize_latency(value: Any) -> Any:
    return {"total": value} if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _normalize_history(value: Any) -> list[Any]:
    turns = [_normalize_turn(turn) for turn in as_list(value)]
    if not all(isinstance(turn, dict) and turn.get("role") in HISTORY_ROLES and "text" in turn for turn in turns):
        matches = find_turns(value) or read_question_answer_pairs(value)
        turns = turns if matches is None else [{"role": turn["role"], "text": turn["text"]} for turn in matches]
    return turns


HISTORY_ROLES = frozenset(ROLES.values())


def _normalize_turn(value: Any) -> Any:
    """Give a turn the names of its fields: `type` and `content` are common for `role` and `text`."""
    if not isinstance(value, dict):
        return value
    turn = {key: item for key, item in value.items() if item is not None}
    for field, names in (("role", ("type", "speaker")), ("text", ("content", "message"))):
        text_key = next((name for name in names if name in turn), None)
        if field not in turn and text_key:
            turn[field] = turn.pop(text_key)
    if isinstance(turn.get("text"), list):
        turn["text"] = join_text(turn["text"])
    if isinstance(turn.get("role"), str):
        turn["role"] = ROLES.get(join_words(turn["role"]), turn["role"].lower())
    return turn


def _normalize_steps(value: Any) -> list[Any]:
    return [_normalize_step(step, i) for i, step in enumerate(as_list(value), 1)]


def _normalize_step(value: Any, place: int) -> Any:
    """Name a step without an id by its place, from 1, and its chunks by their ids."""
    if not isinstance(value, dict):
        return value
    step = {key: item for key, item in value.items() if item is not None}
    step["id"] = normalize_id(step.get("id", place))
    if "parent" in step:
        step["parent"] = normalize_id(step["parent"])
    if isinstance(step.get("chunks"), (list, tuple)):
        step["chunks"] = [
            _normalize_chunk(chunk, number)["id"] if isinstance(chunk, dict) else normalize_id(chunk)
            for number, chunk in enumerate(step["chunks"])
        ]
    return step


def normalize_flag(value: Any) -> Any:
    """Read yes and no as text or number; a third class is None."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    word = str(value).strip().lower()
    return None if word in UNDECIDED_WORDS else FLAG_WORDS.get(word, value)


UNDECIDED_WORDS = ("underspecified", "conversational", "unknown", "unclear")


FLAG_WORDS = {
    "answerable": True, "partial": True, "unanswerable": False, "true": True, "false": False, "yes": True, "no": False,
    "1": True, "0": False,
}  # fmt: skip


def _normalize_turn_number(value: Any) -> Any:
    number = _parse_number(value) if isinstance(value, str) else None
    return value if number is None else number


FIELD_NORMALIZERS = {
    "turn": _normalize_turn_number,
    "attempt": _normalize_turn_number,
    "id": normalize_id,
    "history": _normalize_history,
    "messages": _normalize_history,
    "steps": _normalize_steps,
    "answerable": normalize_flag,
    "chunks": _normalize_chunks,
    "citations": _normalize_citations,
    "reference": _normalize_reference,
    "facts": _normalize_texts,
    "time": _normalize_time,
    "conversation": normalize_id,
    "model": normalize_id,
    "route": normalize_id,
    "latency": _normalize_latency,
}
"""Normalizers of fields that accept more than one form."""


NESTED_FIELDS = (
    "chunks",
    "citations",
    "facts",
    "gold",
    "latency",
    "steps",
    "history",
    "messages",
    "tokens",
    "metadata",
)


def parse_cell(name: str, value: Any) -> Any:
    """Parse a cell of a table: numbers, and lists and objects as JSON or as Python prints them."""
    if not isinstance(value, str):
        return value.tolist() if hasattr(value, "tolist") and not isinstance(value, (int, float, bool)) else value
    if name in ("turn", "attempt") or name.startswith(("tokens.", "latency.")) or name == "latency":
        number = _parse_number(value)
        if number is not None:
            return number
    if name in NESTED_FIELDS or name.startswith(("chunks.", "gold.")):
        return parse_list_text(value)
    if name == "reference":
        parsed, keys = parse_list_text(value), set(REFERENCE_KEYS)
        parts = parsed if isinstance(parsed, list) else [None]
        is_list = all(isinstance(part, str) or (isinstance(part, dict) and part.keys() & keys) for part in parts)
        return parsed if is_list else value
    return value


def _parse_number(text: str) -> int | float | None:
    try:
        return int(text)
    except ValueError:
        pass
    number = to_number(text)
    if number is None:
        return None
    return int(number) if number.is_integer() and "e" not in text.lower() else number


def convert_object(value: Any) -> Any:
    """Convert an array, or an object of a library such as a document of LangChain or Haystack, to what JSON holds."""
    for name in ("tolist", "model_dump", "to_dict"):
        if hasattr(value, name):
            return getattr(value, name)()
    return str(value)


def encode_object(value: Any) -> str:
    """Write a value, of whatever library, as JSON; a text stays as it is."""
    plain = build_plain_row(name_infinity(value))
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()


def build_plain_row(record: Any) -> Any:
    """Convert a trace, or a record with arrays and objects of libraries, to plain objects without absent fields."""
    return msgspec.to_builtins(record, enc_hook=convert_object)


def to_number(value: Any) -> float | None:
    """Return a number, also of a cell of text; None for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def name_infinity(value: Any) -> Any:
    """Replace the numbers that JSON lacks: null for NaN, text for infinity.

    >>> name_infinity({"scores": [math.inf, math.nan, 0.5]})
    {'scores': ['Infinity', None, 0.5]}
    """
    if isinstance(value, dict):
        return {key: name_infinity(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [name_infinity(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value)
    return value


def check_depth(record: Any) -> None:
    """Check that a record is nested as deep as metadata may be, at most. Raises `InvalidRecord`.

    Every reader walks through a record by calling itself, so a deeper one would end the program and not the record.

    >>> check_depth({"metadata": {"tags": ["a"]}})
    """
    level = [record] if isinstance(record, CONTAINERS) else []
    for _ in range(MAX_METADATA_DEPTH + 1):
        if not level:
            return
        parts = (part.values() if isinstance(part, dict) else part for part in level)
        level = [item for part in parts for item in part if isinstance(item, CONTAINERS)]
    raise InvalidRecord(f"nested more than {MAX_METADATA_DEPTH} levels deep")


def make_json_safe(value: Any, depth: int = 0) -> Any:
    """Convert to objects that JSON can hold: null for NaN, text for infinity, text keys, bounded nesting."""
    if depth > MAX_METADATA_DEPTH:
        raise InvalidRecord(f"nested more than {MAX_METADATA_DEPTH} levels deep - at `$.metadata`")
    if isinstance(value, dict):
        return {str(key): make_json_safe(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [make_json_safe(item, depth + 1) for item in value]
    if isinstance(value, float):
        return name_infinity(value)
    if value is None or isinstance(value, (str, int)):
        return value
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return str(value)
