"""What judging would send and cost, before anything is sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from ragfault.errors import JudgeError
from ragfault.judges.llm.cache import key_of, take
from ragfault.judges.llm.cache_file import File, named_place
from ragfault.judges.llm.calls import Call, Kind
from ragfault.judges.llm.judging import planned
from ragfault.judges.llm.prices import NANO, costs
from ragfault.judges.llm.prompts import Prompts
from ragfault.judges.llm.settings import Settings
from ragfault.records import Trace

__all__ = ["CHARACTERS", "Estimate", "Expected", "estimated"]

CHARACTERS = 4
"""So many characters are taken for a token."""
IMAGE = 1_000
"""Tokens taken for an image."""
REPLY: dict[Kind, int] = {"retrieval": 350, "generation": 600, "questions": 100, "relevance": 150}
"""Tokens taken for a reply."""


class Expected(NamedTuple):
    """The calls of one kind."""

    kind: Kind
    calls: int
    """To be sent; equal ones count once."""
    cached: int
    """Of which the cache holds the reply."""
    prompt: int
    """Tokens to be sent, about."""
    completion: int
    """Tokens to be received, about."""
    cost: float | None
    """US$, about; None where no price is known."""
    most: float | None
    """US$, if every reply were as long as it may be."""


class Estimate(NamedTuple):
    """What judging some traces would come to."""

    traces: int
    kinds: tuple[Expected, ...]
    lost: int
    """Traces that are too long to be asked about."""


def estimated(traces: Iterable[Trace], settings: Settings, prompts: Prompts) -> Estimate:
    """Count the calls for these traces, and price those that the cache cannot answer; repairs are not in it."""
    place = named_place(settings.cache)
    file = File(place) if place is not None and place.is_file() else None
    count = lost = 0
    seen: set[bytes] = set()
    found: dict[Kind, list[tuple[bool, int]]] = defaultdict(list)
    key = key_of(settings)
    try:
        for trace in traces:
            count += 1
            try:
                calls = planned(trace, settings, prompts)
            except JudgeError:
                lost += 1
                continue
            for call in calls:
                name = key(call)
                if name not in seen:
                    seen.add(name)
                    kept = file is not None and take(file, name) is not None
                    found[call.kind].append((kept, _tokens(call)))
    finally:
        if file is not None:
            file.close()
    return Estimate(count, tuple(_summed(kind, rows, settings) for kind, rows in found.items()), lost)


def _tokens(call: Call) -> int:
    size = sum(len(message.text) for message in call.messages) + len(str(call.schema))
    return size // CHARACTERS + IMAGE * sum(len(message.images) for message in call.messages)


def _summed(kind: Kind, rows: list[tuple[bool, int]], settings: Settings) -> Expected:
    """The calls of one kind together."""
    cost = costs(settings)
    sent = [size for kept, size in rows if not kept]
    reply = min(REPLY[kind], settings.max_tokens)
    prices = [(cost(size, reply), cost(size, settings.max_tokens)) for size in sent]
    about, most = ([price[at] for price in prices] for at in (0, 1))
    return Expected(
        kind, len(rows), len(rows) - len(sent), sum(sent), reply * len(sent), _us(about), _us(most)
    )


def _us(prices: list[int | None]) -> float | None:
    known = [price for price in prices if price is not None]
    return sum(known) / NANO if len(known) == len(prices) else None
