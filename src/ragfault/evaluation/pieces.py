"""Pieces of an evaluation: parts of the traces that one worker does at a time.

Where the input can be cut, a piece says where its traces stand, and whoever works on it reads them: a range of
bytes, or row groups. Where it cannot, or its files are not seen there, the traces travel along.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec
from msgspec import Struct

from ragfault.errors import InputError
from ragfault.records import Trace
from ragfault.runs import Plan
from ragfault.sources.slices import Index, Slice
from ragfault.sources.values import Wrong

__all__ = ["Piece", "Sent", "Share", "changed", "cut", "read", "sent", "shares"]

LARGEST = 2048
"""Traces of a share at the most."""
SHARES = 64
"""Shares that an input is cut into at the least, as far as there are parts."""


class Sent(Struct, frozen=True):
    """A part whose traces travel along."""

    number: int
    traces: bytes


class Share(Struct, frozen=True):
    """Consecutive parts, whose traces are read by whoever works on them."""

    number: int
    """That of the first part."""
    slice: Slice


Piece = Sent | Share


def shares(index: Index, plan: Plan, done: frozenset[int]) -> Iterator[Share]:
    """The parts that are not done, in shares."""
    size = max(1, min(LARGEST, plan.traces // SHARES) // plan.batch)
    first = held = 0
    for number in range(-(-plan.traces // plan.batch) + 1):
        ended = number * plan.batch >= plan.traces
        if held and (ended or number in done or held == size):
            yield _share(index, plan, first, held)
            held = 0
        if number not in done and not ended:
            first, held = (number if not held else first), held + 1


def _share(index: Index, plan: Plan, first: int, parts: int) -> Share:
    start = first * plan.batch
    return Share(first, index.slice(start, min(parts * plan.batch, plan.traces - start)))


def sent(number: int, traces: list[Trace]) -> Sent:
    """A part with its traces."""
    return Sent(number, msgspec.msgpack.encode(traces))


def read(piece: Piece, batch: int) -> Iterator[tuple[int, list[Trace]]]:
    """The numbers of the parts of a piece, each with its traces; raises InputError where the input has changed."""
    if isinstance(piece, Sent):
        yield piece.number, msgspec.msgpack.decode(piece.traces, type=list[Trace])
        return
    count = 0
    try:
        for number, traces in enumerate(cut(piece.slice.traces(), batch), piece.number):
            yield number, traces
            count += len(traces)
    except Wrong as wrong:
        raise changed() from wrong
    if count != piece.slice.count:
        raise changed()


def cut(traces: Iterator[Trace], batch: int) -> Iterator[list[Trace]]:
    """The traces in parts."""
    while part := list(islice(traces, batch)):
        yield part


def changed() -> InputError:
    """What to raise where the input is not what it was."""
    return InputError("the input changed while it was read. Evaluate again when nothing writes to it.")
