"""Bisection: which layer broke between two runs, with the evidence for it, or that the data cannot tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.findings.changes import Bisection, Change, Clue, Comparison, Fault, Ruling
from ragfault.findings.clues import ID_METRICS, clues, void
from ragfault.findings.comparing import ALPHA, compare, divided
from ragfault.findings.framing import Frame, frame
from ragfault.findings.grid import bare
from ragfault.findings.telling import telling
from ragfault.findings.tree import DEPTH, GOLD, TREE, Walk, held
from ragfault.runs import Measure, Run

__all__ = ["bisect", "bisect_segments"]

AGAIN = "again: generation"
"""The name of the second look in the walk of the tree."""

WEIGHTS = {"high": 1.0, "medium": 0.7, "low": 0.3, "none": 0.0}
"""The weights of context_relevance, for the same at a common depth."""


def bisect(
    baseline: Run | Frame,
    candidate: Run | None = None,
    *,
    keep: NDArray[np.bool_] | None = None,
    **terms: Any,
) -> Bisection:
    """Name the layer that broke between two runs, or say that the data cannot tell.

    The metrics of the decision tree are compared on the paired traces and corrected among themselves; the
    branches are walked in order and the first that matches is the first fault. Where retrieval broke,
    generation is looked at again on the traces whose retrieval did not get worse, so that a second fault is
    not hidden behind the first. Labels that no longer describe the candidate's corpus are left out, and the
    bisection says so. `terms` are those of `compare`: margin, margins, alpha, power, anyway, seed.

    Raises what `compare` raises.
    """
    side = frame(baseline, candidate, anyway=bool(terms.pop("anyway", False)))
    old, new = side.circumstances if keep is None else side.partial(keep)
    gone = void(old, new)
    _deepen(side)
    names = _names(side, labelled=gone is None)
    comparison = compare(side, metrics=names, keep=keep, **terms)
    found = clues(old, new)
    if gone is not None:
        warning = f"labels no longer describe the corpus: {gone:.0%} of gold ids are gone; use gold spans"
        comparison = replace(comparison, warnings=(*comparison.warnings, warning))
    walk = Walk(comparison, found)
    faults, tree = walk.faults, walk.rulings
    if faults and faults[0].layer == "retrieval":
        more, ruling = _second(side, comparison, keep, terms, found)
        faults, tree = [*faults, *more], [*tree, ruling]
    shown = tuple(replace(fault, telling=telling(side, fault)) for fault in faults)
    return Bisection(
        verdict=walk.verdict,
        sentence=_sentence(shown, walk, comparison),
        faults=shown,
        tree=tuple(tree),
        comparison=comparison,
        clues=found,
        needed=walk.needed,
    )


def bisect_segments(
    side: Frame, by: str, *, alpha: float = ALPHA, **terms: Any
) -> list[tuple[str, Bisection]]:
    """Bisect each segment of the pairs by a field of the baseline, the largest first, corrected for their number."""
    parts, each = divided(side, by, alpha)
    found = [(name, bisect(side, keep=keep, alpha=each, **terms)) for name, keep in parts]
    return [(name, _marked(one, by, name)) for name, one in found]


def _marked(found: Bisection, by: str, segment: str) -> Bisection:
    """The bisection, with the segment it is of."""
    comparison = replace(found.comparison, by=by, segment=segment)
    return replace(found, comparison=comparison)


def _names(side: Frame, labelled: bool) -> list[str]:
    """The metrics of the tree that both runs have; one of each name, those of void labels left out."""
    chosen: dict[str, str] = {}
    for measure in side.shared():
        name = bare(measure.name)
        if measure.name == DEPTH or (name in TREE and (labelled or name not in ID_METRICS)):
            chosen.setdefault(measure.name if measure.name == DEPTH else name, measure.name)
    return list(chosen.values())


def _deepen(side: Frame) -> None:
    """Add context_relevance at a common depth: over as many chunks of each pair as both runs retrieved."""
    if side.has(DEPTH):
        return
    levels = [_levels(run) for run in side.runs]
    left = np.full(len(side.pairing), math.nan)
    right = np.full(len(side.pairing), math.nan)
    rows = zip(side.pairing.baseline.tolist(), side.pairing.candidate.tolist(), strict=True)
    for at, (old, new) in enumerate(rows):
        depth = min(len(levels[0][old]), len(levels[1][new]))
        if depth:
            left[at] = sum(levels[0][old][:depth]) / depth
            right[at] = sum(levels[1][new][:depth]) / depth
    if bool(np.isfinite(left).any()):
        side.add(Measure(DEPTH, "retrieval"), left, right)


def _levels(run: Run) -> list[list[float]]:
    return [[WEIGHTS[chunk.level] for chunk in verdicts.chunk or ()] for verdicts in run.verdicts()]


def _second(
    side: Frame,
    comparison: Comparison,
    keep: NDArray[np.bool_] | None,
    terms: Mapping[str, Any],
    found: Sequence[Clue],
) -> tuple[list[Fault], Ruling]:
    """The faults of generation that show on the traces whose retrieval did not get worse."""
    calm = np.ones(len(side.pairing), dtype=bool) if keep is None else keep.copy()
    for change in comparison.changes:
        if change.metric == DEPTH or bare(change.metric) in GOLD:
            old, new = side.values(change.metric, 0), side.values(change.metric, 1)
            calm &= ~(new < old - change.margin)
    chosen = [
        c.metric
        for c in comparison.changes
        if c.layer != "retrieval" or bare(c.metric) == "chunk_attribution"
    ]
    told = f"on {int(calm.sum()):,} pairs whose retrieval did not get worse"
    if not bool(calm.any()) or not chosen:
        return [], Ruling(branch=AGAIN, layer="generation", outcome="not measured", why=told)
    walk = Walk(compare(side, metrics=chosen, keep=calm, **terms), found, calm=True)
    faults = [replace(fault, certain=False) for fault in walk.faults if fault.layer == "generation"]
    if faults:
        why = f"{told}: {'; '.join(_moved(fault.evidence[0]) for fault in faults)}"
        return faults, Ruling(branch=AGAIN, layer="generation", outcome="fault", why=why)
    clear = walk.verdict == "no fault"
    outcome: Literal["ruled out", "cannot tell"] = "ruled out" if clear else "cannot tell"
    return [], Ruling(branch=AGAIN, layer="generation", outcome=outcome, why=f"{told} no drop is shown")


def _sentence(faults: Sequence[Fault], walk: Walk, comparison: Comparison) -> str:
    """The verdict in one sentence."""
    if faults:
        first = faults[0]
        lead = f"{first.layer.capitalize()} broke ({first.title}): {_moved(first.evidence[0])}"
        look = f"; look at {', '.join(first.suspects[:3])}" if first.suspects else ""
        also = [fault.title for fault in faults[1:]]
        return f"{lead}{look}.{f' Also: {chr(59).join(also)}.' if also else ''}"
    if walk.verdict == "no fault":
        return (
            f"No layer broke: on {comparison.pairs:,} paired traces every metric of the tree is steady, rose, or did "
            "not drop by its margin."
        )
    if walk.open is not None:
        return f"{_moved(walk.open)}, but whether retrieval moved with it the data cannot tell."
    least = [c for c in comparison.changes if c.detectable is not None and not held(c)]
    if not least:
        return f"The data cannot tell: nothing of the tree is measured on {comparison.pairs:,} paired traces."
    worst = max(least, key=lambda change: change.detectable or 0.0)
    need = f"; about {walk.needed:,} would show one of {worst.margin:g}" if walk.needed else ""
    return (
        f"No layer is shown to have broken, and {comparison.pairs:,} paired traces cannot rule it out: they would miss "
        f"a change of {worst.metric} below {worst.detectable:.2g}{need}."
    )


def _moved(change: Change) -> str:
    """A change in words."""
    assert change.difference is not None
    low, high = change.difference.low, change.difference.high
    p = change.adjusted if change.adjusted is not None else 1.0
    word = {"dropped": "fell", "rose": "rose"}.get(change.state, "moved")
    shown = f"p {'< 0.001' if p < 0.001 else f'= {p:.3f}'}"
    return (
        f"{change.metric} {word} by {abs(change.difference.mean):.3f} "
        f"[{min(abs(low), abs(high)):.3f}, {max(abs(low), abs(high)):.3f}] on {change.n:,} paired traces ({shown})"
    )
