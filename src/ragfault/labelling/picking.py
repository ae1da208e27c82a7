"""Which traces to label: any, in an order drawn at random; or those that tell most, each with its chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from ragfault.errors import InputError, UsageError
from ragfault.records import Verdicts
from ragfault.runs import Run
from ragfault.sources.files import lines, open_bytes
from ragfault.stats.groups import Floats

__all__ = ["DOUBTS", "Pick", "chances", "doubts", "drawn", "read_picks", "suggest"]

EVEN = 0.5
"""The share of the picks that is drawn from all traces alike: no trace is without a chance, no weight without end."""

KNOWN = 0.1
"""How wrong a verdict without a probability is taken to be: so often, where the judge is sure."""

DOUBTS = {"groundedness": "claim", "context_relevance": "chunk", "chunk_attribution": "citation"}
"""Metric → the verdicts whose doubt is its own."""


class Pick(Struct, frozen=True, kw_only=True):
    """A trace that is worth a label."""

    trace: str
    chance: float
    """The chance with which it was drawn."""
    doubt: float
    """How far the judge is expected to be wrong on it, as a standard deviation of the metric."""


def drawn(ids: Sequence[str], seed: int = 0) -> list[str]:
    """The ids in an order drawn at random, the same wherever they stand and whoever asks.

    >>> drawn(["a", "b", "c"])
    ['a', 'c', 'b']
    """
    key = str(seed).encode()
    return sorted(
        ids, key=lambda name: blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
    )


def doubts(seen: Verdicts, metric: str) -> float | None:
    """How far the judge is expected to be wrong on one trace; None where the metric has no verdict.

    The standard deviation of a mean of independent verdicts that are each right with the judge's own probability.

    >>> from ragfault.records import ChunkVerdict
    >>> halves = tuple(ChunkVerdict(chunk=name, relevance=0.5, level="medium") for name in "abcd")
    >>> doubts(Verdicts(trace="1", chunk=halves), "context_relevance")
    0.25
    """
    found: list[float] = []
    if DOUBTS[metric] == "claim":
        found = [_chance(each.p, each.unsure) for each in seen.claim or ()]
    elif DOUBTS[metric] == "chunk":
        found = [each.relevance for each in seen.chunk or ()]
    else:
        found = [_chance(each.p, each.unsure) for each in seen.citation or ()]
    if not found:
        return None
    return math.sqrt(sum(p * (1 - p) for p in found)) / len(found)


def _chance(p: float | None, unsure: bool) -> float:
    return p if p is not None else 0.5 if unsure else KNOWN


def chances(doubt: Floats, n: int) -> Floats:
    """The chance of each trace to be drawn, so that `n` are on average: half alike, half by the judge's doubt.

    Labels narrow a rectified interval by how far the judge errs, and the best chances are in proportion to that
    error (Zrnic & Candès 2024). No chance is above 1, nor below half of that of a plain draw.

    >>> chances(np.array([0.0, 0.1, 0.3, 0.4]), 2).round(3)
    array([0.25 , 0.375, 0.625, 0.75 ])
    """
    size = doubt.size
    if n >= size:
        return np.ones(size)
    share = doubt / doubt.sum() if doubt.sum() > 0 else np.full(size, 1 / size)
    wanted = EVEN / size + (1 - EVEN) * share
    found: Floats = np.minimum(1.0, n * wanted)
    for _ in range(size):
        free = found < 1
        short = n - found.sum()
        if short < 1e-9 or not free.any():
            break
        found = np.minimum(1.0, np.where(free, found * (1 + short / found[free].sum()), 1.0))
    return found


def suggest(run: Run, n: int, metric: str = "groundedness", seed: int = 0) -> list[Pick]:
    """The `n` traces of a run whose labels narrow the rectified interval of a metric most, in random order.

    They are drawn, not chosen: each with a chance that grows with the judge's own doubt (`chances`), by one
    systematic draw over the traces in random order. With the chance in each label the estimate stays without bias,
    however wrong the doubts are. Raises UsageError where the judge gives no such verdicts.
    """
    if metric not in DOUBTS:
        raise UsageError(f"labels can be suggested for {', '.join(DOUBTS)}; not for {metric}.")
    found = {seen.trace: doubts(seen, metric) for seen in run.verdicts()}
    known = {name: doubt for name, doubt in found.items() if doubt is not None}
    if not known:
        raise UsageError(f"{run.path} has no {DOUBTS[metric]} verdicts: {metric} cannot be labelled there.")
    ids = drawn(list(known), seed)
    each = np.array([known[name] for name in ids])
    chance = chances(each, n)
    edges = np.cumsum(chance) + np.random.default_rng(seed).random()
    taken = np.flatnonzero(np.floor(edges) > np.floor(edges - chance))
    picks = {
        ids[at]: Pick(trace=ids[at], chance=float(chance[at]), doubt=float(each[at])) for at in taken.tolist()
    }
    return [picks[name] for name in drawn(list(picks), seed + 1)]


def read_picks(path: str | Path) -> list[Pick]:
    """The picks of a file, in order. Raises InputError where it cannot be read or a line is no pick."""
    found = []
    stream = open_bytes(str(path))
    with stream.body as body:
        for number, line, _ in lines(body):
            if line.strip():
                try:
                    found.append(msgspec.json.decode(line, type=Pick))
                except msgspec.MsgspecError as error:
                    raise InputError(
                        f"{path}:{number}: {error}. Make it with: ragfault label suggest"
                    ) from None
    return found
