"""Labeled traces with their chunks in another order: a judge that reads should not mind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ragfault.labels.reading.labeled_traces import LabeledTrace, hash_rank
from ragfault.model.records import Trace, Verdicts

DEFAULT_PERMUTED = 200
"""Traces that are judged once more by a judge that costs nothing."""


class PermutedTrace(NamedTuple):
    """Labeled trace with its chunks in another order."""

    # index of the trace among all
    place: int
    labeled: LabeledTrace


def permute_labels(labeled: Sequence[LabeledTrace], limit: int, seed: int) -> list[PermutedTrace]:
    """Permute the chunks of up to `limit` traces with two chunks or more, drawn at random."""
    movable = [index for index, item in enumerate(labeled) if len(item.trace.chunks or ()) > 1]
    chosen = sorted(movable, key=lambda index: hash_rank(labeled[index].trace.id, seed))[:limit]
    return [
        PermutedTrace(place, labeled[place]._replace(trace=_permute_chunks(labeled[place].trace, seed)))
        for place in chosen
    ]


def _permute_chunks(trace: Trace, seed: int) -> Trace:
    """Return a trace, under an id of its own, with its chunks in a random order that differs from the given one."""
    chunks = trace.chunks or ()
    order = sorted(range(len(chunks)), key=lambda at: hash_rank(f"{trace.id} {at}", seed))
    if order == list(range(len(chunks))):
        order.reverse()
    return replace(trace, id=f"{trace.id}#permuted", chunks=tuple(chunks[at] for at in order))


def restore_order(verdicts: Verdicts, trace: Trace) -> Verdicts:
    """Return verdicts with those on chunks in the order of the given trace."""
    places = {chunk.id: at for at, chunk in enumerate(trace.chunks or ())}
    if verdicts.chunk is None:
        return verdicts
    return replace(verdicts, chunk=tuple(sorted(verdicts.chunk, key=lambda item: places.get(item.chunk, 0))))
