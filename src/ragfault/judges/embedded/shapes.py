"""Shapes: the kinds of text that are judged, each calibrated apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, get_args

from ragfault.judges.relevance import TASK

__all__ = ["SHAPES", "Shape", "shape"]

Shape = Literal["answer", "claim", "dialogue", "record", "summary"]
SHAPES: tuple[Shape, ...] = get_args(Shape)

SPOKEN = re.compile(
    r"\b(?:i|i'm|i've|i'd|me|my|you|your|you're|we|our|yeah|wow|haha|lol|hey|hi)\b", re.IGNORECASE
)
ASKS = re.compile(
    r"\s*(?:wh\w+|how|is|are|was|were|do|does|did|can|could|should|would|will|has|have|tell|explain|define|list|name)\b",
    re.IGNORECASE,
)


def shape(query: str, claims: Sequence[str], records: float) -> Shape:
    """The shape of what is judged: by its query, its claims, and the share of the passages that are records.

    A summary is asked for; a reply in a dialogue answers no question, and one of the two sides says "I" or "you";
    a claim stands alone; structured data are records; all else is an answer.

    >>> shape("Summarize the report.", ["It rained.", "It snowed."], 0.0)
    'summary'
    >>> shape("i love skiing, my whole family goes", ["It was invented in Norway."], 0.0)
    'dialogue'
    """
    if records > 0.25:
        return "record"
    if TASK.match(query):
        return "summary"
    asked = query.rstrip().endswith("?") or ASKS.match(query) is not None
    if query and not asked and len(claims) < 4 and (SPOKEN.search(query) or any(map(SPOKEN.search, claims))):
        return "dialogue"
    return "claim" if len(claims) == 1 else "answer"
