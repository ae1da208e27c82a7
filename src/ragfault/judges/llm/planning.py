"""Planning: from a trace to the requests that are made of it, split where it is long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ragfault.judges.llm.calls import CallFailed, Kind
from ragfault.judges.llm.fences import Fenced, Line
from ragfault.judges.llm.matter import Cited, Matter, Shown
from ragfault.judges.llm.prompts import Prompts
from ragfault.judges.llm.reading import Wanted
from ragfault.judges.llm.requests import Request
from ragfault.judges.llm.settings import Settings
from ragfault.judges.llm.sizes import IMAGE, entries, packed, pieces, tokens, weight

__all__ = ["Piece", "Room", "everything", "generation", "retrieval", "room"]

LEAST = 250
"""So many tokens must be left for chunks, or a trace is too long to be judged."""
OTHER = 400
"""Tokens of a reply for all that goes by no id."""
ANSWER = ("aspects", "relevance", "refused", "harm")
"""What is asked of the answer as a whole."""


class Piece(NamedTuple):
    """A chunk, or a stretch of a long one, as it goes into a request."""

    shown: Shown
    text: Fenced

    @property
    def size(self) -> int:
        """About how many tokens it has."""
        return weight(self.text) + (IMAGE if self.shown.image else 0)


class Room(NamedTuple):
    """What there is room for, in tokens."""

    request: float
    """For texts."""
    reply: float
    """For entries by id."""

    def less(self, request: float, reply: float) -> Room:
        """What is left when some of it is taken; of a reply never less than for a few entries."""
        return Room(self.request - request, max(LEAST, self.reply - reply))


def retrieval(matter: Matter, settings: Settings, prompts: Prompts) -> list[list[Request]]:
    """The requests for what was retrieved: chains, each of which shows all chunks group by group.

    The first chain grades the chunks and asks what is missing; statements that do not fit beside that go into chains of
    their own. Raises CallFailed where the query leaves no room for a chunk.
    """
    if not matter.seen:
        return []
    head = [Fenced("query", matter.trace.query)]
    left = room("retrieval", head, settings, prompts)
    chunk, statement = entries(["chunks"]), entries(["statements"])
    expected = [one for each in matter.statements for one in each]
    rows = _rows(expected, left, statement, beside=chunk * len(matter.seen)) or [[]]
    most = max(map(len, rows))
    groups = _groups(matter.seen, left.less(max(map(_weight, rows)), statement * most), chunk)
    return [
        [_graded(head, group, row, first=number == 0) for group in groups] for number, row in enumerate(rows)
    ]


def everything(matter: Matter, settings: Settings) -> tuple[Wanted, Wanted]:
    """All that is asked about a trace: of what was retrieved, and of what was generated."""
    seen = tuple(one.name for one in matter.seen)
    upper: Wanted = {"chunks": seen, "missing": ()} if seen else {}
    if seen and any(matter.statements):
        upper["statements"] = tuple(one.name for each in matter.statements for one in each)
    if not (matter.trace.answer or "").strip():
        return upper, {}
    claims = tuple(f"s{number}" for number in range(1, len(matter.claims) + 1))
    known = bool(matter.facts or matter.references)
    lower: Wanted = {
        "claims": claims if seen else (),
        "used": seen,
        "citations": tuple(one.name for one in matter.cited if one.chunk and one.claim),
        "facts": tuple(one.name for one in matter.facts),
        "truth": claims if known else (),
    }
    return upper, {name: ids for name, ids in lower.items() if ids} | _whole(settings)


def generation(matter: Matter, settings: Settings, prompts: Prompts) -> list[Request]:
    """The requests for what was generated: each group of claims with each group of chunks.

    What needs the answer alone is asked with the first of them. Raises CallFailed where query, facts and references
    leave no room.
    """
    if not (matter.trace.answer or "").strip():
        return []
    known = [*matter.facts, *matter.references]
    beside = [Fenced(one.name, f"{one.claim} {one.citation.quote or ''}") for one in matter.cited]
    left = room("generation", [Fenced("query", matter.trace.query), *known, *beside], settings, prompts)
    left = left.less(0, entries(["facts"]) * len(matter.facts) + entries(["citations"]) * len(matter.cited))
    used, claim = entries(["used"]), entries(["claims", "truth"])
    rows = _answers(matter, left, claim, beside=used * len(matter.seen))
    most = max(len(row.claims) for row in rows)
    groups = _groups(matter.seen, left.less(max(_weight(row.shown) for row in rows), claim * most), used) or [
        []
    ]
    return [
        request
        for at, row in enumerate(rows)
        for place, group in enumerate(groups)
        if (request := _judged(matter, row, group, (at, place), _whole(settings))) is not None
    ]


# --- requests --------------------------------------------------------------------------------------


def _graded(head: Sequence[Fenced], group: Sequence[Piece], row: Sequence[Fenced], *, first: bool) -> Request:
    """Chunks to be graded, and statements that they may cover."""
    wanted: Wanted = {"chunks": _names(group), "missing": ()} if first else {}
    if row:
        wanted["statements"] = tuple(one.name for one in row)
    return Request("retrieval", wanted, (*head, *(one.text for one in group), *row), _images(group))


def _whole(settings: Settings) -> Wanted:
    """What is asked of the answer as a whole; its relevance not where it comes from questions that it answers."""
    return {name: () for name in ANSWER if name != "relevance" or not settings.reverse}


class Row(NamedTuple):
    """Some claims of an answer, and what is shown of it beside."""

    claims: tuple[str, ...]
    shown: tuple[Fenced, ...]


def _judged(
    matter: Matter, row: Row, group: Sequence[Piece], at: tuple[int, int], whole: Wanted
) -> Request | None:
    """Claims to be held against chunks; in the first request of all also what is asked of the answer as a whole."""
    seen, named = at[0] == 0, frozenset(_names(group))
    cited = [one for one in matter.cited if one.chunk in named and one.claim] if seen else []
    wanted: Wanted = {}
    if group and row.claims:
        wanted["claims"] = row.claims
    if group and seen:
        wanted["used"] = _names(group)
    if cited:
        wanted["citations"] = tuple(one.name for one in cited)
    if at == (0, 0) and matter.facts:
        wanted["facts"] = tuple(one.name for one in matter.facts)
    if at[1] == 0 and row.claims and (matter.facts or matter.references):
        wanted["truth"] = row.claims
    if at == (0, 0):
        wanted |= whole
    if not wanted:
        return None
    known = (*matter.facts, *matter.references) if "truth" in wanted or "facts" in wanted else ()
    parts = (
        Fenced("query", matter.trace.query),
        *(one.text for one in group),
        *row.shown,
        *(part for one in cited for part in _citation(one, row)),
        *known,
    )
    shown = sum(one.name != "answer" for one in row.shown)
    partial = frozenset(("claims", "truth")) if shown > len(row.claims) else frozenset()
    return Request("generation", wanted, parts, _images(group), partial)


def _citation(cited: Cited, row: Row) -> list[Fenced | Line]:
    """A citation: the claim that it stands by, by its id where it is in sight, and the words that it quotes."""
    known = cited.same is not None and any(piece.name == cited.same for piece in row.shown)
    said: list[Fenced | Line] = [
        Line(f"{cited.name}: {cited.same if known else 'the following'} cites {cited.chunk}")
    ]
    if not known:
        said.append(Fenced(cited.name, cited.claim))
    if cited.citation.quote and cited.citation.quote != cited.claim:
        said.append(Fenced(f"{cited.name}.quote", cited.citation.quote))
    return said


def _names(group: Sequence[Piece]) -> tuple[str, ...]:
    """The names of the chunks of a group, each once."""
    return tuple(dict.fromkeys(one.shown.name for one in group))


def _images(group: Sequence[Piece]) -> tuple[tuple[str, str], ...]:
    """The pictures of a group, each once."""
    return tuple({one.shown.name: one.shown.image for one in group if one.shown.image}.items())


# --- room ------------------------------------------------------------------------------------------


def room(kind: Kind, fixed: Sequence[Fenced], settings: Settings, prompts: Prompts) -> Room:
    """What is left of a model's limits beside the instructions and the texts that every request has.

    Raises CallFailed where hardly anything is.
    """
    reply = max(LEAST, 0.9 * settings.max_tokens - OTHER)
    if settings.context is None:
        return Room(math.inf, reply)
    used = tokens(prompts.told(kind)) + sum(map(weight, fixed)) + OTHER
    left = settings.context - settings.max_tokens - used
    if left < 2 * LEAST:
        raise CallFailed(
            f"the trace is too long: all but its chunks takes about {used:,} tokens, the reply up to "
            f"{settings.max_tokens:,}, and the model takes {settings.context:,}"
        )
    return Room(left, reply)


def _weight(parts: Sequence[Fenced]) -> int:
    """About how many tokens some texts have."""
    return sum(map(weight, parts))


def _rows(texts: Sequence[Fenced], room: Room, entry: int, beside: int) -> list[list[Fenced]]:
    """Texts in groups that take at most half of the room; in the reply they leave what goes `beside`, or half."""
    reply = room.reply - min(room.reply / 2, beside)
    sizes = [max(2 * weight(one) / room.request, entry / reply) for one in texts]
    return packed(texts, sizes, 1.0)


def _answers(matter: Matter, room: Room, entry: int, beside: int) -> list[Row]:
    """The answer in groups of claims, each shown with the whole answer where there is room for it."""
    if _weight(matter.pieces) <= room.request / 2:
        claims = [piece._replace(text="") for piece in matter.pieces if piece.name != "answer"]
        each = _rows(claims, room, entry, beside) or [[]]
        return [Row(tuple(one.name for one in group), matter.pieces) for group in each]
    short = [part for piece in matter.pieces for part in pieces(piece, room.request / 2)]
    return [
        Row(tuple(dict.fromkeys(one.name.split()[0] for one in row if one.name[0] == "s")), tuple(row))
        for row in _rows(short, room, entry, beside)
    ]


def _groups(shown: Sequence[Shown], room: Room, entry: int) -> list[list[Piece]]:
    """Chunks in groups that fit, long ones in pieces. Raises CallFailed where there is no room for any."""
    if shown and room.request < LEAST:
        raise CallFailed("the trace is too long: its answer leaves no room for the chunks")
    each = [
        Piece(one, text)
        for one in shown
        for text in pieces(Fenced(one.name, one.text), max(LEAST, room.request - (IMAGE if one.image else 0)))
    ]
    sizes = [max(one.size / room.request, entry / room.reply) for one in each]
    return packed(each, sizes, 1.0)
