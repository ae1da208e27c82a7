"""Shapes: what a reply holds, field by field, and its JSON schema."""

from __future__ import annotations

from functools import cache
from types import GenericAlias
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ragfault.judges.llm.prompts import CATEGORIES
from ragfault.records import Support

__all__ = [
    "FIELDS",
    "FREE",
    "AspectItem",
    "ChunkItem",
    "CitationItem",
    "ClaimItem",
    "FactItem",
    "HarmItem",
    "Item",
    "PassageItem",
    "StatementItem",
    "TruthItem",
    "UseItem",
    "schema",
]

TruthStatus = Literal["supported", "contradicted", "unknown"]


class Item(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is said of the thing with an id."""

    id: str


class ChunkItem(Item, frozen=True, kw_only=True):
    """A grade of a chunk."""

    reason: str
    relevance: float


class StatementItem(Item, frozen=True, kw_only=True):
    """Whether the chunks cover an expected statement, and the words that do."""

    chunk: str
    quote: str
    covered: bool


class ClaimItem(Item, frozen=True, kw_only=True):
    """How the chunks stand to a claim; the words that decide it come first, and then the verdict."""

    chunk: str
    quote: str
    reason: str
    support: Support
    p: float


class UseItem(Item, frozen=True, kw_only=True):
    """Whether the answer used a chunk."""

    used: bool


class CitationItem(Item, frozen=True, kw_only=True):
    """Whether the cited chunk supports the claim."""

    supports: bool
    p: float


class FactItem(Item, frozen=True, kw_only=True):
    """Whether an expected fact is in the answer."""

    present: bool
    contradicted: bool


class TruthItem(Item, frozen=True, kw_only=True):
    """How the references stand to a claim."""

    status: TruthStatus


class PassageItem(Item, frozen=True, kw_only=True):
    """The relevance of a passage, in quick."""

    relevance: float


class AspectItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the things that a query asks for."""

    text: str
    answered: bool


class HarmItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of harm, and how strong it is."""

    category: Literal[CATEGORIES]  # type: ignore[valid-type]
    score: float


FIELDS: dict[str, type[Item]] = {
    "chunks": ChunkItem,
    "statements": StatementItem,
    "claims": ClaimItem,
    "used": UseItem,
    "citations": CitationItem,
    "facts": FactItem,
    "truth": TruthItem,
    "passages": PassageItem,
}
"""Fields that have one entry for each id."""

FREE: dict[str, Any] = {
    "missing": list[str],
    "aspects": list[AspectItem],
    "relevance": float,
    "refused": bool,
    "harm": list[HarmItem],
    "questions": list[str],
    "noncommittal": bool,
}
"""Fields that go by no id."""


@cache
def schema(fields: tuple[str, ...]) -> dict[str, Any]:
    """The JSON schema of a reply with these fields, in this order: strict, and nothing in it refers elsewhere.

    >>> schema(("missing",)) == {
    ...     "type": "object",
    ...     "properties": {"missing": {"type": "array", "items": {"type": "string"}}},
    ...     "required": ["missing"],
    ...     "additionalProperties": False,
    ... }
    True
    """
    held = [(name, _kind(name)) for name in fields]
    made = msgspec.json.schema(msgspec.defstruct("Reply", held, forbid_unknown_fields=True))
    whole: dict[str, Any] = _inlined(made, made["$defs"])
    return whole


def _kind(name: str) -> Any:
    """The type of the values of a field."""
    return GenericAlias(list, (FIELDS[name],)) if name in FIELDS else FREE[name]


def _inlined(node: Any, defined: dict[str, Any]) -> Any:
    """A schema with what it refers to in its place, and without titles and descriptions of ours."""
    if isinstance(node, list):
        return [_inlined(one, defined) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inlined(defined[node["$ref"].rpartition("/")[2]], defined)
    kept = {key: value for key, value in node.items() if key not in {"$defs", "title", "description"}}
    if "enum" in kept:
        kept["type"] = "string"
    if "properties" in kept:
        kept["properties"] = {key: _inlined(value, defined) for key, value in kept["properties"].items()}
    return {key: value if key == "properties" else _inlined(value, defined) for key, value in kept.items()}
