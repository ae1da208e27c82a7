"""The forms in which foreign tools write the parts of a trace, each brought into the one form of a Trace.

Everything here is plain objects to plain objects; what is of a wrong type is left as it is, for the last
check to name with its path.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import msgspec

from ragfault.records import Chunk, Span

__all__ = ["FORMERS", "Wrong", "cell", "clean", "content_id", "items", "kind", "opened"]

DEPTH = 128
"""How deep metadata may nest."""

IDS = ("id", "chunk_id", "passage_id", "doc_id", "docid", "id_")
TEXTS = ("text", "content", "page_content", "passage")
FACTS = ("text", "fact", "statement", "claim")
DOCUMENTS = ("doc_id", "docid")
CHUNK = frozenset(Chunk.__struct_fields__)
SPAN = frozenset(Span.__struct_fields__)


EPOCH = re.compile(r"[+-]?(\d{9,}|\d+\.\d*|\d(\.\d*)?[eE][+-]?\d+)")
"""A text that is a number and no date: `20240101` is one in ISO form."""


class Wrong(ValueError):
    """A record is not a trace; the message says where and why, `text` what stands there, where it is known."""

    def __init__(self, problem: str, text: bytes = b"") -> None:
        super().__init__(problem)
        self.text = text


def content_id(text: str, prefix: str = "t-") -> str:
    """The id that a text has by itself.

    >>> content_id("Oslo, 1040")
    't-a54712e2c020'
    """
    return prefix + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def kind(value: object) -> str:
    names = {
        str: "str",
        int: "int",
        float: "float",
        bool: "bool",
        list: "array",
        tuple: "array",
        dict: "object",
    }
    return names.get(type(value), "null" if value is None else type(value).__name__)


def _name(value: Any) -> Any:
    """An id: numbers become text."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    return str(value)


def items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def opened(chunk: Any) -> dict[str, Any]:
    return chunk if isinstance(chunk, dict) else {"text": chunk}


def _chunks(value: Any) -> list[Any]:
    if isinstance(value, dict) and not any(name in value for name in (*IDS, *TEXTS)):
        value = [{"id": name, "text": text} for name, text in value.items() if isinstance(text, str)] or [
            value
        ]
    chunks = [_chunk(chunk, place) for place, chunk in enumerate(items(value))]
    return _distinct(chunks)


def _chunk(value: Any, place: int) -> dict[str, Any]:
    if isinstance(value, str):
        return {"id": content_id(value), "text": value}
    if not isinstance(value, dict):
        raise Wrong(f"Expected `object | str`, got `{kind(value)}` - at `$.chunks[{place}]`")
    if isinstance(value.get("node"), dict):
        value = {**value["node"], **{key: part for key, part in value.items() if key != "node"}}
    names = [name for name in IDS if value.get(name) is not None]
    texts = [name for name in TEXTS if value.get(name) is not None]
    if not names and not texts:
        return _record(value, place)
    made = {key: part for key, part in value.items() if key in CHUNK and part is not None}
    made["text"] = value[texts[0]] if texts else ""
    named = _name(value[names[0]]) if names else None
    if names and names[0] in DOCUMENTS:
        made["_document"] = named
    elif "document" not in made and (above := [name for name in names[1:] if name in DOCUMENTS]):
        made["document"] = value[above[0]]
    made["id"] = named if named is not None else content_id(str(made["text"]))
    if "document" in made:
        made["document"] = _name(made["document"])
    made["metadata"] = _extra(value, {*names, *texts[:1]})
    return made


def _extra(value: dict[str, Any], used: set[str]) -> dict[str, Any]:
    """The metadata of a chunk: its own, and every key that no field takes."""
    spare = {
        key: part for key, part in value.items() if key not in CHUNK and key not in used and part is not None
    }
    own = value.get("metadata")
    spare |= own if isinstance(own, dict) else {} if own is None else {"metadata": own}
    made: dict[str, Any] = clean(spare)
    return made


def _record(value: dict[str, Any], place: int) -> dict[str, Any]:
    """A chunk that is a record of a database: its JSON is the text."""
    if not any(part is not None for part in value.values()):
        raise Wrong(f"a chunk without id and text - at `$.chunks[{place}]`")
    text = msgspec.json.encode(clean(value)).decode()
    return {"id": content_id(text), "text": text, "kind": "record"}


def _distinct(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Chunks named by their document, told apart where two passages come from the same one."""
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


def _citations(value: Any) -> list[Any]:
    return [_citation(cited) for cited in items(value)]


def _citation(value: Any) -> Any:
    """A citation by the names of its fields; keys of other names stay, for the metadata of the trace."""
    if not isinstance(value, dict):
        return {"chunk": _name(value)}
    made = {key: part for key, part in value.items() if part is not None}
    for field, names in (("chunk", IDS), ("quote", TEXTS)):
        found = next((name for name in (field, *names) if name in made), None)
        if found:
            made[field] = made.pop(found)
    if "chunk" in made:
        made["chunk"] = _name(made["chunk"])
    return made


def _texts(value: Any) -> list[Any]:
    return [_text(item) for item in items(value)]


def _text(value: Any) -> Any:
    if isinstance(value, dict):
        return next((value[name] for name in FACTS if isinstance(value.get(name), str)), value)
    return _name(value)


def _reference(value: Any) -> Any:
    return _texts(value) if isinstance(value, (list, tuple)) else _name(value)


def _gold(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() <= {"chunks", "spans"} and all(
            isinstance(part, (dict, list, tuple)) for part in value.values()
        ):
            return {
                "chunks": _grades(value.get("chunks", {})),
                "spans": list(map(_span, value.get("spans", ()))),
            }
        return {"chunks": _grades(value)}
    parts = items(value)
    spans = [item for item in parts if isinstance(item, dict) and "start" in item and "end" in item]
    grades = [item for item in parts if not (isinstance(item, dict) and "start" in item and "end" in item)]
    return {"chunks": _grades(grades), "spans": [_span(span) for span in spans]}


def _grades(value: Any) -> Any:
    if isinstance(value, dict):
        return {_name(key): grade for key, grade in value.items()}
    made: dict[Any, Any] = {}
    for item in items(value):
        if isinstance(item, dict):
            found = next((item[name] for name in ("chunk", *IDS) if item.get(name) is not None), None)
            if found is None:
                raise Wrong("a gold chunk without id - at `$.gold`")
            made[_gold_id(found)] = next((item[k] for k in ("grade", "relevance", "score") if k in item), 1.0)
        else:
            made[_gold_id(item)] = 1.0
    return made


def _gold_id(value: Any) -> Any:
    if isinstance(value, (dict, list, tuple, set)):
        raise Wrong(f"Expected `str | object`, got `{kind(value)}` - at `$.gold`")
    return _name(value)


def _span(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    found = next(
        (value[k] for k in ("document", "doc_id", "docid", "source") if value.get(k) is not None), None
    )
    made = {key: part for key, part in value.items() if key in SPAN and part is not None}
    return made if found is None else {**made, "document": _name(found)}


def _time(value: Any) -> Any:
    """Text in ISO form, or seconds or milliseconds since 1970, as a number or as text."""
    try:
        if isinstance(value, str):
            if not EPOCH.fullmatch(value.strip()):
                return datetime.fromisoformat(value.strip())
            value = float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if abs(value) > 1e11 else value, UTC)
    except (ValueError, OverflowError, OSError):
        raise Wrong(f"`{str(value)[:40]}` is not a time in ISO form - at `$.time`") from None
    return value


def _latency(value: Any) -> Any:
    return {"total": value} if isinstance(value, (int, float)) and not isinstance(value, bool) else value


FORMERS = {
    "id": _name,
    "chunks": _chunks,
    "citations": _citations,
    "reference": _reference,
    "facts": _texts,
    "gold": _gold,
    "time": _time,
    "conversation": _name,
    "model": _name,
    "route": _name,
    "latency": _latency,
}
"""How the values of a field are brought into form, where more than one form is taken."""


# --- cells of text ---------------------------------------------------------------------------------

NESTED = ("chunks", "citations", "facts", "gold", "latency", "timings", "tokens", "metadata")


def cell(name: str, value: Any) -> Any:
    """What a cell of a table holds: numbers, and lists and objects as JSON or as Python prints them."""
    if not isinstance(value, str):
        return _list(value) if not isinstance(value, (int, float, bool)) else value
    if name == "turn" or name.startswith(("tokens.", "latency.")) or name == "latency":
        number = _number(value)
        if number is not None:
            return number
    if name in NESTED or name.startswith(("chunks.", "gold.")):
        return _literal(value)
    if name == "reference":
        found = _literal(value)
        return found if isinstance(found, list) and all(isinstance(part, str) for part in found) else value
    return value


def _list(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _number(text: str) -> int | float | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() and "e" not in text.lower() else number


def _literal(text: str) -> Any:
    """The list or object that a text is, else the text itself."""
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


def clean(value: Any, depth: int = 0) -> Any:
    """Plain objects that JSON can hold: no NaN, text for keys, not nested without end."""
    if depth > DEPTH:
        raise Wrong(f"nested more than {DEPTH} levels deep - at `$.metadata`")
    if isinstance(value, dict):
        return {str(key): clean(part, depth + 1) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(part, depth + 1) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int)):
        return value
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return str(value)
