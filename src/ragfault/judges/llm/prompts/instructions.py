"""Instructions for each kind of call, and the JSON schema of its reply."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from types import GenericAlias
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ragfault.judges.checks.answers import TruthStatus
from ragfault.judges.domain.profile import DomainProfile
from ragfault.judges.llm.transport.reply_cache import CallKind
from ragfault.model.records import ClaimSupport
from ragfault.model.rubrics import Rubric, RubricExample

HARM_CATEGORIES = ("hate", "harassment", "violence", "self-harm", "sexual", "crime", "privacy", "dangerous advice")
"""Kinds of harm to look for."""
CATEGORIES_PLACEHOLDER = "CATEGORIES"
"""Placeholder of these kinds in a prompt file."""


class PromptSet(Struct, frozen=True, kw_only=True):
    """Instructions for each kind of call, and the domain profile that they include.

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
        texts = (self.retrieval, self.generation, self.questions, self.relevance)
        return hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()[:8]

    def instructions(self, kind: CallKind) -> str:
        """Return the instructions for a kind of call: they come first and are the same for every trace."""
        text: str = getattr(self, kind)
        return text


def load_prompts(profile: DomainProfile, rubrics: Sequence[Rubric] = ()) -> PromptSet:
    """Load the packaged prompts with the replacements of a profile, and its guidance wherever something is judged.

    Rubrics follow the instructions on the answer.
    """
    overrides = profile.prompts
    return PromptSet(
        retrieval=_append_guidance(overrides.retrieval or _read_prompt("retrieval"), overrides.guidance),
        generation=_append_guidance(overrides.generation or _read_prompt("generation"), overrides.guidance)
        + describe_rubrics(rubrics),
        questions=_read_prompt("questions"),
        relevance=_append_guidance(_read_prompt("relevance"), overrides.guidance),
        profile=profile,
    )


def _append_guidance(text: str, guidance: str) -> str:
    return f"{text.strip()}\n\nOf this domain: {guidance.strip()}" if guidance.strip() else text.strip()


RUBRIC_INSTRUCTIONS = """

rubrics: for each rubric u1, u2, …, of the answer as a whole, with the query and the chunks in view
- reason: why, in at most 20 words
- value: the value of the level that describes the answer best, one of those of the rubric
"""


def describe_rubrics(rubrics: Sequence[Rubric]) -> str:
    """Describe rubrics to the model, each under an id; "" without any, so that other judges keep their prompts."""
    if not rubrics:
        return ""
    parts = []
    for number, item in enumerate(rubrics, 1):
        lines = [f"Rubric u{number}, {item.name}: {item.criterion}"]
        for level in item.levels:
            example = f" Example: {_quote(level.example)}" if level.example else ""
            lines.append(f"- value {level.value:g}: {level.description}.".replace("..", ".") + example)
        lines += [f"  {_describe_example(example)}" for example in item.examples]
        parts.append("\n".join(lines))
    return RUBRIC_INSTRUCTIONS + "\n" + "\n\n".join(parts)


def _describe_example(example: RubricExample) -> str:
    query = f"query {_quote(example.query)}, " if example.query else ""
    reason = f", because {example.reason}" if example.reason else ""
    return f"Judged by people: {query}answer {_quote(example.answer)}: value {example.value:g}{reason}"


def _quote(text: str) -> str:
    return msgspec.json.encode(" ".join(text.split())).decode()


@cache
def _read_prompt(name: str) -> str:
    text = files("ragfault.judges.llm").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
    return text.replace(CATEGORIES_PLACEHOLDER, ", ".join(HARM_CATEGORIES)).strip()


class ReplyItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reply about the item with an id."""

    id: str


class ChunkItem(ReplyItem, frozen=True, kw_only=True):
    """Grade of a chunk."""

    reason: str
    relevance: float


class StatementItem(ReplyItem, frozen=True, kw_only=True):
    """Coverage of an expected statement, with the quote."""

    chunk: str
    quote: str
    covered: bool


class ClaimItem(ReplyItem, frozen=True, kw_only=True):
    """Support of a claim; the quote comes first, so that it is chosen before the verdict."""

    chunk: str
    quote: str
    reason: str
    support: ClaimSupport
    p: float


class UseItem(ReplyItem, frozen=True, kw_only=True):
    """Use of a chunk by the answer."""

    used: bool


class CitationItem(ReplyItem, frozen=True, kw_only=True):
    """Support of a claim by the cited chunk."""

    supports: bool
    p: float


class FactItem(ReplyItem, frozen=True, kw_only=True):
    """Presence of an expected fact in the answer."""

    present: bool
    contradicted: bool


class TruthItem(ReplyItem, frozen=True, kw_only=True):
    """Support of a claim by the references."""

    status: TruthStatus


class RubricItem(ReplyItem, frozen=True, kw_only=True):
    """Value of the answer by a rubric."""

    reason: str
    value: float


class PassageItem(ReplyItem, frozen=True, kw_only=True):
    """Relevance of a passage."""

    relevance: float


class AspectItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Aspect of the query."""

    text: str
    answered: bool


class HarmItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Kind of harm and its strength."""

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
    "rubrics": RubricItem,
}
"""Fields with one entry per id."""

PLAIN_FIELDS: dict[str, Any] = {
    "missing": list[str],
    "aspects": list[AspectItem],
    "relevance": float,
    "refused": bool,
    "harm": list[HarmItem],
    "questions": list[str],
    "noncommittal": bool,
}
"""Fields without ids."""


@cache
def build_schema(fields: tuple[str, ...]) -> dict[str, Any]:
    """Build the strict JSON schema of a reply with these fields, in this order, without references.

    >>> build_schema(("missing",)) == {
    ...     "type": "object",
    ...     "properties": {"missing": {"type": "array", "items": {"type": "string"}}},
    ...     "required": ["missing"],
    ...     "additionalProperties": False,
    ... }
    True
    """
    types = [(name, _field_type(name)) for name in fields]
    schema = msgspec.json.schema(msgspec.defstruct("Reply", types, forbid_unknown_fields=True))
    inlined: dict[str, Any] = _inline_refs(schema, schema["$defs"])
    return inlined


def _field_type(name: str) -> Any:
    return GenericAlias(list, (ITEM_FIELDS[name],)) if name in ITEM_FIELDS else PLAIN_FIELDS[name]


def _inline_refs(node: Any, definitions: dict[str, Any]) -> Any:
    """Replace references by their definitions, and drop titles and descriptions."""
    if isinstance(node, list):
        return [_inline_refs(entry, definitions) for entry in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline_refs(definitions[node["$ref"].rpartition("/")[2]], definitions)
    inlined = {key: value for key, value in node.items() if key not in {"$defs", "title", "description"}}
    if "enum" in inlined:
        inlined["type"] = "string"
    if "properties" in inlined:
        inlined["properties"] = {key: _inline_refs(value, definitions) for key, value in inlined["properties"].items()}
    return {key: value if key == "properties" else _inline_refs(value, definitions) for key, value in inlined.items()}
