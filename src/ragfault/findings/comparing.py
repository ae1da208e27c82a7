"""Comparison: did a metric move between two runs, by how much, and is it real?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragfault.errors import RunError, UsageError
from ragfault.findings.changes import Change, Comparison, Mover, State
from ragfault.findings.grid import FAILED, SCORED, UNDEFINED, Grid, bare, labels
from ragfault.findings.pairing import Pairing, pair
from ragfault.runs import Measure, Run
from ragfault.stats import (
    Difference,
    detectable,
    equivalence,
    holm,
    paired_differences,
    required,
    required_steady,
    sign_flips,
)

__all__ = ["ALPHA", "MARGIN", "POWER", "Frame", "compare", "frame", "segmented"]

ALPHA, POWER = 0.05, 0.8

MARGIN = 0.02
"""The smallest change that matters for a metric with a range from 0 to 1."""

RELATIVE = 0.05
"""The same for a metric without end, as a share of the baseline's mean."""

SHOWN = 5
"""How many of the traces that moved most a change names."""

Mask = NDArray[np.bool_]

RETRIEVAL_ONLY = frozenset(
    {
        "context_relevance",
        "context_precision",
        "context_ranking",
        "ranking_penalty",
        "context_recall",
        "context_entity_recall",
        "missing_context",
        "redundancy",
        "empty_retrieval",
        "recall",
        "precision",
        "f1",
        "hit",
        "reciprocal_rank",
        "average_precision",
        "ndcg",
        "r_precision",
        "span_recall",
        "span_precision",
        "span_iou",
    }
)
"""Metrics that read the query, the chunks and the answer key, never the answer."""


class Frame:
    """Two runs side by side: their grids and which row stands against which."""

    def __init__(self, baseline: Run, candidate: Run, *, anyway: bool = False) -> None:
        self.runs = (baseline, candidate)
        self.warnings = _comparable(baseline, candidate, anyway)
        self.grids = (Grid(baseline), Grid(candidate))
        self.pairing: Pairing = pair(baseline, candidate)
        self._names: tuple[list[str], list[str]] | None = None
        self._added: dict[str, tuple[Measure, tuple[NDArray[np.float64], NDArray[np.float64]]]] = {}

    def names(self) -> tuple[list[str], list[str]]:
        """The ids and queries of the candidate's traces."""
        if self._names is None:
            table = self.runs[1].to_arrow("traces", ["id", "query"])
            self._names = (table["id"].to_pylist(), table["query"].to_pylist())
        return self._names

    def partners(self, ids: Sequence[str]) -> dict[str, str]:
        """For traces of the candidate, the ids of their partners in the baseline."""
        wanted = set(ids)
        names, _ = self.names()
        old = self.runs[0].to_arrow("traces", ["id"])["id"]
        rows = zip(self.pairing.baseline.tolist(), self.pairing.candidate.tolist(), strict=True)
        return {names[new]: old[before].as_py() for before, new in rows if names[new] in wanted}

    def has(self, metric: str) -> bool:
        """Whether a metric was added to those of the runs."""
        return metric in self._added

    def add(self, measure: Measure, left: NDArray[np.float64], right: NDArray[np.float64]) -> None:
        """Add a metric by its values on the pairs, NaN where it has none."""
        self._added[measure.name] = (measure, (left, right))

    def rows(self, side: int) -> NDArray[np.int64]:
        """The rows of one run that have a partner."""
        return self.pairing.candidate if side else self.pairing.baseline

    def values(self, metric: str, side: int) -> NDArray[np.float64]:
        """The values of a metric on the paired traces of one run; NaN where it has none."""
        if metric in self._added:
            return self._added[metric][1][side]
        grid = self.grids[side]
        at = grid.find(metric)
        if at is None:
            raise UsageError(f"{metric} is not in {self.runs[side].path}.")
        found: NDArray[np.float64] = grid.values[self.rows(side), at]
        return found

    def states(self, metric: str, side: int) -> NDArray[np.int64]:
        """Whether the metric is scored, undefined or failed on them."""
        if metric in self._added:
            return np.where(np.isfinite(self._added[metric][1][side]), SCORED, UNDEFINED)
        at = self.grids[side].find(metric)
        assert at is not None
        found: NDArray[np.int64] = self.grids[side].status[self.rows(side), at]
        return found

    def shared(self) -> list[Measure]:
        """The metrics that both runs have, in the order of the candidate."""
        there = {measure.name for measure in self.grids[0].measures}
        mine = [measure for measure in self.grids[1].measures if measure.name in there]
        return [*mine, *(measure for measure, _ in self._added.values())]


def frame(baseline: Run | Frame, candidate: Run | None = None, *, anyway: bool = False) -> Frame:
    """Two runs side by side; a frame is taken as it is, so that several findings can share one."""
    if isinstance(baseline, Frame):
        return baseline
    assert candidate is not None
    return Frame(baseline, candidate, anyway=anyway)


def compare(  # noqa: PLR0913 - the terms of one verb
    baseline: Run | Frame,
    candidate: Run | None = None,
    *,
    metrics: Sequence[str] | None = None,
    margin: float = MARGIN,
    margins: Mapping[str, float] | None = None,
    alpha: float = ALPHA,
    power: float = POWER,
    anyway: bool = False,
    seed: int = 0,
    keep: Mask | None = None,
) -> Comparison:
    """Compare two runs on the traces they share, metric by metric.

    A metric is *steady* where an equivalence test (two one-sided, at `alpha`) shows the change to be
    smaller than its margin, else *dropped* or *rose* where the sign-flip test, corrected by Holm over all
    metrics compared, finds a change at `alpha`; otherwise the data *cannot tell*, with about how many pairs
    would at `power`. The margin is `margin` times the width of the metric's range, 5 % of the baseline's
    mean where the range has no end, or what `margins` gives for a metric by its text or its bare name.
    Pairs of one conversation, or of one query, are taken together.

    `metrics` (texts as they print) leaves the others out of the correction; `keep` is a mask over the
    pairs. Raises RunError where the judges differ (unless `anyway`), the metrics have other parameters, or
    nothing pairs; UsageError for impossible settings.
    """
    if not (0 < alpha < 1 and 0 < power < 1 and margin > 0):
        raise UsageError("alpha and power lie between 0 and 1, and the margin is above 0.")
    side = frame(baseline, candidate, anyway=anyway)
    measures = [m for m in side.shared() if metrics is None or m.name in metrics]
    chosen = np.ones(len(side.pairing), dtype=bool) if keep is None else keep
    found = _changes(side, measures, chosen, _Terms(margin, margins or {}, alpha, power, seed))
    pairing = side.pairing
    return Comparison(
        baseline=side.runs[0].path.name,
        candidate=side.runs[1].path.name,
        manifests=(side.runs[0].manifest, side.runs[1].manifest),
        how=pairing.how,
        pairs=int(chosen.sum()),
        alone=pairing.alone,
        same_chunks=int(pairing.chunks[chosen].sum()),
        same_answers=int(pairing.answers[chosen].sum()),
        alpha=alpha,
        power=power,
        changes=tuple(found),
        warnings=side.warnings,
    )


def segmented(side: Frame, by: str, **options: Any) -> list[Comparison]:
    """The comparison of each segment of the pairs by a field of the baseline, the largest first.

    `alpha` is divided by the number of segments, so that the chance of any false alarm stays what was asked
    for.
    """
    codes, names = labels(side.runs[0], by)
    mine = codes[side.pairing.baseline]
    parts = [(name, mine == at) for at, name in enumerate(names) if bool((mine == at).any())]
    parts.sort(key=lambda part: -int(part[1].sum()))
    alpha = options.pop("alpha", ALPHA) / max(1, len(parts))
    import msgspec

    return [
        msgspec.structs.replace(compare(side, keep=keep, alpha=alpha, **options), by=by, segment=name)
        for name, keep in parts
    ]


class _Terms:
    """On what terms changes are told apart."""

    def __init__(
        self, margin: float, margins: Mapping[str, float], alpha: float, power: float, seed: int
    ) -> None:
        self.margin, self.margins = margin, margins
        self.alpha, self.power, self.seed = alpha, power, seed

    def of(self, measure: Measure, mean: float) -> float:
        """The margin of a metric, in its units."""
        for name in (measure.name, bare(measure.name)):
            if name in self.margins:
                return self.margins[name]
        if measure.low is not None and measure.high is not None:
            return self.margin * (measure.high - measure.low)
        return max(RELATIVE * abs(mean), 1e-9)


def _changes(side: Frame, measures: Sequence[Measure], keep: Mask, terms: _Terms) -> list[Change]:
    if not measures:
        return []
    left = np.stack([side.values(m.name, 0)[keep] for m in measures], axis=1)
    right = np.stack([side.values(m.name, 1)[keep] for m in measures], axis=1)
    defined = np.isfinite(left) & np.isfinite(right)
    left, right = np.where(defined, left, 0.0), np.where(defined, right, 0.0)
    clusters = None if side.pairing.clusters is None else side.pairing.clusters[keep]
    bounds = [
        (-math.inf if m.low is None else m.low, math.inf if m.high is None else m.high) for m in measures
    ]
    differences = paired_differences(left, right, clusters, defined=defined, bounds=bounds, seed=terms.seed)
    tests = sign_flips(left, right, clusters, defined=defined, seed=terms.seed)
    same = bool(side.pairing.chunks[keep].all())
    fixed = [same and _retrieval_only(measure.name) for measure in measures]
    tested = [at for at, test in enumerate(tests) if test is not None and not fixed[at]]
    adjusted = dict(zip(tested, holm([tests[at].p for at in tested]), strict=True))  # type: ignore[union-attr]
    found = []
    for at, measure in enumerate(measures):
        pairs = defined[:, at]
        test = tests[at]
        found.append(
            _change(
                side,
                measure,
                np.flatnonzero(keep),
                (left[:, at], right[:, at], pairs),
                differences[at],
                (None if test is None else test.p, adjusted.get(at)),
                fixed[at],
                terms,
            )
        )
    return found


def _change(
    side: Frame,
    measure: Measure,
    places: NDArray[np.int64],
    columns: tuple[NDArray[np.float64], NDArray[np.float64], Mask],
    difference: Difference | None,
    p: tuple[float | None, float | None],
    same: bool,
    terms: _Terms,
) -> Change:
    left, right, pairs = columns
    states = [side.states(measure.name, at)[places] for at in (0, 1)]
    scored = [state == SCORED for state in states]
    n = int(pairs.sum())
    means = (float(left[pairs].mean()), float(right[pairs].mean())) if n else (None, None)
    margin = terms.of(measure, means[0] or 0.0)
    steadiness = None if difference is None else equivalence(difference, margin, terms.alpha).p
    state, needed, least = _state(difference, p[1], steadiness, margin, same, terms)
    moved = np.where(pairs, right - left, 0.0)
    return Change(
        metric=measure.name,
        layer=measure.layer,
        better=measure.better,
        state=state,
        baseline=means[0],
        candidate=means[1],
        difference=difference,
        p=p[0],
        adjusted=p[1],
        steadiness=steadiness,
        margin=margin,
        detectable=least,
        needed=needed,
        n=n,
        lost=(int((scored[0] & ~scored[1]).sum()), int((scored[1] & ~scored[0]).sum())),
        failed=(int((states[0] == FAILED).sum()), int((states[1] == FAILED).sum())),
        same=same,
        rose=int((moved > 0).sum()),
        fell=int((moved < 0).sum()),
        gains=_movers(side, places, left, right, np.argsort(-moved, kind="stable"), moved > 0),
        drops=_movers(side, places, left, right, np.argsort(moved, kind="stable"), moved < 0),
    )


def _retrieval_only(metric: str) -> bool:
    """Whether a metric reads nothing but the query, the chunks and the answer key."""
    return metric.startswith("context_relevance") or bare(metric) in RETRIEVAL_ONLY


def _state(
    difference: Difference | None,
    adjusted: float | None,
    steadiness: float | None,
    margin: float,
    same: bool,
    terms: _Terms,
) -> tuple[State, int | None, float | None]:
    """The state of a metric, the number of pairs that would tell, and the smallest change these pairs would find."""
    if same:
        return "steady", None, None
    if difference is None or adjusted is None or steadiness is None:
        return "cannot tell", None, None
    spread = difference.deviation
    least = None
    if math.isfinite(spread) and spread > 0 and difference.clusters > 1:
        least = detectable(spread, difference.n, difference.size, power=terms.power, alpha=terms.alpha)
    if steadiness <= terms.alpha:
        return "steady", None, least
    if adjusted <= terms.alpha:
        return ("rose" if difference.mean > 0 else "dropped"), None, least
    return "cannot tell", _needed(difference, spread, margin, terms), least


def _needed(difference: Difference, spread: float, margin: float, terms: _Terms) -> int | None:
    """About how many pairs would tell a change of the margin from none, at the present spread."""
    if not math.isfinite(spread) or spread <= 0:
        return None
    enough = [
        required(margin, spread, difference.size, power=terms.power, alpha=terms.alpha),
        required_steady(margin, spread, difference.size, power=terms.power, alpha=terms.alpha),
    ]
    known = [n for n in enough if n is not None]
    return max(known) if known else None


def _movers(
    side: Frame,
    places: NDArray[np.int64],
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    order: NDArray[np.int64],
    wanted: Mask,
) -> tuple[Mover, ...]:
    ids, queries = side.names()
    found = []
    for at in order[: min(SHOWN, int(wanted.sum()))]:
        row = int(side.pairing.candidate[places[at]])
        found.append(Mover(ids[row], queries[row], float(left[at]), float(right[at])))
    return tuple(found)


def _comparable(baseline: Run, candidate: Run, anyway: bool) -> tuple[str, ...]:
    """Refuse runs that were scored by other judges or metric parameters."""
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
