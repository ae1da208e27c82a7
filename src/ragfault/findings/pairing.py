"""Pairing: which trace of the candidate stands against which of the baseline, and what is the same in both."""

from __future__ import annotations

from collections import defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.errors import RunError
from ragfault.findings.grid import NONE, bare, encode
from ragfault.runs import Run
from ragfault.sources.remote import readable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Pairing", "pair", "same_terms"]

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

ENOUGH = 0.5
"""The share of the smaller run that must pair by id; otherwise queries are tried."""


class Pairing(Struct, frozen=True):
    """The paired traces of two runs, as rows of each."""

    how: Literal["id", "query"]
    """By what they were paired."""
    baseline: Rows
    candidate: Rows
    clusters: Rows | None
    """A code for each pair, shared within a conversation, else by pairs of one query with the same chunks; None: all
    independent. An instruction given with other chunks each time is not one query."""
    alone: tuple[int, int]
    """Traces without a partner, of the baseline and of the candidate."""
    chunks: Mask
    """For each pair, whether both runs retrieved the very same chunks in the same order."""
    answers: Mask
    """Whether both gave the very same answer, with the same citations."""

    def __len__(self) -> int:
        return len(self.baseline)


def pair(baseline: Run, candidate: Run) -> Pairing:
    """Pair the traces of two runs: by id where at least half of the smaller run pairs so, else by query.

    Several traces of one query pair in their order. Raises RunError where nothing pairs.
    """
    columns = ["id", "query", "conversation"]
    sides = [run.to_arrow("traces", columns) for run in (baseline, candidate)]
    least = min(table.num_rows for table in sides)
    for how in ("id", "query"):
        left, right = _matches(*(table[how].to_pylist() for table in sides))
        if len(left) >= (ENOUGH * least if how == "id" else 1):
            break
    if not len(left):
        raise RunError(
            f"no trace of {candidate.path} has the id or the query of a trace of {baseline.path}. "
            "Compare runs over the same queries."
        )
    marks = [_marks(run) for run in (baseline, candidate)]
    same = [marks[0][part][left] == marks[1][part][right] for part in (0, 1)]
    return Pairing(
        how="id" if how == "id" else "query",
        baseline=left,
        candidate=right,
        clusters=_clusters(sides[0].take(left), marks[0][0][left]),
        alone=(sides[0].num_rows - len(left), sides[1].num_rows - len(right)),
        chunks=same[0],
        answers=same[1],
    )


def _matches(left: list[str], right: list[str]) -> tuple[Rows, Rows]:
    """The rows with equal keys, the first with the first of each key."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for row, key in enumerate(right):
        places[key].append(row)
    taken: defaultdict[str, int] = defaultdict(int)
    pairs = []
    for row, key in enumerate(left):
        rank = taken[key]
        if rank < len(places.get(key, ())):
            pairs.append((row, places[key][rank]))
            taken[key] += 1
    found = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _clusters(table: pa.Table, chunks: Rows) -> Rows | None:
    """What ties pairs together: the conversation, else the query where it is asked again with the same chunks."""
    talks, names = encode(table["conversation"])
    asked = np.stack([encode(table["query"])[0], chunks], axis=1)
    distinct, items = np.unique(asked, axis=0, return_inverse=True)
    if not names and len(distinct) == len(items):
        return None
    return np.where(talks == NONE, len(names) + items.reshape(-1), talks)


def _marks(run: Run) -> tuple[Rows, Rows]:
    """A fingerprint of the chunks and one of the answer for each trace."""
    import pyarrow.parquet as pq

    chunks: list[int] = []
    answers: list[int] = []
    with pq.ParquetFile(readable(run.path / "traces.parquet")) as file:
        for batch in file.iter_batches(batch_size=2048, columns=["chunks", "answer", "citations"]):
            for row in batch.to_pylist():
                chunks.append(_mark([(chunk["id"], chunk["text"]) for chunk in row["chunks"] or ()]))
                answers.append(_mark((row["answer"], row["citations"])))
    return np.array(chunks, dtype=np.int64), np.array(answers, dtype=np.int64)


def _mark(value: object) -> int:
    return int.from_bytes(blake2b(repr(value).encode(), digest_size=8).digest(), signed=True)


def same_terms(baseline: Run, candidate: Run, *, anyway: bool = False) -> tuple[str, ...]:
    """Refuse runs that were scored by other judges or metric parameters; with `anyway` give warnings instead.

    Raises RunError.
    """
    old, new = baseline.manifest, candidate.manifest
    warnings = []
    if old.judge != new.judge:
        told = f"{baseline.path} was judged by {old.judge}, {candidate.path} by {new.judge}"
        if not anyway:
            raise RunError(
                f"{told}: a difference could be the judges'. Judge the older one again with --rejudge, "
                "or compare them all the same with --anyway."
            )
        warnings.append(told)
    names = [{measure.name for measure in made.metrics} for made in (old, new)]
    if not names[0] & names[1]:
        raise RunError(
            f"{baseline.path} and {candidate.path} share no metric with the same parameters. "
            f"Score one like the other: ragfault rescore {baseline.path} -o OTHER -m …"
        )
    apart = {bare(name) for name in names[0] - names[1]} & {bare(name) for name in names[1] - names[0]}
    apart -= {bare(name) for name in names[0] & names[1]}
    if apart:
        told = f"the runs score {', '.join(sorted(apart))} with different parameters"
        if not anyway:
            raise RunError(
                f"{told}. Score one like the other (ragfault rescore), or compare the rest with --anyway."
            )
        warnings.append(told)
    return tuple(warnings)
