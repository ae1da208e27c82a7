"""Attribution of a change to components: experimental designs, factorial effects and Shapley shares.

A configuration is a number: bit i is set where part i is the candidate's. Every effect is a weighted sum over
configurations, so it can be computed query by query and its interval is that of a mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import factorial
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.comparison.ablation.parts import MetricAttribution, PartEffect, System
from ragfault.comparison.compare import default_margin, ignores_answer, pairs_to_decide
from ragfault.comparison.records import ChangeState
from ragfault.comparison.settings import MARGIN, POWER
from ragfault.diagnosis.score_matrix import is_amount
from ragfault.io.runs.run import MetricInfo
from ragfault.metrics.catalog import Metric
from ragfault.model.records import Trace
from ragfault.stats.bootstrap import Clusters, FloatArray
from ragfault.stats.differences import paired_differences
from ragfault.stats.estimates import Difference
from ragfault.stats.significance import SignificanceTest, count_flips, equivalence_test, holm_adjust, sign_flip_tests
from ragfault.text.number_format import format_signed

# up to so many parts all 2^k configurations are run, unless orders are asked for
MAX_FACTORIAL_PARTS = 4


class ExperimentDesign(Struct, frozen=True, kw_only=True):
    """Configurations of an experiment and the weights of its effects on them."""

    # the configurations, by how many parts they take from the candidate
    masks: tuple[int, ...]
    # weights of the whole change
    total: FloatArray
    # parts by configurations: weights of the Shapley shares
    shares: FloatArray
    # weights of the interaction of two parts, for each pair
    interactions: tuple[tuple[int, int, FloatArray], ...]
    # how many orders of swapping the shares are a mean of; None: all
    permutations: int | None


def factorial_design(k: int) -> ExperimentDesign:
    """Return the design that runs every configuration of k parts once (Fisher 1935; Yates 1937).

    A part's share is its Shapley value (Shapley 1953): the mean, over all orders in which the parts may be
    swapped, of what swapping it changes. The interaction of two parts is the Shapley interaction index
    (Grabisch & Roubens 1999): how much more both change together than each alone. For two parts these are the
    main effects and the interaction of the 2 × 2 factorial.

    >>> design = factorial_design(2)
    >>> design.masks
    (0, 1, 2, 3)
    >>> design.shares
    array([[-0.5,  0.5, -0.5,  0.5],
           [-0.5, -0.5,  0.5,  0.5]])
    >>> design.interactions[0][2]
    array([ 1., -1., -1.,  1.])
    """
    masks = _sort_masks(range(1 << k))
    rows = {mask: index for index, mask in enumerate(masks)}
    shares = np.zeros((k, len(masks)))
    for part in range(k):
        for mask in masks:
            if not mask >> part & 1:
                weight = _shapley_weight(mask.bit_count(), k)
                shares[part, rows[mask | 1 << part]] += weight
                shares[part, rows[mask]] -= weight
    pairs = tuple((i, j, _interaction_weights(i, j, k, rows)) for i, j in combinations(range(k), 2))
    return ExperimentDesign(
        masks=masks, total=_total_weights(masks), shares=shares, interactions=pairs, permutations=None
    )


def permutation_design(k: int, permutations: Sequence[Sequence[int]]) -> ExperimentDesign:
    """Return the design that swaps the parts in these orders only, and takes the mean over them.

    The shares still sum to the whole change, and a part without effect has none (Castro, Gómez & Tejada 2009).

    >>> design = permutation_design(2, [(1, 0)])
    >>> design.masks, design.shares.tolist()
    ((0, 2, 3), [[0.0, -1.0, 1.0], [-1.0, 1.0, 0.0]])
    """
    steps = [(part, sum(1 << j for j in order[:i])) for order in permutations for i, part in enumerate(order)]
    masks = _sort_masks({0, (1 << k) - 1} | {mask for _, mask in steps})
    rows = {mask: i for i, mask in enumerate(masks)}
    shares = np.zeros((k, len(masks)))
    for part, mask in steps:
        shares[part, rows[mask | 1 << part]] += 1 / len(permutations)
        shares[part, rows[mask]] -= 1 / len(permutations)
    return ExperimentDesign(
        masks=masks, total=_total_weights(masks), shares=shares, interactions=(), permutations=len(permutations)
    )


def draw_permutations(k: int, count: int, seed: int) -> list[tuple[int, ...]]:
    """Draw random orders of k parts in which each part comes about equally often at each place.

    Orders are drawn in blocks: a random one and its rotations.

    >>> draw_permutations(3, 4, seed=1)
    [(0, 1, 2), (1, 2, 0), (2, 0, 1), (2, 0, 1)]
    """
    rng = np.random.default_rng(seed)
    permutations: list[tuple[int, ...]] = []
    while len(permutations) < count:
        order = rng.permutation(k).tolist()
        permutations += [tuple(order[i:] + order[:i]) for i in range(k)]
    return permutations[:count]


def _sort_masks(masks: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(masks, key=lambda mask: (mask.bit_count(), mask)))


def _shapley_weight(before: int, k: int) -> float:
    """Return the share of the orders of k parts in which given `before` parts come first and a given one next."""
    return factorial(before) * factorial(k - before - 1) / factorial(k)


def _total_weights(masks: Sequence[int]) -> FloatArray:
    weights = np.zeros(len(masks))
    weights[0] -= 1
    weights[-1] += 1
    return weights


def _interaction_weights(i: int, j: int, k: int, column_by_mask: dict[int, int]) -> FloatArray:
    weights = np.zeros(len(column_by_mask))
    both = 1 << i | 1 << j
    for mask in column_by_mask:
        if not mask & both:
            weight = _shapley_weight(mask.bit_count(), k - 1)
            for more, sign in ((both, 1), (1 << i, -1), (1 << j, -1), (0, 1)):
                weights[column_by_mask[mask | more]] += sign * weight
    return weights


def add_verdict(attribution: MetricAttribution) -> MetricAttribution:
    """Add the verdict in words to an attribution."""
    return replace(attribution, verdict=f"{'. '.join(_verdict_sentences(attribution))}.")


def _verdict_sentences(attribution: MetricAttribution) -> list[str]:
    if attribution.total is None:
        note = f", though {attribution.lost:,} are in some" if attribution.lost else ""
        return [f"No query is scored in every configuration{note}"]
    movers = [share for share in attribution.shares if share.moved]
    open_ = [share for share in attribution.shares if share.state == "cannot tell"]
    same = [share.parts[0] for share in attribution.shares if share.identical]
    steady_parts = [share.parts[0] for share in attribution.shares if share.state == "steady" and not share.identical]
    sentences = [_moved_text(movers, attribution)] if movers else []
    if open_:
        sentences.append(_undecided_text(open_))
    if steady_parts:
        sentences.append(f"{_join_names(steady_parts)} did not move it by more than {attribution.margin:.2g}")
    if same:
        sentences.append(f"{_join_names(same)} changed nothing that it reads")
    return sentences + [_interaction_text(effect) for effect in attribution.interactions if effect.moved]


def _moved_text(movers: Sequence[PartEffect], attribution: MetricAttribution) -> str:
    assert attribution.total is not None
    order = sorted(movers, key=lambda share: -abs(share.difference.mean))
    pieces = []
    for share in order:
        verb = "raised" if share.difference.mean > 0 else "lowered"
        pieces.append(f"{share.parts[0]} {verb} it by {abs(share.difference.mean):.3f}")
    return f"{_join_names(pieces)}, of a whole change of {format_signed(attribution.total.difference.mean)}"


def _undecided_text(shares: Sequence[PartEffect]) -> str:
    names = _join_names([share.parts[0] for share in shares])
    needs = [share.needed for share in shares]
    known_needs = [need for need in needs if need is not None]
    enough = f"; about {max(known_needs):,} scored queries would" if len(known_needs) == len(needs) else ""
    return f"Of {names} it cannot be told{enough}"


def _interaction_text(effect: PartEffect) -> str:
    size = format_signed(effect.difference.mean)
    return f"{_join_names(effect.parts)} depend on each other: swapped together they do {size} more than one by one"


def _join_names(names: Sequence[str]) -> str:
    """Join names with commas and "and".

    >>> _join_names(["a"]), _join_names(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def hash_retrieval(traces: Sequence[Trace]) -> tuple[int, ...]:
    """Hash the chunks and the gold of every query."""
    return tuple(hash(repr(([(chunk.id, chunk.text) for chunk in trace.chunks or ()], trace.gold))) for trace in traces)


def list_fixed_parts(
    metrics: Sequence[Metric], baseline: System, candidate: System, retrieval_hashes: Mapping[int, tuple[int, ...]]
) -> list[list[int]]:
    """Return for each metric the parts that cannot move it.

    Those are callables that both systems share and, for a metric blind to the answer, parts whose swap changed no
    chunk.
    """
    fixed = {i for i, name in enumerate(baseline) if baseline[name] is candidate[name]}
    # to swap these never changed a chunk
    blind = {
        i
        for i in range(len(baseline))
        if all(hashed == retrieval_hashes.get(mask | 1 << i, hashed) for mask, hashed in retrieval_hashes.items())
    }
    return [sorted(fixed | (blind if ignores_answer(metric.definition) else set())) for metric in metrics]


# relative size below which an effect on a query is rounding
ROUNDING_SLACK = 1e-12

Mask = NDArray[np.bool_]


class EffectTest(Struct, frozen=True):
    """Effect with its interval and its test."""

    difference: Difference
    sign_flip: SignificanceTest
    # whether it is other than 0 on some query, so that it could be significant
    testable: bool


class EffectOptions(Struct, frozen=True, kw_only=True):
    """Options of the effect tests."""

    confidence: float = 0.95
    resamples: int | None = None
    seed: int = 0
    margin: float = MARGIN
    power: float = POWER

    @property
    def alpha(self) -> float:
        """Return the level of the tests."""
        return 1 - self.confidence

    def margin_for(self, measure: MetricInfo, mean: float) -> float:
        """Return the smallest effect that matters for a metric, in its units."""
        return default_margin(measure, mean, self.margin)


class ExperimentValues(NamedTuple):
    """Values of the metrics in every configuration of an experiment."""

    values: FloatArray
    """Configurations by queries by metrics; NaN where a query is not scored."""
    clusters: Clusters | None = None
    """Cluster of each query; None: each is its own."""
    fixed_parts: Sequence[Sequence[int]] = ()
    """For each metric the parts that cannot move it."""


DEFAULT_EFFECTS = EffectOptions()


def attribute_change(
    outcome: ExperimentValues,
    measures: Sequence[MetricInfo],
    parts: Sequence[str],
    design: ExperimentDesign,
    options: EffectOptions = DEFAULT_EFFECTS,
) -> tuple[MetricAttribution, ...]:
    """Divide the change of every metric among the parts.

    Only queries that are scored in every configuration count. Every effect is computed query by query; its interval is
    that of a paired difference (BCa over resampled clusters, the same resamples for all effects and metrics) and its p
    that of the sign-flip test. Holm's correction takes the whole changes of all metrics as one family, and the shares
    and interactions of all metrics as another; effects that are 0 on every query cannot be significant whatever the
    signs, and are not counted (Tarone 1990).

    >>> from ragfault.comparison.ablation.attribution import factorial_design
    >>> rng = np.random.default_rng(0)
    >>> queries = rng.normal(0.5, 0.1, size=(1, 50, 1))
    >>> effects = np.array([0.0, 0.0, -0.2, -0.2])[:, None, None] + rng.normal(0, 0.01, size=(4, 50, 1))
    >>> measures, design = [MetricInfo("m", "generation")], factorial_design(2)
    >>> found = attribute_change(ExperimentValues(queries + effects), measures, ["r", "g"], design)[0]
    >>> [(share.parts, share.moved, round(share.difference.mean, 2)) for share in found.shares]
    [(('r',), False, 0.0), (('g',), True, -0.2)]
    """
    values, clusters, fixed_parts = outcome
    scored = np.isfinite(values)
    complete: Mask = np.asarray(scored.all(axis=0))
    lost = (np.asarray(scored.any(axis=0)) & ~complete).sum(axis=0).tolist()
    groups = [(), *((i,) for i in range(len(parts))), *((i, j) for i, j, _ in design.interactions)]
    weights = np.vstack([design.total, design.shares, *(row for _, _, row in design.interactions)])
    tests = _test_effects(np.where(complete, values, 0.0), complete, weights, measures, clusters, options)
    adjusted = _adjust_p(tests)
    family = max(1, sum(test is not None and test.testable for row in tests for test in row[1:]))
    attributions = []
    for index, measure in enumerate(measures):
        means = values[:, complete[:, index], index].mean(axis=1).tolist() if complete[:, index].any() else []
        margin = options.margin_for(measure, means[0] if means else 0.0)
        # with one (or, for all, with each) it is zero
        fixed = set(fixed_parts[index]) if fixed_parts else set()
        null = [any(i in fixed for i in group) if group else len(fixed) == len(parts) for group in groups]
        effects = [
            _build_effect(tuple(parts[i] for i in group), test, p, still, EffectTerms(margin, family, options))
            for group, test, p, still in zip(groups, tests[index], adjusted[index], null, strict=True)
            if test is not None
        ]
        # of which no number is known, as in `compare`
        if is_amount(measure):
            effects = [replace(effect, needed=None) for effect in effects]
        attribution = MetricAttribution(
            metric=measure.name,
            layer=measure.layer,
            better=measure.better,
            means=tuple(means),
            n=int(complete[:, index].sum()),
            lost=lost[index],
            margin=margin,
            total=effects[0] if effects else None,
            shares=tuple(effects[1 : len(parts) + 1]),
            interactions=tuple(effects[len(parts) + 1 :]),
        )
        attributions.append(add_verdict(attribution))
    return tuple(attributions)


def _test_effects(
    values: FloatArray,
    complete: Mask,
    weights: FloatArray,
    measures: Sequence[MetricInfo],
    clusters: Clusters | None,
    options: EffectOptions,
) -> list[list[EffectTest | None]]:
    """Test each effect of each metric."""
    count = len(weights)
    after = np.einsum("ec,cqm->qme", np.maximum(weights, 0), values)
    before = np.einsum("ec,cqm->qme", np.maximum(-weights, 0), values)
    rounding = np.abs(after - before) <= ROUNDING_SLACK * (np.abs(after) + np.abs(before))
    after = np.where(rounding, before, after)
    old, new = (table.reshape(len(table), -1) for table in (before, after))
    defined = np.repeat(complete, count, axis=1)
    bounds = [
        (-math.inf if m.low is None else m.low * size, math.inf if m.high is None else m.high * size)
        for m in measures
        for size in np.maximum(weights, 0).sum(axis=1).tolist()
    ]
    differences = paired_differences(
        old,
        new,
        clusters,
        defined=defined,
        bounds=bounds,
        confidence=options.confidence,
        resamples=options.resamples,
        seed=options.seed,
    )
    moved = int((old != new).any(axis=0).sum())
    flips = sign_flip_tests(
        old, new, clusters, defined=defined, resamples=count_flips(moved, len(old), options.alpha), seed=options.seed
    )
    effects = [
        None if change is None or flip is None else EffectTest(change, flip, counts)
        for change, flip, counts in zip(differences, flips, (old != new).any(axis=0).tolist(), strict=True)
    ]
    return [effects[i : i + count] for i in range(0, len(effects), count)]


def _adjust_p(tests: list[list[EffectTest | None]]) -> list[list[float]]:
    """Correct the p of every effect by Holm: one family for the whole changes, one for all else."""
    adjusted = [[1.0] * len(row) for row in tests]
    for inner in (False, True):
        raw_p = [
            (i, effect, test.sign_flip.p)
            for i, row in enumerate(tests)
            for effect, test in enumerate(row)
            if test is not None and test.testable and (effect > 0) == inner
        ]
        for (metric_index, effect, _), p in zip(raw_p, holm_adjust([p for *_, p in raw_p]), strict=True):
            adjusted[metric_index][effect] = p
    return adjusted


class EffectTerms(NamedTuple):
    """What decides on the effects on one metric."""

    margin: float
    """In the units of the metric."""
    family: int
    """Number of effects that are tested together."""
    options: EffectOptions


def _build_effect(
    parts: tuple[str, ...], test: EffectTest, adjusted: float, identical: bool, terms: EffectTerms
) -> PartEffect:
    difference, (margin, family, options) = test.difference, terms
    steadiness = equivalence_test(difference, margin, options.alpha).p
    state: ChangeState = "cannot tell"
    if identical or steadiness <= options.alpha:
        state = "steady"
    elif adjusted <= options.alpha:
        state = "rose" if difference.mean > 0 else "dropped"
    needed = None
    if state == "cannot tell":
        needed = pairs_to_decide(difference, margin, power=options.power, alpha=options.alpha, family=family)
    return PartEffect(
        parts=parts,
        difference=difference,
        p=test.sign_flip.p,
        adjusted=adjusted,
        equivalence_p=steadiness,
        state=state,
        identical=identical,
        needed=needed,
    )
