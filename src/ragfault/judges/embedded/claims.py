"""Claims as arrays: all claims of a trace held against their grounds at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from ragfault.judges.embedded.joint import Joint
from ragfault.judges.embedded.vectors import Array
from ragfault.judges.entailment import Check
from ragfault.judges.features import names
from ragfault.judges.passages import even
from ragfault.text import STOP, words

__all__ = ["Held", "Said", "hold", "say"]

BEST = 3
"""So many sentences are looked at closely for each claim."""


class Said(NamedTuple):
    """The words of some claims; W words in a row, K kinds of words, N claims, G grounds."""

    texts: list[str]
    words: list[tuple[str, ...]]
    spoken: list[str]
    """[W] The words of all claims in a row."""
    owner: Array
    """[W] The claim that each belongs to."""
    sizes: Array
    """[N] So many words each claim has."""
    group: Array
    """[N] The ground that each is held against."""
    kinds: list[list[str]]
    """Every word of content of any claim, once for each ground: K in all."""
    kin: Array
    """[K] The ground of each."""
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


def say(texts: Sequence[Sequence[str]], joint: Joint, seen: Sequence[Sequence[Check | None]]) -> Said:
    """The words of some claims, for each ground, which are bare of marks and have been checked already."""
    spoken: list[tuple[str, ...]] = []
    kinds: list[list[str]] = []
    kind: list[int] = []
    held: list[list[int]] = []
    named: list[list[int]] = []
    first = 0
    for some, checks in zip(texts, seen, strict=True):
        place: dict[str, int] = {}
        for text, check in zip(some, checks, strict=True):
            statement = check.statement if check else None
            said = (statement.tokens if statement else words(even(text))) or (".",)
            told = [word for word in said if word not in STOP] or said
            held.append([place.setdefault(word, first + len(place)) for word in told])
            known = statement.names if statement else names(text, joint.rarity).intersection(told)
            named.append([place[word] for word in known])
            spoken.append(said)
        kind += [place.get(word, -1) for said in spoken[len(spoken) - len(some) :] for word in said]
        kinds.append(list(place))
        first += len(place)
    flat = list(chain.from_iterable(kinds))
    rows = joint.table.lines(flat)
    sizes = np.array([len(one) for one in spoken])
    return Said(
        list(chain.from_iterable(texts)),
        spoken,
        list(chain.from_iterable(spoken)),
        np.arange(len(sizes)).repeat(sizes),
        sizes,
        np.arange(len(texts)).repeat([len(some) for some in texts]),
        kinds,
        np.arange(len(kinds)).repeat([len(some) for some in kinds]),
        rows,
        np.array(kind),
        _marked(held, first),
        np.array([word[0].isdigit() for word in flat]),
        joint.table.weights(flat, rows).astype(float),
        _marked(named, first),
    )


def _marked(places: Sequence[Sequence[int]], width: int) -> Array:
    """For each row which of its places are named."""
    marked = np.zeros((len(places), width), bool)
    rows = np.arange(len(places)).repeat([len(some) for some in places])
    marked[rows, list(chain.from_iterable(places))] = True
    return marked


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
    """[B × N] The sentences that share most with a claim, the best first; where there are fewer, that once more."""
    again: Array
    """[B × N] Whether it is there once more."""
    inside: Array
    """[B × N × K] Whether these have a kind."""
    close: Array
    """[B × N × K] How alike it is to the nearest word of these."""


def hold(said: Said, joint: Joint) -> Held:
    """Find the words of claims in the passages of their grounds; each ground has a sentence with words."""
    posted: list[Sequence[int]] = []
    near: list[bool] = []
    for ground, kinds in zip(joint.grounds, said.kinds, strict=True):
        index = ground.index
        some = [index.postings.get(kind, ()) for kind in kinds]
        near += [bool(places) or index.near(kind) for places, kind in zip(some, kinds, strict=True)]
        posted += some
    sizes = np.array([len(places) for places in posted])
    within = np.zeros((len(joint.sizes), len(posted)), bool)
    kind = np.arange(len(posted)).repeat(sizes)
    within[np.array(list(chain.from_iterable(posted)), np.int64) + joint.firsts[said.kin[kind]], kind] = True
    there = sizes > 0
    vectors = joint.table.meanings(said.rows)
    alike = _alike(said, vectors, joint)
    covered, shared, order, again = _ranked(said, joint, within)
    soft = np.maximum(np.maximum.reduce(alike), there)
    close = _close(alike, joint, order)
    return Held(
        vectors,
        there,
        np.array(near),
        alike,
        soft,
        within,
        covered,
        shared,
        order,
        again,
        within[order],
        close,
    )


def _alike(said: Said, vectors: Array, joint: Joint) -> Array:
    """How alike each word of the passages is to each kind; 0 where it is of another ground."""
    lengths = joint.table.lengths[said.rows]
    alike: Array = np.zeros((joint.words[-1], len(vectors)), np.float32)
    same: list[tuple[int, int]] = []
    right = 0
    for ground, kinds, top in zip(joint.grounds, said.kinds, joint.words, strict=False):
        left, right = right, right + len(kinds)
        block = alike[top : top + len(ground.numbers), left:right]
        np.matmul(ground.vectors, vectors[left:right].T, out=block)
        block /= ground.lengths[:, None] * lengths[left:right]
        same += [
            (top + ground.numbers[kind], place)
            for place, kind in enumerate(kinds, left)
            if kind in ground.numbers
        ]
    if same:
        word, kind = np.array(same).T
        alike[word, kind] = 1.0
    return alike


def _ranked(said: Said, joint: Joint, within: Array) -> tuple[Array, Array, Array, Array]:
    """What sentences and claims share, and for each claim the sentences of its ground that share most with it."""
    weighted = (said.member * said.weights).T
    total = np.maximum(np.add.reduce(weighted), 1e-6)
    shared = within.astype(float) @ weighted
    union = shared / np.maximum(1e-6, total + joint.mass[:, None] - shared)
    covered = shared / total
    rank = np.ascontiguousarray((covered + 0.15 * union).T).round(9)
    if len(joint.grounds) > 1:
        rank[joint.group != said.group[:, None]] = -1.0
    order = np.empty((BEST, len(rank)), np.int64)
    again = np.zeros(order.shape, bool)
    row = np.arange(len(rank))
    for place in range(BEST):
        best = rank.argmax(1)
        again[place] = rank[row, best] < 0
        order[place] = np.where(again[place], order[0], best)
        rank[row, best] = -1.0
    return covered, union, order, again


def _close(alike: Array, joint: Joint, order: Array) -> Array:
    """How alike each kind is to the nearest word of some sentences; to one without words not at all."""
    some, at = np.unique(order, return_inverse=True)
    sizes = joint.sizes[some]
    ends = sizes.cumsum()
    token = joint.tokens[np.arange(ends[-1]) + (joint.starts[some] - ends + sizes).repeat(sizes)]
    close = np.zeros((len(some), alike.shape[1]), np.float32)
    full = sizes > 0
    close[full] = np.maximum.reduceat(alike[token], (ends - sizes)[full], axis=0)
    return close[at.reshape(order.shape)]
