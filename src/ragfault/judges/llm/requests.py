"""Requests: what one call asks about a trace, and how it is worded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from ragfault.judges.llm.calls import Call, Kind, Message
from ragfault.judges.llm.fences import Fenced, Line, fence
from ragfault.judges.llm.prompts import Prompts
from ragfault.judges.llm.reading import Wanted
from ragfault.judges.llm.shapes import schema

__all__ = ["Request", "call", "mending"]


class Request(NamedTuple):
    """What one call asks about a trace."""

    kind: Kind
    wanted: Wanted
    parts: tuple[Fenced | Line, ...]
    """The texts, in their order."""
    images: tuple[tuple[str, str], ...] = ()
    """Name of a chunk → its picture."""
    partial: frozenset[str] = frozenset()
    """Fields that are asked for of some of the ids in sight, and so by id."""


def call(request: Request, prompts: Prompts, vote: int = 0) -> Call:
    """A request as a call: the instructions first, the same for every trace, then the texts, then what is asked for."""
    lines = [Line(f"Image {at} belongs to {name}.") for at, (name, _) in enumerate(request.images, 1)]
    asked = Line(f"Fields: {fields(request.wanted, request.partial)}")
    text = fence([*request.parts, *lines, asked])
    messages = (
        Message(role="system", text=prompts.told(request.kind)),
        Message(role="user", text=text, images=tuple(picture for _, picture in request.images)),
    )
    return _made(request.kind, messages, request.wanted, vote)


def mending(before: Call, reply: str, lacking: Wanted) -> Call:
    """The one further call for what a reply lacks: after the conversation so far, by ids alone."""
    told = (
        "That reply lacks valid entries. Reply with one JSON object that has only these fields and ids, each id once: "
        f"{fields(lacking, frozenset(lacking))}"
    )
    messages = (*before.messages, Message(role="assistant", text=reply), Message(role="user", text=told))
    return _made(before.kind, messages, lacking, before.vote)


def fields(wanted: Wanted, partial: Iterable[str]) -> str:
    """What is asked for, in words.

    >>> fields({"chunks": ("c1", "c2"), "missing": ()}, ["chunks"])
    'chunks (of c1, c2), missing'
    """
    return ", ".join(
        f"{name} (of {', '.join(ids)})" if ids and name in partial else name for name, ids in wanted.items()
    )


def _made(kind: Kind, messages: Sequence[Message], wanted: Wanted, vote: int) -> Call:
    """A call with the schema of its reply and the hash of all that bears on it."""
    held = schema(tuple(wanted))
    content = hashlib.sha256(msgspec.json.encode((kind, messages, held))).hexdigest()
    return Call(kind=kind, messages=tuple(messages), schema=held, content=content, vote=vote)
