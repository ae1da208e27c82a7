"""What passes through a retrieval pipeline: a query as it is searched for, and the chunks found so far."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ragfault.records import Chunk

__all__ = ["Condition", "Found", "Hits", "Query", "Stage"]

Hits = tuple[Chunk, ...]
"""Chunks in the order of their rank, the best first, each with the `score` that the last stage gave it."""


class Condition(Struct, frozen=True):
    """What the metadata of a chunk must say."""

    field: str
    """A key of the metadata, or "document" or "kind"."""
    test: Literal["is", "in", "from", "to", "holds"]
    """Equal to the value; one of the values; at least; at most (numbers and ISO dates); a list that holds the value."""
    value: Any
    inferred: bool = False
    """Whether it was read out of the query rather than asked for."""


class Query(Struct, frozen=True, kw_only=True):
    """A query as it is searched for."""

    text: str
    """As the user asked it."""
    forms: tuple[str, ...] = ()
    """What is searched for in its place: rewritten, expanded, or its parts; none: the text itself."""
    conditions: tuple[Condition, ...] = ()
    """What chunks must meet; applied before the search."""
    route: str | None = None
    """What it is about, as a router saw it."""
    user: tuple[str, ...] | None = None
    """The groups of whoever asks, for permissions; None: whoever may read everything."""
    time: datetime | None = None
    """When it was asked; what is not valid then is not found."""
    notes: tuple[str, ...] = ()
    """What stages have to say: that no chunk meets the conditions, that a rewrite failed. They end in the trace."""

    failed: tuple[str, ...] = ()
    """Those of the notes that tell of a stage that failed, and handed on what it was given."""

    def failing(self, said: str) -> Query:
        """The query with a note that a stage failed.

        >>> Query(text="?").failing("no answer").notes
        ('no answer',)
        """
        return replace(self, notes=(*self.notes, said), failed=(*self.failed, said))

    @property
    def searched(self) -> tuple[str, ...]:
        """What is searched for: the forms, else the text."""
        return self.forms or (self.text,)


class Found(NamedTuple):
    """The state that the stages hand on."""

    query: Query
    hits: Hits = ()


Stage = Callable[[Query, Hits], Found]
"""A step of a pipeline: a plain callable that takes the query and what was found so far, and returns both."""
