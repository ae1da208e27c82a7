"""Where a trace came from: the span that wrote its answer, so that what is found out about it can go back there."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ragfault.sources.spans.operation import Operation
from ragfault.sources.spans.outline import outlined

__all__ = ["Origin", "origin_of"]

RESPONSE = "gen_ai.response.id"


class Origin(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The span that a trace is about, and the response that it got."""

    span: str
    """16 hex digits."""
    response: str | None = None
    """What the provider of the model called it."""


def origin_of(operations: Iterable[Operation]) -> Origin:
    """The call to a model that ended last, outside of retrieval; where there is none, the root.

    >>> held = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "r1"}
    >>> chat = Operation(trace="a", id="2", parent="1", name="chat", attributes=held)
    >>> origin_of([Operation(trace="a", id="1", name="ask"), chat])
    Origin(span='2', response='r1')
    """
    outline = outlined(operations)
    writers = [step for step in outline.of("llm") if not {"retriever", "reranker"} & set(step.within)]
    if not writers:
        return Origin(span=outline.root.id)
    last = max(writers, key=lambda step: (step.operation.end, step.operation.start, step.operation.id))
    named = (part.attributes.get(RESPONSE) for part in last.parts)
    return Origin(
        span=last.operation.id,
        response=next((name for name in named if isinstance(name, str) and name), None),
    )
