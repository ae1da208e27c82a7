"""Instructions for each kind of call, and the JSON schema of its reply."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from types import GenericAlias
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ragfault.judges.domain.profile import DomainProfile
from ragfault.judges.llm.transport.calls import CallKind
from ragfault.records import ClaimSupport

HARM_CATEGORIES = (
    "hate",
    "harassment",
    "violence",
    "self-harm",
    "sexual",
    "crime",
    "privacy",
    "dangerous advice",
)
"""The kinds of harm that are asked about."""
CATEGORIES_PLACEHOLDER = "CATEGORIES"
"""Stands in a file where the kinds of harm go."""


class PromptSet(Struct, frozen=True, kw_only=True):
    """The instructions for each kind of call, and the lens that had its say in them.

    >>> prompts = load_prompts(DomainProfile(name="general"))
    >>> prompts.retrieval.split(":")[0], len(prompts.digest)
    ('You grade what a search found for a query', 8)
    """

    retrieval: str
    generation: str
    questions: str
    relevance: str
    profile: DomainProfile

    @property
    def digest(self) -> str:
        """Of all instructions, for a judge's fingerprint."""
        texts = (self.retrieval, self.generation, self.questions, self.relevance)
        return hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()[:8]

    def instructions(self, kind: CallKind) -> str:
        """The instructions for one kind of call: they come first and are the same for every trace."""
        text: str = getattr(self, kind)
        return text


def load_prompts(profile: DomainProfile) -> PromptSet:
    """The prompts of the package, with what a lens says in addition or instead.

    The guidance of the lens stands at the end of the instructions wherever something is judged; the questions that an
    answer answers are asked for without it.
    """
    own = profile.prompts
    return PromptSet(
        retrieval=_append_guidance(own.retrieval or _read_prompt("retrieval"), own.guidance),
        generation=_append_guidance(own.generation or _read_prompt("generation"), own.guidance),
        questions=_read_prompt("questions"),
        relevance=_append_guidance(_read_prompt("relevance"), own.guidance),
        profile=profile,
    )


def _append_guidance(text: str, guidance: str) -> str:
    """Instructions with what matters in the domain at their end."""
    return f"{text.strip()}\n\nOf this domain: {guidance.strip()}" if guidance.strip() else text.strip()


@cache
def _read_prompt(name: str) -> str:
    """A prompt as it stands in its file."""
    text = files("ragfault.judges.llm").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
    return text.replace(CATEGORIES_PLACEHOLDER, ", ".join(HARM_CATEGORIES)).strip()


TruthStatus = Literal["supported", "contradicted", "unknown"]


class ReplyItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is said of the thing with an id."""

    id: str


class ChunkItem(ReplyItem, frozen=True, kw_only=True):
    """A grade of a chunk."""

    reason: str
    relevance: float


class StatementItem(ReplyItem, frozen=True, kw_only=True):
    """Whether the chunks cover an expected statement, and the words that do."""

    chunk: str
    quote: str
    covered: bool


class ClaimItem(ReplyItem, frozen=True, kw_only=True):
    """How the chunks stand to a claim; the words that decide it come first, and then the verdict."""

    chunk: str
    quote: str
    reason: str
    support: ClaimSupport
    p: float


class UseItem(ReplyItem, frozen=True, kw_only=True):
    """Whether the answer used a chunk."""

    used: bool


class CitationItem(ReplyItem, frozen=True, kw_only=True):
    """Whether the cited chunk supports the claim."""

    supports: bool
    p: float


class FactItem(ReplyItem, frozen=True, kw_only=True):
    """Whether an expected fact is in the answer."""

    present: bool
    contradicted: bool


class TruthItem(ReplyItem, frozen=True, kw_only=True):
    """How the references stand to a claim."""

    status: TruthStatus


class PassageItem(ReplyItem, frozen=True, kw_only=True):
    """The relevance of a passage, in quick."""

    relevance: float


class AspectItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the things that a query asks for."""

    text: str
    answered: bool


class HarmItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of harm, and how strong it is."""

    category: Literal[HARM_CATEGORIES]  # type: ignore[valid-type]
    score: float


ITEM_FIELDS: dict[str, type[ReplyItem]] = {
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

PLAIN_FIELDS: dict[str, Any] = {
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
def build_schema(fields: tuple[str, ...]) -> dict[str, Any]:
    """The JSON schema of a reply with these fields, in this order: strict, and nothing in it refers elsewhere.

    >>> build_schema(("missing",)) == {
    ...     "type": "object",
    ...     "properties": {"missing": {"type": "array", "items": {"type": "string"}}},
    ...     "required": ["missing"],
    ...     "additionalProperties": False,
    ... }
    True
    """
    held = [(name, _field_type(name)) for name in fields]
    made = msgspec.json.schema(msgspec.defstruct("Reply", held, forbid_unknown_fields=True))
    whole: dict[str, Any] = _inline_refs(made, made["$defs"])
    return whole


def _field_type(name: str) -> Any:
    """The type of the values of a field."""
    return GenericAlias(list, (ITEM_FIELDS[name],)) if name in ITEM_FIELDS else PLAIN_FIELDS[name]


def _inline_refs(node: Any, definitions: dict[str, Any]) -> Any:
    """A schema with what it refers to in its place, and without titles and descriptions of ours."""
    if isinstance(node, list):
        return [_inline_refs(one, definitions) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline_refs(definitions[node["$ref"].rpartition("/")[2]], definitions)
    kept = {key: value for key, value in node.items() if key not in {"$defs", "title", "description"}}
    if "enum" in kept:
        kept["type"] = "string"
    if "properties" in kept:
        kept["properties"] = {
            key: _inline_refs(value, definitions) for key, value in kept["properties"].items()
        }
    return {
        key: value if key == "properties" else _inline_refs(value, definitions) for key, value in kept.items()
    }
