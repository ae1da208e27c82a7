"""States: what is known of each single word of a claim, for the network that reads them in a row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ragfault.judges.embedded.claims import Held, Said
from ragfault.judges.embedded.features import Runs
from ragfault.judges.embedded.ground import Ground
from ragfault.judges.embedded.vectors import Array
from ragfault.text import NEGATIONS

__all__ = ["SIZE", "States", "states"]

SIZE = 20
"""So many numbers for each word."""
LIKE = 0.35
"""A word of the passages that is less alike does not stand in for one of the claim."""


class States(NamedTuple):
    """The words of all claims in a row."""

    rows: Array
    """Of each word its row in the table of vectors."""
    rivals: Array
    """Of the word of the passages that stands in its place."""
    values: Array
    """What is known of it, SIZE numbers."""
    owner: Array
    """The claim it belongs to."""


def states(said: Said, held: Held, ground: Ground, shared: Runs, query: frozenset[str]) -> States:
    """What is known of each word of the claims."""
    spoken = [word for one in said.words for word in one]
    aligned = _align(said, held, ground, shared, _place(spoken, said))
    rows = ground.table.lines(spoken)
    rivals = np.full(len(spoken), ground.table.blank)
    found = aligned >= 0
    rivals[found] = ground.rows[ground.tokens[aligned[found]]]
    return States(
        rows, rivals, _values(spoken, rows, said, held, ground, shared, query, aligned), shared.owner
    )


def _place(spoken: list[str], said: Said) -> Array:
    """The kind of each word, -1 for words without content."""
    return np.array([said.place.get(word, -1) for word in spoken], np.int64)


def _align(said: Said, held: Held, ground: Ground, shared: Runs, place: Array) -> Array:
    """For each word of the claims the place of its like in their best sentences, or -1.

    Of several equal ones that is taken whose neighbours are those of the word too.
    """
    aligned = np.full(len(place), -1)
    for number in range(len(said.words)):
        start, end = shared.starts[number], shared.starts[number + 1]
        at = np.concatenate(
            [np.arange(ground.starts[one], ground.starts[one + 1]) for one in held.order[number]]
        )
        if not len(at):
            continue
        theirs, ours, kind = ground.tokens[at], shared.tokens[start:end], place[start:end]
        same = ours[:, None] == theirs
        score = np.where(kind[:, None] >= 0, held.alike[np.maximum(kind, 0)][:, theirs], same).astype(float)
        score[1:, 1:] += 0.2 * same[:-1, :-1] * same[1:, 1:]
        score[:-1, :-1] += 0.2 * same[1:, 1:] * same[:-1, :-1]
        best = score.argmax(1)
        aligned[start:end] = np.where(score[np.arange(len(best)), best] > LIKE, at[best], -1)
    return aligned


def _values(
    spoken: list[str],
    rows: Array,
    said: Said,
    held: Held,
    ground: Ground,
    shared: Runs,
    query: frozenset[str],
    aligned: Array,
) -> Array:
    """The numbers for each word; words without content have no like but themselves."""
    owner, place = shared.owner, _place(spoken, said)
    at = np.maximum(place, 0)
    told = ground.table.told(rows)
    known = shared.tokens >= 0
    kind = place >= 0
    best, three = held.close[held.order[:, 0]][owner, at], held.close[held.order].max(1)[owner, at]
    inside = held.within[held.order]
    pair, triple = np.zeros(len(spoken) + 1, bool), shared.hits[3]
    pair[1 : len(shared.hits[2]) + 1] = shared.hits[2]
    run = np.zeros(len(spoken))
    for offset in range(3):
        run[offset : len(triple) + offset] = np.maximum(
            run[offset : len(triple) + offset], _lengths(triple) + 2.0 * triple
        )
    step = np.diff(aligned, prepend=-9)
    follows = (
        (aligned >= 0) & (np.roll(aligned, 1) >= 0) & (step > 0) & (step <= 2) & (np.roll(owner, 1) == owner)
    )
    rare = np.where(kind & told, said.weights[at], 0.0)
    keys = ground.keys
    return np.array([
        told, known, np.where(kind, held.near[at], known),
        kind & inside[:, 0][owner, at], kind & np.any(inside, axis=1)[owner, at],
        np.where(kind, held.soft[at], 0), np.where(kind, best, 0), np.where(kind, three, 0),
        pair[:-1], pair[1:], np.minimum(run, 10) / 10, rare / 10, [word[0].isdigit() for word in spoken],
        kind & said.named[owner, at], [word in NEGATIONS for word in spoken], [word in query for word in spoken],
        *([word in keys[polarity] for word in spoken] for polarity in ("absent", "no", "yes")),
        follows,
    ], np.float32).T  # fmt: skip


def _lengths(hits: Array) -> Array:
    """For each place the length of the whole run of true values that it is in."""
    if not len(hits):
        return np.zeros(0)
    edge = np.flatnonzero(np.diff(np.concatenate([[False], hits, [False]]).astype(np.int8)))
    found = np.zeros(len(hits))
    for start, end in zip(edge[::2], edge[1::2], strict=True):
        found[start:end] = end - start
    return found
