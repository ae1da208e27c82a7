"""Pairs of traces that evidence is read from, and what an observation on them is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.records import StageEvidence
from ragfault.comparison.renamed_ids import rename_chunks
from ragfault.comparison.run_profile import RunProfile
from ragfault.model.records import Trace, Verdicts
from ragfault.text.number_format import format_percent

# pairs that are read for evidence, evenly spaced
MAX_PAIRS = 1_000
# an effect on a smaller share of the pairs is no evidence
LEAST_SHARE = 0.02


class TracePair(NamedTuple):
    """One query in both runs, with its verdicts."""

    old: Trace
    new: Trace
    old_verdicts: Verdicts
    new_verdicts: Verdicts


class PairedTraces(NamedTuple):
    """Sample of the pairs, and the profiles of both runs."""

    pairs: Sequence[TracePair]
    profiles: tuple[RunProfile, RunProfile]


def read_pairs(paired: PairedRuns, mask: NDArray[np.bool_] | None = None) -> PairedTraces:
    """Read the traces and verdicts of at most 1,000 of the pairs, evenly spaced.

    Chunks that stand under other ids in the candidate have the baseline's.
    """
    places = np.flatnonzero(mask) if mask is not None else np.arange(len(paired.pairing))
    if len(places) > MAX_PAIRS:
        places = places[np.linspace(0, len(places) - 1, MAX_PAIRS).astype(int)]
    sides = []
    for side in (0, 1):
        rows = paired.paired_rows(side)[places].tolist()
        chosen, run = set(rows), paired.runs[side]
        judged = {row: both for row, both in enumerate(zip(run.traces(), run.verdicts(), strict=True)) if row in chosen}
        if side and (renamed := paired.renamed_ids) is not None:
            keys = paired.contents[1].trace_keys
            judged = {row: (rename_chunks(trace, keys[row], renamed), v) for row, (trace, v) in judged.items()}
        sides.append([judged[row] for row in rows])
    pairs = [TracePair(old[0], new[0], old[1], new[1]) for old, new in zip(*sides, strict=True)]
    return PairedTraces(pairs, paired.profiles)


Evidence = Iterator[StageEvidence]


def ramp(value: float, low: float, high: float) -> float:
    """Return 0 up to `low`, 1 from `high` on, and in between in proportion."""
    return min(1.0, max(0.0, (value - low) / (high - low)))


def give(name: str, strength: float, text: str, *stages: str, half: Sequence[str] = ()) -> Evidence:
    """Yield an observation for each stage that it speaks for, with half of its strength for those of `half`."""
    for stage in (*stages, *half):
        yield StageEvidence(name=name, stage=stage, strength=round(strength / (1 + (stage in half)), 4), text=text)


def give_rise(
    name: str, shares: Sequence[float], what: str, most: float, *stages: str, half: Sequence[str] = ()
) -> Evidence:
    """Yield the observation that a share rose from the baseline to the candidate; it is full from `most` on."""
    text = f"{format_percent(shares[1])} of the {what}, {format_percent(shares[0])} before"
    yield from give(name, ramp(shares[1] - shares[0], LEAST_SHARE, most), text, *stages, half=half)
