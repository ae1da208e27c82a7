"""Records of evaluation sets: made sets, rejected items, and names of the kinds of questions."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from ragfault.model.records import Trace, Usage

QuestionKind = Literal["keywords", "cloze", "extractive", "two-passage", "abstract", "unanswerable"]
"""Kinds of items: the first two are retrieval probes, made without a model; the others questions of a model."""
QUESTION_KINDS: tuple[QuestionKind, ...] = get_args(QuestionKind)
PROBE_KINDS: tuple[QuestionKind, ...] = ("cloze", "keywords")

PROBE_MIX: dict[QuestionKind, float] = {"cloze": 0.5, "keywords": 0.5}
"""Shares of the kinds in a set that is made without a model."""
MODEL_MIX: dict[QuestionKind, float] = {"extractive": 0.5, "two-passage": 0.2, "abstract": 0.2, "unanswerable": 0.1}
"""Shares of the kinds in a set whose questions a language model writes."""


class RejectedItem(Struct, frozen=True, kw_only=True):
    """A question that was written and left out."""

    query: str
    """Empty for a passage that no question was written about."""
    kind: QuestionKind
    document: str
    reason: str


class TestsetResult(Struct, frozen=True, kw_only=True):
    """A made evaluation set, and what was left out of it."""

    # not a class of tests
    __test__ = False

    items: tuple[Trace, ...]
    rejected: tuple[RejectedItem, ...]
    requested: int
    counts: dict[str, int]
    """Kind of question → number of items."""
    notes: tuple[str, ...]
    """Reasons of a number or a mix other than was asked for."""
    usage: Usage | None = None
    """Calls of the language model; None without one."""
