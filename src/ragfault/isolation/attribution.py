"""Attribution: from the scores of every configuration to what each part did, with intervals and tests."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.findings.changes import State
from ragfault.findings.comparing import MARGIN, POWER, RELATIVE
from ragfault.isolation.records import Attribution, Effect
from ragfault.isolation.weights import Design
from ragfault.isolation.words import told
from ragfault.runs import Measure
from ragfault.stats import (
    Difference,
    Significance,
    equivalence,
    holm,
    paired_differences,
    required,
    required_steady,
    sign_flips,
)
from ragfault.stats.groups import Clusters, Floats
from ragfault.stats.permutation import LARGE
from ragfault.stats.permutation import RESAMPLES as FLIPS

__all__ = ["Terms", "attribute"]

SLACK = 1e-12
"""Relative size below which an effect on a query is rounding."""

Mask = NDArray[np.bool_]


class Test(Struct, frozen=True):
    """An effect with its interval and its test."""

    difference: Difference
    flip: Significance
    counts: bool
    """Whether it is other than 0 on some query, so that it could be significant."""


class Terms(Struct, frozen=True, kw_only=True):
    """On what terms effects are told."""

    confidence: float = 0.95
    resamples: int | None = None
    seed: int = 0
    margin: float = MARGIN
    power: float = POWER

    @property
    def alpha(self) -> float:
        """The level of the tests."""
        return 1 - self.confidence

    def span(self, measure: Measure, mean: float) -> float:
        """The smallest effect that matters for a metric, in its units."""
        if measure.low is not None and measure.high is not None:
            return self.margin * (measure.high - measure.low)
        return max(RELATIVE * abs(mean), 1e-9)


def attribute(
    values: Floats,
    measures: Sequence[Measure],
    parts: Sequence[str],
    design: Design,
    clusters: Clusters | None,
    *,
    same: Sequence[Sequence[int]] = (),
    terms: Terms | None = None,
) -> tuple[Attribution, ...]:
    """Divide the change of every metric among the parts.

    `values` are configurations by queries by metrics, NaN where a query is not scored; only queries that are
    scored in every configuration count. Every effect is computed query by query; its interval is that of
    a paired difference (BCa over resampled clusters, the same resamples for all effects and metrics) and its
    p that of the sign-flip test. Holm's correction takes the whole changes of all metrics as one family, and
    the shares and interactions of all metrics as another; effects that are 0 on every query cannot be
    significant whatever the signs, and are not counted (Tarone 1990). `same` names, for each metric, the parts
    that cannot move it.

    >>> from ragfault.isolation.weights import factorial_design
    >>> rng = np.random.default_rng(0)
    >>> queries = rng.normal(0.5, 0.1, size=(1, 50, 1))
    >>> effects = np.array([0.0, 0.0, -0.2, -0.2])[:, None, None] + rng.normal(0, 0.01, size=(4, 50, 1))
    >>> found = attribute(queries + effects, [Measure("m", "generation")], ["r", "g"], factorial_design(2), None)[0]
    >>> found.made, [round(share.difference.mean, 2) for share in found.shares]
    (('g',), [0.0, -0.2])
    """
    terms = terms or Terms()
    scored = np.isfinite(values)
    kept: Mask = np.asarray(scored.all(axis=0))
    lost = (np.asarray(scored.any(axis=0)) & ~kept).sum(axis=0).tolist()
    groups = [(), *((i,) for i in range(len(parts))), *((i, j) for i, j, _ in design.interactions)]
    weights = np.vstack([design.total, design.shares, *(row for _, _, row in design.interactions)])
    tests = _tests(np.where(kept, values, 0.0), kept, weights, measures, clusters, terms)
    adjusted = _adjusted(tests)
    family = max(1, sum(test is not None and test.counts for row in tests for test in row[1:]))
    found = []
    for at, measure in enumerate(measures):
        means = values[:, kept[:, at], at].mean(axis=1).tolist() if kept[:, at].any() else []
        margin = terms.span(measure, means[0] if means else 0.0)
        null = _null(groups, set(same[at]) if same else set(), len(parts))
        effects = [
            _effect(tuple(parts[i] for i in group), test, p, margin, still, terms, family)
            for group, test, p, still in zip(groups, tests[at], adjusted[at], null, strict=True)
            if test is not None
        ]
        found.append(
            _attribution(measure, means, int(kept[:, at].sum()), lost[at], margin, effects, len(parts))
        )
    return tuple(found)


def _attribution(
    measure: Measure,
    means: list[float],
    n: int,
    lost: int,
    margin: float,
    effects: Sequence[Effect],
    k: int,
) -> Attribution:
    return told(
        Attribution(
            metric=measure.name,
            layer=measure.layer,
            better=measure.better,
            means=tuple(means),
            n=n,
            lost=lost,
            margin=margin,
            total=effects[0] if effects else None,
            shares=tuple(effects[1 : k + 1]),
            interactions=tuple(effects[k + 1 :]),
        )
    )


def _null(groups: Sequence[tuple[int, ...]], still: set[int], k: int) -> list[bool]:
    """Which effects are nothing for certain: a part of them (for the whole change: every part) cannot move it."""
    return [any(part in still for part in group) if group else len(still) == k for group in groups]


def _tests(
    values: Floats,
    kept: Mask,
    weights: Floats,
    measures: Sequence[Measure],
    clusters: Clusters | None,
    terms: Terms,
) -> list[list[Test | None]]:
    """Metric by metric, each effect with its interval and its test."""
    count = len(weights)
    after = np.einsum("ec,cqm->qme", np.maximum(weights, 0), values)
    before = np.einsum("ec,cqm->qme", np.maximum(-weights, 0), values)
    rounding = np.abs(after - before) <= SLACK * (np.abs(after) + np.abs(before))
    after = np.where(rounding, before, after)
    left, right = (side.reshape(len(side), -1) for side in (before, after))
    defined = np.repeat(kept, count, axis=1)
    bounds = [
        (-math.inf if m.low is None else m.low * size, math.inf if m.high is None else m.high * size)
        for m in measures
        for size in np.maximum(weights, 0).sum(axis=1).tolist()
    ]
    differences = paired_differences(
        left,
        right,
        clusters,
        defined=defined,
        bounds=bounds,
        confidence=terms.confidence,
        resamples=terms.resamples,
        seed=terms.seed,
    )
    flips = sign_flips(
        left, right, clusters, defined=defined, resamples=_draws(left != right, terms), seed=terms.seed
    )
    found = [
        None if change is None or flip is None else Test(change, flip, counts)
        for change, flip, counts in zip(differences, flips, (left != right).any(axis=0).tolist(), strict=True)
    ]
    return [found[at : at + count] for at in range(0, len(found), count)]


def _draws(moved: Mask, terms: Terms) -> int | None:
    """Random sign patterns enough for the smallest p to stay below the level after correction; None: the usual."""
    least = math.ceil(2 * int(moved.any(axis=0).sum()) / terms.alpha)
    return None if least <= FLIPS or len(moved) > LARGE else least


def _adjusted(tests: list[list[Test | None]]) -> list[list[float]]:
    """Holm's p for every effect: one family for the whole changes, one for all else."""
    adjusted = [[1.0] * len(row) for row in tests]
    for inner in (False, True):
        places = [
            (at, effect, test.flip.p)
            for at, row in enumerate(tests)
            for effect, test in enumerate(row)
            if test is not None and test.counts and (effect > 0) == inner
        ]
        for (at, effect, _), p in zip(places, holm([p for *_, p in places]), strict=True):
            adjusted[at][effect] = p
    return adjusted


def _effect(
    parts: tuple[str, ...], test: Test, adjusted: float, margin: float, same: bool, terms: Terms, family: int
) -> Effect:
    difference = test.difference
    steadiness = equivalence(difference, margin, terms.alpha).p
    state: State = "cannot tell"
    if same or steadiness <= terms.alpha:
        state = "steady"
    elif adjusted <= terms.alpha:
        state = "rose" if difference.mean > 0 else "dropped"
    return Effect(
        parts=parts,
        difference=difference,
        p=test.flip.p,
        adjusted=adjusted,
        steadiness=steadiness,
        state=state,
        same=same,
        needed=_needed(difference, margin, terms, family) if state == "cannot tell" else None,
    )


def _needed(difference: Difference, margin: float, terms: Terms, family: int) -> int | None:
    """About how many queries would tell an effect of the margin, corrected, from none, at the present spread."""
    spread, size = difference.deviation, difference.size
    if not math.isfinite(spread) or spread <= 0:
        return None
    enough = [
        required(margin, spread, size, power=terms.power, alpha=terms.alpha / family),
        required_steady(margin, spread, size, power=terms.power, alpha=terms.alpha),
    ]
    known = [n for n in enough if n is not None]
    return max(known) if known else None
