"""Gold in a comparison: it is applied only on the pairs whose answer key is the same on both sides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ragfault.analysis.comparison.pairing import Mask, RunContents, TracePairing
from ragfault.analysis.comparison.renamed_ids import RenamedIds
from ragfault.gold_evidence import apply_gold
from ragfault.io.runs import Run
from ragfault.metrics import compute_score, parse_metric
from ragfault.records import Gold, Verdicts


def find_other_keys(
    runs: tuple[Run, Run], contents: tuple[RunContents, RunContents], pairing: TracePairing, renamed: RenamedIds | None
) -> Mask:
    """Return the pairs on which gold is not applied: the answer keys differ, or chunks were renamed."""
    old, new = contents
    left, right = pairing.baseline, pairing.candidate
    if not all(run.manifest.gold == "apply" for run in runs):
        return np.zeros(len(pairing), dtype=bool)
    same = [_is_same_key(old.gold[a], new.gold[b]) for a, b in zip(left, right, strict=True)]
    other: Mask = ~np.array(same, dtype=bool)
    for field in ("references", "facts", "answerable"):
        other |= getattr(old, field)[left] != getattr(new, field)[right]
    return other if renamed is None else other | renamed.pairs


def _is_same_key(old: Gold | None, new: Gold | None) -> bool:
    """Return whether two golds are the same; equal spans are, though a corpus cut anew has other chunk ids."""
    if old is None or new is None:
        return old is new
    return set(old.spans) == set(new.spans) and (old.chunks == new.chunks or bool(old.spans))


def read_paired_verdicts(run: Run, rows: NDArray[np.int64], other_keys: Mask) -> Iterator[Verdicts]:
    """Yield the verdicts of a run, with gold applied where the run does so and the other side has the same key."""
    if run.manifest.gold != "apply" or not run.has_gold():
        yield from run.verdicts()
        return
    alone = set(rows[other_keys].tolist())
    for row, (trace, verdicts) in enumerate(zip(run.traces(), run.verdicts(), strict=True)):
        yield verdicts if row in alone else apply_gold(trace, verdicts)


def score_without_gold(
    run: Run, rows: NDArray[np.int64], other_keys: Mask, metrics: Sequence[str]
) -> dict[str, NDArray[np.float64]]:
    """Score metrics by the judge alone on the pairs with other keys; NaN elsewhere and where there is no value."""
    values = {name: np.full(len(rows), math.nan) for name in metrics}
    parsed = {name: parse_metric(name) for name in metrics}
    pairs: dict[int, list[int]] = {}
    for pair in np.flatnonzero(other_keys).tolist():
        pairs.setdefault(int(rows[pair]), []).append(pair)
    for row, (trace, verdicts) in enumerate(zip(run.traces(), run.verdicts(), strict=True)):
        if row in pairs:
            for name, metric in parsed.items():
                value = compute_score(metric, trace, verdicts).value
                values[name][pairs[row]] = math.nan if value is None else value
    return values
