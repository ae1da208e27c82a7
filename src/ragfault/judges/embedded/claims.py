"""Claims as arrays: all claims of an answer held against the ground at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
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
    """The words of some claims; W words in a row, K kinds of words, N claims."""

    texts: list[str]
    words: list[tuple[str, ...]]
    spoken: list[str]
    """[W] The words of all claims in a row."""
    owner: Array
    """[W] The claim that each belongs to."""
    sizes: Array
    """[N] So many words each claim has."""
    kinds: list[str]
    """[K] Every word of content of any claim, once."""
    rows: Array
    """[K] The row of each in the table of vectors."""
    kind: Array
    """[W] The number of the kind of each word, -1 for words without content."""
    member: Array
    """[N × K] Whether a claim has a kind."""
    digits: Array
    """[K] Whether a kind is a number."""
    weights: Array
    """[K] What each kind tells, by its rarity."""
    named: Array
    """[N × K] Whether a kind is part of a name there."""


def say(texts: Sequence[str], ground: Ground, seen: Sequence[Check | None]) -> Said:
    """The words of some claims, which are bare of marks and have been checked already."""
    known = [None if one is None else one.statement for one in seen]
    spoken = [
        (one.tokens if one else words(even(text))) or (".",) for one, text in zip(known, texts, strict=True)
    ]
    told = [dict.fromkeys([word for word in one if word not in STOP] or one) for one in spoken]
    place = {word: number for number, word in enumerate(dict.fromkeys(chain.from_iterable(told)))}
    kinds = list(place)
    member = np.zeros((len(texts), len(kinds)), bool)
    named = np.zeros_like(member)
    for number, (text, one) in enumerate(zip(texts, told, strict=True)):
        member[number, [place[word] for word in one]] = True
        statement = known[number]
        for word in statement.names if statement else names(text, ground.rarity) & one.keys():
            named[number, place[word]] = True
    rows = ground.table.lines(kinds)
    weights = ground.table.weights(kinds, rows).astype(float)
    row = list(chain.from_iterable(spoken))
    sizes = np.array([len(one) for one in spoken])
    owner = np.arange(len(sizes)).repeat(sizes)
    kind = np.array([place.get(word, -1) for word in row])
    digits = np.array([word[0].isdigit() for word in kinds])
    return Said(list(texts), spoken, row, owner, sizes, kinds, rows, kind, member, digits, weights, named)


class Held(NamedTuple):
    """Where the words of some claims are found; K kinds of words, S sentences, N claims, D words of the passages."""

    vectors: Array
    """[K × …] The vector of each kind."""
    there: Array
    """[K] Whether a kind is in the passages."""
    near: Array
    """[K] Whether it is there, as it is or in another form."""
    alike: Array
    """[D × K] How alike it is to each word of the passages, 1 where it is the same."""
    soft: Array
    """[K] How alike it is to the nearest word of the passages."""
    within: Array
    """[S × K] Whether a sentence has it."""
    covered: Array
    """[S × N] The share of a claim that a sentence covers."""
    joint: Array
    """[S × N] What both say as a share of what either says."""
    order: Array
    """[B × N] The sentences that share most with a claim, the best first."""
    inside: Array
    """[B × N × K] Whether these have a kind."""
    close: Array
    """[B × N × K] How alike it is to the nearest word of these."""


def hold(said: Said, ground: Ground) -> Held:
    """Find the words of claims in the passages; there is at least one sentence with words."""
    index, table, kinds = ground.index, ground.table, said.kinds
    posted = [index.postings.get(kind, ()) for kind in kinds]
    sizes = np.array([len(places) for places in posted])
    within = np.zeros((len(index.sentences), len(kinds)), bool)
    within[list(chain.from_iterable(posted)), np.arange(len(kinds)).repeat(sizes)] = True
    there = sizes > 0
    near = np.array([bool(places) or index.near(kind) for places, kind in zip(posted, kinds, strict=True)])
    vectors = table.meanings(said.rows)
    alike = _alike(kinds, vectors, table.lengths[said.rows], ground)
    covered, joint, order = _ranked(said, ground, within)
    soft = np.maximum(np.maximum.reduce(alike), there)
    close = _close(alike, ground, order)
    return Held(vectors, there, near, alike, soft, within, covered, joint, order, within[order], close)


def _alike(kinds: Sequence[str], vectors: Array, lengths: Array, ground: Ground) -> Array:
    """How alike each word of the passages is to each kind."""
    alike: Array = ground.vectors @ vectors.T
    alike /= ground.lengths[:, None] * lengths
    same = [(ground.numbers[kind], place) for place, kind in enumerate(kinds) if kind in ground.numbers]
    if same:
        word, kind = np.array(same).T
        alike[word, kind] = 1.0
    return alike


def _ranked(said: Said, ground: Ground, within: Array) -> tuple[Array, Array, Array]:
    """What sentences and claims share, and for each claim the sentences that share most with it."""
    weighted = (said.member * said.weights).T
    total = np.maximum(weighted.sum(0), 1e-6)
    shared = within.astype(float) @ weighted
    joint = shared / np.maximum(1e-6, total + ground.mass[:, None] - shared)
    covered = shared / total
    rank = np.ascontiguousarray((covered + 0.15 * joint).T).round(9)
    order = np.empty((min(BEST, len(within)), len(rank)), np.int64)
    row = np.arange(len(rank))
    for place in range(len(order)):
        order[place] = best = rank.argmax(1)
        rank[row, best] = -1.0
    return covered, joint, order


def _close(alike: Array, ground: Ground, order: Array) -> Array:
    """How alike each kind is to the nearest word of some sentences; to one without words not at all."""
    some, at = np.unique(order, return_inverse=True)
    sizes = ground.sizes[some]
    ends = sizes.cumsum()
    token = ground.tokens[np.arange(ends[-1]) + (ground.starts[some] - ends + sizes).repeat(sizes)]
    close = np.zeros((len(some), alike.shape[1]), np.float32)
    full = sizes > 0
    close[full] = np.maximum.reduceat(alike[token], (ends - sizes)[full], axis=0)
    return close[at.reshape(order.shape)]
