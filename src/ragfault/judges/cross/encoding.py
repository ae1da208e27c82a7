"""Encoding: two texts as one row of tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["CLAIM", "EVIDENCE", "PASSAGE", "QUERY", "Pair", "pair", "pieces"]

START, END = 101, 102
"""The tokens that open a row and end each text."""
CLAIM, EVIDENCE = 64, 120
"""At most so many tokens of a claim and of its evidence are read."""
QUERY, PASSAGE = 40, 128
"""At most so many tokens of a query and of a stretch of a passage are read."""


class Pair(NamedTuple):
    """Two texts as one row: the first, its end, then the others, each with an end."""

    ids: tuple[int, ...]
    first: int
    """How many tokens the first text takes, with the opening and its end."""
    spans: tuple[tuple[int, int], ...]
    """Where the tokens of the first text stand in it."""


def pair(tokenizer: Tokenizer, one: str, others: Iterable[str], room: int, rest: int) -> Pair:
    """One text and those it is read against, cut to `room` and `rest` tokens."""
    seen = tokenizer.encode(one, add_special_tokens=False)
    ids = seen.ids[:room]
    against: list[int] = []
    for text in others:
        against += [*tokenizer.encode(text, add_special_tokens=False).ids, END]
        if len(against) >= rest:
            break
    return Pair((START, *ids, END, *against[:rest]), len(ids) + 2, tuple(seen.offsets[:room]))


def pieces(tokenizer: Tokenizer, texts: Iterable[str], room: int) -> list[str]:
    """Texts put together to stretches of at most `room` tokens; a longer text is cut.

    A stretch ends where a text ends, so that none is torn but those that are too long.
    """
    found: list[str] = []
    held: list[str] = []
    used = 0
    for text in texts:
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        if held and used + len(offsets) > room:
            found.append(" ".join(held))
            held, used = [], 0
        while len(offsets) > room:
            found.append(text[offsets[0][0] : offsets[room - 1][1]])
            offsets = offsets[room:]
        if offsets:
            held.append(text[offsets[0][0] :])
            used += len(offsets)
    return [*found, " ".join(held)] if held else found
