"""Examining: all that the embedded judge looks at in the claims of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ragfault.judges.embedded.claims import hold, say
from ragfault.judges.embedded.features import Runs, features
from ragfault.judges.embedded.ground import Ground
from ragfault.judges.embedded.states import States, states
from ragfault.judges.embedded.vectors import Array
from ragfault.judges.entailment import Check, check
from ragfault.text import words

__all__ = ["Examined", "examine"]


class Examined(NamedTuple):
    """The claims of an answer as numbers."""

    features: Array
    """One row for each claim."""
    states: States
    """The words of all claims in a row."""
    kinds: tuple[Array, Array, Array]
    """Each word of content of each claim once: the claim, the row of the word, and where it was found: 0 in the
    best sentence, 1 elsewhere, 2 in another form, 3 nowhere."""
    checks: tuple[Check | None, ...]
    """What the exact checks say."""


def examine(claims: Sequence[str], ground: Ground, query: str) -> Examined | None:
    """Hold bare claims against the ground; None where there is nothing to hold or to hold it against."""
    if not claims or not len(ground.tokens):
        return None
    checks = tuple(check(claim, ground.index, ground.rarity) for claim in claims)
    asked = frozenset(words(query))
    said = say(claims, ground, checks)
    held = hold(said, ground)
    shared = Runs(said, ground)
    owner, kind = said.member.nonzero()
    best = held.inside[0, owner, kind]
    where = 3 - held.near[kind].astype(int) - held.there[kind] - best
    return Examined(
        features(said, held, ground, shared, asked, checks),
        states(said, held, ground, shared, asked),
        (owner, said.rows[kind], where),
        checks,
    )
