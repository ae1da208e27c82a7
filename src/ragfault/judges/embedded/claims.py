"""Claims as arrays: all claims of an answer held against the ground at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ragfault.judges.embedded.ground import Ground
from ragfault.judges.embedded.vectors import Array
from ragfault.judges.entailment import Check
from ragfault.judges.features import names
from ragfault.judges.passages import even
from ragfault.text import STOP, words

__all__ = ["Held", "Said", "hold", "say"]

BEST = 3
"""So many sentences are looked at closely for each claim."""


class Said(NamedTuple):
    """The words of some claims."""

    texts: list[str]
    words: list[tuple[str, ...]]
    kinds: list[str]
    """Every word of content of any claim, once."""
    place: dict[str, int]
    """The number of each kind."""
    member: Array
    """For each claim and kind, whether the claim has it."""
    weights: Array
    """What each kind tells, by its rarity."""
    named: Array
    """For each claim and kind, whether it is part of a name there."""


def say(texts: Sequence[str], ground: Ground, seen: Sequence[Check | None]) -> Said:
    """The words of some claims, which are bare of marks and have been checked already."""
    known = [None if one is None else one.statement for one in seen]
    spoken = [
        (one.tokens if one else words(even(text))) or (".",) for one, text in zip(known, texts, strict=True)
    ]
    told = [dict.fromkeys(word for word in one if word not in STOP) or dict.fromkeys(one) for one in spoken]
    place: dict[str, int] = {}
    for one in told:
        for word in one:
            place.setdefault(word, len(place))
    kinds = list(place)
    member = np.zeros((len(texts), len(kinds)), bool)
    named = np.zeros_like(member)
    for number, (text, one) in enumerate(zip(texts, told, strict=True)):
        member[number, [place[word] for word in one]] = True
        statement = known[number]
        for word in statement.names if statement else names(text, ground.rarity) & one.keys():
            named[number, place[word]] = True
    get, unseen = ground.rarity.levels.get, ground.rarity.unseen
    weights = np.array([get(word, unseen) for word in kinds])
    return Said(list(texts), spoken, kinds, place, member, weights, named)


class Held(NamedTuple):
    """Where the words of some claims are found; K kinds of words, S sentences, N claims."""

    rows: Array
    """[K] The row of each kind in the table of vectors."""
    there: Array
    """[K] Whether a kind is in the passages."""
    near: Array
    """[K] Whether it is there, as it is or in another form."""
    alike: Array
    """[K × D] How alike it is to each kind of word of the passages, 1 where it is the same."""
    soft: Array
    """[K] How alike it is to the nearest word of the passages."""
    within: Array
    """[S × K] Whether a sentence has it."""
    close: Array
    """[S × K] How alike it is to the nearest word of a sentence."""
    covered: Array
    """[S × N] The share of a claim that a sentence covers."""
    joint: Array
    """[S × N] What both say as a share of what either says."""
    order: Array
    """[N × B] The sentences that share most with a claim, the best first."""


def hold(said: Said, ground: Ground) -> Held:
    """Find the words of claims in the passages; there is at least one sentence with words."""
    index, table, kinds = ground.index, ground.table, said.kinds
    there = np.array([kind in index.postings for kind in kinds], bool)
    near = np.array(
        [found or index.near(kind) for found, kind in zip(there.tolist(), kinds, strict=True)], bool
    )
    rows = table.lines(kinds)
    alike = (table.table[rows] @ ground.vectors.T) / (table.lengths[rows][:, None] * ground.lengths)
    same = [(place, ground.numbers[kind]) for place, kind in enumerate(kinds) if kind in ground.numbers]
    if same:
        at = np.array(same)
        alike[at[:, 0], at[:, 1]] = 1.0
    within = np.zeros((len(index.sentences), len(kinds)), bool)
    for place, kind in enumerate(kinds):
        within[index.postings.get(kind, ()), place] = True
    close = np.zeros(within.shape, np.float32)
    some = ground.sizes > 0
    close[some] = np.maximum.reduceat(alike[:, ground.tokens], ground.starts[:-1][some], axis=1).T
    weighted = (said.member * said.weights).T
    total = np.maximum(weighted.sum(0), 1e-6)
    shared = within @ weighted
    joint = shared / np.maximum(1e-6, total + ground.mass[:, None] - shared)
    covered = shared / total
    rank = -(covered + 0.15 * joint).round(9)
    order = np.argsort(rank, axis=0, kind="stable")[:BEST].T
    return Held(
        rows, there, near, alike, np.maximum(alike.max(1), there), within, close, covered, joint, order
    )
