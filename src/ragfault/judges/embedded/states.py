"""States: what is known of each single word of a claim, for the network that reads them in a row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ragfault.judges.embedded.claims import Held, Said
from ragfault.judges.embedded.features import Runs, runs
from ragfault.judges.embedded.joint import Joint
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


def states(said: Said, held: Held, joint: Joint, shared: Runs, query: frozenset[str]) -> States:
    """What is known of each word of the claims."""
    aligned = _align(said, held, joint, shared)
    rows = _rows(said, joint, shared)
    rivals = np.full(len(rows), joint.table.blank)
    found = aligned >= 0
    rivals[found] = joint.rows[joint.tokens[aligned[found]]]
    values = _values(rows, said, held, joint, shared, query, aligned)
    return States(rows, rivals, values, said.owner)


def _rows(said: Said, joint: Joint, shared: Runs) -> Array:
    """The row of each word in the table of vectors; those of kinds and of words of the passages are known."""
    rows: Array = np.where(shared.tokens >= 0, joint.rows[shared.tokens], -1)
    kind = said.kind >= 0
    rows[kind] = said.rows[said.kind[kind]]
    rest = np.flatnonzero(rows < 0)
    rows[rest] = joint.table.lines([said.spoken[place] for place in rest.tolist()])
    return rows


def _align(said: Said, held: Held, joint: Joint, shared: Runs) -> Array:
    """For each word of the claims the place of its like in their best sentences, or -1.

    Of several equal ones that is taken whose neighbours are those of the word too.
    """
    order = held.order.T
    sizes = joint.sizes[order] * ~held.again.T
    ends = np.add.reduce(sizes, axis=1)
    if not ends.max():
        return np.full(len(said.kind), -1)
    flat = sizes.ravel()
    at = np.arange(flat.sum()) + (joint.starts[order.ravel()] - flat.cumsum() + flat).repeat(flat)
    inside = np.arange(ends.max()) < ends[:, None]
    place = np.full(inside.shape, -1)
    place[inside] = at
    theirs = np.where(inside, joint.tokens[place], -2)[said.owner]
    same = shared.tokens[:, None] == theirs
    kind = said.kind[:, None]
    alike = held.alike.take(
        theirs * len(said.kin) + kind, mode="clip"
    )  # clipped is what the next line replaces
    score = np.where(kind >= 0, alike, same).astype(float)
    score[theirs < 0] = -1.0
    one, two = np.nonzero(same[:-1, :-1] & same[1:, 1:] & (said.owner[1:] == said.owner[:-1])[:, None])
    score[one + 1, two + 1] += 0.2
    score[one, two] += 0.2
    best = score.argmax(1)
    row = np.arange(len(best))
    aligned: Array = np.where(score[row, best] > LIKE, place[said.owner, best], -1)
    return aligned


def _values(
    rows: Array, said: Said, held: Held, joint: Joint, shared: Runs, query: frozenset[str], aligned: Array
) -> Array:
    """The numbers for each word; words without content have no like but themselves."""
    spoken, owner = said.spoken, said.owner
    told, known, kind = joint.table.told(rows), shared.tokens >= 0, said.kind >= 0
    at = np.maximum(said.kind, 0)
    flat = owner * len(said.kin) + at
    near = held.close.reshape(len(held.order), -1).take(flat, axis=1)
    inside = held.inside.reshape(len(held.order), -1).take(flat, axis=1)
    pair, triple = np.zeros(len(spoken) + 1, bool), shared.hits[1]
    pair[1:] = shared.hits[0]
    run = _lengths(triple) + 2.0 * triple
    long = run.copy()
    for offset in (1, 2):
        np.maximum(run[offset:], long[: len(long) - offset], out=run[offset:])
    values = np.zeros((SIZE, len(spoken)), np.float32)
    values[:12] = (
        told, known, np.where(kind, held.near[at], known), kind & inside[0], kind & np.logical_or.reduce(inside),
        kind * held.soft[at], kind * near[0], kind * np.maximum.reduce(near), pair[:-1], pair[1:],
        np.minimum(run, 10) / 10, (kind & told) * said.weights[at] / 10,
    )  # fmt: skip
    values[12] = kind & said.digits[at]
    values[13] = kind & said.named.take(flat)
    for place, stems in enumerate((NEGATIONS, query), 14):
        values[place] = np.fromiter(map(stems.__contains__, spoken), bool, len(spoken))
    group = said.group.tolist()
    for place, polarity in enumerate(("absent", "no", "yes"), 16):
        keys = [one.keys[polarity] for one in joint.grounds]
        if any(keys):
            values[place] = [
                word in keys[at] for at, one in zip(group, said.words, strict=True) for word in one
            ]
    step = aligned[1:] - aligned[:-1]
    follows = (aligned[1:] >= 0) & (aligned[:-1] >= 0) & (step > 0) & (step <= 2)
    values[19, 1:] = follows & (owner[1:] == owner[:-1])
    return values.T


def _lengths(hits: Array) -> Array:
    """For each place the length of the whole run of true values that it is in."""
    lengths: Array = runs(hits) + runs(hits[::-1])[::-1] - hits
    return lengths
