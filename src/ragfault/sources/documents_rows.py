"""Documents out of the records of JSON files and tables, and what Markdown says about itself at its head."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ragfault.records import Document
from ragfault.sources.values import Wrong, clean

__all__ = ["TEXTS", "Head", "conversation", "decode", "document", "front_matter", "text_column"]

IDS = ("id", "_id", "doc_id", "docid", "document_id")
TEXTS = ("text", "content", "page_content", "body", "passage")
"""The columns that may hold the text of a document, the first that is there."""
TURNS = ("messages", "turns", "conversation")
SPEAKERS = ("role", "speaker", "sender", "name", "from")

FENCE = re.compile(r"(?:---|\.\.\.)[ \t]*")
PAIR = re.compile(r"([A-Za-z_][\w .-]{0,80}?)[ \t]*:(?:[ \t]+(.*))?")
NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,15})(\.\d{1,15})?")
WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}


# --- records ---------------------------------------------------------------------------------------


def decode(line: bytes) -> dict[str, Any]:
    """The object that a piece of JSON is; raises `Wrong` where it is none."""
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except UnicodeDecodeError as error:
        raise Wrong(f"invalid UTF-8 at byte {error.start + 1}") from None
    except msgspec.ValidationError as error:
        raise Wrong(str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Wrong(f"malformed JSON: {error}") from None


def text_column(columns: Sequence[str] | Mapping[str, Any], wanted: str | None = None) -> str | None:
    """The column that holds the text: the one that is wanted, else the first of those that usually do.

    >>> text_column(["id", "body", "date"]), text_column(["id", "body"], "date")
    ('body', None)
    """
    return next((name for name in ((wanted,) if wanted else TEXTS) if name in columns), None)


def document(record: Mapping[str, Any], name: str, wanted: str | None = None) -> Document:
    """The document that a record is; `name` is its id where it has none.

    Columns of no other use are metadata. Raises `Wrong` where there is no text.
    """
    rest = dict(record)
    named = next((str(rest.pop(key)) for key in IDS if _named(rest.get(key))), name)
    title = rest.pop("title", None)
    metadata = rest.pop("metadata", None) or {}
    if not isinstance(metadata, dict):
        rest["metadata"], metadata = metadata, {}
    text = _text(rest, wanted)
    held = {key: value for key, value in {**metadata, **rest}.items() if value is not None}
    return Document(
        id=named, text=text, title=str(title) if title else None, metadata=clean(held) if held else {}
    )


def _named(value: Any) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool) and value != ""


def _text(rest: dict[str, Any], wanted: str | None) -> str:
    """Take the text out of the columns of a record."""
    column = text_column(rest, wanted)
    if column is None:
        turns = next((key for key in TURNS if conversation(rest.get(key))), None) if wanted is None else None
        if turns is None:
            raise Wrong(
                f"there is no text: none of its columns is {' or '.join((wanted,) if wanted else TEXTS)}"
            )
        return conversation(rest.pop(turns)) or ""
    text = rest.pop(column)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise Wrong(f"the column `{column}` is no text but {type(text).__name__}")
    return text


def conversation(turns: Any) -> str | None:
    """The turns of a chat as text, one paragraph each; None where these are no turns.

    >>> print(conversation([{"role": "user", "content": "Any dogs?"}, {"role": "agent", "content": "On a lead."}]))
    user: Any dogs?
    <BLANKLINE>
    agent: On a lead.
    """
    if not isinstance(turns, list) or not turns:
        return None
    said: list[str] = []
    for turn in turns:
        who = next((turn[key] for key in SPEAKERS if key in turn), None) if isinstance(turn, dict) else None
        what = turn.get(text_column(turn) or "") if isinstance(turn, dict) else None
        if not isinstance(who, str) or not isinstance(what, str):
            return None
        said.append(f"{who}: {what.strip()}")
    return "\n\n".join(said)


# --- the head of Markdown --------------------------------------------------------------------------


class Head(NamedTuple):
    """What stands at the head of a Markdown file."""

    metadata: dict[str, Any]
    end: int
    """Where the text begins behind it."""
    strange: tuple[str, ...] = ()
    """Lines of it that are no `key: value`."""


def front_matter(text: str) -> Head:
    """The front matter of a Markdown text: lines `key: value` between two lines `---` at its very beginning.

    Numbers, true, false, `[lists, of, words]` and lists of lines `- word` are taken as such, all else as text. Nothing
    is taken where the second line of dashes is missing, or where no line is a pair.

    >>> front_matter("---\\nlanguage: en\\nyear: 2024\\ntags: [fares, dogs]\\n---\\n# Fares\\n")
    Head(metadata={'language': 'en', 'year': 2024, 'tags': ['fares', 'dogs']}, end=52, strange=())
    """
    nothing = Head({}, 0)
    if not text.startswith("---"):
        return nothing
    found: dict[str, Any] = {}
    strange: list[str] = []
    key, place, first = "", 0, True
    while place < len(text):
        stop = text.find("\n", place)
        stop = len(text) if stop < 0 else stop
        line = text[place:stop].rstrip()
        place = min(stop + 1, len(text))
        if FENCE.fullmatch(line):
            if not first:
                return Head(found, place, tuple(strange)) if found else nothing
        elif first:
            return nothing
        else:
            key = _line(line, key, found, strange)
        first = False
    return nothing


def _line(line: str, key: str, found: dict[str, Any], strange: list[str]) -> str:
    """Take one line in, and return the key that items of a list below it belong to."""
    pair = PAIR.fullmatch(line)
    if pair:
        found[pair[1]] = _value(pair[2] or "")
        return pair[1]
    item = line.strip()
    if key and item.startswith("- ") and (found[key] is None or isinstance(found[key], list)):
        found[key] = [*(found[key] or []), _value(item[2:])]
    elif item and not item.startswith("#"):
        strange.append(item)
    return key


def _value(text: str) -> Any:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    if text.startswith("[") and text.endswith("]"):
        return [_value(part) for part in text[1:-1].split(",") if part.strip()]
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    number = NUMBER.fullmatch(text)
    if number:
        return float(text) if number[1] else int(text)
    return text
