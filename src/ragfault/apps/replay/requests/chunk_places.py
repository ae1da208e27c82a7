"""Where the chunks of a trace stand in the request that its generator got."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ragfault.apps.replay.requests.encodings import READERS, DecodedText, compact, read_plain
from ragfault.model.errors import RagfaultError
from ragfault.model.records import Chunk, ConversationTurn

LEAST_UNIQUE = 24
"""Visible characters from which a second place of a passage is no coincidence."""


class RequestRefused(RagfaultError):
    """A recorded request in which the chunks cannot be changed exactly; the message says why."""


class ChunkPlace(NamedTuple):
    """The stretch of a message that is the text of a chunk."""

    message: int
    start: int
    end: int
    chunk: int
    """Place of the chunk in the trace, from 0."""


class LocatedChunks(NamedTuple):
    """Every chunk of a trace in its request."""

    encoding: str
    places: tuple[ChunkPlace, ...]
    """In the order of the request."""


def locate_chunks(messages: Sequence[ConversationTurn], chunks: Sequence[Chunk]) -> LocatedChunks:
    """Locate every chunk in the messages, character by character; white space and escapes may differ.

    Raises RequestRefused where a chunk is not located exactly, or a second time.

    >>> request = [ConversationTurn(role="user", text="Context:\\n[1] At ten.\\n[2] Daily.\\nWhen?")]
    >>> located = locate_chunks(request, [Chunk(id="a", text="At ten."), Chunk(id="b", text="Daily.")])
    >>> [(place.start, place.end) for place in located.places]
    [(13, 20), (25, 31)]
    """
    if not messages:
        raise RequestRefused("the trace does not record the request to the model (messages)")
    if not chunks:
        raise RequestRefused("the request shows no chunk, so the place of chunks in it is not known")
    blank = next((place for place, chunk in enumerate(chunks) if not chunk.text.strip()), None)
    if blank is not None:
        raise RequestRefused(f"chunk {blank + 1} ({chunks[blank].id}) has no text")
    best: list[int] | None = None
    for encoding, read in READERS.items():
        views = [compact(read(read_plain(message.text))) for message in messages]
        placed = _place_chunks(views, chunks)
        absent = [place for place, item in enumerate(placed) if item is None]
        if not absent:
            return LocatedChunks(encoding, tuple(sorted(item for item in placed if item is not None)))
        best = absent if best is None or len(absent) < len(best) else best
    assert best is not None
    raise RequestRefused(_describe_absent(best, chunks, messages))


def _describe_absent(absent: Sequence[int], chunks: Sequence[Chunk], messages: Sequence[ConversationTurn]) -> str:
    first = absent[0]
    beginning = compact(read_plain(chunks[first].text)).text[:LEAST_UNIQUE]
    is_cut = any(beginning in compact(read_plain(message.text)).text for message in messages)
    reason = "only its beginning is in the request" if is_cut and len(absent) == 1 else "not in the request as recorded"
    others = f", nor {len(absent) - 1} more" if len(absent) > 1 else ""
    return f"chunk {first + 1} of {len(chunks)} ({chunks[first].id}) is {reason}{others}"


def _place_chunks(views: Sequence[DecodedText], chunks: Sequence[Chunk]) -> list[ChunkPlace | None]:
    """Place each chunk, the longest first, so that one that is a part of another is not taken for it.

    Raises RequestRefused for a chunk that stands in more places than there are chunks with its text.
    """
    texts = [compact(read_plain(chunk.text)).text for chunk in chunks]
    taken: list[tuple[int, int, int]] = []
    result: list[ChunkPlace | None] = [None] * len(chunks)
    for text in sorted(set(texts), key=lambda text: (-len(text), texts.index(text))):
        same_text = [place for place, other in enumerate(texts) if other == text]
        free = [
            (number, start, start + len(text))
            for number, view in enumerate(views)
            for start in _find_all(view.text, text)
            if not any(number == other and start < end and begin < start + len(text) for other, begin, end in taken)
        ]
        if len(free) > len(same_text):
            free = _choose_near(free, taken, len(same_text), text, chunks[same_text[0]])
        for place, (number, start, end) in zip(same_text, free, strict=False):
            taken.append((number, start, end))
            view = views[number]
            result[place] = ChunkPlace(number, view.starts[start], view.ends[end - 1], place)
    return result


def _find_all(text: str, part: str) -> list[int]:
    places, at = [], text.find(part)
    while at >= 0:
        places.append(at)
        at = text.find(part, at + len(part))
    return places


def _choose_near(
    free: list[tuple[int, int, int]], taken: Sequence[tuple[int, int, int]], count: int, text: str, chunk: Chunk
) -> list[tuple[int, int, int]]:
    """Choose the places nearest to the other chunks, of a text so short that the others may be a coincidence."""
    if len(text) >= LEAST_UNIQUE or not taken:
        raise RequestRefused(f"the text of chunk {chunk.id} stands in the request {len(free)} times")

    def measure_distance(item: tuple[int, int, int]) -> int:
        gaps = [abs(item[1] - end) for number, _, end in taken if number == item[0]]
        gaps += [abs(begin - item[2]) for number, begin, _ in taken if number == item[0]]
        return min(gaps, default=1 << 30)

    ordered = sorted(free, key=measure_distance)
    if measure_distance(ordered[count - 1]) == measure_distance(ordered[count]):
        raise RequestRefused(f"the text of chunk {chunk.id} stands in the request {len(free)} times")
    return sorted(ordered[:count])
