"""Windows: long passages in stretches that a model can read at once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ragfault.judges.index import Passage
from ragfault.text import sentences

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Window", "cut", "windows"]

LONGEST = 200_000
"""How many characters of a passage are read."""
OVERLAP = 4
"""Of a long passage each stretch says the last part of the one before it again, one part in so many."""


class Window(NamedTuple):
    """A stretch of text that is read at once."""

    text: str
    parts: tuple[tuple[int, int, int], ...]
    """The passages it is made of: number, start, end."""


def windows(tokenizer: Tokenizer, passages: Sequence[Passage], room: int) -> list[Window]:
    """Passages put together as long as they fit into `room` tokens; a longer one is cut.

    Cuts are between sentences where they can be, and each stretch says the last part of the one before it again.

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> split = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    >>> split.pre_tokenizer = pre_tokenizers.Whitespace()
    >>> passages = [Passage("a", "one two"), Passage("b", "three"), Passage("c", "1 2 3 4 5 6")]
    >>> [window.text for window in windows(split, passages, 4)]
    ['one two\\nthree', '1 2 3 4', '4 5 6']
    """
    found: list[Window] = []
    parts: list[tuple[int, int, int]] = []
    used = 0

    def close() -> None:
        if parts:
            texts = (passages[number].text[start:end] for number, start, end in parts)
            found.append(Window("\n".join(texts), tuple(parts)))
            parts.clear()

    for number, passage in enumerate(passages):
        text = passage.text[:LONGEST]
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        if used + len(offsets) > room:
            close()
            used = 0
        for begin, end in _stretches(text, offsets, room):
            if len(offsets) > room:
                close()
                used = 0
            parts.append((number, offsets[begin][0], offsets[end - 1][1]))
            used += end - begin
    close()
    return found


def _stretches(text: str, offsets: Sequence[tuple[int, int]], room: int) -> Iterator[tuple[int, int]]:
    """Where a text is cut: the first token of each stretch, and the one after its last."""
    begin, size = 0, len(offsets)
    if size > room:
        lefts = [left for left, _ in offsets]
        opens = sorted({bisect_left(lefts, start) for start, _ in sentences(text)})
    while size - begin > room:
        last = bisect_right(opens, begin + room) - 1
        end = opens[last] if last >= 0 and opens[last] > begin + room // 2 else begin + room
        yield begin, end
        again = bisect_left(opens, end - room // OVERLAP)
        begin = opens[again] if again < len(opens) and opens[again] <= end else end - room // OVERLAP
    if size > begin:
        yield begin, size


def cut(tokenizer: Tokenizer, text: str, room: int) -> str:
    """The first `room` tokens of a text."""
    offsets = tokenizer.encode(text[:LONGEST], add_special_tokens=False).offsets
    return text[: offsets[room - 1][1]] if len(offsets) > room else text
