"""Records of evaluation sets: made sets, rejected items, and names of the kinds of questions."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from ragfault.model.records import Trace, Usage

QuestionKind = Literal[
    "extractive",
    "factoid",
    "definition",
    "list",
    "table",
    "comparison",
    "two-passage",
    "abstract",
    "unanswerable",
    "false premise",
    "ambiguous",
]
"""Kinds of questions."""
QUESTION_KINDS: tuple[QuestionKind, ...] = get_args(QuestionKind)

DEFAULT_MIX: dict[QuestionKind, float] = {
    "extractive": 0.64, "definition": 0.08, "list": 0.05, "table": 0.05, "comparison": 0.04, "unanswerable": 0.08,
    "false premise": 0.03, "ambiguous": 0.03,
}  # fmt: skip
"""Shares of the kinds in a set; what a corpus has too little of is made up by extractive questions."""

MODEL_KINDS: tuple[QuestionKind, ...] = ("extractive", "two-passage", "abstract")
"""Kinds that a language model words, where there is one; "two-passage" and "abstract" need one."""
MODEL_MIX: dict[QuestionKind, float] = DEFAULT_MIX | {"extractive": 0.4, "two-passage": 0.12, "abstract": 0.12}
"""Shares of the kinds in a set that a language model words."""


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
