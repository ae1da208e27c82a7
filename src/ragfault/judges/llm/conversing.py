"""Conversing: a request, its reply, and the one repair request for what the reply lacks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from ragfault.judges.llm.calls import Caller, CallFailed, Reply
from ragfault.judges.llm.prompts import Prompts
from ragfault.judges.llm.reading import Read, Wanted, parsed, read, unread
from ragfault.judges.llm.requests import Request, call, mending
from ragfault.judges.llm.shapes import FREE

__all__ = ["BAR", "MENDED", "Said", "converse", "even", "lose", "together"]

MENDED = "after a repair request"
"""Why an item is lost that a model left out or got wrong twice."""
BAR, BELOW = 0.5, 0.49
"""What is supported has a probability of at least this, what is not at most that."""
LONGEST = 20_000
"""So much of a reply is sent back with the repair request."""
REFUSAL = re.compile(
    r"\b(?:can(?:no|['’])t|cannot|can not|unable to|not able to|won['’]t|will not|must decline|decline to|i['’]?m sorry"
    r"|i am sorry|i apologi[sz]e)\b",
    re.IGNORECASE,
)


T = TypeVar("T")


class Said(NamedTuple):
    """What a model said to a request, and what it did not."""

    items: dict[str, dict[str, Any]]
    """Field → id → item."""
    free: dict[str, Any]
    """Field → value, of those that go by no id."""
    lost: dict[str, dict[str, str]]
    """Field → id → why there is none; under the id "" for a field that goes by no id."""


async def converse(request: Request, caller: Caller, prompts: Prompts, vote: int = 0) -> Said:
    """What a model says to a request; what it leaves out or gets wrong is asked for once more.

    A call that fails loses all that it asked for, with its reason. Stopped passes through.
    """
    first = call(request, prompts, vote)
    try:
        reply = await caller.ask(first)
        _answered(reply)
    except CallFailed as error:
        return lose(request.wanted, str(error))
    said = read(reply.text, request.wanted, cut=reply.cut)
    lacking = unread(request.wanted, said)
    if not lacking:
        return _even(said, {})
    try:
        again = await caller.ask(mending(first, reply.text[:LONGEST], lacking))
    except CallFailed as error:
        return _even(said, lose(lacking, f"the repair request failed: {error}").lost)
    mended = read(again.text, lacking, cut=again.cut)
    whole = Read(
        {name: items | mended.items.get(name, {}) for name, items in said.items.items()},
        {**mended.free, **said.free},
    )
    return _even(whole, lose(unread(request.wanted, whole), MENDED).lost)


async def together(waiting: Sequence[Awaitable[T]]) -> list[T]:
    """What all of them come to; what one raises is raised when all have ended, so that no paid reply is thrown away."""
    found = await asyncio.gather(*waiting, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one for one in found if not isinstance(one, BaseException)]


def lose(wanted: Wanted, reason: str) -> Said:
    """All that was wanted, lost for one reason.

    >>> lose({"chunks": ("c1",), "missing": ()}, "no reply").lost
    {'chunks': {'c1': 'no reply'}, 'missing': {'': 'no reply'}}
    """
    lost = {name: dict.fromkeys(("",) if name in FREE else ids, reason) for name, ids in wanted.items()}
    return Said({}, {}, lost)


def even(item: Any) -> Any:
    """An item whose probability is on the side of the bar that its label says: the label counts.

    >>> from ragfault.judges.llm.shapes import CitationItem
    >>> even(CitationItem(id="k1", supports=False, p=0.9)).p
    0.49
    """
    label = getattr(item, "support", getattr(item, "supports", None))
    if label is None:
        return item
    holds = label in {"supported", "inferred", True}
    return replace(item, p=max(item.p, BAR) if holds else min(item.p, BELOW))


def _answered(reply: Reply) -> None:
    """Refuse a reply that says nothing, or that nothing will be said."""
    text = reply.text.strip()
    if not text:
        raise CallFailed("the model gave an empty reply")
    if len(text) < 2_000 and parsed(text, cut=reply.cut) is None and REFUSAL.search(text):
        raise CallFailed(f'the model refused: "{" ".join(text.split())[:120]}"')


def _even(said: Read, lost: dict[str, dict[str, str]]) -> Said:
    items = {
        name: {one: even(item) for one, item in held.items()} for name, held in said.items.items() if held
    }
    return Said(items, said.free, lost)
