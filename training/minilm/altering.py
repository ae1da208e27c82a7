"""Altering: claims that no longer hold, made from claims that do."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

__all__ = ["altered"]

NUMBER = re.compile(r"\b\d[\d,.]*\b")
NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+(?: [A-Z][a-z]+)*")
"""Capitalised words inside a sentence."""
VERB = re.compile(r"\b(?:is|are|was|were|can|will|has|have|does|did)\b")
LONGEST = 6000
"""Names are taken from so many characters of a passage."""


def altered(claim: str, texts: Sequence[str], chance: Random) -> str | None:
    """Return a claim with one digit, name or negation changed, or with two names exchanged; None where nothing can be.

    The other name comes from the passages that the claim was drawn from. Which of the four is tried first is
    left to chance.

    >>> altered("It was founded in 1921.", [], Random(0))
    'It was not founded in 1921.'
    """
    ways: list[Callable[[str, Sequence[str], Random], str | None]] = [number, name, negation, exchange]
    chance.shuffle(ways)
    created = (way(claim, texts, chance) for way in ways)
    return next((item for item in created if item is not None), None)


def number(claim: str, texts: Sequence[str], chance: Random) -> str | None:  # noqa: ARG001
    """Return the claim with one digit of one number changed."""
    result = list(NUMBER.finditer(claim))
    if not result:
        return None
    start = chance.choice(result).start()
    size = len(NUMBER.match(claim, start)[0])  # type: ignore[index]
    at = chance.choice([at for at in range(start, start + size) if claim[at].isdigit()])
    return claim[:at] + chance.choice([item for item in "123456789" if item != claim[at]]) + claim[at + 1 :]


def name(claim: str, texts: Sequence[str], chance: Random) -> str | None:
    """Return the claim with one name replaced by another of the passages."""
    result = list(NAME.finditer(claim))
    if not result:
        return None
    first = chance.choice(result)
    known = {other for text in texts for other in NAME.findall(text[:LONGEST])}
    others = sorted(other for other in known if other not in claim and first[0] not in other)
    return claim[: first.start()] + chance.choice(others) + claim[first.end() :] if others else None


def negation(claim: str, texts: Sequence[str], chance: Random) -> str | None:  # noqa: ARG001
    """Return the claim with its verb negated."""
    result = VERB.search(claim)
    if result is None or " not" in claim:
        return None
    return f"{claim[: result.end()]} not{claim[result.end() :]}"


def exchange(claim: str, texts: Sequence[str], chance: Random) -> str | None:  # noqa: ARG001
    """Return two names stand in each other's place."""
    result = list(NAME.finditer(claim))
    if len(result) < 2:
        return None
    first, two = sorted(chance.sample(result, 2), key=lambda item: item.start())
    if first[0] == two[0]:
        return None
    return claim[: first.start()] + two[0] + claim[first.end() : two.start()] + first[0] + claim[two.end() :]
