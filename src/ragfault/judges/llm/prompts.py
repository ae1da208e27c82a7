"""Prompts: what a model is told, from short files of their own and from the lens."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from msgspec import Struct

from ragfault.judges.lens import Lens
from ragfault.judges.llm.calls import Kind

__all__ = ["CATEGORIES", "Prompts", "load_prompts"]

CATEGORIES = (
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
LISTED = "CATEGORIES"
"""Stands in a file where the kinds of harm go."""


class Prompts(Struct, frozen=True, kw_only=True):
    """The instructions for each kind of call, and the lens that had its say in them.

    >>> prompts = load_prompts(Lens(name="general"))
    >>> prompts.retrieval.split(":")[0], len(prompts.digest)
    ('You grade what a search found for a query', 8)
    """

    retrieval: str
    generation: str
    questions: str
    relevance: str
    lens: Lens

    @property
    def digest(self) -> str:
        """Of all instructions, for a judge's fingerprint."""
        texts = (self.retrieval, self.generation, self.questions, self.relevance)
        return hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()[:8]

    def told(self, kind: Kind) -> str:
        """The instructions for one kind of call: they come first and are the same for every trace."""
        text: str = getattr(self, kind)
        return text


def load_prompts(lens: Lens) -> Prompts:
    """The prompts of the package, with what a lens says in addition or instead.

    The guidance of the lens stands at the end of the instructions wherever something is judged; the questions that an
    answer answers are asked for without it.
    """
    own = lens.prompts
    return Prompts(
        retrieval=_guided(own.retrieval or _file("retrieval"), own.guidance),
        generation=_guided(own.generation or _file("generation"), own.guidance),
        questions=_file("questions"),
        relevance=_guided(_file("relevance"), own.guidance),
        lens=lens,
    )


def _guided(text: str, guidance: str) -> str:
    """Instructions with what matters in the domain at their end."""
    return f"{text.strip()}\n\nOf this domain: {guidance.strip()}" if guidance.strip() else text.strip()


@cache
def _file(name: str) -> str:
    """A prompt as it stands in its file."""
    text = files("ragfault.judges.llm").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
    return text.replace(LISTED, ", ".join(CATEGORIES)).strip()
