"""Examining: all that the embedded judge looks at in the claims of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from ragfault.judges.embedded.claims import hold, say
from ragfault.judges.embedded.features import Runs, features
from ragfault.judges.embedded.ground import Ground
from ragfault.judges.embedded.joint import Joint
from ragfault.judges.embedded.states import States, states
from ragfault.judges.embedded.vectors import Array
from ragfault.judges.entailment import Check, check
from ragfault.text import words

__all__ = ["Examined", "examine"]


class Examined(NamedTuple):
    """Claims as numbers, those of the first ground first."""

    features: Array
    """One row for each claim."""
    states: States
    """The words of all claims in a row."""
    kinds: tuple[Array, Array, Array]
    """Each word of content of each claim once: the claim, the row of the word, and where it was found: 0 in the
    best sentence, 1 elsewhere, 2 in another form, 3 nowhere."""
    checks: tuple[Check | None, ...]
    """What the exact checks say."""
    group: Array
    """The number of the ground that each claim is held against."""


def examine(asked: Sequence[tuple[Sequence[str], Ground]], query: str) -> Examined:
    """Hold bare claims against their grounds, all at once.

    What is said of a claim depends on the claims of its own ground alone; each has claims, and each ground words.
    """
    joint = Joint([ground for _, ground in asked])
    checks = [[check(claim, ground.index, ground.rarity) for claim in claims] for claims, ground in asked]
    known = frozenset(words(query))
    said = say([claims for claims, _ in asked], joint, checks)
    held = hold(said, joint)
    shared = Runs(said, joint)
    owner, kind = said.member.nonzero()
    best = held.inside[0, owner, kind]
    where = 3 - held.near[kind].astype(int) - held.there[kind] - best
    seen = tuple(chain.from_iterable(checks))
    return Examined(
        features(said, held, joint, shared, known, seen),
        states(said, held, joint, shared, known),
        (owner, said.rows[kind], where),
        seen,
        said.group,
    )
